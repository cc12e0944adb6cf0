"""What `%load_ext` says where nothing is set, without importing what reads settings and opens sessions.

Whatever is doubtful is not plain: the full reading follows then.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import NamedTuple

from nbagent.models.credentials import has_credentials
from nbagent.runtime.kept_glance import kept_at_a_glance
from nbagent.runtime.skill_glance import skills_at_a_glance
from nbagent.store.settings_defaults import (
    FOREIGN,
    HOME,
    MODEL,
    MODES,
    NOT_SETTINGS,
    POLICY,
    PREFIX,
    URL,
    WINDOW_TOKENS,
)


class PlainStart(NamedTuple):
    """The defaults, whether the default model could be called, how many skills there seem to be, and what is kept."""

    model: str
    policy: str
    window_tokens: int
    has_key: bool
    skills: int
    session: str
    turns: int


def plain_start(folder: str, environ: Mapping[str, str], notebook: str | None = None) -> PlainStart | None:
    """Return what holds for `notebook` in `folder` (whole paths) where nothing is set, else None.

    None also where its conversation has to be opened to tell of it.
    """
    home = os.path.expanduser((environ.get(f"{PREFIX}HOME") or "").strip() or HOME)
    plain = (
        all(_is_harmless(name, value.strip()) for name, value in environ.items())
        and os.path.isabs(home)
        and not os.path.lexists(os.path.join(home, "settings.toml"))
        and not _is_project(folder)
    )
    kept = kept_at_a_glance(folder, notebook) if plain else None
    if kept is None:
        return None
    names = skills_at_a_glance(folder, home, environ, trusted=_is_trusted(folder, home))
    return PlainStart(MODEL, POLICY, WINDOW_TOKENS, has_credentials(environ), len(names), *kept)


def _is_trusted(folder: str, home: str) -> bool:
    """Tell whether the person trusts `folder`; the list is read only where there is one."""
    if not os.path.lexists(os.path.join(home, "trusted.json")):
        return False
    from nbagent.store.trust import is_trusted

    return is_trusted(folder, home)


def _is_harmless(name: str, value: str) -> bool:
    """Tell whether a variable is no setting, or a right one that the line does not speak of."""
    if name in FOREIGN:
        return not value or re.match(URL, value) is not None
    if not value or not name.startswith(PREFIX) or name.startswith(NOT_SETTINGS):
        return True
    return name == f"{PREFIX}HOME" or (name == f"{PREFIX}MODE" and value in MODES)


def _is_project(folder: str) -> bool:
    """Tell whether a folder from `folder` upward has settings, or a file that would have to be told of."""
    place = os.path.realpath(folder)
    while True:
        if os.path.lexists(os.path.join(place, "nbagent.toml")) or _is_doubtful(os.path.join(place, "pyproject.toml")):
            return True
        above = os.path.dirname(place)
        if above == place:
            return False
        place = above


def _is_doubtful(path: str) -> bool:
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            return True
        with open(path, "rb") as file:
            raw = file.read()
    except FileNotFoundError:
        return False
    except OSError:
        return True
    if b"nbagent" in raw:
        return True
    import tomllib

    try:
        tomllib.loads(raw.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return True
    return False
