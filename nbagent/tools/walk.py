"""Files below a folder in a fixed order, and glob patterns over their paths."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from nbagent.core.errors import ToolError

SKIPPED_FOLDERS: Final = frozenset(
    {".git", "node_modules", ".venv", "__pycache__", ".ipynb_checkpoints", ".nbagent"}
    | {".mypy_cache", ".ruff_cache", ".pytest_cache"}
)
MAX_PATTERN_CHARS: Final = 500
MAX_ALTERNATIVES: Final = 64


@dataclass(slots=True)
class Walk:
    """A walk below `start` that ends at a deadline.

    Links to folders are not followed, links to files only inside `root`. `clock` counts seconds up.
    `complete` turns False when time or the number of entries ran out.
    """

    start: Path
    root: Path
    clock: Callable[[], float]
    limit_s: float = 10.0
    limit_entries: int = 200_000
    complete: bool = field(default=True, init=False)

    def files(self) -> Iterator[str]:
        """Yield files as paths relative to `start`, with "/", sorted folder by folder."""
        deadline = self.clock() + self.limit_s
        left = self.limit_entries
        stack = [""]
        real_root = os.path.realpath(self.root)
        while stack:
            folder = stack.pop()
            folders: list[str] = []
            for entry in self._entries(folder):
                left -= 1
                if left < 0 or self.clock() > deadline:
                    self.complete = False
                    return
                name = f"{folder}{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in SKIPPED_FOLDERS:
                        folders.append(f"{name}/")
                elif entry.is_file() and not (entry.is_symlink() and not _leads_into(entry.path, real_root)):
                    yield name
            stack.extend(reversed(folders))

    def _entries(self, folder: str) -> Sequence[os.DirEntry[str]]:
        try:
            with os.scandir(os.path.join(self.start, folder)) as found:
                return sorted(found, key=lambda e: e.name)
        except OSError:
            return ()


def _leads_into(path: str, real_root: str) -> bool:
    target = os.path.realpath(path)
    return target == real_root or target.startswith(real_root.rstrip(os.sep) + os.sep)


def compile_glob(pattern: str) -> Callable[[str], bool]:
    """Return a predicate on paths with "/".

    "*" and "?" stay inside a name, "**" is any number of folders, {a,b} either of both.

    Raises:
        ToolError: the pattern is absolute, leads upwards, or is too long.

    >>> matches = compile_glob("src/**/*.{py,pyi}")
    >>> [matches(p) for p in ("src/a.py", "src/x/y/b.pyi", "a.py")]
    [True, True, False]
    """
    if not pattern or len(pattern) > MAX_PATTERN_CHARS:
        raise ToolError(f"glob pattern must have 1 to {MAX_PATTERN_CHARS} characters, this one has {len(pattern)}")
    if pattern.startswith(("/", "~")) or ".." in pattern.split("/"):
        raise ToolError(f"glob pattern {pattern!r} must be relative; give the folder as path")
    alternatives = [_segments(p) for p in _expand_braces(pattern)]
    return lambda path: any(_matches(a, path.split("/")) for a in alternatives)


def _segments(pattern: str) -> list[re.Pattern[str] | None]:
    """Return a pattern for each name; None stands for "**"."""
    parts: list[re.Pattern[str] | None] = []
    for part in pattern.removeprefix("./").split("/"):
        if part == "**":
            if not parts or parts[-1] is not None:
                parts.append(None)
        elif part:
            parts.append(re.compile(fnmatch.translate(part)))
    if parts and parts[-1] is None:
        parts.append(re.compile(fnmatch.translate("*")))
    return parts


def _matches(segments: Sequence[re.Pattern[str] | None], names: Sequence[str]) -> bool:
    """Match from the left, keeping the set of segments that can come next: linear in names times segments."""
    states = {0}
    for name in names:
        ahead = states | {s + 1 for s in states if s < len(segments) and segments[s] is None}
        states = set()
        for state in ahead:
            if state < len(segments):
                segment = segments[state]
                if segment is None:
                    states.add(state)
                elif segment.match(name):
                    states.add(state + 1)
    return len(segments) in states


def _expand_braces(pattern: str) -> list[str]:
    """Return the alternatives of {a,b}, innermost first; a lone brace stands for itself."""
    done: list[str] = []
    waiting = [pattern]
    while waiting:
        current = waiting.pop()
        found = re.search(r"\{([^{}]*,[^{}]*)\}", current)
        if found is None:
            done.append(current)
        else:
            waiting += [current[: found.start()] + option + current[found.end() :] for option in found[1].split(",")]
        if len(done) + len(waiting) > MAX_ALTERNATIVES:
            raise ToolError(f"glob pattern {pattern!r} has more than {MAX_ALTERNATIVES} alternatives; split it")
    return done
