"""Which earlier turn a running cell is the same cell as, and where a re-run forks (DECISIONS 8, 9). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nbagent.core.tree import TurnNode


@dataclass(frozen=True, slots=True, kw_only=True)
class CellKey:
    """What a cell is known by. `order` counts the agent cells of this kernel from 1.

    `typed` says that it stands at a terminal's prompt: it is never run again, whatever it looks like.
    """

    cell_id: str | None
    source_hash: str
    order: int
    typed: bool = False


def earlier_turn(turns: Sequence[TurnNode], cell: CellKey, *, previous: TurnNode | None) -> TurnNode | None:
    """Return the last turn of this cell, None when it has none yet, or was typed at a prompt.

    With a cell id, the id decides. Without one: a turn with the same source, the nearest in order;
    else, for an edited cell, the turn whose neighbour before it is the turn that the cell before this
    one was matched with (`previous`).
    """
    if cell.typed:
        return None
    if cell.cell_id is not None:
        same = [t for t in turns if t.body.cell_id == cell.cell_id]
        return same[-1] if same else None
    nameless = [t for t in turns if t.body.cell_id is None and t.body.source_hash]  # an imported turn is of no cell
    same = [t for t in nameless if t.body.source_hash == cell.source_hash]
    if same:
        nearest = min(abs(t.body.order - cell.order) for t in same)
        return [t for t in same if abs(t.body.order - cell.order) == nearest][-1]
    expected = previous.body.order + 1 if previous is not None else cell.order
    known = {t.body.source_hash for t in nameless if t.body.order != expected}
    edited = [t for t in nameless if t.body.order == expected and t.body.source_hash not in known]
    return edited[-1] if edited else None


def guessed_lines(earlier: TurnNode | None, cell: CellKey) -> tuple[str, ...]:
    """Return a line for the person where a cell without an id was taken for an edited one by its place alone."""
    if earlier is None or cell.cell_id is not None or earlier.body.source_hash == cell.source_hash:
        return ()
    return (
        f"This front end names no cells, so by its place this one was taken for that of turn {earlier.turn}, edited; "
        "its old turn and what came after are on another branch, see `%agent tree`. `--rerun append` adds a turn.",
    )


def fork_parent(turn: TurnNode | None) -> tuple[bool, str | None]:
    """Return (whether a re-run forks, the entry it goes on from). It forks when the turn is on the current path."""
    if turn is None or not turn.current:
        return False, None
    return True, turn.start.parent


def stale_turns(turns: Sequence[TurnNode]) -> frozenset[str]:
    """Return the turns that a re-run left behind: not on the path, and not replaced by a newer one of the same cell."""
    newest: dict[object, str] = {}
    for turn in turns:
        newest[_key(turn)] = turn.turn
    return frozenset(t.turn for t in turns if not t.current and newest[_key(t)] == t.turn)


def _key(turn: TurnNode) -> object:
    return turn.body.cell_id if turn.body.cell_id is not None else (turn.body.source_hash, turn.body.order)
