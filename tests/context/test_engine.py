"""The engine: notes asked for, rejected and installed; when it waits. Numbers in docstrings are the shared cases."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nbagent.context.engine import failures, keeping_request
from nbagent.context.policy import Compact, NoteStyle
from nbagent.core.entries import AssistantMessage, Compaction, Entry, Report, Snapshot, TurnEnd, UsageReported
from nbagent.core.errors import ModelFailed
from nbagent.core.messages import Response, image_block, text_block
from nbagent.core.view import ViewFold, build_view
from tests.contracts.situations import METER, Played, asked, engine, policy, reads, situation, text_reply, words
from tests.core.builders import (
    MODEL,
    PREFIX,
    call,
    calls,
    compacts,
    path,
    reply,
    restores,
    result,
    says,
    start,
    steer,
    thinks,
    user,
)

GOOD = "<note>## Goal\nread</note>"
LONG = path(*reads(900, 900, 900, 900), start("t2"), user("go on"), says("yes"))


def compacted(entries: list[Entry], *answers: Any, first_kept: str | None = None, now: float = 0.0, style: Any = None, reason: Any = "manual", **more: Any) -> tuple[Played, str]:
    played = Played(entries, *answers, now=now)
    move = Compact(first_kept=first_kept, reason="test", style=style or NoteStyle())
    outcome = played.run(engine(**more).compact(played.fold, move, reason))
    return played, outcome


def failed(kind: str) -> Response:
    return Response(blocks=(), stop_reason=None, model=MODEL, cut="the call failed", error=ModelFailed("no", kind=kind))


# ---------------------------------------------------------------- asking for the note


def test_the_request_goes_on_in_the_conversation_and_is_no_part_of_it() -> None:
    played, outcome = compacted(LONG, GOOD)
    assert outcome == "applied"
    assert played.requests[0].messages[:-1] == build_view(LONG).messages
    assert "about to be replaced" not in str(played.fold.view().messages)


def test_an_earlier_note_is_merged_and_the_focus_is_asked_for() -> None:
    """agents 10, 58, 59."""
    twice = [*path(*reads(900, 900), compacts(None, "EARLIER NOTE"), start("t2"), user("go on"), says(words(900)))]
    played, _ = compacted(twice, GOOD, focus="the gauge")
    assert "EARLIER NOTE" in str(played.requests[0].messages)
    assert "An earlier note, if there is one, is merged" in asked(played.requests[0])
    assert "keep above all: the gauge" in asked(played.requests[0])


def test_a_conversation_too_long_for_the_request_is_shown_without_its_oldest_part() -> None:
    """claude 49; agents 70; openclaw 97: at most three attempts, then nothing has changed."""
    played, outcome = compacted(LONG, failed("overflow"), failed("overflow"), GOOD)
    assert outcome == "applied"
    assert [asked(r).startswith("<transcript>") for r in played.requests] == [False, True, True]
    sizes = [len(asked(r)) for r in played.requests[1:]]
    assert sizes[1] < sizes[0]
    played, outcome = compacted(LONG, failed("overflow"))
    assert len(played.requests) == 3
    assert played.kinds[-1] == "report"


def test_a_probe_corrects_the_note_once() -> None:
    """agents 11: two calls; an answer without words leaves the first note."""
    style = NoteStyle(template="gemini-cli", probe=True)
    for second, expected in (("  ", "one"), ("<note>two</note>", "two")):
        played, _ = compacted(LONG, "<note>one</note>", second, style=style)
        assert played.purposes == ["handoff", "probe"]
        body = played.fold.path[-1].body
        assert isinstance(body, Compaction)
        assert body.details["handoff"] == expected


def test_thinking_of_another_model_is_not_sent_with_the_request() -> None:
    """agents 26; claude 61."""
    played, outcome = compacted(path(*reads(900, 900), start("t2"), user("x"), reply(thinks(), "so")), GOOD, model="another")
    assert outcome == "applied"
    assert asked(played.requests[0]).startswith("<transcript>")


# ---------------------------------------------------------------- rejected


@pytest.mark.parametrize(
    ("answer", "why", "calls_made"),
    [
        (text_reply(""), "empty", 3),
        (text_reply("<note> </note>"), "empty", 3),
        (text_reply("<note>## Goal\nx", stop="max_tokens"), "cut off", 3),
        (text_reply("no", stop="refusal"), "declined", 3),
        (Response(blocks=(text_block("<note>x</note>"), call()), stop_reason="tool_use", model=MODEL), "calls a tool", 3),
        (text_reply("<note>" + "and again and again " * 300 + "</note>"), "repeats itself", 3),
        (text_reply("<note>" + "".join(f"{i} is {i * i}\n" for i in range(5_000)) + "</note>"), "would leave", 1),
        (failed("connection"), "no", 1),
        (text_reply("x", cut="the stream ended early"), "not whole", 3),
    ],
)  # fmt: skip
def test_a_note_that_cannot_be_used_changes_nothing(answer: Response, why: str, calls_made: int) -> None:
    """agents 13, 31, 38, 49, 62; peers 19; openclaw 148."""
    played, outcome = compacted(LONG, answer)
    assert why in outcome
    assert played.fold.view().messages == build_view(LONG).messages
    assert len(played.requests) == calls_made
    assert played.lines[-1].startswith("Compaction changed nothing:")


def test_a_stop_changes_nothing_and_says_no_more() -> None:
    """peers 19."""
    played, outcome = compacted(LONG, Response(blocks=(), stop_reason=None, model=MODEL, cut="stopped"))
    assert outcome == "stopped"
    assert played.kinds == [e.kind for e in LONG]


def test_a_stop_while_an_overflow_is_compacted_ends_the_turn() -> None:
    stop = Response(blocks=(), stop_reason=None, model=MODEL, cut="stopped")
    played = Played([*LONG, *path(*[b.body for b in LONG], start("t3"), user("more"))[len(LONG) :]], stop)
    made = engine("codex")
    assert played.run(made.on_overflow(played.fold)) is True
    assert played.run(made.before_call(played.fold)) == "stopped"
    assert not any(e.kind == "compaction" for e in played.fold.path)


@pytest.mark.parametrize("last_resort", ["extract", "drop", ""])
def test_without_a_note_the_policys_last_resort_decides(last_resort: str) -> None:
    """CC-C5: "drop" leaves out about the oldest fifth, not all."""
    played, outcome = compacted(LONG, text_reply(""), style=NoteStyle(last_resort=last_resort, reject_above=1.0), reason="before_call")
    body = played.fold.path[-1].body
    if not last_resort:
        assert isinstance(body, Report)
        return
    assert outcome == "applied"
    assert isinstance(body, Compaction)
    assert (body.first_kept is None) == (last_resort == "extract")
    if last_resort == "drop":
        kept = sum(situation(played.fold.path, 20_000).tokens)
        assert kept > 0.5 * sum(situation(LONG, 20_000).tokens)


# ---------------------------------------------------------------- what stays


def test_the_open_request_stays_word_for_word_before_all_else() -> None:
    """agents 28: the person's other messages are cut or counted."""
    open_turn = path(start(), user(words(2_000)), says("a"), start("t2"), user("Please:\n do NOT touch row_7\n\n also 也不要"), calls("read"), result(text=words(3_000), name="read"), steer("and not row_8"))
    played, outcome = compacted(open_turn, GOOD, style=NoteStyle(users_tokens=300))
    assert outcome == "applied"
    note = str(played.fold.view().messages[0].blocks[0]["text"])
    assert "Please:\n do NOT touch row_7\n\n also 也不要" in note
    assert "and not row_8" in note
    assert " […] " in note


