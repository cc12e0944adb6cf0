"""What of memory is loaded when a conversation starts: MEMORY.md, then yesterday's and today's log (OC-M3). PURE."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Final

MAX_LINES: Final = 200  # Claude Code's limits of MEMORY.md (its documentation, 2026-11)
MAX_BYTES: Final = 25 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class StartupPart:
    """A note, or the beginning of one: `cut` says that more exists, which the end of `text` says too."""

    name: str
    text: str
    cut: bool
    total_lines: int


def cut_note(text: str, name: str) -> StartupPart:
    """Return a note within 200 lines and 25 KB, cut at a line's end, then a line that says so.

    Of a daily log the newest lines count, so its end is kept: call `cut_log`.
    """
    lines = text.rstrip().split("\n")
    kept: list[str] = []
    size = 0
    for line in lines[:MAX_LINES]:
        size += len(line.encode("utf-8", "replace")) + 1
        if size > MAX_BYTES:
            break
        kept.append(line)
    if len(kept) == len(lines):
        return StartupPart(name=name, text="\n".join(kept), cut=False, total_lines=len(lines))
    note = f"[{name} goes on: lines 1-{len(kept)} of {len(lines)} are here; memory_search and memory_get find the rest]"
    return StartupPart(name=name, text="\n".join([*kept, note]), cut=True, total_lines=len(lines))


def cut_log(text: str, name: str) -> StartupPart:
    """Return a daily log within the same limits: its end, after a line that says so."""
    lines = text.rstrip().split("\n")
    kept: list[str] = []
    size = 0
    for line in reversed(lines[-MAX_LINES:]):
        size += len(line.encode("utf-8", "replace")) + 1
        if size > MAX_BYTES:
            break
        kept.insert(0, line)
    if len(kept) == len(lines):
        return StartupPart(name=name, text="\n".join(kept), cut=False, total_lines=len(lines))
    first = len(lines) - len(kept) + 1
    note = f"[{name} begins earlier: lines {first}-{len(lines)} are here; memory_get reads the rest]"
    return StartupPart(name=name, text="\n".join([note, *kept]), cut=True, total_lines=len(lines))


def startup_names(today: str) -> tuple[tuple[str, bool], ...]:
    """Return (path below a memory folder, is it a day's log) of what is loaded at start, in order (OC-M3).

    >>> [name for name, _ in startup_names("2026-03-01 (Sunday)")]
    ['MEMORY.md', 'memory/2026-02-28.md', 'memory/2026-03-01.md']
    """
    logs = ((f"memory/{day}.md", True) for day in (day_before(today), today[:10]))
    return ("MEMORY.md", False), *logs


def day_before(today: str) -> str:
    """Return the day before `today` (YYYY-MM-DD).

    >>> day_before("2026-03-01")
    '2026-02-28'
    """
    return (datetime.date.fromisoformat(today[:10]) - datetime.timedelta(days=1)).isoformat()
