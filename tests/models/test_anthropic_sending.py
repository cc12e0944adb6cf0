"""Sender against a server that answers with bytes given."""

from __future__ import annotations

import asyncio
import gzip
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import aiohttp
import anthropic
import httpx2
import pytest

from nbagent.core.errors import ModelFailed
from nbagent.models import connections
from nbagent.models.anthropic_sending import Sender
from nbagent.models.connections import Connections
from tests.fakes import replies
from tests.fakes.messages_api import FakeMessagesAPI, reply
from tests.patience import HANG_S


class Server:
    """Answers request number n with `answers[n]`; closes the connection after one that is None or ends with b"!"."""

    def __init__(self, answers: Sequence[bytes]) -> None:
        self.answers = list(answers)
        self.heads: list[bytes] = []
        self.bodies: list[bytes] = []
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = [int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
                self.heads.append(head)
                self.bodies.append(await reader.readexactly(sum(size)))
                answer = self.answers.pop(0)
                writer.write(answer.removesuffix(b"!"))
                await writer.drain()
                if answer.endswith(b"!"):
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()


def run(answers: Sequence[bytes], use: Callable[[str, Server], Awaitable[Any]]) -> Any:
    async def go() -> Any:
        server = Server(answers)
        listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
        try:
            return await use(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}", server)
        finally:
            listening.close()
            await asyncio.sleep(0.01)

    return asyncio.run(go())


EVENTS = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 4\r\n\r\n:ok\n"


def refusal(status: int, **error: str) -> bytes:
    body = json.dumps({"type": "error", "error": error}).encode()
    return b"HTTP/1.1 %d No\r\nretry-after: 7\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body)


async def send(url: str, bodies: Sequence[bytes]) -> list[str]:
    http = httpx2.AsyncClient(trust_env=False, follow_redirects=True)
    client = anthropic.AsyncAnthropic(api_key="k", base_url=url, max_retries=0, http_client=http)
    direct = Connections(connect_s=60, read_s=60)
    sender, told = Sender(client, direct), []
    try:
        for body in bodies:
            try:
                response = await sender.post(body)
                told.append((await response.aread()).decode())
                await response.aclose()
            except ModelFailed as error:
                told.append(f"{error.kind} {error.retryable} {error.retry_after_s}")
    finally:
        await direct.close()
        await client.close()
    return told


def test_later_requests_are_the_first_one_with_another_body() -> None:
    async def use(url: str, server: Server) -> tuple[Any, Any, list[str]]:
        told = await send(url, [b'{"a":1}', b'{"bb":2}', b'{"a":3}'])
        return server.heads, server.bodies, told

    heads, bodies, told = run([EVENTS] * 3, use)
    assert told == [":ok\n"] * 3
    assert bodies == [b'{"a":1}', b'{"bb":2}', b'{"a":3}']
    sets = [{line for line in head.split(b"\r\n") if not line.lower().startswith(b"content-length")} for head in heads]
    assert sets[0] == sets[1] == sets[2]
    assert any(line.lower().endswith((b"bearer k", b"x-api-key: k")) for line in sets[0])


def test_an_error_of_a_later_request_means_what_the_sdk_would_say_and_the_sdk_makes_the_next() -> None:
    async def use(url: str, server: Server) -> list[str]:
        return await send(url, [b"{}"] * 4)

    busy = refusal(529, type="overloaded_error", message="busy")
    told = run([EVENTS, busy, EVENTS, refusal(400, message="prompt is too long: 9")], use)
    assert told == [":ok\n", "overloaded True 7.0", ":ok\n", "overflow False 7.0"]


def test_a_redirect_of_a_later_request_is_followed_as_the_sdk_follows_it() -> None:
    moved = b"HTTP/1.1 307 Moved\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n"

    async def use(url: str, server: Server) -> Any:
        told = await send(url, [b'{"a":1}', b'{"a":2}'])
        return told, [head.split(b" ")[1] for head in server.heads], server.bodies[-1]

    told, paths, last = run([EVENTS, moved, moved, EVENTS], use)
    assert told == [":ok\n"] * 2
    assert paths == [b"/v1/messages"] * 3 + [b"/elsewhere"]
    assert last == b'{"a":2}'


@pytest.mark.parametrize("size", [10, 3_000_000])
def test_a_body_of_any_size_arrives_whole_on_one_connection(size: int) -> None:
    async def use(url: str, server: Server) -> Any:
        told = await send(url, [b"{}", b"x" * size, b"y" * size])
        return told, server.bodies[1:], server.connections

    told, bodies, connections = run([EVENTS] * 3, use)
    assert told == [":ok\n"] * 3
    assert bodies == [b"x" * size, b"y" * size]
    assert connections == 2  # the SDK's own, and the lighter one


@pytest.mark.parametrize("rested", [True, False])
def test_a_connection_that_died_while_it_rested_is_replaced_unseen(
    monkeypatch: pytest.MonkeyPatch, rested: bool
) -> None:
    monkeypatch.setattr(connections, "RESTED_S", 0.0 if rested else 3600.0)

    async def use(url: str, server: Server) -> Any:
        if rested:
            return await send(url, [b'{"a":1}', b'{"a":2}', b'{"a":3}']), server.bodies
        with pytest.raises(aiohttp.ClientConnectionError):
            await send(url, [b'{"a":1}', b'{"a":2}', b'{"a":3}'])
        return [":ok\n"] * 3, server.bodies

    # The connection of request 2 takes request 3 and closes without a byte.
    told, bodies = run([EVENTS, EVENTS, b"!", EVENTS], use)
    assert told == [":ok\n"] * 3
    assert bodies == [b'{"a":1}', b'{"a":2}', b'{"a":3}', *([b'{"a":3}'] if rested else [])]


def test_a_fresh_connection_that_dies_is_a_failure_and_not_tried_again_unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "RESTED_S", 3600.0)
    async def use(url: str, server: Server) -> Any:
        with pytest.raises(aiohttp.ClientConnectionError):
            await send(url, [b'{"a":1}', b'{"a":2}'])
        return server.bodies

    assert run([EVENTS, b"!"], use) == [b'{"a":1}', b'{"a":2}']


