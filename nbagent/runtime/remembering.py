"""Remembering: the memory of a session, opened at its first use (SQLite and numpy are loaded only then)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from nbagent.core.entries import AssistantMessage, TurnStart, UserMessage
from nbagent.core.messages import joined_text
from nbagent.memory.bound import BoundMemory
from nbagent.runtime.places import known_sessions
from nbagent.runtime.spent import utc_day
from nbagent.store.journal_reading import read_journal
from nbagent.store.settings import MemorySettings, Settings

if TYPE_CHECKING:
    from nbagent.memory.hits import SessionText
    from nbagent.memory.memory import Memory
    from nbagent.memory.provenance import Provenance


@dataclass(slots=True, kw_only=True)
class Remembering:
    """The memory of the notebooks in `folder` and of the person in `home`. Settings and day are asked for at each use.

    `scrub` takes secrets out of a text: a fact that it would change is refused. `session` is named with each fact.
    """

    folder: Path
    home: Path
    settings: Callable[[], Settings]
    today: Callable[[], str]
    scrub: Callable[[str], str]
    environ: Mapping[str, str]
    session: str = ""
    _memory: Memory | None = None
    _made_for: tuple[MemorySettings, str | None] | None = None
    _retired: list[Memory] = field(default_factory=list)

    def open(self) -> Memory:
        """Return the memory; made at the first call, and anew when its settings changed.

        Raises:
            SettingsError: no such preset.
        """
        from nbagent.memory.memory import Memory

        settings = self.settings()
        wanted = (settings.memory, settings.openai.base_url)
        if self._memory is None or self._made_for != wanted:
            made = Memory.open(
                self.folder, self.home, settings.memory, self.today, scrub=self.scrub,
                session_source=JournalSessions(self.folder), base_url=settings.openai.base_url,
                environ=self.environ,
            )  # fmt: skip
            if self._memory is not None:
                self._retired.append(self._memory)  # a tool may be searching in it; closed with the session
            self._memory, self._made_for = made, wanted
        return self._memory

    def origin(self, *, turn: str = "", cell: str = "") -> Provenance:
        """Return where a fact is written, as memory writes it down; "" is unknown."""
        from nbagent.memory.provenance import Provenance

        return Provenance(turn=turn, cell=cell, session=self.session)

    def bound(self, *, turn: str, cell: str) -> BoundMemory:
        """Return the memory as the tools of one turn use it: what is written down names turn, cell, session (NB-M2)."""
        return BoundMemory(self.open, lambda: self.origin(turn=turn, cell=cell))

    def close(self) -> None:
        """Close the index files."""
        for memory in (*self._retired, *([self._memory] if self._memory else ())):
            memory.close()
        self._retired.clear()
        self._memory = None


@dataclass(frozen=True, slots=True)
class JournalSessions:
    """What was said in all sessions of the notebooks in `folder`: every branch, also what was compacted away."""

    folder: Path

    def sessions(self) -> Sequence[tuple[str, int, int]]:
        """Return (name, size in bytes, time of change in nanoseconds) of each session with a journal."""
        found = []
        for known in known_sessions(self.folder):
            try:
                status = (known.folder / "journal.jsonl").stat()
            except OSError:
                continue
            found.append((known.name, status.st_size, status.st_mtime_ns))
        return found

    def texts(self, session: str) -> Sequence[SessionText]:
        """Return the words of the person and the agent in a session, in the order they were written."""
        from nbagent.memory.hits import SessionText

        known = next(k for k in known_sessions(self.folder) if k.name == session)
        turn = cell = ""
        found = []
        for entry in read_journal(known.folder / "journal.jsonl").entries:
            match entry.body:
                case TurnStart() as start:
                    turn, cell = start.turn, start.cell_id or ""
                    continue
                case UserMessage(blocks=blocks):  # the first is what was typed; what follows was attached to it
                    role, text = "user", next((str(b.get("text") or "") for b in blocks if b.get("type") == "text"), "")
                case AssistantMessage(blocks=blocks):
                    role, text = "assistant", joined_text(blocks)
                case _:
                    continue
            day = utc_day(entry.at)
            found.append(SessionText(session=session, turn=turn, role=role, text=text, date=day, cell=cell))
        return found
