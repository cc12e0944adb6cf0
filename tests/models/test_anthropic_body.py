"""The bytes of a request do not depend on the requests made before it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbagent.core.messages import Block, Message, Prefix, Request, text_block, tool_result_block
from nbagent.models.anthropic_body import BodyMaker, request_bytes

PREFIX = Prefix(system=(text_block("be brief"),), tools=({"name": "read", "input_schema": {"type": "object"}},))
THINKING: Block = {"type": "thinking", "thinking": "hm", "signature": "s"}
MESSAGES = tuple(Message("assistant" if i % 2 else "user", (text_block(f"message {i}"),)) for i in range(6))


def request(messages: tuple[Message, ...], marks: tuple[int, ...], prefix: Prefix = PREFIX) -> Request:
    return Request(model="m", max_tokens=9, prefix=prefix, messages=messages, breakpoints=marks, options={"top_k": 1})


def plain(wanted: Request) -> dict[str, Any]:
    """Return the body made the slow way."""
    messages = [{"role": m.role, "content": [dict(b) for b in m.blocks]} for m in wanted.messages]
    for index in wanted.breakpoints:
        for block in reversed(messages[index]["content"]):
            if block["type"] != "thinking":
                block["cache_control"] = {"type": "ephemeral"}
                break
    system = [dict(b) for b in wanted.prefix.system]
    system[-1]["cache_control"] = {"type": "ephemeral"}
    head = {"model": wanted.model, "max_tokens": wanted.max_tokens, "stream": True, **wanted.options}
    return {**head, "system": system, "tools": list(wanted.prefix.tools), "messages": messages}


@st.composite
def requests(draw: st.DrawFn) -> Request:
    """A beginning of the conversation or a fork of it, with up to three marks."""
    messages = MESSAGES[: draw(st.integers(0, len(MESSAGES)))]
    if messages and draw(st.booleans()):
        last = Message(messages[-1].role, (text_block(draw(st.text(max_size=3)) or "x"),))
        messages = (*messages[:-1], last)
    places = st.sets(st.integers(0, len(messages) - 1), max_size=3) if messages else st.just(set())
    return request(messages, tuple(sorted(draw(places))))


@given(st.lists(st.tuples(requests(), st.booleans()), min_size=1, max_size=6))
def test_a_body_that_was_not_given_back_stays_as_it_is(sent: list[tuple[Request, bool]]) -> None:
    maker, out = BodyMaker(), []
    for one, kept in sent:
        body = maker.body(one)
        if kept:
            out.append((one, body))
        else:
            maker.give_back(body)
        assert [body for _, body in out] == [request_bytes(one) for one, _ in out]
    for _, body in out:
        maker.give_back(body)


def test_a_body_that_somebody_still_looks_at_is_left_alone() -> None:
    maker = BodyMaker()
    body = maker.body(request(MESSAGES[:4], (3,)))
    with memoryview(body) as seen:
        maker.give_back(body)
        assert maker.body(request(MESSAGES, (3, 5))) == request_bytes(request(MESSAGES, (3, 5)))
        assert bytes(seen[:9]) == b'{"model":'


def test_what_stays_of_a_body_is_not_made_again() -> None:
    maker = BodyMaker()
    body = maker.body(request(MESSAGES[:4], (1, 3)))
    maker.give_back(body)
    assert maker.body(request(MESSAGES, (3, 5))) is body


@given(st.lists(requests(), min_size=1, max_size=6))
def test_a_request_has_the_same_bytes_whatever_was_sent_before(sent: list[Request]) -> None:
    maker = BodyMaker()
    for one in sent:
        body = maker.body(one)
        maker.give_back(body)
        assert body == request_bytes(one)
        assert json.loads(body) == json.loads(json.dumps(plain(one)))


@pytest.mark.parametrize(
    "blocks",
    [
        (text_block('a}]}"'),),
        (text_block("half of an emoji \ud83d"),),
        (tool_result_block("x", [text_block("é")], is_error=True),),
        ({"type": "tool_use", "id": "a", "name": "n", "input": {}},),
        (THINKING,),
        (text_block("a"), THINKING),
        ({"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}},),
        ({"type": "something_new", "x": [1]},),
    ],
)
def test_a_mark_is_on_the_last_block_that_can_carry_one(blocks: tuple[Block, ...]) -> None:
    wanted = request((Message("user", blocks),), (0,))
    slow = json.dumps(plain(wanted), ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    assert json.loads(request_bytes(wanted)) == json.loads(slow.replace(b"emoji ?", "emoji \ufffd".encode()))


def test_another_prefix_is_not_taken_for_the_last_one() -> None:
    other = Prefix(system=(text_block("be long"),), tools=())
    maker = BodyMaker()
    maker.body(request(MESSAGES, (5,)))
    assert json.loads(maker.body(request(MESSAGES, (5,), other)))["system"][0]["text"] == "be long"
