"""What each policy proposes: its numbers, in whose source they stand. Numbers in docstrings are the shared cases."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nbagent.context.meanings import MEANINGS
from nbagent.context.moves import beyond_budget, cut_keeping, shown_results
from nbagent.context.policies import BUILT_IN
from nbagent.context.policy import Compact, PolicyKind, Prune, make_policy
from nbagent.core.errors import PolicyError
from tests.contracts.situations import plan, policy, reads, situation, words
from tests.core.builders import calls, path, result, says, start, user


def kinds(moves: Any) -> list[str]:
    return [type(m).__name__ for m in moves]


def compacts(moves: Any) -> bool:
    return any(isinstance(m, Compact) for m in moves)


TALK = path(*[b for i in range(4) for b in (start(f"t{i}"), user(f"part {i}"), says(words(400)))])


@pytest.mark.parametrize(
    ("name", "window", "below", "at"),
    [
        ("codex", 272_000, 244_799, 244_800),  # agents 23
        ("pi", 200_000, 183_616, 183_617),  # agents 53: strictly above
        ("claude-code", 200_000, 166_999, 167_000),  # claude 53: the reserve is capped, 83.5 %
        ("pi", 100_000, 91_808, 91_809),  # in a smaller window the reserve is smaller
        ("gemini-cli", 200_000, 99_999, 100_000),
        ("gemini-cli@seed", 200_000, 139_999, 140_000),
        ("openclaw", 200_000, 180_000, 180_001),
        ("opencode", 200_000, 167_999, 168_000),  # agents 40, 41: room for the reply is kept
        ("createrole", 200_000, 179_999, 180_000),
        ("manus", 200_000, 127_999, 128_000),
    ],
)
def test_a_compaction_begins_where_the_source_says(name: str, window: int, below: int, at: int) -> None:
    assert not compacts(plan(name, TALK, window, used=below, numbers=NO_KEEP.get(name)))
    assert compacts(plan(name, TALK, window, used=at, numbers=NO_KEEP.get(name)))


NO_KEEP: dict[str, dict[str, float]] = {
    "pi": {"keep_tokens": 500}, "openclaw": {"keep_tokens": 500}, "manus": {"keep_tokens": 500},
    "opencode": {"keep_most_tokens": 500, "keep_least_tokens": 400}, "gemini-cli": {"keep": 0.005},
    "gemini-cli@seed": {"keep": 0.004},
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_asked_by_hand_it_compacts_or_leaves_it_to_the_fallback(name: str) -> None:
    """agents 53: also far below the threshold."""
    moves = plan(name, TALK, 20_000, numbers=NO_KEEP.get(name), reason="manual")
    assert moves == () or compacts(moves) or all(isinstance(m, Prune) for m in moves)


@pytest.mark.parametrize(
    ("reserve", "below", "at"), [(10_000, 90_000, 90_001), (16_384, 83_616, 83_617), (300_000, 50_000, 50_001)]
)
def test_a_number_that_was_given_counts_as_it_is_in_every_window(reserve: int, below: int, at: int) -> None:
    """agents 53: window 100,000, reserve 10,000."""
    numbers = {"keep_tokens": 500, "reserve_tokens": reserve}
    assert not compacts(plan("pi", TALK, 100_000, used=below, numbers=numbers))
    assert compacts(plan("pi", TALK, 100_000, used=at, numbers=numbers))


@pytest.mark.parametrize(
    ("window", "most", "below", "at"),
    [(400_000, 272_000, 230_000, 274_000), (400_000, 272_000, 251_999, 252_000), (232_000, 200_000, 179_999, 198_000), (128_000, 272_000, 127_999, 128_000)],
)
def test_a_limit_of_what_goes_in_keeps_a_buffer_too(window: int, most: int, below: int, at: int) -> None:
    """agents 40, 41: 272,000 less 20,000; `off` never compacts by itself."""
    numbers = {**NO_KEEP["opencode"], "input_tokens": most}
    assert not compacts(plan("opencode", TALK, window, used=below, numbers=numbers))
    assert compacts(plan("opencode", TALK, window, used=at, numbers=numbers))
    assert plan("off", TALK, window, used=at) == ()


def test_gemini_cuts_where_a_request_begins() -> None:
    """agents 1, 4: never at a result."""
    (move,) = plan("gemini-cli", path(*reads(400, 400), *reads(200)), 1_600)
    assert isinstance(move, Compact)
    assert move.first_kept == "e8"


def test_gemini_masks_beyond_what_it_protects() -> None:
    """agents 7, 16: the newest message is never masked, and less than the minimum is not worth it."""
    many = path(*reads(30_000, 30_000, 30_000, 300))
    numbers = {"threshold": 0.99, "protect_tokens": 50_000, "mask_least_tokens": 30_000}
    (move,) = plan("gemini-cli", many, 200_000, numbers=numbers)
    assert isinstance(move, Prune)
    assert set(move.placeholders) == {"e4", "e6"}
    assert plan("gemini-cli", path(*reads(20_000, 30_000, 300)), 200_000, numbers=numbers) == ()


def test_gemini_leaves_skills_and_what_is_short_alone() -> None:
    """agents 17."""
    bodies = [calls("skill", id="s"), result("s", words(60_000), name="skill"), *reads(8, 60_000, 300)[2:]]
    moves = plan("gemini-cli", path(start(), user("x"), *bodies), 200_000, numbers={"threshold": 0.99})
    shown = {e for m in moves if isinstance(m, Prune) for e in m.placeholders}
    assert "e4" not in shown
    assert "e6" not in shown


def test_codex_cuts_an_output_once_and_with_some_grace() -> None:
    """agents 34, 35: half head, half tail; 1.2 times the limit goes through."""
    big = path(start(), user("x"), calls("read"), result(text="a" * 30_000 + "b" * 50_000, name="read"))
    (move,) = plan("codex", big, 200_000)
    assert isinstance(move, Prune)
    text = move.placeholders["e4"]
    assert text.startswith("a" * 20_000 + "\n")
    assert text.endswith("b" * 20_000)
    assert "10,000 tokens left out" in text
    assert plan("codex", path(*reads(10)[:2], calls("read"), result(text="a" * 47_000, name="read")), 200_000) == ()


def test_codex_cuts_bytes_between_whole_characters() -> None:
    """agents 34: by tokens it says how many are gone; by bytes, how many characters."""
    wide = path(start(), user("x"), calls("read"), result(text="数" * 30_000, name="read"))
    (move,) = plan("codex", wide, 200_000)
    assert isinstance(move, Prune)
    head, mark, tail = move.placeholders["e4"].split("\n")
    assert head == tail == "数" * 6_666
    assert "12,501 tokens left out" in mark
    (move,) = plan("codex@seed", wide, 200_000)
    assert isinstance(move, Prune)
    assert f"{30_000 - 2 * (5_120 // 3):,} characters left out" in move.placeholders["e4"]


def test_gemini_cuts_what_a_shell_prints_on_entry() -> None:
    """agents 19: 8,000 characters of the beginning and 32,000 of the end; exactly 40,000 stay as they are."""
    def printed(text: str, name: str = "shell", **meta: str) -> Any:
        body = replace(result(text=text, name=name), meta=meta)
        return plan("gemini-cli", path(start(), user("x"), calls(name), body), 1_000_000)

    (move,) = printed("a" * 50_000 + "b" * 50_000, full_path=".nbagent/artifacts/ab.txt")
    head, mark, tail = move.placeholders["e4"].split("\n")
    assert (head, tail) == ("a" * 8_000, "b" * 32_000)
    assert "60,000 characters left out; the whole is in .nbagent/artifacts/ab.txt" in mark
    assert printed("a" * 40_000) == printed("a" * 100_000, "read") == ()


def test_gemini_cuts_what_is_printed_also_when_no_room_is_left() -> None:
    """agents.md 2.6: a limit below nothing would cut nothing."""
    full = path(start(), user("x"), calls("shell"), result(text="a" * 9_000, name="shell"))
    cut = plan("gemini-cli", full, 200_000, used=300_000)[0]
    assert isinstance(cut, Prune)
    assert 2_000 < len(cut.placeholders["e4"]) < 2_200


def test_opencode_prunes_results_of_old_turns_when_that_frees_enough() -> None:
    """agents 43: not those of the last two turns, not skills, not for little."""
    old = [*reads(30_000, 30_000, 30_000), start("t2"), user("b"), says("b"), start("t3"), user("c"), says("c")]
    ends = path(*old, start("t4"), user("d"))
    (move,) = plan("opencode@seed", ends, 200_000)
    assert isinstance(move, Prune)
    assert set(move.placeholders) == {"e4", "e6"}
    assert plan("opencode", ends, 200_000) == ()
    assert plan("opencode@seed", path(*reads(30_000, 30_000, 30_000), start("t2"), user("b")), 200_000) == ()
    little = [*reads(15_000, 39_000), *old[-6:]]
    assert plan("opencode@seed", path(*little, start("t4"), user("d")), 200_000) == ()


def test_openclaw_sends_no_more_turns_than_its_limit() -> None:
    """openclaw 77: five turns, limit 2: from the fourth user message on; 0 keeps all."""
    said = [b for i in range(1, 6) for b in (start(f"t{i}"), user(f"ask {i}"), calls("read"), result(text="r"), says("so"))]
    turns = path(*said)
    (move,) = plan("openclaw", turns, 200_000, numbers={"limit_turns": 2})
    assert isinstance(move, Compact)
    assert move.drop
    assert turns[[e.id for e in turns].index(str(move.first_kept)) + 1].body == user("ask 4")
    for limit in (0, 5, 6):
        assert plan("openclaw", turns, 200_000, numbers={"limit_turns": limit}) == ()
    assert plan("openclaw", path(), 200_000, numbers={"limit_turns": 1}) == ()


def test_openclaw_prunes_when_the_cache_is_cold() -> None:
    """openclaw 82, 83: never results of the last three replies, and clears only when enough can go."""
    cold = {"idle_s": 4_000.0}
    assert plan("openclaw", path(*reads(8_000)), 20_000, **cold) == ()
    many = path(*reads(4_000, 4_000, 4_000, 2_000, 2_000))
    (move,) = plan("openclaw", many, 20_000, **cold)
    assert isinstance(move, Prune)
    assert set(move.placeholders) == {"e4", "e6", "e8"}
    assert plan("openclaw", many, 200_000, **cold) == ()
    assert kinds(plan("openclaw", many, 20_000, idle_s=10.0)) == []


def test_manus_puts_the_oldest_half_into_compact_form_and_leaves_the_rest() -> None:
    """claude 59: oldest 10 of 20."""
    many = path(*reads(*[700] * 20))
    (move,) = plan("manus", many, 20_000, numbers={"threshold": 0.5})
    assert isinstance(move, Prune)
    results = [e.id for e in many if e.kind == "tool_result"]
    assert list(move.placeholders) == results[:10]
    assert all("`recall`" in t for t in move.placeholders.values())


def test_claude_code_sends_a_preview_of_what_is_too_large() -> None:
    big = path(start(), user("x"), calls("read"), result(text="a" * 60_000, name="read"))
    (move,) = plan("claude-code", big, 200_000)
    assert isinstance(move, Prune)
    assert "`recall` e4" in move.placeholders["e4"]
    assert len(move.placeholders["e4"]) < 2_300


# ---------------------------------------------------------------- cuts


def test_a_cut_never_parts_a_call_from_its_result() -> None:
    """agents 4, 56, 65; claude 46, 47: it is the reply that holds the call."""
    turn = path(start(), user("x"), calls("read", id="a"), result("a", words(500)), calls("read", id="b"), result("b", words(3_000)))
    assert cut_keeping(situation(turn, 20_000), 3_200) == "e5"
    assert cut_keeping(situation(turn, 20_000), 2_000) is None


def test_a_last_turn_larger_than_what_is_kept_is_cut_inside() -> None:
    """agents 46: at the first step whose rest fits."""
    turns = path(start(), user("a"), says("b"), start("t2"), user("x"), *reads(1_000, 1_000, 1_000)[2:])
    assert cut_keeping(situation(turns, 20_000), 2_300) == "e8"


def test_a_request_without_a_reply_is_kept_whatever_its_size() -> None:
    """agents 2, 25."""
    turns = path(start(), user("a"), says(words(500)), start("t2"), user(words(3_000)))
    assert cut_keeping(situation(turns, 20_000), 100) == "e4"


def test_a_budget_from_the_newest_on_takes_the_one_that_crosses_it_as_beyond() -> None:
    """agents 7."""
    results = shown_results(situation(path(*reads(3_000, 3_000, 3_000)), 20_000))
    assert [r.entry_id for r in beyond_budget(results, 5_000)] == ["e4", "e6"]


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("name", "numbers", "line"),
    [
        ("codx", {}, "did you mean 'codex'"),
        ("nothing-like-it", {}, "the policies are: nbagent"),
        ("codex@first", {}, "there is codex@seed"),
        ("codex", {"treshold": 1.0}, "did you mean 'threshold'"),
    ],
)
def test_an_unknown_name_is_told_with_the_nearest(name: str, numbers: dict[str, float], line: str) -> None:
    with pytest.raises(PolicyError, match=line):
        make_policy(BUILT_IN, name, numbers)


def test_the_seed_keeps_the_first_published_numbers() -> None:
    """DECISIONS 25."""
    assert policy("gemini-cli@seed").numbers["threshold"] == 0.7
    assert policy("codex@seed").numbers["output_bytes"] == 10_240
    assert policy("opencode@seed").numbers["prune"] == 1


@pytest.mark.parametrize("kind", BUILT_IN.values(), ids=BUILT_IN)
def test_every_number_says_what_it_is(kind: PolicyKind) -> None:
    assert [n for n in {**kind.default, **kind.seed} if not MEANINGS.get(n)] == []
