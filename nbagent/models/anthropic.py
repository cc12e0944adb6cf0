"""The Anthropic Messages API, through the official SDK's client.

The client carries credentials, headers and connections; the body is the stored bytes of the
conversation, joined, and the event lines are read here, since both are cheaper so (measured:
`benchmarks/`). Waiting and trying again are ours, so that they are seen, bounded and stoppable.
"""

from __future__ import annotations

import asyncio
import importlib
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from nbagent.core.errors import MissingKey, ModelFailed, one_line
from nbagent.core.messages import Message, Request, Response, canonical
from nbagent.models.model import Watch
from nbagent.models.reply import MalformedReply, ReplyBuilder, error_event
from nbagent.models.sse import EventReader

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

MAX_TRIES = 5
MAX_WAIT_S = 60.0  # a longer Retry-After is not slept through: the person is told and decides
FIRST_WAIT_S, LONGEST_BACKOFF_S = 0.5, 8.0  # the SDK's own back-off, without its jitter
CONNECT_TIMEOUT_S, READ_TIMEOUT_S = 10.0, 180.0
EPHEMERAL: dict[str, str] = {"type": "ephemeral"}

_KEY_VARIABLES = (
    "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_PROFILE", "ANTHROPIC_IDENTITY_TOKEN",
    "ANTHROPIC_IDENTITY_TOKEN_FILE",
)  # fmt: skip


def has_credentials(environ: Mapping[str, str]) -> bool:
    """Tell whether the SDK would find credentials: a variable, or a profile on disk. Empty counts as unset."""
    if any(environ.get(name) for name in _KEY_VARIABLES):
        return True
    folder = environ.get("ANTHROPIC_CONFIG_DIR")
    base = Path(folder) if folder else Path(environ.get("HOME") or Path.home()) / ".config" / "anthropic"
    return (base / "configs").is_dir() or (base / "credentials").is_dir() or bool(folder and base.is_dir())


def is_loopback(url: str | None) -> bool:
    """Tell whether `url` names this machine."""
    host = urlsplit(url or "").hostname or ""
    return host == "localhost" or host == "::1" or host.startswith("127.")


