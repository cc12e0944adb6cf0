"""Server-sent events, from bytes to JSON objects, as the Messages API sends them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any


class EventReader:
    """Feed it bytes as they arrive; it yields the JSON object of each event.

    Lines may end in LF, CRLF or CR, be cut anywhere (also inside a character), and an event may
    lack its `event:` line, since the type is in the data too. Comments, `id:` and `retry:` are ignored.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> Iterator[dict[str, Any]]:
        """Yield the events that `chunk` completes.

        Raises:
            ValueError: the data of an event is not JSON.
        """
        lines = (self._rest + chunk).split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            yield from self._line(line[:-1] if line.endswith(b"\r") else line)

    def end(self) -> Iterator[dict[str, Any]]:
        """Yield what a stream that ended without a last blank line still holds, when it is whole."""
        if self._rest.strip():
            yield from self._line(self._rest.rstrip(b"\r"))
            self._rest = b""
        yield from self._dispatch()

    def _line(self, line: bytes) -> Iterator[dict[str, Any]]:
        if not line:
            yield from self._dispatch()
        elif line.startswith(b"data:"):
            self._data.append(line[6:] if line.startswith(b"data: ") else line[5:])
        elif b"\r" in line:
            for part in line.split(b"\r"):
                yield from self._line(part)

    def _dispatch(self) -> Iterator[dict[str, Any]]:
        if not self._data:
            return
        data = b"\n".join(self._data)
        self._data = []
        event = json.loads(data)
        if isinstance(event, dict):
            yield event
