"""The agent loop, driven by a script: ends, stops, limits, crashes."""

from __future__ import annotations

from typing import Any

import pytest

from nbagent.core.effects import Decision
from nbagent.core.entries import AssistantMessage, Pruning, ToolStarted, TurnEnd
from nbagent.core.errors import ModelFailed
from nbagent.core.messages import Response, ToolCall
from nbagent.core.turn import EMPTY_REPLY, GO_ON, MAX_PAUSES, TurnOutput, close_broken_turn
from nbagent.core.view import CUT_NOTE, build_view
from tests.core.builders import (
    call,
    calls,
    end,
    note,
    path,
    plain,
    reply,
    response,
    result,
    says,
    stamp,
    start,
    started,
    steer,
    thinks,
    user,
)  # fmt: skip
from tests.core.scripted import Driver, driver, ids, limits
from tests.core.wire_rules import broken_rules


def asks(*names: str, stop: str | None = "tool_use", **more: Any) -> Response:
    return response(*(call(id=n) for n in names), stop=stop, **more)


def done(output: TurnOutput | None) -> TurnOutput:
    assert output is not None
    return output


def words(driver: Driver) -> list[str]:
    return [w for _, ws in plain(build_view(driver.path)) for w in ws]


# ------------------------------------------------------------ normal turns


def test_a_turn_writes_what_was_said_and_done_in_order() -> None:
    d = driver(asks("a"), response("done"))
    output = done(d.turn())
    d.check()
    assert ids(d.path) == [
        "turn_start", "user_message", "assistant_message", "usage", "tool_started", "tool_result",
        "assistant_message", "usage", "turn_end",
    ]  # fmt: skip
    assert (output.outcome, output.text, output.steps, output.message) == ("completed", "done", 2, "")


def test_a_snapshot_stands_before_the_prompt() -> None:
    d = driver()
    d.turn(snapshot=note("df changed"))
    assert plain(build_view(d.path))[0] == ("user", ["df changed", "hi"])


def test_parallel_calls_are_answered_in_one_message() -> None:
    d = driver(asks("a", "b", "c"))
    d.turn()
    d.check()
    assert plain(build_view(d.path))[2] == ("user", ["result a: ran a", "result b: ran b", "result c: ran c"])


def test_a_denied_call_is_answered_and_the_others_run() -> None:
    def approve(asked: ToolCall) -> Decision:
        return Decision(allowed=asked.id != "b", reason="the person said no", by="person", record=True)

    d = driver(asks("a", "b", "c"), approve=approve)
    assert done(d.turn()).outcome == "completed"
    d.check()
    assert d.status() == {"a": "ok", "b": "refused", "c": "ok"}
    assert d.texts()["b"] == "the person said no"
    assert [e.body.decision for e in d.path if e.body.kind == "approval"] == ["allow", "deny", "allow"]


def test_a_masked_tool_stays_listed_and_its_call_is_refused() -> None:
    d = driver(asks("a"))
    d.turn(start=start(masked_tools=("python",)))
    d.check()
    assert (d.ran, d.status()) == ([], {"a": "refused"})


def test_steering_goes_after_all_results() -> None:
    d = driver(asks("a", "b"), steering=[("look at df", "and be quick")])
    d.turn()
    d.check()
    assert plain(build_view(d.path))[2] == (
        "user", ["result a: ran a", "result b: ran b", "look at df", "and be quick"],
    )  # fmt: skip


def test_steering_that_comes_with_the_last_reply_is_still_answered() -> None:
    d = driver(response("first"), response("second"), steering=[("one more thing",)])
    output = done(d.turn())
    d.check()
    assert (output.text, output.outcome) == ("second", "completed")
    assert words(d) == ["hi", "first", "one more thing", "second"]


def test_an_id_that_came_before_is_made_new() -> None:
    d = driver(asks("a"), asks("a", "a"))
    d.turn()
    d.check()
    assert d.ran == ["a", "a-2", "a-3"]


def test_an_input_with_nan_or_of_another_shape_breaks_neither_journal_nor_request() -> None:
    bad = response(call(id="a", input={"x": float("nan")}), call(id="b", input=[1]), stop="tool_use")
    d = driver(bad)
    d.turn()
    d.check()
    assert d.messages[1].to_bytes()


def test_a_second_turn_extends_the_first() -> None:
    d = driver(asks("a"), response("one"), response("two"))
    d.turn()
    d.turn("more", start=start("t2"))
    d.check()


# ------------------------------------------------------------ stop reasons (claude A12)


