"""Memory and skills as the panel needs them, over the session of the notebook."""

from __future__ import annotations

import os
from pathlib import Path

from nbagent.notebook.app import NotebookAgent
from nbagent.notebook.memory_report import why_words
from nbagent.notebook.panel_facts import Found, NoteLines
from nbagent.notebook.panel_results import HitRow
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
                why=f"older than {hit.contradicts}, which says otherwise" if hit.contradicts else why_words(hit.why),
            )
            for hit in hits
        )  # fmt: skip
        return Found(rows=rows, note="" if rows else f"Nothing in memory matches {query!r}.")

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
