"""What a SKILL.md says of itself: bytes in, a Manifest and what was doubtful out; never an exception.

Fields are those of the Agent Skills specification (2026-08-09), Claude Code's (2026-08-22) and
OpenClaw's (2026.5.28). Every value is text until here; what a field needs is made of it here.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from nbagent.core.errors import Diagnostic
from nbagent.skills.json5 import parse_json5
from nbagent.skills.yaml_strings import Fields, Value, comment_cut, flat_text, raw_field, read_fields

MAX_BYTES: Final = 256_000  # OpenClaw 2026.5.28, decimal
MAX_NAME_CHARS: Final = 64  # Agent Skills specification
MAX_DESCRIPTION_CHARS: Final = 1_024  # Agent Skills specification, code points
MAX_COMPATIBILITY_CHARS: Final = 500  # Agent Skills specification
MANIFEST_KEYS: Final = ("openclaw", "clawdbot", "moltbot")  # OpenClaw's present name, then the older ones
_TRUE: Final = frozenset({"true", "yes", "on", "1", "y"})
_FALSE: Final = frozenset({"false", "no", "off", "0", "n"})
_NAME: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*\Z")
_UNSAFE_NAME: Final = re.compile(r"[/\\\x00-\x1f\x7f]|\A\.{1,2}\Z")
_DELIMITER: Final = re.compile(r"^(---|\.\.\.)[ \t]*$", re.MULTILINE)
_WORDS: Final = re.compile(r"[^\s,()]+(?:\([^)]*\))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirements:
    """What must be there before a skill is offered (OpenClaw's `metadata.openclaw`)."""

    always: bool = False
    key: str = ""
    primary_env: str = ""
    systems: tuple[str, ...] = ()
    bins: tuple[str, ...] = ()
    any_bins: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    config: tuple[str, ...] = ()


NO_REQUIREMENTS: Final = Requirements()


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The fields of one skill. `derived` says that the description was taken from the body, since none was given.

    `model_invocable` is not `disable-model-invocation`. `fork` is `context: fork`. `other` holds
    fields that nothing here reads.
    """

    name: str
    description: str
    derived: bool = False
    when_to_use: str = ""
    license: str = ""
    compatibility: str = ""
    homepage: str = ""
    allowed_tools: tuple[str, ...] = ()
    disallowed_tools: tuple[str, ...] = ()
    argument_hint: str = ""
    arguments: tuple[str, ...] = ()
    model_invocable: bool = True
    user_invocable: bool = True
    model: str = ""
    effort: str = ""
    fork: bool = False
    agent: str = ""
    paths: tuple[str, ...] = ()
    requires: Requirements = NO_REQUIREMENTS
    metadata: Mapping[str, Value] = field(default_factory=dict)
    other: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """The outcome: `manifest` is None when there is nothing to use; then a diagnostic says why."""

    manifest: Manifest | None
    body: str
    diagnostics: tuple[Diagnostic, ...] = ()


@dataclass(slots=True)
class _Notes:
    """Collects diagnostics of one file."""

    path: str
    offset: int = 0
    found: list[Diagnostic] = field(default_factory=list)

    def add(self, cause: str, remedy: str, line: int | None = None) -> None:
        at = None if line is None else line + self.offset
        self.found.append(Diagnostic(path=self.path, line=at, cause=cause, remedy=remedy))


class _Split(NamedTuple):
    """A text taken apart: `block` is None without frontmatter; `offset` is the line of its opening."""

    block: str | None
    body: str
    offset: int = 0
    fault: str = ""
    remedy: str = ""


def parse_manifest(raw: bytes, *, path: str, folder: str) -> Parsed:
    """Return what the bytes of a SKILL.md in a folder called `folder` say; `path` is for the diagnostics."""
    notes = _Notes(path)
    text = _decoded(raw, notes)
    if text is None:
        return Parsed(manifest=None, body="", diagnostics=tuple(notes.found))
    parts = split_frontmatter(text)
    if parts.fault:
        notes.add(parts.fault, parts.remedy, 1 + parts.offset)
        return Parsed(manifest=None, body="", diagnostics=tuple(notes.found))
    notes.offset = parts.offset
    fields = Fields() if parts.block is None else read_fields(parts.block)
    for fault in (*fields.faults, *([fields.refused] if fields.refused else [])):
        notes.add(fault.cause, fault.remedy, fault.line)
    if fields.refused is not None:
        return Parsed(manifest=None, body="", diagnostics=tuple(notes.found))
    if parts.block is None:
        notes.add("there is no frontmatter", "begin with a line '---', then name and description, then '---'", 1)
    manifest = _manifest(fields, parts, notes, folder=folder)
    return Parsed(manifest=manifest, body=parts.body, diagnostics=tuple(notes.found))


def _decoded(raw: bytes, notes: _Notes) -> str | None:
    """Return the text: one byte order mark dropped, UTF-8 taken strictly, line ends as newlines."""
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        notes.add("the file is UTF-16", "save it as UTF-8")
        return None
    if raw.startswith(codecs.BOM_UTF8):
        raw = raw[3:]
    if b"\0" in raw:
        notes.add("there is a NUL character", "save it as plain text", raw.count(b"\n", 0, raw.index(b"\0")) + 1)
        return None
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        notes.add(f"byte 0x{raw[error.start]:02X} is not UTF-8", "save the file as UTF-8", line)
        return None
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def split_frontmatter(text: str) -> _Split:
    """Take frontmatter and body apart; a delimiter is a line that is exactly `---` (blanks may follow)."""
    if text.startswith("---\n"):  # the usual form, without the expressions below
        end = text.find("\n---\n", 3)
        if end > 0 and "\n..." not in text[3:end]:
            return _Split(block=text[4:end], body=text[end + 5 :].strip("\n"), offset=1)
    start = 0
    if not text.startswith("---"):
        start = len(text) - len(text.lstrip())
        start = text.rfind("\n", 0, start) + 1
    opening = _DELIMITER.match(text, start)
    if opening is None or opening.group(1) != "---":
        return _Split(block=None, body=text.strip("\n"))
    offset = text.count("\n", 0, start) + 1
    closing = _DELIMITER.search(text, opening.end())
    if closing is None:
        fault = "the frontmatter is never closed"
        return _Split(block=None, body="", offset=offset - 1, fault=fault, remedy="add a line '---' below it")
    if closing.group(1) == "...":
        fault = "the frontmatter is closed with '...'"
        return _Split(block=None, body="", offset=offset - 1, fault=fault, remedy="close it with a line '---'")
    block = text[opening.end() + 1 : closing.start()]
    return _Split(block=block.removesuffix("\n"), body=text[closing.end() :].strip("\n"), offset=offset)


def _manifest(fields: Fields, parts: _Split, notes: _Notes, *, folder: str) -> Manifest | None:
    values, block = _known_case(fields, notes), parts.block or ""
    name = _name(values.get("name"), notes, folder=folder, line=fields.lines.get("name"))
    description = _description(values.get("description"), block, notes, line=fields.lines.get("description"))
    derived = not description
    if derived:
        description = first_paragraph(parts.body)
        if not description:
            notes.add("there is neither a description nor a text", "write both, or remove the folder")
            return None
        if parts.block is not None:
            notes.add("there is no description, so the model is not told of it", "add one: what it does, and when")
    if values.keys() <= {"name", "description"}:  # half of all real files
        return Manifest(name=name, description=description, derived=derived)
    given: dict[str, Any] = {}
    other: dict[str, Value] = {}
    for key, value in values.items():
        reader = _READERS.get(key)
        if reader is not None:
            given[reader[0]] = reader[1](value)
        elif key not in ("name", "description"):
            other[key] = value
    _special(given, values, notes, block=block, line=fields.lines.get("metadata"))
    return Manifest(name=name, description=description, derived=derived, other=other, **given)


def _special(
    given: dict[str, Any], values: Mapping[str, Value], notes: _Notes, *, block: str, line: int | None
) -> None:
    """Check and complete the fields that are more than their text."""
    if "metadata" in given:
        given["metadata"] = _metadata(values["metadata"], notes, line=line)
        given["requires"] = requirements(given["metadata"])
    if len(given.get("compatibility", "")) > MAX_COMPATIBILITY_CHARS:
        notes.add(
            f"compatibility has {len(given['compatibility']):,} characters", f"keep it to {MAX_COMPATIBILITY_CHARS}"
        )
    if not isinstance(values.get("argument-hint", ""), str):
        given["argument_hint"] = raw_field(block, "argument-hint")
    if "model_invocable" in given:
        given["model_invocable"] = not _flag(values, "disable-model-invocation", notes, default=False)
    if "user_invocable" in given:
        given["user_invocable"] = _flag(values, "user-invocable", notes, default=True)


def _known_case(fields: Fields, notes: _Notes) -> dict[str, Value]:
    """Return the fields with known names in their spelling (`Name` is `name`)."""
    if "name" in fields.values and "description" in fields.values:
        return fields.values
    lower = {k.lower(): k for k in fields.values}
    values = dict(fields.values)
    for wanted in ("name", "description"):
        given = lower.get(wanted)
        if wanted not in values and given is not None:
            values[wanted] = values.pop(given)
            fields.lines[wanted] = fields.lines.get(given, 1)
            notes.add(f"field {given!r} is read as {wanted!r}", "write field names in lower case", fields.lines[wanted])
    return values


def _name(value: Value | None, notes: _Notes, *, folder: str, line: int | None) -> str:
    """Return the name: the given one, else the folder's; report what the specification would refuse."""
    if value == folder and _NAME.match(folder) and len(folder) <= MAX_NAME_CHARS:
        return folder
    given = " ".join(flat_text(value).split())
    if not given:
        return folder
    if _UNSAFE_NAME.search(given):
        notes.add(f"name {given[:80]!r} holds a path; {folder!r} is used", "name it like its folder", line)
        return folder
    if not _NAME.match(given) or len(given) > MAX_NAME_CHARS:
        cause = _name_fault(given)
        if cause:
            notes.add(f"name {given[:80]!r} {cause}", "use lower-case letters, digits and single hyphens", line)
    if given != folder and unicodedata.normalize("NFKC", given) != unicodedata.normalize("NFKC", folder):
        notes.add(f"name {given[:80]!r} and folder {folder!r} differ", "rename one of them", line)
    return given


def _name_fault(name: str) -> str:
    """Return what the reference library (skills-ref 0.1.1) would say of a name; "" when it is fine there."""
    name = unicodedata.normalize("NFKC", name)
    if len(name) > MAX_NAME_CHARS:
        return f"has {len(name)} characters, over {MAX_NAME_CHARS}"
    if name != name.lower():
        return "is not lower case"
    if not all(c.isalnum() or c == "-" for c in name):
        return "holds other than letters, digits and hyphens"
    return "begins, ends or doubles a hyphen" if name.strip("-") != name or "--" in name else ""


def _description(value: Value | None, block: str, notes: _Notes, *, line: int | None) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        kind = "a list" if isinstance(value, list) else "a mapping"
        notes.add(f"the description is {kind}", "write it as one text, in quotes", line)
        value = flat_text(value) if isinstance(value, list) else raw_field(block, "description")
    elif "#" in block:
        whole = comment_cut(block, "description", value)
        if whole:
            notes.add("the description holds ' #', which YAML takes as a comment", "write it in quotes", line)
            value = whole
    if len(value) > MAX_DESCRIPTION_CHARS:
        notes.add(
            f"the description has {len(value):,} characters, over {MAX_DESCRIPTION_CHARS:,}",
            "say first what it does and when to use it, and move the rest to the text", line,
        )  # fmt: skip
    return value.strip()


def first_paragraph(body: str) -> str:
    """Return the first paragraph that is no heading, as one line of at most 200 characters.

    >>> first_paragraph("# Title\\n\\nDoes it\\nwell.\\n\\nMore.")
    'Does it well.'
    """
    for part in re.split(r"\n[ \t]*\n", body[:4_000]):
        lines = [line for line in part.split("\n") if not line.lstrip().startswith(("#", "<!--", "```"))]
        text = " ".join(" ".join(lines).split())
        if text:
            return text if len(text) <= 200 else text[:199].rstrip() + "…"
    return " ".join(body[:4_000].lstrip("# \n").split())[:200]


def _metadata(value: Value | None, notes: _Notes, *, line: int | None) -> Mapping[str, Value]:
    if isinstance(value, str) and value.strip():
        parsed = parse_json5(value)
        if not isinstance(parsed, dict):
            notes.add("the metadata cannot be read and counts as absent", "write it as a mapping or JSON", line)
            return {}
        return parsed
    if isinstance(value, list):
        notes.add("the metadata is a list and counts as absent", "write it as a mapping", line)
    return value if isinstance(value, Mapping) else {}


def requirements(metadata: Mapping[str, Value]) -> Requirements:
    """Return what OpenClaw's part of the metadata asks for; its older names are read too."""
    found = next((metadata[k] for k in MANIFEST_KEYS if k in metadata), None)
    if isinstance(found, str):
        found = parse_json5(found)
    if not isinstance(found, Mapping):
        return NO_REQUIREMENTS
    asked = found.get("requires")
    needs: Mapping[str, Value] = asked if isinstance(asked, Mapping) else {}
    return Requirements(
        always=flat_text(found.get("always")).strip().lower() in _TRUE,
        key=flat_text(found.get("skillKey")).strip(),
        primary_env=flat_text(found.get("primaryEnv")).strip(),
        systems=_words(found.get("os")),
        bins=_words(needs.get("bins")), any_bins=_words(needs.get("anyBins")),
        env=_words(needs.get("env")), config=_words(needs.get("config")),
    )  # fmt: skip


def _words(value: Value | None) -> tuple[str, ...]:
    """Return a list given as a list or as text with commas or blanks."""
    if isinstance(value, list):
        return tuple(filter(None, (flat_text(v).strip() for v in value)))
    return tuple(re.split(r"[\s,]+", flat_text(value).strip().strip("[]"))) if flat_text(value).strip() else ()


def tool_names(value: Value | None) -> tuple[str, ...]:
    """Return tool rules given as a list, or as text with blanks or commas outside brackets.

    >>> tool_names("Bash(git add *), Read")
    ('Bash(git add *)', 'Read')
    """
    if isinstance(value, list):
        return tuple(filter(None, (flat_text(v).strip() for v in value)))
    return tuple(_WORDS.findall(flat_text(value)))


def _flag(values: Mapping[str, Value], key: str, notes: _Notes, *, default: bool) -> bool:
    text = flat_text(values.get(key)).strip().lower()
    if not text or text in _TRUE or text in _FALSE:
        return text in _TRUE if text else default
    notes.add(f"{key} is {text[:40]!r}, neither true nor false; {str(default).lower()} is taken", "write true or false")
    return default


def _is_fork(value: Value) -> bool:
    return flat_text(value).strip().lower() == "fork"


_READERS: Final[Mapping[str, tuple[str, Callable[[Value], Any]]]] = {
    "license": ("license", flat_text), "compatibility": ("compatibility", flat_text), "metadata": ("metadata", list),
    "allowed-tools": ("allowed_tools", tool_names), "when_to_use": ("when_to_use", flat_text),
    "argument-hint": ("argument_hint", flat_text), "arguments": ("arguments", _words),
    "disable-model-invocation": ("model_invocable", flat_text), "user-invocable": ("user_invocable", flat_text),
    "disallowed-tools": ("disallowed_tools", tool_names), "model": ("model", flat_text),
    "effort": ("effort", flat_text), "context": ("fork", _is_fork), "agent": ("agent", flat_text),
    "paths": ("paths", _words), "homepage": ("homepage", flat_text),
}  # fmt: skip
