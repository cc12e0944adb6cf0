"""The policy openclaw: what it trims, shortens, summarises and asks of a summary. Numbers are the shared cases."""

from __future__ import annotations

from typing import Any

import pytest

from nbagent.context.handoff import TEMPLATES, HandoffNote, parse_note
from nbagent.context.policies.openclaw import CLEARED, OpenClawPolicy, weight
from nbagent.context.policy import Compact, Prune
from nbagent.context.safeguard import identifiers, kept_beside, missing_in, preserved
from nbagent.core.entries import Compaction, Entry, Pruning, Report
from nbagent.core.messages import image_block, text_block
from nbagent.core.view import build_view
from tests.contracts.situations import Played, asked, engine, plan, policy, situation, words
from tests.core.builders import calls, path, reply, result, says, start, thinks, user

COLD = {"idle_s": 3_601.0}


def big(chars: int, name: str = "read", id: str = "a") -> Any:
    return result(id, ("line of text\n" * (chars // 13 + 1))[:chars], name=name)


def steps(*sizes: int) -> list[Entry]:
    """A turn with results of so many characters, and three more short steps after them."""
    made: list[Any] = [start(), user("go")]
    for i, size in enumerate(sizes):
        made += [calls("read", id=f"r{i}"), big(size, id=f"r{i}")]
    for i in range(3):
        made += [calls("read", id=f"s{i}"), result(f"s{i}", "ok", name="read")]
    return path(*made)


def window_for(entries: list[Entry], ratio: float) -> int:
    return int(sum(situation(entries, 10_000).tokens) / ratio)


def pruned(moves: Any) -> dict[str, str]:
    return {e: t for m in moves if isinstance(m, Prune) for e, t in m.placeholders.items()}


# ---------------------------------------------------------------- cold cache (OC-C7)


def test_nothing_is_trimmed_while_the_cache_may_be_warm_or_was_never_touched() -> None:
    """openclaw 80, 82: an hour to the second is not yet cold, without a call there is no cache, and 0 prunes nothing."""
    many = steps(*[9_000] * 8)
    window = window_for(many, 0.4)
    assert pruned(plan("openclaw", many, window, idle_s=3_601.0))
    assert plan("openclaw", many, window, idle_s=3_600.0) == ()
    assert plan("openclaw", many, window, idle_s=None) == ()
    assert plan("openclaw", many, window, idle_s=1e9, numbers={"ttl_s": 0}) == ()


def test_the_seed_counts_the_cache_as_cold_after_five_minutes() -> None:
    """OC-C7; a ttl that was left out."""
    many = steps(*[9_000] * 8)
    window = window_for(many, 0.4)
    assert pruned(plan("openclaw@seed", many, window, idle_s=301.0))
    assert plan("openclaw@seed", many, window, idle_s=300.0) == ()


def test_a_trimmed_result_keeps_both_ends_and_says_what_is_gone() -> None:
    """openclaw 82: head and tail of 1,500 characters each, from 4,001 on, from 30 % of the window on."""
    many = steps(4_000, 4_001, 9_000)
    texts = pruned(plan("openclaw", many, window_for(many, 0.4), **COLD))
    assert set(texts) == {"e6", "e8"}
    assert all(t[:1_500] in many[int(e[1:]) - 1].body.content[0]["text"] for e, t in texts.items())
    assert "1,001 characters left out" in texts["e6"]
    assert plan("openclaw", many, window_for(many, 0.29), **COLD) == ()


def test_enough_old_results_are_cleared_oldest_first_until_the_window_is_half_full() -> None:
    """openclaw 83: 60,000 characters after trimming, 40,000 are too few."""
    many = steps(*[3_900] * 17)
    texts = pruned(plan("openclaw", many, window_for(many, 0.6), **COLD))
    cleared = [e for e, t in texts.items() if t == CLEARED]
    assert cleared == [f"e{4 + 2 * i}" for i in range(len(cleared))]
    assert 1 < len(cleared) < 10
    few = steps(*[3_900] * 10)
    assert pruned(plan("openclaw", few, window_for(few, 0.6), **COLD)) == {}


def test_what_was_trimmed_once_is_cleared_at_a_later_pause() -> None:
    """openclaw 83: in OpenClaw each pause looks at the whole history."""
    many = steps(*[9_000] * 20)
    first = pruned(plan("openclaw", many, window_for(many, 0.4), **COLD))
    trimmed = path(*[e.body for e in many], Pruning(placeholders=first, reason="cold"))
    assert len(first) == 20
    later = pruned(plan("openclaw", trimmed, window_for(trimmed, 0.6), **COLD))
    assert later
    assert set(later.values()) == {CLEARED}
    cleared = path(*[e.body for e in trimmed], Pruning(placeholders=later, reason="cold"))
    again = pruned(plan("openclaw", cleared, window_for(trimmed, 0.6), **COLD))
    assert not set(again) & set(later)


def test_an_image_in_an_old_result_goes_also_when_its_text_is_short() -> None:
    image = image_block("image/png", "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
    shown = big(40)
    pictured = type(shown)(call_id="p", name="read", content=(text_block("a plot"), image), status="ok")
    many = path(start(), user("go"), calls("read", id="p"), pictured, *[e.body for e in steps(9_000)[2:]])
    texts = pruned(plan("openclaw", many, window_for(many, 0.4), **COLD))
    assert texts["e4"] == "a plot\n[1 image removed]"


def test_chinese_text_weighs_four_times() -> None:
    """openclaw 160, 161: once, not twice."""
    assert weight("数据" * 10) == 80
    assert weight("data") == 4


# ---------------------------------------------------------------- shorter results or a summary


def over(entries: list[Entry], tokens: int, **more: Any) -> Any:
    """What is planned when the conversation is `tokens` above where compaction begins."""
    limit = policy("openclaw").limit_tokens(situation(entries, 200_000))  # type: ignore[attr-defined]
    return plan("openclaw", entries, 200_000, used=limit + tokens, numbers={"keep_tokens": 40_000}, **more)


@pytest.mark.parametrize(
    ("reducible", "expected"), [(7_000, ["Prune"]), (3_000, ["Compact", "Prune"]), (0, ["Compact"])]
)
def test_what_is_over_decides_between_shorter_results_and_a_summary(reducible: int, expected: list[str]) -> None:
    """openclaw 98: 1,000 tokens over; at least 6,048 characters must come free for results alone to do."""
    turns = [b for i in range(4) for b in (start(f"t{i}"), user("x"), says(words(400)))]
    entries = path(*turns, start("t9"), user("y"), calls("read"), big(64_000 + reducible + 40 * bool(reducible)))
    assert [type(m).__name__ for m in over(entries, 1_000)] == expected


def test_all_results_together_have_a_bound_too_and_none_becomes_empty() -> None:
    """openclaw 157: 44 results, the oldest shortened first, each with its ends and a marker."""
    many = steps(*[8_000] * 44)
    made = policy("openclaw")
    assert isinstance(made, OpenClawPolicy)
    texts, freed = made.shorten(situation(many, 20_000))
    assert next(iter(texts)) == "e4"
    assert all("characters left out" in t and len(t) >= 1_900 for t in texts.values())
    left = sum(len(texts.get(e.id, e.body.content[0]["text"])) for e in many if e.kind == "tool_result")
    assert left <= 44 * 2_000 + 6  # more than the bound of 64,000, but none is made shorter
    assert freed > 100_000


def test_a_result_is_shortened_once() -> None:
    entries = path(start(), user("x"), calls("read"), big(90_000))
    (move,) = over(entries, 10)
    assert isinstance(move, Prune)
    assert len(move.placeholders["e4"]) <= 64_000
    again = path(*[e.body for e in entries], Pruning(placeholders=move.placeholders, reason="x"))
    assert not pruned(over(again, 10))


# ---------------------------------------------------------------- the cut


def test_no_more_is_kept_than_half_of_the_window() -> None:
    """openclaw 96: the oldest halves go until the rest is within the share."""
    turns = path(*[b for i in range(20) for b in (start(f"t{i}"), user(f"ask {i}"), says(words(900)))])
    (move,) = plan("openclaw", turns, 20_000, used=19_000, numbers={"keep_tokens": 19_000})
    assert isinstance(move, Compact)
    kept = sum(situation(path(*[e.body for e in turns[_at(turns, move) :]]), 20_000).tokens)
    assert kept <= 10_000


@pytest.mark.parametrize(("used", "halves"), [(10_001, 1), (19_000, 1)])
def test_the_first_published_numbers_drop_the_oldest_half(used: int, halves: int) -> None:
    """OC-C8: above half of the window; what is dropped is what the note tells of."""
    turns = path(*[b for i in range(20) for b in (start(f"t{i}"), user(f"ask {i}"), says(words(480)))])
    (move,) = plan("openclaw@seed", turns, 20_000, used=used)
    assert isinstance(move, Compact)
    assert _at(turns, move) in (30, 33)
    assert plan("openclaw@seed", turns, 20_000, used=10_000) == ()


def _at(entries: list[Entry], move: Compact) -> int:
    return [e.id for e in entries].index(str(move.first_kept))


# ---------------------------------------------------------------- the summary


LONG = path(*[b for i in range(24) for b in (start(f"t{i}"), user(f"Please sort table_{i}.csv"), says(words(700)))])
GOOD = "<note>" + "\n".join(f"## {s.title}\nsort table_20.csv table_21.csv table_22.csv table_23.csv" for s in TEMPLATES["openclaw"].sections) + "</note>"


def compacted(entries: list[Entry], *answers: Any, window: int = 20_000, **more: Any) -> tuple[Played, Any]:
    played = Played(entries, *answers)
    made = engine("openclaw", window=window, **more)
    (move, *_) = made.policy.plan(situation(entries, window, used=window))
    assert isinstance(move, Compact)
    return played, played.run(made.compact(played.fold, move, "before_call"))


def test_a_long_history_is_summarised_in_two_parts_of_chunks_and_merged() -> None:
    """openclaw 92, 93: no request shows more than the chunk; the last one merges."""
    played, outcome = compacted(LONG, GOOD)
    assert outcome == "applied"
    move = policy("openclaw").plan(situation(LONG, 20_000, used=20_000))[0]
    assert isinstance(move, Compact)
    assert 0 < move.style.chunk_tokens <= 0.4 * 20_000
    shown = [asked(r).partition("</transcript>")[0] for r in played.requests[:-1]]
    meter = engine().meter
    assert all(meter.text(s) <= move.style.chunk_tokens + 20 for s in shown)
    assert '<part number="2">' in asked(played.requests[-1])
    body = played.fold.path[-1].body
    assert isinstance(body, Compaction)
    assert body.details["parts"] == len(shown)


@pytest.mark.parametrize(("share", "most"), [(0.4, 0.4), (0.8, 0.8), (1.0, 1.0), (0.0, 0.0)])
def test_how_much_one_request_shows_can_be_set(share: float, most: float) -> None:
    turns = path(*[b for i in range(40) for b in (start(f"t{i}"), user("x"), says(words(40)))])
    move = policy("openclaw", chunk_share=share).plan(situation(turns, 20_000, used=20_000))[0]
    assert isinstance(move, Compact)
    assert move.style.chunk_tokens == (int(most * 20_000) - 409 if most else 0)


def test_a_short_history_is_summarised_in_one_request() -> None:
    played, outcome = compacted(LONG[:12], GOOD, window=20_000, policy=policy("openclaw", keep_tokens=300))
    assert outcome == "applied"
    assert len(played.requests) == 1
    assert not asked(played.requests[0]).startswith("<transcript>")


def test_an_overflow_of_the_request_makes_the_parts_smaller_and_leaves_nothing_out() -> None:
    from tests.context.test_stages import failed, shown

    played, outcome = compacted(LONG[:30], failed("overflow"), GOOD, policy=policy("openclaw", keep_tokens=300, chunk_share=0))
    assert outcome == "applied"
    assert len(played.requests) > 2
    assert all(f"table_{i}.csv" in "".join(shown(played.requests)) for i in range(9))


def test_a_summary_without_what_it_should_hold_is_asked_for_once_more() -> None:
    """openclaw 32 and 147 of the reports: bounded; then the missing is listed word for word and marked."""
    poor = "<note>## Decisions\nnone</note>"
    played, outcome = compacted(LONG[:30], poor, GOOD, policy=policy("openclaw", keep_tokens=300))
    assert outcome == "applied"
    assert len(played.requests) == 2
    assert "Open TODOs" in asked(played.requests[1])
    body = played.fold.path[-1].body
    assert isinstance(body, Compaction)
    assert body.details["handoff"] == parse_note(GOOD).text  # type: ignore[union-attr]
    played, outcome = compacted(LONG[:30], poor, poor, policy=policy("openclaw", keep_tokens=300))
    assert outcome == "applied"
    assert len(played.requests) == 2
    body = played.fold.path[-1].body
    assert isinstance(body, Compaction)
    assert "<not-in-the-handoff>\nthe last request: Please sort table_" in body.note


def test_a_second_answer_that_cannot_be_used_leaves_the_first() -> None:
    poor = "<note>## Decisions\nnone</note>"
    played, outcome = compacted(LONG[:30], poor, "", policy=policy("openclaw", keep_tokens=300))
    assert outcome == "applied"
    body = played.fold.path[-1].body
    assert isinstance(body, Compaction)
    assert body.details["handoff"] == "## Decisions\nnone"


def test_without_a_summary_nothing_changes() -> None:
    """openclaw 148: never a placeholder in the place of the history."""
    played, outcome = compacted(LONG, "")
    assert "empty" in outcome
    assert isinstance(played.fold.path[-1].body, Report)
    assert played.fold.view().messages == build_view(LONG).messages


# ---------------------------------------------------------------- what has to be in it, what stands beside it


def test_the_newest_turns_are_preserved() -> None:
    """openclaw 95."""
    assert preserved(["user", "assistant"] * 3, 1) == [4, 5]
    assert len(preserved(["user"] + ["assistant"] * 8, 3)) == 6
    assert preserved(["user"] + ["assistant"] * 8, 3)[0] == 0
    assert preserved([], 3) == []
    assert preserved(["user"], 0) == []
    assert preserved(["assistant"] * 2, 3) == [0, 1]


def test_newest_turns_failures_and_files_stand_beside_the_summary_each_bounded() -> None:
    failing = [calls("python", id="f"), result("f", "KeyError: 'price' " + "x" * 900, status="error")]
    entries = path(start(), user("older " * 400), says("a"), start("t1"), user("b"), reply(thinks(), "so"), *failing, start("t2"), user("c"), says("d"))
    text = kept_beside(entries, 200_000)
    assert "- user: c" in text
    assert "- python: KeyError: 'price'" in text
    assert max(map(len, text.split("\n"))) <= 620
    assert len(kept_beside(entries, 8_000)) < len(text)
    assert kept_beside([], 200_000) == ""


def test_headings_identifiers_and_the_last_request_are_checked() -> None:
    template = TEMPLATES["openclaw"]
    entries = path(start(), user("Upload to https://x.example/a1 and keep 7f3e9a2c-1b4d-4c9f-8e21-0a5b6c7d8e9f"), says("/data/out/final.csv is written"))
    wanted = identifiers(entries)
    assert "https://x.example/a1" in wanted
    assert "/data/out/final.csv" in wanted
    full = HandoffNote(text=" ".join(wanted) + " upload keep", sections={s.title: "" for s in template.sections})
    assert not missing_in(full, template, entries)
    empty = missing_in(HandoffNote(text="nothing", sections={}), template, entries)
    assert empty.headings == tuple(s.title for s in template.sections)
    assert set(empty.identifiers) == set(wanted)
    assert empty.ask.startswith("Upload to")
    german = {f"Teil {i}": "" for i in range(len(template.sections))}
    assert not missing_in(HandoffNote(text="x", sections=german), template, entries).headings
    chinese = path(start(), user("请把结果写入表格"), says("好"))
    assert not missing_in(HandoffNote(text="结果写入表格", sections=full.sections), template, chinese).ask
    assert missing_in(HandoffNote(text="x", sections=full.sections), template, chinese).ask


def test_no_more_than_twelve_identifiers_are_asked_for_newest_first() -> None:
    entries = path(start(), *[b for i in range(30) for b in (user(f"see /data/file_{i}.csv"), says("ok"))])
    wanted = identifiers(entries)
    assert len(wanted) <= 12
    assert wanted[0] == "/data/file_29.csv"
