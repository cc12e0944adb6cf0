"""Import: recordings of other agents become sessions, to look at, to go on from, and to replay policies on.

See docs/import.md for the formats and what is kept of each.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from nbagent.core.entries import Body, Entry, TurnEnd, TurnStart
from nbagent.core.errors import UsageProblem
from nbagent.core.messages import Prefix, text_block
from nbagent.runtime.importing.formats import parse_recording
from nbagent.runtime.importing.recorder import Imported, entry_id
from nbagent.runtime.places import Place, remember, sessions_folder
from nbagent.store.artifacts import Artifacts
from nbagent.store.journal import Journal
from nbagent.store.secrets import Scrubber, secret_values

MOST_BYTES = 512 * 1024 * 1024  # a larger file is no session; it would not fit in memory several times over


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedSession:
    """One session made: where it is, and how many turns, model calls and entries it has."""

    place: Place
    turns: int
    calls: int
    entries: int


def import_transcript(path: Path, out_folder: Path) -> tuple[ImportedSession, ...]:
    """Convert the recording at `path` into sessions kept in `out_folder`, one for each conversation in it.

    The same file gives the same journals, byte for byte. Secrets are scrubbed as in every journal.

    Raises:
        UsageProblem: the file is missing, no text, in no known format, or was imported there before.
        JournalUnwritable: the folder cannot be written.
    """
    found = parse_recording(read_recording(path), path.name)
    names = [_session_name(path, one.name) for one in found]
    folder = sessions_folder(out_folder)
    for name in names:
        if (folder / name / "journal.jsonl").exists():
            raise UsageProblem(f"{str(folder / name)!r} is there already; import into another folder or remove it")
    scrubber = Scrubber(secret_values(os.environ))
    return tuple(_write(one, folder / name, path.name, scrubber) for name, one in zip(names, found, strict=True))


def read_recording(path: Path) -> str:
    """Return the text of a recording.

    Raises:
        UsageProblem: the file cannot be read, or is no text.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise UsageProblem(f"{str(path)!r} is larger than {MOST_BYTES >> 20} MB; split it and import the parts")
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageProblem(f"{str(path)!r} is no UTF-8 text ({error.reason}); name a recorded session") from error
    except OSError as error:
        raise UsageProblem(f"{str(path)!r} cannot be read ({error.strerror}); name a recorded session") from error


def _session_name(path: Path, part: str) -> str:
    text = f"{path.name.split('.')[0]}-{part}" if part else path.name.rsplit(".", 1)[0]
    return re.sub(r"[^\w.-]+", "-", text).strip("-.")[:100] or "imported"


def imported_prefix(imported: Imported) -> Prefix:
    """Return the stored head of an imported session: its system text; the tools are not recorded."""
    return Prefix(system=(text_block(imported.system),) if imported.system.strip() else (), tools=())


def imported_entries(imported: Imported, prefix_digest: str = "") -> list[Entry]:
    """Return the entries of an imported conversation, with counted ids, each the child of the one before."""
    entries: list[Entry] = []
    for index, stamped in enumerate(imported.bodies):
        parent = entries[-1].id if entries else None
        entries.append(Entry(entry_id(index), parent, stamped.at, _behind(stamped.body, prefix_digest)))
    return entries


def _behind(body: Body, digest: str) -> Body:
    if not digest or not isinstance(body, TurnStart):
        return body
    return TurnStart(turn=body.turn, model=body.model, policy=body.policy, order=body.order, prefix=digest)


def _write(imported: Imported, folder: Path, origin: str, scrubber: Scrubber) -> ImportedSession:
    place = Place(name=folder.name, folder=folder, notebook=None, how="imported", origin=origin)
    with Journal.open(place.journal) as journal:
        digest = Artifacts(place.artifacts).put_text(scrubber.text(imported_prefix(imported).to_text()))
        entries = [scrubber.entry(e) for e in imported_entries(imported, digest)]
        for entry in entries:
            journal.append(entry)
        journal.sync()
    remember(place, ())
    bodies = [e.body for e in entries]
    return ImportedSession(
        place=place, entries=len(entries), turns=sum(isinstance(b, TurnEnd) for b in bodies),
        calls=sum(b.kind == "assistant_message" for b in bodies),
    )  # fmt: skip
