"""What replies to commands carry: pages, hits, a compaction, lines of a note. Pure (docs/panel-protocol.md)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Protocol

from nbagent.core.messages import JsonObject
from nbagent.notebook.panel.protocol import cut

MAX_LOST_ROWS: Final = 30
NAME_BYTES: Final = 120
PATH_BYTES: Final = 400
LINE_BYTES: Final = 300
SNIPPET_BYTES: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillRow:
    """One skill. `on`: the person has not switched it off; `reason`: why the model is not told of it."""

    name: str
    source: str
    path: str
    visible: bool
    on: bool
    reason: str
    tokens: int
    uses: int
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRow:
    """One turn; `parent` is the turn before it, empty at a root; `forked`: another turn has the same parent.

    `compacted`: a hand-off note stands in the place of its prompt."""

    turn: str
    number: int
    parent: str
    cell: str
    prompt: str
    outcome: str
    model: str
    steps: int
    cost_usd: float
    current: bool
    leaf: bool
    stale: bool
    forked: bool
    compacted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HitRow:
    """One hit. `relative` is the path from the notebook's folder, with slashes; empty when the file is elsewhere."""

    path: str
    relative: str
    start_line: int
    end_line: int
    score: float
    snippet: str
    date: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LostRow:
    """One anchor that would be in no context and found by no search."""

    kind: str
    text: str


class AnchorView(Protocol):
    """An anchor as a loss report gives it."""

    @property
    def kind(self) -> str: ...
    @property
    def text(self) -> str: ...


class CompactionView(Protocol):
    """A compaction report (notebook.reports.compaction)."""

    @property
    def applied(self) -> bool: ...
    @property
    def reason(self) -> str: ...
    @property
    def before_tokens(self) -> int: ...
    @property
    def after_tokens(self) -> int: ...
    @property
    def handoff(self) -> str: ...
    @property
    def policy(self) -> str: ...
    @property
    def verbatim(self) -> Sequence[Any]: ...
    @property
    def reachable(self) -> Sequence[Any]: ...
    @property
    def lost(self) -> Sequence[Any]: ...


def skill_row(row: SkillRow) -> SkillRow:
    """Return `row` with every text bounded."""
    return replace(
        row, name=cut(row.name, NAME_BYTES), source=cut(row.source, NAME_BYTES), path=cut(row.path, PATH_BYTES),
        reason=cut(row.reason, LINE_BYTES), description=cut(row.description, LINE_BYTES),
    )  # fmt: skip


def turn_row(row: TurnRow) -> TurnRow:
    """Return `row` with every text bounded, the prompt on one line."""
    return replace(
        row, turn=cut(row.turn, NAME_BYTES), parent=cut(row.parent, NAME_BYTES), cell=cut(row.cell, NAME_BYTES),
        prompt=cut(" ".join(row.prompt[:2_000].split()), LINE_BYTES), outcome=cut(row.outcome, NAME_BYTES),
        model=cut(row.model, NAME_BYTES),
    )  # fmt: skip


def hit_row(row: HitRow) -> HitRow:
    """Return `row` with every text bounded; a path too long to be opened as it is has no `relative`."""
    fits = cut(row.relative, PATH_BYTES) == row.relative
    return replace(
        row, path=cut(row.path, PATH_BYTES), relative=row.relative if fits else "", date=cut(row.date, NAME_BYTES),
        snippet=cut(row.snippet, SNIPPET_BYTES), why=cut(row.why, LINE_BYTES),
    )  # fmt: skip


def page_result(of: str, rows: Sequence[SkillRow | TurnRow], *, start: int, total: int, revision: int) -> JsonObject:
    """Return a page: `rows` are `start` to `start + len(rows)` of `total`, as of `revision`."""
    return {
        "of": of, "revision": revision, "start": start, "total": total,
        "rows": [_row(skill_row(r) if isinstance(r, SkillRow) else turn_row(r)) for r in rows],
    }  # fmt: skip


def cells_result(rows: Sequence[TurnRow], revision: int) -> JsonObject:
    """Return the turns of cells: the newest of each cell that is asked for."""
    return {"revision": revision, "rows": [_row(turn_row(r)) for r in rows]}


def search_result(query: str, rows: Sequence[HitRow], note: str = "") -> JsonObject:
    """Return hits, best first; `note` is one line about the search."""
    return {"query": cut(query, LINE_BYTES), "note": cut(note, LINE_BYTES), "rows": [_row(hit_row(r)) for r in rows]}


def read_result(path: str, text: str, *, start_line: int, total_lines: int) -> JsonObject:
    """Return lines of a note from `start_line` on."""
    return {"path": cut(path, PATH_BYTES), "text": text, "start_line": start_line, "total_lines": total_lines}


def compaction_result(report: CompactionView, base: str) -> JsonObject:
    """Return what a compaction did or would do; `note` is the hand-off note in full, `base` what it starts from."""
    rows = [LostRow(kind=cut(a.kind, NAME_BYTES), text=cut(a.text, LINE_BYTES)) for a in report.lost[:MAX_LOST_ROWS]]
    return {
        "applied": report.applied, "reason": cut(report.reason, LINE_BYTES), "policy": cut(report.policy, NAME_BYTES),
        "before_tokens": report.before_tokens, "after_tokens": report.after_tokens, "note": report.handoff,
        "verbatim": len(report.verbatim), "reachable": len(report.reachable), "lost": len(report.lost),
        "base": base, "rows": [_row(r) for r in rows],
    }  # fmt: skip


def _row(row: SkillRow | TurnRow | HitRow | LostRow) -> JsonObject:
    wire: JsonObject = json.loads(json.dumps(asdict(row)))
    return wire


def page_bounds(start: int, count: int, total: int) -> range:
    """Return which rows of `total` a page holds; a negative `start` counts from the end."""
    first = min(total, max(0, total + start)) if start < 0 else min(start, total)
    return range(first, min(total, first + count))
