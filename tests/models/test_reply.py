"""ReplyBuilder: events become blocks that are kept as they came."""

from __future__ import annotations

from typing import Any

import pytest

from nbagent.core.errors import ModelFailed
from nbagent.models.reply import MalformedReply, ReplyBuilder


def begin(block: dict[str, Any], index: int = 0) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int = 0, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": fields}


STOP = {"type": "content_block_stop", "index": 0}


def built(*events: dict[str, Any]) -> ReplyBuilder:
    reply = ReplyBuilder("m")
    for event in events:
        reply.feed(event)
    return reply


def tool(json_text: str) -> ReplyBuilder:
    start = begin({"type": "tool_use", "id": "t", "name": "python", "input": {}})
    return built(start, delta(type="input_json_delta", partial_json=json_text), STOP)


def test_a_block_keeps_its_keys_in_their_order_and_gains_none() -> None:
    """claude.md 80: what goes back is what came."""
    reply = built(
        begin({"type": "thinking", "thinking": "", "signature": ""}),
        delta(type="thinking_delta", thinking="a"),
        delta(type="thinking_delta", thinking="b"),
        delta(type="signature_delta", signature="s=="),
        STOP,
    )
    assert [list(b.items()) for b in reply.finished] == [
        [("type", "thinking"), ("thinking", "ab"), ("signature", "s==")]
    ]


def test_an_unknown_block_is_kept_with_all_its_fields() -> None:
    """claude.md 79."""
    strange = {"type": "hologram", "angle": 3, "deep": {"a": [1, None]}}
    reply = built(begin(strange), delta(type="mood_delta", mood="calm"), STOP, {"type": "weather_report"})
    assert reply.finished == (strange,)


@pytest.mark.parametrize("kind", ["tool_use", "server_tool_use", "mcp_tool_use", "future_tool_use"])
def test_every_kind_of_call_gets_its_streamed_input(kind: str) -> None:
    start = begin({"type": kind, "id": "t", "name": "x", "input": {}})
    reply = built(start, delta(type="input_json_delta", partial_json='{"a":'), delta(type="input_json_delta", partial_json="1}"), STOP)
    assert reply.finished[0]["input"] == {"a": 1}


def test_no_json_at_all_is_an_empty_object() -> None:
    assert tool("").finished[0]["input"] == {}


def test_a_call_that_was_cut_inside_its_json_is_left_out() -> None:
    """claude.md 74."""
    assert tool('{"path": "/a", "con').finished == ()


@pytest.mark.parametrize("broken", ['{"code": "1+', '{"code": "1"} {}', "code: 1", '{"code":' + "[" * 100_000])
def test_a_call_that_is_to_run_and_is_no_json_is_kept_as_its_text(broken: str) -> None:
    """The Messages API does not promise valid JSON when it streams the input of tools as it is written."""
    reply = tool(broken)
    for event in ({"type": "message_delta", "delta": {"stop_reason": "tool_use"}}, {"type": "message_stop"}):
        reply.feed(event)
    assert reply.finished == reply.so_far() == ()
    assert [b["input"] for b in reply.response().blocks] == [broken]


@pytest.mark.parametrize("given", [{"id": ""}, {"id": None}, {}])
def test_a_call_without_an_id_gets_one(given: dict[str, Any]) -> None:
    start = begin({"type": "tool_use", **given, "name": "python", "input": {}})
    (block,) = built(start, delta(type="input_json_delta", partial_json="{}"), STOP).finished
    assert block["id"]
    whole = ReplyBuilder("m")
    whole.load({"content": [{"type": "tool_use", **given, "name": "python", "input": {}}], "stop_reason": "tool_use"})
    assert whole.response().blocks[0]["id"] == block["id"]


def test_a_second_key_wins_and_nan_becomes_a_word() -> None:
    assert tool('{"a": 1, "a": 2, "b": NaN, "c": -Infinity}').finished[0]["input"] == {"a": 2, "b": "NaN", "c": "-Infinity"}


def test_an_array_as_input_is_kept_for_the_toolbox_to_refuse() -> None:
    assert tool("[1, 2]").finished[0]["input"] == [1, 2]


def test_half_an_emoji_becomes_a_replacement_character() -> None:
    assert tool('{"a": "\\ud83d"}').finished[0]["input"] == {"a": "\ufffd"}
    assert tool('{"\\ud83d": "\\ud83d\\ude00"}').finished[0]["input"] == {"\ufffd": "😀"}


def test_what_came_of_a_text_is_kept_and_what_came_of_thinking_or_a_call_is_not() -> None:
    text = built(begin({"type": "text", "text": ""}), delta(type="text_delta", text="half"))
    assert text.response(cut="stopped").blocks == ({"type": "text", "text": "half"},)
    thought = built(begin({"type": "thinking", "thinking": "", "signature": ""}), delta(type="thinking_delta", thinking="h"))
    assert thought.response(cut="stopped").blocks == ()
    assert thought.started
    call = built(begin({"type": "tool_use", "id": "t", "name": "x", "input": {}}), delta(type="input_json_delta", partial_json="{"))
    assert call.response(cut="stopped").blocks == ()


def test_empty_deltas_leave_an_empty_text() -> None:
    reply = built(begin({"type": "text", "text": ""}), delta(type="text_delta", text=""), STOP)
    assert reply.finished == ({"type": "text", "text": ""},)


def test_citations_and_compaction_are_taken_in() -> None:
    cited = built(begin({"type": "text", "text": ""}), delta(type="citations_delta", citation={"url": "u"}), STOP)
    assert cited.finished[0]["citations"] == [{"url": "u"}]
    compacted = built(begin({"type": "compaction", "content": None}), delta(type="compaction_delta", content="s"), STOP)
    assert compacted.finished == ({"type": "compaction", "content": "s"},)


def test_later_usage_overwrites_and_null_does_not() -> None:
    reply = built(
        {"type": "message_start", "message": {"id": "x", "model": "m2", "usage": {"input_tokens": 7, "output_tokens": 1}}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"input_tokens": None, "output_tokens": 9}},
        {"type": "message_delta", "delta": {}},
    )
    assert (reply.usage, reply.model, reply.stop_reason) == ({"input_tokens": 7, "output_tokens": 9}, "m2", "end_turn")


@pytest.mark.parametrize("event", [delta(type="text_delta", text="x"), STOP, begin({}) | {"content_block": None}])
def test_an_event_out_of_place_is_refused(event: dict[str, Any]) -> None:
    with pytest.raises(MalformedReply):
        ReplyBuilder("m").feed(event)


def test_a_block_that_begins_before_the_last_ended_ends_it() -> None:
    reply = built(begin({"type": "text", "text": ""}), delta(type="text_delta", text="a"), begin({"type": "text", "text": "b"}, 1), STOP)
    assert [b["text"] for b in reply.finished] == ["a", "b"]


@pytest.mark.parametrize(
    ("name", "kind", "retryable"),
    [("overloaded_error", "overloaded", True), ("rate_limit_error", "rate_limit", True), ("strange_error", "server", False)],
)
def test_an_error_event_names_its_kind(name: str, kind: str, retryable: bool) -> None:
    with pytest.raises(ModelFailed, match="no message") as caught:
        ReplyBuilder("m").feed({"type": "error", "error": {"type": name}})
    assert (caught.value.kind, caught.value.retryable) == (kind, retryable)
