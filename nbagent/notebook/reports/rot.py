"""What `%context rot` returns: sources in the context that have gone bad, each with what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from nbagent.core.errors import counted
from nbagent.notebook.reports.tables import Document, Line, Table, displayable

KINDS = {
    "poisoning": "changed since it was read", "distraction": "old output that nothing uses",
    "confusion": "two sources nearly alike", "clash": "an old and a new version together",
}  # fmt: skip


@displayable
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RotReport:
    """The findings, a sequence; each has kind, where, what and remedy."""

    findings: Sequence[Any]

    def __len__(self) -> int:
        return len(self.findings)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.findings)

    def __getitem__(self, index: int) -> Any:
        return self.findings[index]

    def document(self) -> Document:
        """Return what is shown."""
        if not self.findings:
            return [Line(text="No rot was found in the context.", strong=True)]
        rows = tuple((f.kind, f.where, f.what, f.remedy) for f in self.findings)
        found = {f.kind for f in self.findings}
        legend = " · ".join(f"{kind}: {meaning}" for kind, meaning in KINDS.items() if kind in found)
        return [
            Line(text=counted(len(rows), "finding"), strong=True),
            Table(head=("kind", "where", "what", "what to do"), rows=rows),
            Line(text=legend, dim=True),
        ]
