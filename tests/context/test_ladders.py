"""First stages, cuts and failure ladders of the modelled policies. Numbers in docstrings are the shared cases."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from nbagent.context.handoff import TEMPLATES
from nbagent.context.moves import (
    cut_after,
    cut_reaching,
    over_budget,
    prune,
    shown_results,
    since_cleared,
    tokens_before,
    with_both_ends,
)
from nbagent.context.note import users_messages
from nbagent.context.policies import BUILT_IN
from nbagent.context.policy import Compact, Prune, effective, make_policy
from nbagent.context.standing import gave_up
from nbagent.core.entries import Compaction, Entry, Report
from nbagent.core.errors import ModelFailed, PolicyError
from nbagent.core.messages import Response, image_block, text_block
from nbagent.core.view import build_view
from tests.contracts.situations import METER, Played, asked, engine, plan, policy, reads, situation, text_reply, words
from tests.core.builders import (
    MODEL,
    call,
    calls,
    compacts,
    path,
    prunes,
    reply,
    result,
    says,
    start,
    thinks,
    user,
)

GOOD = "<note>## Goal\nread</note>"


def failed(kind: str) -> Response:
    return Response(blocks=(), stop_reason=None, model=MODEL, cut="the call failed", error=ModelFailed("no", kind=kind))


def before_call(name: str, entries: list[Entry], *answers: Any, window: int, now: float = 0.0, **numbers: float) -> Played:
    played = Played(entries, *answers, now=now)
    made = engine(window=window, policy=policy(name, **numbers))
    assert played.run(made.before_call(played.fold)) is None
    return played


def only(moves: Any, kind: Any) -> Any:
    (found,) = [m for m in moves if isinstance(m, kind)]
    return found


# ---------------------------------------------------------------- gemini-cli: where it cuts


def alternating(count: int) -> list[Entry]:
    """Text turns of one message each: user, model, user …"""
    bodies: list[Any] = []
    for i in range(count):
        bodies += [start(f"t{i}"), user("m" * 40)] if i % 2 == 0 else [says("m" * 40)]
    return path(*bodies)


@pytest.mark.parametrize(("count", "share", "expected"), [(5, 0.5, "e7"), (5, 0.9, "e7"), (4, 0.8, None), (1, 0.5, "e1"), (3, 0.01, "e4")])
def test_the_cut_is_the_first_request_with_so_much_before_it(count: int, share: float, expected: str | None) -> None:
    """agents 1: five alternating messages at one half are cut at the fifth; with none so late, at the last there is."""
    assert cut_after(situation(alternating(count), 20_000), share) == expected


def test_an_unanswered_call_is_never_compacted_whole() -> None:
    """agents 2: the last request before it begins what is kept; an answered one lets everything go."""
    turns = path(start(), user("a"), says("b"), start("t2"), user("c"), calls("read"))
    assert cut_after(situation(turns, 20_000), 0.99) == "e4"
    done = path(*[e.body for e in turns], result(name="read"), says("so"))
    assert cut_after(situation(done, 20_000), 0.99) is None
    one = path(start(), user("a"), calls("read"), result(name="read"))
    assert tokens_before(situation(one, 20_000), cut_after(situation(one, 20_000), 0.5)) == 0


def test_the_cut_is_never_at_a_result() -> None:
    """agents 4: of a loop the next request is taken, however much comes before it."""
    turns = path(*reads(500, 500, 500), start("t2"), user("b"), says("c"))
    assert cut_after(situation(turns, 20_000), 0.3) == turns[9].id


@pytest.mark.parametrize("share", [0.0, -1.0, 1.0, 1.5])
def test_a_share_that_cuts_nothing_or_all_is_refused(share: float) -> None:
    """agents 5: also as a number that a person sets; an empty conversation has nothing to cut."""
    with pytest.raises(ValueError, match="above 0 and below 1"):
        cut_after(situation(alternating(5), 20_000), share)
    if 0 <= share <= 1:
        with pytest.raises(PolicyError, match="above 0 and below 1"):
            make_policy(BUILT_IN, "gemini-cli", {"keep": share})
    empty = situation([], 20_000)
    assert tokens_before(empty, cut_after(empty, 0.5)) == 0
    assert tokens_before(empty, cut_reaching(empty, 100)) == 0


def test_what_counts_is_characters_and_not_tokens() -> None:
    """Chinese takes more tokens than characters: by tokens the last request would be beyond 70 %."""
    turns = path(start(), user(words(300)), says("so"), start("t2"), user("数" * 400), says("so"), start("t3"), user("x"), says("y"))
    assert cut_after(situation(turns, 20_000), 0.6) == "e4"
    assert METER.text("数" * 400) > METER.text(words(300))
    assert len(words(300)) > 2 * 400


# ---------------------------------------------------------------- gemini-cli: stages without a model


def test_the_newest_results_have_a_budget_and_older_ones_are_cut() -> None:
    """agents 7, 8: what is cut goes on counting for what is left of it, and a small one before it has room."""
    three = shown_results(situation(path(*reads(30_000, 30_000, 30_000)), 200_000))
    assert [r.entry_id for r in over_budget(three, 50_000, 10_000)] == ["e4", "e6"]
    small = shown_results(situation(path(*reads(5_000, 30_000, 30_000)), 200_000))
    assert [r.entry_id for r in over_budget(small, 50_000, 10_000)] == ["e6"]
    exact = shown_results(situation(path(*reads(1_000)), 200_000))
    assert over_budget(exact, exact[0].tokens, 10) == []
    assert len(over_budget(exact, exact[0].tokens - 1, 10)) == 1


def test_a_kept_part_with_many_results_is_cut_to_both_ends_before_the_note() -> None:
    """agents 7: texts are untouched; a fifth of what is left is the beginning."""
    turns = path(*[start("t0"), user("x"), says(words(4_000))], *reads(4_000, 4_000, 4_000, text="so"), start("t2"), user("y"))
    moves = plan("gemini-cli", turns, 20_000, used=19_000, numbers={"keep": 0.9})
    cut, note = only(moves, Prune), only(moves, Compact)
    assert note.first_kept == "e4"
    assert set(cut.placeholders) == {"e7", "e9"}
    head, tail = cut.placeholders["e7"].split("\n[… ")[0], cut.placeholders["e7"].split("…]\n")[1]
    assert (len(head), len(tail)) == (800, 3_200)


def test_masked_outputs_are_named_with_both_ends_and_what_brings_them_back() -> None:
    """agents 16: tag, preview and path; at exactly the least amount it is done."""
    many = path(*reads(30_000, 30_000, 30_000, 300))
    shown = {r.entry_id: r for r in shown_results(situation(many, 200_000))}
    least = shown["e4"].tokens + shown["e6"].tokens
    numbers = {"threshold": 0.99, "protect_tokens": 50_000.0}
    move = only(plan("gemini-cli", many, 200_000, numbers={**numbers, "mask_least_tokens": least}), Prune)
    text = move.placeholders["e4"]
    assert text.startswith("[cleared: read")
    assert "`recall` e4" in text
    assert words(30_000)[:250] in text
    assert words(30_000)[-250:] in text
    assert len(text) < 800
    assert plan("gemini-cli", many, 200_000, numbers={**numbers, "mask_least_tokens": least + 1}) == ()


def test_of_what_a_shell_printed_lines_stay_and_the_exit_code_in_any_case() -> None:
    printed = "\n".join([*(f"line {i} " + "x" * 40 for i in range(30)), "[exit code 7]", *(f"later {i} " + "x" * 40 for i in range(30))])
    (shown,) = shown_results(situation(path(start(), user("x"), calls("shell"), result(text=printed, name="shell", status="error")), 20_000))
    text = with_both_ends(250)(shown)
    assert "line 9 " in text
    assert "line 10 " not in text
    assert "later 20 " in text
    assert "later 19 " not in text
    assert "[exit code 7]" in text
    assert prune([shown], with_both_ends(250), "x")
    (short,) = shown_results(situation(path(start(), user("x"), calls("shell"), result(text="a\nb\n[exit code 1]", name="shell")), 20_000))
    assert prune([short], with_both_ends(250), "x") == ()


def test_a_single_long_turn_is_masked_and_cut_inside_only_when_no_room_is_left() -> None:
    """agents 2: no request begins late enough. A note about next to nothing might be larger than that."""
    loop = path(*reads(600, 600, 600, 600)[:-1])
    for before in ([], [start("t0"), user("hi"), says("hello")]):
        turns = path(*before, *[e.body for e in loop])
        assert plan("gemini-cli", turns, 200_000, used=110_000) == ()
        move = only(plan("gemini-cli", turns, 200_000, used=180_000), Compact)
        assert 0 < tokens_before(situation(turns, 200_000), move.first_kept) < sum(situation(turns, 200_000).tokens)
        assert move.first_kept != turns[len(before)].id


# ---------------------------------------------------------------- gemini-cli: a note that is larger

LARGER = "<note>" + "".join(f"{i} is {i * i}\n" for i in range(9_000)) + "</note>"
TALK = [b for i in range(6) for b in (start(f"t{i}"), user(f"part {i}"), says(words(450)))]


def test_after_a_note_that_is_larger_no_model_is_asked_by_itself() -> None:
    """agents 13: unchanged; then nothing but results is cut, and nothing at all where there is nothing to cut."""
    played = before_call("gemini-cli", path(*TALK), LARGER, window=5_000)
    assert played.purposes == ["handoff"]  # no request that would probe it has room
    assert played.fold.view().messages == build_view(path(*TALK)).messages
    assert gave_up(played.fold.path, "gemini-cli")
    assert "`%context compact` asks for a note at once" in played.lines[-1]
    again = before_call("gemini-cli", list(played.fold.path), GOOD, window=5_000)
    assert again.requests == []
    assert again.kinds == played.kinds


def test_then_long_results_are_cut_once() -> None:
    """agents 14: and when that saves nothing, nothing happens."""
    report = Report(source="compaction", text="no", details={"applied": False, "policy": "gemini-cli", "reason": "before_call", "larger": True})
    ends = path(*reads(9_000, 3_000), report, start("t2"), user("y"))
    played = before_call("gemini-cli", ends, GOOD, window=20_000)
    assert played.requests == []
    (cut,) = [e.body for e in played.fold.path if e.kind == "pruning"]
    assert list(cut.placeholders) == ["e4"]  # type: ignore[attr-defined]
    again = before_call("gemini-cli", list(played.fold.path), GOOD, window=20_000)
    assert again.kinds == played.kinds


def test_a_compaction_by_hand_that_succeeds_lets_it_ask_again() -> None:
    """agents 13: and a failure by hand, or that of another policy, is none of its own."""
    told = {"applied": False, "policy": "gemini-cli", "reason": "before_call", "larger": True}

    def after(*bodies: Any) -> bool:
        return gave_up(path(start(), user("x"), *bodies), "gemini-cli")

    assert after(Report(source="compaction", text="no", details=told))
    assert not after(Report(source="compaction", text="no", details=told), compacts(None))
    assert after(compacts(None), Report(source="compaction", text="no", details=told), says("x"))
    assert not after(Report(source="compaction", text="no", details={**told, "reason": "manual"}))
    assert not after(Report(source="compaction", text="no", details={**told, "policy": "pi"}))
    assert not after(Report(source="compaction", text="no", details={**told, "larger": False}))


def test_a_note_without_text_is_asked_for_twice_and_may_be_tried_at_the_next_call() -> None:
    """agents 11: both blank change nothing, and nothing is given up."""
    played = before_call("gemini-cli", path(*TALK), text_reply("  "), window=5_000)
    assert len(played.requests) == 2
    assert played.fold.view().messages == build_view(path(*TALK)).messages
    assert not gave_up(played.fold.path, "gemini-cli")
    again = before_call("gemini-cli", list(played.fold.path), GOOD, window=5_000)
    assert [e.kind for e in again.fold.path].count("compaction") == 1


# ---------------------------------------------------------------- who writes is shown what goes


@pytest.mark.parametrize("name", ["gemini-cli", "opencode", "pi"])
def test_the_writer_of_a_note_sees_what_is_replaced_and_not_what_is_kept(name: str) -> None:
    turns = path(*TALK[:-3], start("last"), user("KEPT REQUEST"), says("KEPT REPLY"))
    numbers = {"gemini-cli": {"keep": 0.2}, "opencode": {"keep_most_tokens": 60, "keep_least_tokens": 40}, "pi": {"keep_tokens": 8}}[name]
    played = before_call(name, turns, GOOD, window=20_000, threshold=0.05, **numbers)
    made = played.fold.path[-1].body
    assert isinstance(made, Compaction)
    assert made.first_kept == turns[-3].id
    assert all("part 0" in str(r.messages) and "KEPT" not in str(r.messages) for r in played.requests)
    assert str(played.fold.view().messages).count("KEPT REQUEST") == 1


def test_a_part_that_ends_inside_a_loop_goes_as_text() -> None:
    """The thinking of its last reply may not be changed there, and later moves may have taken it."""
    turns = path(start(), user("x"), reply(thinks(), call("read", id="a"), stop="tool_use"), start("t2"), user("y"), says(words(300)), start("t3"), user("z"), says("so"))
    played = Played(turns, GOOD)
    move = Compact(first_kept="e4", reason="x", style=replace(policy_style("gemini-cli"), probe=False))
    played.run(engine().compact(played.fold, move, "manual"))
    assert len(played.requests[0].messages) == 1
    assert asked(played.requests[0]).startswith("<transcript>")
    assert "no recorded result" in asked(played.requests[0])


def policy_style(name: str) -> Any:
    return only(plan(name, path(*TALK), 20_000, reason="manual"), Compact).style


# ---------------------------------------------------------------- codex


def test_codex_never_waits_longer_than_its_most_share() -> None:
    """agents 23: a limit above it counts as it, one below wins."""
    talk = path(*TALK)
    for numbers in ({}, {"limit_tokens": 300_000.0}, {"threshold": 1.0}):
        assert plan("codex", talk, 272_000, used=244_799, numbers=numbers) == ()
        assert plan("codex", talk, 272_000, used=244_800, numbers=numbers) != ()
    assert plan("codex", talk, 272_000, used=99_999, numbers={"limit_tokens": 100_000}) == ()
    assert plan("codex", talk, 272_000, used=100_000, numbers={"limit_tokens": 100_000}) != ()


def test_the_persons_messages_stay_whole_from_the_newest_on() -> None:
    """agents 28: the one that crosses the budget is cut in the middle, what is before it goes."""
    turns = path(start(), user("FIRST"), user("B" + words(10_000) + "E"), user("A" + words(15_000)))
    text = users_messages(turns, 20_000, METER.text, newest=True)
    lines = text.split("\n")
    assert lines[0].startswith("(1 earlier messages")
    assert "FIRST" not in text
    assert lines[-1] == "- A" + words(15_000)
    cut = lines[1].removeprefix("- ")
    assert METER.text(cut) == pytest.approx(5_000, rel=0.03)
    head, tail = cut.split(" […] ")
    assert head.startswith("B")
    assert tail.endswith("E")
    assert abs(len(head) - len(tail)) <= 2


def test_codex_keeps_what_the_person_said_and_the_summary_last() -> None:
    """agents 25, 29: of an earlier compaction its messages, and not its summary; replies and results go."""
    turns = path(start(), user("ASK ONE"), says("REPLY ONE"), compacts(None, "OLD SUMMARY"), *reads(900, 900), start("t3"), user("ASK TWO"), says("REPLY TWO"))
    played = Played(turns, "<note>NEW SUMMARY</note>")
    move = only(plan("codex", turns, 20_000, reason="manual"), Compact)
    assert played.run(engine("codex").compact(played.fold, move, "manual")) == "applied"
    (message,) = played.fold.view().messages
    note = str(message.blocks[0]["text"])
    order = [note.index(t) for t in ("ASK ONE", "read them", "ASK TWO", "NEW SUMMARY", "</handoff>\n\n</context-note>")]
    assert order == sorted(order)
    assert not any(t in note for t in ("OLD SUMMARY", "REPLY ONE", "REPLY TWO"))
    assert "OLD SUMMARY" in str(played.requests[0].messages)


def test_a_summary_request_that_is_too_long_loses_its_oldest_part_until_little_is_left() -> None:
    """agents 70 for results; Codex drops the oldest item each time. Each request is smaller than the one before."""
    turns = path(*TALK)
    move = only(plan("codex", turns, 20_000, reason="manual"), Compact)
    played = Played(turns, *[failed("overflow")] * 4, GOOD)
    assert played.run(engine("codex").compact(played.fold, move, "manual")) == "applied"
    sizes = [len(str(r.messages)) for r in played.requests]
    assert len(sizes) == 5
    assert all(later < before for before, later in pairwise(sizes[1:]))
    never = Played(turns, failed("overflow"))
    never.run(engine("codex").compact(never.fold, move, "manual"))
    assert len(never.requests) == 5
    assert never.fold.view().messages == build_view(turns).messages


def test_what_codex_cuts_shrinks_with_the_window_and_a_figure_is_never_cut_away() -> None:
    """DECISIONS 25: 40,000 characters in a window of 200,000."""
    big = [start(), user("x"), calls("read"), result(text="a" * 5_000, name="read")]
    cut = only(plan("codex", path(*big), 20_000), Prune)
    assert cut.placeholders["e4"].startswith("a" * 2_000 + "\n")
    assert plan("codex", path(*big), 200_000) == ()
    assert effective(policy("codex").numbers, 20_000)["output_tokens"] == 1_000
    assert effective(policy("codex@seed").numbers, 20_000)["output_bytes"] == 1_024
    figure = replace(big[3], content=(text_block("a" * 5_000), image_block("image/png", "aGk=")))
    assert plan("codex", path(*big[:3], figure), 20_000) == ()


@pytest.mark.parametrize(("name", "numbers"), [("codex", {}), ("manus", {}), ("createrole", {}), ("gemini-cli", {}), ("opencode@seed", {})])
def test_what_a_skill_brought_is_left_whole(name: str, numbers: dict[str, float]) -> None:
    """agents 17, 43: it is in force, however old and long it is."""
    loaded = [calls("skill", id="s"), result("s", words(4_000), name="skill")]
    turns = path(start(), user("x"), *loaded, *reads(4_000, 4_000, 3_000, 300)[2:], start("t2"), user("y"), says("z"), start("t3"), user("now"))
    moves = plan(name, turns, 20_000, used=17_000, numbers=numbers)
    pruned = {e for m in moves if isinstance(m, Prune) for e in m.placeholders}
    assert "e4" not in pruned
    fresh = path(start(), user("x"), *loaded)
    assert not [m for m in plan(name, fresh, 20_000) if isinstance(m, Prune)]


# ---------------------------------------------------------------- opencode


OLD = [*reads(30_000, 30_000, 30_000), start("t2"), user("b"), says("b"), start("t3"), user("c"), says("c")]


def test_the_scan_for_old_results_stops_at_one_that_is_cleared() -> None:
    """agents 44: also at a summary, behind which nothing is shown."""
    ends = path(*OLD, prunes("e6"), start("t4"), user("d"))
    assert [r.entry_id for r in since_cleared(situation(ends, 200_000), shown_results(situation(ends, 200_000)))] == ["e8"]
    assert plan("opencode@seed", ends, 200_000) == ()
    noted = path(*OLD, compacts("e7"), start("t4"), user("d"))
    assert plan("opencode@seed", noted, 200_000) == ()


def test_errors_are_not_cleared_and_protect_nothing() -> None:
    """agents 43: only what was completed is looked at."""
    wrong = [replace(b, status="error") if getattr(b, "call_id", "") == "c2" else b for b in OLD]
    for bodies, cleared in ((wrong, {"e4"}), (OLD, {"e4", "e6"})):
        move = only(plan("opencode@seed", path(*bodies, start("t4"), user("d")), 200_000), Prune)
        assert set(move.placeholders) == cleared


def test_the_seed_clears_before_it_summarises_and_the_newest_does_not() -> None:
    """DECISIONS 25: when clearing makes room enough, no summary is asked for."""
    ends = path(*OLD, start("t4"), user("d"))
    assert isinstance(only(plan("opencode@seed", ends, 200_000, used=170_000), Prune), Prune)
    assert isinstance(only(plan("opencode", ends, 200_000, used=170_000), Compact), Compact)
    assert isinstance(only(plan("opencode@seed", ends, 200_000, used=260_000), Compact), Compact)


def test_opencode_shows_thinking_to_the_writer_and_pi_does_not() -> None:
    """agents 61."""
    turns = path(start(), user("x"), reply(thinks("A THOUGHT"), words(900)), start("t2"), user("y"), says("z"))
    for name, shown in (("opencode", True), ("pi", False)):
        played = Played(turns, GOOD)
        move = replace(only(plan(name, turns, 20_000, reason="manual"), Compact), first_kept="e4")
        assert played.run(engine(name).compact(played.fold, move, "manual")) == "applied"
        assert ("A THOUGHT" in asked(played.requests[0])) is shown


# ---------------------------------------------------------------- pi


def test_the_kept_part_reaches_what_was_asked_for() -> None:
    """agents 53, 56: what crosses the limit is kept; a call with its result also when it is larger."""
    turns = path(start(), user("a"), says(words(500)), start("t2"), user("b"), says(words(500)), start("t3"), user("c"), says(words(500)))
    sizes = situation(turns, 20_000)
    last = sizes.tokens[-1]
    assert [cut_reaching(sizes, n) for n in (last, last + 1, last + 100)] == ["e9", "e7", "e6"]
    assert tokens_before(sizes, cut_reaching(sizes, 5_000)) == 0
    pair = path(start(), user("x"), says("y"), start("t2"), user("z"), calls("read"), result(text=words(3_000), name="read"))
    assert cut_reaching(situation(pair, 20_000), 2_000) == "e6"


def test_a_request_without_a_reply_is_kept_and_an_earlier_cut_is_not_repeated() -> None:
    asks = path(start(), user("a"), says(words(500)), start("t2"), user(words(3_000)))
    assert cut_reaching(situation(asks, 20_000), 100) == "e4"
    again = path(start(), user("a"), says(words(500)), start("t2"), user("b"), says(words(300)), compacts("e4"))
    assert tokens_before(situation(again, 20_000), cut_reaching(situation(again, 20_000), 5_000)) == 0


def test_of_a_turn_that_is_cut_inside_the_first_part_is_noted_apart() -> None:
    """agents 58: two calls, the person's focus in both."""
    turns = path(start(), user("OLD ASK"), says(words(400)), start("t2"), user("THE ASK"), *reads(400, 400, 400)[2:8])
    played = Played(turns, "<note>HISTORY</note>", "<note>FIRST PART</note>")
    move = replace(only(plan("pi", turns, 20_000, reason="manual"), Compact), first_kept=turns[-2].id)
    assert played.run(engine("pi", focus="the gauge").compact(played.fold, move, "manual")) == "applied"
    first, second = (asked(r) for r in played.requests)
    assert "OLD ASK" in first
    assert "THE ASK" not in first
    assert "THE ASK" in second
    assert "OLD ASK" not in second
    assert all("keep above all: the gauge" in t for t in (first, second))
    assert [f"## {s.title}" in second for s in TEMPLATES["pi-turn"].sections] == [True] * 3
    made = played.fold.path[-1].body
    assert isinstance(made, Compaction)
    assert made.note.index("HISTORY") < made.note.index("\n---\n") < made.note.index("FIRST PART")
    assert made.first_kept == turns[-2].id


