"""Tests of the fake's checks: each rule refuses with the service's words, and legal requests pass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.fakes.client import HEADERS, send
from tests.fakes.messages_api import FakeMessagesAPI, call, redacted, reply, thinking

JSON = dict[str, Any]
OPUS = "claude-opus-5-5"
TOOL = {"name": "python", "description": "Run code.", "input_schema": {"type": "object"}}
BINDING = {**HEADERS, "anthropic-beta": "thinking-binding-controls-2026-08-01"}
MARK = {"type": "ephemeral"}


@pytest.fixture
def fake() -> Iterator[FakeMessagesAPI]:
    with FakeMessagesAPI(["ok"], repeat=True) as server:
        yield server


def user(content: object = "hi") -> JSON:
    return {"role": "user", "content": content}


def assistant(*blocks: JSON) -> JSON:
    return {"role": "assistant", "content": list(blocks)}


def use(call_id: str = "t1") -> JSON:
    return {"type": "tool_use", "id": call_id, "name": "python", "input": {}}


def result(call_id: str = "t1") -> JSON:
    return {"type": "tool_result", "tool_use_id": call_id, "content": "2"}


def txt(content: str = "x", **more: Any) -> JSON:
    return {"type": "text", "text": content, **more}


def search() -> JSON:
    return {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}


def found() -> JSON:
    return {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}


def request(*messages: JSON, **more: Any) -> JSON:
    return {"model": OPUS, "max_tokens": 100, "messages": list(messages or [user()]), **more}


def without(name: str) -> JSON:
    return {key: value for key, value in request().items() if key != name}


def marked(count: int) -> list[JSON]:
    return [txt(cache_control=MARK) for _ in range(count)]


CONVERSATIONS = {
    "call without result": ([user(), assistant(use()), user("and?")], "`tool_use` ids were found without `tool_result` blocks immediately after: t1."),
    "call at the end": ([user(), assistant(use())], "`tool_use` ids were found without"),
    "one of two results": ([user(), assistant(use(), use("t2")), user([result()])], "immediately after: t2."),
    "text before result": ([user(), assistant(use()), user([txt(), result()])], "immediately after: t1."),
    "text message before result": ([user(), assistant(use()), user(), user([result()])], "immediately after: t1."),
    "result without call": ([user(), assistant(txt()), user([result()])], "unexpected `tool_use_id` found in `tool_result` blocks: t1."),
    "result first": ([user([result()])], "unexpected `tool_use_id`"),
    "two results": ([user(), assistant(use()), user([result(), result()])], "each tool_use must have a single result"),
    "same id in one message": ([user(), assistant(use(), use()), user([result()])], "`tool_use` ids must be unique"),
    "same id later": ([user(), assistant(use()), user([result()]), assistant(use()), user([result()])], "`tool_use` ids must be unique"),
    "odd id": ([user(), assistant(use("a b")), user([result("a b")])], "String should match pattern"),
    "input not an object": ([user(), assistant({**use(), "input": [1]}), user([result()])], "tool_use.input: Input should be a valid dictionary"),
    "empty content": ([user("")], "all messages must have non-empty content"),
    "empty list": ([user(), assistant(), user()], "all messages must have non-empty content"),
    "empty text": ([user([txt("")])], "text content blocks must be non-empty"),
    "blank text": ([user(" \n")], "text content blocks must contain non-whitespace text"),
    "unknown role": ([{"role": "tool", "content": "x"}], "messages.0.role: Input should be"),
    "assistant first": ([assistant(txt()), user()], 'first message must use the "user" role'),
    "prefill": ([user(), assistant(txt())], "does not support assistant message prefill"),
    "no role": ([{"content": "x"}], "messages.0.role: Field required"),
    "extra field of a message": ([{**user(), "id": 1}], "messages.0.id: Extra inputs are not permitted"),
    "extra field of a block": ([user([txt(cell=3)])], "text.cell: Extra inputs are not permitted"),
    "unknown block from the user": ([user([{"type": "hologram"}])], "Input tag 'hologram'"),
    "call by the user": ([user([use()])], "can only be in `assistant` messages"),
    "result by the assistant": ([user(), assistant(result()), user()], "can only be in `user` messages"),
    "document by the assistant": ([user(), assistant({"type": "document"}), user()], "not permitted in assistant messages"),
    "citations on user text": ([user([txt(citations=[{"type": "char_location"}])])], "citations are not permitted"),
    "system first": ([{"role": "system", "content": "x"}, user()], 'must use the "user" role'),
    "system after assistant": ([user(), assistant(txt()), {"role": "system", "content": "x"}], "must follow a user message"),
    "system before user": ([user(), {"role": "system", "content": "x"}, user()], "must be last or come before"),
    "open server call": ([user(), assistant(search(), txt()), user()], "was found without a corresponding `web_search_tool_result` block"),
    "open server call and user text": ([user(), assistant(search(), use()), user([result(), txt()])], "without a corresponding"),
    "server result alone": ([user(), assistant(found(), txt()), user()], "unexpected `tool_use_id`"),
    "no messages": ([], "at least one message is required"),
    "unsigned thinking": ([user(), assistant({"type": "thinking", "thinking": "x"}), user()], "signature: Field required"),
    "foreign signature": ([user(), assistant({"type": "thinking", "thinking": "x", "signature": "abc"}, txt()), user()], "Invalid `signature` in `thinking` block"),
}  # fmt: skip


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_a_broken_conversation_is_refused(fake: FakeMessagesAPI, name: str) -> None:
    messages, words = CONVERSATIONS[name]
    answer = send(fake.base_url, {**request(), "messages": messages})
    assert answer.status == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert words in answer.error
    assert fake.requests[0].refusal == answer.error


PARAMETERS = {
    "no max_tokens": (without("max_tokens"), "max_tokens: Field required"),
    "no model": (without("model"), "model: Field required"),
    "no messages": (without("messages"), "messages: Field required"),
    "max_tokens above the cap": (request(max_tokens=128_001), "max_tokens: 128001 > 128000, which is the maximum"),
    "max_tokens null": (request(max_tokens=None), "max_tokens: Input should be a valid integer"),
    "temperature": (request(temperature=0.5), "temperature: Extra inputs are not permitted"),
    "top_p": (request(top_p=0.5), "top_p: Extra"),
    "top_k": (request(top_k=5), "top_k: Extra"),
    "unknown parameter": (request(seed=1), "seed: Extra"),
    "beta parameter": (request(context_management={"edits": []}), "context_management: Extra"),
    "compaction": (request(compaction={"type": "summarize"}), "compaction: Extra"),
    "binding without beta": (request(thinking={"type": "adaptive", "block_binding": {}}), "block_binding: Extra"),
    "task budget without beta": (request(output_config={"task_budget": {}}), "task_budget: Extra"),
    "forced tool": (request(tools=[TOOL], tool_choice={"type": "any"}), "forced tool use"),
    "choice without tools": (request(tool_choice={"type": "auto"}), "may only be specified while providing tools"),
    "unknown chosen tool": (request(model="claude-opus-5", tools=[TOOL], tool_choice={"type": "tool", "name": "x"}), "Tool 'x' not found"),
    "tool name": (request(tools=[{**TOOL, "name": "my tool"}]), "String should match pattern '^[a-zA-Z0-9_-]{1,64}$'"),
    "tool named twice": (request(tools=[TOOL, TOOL]), "Tool names must be unique"),
    "schema type": (request(tools=[{**TOOL, "input_schema": {"type": "string"}}]), "input_schema.type: Input should be 'object'"),
    "no schema": (request(tools=[{"name": "x"}]), "input_schema: Field required"),
    "five breakpoints": (request(user(marked(5))), "A maximum of 4 blocks with cache_control may be provided. Found 5."),
    "four and automatic": (request(user([*marked(4), txt()]), cache_control=MARK), "Found 5."),
    "automatic with another ttl": (request(user(marked(1)), cache_control={"type": "ephemeral", "ttl": "1h"}), "another ttl"),
    "long after short ttl": (request(user([*marked(1), txt(cache_control={**MARK, "ttl": "1h"})])), "must not come after"),
    "breakpoint type": (request(user([txt(cache_control={"type": "forever"})])), "cache_control.type: Input should be 'ephemeral'"),
    "thinking off": (request(thinking={"type": "disabled"}), '"thinking.type.disabled" is not supported'),
    "manual thinking": (request(thinking={"type": "enabled", "budget_tokens": 2000}), "is not supported"),
    "small budget": (request(model="claude-opus-4-6", max_tokens=4000, thinking={"type": "enabled", "budget_tokens": 10}), "greater than or equal to 1024"),
    "budget above max_tokens": (request(model="claude-opus-4-6", thinking={"type": "enabled", "budget_tokens": 2000}), "`max_tokens` must be greater"),
    "effort of an old model": (request(model="claude-haiku-4-5", output_config={"effort": "low"}), "effort"),
    "unknown effort": (request(output_config={"effort": "heroic"}), "output_config.effort"),
    "system message on an old model": (request(user(), {"role": "system", "content": "x"}, model="claude-sonnet-5"), "not supported on this model"),
    "trailing space in a prefill": (request(user(), assistant(txt("x ")), model="claude-haiku-4-5"), "trailing whitespace"),
    "empty system block": (request(system=[txt("")]), "system: text content blocks must be non-empty"),
}  # fmt: skip


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_broken_parameter_is_refused(fake: FakeMessagesAPI, name: str) -> None:
    body, words = PARAMETERS[name]
    answer = send(fake.base_url, body)
    assert (answer.status, words in answer.error) == (400, True), answer.error


LEGAL = {
    "results, then text": request(user(), assistant(txt(), use(), use("t2")), user([result("t2"), result(), txt()])),
    "results over two messages": request(user(), assistant(use(), use("t2")), user([result()]), user([result("t2")])),
    "split assistant message": request(user(), assistant(txt()), assistant(use()), user([result()])),
    "empty result": request(user(), assistant(use()), user([{**result(), "content": ""}])),
    "system after results": request(user(), assistant(use()), user([result()]), {"role": "system", "content": "x"}),
    "prefill on 4.5": request(user(), assistant(txt()), model="claude-haiku-4-5"),
    "paused server tool": request(user(), assistant(search())),
    "server call answered later": request(user(), assistant(search(), use()), user([result()]), assistant(found(), txt()), user()),
    "unknown block of the assistant": request(user(), assistant({"type": "hologram", "beam": 1}), user()),
    "four breakpoints": request(user(marked(4))),
    "automatic on a marked block": request(user(marked(4)), cache_control=MARK),
    "warming the cache": request(max_tokens=0),
}  # fmt: skip


@pytest.mark.parametrize("name", LEGAL)
def test_a_legal_request_passes(fake: FakeMessagesAPI, name: str) -> None:
    answer = send(fake.base_url, LEGAL[name])
    assert answer.status == 200, answer.error


@pytest.mark.parametrize(
    ("headers", "status", "words"),
    [
        ({"anthropic-version": "2026-10-21"}, 401, "x-api-key header is required"),
        ({"authorization": "Bearer ", "anthropic-version": "2026-10-21"}, 401, "x-api-key header is required"),
        ({"x-api-key": "wrong", "anthropic-version": "2026-10-21"}, 401, "invalid x-api-key"),
        ({"x-api-key": "right"}, 400, "anthropic-version: header is required"),
        ({"x-api-key": "right", "anthropic-version": "1999"}, 400, "is not a valid version"),
        ({"x-api-key": "right", "anthropic-version": "2023-06-01"}, 200, ""),
        ({"authorization": "Bearer right", "anthropic-version": "2026-10-21"}, 200, ""),
    ],
)
def test_credentials_and_version_are_checked(headers: dict[str, str], status: int, words: str) -> None:
    with FakeMessagesAPI(["ok"], api_key="right") as fake:
        answer = send(fake.base_url, request(), headers=headers)
    assert answer.status == status
    assert words in answer.raw.decode()


def test_a_prompt_above_the_window_is_refused_with_both_numbers() -> None:
    with FakeMessagesAPI(["ok"], window_tokens=100, count=len) as fake:
        answer = send(fake.base_url, request(user("x" * 500)))
    size = len(fake.requests[0].canonical)
    assert (answer.status, answer.error) == (400, f"prompt is too long: {size} tokens > 100 maximum")


@pytest.mark.parametrize("raw", [b"{", b"[]", b"\xff"])
def test_a_body_that_is_no_object_is_refused(fake: FakeMessagesAPI, raw: bytes) -> None:
    assert send(fake.base_url, raw).status == 400


def test_unknown_models_and_paths_are_not_found(fake: FakeMessagesAPI) -> None:
    assert send(fake.base_url, request(model="claude-none")).json()["error"]["type"] == "not_found_error"
    assert send(fake.base_url, {}, path="/v1/nothing").status == 404


def think(fake: FakeMessagesAPI, body: JSON, **options: Any) -> JSON:
    """Send a request and return the assistant message to put back."""
    answer = send(fake.base_url, body, **options)
    assert answer.status == 200, answer.error
    return {"role": "assistant", "content": answer.json()["content"]}


def two_turns(fake: FakeMessagesAPI) -> list[JSON]:
    """Return a conversation of two thinking turns, ended by a new user message."""
    first = think(fake, request(user("a")))
    second = think(fake, request(user("a"), first, user("b")))
    return [user("a"), first, user("b"), second, user("c")]


def thinker(*script: Any) -> FakeMessagesAPI:
    return FakeMessagesAPI(script or [reply(thinking("hm"), "yes")], repeat=True)


def test_thinking_sent_back_unchanged_is_accepted() -> None:
    with thinker() as fake:
        assert send(fake.base_url, request(*two_turns(fake))).status == 200


def edit_first_user(messages: list[JSON]) -> None:
    messages[0] = user("edited")


def edit_answer(messages: list[JSON]) -> None:
    messages[1]["content"][1]["text"] = "no"


def drop_first_thinking(messages: list[JSON]) -> None:
    del messages[1]["content"][0]


def add_null_field(messages: list[JSON]) -> None:
    messages[1]["content"][1]["citations"] = None


@pytest.mark.parametrize("edit", [edit_first_user, edit_answer, drop_first_thinking, add_null_field])
def test_an_edit_before_thinking_is_refused(edit: Any) -> None:
    with thinker() as fake:
        messages = two_turns(fake)
        edit(messages)
        answer = send(fake.base_url, request(*messages))
    assert answer.status == 400
    assert "Invalid `signature` in `thinking` block. The block is bound to a different conversation" in answer.error


@pytest.mark.parametrize("change", [{"system": "new"}, {"tools": [TOOL]}, {"model": "claude-sonnet-5-5"}])
def test_new_instructions_tools_or_model_before_thinking_are_refused(change: JSON) -> None:
    with thinker() as fake:
        assert send(fake.base_url, request(*two_turns(fake), **change)).status == 400


def test_breakpoints_and_deferred_tools_do_not_unbind_thinking() -> None:
    with thinker() as fake:
        messages = two_turns(fake)
        messages[0] = user([txt("a", cache_control=MARK)])
        assert send(fake.base_url, request(*messages, tools=[{**TOOL, "defer_loading": True}])).status == 200


def test_all_thinking_may_be_stripped_outside_a_tool_loop() -> None:
    with thinker() as fake:
        messages = two_turns(fake)
        for message in messages[1::2]:
            message["content"] = [block for block in message["content"] if block["type"] != "thinking"]
        assert send(fake.base_url, request(*messages)).status == 200


def test_models_that_do_not_bind_check_only_the_text() -> None:
    with thinker() as fake:
        options = {"model": "claude-opus-4-6"}
        first = think(fake, request(user("a"), **options))
        assert send(fake.base_url, request(user("edited"), first, user(), **options)).status == 200
        first["content"][0]["thinking"] = "other"
        assert "Invalid `signature`" in send(fake.base_url, request(user("a"), first, user(), **options)).error


def test_drop_block_removes_and_reports_what_no_longer_fits() -> None:
    binding = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
    with thinker() as fake:
        messages = two_turns(fake)
        messages[2] = user("edited")
        answer = send(fake.base_url, request(*messages, thinking=binding), headers=BINDING)
        expected = {"type": "thinking_dropped", "path": "messages.3.content.0", "reason": "prefix_binding_mismatch"}
        assert answer.json()["input_transformations"] == [expected]
        messages = [*messages, {"role": "assistant", "content": answer.json()["content"]}, user()]
        again = send(fake.base_url, request(*messages, thinking=binding), headers=BINDING)
        assert again.json()["input_transformations"] == [expected]
        assert send(fake.base_url, request(*messages), headers=BINDING).status == 400


@pytest.mark.parametrize("spoil", [lambda blocks: blocks[1:], lambda blocks: [blocks[0], *blocks[2:]], lambda blocks: [{**blocks[0], "thinking": "x"}, *blocks[1:]]])  # fmt: skip
def test_thinking_in_an_open_tool_loop_cannot_be_changed(spoil: Any) -> None:
    with thinker(reply(thinking("hm"), redacted(), call("python", {}))) as fake:
        blocks = think(fake, request(tools=[TOOL]))["content"]
        results = user([result(blocks[2]["id"])])
        answer = send(fake.base_url, request(user(), assistant(*spoil(blocks)), results, tools=[TOOL]))
        assert answer.status == 400
        assert "blocks in the latest assistant message cannot be modified" in answer.error
        assert send(fake.base_url, request(user(), assistant(*blocks), results, tools=[TOOL])).status == 200
