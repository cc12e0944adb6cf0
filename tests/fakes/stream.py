"""A message as server-sent events, with the faults that happen inside a stream."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from tests.fakes.replies import Fault, Reply

JSON = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Wait. `stalls` says that it is a fault, not the pace of the answer."""

    seconds: float
    stalls: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """Wait until `opens`, which waits itself for so many seconds, says that it is open."""

    opens: Callable[[float], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Break off: `reset` drops the connection, `end` finishes the response early."""

    how: Literal["reset", "end"]


Action = bytes | Pause | Gate | Cut


def tool_json(tool_input: object) -> str:
    """Return the JSON text of a tool's input; a string is sent as it is, to script broken JSON."""
    return tool_input if isinstance(tool_input, str) else json.dumps(tool_input, ensure_ascii=False)


def events(message: JSON, reply: Reply) -> Iterator[JSON]:
    """Yield the events of a finished message: start, blocks, delta, stop.

    A message whose stop_reason is None ends after its last block.
    """
    usage = message["usage"]
    start = {**message, "content": [], "stop_reason": None, "stop_sequence": None, "stop_details": None}
    yield {"type": "message_start", "message": {**start, "usage": {**usage, "output_tokens": 1}}}
    yield {"type": "ping"}
    for i, block in enumerate(message["content"]):
        yield from _block_events(i, block, reply, last=i == len(message["content"]) - 1)
    if message["stop_reason"] is None:
        return
    delta = {name: message[name] for name in ("stop_reason", "stop_sequence", "stop_details")}
    final: JSON = {"type": "message_delta", "delta": delta, "usage": _final_usage(usage, reply.fault)}
    if "context_management" in message:
        final["context_management"] = message["context_management"]
    if reply.fault is not None and reply.fault.kind == "no_usage":
        del final["usage"]
    yield final
    yield {"type": "message_stop"}


def _final_usage(usage: JSON, fault: Fault | None) -> JSON:
    names: tuple[str, ...] = ("output_tokens", "output_tokens_details", "server_tool_use")
    if fault is None or fault.kind != "output_usage_only":
        names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "iterations", *names)
    return {name: usage[name] for name in names if name in usage}


def _block_events(index: int, block: JSON, reply: Reply, *, last: bool) -> Iterator[JSON]:
    yield {"type": "content_block_start", "index": index, "content_block": _opening(block)}
    for delta in _deltas(block, reply, last=last):
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


def _opening(block: JSON) -> JSON:
    match block["type"]:
        case "text":
            return {**block, "text": ""}
        case "thinking":
            return {**block, "thinking": "", "signature": ""}
        case "tool_use" | "server_tool_use":
            return {**block, "input": {}}
        case "compaction":
            return {**block, "content": None}
        case _:
            return block


def _deltas(block: JSON, reply: Reply, *, last: bool) -> Iterator[JSON]:
    size = reply.delta_size_chars
    match block["type"]:
        case "text":
            for piece in _pieces(block["text"], size):
                yield {"type": "text_delta", "text": piece}
        case "thinking":
            for piece in _pieces(block["thinking"], size):
                yield {"type": "thinking_delta", "thinking": piece}
            yield {"type": "signature_delta", "signature": block["signature"]}
        case "compaction":
            yield {"type": "compaction_delta", "content": block["content"]}
        case "tool_use" | "server_tool_use":
            yield {"type": "input_json_delta", "partial_json": ""}
            for piece in _pieces(_input_text(block, reply, last=last), size):
                yield {"type": "input_json_delta", "partial_json": piece}


def _input_text(block: JSON, reply: Reply, *, last: bool) -> str:
    if block["input"] == {}:
        return ""  # the service sends no JSON at all for an empty input
    found = tool_json(block["input"])
    if last and reply.fault is not None and reply.fault.kind == "cut_tool_json":
        return found[: reply.fault.after]
    return found


def _pieces(content: str, size: int) -> Iterator[str]:
    for i in range(0, len(content), max(1, size)):
        yield content[i : i + max(1, size)]


def actions(message: JSON, reply: Reply) -> Iterator[Action]:
    """Yield what the server does to stream a message: bytes to send, pauses, gates, a cut."""
    if reply.fault is not None and reply.fault.kind == "split_bytes":
        whole = b"".join(action for action in _actions(message, reply) if isinstance(action, bytes))
        step = max(1, reply.fault.count)
        yield from (whole[i : i + step] for i in range(0, len(whole), step))
        return
    yield from _actions(message, reply)


def _actions(message: JSON, reply: Reply) -> Iterator[Action]:
    fault = reply.fault
    kind = fault.kind if fault is not None else ""
    newline = "\r\n" if kind == "crlf" else "\n"
    if fault is not None and kind == "first_error_event":
        yield frame(_error(fault))
        return
    if kind == "empty_stream":
        return
    deltas = 0
    pending = fault is not None
    for event in events(message, reply):
        if fault is not None and pending and _is_due(fault, event, deltas):
            strikes = tuple(_strike(fault, event))
            pending = kind == "no_event_line" and not strikes
            yield from strikes
            if strikes and isinstance(strikes[-1], Cut):
                return
            if kind == "no_event_line" and strikes:
                deltas += 1
                continue
        if event["type"] == "content_block_delta":
            deltas += 1
            if reply.delta_delay_s:
                yield Pause(seconds=reply.delta_delay_s)
            if reply.pace is not None:
                yield Gate(opens=reply.pace.lets_delta)
        elif event["type"] == "message_delta" and reply.pace is not None:
            yield Gate(opens=reply.pace.lets_end)
        yield frame(event, newline)


def _is_due(fault: Fault, event: JSON, deltas: int) -> bool:
    """A fault is due after its deltas, at the latest before message_delta."""
    return event["type"] != "message_start" and (deltas >= fault.after or event["type"] == "message_delta")


def _strike(fault: Fault, event: JSON) -> Iterator[Action]:
    """Yield what a fault puts in front of `event`, or in its place; a Cut ends the stream."""
    match fault.kind:
        case "stall":
            yield Pause(seconds=fault.seconds, stalls=True)
        case "reset":
            yield Cut(how="reset")
        case "eof":
            yield Cut(how="end")
        case "error_event":
            yield frame(_error(fault))
            yield Cut(how="end")
        case "malformed_frame":
            yield b'event: content_block_delta\ndata: {"type": "content_block_delta", "index": 0, "del\n\n'
        case "no_event_line" if event["type"] == "content_block_delta":
            yield frame(event).split(b"\n", 1)[1]
        case "ping_flood":
            yield from (frame({"type": "ping"}) for _ in range(fault.count))
        case "unknown_event":
            yield frame({"type": "weather_report", "outlook": "sunny"})
        case "unknown_delta":
            mood = {"type": "mood_delta", "mood": "calm"}
            yield frame({"type": "content_block_delta", "index": event.get("index", 0), "delta": mood})


def _error(fault: Fault) -> JSON:
    return {"type": "error", "error": {"type": fault.error_type or "api_error", "message": fault.message}}


def frame(event: JSON, newline: str = "\n") -> bytes:
    """Return one event on the wire."""
    shown = json.dumps(event, ensure_ascii=False, separators=(",", ":"))
    text = f"event: {event['type']}{newline}data: {shown}{newline}{newline}"
    return text.encode("utf-8", "surrogatepass")
