"""The conversation that a notebook would begin, as the parts of the panel look at it before there is one."""

from __future__ import annotations

import os
from pathlib import Path

from nbagent.notebook.app import NotebookAgent
from nbagent.runtime.occupied import NotBegun


class Beginning:
    """One for a panel: what was looked at is not looked at again by another part. One thread at a time."""

    def __init__(self, agent: NotebookAgent) -> None:
        self._agent = agent
        self._known: NotBegun | None = None

    def now(self) -> NotBegun:
        """Return it with the settings as they are now; nothing is opened or written."""
        settings, place = self._agent.settings(), self._agent.folder()
        known = self._known
        if known is None or known.place != (place, Path(settings.home)):
            known = self._known = NotBegun(place, Path(settings.home), settings, os.environ)
        known.use(settings, self._agent.numbers)
        return known
