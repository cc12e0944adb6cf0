"""Recorder: collects what a foreign recording holds as bodies of entries, and keeps their order lawful.

Every request of the person starts a turn; what a recording summarised becomes a Report, since the summary
is its move and not ours. Nothing is made up but ids, which are counted.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from nbagent.core.entries import (
    AssistantMessage,
    Body,
    Report,
    Snapshot,
    ToolResult,
    ToolStarted,
    TurnEnd,
    TurnOutcome,
    TurnStart,
    UsageReported,
    UserMessage,
)  # fmt: skip
from nbagent.core.messages import Block, is_blank, text_block, tool_calls
from nbagent.core.pieces import IMPORTED, RECORDED_COMPACTION

UNKNOWN = "unknown"  # the model of a turn whose recording does not say it
COMPACTION = RECORDED_COMPACTION
_CALL_ID = re.compile(r"[^A-Za-z0-9_-]")  # what providers take in the id of a call


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamped:
    """A body and when it was recorded: UTC seconds, 0 when unknown."""

    body: Body
    at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """One conversation. `name` tells it from others of the same file, "" when it is alone."""

    name: str
    system: str
    bodies: tuple[Stamped, ...]


def entry_id(index: int) -> str:
    """Return the id of the body at `index`: recordings are imported to the same ids every time."""
    return f"i{index:06d}"


@dataclass(slots=True)
class Recorder:
    """Collects the bodies of one conversation and keeps turns, steps and call ids in order."""

    policy: str = IMPORTED
    model: str = UNKNOWN
    system: str = ""
    bodies: list[Stamped] = field(default_factory=list)
    _turns: int = 0
    _started: int = 0
    _open_turn: str | None = None
    _steps: int = 0
    _stop: str | None = None
    _ids: dict[str, str] = field(default_factory=dict)
    _names: dict[str, str] = field(default_factory=dict)
    _open: dict[str, str] = field(default_factory=dict)
    _unanswered: dict[str, int] = field(default_factory=dict)  # call -> where its result belongs: before that body
    _late: dict[int, list[Stamped]] = field(default_factory=dict)
    _kept: dict[int, int] = field(default_factory=dict)  # a recorded summary -> the first body it kept
    _at: float = 0.0

    def put(self, body: Body, at: float = 0.0) -> None:
        """Append a body; an unknown time is that of the body before it."""
        self._at = at or self._at
        self.bodies.append(Stamped(body=body, at=self._at))

    def ask(self, blocks: Sequence[Block], at: float = 0.0) -> None:
        """Record a request of the person: a new turn."""
        kept = tuple(b for b in blocks if not is_blank(b))
        if kept:
            self._begin(at)
            self.put(UserMessage(blocks=kept), at)

    def remark(self, text: str, topic: str, at: float = 0.0) -> None:
        """Record text that reached the model and that nobody asked with."""
        if text.strip():
            self._close_calls()
            self.put(Snapshot(text=text, topics=(topic,)), at)

    def reply(
        self, blocks: Sequence[Block], *, stop: str | None, at: float = 0.0, cut: str | None = None,
        usage: Mapping[str, Any] | None = None, cost_usd: float = 0.0, response_id: str = "",
    ) -> None:  # fmt: skip
        """Record a reply of the model, its usage and the start of its calls."""
        if self._open_turn is None:
            self._begin(at)
        self._close_calls()
        self._tell_model()
        self._steps += 1
        self._stop = stop
        named = tuple(self._named(b) for b in blocks if not is_blank(b))
        self.put(
            AssistantMessage(
                blocks=named, stop_reason=stop, model=self.model, step=self._steps, cut=cut, response_id=response_id
            ),
            at,
        )
        if usage:
            self.put(UsageReported(step=self._steps, model=self.model, usage=usage, cost_usd=cost_usd), at)
        for call in tool_calls(named):
            self._open[call.id] = call.name
            self.put(ToolStarted(call_id=call.id, name=call.name), at)

    def _tell_model(self) -> None:
        """Name the model of a turn that began before the recording said which it is."""
        start = self.bodies[self._started].body
        if isinstance(start, TurnStart) and start.model == UNKNOWN != self.model:
            self.bodies[self._started] = replace(self.bodies[self._started], body=replace(start, model=self.model))

    def _named(self, block: Block) -> Block:
        """Return a call with an id that is valid and was not used before."""
        if block.get("type") != "tool_use":
            return block
        recorded = str(block.get("id") or "")
        clean = _CALL_ID.sub("_", recorded) or f"call_{len(self._names) + 1}"
        taken = clean in self._names
        call_id = f"{clean}_{len(self._names) + 1}" if taken else clean
        self._names[call_id] = str(block.get("name") or "unknown")
        self._ids[recorded] = call_id
        arguments = block.get("input")
        return {
            "type": "tool_use", "id": call_id, "name": self._names[call_id],
            "input": arguments if isinstance(arguments, Mapping) else {"value": arguments},
        }  # fmt: skip

    def result(
        self, recorded_id: str | None, content: Sequence[Block], *, failed: bool = False, at: float = 0.0
    ) -> bool:
        """Record what a call brought; without an id the oldest open call. False when no such call waits for it.

        A result that comes after something else was said is put behind its call: only there a provider takes it.
        """
        call_id = self._ids.get(recorded_id) if recorded_id is not None else next(iter(self._open), None)
        if call_id is None or not (call_id in self._open or call_id in self._unanswered):
            return False
        kept = tuple(b for b in content if not is_blank(b))
        body = ToolResult(
            call_id=call_id, name=self._names[call_id], content=kept, status="error" if failed else "ok"
        )  # fmt: skip
        if self._open.pop(call_id, None) is not None:
            self.put(body, at)
        else:
            place = self._unanswered.pop(call_id)
            self._late.setdefault(place, []).append(Stamped(body=body, at=self.bodies[place - 1].at))
        return True

    @property
    def has_open_call(self) -> bool:
        """Tell whether a call waits for its result."""
        return bool(self._open)

    def summary(self, text: str, first_kept: int | None, *, before_tokens: int = 0, at: float = 0.0) -> None:
        """Record a compaction of the recording; `first_kept` is the index of the first body it kept."""
        kept = entry_id(first_kept) if first_kept is not None else None
        if first_kept is not None:
            self._kept[len(self.bodies)] = first_kept
        self.put(Report(source=COMPACTION, text=text, details={"first_kept": kept, "before_tokens": before_tokens}), at)

    def _begin(self, at: float) -> None:
        self._end()
        self._turns += 1
        self._open_turn = f"t{self._turns:04d}"
        self._steps, self._stop = 0, None
        self._started = len(self.bodies)
        self.put(TurnStart(turn=self._open_turn, model=self.model, policy=self.policy, order=self._turns), at)

    def _close_calls(self) -> None:
        """A call whose result is not recorded gets none here: the view says so."""
        self._unanswered.update(dict.fromkeys(self._open, len(self.bodies)))
        self._open.clear()

    def _end(self) -> None:
        if self._open_turn is None:
            return
        self._close_calls()
        self.put(TurnEnd(turn=self._open_turn, outcome=_outcome(self._stop), steps=self._steps))
        self._open_turn = None

    def done(self, name: str = "") -> Imported:
        """Return the conversation; the last turn is ended."""
        self._end()
        return Imported(name=name, system=self.system, bodies=tuple(self._in_order()))

    def _in_order(self) -> list[Stamped]:
        """Return the bodies with late results in their places; what a summary kept is named by its place then."""
        ordered: list[Stamped] = []
        moved: list[int] = []
        for index, stamped in enumerate(self.bodies):
            ordered += self._late.get(index, ())
            moved.append(len(ordered))
            ordered.append(stamped)
        for summary, first in self._kept.items() if self._late else ():
            told = ordered[moved[summary]]
            assert isinstance(told.body, Report)
            details = {**told.body.details, "first_kept": entry_id(moved[first])}
            ordered[moved[summary]] = replace(told, body=replace(told.body, details=details))
        return ordered


def _outcome(stop: str | None) -> TurnOutcome:
    match stop:
        case "end_turn":
            return "completed"
        case "max_tokens":
            return "cut_off"
        case "refusal":
            return "refusal"
        case "error":
            return "error"
        case _:
            return "stopped"


def seconds(stamp: Any) -> float:
    """Return a recorded time (ISO text, seconds or milliseconds since the epoch) as UTC seconds; 0 for none."""
    if isinstance(stamp, int | float) and not isinstance(stamp, bool):
        return stamp / 1000 if stamp > 1e11 else float(stamp)
    if isinstance(stamp, str):
        try:
            moment = datetime.datetime.fromisoformat(stamp)
        except ValueError:
            return 0.0
        return (moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)).timestamp()
    return 0.0


def text_blocks(content: Any) -> list[Block]:
    """Return recorded content (a string, or blocks of text and images in any dialect) as our blocks."""
    if content is None:
        return []
    if isinstance(content, str):
        return [text_block(content)]
    blocks: list[Block] = []
    for part in content:
        if isinstance(part, str):
            blocks.append(text_block(part))
        elif isinstance(part, Mapping) and isinstance(part.get("text"), str):
            blocks.append(text_block(part["text"]))
        elif isinstance(part, Mapping) and part.get("type") in ("image", "image_url"):
            blocks.append(_image(part))
    return blocks


def _image(part: Mapping[str, Any]) -> Block:
    source = part.get("source")
    if isinstance(source, Mapping) and source.get("type") == "base64":
        return {"type": "image", "source": dict(source)}
    if isinstance(part.get("data"), str) and isinstance(part.get("mimeType"), str):
        media, encoded = part["mimeType"], part["data"]
        return {"type": "image", "source": {"type": "base64", "media_type": media, "data": encoded}}
    return text_block("[image]")
