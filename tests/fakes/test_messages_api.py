"""Tests of the fake on the wire: the SDK as client, streams, faults, and the server itself."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.fakes import replies
from tests.fakes.client import send
from tests.fakes.messages_api import (
    FakeMessagesAPI,
    Fault,
    Pace,
    Reply,
    call,
    extends,
    reply,
    server_call,
    text,
    thinking,
)

JSON = dict[str, Any]
OPUS = "claude-opus-5-5"
ROOT = Path(__file__).parents[2]
SHOWN = {"type": "adaptive", "display": "summarized"}


def request(content: object = "hi", **more: Any) -> JSON:
    return {"model": OPUS, "max_tokens": 100, "messages": [{"role": "user", "content": content}], **more}


@contextmanager
def sdk(fake: FakeMessagesAPI, **options: Any) -> Iterator[Any]:
    import httpx2
    from anthropic import Anthropic

    with httpx2.Client(trust_env=False, timeout=options.pop("timeout", 60)) as http_client:
        yield Anthropic(
            api_key="k", base_url=fake.base_url, http_client=http_client, max_retries=options.pop("max_retries", 0)
        )


def streamed(client: Any, **more: Any) -> Any:
    with client.messages.stream(**request(**more)) as stream:
        return stream.get_final_message()


def stream_bytes(answer: Reply, **more: Any) -> bytes:
    with FakeMessagesAPI([answer]) as fake:
        return send(fake.base_url, request(stream=True, **more)).raw


def frames(raw: bytes) -> list[JSON]:
    return [json.loads(line[6:]) for line in raw.decode().splitlines() if line.startswith("data: ")]


def test_the_sdk_streams_text() -> None:
    with FakeMessagesAPI([reply("Hello, wörld", delta_size_chars=3)]) as fake, sdk(fake) as client:
        with client.messages.stream(**request()) as stream:
            pieces = list(stream.text_stream)
        message = stream.get_final_message()
    assert pieces == ["Hel", "lo,", " wö", "rld"]
    assert (message.id, message.stop_reason, stream.request_id) == ("msg_0001", "end_turn", "req_0001")
    assert fake.requests[0].headers["authorization"] == "Bearer k"


def test_the_sdk_creates_without_a_stream() -> None:
    with FakeMessagesAPI(["Hello"]) as fake, sdk(fake) as client:
        message = client.messages.create(**request())
    assert (message.content[0].text, message._request_id) == ("Hello", "req_0001")


def test_a_tool_call_starts_with_an_empty_json_delta() -> None:
    script = [reply("Running.", call("python", {"code": "1+1"}), call("python", {}), delta_size_chars=5)]
    with FakeMessagesAPI(script) as fake, sdk(fake) as client:
        with client.messages.stream(**request()) as stream:
            partial = [event.partial_json for event in stream if event.type == "input_json"]
        message = stream.get_final_message()
    assert partial[0] == ""
    assert "".join(partial) == '{"code": "1+1"}'
    assert [block.id for block in message.content[1:]] == ["toolu_0001", "toolu_0002"]
    assert [block.input for block in message.content[1:]] == [{"code": "1+1"}, {}]
    assert message.stop_reason == "tool_use"


def test_the_sdk_can_send_thinking_back_but_not_edit_before_it() -> None:
    import anthropic

    script: list[Reply | str] = [reply(thinking("hm"), call("python", {"code": "1"})), "Two.", "never"]
    with FakeMessagesAPI(script) as fake, sdk(fake) as client:
        first = streamed(client, thinking=SHOWN)
        assert (first.content[0].thinking, bool(first.content[0].signature)) == ("hm", True)
        result = {"type": "tool_result", "tool_use_id": first.content[1].id, "content": "2"}
        rest = [{"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
        question = {"role": "user", "content": "hi"}
        streamed(client, thinking=SHOWN, messages=[question, *rest])
        with pytest.raises(anthropic.BadRequestError, match="bound to a different conversation"):
            streamed(client, thinking=SHOWN, messages=[{"role": "user", "content": "bye"}, *rest])
    assert extends(fake.requests[0].canonical, fake.requests[1].canonical) is None
    assert "block 0 differs" in str(extends(fake.requests[1].canonical, fake.requests[2].canonical))


def test_thinking_is_omitted_unless_summaries_are_asked_for() -> None:
    sent = frames(stream_bytes(reply(thinking("hm"), "x")))
    kinds = [event["delta"]["type"] for event in sent if event["type"] == "content_block_delta"]
    assert kinds == ["signature_delta", "text_delta"]


def test_server_tools_and_unknown_blocks_stream_complete() -> None:
    answer = reply(
        server_call("web_search", {"query": "x"}, [{"type": "web_search_result"}]), {"type": "hologram", "beam": 1}
    )
    started = [
        event["content_block"] for event in frames(stream_bytes(answer)) if event["type"] == "content_block_start"
    ]
    assert [block["type"] for block in started] == ["server_tool_use", "web_search_tool_result", "hologram"]
    assert started[1]["tool_use_id"] == started[0]["id"]


def test_a_script_may_be_a_function_and_may_run_out() -> None:
    with FakeMessagesAPI(lambda body: body["messages"][-1]["content"].upper()) as fake:
        assert send(fake.base_url, request("hi")).json()["content"] == [text("HI")]
        assert send(fake.base_url, request([text("hi")])).status == 500
    assert "AttributeError" in fake.problems[0]
    with FakeMessagesAPI([]) as fake:
        assert "no reply" in send(fake.base_url, request()).error
        fake.enqueue("late")
        assert send(fake.base_url, request()).status == 200


def test_a_script_may_wait_for_another_request() -> None:
    arrived = threading.Event()

    def script(body: JSON) -> str:
        if body["messages"][0]["content"] == "second":
            arrived.set()
        return "met" if arrived.wait(60) else "alone"

    with FakeMessagesAPI(script) as fake:
        first = threading.Thread(target=send, args=(fake.base_url, request("first")))
        first.start()
        assert send(fake.base_url, request("second")).json()["content"] == [text("met")]
        first.join()


def test_usage_fields_of_a_reply_override_the_computed_ones() -> None:
    with FakeMessagesAPI([reply("x", usage={"output_tokens": 7})]) as fake:
        assert send(fake.base_url, request()).json()["usage"]["output_tokens"] == 7


def test_tokens_are_counted_as_in_usage() -> None:
    with FakeMessagesAPI(["x"]) as fake, sdk(fake) as client:
        counted = client.messages.count_tokens(model=OPUS, messages=request()["messages"]).input_tokens
        assert client.messages.create(**request()).usage.input_tokens == counted
    assert (len(fake.count_requests), len(fake.requests)) == (1, 1)


def test_models_are_described_with_the_configured_window() -> None:
    with FakeMessagesAPI(window_tokens=5000) as fake, sdk(fake) as client:
        found = client.models.retrieve(OPUS)
        assert OPUS in [model.id for model in client.models.list()]
    assert (found.max_input_tokens, found.max_tokens, found.lifecycle) == (5000, 128_000, "active")
    assert found.capabilities.thinking.types.disabled.supported is False


def test_a_connection_serves_many_requests() -> None:
    with FakeMessagesAPI(["ok"], repeat=True) as fake:
        connection = http.client.HTTPConnection(urlsplit(fake.base_url).netloc, timeout=60)
        for streaming in (True, False, True):
            headers = {"x-api-key": "k", "anthropic-version": "2026-10-21"}
            connection.request("POST", "/v1/messages", json.dumps(request(stream=streaming)), headers)
            local = connection.sock.getsockname()
            assert connection.getresponse().read()
            assert connection.sock.getsockname() == local
        connection.close()


HTTP_FAULTS: list[tuple[Fault, int, str]] = [
    (replies.rate_limited(3), 429, "rate_limit_error"),
    (replies.overloaded(), 529, "overloaded_error"),
    (replies.http_error(500, "boom"), 500, "api_error"),
    (replies.http_error(400, "odd", error_type="special_error"), 400, "special_error"),
    (replies.too_large(), 413, "Request Entity Too Large"),
    (replies.bad_gateway(), 502, "<html>"),
    (replies.not_json(), 200, "upstream connect error"),
]


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize(("fault", "status", "words"), HTTP_FAULTS)
def test_http_faults_reach_the_client(fault: Fault, status: int, words: str, streaming: bool) -> None:
    with FakeMessagesAPI([reply("x", fault=fault)]) as fake:
        answer = send(fake.base_url, request(stream=streaming))
    assert (answer.status, words in answer.raw.decode()) == (status, True)
    assert answer.headers.get("retry-after") == ("3" if status == 429 else None)
    assert answer.headers["request-id"] == "req_0001"


def test_a_reply_comes_after_its_failing_attempts() -> None:
    soon = replies.http_error(429, headers={"retry-after-ms": "1"}, attempts=2)
    with FakeMessagesAPI([reply("at last", fault=soon), "next"]) as fake:
        with sdk(fake, max_retries=2) as client:
            assert client.messages.create(**request()).content[0].text == "at last"
            assert client.messages.create(**request()).content[0].text == "next"
    assert len(fake.requests) == 4


LONG = "one two three four five six"


def long(fault: Fault, **options: Any) -> Reply:
    return reply(LONG, fault=fault, delta_size_chars=4, **options)


def test_a_cut_stream_has_the_deltas_asked_for() -> None:
    sent = frames(stream_bytes(long(replies.eof(after=2))))
    assert [event["type"] for event in sent].count("content_block_delta") == 2
    assert sent[-1]["type"] == "content_block_delta"


def test_a_stop_reason_of_none_ends_without_message_stop() -> None:
    assert frames(stream_bytes(reply("x", stop_reason=None)))[-1]["type"] == "content_block_stop"


def test_error_events_come_first_or_in_the_middle() -> None:
    middle = frames(stream_bytes(long(replies.error_event(after=2))))
    assert middle[-1] == {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    assert middle[-2]["delta"]["text"] == "two "
    assert [event["type"] for event in frames(stream_bytes(long(replies.first_error_event())))] == ["error"]


def test_frames_can_be_malformed_nameless_unknown_or_many() -> None:
    assert b'"del\n\n' in stream_bytes(long(replies.malformed_frame()))
    nameless = stream_bytes(long(replies.no_event_line())).split(b"\n\n")
    assert next(chunk for chunk in nameless if chunk.startswith(b"data:")).endswith(b'"text":"two "}}')
    assert stream_bytes(long(replies.ping_flood(30))).count(b"event: ping") == 31
    assert b"event: weather_report" in stream_bytes(long(replies.unknown_event()))
    assert b'"mood_delta"' in stream_bytes(long(replies.unknown_delta()))
    assert b'"stop_reason":"bored"' in stream_bytes(reply("x", stop_reason="bored"))
    assert stream_bytes(long(replies.empty_stream())) == b""


def test_crlf_replaces_every_line_end() -> None:
    raw = stream_bytes(long(replies.crlf()))
    assert raw.count(b"\r\n") == raw.count(b"\n") > 0


def test_usage_can_be_missing_or_short() -> None:
    assert "usage" not in frames(stream_bytes(long(replies.no_usage())))[-2]
    assert "input_tokens" not in frames(stream_bytes(long(replies.output_usage_only())))[-2]["usage"]
    assert "input_tokens" in frames(stream_bytes(reply("x")))[-2]["usage"]


def test_tool_json_is_cut_by_max_tokens() -> None:
    sent = frames(
        stream_bytes(reply(call("write", {"path": "/a", "text": "b"}), fault=replies.cut_tool_json(after=20)))
    )
    partial = [event["delta"]["partial_json"] for event in sent if event["type"] == "content_block_delta"]
    assert "".join(partial) == '{"path": "/a", "text'
    assert sent[-2]["delta"]["stop_reason"] == "max_tokens"


@pytest.mark.parametrize(
    "fault", [replies.crlf(), replies.split_bytes(3), replies.unknown_event(), replies.ping_flood()]
)
def test_the_sdk_survives_odd_framing(fault: Fault) -> None:
    with FakeMessagesAPI([reply("grün 🙂 done", fault=fault, delta_size_chars=2)]) as fake, sdk(fake) as client:
        assert streamed(client).content[0].text == "grün 🙂 done"


def test_the_sdk_takes_a_clean_end_for_a_message_without_stop_reason() -> None:
    with FakeMessagesAPI([long(replies.eof(after=2))]) as fake, sdk(fake) as client:
        message = streamed(client)
    assert (message.content[0].text, message.stop_reason) == ("one two ", None)


def sdk_failure(answer: Reply, **options: Any) -> Exception:
    with FakeMessagesAPI([answer]) as fake, sdk(fake, **options) as client:
        with pytest.raises(Exception) as caught:
            streamed(client)
    return caught.value


def test_the_sdk_sees_resets_stalls_and_error_events() -> None:
    assert type(sdk_failure(long(replies.reset(after=2)))).__name__ in ("ReadError", "RemoteProtocolError")
    # The first waits so long that its head has come, also on a slow machine; of the second none ever does.
    assert type(sdk_failure(long(replies.stall(3_600, after=2)), timeout=4)).__name__ == "ReadTimeout"
    never = reply("x", fault=replies.stall_before_headers(3_600))
    assert type(sdk_failure(never, timeout=0.2)).__name__ == "APITimeoutError"
    assert getattr(sdk_failure(long(replies.error_event())), "type", None) == "overloaded_error"
    assert isinstance(sdk_failure(long(replies.malformed_frame())), json.JSONDecodeError)


@pytest.mark.parametrize("fault", [replies.reset(), replies.eof()])
def test_an_answer_without_stream_breaks_too(fault: Fault) -> None:
    with FakeMessagesAPI([reply(LONG, fault=fault)]) as fake:
        try:
            raw = send(fake.base_url, request()).raw
        except ConnectionError:
            return
    with pytest.raises(json.JSONDecodeError):
        json.loads(raw)


def test_stalls_and_delays_last_as_asked_and_stopping_ends_them() -> None:
    def seconds(answer: Reply) -> float:
        start = time.monotonic()
        stream_bytes(answer)
        return time.monotonic() - start

    assert seconds(long(replies.stall(0.1))) >= 0.1
    assert seconds(reply("abcd", delta_size_chars=1, delta_delay_s=0.03)) >= 0.1
    with FakeMessagesAPI([reply("x", fault=replies.stall_before_headers(3_600))]) as fake:
        thread = threading.Thread(target=_send_quietly, args=(fake.base_url,))
        thread.start()
        while not fake.requests:
            time.sleep(0.005)
    thread.join(60)
    assert not thread.is_alive()


def test_a_pace_holds_an_answer_back_until_it_is_let_come() -> None:
    pace, came = Pace(2), []
    with FakeMessagesAPI([reply("abcdef", delta_size_chars=1, pace=pace)]) as fake, sdk(fake) as client:
        with client.messages.stream(**request()) as stream:
            for text in stream.text_stream:
                came.append(text)
                if "".join(came) == "ab":
                    pace.more(2)
                if "".join(came) == "abcd":
                    pace.finish()
    assert "".join(came) == "abcdef"


def test_a_paced_answer_that_nobody_waits_for_ends() -> None:
    with FakeMessagesAPI([reply("abcdef", delta_size_chars=1, pace=Pace(2))]) as fake:
        with sdk(fake) as client, client.messages.stream(**request()) as stream:
            next(iter(stream.text_stream))
        while fake._server.connections:  # how many clients it serves cannot be seen from outside
            time.sleep(0.005)


def _send_quietly(base_url: str) -> None:
    with pytest.raises((ConnectionError, http.client.HTTPException)):
        send(base_url, request())


@pytest.mark.parametrize(
    ("following", "words"),
    [
        (lambda body: body, None),
        (lambda body: {**body, "messages": [*body["messages"], {"role": "user", "content": "more"}]}, None),
        (lambda body: {**body, "cache_control": {"type": "ephemeral"}}, None),
        (lambda body: {**body, "messages": [{"role": "user", "content": [text("hi")]}]}, None),
        (lambda body: {**body, "messages": [{"role": "user", "content": "ho"}]}, "user"),
        (lambda body: {**body, "system": "be brief"}, "block 0 differs"),
        (lambda body: {**body, "messages": []}, "block 0 is gone"),
    ],
)
def test_extends_names_the_first_difference(following: Callable[[JSON], JSON], words: str | None) -> None:
    difference = extends(request(), following(request()))
    assert difference is None if words is None else words in str(difference)


def test_the_process_serves_a_script_file_and_shows_its_requests(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps(["one", {"blocks": [call("python", {})], "fault": {"kind": "crlf"}}]))
    command = [sys.executable, "-m", "tests.fakes.messages_api", "--port", "0", "--script", str(script), "--repeat"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        try:
            answers = [send(url, request()).json() for _ in range(3)]
            seen = send(url, path="/_requests", method="GET").json()
        finally:
            process.terminate()
    assert [answer["content"][0]["type"] for answer in answers] == ["text", "tool_use", "text"]
    assert (len(seen), seen[0]["body"], seen[0]["refusal"]) == (3, request(), None)


def test_a_script_file_with_an_unknown_field_is_an_error() -> None:
    with pytest.raises(ValueError, match="unknown fields"):
        replies.reply_from_json({"blocks": [], "speed": 1})
    with pytest.raises(ValueError, match="fault kind 'flood' is unknown"):
        replies.reply_from_json({"fault": {"kind": "flood"}})
