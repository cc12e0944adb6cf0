"""Fenced code in Markdown, a line at a time: where it opens and where it ends, also within a list item. PURE."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

_OPENS: Final = re.compile(r"^(\s{0,12}(?:(?:[-*+]|\d{1,9}[.)])[ \t]+){0,3})(`{3,}(?=[^`]*$)|~{3,})")
ITEM_COLUMNS: Final = 2  # of "- ", which an indented fence below an item is taken to be in
_COMMENT: Final = re.compile(r"[ \t]*<!--.*?-->")


@dataclass(frozen=True, slots=True)
class Fence:
    """Open code: `sign` ends it, and so does a line left of column `indent`, where the item that holds it ends."""

    sign: str
    indent: int

    def is_left_by(self, line: str) -> bool:
        """Tell whether a line stands outside of the item that the code is in."""
        return bool(line.strip()) and len(line) - len(line.lstrip()) < self.indent

    def is_closed_by(self, line: str) -> bool:
        """Tell whether a line is the end of the code; a comment behind the sign does not count."""
        text = _COMMENT.sub("", line).strip()
        return text.startswith(self.sign) and not text.strip(self.sign[0])


def fence_opened(line: str) -> Fence | None:
    """Return the code that a line outside of code opens.

    >>> fence_opened("- ```python"), fence_opened("```inline```")
    (Fence(sign='```', indent=2), None)
    """
    found = _OPENS.match(line)
    if found is None:
        return None
    columns = len(found[1])
    return Fence(found[2], columns if found[1].strip() else min(columns, ITEM_COLUMNS))


def open_at_end(lines: Iterable[str]) -> Fence | None:
    """Return the code that is still open after all lines."""
    fence: Fence | None = None
    for line in lines:
        fence = fence_after(line, fence)
    return fence


def fence_after(line: str, fence: Fence | None) -> Fence | None:
    """Return the code that is open behind a line, where `fence` was open before it."""
    if fence is None or fence.is_left_by(line):
        return fence_opened(line)
    return None if fence.is_closed_by(line) else fence
