"""The Anthropic Messages API, through the official SDK's client.

The client carries credentials and headers; the body is the stored bytes of the conversation, joined, the event lines
are read here, and most requests go over connections of a lighter HTTP client, since all three are cheaper so
(measured: `benchmarks/`). Waiting and trying again are ours, so that they are seen, bounded and stoppable.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import os
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote

from nbagent.core.errors import MissingKey, ModelFailed, one_line
from nbagent.core.messages import Request, Response
from nbagent.models.anthropic_body import BodyMaker
from nbagent.models.anthropic_failures import failure_of
from nbagent.models.anthropic_platforms import Platform, missing_library, open_platform
from nbagent.models.anthropic_sending import Sender
from nbagent.models.catalog import ModelFacts, lookup, without_platform
from nbagent.models.context_edits import SentBack, beta_names
from nbagent.models.credentials import has_credentials, key_of
from nbagent.models.endpoint_facts import merged_facts, says_unknown, unknown_model
from nbagent.models.model import Watch
from nbagent.models.network import check_address, is_loopback, proxies_are_set, proxy_unusable, trusted_certificates
from nbagent.models.reply import MalformedReply, ReplyBuilder
from nbagent.models.sse import EventReader

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic, AsyncStream

    from nbagent.models.connections import Connections

KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
MAX_TRIES = 5
MAX_WAIT_S = 60.0  # a longer Retry-After is not slept through: the person is told and decides
FACTS_TIMEOUT_S = 5.0
FIRST_WAIT_S, LONGEST_BACKOFF_S = 0.5, 8.0  # the SDK's own back-off, without its jitter
CONNECT_TIMEOUT_S, READ_TIMEOUT_S = 10.0, 180.0


class AnthropicModel:
    """A model of the Messages API. `sleep` is awaited for back-off; `environ` is read for credentials.

    `platform` says who serves it; on Bedrock and Vertex the SDK's own clients sign and address the call.
    """

    def __init__(
        self,
        *,
        environ: Mapping[str, str] = os.environ,
        base_url: str | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        client: AsyncAnthropic | None = None,
        max_tries: int = MAX_TRIES,
        read_timeout_s: float = READ_TIMEOUT_S,
        platform: Platform = "anthropic",
    ) -> None:
        self._environ = environ
        own = platform == "anthropic"
        self._base_url = base_url or (environ.get("ANTHROPIC_BASE_URL") if own else None) or None
        self._sleep = sleep
        self._given = client
        self._client: AsyncAnthropic | None = None
        self._sender: Sender | None = None
        self._direct: Connections | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._imported = False
        self._bodies = BodyMaker()
        self._sent_back = SentBack()
        self._max_tries = max_tries
        self._read_timeout_s = read_timeout_s
        self._platform = platform

    def check_ready(self) -> None:
        """Raise when a call could not be tried: no credentials, or real calls are switched off.

        Raises:
            MissingKey: no key, one that cannot be sent, NBAGENT_OFFLINE, or a platform's library is missing.
            UsageProblem: the address is none.
        """
        if self._base_url is not None:
            check_address(self._base_url)
        if self._environ.get("NBAGENT_OFFLINE") and not is_loopback(self._base_url):
            raise MissingKey("NBAGENT_OFFLINE is set, so no provider is called; unset it, or replay a recording")
        if self._given is not None:
            return
        if self._platform != "anthropic":
            if line := missing_library(self._platform):
                raise MissingKey(line)
        elif not has_credentials(self._environ):
            raise MissingKey(
                "no key for Anthropic: ANTHROPIC_API_KEY is not set; set it and run the cell again, "
                "or replay a recording with `%agent replay FILE`, which needs none"
            )
        else:
            for name in KEYS:
                key_of(self._environ, name)

    async def close(self) -> None:
        """Close the connections, on the loop that opened them; the next call opens new ones."""
        loop, self._loop = self._loop, None
        client, self._client, self._sender = self._client, None, None
        direct, self._direct = self._direct, None
        if loop is None or loop is asyncio.get_running_loop():
            await _close(direct, client)
        elif loop.is_running():
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_close(direct, client), loop))
        elif loop.is_closed():  # with its sockets; what would speak of them when it is collected hears of it
            await _close(direct, None)

    async def _open_client(self) -> AsyncAnthropic:
        # The SDK's import takes seconds (claude.md A2): on a thread, so that Stop does not wait for it.
        if not self._imported:
            for module in ("anthropic", "nbagent.models.connections"):
                await asyncio.to_thread(importlib.import_module, module)
            self._imported = True
        if self._given is not None:
            return self._given
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:  # connections belong to the loop that opened them
            await self.close()
            self._client, self._loop = self._new_client(), loop
        return self._client

    def _new_client(self) -> AsyncAnthropic:
        import anthropic
        import httpx2

        from nbagent.models.connections import Connections

        timeout = httpx2.Timeout(self._read_timeout_s, connect=CONNECT_TIMEOUT_S)
        if self._platform != "anthropic":
            return open_platform(self._platform, base_url=self._base_url, timeout=timeout)
        # Proxy variables are for the world outside; a loopback service is never behind one.
        inside, trusted = is_loopback(self._base_url), trusted_certificates()
        try:
            http = anthropic.DefaultAsyncHttpxClient(trust_env=not inside, verify=trusted, timeout=timeout)
        except (ImportError, ValueError, httpx2.InvalidURL) as error:
            raise proxy_unusable(error) from error
        key, token = (key_of(self._environ, name) for name in KEYS)
        client = anthropic.AsyncAnthropic(
            api_key=key, auth_token=None if key else token, base_url=self._base_url,
            max_retries=0, timeout=timeout, http_client=http,
        )  # fmt: skip
        if (key or token) and (inside or not proxies_are_set()):
            self._direct = Connections(connect_s=CONNECT_TIMEOUT_S, read_s=self._read_timeout_s, secure=trusted)
        self._sender = Sender(client, self._direct)
        return client

    # ------------------------------------------------------------ what the provider knows of a model

    async def facts(self, model_id: str) -> ModelFacts | None:
        """Return the table's facts with the limits that the models endpoint tells; None when it cannot be asked.

        Prices stay the table's. A name that only the endpoint knows counts as known.

        Raises:
            UsageProblem: the provider says that there is no such model, and the table has none either.
        """
        if self._platform != "anthropic":
            return None
        table = lookup(model_id)
        try:
            told = await self._ask_facts(model_id)
        except Exception as error:  # whatever fails here, the call itself will say it
            if not table.known and says_unknown(error):
                raise unknown_model(model_id) from error
            return None
        return merged_facts(table, told) if isinstance(told, Mapping) else None

    async def _ask_facts(self, model_id: str) -> object:
        client = await self._open_client()
        async with asyncio.timeout(FACTS_TIMEOUT_S):
            return await client.get(f"/v1/models/{quote(model_id, safe='')}", cast_to=object)

    # ------------------------------------------------------------ calls

    async def call(self, request: Request, watch: Watch) -> Response:
        """Send `request`, streaming; see Model. A call that brought nothing is tried again, visibly and with bounds."""
        name = without_platform(request.model)
        body = self._bodies.body(request if name == request.model else replace(request, model=name))
        try:
            return await self._call(request, body, watch)
        finally:
            self._bodies.give_back(body)

    async def _call(self, request: Request, body: bytearray, watch: Watch) -> Response:
        names = beta_names(request, self._sent_back)
        for attempt in range(1, self._max_tries + 1):
            failure = await self._attempt(body, names, watch)
            if failure is None:
                return _ended(watch.reply)
            if watch.reply.started or not failure.retryable or attempt == self._max_tries:
                return _failed(watch.reply, failure, attempt)
            seconds = _wait_for(failure, attempt)
            if seconds > MAX_WAIT_S:
                return _failed(watch.reply, _too_long(failure, seconds), attempt)
            watch.reply = ReplyBuilder(request.model)
            watch.on_wait(str(failure), seconds, attempt)
            await self._sleep(seconds)
        raise AssertionError("unreachable: the last attempt returns")

    async def _attempt(self, body: bytearray, betas: Sequence[str], watch: Watch) -> ModelFailed | None:
        """Try once. None means that the stream ended without an error; whether it is whole is in `watch.reply`."""
        try:
            client = await self._open_client()
        except ModelFailed as error:
            return error
        except Exception as error:  # noqa: BLE001  no region, a broken profile: the SDK raises what it likes
            line = f"the client of {self._platform} cannot be opened: {one_line(str(error))[:300]}"
            return ModelFailed(line, kind="auth")
        try:
            await self._stream(client, body, betas, watch)
        except ModelFailed as error:
            return error
        except (UnicodeEncodeError, ssl.CertificateError) as error:  # which are ValueErrors too
            return failure_of(error)
        except (MalformedReply, ValueError, TypeError) as error:
            return ModelFailed(f"the provider's reply cannot be read: {one_line(str(error))[:200]}", kind="protocol")
        except Exception as error:  # noqa: BLE001  the SDK lets raw transport errors through (claude.md A4)
            return failure_of(error)
        if not watch.reply.complete and not watch.reply.started:
            return ModelFailed("the provider closed the stream without a reply", kind="protocol", retryable=True)
        return None

    async def _stream(self, client: AsyncAnthropic, body: bytearray, betas: Sequence[str], watch: Watch) -> None:
        response: object = None
        if self._platform == "anthropic":
            if self._sender is None:
                self._sender = Sender(client, None)
            response = await self._sender.post(body, betas)
            stream = _events(response)
        else:  # the clients of the platforms rewrite the body and sign it, so they take an object
            from anthropic import AsyncStream

            sent: dict[str, Any] = {"body": json.loads(body)}
            if betas:
                sent["options"] = {"headers": {"anthropic-beta": ",".join(betas)}}
            stream = _parsed(
                await client.post(
                    "/v1/messages", cast_to=object, stream=True, stream_cls=AsyncStream[object], **sent
                )
            )
        async with contextlib.aclosing(stream) as batches:
            async for events in batches:
                ended = _take(events, watch)
                # A reply that came whole is an entry before anything is waited for: its partial would be in vain.
                if ended and not (watch.reply.complete and getattr(response, "at_end", False)):
                    watch.on_block(watch.reply.finished)


async def _close(direct: Connections | None, client: AsyncAnthropic | None) -> None:
    if direct is not None:
        await direct.close()
    if client is not None:
        await client.close()


Events: TypeAlias = Iterable[Mapping[str, Any]]


async def _parsed(stream: AsyncStream[object]) -> AsyncGenerator[Events, None]:
    """Yield the events as the SDK decodes them, one at a time; what a platform frames them in is its affair."""
    try:
        async for event in stream:
            if isinstance(event, Mapping):
                yield (event,)
    finally:
        await stream.close()


async def _events(response: Any) -> AsyncGenerator[Events, None]:
    """Yield the events of a response as they arrive together; one in JSON is a whole message. Closes it at the end.

    Raises:
        ModelFailed: there was text, but no event in it.
    """
    reader, head = EventReader(), b""
    try:
        if "json" in response.headers.get("content-type", ""):
            message = json.loads(await response.aread())
            if not isinstance(message, dict) or not ("error" in message or isinstance(message.get("content"), list)):
                raise MalformedReply("it is no message")
            yield (message if "error" in message else {**message, "type": "message"},)
            return
        async for chunk in response.aiter_bytes():
            head = head or chunk[:200]
            yield reader.feed(chunk)
        yield reader.end()
    finally:
        await response.aclose()
    if head.strip() and not reader.found:
        quoted = one_line(head.decode("utf-8", "replace"))[:120]
        line = f"the answer is no reply of the Messages API but {quoted!r}; check base_url"
        raise ModelFailed(line, kind="protocol", retryable=True)


def _take(events: Events, watch: Watch) -> bool:
    """Take in events that arrived together. Returns whether a block ended."""
    ended = False
    for event in events:
        news = watch.reply.feed(event)
        if news is None:
            if event.get("type") == "message":
                _whole(event, watch)
            continue
        kind, index, text = news
        if kind == "text":
            watch.on_text(index, text)
        elif kind == "thinking":
            watch.on_thinking(index, text)
        else:
            ended = True
    return ended


def _whole(message: Mapping[str, Any], watch: Watch) -> None:
    watch.reply.load(message)
    for index, block in enumerate(watch.reply.finished):
        if block.get("type") == "text":
            watch.on_text(index, str(block.get("text") or ""))


def _ended(reply: ReplyBuilder) -> Response:
    whole = reply.complete or reply.stop_reason is not None
    return reply.response(cut=None if whole else "the stream ended early")


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
