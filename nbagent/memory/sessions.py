"""Session recall: what was said in the project's sessions as notes of an index of their own. PURE but for its source.

One line a message ("Person: …", "Agent: …") below a heading for each turn, wrapped like OpenClaw's at 800 characters.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from nbagent.memory.hits import SessionSource
from nbagent.memory.index_parts import Loaded
from nbagent.memory.notes import NoteFile
from nbagent.memory.provenance import Provenance, as_item

PREFIX: Final = "sessions/"


def session_files(source: SessionSource | None) -> list[NoteFile]:
    """Return the sessions as if each were a note."""
    if source is None:
        return []
    return [
        NoteFile(name=f"{PREFIX}{name}", path=Path(name), size_bytes=size, mtime_ns=mtime)
        for name, size, mtime in source.sessions()
    ]


def session_loader(source: SessionSource | None) -> Callable[[NoteFile], Loaded]:
    """Return what gives a session's text: a heading for each turn, a list item for each message."""

    def load(file: NoteFile) -> Loaded:
        assert source is not None
        lines: list[str] = []
        turn = ""
        for said in source.texts(file.name.removeprefix(PREFIX)):
            if not said.text.strip():
                continue
            if said.turn != turn:
                turn = said.turn
                lines.append(f"# {said.date}" if said.date else "# turn")
            who = {"user": "Person", "assistant": "Agent"}.get(said.role, said.role.capitalize())
            origin = Provenance(turn=said.turn, cell=said.cell, session=said.session)
            lines.append(as_item(f"{who}: {said.text}", origin))
        text = "\n".join(lines)
        return Loaded(text=text, content=text.encode("utf-8", "replace"))

    return load
