"""MeasuredCall: the model calls along a path as the provider measured them, and what a prompt cache depends on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from nbagent.context.compare import CACHE_LIVES_S
from nbagent.core.budget import Usage
from nbagent.core.entries import AssistantMessage, Entry, TurnStart, UsageReported
from nbagent.core.in_force import Voices
from nbagent.core.messages import JsonObject
from nbagent.core.pieces import IMPORTED

TURN: Final = "turn"
ALONGSIDE: Final = frozenset({"handoff", "probe", "flush"})  # calls that go on from the conversation, as a rule
LONG_LIVED_S: Final = 3_600.0  # what was written for an hour (claude.md A7)
_CACHE_FIELDS = ("cache_read_input_tokens", "cache_creation_input_tokens", "cache_creation")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCall:
    """One call. `asked` is the index in the path from which on an entry came too late for its request.

    `turn` counts along the path, from 1; 0 before the first. `began_at` is when it was asked, UTC seconds, as near
    as the entries tell. `reported` says that the provider told its cache figures. `lives_s` is how long what it
    wrote lives.
    """

    entry: str
    asked: int
    turn: int
    turn_id: str
    step: int
    purpose: str
    model: str
    prefix: str
    options: JsonObject
    began_at: float
    usage: Usage
    told: JsonObject
    paid_usd: float
    reported: bool
    imported: bool
    lives_s: float

    @property
    def in_conversation(self) -> bool:
        """Whether its request is the conversation, or goes on from it."""
        return self.purpose == TURN or self.purpose in ALONGSIDE


def measured_calls(path: Sequence[Entry]) -> tuple[MeasuredCall, ...]:
    """Return the calls along `path`, oldest first. Linear in the path."""
    return tuple(_calls(path))


def _calls(path: Sequence[Entry]) -> Iterator[MeasuredCall]:
    voices, turn, start = Voices(), 0, None
    lives_s = CACHE_LIVES_S
    for i, entry in enumerate(path):
        voices.take(entry)
        body = entry.body
        if isinstance(body, TurnStart):
            turn, start = turn + 1, body
        if not isinstance(body, UsageReported):
            continue
        usage = Usage.from_wire(body.usage)
        if usage.cache_creation_tokens:
            lives_s = LONG_LIVED_S if usage.cache_creation_1h_tokens else CACHE_LIVES_S
        asked = i - 1 if body.purpose == TURN and i and isinstance(path[i - 1].body, AssistantMessage) else i
        yield MeasuredCall(
            entry=entry.id, asked=asked, turn=turn, turn_id=start.turn if start else "", step=body.step,
            purpose=body.purpose, model=body.model or (start.model if start else ""),
            prefix=voices.now[1] if voices.now else "", options=start.options if start else {},
            began_at=_began_at(path, asked, body.purpose), usage=usage, told=body.usage, paid_usd=body.cost_usd,
            reported=tells_cache(body.usage), imported=bool(start and start.policy == IMPORTED), lives_s=lives_s,
        )  # fmt: skip


def _began_at(path: Sequence[Entry], asked: int, purpose: str) -> float:
    """Return when a call was asked: when the entry before it was written.

    A call that is no step may come long after that entry, and a turn may be resumed long after it.
    """
    ended = path[asked].at
    before = path[asked - 1].at if asked else ended
    return ended if purpose != TURN or ended - before > CACHE_LIVES_S else before


def tells_cache(usage: Mapping[str, Any]) -> bool:
    """Tell whether a provider's report has cache figures at all, zeros included.

    >>> tells_cache({"input_tokens": 5, "cache_read_input_tokens": 0}), tells_cache({"input_tokens": 5})
    (True, False)
    """
    parts = usage.get("iterations")
    tellers = [usage, *(p for p in parts if isinstance(p, Mapping))] if isinstance(parts, list | tuple) else [usage]
    return any(t.get(name) is not None for t in tellers for name in _CACHE_FIELDS)
