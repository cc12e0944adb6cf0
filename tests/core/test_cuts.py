"""Cut points: what is kept stands on its own."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbagent.core.cuts import cut_points
from nbagent.core.entries import Entry
from nbagent.core.view import LOST_RESULT, build_view
from tests.core.builders import call, calls, compacts, end, path, plain, reply, result, says, stamp, start, steer, user
from tests.core.histories import histories
from tests.core.wire_rules import broken_rules


def synthetic(entries: list[Entry]) -> int:
    """Count results that stand for none recorded."""
    text = LOST_RESULT.partition("{")[0]
    return sum(text in word for _, words in plain(build_view(entries)) for word in words)


def test_a_turn_and_a_finished_batch_are_cut_points_but_a_result_is_not() -> None:
    entries = path(
        start("A"), user("hi"), reply(call(id="a"), call(id="b"), stop="tool_use"), result("a"), result("b"),
        calls(id="c"), result("c"), says("done"), end("A"), start("B"), user("more"), says("yes"),
    )  # fmt: skip
    assert [(p.entry_id, p.turn) for p in cut_points(entries)] == [
        ("e3", False), ("e6", False), ("e8", False), ("e10", True), ("e12", False),
    ]  # fmt: skip


def test_no_cut_between_a_call_and_a_result_that_is_still_missing() -> None:
    entries = path(start(), user("hi"), reply(call(id="a"), call(id="b"), stop="tool_use"), result("a"), says("?"))
    assert [p.entry_id for p in cut_points(entries)] == ["e3"]


@given(histories(tidy=True, moves=False), st.data())
def test_a_compaction_at_any_cut_point_needs_no_repair(entries: list[Entry], data: st.DataObject) -> None:
    whole = stamp([steer("go on")], entries)
    before = synthetic(whole)
    for point in cut_points(whole):
        after = stamp([compacts(point.entry_id), steer("next")], whole)
        assert broken_rules(build_view(after).messages) == []
        assert synthetic(after) <= before


@pytest.mark.parametrize(("turns", "parallel"), list(itertools.product((1, 2, 4), (1, 2, 6))))
def test_calls_and_results_stay_together_at_every_cut(turns: int, parallel: int) -> None:
    """claude 46: 1–6 parallel calls a turn, compacted to any target."""
    bodies = []
    for t in range(turns):
        ids = [f"t{t}c{i}" for i in range(parallel)]
        bodies += [start(f"t{t}"), user("do"), reply("so", *(call(id=i) for i in ids), stop="tool_use")]
        bodies += [result(i) for i in reversed(ids)]
        bodies += [says("done"), end(f"t{t}")]
    entries = path(*bodies)
    for point in cut_points(entries):
        after = stamp([compacts(point.entry_id), start("n"), user("next")], entries)
        assert broken_rules(build_view(after).messages) == []
        assert synthetic(after) == 0


def test_synthetic_results_are_not_left_behind_by_a_later_compaction() -> None:
    """claude 85: a repaired call is compacted away; nothing of it stays, and nothing is orphaned."""
    entries = path(start("A"), user("hi"), calls(id="a"), start("B"), user("again"), says("ok"), end("B"))
    assert synthetic(entries) == 1
    for kept in (None, "e4", "e5", "e6"):
        after = stamp([compacts(kept), start("C"), user("go")], entries)
        assert broken_rules(build_view(after).messages) == []
        assert synthetic(after) == 0
