"""What `%load_ext` says where settings are made: reads them, and opens nothing; whatever is doubtful is not for it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nbagent.core.errors import UserError
from nbagent.models.credentials import SCRIPTED, has_credentials
from nbagent.runtime.kept_glance import NONE_KEPT, kept_at_a_glance
from nbagent.runtime.plain_start import PlainStart
from nbagent.runtime.skill_glance import skills_at_a_glance
from nbagent.store.settings_defaults import POLICY
from nbagent.store.settings_layers import read_layers


def set_start(
    folder: str, environ: Mapping[str, str], notebook: str | None, configured: Mapping[str, Any]
) -> PlainStart | None:
    """Return what holds for `notebook` in `folder` (whole paths), None where there is more to tell.

    That is so when a setting is wrong or narrowed, names a session, or a policy that has to be looked up.
    """
    try:
        layers = read_layers(folder, environ, {"%config AgentMagics": configured})
    except UserError:
        return None
    value = layers.values
    kept = kept_at_a_glance(str(Path(folder).resolve()), notebook)
    if (
        kept is None
        or layers.diagnostics
        or value["session"] is not None
        or (value["policy"], value["threshold"]) != (POLICY, None)
        # Rules are held against the tools of a conversation.
        or (kept != NONE_KEPT and (value["tools.allow"] or value["tools.ask"] or value["tools.deny"]))
    ):
        return None
    ready = value["model"].startswith(SCRIPTED) or has_credentials(environ)
    skills = len(names_of_skills(folder, layers.values, trusted=layers.trusted))
    return PlainStart(value["model"], value["policy"], value["window_tokens"], ready, skills, *kept)


def names_of_skills(folder: str, values: Mapping[str, Any], *, trusted: bool) -> frozenset[str]:
    """Return the names of the skills there seem to be, without reading one; `values` are the settings by their keys."""
    off = [name for name, entry in values["skills.entries"].items() if entry.get("enabled") is False]
    return skills_at_a_glance(
        folder, values["home"], os.environ, trusted=trusted, extra=values["skills.extra_dirs"], off=off
    )
