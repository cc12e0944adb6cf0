"""AnthropicModel against the wire fake: failures, waits, credentials, facts, platforms."""

from __future__ import annotations

import asyncio
import atexit
import gc
import json
import socket
from collections.abc import Callable, Coroutine, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import pytest

from nbagent.core.errors import MissingKey, ModelFailed, UsageProblem
from nbagent.core.messages import Message, Prefix, Request, Response, text_block
from nbagent.models.anthropic import READ_TIMEOUT_S, AnthropicModel
from nbagent.models.anthropic_body import request_bytes
from nbagent.models.anthropic_failures import retry_after
from nbagent.models.catalog import lookup
from nbagent.models.credentials import has_credentials
from nbagent.models.model import Watch
from nbagent.models.network import is_loopback
from nbagent.models.registry import check_known, open_model, with_endpoint_facts
from nbagent.models.reply import ReplyBuilder
from tests.fakes import replies
from tests.fakes.messages_api import FakeMessagesAPI, Fault, call, reply, thinking
from tests.fakes.ways import both_ways  # noqa: F401
from tests.patience import FOREVER_S, LeapLoop

T = TypeVar("T")
MODEL = "claude-sonnet-5-5"
PREFIX = Prefix(system=(text_block("You are an agent."),), tools=())


def request(text: str = "hi", model: str = MODEL, **more: Any) -> Request:
    return Request(model=model, max_tokens=100, prefix=PREFIX, messages=(Message("user", (text_block(text),)),), **more)


class Caller:
    """One AnthropicModel, and what a watcher saw of its calls. Where an answer of `stalls` does, the time is over."""

    def __init__(
        self, base_url: str, environ: Mapping[str, str] | None = None, stalls: FakeMessagesAPI | None = None, **options: Any
    ) -> None:
        self._stalls = stalls
        self.waits: list[tuple[str, float, int]] = []
        self.slept: list[float] = []
        self.texts: list[str] = []
        own = {"ANTHROPIC_API_KEY": "k", "HOME": "/nowhere"} if environ is None else environ
        self.model = AnthropicModel(environ=own, base_url=base_url, **{"sleep": self._sleep, **options})

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    def watch(self, model: str = MODEL) -> Watch:
        return Watch(
            reply=ReplyBuilder(model), on_text=lambda i, t: self.texts.append(t),
            on_wait=lambda reason, s, n: self.waits.append((reason, s, n)),
        )  # fmt: skip

    def __call__(self, sent: Request | None = None) -> Response:
        return self.ask(self.model.call(sent or request(), self.watch()))

    def ask(self, work: Coroutine[Any, Any, T]) -> T:
        async def once() -> T:
            try:
                return await work
            finally:
                await self.model.close()

        with asyncio.Runner(loop_factory=LeapLoop) as runner:
            loop = runner.get_loop()
            assert isinstance(loop, LeapLoop)
            if self._stalls is not None:
                loop.leap_over_stalls(self._stalls, READ_TIMEOUT_S + 1)
            return runner.run(once())


def failed(response: Response) -> ModelFailed:
    assert isinstance(response.error, ModelFailed)
    return response.error


@cache
def dead_port() -> int:
    """Take a port, for good, and let nobody listen there."""
    held = socket.socket()
    held.bind(("127.0.0.1", 0))
    atexit.register(held.close)
    return int(held.getsockname()[1])


# ------------------------------------------------------------ statuses