@pytest.mark.parametrize(("earlier", "history"), [(True, "EARLIER"), (False, "nothing came before this turn")])
def test_an_earlier_note_stands_as_it_is_before_the_first_part_of_a_turn(earlier: bool, history: str) -> None:
    """agents 58: one call, for there is no other turn to note."""
    before = [start("t0"), user("x"), says("y"), replace(compacts(None, "EARLIER NOTE"), details={"handoff": "EARLIER"})] if earlier else []
    turns = path(*before, start("t2"), user("THE ASK"), *reads(400, 400, 400)[2:8])
    played = Played(turns, "<note>FIRST PART</note>")
    move = replace(only(plan("pi", turns, 20_000, reason="manual"), Compact), first_kept=turns[-2].id)
    assert played.run(engine("pi").compact(played.fold, move, "manual")) == "applied"
    assert len(played.requests) == 1
    made = played.fold.path[-1].body
    assert isinstance(made, Compaction)
    assert str(made.details["handoff"]).startswith(history if earlier else f"({history})")
    assert "FIRST PART" in str(made.details["handoff"])


def test_a_second_compaction_begins_with_what_the_first_kept() -> None:
    """agents 59, 10: and with its note, to be merged."""
    turns = path(start(), user("GONE"), says("gone too"), start("t2"), user("KEPT THEN"), says(words(500)), replace(compacts("e4", "<context-note>\nEARLIER NOTE"), details={"handoff": "EARLIER NOTE"}), start("t3"), user("NEW"), says(words(500)), start("t4"), user("LAST"), says("so"))
    played = Played(turns, GOOD)
    move = replace(only(plan("pi", turns, 20_000, reason="manual"), Compact), first_kept="e11")
    assert played.run(engine("pi").compact(played.fold, move, "manual")) == "applied"
    shown = asked(played.requests[0])
    order = [shown.index(t) for t in ("EARLIER NOTE", "KEPT THEN", "NEW")]
    assert order == sorted(order)
    assert "GONE" not in shown
    assert "LAST" not in shown


