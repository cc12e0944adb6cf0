"""Whether the Anthropic SDK would find credentials, told without importing it."""

from __future__ import annotations

import os
from collections.abc import Mapping

_KEY_VARIABLES = (
    "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_PROFILE", "ANTHROPIC_IDENTITY_TOKEN",
    "ANTHROPIC_IDENTITY_TOKEN_FILE",
)  # fmt: skip


def has_credentials(environ: Mapping[str, str]) -> bool:
    """Tell whether the SDK would find credentials: a variable, or a profile on disk. Empty counts as unset."""
    if any(environ.get(name) for name in _KEY_VARIABLES):
        return True
    folder = environ.get("ANTHROPIC_CONFIG_DIR")
    base = folder or os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".config", "anthropic")
    found = any(os.path.isdir(os.path.join(base, name)) for name in ("configs", "credentials"))
    return found or bool(folder and os.path.isdir(base))
