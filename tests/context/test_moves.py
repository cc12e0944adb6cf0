"""Primitive moves: labels, placeholders, what is pruned."""

from __future__ import annotations

from nbagent.context.moves import freed_tokens, head_and_tail, pointer, prune, shown_results, tokens_before
from tests.contracts.situations import reads, situation, words
from tests.core.builders import call, calls, path, prunes, reply, result, start, thinks, user


def test_a_result_knows_its_call_and_its_age() -> None:
    shown = shown_results(situation(path(*reads(50, 50), start("t2"), user("x")), 20_000))
    assert [(r.entry_id, r.steps_ago, r.turns_ago) for r in shown] == [("e4", 2, 1), ("e6", 1, 1)]
    assert shown[0].label == "read {}"


def test_a_pruned_result_is_not_shown_again() -> None:
    """agents 17."""
    shown = shown_results(situation(path(*reads(50, 50), prunes("e6")), 20_000))
    assert [r.entry_id for r in shown] == ["e4"]


def test_only_the_newest_results_of_a_bound_loop_are_offered() -> None:
    loop = path(start(), user("x"), calls(id="a"), result("a"), reply(thinks(), call(id="b"), stop="tool_use"), result("b"))
    assert [r.entry_id for r in shown_results(situation(loop, 20_000))] == ["e6"]


def test_a_placeholder_names_what_brings_it_back() -> None:
    """claude 58, 59; openclaw 157: none becomes empty."""
    (shown,) = shown_results(situation(path(*reads(500)), 20_000))
    assert "`recall` e4" in pointer(shown)
    assert pointer(shown).startswith("[cleared: read")


def test_a_result_shorter_than_its_placeholder_stays() -> None:
    """agents 17."""
    results = shown_results(situation(path(*reads(3, 500)), 20_000))
    (move,) = prune(results, pointer, "test")
    assert list(move.placeholders) == ["e6"]
    assert freed_tokens(results) > 400


def test_both_ends_stay_and_the_middle_is_counted() -> None:
    """agents 19, 34; openclaw 85."""
    (shown,) = shown_results(situation(path(start(), user("x"), calls("read"), result(text="h" * 100 + "m" * 1_000 + "t" * 100)), 20_000))
    text = head_and_tail(100, 100)(shown)
    assert text.startswith("h" * 100)
    assert text.endswith("t" * 100)
    assert "1,000 characters left out" in text


def test_what_stands_before_a_cut_is_added_up() -> None:
    turns = situation(path(start(), user(words(100)), calls("read"), result(text=words(50)), start("t2"), user("x")), 20_000)
    assert tokens_before(turns, None) == sum(turns.tokens)
    assert tokens_before(turns, "e5") == sum(turns.tokens) - turns.tokens[-1]
