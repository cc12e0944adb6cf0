"""What is worth telling of each turn of a tree: prompt, outcome, steps, calls, tokens, cost, place. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from nbagent.core.budget import Usage
from nbagent.core.entries import (
    AssistantMessage,
    Compaction,
    Entry,
    LeafMoved,
    ToolResult,
    TurnStart,
    UsageReported,
    UserMessage,
)
from nbagent.core.in_force import summarises
from nbagent.core.messages import ToolCall, tool_calls
from nbagent.core.tree import SessionTree, TurnNode
from nbagent.core.view import build_view
from nbagent.runtime.matching import stale_turns


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFacts:
    """One turn. `number` counts along the path to it, from 1; `parent` is the turn before it there.

    `outcome` is "running" for a turn without an end. `tokens` is the size of its last request, measured. `compacted`:
    a hand-off note stands in the place of its prompt now.
    """

    turn: str
    number: int
    parent: str | None
    cell: str
    prompt: str
    outcome: str
    message: str
    model: str
    steps: int
    calls: tuple[ToolCall, ...]
    tokens: int
    cost_usd: float
    duration_s: float
    current: bool
    leaf: bool
    stale: bool
    compacted: bool = False


def turn_facts(tree: SessionTree) -> tuple[TurnFacts, ...]:
    """Return the facts of every turn, in the order written."""
    owner: dict[str, str] = {}
    entries: dict[str, list[Entry]] = {}
    parents: dict[str, str | None] = {}
    numbers: dict[str, int] = {}
    for entry in tree:
        above = owner.get(entry.parent) if entry.parent else None
        if isinstance(entry.body, TurnStart):
            turn = entry.body.turn
            parents[turn], numbers[turn] = above, numbers.get(above or "", 0) + 1
            owner[entry.id], entries[turn] = turn, [entry]
        elif above is not None:
            owner[entry.id] = above
            entries[above].append(entry)
    nodes = tree.turns()
    stale = _stale(nodes, parents, _replaced_by_hand(tree, nodes, parents))
    compacted = _compacted(tree.path())
    current = [n.turn for n in nodes if n.current]
    leaf = current[-1] if current else None
    return tuple(
        _facts(
            entries[n.turn], number=numbers[n.turn], parent=parents[n.turn], current=n.current, leaf=n.turn == leaf,
            stale=n.turn in stale, compacted=n.turn in compacted, outcome=n.end.outcome if n.end else "running",
            message=n.end.message if n.end else "", duration_s=n.end.duration_s if n.end else 0.0,
        )
        for n in nodes
    )  # fmt: skip


def numbered(tree: SessionTree, turn: str) -> str:
    """Return a turn by number and name, such as "4 · 77aa01bc", as a tree shows it."""
    return next((f"{f.number} · {f.turn}" for f in turn_facts(tree) if f.turn == turn), turn)


def _compacted(path: Sequence[Entry]) -> frozenset[str]:
    """Return the turns of a path whose prompt the model reads no more, since a compaction in force replaced it."""
    if not any(isinstance(e.body, Compaction) or summarises(e.body) for e in path):
        return frozenset()
    view = build_view(path)
    if view.compaction is None:
        return frozenset()
    seen = {p.entry_id for p in view.pieces} - view.unread
    turn, hidden = "", set[str]()
    for entry in path:
        if isinstance(entry.body, TurnStart):
            turn = entry.body.turn
        elif isinstance(entry.body, UserMessage) and entry.id not in seen:
            hidden.add(turn)
    return frozenset(hidden)


def _replaced_by_hand(
    tree: SessionTree, nodes: Sequence[TurnNode], parents: Mapping[str, str | None]
) -> frozenset[str]:
    """Return the turns for which `%agent fork` has put another one on the current path."""
    moved = {e.parent for e in tree.path() if isinstance(e.body, LeafMoved) and e.body.why == "fork"}
    current = {parents[n.turn] for n in nodes if n.current}
    return frozenset(
        n.turn for n in nodes if not n.current and n.start.parent in moved and parents[n.turn] in current
    )  # fmt: skip


def _stale(
    nodes: Sequence[TurnNode], parents: Mapping[str, str | None], by_hand: frozenset[str]
) -> frozenset[str]:
    """Return the turns left behind that build on one which was replaced since: not a conversation merely put aside."""
    left = stale_turns(nodes)
    replaced = ({n.turn for n in nodes if not n.current} - left) | by_hand
    shaky: set[str] = set()
    for node in nodes:  # parents come first
        above = parents[node.turn]
        if above in replaced or above in shaky:
            shaky.add(node.turn)
    return left & shaky


def _facts(
    group: Sequence[Entry], *, number: int, parent: str | None, current: bool, leaf: bool, stale: bool,
    compacted: bool, outcome: str, message: str, duration_s: float,
) -> TurnFacts:  # fmt: skip
    start = group[0].body
    assert isinstance(start, TurnStart)
    usages = [e.body for e in group if isinstance(e.body, UsageReported)]
    return TurnFacts(
        turn=start.turn, number=number, parent=parent, cell=_cell(start), prompt=_prompt(group), outcome=outcome,
        message=message, model=start.model, steps=sum(1 for e in group if isinstance(e.body, AssistantMessage)),
        calls=calls_of(group), tokens=Usage.from_wire(usages[-1].usage).context_tokens if usages else 0,
        cost_usd=sum(u.cost_usd for u in usages), duration_s=duration_s, current=current, leaf=leaf, stale=stale,
        compacted=compacted,
    )  # fmt: skip


def _cell(start: TurnStart) -> str:
    return start.cell_id or (str(start.order) if start.order else "")


def _prompt(group: Iterable[Entry]) -> str:
    for entry in group:
        if isinstance(entry.body, UserMessage):
            return next((str(b.get("text", "")) for b in entry.body.blocks if b.get("type") == "text"), "")
    return ""


def calls_of(entries: Iterable[Entry]) -> tuple[ToolCall, ...]:
    """Return the tool calls that replies among `entries` made, in order."""
    return tuple(c for e in entries if isinstance(e.body, AssistantMessage) for c in tool_calls(e.body.blocks))


def code_run(entries: Iterable[Entry]) -> tuple[str, ...]:
    """Return the code that `python` calls ran without an error, oldest first: what rebuilds the variables."""
    group = list(entries)
    good = {e.body.call_id for e in group if isinstance(e.body, ToolResult) and e.body.status == "ok"}
    return tuple(
        str(c.input["code"])
        for c in calls_of(group)
        if c.name == "python" and c.id in good and isinstance(c.input, dict) and "code" in c.input
    )
