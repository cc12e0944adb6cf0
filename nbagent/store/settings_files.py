"""Reading layers of settings: TOML files, environment variables, options. A layer is flat: dotted key -> value."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from nbagent.core.errors import Diagnostic, SettingsError, one_line
from nbagent.store.settings_defaults import FOREIGN, NOT_SETTINGS, PREFIX
from nbagent.store.settings_keys import KEYS, SECTIONS, Key, nearest


class Found(NamedTuple):  # not a dataclass, which takes longer to make than to read the settings: `%load_ext` does both
    """One value of a layer, checked, and where it came from."""

    value: Any
    origin: str


class ProjectFile(NamedTuple):
    """The settings of a project: the folder, the file, and its values."""

    folder: Path
    path: Path
    layer: Mapping[str, Found]


def read_file(path: Path, table: tuple[str, ...] = ()) -> dict[str, Found] | None:
    """Return the settings in the TOML file at `path`, under `table`; None when file or table is absent.

    Raises:
        SettingsError: unreadable, not TOML, an unknown key, a wrong value.
    """
    text = _read_text(path)
    if text is None:
        return None
    raw: Any = _parse(path, text)
    for name in table:
        raw = raw.get(name) if isinstance(raw, Mapping) else None
        if raw is None:
            return None
    if not isinstance(raw, Mapping):
        raise SettingsError(f"{path}: [{'.'.join(table)}] is not a table; write it as one")
    layer: dict[str, Found] = {}
    for name, value in _flatten(raw):
        line = _line_of(text, ".".join((*table, name)))
        where = str(path) if line is None else f"{path}:{line}"
        key = _known(name, where)
        layer[name] = Found(value=_absolute(key, _checked(key, value, where), path.parent), origin=where)
    return layer


def find_project(start: Path, diagnostics: list[Diagnostic]) -> ProjectFile | None:
    """Return the settings of the nearest folder from `start` upward that has some; in one folder nbagent.toml wins.

    A pyproject.toml that is not TOML and does not mention nbagent is somebody else's: a Diagnostic.

    Raises:
        SettingsError: as `read_file`.
    """
    for folder in (start, *start.parents):
        own = folder / "nbagent.toml"
        layer = read_file(own)
        if layer is not None:
            return ProjectFile(folder=folder, path=own, layer=layer)
        shared = folder / "pyproject.toml"
        try:
            layer = read_file(shared, ("tool", "nbagent"))
        except SettingsError as error:
            if "nbagent" in _text_or_empty(shared):
                raise
            remedy = "nothing to do for nbagent, it is not mentioned there"
            diagnostics.append(Diagnostic(path=str(shared), line=None, cause=str(error), remedy=remedy))
            continue
        if layer is not None:
            return ProjectFile(folder=folder, path=shared, layer=layer)
    return None


def read_environment(environ: Mapping[str, str]) -> dict[str, Found]:
    """Return the settings in `NBAGENT_*` and in the providers' own variables; an empty value counts as absent.

    Raises:
        SettingsError: an unknown key, a wrong value.
    """
    layer: dict[str, Found] = {}
    for variable, name in FOREIGN.items():
        if environ.get(variable, "").strip():
            layer[name] = _from_text(KEYS[name], environ[variable], f"environment {variable}")
    for variable in sorted(environ):
        if not variable.startswith(PREFIX) or variable.startswith(NOT_SETTINGS) or not environ[variable].strip():
            continue
        name = variable.removeprefix(PREFIX).lower().replace("__", ".")
        key = _known(name, f"environment {variable}")
        layer[name] = _from_text(key, environ[variable], f"environment {variable}")
    return layer


def read_options(label: str, values: Mapping[str, Any]) -> dict[str, Found]:
    """Return the settings that a caller gives; None counts as absent, a text is read as the key's kind asks.

    Raises:
        SettingsError: an unknown key, a wrong value.
    """
    layer: dict[str, Found] = {}
    for name, value in values.items():
        key = _known(name, label)
        if isinstance(value, str):
            layer[name] = _from_text(key, value, label)
        elif value is not None:
            layer[name] = Found(value=_absolute(key, _checked(key, value, label), None), origin=label)
    return layer


def expanded(path: str, base: Path | None) -> str:
    """Return a folder as written in a setting with `~` resolved, relative to `base` when there is one.

    Raises:
        SettingsError: there is no home folder to put for `~`.
    """
    whole = os.path.expanduser(path)
    if whole.startswith("~"):
        raise SettingsError(f"folder {path!r}: there is no home folder to put for '~'; give the whole path")
    return os.path.normpath(whole if base is None else base / whole)


def _read_text(path: Path) -> str | None:
    try:
        if path.is_fifo():  # reading it would wait for somebody to write
            raise SettingsError(f"cannot read {path}: it is not an ordinary file; remove it, or give it another name")
        return path.read_bytes().decode("utf-8-sig")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise SettingsError(f"cannot read {path}: {error.strerror}; check its permissions or remove it") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path}: not UTF-8 at byte {error.start}; save it as UTF-8") from error


def _text_or_empty(path: Path) -> str:
    try:
        return "" if path.is_fifo() else path.read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""


def _parse(path: Path, text: str) -> dict[str, Any]:
    import tomllib  # where only variables are set, its patterns need not be compiled

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"at line (\d+)", str(error))
        line = found[1] if found else str(text.count("\n") + 1)
        raise SettingsError(f"{path}:{line}: not valid TOML: {one_line(str(error))}; correct that line") from error
    except RecursionError as error:
        raise SettingsError(f"{path}: nested too deep; write it flat") from error


def _flatten(raw: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in raw.items():
        dotted = f"{prefix}{name}"
        if dotted in SECTIONS and isinstance(value, Mapping):
            yield from _flatten(value, f"{dotted}.")
        else:
            yield dotted, value


def _known(name: str, where: str) -> Key:
    key = KEYS.get(name)
    if key is not None:
        return key
    if name in SECTIONS:
        inside = ", ".join(k for k in KEYS if k.startswith(f"{name}."))
        raise SettingsError(f"{where}: {name!r} is a section, not a value; set one of {inside}")
    near = nearest(name)
    advice = f"did you mean {near!r}" if near else "remove it; 'nbagent doctor' lists the keys"
    raise SettingsError(f"{where}: unknown setting {name!r}; {advice}")


def _checked(key: Key, value: Any, where: str) -> Any:
    try:
        return key.check(value)
    except ValueError:
        raise _wrong(key, value, where) from None


def _from_text(key: Key, text: str, where: str) -> Found:
    try:
        value = key.check(key.parse(text.strip()))
    except (ValueError, RecursionError):
        raise _wrong(key, text, where) from None
    return Found(value=_absolute(key, value, None), origin=where)


def _wrong(key: Key, value: Any, where: str) -> SettingsError:
    from nbagent.store.secrets import scrub

    shown = scrub(repr(value))
    shown = shown if len(shown) <= 80 else f"{shown[:77]}..."
    return SettingsError(f"{where}: {key.name} = {shown} is not possible; give {key.expected}")


def _absolute(key: Key, value: Any, base: Path | None) -> Any:
    if not key.paths:
        return value
    if isinstance(value, str):
        return expanded(value, base)
    return tuple(expanded(v, base) for v in value)


def _line_of(text: str, dotted: str) -> int | None:
    """Return the line (from 1) on which a key is set; None when it is written in a way not looked for.

    Without patterns: making three costs more than reading a file of settings.
    """
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := _header(line.strip()):
            table = _plain(header) + "."
            if table == f"{dotted}.":
                return number
            continue
        name, equals, _ = line.partition("=")
        if not equals or not name.strip() or not all(c.isalnum() or c in "_-.\"' \t" for c in name):
            continue
        if table + _plain(name) == dotted or dotted.startswith(f"{table}{_plain(name)}."):
            return number
    return None


def _header(line: str) -> str:
    """Return the name of the table that `line` begins, empty when it begins none."""
    if not line.startswith("["):
        return ""
    name, _, rest = line[1:].partition("]")
    return name if "[" not in name and rest.strip()[:1] in ("", "#") else ""


def _plain(name: str) -> str:
    return "".join(c for c in name if not c.isspace() and c not in "\"'")
