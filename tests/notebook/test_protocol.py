"""The panel's protocol: fixtures that both sides load, versions, the limits of deltas, what is refused."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbagent.notebook.panel import commands as panel_commands
from nbagent.notebook.panel import protocol
from nbagent.notebook.panel import results as panel_results
from nbagent.notebook.panel.commands import BadMessage, Bye, Compact, Hello, Page, Pong, read_message
from nbagent.notebook.panel.comms import TARGET
from nbagent.notebook.panel.deltas import CALM_INTERVAL_S, MAX_DELTA_BYTES, DeltaPacer, changed, merged, size_bytes
from nbagent.notebook.panel.protocol import (
    AgentRow,
    AgentsPart,
    ApprovalPart,
    Choice,
    GaugePart,
    PanelState,
    QueuePart,
    SessionPart,
    TurnPart,
    Versions,
    Waiting,
    agreed,
    cut,
    mismatch,
    mismatch_line,
    ping,
    reply,
    snapshot,
    welcome,
)
from nbagent.notebook.panel.results import HitRow, SkillRow, TurnRow, page_bounds, page_result

BUNDLES = Path(__file__).parents[1] / "fixtures" / "bundles"
KINDS = {"welcome", "snapshot", "delta", "reply", "ping", "mismatch"}


def bundle(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((BUNDLES / f"{name}.json").read_text(encoding="utf-8"))
    return loaded


def shape(value: Any) -> Any:
    """The names of a JSON value, however deep; empty lists say nothing."""
    return {k: shape(v) for k, v in value.items()} if isinstance(value, dict) else None


def test_a_snapshot_holds_exactly_the_parts_that_the_fixture_shows() -> None:
    held = bundle("state")
    assert held["empty"] == PanelState().to_wire()
    assert shape(held["parts"]).keys() == shape(PanelState().to_wire()).keys()
    for name in held["parts"]:
        assert held["parts"][name].keys() == held["empty"][name].keys(), name


def test_the_categories_of_the_fixture_add_up() -> None:
    gauge = bundle("state")["parts"]["gauge"]
    assert sum(gauge["categories"].values()) == gauge["used_tokens"]


def test_the_opening_is_what_the_builders_make() -> None:
    held = bundle("opening")
    opening, hello, answer, asked, pong = (step["data"] for step in held["exchange"])
    assert held["target"] == TARGET
    assert opening == welcome("0.1.0")
    assert read_message(hello) == Hello(
        versions=Versions(version=1, least=1), client="jupyterlab 0.1.0", notebook="work/analysis.ipynb"
    )
    assert answer == snapshot(bundle("state")["parts"], seq=0, version=1)
    assert asked == ping("t1")
    assert read_message(pong) == Pong(token="t1", approvals=True)


@pytest.mark.parametrize("case", bundle("versions")["cases"], ids=lambda c: f"{c['kernel']}-{c['front']}")
def test_versions_are_agreed_on_or_one_line_says_which_side_is_old(case: dict[str, Any]) -> None:
    kernel, front = Versions(**case["kernel"]), Versions(**case["front"])
    assert agreed(kernel, front) == case["agreed"]
    if case["agreed"] is None:
        line = mismatch_line(kernel, front, package=case["package"], client=case["client"])
        assert line == case["line"]
        assert "\n" not in line
        older = "where JupyterLab runs" if case["front"]["version"] < case["kernel"]["least"] else "where the kernel"
        assert older in line


def test_a_mismatch_carries_the_line() -> None:
    held = bundle("versions")
    assert held["message"] == mismatch(held["cases"][3]["line"], Versions(version=3, least=2))


def test_deltas_lead_from_the_start_to_the_end_of_the_fixture() -> None:
    held = bundle("deltas")
    parts = held["start"]
    for number, message in enumerate(held["messages"], 1):
        assert (message["kind"], message["seq"]) == ("delta", number)
        assert size_bytes(message) <= MAX_DELTA_BYTES
        parts = merged(parts, message["parts"])
        gauge = parts["gauge"]
        assert sum(gauge["categories"].values()) == gauge["used_tokens"]
    assert parts == held["end"]


def test_a_question_comes_and_goes() -> None:
    held = bundle("approval")
    asked, answered, told, gone = (m["data"] for m in held["messages"])
    open_parts = merged(held["start"], asked["parts"])
    assert open_parts["approval"]["approval"] == read_message(answered).approval  # type: ignore[union-attr]
    assert told["status"] == "ok"
    assert merged(open_parts, gone["parts"]) == held["end"]


@pytest.mark.parametrize("exchange", bundle("commands")["exchanges"], ids=lambda e: e["command"]["id"])
def test_a_command_is_read_field_by_field_and_answered(exchange: dict[str, Any]) -> None:
    sent, answer = exchange["command"], exchange["reply"]
    command = read_message(sent)
    assert getattr(command, "name", None) == sent["name"]
    for field in fields(command):
        held = getattr(command, field.name)
        assert (list(held) if isinstance(held, tuple) else held) == sent[field.name]
    assert answer == reply(sent["id"], answer["status"], answer["line"], answer["result"])
    assert answer["status"] != "error" or answer["line"]


def test_the_fixture_shows_every_command() -> None:
    assert {e["command"]["name"] for e in bundle("commands")["exchanges"]} == set(panel_commands._READERS)


def test_rows_of_pages_have_the_fields_of_their_kind() -> None:
    by_name = {e["command"]["name"] + str(e["command"].get("of", "")): e["reply"] for e in bundle("commands")["exchanges"]}
    kinds = {"pagecatalog": SkillRow, "pagetree": TurnRow, "cells": TurnRow, "search": HitRow}
    for name, kind in kinds.items():
        rows = by_name[name]["result"]["rows"]
        assert rows
        for row in rows:
            assert set(row) == {f.name for f in fields(kind)}, name


@pytest.mark.parametrize("case", bundle("refused")["cases"], ids=lambda c: c["about"])
def test_a_message_that_is_none_of_ours_is_refused_with_one_line(case: dict[str, Any]) -> None:
    with pytest.raises(BadMessage) as refused:
        read_message(case["message"], package=bundle("refused")["package"])
    assert (str(refused.value), refused.value.id) == (case["line"], case["id"])


def test_fields_that_are_not_known_are_passed_over() -> None:
    sent = {"kind": "command", "id": "a1", "name": "compact", "note": None, "colour": "red"}
    assert read_message(sent) == Compact(id="a1")


@pytest.mark.parametrize("name", ["note", "focus"])
def test_a_text_too_long_is_refused_by_its_length_and_not_repeated(name: str) -> None:
    with pytest.raises(BadMessage, match=r"compact: \w+ has 200,000 characters") as refused:
        read_message({"kind": "command", "id": "a1", "name": "compact", name: "x" * 200_000})
    assert len(str(refused.value)) < 200


def test_only_the_kinds_on_the_page_are_sent() -> None:
    made = [
        welcome("1"), snapshot({}, seq=0, version=1), protocol.delta({}, seq=1), reply("a", "ok"), ping("t"), mismatch("x")
    ]  # fmt: skip
    assert {m["kind"] for m in made} == KINDS
    assert not any("state" in m for m in made), "nbclient takes a key 'state' for that of a widget"


# ---------------------------------------------------------------- limits

texts = st.text(max_size=3_000)
counts = st.integers(0, 10**9)
states = st.builds(
    PanelState,
    session=st.builds(SessionPart, name=texts, package=texts, trouble=texts),
    gauge=st.builds(
        GaugePart, model=texts, used_tokens=counts, categories=st.fixed_dictionaries({"messages": counts}), cost_usd=st.floats(0, 1e6)
    ),
    turn=st.builds(TurnPart, turn=texts, activity=texts, outcome=texts, step=counts),
    agents=st.builds(
        AgentsPart, total=counts,
        rows=st.lists(st.builds(AgentRow, agent=texts, name=texts, activity=texts, calls=counts, tokens=counts), max_size=20).map(tuple),
    ),
    approval=st.builds(
        ApprovalPart, approval=texts, tool=texts, text=texts,
        choices=st.lists(st.builds(Choice, answer=texts, label=texts), max_size=12).map(tuple),
    ),
    queue=st.builds(QueuePart, rows=st.lists(st.builds(Waiting, id=texts, name=texts), max_size=20).map(tuple)),
)  # fmt: skip


@given(st.lists(st.tuples(states, st.floats(0, 0.3)), max_size=30))
def test_deltas_are_at_most_ten_a_second_and_four_kilobytes_and_arrive_at_the_newest_state(
    changes: list[tuple[PanelState, float]],
) -> None:
    pacer, now_s = DeltaPacer(), 1_000.0
    parts = pacer.snapshot(1)["parts"]
    sent: list[tuple[float, dict[str, Any]]] = []
    for state, pause_s in changes:
        pacer.offer(state)
        if message := pacer.take(now_s):
            sent.append((now_s, message))
        now_s += pause_s
    while (wait_s := pacer.due_s(now_s)) is not None:
        now_s += wait_s + 1e-9
        if message := pacer.take(now_s):
            sent.append((now_s, message))
    for at_s, message in sent:
        assert size_bytes(message) <= MAX_DELTA_BYTES
        assert sum(at_s <= other < at_s + 1 for other, _ in sent) <= 10
        parts = merged(parts, message["parts"])
    assert [m["seq"] for _, m in sent] == list(range(1, len(sent) + 1))
    if changes:
        assert parts == changes[-1][0].to_wire()
        assert pacer.snapshot(1) == snapshot(parts, seq=pacer.seq, version=1)


def test_ten_thousand_tokens_a_second_make_no_more_deltas_than_ten() -> None:
    pacer, sent = DeltaPacer(), 0
    for i in range(10_000):
        pacer.offer(PanelState(gauge=GaugePart(used_tokens=i, categories={"messages": i})))
        sent += pacer.take(i / 10_000) is not None
    assert 8 <= sent <= 10


def test_while_an_answer_streams_the_gauge_alone_moves_once_a_second_and_all_else_at_once() -> None:
    pacer, running = DeltaPacer(), TurnPart(turn="t1", status="running", activity="writing")
    pacer.offer(PanelState(turn=running))
    assert pacer.take(0.0) is not None
    pacer.offer(PanelState(turn=running, gauge=GaugePart(used_tokens=500)))
    assert pacer.due_s(0.5) == pytest.approx(CALM_INTERVAL_S - 0.5)
    assert pacer.take(0.5) is None
    pacer.offer(PanelState(turn=replace(running, activity="python"), gauge=GaugePart(used_tokens=600)))
    assert pacer.take(0.5) is not None
    pacer.offer(PanelState(turn=replace(running, activity="python"), gauge=GaugePart(used_tokens=700)))
    assert pacer.take(1.4) is None
    assert pacer.take(1.5) is not None
    pacer.offer(PanelState(turn=TurnPart(turn="t1"), gauge=GaugePart(used_tokens=700)))
    assert pacer.take(1.7) is not None
    pacer.offer(PanelState(turn=TurnPart(turn="t1"), gauge=GaugePart(used_tokens=800)))
    assert pacer.take(1.9) is not None, "after a turn nothing waits for long"


def test_a_state_that_went_back_before_it_was_sent_costs_nothing() -> None:
    pacer = DeltaPacer()
    pacer.offer(PanelState(turn=TurnPart(step=1)))
    assert pacer.take(0.0) is not None
    pacer.offer(PanelState(turn=TurnPart(step=2)))
    assert pacer.take(0.05) is None
    pacer.offer(PanelState(turn=TurnPart(step=1)))
    assert pacer.due_s(0.06) is None


def test_a_listener_gets_only_the_parts_that_it_wants() -> None:
    pacer = DeltaPacer(only=("gauge",))
    assert set(pacer.snapshot(1)["parts"]) == {"gauge"}
    pacer.offer(PanelState(turn=TurnPart(step=1)))
    assert pacer.take(0.0) is None


def test_bye_is_understood() -> None:
    assert read_message({"kind": "bye"}) == Bye()


def test_a_late_listener_is_told_what_the_others_were_told() -> None:
    pacer = DeltaPacer()
    pacer.offer(PanelState(turn=TurnPart(step=1)))
    first = pacer.take(0.0)
    pacer.offer(PanelState(turn=TurnPart(step=2)))
    late = pacer.snapshot(1)
    second = pacer.take(0.2)
    assert first is not None
    assert second is not None
    assert late["seq"] == first["seq"]
    assert merged(late["parts"], second["parts"])["turn"]["step"] == 2


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.lists(st.integers(), max_size=3),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from("abc"), json_values), st.dictionaries(st.sampled_from("abc"), json_values))
def test_merging_what_changed_gives_the_new_value(old: dict[str, Any], more: dict[str, Any]) -> None:
    new = merged(old, more)  # fields never go away
    assert merged(old, changed(old, new)) == new


@given(st.text(), st.integers(4, 50))
def test_a_cut_text_fits_and_is_a_beginning(text: str, most: int) -> None:
    short = cut(text, most)
    assert len(json.dumps(short, ensure_ascii=False).encode("utf-8")) - 2 <= most
    sound = text.encode("utf-8", "replace").decode("utf-8")
    assert short == sound or sound.startswith(short.removesuffix("…"))


def test_a_lone_surrogate_can_be_sent() -> None:
    assert cut("a\ud800b") == "a?b"


def test_what_a_question_leaves_out_is_counted() -> None:
    part = PanelState(approval=ApprovalPart(approval="q", text="x" * 5_000)).to_wire()["approval"]
    assert len(part["text"].removesuffix("…")) + part["more_chars"] == 5_000


# ---------------------------------------------------------------- pages


@pytest.mark.parametrize(
    ("start", "count", "rows"),
    [(0, 50, range(50)), (-50, 50, range(1_950, 2_000)), (1_990, 50, range(1_990, 2_000)), (5_000, 9, range(2_000, 2_000)),
     (-9_000, 5, range(5))],
)  # fmt: skip
def test_a_page_holds_the_rows_that_are_asked_for(start: int, count: int, rows: range) -> None:
    assert page_bounds(start, count, 2_000) == rows


def test_a_page_of_the_largest_rows_stays_below_half_a_megabyte() -> None:
    big = "\U0001f600" * 5_000
    row = SkillRow(
        name=big, source=big, path=big, visible=True, on=True, reason=big, tokens=1, uses=1, description=big
    )
    result = page_result("catalog", [row] * protocol.MAX_PAGE_ROWS, start=0, total=500, revision=1)
    assert size_bytes(result) < 500_000
    assert read_message({"kind": "command", "id": "a", "name": "page", "of": "catalog"}) == Page(id="a", of="catalog")


def test_the_same_page_costs_the_same_for_ten_and_two_thousand_turns() -> None:
    def row(n: int) -> TurnRow:
        return TurnRow(
            turn=f"{n:08x}", number=n, parent="", cell="c", prompt="p" * 5_000, outcome="completed", model="m", steps=1,
            cost_usd=0.1, current=True, leaf=False, stale=False, forked=False,
        )  # fmt: skip

    few = page_result("tree", [row(n) for n in page_bounds(-50, 50, 50)], start=0, total=50, revision=1)
    many = page_result("tree", [row(n) for n in page_bounds(-50, 50, 2_000)], start=1_950, total=2_000, revision=1)
    assert abs(size_bytes(many) - size_bytes(few)) < 300


def test_a_path_too_long_to_be_opened_is_not_cut_into_another() -> None:
    row = HitRow(path="p", relative="a/" * 400, start_line=1, end_line=1, score=1.0, snippet="", date="", why="")
    assert panel_results.hit_row(row).relative == ""
