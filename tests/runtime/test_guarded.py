"""Policies that other packages register: whatever they do wrong, the turn goes on and the journal stays readable."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from nbagent.context.policy import Compact, NoteStyle, PolicyKind, Prune, Situation
from nbagent.core.entries import Compaction, Pruning, ToolResult
from nbagent.core.errors import PolicyError, told
from nbagent.models.scripted import calls, says
from nbagent.runtime import contexts
from nbagent.runtime.beside import within
from nbagent.runtime.compacting import compact
from nbagent.runtime.comparing import compare_session
from nbagent.runtime.guarded import guarded, registered
from nbagent.store.verify import verify
from tests.fakes.messages_api import FakeMessagesAPI
from tests.runtime.lab import Lab
from tests.runtime.talk import Talk

NOTE = "<note>## Goal\ncount\n## Constraints\n(none)\n</note>"
Plan = Callable[[Situation], Any]


class Theirs:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan


def chosen(monkeypatch: pytest.MonkeyPatch, plan: Plan) -> None:
    kind = PolicyKind(name="theirs", make=lambda numbers: Theirs(plan), default={"threshold": 0.5}, summary="x")  # type: ignore[arg-type,return-value]
    installed = {"theirs": guarded(kind)}
    monkeypatch.setattr(contexts, "_installed", lambda: installed)


class CannotSay(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def raises(error: BaseException) -> Plan:
    def plan(situation: Situation) -> Any:
        raise error

    return plan


def result(situation: Situation) -> str:
    return next((e.id for e in situation.path if isinstance(e.body, ToolResult)), "")


def pruned(situation: Situation, text: Any) -> Any:
    return (Prune(placeholders={result(situation): text}, reason="r"),) if result(situation) else ()


def noted(**style: Any) -> Plan:
    return lambda situation: (Compact(first_kept=None, reason="r", style=NoteStyle(**style)),)


WRONG: dict[str, Plan] = {
    "raises": raises(ValueError("boom\nsecond line")),
    "cannot say why": raises(CannotSay()),
    "exits": raises(SystemExit(3)),
    "stops": raises(StopIteration(3)),
    "nothing": lambda s: None,
    "a text": lambda s: "abc",
    "a number": lambda s: 3,
    "no moves": lambda s: ["x"],
    "an unknown result": lambda s: (Prune(placeholders={"nope": "x"}, reason="r"),),
    "a message": lambda s: (Prune(placeholders={s.path[1].id: "x"}, reason="r"),),
    "no text": lambda s: pruned(s, 5),
    "no placeholders": lambda s: (Prune(placeholders=None, reason="r"),),  # type: ignore[arg-type]
    "no reason": lambda s: (Compact(first_kept=None, reason=None),),  # type: ignore[arg-type]
    "an unknown cut": lambda s: (Compact(first_kept="nope", reason="r"),),
    "a cut inside": lambda s: (Compact(first_kept=result(s) or "nope", reason="r"),),
    "no style": lambda s: (Compact(first_kept=None, reason="r", style=None),),  # type: ignore[arg-type]
    "an unknown template": noted(template="nope"),
    "a template that is none": noted(template=None),
    "no number": noted(users_tokens="many"),
    "a note that is none": lambda s: (Compact(first_kept=None, reason="r", note=5),),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", WRONG)
def test_whatever_a_policy_does_wrong_the_turn_goes_on_under_the_default(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    chosen(monkeypatch, WRONG[name])
    lab = Lab(tmp_path / "work", memory__flush="off")
    (lab.folder / "a.txt").write_text("hello value_1\n" * 400)
    lab.open([calls("read", path="a.txt"), says("one"), says("two"), says(NOTE)], policy="theirs")
    with caplog.at_level(logging.WARNING):
        assert lab.send("first", "c1").output.outcome == "completed"
        assert lab.send("second", "c2").output.outcome == "completed"
        assert lab.run(compact(lab.session, lab.ports())).applied
    assert "'theirs' is not asked any more" in caplog.text
    assert caplog.text.count("is not asked any more") == 1
    assert not lab.bodies(Pruning)
    assert not compare_session(lab.session, ["theirs"]).rows[0].problem
    lab.session.occupancy()
    assert verify(lab.session.place.journal) == []
    lab.close()


def test_what_a_policy_may_do_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def plan(situation: Situation) -> Any:
        yield from pruned(situation, "short \ud800")
        if situation.moment.reason == "manual":
            yield Compact(first_kept=None, reason="theirs", style=NoteStyle(beside=lambda e, w: "MINE", checks=lambda n, e: 1 / 0))  # type: ignore[arg-type,return-value]

    chosen(monkeypatch, plan)
    lab = Lab(tmp_path / "work", memory__flush="off")
    (lab.folder / "a.txt").write_text("hello value_1\n" * 400)
    lab.open([calls("read", path="a.txt"), says("one " * 3_000), says(NOTE)], policy="theirs")
    lab.send("first", "c1")
    (pruning,) = lab.bodies(Pruning)
    assert list(pruning.placeholders.values()) == ["short \ufffd"]
    assert lab.run(compact(lab.session, lab.ports())).applied
    assert "MINE" in lab.bodies(Compaction)[0].note
    lab.close()


def test_one_that_cannot_be_made_is_told_when_it_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    def make(numbers: Any) -> Any:
        raise CannotSay

    kind = guarded(PolicyKind(name="theirs", make=make, default={"threshold": "half"}, summary="x"))  # type: ignore[dict-item]
    assert dict(kind.default) == {}
    monkeypatch.setattr(contexts, "_installed", lambda: {"theirs": kind})
    with pytest.raises(PolicyError, match="cannot be made: it does not say why"):
        contexts.choose_policy("theirs", {}, None)


@pytest.mark.parametrize("by_hand", [False, True])
def test_stop_leaves_a_policy_behind_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_hand: bool) -> None:
    entered, go_on = threading.Event(), threading.Event()
    hangs = [False]

    def plan(situation: Situation) -> Any:
        if hangs[0]:
            entered.set()
            go_on.wait()
        return ()

    chosen(monkeypatch, plan)
    with FakeMessagesAPI(["one", "two"], repeat=True) as fake:
        with Talk(tmp_path, fake, options={"policy": "theirs", "memory.flush": "off"}) as talk:
            assert talk.send("first").output.outcome == "completed"
            hangs[0] = True

            async def stopped() -> Any:
                import asyncio

                work = compact(talk.session, talk.ports) if by_hand else talk.sending("second")
                task = asyncio.ensure_future(work)
                while not entered.is_set():
                    await asyncio.sleep(0)
                task.cancel()
                return await task

            done = talk.run(stopped())
            assert (done.reason if by_hand else done.output.outcome) == "stopped"
            hangs[0] = False
            assert talk.send("third").output.outcome == "completed"
        go_on.set()
        assert not [r.refusal for r in fake.requests if r.refusal]


def test_what_takes_note_is_not_waited_for_forever() -> None:
    go_on = threading.Event()
    with pytest.raises(TimeoutError, match="within 0 s"):
        within(go_on.wait, 0)
    go_on.set()
    assert within(lambda: 5, 60) == 5
    with pytest.raises(RuntimeError, match="SystemExit was raised"):
        within(lambda: raises(SystemExit())(None), 60)  # type: ignore[arg-type]


def test_an_exception_that_cannot_say_what_it_is_is_told() -> None:
    assert told(CannotSay()) == "it does not say why"
    assert told(ValueError("a\nb")) == "a b"


NOT_ONE = 5
BROKEN = PolicyKind(name="other", make=lambda numbers: 1 / 0, default={}, summary="x")  # type: ignore[arg-type,return-value]


def test_one_that_cannot_be_loaded_says_so_when_chosen_and_spoils_no_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = [EntryPoint(n.lower(), f"{__name__}:{n}", contexts.ENTRY_POINTS) for n in ("NOT_ONE", "BROKEN", "MISSING")]
    installed = {p.name: registered(p) for p in points}
    monkeypatch.setattr(contexts, "_installed", lambda: installed)
    for name, why in (("not_one", "is no PolicyKind"), ("missing", "cannot be loaded"), ("broken", "cannot be made")):
        with pytest.raises(PolicyError, match=why):
            contexts.choose_policy(name, {}, None)
    assert "cannot be loaded: TypeError" in contexts.known_policies()["not_one"].summary
    lab = Lab(tmp_path / "work", memory__flush="off")
    lab.open([says("a")])
    lab.send("one", "c1")
    assert [r.policy for r in compare_session(lab.session).rows][:2] == ["nbagent", "openclaw"]
    with pytest.raises(PolicyError, match="cannot be made"):
        compare_session(lab.session, ["broken"])
    lab.close()
