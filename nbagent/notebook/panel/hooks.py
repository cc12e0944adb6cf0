"""What a turn tells the panel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from nbagent.core.effects import TurnEvent
from nbagent.runtime.approvals import Ask


class PanelHooks(Protocol):
    """What a turn tells the panel, when somebody listens. None of it may raise or take long."""

    def on_event(self, event: TurnEvent) -> None:
        """Something happened in the turn; engine's thread."""
        ...

    def asking(self, below: Ask) -> Ask:
        """Return how the person is asked: by buttons where they can be answered now, else by `below`, the cell."""
        ...

    def unheard(self, words: Sequence[str]) -> None:
        """The turn ends, and has not heard these words that it was told."""
        ...

    def turn_over(self) -> None:
        """The turn has ended and the conversation is free."""
        ...
