"""View: what the model may see at a leaf, as a fold over the path to it.

`build_view` folds a whole path; `ViewFold` keeps the fold going, so that a step costs what
it adds. Both give the same view for the same path (tested).

Repairs made here never edit what a provider wrote and signed; they add:
* a call without a result gets a result that says so, right after the reply that asked;
* only the first of two results for one call counts; a result without its call is left out;
* a reply that was cut keeps its finished blocks; what was unfinished is left out, and the
  next text of the user's side says that the reply was cut.

Thinking is sent back only where its prefix still is what it was signed over: to the model
that made it, and while the moves (prunings, compactions) that reach before it are the ones
that were in force when it was made (claude.md A6).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from nbagent.core.entries import (
    AssistantMessage,
    Compaction,
    Entry,
    Pin,
    Pruning,
    Restore,
    Snapshot,
    Steering,
    ToolResult,
    ToolStarted,
    TurnEnd,
    TurnStart,
    UsageReported,
    UserMessage,
)  # fmt: skip
from nbagent.core.errors import BrokenPath
from nbagent.core.messages import (
    Block,
    Message,
    Role,
    ToolCall,
    is_blank,
    is_signed_thinking,
    is_thinking,
    text_block,
    tool_calls,
    tool_result_block,
)  # fmt: skip

CUT_NOTE = "[The reply above is not whole: {cut}. What it said until then is kept.]"
LOST_RESULT = "The tool {name!r} has no recorded result: interrupted, outcome unknown. It was not run again."
PRUNED_RESULT = "[old result cleared]"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCall:
    """A call at the end of the path that has no result yet."""

    call: ToolCall
    started: bool
    runnable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What one entry contributes: `category` is its row in the ledger."""

    entry_id: str
    role: Role
    blocks: tuple[Block, ...]
    category: str


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What the model may see at this leaf, and what the next step has to know.

    `messages` alternate in role. `sources[i]` are the entries that message i came from.
    `new_from` is the index of the first message that the last request did not hold.
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

    @property
    def model(self) -> str:
        """The model of the last turn on the path; empty before any."""
        return self.turn.model if self.turn else ""


@dataclass(slots=True)
class _Moves:
    """Which moves are in force, and since when; positions are indexes into the path."""

    at: dict[str, int] = field(default_factory=dict)
    reach: dict[str, int] = field(default_factory=dict)
    cancelled: dict[str, int] = field(default_factory=dict)
    pruned: dict[str, str] = field(default_factory=dict)
    compaction: Entry | None = None

    def thinking_holds(self, position: int) -> bool:
        """Tell whether thinking made at `position` still has the prefix it was signed over."""
        for move, made_at in self.at.items():
            if self.reach[move] >= position:
                continue
            ended_at = self.cancelled.get(move)
            then = made_at < position and (ended_at is None or ended_at > position)
            now = ended_at is None
            if then != now:
                return False
        return True


def _collect_moves(path: Sequence[Entry]) -> _Moves:
    moves = _Moves()
    position = {e.id: i for i, e in enumerate(path)}
    made: list[tuple[int, Entry]] = []
    for i, entry in enumerate(path):
        body = entry.body
        if isinstance(body, Restore):
            if body.cancels in position and position[body.cancels] < i:
                moves.cancelled.setdefault(body.cancels, i)
        elif isinstance(body, Pruning):
            made.append((i, entry))
            hit = [position[t] for t in body.placeholders if t in position]
            moves.reach[entry.id] = min(hit, default=i)
        elif isinstance(body, Compaction):
            made.append((i, entry))
            moves.reach[entry.id] = -1
    for i, entry in made:
        moves.at[entry.id] = i
        if entry.id in moves.cancelled:
            continue
        if isinstance(entry.body, Pruning):
            moves.pruned.update(entry.body.placeholders)
        else:
            moves.compaction = entry
    return moves


