"""Turnstile: one at a time works on the conversation, be it a turn, a command in a cell, or the panel."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator

from nbagent.core.errors import UsageProblem

BUSY = "a turn is running already in this kernel; wait for it or stop it"
LOOK_S = 0.05  # how often a waiting turn looks; the panel's work takes milliseconds, but for a compaction


class Turnstile:
    """Whoever changes the conversation holds it. A cell waits for the panel, never the panel for a cell."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.by_panel = False

    @property
    def turn_runs(self) -> bool:
        """Whether a turn, or something else that a cell asked for, holds it."""
        return self._lock.locked() and not self.by_panel

    def enter_panel(self) -> bool:
        """Take it for the panel; False when it is taken."""
        if not self._lock.acquire(blocking=False):
            return False
        self.by_panel = True
        return True

    def leave_panel(self) -> None:
        """Give it back."""
        self.by_panel = False
        self._lock.release()

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Hold it for a turn, on the engine's loop.

        Raises:
            UsageProblem: another turn runs.
        """
        while not self._lock.acquire(blocking=False):
            self.refuse_beside_turn()
            await asyncio.sleep(LOOK_S)
        try:
            yield
        finally:
            self._lock.release()

    @contextlib.contextmanager
    def command(self) -> Iterator[None]:
        """Hold it for a command of a cell; not for one that enters `turn`.

        Raises:
            UsageProblem: a turn runs.
        """
        while not self._lock.acquire(timeout=LOOK_S):
            self.refuse_beside_turn()
        try:
            yield
        finally:
            self._lock.release()

    def refuse_beside_turn(self) -> None:
        """Raise when a turn runs.

        Raises:
            UsageProblem: one does.
        """
        if self.turn_runs:
            raise UsageProblem(BUSY)
