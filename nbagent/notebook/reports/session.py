"""What `%agent` and its sub-commands return: session, turns as tree and list, tools, sessions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nbagent.core.errors import Diagnostic, counted, one_line
from nbagent.notebook.markdown import clean_line
from nbagent.notebook.render import money, shortened
from nbagent.notebook.reports.tables import Code, Document, Line, Table, displayable

_PROMPT_CHARS = 50


@displayable
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SessionReport:
    """The session of this notebook. `turns` counts those on the current path, `stale` the stale ones of the session."""

    name: str
    model: str
    policy: str
    mode: str
    turns: int
    stale: int = 0
    cost_usd: float = 0.0
    journal_path: str = ""
    diagnostics: tuple[Diagnostic, ...] = ()

    def document(self) -> Document:
        """Return what is shown."""
        turns = f"{self.turns}" + (f" on this branch, {self.stale} stale on others" if self.stale else "")
        rows = [("model", self.model), ("policy", self.policy), ("mode", self.mode), ("turns", turns)]
        if self.cost_usd > 0:
            rows.append(("cost", money(self.cost_usd)))
        rows.append(("journal", self.journal_path or "none"))
        table = Table(head=("session", self.name), rows=tuple(rows))
        return [table, *(Line(text=str(d)) for d in self.diagnostics)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnNode:
    """A turn in a list or tree.

    `number` counts from 1 along its own path. `parent` is the id of the turn before it, None at
    a root. `current` says that it is on the path to the leaf, `leaf` that the next turn follows
    it, `stale` that what it builds on was run again since, `compacted` that a hand-off note stands in its place.
    Tokens are of the whole turn.
    """

    number: int
    turn_id: str
    parent: str | None = None
    cell: str = ""
    prompt: str = ""
    outcome: str = "completed"
    model: str = ""
    steps: int = 0
    tool_calls: int = 0
    tokens: int = 0
    cost_usd: float = 0.0
    current: bool = True
    leaf: bool = False
    stale: bool = False
    compacted: bool = False

    def label(self) -> str:
        """Return the turn on one line."""
        words = [f"{self.number}", self.turn_id, f"cell {self.cell}" if self.cell else "", self.model]
        words.append("" if self.outcome == "completed" else self.outcome.replace("_", " "))
        words += [money(self.cost_usd) if self.cost_usd > 0 else "", "stale" if self.stale else ""]
        words.append("compacted" if self.compacted else "")
        prompt = shortened(one_line(self.prompt), _PROMPT_CHARS)
        words += [f"“{prompt}”" if prompt else "", "← here" if self.leaf else ""]
        return ("● " if self.current else "○ ") + " · ".join(filter(None, words))


@displayable
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TurnTreeReport:
    """All turns of the session as a tree; children in the order of `turns`."""

    turns: tuple[TurnNode, ...]

    def document(self) -> Document:
        """Return what is shown."""
        if not self.turns:
            return [Line(text="no turns yet")]
        tree = "\n".join(tree_lines(self.turns))
        key = "● on the current path · ○ another branch; %agent revert TURN goes there"
        return [Code(text=tree), Line(text=key, dim=True)]


def tree_lines(turns: Sequence[TurnNode]) -> Iterator[str]:
    """Yield the tree line by line: a chain goes straight down, a fork is indented. No recursion: chains are long."""
    known = {t.turn_id for t in turns}
    children: dict[str | None, list[TurnNode]] = {}
    for turn in turns:
        children.setdefault(turn.parent if turn.parent in known else None, []).append(turn)
    seen: set[str] = set()
    stack = _branches(children.get(None, []), "")
    while stack:
        turn, first, rest = stack.pop()
        if turn.turn_id in seen:
            continue
        seen.add(turn.turn_id)
        yield first + clean_line(turn.label())
        stack.extend(_branches(children.get(turn.turn_id, []), rest))


def _branches(turns: Sequence[TurnNode], indent: str) -> list[tuple[TurnNode, str, str]]:
    """Return (turn, what stands before it, what stands before those after it), the last one first."""
    if len(turns) == 1:
        return [(turns[0], indent, indent)]
    marks = [("├─ ", "│  ")] * (len(turns) - 1) + [("└─ ", "   ")]
    return [(t, indent + a, indent + b) for t, (a, b) in zip(turns, marks, strict=False)][::-1]


@displayable
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TurnLogReport:
    """Turns of the current path, oldest first."""

    turns: tuple[TurnNode, ...]

    def document(self) -> Document:
        """Return what is shown."""
        if not self.turns:
            return [Line(text="no turns yet")]
        rows = tuple(
            (
                str(t.number), t.turn_id, t.cell, shortened(one_line(t.prompt), _PROMPT_CHARS),
                t.outcome.replace("_", " ") + (", stale" if t.stale else "") + (", compacted" if t.compacted else ""),
                str(t.steps), str(t.tool_calls), f"{t.tokens:,}",
                money(t.cost_usd) if t.cost_usd > 0 else "",
            )
            for t in self.turns
        )  # fmt: skip
        head = ("", "turn", "cell", "prompt", "outcome", "steps", "tools", "tokens", "cost")
        table = Table(head=head, rows=rows, numbers=frozenset({0, 5, 6, 7, 8}))
        total = sum(t.cost_usd for t in self.turns)
        return [table, Line(text=f"total {money(total)}")] if total > 0 else [table]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRow:
    """A tool the model sees. `verdict` is "allow", "ask", "deny" or "masked"; `tokens` (estimated) is its listing."""

    name: str
    description: str
    verdict: str
    source: str = "built in"
    tokens: int = 0
    calls: int = 0


@displayable
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ToolsReport:
    """The tools, in the order in which the model sees them, and what the mode lets them do."""

    mode: str
    tools: tuple[ToolRow, ...]

    def document(self) -> Document:
        """Return what is shown."""
        rows = tuple(
            (t.name, t.verdict, t.source, f"{t.tokens:,}", str(t.calls), shortened(one_line(t.description), 70))
            for t in self.tools
        )
        head = ("tool", "may run", "source", "tokens", "calls", "description")
        total = sum(t.tokens for t in self.tools)
        title = Line(text=f"{counted(len(self.tools), 'tool')} · mode {self.mode} · {total:,} tokens", strong=True)
        return [title, Table(head=head, rows=rows, numbers=frozenset({3, 4}))] if rows else [title]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRow:
    """A session beside the notebook. `last_turn` is a date as text, stored, not now."""

    name: str
    turns: int
    model: str = ""
    cost_usd: float = 0.0
    last_turn: str = ""
    notebook: str = ""
    current: bool = False


@displayable
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SessionsReport:
    """The sessions that can be opened by `%agent open NAME`."""

    sessions: tuple[SessionRow, ...]

    def document(self) -> Document:
        """Return what is shown."""
        if not self.sessions:
            return [Line(text="no sessions yet")]
        rows = tuple(
            (
                "●" if s.current else "", s.name, str(s.turns), s.model,
                money(s.cost_usd) if s.cost_usd > 0 else "", s.last_turn, s.notebook,
            )
            for s in self.sessions
        )  # fmt: skip
        head = ("", "session", "turns", "model", "cost", "last turn", "notebook")
        return [Table(head=head, rows=rows, numbers=frozenset({2, 4}))]