@pytest.mark.parametrize(
    ("stop", "outcome", "word"),
    [
        ("end_turn", "completed", ""),
        ("stop_sequence", "completed", ""),
        ("tool_use", "completed", ""),
        ("max_tokens", "cut_off", "output limit"),
        ("refusal", "refusal", "declined"),
        ("model_context_window_exceeded", "window_full", "%context compact"),
        ("compaction", "completed", ""),
        ("a later word", "completed", ""),
        (None, "error", "not whole"),
    ],
)
def test_every_stop_reason_ends_a_text_reply(stop: str | None, outcome: str, word: str) -> None:
    d = driver(response("so", stop=stop))
    output = done(d.turn())
    d.check()
    assert (output.outcome, output.stop_reason, output.text) == (outcome, stop, "so")
    assert word in output.message
    assert "\n" not in output.message
    assert len(d.requests) == 1


@pytest.mark.parametrize(
    "stop",
    ["end_turn", "stop_sequence", "max_tokens", "refusal", "model_context_window_exceeded", "a later word", None],
)
@pytest.mark.parametrize("text", [(), ("so",)])
def test_a_call_runs_only_when_the_stop_reason_is_tool_use(stop: str | None, text: tuple[str, ...]) -> None:
    """claude 74, F32; openclaw 155."""
    d = driver(response(*text, call(id="a"), call(id="b"), stop=stop))
    output = done(d.turn())
    d.check()
    assert (d.ran, d.asked) == ([], [])
    assert set(d.status().values()) == {"not_run"}
    assert output.outcome != "completed"
    done(d.turn(None))
    d.check()
    assert d.ran == []


def test_a_refusal_tells_why() -> None:
    d = driver(response(stop="refusal", stop_details={"type": "refusal", "category": "cyber", "explanation": None}))
    assert "cyber" in done(d.turn()).message
    d.check()


def test_an_empty_reply_without_a_stop_reason_is_an_error() -> None:
    d = driver(response(stop=None))
    assert done(d.turn()).outcome == "error"
    d.check()


@pytest.mark.parametrize("blocks", [(), ("",), (" \n",), (thinks(),)])
def test_an_empty_end_turn_gets_one_continuation(blocks: tuple[Any, ...]) -> None:
    d = driver(asks("a"), response(*blocks), response(*blocks))
    assert done(d.turn()).outcome == "completed"
    d.check()
    assert len(d.requests) == 3
    assert words(d).count(EMPTY_REPLY) == 1
    assert d.said == ["The agent ended without an answer: its reply was empty, twice."]


def test_a_reply_that_ends_for_an_unknown_reason_says_so() -> None:
    d = driver(response("fine", stop="a later word"))
    assert done(d.turn()).outcome == "completed"
    assert d.said == ["The reply ended for a reason that nbagent does not know: 'a later word'."]


def test_a_paused_reply_is_sent_back_as_it_is() -> None:
    d = driver(response("searching", stop="pause_turn"), response("found"))
    assert done(d.turn()).text == "found"
    d.check()
    assert plain(build_view(d.path)) == [("user", ["hi"]), ("assistant", ["searching", "found"])]
    assert d.requests[1].messages[-1].role == "assistant"


def test_pauses_come_to_an_end() -> None:
    d = driver(*(response("still", stop="pause_turn") for _ in range(MAX_PAUSES + 5)))
    assert done(d.turn()).outcome == "completed"
    assert len(d.requests) == MAX_PAUSES + 1


def test_a_paused_turn_that_hit_a_limit_is_resumed_without_words() -> None:
    d = driver(response("searching", stop="pause_turn"), response("found"))
    assert done(d.turn(limits=limits(max_steps=1))).outcome == "limit"
    assert done(d.turn(None)).text == "found"
    d.check()
    assert GO_ON not in words(d)


# ------------------------------------------------------------ cut streams


@pytest.mark.parametrize(
    ("cut", "outcome"), [("stopped", "stopped"), ("the stream ended early", "error"), ("overloaded", "error")]
)
def test_a_cut_stream_keeps_its_text_and_the_next_request_says_so(cut: str, outcome: str) -> None:
    """peers 7."""
    d = driver(response("half an", stop=None, cut=cut))
    output = done(d.turn())
    assert (output.outcome, output.text) == (outcome, "half an")
    d.turn("go on", start=start("t2"))
    d.check()
    assert words(d) == ["hi", "half an", CUT_NOTE.format(cut=cut), "go on", "done"]


def test_a_stream_without_an_end_is_marked_as_cut() -> None:
    d = driver(response("half", call(id="a"), stop=None))
    assert done(d.turn()).outcome == "error"
    d.check()
    assert d.status() == {"a": "not_run"}


def test_a_failed_call_leaves_no_reply_and_the_prompt_once() -> None:
    """openclaw 146: overflow, then a retry: the user's message is there once."""
    failed = Response(
        blocks=(),
        stop_reason=None,
        model="m",
        cut="error",
        error=ModelFailed("the prompt is too long", kind="overflow"),
    )
    d = driver(failed, response("fine"))
    assert done(d.turn()).message == "the prompt is too long"
    assert done(d.turn(None)).text == "fine"
    d.check()
    assert words(d) == ["hi", "fine"]


