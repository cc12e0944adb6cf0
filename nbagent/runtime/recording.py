"""Recorder: keeps a cassette file up to date with all branches of a session."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nbagent.core.errors import JournalUnwritable, UsageProblem, UserError
from nbagent.core.tree import SessionTree
from nbagent.models.cassette import Cassette, RecordedTurn, load, recorded_turns, save, to_text
from nbagent.runtime.neutral import Neutral
from nbagent.store.files import remedy_for

if TYPE_CHECKING:
    from nbagent.runtime.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorder:
    """Writes `path` after each turn. `about` is a line for readers of the file."""

    path: Path
    about: str = ""

    def begin(self, session: Session) -> int:
        """Begin to write; returns how many turns there are so far. A recording is replaced once there is a turn.

        Raises:
            UsageProblem: there is a file of that name which is no recording.
            JournalUnwritable: the file cannot be written.
        """
        if self.path.exists():
            try:
                load(self.path)
            except UserError as error:
                line = f"{str(self.path)!r} is there already and is no recording; name another file, or remove it first"
                raise UsageProblem(line) from error
            if not session.tree.turns():
                return 0
        return self.save(session)

    def save(self, session: Session) -> int:
        """Write the turns of all branches and return how many there are; the file names no folder of this machine.

        Raises:
            JournalUnwritable: the file cannot be written.
        """
        runner = session.runner
        neutral = Neutral(runner.folder, Path.home())
        turns = turns_of_branches(session.tree, neutral)
        prefixes = {d: neutral.prefix(runner.prefix_of(d)) for t in turns for d in t.prefixes}
        scripted = any(t.start.model.startswith("scripted:") for t in turns)
        source = "scripted" if scripted else session.live_source()
        cassette = Cassette(turns=turns, prefixes=prefixes, source=source, about=self.about)
        try:
            save(self.path, to_text(cassette, runner.scrubber.value))
        except OSError as error:
            told = f"{error.strerror}); {remedy_for(error, 'choose another file')}"
            raise JournalUnwritable(f"the recording {str(self.path)!r} cannot be written ({told}") from error
        return len(turns)


def turns_of_branches(tree: SessionTree, neutral: Neutral) -> tuple[RecordedTurn, ...]:
    """Return the ended turns of every branch in the order they were run.

    Of turns with the same prompt after the same past the newest branch counts, and the current path before all:
    one prompt has one answer in a recording. What then has lost its past is left out.
    """
    entries = {e.id: neutral.entry(e) for e in tree}
    tips = [e.id for e in tree if not tree.children(e.id)]
    found: dict[str, RecordedTurn] = {}
    for tip in (*tips, tree.leaf):
        path = tree.path(tip) if tip is not None else ()
        found |= {t.key: t for t in recorded_turns([entries[e.id] for e in path])}
    return tuple(sorted(_reachable(found.values()), key=lambda t: t.at))


def _reachable(turns: Iterable[RecordedTurn]) -> list[RecordedTurn]:
    waiting, found, ends = list(turns), [], {""}
    while ready := [t for t in waiting if t.parent in ends]:
        found += ready
        waiting = [t for t in waiting if t.parent not in ends]
        ends = {t.after for t in ready}
    return found
