"""Makes the Catalog: scan, merge, gate; cheap when nothing changed since the last one."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from nbagent.core.errors import Diagnostic
from nbagent.skills.catalog import Catalog, Skill, merge
from nbagent.skills.discovery import Scan, SkillFile, scan
from nbagent.skills.gating import Host, Rules, gate, same_name
from nbagent.skills.prompt import Way, budget_chars
from nbagent.skills.roots import BUNDLED, Limits, skill_roots

DEFAULT_LIMITS = Limits()


class SkillSettings(Protocol):
    """The settings `skills.*`."""

    @property
    def mode(self) -> str: ...
    @property
    def extra_dirs(self) -> tuple[str, ...]: ...
    @property
    def allow_bundled(self) -> tuple[str, ...]: ...
    @property
    def entries(self) -> Mapping[str, Any]: ...
    @property
    def trust(self) -> tuple[str, ...]: ...


def way_of(mode: str) -> Way:
    """Return how skills are given in a mode: "tool" (Claude Code) through the tool, all others by reading."""
    return "tool" if mode == "tool" else "read"


def load_catalog(
    settings: SkillSettings, folder: Path, home: Path, trusted: bool, window_tokens: int, environ: Mapping[str, str],
    agent_filter: Collection[str] | None = None, snapshot: Catalog | None = None, *, project: Path | None = None,
    person: Path | None = None, uses: Mapping[str, int] | None = None, config: Callable[[str], Any] = lambda path: None,
    limits: Limits = DEFAULT_LIMITS, bundled: Path = BUNDLED, system: str = sys.platform,
    now_ns: int = 0,
) -> Catalog:  # fmt: skip
    """Return the skills as they are now; the very same catalog object when nothing changed since `snapshot`.

    `home` is nbagent's folder, `person` the person's (default: HOME). `trusted` is about the
    project; `uses` counts earlier uses by name; `config` looks up dotted settings for
    `requires.config`; `now_ns` is the time, see `scan`.
    `mode` "tool" gives skills through a tool, "read" lists OpenClaw's way, "nbagent" (default)
    reads and offers `find_skills`.
    """
    person = person or Path(environ.get("HOME") or environ.get("USERPROFILE") or Path.home())
    roots = skill_roots(folder, home, person=person, extra_dirs=settings.extra_dirs, project=project, bundled=bundled)
    before = None if snapshot is None else snapshot.scan
    found = scan(roots, limits=limits, before=before, now_ns=now_ns)
    path = environ.get("PATH", "")
    inputs = (
        settings.mode, settings.allow_bundled, repr(settings.entries), settings.trust, trusted, window_tokens, roots,
        None if agent_filter is None else frozenset(agent_filter), tuple(sorted((uses or {}).items())),
        system, path, _folder_times(path),
        frozenset(n for n in found.variables if environ.get(n)), frozenset(p for p in found.settings if config(p)),
    )  # fmt: skip
    if snapshot is not None and found is before and inputs == snapshot.inputs:
        return snapshot
    programs: dict[str, bool] = {}
    host = Host(system=system, has_program=_programs(path, programs), environ=environ, config=config)
    making = _Making(
        settings=settings, trusted=trusted, host=host, uses={same_name(k): v for k, v in (uses or {}).items()},
        rules=Rules(entries=settings.entries, allow_bundled=settings.allow_bundled, agent_filter=agent_filter),
        shown=_Locations(folder=os.path.realpath(folder), homes=_homes(person)),
    )  # fmt: skip
    return making.catalog(found, limit_chars=budget_chars(window_tokens), inputs=inputs)


def _folder_times(path: str) -> tuple[int, ...]:
    """Return when the folders of PATH changed: a program that was just installed is seen."""
    times = []
    for folder in path.split(os.pathsep):
        try:
            times.append(os.stat(folder or ".").st_mtime_ns)
        except (OSError, ValueError):
            times.append(0)
    return tuple(times)


def _programs(path: str, known: dict[str, bool]) -> Callable[[str], bool]:
    def has_program(name: str) -> bool:
        if name not in known:
            known[name] = bool(name) and os.sep not in name and shutil.which(name, path=path) is not None
        return known[name]

    return has_program


def _homes(person: Path) -> tuple[str, ...]:
    """Return the forms of the home folder, longest first; none for the root of the file system."""
    forms = {os.path.abspath(person), os.path.realpath(person)} - {os.path.abspath(os.sep)}
    return tuple(sorted(forms, key=lambda f: (-len(f), f)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Locations:
    """Writes paths as the model is given them: from the notebook's folder, else with `~` for the home folder."""

    folder: str
    homes: tuple[str, ...]

    def of(self, path: str) -> str:
        for base, before in ((self.folder, ""), *((h, "~/") for h in self.homes)):
            if path.startswith(base) and path[len(base) : len(base) + 1] == os.sep:
                return before + path[len(base) + 1 :].replace(os.sep, "/")
        return path


@dataclass(frozen=True, slots=True, kw_only=True)
class _Making:
    """Everything that decides on the skills of one catalog."""

    settings: SkillSettings
    trusted: bool
    host: Host
    rules: Rules
    uses: Mapping[str, int]
    shown: _Locations

    def catalog(self, found: Scan, *, limit_chars: int, inputs: object) -> Catalog:
        merged = merge(found.files, trusted=self.is_trusted)
        notes: list[Diagnostic] = [*found.diagnostics, *merged.diagnostics]
        for file in found.files:
            notes += file.diagnostics
        return Catalog(
            [self.skill(f) for f in merged.files], diagnostics=notes, way=way_of(self.settings.mode),
            search=self.settings.mode == "nbagent", limit_chars=limit_chars, scan=found, inputs=inputs,
        )  # fmt: skip

    def skill(self, file: SkillFile) -> Skill:
        manifest = file.manifest
        assert manifest is not None
        trusted = self.is_trusted(file)
        verdict = gate(manifest, file.source, rules=self.rules, host=self.host, trusted=trusted)
        return Skill(
            name=manifest.name, description=manifest.description, source=file.source, path=file.path,
            visible=verdict.visible, reason=verdict.reason, usable=verdict.usable, trusted=trusted,
            uses=self.uses.get(same_name(manifest.name), 0) if self.uses else 0,
            location=self.shown.of(file.path), file=file, manifest=manifest,
        )  # fmt: skip

    def is_trusted(self, file: SkillFile) -> bool:
        """Tell whether a skill may be used: it is the person's, or its project or itself is trusted."""
        if self.trusted or file.source not in ("claude-project", "agents-project", "workspace"):
            return True
        names = self.settings.trust
        if not names or file.manifest is None:
            return False
        name, folder = same_name(file.manifest.name), os.path.join(file.folder, "")
        return any(n == "*" or same_name(n) == name or folder.startswith(os.path.join(n, "")) for n in names)
