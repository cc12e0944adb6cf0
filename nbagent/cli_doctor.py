"""`nbagent doctor`: what is installed, set and kept here, and what is wrong, each with a remedy."""

from __future__ import annotations

import json
import platform
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version

from nbagent import __version__
from nbagent.core.errors import Diagnostic, JournalDamaged, SettingsError, counted, one_line
from nbagent.runtime.doors import kept_sessions, model_is_ready
from nbagent.runtime.places import known_sessions
from nbagent.store.secrets import scrub, secret_values
from nbagent.store.settings import Settings, load_settings
from nbagent.store.verify import verify

DISTRIBUTION = "jupyter-nbagent"
OPTIONAL = ("jupyterlab", "nbclient", "pandas", "matplotlib")
KEYS = (
    "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "OPENAI_API_KEY", "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
)  # fmt: skip
FIRST_SUBSHELLS = Version("7")  # ipykernel 7.0 runs comm messages beside a busy cell (JEP 91)


@dataclass(slots=True, kw_only=True)
class Findings:
    """What was looked at: `sections` maps a title to its rows; `problems` make the exit code 1, `notes` do not."""

    sections: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    problems: list[Diagnostic] = field(default_factory=list)
    notes: list[Diagnostic] = field(default_factory=list)

    def row(self, section: str, name: str, value: object) -> None:
        """Add a row to a section."""
        self.sections.setdefault(section, []).append((name, str(value)))

    def problem(self, where: str, cause: str, remedy: str) -> None:
        """Add what is wrong."""
        self.problems.append(Diagnostic(path=where, line=None, cause=one_line(cause), remedy=remedy))

    def note(self, where: str, cause: str, remedy: str) -> None:
        """Add what is good to know."""
        self.notes.append(Diagnostic(path=where, line=None, cause=one_line(cause), remedy=remedy))


def doctor(folder: Path, environ: Mapping[str, str], *, as_json: bool) -> int:
    """Print the findings for `folder`; 1 when there is a problem."""
    found = examine(folder, environ)
    print(to_json(found) if as_json else to_text(found))
    return int(bool(found.problems))


def examine(folder: Path, environ: Mapping[str, str]) -> Findings:
    """Look at everything; changes nothing."""
    found = Findings()
    found.row("python", "python", f"{platform.python_version()} ({sys.executable})")
    found.row("python", "system", f"{platform.system()} {platform.machine()}")
    _packages(found)
    for name in KEYS:
        found.row("keys", name, "set" if environ.get(name) else "not set")
    try:
        settings = load_settings(folder, environ)
    except SettingsError as error:
        cause, _, remedy = str(error).rpartition("; ")
        found.problem("settings", cause or str(error), remedy or "correct it")
    else:
        _settings(found, settings, environ)
        _writable(found, "home", Path(settings.home))
    _writable(found, "folder", folder)
    _sessions(found, folder)
    return found


def _packages(found: Findings) -> None:
    found.row("packages", "nbagent", __version__)
    try:
        requirements = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        found.problem("packages", f"{DISTRIBUTION} runs without being installed", "pip install . in its clone")
        requirements = []
    for requirement in _required(requirements):
        version = _version(requirement.name)
        found.row("packages", requirement.name, version or "missing")
        if version is None or not requirement.specifier.contains(version, prereleases=True):
            has = f"is {version}" if version else "is missing"
            found.problem("packages", f"{requirement.name} {has}", f"pip install '{requirement}'")
    for name in OPTIONAL:
        found.row("packages", f"{name} (optional)", _version(name) or "not installed")
    if _version("jupyterlab") is None:
        found.note("packages", "jupyterlab is not installed", "'nbagent demo' needs it: pip install '.[lab]'")
    _kernel(found)


def _required(lines: Iterable[str]) -> list[Requirement]:
    out = []
    for line in lines:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            out.append(requirement)
    return sorted(out, key=lambda r: r.name)


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _kernel(found: Findings) -> None:
    version = _version("ipykernel")
    try:
        subshells = version is not None and Version(version) >= FIRST_SUBSHELLS
    except InvalidVersion:
        subshells = False
    found.row("kernel", "subshells", "yes" if subshells else "no")
    if version is not None and not subshells:
        cause = f"ipykernel {version} has no subshells: buttons answer only when no cell runs"
        found.note("kernel", cause, "pip install -U 'ipykernel>=7'")


def _settings(found: Findings, settings: Settings, environ: Mapping[str, str]) -> None:
    secrets = secret_values(environ)
    for key, value, origin in settings.rows():
        shown = "none" if value is None else json.dumps(value, ensure_ascii=False, default=str)
        found.row("settings", key, f"{scrub(shown, secrets)} ({origin})")
    found.row("project", "folder", settings.project)
    found.row("project", "trusted", "yes" if settings.trusted else "no")
    found.notes.extend(settings.diagnostics)
    if not model_is_ready(settings, environ):
        remedy = "set ANTHROPIC_API_KEY to call a model; recordings play without one"
        found.note("keys", f"no key for {settings.model}", remedy)


def _writable(found: Findings, name: str, folder: Path) -> None:
    try:
        nearest = next(p for p in (folder, *folder.parents) if p.exists())
        with tempfile.TemporaryFile(dir=nearest):
            pass
        found.row("project" if name == "folder" else "home", f"{name} writable", f"yes ({folder})")
    except OSError as error:
        found.row("project" if name == "folder" else "home", f"{name} writable", f"no ({folder})")
        remedy = "set NBAGENT_HOME to a folder of yours" if name == "home" else "sessions are kept here; allow writing"
        found.problem(str(folder), f"cannot be written ({error.strerror or error})", remedy)


def _sessions(found: Findings, folder: Path) -> None:
    try:
        for kept in kept_sessions(folder):
            found.row("sessions", kept.name, f"{counted(kept.turns, 'turn')}, {kept.notebook or 'no notebook'}")
        for session in known_sessions(folder):
            if (session.folder / "journal.jsonl").exists():
                found.problems.extend(verify(session.folder / "journal.jsonl"))
    except (OSError, JournalDamaged) as error:
        found.problem(str(folder / ".nbagent"), str(error), "look at the file named")
    if "sessions" not in found.sections:
        found.row("sessions", "here", "none")


def to_text(found: Findings) -> str:
    """Return the findings as text, a section a paragraph."""
    lines: list[str] = []
    for title, rows in found.sections.items():
        width = max(len(name) for name, _ in rows)
        lines += [title, *(f"  {name:<{width}}  {value}" for name, value in rows), ""]
    lines += [f"note: {d}" for d in found.notes]
    lines += [f"problem: {d}" for d in found.problems]
    count = len(found.problems)
    lines.append("No problems." if not count else f"{count} problem{'s' if count > 1 else ''}.")
    return "\n".join(lines)


def to_json(found: Findings) -> str:
    """Return the findings as a JSON object."""

    def told(diagnostics: Iterable[Diagnostic]) -> list[dict[str, object]]:
        return [{"path": d.path, "line": d.line, "cause": d.cause, "remedy": d.remedy} for d in diagnostics]

    sections = {title: dict(rows) for title, rows in found.sections.items()}
    out = {"ok": not found.problems, **sections, "notes": told(found.notes), "problems": told(found.problems)}
    return json.dumps(out, ensure_ascii=False, indent=1)
