"""Cassettes: a conversation written down so that it can be played without a key or a network (NB-6).

A cassette is JSON: the prefixes, and the turns in order, each with its prompt and everything the
model and the tools brought, as the journal's own bodies. A turn is found by a hash of its prompt
and of the turn before it (with its tool calls), so the order of cells matters and a changed prompt
is a miss that says where it differs. Pure but for `load` and `save`.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nbagent.core.entries import (
    AssistantMessage,
    Body,
    Entry,
    Snapshot,
    Steering,
    ToolResult,
    TurnEnd,
    TurnStart,
    UsageReported,
    UserMessage,
    body_from_dict,
    body_to_dict,
)
from nbagent.core.errors import CassetteMiss
from nbagent.core.messages import Block, Prefix, Request, Response, ToolCall, canonical, joined_text, tool_calls
from nbagent.models.model import Watch

FORMAT, VERSION = "nbagent-cassette", 1
_HOW = "set a key or a local model, or restore the text"
_KEPT = (Snapshot, Steering, AssistantMessage, ToolResult, UsageReported)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """What one run of a turn brought, until its end: from the prompt, or from where it was resumed."""

    snapshot: Snapshot | None
    bodies: tuple[Body, ...]
    end: TurnEnd


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTurn:
    """One turn of a cassette. `key` names turn and past; a resumed turn has more than one stretch."""

    key: str
    parent: str
    prompt: tuple[Block, ...]
    start: TurnStart
    stretches: tuple[Stretch, ...]
    at: float

    @property
    def after(self) -> str:
        """The key that the next turn has as its parent: this turn and the calls it made."""
        return after_key(self.key, (b for s in self.stretches for b in s.bodies))


@dataclass(frozen=True, slots=True, kw_only=True)
class Cassette:
    """A recorded conversation. `source` says what was recorded: "live", "scripted", "fake"."""

    turns: tuple[RecordedTurn, ...]
    prefixes: Mapping[str, Prefix]
    source: str = "live"
    about: str = ""

    def find(self, parent: str, prompt: str) -> RecordedTurn:
        """Return the turn recorded for the text `prompt` after the turn `parent` ("" for the first).

        Raises:
            CassetteMiss: it holds none; the message names the first difference.
        """
        key = turn_key(parent, prompt)
        for turn in self.turns:
            if turn.key == key:
                return turn
        raise CassetteMiss(self._miss(parent, prompt))

    def _miss(self, parent: str, prompt: str) -> str:
        here = [t for t in self.turns if t.parent == parent]
        if not here:
            same = next((i for i, t in enumerate(self.turns, 1) if prompt_text(t.prompt) == prompt), None)
            if same is not None:
                return f"not recorded in this order: the prompt is turn {same} of the recording; run the cells in order"
            return f"not recorded: the recording has no turn after this point ({len(self.turns)} in all); {_HOW}"
        texts = [prompt_text(t.prompt) for t in here]
        near = difflib.get_close_matches(prompt, texts, n=1, cutoff=0.0) or texts[:1]
        at = next((i for i, (a, b) in enumerate(zip(prompt, near[0], strict=False)) if a != b), None)
        at = min(len(prompt), len(near[0])) if at is None else at
        return (
            f"not recorded: at character {at + 1} this cell says {_near(prompt, at)!r} and the recording "
            f"{_near(near[0], at)!r}; {_HOW}"
        )


def _near(text: str, at: int) -> str:
    piece = text[max(0, at - 10) : at + 20]
    return piece or "(the end)"


def turn_key(parent: str, prompt: str) -> str:
    """Return the key of a turn with `prompt` after `parent`; line ends and outer blanks do not count."""
    text = prompt.replace("\r\n", "\n").strip()
    return hashlib.sha256(f"{parent}\0{text}".encode("utf-8", "replace")).hexdigest()[:24]


def prompt_text(prompt: Sequence[Block]) -> str:
    """Return what the person typed: the first text block; what follows was attached to it."""
    return next((str(b.get("text") or "") for b in prompt if b.get("type") == "text"), "")


def after_key(key: str, bodies: Iterable[Body]) -> str:
    """Return the parent key for the turn that follows: `key` and the calls made since."""
    made = [
        canonical([c.name, c.input])
        for b in bodies
        if isinstance(b, AssistantMessage)
        for c in tool_calls(b.blocks)
    ]
    return hashlib.sha256("\0".join([key, *made]).encode("utf-8", "replace")).hexdigest()[:24]


def recorded_turns(path: Iterable[Entry]) -> tuple[RecordedTurn, ...]:
    """Return the ended turns on `path`, ready to be written down."""
    groups: list[list[Entry]] = []
    for entry in path:
        if isinstance(entry.body, TurnStart):
            groups.append([])
        if groups:
            groups[-1].append(entry)
    turns: list[RecordedTurn] = []
    for group in groups:
        turn = _recorded(turns[-1].after if turns else "", group)
        if turn is not None:
            turns.append(turn)
    return tuple(turns)


def _recorded(parent: str, group: Sequence[Entry]) -> RecordedTurn | None:
    start = group[0].body
    prompt = next((e.body for e in group if isinstance(e.body, UserMessage)), None)
    stretches = tuple(_stretches(group))
    if not isinstance(start, TurnStart) or prompt is None or not stretches:
        return None
    return RecordedTurn(
        key=turn_key(parent, prompt_text(prompt.blocks)), parent=parent, prompt=prompt.blocks, start=start,
        stretches=stretches, at=group[0].at,
    )  # fmt: skip


def _stretches(group: Sequence[Entry]) -> Iterator[Stretch]:
    """Yield what stands before each end; a snapshot counts as the stretch's own when no reply came before it."""
    snapshot: Snapshot | None = None
    bodies: list[Body] = []
    for entry in group:
        body = entry.body
        if isinstance(body, TurnEnd):
            yield Stretch(snapshot=snapshot, bodies=tuple(bodies), end=body)
            snapshot, bodies = None, []
        elif isinstance(body, Snapshot) and snapshot is None and not _speaks(bodies):
            snapshot = body
        elif isinstance(body, _KEPT):
            bodies.append(body)