def test_an_image_of_the_open_request_is_named() -> None:
    """agents 50."""
    asks = replace(user("what is this?"), blocks=(text_block("what is this?"), image_block("image/png", "aGk=")))
    played, _ = compacted(path(start(), asks, calls("read"), result(text=words(3_000), name="read")), GOOD)
    assert "what is this?\n(with 1 image, no longer shown)" in str(played.fold.view().messages[0].blocks[0]["text"])


def test_after_an_overflow_the_request_is_sent_again_behind_the_note_with_its_image() -> None:
    """agents 50: what is asked now is never shortened; with nothing before it, the line says what can be."""
    asks = replace(user("what is this?"), blocks=(text_block("what is this?"), image_block("image/png", "aGk=")))
    ends = path(*[e.body for e in LONG], start("t3"), asks)
    played = Played(ends, GOOD)
    assert played.run(engine("opencode", policy=policy("opencode", keep_most_tokens=100, keep_least_tokens=50)).on_overflow(played.fold))
    (made,) = [e.body for e in played.fold.path if isinstance(e.body, Compaction)]
    last = played.fold.view().messages[-1]
    assert [b["type"] for b in last.blocks][-2:] == ["text", "image"]
    assert "what is this?" not in made.note
    assert "what is this?" not in str(played.requests[0].messages)
    alone = Played(path(start(), asks), GOOD)
    assert not alone.run(engine("opencode").on_overflow(alone.fold))
    assert alone.requests == []
    assert alone.fold.view().messages[-1].blocks[-1]["type"] == "image"


