"""What the policy claude-code takes out of the context lies in a file that the agent can read. Cases of claude.md."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nbagent.core.effects import Notice
from nbagent.core.entries import Compaction, ToolResult
from nbagent.core.errors import JournalUnwritable
from nbagent.core.messages import joined_text
from nbagent.runtime.compacting import compact
from nbagent.runtime.matching import CellKey
from nbagent.runtime.ports import TurnOptions
from nbagent.runtime.preview import preview_turn
from tests.fakes.messages_api import FakeMessagesAPI, call, reply, thinking
from tests.runtime.talk import Probe, Talk

Make = Callable[..., FakeMessagesAPI]
NOTE = "<note>## Current work\nrows</note>"
pytestmark = pytest.mark.prefix_moves(reason="compactions and prunings are what is tested")


def rows(count: int) -> str:
    return "".join(f"row {i}: {i * i} 数据 {i}\n" for i in range(count))


def talk(folder: Path, fake: FakeMessagesAPI, text: str, **options: Any) -> Talk:
    async def shown(input: Any) -> str:
        return text

    given = {"policy": "claude-code", "memory.flush": "off", **options}
    return Talk(folder, fake, tools={"rows": Probe("rows", shown)}, options=given)


@pytest.mark.parametrize("chars", [50_001, 63_000, 90_000])
def test_the_file_of_a_preview_holds_every_byte(make_fake: Make, tmp_path: Path, chars: int) -> None:
    """Case claude 70."""
    text = rows(6_000)[:chars]
    fake = make_fake(reply(call("rows", {})), "Done.")
    with talk(tmp_path, fake, text) as held:
        held.send("look")
        sent = str(fake.requests[-1].body["messages"][-1])
        (named,) = set(re.findall(r"is in (\S+): `read`", sent))
        assert (tmp_path / named).read_text(encoding="utf-8") == text.rstrip("\n") or (tmp_path / named).read_text(encoding="utf-8") == text
        assert f"{len(text):,} characters in all" in sent
        assert "only a preview" in sent
        assert len(sent) < 4_000
        assert len(joined_text(held.bodies(ToolResult)[0].content)) > 50_000


def test_a_result_of_fifty_thousand_characters_goes_whole(make_fake: Make, tmp_path: Path) -> None:
    """Case claude 70."""
    fake = make_fake(reply(call("rows", {})), "Done.")
    with talk(tmp_path, fake, rows(6_000)[:50_000]) as held:
        held.send("look")
        assert "only a preview" not in str(fake.requests[-1].body["messages"][-1])


@pytest.mark.parametrize("policy", ["claude-code", "manus"])
def test_the_conversation_before_a_compaction_is_in_the_file_that_the_note_names(make_fake: Make, tmp_path: Path, policy: str) -> None:
    """Case claude 58: all of it, also what an earlier compaction had replaced, and results that were cleared."""
    text = rows(300)
    fake = make_fake(
        reply(thinking("hm"), call("rows", {})),
        "First answer.",
        NOTE,
        "Second answer. " + "and so on " * 900,
        NOTE,
        "Third answer.",
    )
    with talk(tmp_path, fake, text, policy=policy) as held:
        held.send("the first question")
        assert held.run(compact(held.session, held.ports)).applied
        held.send("the second question " + "and more of it " * 900)
        assert held.run(compact(held.session, held.ports)).applied
        note = held.bodies(Compaction)[-1].note
        (named,) = re.findall(r"in the file (\S+), as text", note)
        kept = (tmp_path / named).read_text(encoding="utf-8")
        for part in ("the first question", "First answer.", text.strip(), "the second question", "Second answer."):
            assert kept.count(part) == 1
        assert kept.index("First answer.") < kept.index("the second question")
        held.send("go on")
        assert named in str(fake.requests[-1].body["messages"][0])


def files_in(folder: Path) -> dict[str, int]:
    return {str(p.relative_to(folder)): p.stat().st_size for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("policy", ["claude-code", "nbagent"])
def test_a_dry_run_writes_no_file(make_fake: Make, tmp_path: Path, policy: str) -> None:
    """The bill of the note is all: the conversation in a file and a prefix made anew come with the compaction itself."""
    fake = make_fake("First answer. " + "and so it goes " * 900, "b", NOTE, NOTE)
    with talk(tmp_path, fake, "x", policy=policy) as held:
        held.send("a question")
        held.send("another")
        (tmp_path / "AGENTS.md").write_text("Rule one: a new prefix.\n")
        artifacts = held.session.runner.artifacts.folder
        before = files_in(artifacts)
        result = held.run(compact(held.session, held.ports, dry_run=True))
        assert files_in(artifacts) == before
        assert ("in the file" in result.note) == (policy == "claude-code")
        assert held.run(compact(held.session, held.ports)).applied
        assert files_in(artifacts) != before


def test_a_dry_run_of_a_turn_writes_no_file(make_fake: Make, tmp_path: Path) -> None:
    with talk(tmp_path, make_fake("b"), "x") as held:
        before = files_in(tmp_path)
        cell = CellKey(cell_id="c1", source_hash="h1", order=1)
        request = held.run(preview_turn(held.session, "hi", cell, TurnOptions(), held.ports))
        assert request.messages
        assert files_in(tmp_path) == before
        held.send("hi")
        assert files_in(held.session.runner.artifacts.folder)


@pytest.mark.parametrize("policy", ["claude-code", "manus"])
def test_a_file_that_cannot_be_written_is_not_named_and_the_person_is_told(
    make_fake: Make, tmp_path: Path, policy: str
) -> None:
    """Case agents 67: the compaction goes on; what was replaced is in the journal all the same."""
    fake = make_fake("First answer. " + "and so it goes " * 900, "b", NOTE)
    with talk(tmp_path, fake, "x", policy=policy) as held:
        held.send("a question")
        held.send("another")
        artifacts = held.session.runner.artifacts
        put = artifacts.put_text

        def full(text: str) -> str:
            if "First answer." in text:
                raise JournalUnwritable("no space left on the disk")
            return put(text)

        artifacts.put_text = full  # type: ignore[method-assign]
        assert held.run(compact(held.session, held.ports)).applied
        assert "in the file" not in held.bodies(Compaction)[-1].note
        (told,) = [e.text for e in held.seen(Notice) if "could not be put into a file" in e.text]
        assert "`recall` finds it" in told


def test_other_policies_write_no_such_file(make_fake: Make, tmp_path: Path) -> None:
    fake = make_fake("First answer. " + "and so it goes " * 900, "b", NOTE)
    with talk(tmp_path, fake, "x", policy="pi") as held:
        held.send("a question")
        held.send("another")
        assert held.run(compact(held.session, held.ports)).applied
        assert "in the file" not in held.bodies(Compaction)[-1].note


@pytest.mark.parametrize(("policy", "most"), [("openclaw", 64_000), ("openclaw@seed", 16_000)])
def test_a_result_is_cut_as_the_policy_had_it_first(make_fake: Make, tmp_path: Path, policy: str, most: int) -> None:
    """OC-C4; openclaw 85, 86: 64,000 characters in a window of 200,000, first 16,000 in any."""
    fake = make_fake(reply(call("rows", {})), "Done.")
    with talk(tmp_path, fake, rows(9_000), policy=policy) as held:
        held.send("look")
        (result,) = held.bodies(ToolResult)
        assert most * 0.9 < len(joined_text(result.content)) <= most
