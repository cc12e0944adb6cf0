"""Messages and their blocks, in the one shape in which journal, view and wire all hold them.

A block is a JSON object in the shape of the Anthropic Messages API, which is the widest of
the wire formats we speak: what a provider sent is kept key by key, in its order, so that it
can be sent back byte for byte, also a kind of block we do not know. Other providers convert
from and to it in `models/`. A block is never changed once made; a changed one is a new one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

JsonObject: TypeAlias = Mapping[str, Any]
Block: TypeAlias = Mapping[str, Any]
Role: TypeAlias = Literal["user", "assistant"]

# The encoder itself: `json.dumps` with options makes a new one at each call.
encode_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False, allow_nan=False).encode

_REPLACED = "\ufffd".encode()


def canonical(value: Any) -> str:
    """Return `value` as compact JSON, keys in the order they have; the form that is hashed and sent.

    A lone surrogate (half of a cut emoji, a byte that was no UTF-8) becomes U+FFFD: no provider takes
    it, and no UTF-8 file holds it.

    Raises:
        ValueError: `value` holds NaN or an infinity.

    >>> canonical({"b": 1, "a": "é"})
    '{"b":1,"a":"é"}'
    """
    text: str = encode_json(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def text_block(text: str) -> Block:
    """Return a text block."""
    return {"type": "text", "text": text}


def image_block(media_type: str, base64_text: str) -> Block:
    """Return an image block from base64 text."""
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": base64_text}}


def tool_result_block(call_id: str, content: Sequence[Block] | str, *, is_error: bool) -> Block:
    """Return the block that answers the call `call_id`; a blank content becomes a word, since providers refuse it."""
    if isinstance(content, str):
        body: Any = "" if content.isspace() else content
    else:
        body = [b for b in content if not is_blank(b)]
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": call_id, "content": body or "(no output)"}
    if is_error:
        block["is_error"] = True
    return block


THINKING: Final = ("thinking", "redacted_thinking")


def is_thinking(block: Block) -> bool:
    """Tell whether `block` is thinking, readable or redacted."""
    return block.get("type") in THINKING


def is_signed_thinking(block: Block) -> bool:
    """Tell whether `block` is thinking that a provider accepts back."""
    if block.get("type") == "redacted_thinking":
        return bool(block.get("data"))
    return block.get("type") == "thinking" and bool(block.get("signature"))


def is_provider_note(block: Block) -> bool:
    """Tell whether `block` is a provider's own compaction: it reads nothing that stands before. A failed one is not."""
    return block.get("type") == "compaction" and bool(block.get("content"))


def is_blank(block: Block) -> bool:
    """Tell whether `block` is text without a visible character, which providers refuse."""
    if block.get("type") != "text":
        return False
    text = str(block.get("text") or "")
    return not text or text.isspace()  # not `strip`, which copies a long text