def _speaks(bodies: Iterable[Body]) -> bool:
    return any(isinstance(b, AssistantMessage) for b in bodies)


def last_key(path: Iterable[Entry]) -> str:
    """Return the parent key for the next turn after `path`."""
    turns = recorded_turns(path)
    return turns[-1].after if turns else ""


# ---------------------------------------------------------------- files


def to_text(cassette: Cassette, scrub: Callable[[Any], Any] = lambda value: value) -> str:
    """Return the cassette as JSON text with an indent; `scrub` removes secrets from a JSON value."""
    turns = [
        {
            "key": t.key, "parent": t.parent, "at": t.at, "prompt": list(t.prompt), "start": body_to_dict(t.start),
            "stretches": [
                {
                    "snapshot": body_to_dict(s.snapshot) if s.snapshot else None,
                    "events": [body_to_dict(b) for b in s.bodies], "end": body_to_dict(s.end),
                }
                for s in t.stretches
            ],
        }
        for t in cassette.turns
    ]  # fmt: skip
    value = {
        "format": FORMAT, "version": VERSION, "source": cassette.source, "about": cassette.about, "turns": turns,
        "prefixes": {d: json.loads(p.to_text()) for d, p in sorted(cassette.prefixes.items())},
    }  # fmt: skip
    return json.dumps(scrub(value), ensure_ascii=False, indent=1) + "\n"


def from_text(text: str, name: str) -> Cassette:
    """Return the cassette in `text`; `name` is for messages.

    Raises:
        CassetteMiss: it is not a cassette that this version reads.
    """
    try:
        raw = json.loads(text)
        if raw["format"] != FORMAT:
            raise KeyError("format")
        if raw["version"] > VERSION:
            raise CassetteMiss(f"the recording {name!r} is of version {raw['version']}; this nbagent reads {VERSION}")
        turns = tuple(_turn_from(t) for t in raw["turns"])
        prefixes = {d: Prefix.from_text(canonical(p)) for d, p in raw["prefixes"].items()}
        source, about = str(raw.get("source", "live")), str(raw.get("about", ""))
        return Cassette(turns=turns, prefixes=prefixes, source=source, about=about)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        line = f"{name!r} is not a recording of nbagent ({error}); record one with `%agent record`"
        raise CassetteMiss(line) from error


def _turn_from(raw: Mapping[str, Any]) -> RecordedTurn:
    start, prompt = body_from_dict(raw["start"]), raw["prompt"]
    stretches = tuple(_stretch_from(s) for s in raw["stretches"])
    if not isinstance(start, TurnStart) or not stretches:
        raise ValueError("a turn without start or end")
    if not isinstance(prompt, list) or not all(isinstance(b, dict) for b in prompt):
        raise ValueError("a prompt that is no list of blocks")
    return RecordedTurn(
        key=str(raw["key"]), parent=str(raw["parent"]), prompt=tuple(prompt), start=start, stretches=stretches,
        at=float(raw["at"]),
    )  # fmt: skip


def _stretch_from(raw: Mapping[str, Any]) -> Stretch:
    snapshot = body_from_dict(raw["snapshot"]) if raw.get("snapshot") else None
    end = body_from_dict(raw["end"])
    if not isinstance(end, TurnEnd) or not isinstance(snapshot, Snapshot | None):
        raise ValueError("a turn without start or end")
    return Stretch(snapshot=snapshot, bodies=tuple(body_from_dict(b) for b in raw["events"]), end=end)


