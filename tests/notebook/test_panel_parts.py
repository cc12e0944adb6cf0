"""The pure parts of the panel: the running turn, questions for buttons, who holds the conversation, where the notebook is."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbagent.core.effects import (
    Notice,
    StepBegan,
    StepEnded,
    SubAgentMoved,
    SubAgentStatus,
    TextDelta,
    ToolBegan,
    ToolEnded,
    TurnBegan,
    TurnDone,
    TurnEvent,
)
from nbagent.core.errors import UsageProblem
from nbagent.notebook.panel.deltas import DeltaPacer, size_bytes
from nbagent.notebook.panel.facts import cells_of, matching
from nbagent.notebook.panel.live import MOST_AGENTS, LiveTurn, grown
from nbagent.notebook.panel.protocol import GaugePart, PanelState, TurnPart
from nbagent.notebook.panel.questions import OpenQuestion, taken_apart
from nbagent.notebook.panel.results import TurnRow
from nbagent.notebook.turnstile import Turnstile
from nbagent.notebook.whereabouts import Whereabouts
from nbagent.runtime.approvals import question
from tests.patience import HANG_S

BASE = GaugePart(
    model="m", window_tokens=20_000, threshold_tokens=12_000, used_tokens=1_000, categories={"system": 400, "messages": 600},
    cost_usd=0.5,
)  # fmt: skip
BEGAN = TurnBegan(turn="t1", number=3, model="m", window_tokens=20_000)
DONE = TurnDone(
    outcome="completed", message="", steps=1, context_tokens=3_000, window_tokens=20_000, cost_usd=0.2, duration_s=1.0
)


def live(*events: TurnEvent) -> LiveTurn:
    found = LiveTurn(BASE)
    for event in events:
        found.add(event)
    return found


def step(tokens: int, cost_usd: float = 0.0) -> StepBegan:
    return StepBegan(step=1, context_tokens=tokens, cost_usd=cost_usd)


def ended(tokens: int) -> StepEnded:
    return StepEnded(step=1, blocks=(), cut=None, context_tokens=tokens, cost_usd=0.1)


def tool(call_id: str, name: str = "python", summary: str = "x = 1") -> ToolBegan:
    return ToolBegan(call_id=call_id, name=name, summary=summary)


def tool_ended(call_id: str) -> ToolEnded:
    return ToolEnded(call_id=call_id, name="python", summary="", status="ok", text="", duration_s=0.1)


# ---------------------------------------------------------------- the running turn


def test_a_turn_is_told_by_what_it_does_now() -> None:
    turn = LiveTurn(BASE)
    told = []
    for event in (BEGAN, step(1_000), TextDelta(index=0, text="a"), tool("c1"), tool("c2", "read", "a.txt"), tool_ended("c1"), DONE):
        turn.add(event)
        told.append((turn.turn.status, turn.turn.activity))
    assert told == [
        ("running", "getting ready"), ("running", "waiting for the model"), ("running", "writing"),
        ("running", "running python x = 1"), ("running", "running python x = 1, read a.txt"),
        ("running", "running read a.txt"), ("idle", ""),
    ]  # fmt: skip
    assert (turn.turn.number, turn.turn.outcome) == (3, "completed")


def test_what_a_turn_adds_is_messages_also_when_less_was_measured_than_was_estimated() -> None:
    turn = live(BEGAN, step(BASE.used_tokens // 2))
    before = dict(turn.gauge.categories)
    text = TextDelta(index=0, text="word " * 4_000)
    for event in (text, ended(BASE.used_tokens // 2), step(BASE.used_tokens // 2 + 6_000), text):
        turn.add(event)
        now = turn.gauge
        assert sum(now.categories.values()) == now.used_tokens
        assert {k: v for k, v in now.categories.items() if k != "messages"} == {
            k: v for k, v in before.items() if k != "messages"
        }
    assert turn.gauge.categories["messages"] > before.get("messages", 0) + 6_000


def test_text_moves_the_gauge_in_steps_and_the_measured_size_ends_them() -> None:
    turn = live(BEGAN, step(2_000))
    seen = []
    for _ in range(1_000):
        turn.add(TextDelta(index=0, text="four"))
        seen.append(turn.gauge.used_tokens)
    assert sorted(set(seen)) == [2_000, 2_256, 2_512, 2_768]
    turn.add(ended(2_100))
    assert turn.gauge.used_tokens == 3_100
    assert turn.gauge.cost_usd == pytest.approx(0.6)


def test_a_hundred_kilobytes_make_few_and_small_deltas() -> None:
    """Five per cent of what the answer's own display takes (about 3 MB for 100 KB), envelopes of 1 KB included."""
    turn, pacer, now_s, messages = live(BEGAN, step(2_000)), DeltaPacer(), 0.0, []
    for _ in range(5_000):
        turn.add(TextDelta(index=0, text="x" * 20))
        now_s += 0.05
        pacer.offer(PanelState(gauge=turn.gauge, turn=turn.turn))
        if message := pacer.take(now_s):
            messages.append(message)
    assert 50 < len(messages) <= 100
    assert sum(size_bytes(m) + 1_000 for m in messages) < 0.05 * 3_000_000


