"""What `%skills` does beyond looking: text, lint, changes, uses, trust, a new skill. Imported at its first use."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from nbagent.core.entries import Entry
from nbagent.core.errors import Diagnostic, ToolError, UsageProblem
from nbagent.skills.catalog import Catalog, Skill
from nbagent.skills.lint import lint
from nbagent.skills.opening import read_body
from nbagent.skills.uses import LogRow, log_rows
from nbagent.store.files import remedy_for, write_whole
from nbagent.store.trust import trust

__all__ = [
    "Catalog", "Skill", "changes_since", "lint_skills", "new_skill", "skill_text", "trust_skill", "used_skills",
]  # fmt: skip

_NAME: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")  # Agent Skills specification
MAX_NAME_CHARS: Final = 64
TEMPLATE: Final = """\
---
name: {name}
description: {description}
---

# {title}

1. Say what to do first, and how to see that it was done.
2. Name the tools, files and numbers that matter.
3. Say what the answer must hold.
"""
BLANK: Final = "Says in one sentence what it does. Use when the person asks for it, in the words that people use."


def skill_text(skill: Skill) -> str:
    """Return the text of a skill's file below its frontmatter.

    Raises:
        UsageProblem: it is gone, or moved out of its folder.
    """
    try:
        return read_body(skill)
    except ToolError as error:
        raise UsageProblem(str(error)) from None


def lint_skills(catalog: Catalog, tools: Sequence[str]) -> tuple[Diagnostic, ...]:
    """Return what could be better in the skills; `tools` are those there are."""
    return lint(catalog, tools=tools)


def changes_since(before: Catalog, after: Catalog) -> str:
    """Return what changed between two looks, as the model is told it; "" when nothing did."""
    return after.delta(before)


def used_skills(entries: Iterable[Entry]) -> tuple[LogRow, ...]:
    """Return the uses of skills, oldest first."""
    return log_rows(entries)


def trust_skill(skill: Skill, home: Path) -> None:
    """Put the folder of one skill on the person's list.

    Raises:
        SettingsError: the list is damaged or cannot be written.
    """
    trust(skill.folder, home)


def new_skill(root: Path, name: str, description: str, *, home: Path) -> Path:
    """Write a skill to begin with into `root`, and trust it, since the person made it; returns its file.

    Raises:
        UsageProblem: the name cannot be one, or is taken.
    """
    if not _NAME.fullmatch(name) or len(name) > MAX_NAME_CHARS:
        raise UsageProblem(f"{name[:80]!r} cannot name a skill; use lower-case letters, digits and single hyphens")
    path = root / name / "SKILL.md"
    if path.parent.exists():
        raise UsageProblem(f"{str(path.parent)!r} is there already; choose another name, or edit its SKILL.md")
    told = " ".join(description.split()) or BLANK
    quoted = '"' + told.replace("\\", "\\\\").replace('"', '\\"') + '"' if re.search(r":\s|\s#|^\W", told) else told
    title = name.replace("-", " ").capitalize()
    try:
        path.parent.mkdir(parents=True)
        write_whole(path, TEMPLATE.format(name=name, description=quoted, title=title))
    except OSError as error:
        with contextlib.suppress(OSError):
            path.parent.rmdir()
        remedy = remedy_for(error, "check the folder")
        raise UsageProblem(f"{str(path)!r} cannot be written ({error.strerror}); {remedy}") from None
    trust(path.parent, home)
    return path