def gateway_says(body: str) -> Fault:
    """An error as gateways word it, in JSON of their own."""
    return replies.http_error(400, headers={"content-type": "application/json"}, body=body)


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        (replies.http_error(400, "messages: no"), "invalid_request", "HTTP 400: messages: no"),
        (gateway_says('{"error": "no such deployment"}'), "invalid_request", "HTTP 400: no such deployment"),
        (gateway_says('{"message": "no such deployment"}'), "invalid_request", "HTTP 400: no such deployment"),
        (gateway_says('{"detail": [{"loc": ["body"], "msg": "a field is missing"}]}'), "invalid_request", "a field is missing"),
        (gateway_says('{"errors": [], "error": {"message": null}}'), "invalid_request", "(HTTP 400)"),
        (gateway_says('["no", "object"]'), "invalid_request", "(HTTP 400"),
        (replies.http_error(401), "auth", "ANTHROPIC_API_KEY"),
        (replies.http_error(402), "billing", "billing page"),
        (replies.http_error(403), "permission", "may not"),
        (replies.http_error(404), "not_found", "%agent model NAME"),
        (replies.too_large(), "too_large", "%context compact"),
        (replies.http_error(400, "prompt is too long: 208380 tokens > 200000 maximum"), "overflow", "%context compact"),
        (replies.http_error(429, "Your monthly spend limit is reached."), "rate_limit", "spend"),
        (replies.http_error(500, "no", headers={"x-should-retry": "false"}), "server", "HTTP 500"),
    ],
)
def test_a_refusal_that_waiting_cannot_cure_ends_at_once_with_a_useful_line(
    make_fake: Callable[..., FakeMessagesAPI], fault: Fault, kind: str, words: str
) -> None:
    fake = make_fake(reply(fault=fault))
    caller = Caller(fake.base_url)
    error = failed(caller())
    assert (error.kind, error.retryable, len(fake.requests), caller.slept) == (kind, False, 1, [])
    assert words in str(error)


@pytest.mark.parametrize(
    ("fault", "kind", "waits"),
    [
        (replies.rate_limited(2, attempts=1), "rate_limit", [2.0]),
        (replies.overloaded(attempts=2), "overloaded", [0.5, 1.0]),
        (replies.http_error(500, "oops", attempts=1), "server", [0.5]),
        (replies.http_error(502, body="<html>Bad Gateway</html>", attempts=1), "server", [0.5]),
        (replies.http_error(400, "try", headers={"x-should-retry": "true"}, attempts=1), "invalid_request", [0.5]),
    ],
)
def test_what_waiting_cures_is_tried_again_visibly(
    make_fake: Callable[..., FakeMessagesAPI], fault: Fault, kind: str, waits: list[float]
) -> None:
    caller = Caller(make_fake(reply("ok", fault=fault)).base_url)
    response = caller()
    assert (response.cut, response.error, response.blocks) == (None, None, (text_block("ok"),))
    assert caller.slept == waits
    assert [(s, n) for _, s, n in caller.waits] == [(s, n) for n, s in enumerate(waits, 1)]


def test_a_retried_request_is_the_same_bytes(make_fake: Callable[..., FakeMessagesAPI]) -> None:
    """openclaw.md 146: the person's message is there once."""
    fake = make_fake(reply("ok", fault=replies.overloaded(attempts=3)))
    Caller(fake.base_url)()
    assert len({r.raw for r in fake.requests}) == 1
    assert [len(r.body["messages"]) for r in fake.requests] == [1, 1, 1, 1]


def test_the_tries_are_bounded(make_fake: Callable[..., FakeMessagesAPI]) -> None:
    fake = make_fake(reply(fault=replies.overloaded()), repeat=True)
    caller = Caller(fake.base_url)
    error = failed(caller())
    assert (len(fake.requests), caller.slept) == (5, [0.5, 1.0, 2.0, 4.0])
    assert "overloaded" in str(error)
    assert "tried 5 times" in str(error)


def test_a_long_retry_after_is_not_slept_through(make_fake: Callable[..., FakeMessagesAPI]) -> None:
    """claude.md 77."""
    caller = Caller(make_fake(reply(fault=replies.rate_limited(86400))).base_url)
    error = failed(caller())
    assert caller.slept == []
    assert "86400 s" in str(error)
    assert "%agent resume" in str(error)
    assert error.retry_after_s == 86400


