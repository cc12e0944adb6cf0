"""Which skills the model is told of, and why not the others: OpenClaw's gates in OpenClaw's order.

Order (2026.5.28): switched off; not on the list of bundled ones; operating system; `always` ends the
questions; programs; any of some programs; environment; configuration; then the agent's filter and
`disable-model-invocation`. Before all of them comes trust, which OpenClaw does not have.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from nbagent.skills.manifest import Manifest, Requirements
from nbagent.skills.roots import Source

_SYSTEMS: Final = {"macos": "darwin", "mac": "darwin", "osx": "darwin", "windows": "win32", "win": "win32"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What is here: operating system as Python names it, programs, variables, settings.

    `config` returns the value of a dotted setting, None when there is none. The `remote` fields
    are what connected machines add.
    """

    system: str
    has_program: Callable[[str], bool]
    environ: Mapping[str, str]
    config: Callable[[str], Any] = lambda path: None
    remote_systems: frozenset[str] = frozenset()
    remote_programs: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the person set. `agent_filter` None lets all pass, an empty one none; `allow_bundled` empty allows all."""

    entries: Mapping[str, Any] = field(default_factory=dict)
    allow_bundled: tuple[str, ...] = ()
    agent_filter: Collection[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """`visible`: the model is told. `usable`: the person can run it. `reason` says why not visible, "" when it is."""

    visible: bool
    usable: bool
    reason: str = ""


SHOWN: Final = Verdict(visible=True, usable=True)


def same_name(name: str) -> str:
    """Return what is equal for two names that differ in case or Unicode form only.

    >>> same_name("Cafe\\u0301") == same_name("caf\\u00e9")
    True
    """
    return name.lower() if name.isascii() else unicodedata.normalize("NFKC", name).casefold()


def gate(manifest: Manifest, source: Source, *, rules: Rules, host: Host, trusted: bool = True) -> Verdict:
    """Decide on one skill. Pure: `host` answers what is there."""
    if not trusted:
        return _out("it comes with a project that is not trusted yet; 'nbagent trust' accepts it")
    entry: Mapping[str, Any] = {}
    if rules.entries:
        entry = _entry(manifest, rules.entries)
        if entry.get("enabled") is False:
            return _out(f"it is switched off: skills.entries.{manifest.requires.key or manifest.name}.enabled = false")
    if rules.allow_bundled and source == "bundled" and not _allowed(manifest, rules.allow_bundled):
        return _out("it is not among skills.allow_bundled")
    missing = "" if not manifest.metadata else _missing(manifest.requires, host, entry)
    if missing:
        return _out(missing)
    if rules.agent_filter is not None and not _allowed(manifest, rules.agent_filter):
        return _out("it is not among the skills of this agent")
    if not manifest.model_invocable:
        return _quiet("the model may not choose it (disable-model-invocation); run it yourself")
    if manifest.derived:
        return _quiet("it has no description, so the model could not choose it; run it yourself")
    return SHOWN


def _out(reason: str) -> Verdict:
    return Verdict(visible=False, usable=False, reason=reason)


def _quiet(reason: str) -> Verdict:
    return Verdict(visible=False, usable=True, reason=reason)


def _entry(manifest: Manifest, entries: Mapping[str, Any]) -> Mapping[str, Any]:
    found = entries.get(manifest.requires.key or manifest.name)
    if found is None:
        found = next((v for k, v in entries.items() if same_name(k) == same_name(manifest.name)), {})
    return found if isinstance(found, Mapping) else {}


def _allowed(manifest: Manifest, names: Collection[str]) -> bool:
    return bool({manifest.requires.key, manifest.name} & set(names))


def _missing(needs: Requirements, host: Host, entry: Mapping[str, Any]) -> str:
    """Return what is missing here, "" when nothing is."""
    if needs.systems:
        systems = {_SYSTEMS.get(s.lower(), s.lower()) for s in needs.systems}
        if not systems & {host.system, *host.remote_systems}:
            return f"it is for {', '.join(needs.systems)}, this is {host.system}"
    if needs.always:
        return ""
    absent = [b for b in needs.bins if not _has(host, b)]
    if absent:
        return f"it needs {', '.join(absent)} on PATH"
    if needs.any_bins and not any(_has(host, b) for b in needs.any_bins):
        return f"it needs one of {', '.join(needs.any_bins)} on PATH"
    for name in needs.env:
        if not _has_variable(name, needs, host, entry):
            return f"it needs the environment variable {name}"
    for path in needs.config:
        if not host.config(path):
            return f"it needs the setting {path}"
    return ""


def _has(host: Host, program: str) -> bool:
    return program in host.remote_programs or host.has_program(program)


def _has_variable(name: str, needs: Requirements, host: Host, entry: Mapping[str, Any]) -> bool:
    given = entry.get("env")
    if host.environ.get(name) or (isinstance(given, Mapping) and given.get(name)):
        return True
    return name == needs.primary_env and bool(entry.get("apiKey") or entry.get("api_key"))
