"""The tail: what changed since the model's last turn, written once as a Snapshot and never again.

Nothing volatile stands in the prefix (MA-C1). What the model has to hear about the notebook, the
day, files and tools comes here, only when it changed; what was told is kept as the snapshot's
`state`, so that the next one tells only what is new.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nbagent.context.contained import contained
from nbagent.core.entries import Compaction, Entry, Restore, Snapshot
from nbagent.core.messages import JsonObject

SKILLS = "skills"  # a topic, and the key of what the model knows of them
MAX_NAMES = 40
MAX_CELLS = 20
MAX_LINE = 160
MAX_FULL_SOURCE = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenVariable:
    """A variable by name, type and shape; `identity` changes when the name is bound to another value."""

    name: str
    type: str
    shape: str
    identity: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CellRun:
    """A cell the person ran: its source, its label, and whether it failed."""

    label: str
    source: str
    ok: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What is true now, outside the conversation. `observe` is off, outline or full.

    `kernel` names this run of the kernel, so that a restart is noticed. `files` maps a start-up
    file (instructions, memory) to its text. `masked` are tools narrowed away for this turn.
    `skills` says what changed in the list of skills. `marks` go into the snapshot's state: what later tails have to
    know of `notes` and `skills`.
    """

    today: str
    kernel: str
    observe: str = "outline"
    variables: tuple[SeenVariable, ...] = ()
    cells: tuple[CellRun, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    file_marks: Mapping[str, str] = field(default_factory=dict)
    masked: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    skills: str = ""
    marks: Mapping[str, Any] = field(default_factory=dict)


def last_state(path: Sequence[Entry]) -> JsonObject:
    """Return the state that the snapshots on `path` add up to; a prefix made anew tells of the files as well."""
    state: dict[str, Any] = {}
    before: dict[str, dict[str, Any]] = {}
    for entry in path:
        body = entry.body
        if isinstance(body, Snapshot):
            state.update(body.state)
        elif isinstance(body, Compaction) and "files" in body.details:
            anew = {key: body.details[key] for key in ("files", SKILLS) if key in body.details}
            before[entry.id] = {key: state.get(key) for key in anew}
            state.update(anew)
        elif isinstance(body, Restore) and body.cancels in before:
            state.update(before.pop(body.cancels))
    return state


def told_state(path: Sequence[Entry], shown: Collection[str]) -> JsonObject:
    """Return what the model was told and still knows: a day or a mask that is hidden by a note is told again.

    `shown` are the entries that the model still sees.
    """
    state = dict(last_state(path))
    for key, topic in (("today", "date"), ("masked", "tools")):
        told = next((e for e in reversed(path) if isinstance(e.body, Snapshot) and topic in e.body.topics), None)
        if told is not None and told.id not in shown:
            state.pop(key, None)
    if _hides_skills(path, shown):
        state[SKILLS] = _skills_listed(path)
    return state


def _anew(path: Sequence[Entry]) -> int:
    """Return after which entry of `path` the prefix in force was made: its last compaction that holds, else 0."""
    cancelled = {e.body.cancels for e in path if isinstance(e.body, Restore)}
    made = (
        i for i, e in enumerate(path)
        if isinstance(e.body, Compaction) and SKILLS in e.body.details and e.id not in cancelled
    )  # fmt: skip
    return max(made, default=0)


def _hides_skills(path: Sequence[Entry], shown: Collection[str]) -> bool:
    """Tell whether a change of the skills that was told after the list was made is hidden by a note."""
    told = (e for e in path[_anew(path) :] if isinstance(e.body, Snapshot) and SKILLS in e.body.topics)
    return any(e.id not in shown for e in told)


def _skills_listed(path: Sequence[Entry]) -> Any:
    """Return the mark of the skills that the prefix in force lists, None for one that lists none."""
    body = path[_anew(path)].body
    if isinstance(body, Compaction):
        return body.details.get(SKILLS)
    first = next((e.body for e in path if isinstance(e.body, Snapshot) and SKILLS in e.body.state), None)
    return None if first is None or SKILLS in first.topics else first.state[SKILLS]


def compose(before: JsonObject, now: Surroundings, *, first: bool) -> Snapshot | None:
    """Return the snapshot that tells what changed from `before` to `now`; None when nothing did.

    `first` is the first turn of a conversation: there is nothing to compare with yet.
    """
    lines: list[str] = []
    topics: list[str] = []

    def tell(topic: str, text: str) -> None:
        lines.append(text)
        topics.append(topic)

    if before.get("today") != now.today:
        tell("date", f"Today is {now.today}.")
    restarted = not first and bool(now.kernel) and before.get("kernel") not in (None, "", now.kernel)
    if restarted:
        tell("kernel", "The kernel was restarted since your last turn: variables from before are gone.")
    old = {} if restarted else dict(before.get("variables") or {})
    if now.observe != "off":
        if cells := _cell_lines(now.cells, now.observe):
            tell("cells", "Cells the person ran since your last turn:\n" + cells)
        if changed := _variable_lines(old, now.variables, tell_gone=not restarted):
            tell("variables", changed)
    for text in _file_lines(before.get("files"), now):
        tell("files", text)
    if text := _mask_line(tuple(before.get("masked") or ()), now.masked):
        tell("tools", text)
    if now.skills:
        tell(SKILLS, now.skills)
    for note in now.notes:
        tell("notes", note)
    if not lines:
        return None
    state = {
        "today": now.today, "kernel": now.kernel or before.get("kernel") or "", "files": dict(now.file_marks),
        "masked": list(now.masked), **now.marks,
        "variables": {v.name: [v.type, v.shape, v.identity] for v in now.variables},
    }  # fmt: skip
    body = "\n".join(lines)
    return Snapshot(text=f"<notebook-state>\n{contained(body)}\n</notebook-state>", topics=tuple(topics), state=state)


def _cell_lines(cells: Sequence[CellRun], observe: str) -> str:
    shown = cells[-MAX_CELLS:]
    out = [f"- ({len(cells) - len(shown)} earlier ones are not listed)"] if len(cells) > len(shown) else []
    for cell in shown:
        source = cell.source.strip()
        failed = "" if cell.ok else " (failed)"
        if observe == "full":
            body = source if len(source) <= MAX_FULL_SOURCE else source[:MAX_FULL_SOURCE] + " …"
            out.append(f"- {cell.label}{failed}:\n{_indent(body)}")
            continue
        first = source.split("\n", 1)[0][:MAX_LINE]
        more = source.count("\n")
        out.append(f"- {cell.label}{failed}: {first}" + (f"  (+{more} line{'s' if more > 1 else ''})" if more else ""))
    return "\n".join(out)


def _variable_lines(old: Mapping[str, Any], now: Sequence[SeenVariable], *, tell_gone: bool) -> str:
    bound = [v for v in now if v.name not in old]
    rebound = [v for v in now if v.name in old and list(old[v.name]) != [v.type, v.shape, v.identity]]
    present = {v.name for v in now}
    gone = sorted(n for n in old if n not in present) if tell_gone else []
    parts: list[str] = []
    for word, items in (("New", bound), ("Changed", rebound)):
        if items:
            named = [_named(v) for v in items[:MAX_NAMES]]
            more = f", and {len(items) - MAX_NAMES} more" if len(items) > MAX_NAMES else ""
            parts.append(f"{word} variables: {', '.join(named)}{more}.")
    if gone:
        more = f", and {len(gone) - MAX_NAMES} more" if len(gone) > MAX_NAMES else ""
        parts.append(f"Deleted variables: {', '.join(gone[:MAX_NAMES])}{more}.")
    return "\n".join(parts)


def _named(variable: SeenVariable) -> str:
    inner = f"{variable.type} {variable.shape}".strip()
    return f"{variable.name} ({inner})"


def _file_lines(before: Mapping[str, str] | None, now: Surroundings) -> list[str]:
    if before is None:  # the first turn: they are in the prefix
        return []
    out = []
    for name in sorted(set(before) | set(now.file_marks)):
        if before.get(name) == now.file_marks.get(name):
            continue
        if name not in now.file_marks:
            out.append(f"The file {name} is gone; what you were told from it may no longer hold.")
        else:
            word = "changed" if name in before else "is new"
            out.append(f"The file {name} {word}; it now reads:\n{_indent(now.files.get(name, ''))}")
    return out


def _mask_line(before: tuple[str, ...], now: tuple[str, ...]) -> str:
    if set(before) == set(now):
        return ""
    if not now:
        return "All listed tools may be used again."
    return f"Until you hear otherwise these tools are not available, and refuse: {', '.join(sorted(now))}."


def _indent(text: str) -> str:
    return "\n".join("    " + line for line in text.split("\n"))
