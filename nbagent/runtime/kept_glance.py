"""Which conversation a notebook has, told for the line of `%load_ext` without opening it; whatever is doubtful is not.

`session.json` says how many turns there were when the journal had so many bytes (`places.remember`). While the journal
still has them, nobody holds it, and no reply waits to be recovered, opening it would say the same.
"""

from __future__ import annotations

import json
import os
from typing import NamedTuple


class Kept(NamedTuple):
    """A conversation by name, and the turns on its path."""

    name: str
    turns: int


NONE_KEPT = Kept("new", 0)


def kept_at_a_glance(folder: str, notebook: str | None) -> Kept | None:
    """Return what of `notebook` is kept in `folder` (both whole paths), None where only the full reading knows."""
    sessions = os.path.join(folder, ".nbagent", "sessions")
    try:
        with os.scandir(sessions) as found:
            names = sorted(e.name for e in found if e.is_dir())
        if notebook is None or not names:
            return NONE_KEPT
        for name in names:
            with open(os.path.join(sessions, name, "session.json"), encoding="utf-8") as file:
                record = json.load(file)
            own = record["notebook"]
            if own and os.path.abspath(os.path.join(folder, own)) == os.path.abspath(notebook):
                return _unchanged(name, record, os.path.join(sessions, name))
    except FileNotFoundError:
        return None if os.path.lexists(sessions) else NONE_KEPT
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return None  # it may be known by its cells: a notebook that was renamed


def _unchanged(name: str, record: dict[str, object], folder: str) -> Kept | None:
    turns, size = record.get("turns"), record.get("journal_bytes")
    if type(turns) is not int or type(size) is not int or os.path.lexists(os.path.join(folder, "partial.json")):
        return None
    journal = os.path.join(folder, "journal.jsonl")
    if os.path.getsize(journal) != size or not os.access(journal, os.W_OK) or not _is_free(folder):
        return None
    return Kept(name, turns)


def _is_free(folder: str) -> bool:
    """Tell whether no process writes the journal; where the system has no such locks it is not known."""
    try:
        import fcntl
    except ImportError:
        return False
    try:
        fd = os.open(os.path.join(folder, "journal.lock"), os.O_RDWR)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # falls with the file
    finally:
        os.close(fd)
    return True
