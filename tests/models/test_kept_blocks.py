"""When the finished blocks of a running reply are kept: once for all that arrive together, and not for a whole reply."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from nbagent.core.messages import Block, Message, Prefix, Request, Response, text_block
from nbagent.models.anthropic import AnthropicModel
from nbagent.models.anthropic_sending import Sender
from nbagent.models.model import Watch
from nbagent.models.reply import ReplyBuilder
from tests.fakes.ways import _taught
from tests.patience import HANG_S

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"
REQUEST = Request(
    model="claude-sonnet-5-5", max_tokens=100, prefix=Prefix(system=(), tools=()),
    messages=(Message("user", (text_block("hi"),)),),
)  # fmt: skip


@pytest.fixture(autouse=True)
def over_the_lighter_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sender, "_first", _taught)


def chunk(*events: dict[str, Any]) -> bytes:
    text = "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events).encode()
    return b"%x\r\n%b\r\n" % (len(text), text)


def block(index: int, text: str) -> tuple[dict[str, Any], ...]:
    return (
        {"type": "content_block_start", "index": index, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": text}},
        {"type": "content_block_stop", "index": index},
    )


START = {"type": "message_start", "message": {"id": "m", "model": "claude-sonnet-5-5", "usage": {"input_tokens": 1}}}
END = ({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}}, {"type": "message_stop"})


def answered(*parts: bytes) -> tuple[Response, list[tuple[Block, ...]]]:
    """Call a server that sends `parts`, each after the first only once blocks were kept; return the reply and what was."""

    async def both() -> tuple[Response, list[tuple[Block, ...]]]:
        kept: list[tuple[Block, ...]] = []
        news = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = await reader.readuntil(b"\r\n\r\n")
            size = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            await reader.readexactly(int(size.partition(b":")[2]))
            for number, part in enumerate(parts):
                if number:
                    await news.wait()
                    news.clear()
                writer.write(part)
                await writer.drain()
            writer.close()

        def keep(blocks: tuple[Block, ...]) -> None:
            kept.append(blocks)
            news.set()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        model = AnthropicModel(environ={"ANTHROPIC_API_KEY": "k", "HOME": "/nowhere"}, base_url=url)
        try:
            async with asyncio.timeout(HANG_S):
                watch = Watch(reply=ReplyBuilder(REQUEST.model), on_block=keep)
                return await model.call(REQUEST, watch), kept
        finally:
            await model.close()
            server.close()

    return asyncio.run(both())


def texts(blocks: tuple[Block, ...]) -> list[str]:
    return [str(b["text"]) for b in blocks]


def test_a_reply_that_came_whole_is_not_kept_as_a_partial() -> None:
    response, kept = answered(HEAD + chunk(START, *block(0, "one"), *block(1, "two"), *END) + LAST_CHUNK)
    assert (response.cut, texts(response.blocks)) == (None, ["one", "two"])
    assert kept == []


def test_blocks_that_arrive_together_are_kept_once_before_more_is_waited_for() -> None:
    response, kept = answered(
        HEAD + chunk(START, *block(0, "one")) + chunk(*block(1, "two")), chunk(*block(2, "three"), *END) + LAST_CHUNK
    )
    assert texts(response.blocks) == ["one", "two", "three"]
    assert [texts(blocks) for blocks in kept] == [["one", "two"]]


def test_a_reply_is_kept_while_its_last_bytes_are_waited_for() -> None:
    response, kept = answered(HEAD + chunk(START, *block(0, "one"), *END), LAST_CHUNK)
    assert response.cut is None
    assert [texts(blocks) for blocks in kept] == [["one"]]
