"""ScriptedModel: replies written beforehand, for tests, recordings and teaching without a key."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from nbagent.core.errors import UserError
from nbagent.core.messages import Block, Request, Response, canonical
from nbagent.models.model import Watch
from nbagent.models.reply import ReplyBuilder

WORDS_A_DELTA = 3
_BLOCKS: Mapping[str, Mapping[str, type]] = {
    "text": {"text": str}, "tool_use": {"name": str, "input": dict}, "thinking": {"thinking": str},
    "redacted_thinking": {"data": str},
}  # fmt: skip


def says(text: str) -> Block:
    """Return a text block."""
    return {"type": "text", "text": text}


def calls(name: str, /, *, id: str | None = None, **arguments: Any) -> Block:
    """Return a tool call; its id is given when it is sent, unless you name one."""
    return {"type": "tool_use", "id": id or "", "name": name, "input": arguments}


class ScriptedModel:
    """A model that gives `replies` in order: each a sequence of blocks, or a function of the request.

    Tokens are counted as a quarter of the bytes. Ids are counted from the request, so that the same
    conversation gives the same bytes.
    """

    def __init__(self, replies: Iterable[Iterable[Block] | Callable[[Request], Iterable[Block]]]) -> None:
        self._replies = list(replies)
        self.requests: list[Request] = []

    @classmethod
    def from_file(cls, path: Path) -> ScriptedModel:
        """Return the model that a JSON file holds: a list of replies, each a list of blocks."""
        try:
            raw = json.loads(path.read_text(encoding="utf-8-sig"))
        except (OSError, ValueError) as error:
            line = f"the script {str(path)!r} cannot be read ({error}); name a JSON list of replies"
            raise UserError(line) from error
        if fault := _fault(raw):
            raise UserError(
                f"the script {str(path)!r}: {fault}; write a list of replies, each a list of blocks such as "
                '{"type": "text", "text": "…"} or {"type": "tool_use", "name": "python", "input": {…}}'
            )
        return cls(raw)

    def check_ready(self) -> None:
        """Scripted replies need nothing."""

    async def close(self) -> None:
        """There is nothing to close."""

    async def call(self, request: Request, watch: Watch) -> Response:
        """Return the next reply, streaming its text in small parts."""
        self.requests.append(request)
        number = sum(1 for m in request.messages if m.role == "assistant") + 1
        if not self._replies:
            blocks: list[Block] = [says("(the script has no further reply)")]
        else:
            reply = self._replies.pop(0)
            blocks = list(reply(request) if callable(reply) else reply)
        blocks = [_with_id(b, f"toolu_{number:04d}_{i}") for i, b in enumerate(blocks)]
        for event in events_of(blocks, request, number):
            news = watch.reply.feed(event)
            if news is None:
                continue
            kind, index, text = news
            if kind == "text":
                watch.on_text(index, text)
            elif kind == "thinking":
                watch.on_thinking(index, text)
            else:
                watch.on_block(watch.reply.finished)
        return watch.reply.response()


def _fault(raw: object) -> str:
    """Return where a script is not a list of lists of blocks, empty when it is."""
    if not isinstance(raw, list):
        return f"it is {_named(raw)}, not a list of replies"
    for number, reply in enumerate(raw, 1):
        if not isinstance(reply, list):
            return f"reply {number} is {_named(reply)}, not a list of blocks"
        for place, block in enumerate(reply, 1):
            if why := _block_fault(block):
                return f"block {place} of reply {number} {why}"
    return ""


def _block_fault(block: object) -> str:
    if not isinstance(block, dict):
        return f"is {_named(block)}, not an object"
    kind = block.get("type")
    wanted = _BLOCKS.get(kind) if isinstance(kind, str) else None
    if wanted is None:
        return f"has the type {kind!r}; the types are: {', '.join(_BLOCKS)}"
    wrong = next((name for name, value in wanted.items() if not isinstance(block.get(name), value)), None)
    return "" if wrong is None else f"is a {kind} block without {wrong!r} of the right kind"


def _named(value: object) -> str:
    if isinstance(value, dict):
        return "an object"
    return "a list" if isinstance(value, list) else json.dumps(value)[:60]


def _with_id(block: Block, fresh: str) -> Block:
    if block.get("type") == "tool_use" and not block.get("id"):
        return {**block, "id": fresh}
    return block


def events_of(blocks: list[Block], request: Request, number: int) -> Iterable[Mapping[str, Any]]:
    """Yield the events that stream `blocks`."""
    size = len(request.canonical_bytes()) // 4
    out = sum(len(canonical(b)) for b in blocks) // 4
    usage = {"input_tokens": size, "output_tokens": 1}
    yield {"type": "message_start", "message": {"id": f"msg_{number:04d}", "model": request.model, "usage": usage}}
    for index, block in enumerate(blocks):
        if block.get("type") == "text":
            yield {"type": "content_block_start", "index": index, "content_block": {**block, "text": ""}}
            words = str(block["text"]).split(" ")
            for i in range(0, len(words), WORDS_A_DELTA):
                part = " ".join(words[i : i + WORDS_A_DELTA]) + (" " if i + WORDS_A_DELTA < len(words) else "")
                delta = {"type": "text_delta", "text": part}
                yield {"type": "content_block_delta", "index": index, "delta": delta}
        else:
            yield {"type": "content_block_start", "index": index, "content_block": block}
        yield {"type": "content_block_stop", "index": index}
    reason = "tool_use" if any(b.get("type") == "tool_use" for b in blocks) else "end_turn"
    yield {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": out}}
    yield {"type": "message_stop"}


def scripted_reply(model: str) -> ReplyBuilder:
    """Return an empty reply for `model`, for a test that needs a Watch."""
    return ReplyBuilder(model)
