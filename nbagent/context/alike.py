"""Alike: how similar two sources in a context are, and the first thing that tells them apart."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Final

SHINGLE_WORDS: Final = 3
LEAST_SHINGLES: Final = 20  # shorter texts are alike by chance
COMPARED_CHARS: Final = 20_000  # of each text
SHOWN_CHARS: Final = 80
_NUMBERED: Final = re.compile(r"^\d+\t", re.MULTILINE)  # how `read` numbers lines
_CLOSING: Final = re.compile(r"\n?\[[^\n]*\]\Z")  # the note that `read` ends with
_WORD: Final = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True, kw_only=True)
class Source:
    """A file or a variable as a result shows it. `order` is the result's place in the conversation."""

    kind: str
    name: str
    entry_id: str
    order: int
    text: str

    @cached_property
    def shingles(self) -> frozenset[tuple[str, ...]]:
        """Each three words in a row."""
        words = _WORD.findall(self.text[:COMPARED_CHARS])
        return frozenset(zip(*(words[i:] for i in range(SHINGLE_WORDS)), strict=False))


def source_text(kind: str, name: str, text: str) -> str:
    """Return what a result shows of a source, without line numbers, closing notes and the source's own name."""
    if kind == "file":
        return _NUMBERED.sub("", _CLOSING.sub("", text))
    return text.removeprefix(f"{name}: ")


def likeness(one: Source, other: Source) -> float:
    """Return which share of their shingles two sources of one kind have in common (Jaccard); 0 for short ones."""
    if one.kind != other.kind or not 0.5 <= (len(one.text) + 1) / (len(other.text) + 1) <= 2:
        return 0.0
    if min(len(one.shingles), len(other.shingles)) < LEAST_SHINGLES:
        return 0.0
    shared = len(one.shingles & other.shingles)
    return shared / (len(one.shingles) + len(other.shingles) - shared)


def difference(one: Source, other: Source) -> str:
    """Return in a line what tells two sources apart: the first lines that only one of them has."""
    mine, theirs = one.text.splitlines(), other.text.splitlines()
    only_mine, only_theirs = _first_not_in(mine, set(theirs)), _first_not_in(theirs, set(mine))
    if only_mine is None and only_theirs is None:
        return "no line differs" if len(mine) == len(theirs) else f"{len(mine):,} and {len(theirs):,} lines"
    parts = [
        f"only {source.name} has {line.strip()[:SHOWN_CHARS]!r}"
        for source, line in ((one, only_mine), (other, only_theirs))
        if line is not None
    ]
    return ", ".join(parts)


def _first_not_in(lines: list[str], known: set[str]) -> str | None:
    return next((line for line in lines if line.strip() and line not in known), None)
