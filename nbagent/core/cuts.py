"""Where a path may be cut, so that what is kept still stands on its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from nbagent.core.entries import AssistantMessage, Entry, ToolResult, TurnStart
from nbagent.core.messages import tool_calls


@dataclass(frozen=True, slots=True, kw_only=True)
class CutPoint:
    """The kept part may begin at entry `entry_id`. `turn` says that a turn begins there, else a finished batch ends."""

    index: int
    entry_id: str
    turn: bool


def cut_points(path: Sequence[Entry], start: int = 0) -> tuple[CutPoint, ...]:
    """Return the places where the kept part may begin, oldest first.

    `start` saves looking at what comes before it; a turn has to begin there.

    A turn's start is one, when no call is open before it. So is a reply of the model when every
    earlier call has its result: then a batch is finished, and a cut in mid-turn leaves calls with
    their results, parallel calls together, and thinking with what it led to.
    """
    points: list[CutPoint] = []
    open_ids: set[str] = set()
    for index, entry in enumerate(islice(path, start, None), start):
        body = entry.body
        if isinstance(body, TurnStart):
            open_ids.clear()
            if index:
                points.append(CutPoint(index=index, entry_id=entry.id, turn=True))
        elif isinstance(body, AssistantMessage):
            if index and not open_ids and not isinstance(path[index - 1].body, TurnStart):
                points.append(CutPoint(index=index, entry_id=entry.id, turn=False))
            open_ids = {c.id for c in tool_calls(body.blocks)}
        elif isinstance(body, ToolResult):
            open_ids.discard(body.call_id)
    return tuple(points)
