"""Which moves (prunings, compactions, their undoings) are in force along a path, and what of a reply is sent.

A move takes effect where it was written; but while an open tool loop needs the thinking of the
last reply back as it came, a move that would disturb it waits (see `view`).

A reply that begins with the provider's own compaction is a move as well: the provider reads nothing before that
block, and what was sent stays as it was. It is undone as others are (the block is left out then), and gives way to
a later compaction of ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from nbagent.core.entries import (
    AssistantMessage,
    Body,
    Compaction,
    Entry,
    Pruning,
    Restore,
    TurnStart,
    UsageReported,
)  # fmt: skip
from nbagent.core.messages import (
    THINKING,
    Block,
    is_blank,
    is_provider_note,
    is_signed_thinking,
    is_thinking,
    tool_calls,
)  # fmt: skip

Voice: TypeAlias = tuple[str, str]


@dataclass(slots=True)
class Voices:
    """What thinking is bound to besides the messages, along a path: the model, and the stored system text and tools.

    A turn says both; a compaction may have made the prefix anew, until it is taken back.
    """

    now: Voice | None = None
    _root: str = ""
    _made: dict[str, str] = field(default_factory=dict)

    def take(self, entry: Entry) -> None:
        """Note an entry that may change them."""
        body = entry.body
        if isinstance(body, TurnStart):
            self._root = self._root or body.prefix
            self.now = voice_of(body)
        elif isinstance(body, Compaction) and body.details.get("prefix"):
            self._made[entry.id] = str(body.details["prefix"])
            self._behind(self._made[entry.id])
        elif isinstance(body, Restore) and self._made.pop(body.cancels, None) is not None:
            self._behind(next(reversed(self._made.values()), self._root))

    def _behind(self, prefix: str) -> None:
        self.now = None if self.now is None else (self.now[0], prefix)


@dataclass(slots=True)
class Moves:
    """Which moves are in force, and since when; positions are indexes into the path.

    `at` and `cancelled` say where a move, or its undoing, took effect: where it was written,
    or later when it had to wait (`waiting`). `reach` is the first position it changes.
    """

    position: dict[str, int] = field(default_factory=dict)
    at: dict[str, int] = field(default_factory=dict)
    reach: dict[str, int] = field(default_factory=dict)
    cancelled: dict[str, int] = field(default_factory=dict)
    made: list[Entry] = field(default_factory=list)
    waiting: list[Entry] = field(default_factory=list)
    flat: set[int] = field(default_factory=set)
    summaries: list[Entry] = field(default_factory=list)

    def thinking_holds(self, position: int, until: int | None = None) -> bool:
        """Tell whether thinking made at `position` has the prefix it was signed over, now or as of `until`."""
        for move, made_at in self.at.items():
            if self.reach[move] >= position:
                continue
            ended_at = self.cancelled.get(move)
            then = made_at < position and (ended_at is None or ended_at >= position)
            now = ended_at is None if until is None else made_at < until and (ended_at is None or ended_at >= until)
            if then != now:
                return False
        return True

    def is_flat(self, position: int) -> bool:
        """Tell whether a reply that called tools after thinking goes as text, since its prefix was not what it signed.

        That is so when the next reply was asked for, and stays so: what followed was signed over the text.
        """
        return position in self.flat

    @property
    def pruned(self) -> dict[str, str]:
        """The placeholders in force, by the entry they stand for."""
        found: dict[str, str] = {}
        for entry in self.made:
            if isinstance(entry.body, Pruning) and entry.id not in self.cancelled:
                found.update(entry.body.placeholders)
        return found

    @property
    def compaction(self) -> Entry | None:
        """The compaction in force: the last that is not cancelled."""
        live = (e for e in reversed(self.made) if isinstance(e.body, Compaction) and e.id not in self.cancelled)
        return next(live, None)

    @property
    def summary(self) -> Entry | None:
        """The reply whose compaction by the provider is in force: the last that nothing took back or replaced."""
        live = [e for e in self.summaries if e.id not in self.cancelled]
        return live[-1] if live and self.holds_summary(live[-1].id) else None

    def holds_summary(self, reply: str) -> bool:
        """Tell whether a provider's compaction in the entry `reply` is sent: not undone, and no later one of ours."""
        ours = self.compaction
        return reply not in self.cancelled and (ours is None or self.at[ours.id] < self.position[reply])

    def summarise(self, entry: Entry) -> None:
        """Note a reply that holds a provider's compaction. It changes nothing for the thinking before it."""
        self.at[entry.id] = self.reach[entry.id] = self.position[entry.id] - 1
        self.summaries.append(entry)

    def first_kept(self, compaction: Entry | None) -> int:
        """Return the position of the first entry that `compaction` leaves."""
        if compaction is None or not isinstance(compaction.body, Compaction):
            return 0
        own, kept = self.position[compaction.id], compaction.body.first_kept
        return own if kept is None else min(self.position.get(kept, own), own)

    def hidden_at(self, position: int) -> int:
        """Return where the compactions in force began to hide `position`; a number beyond the path if none does."""
        if position >= self.first_kept(self.compaction):
            return len(self.position)
        live = (e.id for e in self.made if isinstance(e.body, Compaction) and e.id not in self.cancelled)
        return min(self.at[e] for e in live if self.at[e] > position)

    def first_seen_from(self, position: int) -> int:
        """Return the first position that no compaction in force hid from the reply at `position` when it was made."""
        made = (e for e in self.made if isinstance(e.body, Compaction) and self.at[e.id] < position)
        seen = [self.first_kept(e) for e in made if self.cancelled.get(e.id, position) >= position]
        return max(seen, default=0)

    def take(self, entry: Entry, bound: int | None) -> None:
        """Note a move or its undoing; it waits when the reply at `bound` must stay as it is."""
        body = entry.body
        if isinstance(body, Restore):
            if body.cancels in {e.id for e in self.waiting}:
                self.waiting = [e for e in self.waiting if e.id != body.cancels]
                return
            if body.cancels not in self.at or body.cancels in self.cancelled:
                return
            reach = self.reach[body.cancels]
        elif isinstance(body, Pruning):
            hit = [self.position[t] for t in body.placeholders if t in self.position]
            reach = self.reach[entry.id] = min(hit, default=self.position[entry.id])
        else:
            reach = self.reach[entry.id] = -1
        hides = isinstance(body, Compaction) and bound is not None and self.first_kept(entry) > bound
        if bound is not None and reach < bound and not hides:
            self.waiting.append(entry)
            return
        if hides:
            self.release(self.position[entry.id])
        self.take_effect(entry, self.position[entry.id])

    def release(self, position: int) -> None:
        """Let the moves that waited take effect at `position`."""
        for entry in self.waiting:
            self.take_effect(entry, position)
        self.waiting = []

    def take_effect(self, entry: Entry, position: int) -> None:
        if isinstance(entry.body, Restore):
            self.cancelled.setdefault(entry.body.cancels, position)
        else:
            self.at[entry.id] = position
            self.made.append(entry)


