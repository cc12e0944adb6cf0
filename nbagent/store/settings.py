"""Settings: one frozen value made of layers, each value with its origin.

Layers, lowest first: defaults, the person's `<home>/settings.toml`, the project's
`nbagent.toml` or `[tool.nbagent]` in `pyproject.toml` (nearest folder upward), the
environment (`NBAGENT_*`), then what the caller gives. A project that the person did not
trust can only narrow; what it may not set is left out with a Diagnostic.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nbagent.core.errors import Diagnostic, SettingsError
from nbagent.store.settings_files import (
    Found,
    ProjectFile,
    expanded,
    find_project,
    read_environment,
    read_file,
    read_options,
)
from nbagent.store.settings_keys import KEYS, narrow
from nbagent.store.trust import is_trusted

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
    """What of managing the context is left to the provider."""

    provider: str


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
        layers = _Layers({key: self.value(key) for key in KEYS}, dict(self.origins))
        layers.put(read_options(label, values))
        return layers.settings(self.project, self.trusted, self.diagnostics)


class _Layers:
    """Values and origins while layers are laid over each other."""

    def __init__(self, values: dict[str, Any], origins: dict[str, str]) -> None:
        self.values = values
        self.origins = origins

    def put(self, layer: Mapping[str, Found]) -> None:
        for name, found in layer.items():
            self.values[name], self.origins[name] = found.value, found.origin

    def put_untrusted(self, project: ProjectFile) -> Iterator[Diagnostic]:
        """Lay what narrows over the values; yield a Diagnostic for the rest."""
        for name, found in project.layer.items():
            narrowed = narrow(name, found.value, self.values[name])
            if narrowed.accepted:
                self.values[name], self.origins[name] = narrowed.value, found.origin
            elif found.value != self.values[name]:
                path, _, line = found.origin.rpartition(":")
                numbered = line.isdigit()
                yield Diagnostic(
                    path=path if numbered else found.origin,
                    line=int(line) if numbered else None,
                    cause=f"{name!r} is ignored, since this project is not trusted and would widen it",
                    remedy="read the file, then run 'nbagent trust' there to accept it",
                )

    def settings(self, project: str, trusted: bool, diagnostics: tuple[Diagnostic, ...]) -> Settings:
        top = {k: v for k, v in self.values.items() if "." not in k}

        def section(name: str) -> dict[str, Any]:
            return {k.removeprefix(f"{name}."): v for k, v in self.values.items() if k.startswith(f"{name}.")}

        return Settings(
            **top, limits=Limits(**section("limits")), skills=SkillSettings(**section("skills")),
            memory=MemorySettings(**section("memory")), context=ContextSettings(**section("context")),
            tools=ToolRules(**section("tools")),
            openai=OpenAISettings(**section("openai")), project=project, trusted=trusted,
            diagnostics=diagnostics, origins=self.origins,
        )  # fmt: skip


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
    folder = Path(start).expanduser().resolve()
    given = [read_options(label, values) for label, values in (options or {}).items()]
    environment = read_environment(environ)
    layers = _Layers({key.name: key.default for key in KEYS.values()}, {})
    layers.values["home"] = home = _home(environment, given)
    diagnostics: list[Diagnostic] = []
    layers.put(read_file(Path(home) / "settings.toml") or {})
    project = find_project(folder, diagnostics)
    where = folder if project is None else project.folder
    trusted = is_trusted(where, home)
    if project is not None:
        if trusted:
            layers.put(project.layer)
        else:
            diagnostics += layers.put_untrusted(project)
    layers.put(environment)
    for layer in given:
        layers.put(layer)
    return layers.settings(str(where), trusted, tuple(diagnostics))


def _home(environment: Mapping[str, Found], given: list[dict[str, Found]]) -> str:
    home = expanded(KEYS["home"].default, None) if "home" not in environment else str(environment["home"].value)
    for layer in given:
        if "home" in layer:
            home = str(layer["home"].value)
    if not Path(home).is_absolute():
        raise SettingsError(f"home = {home!r} is not a whole path; give one that starts at the root")
    return home
