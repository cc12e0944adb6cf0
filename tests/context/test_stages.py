"""A conversation too long for one request for its note: read in parts, merged, all or nothing.

Numbers in docstrings are the shared cases.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbagent.context.chunks import SAFETY, chunk_ratio, chunked, split_by_share, units
from nbagent.context.policies import BUILT_IN
from nbagent.context.policy import Compact, NoteStyle
from nbagent.core.entries import Compaction, Report, UsageReported
from nbagent.core.errors import ModelFailed
from nbagent.core.messages import Request, Response
from nbagent.core.view import build_view
from tests.contracts.situations import METER, Played, asked, engine, reads, situation, text_reply, words
from tests.core.builders import MODEL, call, compacts, path, reply, result, says, start, steer, user

WINDOW = 6_000


def long_talk(turns: int = 24, tokens: int = 700) -> list[Any]:
    """About `turns` times `tokens`, each turn with a mark of its own."""
    return path(*[b for i in range(turns) for b in (start(f"t{i}"), user(f"ask MARK_{i}"), says(words(tokens)))])


def staged(entries: list[Any], *answers: Any, style: NoteStyle | None = None, window: int = WINDOW, reason: Any = "manual", **more: Any) -> tuple[Played, str]:
    played = Played(entries, *answers)
    move = Compact(first_kept=more.pop("first_kept", None), reason="test", style=style or NoteStyle(reattach=0))
    return played, played.run(engine(window=window, **more).compact(played.fold, move, reason))


def shown(requests: list[Request]) -> list[str]:
    return [asked(r).partition("</transcript>")[0] for r in requests if "<transcript>" in asked(r)]


def failed(kind: str) -> Response:
    return Response(blocks=(), stop_reason=None, model=MODEL, cut="the call failed", error=ModelFailed("no", kind=kind))


# ---------------------------------------------------------------- parts


def test_messages_of_equal_size_are_split_in_halves() -> None:
    """openclaw 92."""
    assert [list(r) for r in split_by_share([7, 7, 7, 7], 2)] == [[0, 1], [2, 3]]
    assert [list(r) for r in split_by_share([7], 2)] == [[0]]
    assert split_by_share([], 2) == []


def test_a_call_and_its_results_are_in_one_part() -> None:
    """openclaw 92; claude 47: also parallel calls, and what the person adds to the results."""
    both = reply(call("read", "x"), call("read", "y"), stop="tool_use")
    turn = path(*reads(30, 30), start("t2"), user("go on"), both, result("x", "one"), result("y", "two"), steer("and so"))
    texts = units(build_view(turn).messages)
    assert [(t.count("(calls"), t.count("(result")) for t in texts] == [(0, 0), (1, 1), (1, 1), (0, 0), (0, 0), (2, 2)]
    assert texts[-1].endswith("and so")


@given(st.lists(st.integers(0, 60), max_size=30), st.integers(1, 6))
def test_a_split_keeps_all_in_order(sizes: list[int], parts: int) -> None:
    runs = split_by_share(sizes, parts)
    assert [i for r in runs for i in r] == list(range(len(sizes)))
    assert len(runs) <= parts
    assert all(runs)


def test_the_ratio_falls_with_the_size_of_messages() -> None:
    """openclaw 94: 1 % of the window gives 0.4, 50 % gives 0.15."""
    assert chunk_ratio(2_000, 200_000) == 0.4
    assert chunk_ratio(100_000, 200_000) == 0.15
    ratios = [chunk_ratio(share * 2_000, 200_000) for share in range(100)]
    assert all(a >= b for a, b in pairwise(ratios))
    assert chunk_ratio(0, 0) == 0.4


@given(st.lists(st.integers(0, 900), max_size=12), st.integers(60, 400))
def test_chunks_hold_every_word_and_no_more_than_fits(sizes: list[int], limit: int) -> None:
    texts = [f"{words(size)}\n#{i}#" for i, size in enumerate(sizes)]
    chunks = chunked(texts, limit, METER.text)
    assert all(sum(map(METER.text, c)) <= limit / SAFETY + 20 for c in chunks)
    joined = "".join(t.replace("[the message goes on]\n", "") for c in chunks for t in c)
    assert joined == "".join(texts)


# ---------------------------------------------------------------- notes


def test_what_one_request_cannot_hold_is_read_in_parts_and_merged() -> None:
    """openclaw 92: nothing is left out, in order; the parts' notes become one."""
    entries = long_talk()
    played, outcome = staged(entries, "<note>one</note>", "<note>two</note>", "<note>MERGED</note>")
    assert outcome == "applied"
    body = played.fold.path[-1].body
    assert isinstance(body, Compaction)
    seen = "".join(shown(played.requests))
    assert [seen.count(f"MARK_{i}\n") for i in range(24)] == [1] * 24
    assert [seen.index(f"MARK_{i}\n") for i in range(24)] == sorted(seen.index(f"MARK_{i}\n") for i in range(24))
    assert body.details["handoff"] == "MERGED"
    assert body.details["parts"] == len(played.requests) - 1 > 2
    assert "did not see" not in body.note
    assert "<part number=\"2\">" in asked(played.requests[-1])
    assert "<note-so-far>" in asked(played.requests[1])
    assert any(f"read in {body.details['parts']} parts" in line for line in played.lines)


