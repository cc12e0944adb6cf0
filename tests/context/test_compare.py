"""Every policy on one conversation, without a model call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from nbagent.context.compare import Row, compare, shared_bytes
from nbagent.context.engine import Engine
from nbagent.context.measure import Meter
from nbagent.context.policies import BUILT_IN
from nbagent.context.policy import Situation, make_policy
from nbagent.context.signals import is_signal
from nbagent.context.simulate import bare_path, simulated_engine, stand_in, walk
from nbagent.core.budget import Budget, Prices
from nbagent.core.entries import Body, Entry, Snapshot
from nbagent.core.messages import Message, Request, text_block
from nbagent.core.view import ViewFold, build_view
from tests.core.builders import (
    MODEL,
    PREFIX,
    call,
    compacts,
    end,
    path,
    prunes,
    reply,
    restores,
    result,
    says,
    start,
    user,
)  # fmt: skip

WINDOW = 20_000


def engine(window: int = WINDOW) -> Engine:
    def request(messages: Sequence[Message], max_tokens: int) -> Request:
        return Request(model=MODEL, max_tokens=max_tokens, prefix=PREFIX, messages=tuple(messages))

    return Engine(
        policy=make_policy(BUILT_IN, "off"), meter=Meter("claude-4.7"), prefix=PREFIX,
        budget=Budget(window_tokens=window, max_output_tokens=1_000), make_request=request,
        predict=lambda view: 0, price=lambda model, usage: 0.0,
    )  # fmt: skip


def work(turns: int = 8, words: int = 500) -> list[Entry]:
    bodies: list[Body] = []
    for t in range(turns):
        bodies += [start(f"t{t}"), user(f"Look at data/part_{t}.csv and always use metres")]
        bodies += [reply(call("read", f"c{t}", {"path": f"data/part_{t}.csv"}), stop="tool_use")]
        bodies += [result(f"c{t}", f"gauge HG-22{t} " + "water level rising " * words, name="read")]
        bodies += [says(f"The gauge of part {t} is HG-22{t}."), end(f"t{t}")]
    return path(*bodies)


def rows(entries: list[Entry], *names: str, **options: Any) -> dict[str, Row]:
    policies = {n: make_policy(BUILT_IN, n) for n in names}
    return {r.policy: r for r in compare(entries, policies, engine(), **options)}


def test_every_policy_gets_a_row_in_its_order() -> None:
    names = [*BUILT_IN, "openclaw@seed"]
    found = rows(work(), *names)
    assert list(found) == names
    assert {r.calls for r in found.values()} == {16}
    assert not [r.problem for r in found.values() if r.problem.startswith("it failed")]


def test_doing_nothing_sends_the_most_and_loses_nothing() -> None:
    found = rows(work(22, words=150), "off", "nbagent")
    assert found["off"].notes == found["off"].compactions == found["off"].lost == found["off"].reachable == 0
    assert found["off"].tokens_sent > found["nbagent"].tokens_sent
    total = found["off"].verbatim
    assert total > 10
    assert found["nbagent"].verbatim + found["nbagent"].reachable + found["nbagent"].lost == total


def test_a_policy_that_compacts_calls_for_notes_and_keeps_the_context_small() -> None:
    row = rows(work(14), "nbagent")["nbagent"]
    assert row.compactions >= 1
    assert row.notes >= row.compactions
    assert row.peak_tokens < WINDOW


def test_what_does_not_fit_is_counted_with_its_line() -> None:
    row = rows(work(20), "off")["off"]
    assert row.over_window > 0
    assert "the window holds" in row.problem


def test_the_comparison_is_the_same_every_time_and_leaves_the_path_alone() -> None:
    entries = work(6)
    before = [(e.id, e.parent, e.body) for e in entries]
    assert rows(entries, *BUILT_IN) == rows(entries, *BUILT_IN)
    assert [(e.id, e.parent, e.body) for e in entries] == before


def test_what_the_recorded_policy_did_does_not_count() -> None:
    entries = work(6)
    last = entries[-1].id
    moved = [*entries, Entry("m1", last, 0.0, prunes("e4")), Entry("m2", "m1", 0.0, compacts("e13"))]
    moved += [Entry("m3", "m2", 0.0, restores("m2"))]
    assert rows(moved, "nbagent", "pi") == rows(entries, "nbagent", "pi")
    signal = Snapshot(text="<reminder>", topics=("level",), state={"level": 4})
    assert [e.id for e in bare_path([*moved, Entry("m4", "m3", 0.0, signal)])] == [e.id for e in entries]


def test_an_unbroken_conversation_is_read_from_the_cache() -> None:
    row = rows(work(4), "off")["off"]
    assert row.cache_hit_rate > 0.7
    units = row.cost_units
    assert units < row.tokens_sent
    priced = rows(work(4), "off", prices=Prices(input_usd=3.0, output_usd=15.0))["off"]
    assert priced.cost_usd == pytest.approx(3.0 * units / 1_000_000)
    assert row.cost_usd is None


def test_a_long_pause_empties_the_cache() -> None:
    entries = work(4)
    slow = [replace(e, at=1_000.0 * e.at) for e in entries]
    assert rows(slow, "off")["off"].cache_hit_rate == 0.0
    assert rows(slow, "off")["off"].cost_units > rows(entries, "off")["off"].cost_units


def test_a_policy_that_fails_is_named_and_the_others_go_on() -> None:
    class Broken:
        name = "broken"
        numbers: ClassVar[dict[str, float]] = {}

        def plan(self, situation: Situation) -> Any:
            raise ValueError("no idea")

    found = compare(work(2), {"broken": Broken(), "off": make_policy(BUILT_IN, "off")}, engine())
    assert found[0].problem == "it failed: ValueError: no idea"
    assert found[1].calls == 4


def test_the_walk_ends_with_what_the_engine_would_have_left() -> None:
    entries = work()
    fold = ViewFold()
    sent = list(walk(bare_path(entries), simulated_engine(engine(), make_policy(BUILT_IN, "pi")), fold))
    kept = [e.id for e in fold.path if not e.id.startswith("simulated-")]
    assert kept == [e.id for e in entries]
    assert sent[-1].messages[-1].role == "user"
    assert all(e.parent == b.id for b, e in zip(fold.path, fold.path[1:], strict=False))
    assert not any(is_signal(e.body) for e in entries)


def test_the_stand_in_keeps_to_its_size_and_to_the_order() -> None:
    messages = build_view(work(20, words=5)).messages
    meter = Meter("claude-4.7")
    text = stand_in(messages, meter, 200)
    assert meter.text(text) < 260
    assert text.startswith("## Stand-in")
    parts = [int(line.split("part_")[1].split(".")[0]) for line in text.split("\n") if "part_" in line]
    assert parts == sorted(parts)


def test_shared_bytes_end_at_the_first_block_that_differs() -> None:
    a, b = text_block("a"), text_block("b")
    first = Message("user", (a,))
    assert shared_bytes([first], [first, Message("assistant", (b,))]) == len(first.to_bytes())
    assert 0 < shared_bytes([Message("user", (a,))], [Message("user", (a, b))]) < len(first.to_bytes())
    assert shared_bytes([Message("user", (b,))], [Message("user", (a, b))]) == 0