def collect_moves(path: Sequence[Entry]) -> Moves:
    """Return the moves along `path`, when each took effect, and which bound replies have to go as text."""
    moves = Moves(position={e.id: i for i, e in enumerate(path)})
    last: int | None = None  # the last reply that is sent
    asked: dict[int, int] = {}  # a bound reply -> where the next reply was asked for, or a note hid it
    voices: list[Voice | None] = []
    speaking = Voices()
    for i, entry in enumerate(path):
        body = entry.body
        if isinstance(body, TurnStart | Compaction | Restore):
            speaking.take(entry)
        voices.append(speaking.now)
        if isinstance(body, AssistantMessage) and summarises(body):
            moves.summarise(entry)
        if isinstance(body, AssistantMessage) and speaks(body):
            if last in asked:
                asked[last] = min(i, moves.hidden_at(last))  # behind a note it stays as it was before the note
            last = i
            if binds_thinking(body):
                asked[i] = len(path)
            else:
                moves.release(i)
        elif isinstance(body, Pruning | Compaction | Restore):
            bound = last if last in asked and _as_signed(last or 0, i, moves, voices) else None
            moves.take(entry, bound)
    for position, until in asked.items():
        if voices[position] != voices[until - 1] or not moves.thinking_holds(position, until):
            moves.flat.update(_loop_up_to(path, position, moves))
    return moves


