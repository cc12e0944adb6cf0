"""ShellNotebook: the open notebook as the tools see it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from nbagent.core.errors import ToolError
from nbagent.tools.tool import SeenCell


class ShellNotebook:
    """The Notebook protocol over IPython's shell, for one turn. `path_of` says where the file is, None if unknown."""

    def __init__(self, shell: Any, path_of: Callable[[], Path | None], cells: Callable[[], Sequence[SeenCell]]) -> None:
        self._shell = shell
        self._path_of = path_of
        self._cells = cells
        self._proposed = False

    def path(self) -> Path | None:
        """Where the notebook's file is, as far as is known."""
        return self._path_of()

    def cells_run(self) -> Sequence[SeenCell]:
        """The cells that ran in this kernel, oldest first."""
        return self._cells()

    def propose(self, source: str) -> str:
        """Offer `source` as a new cell below this one, once a turn: a front end keeps only the last."""
        if self._proposed:
            raise ToolError("one cell can be proposed in a turn, and one was; put more into your answer instead")
        self._proposed = True
        self._shell.set_next_input(source, replace=False)
        return "The cell is offered below the running one when the turn ends; the person decides whether to run it."
