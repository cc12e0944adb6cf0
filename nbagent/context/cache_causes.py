"""Why a call read less from the provider's prompt cache than the call before it had sent: told from entries alone.

The rules are Anthropic's (claude.md A7): a cache belongs to one model and to one beginning of a request (tools, system
text, messages, in this order), lives five minutes or an hour from its last use, has a least length, and is looked for
no more than 20 blocks before a mark.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from nbagent.context.assemble import breakpoints
from nbagent.context.cache_calls import TURN, MeasuredCall
from nbagent.core.entries import AssistantMessage, Compaction, Entry, LeafMoved, Pruning, Report, UsageReported
from nbagent.core.in_force import Moves, cleared_results, collect_moves, speaks, summarises
from nbagent.core.pieces import RECORDED_COMPACTION
from nbagent.core.view import build_view

CauseKind: TypeAlias = Literal[
    "first", "new", "idle", "fork", "model", "prefix", "options", "undo", "compaction", "pruning", "provider",
    "short", "unkept", "blocks", "aside", "unknown",
]  # fmt: skip
LOOK_BACK_BLOCKS: Final = 20
UNTIED: Final = frozenset({"first", "new", "short", "unkept"})  # nothing could have been read: nothing was lost
_SHAPING = ("thinking", "output_config", "tool_choice")  # a change of these begins the messages anew


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Why a call read less than the one before it had sent; `also` are further reasons found."""

    kind: CauseKind
    text: str
    also: tuple[str, ...] = ()


@dataclass(slots=True)
class Trail:
    """A path, and where along it moves of the context took effect."""

    path: Sequence[Entry]
    moves: Moves

    @classmethod
    def of(cls, path: Sequence[Entry]) -> Trail:
        """Return the trail of `path`."""
        return cls(path, collect_moves(path))

    def between(self, before: MeasuredCall, call: MeasuredCall) -> Sequence[Entry]:
        """Return the entries that are in the request of `call` and were not in that of `before`, its reply first."""
        return self.path[before.asked : call.asked]

    def made(self, kind: type, before: MeasuredCall, call: MeasuredCall) -> bool:
        """Tell whether a move of `kind` took effect between two calls, and still stood at the later one."""
        return any(
            before.asked <= self.moves.at[e.id] < call.asked <= self.moves.cancelled.get(e.id, len(self.path))
            for e in self.moves.made
            if isinstance(e.body, kind)
        )

    def undone(self, before: MeasuredCall, call: MeasuredCall) -> bool:
        """Tell whether a move that the request of `before` knew was taken back since."""
        at, taken = self.moves.at, self.moves.cancelled
        return any(at[m] < before.asked <= taken[m] < call.asked for m in taken if m in at)


def beginning(trail: Trail, call: MeasuredCall, *, earlier: bool) -> Cause:
    """Return the cause for the first call of a conversation; `earlier` says that the session had others before."""
    if not earlier:
        return Cause(kind="first", text="the conversation begins")
    moved = [e.body.why for e in trail.path[: call.asked] if isinstance(e.body, LeafMoved)]
    how = "its first cell was run again" if moved and moved[-1] != "new" else "%agent reset or --new"
    return Cause(kind="new", text=f"a new conversation begins ({how})")


def cause_of(
    trail: Trail, call: MeasuredCall, before: MeasuredCall, *, last_used: MeasuredCall | None, least_tokens: int
) -> Cause:
    """Return why `call` read less than `before`, the conversation's call before it, had sent.

    `last_used` is the newest call before it to the same model in this conversation, `least_tokens` the shortest request
    that the model caches.
    """
    if not before.usage.cache_read_tokens + before.usage.cache_creation_tokens:
        return _nothing_kept(before, least_tokens)
    found = list(_causes(trail, call, before, last_used))
    if not found:
        found = [("unknown", "the provider's cache did not have it; nothing in the journal says why")]
    (kind, text), rest = found[0], found[1:]
    return Cause(kind=kind, text=text, also=tuple(t for _, t in rest))


def _nothing_kept(before: MeasuredCall, least_tokens: int) -> Cause:
    size = before.usage.context_tokens
    if size < least_tokens:
        text = f"the request before had {size:,} tokens; this model caches none below {least_tokens:,}"
        return Cause(kind="short", text=text)
    return Cause(kind="unkept", text="of the request before nothing was kept, as the provider tells it")


