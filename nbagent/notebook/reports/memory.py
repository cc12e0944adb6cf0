"""What `%memory` returns: hits as a list, an excerpt, a fact stored, and the status."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, overload

from nbagent.core.errors import Diagnostic
from nbagent.notebook.reports.tables import Code, Document, Line, Table, displayable

SHOWN_QUERY_CHARS = 80


class WhyView(Protocol):
    """The parts of a score."""

    @property
    def keyword(self) -> float: ...
    @property
    def vector(self) -> float: ...
    @property
    def prior(self) -> float: ...
    @property
    def decay(self) -> float: ...
    @property
    def diversity(self) -> float: ...
    @property
    def beside(self) -> bool: ...


class HitView(Protocol):
    """A hit as memory gives it (memory.hits.Hit)."""

    @property
    def path(self) -> str: ...
    @property
    def start_line(self) -> int: ...
    @property
    def end_line(self) -> int: ...
    @property
    def score(self) -> float: ...
    @property
    def snippet(self) -> str: ...
    @property
    def date(self) -> str: ...
    @property
    def contradicts(self) -> str: ...
    @property
    def otherwise(self) -> str: ...
    @property
    def provenance(self) -> Any: ...
    @property
    def why(self) -> Any: ...


class ExcerptView(Protocol):
    """Lines of a note (memory.hits.Excerpt)."""

    @property
    def path(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def from_line(self) -> int: ...
    @property
    def lines(self) -> int: ...
    @property
    def total_lines(self) -> int: ...
    @property
    def next_line(self) -> int | None: ...


class StatusView(Protocol):
    """What memory holds (memory.hits.Status)."""

    @property
    def files(self) -> int: ...
    @property
    def pieces(self) -> int: ...
    @property
    def vectors(self) -> int: ...
    @property
    def embedder(self) -> str: ...
    @property
    def mode(self) -> str: ...
    @property
    def preset(self) -> str: ...
    @property
    def index_path(self) -> str: ...
    @property
    def session_pieces(self) -> int: ...
    @property
    def diagnostics(self) -> Sequence[Diagnostic]: ...


@displayable
class MemoryHits(Sequence[HitView]):
    """The hits of a search, best first: a list that shows itself."""

    def __init__(self, query: str, hits: Iterable[HitView], *, note: str = "") -> None:
        self.query = query
        self.note = note
        self._hits = tuple(hits)

    @overload
    def __getitem__(self, index: int) -> HitView: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[HitView]: ...
    def __getitem__(self, index: int | slice) -> HitView | Sequence[HitView]:
        return self._hits[index]

    def __len__(self) -> int:
        return len(self._hits)

    def document(self) -> Document:
        """Return what is shown: a table, then each snippet with what its score is made of."""
        notes = [Line(text=line, dim=True) for line in self.note.split("\n")]
        if not self._hits:
            return [Line(text=nothing_matches(self.query)), *notes]
        pieces: list[Line | Table | Code] = []
        for number, hit in enumerate(self._hits, 1):
            lines = str(hit.start_line) if hit.start_line == hit.end_line else f"{hit.start_line}-{hit.end_line}"
            head = [f"{number}. {hit.path}:{lines}", hit.date, f"{hit.score:.2f}", _origin(hit.provenance)]
            pieces.append(Line(text=" · ".join(filter(None, head)), strong=True))
            if hit.otherwise:
                pieces.append(Line(text=hit.otherwise))
            pieces.append(Code(text=hit.snippet))
            pieces.append(Line(text=why_words(hit.why), dim=True))
        return [*pieces, *notes]


def nothing_matches(query: str) -> str:
    """Return the line on a search without hits; a long query is shortened.

    >>> nothing_matches("port"), len(nothing_matches("port " * 2_000)) < 150
    ("Nothing in memory matches 'port'.", True)
    """
    shown = query if len(query) <= SHOWN_QUERY_CHARS else query[: SHOWN_QUERY_CHARS - 1] + "…"
    return f"Nothing in memory matches {shown!r}."


def _origin(provenance: Any) -> str:
    if provenance is None:
        return ""
    words = [f"turn {provenance.turn}" if provenance.turn else "", f"cell {provenance.cell}" if provenance.cell else ""]
    return ", ".join(filter(None, words))


def why_words(why: WhyView) -> str:
    """Return what a score is made of."""
    named = (("keyword", why.keyword), ("vector", why.vector), ("prior", why.prior), ("diversity", why.diversity))
    words = [f"{name} {value:.2f}" for name, value in named if value]
    age = f", age ×{why.decay:.2f}" if why.decay != 1 else ""
    beside = "; no word of the query in it, but beside it" if why.beside else ""
    return " + ".join(words).replace("+ diversity -", "- diversity ") + age + beside


@displayable
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class MemoryExcerpt:
    """Lines of a note."""

    excerpt: ExcerptView

    def document(self) -> Document:
        """Return what is shown."""
        part = self.excerpt
        last = part.from_line + part.lines - 1
        more = f"; %memory get {part.path} --from {part.next_line} reads on" if part.next_line else ""
        foot = f"{part.path}, lines {part.from_line}-{last} of {part.total_lines}{more}"
        return [Code(text=part.text), Line(text=foot, dim=True)]


@displayable
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class MemoryAdded:
    """A fact that was stored."""

    path: str
    text: str

    def document(self) -> Document:
        """Return what is shown."""
        return [Line(text=f"Remembered in {self.path}"), Code(text=self.text)]


@displayable
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class MemoryStatus:
    """What memory holds and how it is searched."""

    status: StatusView

    def document(self) -> Document:
        """Return what is shown."""
        s = self.status
        rows = [
            ("notes", f"{s.files:,}"), ("pieces", f"{s.pieces:,}"), ("search", s.mode),
            ("embedder", f"{s.embedder} ({s.vectors:,} vectors)" if s.embedder != "none" else "none"),
            ("preset", s.preset), ("index", s.index_path),
        ]  # fmt: skip
        if s.session_pieces:
            rows.append(("sessions", f"{s.session_pieces:,} pieces"))
        return [Table(head=("memory", ""), rows=tuple(rows)), *(Line(text=str(d)) for d in s.diagnostics)]


@displayable
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class MemoryToday:
    """Today's log."""

    path: str
    text: str

    def document(self) -> Document:
        """Return what is shown."""
        if not self.text.strip():
            return [Line(text=f"Nothing was noted today ({self.path}).")]
        return [Line(text=self.path, strong=True), Code(text=self.text.rstrip())]
