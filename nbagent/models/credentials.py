"""Whether the Anthropic SDK would find credentials, told without importing it; and a key as it can be sent."""

from __future__ import annotations

import os
from collections.abc import Mapping

SCRIPTED = "scripted:"  # begins the name of a model whose replies are written beforehand
_KEY_VARIABLES = (
    "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_PROFILE", "ANTHROPIC_IDENTITY_TOKEN",
    "ANTHROPIC_IDENTITY_TOKEN_FILE",
)  # fmt: skip


def has_credentials(environ: Mapping[str, str]) -> bool:
    """Tell whether the SDK would find credentials: a variable, or a profile on disk. Empty counts as unset."""
    if any(environ.get(name, "").strip() for name in _KEY_VARIABLES):
        return True
    folder = environ.get("ANTHROPIC_CONFIG_DIR")
    base = folder or os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".config", "anthropic")
    found = any(os.path.isdir(os.path.join(base, name)) for name in ("configs", "credentials"))
    return found or bool(folder and os.path.isdir(base))


def key_of(environ: Mapping[str, str], name: str) -> str | None:
    """Return the key in the variable `name` without blanks and line breaks around it; None when there is none.

    Raises:
        MissingKey: a character inside it cannot stand in a header; the line does not show the key.
    """
    key = environ.get(name, "").strip()
    from nbagent.core.errors import MissingKey  # this module is imported when the extension is loaded

    if not all("!" <= char <= "~" for char in key):
        raise MissingKey(
            f"{name} holds a blank, a line break or another character that no key has, so nothing was sent; copy the "
            "key anew, set the variable and run the cell again"
        )
    return key or None
