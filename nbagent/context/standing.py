"""What the path tells the engine: the request that waits for its reply, and how earlier compactions went."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nbagent.context.moves import pending_start
from nbagent.context.policy import Compact
from nbagent.context.transcript import messages_without
from nbagent.core.entries import (
    Compaction,
    Entry,
    Report,
    Restore,
    Steering,
    TurnEnd,
    TurnStart,
    UsageReported,
    UserMessage,
)
from nbagent.core.in_force import summarises
from nbagent.core.messages import Message
from nbagent.core.view import View, ViewFold


def before_request(fold: ViewFold, view: View) -> Sequence[Message]:
    """Return the conversation without a request that has no reply yet."""
    at = pending_start(fold.path, view)
    if at is None:
        return view.messages
    later = {e.id for e in fold.path[at:] if not isinstance(e.body, Compaction)}
    return messages_without(view, later) or view.messages


def keeping_request(fold: ViewFold, move: Compact) -> Compact | None:
    """Return `move` such that a request without a reply is kept whole; None when nothing stands before it."""
    view = fold.view()
    at = pending_start(fold.path, view)
    if at is None:
        return move
    positions = {e.id: i for i, e in enumerate(fold.path)}
    if move.first_kept is not None and positions[move.first_kept] <= at:
        return move
    before = any(positions[p.entry_id] < at for p in view.pieces if p.entry_id != view.compaction)
    return replace(move, first_kept=fold.path[at].id) if before else None


def split(fold: ViewFold, first_kept: str | None) -> tuple[list[Entry], list[Entry]]:
    """Return (replaced, kept) entries of the path. What an earlier compaction replaced is replaced again."""
    path = list(fold.path)
    if first_kept is None:
        return path, []
    at = next(i for i, e in enumerate(path) if e.id == first_kept)
    return path[:at], path[at:]


def pending_request(replaced: Sequence[Entry], kept: Sequence[Entry]) -> frozenset[str]:
    """Return what the person said in a turn that is not completed and begins in the replaced part.

    These entries must survive word for word: the turn goes on, now or when it is resumed.
    """
    found: set[str] = set()
    if any(isinstance(e.body, TurnStart) for e in kept):
        return frozenset()
    for entry in reversed(replaced):
        body = entry.body
        if isinstance(body, TurnStart) or (isinstance(body, TurnEnd) and body.outcome == "completed"):
            break
        if isinstance(body, UserMessage | Steering):
            found.add(entry.id)
    return frozenset(found)


def failures(path: Sequence[Entry]) -> list[float]:
    """Return when compactions failed since the last that was applied; those that a person asked for do not count."""
    found: list[float] = []
    for entry in path:
        body = entry.body
        if isinstance(body, Compaction):
            found = []
        elif isinstance(body, Report) and body.source == "compaction" and body.details.get("applied") is False:
            found += [entry.at] if body.details.get("reason") != "manual" else []
    return found


def gave_up(path: Sequence[Entry], policy: str) -> bool:
    """Tell whether the last note that `policy` asked for by itself would have made the context larger.

    A compaction that was applied since, whoever asked for it, ends that.
    """
    for entry in reversed(path):
        body = entry.body
        if isinstance(body, Compaction):
            return False
        if isinstance(body, Report) and body.source == "compaction" and body.details.get("larger"):
            by_itself = body.details.get("reason") != "manual"
            if by_itself and body.details.get("policy") == policy:
                return True
    return False


def in_a_row(path: Sequence[Entry]) -> int:
    """Return how many compactions end the path with at most one model call between two: no progress is made."""
    count = calls = 0
    for entry in reversed(path):
        if isinstance(entry.body, Compaction):
            count += 1
            calls = 0
        elif isinstance(entry.body, UsageReported) and entry.body.purpose == "turn":
            calls += 1
            if calls > 1:
                break
        elif isinstance(entry.body, UserMessage):
            break
    return count


def undone(path: Sequence[Entry]) -> bool:
    """Tell whether the person took a compaction back and has not compacted by hand since."""
    ids = {e.id for e in path if isinstance(e.body, Compaction) or summarises(e.body)}
    for entry in reversed(path):
        body = entry.body
        if isinstance(body, Restore) and body.cancels in ids:
            return True
        if isinstance(body, Compaction) and body.reason == "asked for":
            return False
    return False
