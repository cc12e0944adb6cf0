"""What the models endpoint tells of a model, laid over the table. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from nbagent.core.errors import UsageProblem
from nbagent.models.catalog import DEFAULT_MODEL, ModelFacts, nearest_models
from nbagent.models.context_edits import CLEAR, COMPACT

_EDITS = {"clear": CLEAR, "compact": COMPACT}


def unknown_model(name: str) -> UsageProblem:
    """Return the error for a name that nobody knows, with the nearest known ones."""
    near = ", ".join(nearest_models(name)) or DEFAULT_MODEL
    return UsageProblem(f"unknown model {name!r}; near it: {near}. Choose one with `%agent model NAME`")


def says_unknown(error: Exception) -> bool:
    """Tell whether the service itself said so; a gateway without the endpoint answers 404 in other words."""
    body = getattr(error, "body", None)
    inner = body.get("error") if isinstance(body, Mapping) else None
    told = inner.get("type") if isinstance(inner, Mapping) else None
    return getattr(error, "status_code", None) == 404 and told == "not_found_error"


def merged_facts(table: ModelFacts, told: Mapping[str, Any]) -> ModelFacts:
    """Return the facts of `table` with the limits in `told`; of a model new to the table also what it is able to."""
    window, output = told.get("max_input_tokens"), told.get("max_tokens")
    facts = replace(
        table,
        known=True,
        window_tokens=window if isinstance(window, int) and window > 0 else table.window_tokens,
        max_output_tokens=output if isinstance(output, int) and output > 0 else table.max_output_tokens,
    )
    able = told.get("capabilities")
    if isinstance(able, Mapping) and isinstance(able.get("context_management"), Mapping):
        edits = {name for name, kind in _EDITS.items() if _can(able, "context_management", kind)}
        facts = replace(facts, edits=frozenset(edits))
    if table.known:
        return facts
    return replace(facts, sees_images=_can(able, "image_input"), accepts_effort=_can(able, "effort"),
                   thinking="adaptive" if _can(able, "thinking", "types", "adaptive") else "none")  # fmt: skip


def _can(capabilities: object, *names: str) -> bool:
    for name in names:
        capabilities = capabilities.get(name) if isinstance(capabilities, Mapping) else None
    return isinstance(capabilities, Mapping) and capabilities.get("supported") is True