class ViewFold:
    """A fold that can be continued: `add` an entry, ask for the `view`."""

    def __init__(self, path: Iterable[Entry] = ()) -> None:
        self._path: list[Entry] = []
        self._reset(_Moves())
        self.extend(path)

    def _reset(self, moves: _Moves) -> None:
        self._moves = moves
        self._messages: list[Message] = []
        self._sources: list[tuple[str, ...]] = []
        self._pieces: list[Piece] = []
        self._open: dict[str, OpenCall] = {}
        self._answered: set[str] = set()
        self._cut: str | None = None
        self._turn: TurnStart | None = None
        self._turn_ended = True
        self._steps = 0
        self._usage: UsageReported | None = None
        self._pins: list[Pin] = []

    @property
    def path(self) -> Sequence[Entry]:
        """The entries folded so far."""
        return self._path

    def extend(self, entries: Iterable[Entry]) -> None:
        """Add entries in order; one that moves the prefix makes the fold start over once, at the end."""
        added = list(entries)
        if not added:
            return
        start = len(self._path)
        last = self._path[-1].id if self._path else None
        for entry in added:
            if entry.parent != last:
                raise BrokenPath(f"entry {entry.id!r} names the parent {entry.parent!r}; the one before it is {last!r}")
            last = entry.id
        self._path.extend(added)
        if any(isinstance(e.body, Pruning | Compaction | Restore) for e in added) or self._model_changes(added):
            self._refold()
            return
        for i in range(start, len(self._path)):
            self._fold(i, self._path[i])

    def add(self, entry: Entry) -> None:
        """Add one entry.

        Raises:
            BrokenPath: its parent is not the entry before it.
        """
        self.extend((entry,))

    def _model_changes(self, added: Sequence[Entry]) -> bool:
        known = {self._turn.model} if self._turn else set()
        known |= {e.body.model for e in added if isinstance(e.body, TurnStart)}
        return len(known) > 1

    def _refold(self) -> None:
        self._reset(_collect_moves(self._path))
        models = [e.body.model for e in self._path if isinstance(e.body, TurnStart)]
        self._final_model = models[-1] if models else None
        first = 0
        compaction = self._moves.compaction
        if compaction is not None and isinstance(compaction.body, Compaction):
            self._piece(compaction.id, "user", (text_block(compaction.body.note),), "summary")
            ids = {e.id: i for i, e in enumerate(self._path)}
            kept = compaction.body.first_kept
            first = ids.get(kept, len(self._path)) if kept is not None else ids[compaction.id]
        for i, entry in enumerate(self._path):
            if i < first:
                self._fold_hidden(entry)
            else:
                self._fold(i, entry)

    _final_model: str | None = None

    def _fold_hidden(self, entry: Entry) -> None:
        """Fold what stays true of an entry whose text is replaced by a note."""
        body = entry.body
        if isinstance(body, TurnStart):
            self._turn, self._turn_ended, self._steps = body, False, 0
        elif isinstance(body, TurnEnd):
            self._turn_ended = True
        elif isinstance(body, AssistantMessage):
            self._steps += 1
        elif isinstance(body, Pin):
            self._pins.append(body)

    def _fold(self, position: int, entry: Entry) -> None:
        body = entry.body
        match body:
            case TurnStart():
                self._close_open_calls(entry.id)
                self._turn, self._turn_ended, self._steps = body, False, 0
            case UserMessage():
                self._user_text(entry.id, body.blocks, "messages")
            case Steering():
                self._user_text(entry.id, (text_block(body.text),), "messages")
            case Snapshot():
                self._user_text(entry.id, (text_block(body.text),), "notebook")
            case AssistantMessage():
                self._assistant(position, entry.id, body)
            case ToolStarted():
                call = self._open.get(body.call_id)
                if call is not None:
                    self._open[body.call_id] = OpenCall(call=call.call, started=True, runnable=call.runnable)
            case ToolResult():
                self._result(entry.id, body)
            case UsageReported():
                if body.purpose == "turn":
                    self._usage = body
            case TurnEnd():
                self._turn_ended = True
            case Pin():
                self._pins.append(body)
            case _:
                pass

    def _user_text(self, entry_id: str, blocks: tuple[Block, ...], category: str) -> None:
        self._close_open_calls(entry_id)
        kept = tuple(b for b in blocks if not is_blank(b))
        if self._cut is not None:
            kept = (text_block(CUT_NOTE.format(cut=self._cut)), *kept)
            self._cut = None
        if kept:
            self._piece(entry_id, "user", kept, category)

    def _assistant(self, position: int, entry_id: str, body: AssistantMessage) -> None:
        self._close_open_calls(entry_id)
        self._steps += 1
        model = self._final_model or (self._turn.model if self._turn else body.model)
        speaks = self._turn.model if self._turn else body.model
        keep = speaks == model and self._moves.thinking_holds(position)
        blocks = tuple(b for b in body.blocks if _is_sendable(b, keep))
        if body.cut is not None and not any(not is_thinking(b) for b in blocks):
            blocks = ()
        if body.cut is not None:
            self._cut = body.cut
        if not blocks:
            return
        self._piece(entry_id, "assistant", blocks, "messages")
        runnable = body.stop_reason == "tool_use" and body.cut is None
        self._open = {
            c.id: OpenCall(call=c, started=False, runnable=runnable) for c in tool_calls(blocks)
        }
        self._answered = set()

    def _result(self, entry_id: str, body: ToolResult) -> None:
        if body.call_id not in self._open or body.call_id in self._answered:
            return
        self._answered.add(body.call_id)
        del self._open[body.call_id]
        content: Sequence[Block] | str = body.content
        placeholder = self._moves.pruned.get(entry_id)
        if placeholder is not None:
            content = placeholder or PRUNED_RESULT
        block = tool_result_block(body.call_id, content, is_error=body.status != "ok")
        self._piece(entry_id, "user", (block,), "tool results")

    def _close_open_calls(self, entry_id: str) -> None:
        for open_call in self._open.values():
            text = LOST_RESULT.format(name=open_call.call.name)
            self._piece(entry_id, "user", (tool_result_block(open_call.call.id, text, is_error=True),), "tool results")
        self._open = {}

    def _piece(self, entry_id: str, role: Role, blocks: tuple[Block, ...], category: str) -> None:
        self._pieces.append(Piece(entry_id=entry_id, role=role, blocks=blocks, category=category))
        if self._messages and self._messages[-1].role == role:
            self._messages[-1] = Message(role, self._messages[-1].blocks + blocks)
            self._sources[-1] = (*self._sources[-1], entry_id)
            return
        self._messages.append(Message(role, blocks))
        self._sources.append((entry_id,))

    def view(self) -> View:
        """Return the view at this point; cheap (shallow copies)."""
        return View(
            messages=tuple(self._messages), sources=tuple(self._sources), pieces=tuple(self._pieces),
            open_calls=tuple(self._open.values()), turn=self._turn, turn_ended=self._turn_ended, steps=self._steps,
            last_usage=self._usage, pins=tuple(_live_pins(self._pins)), pruned=frozenset(self._moves.pruned),
            compaction=self._moves.compaction.id if self._moves.compaction else None,
        )  # fmt: skip


def build_view(path: Iterable[Entry]) -> View:
    """Return what the model may see after `path`.

    Total: every path that starts at a root yields a view, also one that ends in unanswered
    tool calls. Entries cancelled by a later `Restore` count as absent. Cost is linear in
    the path; nothing is read from disk.

    Raises:
        BrokenPath: an entry's parent is not the entry before it.
    """
    return ViewFold(path).view()


def _is_sendable(block: Block, keep_thinking: bool) -> bool:
    if is_thinking(block):
        return keep_thinking and is_signed_thinking(block)
    return not is_blank(block)


def _live_pins(pins: Sequence[Pin]) -> list[Pin]:
    live: list[Pin] = []
    for pin in pins:
        if pin.remove:
            live = [p for p in live if (p.target, p.text) != (pin.target, pin.text)]
        else:
            live.append(pin)
    return live


def visible_results(view: View, path: Iterable[Entry]) -> dict[str, Any]:
    """Return result entry id -> its `meta`, for the results whose text the model still sees in full."""
    shown = {p.entry_id for p in view.pieces} - view.pruned
    return {
        e.id: e.body.meta
        for e in path
        if isinstance(e.body, ToolResult) and e.id in shown and e.body.meta and e.body.status == "ok"
    }