@pytest.mark.parametrize("answer", [text_reply("<note>## Goal\nx", stop="max_tokens"), Response(blocks=(text_block("<note>x</note>"), call()), stop_reason="tool_use", model=MODEL), failed("connection")])
def test_pi_does_not_ask_again_for_a_note_that_cannot_be_used(answer: Response) -> None:
    """agents 62: nothing is appended but the report; the branch is unchanged."""
    turns = path(*TALK)
    played = before_call("pi", turns, answer, GOOD, window=3_000, keep_tokens=20)
    assert len(played.requests) == 1
    assert played.kinds == [*(e.kind for e in turns), "report", *(["snapshot"] if played.kinds[-1] == "snapshot" else [])]
    assert played.fold.view().messages[: len(build_view(turns).messages)] == build_view(turns).messages
    assert "Compaction changed nothing" in played.lines[-1]


# ---------------------------------------------------------------- manus, createrole


def test_manus_summarises_from_the_full_data() -> None:
    """MA-C4: what is in compact form is whole for the writer."""
    unseen = path(start(), user("x"), calls("read"), result(text=words(300) + " THE_VALUE " + words(600), name="read"), says("so"), prunes("e4"), start("t2"), user("y"), says(words(900)), start("t3"), user("z"))
    move = only(plan("manus", unseen, 4_000, used=3_000, numbers={"keep_tokens": 50}), Compact)
    played = Played(unseen, GOOD)
    assert played.run(engine("manus", window=4_000).compact(played.fold, move, "manual")) == "applied"
    assert "THE_VALUE" in asked(played.requests[0])
    assert "more characters" not in asked(played.requests[0])
    assert "e4" in played.fold.view().pruned or played.fold.view().pieces[0].category == "summary"


