"""Entries: the lines of a journal, their codec, and the hash that chains them.

An `Entry` is an envelope (id, parent, time) around a body; the body is one of a closed
family with a literal `kind`. The journal is a tree: each entry names its parent, and the
leaf is always the entry written last. What a later version wrote and this one does not
know is kept as `Unknown` and written back untouched.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, ClassVar, Literal, TypeAlias

from nbagent.core.messages import Block, JsonObject, canonical

FORMAT_VERSION = 1

TurnOutcome: TypeAlias = Literal[
    "completed", "stopped", "limit", "refusal", "cut_off", "window_full", "error", "denied"
]
ResultStatus: TypeAlias = Literal["ok", "error", "refused", "interrupted", "not_run"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnStart:
    """A `%%agent` cell began. `prefix` is the digest of the artifact with system text and tools."""

    kind: ClassVar[Literal["turn_start"]] = "turn_start"
    turn: str
    model: str
    policy: str
    policy_numbers: JsonObject = field(default_factory=dict)
    mode: str = "ask"
    prefix: str = ""
    cell_id: str | None = None
    source_hash: str = ""
    order: int = 0
    masked_tools: tuple[str, ...] = ()
    options: JsonObject = field(default_factory=dict)
    limits: JsonObject = field(default_factory=dict)
    notebook: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UserMessage:
    """What the person wrote, and what came attached to it."""

    kind: ClassVar[Literal["user_message"]] = "user_message"
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AssistantMessage:
    """One reply of the model. `cut` says why it is not whole, None for a whole one."""

    kind: ClassVar[Literal["assistant_message"]] = "assistant_message"
    blocks: tuple[Block, ...]
    stop_reason: str | None
    model: str
    step: int
    response_id: str = ""
    stop_details: JsonObject | None = None
    cut: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStarted:
    """A tool is about to run; flushed before it does, so that a crash never runs it twice."""

    kind: ClassVar[Literal["tool_started"]] = "tool_started"
    call_id: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """What one call brought, as the model sees it. `artifact` is the digest of the full text."""

    kind: ClassVar[Literal["tool_result"]] = "tool_result"
    call_id: str
    name: str
    content: tuple[Block, ...]
    status: ResultStatus = "ok"
    artifact: str | None = None
    full_chars: int = 0
    shown: str = ""
    duration_s: float = 0.0
    meta: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageReported:
    """What the provider measured for one model call, in tokens; the cost in US dollars."""

    kind: ClassVar[Literal["usage"]] = "usage"
    step: int
    model: str
    usage: JsonObject
    cost_usd: float
    estimated_tokens: int = 0
    purpose: str = "turn"


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """A decision on a call. `decision`: allow, deny, refused (nobody could answer); `scope`: once, turn, notebook."""

    kind: ClassVar[Literal["approval"]] = "approval"
    call_id: str
    tool: str
    decision: str
    scope: str = "once"
    by: str = "person"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Volatile text that reached the model at this place, and is sent at this place for ever."""

    kind: ClassVar[Literal["snapshot"]] = "snapshot"
    text: str
    topics: tuple[str, ...] = ()
    state: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruning:
    """Old results are replaced by placeholders: result entry id -> the text that stands in."""

    kind: ClassVar[Literal["pruning"]] = "pruning"
    placeholders: Mapping[str, str]
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """Everything before the entry `first_kept` is replaced by `note`; None keeps nothing."""

    kind: ClassVar[Literal["compaction"]] = "compaction"
    first_kept: str | None
    note: str
    reason: str = ""
    before_tokens: int = 0
    after_tokens: int = 0
    details: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Restore:
    """The Pruning or Compaction `cancels` counts as absent from here on."""

    kind: ClassVar[Literal["restore"]] = "restore"
    cancels: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """What no policy may drop: an entry, or a text. `remove` takes an earlier pin back."""

    kind: ClassVar[Literal["pin"]] = "pin"
    target: str | None = None
    text: str = ""
    remove: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafMoved:
    """The conversation goes on from this entry's parent: fork, revert, open, new."""

    kind: ClassVar[Literal["leaf_moved"]] = "leaf_moved"
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Steering:
    """Text that reached the model in mid-turn, from the person or from the loop itself."""

    kind: ClassVar[Literal["steering"]] = "steering"
    text: str
    by: str = "person"


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillUse:
    """A skill was used: who chose it, why, and what came of it."""

    kind: ClassVar[Literal["skill_use"]] = "skill_use"
    name: str
    by: str
    why: str = ""
    details: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a sub-agent or a verification brought back."""

    kind: ClassVar[Literal["report"]] = "report"
    source: str
    text: str
    details: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnd:
    """A turn is over. `message` is the one line that the person was shown when it did not complete."""

    kind: ClassVar[Literal["turn_end"]] = "turn_end"
    turn: str
    outcome: TurnOutcome
    steps: int = 0
    message: str = ""
    duration_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """A kind that this version does not know; `raw` is the body as read."""

    kind: ClassVar[Literal["unknown"]] = "unknown"
    raw: JsonObject


Body: TypeAlias = (
    TurnStart | UserMessage | AssistantMessage | ToolStarted | ToolResult | UsageReported | Approval | Snapshot
    | Pruning | Compaction | Restore | Pin | LeafMoved | Steering | SkillUse | Report | TurnEnd | Unknown
)  # fmt: skip

_KINDS: dict[str, type[Any]] = {
    c.kind: c
    for c in (
        TurnStart, UserMessage, AssistantMessage, ToolStarted, ToolResult, UsageReported, Approval, Snapshot,
        Pruning, Compaction, Restore, Pin, LeafMoved, Steering, SkillUse, Report, TurnEnd,
    )
}  # fmt: skip

_TUPLES = {"blocks": dict, "content": dict, "masked_tools": str, "topics": str}
_NONE = type(None)

# What a field may hold in JSON, by its annotation as written above; the types are those that `json` makes.
_SHAPES: dict[str, tuple[type, ...]] = {
    "str": (str,), "str | None": (str, _NONE), "int": (int, bool), "float": (int, float, bool), "bool": (bool,),
    "TurnOutcome": (str,), "ResultStatus": (str,), "JsonObject": (dict,), "JsonObject | None": (dict, _NONE),
    "Mapping[str, str]": (dict,), "tuple[str, ...]": (list, tuple), "tuple[Block, ...]": (list, tuple),
}  # fmt: skip


@dataclass(slots=True)
class Entry:
    """One line of the journal: an envelope around `body`. Treated as frozen.

    `at` is UTC in seconds since the epoch. `parent` is None for a root. Not declared
    frozen only because a journal of ten thousand is built at once and that costs double.
    """

    id: str
    parent: str | None
    at: float
    body: Body

    @property
    def kind(self) -> str:
        """The body's kind; for an unknown one the word that was read."""
        return str(self.body.raw.get("kind", "unknown")) if isinstance(self.body, Unknown) else self.body.kind


