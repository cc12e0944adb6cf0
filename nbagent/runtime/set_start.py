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
from nbagent.store.settings import Settings, load_settings
from nbagent.store.settings_defaults import POLICY


def set_start(
    folder: str, environ: Mapping[str, str], notebook: str | None, configured: Mapping[str, Any]
) -> PlainStart | None:
    """Return what holds for `notebook` in `folder` (whole paths), None where there is more to tell.

    That is so when a setting is wrong or narrowed, names a session, or a policy that has to be looked up.
    """
    try:
        settings = load_settings(folder, environ, options={"%config AgentMagics": configured})
    except UserError:
        return None
    rules = settings.tools
    kept = kept_at_a_glance(str(Path(folder).resolve()), notebook)
    if (
        kept is None
        or settings.diagnostics
        or settings.session is not None
        or (settings.policy, settings.threshold) != (POLICY, None)
        or (kept != NONE_KEPT and (rules.allow or rules.ask or rules.deny))  # which are held against the tools
    ):
        return None
    ready = settings.model.startswith(SCRIPTED) or has_credentials(environ)
    skills = len(names_of_skills(folder, settings))
    return PlainStart(settings.model, settings.policy, settings.window_tokens, ready, skills, *kept)


def names_of_skills(folder: str, settings: Settings) -> frozenset[str]:
    """Return the names of the skills there seem to be, without reading one."""
    own = settings.skills
    off = [name for name, entry in own.entries.items() if entry.get("enabled") is False]
    return skills_at_a_glance(
        folder, settings.home, os.environ, trusted=settings.trusted, extra=own.extra_dirs, off=off
    )