def test_each_request_fits_the_window() -> None:
    played, outcome = staged(long_talk(40), "<note>## Goal\nx</note>")
    assert outcome == "applied"
    assert all(METER.text(asked(r)) <= WINDOW - WINDOW // 8 for r in played.requests)


def test_each_call_is_paid_for_and_no_part_of_the_conversation() -> None:
    played, _ = staged(long_talk(), text_reply("<note>x</note>", usage={"output_tokens": 5}))
    used = [e.body for e in played.fold.path if isinstance(e.body, UsageReported)]
    assert [u.purpose for u in used] == ["handoff"] * len(played.requests)
    assert "conversation that is too long" not in str(played.fold.view().messages)


def test_the_earlier_note_is_in_the_first_part() -> None:
    entries = long_talk()
    noted = path(start("t"), user("first"), says("x"), compacts(None, "<context-note>\nEARLIER\n</context-note>"), *[e.body for e in entries])
    played, outcome = staged(noted, "<note>x</note>")
    assert outcome == "applied"
    assert "EARLIER" in asked(played.requests[0])
    assert not any("EARLIER" in asked(r) for r in played.requests[1:])


@pytest.mark.parametrize("at", [0, 1, 2, -1])
@pytest.mark.parametrize("bad", ["empty", "connection", "stopped", "calls"])
def test_a_part_that_fails_changes_nothing(at: int, bad: str) -> None:
    """openclaw 148, 152; all or nothing: the note of some parts never stands for all of them."""
    entries = long_talk()
    whole, _ = staged(entries, "<note>x</note>")
    count = len(whole.requests)
    wrong = {
        "empty": text_reply("<note> </note>"), "connection": failed("connection"),
        "stopped": Response(blocks=(), stop_reason=None, model=MODEL, cut="stopped"),
        "calls": Response(blocks=({"type": "tool_use", "id": "z", "name": "read", "input": {}},), stop_reason="tool_use", model=MODEL),
    }[bad]  # fmt: skip
    good = [text_reply("<note>x</note>")] * (count - 1 if at < 0 else at)
    played, outcome = staged(entries, *good, wrong, style=NoteStyle(last_resort=""), reason="before_call")
    assert outcome != "applied"
    assert played.fold.view().messages == build_view(entries).messages
    assert not any(isinstance(e.body, Compaction) for e in played.fold.path)
    assert isinstance(played.fold.path[-1].body, Report) or bad == "stopped"
    assert len(played.requests) <= count + 1


def test_a_bad_note_of_a_part_is_asked_for_once_more() -> None:
    played, outcome = staged(long_talk(), "<note>x</note>", text_reply(""), "<note>y</note>")
    assert outcome == "applied"
    assert asked(played.requests[2]).startswith(asked(played.requests[1]))
    assert "could not be used (the note is empty)" in asked(played.requests[2])


def test_parts_that_the_provider_finds_too_long_get_smaller_and_that_ends() -> None:
    """claude 49: three rounds at most, then one clear reason and the history as it was."""
    entries = long_talk()
    played, outcome = staged(entries, failed("overflow"), "<note>x</note>")
    assert outcome == "applied"
    sizes = [len(t) for t in shown(played.requests)]
    assert sizes[1] < 0.7 * sizes[0]
    played, outcome = staged(entries, failed("overflow"))
    assert outcome == "no"
    assert len(played.requests) <= 3
    assert played.fold.view().messages == build_view(entries).messages


def test_a_message_larger_than_the_window_is_read_in_pieces() -> None:
    """claude 58 neighbours: a pasted text of three windows is summarised and not left out."""
    pasted = "".join(f"row {i} is {i * i}\n" for i in range(2_500))
    entries = path(start(), user(pasted), says("seen"), start("t2"), user("and now"), says("done"))
    assert METER.text(pasted) > 2 * WINDOW
    played, outcome = staged(entries, "<note>x</note>", style=NoteStyle(users_tokens=0, reattach=0))
    assert outcome == "applied"
    seen = "".join(shown(played.requests))
    assert all(f"row {i} is {i * i}\n" in seen for i in range(2_500))


def test_what_no_number_of_requests_can_hold_is_counted() -> None:
    """peers 82: the oldest, with the number told to the model and the person."""
    played, outcome = staged(long_talk(260), "<note>x</note>")
    assert outcome == "applied"
    body = played.fold.path[-1].body
    assert isinstance(body, Compaction)
    assert body.details["parts"] <= 30
    assert "did not see the oldest" in body.note
    assert any("did not fit the request for the note" in line for line in played.lines)
    assert "MARK_259\n" in "".join(shown(played.requests))


def test_only_what_is_replaced_is_read() -> None:
    entries = long_talk()
    kept = next(e.id for e in entries[::-1] if e.kind == "turn_start")
    played, outcome = staged(entries, "<note>x</note>", first_kept=kept)
    assert outcome == "applied"
    seen = "".join(shown(played.requests))
    assert "MARK_22\n" in seen
    assert "MARK_23\n" not in seen


def test_claude_code_leaves_the_oldest_out_instead() -> None:
    """claude 49; CC-C5."""
    played = Played(long_talk(), "<note>x</note>")
    move = BUILT_IN["claude-code"].make(BUILT_IN["claude-code"].default).plan(situation(long_talk(), WINDOW))[-1]
    assert isinstance(move, Compact)
    assert played.run(engine("claude-code", window=WINDOW).compact(played.fold, move, "manual")) == "applied"
    assert len(played.requests) == 1
    body = played.fold.path[-1].body
    assert isinstance(body, Compaction)
    assert "did not see the oldest" in body.note


@pytest.mark.parametrize("name", sorted(set(BUILT_IN) - {"off"}))
def test_every_policy_compacts_what_is_larger_than_its_window(name: str) -> None:
    """The window was made smaller, or the model is another one: the conversation is four times as long."""
    played = Played(path(*[e.body for e in long_talk()], start("now"), user("go on")), "<note>## Goal\nx</note>")
    made = engine(name, window=WINDOW)
    assert played.run(made.before_call(played.fold)) is None
    assert any(isinstance(e.body, Compaction) for e in played.fold.path)
    assert made.predict(played.fold.view()) < WINDOW
    assert all(METER.text(asked(r)) <= WINDOW for r in played.requests)


# ---------------------------------------------------------------- as few requests as their sources make


def rejected_at(limit_requests: int) -> list[Any]:
    return [*[failed("overflow")] * limit_requests, "<note>so</note>"]


def test_after_a_refusal_results_go_from_the_middle_outward_and_no_word_else() -> None:
    """agents 70: 10, 20, 50 and 100 % of ten results, under nbagent; refused once more, nothing has changed."""
    ten = path(start(), user("LOOK"), *[b for i in range(10) for b in (reply(f"SAYS_{i}", call("read", f"c{i}"), stop="tool_use"), result(f"c{i}", f"BROUGHT_{i} " + words(60), name="read"))], says("SO"))
    style = engine("nbagent").policy.plan(situation(ten, 20_000, reason="manual"))[0].style  # type: ignore[union-attr]
    for refusals, left_out in enumerate(([], [4], [4, 5], [2, 3, 4, 5, 6], list(range(10)))):
        played, outcome = staged(ten, *rejected_at(refusals), style=style, window=20_000)
        assert (outcome, len(played.requests)) == ("applied", refusals + 1)
        sent = str(played.requests[-1].messages)
        assert [i for i in range(10) if f"BROUGHT_{i} " not in sent] == left_out
        assert all(f"SAYS_{i}" in sent for i in range(10))
        named = f"did not see {len(left_out)} result" if left_out else "replaced"
        assert named in played.fold.path[-1].body.note  # type: ignore[union-attr]
        assert "oldest" not in played.fold.path[-1].body.note  # type: ignore[union-attr]
    played, outcome = staged(ten, failed("overflow"), style=style, window=20_000)
    assert (outcome, len(played.requests)) == ("no", 5)
    assert played.fold.view().messages == build_view(ten).messages


@pytest.mark.parametrize("name", ["pi", "opencode"])
def test_a_source_that_asks_once_asks_once_in_a_small_window_too(name: str) -> None:
    """Results are cut shorter before anything is left out; what is left out is counted."""
    many = path(*[b for i in range(16) for b in (start(f"t{i}"), user(f"ask MARK_{i}"), *reads(400)[2:-1], says("so"))], start("last"), user("now"), says("so"))
    (move,) = engine(name, window=WINDOW).policy.plan(situation(many, WINDOW, reason="manual"))
    assert isinstance(move, Compact)
    played, outcome = staged(many, "<note>so</note>", style=move.style, first_kept=many[-3].id)
    assert (outcome, len(played.requests)) == ("applied", 1)
    assert all(f"MARK_{i}" in asked(played.requests[0]) for i in range(16))
    assert "more characters])" in asked(played.requests[0])
    longer, outcome = staged(long_talk(), "<note>so</note>", style=move.style)
    assert (outcome, len(longer.requests)) == ("applied", 1)
    assert "MARK_0\\n" not in str(longer.requests[0].messages)
    assert any("did not fit the request for the note" in line for line in longer.lines)


def test_small_chunks_are_not_asked_for_without_end() -> None:
    """A policy's chunks hold less where messages are large; in a small window that would be many requests."""
    talk = long_talk(turns=30, tokens=700)
    few, _ = staged(talk, "<note>so</note>", style=NoteStyle(chunk_tokens=400, reattach=0, appendix_tokens=0), window=9_000)
    one, _ = staged(talk, "<note>so</note>", style=NoteStyle(reattach=0, appendix_tokens=0), window=9_000)
    assert len(few.requests) == len(one.requests) < 10
    some, _ = staged(talk[:12], "<note>so</note>", style=NoteStyle(chunk_tokens=1_000, reattach=0, appendix_tokens=0), window=9_000)
    assert 3 < len(some.requests) <= 8