def test_a_reply_given_up_closes_its_connection_and_one_read_whole_keeps_it() -> None:
    endless = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n4\r\n:ok\n\r\n"

    async def use(url: str, server: Server) -> Any:
        direct = Connections(connect_s=60, read_s=60)
        seen = []
        for _ in range(3):
            answer = await direct.post(url, [], b"{}")
            async for chunk in answer.aiter_bytes():
                seen.append(chunk)
                if "chunked" in answer.headers.get("transfer-encoding", ""):
                    break
            await answer.aclose()
            seen.append(server.connections)
        await direct.close()
        await direct.close()
        return seen

    assert run([EVENTS, endless, EVENTS], use) == [b":ok\n", 1, b":ok\n", 1, b":ok\n", 2]


def test_a_compressed_reply_is_read() -> None:
    packed = gzip.compress(b":ok\n")
    answer = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n%b" % (len(packed), packed)

    async def use(url: str, server: Server) -> Any:
        return await send(url, [b"{}"] * 2), server.heads

    told, heads = run([EVENTS, answer], use)
    assert told == [":ok\n"] * 2
    assert b"gzip" in heads[1].lower().partition(b"accept-encoding:")[2].partition(b"\r\n")[0]


def request(url: str = "https://api.example/v1/messages", x: bytes = b"1") -> httpx2.Request:
    return httpx2.Request("POST", url, headers=[(b"x", x)])


@pytest.mark.parametrize(
    ("sent", "repeated"),
    [(request(), True), (request(x=b"\xe9"), False), (request("https://me:it@api.example/v1/messages"), False)],
)
def test_a_request_that_cannot_be_repeated_as_it_is_stays_the_sdks(sent: httpx2.Request, repeated: bool) -> None:
    client = anthropic.AsyncAnthropic(api_key="k")
    sender = Sender(client, Connections(connect_s=60, read_s=60))
    sender.learn(sent)
    assert bool(sender._url) is repeated  # what is not sent cannot be seen from outside

QUIET = """
import asyncio, sys, threading
from nbagent.core.messages import Message, Prefix, Request, text_block
from nbagent.models.anthropic import AnthropicModel
from nbagent.models.model import Watch
from nbagent.models.reply import ReplyBuilder
model = AnthropicModel(environ={"ANTHROPIC_API_KEY": "k"}, base_url=sys.argv[1])
message = Message("user", (text_block("hi"),))
request = Request(model="claude-sonnet-5-5", max_tokens=9, prefix=Prefix(system=(), tools=()), messages=(message,))
loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()
for _ in range(2):
    call = model.call(request, Watch(reply=ReplyBuilder("m")))
    print(asyncio.run_coroutine_threadsafe(call, loop).result(150).blocks[0]["text"])
if sys.argv[2] == "cut":
    def came(index, text):
        print(text, flush=True)
        arrived.set()
    arrived = threading.Event()
    asyncio.run_coroutine_threadsafe(model.call(request, Watch(reply=ReplyBuilder("m"), on_text=came)), loop)
    arrived.wait(150)
"""


@pytest.mark.parametrize("how", ["idle", "cut"])
def test_a_process_that_ends_with_connections_open_says_nothing_of_them(fake: FakeMessagesAPI, how: str) -> None:
    fake.enqueue("one", "two", reply("three", fault=replies.stall(3_600, after=1), delta_size_chars=5))
    arguments = [sys.executable, "-c", QUIET, fake.base_url, how]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=HANG_S)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["one", "two", "three"][: 2 + (how == "cut")], "")
