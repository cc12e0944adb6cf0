"""Archive: a conversation as something to search and to point into, whatever the model still sees of it.

The `recall` tool reads it, and the loss report asks it whether an anchor could be found again. What a
pointer looks like is said here once: "`recall` ID", "`recall` ID..ID" or, for a part of a long entry, "`recall` ID#3",
in the line that is its label.
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
PART_CHARS: Final = 4_000  # of a long entry that one retrieval brings: below 2,000 tokens also where the text is dense


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
    """A pointer in the context. `label` is its line without the pointer; the targets are positions in the path.

    `part` counts from 1 where it leads to a part of one entry; 0 is the whole.
    """

    label: str
    first: int
    last: int
    part: int = 0


_HANDLE: Final = re.compile(
    r"`?\brecall`?[ (]+[\"'`]?([0-9A-Za-z_-]+)(?:#(\d{1,6}))?[\"'`]?(?:(?:\.\.| to )[\"'`]?([0-9A-Za-z_-]+))?\)?"
)


def find_handles(text: str, positions: Mapping[str, int]) -> list[Handle]:
    """Return the pointers in `text` to entries whose positions are given, in order.

    >>> find_handles("the failing test run: `recall` e7", {"e7": 12})
    [Handle(label='the failing test run:', first=12, last=12, part=0)]
    """
    found: list[Handle] = []
    for line in text.splitlines():
        if "recall" not in line:
            continue
        label = _HANDLE.sub("", line).strip()
        for match in _HANDLE.finditer(line):
            first = positions.get(match[1])
            last = positions.get(match[3] or match[1])
            if first is not None and last is not None and first <= last:
                part = int(match[2] or 0) if first == last else 0
                found.append(Handle(label=label, first=first, last=last, part=part))
    return found


def pointer(first: str, last: str | None = None, *, part: int = 0) -> str:
    """Return the words that point to an entry, to all from `first` to `last`, or to a part of the entry `first`.

    Its line should say what is there.
    """
    if part:
        return f"`recall` {first}#{part}"
    return f"`recall` {first}" if last in (None, first) else f"`recall` {first}..{last}"


def parts_of(text: str) -> list[str]:
    """Return the parts that pointers lead to; each goes on a little into the next, so that no word is cut in both."""
    return [text[at : at + PART_CHARS + OVERLAP_CHARS] for at in range(0, len(text), PART_CHARS)]


def target_text(texts: Sequence[str], handle: Handle) -> str:
    """Return what following a pointer would show, given the texts of the path by position."""
    if handle.part:
        start = PART_CHARS * (handle.part - 1)
        return texts[handle.first][start : start + PART_CHARS + OVERLAP_CHARS]
    return "\n".join(t for t in texts[handle.first : handle.last + 1] if t)
