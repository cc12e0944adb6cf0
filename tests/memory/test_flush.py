"""The flush before compaction (OC-M7, OC cases 55-68, 136-142; bugs 66058, 99958)."""

from __future__ import annotations

import pytest

from nbagent.core.errors import ToolError
from nbagent.memory.flush import (
    SILENT,
    TRANSCRIPT_BYTES,
    FlushDecision,
    FlushLimits,
    FlushState,
    after_flush,
    failure_notice,
    flush_plan,
    is_silent,
    limits_for,
    may_write,
    should_flush,
)
from tests.memory.desk import Desk

LIMITS = FlushLimits(reserve_tokens=20_000, soft_tokens=4_000)
FRESH = FlushState()


def decide(total: int | None = 90_000, state: FlushState = FRESH, **given: object) -> FlushDecision:
    options = {"window_tokens": 100_000, "limits": LIMITS, **given}
    return should_flush(state, total_tokens=total, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(("total", "due"), [(75_999, False), (76_000, True)])
def test_the_threshold_is_window_less_reserve_and_soft(total: int, due: bool) -> None:
    # OC case 55
    assert decide(total).due is due


def test_without_a_fresh_total_no_flush_by_tokens() -> None:
    # OC case 56, bug 51 (a stale total is given as None)
    assert not decide(None).due


def test_missing_counters_flush_once_under_count_0() -> None:
    # OC case 58
    assert decide(state=FlushState()).due
    state = after_flush(FlushState(), ok=True)
    assert state.flushed_at == 0
    assert not decide(state=state).due


@pytest.mark.parametrize(
    ("size", "limit", "due"),
    [(2_097_152, TRANSCRIPT_BYTES, True), (2_097_151, TRANSCRIPT_BYTES, False), (1 << 30, 0, False)],
)
def test_a_large_record_flushes_too(size: int, limit: int, due: bool) -> None:
    # OC case 59
    limits = FlushLimits(reserve_tokens=20_000, soft_tokens=4_000, transcript_bytes=limit)
    assert decide(100, transcript_bytes=size, limits=limits).due is due


@pytest.mark.parametrize(
    "given", [{"kind": "heartbeat"}, {"kind": "flush"}, {"kind": "compaction"}, {"writable": False}, {"enabled": False}]
)
def test_some_turns_never_flush(given: dict[str, object]) -> None:
    # OC case 61; a CLI provider is none of ours
    decision = decide(**given)
    assert not decision.due
    assert decision.reason


def test_hints_that_a_persons_prompt_lacks_are_added_once() -> None:
    # OC case 62
    plan = flush_plan("2026-03-01", prompt="Save what matters to YYYY-MM-DD.")
    assert plan.prompt.startswith("Save what matters to 2026-03-01.")
    assert plan.prompt.count(SILENT) == plan.prompt.count("read-only") == 1
    assert flush_plan("2026-03-01", prompt=plan.prompt).prompt == plan.prompt
    assert flush_plan("2026-03-01").prompt.count(SILENT) == 1
    assert plan.tools == ("read", "write")


def test_the_restriction_is_said_in_the_prompt() -> None:
    # bug list 21 (74198)
    plan = flush_plan("2026-03-01")
    assert ".nbagent/memory/2026-03-01.md only" in plan.prompt
    assert "MEMORY.md" in plan.prompt


PLAN = flush_plan("2026-03-01")


@pytest.mark.parametrize(
    "path",
    [".nbagent/memory/2026-03-01.md", "memory/2026-03-01.md", "./memory/2026-03-01.md", "/project/.nbagent/memory/2026-03-01.md"],
)
def test_the_days_log_may_be_written_in_every_form(path: str) -> None:
    assert may_write(path, PLAN, root="/project") == ".nbagent/memory/2026-03-01.md"


@pytest.mark.parametrize(
    "path",
    ["MEMORY.md", "memory/other.md", "memory/2026-02-28.md", "../memory/2026-03-01.md", "/etc/memory/2026-03-01.md", "memory/2026-03-01.md.bak", ""],
)
def test_every_other_file_is_refused(path: str) -> None:
    # OC case 65; the guard hangs on the plan of the flush, so on every way in (OC case 137)
    with pytest.raises(ToolError, match=r"limited to \.nbagent/memory/2026-03-01\.md"):
        may_write(path, PLAN, root="/project")


def test_what_is_written_after_midnight_is_stored(desk: Desk) -> None:
    # OC case 139
    assert may_write("memory/2026-03-02.md", PLAN, today="2026-03-02") == ".nbagent/memory/2026-03-02.md"
    assert may_write("memory/2026-03-01.md", PLAN, today="2026-03-02") == ".nbagent/memory/2026-03-01.md"
    memory = desk.open()
    desk.today = "2026-03-02"
    assert memory.append_today("- kept") == ".nbagent/memory/2026-03-02.md"


def test_new_text_only_leaves_ten_lines_as_they_are(desk: Desk) -> None:
    # OC case 136
    lines = "".join(f"- {i}\n" for i in range(10))
    path = desk.note("memory/2026-03-01.md", lines)
    desk.open().append_today("- new")
    assert path.read_text() == lines + "- new\n"


def test_a_failed_flush_is_told_in_600_characters_and_tried_again() -> None:
    # OC case 67
    assert len(failure_notice("boom " * 500)) == 600
    assert "boom" in failure_notice("boom")
    state = after_flush(FlushState(compactions=3, flushed_at=2), ok=False)
    assert state == FlushState(compactions=3, flushed_at=2)
    assert decide(state=state).due


def test_a_flush_that_compacts_is_kept_under_the_count_before() -> None:
    # OC case 68
    assert after_flush(FlushState(compactions=1), ok=True, compacted=True) == FlushState(compactions=2, flushed_at=1)


def test_flush_and_compaction_do_not_trigger_each_other() -> None:
    # bug 66058: once a cycle, and not without new words
    state = after_flush(FlushState(compactions=1), ok=True)
    assert not decide(state=state).due
    state = FlushState(compactions=2, flushed_at=state.flushed_at)
    assert not decide(state=state, new_messages=False).due
    assert decide(state=state).due


@pytest.mark.parametrize("reply", ["NO_REPLY", " NO_REPLY\n", "", "`NO_REPLY`", "NO_REPLY."])
def test_a_silent_answer_is_not_shown(reply: str) -> None:
    # OC case 140; that prompt and answer are hidden is the session's part
    assert is_silent(reply)


def test_an_answer_that_mentions_the_word_is_not_silent() -> None:
    assert not is_silent("I would answer NO_REPLY, but saved two facts.")


@pytest.mark.parametrize("window", [500, 1_000, 8_000, 16_000, 20_000, 24_000, 28_000, 32_000, 200_000, 1_000_000])
def test_every_window_has_a_positive_threshold(window: int) -> None:
    # OC case 142, bug 99958
    threshold = limits_for(window).threshold(window)
    assert 0 < threshold < window
    assert should_flush(FRESH, total_tokens=threshold, window_tokens=window).due


def test_from_32000_tokens_on_the_limits_are_openclaws() -> None:
    assert limits_for(32_000) == limits_for(1_000_000) == LIMITS
