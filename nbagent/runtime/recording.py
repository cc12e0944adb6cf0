"""Recorder: keeps a cassette file up to date with the current path of a session."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nbagent.core.errors import JournalUnwritable
from nbagent.models.cassette import Cassette, recorded_turns, save, to_text

if TYPE_CHECKING:
    from nbagent.runtime.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorder:
    """Writes `path` after each turn. `about` is a line for readers of the file."""

    path: Path
    about: str = ""

    def save(self, session: Session) -> int:
        """Write the turns of the current path and return how many there are.

        Raises:
            JournalUnwritable: the file cannot be written.
        """
        turns = recorded_turns(session.tree.path())
        prefixes = {t.start.prefix: session.runner.prefix_of(t.start.prefix) for t in turns}
        scripted = any(t.start.model.startswith("scripted:") for t in turns)
        source = "scripted" if scripted else session.live_source()
        cassette = Cassette(turns=turns, prefixes=prefixes, source=source, about=self.about)
        try:
            save(self.path, to_text(cassette, session.runner.scrubber.value))
        except OSError as error:
            raise JournalUnwritable(
                f"the recording {str(self.path)!r} cannot be written ({error.strerror}); choose another file"
            ) from error
        return len(turns)