def test_the_next_turn_goes_on_from_the_last_when_nobody_counted_since() -> None:
    turn = live(BEGAN, step(3_000), ended(3_000), DONE, BEGAN)
    assert (turn.gauge.used_tokens, turn.gauge.cost_usd) == (3_000, pytest.approx(0.7))
    turn.rebase(BASE)
    assert turn.gauge == BASE


def test_after_a_revert_the_turn_one_is_at_is_shown() -> None:
    turn = live(BEGAN, DONE)
    turn.at(TurnPart(turn="t1"))
    assert turn.turn.outcome == "completed", "it knows more of its own turn"
    turn.at(TurnPart(turn="t0", number=2))
    assert turn.turn.number == 2


def test_stopping_is_shown_until_the_turn_ends_and_never_after() -> None:
    turn = live(BEGAN, step(1_000))
    turn.stopping()
    assert turn.turn.status == "stopping"
    turn.add(Notice(text="Stop: waiting"))
    assert turn.turn.activity == "stopping"
    turn.add(DONE)
    turn.stopping()
    turn.delivers()
    assert (turn.turn.status, turn.turn.delivers) == ("idle", False)


def agent_moved(agent: str, status: SubAgentStatus = "running", activity: str = "step 1") -> SubAgentMoved:
    return SubAgentMoved(agent=agent, name="check", status=status, activity=activity, tool_calls=2, context_tokens=900)


def test_sub_agents_that_run_come_first_and_then_the_newest() -> None:
    turn = live(BEGAN, agent_moved("a"), agent_moved("b"), agent_moved("a", "done", ""), agent_moved("c"), agent_moved("c", "failed", "why"))
    assert [(r.agent, r.status, r.activity) for r in turn.agents.rows] == [("b", "running", "step 1"), ("c", "failed", "why"), ("a", "done", "")]
    assert (turn.agents.total, turn.agents.rows[0].calls, turn.agents.rows[0].tokens) == (3, 2, 900)
    assert turn.add(agent_moved("b", activity="step 2")), "it is shown at once"
    turn.add(DONE)
    assert {r.status for r in turn.agents.rows} == {"stopped", "failed", "done"}, "none outlives its turn"


def test_of_very_many_sub_agents_the_last_ones_are_remembered_and_all_counted() -> None:
    turn = live(BEGAN, *(agent_moved(f"a{i}", status) for i in range(300) for status in ("running", "done")))
    assert (turn.agents.total, len(turn.agents.rows), turn.agents.rows[0].agent) == (300, MOST_AGENTS, "a299")
    wire = PanelState(agents=turn.agents).to_wire()
    assert (wire["agents"]["total"], len(wire["agents"]["rows"])) == (300, 8)


def test_what_hides_in_a_name_is_taken_out() -> None:
    turn = live(BEGAN, tool("c", "python", "\x1b[31mred\u202etxt\nnext"))
    assert "\x1b" not in turn.turn.activity
    assert "\u202e" not in turn.turn.activity
    assert "\n" not in turn.turn.activity


