"""What `%context compact` and `%context undo` return."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nbagent.notebook.render import percent
from nbagent.notebook.reports.tables import Code, Document, Line, Piece, Table, displayable

SHOWN_LOST = 30


@displayable
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CompactionReport:
    """What a compaction did, or would do: sizes (tokens, estimated), the note, and what became of each anchor.

    `verbatim`, `reachable` and `lost` hold anchors (kind, text, where). `dry_run` says that nothing was changed;
    `notices` are what else happened: notes stored in memory, or why they were not.
    """

    applied: bool
    reason: str
    before_tokens: int
    after_tokens: int
    handoff: str
    policy: str
    verbatim: Sequence[Any] = ()
    reachable: Sequence[Any] = ()
    lost: Sequence[Any] = ()
    duration_s: float = 0.0
    dry_run: bool = False
    notices: Sequence[str] = ()

    def document(self) -> Document:
        """Return what is shown."""
        if not self.applied and not self.dry_run:
            return [Line(text=f"Nothing was changed: {self.reason}.", strong=True)]
        saved = percent(self.before_tokens - self.after_tokens, self.before_tokens)
        word = "would be compacted" if self.dry_run else "was compacted"
        title = f"The conversation {word}: {self.before_tokens:,} → {self.after_tokens:,} tokens ({saved} less)"
        pieces: list[Piece] = [Line(text=title, strong=True), self._counts()]
        if self.lost:
            pieces.append(Line(text="Lost: in no context and found by no search", strong=True))
            rows = tuple((a.kind, a.text) for a in _of_each_kind(self.lost, SHOWN_LOST))
            pieces.append(Table(head=("kind", "text"), rows=rows))
            if len(self.lost) > SHOWN_LOST:
                pieces.append(Line(text=f"and {len(self.lost) - SHOWN_LOST:,} more, see .lost", dim=True))
        if self.handoff:
            pieces.append(Code(text=self.handoff, title="hand-off note"))
        pieces += [Line(text=notice) for notice in self.notices]
        hint = "nothing was changed" if self.dry_run else "%context undo takes it back"
        pieces.append(Line(text=f"policy {self.policy} · {hint}", dim=True))
        return pieces

    def _counts(self) -> Table:
        kinds = list(dict.fromkeys(a.kind for group in (self.verbatim, self.reachable, self.lost) for a in group))
        rows = [
            (kind, *(f"{sum(a.kind == kind for a in g):,}" for g in (self.verbatim, self.reachable, self.lost)))
            for kind in kinds
        ]
        total = ("all", *(f"{len(g):,}" for g in (self.verbatim, self.reachable, self.lost)))
        head = ("of what was replaced", "word for word", "one call away", "lost")
        return Table(head=head, rows=(*rows, total), numbers=frozenset({1, 2, 3}))


def _of_each_kind(anchors: Sequence[Any], most: int) -> list[Any]:
    """Return at most so many, in their order: of each kind the first, then of each the second, and so on."""
    seen: dict[str, int] = {}
    ranked = []
    for i, anchor in enumerate(anchors):
        nth = seen[anchor.kind] = seen.get(anchor.kind, 0) + 1
        ranked.append((nth, i))
    return [anchors[i] for _, i in sorted(sorted(ranked)[:most], key=lambda rank: rank[1])]
