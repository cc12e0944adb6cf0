"""One text larger than the window: what it is, how large, and what helps is said; the conversation stays as it was."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nbagent.core.entries import UserMessage
from nbagent.core.errors import UsageProblem
from nbagent.models.scripted import calls, says
from nbagent.runtime.matching import CellKey
from nbagent.runtime.ports import TurnOptions
from nbagent.runtime.preview import preview_turn
from tests.fakes.messages_api import FakeMessagesAPI, call, http_error, reply
from tests.fakes.ways import both_ways  # noqa: F401
from tests.runtime.lab import Lab
from tests.runtime.talk import Probe, Talk

Make = Callable[..., FakeMessagesAPI]
WINDOW = 20_000
LARGE = "".join(f"row {i} is {i * i}\n" for i in range(9_000))


def talk(folder: Path, fake: FakeMessagesAPI, policy: str = "nbagent", **options: Any) -> Talk:
    return Talk(folder, fake, options={"policy": policy, "window_tokens": WINDOW, "memory.flush": "off", **options})


@pytest.mark.parametrize("policy", ["nbagent", "openclaw", "claude-code", "off"])
def test_a_prompt_larger_than_the_window_is_refused_before_anything_is_written(make_fake: Make, tmp_path: Path, policy: str) -> None:
    fake = make_fake("one", "two")
    with talk(tmp_path, fake, policy) as held:
        held.send("hello")
        before = list(held.path)
        with pytest.raises(UsageProblem) as told:
            held.send(LARGE)
        line = str(told.value)
        assert "the text of this cell takes about" in line
        assert f"the window holds {WINDOW:,}" in line
        assert "into a file" in line
        assert "%context set window=" in line
        assert "%context compact" not in line
        assert "\n" not in line
        assert held.path == before
        assert held.send("go on").output.outcome == "completed"
        assert [m.blocks[0]["text"] for m in held.bodies(UserMessage)] == ["hello", "go on"]


def test_where_the_model_has_no_more_another_one_is_named(make_fake: Make, tmp_path: Path) -> None:
    fake = make_fake("one")
    with Talk(tmp_path, fake, model="claude-haiku-4-5", options={"window_tokens": 1_000_000, "memory.flush": "off"}) as held:
        with pytest.raises(UsageProblem) as told:
            held.send(LARGE * 5)
        assert "%agent model" in str(told.value)
        assert "%context set window" not in str(told.value)
        assert not held.path


def test_a_prompt_that_just_fits_is_sent(make_fake: Make, tmp_path: Path) -> None:
    fake = make_fake("one")
    with talk(tmp_path, fake) as held:
        held.send("x")
        meter = held.session.runner.gauge.meter(held.session.facts_of("claude-sonnet-5-5").family)
        fits = LARGE[: int(len(LARGE) * 0.5 * WINDOW / meter.text(LARGE))]
        fake.enqueue("ok")
        assert held.send(fits).output.outcome == "completed"


def test_a_dry_run_says_what_sending_would_say(make_fake: Make, tmp_path: Path) -> None:
    with talk(tmp_path, make_fake()) as held:
        cell = CellKey(cell_id="c", source_hash="h", order=1)
        with pytest.raises(UsageProblem, match="the text of this cell takes about"):
            held.run(preview_turn(held.session, LARGE, cell, TurnOptions(), held.ports))


def test_what_is_attached_is_named(make_fake: Make, tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.csv").write_text("a line of the table about rates\n" * 4_000)
    with talk(tmp_path, make_fake()) as held:
        with pytest.raises(UsageProblem, match=r"@\"?[abc].csv\"? takes about .* of .* asked at once") as told:
            held.send("compare @a.csv with @b.csv and @c.csv")
        assert "leave out the @" in str(told.value)
        assert not held.path


def test_what_is_sent_while_a_turn_runs_is_named(make_fake: Make, tmp_path: Path) -> None:
    async def steer(input: Any) -> str:
        held.ports.steering.append(LARGE)
        return "done"

    fake = make_fake(reply(call("steer", {})))
    with talk(tmp_path, fake) as held:
        held.session.runner.tools = {"steer": Probe("steer", steer)}
        done = held.send("go")
        assert done.output.outcome == "window_full"
        assert "what you sent while the turn ran takes about" in done.output.message
        assert "%context compact" not in done.output.message


def test_a_window_made_smaller_than_the_open_request_is_told_at_resume(make_fake: Make, tmp_path: Path) -> None:
    half = LARGE[: len(LARGE) // 8]
    fake = make_fake(reply("it is", stop_reason="max_tokens"))
    with talk(tmp_path, fake) as held:
        assert held.send(half).output.outcome == "cut_off"
        held.session.reconfigure(_with_window(held.session.settings, 7_000))
        before = list(held.path)
        done = held.resume()
        assert done.output.outcome == "window_full"
        assert "the text of this cell takes about" in done.output.message
        assert held.path[: len(before)] == before
        assert {e.kind for e in held.path[len(before) :]} <= {"snapshot", "steering", "turn_end"}


def _with_window(settings: Any, tokens: int) -> Any:
    import dataclasses

    return dataclasses.replace(settings, window_tokens=tokens)


@pytest.mark.parametrize(("status", "said"), [(400, "prompt is too long: 9000 tokens > 8000 maximum"), (413, "too large")])
def test_what_the_provider_finds_too_large_by_itself_is_not_answered_with_compaction(
    make_fake: Make, tmp_path: Path, status: int, said: str
) -> None:
    """The provider's window is smaller than it says; there is nothing to leave out but the message itself."""
    prompt = LARGE[: len(LARGE) // 10]
    fake = make_fake()
    fake._answer_of = lambda body: reply(fault=http_error(status, said))
    with talk(tmp_path, fake) as held:
        done = held.send(prompt)
        assert done.output.outcome == "error"
        assert "the text of this cell takes about" in done.output.message
        assert said in done.output.message
        assert "%context compact" not in done.output.message


def test_a_skill_that_takes_most_of_the_window_is_refused_with_what_helps(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "work", environ={"HOME": str(tmp_path / "person"), "PATH": os.environ["PATH"]})
    folder = tmp_path / "person" / ".agents" / "skills" / "long"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: long\ndescription: Use for long things\n---\n" + LARGE)
    lab.open([calls("skill", skill="long"), says("ok")], skills__mode="tool", window_tokens=WINDOW)
    done = lab.send("use it")
    assert done.output.outcome == "completed"
    text = str(lab.requests[-1].messages[-1])
    assert "its text takes about" in text
    assert "with offset and limit" in text
    before = list(lab.session.tree.path())
    with pytest.raises(UsageProblem, match="'long': its text takes about"):
        lab.send("now", cell="c2", skill="long")
    assert list(lab.session.tree.path()) == before
