"""CellThread: has a display drawn on the cell's thread, from any thread, without waiting for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from nbagent.notebook.host import Engine, Jobs


class CellThread:
    """Has a display drawn on the cell's thread, from any thread, without waiting for it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.jobs: Jobs | None = None

    def post(self, draw: Callable[[], None]) -> None:
        """Draw soon; what cannot be drawn any more is drawn when the display is closed.

        On the engine's thread the place in the queue is taken at once, so that text stands before what
        the code that follows it prints.
        """
        if self._on_engine():
            self._draw(draw)
        else:
            self._engine.call_soon(lambda: self._draw(draw))

    def later(self, seconds: float, fn: Callable[[], None]) -> None:
        """Call `fn` after so many seconds, on the engine's thread."""
        self._engine.call_soon(lambda: self._engine.loop.call_later(seconds, fn))

    def _on_engine(self) -> bool:
        try:
            return asyncio.get_running_loop() is self._engine.loop
        except RuntimeError:
            return False

    def _draw(self, draw: Callable[[], None]) -> None:
        if self.jobs is not None:
            self.jobs.post(draw)
