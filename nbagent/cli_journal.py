"""The commands about what is kept: verify, redact, export, trust, sessions."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from nbagent.core.errors import UsageProblem, counted
from nbagent.core.tree import SessionTree
from nbagent.runtime.doors import kept_sessions
from nbagent.runtime.export import export, exported_turns
from nbagent.runtime.places import known_sessions
from nbagent.store.journal_reading import JournalReading, read_journal
from nbagent.store.redact import redact
from nbagent.store.settings import load_settings
from nbagent.store.trust import trust, untrust
from nbagent.store.verify import verify

NAMED_TURNS = 5  # so many are named where one asked for is not there


def find_journal(path: Path) -> Path:
    """Return the journal at `path`: the file itself, or the one in the folder of a session.

    Raises:
        UsageProblem: there is none; the message names the sessions that are there.
    """
    if not path.exists():
        raise UsageProblem(f"{str(path)!r} does not exist; 'nbagent sessions DIR' lists the sessions kept in a folder")
    if not path.is_dir():
        return path
    inside = path / "journal.jsonl"
    if inside.is_file():
        return inside
    names = [str(s.folder) for s in known_sessions(path) if (s.folder / "journal.jsonl").is_file()]
    if names:
        raise UsageProblem(f"{str(path)!r} is not a session but holds some; name one: {', '.join(names)}")
    raise UsageProblem(f"there is no journal in the folder {str(path)!r}; name a journal.jsonl or a session's folder")


def read(path: Path) -> tuple[Path, JournalReading]:
    """Return the journal at `path` and what it holds.

    Raises:
        UsageProblem: the file is something else.
        JournalDamaged: it cannot be read.
    """
    where = find_journal(path)
    reading = read_journal(where)
    if not reading.entries and any(line.strip("\0 \t") for line in reading.raw_lines):
        raise UsageProblem(f"{str(where)!r} is not a journal: none of its {len(reading.raw_lines)} lines is an entry")
    return where, reading


def verify_journal(path: Path) -> int:
    """Print every fault of a journal; 1 when there is one."""
    where, reading = read(path)
    faults = verify(where)
    for fault in faults:
        print(fault)
    found = counted(len(faults), "fault") if faults else "no faults"
    print(f"{where}: {counted(len(reading.entries), 'entry', 'entries')}, {found}")
    return int(bool(faults))


def redact_journal(path: Path, text: str) -> int:
    """Replace `text` in a journal, and say how often and what was not looked at."""
    where, _ = read(path)
    done = redact(where, text)
    folder = where.parent.parent.parent
    for index in folder.glob("sessions.sqlite*") if folder.name == ".nbagent" else ():
        index.unlink(missing_ok=True)  # what was said, for searching; made again from the journals
    places = (
        counted(done.entries, "entry", "entries"), counted(done.artifacts, "artifact"),
        counted(done.other_files, "other file"),
    )  # fmt: skip
    print(f"{where}: redacted in {', '.join(places)}")
    print("Not looked at: the notebook with its outputs, recordings in cassettes/, and notes (MEMORY.md, memory/).")
    return 0


def export_journal(path: Path, file: Path, *, turn: str | None = None) -> int:
    """Write the current conversation of a journal, or the one that ends with `turn`, to `file`.

    Faults of the journal go to stderr.
    """
    where, reading = read(path)
    tree = SessionTree(reading.entries)
    node = tree.turn(turn) if turn is not None else None
    if turn is not None and node is None:
        known = ", ".join(n.turn for n in tree.turns()[-NAMED_TURNS:]) or "none"
        raise UsageProblem(f"no turn is called {turn!r} in {where}; the newest there: {known}")
    entries = tree.path(node.last if node else None)
    export(entries, file, title=where.parent.name or where.stem)
    for fault in reading.diagnostics:
        print(f"nbagent: {fault}", file=sys.stderr)
    written = len(exported_turns(entries))
    others = len(tree.turns()) - written
    aside = f"; {others} more in the session, each with --turn TURN" if others else ""
    print(f"Written: {file} ({counted(written, 'turn')}{aside})")
    return 0


def set_trust(folder: Path, environ: Mapping[str, str], *, wanted: bool) -> int:
    """Trust the project of `folder`, or no longer, and say what that lets take effect."""
    if not folder.is_dir():
        raise UsageProblem(f"{str(folder)!r} is not a folder; name the folder of a project")
    settings = load_settings(folder, environ)
    if not wanted:
        untrust(settings.project, settings.home)
        print(f"Not trusted: {settings.project}")
        return 0
    trust(settings.project, settings.home)
    print(f"Trusted: {settings.project}")
    project = Path(settings.project)
    for key, value, origin in load_settings(folder, environ).rows():
        if Path(origin).parent == project:
            print(f"  {key} = {value!r} ({origin})")
    return 0


def list_sessions(folder: Path) -> int:
    """Print the sessions kept in `folder`, one a line."""
    if not folder.is_dir():
        raise UsageProblem(f"{str(folder)!r} is not a folder; name the folder of a notebook")
    kept = kept_sessions(folder)
    if not kept:
        print(f"No sessions are kept in {folder.resolve()}; run a %%agent cell in a notebook there.")
    width = max((len(s.name) for s in kept), default=0)
    for s in kept:
        notebook = f"  {s.notebook}" if s.notebook else ""
        print(f"{s.name:<{width}}  {counted(s.turns, 'turn')}  ${s.cost_usd:.4f}  {s.model or 'no model'}{notebook}")
    return 0


def import_recording(path: Path, folder: Path) -> int:
    """Import a recorded session of another agent into `folder` and say what became of it."""
    from nbagent.runtime.importing import import_transcript

    for found in import_transcript(path, folder):
        sizes = counted(found.turns, "turn"), counted(found.calls, "call"), counted(found.entries, "entry", "entries")
        print(f"{found.place.name}: {', '.join(sizes)}")
    return 0
