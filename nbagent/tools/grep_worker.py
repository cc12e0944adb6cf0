"""Runs one search in a process of its own, so that a regular expression that never ends can be killed.

`re` holds the interpreter and cannot be interrupted; limits on the length of lines do not help, since
`(a+)+$` takes years on 40 characters. Run as a script, without nbagent: a JSON object on standard input,
JSON lines on standard output, so that what was found before a kill is not lost.
"""

from __future__ import annotations

import codecs
import json
import os
import re
import sys
import warnings
from collections import deque
from collections.abc import Iterator
from typing import Any

PIECE_BYTES = 1 << 20  # longer lines are searched in pieces of this size
WIDE_LIMIT_BYTES = 16 << 20
SHOWN_CHARS = 500
WIDE_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def main() -> None:
    """Search, and end with a line of counts."""
    warnings.simplefilter("ignore")
    task = json.load(sys.stdin)
    try:
        pattern = re.compile(task["pattern"], re.IGNORECASE if task["ignore_case"] else 0)
    except (re.error, OverflowError, RecursionError, MemoryError) as error:
        emit({"invalid": str(error)})
        return
    counts = {"matches": 0, "files": 0, "searched": 0, "binary": 0, "unreadable": 0}
    for path, name in task["files"]:
        try:
            search_file(path, name, pattern=pattern, task=task, counts=counts)
        except OSError:
            counts["unreadable"] += 1
    emit({"done": counts})


def emit(value: dict[str, Any]) -> None:
    """Write one line, at once, so that a kill loses nothing."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def search_file(
    path: str, name: str, *, pattern: re.Pattern[str], task: dict[str, Any], counts: dict[str, int]
) -> None:
    """Emit the matching lines of a file with their surroundings, and count all."""
    around = task["context_lines"]
    before: deque[tuple[int, str]] = deque(maxlen=around)
    after = found = 0
    for number, line in read_lines(path, counts):
        match = pattern.search(line)
        if match is None:
            if after > 0:
                emit({"name": name, "line": number, "text": excerpt(line, 0)})
                after -= 1
            elif around:
                before.append((number, line))
            continue
        found += 1
        counts["matches"] += 1
        if counts["matches"] > task["limit"]:
            after = 0
            continue
        for earlier, text in before:
            emit({"name": name, "line": earlier, "text": excerpt(text, 0)})
        before.clear()
        emit({"name": name, "line": number, "text": excerpt(line, match.start()), "match": True})
        after = around
    counts["files"] += found > 0


def read_lines(path: str, counts: dict[str, int]) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines of an ordinary text file; nothing for a binary one."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(path, flags), "rb") as handle:
        head = handle.read(8_192)
        handle.seek(0)
        counts["searched"] += 1
        if head.startswith(WIDE_MARKS) and os.fstat(handle.fileno()).st_size <= WIDE_LIMIT_BYTES:
            yield from enumerate(handle.read().decode("utf-16", "replace").split("\n"), 1)
            return
        if b"\0" in head:
            counts["binary"] += 1
            return
        if head.startswith(codecs.BOM_UTF8):
            handle.seek(3)
        number, whole = 1, True
        while raw := handle.readline(PIECE_BYTES):
            yield number, raw.decode("utf-8", "replace").rstrip("\r\n")
            whole = raw.endswith(b"\n")
            number += whole


def excerpt(line: str, at: int) -> str:
    """Return at most 500 characters of a line around the match."""
    if len(line) <= SHOWN_CHARS:
        return line
    start = max(0, min(at - SHOWN_CHARS // 4, len(line) - SHOWN_CHARS))
    end = start + SHOWN_CHARS
    head = f"[… {start}] " if start else ""
    tail = f" [… {len(line) - end}]" if end < len(line) else ""
    return f"{head}{line[start:end]}{tail}"


if __name__ == "__main__":
    main()
