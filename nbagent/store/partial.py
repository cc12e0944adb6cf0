"""Partial: the finished blocks of a reply that is still being streamed, kept in case the process dies."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from nbagent.core.errors import Diagnostic
from nbagent.core.messages import canonical
from nbagent.store.files import write_atomic


class Partial:
    """The file at `path`: content, and the id of the entry that it follows.

    The id tells a partial of a crash from one whose entry was written after all.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._may_be_there = True  # another process may have left it

    def save(self, content: Any, after: str | None) -> None:
        """Write `content` (JSON) as following the entry `after`, all or nothing.

        Raises:
            JournalUnwritable: it cannot be written.
        """
        text = canonical({"v": 1, "after": after, "content": content})
        self._may_be_there = True
        write_atomic(self._path, text.encode())

    def load(self, after: str | None, diagnostics: list[Diagnostic]) -> Any:
        """Return what was saved as following `after`, else None; one that cannot be read adds a Diagnostic."""
        try:
            raw = json.loads(self._path.read_bytes())
            content, follows = raw["content"], raw["after"]
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            cause = f"the partial reply cannot be read ({error})"
            remedy = "what was streamed before the crash is lost, the entries are not; remove the file"
            diagnostics.append(Diagnostic(path=str(self._path), line=None, cause=cause, remedy=remedy))
            return None
        return content if follows == after else None

    def clear(self) -> None:
        """Remove the file, if it is there; nothing is asked of the disk when this was done before."""
        if not self._may_be_there:
            return
        with contextlib.suppress(OSError):  # one that cannot be removed is out of date by its `after`
            self._path.unlink(missing_ok=True)
            self._may_be_there = False