def test_manus_shows_long_results_in_part_when_the_full_data_does_not_fit() -> None:
    large = path(start(), user("x"), calls("read"), result(text=words(6_000), name="read"), says("so"), prunes("e4"), start("t2"), user("y"), says(words(900)), start("t3"), user("z"))
    move = only(plan("manus", large, 4_000, used=3_000, numbers={"keep_tokens": 50}), Compact)
    played = Played(large, GOOD)
    assert played.run(engine("manus", window=4_000).compact(played.fold, move, "manual")) == "applied"
    assert "more characters" in asked(played.requests[0])


def test_createrole_masks_all_but_the_newest_before_it_writes_a_note() -> None:
    """CR-C1: old results, then near 90 % those of the turn, then the note."""
    loop = path(*reads(100, 2_000, 2_000)[:8])
    late = plan("createrole", loop, 20_000, used=18_500)
    assert list(only(late, Prune).placeholders) == ["e4", "e6"]
    assert not [m for m in late if isinstance(m, Compact)]
    little = path(*reads(100, 300, 2_000)[:8])
    assert isinstance(only(plan("createrole", little, 20_000, used=18_500), Compact), Compact)
    assert plan("createrole", loop, 20_000, used=17_000) == ()


def test_a_turn_that_a_policy_would_never_compact_is_when_it_does_not_fit() -> None:
    """CR-C1: as after the provider's own refusal. gemini-cli cuts where a request begins, and here only one does."""
    bodies = [b for i in range(14) for b in (calls("read", id=f"c{i}"), result(f"c{i}", "ok", name="read"), says(words(500)))]
    turn = path(start(), user("go"), *bodies, start("t2"), user("and on"))
    one = path(start(), user("go"), *[b for i in range(14) for b in (reply(words(500), call("read", f"c{i}"), stop="tool_use"), result(f"c{i}", "ok", name="read"))])
    for entries in (turn, one):
        played = Played(entries, "<note>## Goal\ngo</note>")
        made = engine("gemini-cli", window=6_000)
        assert played.run(made.before_call(played.fold)) is None
        assert made.predict(played.fold.view()) <= 6_000
    off = Played(one, "<note>x</note>")
    assert "the window holds 6,000" in off.run(engine("off", window=6_000).before_call(off.fold))
    assert not off.requests