def joined_text(blocks: Sequence[Block]) -> str:
    """Return the text of all text blocks, with a blank line between two."""
    return "\n\n".join(str(b["text"]) for b in blocks if b.get("type") == "text" and b.get("text"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call that the model asks for. `input` is what it sent, not yet validated."""

    id: str
    name: str
    input: Any


def tool_calls(blocks: Sequence[Block]) -> tuple[ToolCall, ...]:
    """Return the client tool calls among `blocks`, in order; one without id or name cannot be answered and is none."""
    return tuple(
        ToolCall(id=str(b["id"]), name=str(b["name"]), input=b.get("input")) for b in blocks if is_tool_call(b)
    )


def is_tool_call(block: Block) -> bool:
    """Tell whether `block` is a client tool call that can be answered: it has an id and a name."""
    return block.get("type") == "tool_use" and bool(block.get("id")) and bool(block.get("name"))


@dataclass(slots=True)
class Message:
    """One message of a request: a role and its blocks. Its bytes are kept. Treated as frozen, as an Entry is."""

    role: Role
    blocks: tuple[Block, ...]
    _bytes: bytes = field(default=b"", repr=False, compare=False)

    def to_wire(self) -> dict[str, Any]:
        """Return the message as the API takes it; the same text as `to_bytes`."""
        if _REPLACED in self.to_bytes():
            wire: dict[str, Any] = json.loads(self.to_bytes())
            return wire
        return {"role": self.role, "content": [dict(b) for b in self.blocks]}

    def to_bytes(self) -> bytes:
        """Return canonical UTF-8 JSON of the message, without cache marks; made at the first call, then remembered."""
        if not self._bytes:
            self._bytes = canonical({"role": self.role, "content": self.blocks}).encode()
        return self._bytes


NO_IMAGE = "[an image, which this model cannot see]"


def without_images(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Return messages as a model takes them that sees no images: a word stands for each (agents.md 3.4)."""

    def shown(block: Block) -> Block:
        if block.get("type") == "image":
            return text_block(NO_IMAGE)
        inner = block.get("content")
        if block.get("type") != "tool_result" or not isinstance(inner, list | tuple):
            return block
        return {**block, "content": [shown(b) for b in inner]}

    return tuple(
        Message(m.role, tuple(map(shown, m.blocks))) if any(map(_shows_image, m.blocks)) else m for m in messages
    )


def _shows_image(block: Block) -> bool:
    inner = block.get("content") if block.get("type") == "tool_result" else None
    return block.get("type") == "image" or (isinstance(inner, list | tuple) and any(map(_shows_image, inner)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What one model call sends.

    `prefix` is the stored head (system blocks and tools), `messages` the conversation.
    `breakpoints` are the places after which a cache mark is spliced in when sending: indexes
    into `messages`, at most three, since the prefix takes the fourth. `options` are the
    provider's further parameters (thinking, effort), constant in a conversation.
    """

    model: str
    max_tokens: int
    prefix: Prefix
    messages: tuple[Message, ...]
    breakpoints: tuple[int, ...] = ()
    options: JsonObject = field(default_factory=dict)

    def canonical_chunks(self) -> Iterator[bytes]:
        """Yield the canonical form block by block: tools, system, then (role, block) in order, without cache marks.

        Two messages of one role in a row read as one, as the provider reads them.
        """
        yield from self.prefix.canonical_chunks()
        role: str | None = None
        for message in self.messages:
            for block in message.blocks:
                mark = b"" if message.role == role else message.role.encode() + b":"
                role = message.role
                yield mark + canonical(block).encode()

    def canonical_bytes(self) -> bytes:
        """Return the canonical form in one piece, a line a block."""
        return b"".join(chunk + b"\n" for chunk in self.canonical_chunks())


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefix:
    """The stored head of every request of a root: system blocks and tool list, as JSON objects.

    `categories[i]` is the row of system block i in the ledger; it is stored, never sent.
    """

    system: tuple[Block, ...]
    tools: tuple[JsonObject, ...]
    categories: tuple[str, ...] = ()
    _bytes: dict[str, bytes] = field(default_factory=dict, repr=False, compare=False)

    def canonical_chunks(self) -> Iterator[bytes]:
        """Yield tools, then system, one JSON object each."""
        for tool in self.tools:
            yield b"tool:" + canonical(tool).encode()
        for block in self.system:
            yield b"system:" + canonical(block).encode()

    def to_text(self) -> str:
        """Return the JSON text under which the prefix is stored as an artifact."""
        return canonical({"system": self.system, "tools": self.tools, "categories": self.categories})

    @staticmethod
    def from_text(text: str) -> Prefix:
        """Return the prefix that `to_text` wrote."""
        raw = json.loads(text)
        return Prefix(
            system=tuple(raw["system"]), tools=tuple(raw["tools"]), categories=tuple(raw.get("categories", ()))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """What one model call brought, complete or not.

    `stop_reason` is the provider's word, None when the stream ended without one.
    `cut` says why the reply is not whole ("stopped", "stream ended early", an error's line);
    None for a whole one. `blocks` holds only finished blocks plus the text that had come.
    `usage` is the provider's object as it came.
    """

    blocks: tuple[Block, ...]
    stop_reason: str | None
    model: str
    response_id: str = ""
    usage: JsonObject = field(default_factory=dict)
    stop_details: JsonObject | None = None
    cut: str | None = None
    error: Exception | None = None
