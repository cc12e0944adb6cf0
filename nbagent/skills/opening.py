"""Opens a skill to be used: reads it again, checks that it is still the one listed, names what lies beside it."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nbagent.core.errors import ToolError
from nbagent.skills.catalog import Catalog, Skill
from nbagent.skills.discovery import NEVER, digest_of, inside, read_bytes
from nbagent.skills.invoke import Rendered, render
from nbagent.skills.manifest import parse_manifest
from nbagent.skills.prompt import escaped

MAX_RESOURCES: Final = 40
MAX_LOOKED_AT: Final = 2_000  # entries, so that a skill beside a data set does not take seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """The files beside a SKILL.md, by path from its folder; `more` counts those not listed, `bounded` says at least."""

    paths: tuple[str, ...]
    more: int = 0
    bounded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """A skill ready to be used: `rendered` has its text, `allowed_tools` what it may do without being asked.

    `allowed_tools` count for the invoking turn only, and only of a trusted skill. `fork`: it runs
    in a context of its own and only its answer comes back. `changed`: the file is not as listed.
    """

    skill: Skill
    arguments: str
    body: str
    rendered: Rendered
    resources: Resources
    allowed_tools: tuple[str, ...]
    disallowed_tools: tuple[str, ...]
    fork: bool
    agent: str
    model: str
    changed: bool

    def text(self, outputs: list[str] | None = None) -> str:
        """Return what the model reads: the text with its place and what lies beside it."""
        lines = [f'<skill_content name="{escaped(self.skill.name)}">', self.rendered.text(outputs), ""]
        lines.append(f"Folder of this skill: {escaped(self.skill.folder)}; paths in it start there.")
        if self.resources.paths:
            more = f"{'at least ' if self.resources.bounded else ''}{self.resources.more} more"
            rest = f", and {more}, not listed" if self.resources.more else ""
            lines.append(f"Beside it: {', '.join(escaped(p) for p in self.resources.paths)}{rest}.")
        return "\n".join([*lines, "</skill_content>"])


def invoke(
    catalog: Catalog, name: str, arguments: str = "", *, by_model: bool = True, running: Collection[str] = (),
    variables: Mapping[str, str] | None = None,
) -> Invocation:  # fmt: skip
    """Return the skill `name` of the catalog, ready to be used with `arguments`; runs nothing.

    `by_model`: the model chose it, so it must be visible; a person may also use one that is only
    hidden from the model. `running` names the skills whose fork this is. `variables` are further
    `${...}`, such as CLAUDE_SESSION_ID.

    Raises:
        ToolError: unknown, hidden, running already, gone, moved out of its folder, or broken since.
    """
    skill = _found(catalog, name, by_model=by_model)
    if skill.name in running:
        raise ToolError(f"skill {skill.name!r} is running already, in this very context; follow its text instead")
    raw = _read(skill)
    parsed = parse_manifest(raw, path=skill.path, folder=os.path.basename(skill.folder))
    if parsed.manifest is None:
        raise ToolError(f"skill {skill.name!r} cannot be used any more: {parsed.diagnostics[-1]}")
    manifest = parsed.manifest
    known = {**(variables or {}), "CLAUDE_SKILL_DIR": skill.folder}
    rendered = render(parsed.body, arguments, names=manifest.arguments, variables=known)
    return Invocation(
        skill=skill, arguments=arguments, body=parsed.body, rendered=rendered, resources=list_resources(skill.folder),
        allowed_tools=manifest.allowed_tools if skill.trusted else (), disallowed_tools=manifest.disallowed_tools,
        fork=manifest.fork, agent=manifest.agent, model=manifest.model, changed=digest_of(raw) != skill.file.digest,
    )  # fmt: skip


def read_body(skill: Skill) -> str:
    """Return the text of a skill's file as it is now, without its frontmatter.

    Raises:
        ToolError: gone, or moved out of its folder.
    """
    return parse_manifest(_read(skill), path=skill.path, folder=os.path.basename(skill.folder)).body


def _found(catalog: Catalog, name: str, *, by_model: bool) -> Skill:
    skill = catalog.named(name)
    if skill is None or (by_model and not skill.visible and not skill.reason):
        names = [s.name for s in catalog.visible]
        shown = ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
        also = "; find_skills finds one by what the task is" if catalog.search else ""
        raise ToolError(f"there is no skill {name[:80]!r}; there are {shown or 'none'}{also}")
    if not (skill.visible or (skill.usable and not by_model)):
        raise ToolError(f"skill {skill.name!r} cannot be used: {skill.reason}")
    return skill


def _read(skill: Skill) -> bytes:
    """Return the bytes of a skill's file as it is now; its real path must still be inside its folder."""
    real = os.path.realpath(skill.path)
    if not inside(real, skill.folder):
        raise ToolError(f"skill {skill.name!r}: {skill.path} now leads to {real}, out of its folder; it is not read")
    try:
        return read_bytes(real, os.lstat(real))
    except FileNotFoundError:
        raise ToolError(f"skill {skill.name!r} is gone: {skill.path} is not there any more; go on without it") from None
    except (OSError, ValueError) as error:
        raise ToolError(f"skill {skill.name!r} cannot be read: {skill.path}: {error}") from None


def list_resources(folder: str | Path, *, limit: int = MAX_RESOURCES) -> Resources:
    """Return the files beside a SKILL.md, at most `limit` named; none is opened, no link is followed."""
    found: list[str] = []
    looked_at = 0
    for path in _walk(str(folder), ""):
        looked_at += 1
        if looked_at > MAX_LOOKED_AT:
            break
        if path != "SKILL.md":
            found.append(path)
    return Resources(
        paths=tuple(found[:limit]), more=max(0, len(found) - limit), bounded=looked_at > MAX_LOOKED_AT
    )  # fmt: skip


def _walk(folder: str, before: str) -> Iterator[str]:
    """Yield files by name, those of a folder before those of its sub-folders."""
    try:
        with os.scandir(folder) as entries:
            names = sorted((e for e in entries if e.name[0] != "." and e.name not in NEVER), key=lambda e: e.name)
    except OSError:
        return
    yield from (before + e.name for e in names if e.is_file(follow_symlinks=False))
    for entry in names:
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(entry.path, f"{before}{entry.name}/")
