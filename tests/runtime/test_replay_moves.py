"""What was done to the context is done again in replay, at the same places, and the requests are the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from nbagent.core.effects import Append, Effect
from nbagent.core.entries import (
    Body,
    Compaction,
    Pruning,
    Report,
    Restore,
    Steering,
    ToolResult,
    TurnEnd,
    TurnStart,
    UsageReported,
)
from nbagent.core.errors import UsageProblem
from nbagent.core.messages import Prefix, text_block
from nbagent.core.view import ViewFold
from nbagent.models.cassette import Cassette, from_text, load, to_text
from nbagent.models.scripted import calls, says
from nbagent.runtime.compacting import compact, undo
from nbagent.runtime.recording import Recorder
from nbagent.runtime.turns import TurnRunner
from nbagent.tools.search import GlobTool
from tests.patience import HANG_S
from tests.runtime.lab import Lab, result_texts

Plan = Callable[[ViewFold], list[Body]]


class Planned:
    """Stands in for the engine: before each call it writes what `plan` says."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def before_call(self, fold: ViewFold) -> Generator[Effect, Any, str | None]:
        for body in self.plan(fold):
            fold.add((yield Append(body=body)))
        return None

    def on_overflow(self, fold: ViewFold) -> Generator[Effect, Any, bool]:
        yield from ()
        return False


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    made = Lab(tmp_path / "work", mode="auto")
    made.plan = lambda fold: []  # type: ignore[attr-defined]
    monkeypatch.setattr(TurnRunner, "engine", lambda self, *given, **named: Planned(lambda fold: made.plan(fold)))  # type: ignore[attr-defined]
    return made


def python(code: str) -> Any:
    return calls("python", code=code)


def recorded(lab: Lab) -> Cassette:
    path = lab.folder / "cassettes" / "a.json"
    Recorder(path=path).save(lab.session)
    return load(path)


def ids(fold: ViewFold, kind: type) -> list[str]:
    return [e.id for e in fold.path if isinstance(e.body, kind)]


def kinds(lab: Lab, *wanted: type) -> list[str]:
    return [e.kind for e in lab.session.tree.path() if isinstance(e.body, wanted)]


MOVES = (Pruning, Compaction, Restore, Report, UsageReported, ToolResult, TurnStart, TurnEnd)


def test_a_pruning_and_a_compaction_in_mid_turn_are_made_again(lab: Lab) -> None:
    paid = UsageReported(step=0, model="m", usage={"input_tokens": 9}, cost_usd=0.5, purpose="handoff")

    def plan(fold: ViewFold) -> list[Body]:
        results = ids(fold, ToolResult)
        if len(results) == 2 and not ids(fold, Pruning):
            return [Pruning(placeholders={results[0]: f"[cleared; recall {results[0]}]"}, reason="old")]
        if len(results) == 3 and not ids(fold, Compaction):
            last = [e.id for e in fold.path if e.kind == "assistant_message"][-1]
            return [paid, Compaction(first_kept=last, note="So far: a, b."), Report(source="compaction", text="ok")]
        return []

    lab.plan = plan  # type: ignore[attr-defined]
    steps = [[python(f"print({n} * 'word ')")] for n in (10, 20, 30, 40)]
    lab.open([*steps, says("done"), says("next")])
    lab.send("one", "A")
    lab.send("two", "B")
    assert any("[cleared; recall" in t for r in lab.requests for t in result_texts(r))
    assert b"So far: a, b." in lab.sent()[-1]
    made, first, written = recorded(lab), lab.sent(), kinds(lab, *MOVES)
    lab.close()
    for _ in range(2):
        lab.replay(made)
        lab.send("one", "A")
        lab.send("two", "B")
        assert lab.sent() == first
        assert kinds(lab, *MOVES) == written
        assert [u for u in lab.bodies(UsageReported) if u.purpose == "handoff"] == [paid]
        lab.close()


def test_moves_between_turns_and_their_undoing_are_made_again_also_in_a_cell_that_is_run_again(lab: Lab) -> None:
    lab.open([[python("print('a')")], says("1"), says("2"), says("3")])
    lab.send("one", "A")
    write = lab.session.runner.writer.write
    compaction = write(Compaction(first_kept=None, note="A note."))
    write(Pruning(placeholders={e.id: "[gone]" for e in lab.session.tree.path() if isinstance(e.body, ToolResult)}))
    lab.send("two", "B")
    write(Restore(cancels=compaction.id))
    lab.send("three", "C")
    made, first, written = recorded(lab), lab.sent(), kinds(lab, *MOVES)
    assert b"A note." in first[2]
    assert b"A note." not in first[3]
    assert b"[gone]" in first[3]
    lab.close()
    lab.replay(from_text(to_text(made), "again"))
    for prompt, cell in (("one", "A"), ("two", "B"), ("three", "C"), ("two", "B"), ("three", "C")):
        lab.send(prompt, cell)
    assert lab.sent() == [*first, *first[2:]]
    assert kinds(lab, *MOVES) == written


