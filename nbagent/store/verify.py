"""Verifying a journal: every line's hash over its parent's, and every artifact it names."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from nbagent.core.entries import Entry, ToolResult, TurnStart, chain_hash, split_line
from nbagent.core.errors import Diagnostic, JournalDamaged
from nbagent.store.artifacts import Artifacts
from nbagent.store.journal_reading import clean_line, entry_of, read_journal


def verify(path: Path | str) -> list[Diagnostic]:
    """Return everything in the journal at `path` that is not as nbagent wrote it; an empty list for a sound one.

    Each line is hashed again over the stored hash of its parent, so that one changed line is
    reported once and not again for all that follow it. Changes nothing, takes no lock.

    Raises:
        JournalDamaged: there is no journal at `path`.
    """
    where = Path(path)
    reading = read_journal(where)
    found = [*reading.diagnostics, *_hash_faults(reading.raw_lines, str(where))]
    found.sort(key=lambda d: d.line or 0)
    return [*found, *_artifact_faults(reading.entries, Artifacts(where.parent / "artifacts"))]


def _hash_faults(lines: tuple[str, ...], name: str) -> Iterator[Diagnostic]:
    hashes: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        try:
            text = clean_line(line.encode())
            entry = entry_of(json.loads(text))
        except (ValueError, RecursionError):
            continue  # reported by the reading
        if entry.id in hashes:
            continue
        try:
            body, stored = split_line(text)
        except ValueError:
            hashes[entry.id] = ""
            yield _fault(name, number, f"entry {entry.id!r} carries no hash", "the line was written or changed by hand")
            continue
        hashes[entry.id] = stored
        if entry.parent is not None and entry.parent not in hashes:
            continue
        parent_hash = hashes[entry.parent] if entry.parent is not None else ""
        if chain_hash(parent_hash, body) != stored:
            cause = f"entry {entry.id!r} does not match its hash"
            yield _fault(name, number, cause, "it or its parent was changed after writing; restore from a backup")


def _artifact_faults(entries: tuple[Entry, ...], artifacts: Artifacts) -> Iterator[Diagnostic]:
    seen: set[str] = set()
    for entry in entries:
        match entry.body:
            case ToolResult(artifact=str(digest)) | TurnStart(prefix=str(digest)) if digest and digest not in seen:
                seen.add(digest)
            case _:
                continue
        try:
            artifacts.get_bytes(digest)
        except JournalDamaged as error:
            yield Diagnostic(
                path=str(artifacts.folder), line=None, cause=str(error),
                remedy=f"entry {entry.id!r} is still read, without its full text",
            )  # fmt: skip


def _fault(name: str, line: int, cause: str, remedy: str) -> Diagnostic:
    return Diagnostic(path=name, line=line, cause=cause, remedy=remedy)
