"""Held: the entries that a request of this turn, or a reply on its path, has held; what was added since is added."""

from __future__ import annotations

from collections.abc import Sequence, Set
from itertools import islice

from nbagent.core.entries import AssistantMessage, Entry
from nbagent.core.view import Piece, View


class Held:
    """`sent` are the entries in requests of this turn. The turn's path only grows; its view may be folded anew."""

    def __init__(self) -> None:
        self.sent: set[str] = set()
        self._known: set[str] = set()
        self._answered = 0  # so many entries of the path came before its last reply
        self._pieces: tuple[int, Piece | None] = (0, None)

    def note(self, view: View) -> None:
        """A request for `view` is sent now."""
        count, last = self._pieces
        pieces = view.pieces
        if not 0 < count <= len(pieces) or pieces[count - 1] is not last:
            count = 0
        new = [p.entry_id for p in islice(pieces, count, None)]
        self.sent.update(new)
        self._known.update(new)
        self._pieces = (len(pieces), pieces[-1] if pieces else None)

    def on(self, path: Sequence[Entry]) -> Set[str]:
        """Return the entries of `path` that have been sent; the set grows when the path does."""
        last = next((i for i in range(len(path) - 1, -1, -1) if isinstance(path[i].body, AssistantMessage)), 0)
        self._known.update(e.id for e in islice(path, self._answered, last))
        self._answered = last
        return self._known