def test_moves_around_a_resumed_turn_are_made_again(lab: Lab) -> None:
    def plan(fold: ViewFold) -> list[Body]:
        said = any(isinstance(e.body, Steering) for e in fold.path)
        return [Pruning(placeholders={ids(fold, ToolResult)[1]: "[two]"})] if said and not ids(fold, Pruning) else []

    lab.open([[python("print('a')")], [python("print('b')")], says("done"), says("next")])
    lab.send("one", "A", max_steps=2)
    lab.session.runner.writer.write(Compaction(first_kept=None, note="A note."))
    lab.plan = plan  # type: ignore[attr-defined]
    lab.resume()
    lab.send("two", "B")
    made, first, written = recorded(lab), lab.sent(), kinds(lab, *MOVES)
    lab.close()
    lab.replay(made)
    lab.send("one", "A")
    lab.resume()
    lab.send("two", "B")
    assert lab.sent() == first
    assert kinds(lab, *MOVES) == written


def test_the_prefix_that_a_compaction_made_is_in_the_recording(lab: Lab) -> None:
    lab.open([says("1"), says("2")])
    lab.send("one", "A")
    runner = lab.session.runner
    fresh = Prefix(system=(text_block(f"New, in {lab.folder}."),), tools=runner.prefix_of(runner.root_prefix(lab.session.tree.path())).tools)
    runner.writer.write(Compaction(first_kept=None, note="A note.", details={"prefix": runner.store_prefix(fresh)}))
    lab.send("two", "B")
    made, first = recorded(lab), lab.sent()
    assert b"New, in .." in first[1]
    lab.close()
    lab.replay(made)
    lab.send("one", "A")
    lab.send("two", "B")
    assert lab.sent() == first


def test_a_turn_with_moves_is_not_reused(lab: Lab) -> None:
    lab.plan = lambda fold: [Pruning(placeholders={})] if ids(fold, ToolResult) else []  # type: ignore[attr-defined]
    lab.open([[python("print('a')")], says("1"), says("again")])
    lab.send("one", "A")
    assert lab.send("one", "A", rerun="reuse").output.text == "again"


def test_results_that_came_out_of_order_come_in_that_order_again(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    run, after = GlobTool.run, asyncio.Event()

    async def slow(self: GlobTool, input: Any, context: Any) -> Any:
        if input["pattern"] == "a*":
            await asyncio.wait_for(after.wait(), HANG_S)
        found = await run(self, input, context)
        after.set()
        return found

    monkeypatch.setattr(GlobTool, "run", slow)
    lab.open([[calls("glob", pattern="a*"), calls("glob", pattern="b*")], says("done")])
    lab.send("one", "A")
    assert "b*" in result_texts(lab.requests[-1])[0]
    made, first = recorded(lab), lab.sent()
    lab.close()
    lab.replay(made)
    lab.send("one", "A")
    assert lab.sent() == first


def test_a_move_made_by_hand_in_replay_is_not_taken_for_a_recorded_one(lab: Lab) -> None:
    lab.open([[python("print('a')")], says("1"), says("2")])
    lab.send("one", "A")
    lab.session.runner.writer.write(Compaction(first_kept=None, note="The recorded note."))
    lab.send("two", "B")
    made = recorded(lab)
    lab.close()
    lab.replay(made)
    lab.send("one", "A")
    results = [e.id for e in lab.session.tree.path() if isinstance(e.body, ToolResult)]
    lab.session.runner.writer.write(Pruning(placeholders={results[0]: "[by hand]"}))
    lab.send("two", "B")
    assert [b.note for b in lab.bodies(Compaction)] == ["The recorded note."]
    assert b"The recorded note." in lab.sent()[-1]
    lab.send("two", "B")
    assert [b.note for b in lab.bodies(Compaction)] == ["The recorded note."]


def test_compacting_in_replay_says_in_one_line_why_not_and_undoing_works(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    lab.open([[python("print('a')")], says("1"), says("2")])
    lab.send("one", "A")
    lab.session.runner.writer.write(Compaction(first_kept=None, note="The recorded note."))
    lab.send("two", "B")
    made = recorded(lab)
    lab.close()
    lab.replay(made)
    lab.send("one", "A")
    lab.send("two", "B")
    with pytest.raises(UsageProblem, match="a recording plays, so no model can write a note"):
        asyncio.run(compact(lab.session, lab.ports()))
    assert not undo(lab.session).waits
    assert b"one" in b"".join(m.to_bytes() for m in ViewFold(lab.session.tree.path()).view().messages)
    with pytest.raises(UsageProblem, match="there is no compaction to take back"):
        undo(lab.session)
