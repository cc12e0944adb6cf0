"""BoundMemory: memory as the tools of one turn use it, which writes down turn and cell with each fact."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nbagent.memory.hits import Excerpt, Hit
    from nbagent.memory.memory import Memory
    from nbagent.memory.provenance import Provenance


class BoundMemory:
    """Memory plus where we are. Both are asked for when they are needed: `memory` may open it then."""

    def __init__(self, memory: Callable[[], Memory], provenance: Callable[[], Provenance]) -> None:
        self._memory = memory
        self._provenance = provenance

    def search(self, query: str, k: int | None = None, sources: Sequence[str] = ("memory",)) -> list[Hit]:
        """Search; see `Memory.search`."""
        return self._memory().search(query, k, sources)

    def get(self, path: str, from_line: int = 1, lines: int = 120) -> Excerpt:
        """Read lines; see `Memory.get`."""
        return self._memory().get(path, from_line, lines)

    def append(self, text: str) -> str:
        """Append lines to today's log, each with its turn and cell; see `Memory.append_today`."""
        return self._memory().append_today(text, self._provenance())

    def remember(self, text: str, *, person: bool = False) -> str:
        """Store a fact with its turn and cell; see `Memory.add`."""
        return self._memory().add(text, self._provenance(), person=person)
