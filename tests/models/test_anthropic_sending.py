"""Sender against a server that answers with bytes given."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import anthropic
import httpx2

from nbagent.core.errors import ModelFailed
from nbagent.models.anthropic_sending import Sender


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
    http = httpx2.AsyncClient(trust_env=False)
    client = anthropic.AsyncAnthropic(api_key="k", base_url=url, max_retries=0, http_client=http)
    sender, told = Sender(client, http), []
    for body in bodies:
        try:
            response = await sender.post(body)
            told.append((await response.aread()).decode())
            await response.aclose()
        except ModelFailed as error:
            told.append(f"{error.kind} {error.retryable} {error.retry_after_s}")
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
