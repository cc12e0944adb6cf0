"""Going back with a note on the branch that is left (agents 64)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nbagent.core.entries import Snapshot, ToolResult, UsageReported
from nbagent.core.errors import UsageProblem
from nbagent.core.view import build_view
from nbagent.runtime.branching import go_back_with_note
from tests.fakes.messages_api import FakeMessagesAPI, call, reply, thinking
from tests.runtime.talk import Probe, Talk

Make = Callable[..., FakeMessagesAPI]
NOTE = "<note>## Goal\nfind the fault\n## Key decisions\nthe cache is not it</note>"
pytestmark = pytest.mark.prefix_moves(reason="the person goes back to an earlier point")


def wire(talk: Talk) -> bytes:
    return b"\n".join(m.to_bytes() for m in build_view(talk.path).messages)


def asked(fake: FakeMessagesAPI, at: int = -1) -> str:
    return "\n".join(str(b.get("text", "")) for m in fake.requests[at].body["messages"] for b in m["content"])


def talk(folder: Path, fake: FakeMessagesAPI, **options: Any) -> Talk:
    async def look(input: Any) -> str:
        return "WHAT THE TOOL BROUGHT " + "and more " * 40

    return Talk(folder, fake, tools={"look": Probe("look", look)}, options={"policy": "pi", "memory.flush": "off", **options})


def four_turns(session: Talk) -> None:
    for name in "ABCD":
        session.send(f"ask {name}")


REPLIES = ["answer A", reply(thinking("hm"), call("look", {})), "answer B", "answer C", "answer D"]


def test_the_note_tells_of_what_is_left_and_hangs_where_the_conversation_goes_on(make_fake: Make, tmp_path: Path) -> None:
    """agents 64: from the common point on, without results; no critical context; the branch stays in the tree."""
    fake = make_fake(*REPLIES, NOTE, "answer E")
    with talk(tmp_path, fake) as session:
        session.send("ask A")
        at_a = wire(session)
        for name in "BCD":
            session.send(f"ask {name}")
        before = [e.id for e in session.session.tree]
        went = session.run(go_back_with_note(session.session, session.ports, "1", before=False))
        assert (went.left, "the cache is not it" in went.note) == (3, True)
        sent = asked(fake)
        assert all(f"ask {n}" in sent and f"answer {n}" in sent for n in "BCD")
        assert not any(w in sent for w in ("ask A", "WHAT THE TOOL BROUGHT", "Critical context", "hm)"))
        assert [t for t in ("## Goal", "## Progress", "## Key decisions", "## Next steps") if t not in sent] == []
        assert wire(session).startswith(at_a[:-2])
        assert not any(isinstance(e.body, ToolResult) for e in session.path)
        (told,) = [b for b in session.bodies(Snapshot) if "branch" in b.topics]
        assert "3 turns" in told.text
        assert [e.id for e in session.session.tree][: len(before)] == before
        assert session.bodies(UsageReported)[-1].cost_usd > 0
        session.send("ask E")
        assert asked(fake).index("answer A" if "answer A" in asked(fake) else "ask A") < asked(fake).index("the cache is not it") < asked(fake).index("ask E")


def test_the_newest_messages_come_first_where_not_all_fit(make_fake: Make, tmp_path: Path) -> None:
    """agents 64: within the window less 16,384, or its share of a smaller one."""
    long = "and so it goes on " * 700
    fake = make_fake("answer A", f"answer B {long}", f"answer C {long}", "answer D", NOTE)
    with talk(tmp_path, fake, window_tokens=9_000) as session:
        four_turns(session)
        session.run(go_back_with_note(session.session, session.ports, "2", before=True))
        sent = asked(fake)
        assert "answer D" in sent
        assert "ask B" not in sent
        (told,) = [b for b in session.bodies(Snapshot) if "branch" in b.topics]
        assert "messages did not fit" in told.text


@pytest.mark.parametrize("answer", ["<note> </note>", reply(call("look", {}))])
def test_a_note_that_cannot_be_used_moves_nothing_and_is_paid_for(make_fake: Make, tmp_path: Path, answer: Any) -> None:
    fake = make_fake(*REPLIES, answer)
    with talk(tmp_path, fake) as session:
        four_turns(session)
        before = wire(session)
        with pytest.raises(UsageProblem, match="the conversation is where it was"):
            session.run(go_back_with_note(session.session, session.ports, "1", before=False))
        assert wire(session) == before
        assert session.bodies(UsageReported)[-1].purpose == "handoff"


def test_without_anything_to_note_nothing_is_asked(make_fake: Make, tmp_path: Path) -> None:
    fake = make_fake(*REPLIES)
    with talk(tmp_path, fake) as session:
        four_turns(session)
        for name, before, why in (("-1", False, "nothing was said after that point"), ("1", True, "before the first turn")):
            with pytest.raises(UsageProblem, match=why):
                session.run(go_back_with_note(session.session, session.ports, name, before=before))
        assert len(fake.requests) == len(REPLIES)
