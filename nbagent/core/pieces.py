"""View: what the model may see at a leaf, as a value: messages, the pieces they are made of, and what is in force."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from nbagent.core.entries import Pin, TurnStart, UsageReported
from nbagent.core.messages import Block, Message, Role, ToolCall

IMPORTED: Final = "imported"  # the policy of a turn that another agent led; what it measured was a request of its own

RECORDED_COMPACTION: Final = "recorded compaction"  # the source of the Report that holds a summary of that agent


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCall:
    """A call at the end of the path that has no result yet."""

    call: ToolCall
    started: bool
    runnable: bool


@dataclass(slots=True, kw_only=True)
class Piece:
    """What one entry contributes: `category` is its row in the ledger. Treated as frozen, as an Entry is."""

    entry_id: str
    role: Role
    blocks: tuple[Block, ...]
    category: str


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What the model may see at this leaf, and what the next step has to know.

    `messages` alternate in role. `sources[i]` are the entries that message i came from.
    `bound` is the reply whose thinking an open tool loop needs back as it came: a move that
    reaches before that entry and does not hide it is recorded, but waits; those that wait are
    `deferred`. `compaction` is the last one in force: an entry of ours, or the reply that holds a provider's own;
    then `unread` are the entries before it, which are sent and not read. `cleared` are the results that the provider
    left out of the last request by itself. `last_usage` is of the last request that was one of ours.
    """

    messages: tuple[Message, ...]
    sources: tuple[tuple[str, ...], ...]
    pieces: tuple[Piece, ...]
    open_calls: tuple[OpenCall, ...]
    turn: TurnStart | None
    turn_ended: bool
    steps: int
    last_usage: UsageReported | None
    pins: tuple[Pin, ...]
    pruned: frozenset[str]
    compaction: str | None
    bound: str | None = None
    deferred: tuple[str, ...] = ()
    unread: frozenset[str] = frozenset()
    cleared: frozenset[str] = frozenset()

    @property
    def in_sight(self) -> frozenset[str]:
        """The entries that the model sees, of pruned and cleared results the placeholder."""
        return frozenset(p.entry_id for p in self.pieces) - self.unread

    @property
    def seen(self) -> frozenset[str]:
        """The entries that the model sees in full."""
        return self.in_sight - self.pruned - self.cleared

    @property
    def model(self) -> str:
        """The model of the last turn on the path; empty before any."""
        return self.turn.model if self.turn else ""