def _decoder(cls: type[Any]) -> Callable[[Mapping[str, Any]], Any]:
    """Return what makes a body of `cls` of an object that fits, else None; it is faster to read by than `__init__`."""
    rows: dict[str, Any] = {"kind": ((str,), None, None)}
    for spec in fields(cls):
        inner = {_TUPLES[spec.name]} if spec.name in _TUPLES else None
        rows[spec.name] = (_SHAPES[str(spec.type)], cls.__dict__[spec.name].__set__, inner)
    others = [(f.name, rows[f.name][1], f.default, f.default_factory) for f in fields(cls)]
    required = frozenset(name for name, _, default, factory in others if default is MISSING is factory)
    others = [row for row in others if row[0] not in required]

    def decode(raw: Mapping[str, Any]) -> Any:
        made = object.__new__(cls)
        for name, value in raw.items():
            row = rows.get(name)
            if row is None or type(value) not in row[0]:
                return None
            _, put, inner = row
            value = tuple(value) if inner else value
            if inner and not inner.issuperset(map(type, value)):
                return None
            if put is not None:
                put(made, value)
        if not required <= raw.keys():
            return None
        for name, put, default, factory in others:
            if name not in raw:
                put(made, default if factory is MISSING else factory())
        return made

    return decode


_DECODERS = {kind: _decoder(cls) for kind, cls in _KINDS.items()}
_FIELDS = {kind: tuple((f.name, f) for f in fields(cls)) for kind, cls in _KINDS.items()}


