"""What the tail of a turn tells besides the notebook: files changed on disk, sources that rot, occupancy, pins."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from nbagent.context.rot import KnownFile, RotFinding, detect, known_files, reminders, told_after
from nbagent.context.signals import LEVEL, crossed_level, level_line
from nbagent.core.budget import Budget
from nbagent.core.entries import Entry
from nbagent.core.messages import JsonObject
from nbagent.core.view import View

MOST_FILES: Final = 200  # looked at on the disk for one tail
HASHED_BYTES: Final = 16 * 1024 * 1024  # of a file whose time changed and whose size did not
ROT: Final = "rot"
PINS: Final = "pins"


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnNotes:
    """Lines for the tail, and what the next tail has to know of them."""

    lines: tuple[str, ...] = ()
    marks: Mapping[str, Any] = field(default_factory=dict)


def find_rot(view: View, path: Sequence[Entry], root: Path) -> tuple[RotFinding, ...]:
    """Return what is wrong in the context `view`, the files on the disk below `root` looked at."""
    return detect(view, path, changed_on_disk=changed_on_disk(known_files(view, path), root))


def turn_notes(
    view: View, path: Sequence[Entry], told: JsonObject, *, root: Path, used_tokens: int, budget: Budget
) -> TurnNotes:
    """Return what the tail of the next turn says. `told` is the state of the tails before it: nothing comes twice."""
    if view.turn is None:
        return TurnNotes()
    lines: list[str] = []
    marks: dict[str, Any] = {}
    level = crossed_level(path, used_tokens, budget)
    if level is not None:
        lines.append(level_line(level, used_tokens, budget))
        marks[LEVEL] = level
    pinned = [p.text for p in view.pins if p.text]
    new = [text for text in pinned if text not in (told.get(PINS) or ())]
    if new:
        lines += [f"The person pinned this, it holds from now on: {text}" for text in new]
        marks[PINS] = pinned
    findings = find_rot(view, path, root)
    before = [str(key) for key in told.get(ROT) or ()]
    if text := reminders(findings, before):
        lines += text.split("\n")
        marks[ROT] = told_after(findings, before)
    return TurnNotes(lines=tuple(lines), marks=marks)


def changed_on_disk(files: Sequence[KnownFile], root: Path) -> dict[str, str]:
    """Return path -> mark of its new state, for the files that are no longer as the conversation knows them."""
    found: dict[str, str] = {}
    for file in files[-MOST_FILES:]:
        mark = _mark(file, root / file.path)
        if mark:
            found[file.path] = mark
    return found


def _mark(file: KnownFile, path: Path) -> str:
    """Return a mark of the file's state on the disk, empty when it is the known one or cannot be told."""
    try:
        status = path.stat()
        if file.size is None or (file.mtime_ns == status.st_mtime_ns and file.size == status.st_size):
            return ""
        same_size = file.size == status.st_size
        if same_size and (file.mtime_ns is None or (file.sha256 and _digest(path, status.st_size) == file.sha256)):
            return ""
        return f"{status.st_mtime_ns}"
    except FileNotFoundError:
        return "gone"
    except (OSError, ValueError):
        return ""  # it may be unreadable for a moment; a later tail looks again


def _digest(path: Path, size_bytes: int) -> str:
    if size_bytes > HASHED_BYTES:
        return ""
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
