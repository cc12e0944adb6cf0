"""Places: which session belongs to a notebook, also after it was renamed or copied (DECISIONS 9, 10)."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import shutil
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbagent.core.entries import Entry, TurnStart
from nbagent.core.errors import Diagnostic, JournalUnwritable, UsageProblem
from nbagent.core.tree import SessionTree
from nbagent.store.files import unwritable, write_atomic

FOLDER = ".nbagent"
_NOT_COPIED = ("*.lock", "*.owner", "*.torn-*", "*.new", "session.json", "partial.json")
_NEAR_PARENTS, _NEAR_FOLDERS = 3, 200  # looked through for a moved notebook's session: above, below
_NAME = re.compile(r"\w[\w.-]{0,99}")  # as the setting `session`


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A session on disk. `how` tells how it was found: new, resumed, renamed, copied, moved."""

    name: str
    folder: Path
    notebook: Path | None
    how: str
    origin: str = ""

    @property
    def journal(self) -> Path:
        """The journal's file."""
        return self.folder / "journal.jsonl"

    @property
    def artifacts(self) -> Path:
        """The folder of full results."""
        return self.folder / "artifacts"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownSession:
    """What is known of a session without reading its journal."""

    name: str
    folder: Path
    notebook: Path | None
    cells: frozenset[str]


def sessions_folder(base: Path) -> Path:
    """Return where the sessions of notebooks in `base` are kept."""
    return base / FOLDER / "sessions"


def known_sessions(base: Path) -> tuple[KnownSession, ...]:
    """Return the sessions kept in `base`, by name. A folder without a readable `session.json` counts by its name."""
    folder = sessions_folder(base)
    if not folder.is_dir():
        return ()
    return tuple(_known(f, base) for f in sorted(folder.iterdir()) if f.is_dir())


def _known(folder: Path, base: Path) -> KnownSession:
    try:
        raw: dict[str, Any] = json.loads((folder / "session.json").read_text(encoding="utf-8"))
        notebook = _absolute(base, raw["notebook"]) if raw.get("notebook") else None
        cells = frozenset(str(c) for c in raw.get("cells") or ())
    except (OSError, ValueError, AttributeError, TypeError):
        notebook, cells = None, frozenset()
    return KnownSession(name=folder.name, folder=folder, notebook=notebook, cells=cells)


def _absolute(base: Path, notebook: Path | str) -> Path:
    return Path(os.path.abspath(os.path.join(base, notebook)))


def find_place(base: Path, notebook: Path | None, name: str | None, fresh: str) -> Place:
    """Return the session for `notebook`, made up to its folder's name but not yet on disk when new.

    A session that names this path is resumed. One that shares cells with this notebook and whose own
    notebook is gone (or is another one by now) was renamed; one whose notebook is still there was copied
    from: then the conversation so far is copied too. Of several, the one that shares most cells counts.
    Where none is in `base`, the folders above and below are looked through: a moved notebook takes a copy along.
    `name` asks for a session by name. `fresh` is a new id.

    Raises:
        UsageProblem: `name` cannot be the name of a session.
    """
    known = known_sessions(base)
    if name is not None:
        return _by_name(base, notebook, name, known)
    if notebook is None:
        return _new(base, None, f"session-{fresh[:6]}")
    notebook = _absolute(base, notebook)
    for session in known:
        if session.notebook == notebook:
            return Place(name=session.name, folder=session.folder, notebook=notebook, how="resumed")
    cells = cell_ids(notebook)
    shared = [s for s in known if s.notebook is not None and s.cells & cells]
    kin = sorted(shared, key=lambda s: (-len(s.cells & cells), s.name))
    for session in kin:
        if _has_left(session):
            return Place(
                name=session.name, folder=session.folder, notebook=notebook, how="renamed", origin=_old_name(session)
            )
    place = _new(base, notebook, f"{_slug(notebook.stem)}-{fresh[:6]}")
    for session in kin or (_kin_nearby(base, cells) if cells else ()):
        how = "copied" if kin else "moved"
        if _copy(session.folder, place.folder):
            return Place(name=place.name, folder=place.folder, notebook=notebook, how=how, origin=_old_name(session))
    return place


def _kin_nearby(base: Path, cells: frozenset[str]) -> list[KnownSession]:
    """Return sessions of the folders above and below `base` that share cells and whose notebook is gone.

    Not those whose notebook is still there: copies of one handout in several folders have nothing in common.
    """
    near: list[Path] = list(base.parents[:_NEAR_PARENTS])
    with contextlib.suppress(OSError), os.scandir(base) as found:
        near += [Path(e.path) for e in itertools.islice(found, _NEAR_FOLDERS) if e.is_dir(follow_symlinks=False)]
    left = [s for folder in near for s in known_sessions(folder) if s.notebook and s.cells & cells and _has_left(s)]
    return sorted(left, key=lambda s: (-len(s.cells & cells), str(s.folder)))