def test_a_note_that_fails_leaves_the_order_and_one_that_is_made_stands_first() -> None:
    """agents 47: note, kept part, what follows; the question is no part of it."""
    turns = path(start(), user("U1 " + words(500)), says("A1"), start("t2"), user("U2"), says("A2"))
    for answer, order in ((GOOD, ["<c", "U2", "A2", "U3"]), (text_reply(""), ["U1", "A1", "U2", "A2", "U3"])):
        played, _ = compacted(turns, answer, first_kept="e4", style=NoteStyle(appendix_tokens=0, users_tokens=0))
        later = path(*[e.body for e in played.fold.path], start("t3"), user("U3"))
        assert [str(b["text"])[:2] for m in build_view(later).messages for b in m.blocks] == order


def test_a_request_without_a_reply_is_not_part_of_what_is_replaced() -> None:
    """agents 25: it stands after the note, and the note's writer does not see it."""
    ends = path(*[e.body for e in LONG], start("t3"), user("THE NEWEST"))
    played = Played(ends, GOOD)
    assert played.run(engine("codex", window=4_000).before_call(played.fold)) is None
    made = next(e.body for e in played.fold.path if isinstance(e.body, Compaction))
    assert made.first_kept == ends[-2].id
    assert "THE NEWEST" not in str(played.requests[0].messages)
    assert "THE NEWEST" not in made.note
    assert str(played.fold.view().messages).count("THE NEWEST") == 1


def test_a_first_request_alone_is_never_compacted() -> None:
    played = Played(path(start(), user(words(4_500))), GOOD)
    assert keeping_request(played.fold, Compact(first_kept=None, reason="x")) is None
    assert played.run(engine("codex", window=5_000).before_call(played.fold)) is None
    assert not played.requests


def test_a_bound_loop_becomes_text_with_the_request_said_once() -> None:
    """agents 29; claude 61; openclaw 146; CX-C3."""
    loop = path(
        *reads(900, 900, 900), start("t2"), user("READ ALL"), reply(thinks(), call("read"), stop="tool_use"),
        result(text=words(500), name="read"),
    )  # fmt: skip
    played, outcome = compacted(loop, GOOD, first_kept=loop[9].id)
    assert outcome == "applied"
    shown = played.fold.view().messages
    assert len(shown) == 1
    text = str(shown[0].blocks[0]["text"])
    assert text.count("READ ALL") == 1
    assert "<last-steps>" in text
    assert "(calls read: {})" in text


def test_a_changed_file_is_told_once() -> None:
    """claude 55; agents 73: what the kept part tells keeps the prefix as it was."""
    told = Snapshot(text="AGENTS.md changed", topics=("files",))
    fresh = {"prefix": "new", "files": {"AGENTS.md": "2"}}
    for where, expected in ((1, True), (-1, False)):
        bodies = [e.body for e in LONG]
        ends = path(*bodies[:1], told, *bodies[1:]) if where == 1 else path(*bodies, start("t3"), told, user("x"))
        played, _ = compacted(ends, GOOD, fresh_prefix=lambda: fresh, first_kept=None if where == 1 else ends[-3].id)
        made = next(e.body for e in played.fold.path if isinstance(e.body, Compaction))
        assert ("prefix" in made.details) is expected


