"""Server-sent events, from bytes to JSON objects, as the Messages API sends them."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from typing import Any

_LINE_END = re.compile(rb"\r\n|\n|\r")
_decode = json.JSONDecoder().decode  # `json.loads` looks for the encoding anew at each event
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class EventReader:
    """Feed it bytes as they arrive; it yields the JSON object of each event.

    Lines may end in LF, CRLF or CR, be cut anywhere (also inside a character), and an event may
    lack its `event:` line, since the type is in the data too. Comments, `id:` and `retry:` are ignored.
    `found` says whether any event came.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self.found = False

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
            if line.startswith(b"data: "):  # nearly every line; the rest is left to `_line`
                self._data.append(line[6:])
            elif line:
                self._line(line)
            elif self._data:
                yield from self._dispatch()

    def end(self) -> Iterator[dict[str, Any]]:
        """Yield what a stream that ended without a last blank line still holds, when it is whole."""
        rest, self._rest = self._rest, b""
        with contextlib.suppress(ValueError):
            for line in _LINE_END.split(rest):
                self._line(line)
            if self._data:
                yield from self._dispatch()

    def _line(self, line: bytes) -> None:
        line = line.removeprefix(_BYTE_ORDER_MARK)
        if line.startswith(b"data:"):
            self._data.append(line[6:] if line.startswith(b"data: ") else line[5:])

    def _dispatch(self) -> tuple[dict[str, Any], ...]:
        """Return the event whose lines have come, none when it is no object."""
        text = b"\n".join(self._data).decode("utf-8", "surrogatepass")
        self._data = []
        event = _decode(text)
        if not isinstance(event, dict):
            return ()
        self.found = True
        return (event,)
