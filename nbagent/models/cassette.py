"""Cassettes: a conversation written down so that it can be played without a key or a network (NB-6).

A cassette is JSON: the prefixes, and the turns in order, each with its prompt and everything the
model and the tools brought, as the journal's own bodies. A turn is found by a hash of its prompt
and of the turn before it (with its tool calls), so the order of cells matters and a changed prompt
is a miss that says where it differs. Pure but for `load` and `save`.
"""

from __future__ import annotations

import difflib
import errno
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nbagent.core.entries import (
    AssistantMessage,
    Body,
    Compaction,
    Entry,
    Pruning,
    Report,
    Restore,
    SkillUse,
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
from nbagent.core.messages import Block, Prefix, canonical, tool_calls

FORMAT, VERSION = "nbagent-cassette", 1
HOW = "set a key or a local model, or restore the text"
_MOVES = (Pruning, Compaction, Restore, Report)
_KEPT = (Snapshot, Steering, AssistantMessage, ToolResult, UsageReported, SkillUse, *_MOVES)
_COUNTED = (TurnStart, UserMessage, Snapshot, Steering, AssistantMessage, TurnEnd, *_MOVES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """What one run of a turn brought, until its end: from the prompt, or from where it was resumed.

    `before` is what was done to the context since the run before it.
    """

    snapshot: Snapshot | None
    bodies: tuple[Body, ...]
    end: TurnEnd
    before: tuple[Body, ...] = ()


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
    def prefixes(self) -> frozenset[str]:
        """The digests of the prefixes that its requests have."""
        made = {prefix_made(b) for s in self.stretches for b in (*s.before, *s.bodies)}
        return frozenset({self.start.prefix, *made} - {""})

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
            return f"not recorded: the recording has no turn after this point ({len(self.turns)} in all); {HOW}"
        texts = [prompt_text(t.prompt) for t in here]
        near = difflib.get_close_matches(prompt, texts, n=1, cutoff=0.0) or texts[:1]
        at = next((i for i, (a, b) in enumerate(zip(prompt, near[0], strict=False)) if a != b), None)
        at = min(len(prompt), len(near[0])) if at is None else at
        return (
            f"not recorded: at character {at + 1} this cell says {_near(prompt, at)!r} and the recording "
            f"{_near(near[0], at)!r}; {HOW}"
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
        canonical([c.name, c.input]) for b in bodies if isinstance(b, AssistantMessage) for c in tool_calls(b.blocks)
    ]
    return hashlib.sha256("\0".join([key, *made]).encode("utf-8", "replace")).hexdigest()[:24]


def is_move(body: Body) -> bool:
    """Tell whether `body` manages the context, or is what doing so cost."""
    return isinstance(body, _MOVES) or (isinstance(body, UsageReported) and body.purpose != "turn")


def prefix_made(body: Body) -> str:
    """Return the digest of the prefix that a compaction made anew, "" for none."""
    return str(body.details.get("prefix") or "") if isinstance(body, Compaction) else ""


def recorded_turns(path: Sequence[Entry]) -> tuple[RecordedTurn, ...]:
    """Return the ended turns on `path`, ready to be written down: their moves name places instead of entries."""
    names = places(path) if any(isinstance(e.body, _MOVES) for e in path) else {}
    return tuple(turn for turn, _ in _turns(path, names) if turn is not None and turn.stretches)


def _turns(path: Iterable[Entry], names: Mapping[str, str]) -> Iterator[tuple[RecordedTurn | None, list[Entry]]]:
    """Yield each turn of `path`, also one that has not ended, with its entries; None for one without a prompt."""
    groups: list[list[Entry]] = []
    for entry in path:
        if isinstance(entry.body, TurnStart):
            groups.append([])
        if groups:
            groups[-1].append(entry)
    parent = ""
    before: tuple[Body, ...] = ()
    for group in groups:
        turn = _recorded(parent, group, names, before)
        yield turn, group
        if turn is not None and turn.stretches:
            parent = turn.after
        before = tuple(_renamed(e.body, names) for e in _after_end(group) if is_move(e.body))


def _after_end(group: Sequence[Entry]) -> Sequence[Entry]:
    ends = [i for i, e in enumerate(group) if isinstance(e.body, TurnEnd)]
    return group[ends[-1] + 1 :] if ends else ()


def _recorded(
    parent: str, group: Sequence[Entry], names: Mapping[str, str], before: tuple[Body, ...]
) -> RecordedTurn | None:
    start = group[0].body
    prompt = next((e.body for e in group if isinstance(e.body, UserMessage)), None)
    if not isinstance(start, TurnStart) or prompt is None:
        return None
    return RecordedTurn(
        key=turn_key(parent, prompt_text(prompt.blocks)), parent=parent, prompt=prompt.blocks, start=start,
        stretches=tuple(_stretches(group, names, before)), at=group[0].at,
    )  # fmt: skip


def _stretches(group: Sequence[Entry], names: Mapping[str, str], before: tuple[Body, ...]) -> Iterator[Stretch]:
    """Yield what stands before each end; a snapshot counts as the stretch's own when no reply came before it."""
    snapshot: Snapshot | None = None
    bodies: list[Body] = []
    between = False
    for entry in group:
        body = entry.body
        if between and is_move(body):
            before = (*before, _renamed(body, names))
        elif isinstance(body, TurnEnd):
            yield Stretch(snapshot=snapshot, bodies=tuple(bodies), end=body, before=before)
            snapshot, bodies, before, between = None, [], (), True
        elif isinstance(body, Snapshot) and snapshot is None and not speaks(bodies):
            snapshot, between = body, False
        elif isinstance(body, _KEPT):
            bodies.append(_renamed(body, names))
            between = False


def speaks(bodies: Iterable[Body]) -> bool:
    """Tell whether a reply is among `bodies`."""
    return any(isinstance(b, AssistantMessage) for b in bodies)


def places(path: Iterable[Entry]) -> dict[str, str]:
    """Return entry id -> its place: the call of a result, else the turn's key and a number in the turn.

    A place means the same in a recording and in its replay, whose entries have other ids. What a recording does
    not keep has the place of the entry that follows.
    """
    found: dict[str, str] = {}
    for turn, group in _turns(path, {}):
        number = 1
        if turn is None:
            continue
        for entry in group:
            body = entry.body
            found[entry.id] = f"call:{body.call_id}" if isinstance(body, ToolResult) else f"{turn.key}:{number}"
            number += isinstance(body, _COUNTED)
    return found


def located(body: Body, path: Sequence[Entry]) -> Body:
    """Return the recorded move `body` with the ids that its places have on `path`."""
    if not isinstance(body, _MOVES):
        return body
    return _renamed(body, {place: entry_id for entry_id, place in places(path).items()})


def _renamed(body: Body, names: Mapping[str, str]) -> Body:
    match body:
        case Pruning():
            return replace(body, placeholders={names[k]: v for k, v in body.placeholders.items() if k in names})
        case Compaction(first_kept=str(first_kept)):
            return replace(body, first_kept=names.get(first_kept))
        case Restore():
            return replace(body, cancels=names.get(body.cancels, ""))
        case _:
            return body


def last_key(path: Sequence[Entry]) -> str:
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
                    **({"before": [body_to_dict(b) for b in s.before]} if s.before else {}),
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
        if not isinstance(raw, dict) or raw.get("format") != FORMAT:
            raise ValueError(f"it is JSON, but without \"format\": {json.dumps(FORMAT)}")
        if raw["version"] > VERSION:
            raise CassetteMiss(f"the recording {name!r} is of version {raw['version']}; this nbagent reads {VERSION}")
        turns = tuple(_turn_from(t) for t in raw["turns"])
        prefixes = {d: Prefix.from_text(canonical(p)) for d, p in raw["prefixes"].items()}
        source, about = str(raw.get("source", "live")), str(raw.get("about", ""))
        return Cassette(turns=turns, prefixes=prefixes, source=source, about=about)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        line = f"{name!r} is not a recording of nbagent ({_fault(error)}); record one with `%agent record FILE`"
        raise CassetteMiss(line) from error


def _fault(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"it is no JSON: line {error.lineno}: {error.msg}"
    if isinstance(error, KeyError):
        return f"{error} is missing in it"
    return "it is damaged" if isinstance(error, TypeError | AttributeError) else str(error)


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
    before, bodies = (tuple(map(body_from_dict, found)) for found in (raw.get("before", ()), raw["events"]))
    return Stretch(snapshot=snapshot, bodies=bodies, end=end, before=before)


def load(path: Path) -> Cassette:
    """Read a cassette.

    Raises:
        CassetteMiss: the file is missing or not a cassette.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
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
    """Write the cassette's text; the old file stays whole until the new one is.

    Raises:
        OSError: it cannot be written; nothing is left behind.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "it is a folder", str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(path.name + ".new")
    try:
        new.write_text(text, encoding="utf-8")
        os.replace(new, path)
    except (OSError, UnicodeError):
        new.unlink(missing_ok=True)
        raise
