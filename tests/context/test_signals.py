"""Signals at the tail of a step: how full the window is, and that calls repeat."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from nbagent.context.signals import TurnCalls, crossed_level, is_signal, shape_of, signal, told_level
from nbagent.core.budget import Budget
from nbagent.core.entries import Body, Entry, Snapshot
from nbagent.core.turn import ENDS_TURN
from nbagent.core.view import ViewFold, build_view
from tests.core.builders import (
    call,
    compacts,
    end,
    note,
    path,
    reply,
    restores,
    result,
    says,
    stamp,
    start,
    steer,
    user,
)  # fmt: skip

BUDGET = Budget(window_tokens=200_000)


def step(number: int, name: str = "read", text: str | None = None, **arguments: Any) -> list[Body]:
    made = reply(call(name, f"c{number}", arguments or {"path": f"{number}.csv"}), stop="tool_use")
    return [made, result(f"c{number}", f"result {number}" if text is None else text, name=name)]


def turn(*steps: Iterable[Body]) -> list[Entry]:
    return path(start(), user("go"), *(b for s in steps for b in s))


def ask(entries: list[Entry], used: int = 10_000) -> Snapshot | None:
    return signal(entries, build_view(entries), used, BUDGET)


def told(entries: list[Entry]) -> list[str]:
    """Walk a path as the engine does and return the text of every signal."""
    out: list[str] = []
    fold, counted = ViewFold(), TurnCalls()
    for entry in entries:
        if entry.kind == "assistant_message":
            made = signal(fold.path, fold.view(), 10_000, BUDGET)
            assert made == signal(fold.path, fold.view(), 10_000, BUDGET, counted), "counted on from the last step"
            if made is not None:
                out.append(made.text)
        fold.add(entry)
    return out


def test_a_crossed_step_is_told_with_its_tokens() -> None:
    made = ask(turn(step(1)), used=80_000)
    assert made is not None
    assert made.text == (
        "<reminder>\nContext: about 40 % used (80,000 of 200,000 tokens). Write down confirmed facts, produced paths "
        "and the next step before it fills.\n</reminder>"
    )
    assert (made.topics, dict(made.state)) == (("level",), {"level": 4})


def test_a_step_is_told_once_and_the_next_one_again() -> None:
    entries = stamp([Snapshot(text="x", topics=("level",), state={"level": 4}), *step(2)], before=turn(step(1)))
    assert ask(entries, used=99_999) is None
    assert crossed_level(entries, 100_000, BUDGET) == 5


def test_nothing_is_said_below_thirty_percent_or_when_the_context_shrinks() -> None:
    entries = stamp([Snapshot(text="x", topics=("level",), state={"level": 6}), *step(2)], before=turn(step(1)))
    assert crossed_level(turn(step(1)), 59_999, BUDGET) is None
    assert crossed_level(entries, 80_000, BUDGET) is None


def test_after_a_compaction_or_its_undoing_the_steps_count_anew() -> None:
    entries = stamp([Snapshot(text="x", topics=("level",), state={"level": 6}), compacts(None)], before=turn(step(1)))
    assert told_level(entries) == 0
    assert crossed_level(entries, 60_000, BUDGET) == 3
    later = stamp([Snapshot(text="y", topics=("level",), state={"level": 3}), restores(entries[-1].id)], before=entries)
    assert told_level(later) == 0


def test_a_snapshot_of_the_tail_counts_as_telling() -> None:
    assert told_level(path(start(), Snapshot(text="x", topics=("notes",), state={"level": 5}), note("y"))) == 5


def test_a_signal_comes_after_the_results_of_a_step_and_at_no_other_time() -> None:
    assert ask(path(start(), user("hi")), used=150_000) is None  # the tail of the turn tells it
    assert ask(path(start(), user("hi"), says("x"), steer("and?")), used=150_000) is None
    open_call = path(start(), user("hi"), reply(call("read", "a"), call("read", "b"), stop="tool_use"), result("a"))
    assert ask(open_call, used=150_000) is None
    ended = stamp([says("done"), end()], before=turn(step(1)))
    assert ask(ended, used=150_000) is None


def test_a_signal_extends_the_request_before_it() -> None:
    entries = turn(step(1))
    made = ask(entries, used=100_000)
    assert made is not None
    before = build_view(entries).messages
    after = build_view(stamp([made], before=entries)).messages
    assert after[:-1] == before[:-1]
    assert after[-1].blocks[: len(before[-1].blocks)] == before[-1].blocks
    assert [b["type"] for b in after[-1].blocks] == ["tool_result", "text"]


def test_eight_alike_steps_bring_one_reminder_and_sixteen_another_in_other_words() -> None:
    texts = told(turn(*(step(i) for i in range(1, 20))))
    assert len(texts) == 2
    assert "last 8 steps" in texts[0]
    assert "16 steps" in texts[1]


def test_the_same_turn_gives_the_same_reminders() -> None:
    entries = turn(*(step(i) for i in range(1, 30)))
    assert told(entries) == told(entries)


def test_a_different_call_between_ends_the_run() -> None:
    steps = [step(i) for i in range(1, 8)] + [step(8, "grep", pattern="x")] + [step(i) for i in range(9, 16)]
    assert told(turn(*steps, step(99))) == []


def test_a_batch_counts_as_one_step() -> None:
    calls = [call("read", f"b{i}", {"path": f"{i}"}) for i in range(10)]
    entries = turn([reply(*calls, stop="tool_use"), *(result(f"b{i}", str(i), name="read") for i in range(10))])
    assert ask(entries) is None


def test_the_identical_call_three_times_in_a_row_is_told() -> None:
    texts = told(turn(*(step(i, "shell", text=f"{i} of 9 done", command="status") for i in range(1, 5)), step(9)))
    assert len(texts) == 1
    assert "very same `shell` call was made 3 times" in texts[0]


def test_the_same_result_five_times_is_a_loop_also_with_other_calls_between() -> None:
    steps = []
    for i in range(1, 6):
        steps += [step(i, "shell", text="FAILED", command="make"), step(50 + i, "edit", path="a", old=str(i), new="y")]
    texts = told(turn(*steps))
    assert len(texts) == 1
    assert "same `shell` call has brought the same result 5 times" in texts[0]


def test_a_repeated_call_whose_result_changes_is_no_loop() -> None:
    steps = []
    for i in range(1, 8):
        steps += [step(i, "shell", text=f"{i} passed", command="make"), step(50 + i, "edit", path=f"{i}", old="\n" * i)]
    assert told(turn(*steps)) == []


def looping(*steps: Iterable[Body], before: list[Entry] | None = None) -> tuple[list[Entry], list[int]]:
    """Play steps under a policy that ends loops; returns the path, and after which steps a loop was told."""
    entries, at = before or turn(), []
    for number, bodies in enumerate(steps, 1):
        entries = stamp(bodies, before=entries)
        made = signal(entries, build_view(entries), 10_000, BUDGET, loop_calls=5)
        if made is not None:
            entries = stamp([made], before=entries)
            at += [number] if "loop" in made.state else []
    return entries, at


def ending(entries: list[Entry]) -> str:
    last = entries[-1].body
    return str(last.state.get(ENDS_TURN, "")) if isinstance(last, Snapshot) else ""


def test_the_fifth_identical_call_is_told_and_the_next_ends_the_turn() -> None:
    """agents 22: whatever it brings; one step is allowed to get out of it, and a reminder was told before."""
    entries, at = looping(*(step(i, "shell", text=f"{i}", command="make") for i in range(1, 6)))
    assert at == [5]
    assert ending(entries) == ""
    assert "The turn ends if they come once more" in str(entries[-1].body)
    out, _ = looping(step(7, "read"), step(8, "shell", command="make"), before=entries)
    assert ending(out) == ""
    again, at = looping(step(6, "shell", command="make"), before=entries)
    assert ending(again).startswith("stopped: the agent made the same calls again and again (shell)")
    assert is_signal(again[-1].body)


def test_a_cycle_of_calls_is_a_loop_and_other_arguments_are_none() -> None:
    """agents 22: two calls one after the other, five times; also asked for together."""
    pairs = [step(10 * i + k, name, path="a") for i in range(5) for k, name in enumerate(("read", "grep"))]
    assert looping(*pairs)[1] == [10]
    together = [[reply(call("read", f"r{i}"), call("grep", f"g{i}"), stop="tool_use"), result(f"r{i}"), result(f"g{i}")] for i in range(5)]
    assert looping(*together)[1] == [5]
    six = [step(10 * i + k, "read", path=str(k)) for i in range(6) for k in range(6)]
    assert looping(*six)[1] == []
    assert looping(*(step(i, "read", path=str(i)) for i in range(30)))[1] == []


def test_a_turn_that_goes_on_after_a_loop_begins_to_count_anew() -> None:
    same = [step(i, "shell", command="make") for i in range(1, 7)]
    entries, _ = looping(*same)
    assert ending(entries)
    entries = stamp([end(outcome="limit"), steer("go on")], before=entries)
    assert looping(*(step(i, "shell", command="make") for i in range(10, 14)), before=entries)[1] == []


def test_other_policies_tell_of_a_loop_and_end_nothing() -> None:
    entries = turn(*(step(i, "shell", text=f"{i}", command="make") for i in range(1, 30)))
    assert all(ENDS_TURN not in (ask(entries[: i + 1]) or note("")).state for i in range(len(entries)))


def test_earlier_turns_do_not_count() -> None:
    first = turn(*(step(i) for i in range(1, 8)))
    entries = stamp([says("ok"), end(), start("t2"), user("more"), *step(20), says("x")], before=first)
    assert told(entries) == []


def test_a_reminder_is_not_repeated_when_the_call_is_tried_again() -> None:
    entries = turn(*(step(i) for i in range(1, 9)))
    made = ask(entries)
    assert made is not None
    assert is_signal(made)
    assert ask(stamp([made], before=entries)) is None


def test_level_and_variation_come_in_one_snapshot() -> None:
    made = ask(turn(*(step(i) for i in range(1, 9))), used=120_000)
    assert made is not None
    assert made.topics == ("level", "variation")


def test_code_is_alike_by_its_words_not_by_its_literals() -> None:
    assert shape_of("python", {"code": "load('a.csv', 1)"}) == shape_of("python", {"code": 'load("b.csv", 22)'})
    assert shape_of("shell", {"command": "cat a/b.txt"}) == shape_of("shell", {"command": "cat c.txt"})
    assert shape_of("shell", {"command": "ls a/b"}) != shape_of("shell", {"command": "cat a/b"})
    assert shape_of("read", {"path": "a"}) != shape_of("read", {"path": "a", "offset": 2})
    assert shape_of("read", "broken") == "read"
