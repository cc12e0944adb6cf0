"""A session whose conversation is longer than one request for a note: read in parts, all or nothing, also after a restart.

Numbers in docstrings are the shared cases.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nbagent.core.effects import Notice
from nbagent.core.entries import Compaction, Pruning, Report, UsageReported
from nbagent.core.view import build_view
from nbagent.runtime.compacting import compact
from tests.fakes.messages_api import FakeMessagesAPI, call, http_error, reply, thinking
from tests.runtime.talk import Talk

Make = Callable[..., FakeMessagesAPI]
ASKS = "about to be replaced by a note"
NOTE = "<note>## Goal\nread all files\n</note>"
SMALL = 9_000

pytestmark = pytest.mark.prefix_moves(reason="compactions are what is tested")


class Script:
    """Reads a file a step, ends each fourth; request number N for a note gets `notes[N]`, else a good note."""

    def __init__(self, **notes: Any) -> None:
        self.given = {int(k[1:]): v for k, v in notes.items()}
        self.steps = 0
        self.asked: list[str] = []

    def __call__(self, body: dict[str, Any]) -> Any:
        last = str(body["messages"][-1]["content"][-1].get("text", ""))
        if ASKS in last:
            self.asked.append(last)
            return self.given.get(len(self.asked), NOTE)
        self.steps += 1
        if self.steps % 4 == 0:
            return reply(thinking("ok"), f"Done with part {self.steps}.")
        return reply(thinking(f"t{self.steps}"), call("read", {"path": f"a{self.steps % 30}.txt"}))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for i in range(30):
        (tmp_path / f"a{i}.txt").write_text(f"line of file {i} about value_{i} at /data/x{i}.csv\n" * 40)
    return tmp_path


def opened(folder: Path, fake: FakeMessagesAPI, policy: str = "nbagent") -> Talk:
    return Talk(folder, fake, options={"policy": policy, "window_tokens": 200_000, "memory.flush": "off"})


def shrunk(held: Talk, tokens: int = SMALL) -> None:
    held.session.reconfigure(replace(held.session.settings, window_tokens=tokens))


def wire(held: Talk) -> bytes:
    return b"\n".join(m.to_bytes() for m in build_view(held.path).messages)


def long_session(held: Talk) -> None:
    for k in range(5):
        assert held.send(f"Part {k}: please read files.").output.outcome == "completed"


@pytest.mark.parametrize("policy", ["nbagent", "openclaw", "claude-code", "pi", "codex", "gemini-cli", "opencode", "manus", "createrole"])
def test_a_window_made_smaller_than_the_conversation_is_compacted_before_the_next_call(make_fake: Make, folder: Path, policy: str) -> None:
    """openclaw 151; agents 26: by what the new window holds; nothing is refused and the new message is whole."""
    script = Script()
    fake = make_fake()
    fake._answer_of = script
    with opened(folder, fake, policy) as held:
        long_session(held)
        assert held.session.occupancy().used_tokens > SMALL
        shrunk(held)
        done = held.send("And now the last part.")
        assert done.output.outcome == "completed"
        assert held.bodies(Compaction) or held.bodies(Pruning)
        assert str(fake.requests[-1].body["messages"]).count("And now the last part.") == 1
        assert held.session.occupancy().used_tokens < SMALL


def test_the_parts_are_told_and_recorded_and_the_note_is_the_same_after_a_restart(make_fake: Make, folder: Path) -> None:
    script = Script()
    fake = make_fake()
    fake._answer_of = script
    with opened(folder, fake) as held:
        long_session(held)
        shrunk(held)
        result = held.run(compact(held.session, held.ports))
        assert result.applied
        parts = held.bodies(Compaction)[-1].details["parts"]
        assert len(script.asked) == parts + 1 > 2
        assert [u.purpose for u in held.bodies(UsageReported)][-parts - 1 :] == ["handoff"] * (parts + 1)
        assert any(f"read in {parts} parts" in e.text for e in held.seen(Notice))
        before = wire(held)
    with opened(folder, fake) as again:
        assert wire(again) == before
        shrunk(again)
        assert again.send("go on").output.outcome == "completed"


def test_a_second_compaction_right_after_changes_nothing(make_fake: Make, folder: Path) -> None:
    """openclaw 27 and 28 of the reports: a conversation just compacted is left alone."""
    script = Script()
    fake = make_fake()
    fake._answer_of = script
    with opened(folder, fake, "openclaw") as held:
        long_session(held)
        shrunk(held)
        assert held.run(compact(held.session, held.ports)).applied
        before, entries = wire(held), len(held.bodies(Compaction))
        held.run(compact(held.session, held.ports))
        assert len(held.bodies(Compaction)) in (entries, entries + 1)
        if len(held.bodies(Compaction)) == entries:
            assert wire(held) == before


@pytest.mark.parametrize("policy", ["nbagent", "openclaw"])
@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_part_that_fails_by_hand_leaves_every_byte_as_it_was(make_fake: Make, folder: Path, policy: str, at: int) -> None:
    """openclaw 148; agents 31."""
    script = Script(**{f"n{at}": reply(fault=http_error(403, "no"))})
    fake = make_fake()
    fake._answer_of = script
    with opened(folder, fake, policy) as held:
        long_session(held)
        shrunk(held)
        before = wire(held)
        result = held.run(compact(held.session, held.ports))
        assert not result.applied
        assert "HTTP 403" in result.reason
        assert wire(held) == before
        assert len(script.asked) == at
        assert isinstance(held.path[-1].body, Report)
        assert held.run(compact(held.session, held.ports)).applied


@pytest.mark.refused(reason="the stop cuts the request off while it is being sent")
def test_a_stop_between_two_parts_leaves_the_conversation_as_it_was(make_fake: Make, folder: Path) -> None:
    """peers 19."""
    script = Script()
    fake = make_fake()
    fake._answer_of = script
    with opened(folder, fake) as held:
        long_session(held)
        shrunk(held)
        before = wire(held)
        done = held.send_and_stop(lambda e: isinstance(e, Notice) and "is read in" in e.text, "go on")
        assert done.output.outcome == "stopped"
        assert not held.bodies(Compaction)
        assert wire(held).startswith(before[:-2])
        assert held.resume().output.outcome == "completed"
        assert held.bodies(Compaction)


def test_a_note_in_parts_does_not_cost_more_than_the_turn_may(make_fake: Make, folder: Path) -> None:
    script = Script()
    fake = make_fake()
    fake._answer_of = script
    with opened(folder, fake, "openclaw") as held:
        long_session(held)
        shrunk(held)
        done = held.send("go on", max_cost_usd=1e-9)
        assert done.output.outcome == "limit"
        assert len(script.asked) == 1
        assert not held.bodies(Compaction)
        assert "--max-cost" in held.bodies(Report)[-1].text
        assert held.run(compact(held.session, held.ports)).applied
