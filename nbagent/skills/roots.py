"""Where skills are looked for: the roots in order of precedence, and the bounds of a scan."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

Source: TypeAlias = Literal[
    "extra", "bundled", "managed", "claude-personal", "agents-personal",
    "claude-project", "agents-project", "workspace",
]  # fmt: skip
PRECEDENCE: Final[tuple[Source, ...]] = (
    "extra", "bundled", "managed", "claude-personal", "agents-personal",
    "claude-project", "agents-project", "workspace",
)  # fmt: skip
_PROJECT: Final = frozenset({"claude-project", "agents-project", "workspace"})
_PERSONAL: Final = frozenset({"managed", "claude-personal", "agents-personal"})
BUNDLED: Final = Path(__file__).parent / "bundled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """A folder that holds skills. `within` is the folder it must not lead out of, "" where it may."""

    path: str
    source: Source
    within: str = ""

    @property
    def of_project(self) -> bool:
        """Whether it comes with the project, and so counts only when that is trusted."""
        return self.source in _PROJECT

    @property
    def takes_links(self) -> bool:
        """Whether folders in it may be links to anywhere: the person's own roots (OpenClaw since 5.x)."""
        return self.source in _PERSONAL


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of the scan of one root; the remaining ones follow from them as in OpenClaw."""

    max_candidates: int = 10_000
    max_loaded: int = 10_000
    depth: int = 6  # OpenClaw: grouped folders
    extra_depth: int = 2  # OpenClaw: an extra folder that is not called `skills`

    @property
    def max_entries(self) -> int:
        """Entries of one folder that are looked at."""
        return max(1_000, 10 * self.max_candidates)

    @property
    def max_folders(self) -> int:
        """Folders that are listed."""
        return 6 * self.max_candidates


OPENCLAW_LIMITS: Final = Limits(max_candidates=300, max_loaded=200)  # 2026.5.28


def skill_roots(
    folder: Path, home: Path, *, person: Path, extra_dirs: Sequence[str] = (), project: Path | None = None,
    bundled: Path = BUNDLED,
) -> tuple[Root, ...]:  # fmt: skip
    """Return the roots, lowest precedence first; of two that are the same folder only the first counts.

    `folder` is the notebook's, `project` the project's when that is another; `home` is
    nbagent's, `person` the person's home folder.
    """
    found: dict[str, Root] = {}
    for root in _all_roots(folder, home, person=person, extra_dirs=extra_dirs, project=project, bundled=bundled):
        found.setdefault(os.path.realpath(root.path), root)
    return tuple(found.values())


def _all_roots(
    folder: Path, home: Path, *, person: Path, extra_dirs: Sequence[str], project: Path | None, bundled: Path
) -> Iterator[Root]:
    for path in extra_dirs:
        yield Root(path=os.path.abspath(os.path.expanduser(path)), source="extra")
    yield Root(path=str(bundled), source="bundled")
    yield Root(path=str(home / "skills"), source="managed")
    yield Root(path=str(person / ".claude" / "skills"), source="claude-personal")
    yield Root(path=str(person / ".agents" / "skills"), source="agents-personal")
    folders = [folder] if project is None or project == folder else [project, folder]
    for source, below in (("claude-project", ".claude/skills"), ("agents-project", ".agents/skills")):
        for base in folders:
            yield Root(path=str(base / below), source=source, within=str(base))  # type: ignore[arg-type]
    for base in folders:
        yield Root(path=str(base / "skills"), source="workspace", within=str(base))
