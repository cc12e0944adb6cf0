"""View: what the model may see at a leaf, as a fold over the path to it.

`build_view` folds a whole path; `ViewFold` keeps the fold going, so that a step costs what
it adds. Both give the same view for the same path (tested).

Repairs made here never edit what a provider wrote and signed; they add:
* a call without a result gets a result that says so, right after the reply that asked;
* only the first of two results for one call counts; a result without its call is left out;
* a reply that was cut keeps its finished blocks; what was unfinished is left out, and the
  next text of the user's side says that the reply was cut;
* a reply of thinking alone is left out, and a user's side without text gets a word.

Thinking is sent back only where its prefix still is what it was signed over: to the model
that made it, behind the stored prefix it was made with, and while the moves (prunings,
compactions) that reach before it are the ones that were in force when it was made (claude.md
A6). Inside an open tool loop the thinking of the last reply must go back as it came: a move
that would disturb it waits until a reply that is not so bound has come (`View.bound`,
`View.deferred`); a compaction that hides that reply does not wait. Where its prefix is another
all the same (an undo, another model in the middle of a loop), the reply and its results go as text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from nbagent.core.entries import (
    AssistantMessage,
    Body,
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
from nbagent.core.in_force import (
    Moves,
    Voice,
    Voices,
    cleared_results,
    collect_moves,
    summarises,
    voice_of,
    whole_blocks,
)  # fmt: skip
from nbagent.core.messages import (
    THINKING,
    Block,
    Message,
    Role,
    ToolCall,
    canonical,
    is_blank,
    is_provider_note,
    is_tool_call,
    text_block,
    tool_calls,
    tool_result_block,
)  # fmt: skip
from nbagent.core.pieces import IMPORTED, OpenCall, Piece, View

CUT_NOTE = "[The reply above is not whole: {cut}. What it said until then is kept.]"
NO_TEXT = "[no text]"
NO_NOTE = "[The conversation before this is left out.]"
LOST_RESULT = "The tool {name!r} has no recorded result: interrupted, outcome unknown. It was not run again."
FLAT_REPLY = "[called {names}]"  # without it the reply before would be the last one, with its results still open
FLAT_CALL = "You called {name} with {input}. It brought:"
PRUNED_RESULT = "[old result cleared]"

__all__ = ["OpenCall", "Piece", "View", "ViewFold", "build_view", "visible_results"]

_MOVES = frozenset({Pruning, Compaction, Restore})
_TELLING = frozenset({AssistantMessage, TurnStart})


class ViewFold:
    """A fold that can be continued: `add` an entry, ask for the `view`."""

    def __init__(self, path: Iterable[Entry] = ()) -> None:
        self._path: list[Entry] = []
        self._reset(Moves())
        self.extend(path)

    def _reset(self, moves: Moves) -> None:
        self._moves = moves
        self._pruned = moves.pruned
        self._compaction = moves.compaction
        self._bound: str | None = None
        self._messages: list[Message] = []  # but the last, which may still grow: that is in the four below
        self._sources: list[tuple[str, ...]] = []
        self._role: Role | None = None
        self._blocks: list[Block] = []
        self._entry_ids: list[str] = []
        self._last: Message | None = None
        self._pieces: list[Piece] = []
        self._open: dict[str, Block] = {}
        self._started: set[str] = set()
        self._runnable = False
        self._flat: dict[str, ToolCall] = {}
        self._cut: str | None = None
        self._turn: TurnStart | None = None
        self._voices = Voices()
        self._turn_ended = True
        self._steps = 0
        self._usage: UsageReported | None = None
        self._pins: list[Pin] = []
        self._unread: frozenset[str] = frozenset()
        self._view: View | None = None

    @property
    def path(self) -> Sequence[Entry]:
        """The entries folded so far."""
        return self._path

    def extend(self, entries: Iterable[Entry]) -> None:
        """Add entries in order; one that moves the prefix makes the fold start over once, at the end."""
        added = list(entries)
        if not added:
            return
        self._view = None
        start = len(self._path)
        last = self._path[-1].id if self._path else None
        kinds: set[type[Body]] = set()
        telling: list[Body] = []  # the few that say whether the prefix moves
        for entry in added:
            if entry.parent != last:
                raise BrokenPath(f"entry {entry.id!r} names the parent {entry.parent!r}; the one before it is {last!r}")
            last = entry.id
            kind = type(entry.body)
            kinds.add(kind)
            if kind in _TELLING:
                telling.append(entry.body)
        self._path.extend(added)
        summed_up = any(map(summarises, telling))
        if summed_up or self._moves_prefix(kinds) or (TurnStart in kinds and self._voice_changes(telling)):
            self._refold()
            return
        for i, entry in enumerate(added, start):
            self._fold(i, entry)

    def add(self, entry: Entry) -> None:
        """Add one entry.

        Raises:
            BrokenPath: its parent is not the entry before it.
        """
        self.extend((entry,))

    def _moves_prefix(self, kinds: set[type[Body]]) -> bool:
        return not kinds.isdisjoint(_MOVES) or (bool(self._moves.waiting) and AssistantMessage in kinds)

    def _voice_changes(self, added: Sequence[Body]) -> bool:
        known = {self._voices.now} if self._voices.now else set()
        known |= {voice_of(body) for body in added if isinstance(body, TurnStart)}
        return len(known) > 1

    def _refold(self) -> None:
        self._reset(collect_moves(self._path))
        voices = Voices()
        for entry in self._path:
            if isinstance(entry.body, TurnStart | Compaction | Restore):
                voices.take(entry)
        self._final_voice = voices.now
        compaction = self._compaction
        first = self._moves.first_kept(compaction)
        if compaction is not None and isinstance(compaction.body, Compaction):
            note = compaction.body.note if compaction.body.note.strip() else NO_NOTE
            self._piece(compaction.id, "user", (text_block(note),), "summary")
        for i, entry in enumerate(self._path):
            if i < first:
                self._fold_hidden(entry)
            else:
                self._fold(i, entry)

    _final_voice: Voice | None = None

    def _fold_hidden(self, entry: Entry) -> None:
        """Fold what stays true of an entry whose text is replaced by a note."""
        body = entry.body
        if isinstance(body, TurnStart | Compaction | Restore):
            self._voices.take(entry)
        if isinstance(body, TurnStart):
            self._turn, self._turn_ended, self._steps = body, False, 0
        elif isinstance(body, TurnEnd):
            self._turn_ended = True
        elif isinstance(body, AssistantMessage):
            self._steps += 1
            self._turn_ended = False
        elif isinstance(body, UserMessage | Steering | ToolStarted | ToolResult):
            self._turn_ended = False
        elif isinstance(body, Pin):
            self._pins.append(body)

    def _fold(self, position: int, entry: Entry) -> None:
        # The commonest kinds first: a journal of ten thousand entries is folded in one go.
        body = entry.body
        if isinstance(body, ToolStarted):
            self._turn_ended = False  # also after a TurnEnd: the turn was resumed
            self._started.add(body.call_id)
        elif isinstance(body, ToolResult):
            self._turn_ended = False
            self._result(entry.id, body)
        elif isinstance(body, AssistantMessage):
            self._turn_ended = False
            self._assistant(position, entry.id, body)
        elif isinstance(body, UsageReported):
            if body.purpose == "turn" and (self._turn is None or self._turn.policy != IMPORTED):
                self._usage = body
        elif isinstance(body, UserMessage):
            self._turn_ended = False
            blocks = body.blocks if not all(map(is_blank, body.blocks)) else (text_block(NO_TEXT),)
            self._user_text(entry.id, blocks, "messages")
        elif isinstance(body, Steering):
            self._turn_ended = False
            self._user_text(entry.id, (text_block(body.text),), "messages")
        elif isinstance(body, Snapshot):
            self._user_text(entry.id, (text_block(body.text),), "notebook")
        elif isinstance(body, TurnStart):
            self._close_open_calls(entry.id)
            self._turn, self._turn_ended, self._steps = body, False, 0
            self._voices.take(entry)
        elif isinstance(body, TurnEnd):
            self._turn_ended = True
        elif isinstance(body, Pin):
            self._pins.append(body)
        elif isinstance(body, Compaction | Restore):
            self._voices.take(entry)

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
        blocks = whole_blocks(body)
        noted = summarises(body)  # seldom: only then the blocks are looked through for notes
        if noted and not self._moves.holds_summary(entry_id):
            blocks = tuple([b for b in blocks if not is_provider_note(b)])
        spoken = tuple([b for b in blocks if b.get("type") not in THINKING])
        if not spoken:
            return
        calls = [b for b in body.blocks if b.get("type") == "tool_use" and is_tool_call(b)]
        thinks = len(spoken) < len(blocks)
        self._cut = body.cut
        if not noted or not all(map(is_provider_note, spoken)):  # a note alone may be taken back: it ends no loop
            self._bound = entry_id if calls and thinks else None
        if self._role is None:
            self._piece(entry_id, "user", (text_block(NO_TEXT),), "messages")
        if thinks:
            ours = self._voices.now is None or self._final_voice in (None, self._voices.now)
            blocks = blocks if ours and self._moves.thinking_holds(position) else spoken
        self._flat = {}
        if self._moves.is_flat(position):
            self._bound = None
            self._flat = {c.id: c for c in tool_calls(blocks)}
            said = tuple(b for b in blocks if b.get("type") in ("text", "compaction"))
            blocks = said or (text_block(FLAT_REPLY.format(names=", ".join(c.name for c in self._flat.values()))),)
        if noted and any(map(is_provider_note, blocks)):
            self._unread = frozenset(p.entry_id for p in self._pieces)
        if blocks:
            self._piece(entry_id, "assistant", blocks, "messages")
        self._runnable = body.stop_reason == "tool_use" and body.cut is None
        self._open = {str(b["id"]): b for b in calls}
        self._started = set()

    def _result(self, entry_id: str, body: ToolResult) -> None:
        if self._open.pop(body.call_id, None) is None:
            return
        content: Sequence[Block] | str = body.content
        placeholder = self._pruned.get(entry_id)
        if placeholder is not None:
            content = placeholder or PRUNED_RESULT
        self._answer(entry_id, body.call_id, content, is_error=body.status != "ok")

    def _answer(self, entry_id: str, call_id: str, content: Sequence[Block] | str, *, is_error: bool) -> None:
        """Add the result of a call; as text where the call itself could only go as text."""
        blocks: tuple[Block, ...] = (tool_result_block(call_id, content, is_error=is_error),)
        call = self._flat.get(call_id)
        if call is not None:
            inner = (text_block(content),) if isinstance(content, str) else tuple(b for b in content if not is_blank(b))
            blocks = (text_block(FLAT_CALL.format(name=call.name, input=canonical(call.input))), *inner)
        self._piece(entry_id, "user", blocks, "tool results")

    def _close_open_calls(self, entry_id: str) -> None:
        if not self._open:
            return
        for call_id, block in self._open.items():
            self._answer(entry_id, call_id, LOST_RESULT.format(name=str(block["name"])), is_error=True)
        self._open = {}

    def _piece(self, entry_id: str, role: Role, blocks: tuple[Block, ...], category: str) -> None:
        self._pieces.append(Piece(entry_id=entry_id, role=role, blocks=blocks, category=category))
        if role != self._role:
            if self._role is not None:
                self._messages.append(self._last_message(self._role))
                self._sources.append(tuple(self._entry_ids))
            self._role, self._blocks, self._entry_ids = role, [], []
        self._blocks += blocks
        self._entry_ids.append(entry_id)
        self._last = None

    def _last_message(self, role: Role) -> Message:
        """Return the message that still grows, the same object until it does: it remembers its bytes."""
        if self._last is None:
            self._last = Message(role, tuple(self._blocks))
        return self._last

    def view(self) -> View:
        """Return the view at this point; cheap (shallow copies), and the same object until an entry is added."""
        if self._view is None:
            self._view = self._made_view()
        return self._view

    def _made_view(self) -> View:
        messages, sources = tuple(self._messages), tuple(self._sources)
        if self._role is not None:
            messages += (self._last_message(self._role),)
            sources += (tuple(self._entry_ids),)
        open_calls = tuple(
            OpenCall(call=c, started=c.id in self._started, runnable=self._runnable)
            for c in tool_calls(tuple(self._open.values()))
        )
        return View(
            messages=messages, sources=sources, pieces=tuple(self._pieces),
            open_calls=open_calls, turn=self._turn, turn_ended=self._turn_ended, steps=self._steps,
            last_usage=self._usage, pins=tuple(_live_pins(self._pins)), pruned=frozenset(self._pruned),
            compaction=last.id if (last := self._moves.summary or self._compaction) else None, bound=self._bound,
            deferred=tuple(e.id for e in self._moves.waiting), unread=self._unread, cleared=self._cleared(),
        )  # fmt: skip

    def _cleared(self) -> frozenset[str]:
        """Return the results that the provider cleared at the last call: it tells how many, and clears the oldest."""
        count = cleared_results(self._usage)
        results = (p.entry_id for p in self._pieces if p.category == "tool results") if count else ()
        return frozenset(islice((r for r in results if r not in self._unread and r not in self._pruned), count))


def build_view(path: Iterable[Entry]) -> View:
    """Return what the model may see after `path`.

    Total: every path that starts at a root yields a view, also one that ends in unanswered
    tool calls. Entries cancelled by a later `Restore` count as absent. Cost is linear in
    the path; nothing is read from disk.

    Raises:
        BrokenPath: an entry's parent is not the entry before it.
    """
    return ViewFold(path).view()


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
    shown = view.seen
    return {
        e.id: e.body.meta
        for e in path
        if isinstance(e.body, ToolResult) and e.id in shown and e.body.meta and e.body.status == "ok"
    }
