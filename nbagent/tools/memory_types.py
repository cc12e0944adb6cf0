"""MemoryPort: what the memory tools need of memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from nbagent.memory.hits import Excerpt, Hit


class MemoryPort(Protocol):
    """The memory of the project and the person, bound to the running turn.

    All raise `UserError` with a message that says what to do. What fails inside (index, embedder) does not raise:
    the search answers with what is left.
    """

    def search(self, query: str, k: int | None = None, sources: Sequence[str] = ("memory",)) -> list[Hit]:
        """Return at most `k` hits, best first; `sources` are "memory" (notes) and "sessions" (what was said)."""
        ...

    def get(self, path: str, from_line: int = 1, lines: int = 120) -> Excerpt:
        """Return lines of a note as they stand."""
        ...

    def remember(self, text: str, *, person: bool = False) -> str:
        """Append a fact to today's log with the turn and cell that it comes from; return the log's path."""
        ...