def body_to_dict(body: Body) -> dict[str, Any]:
    """Return `body` as a JSON object, `kind` first; fields that hold their default are left out."""
    if isinstance(body, Unknown):
        return dict(body.raw)
    out: dict[str, Any] = {"kind": body.kind}
    for name, spec in _FIELDS[body.kind]:
        value = getattr(body, name)
        if spec.default is not MISSING and value == spec.default:
            continue
        if spec.default_factory is not MISSING and not value:
            continue
        out[name] = value
    return out


def body_from_dict(raw: Mapping[str, Any]) -> Body:
    """Return the body that `raw` holds; a kind, field or shape this version does not know gives `Unknown`."""
    decode = _DECODERS.get(str(raw.get("kind")))
    if decode is not None:
        body: Body | None = decode(raw)
        if body is not None:
            return body
    return Unknown(raw=raw)


def entry_to_text(entry: Entry, seq: int) -> str:
    """Return the entry as JSON text without its hash; `seq` is its line's place in the journal, from 1."""
    return canonical(
        {"v": FORMAT_VERSION, "seq": seq, "id": entry.id, "parent": entry.parent, "at": entry.at,
         "body": body_to_dict(entry.body)}
    )  # fmt: skip


def entry_from_dict(raw: Mapping[str, Any]) -> Entry:
    """Return the entry of a decoded line.

    Raises:
        KeyError, TypeError: the envelope is not whole.
    """
    entry_id, parent, at, body = raw["id"], raw["parent"], raw["at"], raw["body"]
    if not (
        isinstance(entry_id, str)
        and isinstance(parent, str | None)
        and isinstance(at, int | float)
        and isinstance(body, dict)
    ):
        raise TypeError(f"the envelope of entry {entry_id!r} is not whole")
    return Entry(entry_id, parent, at, body_from_dict(body))


def chain_hash(parent_hash: str, text: str) -> str:
    """Return the hash of a line: SHA-256 over the parent's hash and the line's text without its hash."""
    return hashlib.sha256(parent_hash.encode() + b"\n" + text.encode("utf-8", "surrogatepass")).hexdigest()


_HASH_KEY = ',"hash":"'
_HASH_TAIL = len(_HASH_KEY) + 64 + len('"}')


def seal_line(text: str, line_hash: str) -> str:
    """Return the line as written: the text with its hash as the last field."""
    return f'{text[:-1]}{_HASH_KEY}{line_hash}"}}'


def split_line(line: str) -> tuple[str, str]:
    """Return (text without hash, hash) of a written line.

    Raises:
        ValueError: the line does not end in a hash.
    """
    at = len(line) - _HASH_TAIL
    if at < 0 or not line.startswith(_HASH_KEY, at) or not line.endswith('"}'):
        raise ValueError("no hash at the end of the line")
    return line[:at] + "}", line[at + len(_HASH_KEY) : -2]


def _refuse_constant(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")


_decode = json.JSONDecoder(parse_constant=_refuse_constant).decode


def decode_line(line: str) -> dict[str, Any]:
    """Return a journal line as a JSON object.

    Raises:
        ValueError: the line is not a JSON object, or holds NaN or an infinity.
    """
    raw = _decode(line)
    if not isinstance(raw, dict):
        raise ValueError("not an object")
    return raw