class AnthropicModel:
    """A model of the Messages API. `sleep` is awaited for back-off; `environ` is read for credentials."""

    def __init__(
        self,
        *,
        environ: Mapping[str, str] = os.environ,
        base_url: str | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        client: AsyncAnthropic | None = None,
        max_tries: int = MAX_TRIES,
        read_timeout_s: float = READ_TIMEOUT_S,
    ) -> None:
        self._environ = environ
        self._base_url = base_url or environ.get("ANTHROPIC_BASE_URL") or None
        self._sleep = sleep
        self._client = client
        self._max_tries = max_tries
        self._read_timeout_s = read_timeout_s

    def check_ready(self) -> None:
        """Raise when a call could not be tried: no credentials, or real calls are switched off."""
        if self._environ.get("NBAGENT_OFFLINE") and not is_loopback(self._base_url):
            raise MissingKey("NBAGENT_OFFLINE is set, so no provider is called; unset it, or replay a recording")
        if self._client is None and not has_credentials(self._environ):
            raise MissingKey(
                "no key for Anthropic: ANTHROPIC_API_KEY is not set; set it and run the cell again, "
                "or replay a recording with `%agent replay FILE`, which needs none"
            )

    async def close(self) -> None:
        """Close the connections; the next call opens new ones."""
        if self._client is not None:
            await self._client.close()
            self._client = None

    def _open_client(self) -> AsyncAnthropic:
        if self._client is None:
            import anthropic
            import httpx2

            timeout = httpx2.Timeout(self._read_timeout_s, connect=CONNECT_TIMEOUT_S)
            # Proxy variables are for the world outside; a loopback service is never behind one.
            http = httpx2.AsyncClient(trust_env=False, timeout=timeout) if is_loopback(self._base_url) else None
            key, token = self._environ.get("ANTHROPIC_API_KEY"), self._environ.get("ANTHROPIC_AUTH_TOKEN")
            self._client = anthropic.AsyncAnthropic(
                api_key=key or None, auth_token=None if key else token or None, base_url=self._base_url,
                max_retries=0, timeout=timeout, http_client=http,
            )  # fmt: skip
        return self._client

    async def call(self, request: Request, watch: Watch) -> Response:
        """Send `request`, streaming; see Model. A call that brought nothing is tried again, visibly and with bounds."""
        body = request_bytes(request)
        for attempt in range(1, self._max_tries + 1):
            failure = await self._attempt(body, watch)
            if failure is None:
                return watch.reply.response()
            if watch.reply.started or not failure.retryable or attempt == self._max_tries:
                return _failed(watch.reply, failure, attempt)
            seconds = _wait_for(failure, attempt)
            if seconds > MAX_WAIT_S:
                return _failed(watch.reply, _too_long(failure, seconds), attempt)
            watch.reply = ReplyBuilder(request.model)
            watch.on_wait(str(failure), seconds, attempt)
            await self._sleep(seconds)
        raise AssertionError("unreachable: the last attempt returns")

    async def _attempt(self, body: bytes, watch: Watch) -> ModelFailed | None:
        """Try once. None means that the stream ended without an error; whether it is whole is in `watch.reply`."""
        try:
            await self._stream(body, watch)
        except ModelFailed as error:
            return error
        except (MalformedReply, ValueError, TypeError) as error:
            return ModelFailed(f"the provider's reply cannot be read: {one_line(str(error))[:200]}", kind="protocol")
        except Exception as error:  # noqa: BLE001  the SDK lets raw transport errors through (claude.md A4)
            return failure_of(error)
        if not watch.reply.complete and not watch.reply.started:
            return ModelFailed("the provider closed the stream without a reply", kind="protocol", retryable=True)
        return None

    async def _stream(self, body: bytes, watch: Watch) -> None:
        # The SDK's import takes seconds (claude.md A2): on a thread, so that Stop does not wait for it.
        await asyncio.to_thread(importlib.import_module, "anthropic")
        client = self._open_client()
        from anthropic import AsyncStream

        stream = await client.post(
            "/v1/messages", cast_to=object, content=body, stream=True, stream_cls=AsyncStream[object]
        )
        response = stream.response
        try:
            reader = EventReader()
            if "json" in response.headers.get("content-type", ""):
                _whole(await response.aread(), watch)
                return
            async for chunk in response.aiter_bytes():
                for event in reader.feed(chunk):
                    _show(watch, watch.reply.feed(event))
            for event in reader.end():
                _show(watch, watch.reply.feed(event))
        finally:
            await response.aclose()


def _show(watch: Watch, news: tuple[str, int, str] | None) -> None:
    if news is None:
        return
    kind, index, text = news
    if kind == "text":
        watch.on_text(index, text)
    elif kind == "thinking":
        watch.on_thinking(index, text)
    else:
        watch.on_block(watch.reply.finished)


def _whole(data: bytes, watch: Watch) -> None:
    import json

    message = json.loads(data)
    if not isinstance(message, dict):
        raise MalformedReply("the reply is not an object")
    if message.get("type") == "error":
        raise error_event(message.get("error") or {})
    watch.reply.load(message)
    for index, block in enumerate(watch.reply.finished):
        if block.get("type") == "text":
            watch.on_text(index, str(block.get("text") or ""))


def request_bytes(request: Request) -> bytes:
    """Return the body of a streaming request: stored message bytes joined, with the cache marks spliced in.

    Each message's bytes are made once (`Message.to_bytes`); only those that carry a mark are made anew.
    """
    marked = set(request.breakpoints)
    system = [dict(b) for b in request.prefix.system]
    tools = list(request.prefix.tools)
    if system:
        system[-1]["cache_control"] = EPHEMERAL
    elif tools:
        tools[-1] = {**tools[-1], "cache_control": EPHEMERAL}
    head: dict[str, Any] = {"model": request.model, "max_tokens": request.max_tokens, "stream": True}
    head.update(request.options)
    if system:
        head["system"] = system
    if tools:
        head["tools"] = tools
    parts = [_marked_bytes(m) if i in marked else m.to_bytes() for i, m in enumerate(request.messages)]
    return canonical(head)[:-1].encode() + b',"messages":[' + b",".join(parts) + b"]}"


def _marked_bytes(message: Message) -> bytes:
    blocks = [dict(b) for b in message.blocks]
    for block in reversed(blocks):
        if block.get("type") not in ("thinking", "redacted_thinking"):
            block["cache_control"] = EPHEMERAL
            break
    return canonical({"role": message.role, "content": blocks}).encode()


