"""Frontmatter as YAML in which every scalar is text: no types, no anchors, no tags, and one repair of common slips.

Nothing is constructed: the parser's events are read, so no tag can run code and no alias can
grow. A block that YAML refuses is read once more, field by field (see `_recover`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from nbagent.skills.json5 import parse_json5

Value: TypeAlias = "str | list[Value] | dict[str, Value]"
MAX_DEPTH: Final = 20
MAX_EVENTS: Final = 20_000  # of a block of at most 256,000 bytes; a real one has a few dozen

_BAD: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_BREAKS: Final = re.compile("[\x85\u2028\u2029]")
# One line that YAML reads as `key: text` without any rule of its own: a plain scalar that begins with no
# indicator, or a quoted one without escapes.
_PLAIN: Final = re.compile(
    r"""([A-Za-z][\w-]*):[ ]+(?:([^\s\-?:,\[\]{}#&*!|>'"%@`][^\n]*)|"([^"\\\n]*)"[ ]*|'([^'\n]*)'[ ]*)\Z"""
)
_JSON: Final = re.compile(r"([A-Za-z][\w-]*):[ ]+(\{[^\n\\#]*\})[ ]*\Z")
_KEY: Final = re.compile(r"([A-Za-z][\w-]*)[ \t]*:(?:[ \t]+(.*)|)\Z")
_QUOTED_KEY: Final = re.compile(r"""(["'])([\w -]+)\1[ \t]*:(?:[ \t]+(.*)|)\Z""")
_COMMENT: Final = re.compile(r"\s#")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What is doubtful or wrong: `line` counts from 1 in the block."""

    line: int | None
    cause: str
    remedy: str


@dataclass(slots=True, kw_only=True)
class Fields:
    """The fields of a block. `refused` says why there are none; `lines` has the line of each key, where known."""

    values: dict[str, Value] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    refused: Fault | None = None

    def put(self, key: str, value: Value, line: int) -> None:
        """Set a field; of two with the same key the last one counts, as in YAML libraries, and is reported."""
        if key in self.values:
            self.faults.append(
                Fault(
                    line=line,
                    cause=f"field {key!r} is there twice (first in line {self.lines.get(key, '?')} of the frontmatter)",
                    remedy="keep one; the last counts",
                )
            )
        self.values[key], self.lines[key] = value, line


def read_fields(block: str) -> Fields:
    """Return the fields of a frontmatter block; total, never raises."""
    plain = _read_plain(block)
    if plain is not None:
        return plain
    cleaned, faults = _without_controls(block)
    found = _read_events(cleaned)
    if isinstance(found, Fault):
        return Fields(refused=found, faults=faults)
    fields = _recover(cleaned) if found is None else found
    fields.faults[:0] = faults
    return fields


def raw_field(block: str, key: str) -> str:
    """Return the text of a top-level field as written, continuation lines joined by blanks."""
    for group in _groups(block):
        if group.key == key:
            return group.text
    return ""


def _read_plain(block: str) -> Fields | None:
    """Return the fields of a block that is nothing but `key: text` lines; None when YAML has to decide."""
    if "\t" in block or _BAD.search(block):
        return None
    fields = Fields()
    values, lines = fields.values, fields.lines
    number = 0
    for line in block.split("\n"):
        number += 1
        if not line or line[0] == "#":
            continue
        found = _PLAIN.match(line)
        if found is None:
            inline = _JSON.match(line)
            value = None if inline is None else _read_json(inline.group(2))
            if inline is None or value is None:
                return None
            fields.put(inline.group(1), value, number)
            continue
        key, plain, double, single = found.groups()
        if plain is not None:
            if ": " in plain or " #" in plain:
                return None
            text = plain.rstrip(" ")
            if text[-1] == ":":
                return None
        else:
            text = double if double is not None else single
        if key in values:
            fields.put(key, text, number)
        else:
            values[key], lines[key] = text, number
    return fields if values else None


def _read_json(text: str) -> Value | None:
    """Return JSON with its scalars as text; None when YAML might read it otherwise."""
    try:
        return _texts(json.loads(text, parse_float=str, parse_int=str, parse_constant=str), 0)
    except (ValueError, RecursionError):
        return None


def _texts(value: Any, depth: int) -> Value:
    if isinstance(value, str):
        return value
    if depth > MAX_DEPTH:
        raise ValueError
    if isinstance(value, dict):
        return {k: _texts(v, depth + 1) for k, v in value.items()}
    if isinstance(value, list):
        return [_texts(v, depth + 1) for v in value]
    return "null" if value is None else str(value).lower()


def _without_controls(block: str) -> tuple[str, list[Fault]]:
    """Return the block without characters that YAML refuses; line separators of Unicode become blanks."""
    if not _BAD.search(block):
        return block, []
    text = _BREAKS.sub(" ", block)
    faults = []
    found = _BAD.search(text)
    if found is not None:
        line = text.count("\n", 0, found.start()) + 1
        cause = f"control character U+{ord(found.group()):04X} in the frontmatter is left out"
        faults.append(Fault(line=line, cause=cause, remedy="remove it"))
    return _BAD.sub("", text), faults


def _read_events(block: str) -> Fields | Fault | None:
    """Return the fields; a Fault when they must not be read; None when it is not YAML."""
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return _fields_of_events(loader(block), yaml)
    except (yaml.YAMLError, RecursionError, ValueError, UnicodeError):
        return None


def _fields_of_events(parser: Any, kinds: Any) -> Fields | Fault | None:
    """Build text, lists and mappings from the parser's events; `kinds` has their classes. A stack, no recursion."""
    fields = Fields()
    stack: list[_Open] = []
    scalar, mapping, sequence = kinds.ScalarEvent, kinds.MappingStartEvent, kinds.SequenceStartEvent
    ends, alias = (kinds.MappingEndEvent, kinds.SequenceEndEvent), kinds.AliasEvent
    for _ in range(MAX_EVENTS):
        if not parser.check_event():
            return fields
        event = parser.get_event()
        kind = event.__class__
        if kind is scalar or kind is mapping or kind is sequence:
            if event.anchor or (event.tag and event.tag != "!"):
                return _forbidden(event)
            if not stack and kind is not mapping:
                return _not_fields(event, fields)
            if kind is scalar:
                _give(stack, event.value, event, fields)
            elif len(stack) > MAX_DEPTH:
                return Fault(line=_line(event), cause=f"more than {MAX_DEPTH} levels of YAML", remedy="make it flatter")
            else:
                stack.append(_Open(value={} if kind is mapping else []))
        elif kind in ends:
            done = stack.pop()
            if stack:
                _give(stack, done.value, event, fields)
        elif kind is alias:
            return _forbidden(event)
    return Fault(line=1, cause=f"more than {MAX_EVENTS:,} YAML values", remedy="move them to another file")


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1


def _not_fields(event: Any, fields: Fields) -> Fields | Fault | None:
    """Return what a block gives that is no mapping: nothing when it is empty, a fault for a list, None for a text."""
    value = getattr(event, "value", None)
    if value is None:
        return Fault(line=_line(event), cause="the frontmatter is a list", remedy="write fields, as in 'name: x'")
    return None if value else fields


def _forbidden(event: Any) -> Fault:
    tag = getattr(event, "tag", None)
    if tag and not event.anchor:
        return Fault(line=_line(event), cause=f"the YAML tag {tag!r} is not read", remedy="write plain text")
    return Fault(line=_line(event), cause="YAML anchors and aliases are not read", remedy="write the value out")


@dataclass(slots=True, kw_only=True)
class _Open:
    """A mapping or list that has begun; `key` waits for its value, `line` is the key's."""

    value: dict[str, Value] | list[Value]
    key: str | None = None
    line: int = 0


def _give(stack: list[_Open], value: Value, event: Any, fields: Fields) -> None:
    """Put a finished value where it belongs."""
    top = stack[-1]
    if isinstance(top.value, list):
        top.value.append(value)
    elif top.key is None:
        top.key = value if isinstance(value, str) else str(value)
        if len(stack) == 1:
            top.line = _line(event)
    else:
        if len(stack) == 1:
            fields.put(top.key, value, top.line)
        else:
            top.value[top.key] = value
        top.key = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """A top-level field with its further lines, as written."""

    key: str
    first: str
    rest: tuple[str, ...]
    line: int

    @property
    def text(self) -> str:
        return " ".join(part for part in (self.first.strip(), *(r.strip() for r in self.rest)) if part)


def _groups(block: str) -> Iterator[_Group]:
    """Yield the top-level fields; lines before the first one are left out."""
    key, first, rest, start = "", "", list[str](), 0
    for number, line in enumerate(block.split("\n"), 1):
        found = _KEY.match(line)
        quoted = None if found else _QUOTED_KEY.match(line)
        if found is None and quoted is None:
            rest.append(line)
            continue
        if key:
            yield _Group(key=key, first=first, rest=tuple(rest), line=start)
        key, first = (found.group(1), found.group(2) or "") if found else ("", "")
        if quoted:
            key, first = quoted.group(2), quoted.group(3) or ""
        rest, start = [], number
    if key:
        yield _Group(key=key, first=first, rest=tuple(rest), line=start)


def _recover(block: str) -> Fields:
    """Read a block that is not YAML field by field: each as YAML if it can be, else as the text that was meant.

    Mends: an unquoted colon or leading indicator in a text, a tab as indentation, JSON5 that is
    no YAML. What cannot be mended is left out alone. Refused when nothing is left.
    """
    fields = Fields()
    for group in _groups(block):
        value, cause = _mended(group)
        if isinstance(value, Fault):
            return Fields(refused=Fault(line=group.line, cause=value.cause, remedy=value.remedy))
        if cause:
            remedy = "write the text in quotes" if value is not None else "correct its YAML"
            fields.faults.append(Fault(line=group.line, cause=f"field {group.key!r} {cause}", remedy=remedy))
        if value is not None:
            fields.put(group.key, value, group.line)
    if not fields.values:
        first = block.strip().split("\n")[0][:60]
        fields.refused = Fault(
            line=1, cause=f"the frontmatter is not YAML ({first!r})", remedy="write fields, as in 'name: x'"
        )
    return fields


def _mended(group: _Group) -> tuple[Value | Fault | None, str]:
    """Return a field's value (a Fault when the block must be refused), and what was done to get it."""
    lines = (group.first, *(r.replace("\t", "  ") for r in group.rest))
    alone = _read_events("\n".join((f"{group.key}: {lines[0]}", *lines[1:])))
    if isinstance(alone, Fault):
        return alone, ""
    if alone is not None and list(alone.values) == [group.key]:
        tabs = any("\t" in r[: len(r) - len(r.lstrip())] for r in group.rest)
        return alone.values[group.key], "is indented with tabs" if tabs else ""
    if group.first.lstrip().startswith(("{", "[")) or (not group.first and group.text.startswith("{")):
        parsed = parse_json5("\n".join((group.first, *group.rest)))
        if isinstance(parsed, dict | list):
            return parsed, ""
    continued = [r for r in group.rest if r.strip() and not r.lstrip().startswith("#")]
    if group.first and all(r[:1] in " \t" for r in continued):
        return _unquoted(group.text), "is not YAML and is read as plain text"
    if continued and continued[-1][:1] not in " \t" and group.first:
        return _unquoted(group.text), "goes on in lines that are not indented; they are joined to it"
    return None, "is not YAML and is left out"


def _unquoted(text: str) -> str:
    """Return the text inside quotes when they enclose all of it."""
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" and text[0] not in text[1:-1]:
        return text[1:-1]
    return text


def comment_cut(block: str, key: str, value: Value) -> str:
    """Return the whole text of a one-line plain field of which YAML dropped a part after ` #`; else "".

    >>> comment_cut("description: C # code helper", "description", "C")
    'C # code helper'
    """
    if not isinstance(value, str) or not value:
        return ""
    for group in _groups(block):
        text = group.first.strip()
        if group.key == key and text.startswith(value) and _COMMENT.match(text[len(value) :]):
            return "" if any(r.strip() for r in group.rest if not r.lstrip().startswith("#")) else text
    return ""


def flat_text(value: Value | None) -> str:
    """Return a value as one text: a list joined by commas, a mapping as `key: value` pairs.

    >>> flat_text(["a", {"b": "c"}])
    'a, b: c'
    """
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, Mapping):
        return "; ".join(f"{k}: {flat_text(v)}" for k, v in value.items())
    return ", ".join(flat_text(v) for v in value)