def test_a_wait_can_be_cancelled_at_once(make_fake: Callable[..., FakeMessagesAPI]) -> None:
    """claude.md 77: the wait can be interrupted."""
    fake = make_fake(reply(fault=replies.rate_limited(30)))

    async def without_end(seconds: float) -> None:
        await asyncio.Event().wait()

    caller = Caller(fake.base_url, sleep=without_end)
    waiting = asyncio.Event()

    async def stop_soon() -> None:
        watch = caller.watch()
        watch.on_wait = lambda *args: waiting.set()
        task = asyncio.ensure_future(caller.model.call(request(), watch))
        await waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    caller.ask(stop_soon())
    assert len(fake.requests) == 1


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
        ({"retry-after": "Sun, 29 Nov 2026 10:00:30 GMT", "date": "Sun, 29 Nov 2026 10:00:00 GMT"}, 30.0),
        ({"retry-after": "Sun, 29 Nov 2026 10:00:30 GMT"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "inf"}, float("inf")),
        ({}, None),
    ],
)
def test_retry_after_is_read_in_all_its_forms(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds


# ------------------------------------------------------------ connections


def test_a_refused_connection_is_tried_again_and_then_told() -> None:
    caller = Caller(f"http://127.0.0.1:{dead_port()}", max_tries=2)
    error = failed(caller())
    assert (error.kind, caller.slept) == ("connection", [0.5])
    assert "base_url" in str(error)


def test_a_stall_before_the_headers_is_tried_again(make_fake: Callable[..., FakeMessagesAPI]) -> None:
    fake = make_fake(reply("late", fault=replies.stall_before_headers(FOREVER_S)), "ok")
    caller = Caller(fake.base_url, stalls=fake)
    assert caller().blocks == (text_block("ok"),)
    assert "did not answer in time" in caller.waits[0][0]


@pytest.mark.parametrize(
    ("fault", "kind", "cut"),
    [
        (replies.stall(FOREVER_S), "timeout", "the provider stopped sending"),
        (replies.reset(), "connection", "the connection broke"),
        (replies.error_event(after=3), "overloaded", "the provider was overloaded"),
        (replies.malformed_frame(), "protocol", "the provider failed"),
    ],
)
def test_what_came_before_a_break_is_kept_and_not_asked_for_again(
    make_fake: Callable[..., FakeMessagesAPI], fault: Fault, kind: str, cut: str
) -> None:
    """claude.md 76: never a success, never HTTP 200."""
    fake = make_fake(reply("0123456789" * 10, fault=fault, delta_size_chars=10))
    caller = Caller(fake.base_url, stalls=fake)
    response = caller()
    assert (failed(response).kind, response.cut, len(fake.requests)) == (kind, cut, 1)
    assert "".join(caller.texts).startswith("0123456789")
    assert response.blocks[0]["text"] == "".join(caller.texts)
    assert "200" not in str(response.error)


def test_a_stream_that_just_ends_is_marked(make_fake: Callable[..., FakeMessagesAPI]) -> None:
    response = Caller(make_fake(reply("0123456789" * 5, fault=replies.eof(after=2))).base_url)()
    assert (response.cut, response.stop_reason, response.error) == ("the stream ended early", None, None)
    assert response.blocks[0]["text"]


@pytest.mark.parametrize(
    "fault",
    [replies.first_error_event(), replies.empty_stream(), replies.not_json()],
    ids=["error event", "nothing", "no json"],
)
def test_an_answer_without_a_reply_is_tried_again(make_fake: Callable[..., FakeMessagesAPI], fault: Fault) -> None:
    fake = make_fake(reply(fault=fault), "ok")
    caller = Caller(fake.base_url)
    assert caller().blocks == (text_block("ok"),)
    assert len(caller.waits) == 1


def test_an_answer_that_is_no_reply_is_quoted(make_fake: Callable[..., FakeMessagesAPI]) -> None:
    caller = Caller(make_fake(reply(fault=replies.not_json("<h1>Log in to Wi-Fi</h1>"))).base_url, max_tries=1)
    assert "'<h1>Log in to Wi-Fi</h1>'; check base_url" in str(failed(caller()))


@pytest.mark.parametrize(
    "fault",
    [
        replies.no_event_line(), replies.ping_flood(500), replies.crlf(), replies.split_bytes(3), replies.no_usage(),
        replies.output_usage_only(), replies.unknown_event(), replies.unknown_delta(),
    ],
    ids=lambda fault: fault.kind,
)  # fmt: skip
def test_what_is_odd_but_legal_changes_nothing(make_fake: Callable[..., FakeMessagesAPI], fault: Fault) -> None:
    """claude.md 79: nothing raises, no warning (warnings are errors here)."""
    said = reply(thinking("hm"), "naïve 漢字 😀 " * 6, call("python", {"code": "é"}), fault=fault, delta_size_chars=4)
    response = Caller(make_fake(said).base_url)(request(options={"thinking": {"type": "adaptive", "display": "summarized"}}))
    assert (response.cut, response.stop_reason) == (None, "tool_use")
    assert [b["type"] for b in response.blocks] == ["thinking", "text", "tool_use"]
    assert response.blocks[1]["text"] == "naïve 漢字 😀 " * 6
    assert response.blocks[2]["input"] == {"code": "é"}
    assert response.usage["input_tokens"] > 0


def test_a_cancelled_call_closes_its_connection_and_leaves_what_came(make_fake: Callable[..., FakeMessagesAPI]) -> None:
    fake = make_fake(reply("0123456789" * 10, fault=replies.stall(FOREVER_S, after=3), delta_size_chars=10))
    caller = Caller(fake.base_url)

    async def stop() -> tuple[Response, int]:
        watch, came = caller.watch(), asyncio.Event()
        watch.on_text = lambda i, t: came.set()
        task = asyncio.ensure_future(caller.model.call(request(), watch))
        await came.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        pool = caller.model._client._client._transport._pool  # type: ignore[union-attr]  # no public way to see it
        return watch.reply.response(cut="stopped"), len(pool.connections)

    response, connections = caller.ask(stop())
    assert connections == 0
    assert str(response.blocks[0]["text"]).startswith("0123456789")


def test_a_dead_proxy_does_not_hide_a_loopback_service(
    make_fake: Callable[..., FakeMessagesAPI], monkeypatch: pytest.MonkeyPatch
) -> None:
    """claude.md 83."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{dead_port()}")
    assert Caller(make_fake("ok").base_url)().blocks == (text_block("ok"),)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the first loop left its connection
def test_one_model_serves_one_event_loop_after_another(make_fake: Callable[..., FakeMessagesAPI]) -> None:
    caller = Caller(make_fake("one", "two").base_url)
    first = asyncio.run(caller.model.call(request(), caller.watch()))
    second = caller()
    gc.collect()
    assert [first.blocks[0]["text"], second.blocks[0]["text"]] == ["one", "two"]


def test_a_whole_message_in_place_of_a_stream_is_taken(make_fake: Callable[..., FakeMessagesAPI]) -> None:
    """Gateways that ignore `stream`."""
    answer = {"id": "m", "type": "message", "role": "assistant", "model": MODEL, "content": [text_block("all at once")],
              "stop_reason": "end_turn", "usage": {"input_tokens": 3, "output_tokens": 4}}  # fmt: skip
    fault = replies.http_error(200, headers={"content-type": "application/json"}, body=json.dumps(answer))
    caller = Caller(make_fake(reply(fault=fault)).base_url)
    response = caller()
    assert (response.blocks, response.stop_reason, caller.texts) == ((text_block("all at once"),), "end_turn", ["all at once"])


@pytest.mark.parametrize("body", ['{"ok": true}', "[]", "{"])
def test_json_that_is_no_message_is_told(make_fake: Callable[..., FakeMessagesAPI], body: str) -> None:
    fault = replies.http_error(200, headers={"content-type": "application/json"}, body=body)
    assert "cannot be read" in str(failed(Caller(make_fake(reply(fault=fault)).base_url)()))


def test_json_with_an_error_under_200_is_that_error(make_fake: Callable[..., FakeMessagesAPI]) -> None:
    body = json.dumps({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})
    fault = replies.http_error(200, headers={"content-type": "application/json"}, body=body)
    caller = Caller(make_fake(reply(fault=fault), "ok").base_url)
    assert caller().blocks == (text_block("ok"),)
    assert "overloaded" in caller.waits[0][0].lower()


# ------------------------------------------------------------ credentials


def test_without_a_key_nothing_is_sent(make_fake: Callable[..., FakeMessagesAPI], tmp_path: Path) -> None:
    fake = make_fake()
    model = AnthropicModel(environ={"HOME": str(tmp_path), "ANTHROPIC_API_KEY": ""}, base_url=fake.base_url)
    with pytest.raises(MissingKey, match="ANTHROPIC_API_KEY is not set"):
        model.check_ready()
    assert fake.requests == []


KEY = "sk-ant-api03-" + "aB3" * 12


@pytest.mark.parametrize("name", ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"])
@pytest.mark.parametrize("around", ["{}\n", " {} ", "{}\r\n", "\t{}"])
def test_a_key_is_sent_without_what_stands_around_it(fake: FakeMessagesAPI, name: str, around: str) -> None:
    fake.enqueue("hello")
    caller = Caller(fake.base_url, {name: around.format(KEY), "HOME": "/nowhere"})
    caller.model.check_ready()
    assert caller().blocks[0]["text"] == "hello"
    assert KEY in fake.requests[0].headers.get("x-api-key", "") + fake.requests[0].headers.get("authorization", "")


@pytest.mark.parametrize("inside", ["{}\n{}", "{}\u200b{}", "{} {}", "{}\u2013{}"])
def test_a_key_that_cannot_be_sent_is_refused_before_a_request_and_not_shown(
    fake: FakeMessagesAPI, inside: str
) -> None:
    key = inside.format(KEY, KEY)
    caller = Caller(fake.base_url, {"ANTHROPIC_API_KEY": key, "HOME": "/nowhere"})
    with pytest.raises(MissingKey, match="ANTHROPIC_API_KEY holds a blank") as caught:
        caller.model.check_ready()
    assert "sk-ant" not in str(caught.value)
    assert "sk-ant" not in str(failed(caller()))
    assert (fake.requests, caller.waits) == ([], [])


def test_a_header_that_cannot_be_sent_is_no_reason_to_try_again_and_is_not_quoted(fake: FakeMessagesAPI) -> None:
    import anthropic

    for key in ({"api_key": f"{KEY}\n"}, {"auth_token": f"{KEY}\n"}):
        client = anthropic.AsyncAnthropic(**key, base_url=fake.base_url, max_retries=0)
        caller = Caller(fake.base_url, client=client)
        error = failed(caller())
        assert "a header of the request holds a character that cannot stand there" in str(error)
        assert "sk-ant" not in str(error)
        assert (error.retryable, caller.waits, fake.requests) == (False, [], [])


def test_a_blank_key_is_none(tmp_path: Path) -> None:
    assert not has_credentials({"ANTHROPIC_API_KEY": " \n", "HOME": str(tmp_path)})


def test_offline_forbids_the_world_and_allows_this_machine(make_fake: Callable[..., FakeMessagesAPI]) -> None:
    environ = {"ANTHROPIC_API_KEY": "k", "NBAGENT_OFFLINE": "1", "HOME": "/nowhere"}
    for base_url in (None, "https://example.org"):
        with pytest.raises(MissingKey, match="NBAGENT_OFFLINE"):
            AnthropicModel(environ=environ, base_url=base_url).check_ready()
    AnthropicModel(environ=environ, base_url=make_fake().base_url).check_ready()


def test_a_profile_on_disk_is_a_credential(tmp_path: Path) -> None:
    assert not has_credentials({"HOME": str(tmp_path)})
    (tmp_path / ".config" / "anthropic" / "configs").mkdir(parents=True)
    assert has_credentials({"HOME": str(tmp_path)})


@pytest.mark.parametrize(
    ("url", "here"),
    [("http://127.0.0.1:1", True), ("http://localhost", True), ("http://[::1]:8", True), ("https://127.evil.org", False),
     ("https://api.anthropic.com", False), (None, False), ("", False)],
)  # fmt: skip
def test_loopback_is_told_by_address(url: str | None, here: bool) -> None:
    assert is_loopback(url) is here


# ------------------------------------------------------------ bytes


def test_marks_are_spliced_in_and_the_rest_are_the_stored_bytes() -> None:
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    messages = (
        Message("user", (text_block("é"),)), Message("assistant", (text_block("a"), thought)), Message("user", (text_block("b"),)),
    )  # fmt: skip
    sent = Request(model=MODEL, max_tokens=5, prefix=PREFIX, messages=messages, breakpoints=(1, 2))
    body = json.loads(request_bytes(sent))
    mark = {"cache_control": {"type": "ephemeral"}}
    assert body["system"] == [text_block("You are an agent.") | mark]
    assert body["messages"][1]["content"] == [text_block("a") | mark, thought]  # thinking takes no mark
    assert body["messages"][2]["content"] == [text_block("b") | mark]
    assert messages[0].to_bytes() in request_bytes(sent)
    assert request_bytes(sent) == request_bytes(sent)


# ------------------------------------------------------------ facts


def test_the_endpoint_tells_limits_and_the_table_prices(make_fake: Callable[..., FakeMessagesAPI]) -> None:
    caller = Caller(make_fake(window_tokens=123_456).base_url)
    facts = caller.ask(caller.model.facts(MODEL))
    assert facts is not None
    assert (facts.window_tokens, facts.max_output_tokens, facts.known) == (123_456, 128_000, True)
    assert facts.prices == lookup(MODEL).prices


def test_a_name_that_nobody_knows_is_refused_with_near_ones(make_fake: Callable[..., FakeMessagesAPI]) -> None:
    caller = Caller(make_fake().base_url)
    with pytest.raises(UsageProblem, match=r"unknown model 'claude-sonet-5-5'; near it: claude-sonnet-5-5"):
        caller.ask(caller.model.facts("claude-sonet-5-5"))


def test_an_endpoint_that_cannot_be_asked_tells_nothing() -> None:
    caller = Caller(f"http://127.0.0.1:{dead_port()}")
    assert caller.ask(caller.model.facts("claude-sonet-5-5")) is None


@pytest.mark.parametrize("base_url", [None, "http://127.0.0.1:9"])
def test_an_unknown_name_may_be_one_behind_another_address_only(base_url: str | None, tmp_path: Path) -> None:
    named = open_model("my-model", environ={"ANTHROPIC_API_KEY": "k"}, base_url=base_url, folder=tmp_path)
    if base_url:
        check_known(named, base_url=base_url)
        return
    with pytest.raises(UsageProblem, match="unknown model 'my-model'"):
        check_known(named, base_url=base_url)


def test_a_model_newer_than_the_table_is_known_once_the_endpoint_tells_of_it(tmp_path: Path) -> None:
    told = {
        "id": "claude-next-9", "max_input_tokens": 2_000_000, "max_tokens": 1000,
        "capabilities": {"image_input": {"supported": True}, "thinking": {"types": {"adaptive": {"supported": True}}}},
    }  # fmt: skip

    class Client:
        async def get(self, path: str, *, cast_to: object) -> object:
            assert path == "/v1/models/claude-next-9"
            return told

    named = open_model("claude-next-9", environ={"ANTHROPIC_API_KEY": "k"}, base_url=None, folder=tmp_path)
    assert isinstance(named.model, AnthropicModel)
    named.model._given = Client()  # type: ignore[assignment]  # opened by name, so there is no argument for it
    known = asyncio.run(with_endpoint_facts(named))
    check_known(known, base_url=None)
    facts = known.facts
    assert (facts.window_tokens, facts.max_output_tokens, facts.thinking) == (2_000_000, 1000, "adaptive")
    assert (facts.sees_images, facts.accepts_effort, facts.prices, facts.binds_thinking) == (True, False, None, True)


# ------------------------------------------------------------ Bedrock and Vertex (DECISIONS 15)


class StubStream:
    """What the SDK's stream is to us: events, and a way to close it."""

    def __init__(self, events: list[dict[str, Any]]) -> None:
        self.events = events
        self.closed = False

    async def __aiter__(self) -> Any:
        for event in self.events:
            yield event

    async def close(self) -> None:
        self.closed = True


class StubClient:
    """A client of a platform: it takes an object, since it rewrites and signs it."""

    def __init__(self, events: list[dict[str, Any]]) -> None:
        self.stream = StubStream(events)
        self.sent: list[dict[str, Any]] = []

    async def post(self, path: str, *, body: dict[str, Any], **options: Any) -> StubStream:
        assert (path, options["stream"]) == ("/v1/messages", True)
        self.sent.append(body)
        return self.stream


EVENTS = [
    {"type": "message_start", "message": {"id": "x", "usage": {"input_tokens": 3}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hello"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
    {"type": "message_stop"},
]


@pytest.mark.parametrize(
    ("name", "own"),
    [("bedrock:us.anthropic.claude-sonnet-5-5-v1:0", "us.anthropic.claude-sonnet-5-5-v1:0"), ("vertex:claude-opus-5-5@20260922", "claude-opus-5-5@20260922")],
)
def test_a_platform_gets_an_object_with_its_own_name_of_the_model(name: str, own: str) -> None:
    client = StubClient(EVENTS)
    platform: Any = name.split(":")[0]
    model = AnthropicModel(environ={}, client=client, platform=platform)  # type: ignore[arg-type]
    model.check_ready()
    response = asyncio.run(model.call(request(model=name), Watch(reply=ReplyBuilder(name))))
    assert (response.blocks, response.stop_reason, response.cut) == ((text_block("hello"),), "end_turn", None)
    assert client.sent == [json.loads(request_bytes(request(model=own)))]
    assert client.stream.closed


def test_an_error_in_the_stream_of_a_platform_is_no_success() -> None:
    import anthropic
    import httpx2

    class Failing(StubStream):
        async def __aiter__(self) -> Any:
            for event in self.events[:3]:
                yield event
            body = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
            answer = httpx2.Response(200, request=httpx2.Request("POST", "http://x"))
            raise anthropic.APIStatusError("Overloaded", response=answer, body=body)

    client = StubClient(EVENTS)
    client.stream = Failing(EVENTS)
    model = AnthropicModel(environ={}, client=client, platform="bedrock")  # type: ignore[arg-type]
    response = asyncio.run(model.call(request(model="bedrock:x"), Watch(reply=ReplyBuilder("x"))))
    assert (failed(response).kind, response.blocks) == ("overloaded", (text_block("hello"),))
    assert "200" not in str(response.error)
    assert client.stream.closed


@pytest.mark.parametrize(("name", "package"), [("bedrock:m", "boto3"), ("vertex:m", "google.auth")])
def test_a_missing_library_of_a_platform_is_one_line(
    name: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    named = open_model(name, environ={}, base_url=None, folder=tmp_path)
    with pytest.raises(MissingKey, match=rf"package {package}: run `%pip install 'anthropic\["):
        named.model.check_ready()


def test_a_platform_that_cannot_be_opened_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "CLOUD_ML_REGION"):
        monkeypatch.delenv(variable, raising=False)
    model = AnthropicModel(environ={}, platform="vertex")
    error = failed(asyncio.run(model.call(request(model="vertex:m"), Watch(reply=ReplyBuilder("m")))))
    assert "the client of vertex cannot be opened: No region was given" in str(error)


def test_facts_of_a_platform_come_from_the_table(tmp_path: Path) -> None:
    named = open_model("bedrock:us.anthropic.claude-opus-5-5-v1:0", environ={}, base_url=None, folder=tmp_path)
    assert named.facts.model == "claude-opus-5-5"
    assert asyncio.run(with_endpoint_facts(named)) is named
    check_known(open_model("bedrock:arn:aws:x", environ={}, base_url=None, folder=tmp_path), base_url=None)


@pytest.mark.parametrize("name", ["", "  ", "bedrock:", "vertex:"])
def test_an_empty_name_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match="is empty"):
        open_model(name, environ={}, base_url=None, folder=tmp_path)
