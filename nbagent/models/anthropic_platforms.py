"""Anthropic's models on Bedrock and Vertex, through the SDK's own clients for them (DECISIONS 15)."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

Platform: TypeAlias = Literal["anthropic", "bedrock", "vertex"]

_NEEDED = {"bedrock": ("boto3", "Bedrock"), "vertex": ("google.auth", "Vertex")}


def missing_library(platform: Platform) -> str:
    """Return the line that tells which package a platform needs; empty when it is there."""
    module, name = _NEEDED[platform]
    try:
        found = importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of the package that holds it
        found = False
    if found:
        return ""
    return f"models on {name} need the package {module}: run `%pip install 'anthropic[{platform}]'` and restart"


def open_platform(platform: Platform, *, base_url: str | None, timeout: Any) -> AsyncAnthropic:
    """Open the SDK's client for `platform`; region, project and credentials come from its own variables.

    Raises:
        ValueError, RuntimeError: the SDK finds no region or credentials.
    """
    import anthropic

    kind: Any = anthropic.AsyncAnthropicBedrock if platform == "bedrock" else anthropic.AsyncAnthropicVertex
    return cast("AsyncAnthropic", kind(base_url=base_url, timeout=timeout, max_retries=0))