def _failed(reply: ReplyBuilder, failure: ModelFailed, attempts: int) -> Response:
    if attempts > 1:
        again = ModelFailed(
            f"{failure} (tried {attempts} times)", kind=failure.kind, retryable=failure.retryable,
            retry_after_s=failure.retry_after_s,
        )  # fmt: skip
        failure = again
    return reply.response(cut=_cut_word(failure), error=failure)


def _cut_word(failure: ModelFailed) -> str:
    words = {"overloaded": "the provider was overloaded", "rate_limit": "the provider's rate limit was reached",
             "connection": "the connection broke", "timeout": "the provider stopped sending"}  # fmt: skip
    return words.get(failure.kind, "the provider failed")


def _wait_for(failure: ModelFailed, attempt: int) -> float:
    if failure.retry_after_s is not None:
        return max(0.0, failure.retry_after_s)
    return min(LONGEST_BACKOFF_S, FIRST_WAIT_S * float(2 ** (attempt - 1)))


def _too_long(failure: ModelFailed, seconds: float) -> ModelFailed:
    return ModelFailed(
        f"{failure}; the provider asks to wait {seconds:.0f} s, which is more than the {MAX_WAIT_S:.0f} s that a cell "
        "waits by itself: run `%agent resume` later",
        kind=failure.kind, retry_after_s=seconds,
    )  # fmt: skip


def failure_of(error: Exception) -> ModelFailed:
    """Return what an exception of the SDK or its transport means for the person; branches on code and type."""
    import anthropic

    if isinstance(error, anthropic.APIStatusError):
        return _status_failure(error)
    name = type(error).__name__
    if isinstance(error, anthropic.APITimeoutError) or "Timeout" in name:
        return ModelFailed("the provider did not answer in time", kind="timeout", retryable=True)
    if isinstance(error, anthropic.APIConnectionError):
        cause = one_line(str(error.__cause__ or error))[:200]
        line = f"the provider cannot be reached ({cause}); check the network and base_url"
        return ModelFailed(line, kind="connection", retryable=True)
    if type(error).__module__.split(".")[0] in ("httpx2", "httpcore2", "httpcore", "ssl"):
        return ModelFailed(f"the connection broke ({name})", kind="connection", retryable=True)
    return ModelFailed(f"the call failed: {name}: {one_line(str(error))[:200]}", kind="protocol")


_BY_STATUS: dict[int, tuple[str, bool, str]] = {
    400: ("invalid_request", False, "the provider refused the request"),
    401: ("auth", False, "the key was refused; check ANTHROPIC_API_KEY"),
    402: ("billing", False, "the account cannot pay; check the billing page"),
    403: ("permission", False, "the key may not do this"),
    404: ("not_found", False, "not found; check the model's name with `%agent model NAME` and base_url"),
    408: ("timeout", True, "the provider did not answer in time"),
    409: ("server", True, "the provider reports a conflict"),
    413: ("too_large", False, "the request is larger than the provider takes; `%context compact` makes it smaller"),
    429: ("rate_limit", True, "the provider's rate limit is reached"),
    529: ("overloaded", True, "the provider is overloaded"),
}


def _status_failure(error: Any) -> ModelFailed:
    status = int(error.status_code)
    kind, retryable, line = _BY_STATUS.get(status, ("server", status >= 500, "the provider failed"))
    body = error.body if isinstance(error.body, Mapping) else {}
    inner = body.get("error")
    said = str(inner.get("message") or "") if isinstance(inner, Mapping) else ""
    headers = error.response.headers
    should = headers.get("x-should-retry")
    if should in ("true", "false"):
        retryable = should == "true"
    if status == 400 and "prompt is too long" in said:  # the one case without a code (claude.md A13)
        kind, line = "overflow", "the conversation is larger than the model's window; `%context compact` makes room"
    elif status == 429 and _retry_after(headers) is None and "spend" in said:
        retryable = False
    detail = f": {one_line(said)[:300]}" if said else ""
    line = f"{line} (HTTP {status}{detail})"
    return ModelFailed(line, kind=kind, retryable=retryable, retry_after_s=_retry_after(headers))


def _retry_after(headers: Mapping[str, str]) -> float | None:
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            return float(headers.get(name, "")) * scale
        except ValueError:
            continue
    return None
