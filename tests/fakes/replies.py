"""What the fake answers: replies, the blocks in them, and the faults that spoil them."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

JSON = dict[str, Any]
Block = Mapping[str, Any]
BY_CONTENT = "(by content)"  # stop_reason: tool_use if a client tool is called, else end_turn
FaultKind = Literal[
    "http_error",
    "stall_before_headers",
    "stall",
    "reset",
    "eof",
    "error_event",
    "first_error_event",
    "malformed_frame",
    "no_event_line",
    "ping_flood",
    "crlf",
    "split_bytes",
    "no_usage",
    "output_usage_only",
    "unknown_event",
    "unknown_delta",
    "empty_stream",
    "not_json",
    "cut_tool_json",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One way in which an answer goes wrong; the functions below build them.

    `after`: deltas sent before it happens (characters for cut_tool_json). `count`: pings, or
    bytes per chunk. `attempts`: how many requests fail before the reply is given; None
    gives the error in place of the reply.
    """

    kind: FaultKind
    after: int = 0
    seconds: float = 0.0
    count: int = 0
    status: int = 500
    error_type: str | None = None
    message: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str | None = None
    attempts: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(FaultKind):
            raise ValueError(f"fault kind {self.kind!r} is unknown; use one of {', '.join(get_args(FaultKind))}")


