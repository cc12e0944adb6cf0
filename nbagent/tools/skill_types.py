"""What the tools `skill` and `find_skills` need of the session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillHit:
    """A skill that was found: `location` is what `read` takes, "" where skills come through the tool `skill`."""

    name: str
    description: str
    location: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillRun:
    """A skill that was used. `text` is what the model reads: its instructions, or what its fork answered."""

    name: str
    text: str
    tokens: int
    forked: bool = False
    allowed_tools: tuple[str, ...] = ()


class Skills(Protocol):
    """The skills of this session, as tools may use them."""

    def find(self, query: str, limit: int) -> Sequence[SkillHit]:
        """Return the visible skills that fit a task best, best first."""
        ...

    def refusal(self, path: Path) -> str:
        """Return why the model may not read the real `path`, "" when it may: it belongs to a skill that is off."""
        ...

    async def run(self, name: str, arguments: str, *, call_id: str) -> SkillRun:
        """Use a skill: check, put in arguments, ask for its commands, fork where it says so; records the use.

        Raises:
            ToolError: unknown, hidden, running already, gone, or refused.
        """
        ...