def load(path: Path) -> Cassette:
    """Read a cassette.

    Raises:
        CassetteMiss: the file is missing or not a cassette.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        why = "there is no such file" if isinstance(error, FileNotFoundError) else error.strerror
        raise CassetteMiss(
            f"the recording {str(path)!r} cannot be read ({why}); name an existing file, or record one with "
            "`%agent record FILE`"
        ) from error
    except UnicodeDecodeError as error:
        raise CassetteMiss(f"the recording {str(path)!r} is not UTF-8 text; record it again") from error
    return from_text(text, str(path))


def save(path: Path, text: str) -> None:
    """Write the cassette's text; the old file stays whole until the new one is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(path.name + ".new")
    new.write_text(text, encoding="utf-8")
    os.replace(new, path)


# ---------------------------------------------------------------- playing


@dataclass(slots=True)
class Player:
    """Plays one stretch of a recorded turn: a Model for its replies, a Tape for its results.

    `runs` are the tools whose recorded calls run again; None means all.
    """

    turn: RecordedTurn
    stretch: int = 0
    runs: frozenset[str] | None = None
    differences: list[str] = field(default_factory=list)
    _bodies: list[Body] = field(init=False)
    _usage: dict[int, UsageReported] = field(init=False)
    _results: dict[str, ToolResult] = field(init=False)

    def __post_init__(self) -> None:
        bodies = self.turn.stretches[self.stretch].bodies
        self._bodies = [b for b in bodies if isinstance(b, AssistantMessage | Steering)]
        self._usage = {b.step: b for b in bodies if isinstance(b, UsageReported)}
        self._results = {b.call_id: b for b in bodies if isinstance(b, ToolResult)}

    @property
    def end(self) -> TurnEnd:
        """How the recorded run ended."""
        return self.turn.stretches[self.stretch].end

    @property
    def is_over(self) -> bool:
        """Tell whether the recording ended here, other than with an answer: by a stop, a limit or an error."""
        return not _speaks(self._bodies) and self.end.outcome != "completed"

    def steering(self) -> tuple[str, ...]:
        """Return what the person said in mid-turn at this place of the recording."""
        said: list[str] = []
        while self._bodies and isinstance(body := self._bodies[0], Steering):
            self._bodies.pop(0)
            if body.by == "person":
                said.append(body.text)
        return tuple(said)

    def not_run(self) -> dict[str, str]:
        """Return the calls of the recording that do not run again, by id, and why."""
        return {
            r.call_id: "it is not run again"
            for r in self._results.values()
            if r.status not in ("ok", "error") or (self.runs is not None and r.name not in self.runs)
        }

    def check_ready(self) -> None:
        """A recording needs nothing."""

    async def close(self) -> None:
        """There is nothing to close."""

    async def call(self, request: Request, watch: Watch) -> Response:
        """Return the next recorded reply, as fast as it can be shown."""
        self.steering()  # what the loop itself said is said again by the loop
        body = self._bodies.pop(0) if self._bodies else None
        if not isinstance(body, AssistantMessage):
            error = CassetteMiss(f"not recorded: turn {self.turn.start.turn} has no further reply; {_HOW}")
            return watch.reply.response(cut="the recording ended", error=error)
        usage = self._usage.get(body.step)
        for index, block in enumerate(body.blocks):
            if block.get("type") == "text":
                watch.on_text(index, str(block.get("text") or ""))
            elif block.get("type") == "thinking":
                watch.on_thinking(index, str(block.get("thinking") or ""))
        cut = body.cut if body.stop_reason not in ("max_tokens", "model_context_window_exceeded") else None
        return Response(
            blocks=body.blocks, stop_reason=body.stop_reason, model=body.model, response_id=body.response_id,
            usage=dict(usage.usage) if usage else {}, stop_details=body.stop_details, cut=cut,
        )  # fmt: skip

    def recorded(self, call: ToolCall) -> ToolResult | None:
        """Return the recorded result of `call`."""
        return self._results.get(call.id)

    def differs(self, call: ToolCall, recorded: ToolResult, now: ToolResult) -> None:
        """Note a result that came out differently this time."""
        if self.runs is not None and call.name not in self.runs:
            return
        then, here = joined_text(recorded.content), joined_text(now.content)
        if _without_addresses(then) == _without_addresses(here) and recorded.status == now.status:
            return
        line = next((f"{b[:80]!r}, recorded {a[:80]!r}" for a, b in _pairs(then, here) if a != b), "its status differs")
        self.differences.append(f"turn {self.turn.start.turn}: {call.name} now says {line}")


def _pairs(a: str, b: str) -> Iterable[tuple[str, str]]:
    from itertools import zip_longest

    return zip_longest(a.split("\n"), b.split("\n"), fillvalue="")


def _without_addresses(text: str) -> str:
    return re.sub(r"0x[0-9a-f]{6,}", "0x", text)
