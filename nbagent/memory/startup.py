"""What of memory is loaded when a conversation starts: MEMORY.md, then yesterday's and today's log (OC-M3). PURE."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

MAX_LINES: Final = 200  # Claude Code's limits of MEMORY.md (its documentation, 2026-11)
MAX_BYTES: Final = 25 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class StartupPart:
    """A note, or a part of one: `cut` says that more exists, which `text` says too. `lines` are those in `text`."""

    name: str
    text: str
    cut: bool
    total_lines: int
    lines: int


def cut_note(text: str, name: str) -> StartupPart:
    """Return a note within 200 lines and 25 KB, cut at a line's end, then a line that says so.

    Of a daily log the newest lines count, so its end is kept: call `cut_log`.
    """
    lines = text.rstrip().split("\n")
    kept = _fitting(lines[:MAX_LINES], MAX_BYTES)
    if len(kept) == len(lines):
        return StartupPart(name=name, text="\n".join(kept), cut=False, total_lines=len(lines), lines=len(kept))
    note = f"[{name} goes on: lines 1-{len(kept)} of {len(lines)} are here; memory_search and memory_get find the rest]"
    return StartupPart(
        name=name, text="\n".join([*kept, note]), cut=True, total_lines=len(lines), lines=len(kept)
    )


def cut_log(text: str, name: str, limit_chars: int = MAX_BYTES) -> StartupPart:
    """Return a daily log within 200 lines, 25 KB and `limit_chars`: its end, after a line that says so."""
    lines = text.rstrip().split("\n")
    kept = _fitting(lines[: -MAX_LINES - 1 : -1], limit_chars)[::-1]
    if len(kept) == len(lines):
        return StartupPart(name=name, text="\n".join(kept), cut=False, total_lines=len(lines), lines=len(kept))
    first = len(lines) - len(kept) + 1
    note = f"[{name} begins earlier: lines {first}-{len(lines)} are here; memory_get reads the rest]"
    return StartupPart(
        name=name, text="\n".join([note, *kept]), cut=True, total_lines=len(lines), lines=len(kept)
    )


def _fitting(lines: Sequence[str], limit_chars: int) -> list[str]:
    """Return the first of `lines` that fit within 25 KB and `limit_chars`."""
    size = chars = 0
    for count, line in enumerate(lines):
        size += len(line.encode("utf-8", "replace")) + 1
        chars += len(line) + 1
        if size > MAX_BYTES or chars > limit_chars:
            return list(lines[:count])
    return list(lines)


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
