"""Turnstile: one at a time works on the conversation, be it a turn, a command in a cell, or the panel."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Literal

from nbagent.core.errors import UsageProblem

BUSY = "a turn is running already in this kernel; wait for it or stop it"
LOOK_S = 0.05  # how often a waiting turn looks; the panel's work takes milliseconds, but for a compaction


class Turnstile:
    """Whoever changes the conversation holds it. A cell waits for the panel, never the panel for a cell."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._holder: Literal["", "turn", "panel"] = ""  # one value, so that nobody sees it taken and not by whom

    @property
    def turn_runs(self) -> bool:
        """Whether a turn, or something else that a cell asked for, holds it."""
        return self._holder == "turn"

    def enter_panel(self) -> bool:
        """Take it for the panel; False when it is taken."""
        return self._take("panel")

    def leave_panel(self) -> None:
        """Give it back."""
        self._give_back()

    def _take(self, holder: Literal["turn", "panel"]) -> bool:
        with self._changed:
            if self._holder:
                return False
            self._holder = holder
            return True

    def _give_back(self) -> None:
        with self._changed:
            self._holder = ""
            self._changed.notify_all()

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Hold it for a turn, on the engine's loop.

        Raises:
            UsageProblem: another turn runs.
        """
        while not self._take("turn"):
            self.refuse_beside_turn()
            await asyncio.sleep(LOOK_S)
        try:
            yield
        finally:
            self._give_back()

    @contextlib.contextmanager
    def command(self) -> Iterator[None]:
        """Hold it for a command of a cell; not for one that enters `turn`.

        Raises:
            UsageProblem: a turn runs.
        """
        while not self._take("turn"):
            self.refuse_beside_turn()
            with self._changed:
                self._changed.wait_for(lambda: not self._holder, LOOK_S)
        try:
            yield
        finally:
            self._give_back()

    def refuse_beside_turn(self) -> None:
        """Raise when a turn runs.

        Raises:
            UsageProblem: one does.
        """
        if self.turn_runs:
            raise UsageProblem(BUSY)