class Pace:
    """How far a streamed answer comes: `deltas` at once, more when the test says so, its end after `finish` only.

    So a test stops or looks in the middle of an answer however slow the machine is.
    """

    def __init__(self, deltas: int = 0) -> None:
        self._permits = threading.Semaphore(deltas)
        self._finish = threading.Event()

    def more(self, deltas: int = 1) -> None:
        """Let so many deltas more come."""
        self._permits.release(deltas)

    def finish(self) -> None:
        """Let all the rest come."""
        self._finish.set()

    def lets_delta(self, timeout_s: float) -> bool:
        """Wait for leave to send a delta; say whether it came."""
        return self._finish.is_set() or self._permits.acquire(timeout=timeout_s)

    def lets_end(self, timeout_s: float) -> bool:
        """Wait for leave to end the answer; say whether it came."""
        return self._finish.wait(timeout_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One scripted answer.

    `stop_reason`: BY_CONTENT derives it; None ends a stream without message_delta and
    message_stop. `usage` overrides single fields of the computed usage. `pace` holds a streamed answer back.
    """

    blocks: tuple[Block, ...] = ()
    stop_reason: str | None = BY_CONTENT
    stop_sequence: str | None = None
    stop_details: Mapping[str, Any] | None = None
    usage: Mapping[str, Any] = field(default_factory=dict)
    delta_size_chars: int = 24
    delta_delay_s: float = 0.0
    pace: Pace | None = None
    fault: Fault | None = None

    def reason(self) -> str | None:
        """Return the stop reason that goes on the wire."""
        if self.fault is not None and self.fault.kind == "cut_tool_json":
            return "max_tokens"
        if self.stop_reason != BY_CONTENT:
            return self.stop_reason
        return "tool_use" if any(block["type"] == "tool_use" for block in self.blocks) else "end_turn"


def reply(*parts: str | Block | Sequence[Block], fault: Fault | None = None, **options: Any) -> Reply:
    """Build a reply; strings become text blocks, sequences of blocks are laid flat.

    `options` are the other fields of Reply.
    """
    blocks: list[Block] = []
    for part in parts:
        if isinstance(part, str):
            blocks.append(text(part))
        elif isinstance(part, Mapping):
            blocks.append(part)
        else:
            blocks.extend(part)
    return Reply(blocks=tuple(blocks), fault=fault, **options)


def text(content: str) -> JSON:
    """Build a text block."""
    return {"type": "text", "text": content}


def thinking(content: str) -> JSON:
    """Build a thinking block; the fake signs it, and omits the text unless summaries are asked for."""
    return {"type": "thinking", "thinking": content}


def redacted() -> JSON:
    """Build a redacted_thinking block; its data is the signature."""
    return {"type": "redacted_thinking"}


def call(name: str, tool_input: Any, id: str | None = None) -> JSON:
    """Build a tool_use block; without an id it gets the next of toolu_0001, toolu_0002, …"""
    return {"type": "tool_use", "id": id, "name": name, "input": tool_input}


def server_call(name: str, tool_input: JSON, result: Any, *, id: str = "srvtoolu_0001") -> tuple[JSON, ...]:
    """Build a server tool's call and its result; a result of None leaves the call open."""
    use = {"type": "server_tool_use", "id": id, "name": name, "input": tool_input}
    if result is None:
        return (use,)
    return (use, {"type": f"{name}_tool_result", "tool_use_id": id, "content": result})


def http_error(
    status: int,
    message: str = "",
    *,
    error_type: str | None = None,
    headers: Mapping[str, str] | None = None,
    body: str | None = None,
    attempts: int | None = None,
) -> Fault:
    """Answer with an error status; `body` (HTML, say) replaces the JSON error."""
    return Fault(
        kind="http_error",
        status=status,
        message=message,
        error_type=error_type,
        headers=headers or {},
        body=body,
        attempts=attempts,
    )


def rate_limited(retry_after_s: float = 0, *, attempts: int | None = None) -> Fault:
    """Answer 429 with a retry-after header."""
    message = "This request would exceed your organization's rate limit."
    return http_error(429, message, headers={"retry-after": f"{retry_after_s:g}"}, attempts=attempts)


def overloaded(*, attempts: int | None = None) -> Fault:
    """Answer 529."""
    return http_error(529, "Overloaded", attempts=attempts)


def bad_gateway() -> Fault:
    """Answer 502 with an HTML page, as an edge server does."""
    page = "<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>"
    return http_error(502, headers={"content-type": "text/html"}, body=page)


def too_large() -> Fault:
    """Answer 413 with a body that is not JSON, as an edge server does."""
    return http_error(413, headers={"content-type": "text/plain"}, body="Request Entity Too Large")


def stall_before_headers(seconds: float) -> Fault:
    """Wait before the status line, then answer normally."""
    return Fault(kind="stall_before_headers", seconds=seconds)


def stall(seconds: float, *, after: int = 1) -> Fault:
    """Wait in the middle of the stream, then go on."""
    return Fault(kind="stall", seconds=seconds, after=after)


def reset(*, after: int = 1) -> Fault:
    """Reset the connection after `after` deltas."""
    return Fault(kind="reset", after=after)


def eof(*, after: int = 1) -> Fault:
    """End the response cleanly after `after` deltas, without message_stop."""
    return Fault(kind="eof", after=after)


def error_event(message: str = "Overloaded", *, error_type: str = "overloaded_error", after: int = 1) -> Fault:
    """End the stream with an error event after `after` deltas."""
    return Fault(kind="error_event", message=message, error_type=error_type, after=after)


def first_error_event(message: str = "Overloaded", *, error_type: str = "overloaded_error") -> Fault:
    """Send an error event and nothing else."""
    return Fault(kind="first_error_event", message=message, error_type=error_type)


def malformed_frame(*, after: int = 1) -> Fault:
    """Send one frame whose data is not JSON, then go on."""
    return Fault(kind="malformed_frame", after=after)


def no_event_line(*, after: int = 1) -> Fault:
    """Send the next delta without its `event:` line."""
    return Fault(kind="no_event_line", after=after)


def ping_flood(count: int = 50, *, after: int = 1) -> Fault:
    """Send `count` pings in a row."""
    return Fault(kind="ping_flood", count=count, after=after)


def crlf() -> Fault:
    """End all lines of the stream with CRLF."""
    return Fault(kind="crlf")


def split_bytes(size_bytes: int = 3) -> Fault:
    """Cut the stream into chunks of a few bytes, through UTF-8 sequences too."""
    return Fault(kind="split_bytes", count=size_bytes)


def no_usage() -> Fault:
    """Leave `usage` out of message_delta."""
    return Fault(kind="no_usage")


def output_usage_only() -> Fault:
    """Leave the input counts out of message_delta; legal."""
    return Fault(kind="output_usage_only")


def unknown_event(*, after: int = 1) -> Fault:
    """Send one event of an unknown type, then go on."""
    return Fault(kind="unknown_event", after=after)


def unknown_delta(*, after: int = 1) -> Fault:
    """Send one delta of an unknown type, then go on."""
    return Fault(kind="unknown_delta", after=after)


def empty_stream() -> Fault:
    """Answer 200 with no events."""
    return Fault(kind="empty_stream")


def not_json(body: str = "upstream connect error") -> Fault:
    """Answer 200 with a body that is neither JSON nor events."""
    return Fault(kind="not_json", body=body)


def cut_tool_json(*, after: int) -> Fault:
    """Cut the last tool call's JSON after `after` characters and stop with max_tokens."""
    return Fault(kind="cut_tool_json", after=after)


def reply_from_json(value: object) -> Reply:
    """Read a reply from a script file: a string, or an object with the fields of Reply.

    Strings in `blocks` are text; `fault` is an object with the fields of Fault.

    Raises:
        ValueError: an unknown field or kind.
    """
    if isinstance(value, str):
        return reply(value)
    if not isinstance(value, dict):
        raise ValueError(f"reply {json.dumps(value)}: must be a string or an object")
    options = {key: value[key] for key in value if key not in ("blocks", "fault")}
    unknown = options.keys() - {one.name for one in fields(Reply) if one.name != "pace"}
    if unknown:
        raise ValueError(f"reply {json.dumps(value)}: unknown fields {sorted(unknown)}")
    fault = Fault(**value["fault"]) if value.get("fault") else None
    return reply(*value.get("blocks", ()), fault=fault, **options)
