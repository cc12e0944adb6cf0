"""The catalog of the selector's test: `skills.txt` beside this file, read, or written as folders.

    python tests/skills/catalog/build.py FOLDER

One line is a skill: name, description, a request for which it is the right one, and the skill to
which the words of the request tempt (a near miss) if there is one. Bodies carry no hints of their own.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

TABLE = Path(__file__).parent / "skills.txt"
BODY = "# {name}\n\n1. Ask what is not clear.\n2. {description}\n3. Show the result, and say what was left out.\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A skill with its request; `near` is "" when the request tempts to no other."""

    name: str
    description: str
    request: str
    near: str


def cases() -> list[Case]:
    """Return the catalog."""
    rows = [line.split("|") for line in TABLE.read_text("utf-8").splitlines() if line and line[0] != "#"]
    return [Case(name=a.strip(), description=b.strip(), request=c.strip(), near=d.strip()) for a, b, c, d in rows]


def write(folder: Path, count: int | None = None) -> None:
    """Write the first `count` skills as folders."""
    for case in cases()[:count]:
        place = folder / case.name
        place.mkdir(parents=True)
        head = f'name: {case.name}\ndescription: "{case.description}"\n'
        body = BODY.format(name=case.name, description=case.description)
        (place / "SKILL.md").write_text(f"---\n{head}---\n\n{body}", "utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
