"""Archive: a conversation as something to search and to point into, whatever the model still sees of it.

The `recall` tool reads it, and the loss report asks it whether an anchor could be found again. What a
pointer looks like is said here once: "`recall` ID" or "`recall` ID..ID", in the line that is its label.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from nbagent.context.anchors import said
from nbagent.core.entries import Entry
from nbagent.core.ranking import Bm25, Words

CHUNK_CHARS: Final = 2_000  # section 3.2 of the performance and evaluation report: chunks of 2 KB, the best 5
OVERLAP_CHARS: Final = 200
TOP: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A piece of an entry's text; `position` is the entry's place in the path, `start` in characters."""

    entry_id: str
    position: int
    start: int
    text: str


class Archive:
    """The texts of a path in chunks, found by their words. Grows with the path; notes of compactions are left out."""

    def __init__(self, path: Iterable[Entry] = (), words: Words | None = None) -> None:
        self.words = words or Words()
        self._index = Bm25(self.words)
        self._chunks: list[Chunk] = []
        self._first_chunk: list[int] = []
        for entry in path:
            self.add(entry.id, said(entry.body).text)

    def __len__(self) -> int:
        return len(self._first_chunk)

    def add(self, entry_id: str, text: str) -> None:
        """Add the next entry of the path; one without text only counts."""
        position = len(self._first_chunk)
        self._first_chunk.append(len(self._chunks))
        for start in range(0, len(text), CHUNK_CHARS):
            piece = text[start : start + CHUNK_CHARS + OVERLAP_CHARS]
            self._index.add(piece)
            self._chunks.append(Chunk(entry_id=entry_id, position=position, start=start, text=piece))

    def search(self, terms: Iterable[str], *, limit: int = TOP, before: int | None = None) -> list[Chunk]:
        """Return the best chunks for the terms, best first; `before` leaves out entries from that position on."""
        below = self._first_chunk[before] if before is not None and before < len(self._first_chunk) else None
        return [self._chunks[hit.index] for hit in self._index.search_terms(terms, limit, below=below)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Handle:
    """A pointer in the context. `label` is its line without the pointer; the targets are positions in the path."""

    label: str
    first: int
    last: int


_HANDLE: Final = re.compile(
    r"`?\brecall`?[ (]+[\"'`]?([0-9A-Za-z_-]+)[\"'`]?(?:(?:\.\.| to )[\"'`]?([0-9A-Za-z_-]+))?\)?"
)


def find_handles(text: str, positions: Mapping[str, int]) -> list[Handle]:
    """Return the pointers in `text` to entries whose positions are given, in order.

    >>> find_handles("the failing test run: `recall` e7", {"e7": 12})
    [Handle(label='the failing test run:', first=12, last=12)]
    """
    found: list[Handle] = []
    for line in text.splitlines():
        if "recall" not in line:
            continue
        label = _HANDLE.sub("", line).strip()
        for match in _HANDLE.finditer(line):
            first = positions.get(match[1])
            last = positions.get(match[2] or match[1])
            if first is not None and last is not None and first <= last:
                found.append(Handle(label=label, first=first, last=last))
    return found


def pointer(first: str, last: str | None = None) -> str:
    """Return the words that point to an entry, or to all from `first` to `last`; its line should say what is there."""
    return f"`recall` {first}" if last in (None, first) else f"`recall` {first}..{last}"


def target_text(texts: Sequence[str], handle: Handle) -> str:
    """Return what following a pointer would show, given the texts of the path by position."""
    return "\n".join(t for t in texts[handle.first : handle.last + 1] if t)