def test_calls_of_a_cut_reply_never_run_also_after_a_resume() -> None:
    d = driver(response("so", call(id="a"), call(id="b"), call(id="c"), call(id="d"), stop="tool_use", cut="stopped"))
    d.turn()
    done(d.turn(None))
    d.check()
    assert d.ran == []
    assert CUT_NOTE.format(cut="stopped") in words(d)


# ------------------------------------------------------------ stops by the person


def test_a_stop_while_a_tool_runs_answers_every_call_and_sends_nothing_more() -> None:
    """peers 5: the running one is interrupted, not refused; the next turn is accepted."""
    d = driver(asks("a", "b", "c"), stop_in="b")
    output = done(d.turn())
    assert output.outcome == "stopped"
    assert d.status() == {"a": "ok", "b": "interrupted", "c": "not_run"}
    assert "person" in d.texts()["b"]
    assert len(d.requests) == 1
    d.stop_in = ""
    done(d.turn("go on", start=start("t2")))
    d.check()


def test_a_stop_while_asking_runs_nothing() -> None:
    d = driver(asks("a", "b"), approve=lambda c: Decision(allowed=c.id == "a", stopped=c.id == "b"))
    output = done(d.turn())
    d.check()
    assert (output.outcome, d.ran, d.status()) == ("stopped", [], {"a": "not_run", "b": "not_run"})
    assert "resume" in output.message


def test_a_stopped_turn_goes_on_where_it_was() -> None:
    d = driver(asks("a", "b"), response("ok"), stop_in="a")
    d.turn()
    d.stop_in = ""
    output = done(d.turn(None))
    d.check()
    assert (output.outcome, output.turn, d.ran) == ("completed", "t1", ["a"])
    assert GO_ON not in words(d)


# ------------------------------------------------------------ limits


@pytest.mark.parametrize(
    ("ceiling", "word"),
    [
        (limits(max_steps=1), "limit of 1 step ("),
        (limits(max_tokens=10), "10 output tokens"),
        (limits(max_cost_usd=0.01), "--max-cost"),
        (limits(session_cost_usd=5.0), "session"),
        (limits(day_cost_usd=9.0), "day"),
    ],
)
def test_a_limit_ends_the_turn_after_the_tools_and_resume_goes_on(ceiling: Any, word: str) -> None:
    d = driver(asks("a"), response("ok"))
    output = done(d.turn(limits=ceiling, spent_session_usd=4.99, spent_day_usd=8.99))
    d.check()
    assert output.outcome == "limit"
    assert word in output.message
    assert "resume" in output.message
    assert d.status() == {"a": "ok"}
    assert len(d.requests) == 1
    output = done(d.turn(None))
    d.check()
    assert (output.outcome, output.text, output.steps) == ("completed", "ok", 2)


def test_a_ceiling_that_is_already_reached_calls_no_model() -> None:
    d = driver()
    assert done(d.turn(limits=limits(day_cost_usd=1.0), spent_day_usd=1.0)).outcome == "limit"
    assert d.requests == []


def test_the_reply_may_use_what_the_token_limit_leaves() -> None:
    d = driver(asks("a"))
    d.turn(limits=limits(max_tokens=1000), reply_tokens=900)
    assert d.requests[0].max_tokens == 900
    assert d.requests[1].max_tokens < 1000


def test_steps_count_on_over_a_resume_and_limits_count_anew() -> None:
    d = driver(asks("a"), asks("b"), response("ok"))
    assert done(d.turn(limits=limits(max_steps=2))).steps == 2
    assert done(d.turn(None, limits=limits(max_steps=2))).steps == 3
    steps = [e.body.step for e in d.path if isinstance(e.body, AssistantMessage)]
    assert steps == [1, 2, 3]


# ------------------------------------------------------------ moves inside a turn


def test_a_policy_may_record_moves_before_a_call_and_the_request_shows_them() -> None:
    from collections.abc import Generator

    from nbagent.core.effects import Append
    from nbagent.core.view import ViewFold

    def plan(fold: ViewFold) -> Generator[Any, Any, None]:
        old = [e.id for e in fold.path if e.kind == "tool_result" and e.id not in fold.view().pruned]
        if old:
            fold.add((yield Append(body=Pruning(placeholders={old[0]: "[cleared]"}))))

    d = driver(asks("a"), asks("b"))
    d.turn(before_call=plan)
    assert [broken_rules(r.messages) for r in d.requests] == [[], [], []]
    assert "result a: [cleared]" in words(d)


# ------------------------------------------------------------ restart


def test_there_must_be_a_turn_to_go_on_with() -> None:
    d = driver()
    with pytest.raises(ModelFailed, match="no turn"):
        d.turn(None)
    assert d.path == []