def _has_left(session: KnownSession) -> bool:
    """Tell whether the session's notebook is gone from its path: no file, or a file with none of its cells."""
    if session.notebook is None or not session.notebook.exists():
        return True
    return bool(there := cell_ids(session.notebook)) and not there & session.cells


def _old_name(session: KnownSession) -> str:
    return session.notebook.name if session.notebook else session.name


def _by_name(base: Path, notebook: Path | None, name: str, known: Iterable[KnownSession]) -> Place:
    if not _NAME.fullmatch(name):
        raise UsageProblem(f"{name!r} cannot name a session: use letters, digits, '.', '_' and '-', at most 100")
    own = _absolute(base, notebook) if notebook else None
    for session in known:
        if session.name == name:
            return Place(name=name, folder=session.folder, notebook=own or session.notebook, how="resumed")
    return _new(base, own, name)


def _new(base: Path, notebook: Path | None, name: str) -> Place:
    return Place(name=name, folder=sessions_folder(base) / name, notebook=notebook, how="new")


def came_along(place: Place) -> list[str]:
    """Return a line when the conversation was fetched from another folder."""
    return [f"The conversation of {place.origin} came along to this folder."] if place.how == "moved" else []


def _slug(text: str) -> str:
    """Return a name for a session from a notebook's: letters and digits of any script, at most 40 characters."""
    plain = unicodedata.normalize("NFC", text)
    return re.sub(r"[\W_]+", "-", plain)[:40].strip("-").lower() or "notebook"


def cell_ids(notebook: Path) -> frozenset[str]:
    """Return the ids of the cells in the file; empty when it cannot be read."""
    try:
        raw = json.loads(notebook.read_text(encoding="utf-8-sig"))
        return frozenset(str(c["id"]) for c in raw.get("cells", ()) if isinstance(c, dict) and c.get("id"))
    except (OSError, ValueError, AttributeError, TypeError):
        return frozenset()


def _copy(source: Path, target: Path) -> bool:
    """Copy journal and artifacts of a session. Returns whether there was a journal."""
    if not (source / "journal.jsonl").is_file() or target.exists():
        return False
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, target, ignore=shutil.ignore_patterns(*_NOT_COPIED))
    except OSError as error:
        shutil.rmtree(target, ignore_errors=True)
        raise JournalUnwritable(
            f"the session {source.name!r} cannot be copied to {str(target)!r} ({error.strerror}); free space or check "
            "the folder's permissions"
        ) from error
    return True


def remember(place: Place, cells: Iterable[str], *, turns: int | None = None) -> None:
    """Write `session.json`: whose session this is, and by which cells it is known again.

    `turns` are those on the path, for who looks at it without opening it while the journal stays as long as it is now;
    None where there is more to tell.
    The notebook's path is kept relative to its folder where it lies in it, so that the folder may be moved.

    Raises:
        JournalUnwritable: the folder cannot be written.
    """
    base = place.folder.parents[2] if place.folder.parent.parent.name == FOLDER else place.folder
    notebook = place.notebook
    if notebook is not None and notebook.is_relative_to(base):
        notebook = notebook.relative_to(base)
    known: dict[str, Any] = {"name": place.name, "notebook": notebook.as_posix() if notebook else None}
    known["cells"] = sorted(cells)
    path = place.folder / "session.json"
    try:
        if turns is not None:
            known |= {"turns": turns, "journal_bytes": place.journal.stat().st_size}
        content = json.dumps(known, ensure_ascii=False, indent=1).encode()
        if path.is_file() and path.read_bytes() == content:
            return
    except OSError as error:
        raise unwritable(path, error) from error
    write_atomic(path, content)


def remembered(place: Place, cells: Iterable[str], *, turns: int | None = None) -> tuple[str, ...]:
    """Do what `remember` does after a turn, which is kept whatever becomes of this; return what a person is told."""
    try:
        remember(place, cells, turns=turns)
    except JournalUnwritable as error:
        return (str(error),)
    return ()


def turns_to_tell(tree: SessionTree, diagnostics: Sequence[Diagnostic]) -> int | None:
    """Return how many turns a notebook that is loaded is told of; None where there is more to tell."""
    nodes = tree.turns_on_path()
    return None if diagnostics or (nodes and nodes[-1].end is None) else len(nodes)


def cells_of(entries: Iterable[Entry]) -> set[str]:
    """Return the ids of the cells whose turns are among `entries`."""
    return {e.body.cell_id for e in entries if isinstance(e.body, TurnStart) and e.body.cell_id}
