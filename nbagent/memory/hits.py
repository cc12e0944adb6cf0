"""Hit and the other values that memory gives back, and the snippet of a piece. PURE."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from nbagent.core.errors import Diagnostic
from nbagent.core.ranking import stem
from nbagent.memory.provenance import Provenance
from nbagent.memory.recall import Why

SNIPPET_CHARS: Final = 700  # OpenClaw's (OC-M5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A piece found. Lines count from 1, both included; `date` is YYYY-MM-DD or "".

    `source` is "memory" or "sessions". `contradicts` names the hit before it that says something else of the same
    thing: "PATH:LINE"; `older` that this one is older than it, which of an undated note nobody knows.
    """

    path: str
    start_line: int
    end_line: int
    score: float
    snippet: str
    date: str = ""
    heading: str = ""
    source: str = "memory"
    provenance: Provenance | None = None
    contradicts: str = ""
    older: bool = True
    why: Why = field(default_factory=Why)

    @property
    def place(self) -> str:
        """Return "PATH:LINE"."""
        return f"{self.path}:{self.start_line}"

    @property
    def otherwise(self) -> str:
        """Return in words what `contradicts` says, "" when it says nothing."""
        if not self.contradicts:
            return ""
        if self.older:
            return f"older than {self.contradicts}, which says otherwise"
        return f"{self.contradicts} says otherwise"


class Hits(list[Hit]):
    """Hits, best first. `behind` is one sentence on an index that could not be brought up to date, "" when it was."""

    def __init__(self, hits: Iterable[Hit] = (), *, behind: str = "") -> None:
        super().__init__(hits)
        self.behind = behind


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """Lines of a note. `next_line` is where to read on, None at the end."""

    path: str
    text: str
    from_line: int
    lines: int
    total_lines: int
    next_line: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """What memory holds and how it searches. `mode` says in words whether vectors are used and why not."""

    files: int
    pieces: int
    vectors: int
    embedder: str
    mode: str
    preset: str
    index_path: str
    session_pieces: int = 0
    diagnostics: tuple[Diagnostic, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionText:
    """A person's or the agent's words in a turn, for recall. `date` is YYYY-MM-DD."""

    session: str
    turn: str
    role: str
    text: str
    date: str = ""
    cell: str = ""


class SessionSource(Protocol):
    """The journals of the project: all turns, also what was compacted away, also other sessions'."""

    def sessions(self) -> Sequence[tuple[str, int, int]]:
        """Return (name, size in bytes, time of change in nanoseconds) of each session."""
        ...

    def texts(self, session: str) -> Sequence[SessionText]:
        """Return what was said in a session, oldest first; only words of the person and the agent."""
        ...


def snippet(text: str, terms: Sequence[str], limit_chars: int = SNIPPET_CHARS) -> str:
    """Return at most `limit_chars` of `text` around the place where most of `terms` stand, with "…" where it is cut."""
    if len(text) <= limit_chars:
        return text
    stems = {stem(t) for t in terms} | set(terms)
    places = [
        m.start() for m in re.finditer(r"[^\W_]+", text) if stem(m[0].lower()) in stems or any(
            t in m[0] for t in terms if not t.isascii()
        )
    ]  # fmt: skip
    room = limit_chars - 2
    start = 0
    if places:
        best = max(places, key=lambda p: (sum(p <= q < p + room // 2 for q in places), -p))
        start = max(0, min(best - room // 4, len(text) - room))
    if start:
        blank = text.find(" ", start, start + 40)
        start = blank + 1 if blank >= 0 else start
    end = min(len(text), start + room)
    if end < len(text):
        blank = text.rfind(" ", end - 40, end)
        end = blank if blank > start else end
    return f"{'…' if start else ''}{text[start:end]}{'…' if end < len(text) else ''}"
