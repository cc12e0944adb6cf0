"""The policy claude-code: previews, the order of moves, its failure ladder. Numbers are the shared cases."""

from __future__ import annotations

from typing import Any

import pytest

from nbagent.context.policy import Compact, Prune
from nbagent.core.entries import Compaction, Entry, ToolResult
from nbagent.core.messages import text_block
from tests.contracts.situations import Played, engine, plan, policy, reads, situation, text_reply
from tests.core.builders import calls, path, prunes, result, says, start, user

GOOD = "<note>## Goal\nx</note>"


def results(*chars: int, **meta: Any) -> list[Entry]:
    bodies: list[Any] = [start(), user("x")]
    for i, size in enumerate(chars):
        content = (text_block("a" * size),)
        bodies += [calls("shell", id=f"c{i}"), ToolResult(call_id=f"c{i}", name="shell", content=content, status="ok", meta=meta)]
    return path(*bodies)


def batch(*chars: int) -> list[Entry]:
    from tests.core.builders import call, reply

    asked = reply(*[call("shell", f"c{i}") for i in range(len(chars))], stop="tool_use")
    return path(start(), user("x"), asked, *[result(f"c{i}", "a" * n, name="shell") for i, n in enumerate(chars)])


def unsent(entries: list[Entry], window: int = 200_000) -> Any:
    from dataclasses import replace

    return policy("claude-code").plan(replace(situation(entries, window, used=1_000), sent=frozenset()))


# ---------------------------------------------------------------- CC-C1


def test_a_result_over_fifty_thousand_characters_becomes_a_preview_before_it_is_sent() -> None:
    """claude 70: 50,000 stays, 50,001 does not; it says that it is a preview, how large the whole is and where."""
    assert plan("claude-code", results(50_000), 200_000) == ()
    (move,) = plan("claude-code", results(50_001, full_path=".nbagent/artifacts/ab.txt"), 200_000)
    assert isinstance(move, Prune)
    text = move.placeholders["e4"]
    assert text.startswith("[only a preview: shell")
    assert "50,001 characters" in text
    assert "`read` it with offset and limit" in text
    assert ".nbagent/artifacts/ab.txt" in text
    assert 2_000 <= len(text) < 2_400


def test_results_of_one_message_share_two_hundred_thousand_characters_largest_first() -> None:
    assert unsent(batch(*[50_000] * 4)) == ()
    (move,) = unsent(batch(49_000, 50_000, 50_000, 30_000, 30_000))
    assert isinstance(move, Prune)
    assert list(move.placeholders) == ["e5"]  # of equal ones the earlier entry


def test_what_was_sent_whole_is_not_cut_later() -> None:
    entries = path(*[e.body for e in results(60_000)], says("so"), start("t2"), user("y"))
    assert plan("claude-code", entries, 200_000) == ()


# ---------------------------------------------------------------- older results first, then the summary


def test_older_results_go_first_when_that_is_enough_and_the_newest_three_stay() -> None:
    many = path(*reads(*[9_000] * 12), start("t2"), user("go on"))
    (move,) = plan("claude-code", many, 200_000, used=168_000)
    assert isinstance(move, Prune)
    ids = [e.id for e in many if e.kind == "tool_result"]
    assert list(move.placeholders) == ids[:-3]
    assert all("recall" in t for t in move.placeholders.values())
    again = path(*[e.body for e in many], prunes(*ids[:-3]))
    assert [type(m).__name__ for m in plan("claude-code", again, 200_000, used=168_000)] == ["Compact"]


@pytest.mark.parametrize("reason", ["manual", "overflow"])
def test_asked_or_after_an_overflow_it_summarises_everything(reason: str) -> None:
    (move,) = plan("claude-code", path(*reads(*[9_000] * 12)), 200_000, used=20_000, reason=reason)
    assert isinstance(move, Compact)
    assert move.first_kept is None


@pytest.mark.parametrize(("window", "limit"), [(200_000, 167_000), (1_000_000, 967_000), (20_000, 16_700)])
def test_where_it_begins_follows_the_window(window: int, limit: int) -> None:
    """claude 52, 53: 20,000 for the reply and 13,000 more; in a small window their share of it."""
    made: Any = policy("claude-code")
    assert made.limit_tokens(situation(results(10), window)) == limit


# ---------------------------------------------------------------- the summary


def test_the_note_names_the_file_with_the_whole_conversation() -> None:
    """claude 58."""
    seen: list[int] = []

    def keep(replaced: Any) -> str:
        seen.append(len(replaced))
        return ".nbagent/artifacts/0123.txt"

    entries = path(*reads(900, 900, 900), start("t2"), user("go on"), says("yes"))
    played = Played(entries, GOOD)
    made = engine("claude-code", transcript=keep)
    move = made.policy.plan(situation(entries, 20_000, reason="manual"))[-1]
    assert isinstance(move, Compact)
    assert played.run(made.compact(played.fold, move, "manual")) == "applied"
    body = played.fold.path[-1].body
    assert isinstance(body, Compaction)
    assert ".nbagent/artifacts/0123.txt" in body.note
    assert seen == [len(entries)]


def test_without_a_summary_the_oldest_fifth_goes_and_the_recent_part_stays_whole() -> None:
    """CC-C5: the last resort, when the window is nearly full; by hand nothing changes."""
    entries = path(*[b for i in range(10) for b in (start(f"t{i}"), user(f"ask {i}"), *reads(900)[2:])])
    made = engine("claude-code", window=12_000)
    move = made.policy.plan(situation(entries, 12_000, used=12_000, reason="overflow"))[-1]
    assert isinstance(move, Compact)
    for reason, done in (("before_call", True), ("manual", False)):
        played = Played(entries, text_reply(""))
        outcome = played.run(made.compact(played.fold, move, reason))  # type: ignore[arg-type]
        assert (outcome == "applied") is done
        shown = str(played.fold.view().messages)
        assert [f"ask {i}" in shown for i in (0, 9)] == [not done, True]
        assert "ask 4" in shown
