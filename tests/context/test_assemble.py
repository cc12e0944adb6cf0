"""assemble: the same input gives the same bytes, and the marks make the next request read what this one wrote."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbagent.context.assemble import MESSAGE_BREAKPOINTS, assemble, breakpoints
from nbagent.core.entries import Body
from nbagent.core.messages import Message, Request
from nbagent.core.view import View, build_view
from nbagent.models.anthropic_body import request_bytes
from tests.core.builders import MODEL, PREFIX, call, reply, result, says, stamp, start, steer, thinks, user


def view(*bodies: Body) -> View:
    return build_view(stamp([start(), *bodies]))


def made(*bodies: Body, **options: Any) -> Request:
    return assemble(view(*bodies), PREFIX, model=MODEL, max_tokens=100, options=options)


def loop(step: int, width: int = 1) -> list[Body]:
    """One step of a tool loop: a reply with `width` calls, and their results."""
    ids = [f"c{step}-{i}" for i in range(width)]
    return [reply(thinks(), *[call(id=i) for i in ids], stop="tool_use"), *[result(i) for i in ids]]


def test_the_same_view_gives_the_same_bytes() -> None:
    bodies = [user("hi"), *loop(1), says("done"), user("more")]
    assert request_bytes(made(*bodies)) == request_bytes(made(*bodies))


def test_options_and_limits_go_in_as_given() -> None:
    request = made(user("hi"), thinking={"type": "adaptive"})
    assert (request.model, request.max_tokens, request.options) == (MODEL, 100, {"thinking": {"type": "adaptive"}})
    assert request.prefix is PREFIX


def test_a_first_request_is_marked_at_its_end() -> None:
    assert breakpoints(view(user("hi"))) == (0,)


def test_nothing_has_no_mark() -> None:
    assert breakpoints(view()) == ()


def test_marks_stand_at_the_end_and_where_the_last_two_requests_ended() -> None:
    """claude.md A7: written there, so read there, however many blocks came since."""
    assert breakpoints(view(user("hi"), *loop(1), *loop(2), *loop(3))) == (2, 4, 6)


def test_a_mark_follows_the_person_over_turns() -> None:
    assert breakpoints(view(user("one"), says("a"), user("two"), says("b"), user("three"))) == (0, 2, 4)


def test_steering_after_results_is_one_message_with_one_mark() -> None:
    seen = view(user("hi"), *loop(1), steer("use metres"))
    assert [m.role for m in seen.messages] == ["user", "assistant", "user"]
    assert breakpoints(seen) == (0, 2)


def test_a_paused_reply_is_marked_as_the_end() -> None:
    paused = view(user("hi"), reply("searching", stop="pause_turn"))
    assert breakpoints(paused) == (0, 1)


@given(st.lists(st.integers(1, 30), max_size=8))
def test_every_request_marks_where_the_one_before_it_ended(widths: list[int]) -> None:
    """MA-C1: so each is a sure read; never more marks than the provider takes."""
    bodies: list[Body] = [user("hi")]
    ends: list[Message] = []
    for step, width in enumerate(widths):
        request = made(*bodies)
        marked = [request.messages[i] for i in request.breakpoints]
        assert len(marked) <= MESSAGE_BREAKPOINTS
        assert request.messages[-1] in marked
        assert not ends or ends[-1] in marked
        ends.append(request.messages[-1])
        bodies += loop(step, width)


@pytest.mark.parametrize("width", [1, 25])
def test_a_request_extends_the_one_before_it(width: int) -> None:
    before = [*made(user("hi"), *loop(1, width)).canonical_chunks()]
    after = [*made(user("hi"), *loop(1, width), *loop(2, width)).canonical_chunks()]
    assert after[: len(before)] == before
