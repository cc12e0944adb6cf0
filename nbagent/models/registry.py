"""Which model stands behind a name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from nbagent.core.errors import UsageProblem
from nbagent.models.catalog import PLATFORM_PREFIXES, ModelFacts, lookup
from nbagent.models.credentials import SCRIPTED
from nbagent.models.endpoint_facts import unknown_model
from nbagent.models.model import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedModel:
    """A model and what is known of it. `source` is "live" or "scripted", as a recording says it.

    `ask_facts` asks the provider for the facts; None where there is nobody to ask.
    """

    name: str
    model: Model
    facts: ModelFacts
    source: str
    ask_facts: Callable[[str], Awaitable[ModelFacts | None]] | None = None


def open_model(name: str, *, environ: Mapping[str, str], base_url: str | None, folder: Path) -> NamedModel:
    """Return the model `name`.

    An id of the provider; `bedrock:ID` or `vertex:ID`, an id of that platform, with its own variables for
    address and credentials; or `scripted:FILE` with replies written beforehand.

    Raises:
        UsageProblem: the name is empty.
        UserError: a script cannot be read.
    """
    if not name.strip() or name.strip() in (*PLATFORM_PREFIXES, SCRIPTED):
        raise UsageProblem(f"the model's name {name!r} is empty; name one, such as claude-sonnet-5-5")
    if name.startswith(SCRIPTED):
        from nbagent.models.scripted import ScriptedModel

        path = folder / name.removeprefix(SCRIPTED)
        return NamedModel(name=name, model=ScriptedModel.from_file(path), facts=lookup(name), source="scripted")
    from nbagent.models.anthropic import AnthropicModel

    if name.startswith("bedrock:"):
        model = AnthropicModel(environ=environ, platform="bedrock")
    elif name.startswith("vertex:"):
        model = AnthropicModel(environ=environ, platform="vertex")
    else:
        model = AnthropicModel(environ=environ, base_url=base_url)
        return NamedModel(name=name, model=model, facts=lookup(name), source="live", ask_facts=model.facts)
    return NamedModel(name=name, model=model, facts=lookup(name), source="live")


async def with_endpoint_facts(named: NamedModel) -> NamedModel:
    """Return `named` with what the provider tells of it; as it is where the provider tells nothing.

    Raises:
        UsageProblem: the provider does not know the name, and the table does not either.
    """
    told = None if named.ask_facts is None else await named.ask_facts(named.name)
    return named if told is None else replace(named, facts=told)


def check_known(named: NamedModel, *, base_url: str | None) -> None:
    """Refuse a name that neither the table nor the provider knows; behind another address any name may be one.

    Raises:
        UsageProblem: with the nearest known names.
    """
    if named.facts.known or named.ask_facts is None or base_url:
        return
    raise unknown_model(named.name)
