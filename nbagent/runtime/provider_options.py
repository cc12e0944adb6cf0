"""The provider's parameters that a turn begins with. Pure."""

from __future__ import annotations

from typing import Any

from nbagent.models.registry import NamedModel


def provider_options(named: NamedModel) -> dict[str, Any]:
    """Return the provider's parameters for a model; the same for a whole conversation (claude.md A6)."""
    if named.source == "live" and named.facts.thinking in ("adaptive", "always"):
        return {"thinking": {"type": "adaptive", "display": "summarized"}}
    return {}
