"""ReplyBuilder: the events of a streamed reply, folded into blocks kept as they came.

Pure. Knows the event stream of the Messages API (claude.md B3) and survives what it does not
know: an unknown block is kept with all its fields, an unknown event or delta changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from nbagent.core.errors import ModelFailed
from nbagent.core.messages import Block, Response, encode_json

NO_ID = "toolu_without_id"  # the turn gives ids that occur twice a number
_TEXT_FIELDS = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}


class MalformedReply(Exception):
    """An event does not fit the stream it stands in."""


class ReplyBuilder:
    """Feed it events in order; ask for `response` at the end, or for `finished` blocks at any time."""

    def __init__(self, model: str) -> None:
        self.model = model
        self.response_id = ""
        self.stop_reason: str | None = None
        self.stop_details: Mapping[str, Any] | None = None
        self.usage: dict[str, Any] = {}
        self.complete = False
        self._blocks: list[Block | None] = []
        self._broken: dict[int, Block] = {}  # calls whose input is no JSON, by their place, with the text of it
        self._open: dict[str, Any] | None = None
        self._parts: list[str] = []
        self._field = ""
        self._index = -1

    @property
    def started(self) -> bool:
        """Whether any block has begun."""
        return self._open is not None or bool(self._blocks)

    @property
    def finished(self) -> tuple[Block, ...]:
        """The finished blocks so far, without those that were cut inside."""
        return tuple(b for b in self._blocks if b is not None)

    def feed(self, event: Mapping[str, Any]) -> tuple[str, int, str] | None:
        """Take one event. Returns ("text" | "thinking" | "block", block index, text) when there is something to show.

        Raises:
            MalformedReply: the event cannot stand here.
            ModelFailed: it is an error event.
        """
        kind = event.get("type")
        if kind == "content_block_delta":
            return self._delta(event)
        if kind == "content_block_start":
            self._start(event)
            return None
        if kind == "content_block_stop":
            return self._stop()
        if kind == "message_start":
            message = _mapping(event.get("message"))
            self.response_id = str(message.get("id") or "")
            self.model = str(message.get("model") or self.model)
            self._merge_usage(message.get("usage"))
        elif kind == "message_delta":
            delta = _mapping(event.get("delta"))
            self.stop_reason = delta.get("stop_reason") or self.stop_reason
            self.stop_details = delta.get("stop_details") or self.stop_details
            self._merge_usage(event.get("usage"))
            self._note_edits(event.get("context_management"))
        elif kind == "message_stop":
            self.complete = True
        elif kind == "error":
            raise error_event(_mapping(event.get("error")))
        return None

    def load(self, message: Mapping[str, Any]) -> None:
        """Take a whole reply, as a call without streaming brings it."""
        self.response_id = str(message.get("id") or "")
        self.model = str(message.get("model") or self.model)
        self.stop_reason = message.get("stop_reason")
        self.stop_details = message.get("stop_details")
        self._merge_usage(message.get("usage"))
        self._note_edits(message.get("context_management"))
        self._blocks = [_with_id(clean_block(b)) for b in message.get("content") or ()]
        self.complete = True

    def _merge_usage(self, usage: object) -> None:
        if isinstance(usage, Mapping):
            self.usage.update({k: v for k, v in usage.items() if v is not None or k not in self.usage})

    def _note_edits(self, told: object) -> None:
        """Keep with the usage what the provider left out of this request by itself."""
        edits = _mapping(told).get("applied_edits")
        if isinstance(edits, list) and edits:
            self.usage["applied_edits"] = edits

    def _start(self, event: Mapping[str, Any]) -> None:
        block = event.get("content_block")
        if not isinstance(block, Mapping):
            raise MalformedReply("a block began without a body")
        if self._open is not None:
            self._finish_open()
        self._index = int(event.get("index", len(self._blocks)))
        self._open = dict(block)
        self._parts, self._field = [], ""

    def _delta(self, event: Mapping[str, Any]) -> tuple[str, int, str] | None:
        if self._open is None:
            raise MalformedReply("a delta came outside of a block")
        delta = _mapping(event.get("delta"))
        kind = str(delta.get("type"))
        if kind == "input_json_delta":
            self._add("input", str(delta.get("partial_json") or ""))
            return None
        if kind == "citations_delta":
            self._open["citations"] = [*(self._open.get("citations") or ()), delta.get("citation")]
            return None
        if kind == "compaction_delta":
            self._open["content"] = delta.get("content")
            return None
        field = _TEXT_FIELDS.get(kind)
        if field is None:
            return None
        text = str(delta.get(field) or "")
        self._add(field, text)
        if field == "signature":
            return None
        return ("text" if field == "text" else "thinking", self._index, text)

    def _add(self, field: str, text: str) -> None:
        if field != self._field:
            self._flush_parts()
            self._field = field
        self._parts.append(text)

    def _flush_parts(self) -> None:
        if self._open is None or not self._field:
            return
        text = "".join(self._parts)
        if self._field == "input":
            self._open["_input_json"] = self._open.get("_input_json", "") + text
        else:
            self._open[self._field] = str(self._open.get(self._field) or "") + text
        self._parts, self._field = [], ""

    def _stop(self) -> tuple[str, int, str] | None:
        if self._open is None:
            raise MalformedReply("a block ended that had not begun")
        self._finish_open()
        return ("block", self._index, "")

    def _finish_open(self) -> None:
        self._flush_parts()
        block = self._open or {}
        self._open = None
        text = block.pop("_input_json", None)
        finished = _with_input(block, text)
        if finished is None:
            self._broken[len(self._blocks)] = _with_id(clean_block({**block, "input": text}))
        self._blocks.append(finished)

    def so_far(self) -> tuple[Block, ...]:
        """Return the finished blocks and the text of an open text block; cut thinking and cut calls are left out."""
        self._flush_parts()
        blocks = list(self.finished)
        if self._open is not None and self._open.get("type") == "text" and self._open.get("text"):
            blocks.append(clean_block(self._open))
        return tuple(blocks)

    def _whole(self) -> tuple[Block, ...]:
        """Return the blocks of a reply that came to its end.

        A call whose input is no JSON was cut off, unless the reply says that its calls are to be run: then it is
        kept, with the text for input, so that the model hears what was wrong.
        """
        if not self._broken or self.stop_reason != "tool_use":
            return self.finished
        return tuple(self._broken[i] if b is None else b for i, b in enumerate(self._blocks))

    def response(self, *, cut: str | None = None, error: Exception | None = None) -> Response:
        """Return the reply as far as it came."""
        blocks = self._whole() if cut is None and self.complete else self.so_far()
        return Response(
            blocks=blocks, stop_reason=self.stop_reason, model=self.model, response_id=self.response_id,
            usage=dict(self.usage), stop_details=self.stop_details, cut=cut, error=error,
        )  # fmt: skip


def _with_input(block: dict[str, Any], text: str | None) -> Block | None:
    """Return the block with its input parsed from `text`, if there is any; None when that is no JSON."""
    if text is not None:
        try:
            block["input"] = json.loads(text, parse_constant=str) if text.strip() else {}
        except (ValueError, RecursionError):
            return None
    return _with_id(clean_block(block))


def _with_id(block: Block) -> Block:
    """Return `block`; a call without an id, as some gateways send it, gets one, so that it can be answered."""
    if block.get("type") != "tool_use" or not block.get("name") or block.get("id"):
        return block
    return {**block, "id": NO_ID}


def clean_block(block: Mapping[str, Any]) -> Block:
    """Return `block` with lone surrogates replaced, so that it can be encoded; the same object when there is none."""
    try:
        encode_json(block).encode()
    except (UnicodeEncodeError, ValueError):
        cleaned: Block = _clean(block)
        return cleaned
    return block


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, Mapping):
        return {_clean(k): _clean(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(v) for v in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    return value


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


_KINDS = {
    "rate_limit_error": ("rate_limit", True), "overloaded_error": ("overloaded", True), "api_error": ("server", True),
    "timeout_error": ("timeout", True), "authentication_error": ("auth", False), "billing_error": ("billing", False),
    "permission_error": ("permission", False), "not_found_error": ("not_found", False),
    "request_too_large": ("too_large", False), "invalid_request_error": ("invalid_request", False),
}  # fmt: skip


def error_event(error: Mapping[str, Any]) -> ModelFailed:
    """Return the failure that an `error` event in mid-stream tells of."""
    name = str(error.get("type") or "api_error")
    kind, retryable = _KINDS.get(name, ("server", False))
    message = str(error.get("message") or "no message")
    return ModelFailed(f"the provider broke off: {message} ({name})", kind=kind, retryable=retryable)