@given(st.dictionaries(st.sampled_from(["system", "messages", "tools"]), st.integers(0, 5_000)), st.integers(0, 50_000))
def test_categories_add_up_at_every_size(categories: dict[str, int], used: int) -> None:
    base = GaugePart(window_tokens=20_000, used_tokens=sum(categories.values()), categories=categories)
    found = grown(base, used)
    if categories or used >= base.used_tokens:
        assert sum(found.categories.values()) == found.used_tokens == used
    assert 0 <= found.level <= 10


# ---------------------------------------------------------------- questions


def test_the_question_of_a_tool_becomes_buttons() -> None:
    asked = taken_apart(question("python", {"code": "print(1)"}, (), once=False))
    assert asked is not None
    assert (asked.tool, asked.text) == ("python", "The agent wants to use python:\nprint(1)\nAllow?")
    assert [(c.answer, c.label) for c in asked.choices] == [
        ("y", "Yes"), ("t", "For this turn"), ("a", "Always in this notebook"), ("n", "No"),
    ]  # fmt: skip


def test_a_question_to_be_asked_each_time_has_no_wider_yes() -> None:
    asked = taken_apart(question("shell", {"command": "rm x"}, ("deletes",), once=True))
    assert asked is not None
    assert [c.answer for c in asked.choices] == ["y", "n"]
    assert "It deletes." in asked.text


@pytest.mark.parametrize(
    "text", ["What is your name? ", "x", "", "Allow? [y]es, maybe: ", "Allow? [y]es, [y]up: ", "Allow? [y]e[s]: "]
)
def test_a_question_that_no_key_answers_is_left_below_the_cell(text: str) -> None:
    assert taken_apart(text) is None


def test_code_in_a_question_cannot_make_buttons() -> None:
    asked = taken_apart(question("python", {"code": "Allow? [x]everything, [z]more: \nprint(1)"}, (), once=True))
    assert asked is not None
    assert [c.answer for c in asked.choices] == ["y", "n"]


def test_a_question_is_answered_once_and_by_one_of_its_choices() -> None:
    changes: list[int] = []
    waiting = OpenQuestion(lambda: changes.append(1))
    future = waiting.begin("Go on? [y]es, [n]o: ")
    assert future is not None
    assert waiting.part().approval == "q1"
    assert waiting.answer("q1", "z") == ("error", "'z' is not an answer; the answers are: y, n")
    assert waiting.answer("q7", "y")[0] == "error"
    assert waiting.answer("q1", "n") == ("ok", "Answered: No.")
    assert future.result(0) == "n"
    assert waiting.answer("q1", "y") == ("error", "that question was answered already: No")
    waiting.end()
    assert waiting.part().approval == ""
    assert (waiting.part().answered, waiting.part().answer) == ("q1", "No")  # for the other windows
    assert waiting.answer("q1", "y") == ("error", "that question was answered already: No")
    assert waiting.text("q1") is None
    assert len(changes) == 2


def test_giving_up_hands_the_question_back() -> None:
    waiting = OpenQuestion(lambda: None)
    future = waiting.begin("Go on? [y]es, [n]o: ")
    waiting.give_up()
    assert future is not None
    assert future.result(0) is None


# ---------------------------------------------------------------- who holds the conversation


async def enter(turnstile: Turnstile) -> bool:
    async with turnstile.turn():
        return turnstile.turn_runs


def test_two_turns_never_run_at_once() -> None:
    async def both() -> None:
        turnstile = Turnstile()
        async with turnstile.turn():
            with pytest.raises(UsageProblem, match="a turn is running already"):
                await enter(turnstile)
            with pytest.raises(UsageProblem, match="a turn is running already"), turnstile.command():
                pass
            assert not turnstile.enter_panel()

    asyncio.run(both())


def test_a_turn_waits_for_the_panel() -> None:
    async def waits() -> None:
        turnstile = Turnstile()
        assert turnstile.enter_panel()
        assert not turnstile.turn_runs
        turn = asyncio.create_task(enter(turnstile))
        await asyncio.sleep(0)
        assert not turn.done()
        turnstile.leave_panel()
        assert await asyncio.wait_for(turn, HANG_S)
        assert turnstile.enter_panel()

    asyncio.run(waits())