_Found: TypeAlias = Iterator[tuple[CauseKind, str]]


def _causes(trail: Trail, call: MeasuredCall, before: MeasuredCall, last_used: MeasuredCall | None) -> _Found:
    since = trail.between(before, call)
    forked = any(isinstance(e.body, LeafMoved) for e in since)
    idle_s = call.began_at - last_used.began_at if last_used else 0.0
    cold = last_used is not None and idle_s > last_used.lives_s
    if cold and last_used is not None:
        passed, lives = duration(idle_s), f"the cache lives {duration(last_used.lives_s)}"
        if forked:
            yield "fork", f"the conversation went back to a point left {passed} ago; {lives}"
        else:
            yield "idle", f"{passed} since it was last sent; {lives}"
    if call.model != before.model:
        yield "model", f"another model: {call.model} after {before.model}; each has a cache of its own"
    if call.prefix != before.prefix:
        yield "prefix", "system text, tools or skills were made anew, and they come first"
    if names := [n for n in _SHAPING if call.options.get(n) != before.options.get(n)]:
        yield "options", f"{' and '.join(map(_option_word, names))} changed, which begins the messages anew"
    yield from _moves(trail, call, before)
    if forked and not cold:
        yield "fork", "the conversation went back to an older point"
    if call.purpose == TURN and _out_of_sight(trail.path, before, call):
        yield "blocks", f"more than {LOOK_BACK_BLOCKS} blocks since the last mark; the provider looks no further back"
    elif call.purpose != TURN:
        yield "aside", "its request is, at least in part, a text of its own"


def _moves(trail: Trail, call: MeasuredCall, before: MeasuredCall) -> _Found:
    if trail.undone(before, call):
        yield "undo", "a compaction or pruning was taken back (undo)"
    if any(isinstance(e.body, Report) and e.body.source == RECORDED_COMPACTION for e in trail.between(before, call)):
        yield "compaction", "the agent that was recorded compacted the conversation"
    if trail.made(Compaction, before, call):
        yield "compaction", "older turns were replaced by a note (compaction)"
    if trail.made(Pruning, before, call):
        yield "pruning", "old results were replaced by placeholders (pruning)"
    if any(summarises(e.body) for e in trail.between(before, call)):
        yield "provider", "the provider compacted the conversation by itself"
    elif _cleared(call) != _cleared(before):
        yield "provider", "the provider cleared old results by itself"


def _cleared(call: MeasuredCall) -> int:
    return cleared_results(UsageReported(step=0, model=call.model, usage=call.told, cost_usd=0.0))


def _option_word(name: str) -> str:
    return {"output_config": "the effort", "tool_choice": "the choice of tools"}.get(name, name)


def _out_of_sight(path: Sequence[Entry], before: MeasuredCall, call: MeasuredCall) -> bool:
    """Tell whether no mark of the request of `call` is near enough to the end of the request of `before`.

    That needs a reply of which nothing is sent back: then the message goes on growing behind the mark.
    """
    said = path[before.asked].body
    if isinstance(said, AssistantMessage) and speaks(said):
        return False
    then, now = build_view(path[: before.asked]), build_view(path[: call.asked])
    last = len(then.messages) - 1
    if last < 0 or last >= len(now.messages):
        return False
    ends, total = list[int](), 0
    for message in now.messages:
        total += len(message.blocks)
        ends.append(total)
    end = sum(len(m.blocks) for m in then.messages)
    ahead = [ends[i] - end for i in breakpoints(now) if ends[i] >= end]
    return bool(ahead) and min(ahead) >= LOOK_BACK_BLOCKS


def duration(seconds: float) -> str:
    """Return a duration in whole minutes, hours or days.

    >>> duration(300), duration(3_600), duration(7_500), duration(200_000)
    ('5 minutes', '1 hour', '2 hours', '2 days')
    """
    for size, name in ((86_400, "day"), (3_600, "hour")):
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {name}{'' if count == 1 else 's'}"
    count = int(seconds // 60)
    return f"{count} minute{'' if count == 1 else 's'}"