# ---------------------------------------------------------------- when it waits


def moment(entries: list[Entry], now: float = 10_000.0, window: int = 5_000) -> Any:
    return situation(entries, window, now=now)


def failing(times: int) -> list[Entry]:
    report = Report(source="compaction", text="no", details={"applied": False})
    return path(*[e.body for e in LONG], *[report] * times)


def test_three_failures_make_it_wait_and_a_clock_set_back_does_not() -> None:
    """claude 50; agents 13."""
    last = failing(3)[-1].at
    made = engine("codex")
    assert not made.waits(failing(2), moment(failing(2), last + 1))
    assert made.waits(failing(3), moment(failing(3), last + 1))
    assert not made.waits(failing(3), moment(failing(3), last + 400))
    assert not made.waits(failing(3), moment(failing(3), last - 50_000))
    assert failures([*failing(3), *path(*[e.body for e in failing(3)], compacts(None))[len(failing(3)) :]]) == []


def test_failures_that_a_person_asked_for_hold_nothing_back() -> None:
    by_hand = Report(source="compaction", text="no", details={"applied": False, "reason": "manual"})
    entries = path(*[e.body for e in LONG], *[by_hand] * 3)
    assert failures(entries) == []
    assert not engine("codex").waits(entries, moment(entries, entries[-1].at + 1))


def test_three_in_a_row_without_progress_are_enough() -> None:
    """agents 71; openclaw 143, 145."""
    used = UsageReported(step=1, model=MODEL, usage={}, cost_usd=0.0)
    row = path(start(), user("a"), *[b for _ in range(3) for b in (says("b"), used, compacts(None))])
    assert engine("codex").waits(row, moment(row, window=3_000))
    again = path(*[e.body for e in row], start("t2"), user("b"))
    assert not any(isinstance(e.body, TurnEnd) for e in again)


def test_after_an_undo_it_waits_until_the_window_is_nearly_full() -> None:
    """DECISIONS 16."""
    back = path(*[e.body for e in LONG], compacts(None), restores(f"e{len(LONG) + 1}"))
    assert engine("codex").waits(back, situation(back, 5_000, used=4_600))
    assert not engine("codex").waits(back, situation(back, 5_000, used=4_800))


def test_a_small_conversation_is_left_alone() -> None:
    """openclaw 149."""
    small = path(start(), user("hi"), says("hello"))
    assert engine("codex").waits(small, situation(small, 20_000, used=1_489))


def test_a_result_inside_a_bound_loop_is_not_pruned_before_the_loop_ends() -> None:
    """claude 61 and A6: it would wait, and keep a policy from compacting."""
    loop = path(start(), user("x"), reply(thinks(), call(id="a"), stop="tool_use"), result("a", words(2_000)), reply(thinks(), call(id="b"), stop="tool_use"), result("b", words(300)))
    played = Played(loop, GOOD)
    made = engine(window=2_600, policy=policy("manus", keep_tokens=100))
    assert played.run(made.before_call(played.fold)) is None
    assert "compaction" in played.kinds
    assert not played.fold.view().deferred


def test_off_does_nothing_but_say_that_it_does_not_fit() -> None:
    played = Played(LONG, GOOD)
    line = played.run(engine("off", window=3_000).before_call(played.fold))
    assert "`%context compact` makes room" in line
    assert played.kinds == [e.kind for e in LONG]
    assert played.run(engine("off").on_overflow(played.fold)) is False


def test_what_a_reply_was_asked_with_counts_as_sent_in_a_later_turn() -> None:
    """agents 35: an output is cut on entry, not in a later turn."""
    big = path(start(), user("x"), calls("read"), result(text="a" * 60_000, name="read"), says("so"), start("t2"), user("y"))
    played = Played(big, GOOD)
    assert played.run(engine("codex", window=200_000).before_call(played.fold)) is None
    assert "pruning" not in played.kinds
    assert isinstance(big[4].body, AssistantMessage)
    assert isinstance(ViewFold(big), ViewFold)


