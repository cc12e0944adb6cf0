"""Ceilings on steps, tokens and dollars, of a turn, a session and a day (DECISIONS 14)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nbagent.core.entries import Compaction, UsageReported
from nbagent.core.errors import UsageProblem
from nbagent.models.scripted import calls, says
from nbagent.runtime.spent import DayLedger, utc_day
from tests.patience import HANG_S
from tests.runtime.lab import Lab

NOON = 1_800_000_000.0  # 2027-01-15 08:00 UTC


def looping(count: int = 20) -> list[object]:
    return [[calls("glob", pattern="*")] for _ in range(count)]


def test_a_turn_stops_at_its_steps_tokens_and_cost(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "work")
    lab.open(looping())
    steps = lab.send("a", "A", max_steps=2)
    assert (steps.output.outcome, len(lab.requests)) == ("limit", 2)
    assert "--max-steps" in steps.output.message
    tokens = lab.send("b", "B", max_tokens=5)
    assert (tokens.output.outcome, "--max-tokens" in tokens.output.message) == ("limit", True)
    assert lab.requests[-1].max_tokens <= 5
    cost = lab.send("c", "C", max_cost_usd=0.000001)
    assert (cost.output.outcome, "--max-cost" in cost.output.message) == ("limit", True)
    resumed = lab.resume(max_cost_usd=0.000001)
    assert resumed.output.outcome == "limit"
    assert resumed.output.cost_usd > 0  # a resumed turn counts from zero, so it gets on


def test_a_loop_that_goes_on_after_it_was_told_ends_the_turn_where_the_policy_says_so(tmp_path: Path) -> None:
    """agents 22: gemini-cli; with `loop_calls=0`, and under other policies, nothing but a limit ends it."""
    lab = Lab(tmp_path / "work")
    lab.open(looping(30))
    ended = lab.send("a", "A", policy="gemini-cli", max_steps=10)
    assert (ended.output.outcome, len(lab.requests)) == ("limit", 6)
    assert ended.output.message.startswith("stopped: the agent made the same calls again and again (glob)")
    assert "`%agent resume` goes on" in ended.output.message
    resumed = lab.resume(max_steps=3)
    assert (len(lab.requests), "--max-steps" in resumed.output.message) == (9, True)
    assert "--max-steps" in lab.send("b", "B", policy="nbagent", max_steps=10).output.message
    lab.session.runner.numbers["loop_calls"] = 0
    assert "--max-steps" in lab.send("c", "C", policy="gemini-cli", max_steps=10).output.message


def test_a_session_stops_at_its_cost_over_restarts(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "work")
    lab.open([says("a")])
    lab.send("a", "A")
    spent = sum(u.cost_usd for u in lab.bodies(UsageReported))
    lab.restart([says("b")], limits__session_cost_usd=spent)
    done = lab.send("b", "B")
    assert done.output.outcome == "limit"
    assert "limits.session_cost_usd" in done.output.message
    assert lab.requests == []


def test_the_day_counts_all_sessions_of_the_person(tmp_path: Path) -> None:
    first, second = Lab(tmp_path / "one"), Lab(tmp_path / "two")
    second.home = first.home
    first.clock.at = second.clock.at = NOON
    first.open([says("a")])
    first.send("a", "A")
    spent = sum(u.cost_usd for u in first.bodies(UsageReported))
    (line,) = (first.home / "spent.jsonl").read_text().splitlines()
    assert json.loads(line) == {"day": "2027-01-15", "usd": pytest.approx(spent), "session": "x"}
    second.open([says("b")], limits__day_cost_usd=spent)
    done = second.send("b", "B")
    assert done.output.outcome == "limit"
    assert "limits.day_cost_usd" in done.output.message
    assert second.requests == []
    second.clock.at = NOON + 86_400
    assert second.send("c", "C").output.outcome == "completed"


def test_replay_and_free_calls_are_not_in_the_ledger(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "work", rerun="reuse")
    lab.open([says("a")])
    lab.send("a", "A")
    size = (lab.home / "spent.jsonl").stat().st_size
    lab.restart([])
    lab.send("a", "A")
    assert (lab.home / "spent.jsonl").stat().st_size == size
    lab.restart([says("free")], model="scripted:none")
    lab.send("b", "B", model="scripted:none")
    assert (lab.home / "spent.jsonl").stat().st_size == size


def test_a_home_that_cannot_be_written_is_a_notice(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "work")
    lab.home.write_text("a file, not a folder")
    lab.open([says("a"), says("b")], limits__day_cost_usd=1.0)
    done = lab.send("a", "A")
    assert done.output.outcome == "completed"
    assert sum("counts this session alone" in n for n in done.notices) == 1
    assert lab.send("b", "B", max_cost_usd=None).output.outcome == "completed"


def test_a_ceiling_that_cannot_hold_for_want_of_a_price_is_a_notice(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "work", model="somebody-elses-model", base_url="http://127.0.0.1:9")
    lab.open(limits__day_cost_usd=5.0)
    lab.script([says("a")], "somebody-elses-model", source="live")
    lab.script([says("b")], "claude-haiku-4-5", source="live")
    (told,) = lab.send("a", "A", model="somebody-elses-model").notices
    assert told.startswith("the price of somebody-elses-model is not known, so limits.day_cost_usd cannot stop")
    assert lab.send("b", "B", model="claude-haiku-4-5").notices == ()
    lab.restart(limits__day_cost_usd=None)
    lab.script([says("c")], "somebody-elses-model", source="live")
    assert lab.send("c", "C", model="somebody-elses-model").notices == ()


def test_torn_and_foreign_lines_do_not_count(tmp_path: Path) -> None:
    ledger = DayLedger(tmp_path, "s")
    day = utc_day(NOON)
    lines = [
        "", "{", "[]", "3", "null", '{"day": "2027-01-15"}', '{"day": "2027-01-15", "usd": "1"}', '{"usd": 1}',
        '{"day": "2027-01-15", "usd": -5}', '{"day": "2027-01-15", "usd": NaN}', '{"day": "2027-01-15", "usd": 1e99}',
        '{"day": "2027-01-14", "usd": 7}', '{"day": "2027-01-15", "usd": 2, "later": true}', "\udcff", '{"day": "2027-01-15", "us',
    ]  # fmt: skip
    ledger.path.write_bytes("\n".join(lines).encode("utf-8", "surrogateescape"))
    ledger.add(NOON, 0.5)  # after a torn line
    assert ledger.spent_on(day) == 2.5
    assert DayLedger(tmp_path / "missing", "s").spent_on(day) == 0.0


def test_processes_that_write_at_once_lose_no_line(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from nbagent.runtime import spent; from nbagent.runtime.spent import DayLedger\n"
        f"spent.LOCK_TIMEOUT_S = {HANG_S}\n"
        "ledger = DayLedger(Path(sys.argv[1]), 's' * 2000)\n"
        f"for _ in range(50): ledger.add({NOON}, 0.01)\n"
        "assert not ledger.problem, ledger.problem"
    )
    running = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path)]) for _ in range(3)]
    assert [p.wait() for p in running] == [0, 0, 0]
    assert DayLedger(tmp_path, "s").spent_on(utc_day(NOON)) == pytest.approx(1.5)


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_read_only_ledger_is_read(tmp_path: Path) -> None:
    ledger = DayLedger(tmp_path, "s")
    ledger.add(NOON, 1.0)
    ledger.path.chmod(0o400)
    tmp_path.chmod(0o500)
    try:
        ledger.add(NOON, 1.0)
        assert ledger.problem
        assert ledger.spent_on(utc_day(NOON)) == 1.0
    finally:
        tmp_path.chmod(0o700)


def test_an_unknown_mode_or_tool_is_said_before_anything_is_written(tmp_path: Path) -> None:
    from nbagent.core.errors import PolicyError, UsageProblem

    lab = Lab(tmp_path / "work")
    lab.open([says("a")])
    for options, error in (({"mode": "yolo"}, UsageProblem), ({"tools": ("telepathy",)}, UsageProblem), ({"policy": "x"}, PolicyError)):
        with pytest.raises(error):
            lab.send("a", "A", **options)
    assert len(lab.session.tree) == 0


def test_a_resumed_turn_keeps_its_ceilings_unless_it_is_given_others(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "work")
    lab.open(looping())
    tokens = lab.send("a", "A", max_tokens=5)
    assert tokens.output.message.startswith("stopped at the limit of 5 output tokens")
    assert lab.resume().output.message == tokens.output.message
    assert lab.resume(max_tokens=3).output.message.startswith("stopped at the limit of 3 output tokens")
    assert lab.resume(max_tokens=10_000, max_steps=1).output.message.startswith("stopped at the limit of 1 step (")
    cost = lab.resume(max_tokens=10_000, max_cost_usd=0.000001).output.message
    assert "`%agent resume --max-cost …` with another limit" in cost


@pytest.mark.parametrize("paste", ["贴" * 30_000, "word " * 30_000])
def test_a_prompt_larger_than_the_window_is_refused_before_it_stands_in_the_conversation(tmp_path: Path, paste: str) -> None:
    """No compaction makes room for it: what came before would be given up in vain."""
    lab = Lab(tmp_path / "work")
    lab.open([says("a"), says("b")], window_tokens=20_000)
    lab.send("a", "A")
    before = len(lab.session.tree)
    with pytest.raises(UsageProblem, match=r"the text of this cell takes about \d\d,\d\d\d tokens and the window holds 20,000"):
        lab.send(paste, "B")
    assert len(lab.session.tree) == before
    assert lab.send("b", "B").output.outcome == "completed"
    assert not lab.bodies(Compaction)
