"""What a person's Stop becomes: one line, and a cell that failed."""

from __future__ import annotations

STOPPED_TEXT = "Stopped. What was done so far is kept."
NOT_BEGUN = "Stopped before the turn began; nothing was sent."


class TurnStopped(KeyboardInterrupt):
    """The person stopped the turn: an error reply, so that queued cells do not run, shown as one line.

    A KeyboardInterrupt, because that is what Stop means to IPython, `%%time` and scripts.
    """

    def __init__(self, text: str = STOPPED_TEXT) -> None:
        super().__init__(text)

    def _render_traceback_(self) -> list[str]:
        return [str(self)]