def test_results_that_a_bound_loop_keeps_stand_whole_in_the_note() -> None:
    """The newest result was never seen by the model: cut, its end would be gone before it was read."""
    long = words(3_000) + " the_very_end"
    loop = path(*reads(900, 900), start("t2"), user("go on"), reply(thinks(), call(id="z"), stop="tool_use"), result("z", text=long))
    bound = next(e.id for e in loop if isinstance(e.body, AssistantMessage) and any(b["type"] == "thinking" for b in e.body.blocks))
    played, outcome = compacted(loop, GOOD, first_kept=bound, reason="before_call", style=NoteStyle(reject_above=1.0))
    assert outcome == "applied"
    body = played.fold.path[-1].body
    assert isinstance(body, Compaction)
    assert body.first_kept is None
    assert "the_very_end" in body.note


def test_an_answer_that_cannot_be_used_is_told_why_when_it_is_asked_for_again() -> None:
    """CC-C5: with other parameters, not the same request again."""
    tool = Response(blocks=(call(),), stop_reason="tool_use", model=MODEL)
    played, outcome = compacted(LONG, tool, text_reply("<note>## Goal\nx", stop="max_tokens"), GOOD)
    assert outcome == "applied"
    assert "could not be used" not in asked(played.requests[0])
    assert "could not be used (the reply calls a tool)" in asked(played.requests[1])
    assert "could not be used (the note was cut off)" in asked(played.requests[2])
    assert asked(played.requests[2]).startswith("<transcript>")


def test_what_is_shown_again_takes_what_the_policy_says_in_a_window_of_usual_size() -> None:
    """CC-C4: 5,000 tokens each in 200,000; less in a smaller window."""
    for window, most in ((200_000, 5_000), (20_000, 500), (400_000, 5_000)):
        scaled = engine("claude-code", window=window)._scaled(NoteStyle(reattach_tokens=5_000))
        assert scaled.reattach_tokens == most
    assert engine(window=20_000)._scaled(NoteStyle(reattach_tokens=2_000)).reattach_tokens == 400


class Idle:
    """A policy that plans nothing."""

    def __init__(self) -> None:
        self.name = "idle"
        self.numbers: dict[str, float] = {}

    def plan(self, situation: Any) -> Any:
        return ()


@pytest.mark.parametrize("overflow", [True, False])
def test_only_the_oldest_part_goes_also_where_less_is_measured_than_the_system_text_is_estimated(
    overflow: bool,
) -> None:
    """The difference is below nothing then, and a share of it would keep nothing but the newest request."""
    turns = path(
        *[b for i in range(8) for b in (start(f"t{i}"), user(f"part {i}"), says(words(300)))], start("t9"), user("now")
    )
    played = Played(turns, GOOD if overflow else text_reply(""))
    made = replace(engine(policy=Idle()), predict=lambda view: sum(METER.view(view, PREFIX).values()) // 150)
    assert made.predict(played.fold.view()) < made.fixed_tokens()
    if overflow:
        assert played.run(made.on_overflow(played.fold))
    else:
        move = keeping_request(
            played.fold, Compact(first_kept=None, reason="x", style=NoteStyle(last_resort="drop", reject_above=1.0))
        )
        assert move is not None
        assert played.run(made.compact(played.fold, move, "before_call")) == "applied"
    assert [m.role for m in played.fold.view().messages].count("assistant") in ((2,) if overflow else (6, 7))


def test_a_threshold_near_the_windows_end_is_reached_before_anything_is_masked() -> None:
    """The conversation fits until then; and there it is compacted, as it is at any other threshold."""
    turns = path(*reads(900, 900, 900, 900), start("t2"), user("go on"))
    size = engine().predict(build_view(turns))
    for window, expected in ((int(size / 0.985), []), (int(size / 0.995), ["compaction"])):
        played = Played(turns, GOOD)
        made = engine(window=window, policy=policy("pi", threshold=0.99, keep_tokens=100))
        assert played.run(made.before_call(played.fold)) is None
        assert played.kinds[len(turns) :] == expected
