"""Server-sent events, from bytes to JSON objects, as the Messages API sends them."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from typing import Any

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


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
        text = self._rest + chunk
        if b"\r" not in text:
            lines = text.split(b"\n")
            self._rest = lines.pop()
        else:
            # A CR at the end may be half of a CRLF: it waits for the next byte.
            held = b"\r" if text.endswith(b"\r") else b""
            lines = _LINE_END.split(text[:-1] if held else text)
            self._rest = lines.pop() + held
        for line in lines:
            yield from self._line(line)

    def end(self) -> Iterator[dict[str, Any]]:
        """Yield what a stream that ended without a last blank line still holds, when it is whole."""
        rest, self._rest = self._rest, b""
        with contextlib.suppress(ValueError):
            for line in _LINE_END.split(rest):
                if line:
                    yield from self._line(line)
            yield from self._dispatch()

    def _line(self, line: bytes) -> Iterator[dict[str, Any]]:
        if not line:
            yield from self._dispatch()
            return
        line = line.removeprefix(_BYTE_ORDER_MARK)
        if line.startswith(b"data:"):
            self._data.append(line[6:] if line.startswith(b"data: ") else line[5:])

    def _dispatch(self) -> Iterator[dict[str, Any]]:
        if not self._data:
            return
        text = b"\n".join(self._data)
        self._data = []
        event = json.loads(text)
        if isinstance(event, dict):
            yield event
