"""The layers of settings, laid over each other: values by dotted key, with their origins. `%load_ext` reads no more.

Lowest first: defaults, the person's `<home>/settings.toml`, the project's `nbagent.toml` or `[tool.nbagent]` in
`pyproject.toml` (nearest folder upward), the environment (`NBAGENT_*`), then what the caller gives. A project that the
person did not trust can only narrow; what it may not set is left out with a Diagnostic.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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


class Layers:
    """`values` and `origins` by dotted key; what is default has no origin.

    `project` is the folder that gives the project's settings, the start folder when none does; `trusted` says whether
    the person trusts it.
    """

    def __init__(
        self, values: dict[str, Any], origins: dict[str, str], project: str = "", trusted: bool = False
    ) -> None:
        self.values = values
        self.origins = origins
        self.project = project
        self.trusted = trusted
        self.diagnostics: list[Diagnostic] = []

    def put(self, layer: Mapping[str, Found]) -> None:
        """Lay checked values over these."""
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


def read_layers(
    start: Path | str, environ: Mapping[str, str], options: Mapping[str, Mapping[str, Any]] | None = None
) -> Layers:
    """Return what holds for a notebook in the folder `start`; arguments and errors as those of `load_settings`."""
    folder = Path(start).expanduser().resolve()
    given = [read_options(label, values) for label, values in (options or {}).items()]
    environment = read_environment(environ)
    layers = Layers({key.name: key.default for key in KEYS.values()}, {})
    layers.values["home"] = home = _home(environment, given)
    layers.put(read_file(Path(home) / "settings.toml") or {})
    project = find_project(folder, layers.diagnostics)
    where = folder if project is None else project.folder
    layers.project, layers.trusted = str(where), is_trusted(where, home)
    if project is not None:
        if layers.trusted:
            layers.put(project.layer)
        else:
            layers.diagnostics += layers.put_untrusted(project)
    layers.put(environment)
    for layer in given:
        layers.put(layer)
    return layers


def _home(environment: Mapping[str, Found], given: list[dict[str, Found]]) -> str:
    home = expanded(KEYS["home"].default, None) if "home" not in environment else str(environment["home"].value)
    for layer in given:
        if "home" in layer:
            home = str(layer["home"].value)
    if not Path(home).is_absolute():
        raise SettingsError(f"home = {home!r} is not a whole path; give one that starts at the root")
    return home
