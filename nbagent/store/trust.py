"""Trust: which project folders the person said may widen settings, skills and agents.

The list is `<home>/trusted.json`. Only an exact folder counts, so that a project cloned into
a trusted one is not trusted with it.
"""

from __future__ import annotations

import json
from pathlib import Path

from nbagent.core.errors import JournalUnwritable, SettingsError


def is_trusted(folder: Path | str, home: Path | str) -> bool:
    """Tell whether `folder` is on the list in `home`; a list that cannot be read trusts nothing."""
    try:
        return _key(folder) in _read(Path(home))
    except SettingsError:
        return False


def trusted_folders(home: Path | str) -> frozenset[str]:
    """Return the folders on the list in `home`, whole paths; none when it cannot be read."""
    try:
        return frozenset(_read(Path(home)))
    except SettingsError:
        return frozenset()


def trust(folder: Path | str, home: Path | str) -> None:
    """Put `folder` on the list.

    Raises:
        SettingsError: the list is damaged or cannot be written.
    """
    _write(Path(home), _read(Path(home)) | {_key(folder)})


def untrust(folder: Path | str, home: Path | str) -> None:
    """Take `folder` off the list.

    Raises:
        SettingsError: the list is damaged or cannot be written.
    """
    _write(Path(home), _read(Path(home)) - {_key(folder)})


def _key(folder: Path | str) -> str:
    return str(Path(folder).expanduser().resolve())


def _read(home: Path) -> set[str]:
    path = home / "trusted.json"
    try:
        folders = json.loads(path.read_text("utf-8"))["folders"]
        if not isinstance(folders, list):
            raise ValueError("'folders' is not a list")
    except FileNotFoundError:
        return set()
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SettingsError(
            f"{path}: the list of trusted projects cannot be read ({error}); correct or remove it"
        ) from error
    return {str(f) for f in folders}


def _write(home: Path, folders: set[str]) -> None:
    from nbagent.store.files import make_private, write_atomic  # not needed to read the list, as `%load_ext` does

    try:
        make_private(home)
        text = json.dumps({"v": 1, "folders": sorted(folders)}, ensure_ascii=False, indent=1) + "\n"
        write_atomic(home / "trusted.json", text.encode())
    except JournalUnwritable as error:
        raise SettingsError(str(error)) from error
