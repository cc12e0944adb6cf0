"""Time the scan of many skills against python-frontmatter (C loader) reading the same files.

    python benchmarks/skills.py [COUNT ...]

Prints, for 1,000 and 10,000 skills on disk: first catalog / python-frontmatter (needed: at most 1)
and unchanged second catalog / python-frontmatter (at most 0.06). Catalog means all of it: scan, merge,
gates, skills as values. Each number is the least CPU time of several runs, all in one process.
"""

from __future__ import annotations

import gc
import random
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import frontmatter
import yaml

from nbagent.skills.loading import load_catalog

# How often a shape occurs among 3,863 public SKILL.md files (reference/claude.md G), in percent.
SHAPES = (
    (62, 'name: {n}\ndescription: {d}\n'),
    (8, 'name: {n}\ndescription: "{d}: when asked"\nlicense: MIT\n'),
    (20, 'name: {n}\ndescription: {d}\nmetadata: {{"openclaw": {{"emoji": "x", "requires": {{"bins": ["sh"]}}}}}}\n'),
    (4, 'name: {n}\ndescription: >\n  {d}\n  {d}\nallowed-tools: Read Grep\n'),
    (6, 'name: {n}\ndescription: {d}\nmetadata:\n  author: somebody\n  version: "1.0"\n'),
)  # fmt: skip
WORDS = [
    "reads",
    "writes",
    "checks",
    "a",
    "table",
    "of",
    "figures",
    "plots",
    "models",
    "tests",
    "data",
    "when",
    "the",
    "user",
    "asks",
    "for",
    "reports",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plain:
    """The default settings."""

    mode: str = "nbagent"
    extra_dirs: tuple[str, ...] = ()
    allow_bundled: tuple[str, ...] = ()
    entries: dict[str, object]
    trust: tuple[str, ...] = ()


def write_skills(folder: Path, count: int) -> None:
    """Write skills whose lengths are those of the public ones: description 195 characters, body 3.7 KB."""
    rng = random.Random(4)
    kinds = rng.choices([s for _, s in SHAPES], [w for w, _ in SHAPES], k=count)
    for i, kind in enumerate(kinds):
        name = f"skill-{i:05d}"
        words = " ".join(rng.choices(WORDS, k=34))
        body = "\n".join(" ".join(rng.choices(WORDS, k=12)) for _ in range(60))
        (folder / name).mkdir(parents=True)
        (folder / name / "SKILL.md").write_text(f"---\n{kind.format(n=name, d=words)}---\n\n# {name}\n\n{body}\n")


def least(work: Callable[[], object], *, runs: int) -> float:
    """Return the least CPU time of `runs` runs, in seconds."""
    times = []
    for _ in range(runs):
        gc.collect()
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def measure(count: int) -> tuple[float, float]:
    """Print one line for `count` skills; return both ratios."""
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        write_skills(root / "skills", count)
        paths = sorted((root / "skills").glob("*/SKILL.md"))
        settings = Plain(entries={})

        def load(before: object = None) -> object:
            return load_catalog(
                settings, root, root / "home", True, 200_000, {"PATH": "/bin", "HOME": scratch}, None, before,
                bundled=root / "none", now_ns=time.time_ns(),
            )  # fmt: skip

        def second() -> object:
            again = load(catalog)
            assert again is catalog
            return again

        runs = 5 if count <= 2_000 else 3
        theirs = least(lambda: [frontmatter.load(str(p)) for p in paths], runs=runs)
        first = least(load, runs=runs)
        catalog = load()
        assert len(catalog) == count, len(catalog)
        again = least(second, runs=2 * runs)
        print(
            f"{count:,} skills: python-frontmatter {theirs * 1e3:.0f} ms; first {first * 1e3:.0f} ms = {first / theirs:.2f}x "
            f"(at most 1); unchanged {again * 1e3:.1f} ms = {again / theirs:.3f}x (at most 0.06)"
        )
        return first / theirs, again / theirs


def main() -> int:
    """Measure and compare with what is needed."""
    if not yaml.__with_libyaml__:
        print("PyYAML has no C loader here: the comparison would be too kind")
        return 1
    counts = [int(a) for a in sys.argv[1:]] or [1_000, 10_000]
    ratios = [measure(count) for count in counts]
    return int(any(first > 1 or again > 0.06 for first, again in ratios))


if __name__ == "__main__":
    sys.exit(main())