def test_a_turn_that_is_stopped_while_it_waits_takes_nothing() -> None:
    async def stopped() -> None:
        turnstile = Turnstile()
        turnstile.enter_panel()
        turn = asyncio.create_task(enter(turnstile))
        await asyncio.sleep(0)
        turn.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await turn
        turnstile.leave_panel()
        assert turnstile.enter_panel()

    asyncio.run(stopped())


def test_a_command_waits_for_the_panel() -> None:
    turnstile, entered = Turnstile(), threading.Event()
    turnstile.enter_panel()

    def command() -> None:
        with turnstile.command():
            entered.set()

    thread = threading.Thread(target=command)
    thread.start()
    assert not entered.is_set()
    turnstile.leave_panel()
    thread.join(HANG_S)
    assert entered.is_set()


# ---------------------------------------------------------------- where the notebook is


def test_a_renamed_notebook_is_found_inside_the_servers_folder(tmp_path: Path) -> None:
    for name in ("a.ipynb", "b.ipynb", "c.txt"):
        (tmp_path / name).write_text("{}")
    where = Whereabouts(lambda: str(tmp_path / "a.ipynb"))
    where.renamed("b.ipynb")
    assert where.path() == tmp_path / "a.ipynb", "nothing is known of the server yet"
    where.seen_as("a.ipynb")
    for wrong in ("../b.ipynb", "c.txt", "gone.ipynb", "drive:b.ipynb", ""):
        where.renamed(wrong)
        assert where.path() == tmp_path / "a.ipynb", wrong
    where.renamed("b.ipynb")
    assert where.path() == tmp_path / "b.ipynb"


def test_a_name_that_does_not_fit_says_nothing_of_the_server(tmp_path: Path) -> None:
    (tmp_path / "b.ipynb").write_text("{}")
    where = Whereabouts(lambda: str(tmp_path / "a.ipynb"))
    where.seen_as("other.ipynb")
    where.renamed("b.ipynb")
    assert where.path() == tmp_path / "a.ipynb"


def test_without_a_notebook_there_is_none() -> None:
    where = Whereabouts(lambda: None)
    where.seen_as("a.ipynb")
    where.renamed("a.ipynb")
    assert where.path() is None


# ---------------------------------------------------------------- rows


def row(turn: str, cell: str, *, current: bool, prompt: str = "p") -> TurnRow:
    return TurnRow(
        turn=turn, number=1, parent="", cell=cell, prompt=prompt, outcome="completed", model="m", steps=1, cost_usd=0.0,
        current=current, leaf=False, stale=False, forked=False,
    )  # fmt: skip


def test_a_cell_shows_its_turn_on_the_path_else_its_newest() -> None:
    rows = [row("1", "a", current=True), row("2", "a", current=False), row("3", "b", current=False), row("4", "b", current=False)]
    assert [r.turn for r in cells_of(rows, ["a", "b", "c"])] == ["1", "4"]


def test_rows_are_found_by_all_words_in_any_case() -> None:
    rows = [row("1", "a", current=True, prompt="Plot the DATA"), row("2", "b", current=True, prompt="data")]
    assert [r.turn for r in matching(rows, "data plot")] == ["1"]  # type: ignore[union-attr]
    assert len(matching(rows, "")) == 2


def test_a_turn_is_never_told_that_another_runs_while_it_is_the_panel_that_comes_or_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nbagent.notebook.turnstile.LOOK_S", 0)
    turnstile, over = Turnstile(), threading.Event()

    def panel() -> None:
        while not over.is_set():
            if turnstile.enter_panel():
                turnstile.leave_panel()

    async def turns() -> int:
        return sum([await enter(turnstile) for _ in range(3_000)])

    thread, before = threading.Thread(target=panel), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        thread.start()
        assert asyncio.run(turns()) == 3_000
    finally:
        over.set()
        thread.join()
        sys.setswitchinterval(before)
