"""Which model stands behind a name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nbagent.core.errors import UsageProblem
from nbagent.models.catalog import ModelFacts, lookup, nearest_models
from nbagent.models.model import Model

SCRIPTED = "scripted:"


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedModel:
    """A model and what is known of it. `source` is "live" or "scripted", as a recording says it."""

    name: str
    model: Model
    facts: ModelFacts
    source: str


def open_model(name: str, *, environ: Mapping[str, str], base_url: str | None, folder: Path) -> NamedModel:
    """Return the model `name`: an id of the provider, or `scripted:FILE` with replies written beforehand.

    Raises:
        UsageProblem: the name is empty.
        UserError: a script cannot be read.
    """
    if not name.strip():
        raise UsageProblem("the model's name is empty; name one, such as claude-sonnet-5-5")
    if name.startswith(SCRIPTED):
        from nbagent.models.scripted import ScriptedModel

        path = folder / name.removeprefix(SCRIPTED)
        return NamedModel(name=name, model=ScriptedModel.from_file(path), facts=lookup(name), source="scripted")
    from nbagent.models.anthropic import AnthropicModel

    return NamedModel(
        name=name, model=AnthropicModel(environ=environ, base_url=base_url), facts=lookup(name), source="live"
    )


def check_known(named: NamedModel, *, base_url: str | None) -> None:
    """Refuse a name that neither the table nor the provider knows.

    Raises:
        UsageProblem: with the nearest known names.
    """
    if named.facts.known or named.source != "live" or base_url:
        return
    near = ", ".join(nearest_models(named.name)) or "claude-sonnet-5-5"
    raise UsageProblem(f"unknown model {named.name!r}; near it: {near}. Choose one with `%agent model NAME`")