def test_a_completed_turn_may_be_told_to_go_on() -> None:
    d = driver()
    d.turn()
    d.turn(None)
    d.check()
    assert words(d) == ["hi", "done", GO_ON, "done"]


def test_a_crash_after_the_last_reply_bills_nothing_again() -> None:
    """peers 11 in small: what was answered is not asked again."""
    d = Driver(path=path(start(), user("hi"), says("done")))
    output = done(d.turn(None))
    assert (output.outcome, output.text, d.requests) == ("completed", "done", [])


def test_a_crash_while_a_tool_ran_never_runs_it_again() -> None:
    asked = reply(call(id="a"), call(id="b"), stop="tool_use")
    d = Driver(path=path(start(), user("hi"), asked, started("a")))
    done(d.turn(None))
    d.check()
    assert (d.ran, d.status()) == (["b"], {"a": "interrupted", "b": "ok"})


SCRIPTS: dict[str, list[Response]] = {
    "plain": [response("done")],
    "parallel": [asks("a", "b", "c"), response("mid", call(id="d"), stop="tool_use"), response("done")],
    "thinking": [response(thinks(), call(id="a"), stop="tool_use"), response(thinks("x", "s2"), "done")],
    "max tokens in a call": [asks("a"), response("so", call(id="b"), stop="max_tokens")],
    "cut": [asks("a"), response("half", call(id="b"), stop=None, cut="stopped")],
    "empty": [asks("a"), response(), response("done")],
    "paused": [response("wait", stop="pause_turn"), asks("a"), response("done")],
    "refused": [asks("a"), response(stop="refusal")],
    "unknown": [response("x", call(id="a"), stop="a later word")],
    "same ids": [asks("a"), asks("a"), response("done")],
}


def fresh(name: str, **more: Any) -> Driver:
    return driver(*SCRIPTS[name], steering=[("also",)], **more)


def started_in(d: Driver) -> set[str]:
    return {e.body.call_id for e in d.path if isinstance(e.body, ToolStarted)}


def check_resumed(d: Driver, before: set[str]) -> None:
    done(d.turn(None))
    d.check()
    assert not before & set(d.ran)
    assert isinstance(d.path[-1].body, TurnEnd)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_turn_may_be_dropped_at_any_yield_and_goes_on_from_its_path(name: str) -> None:
    whole = fresh(name)
    whole.turn()
    for at in range(2, whole.yields + 1):
        first = fresh(name)
        first.turn(drop_at=at)
        second = Driver(path=first.path, replies=first.replies)
        check_resumed(second, started_in(first))


@pytest.mark.parametrize("stop_in", ["", "b"])
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_turn_goes_on_from_every_prefix_of_its_journal(name: str, stop_in: str) -> None:
    """A kill may come between any two lines, also while tools run and while a resumed turn runs."""
    whole = fresh(name, stop_in=stop_in)
    whole.turn()
    whole.turn(None)
    for length in range(1, len(whole.path) + 1):
        d = Driver(path=whole.path[:length])
        check_resumed(d, started_in(d))


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_new_turn_may_follow_every_prefix_of_a_journal(name: str) -> None:
    """openclaw 76: what is missing is written before the next user message."""
    whole = fresh(name)
    whole.turn()
    whole.turn(None)
    for length in range(1, len(whole.path) + 1):
        d = Driver(path=whole.path[:length])
        for body in close_broken_turn(build_view(d.path)):
            d.write(body)
        assert build_view(d.path).open_calls == ()
        assert build_view(d.path).turn_ended
        d.turn("next", start=start("t2"))
        d.check()


def test_closing_a_broken_turn_tells_started_from_not_started() -> None:
    asked = reply(call(id="a"), call(id="b"), call(id="c"), stop="tool_use")
    entries = path(start(), user("hi"), asked, started("a"), result("c"))
    closed = stamp(close_broken_turn(build_view(entries)), entries)
    assert [(e.body.call_id, e.body.status) for e in closed if e.kind == "tool_result"] == [  # type: ignore[union-attr]
        ("c", "ok"), ("a", "interrupted"), ("b", "not_run"),
    ]  # fmt: skip
    assert closed[-1].kind == "turn_end"


@pytest.mark.parametrize("bodies", [(), (start(), user("hi"), says("x"), end())])
def test_a_whole_turn_needs_no_closing(bodies: tuple[Any, ...]) -> None:
    assert close_broken_turn(build_view(path(*bodies))) == ()


def test_a_resumed_turn_that_broke_is_closed_too() -> None:
    entries = path(start(), user("hi"), says("half", cut="stopped"), end(), steer(GO_ON), calls(), started())
    assert [b.kind for b in close_broken_turn(build_view(entries))] == ["tool_result", "turn_end"]
