"""A fake of POST /v1/messages that costs its client nothing: no checks, no latency, deterministic.

    python benchmarks/fast_fake.py            # prints its URL, ends when its standard input does

The path says what a conversation is, and each path has a counter of its own:

* `/loop/2-200/NAME/v1/messages`: two replies with one call of `read_chunk` each, then a text; then 200, and a text;
* `/answer/1000-100000/50-5000/NAME/v1/messages`: a text of 1,000 characters in 50 deltas, then one of 100,000 in 5,000.

A request that asks for a stream gets one, an event an HTTP chunk. `GET /seen/...` tells the bytes and
the requests that came on a path. Usage is told as four bytes a token. `tests/fakes` is the fake that
checks what it gets; this one is written so that a client's figures hold the client's work only.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections import defaultdict
from itertools import accumulate

DELTAS_A_CALL = 4


def answer_text(chars: int) -> str:
    """Return `chars` characters of Markdown."""
    block = (
        "## Part {i}\n\nThe mean of `price` rose **by {i} %**, see [the table](#t{i}); the reason is that the "
        "sample changed between the two periods, as the outline says.\n\n- first point of {i}\n- second point\n\n"
        "```python\ndf.groupby('city').price.mean().sort_values()\n```\n\n"
    )
    return "".join(block.replace("{i}", str(i)) for i in range(chars // 250 + 1))[:chars]


class Seen:
    """What came on each path."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.requests: dict[str, int] = defaultdict(int)
        self.sent_bytes: dict[str, int] = defaultdict(int)

    def note(self, path: str, size: int) -> int:
        with self.lock:
            self.requests[path] += 1
            self.sent_bytes[path] += size
            return self.requests[path]


def reply_block(path: str, number: int) -> dict[str, object]:
    kind, first, *_ = path.strip("/").split("/")
    if kind == "answer":
        return {"type": "text", "text": answer_text(nth(first, number))}
    ends = list(accumulate(int(calls) + 1 for calls in first.split("-")))
    if number in ends or number > ends[-1]:  # beyond it when a request for a note was answered with the last text
        return {"type": "text", "text": "All chunks are read."}
    return {"type": "tool_use", "id": f"toolu_{number:06d}", "name": "read_chunk", "input": {"i": number}}


def nth(numbers: str, number: int) -> int:
    """Return the value for request `number` of a list like "1000-100000"; the last holds for all that follow."""
    values = numbers.split("-")
    return int(values[min(number, len(values)) - 1])


def deltas_of(path: str, number: int) -> int:
    parts = path.strip("/").split("/")
    return nth(parts[2], number) if parts[0] == "answer" else DELTAS_A_CALL


def whole(block: dict[str, object], number: int, size: int) -> dict[str, object]:
    return {
        "id": f"msg_{number:06d}", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5",
        "content": [block], "stop_reason": "tool_use" if block["type"] == "tool_use" else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": size // 4, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0,
                  "output_tokens": 40, "service_tier": "standard"},
    }  # fmt: skip


def events(message: dict[str, object], block: dict[str, object], deltas: int) -> bytes:
    """Return the message as a chunked stream, an event a chunk."""
    is_text = block["type"] == "text"
    text = str(block["text"]) if is_text else json.dumps(block["input"])
    size = max(1, -(-len(text) // deltas))
    kind, field = ("text_delta", "text") if is_text else ("input_json_delta", "partial_json")
    opened = {**block, "text": ""} if is_text else {**block, "input": {}}
    usage = message["usage"]
    assert isinstance(usage, dict)
    told: list[dict[str, object]] = [
        {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": opened},
    ]
    for start in range(0, len(text), size):
        delta = {"type": kind, field: text[start : start + size]}
        told.append({"type": "content_block_delta", "index": 0, "delta": delta})
    told += [
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": message["stop_reason"], "stop_sequence": None},
         "usage": {"output_tokens": usage["output_tokens"]}},
        {"type": "message_stop"},
    ]  # fmt: skip
    out = []
    for event in told:
        line = f"event: {event['type']}\ndata: {json.dumps(event, separators=(',', ':'))}\n\n".encode()
        out.append(b"%x\r\n%b\r\n" % (len(line), line))
    return b"".join(out) + b"0\r\n\r\n"


def plain(status: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def answer(seen: Seen, path: str, body: bytes) -> bytes:
    number = seen.note(path, len(body))
    block = reply_block(path, number)
    message = whole(block, number, len(body))
    if b'"stream":true' in body or b'"stream": true' in body:  # inside of a string the quotes would be escaped
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        return head + events(message, block, deltas_of(path, number))
    return plain("200 OK", json.dumps(message).encode())


def serve(connection: socket.socket, seen: Seen) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with connection, connection.makefile("rb", buffering=1 << 20) as lines:
        while request := lines.readline():
            method, target, _ = request.decode("latin-1").split(" ", 2)
            size = 0
            while (line := lines.readline()) not in (b"\r\n", b""):
                name, _, value = line.partition(b":")
                if name.lower() == b"content-length":
                    size = int(value)
            body = lines.read(size)
            path = target.partition("?")[0].removeprefix("/seen")
            if target.startswith("/seen/"):
                told = {"requests": seen.requests[path], "bytes": seen.sent_bytes[path]}
                connection.sendall(plain("200 OK", json.dumps(told).encode()))
            elif method == "POST" and path.endswith("/messages"):
                connection.sendall(answer(seen, path, body))
            else:
                error = b'{"type":"error","error":{"type":"not_found_error","message":"not here"}}'
                connection.sendall(plain("404 Not Found", error))


def accept(server: socket.socket, seen: Seen) -> None:
    while True:
        connection, _ = server.accept()
        threading.Thread(target=serve, args=(connection, seen), daemon=True).start()


def main() -> None:
    server = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=accept, args=(server, Seen()), daemon=True).start()
    print(f"http://127.0.0.1:{server.getsockname()[1]}", flush=True)
    sys.stdin.read()  # whoever started it closes the pipe, or ends


if __name__ == "__main__":
    main()
