"""Memory and skills as the panel needs them, over the session of the notebook."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nbagent.notebook.app import NotebookAgent
from nbagent.notebook.commands.skills import prompt_tokens, switch
from nbagent.notebook.panel.beginning import Beginning
from nbagent.notebook.panel.facts import Found, NoteLines
from nbagent.notebook.panel.protocol import CatalogPart
from nbagent.notebook.panel.results import HitRow, SkillRow
from nbagent.notebook.reports.memory import nothing_matches, why_words
from nbagent.runtime.occupied import NotBegun
from nbagent.runtime.session import Session

EXCERPT_LINES = 60
_PERSON = "~/.nbagent/"


class SessionMemory:
    """The memory that `%memory` searches."""

    def __init__(self, agent: NotebookAgent) -> None:
        self._agent = agent

    def _session(self) -> Session:
        return self._agent.opened or self._agent.session()

    def search(self, query: str, count: int) -> Found:
        """Return at most `count` hits in the notes."""
        session = self._session()
        hits = session.runner.memory.open().search(query, count)
        rows = tuple(
            HitRow(
                path=hit.path, relative=self._relative(hit.path, session), start_line=hit.start_line,
                end_line=hit.end_line, score=round(hit.score, 4), snippet=hit.snippet, date=hit.date,
                why=hit.otherwise or why_words(hit.why),
            )
            for hit in hits
        )  # fmt: skip
        return Found(rows=rows, note=" ".join(filter(None, ("" if rows else nothing_matches(query), hits.behind))))

    def read(self, path: str, line: int) -> NoteLines:
        """Return lines of a note from `line` on."""
        part = self._session().runner.memory.open().get(path, line, EXCERPT_LINES)
        return NoteLines(path=part.path, text=part.text, start_line=part.from_line, total_lines=part.total_lines)

    def _relative(self, name: str, session: Session) -> str:
        """Return the file of a note from the notebook's folder; empty when there is no way."""
        folder = session.runner.folder
        path = session.runner.home / name.removeprefix(_PERSON) if name.startswith(_PERSON) else folder / name
        try:
            relative = os.path.relpath(path, folder)
        except ValueError:  # another drive
            return ""
        return Path(relative).as_posix() if path.is_file() else ""


class SessionSkills:
    """The catalog that `%skills` shows; before there is a conversation, that of the one that would begin."""

    def __init__(self, agent: NotebookAgent, beginning: Beginning) -> None:
        self._agent, self._beginning = agent, beginning
        self._catalog: object = None
        self._revision = self._tokens = 0

    def rows(self) -> tuple[SkillRow, ...]:
        """Return every skill, in prompt order, hidden ones last."""
        runner = self._looked_at().runner
        entries = runner.settings.skills.entries
        return tuple(_skill_row(skill, entries) for skill in runner.skills.look())

    def _looked_at(self) -> Session | NotBegun:
        return self._agent.opened or self._beginning.now()

    def summary(self) -> CatalogPart:
        """Return the skills in short."""
        at = self._looked_at()
        catalog = at.runner.skills.look()
        if catalog is not self._catalog:
            facts = at.facts if isinstance(at, NotBegun) else at.facts_of(at.current_model())
            self._catalog, self._revision = catalog, self._revision + 1
            self._tokens = prompt_tokens(at.runner.gauge.meter(facts.family).text, catalog)
        return CatalogPart(
            revision=self._revision, total=len(catalog), visible=len(catalog.visible), prompt_tokens=self._tokens,
            problems=len(catalog.diagnostics),
        )  # fmt: skip

    def switch(self, name: str, *, on: bool) -> str:
        """Let the model use a skill, or not; returns a line."""
        return switch(self._agent, name, on=on)


def _skill_row(skill: Any, entries: Mapping[str, Any]) -> SkillRow:
    own = entries.get(skill.manifest.requires.key or skill.name)
    off = isinstance(own, Mapping) and own.get("enabled") is False
    return SkillRow(
        name=skill.name, source=skill.source, path=skill.path, visible=skill.visible, on=not off, reason=skill.reason,
        tokens=skill.tokens, uses=skill.uses, description=skill.description,
    )  # fmt: skip