def _as_signed(position: int, now: int, moves: Moves, voices: Sequence[Voice | None]) -> bool:
    """Tell whether the reply at `position` would be sent as it came at `now`; else it is text, bound to nothing."""
    visible = position >= moves.first_kept(moves.compaction)
    return visible and voices[position] == voices[now - 1] and moves.thinking_holds(position, now)


def _loop_up_to(path: Sequence[Entry], position: int, moves: Moves) -> list[int]:
    """Return the replies of the tool loop that the reply at `position` is in, up to it: they go as text together.

    What a note hid from that reply is no part of its loop, also when the note is taken back later.
    """
    loop: list[int] = []
    for i in range(position, moves.first_seen_from(position) - 1, -1):
        body = path[i].body
        if isinstance(body, AssistantMessage) and speaks(body):
            if not tool_calls(body.blocks):
                break
            loop.append(i)
    return loop


def voice_of(start: TurnStart) -> Voice:
    """Return what thinking is bound to besides the messages: the model, and the stored system text and tools."""
    return start.model, start.prefix


def whole_blocks(body: AssistantMessage) -> tuple[Block, ...]:
    """Return the blocks of a reply that a provider takes back; of a cut one without what waits for an answer."""
    blocks = [sent for b in body.blocks if (sent := _sendable(b)) is not None]
    if body.cut is None:
        return tuple(blocks)
    answered = {b.get("tool_use_id") for b in blocks}
    blocks = [b for b in blocks if b.get("type") != "server_tool_use" or b.get("id") in answered]
    while blocks and is_thinking(blocks[-1]) and not tool_calls(blocks):
        blocks.pop()
    return tuple(blocks)


def speaks(body: AssistantMessage) -> bool:
    """Tell whether a reply holds something besides thinking and a provider's note; else it ends no tool loop."""
    return not all(is_thinking(b) or is_provider_note(b) for b in whole_blocks(body))


def summarises(body: Body) -> bool:
    """Tell whether an entry is a reply that holds a provider's own compaction."""
    if not isinstance(body, AssistantMessage) or "compaction" not in [b.get("type") for b in body.blocks]:
        return False
    return any(map(is_provider_note, body.blocks))


def cleared_results(usage: UsageReported | None) -> int:
    """Return how many of the oldest results the provider left out of the call that `usage` reports."""
    edits = usage.usage.get("applied_edits") if usage is not None else None
    counts = [e.get("cleared_tool_uses") for e in edits if isinstance(e, Mapping)] if isinstance(edits, list) else []
    return max((c for c in counts if isinstance(c, int)), default=0)


def binds_thinking(body: Body) -> bool:
    """Tell whether a reply called tools after thinking: until the next reply its thinking must stay as it is."""
    if not isinstance(body, AssistantMessage) or not any(is_signed_thinking(b) for b in body.blocks):
        return False
    return bool(tool_calls(body.blocks))


def _sendable(block: Block) -> Block | None:
    """Return what of a block may be sent; a call's input that is no object, which providers refuse, becomes empty."""
    kind = block.get("type")
    if kind == "text":
        return None if is_blank(block) else block
    if kind == "tool_use":
        if not (block.get("id") and block.get("name")):
            return None
        given = block.get("input")
        return block if type(given) is dict or isinstance(given, Mapping) else {**block, "input": {}}
    return None if kind in THINKING and not is_signed_thinking(block) else block
