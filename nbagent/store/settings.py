"""Settings: one frozen value made of layers, each value with its origin.

Which layers there are, and what a project may set, says `settings_layers`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nbagent.core.errors import Diagnostic
from nbagent.store.settings_files import read_options
from nbagent.store.settings_keys import KEYS
from nbagent.store.settings_layers import Layers, read_layers

DEFAULT = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Where a turn, the session and the day stop. None is no limit."""

    max_steps: int | None
    max_tokens: int | None
    max_cost_usd: float | None
    session_cost_usd: float | None
    day_cost_usd: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillSettings:
    """Skills: how they are chosen, and where from. An empty `allow_bundled` allows all."""

    mode: str
    extra_dirs: tuple[str, ...]
    allow_bundled: tuple[str, ...]
    entries: Mapping[str, Any]
    trust: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySettings:
    """Memory: who embeds, which numbers, further folders of notes, and whether notes are stored before a compaction."""

    embedder: str
    preset: str
    extra_dirs: tuple[str, ...]
    flush: str = "on"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextSettings:
    """What of managing the context is left to the provider, and how much of the system text there is."""

    provider: str
    prompt: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRules:
    """Rules that allow, ask for or deny a tool's call."""

    allow: tuple[str, ...]
    ask: tuple[str, ...]
    deny: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAISettings:
    """A server that speaks OpenAI's protocol."""

    base_url: str | None
    model: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The effective settings. Made by `load_settings`; a changed one by `with_options`.

    `project` is the folder that gives the project's settings (the start folder when none
    does), and the one that `nbagent trust` accepts. `home` and all folders are whole paths.
    """

    model: str
    policy: str
    mode: str
    rerun: str
    observe: str
    session: str | None
    home: str
    window_tokens: int
    threshold: float | None
    base_url: str | None
    limits: Limits
    skills: SkillSettings
    memory: MemorySettings
    context: ContextSettings
    tools: ToolRules
    openai: OpenAISettings
    project: str
    trusted: bool
    diagnostics: tuple[Diagnostic, ...] = ()
    origins: Mapping[str, str] = field(default_factory=dict)

    def value(self, key: str) -> Any:
        """Return the value of a dotted key.

        Raises:
            KeyError: there is no such key.
        """
        if key not in KEYS:
            raise KeyError(key)
        section, _, name = key.rpartition(".")
        return getattr(getattr(self, section) if section else self, name)

    def origin(self, key: str) -> str:
        """Return where a value came from: "default", file and line, "environment NBAGENT_MODE", an option's label.

        Raises:
            KeyError: there is no such key.
        """
        return DEFAULT if key in KEYS and key not in self.origins else self.origins[key]

    def rows(self) -> Iterator[tuple[str, Any, str]]:
        """Yield (key, value, origin) of every setting, in the order documented."""
        for key in KEYS:
            yield key, self.value(key), self.origin(key)

    def with_options(self, label: str, values: Mapping[str, Any]) -> Settings:
        """Return the settings with `values` (dotted key -> value, None is absent) over these; `label` is their origin.

        Raises:
            SettingsError: an unknown key, a wrong value.
        """
        values_now = {key: self.value(key) for key in KEYS}
        layers = Layers(values_now, dict(self.origins), self.project, self.trusted)
        layers.diagnostics += self.diagnostics
        layers.put(read_options(label, values))
        return _made(layers)


def load_settings(
    start: Path | str,
    environ: Mapping[str, str],
    *,
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> Settings:
    """Return the effective settings for a notebook in the folder `start`.

    `options` maps a label ("%config AgentMagics") to values (dotted key -> value), lowest
    first. The person's home folder is what options or `NBAGENT_HOME` say, else `~/.nbagent`.

    Raises:
        SettingsError: a file, variable or option holds something invalid; the message names it.
    """
    return _made(read_layers(start, environ, options))


def _made(layers: Layers) -> Settings:
    top = {k: v for k, v in layers.values.items() if "." not in k}

    def section(name: str) -> dict[str, Any]:
        return {k.removeprefix(f"{name}."): v for k, v in layers.values.items() if k.startswith(f"{name}.")}

    return Settings(
        **top, limits=Limits(**section("limits")), skills=SkillSettings(**section("skills")),
        memory=MemorySettings(**section("memory")), context=ContextSettings(**section("context")),
        tools=ToolRules(**section("tools")), openai=OpenAISettings(**section("openai")), project=layers.project,
        trusted=layers.trusted, diagnostics=tuple(layers.diagnostics), origins=layers.origins,
    )  # fmt: skip
