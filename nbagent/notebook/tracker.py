"""Follows the cells of a kernel from the moment the extension is loaded; light, since every notebook pays for it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from nbagent.notebook.transform import agent_body

if TYPE_CHECKING:
    from nbagent.notebook.cells import CellSite, RanCell


def request_of(shell: Any) -> dict[str, Any]:
    """Return the execute request; of the kernel, since the event's `cell_meta` exists from ipykernel 7.3 only."""
    kernel = getattr(shell, "kernel", None)
    if kernel is None or not hasattr(kernel, "get_parent"):
        return {}
    try:
        return kernel.get_parent("shell") or {}
    except LookupError:  # ipykernel 7.0 knows of none in a thread of the person's
        return {}


def cell_id_of(shell: Any) -> str | None:
    """Return the id of the cell that runs now; None where the front end sends none."""
    cell_id = (request_of(shell).get("metadata") or {}).get("cellId")
    return cell_id if isinstance(cell_id, str) and cell_id else None


def is_interactive(shell: Any) -> bool:
    """Say whether somebody can answer questions here: the front end allows input, or this is a terminal."""
    content = request_of(shell).get("content") or {}
    return bool(content.get("allow_stdin", getattr(shell, "kernel", None) is None))


def raw_source(shell: Any) -> str | None:
    """Return the cell that runs now as the front end sent it; None without a kernel."""
    code = (request_of(shell).get("content") or {}).get("code")
    return code if isinstance(code, str) else None


def notebook_file(shell: Any) -> str | None:
    """Return the whole path of the notebook, as the front end told it; None where it tells none."""
    path = str(shell.user_ns.get("__vsc_ipynb_file__") or os.environ.get("JPY_SESSION_NAME") or "")
    return path if path.endswith(".ipynb") and os.path.isabs(path) else None


def working_folder() -> str:
    """Return the working folder; where that was removed, the one the process was started in."""
    try:
        return os.getcwd()
    except OSError:
        return os.environ.get("PWD") or os.path.expanduser("~")


class CellTracker:
    """Follows the cells of one kernel by IPython's events: `depth`, the run order of turns, cells of the person's.

    Code that a cell runs itself (also an agent's) is nested, so it is not recorded; neither are `%%agent` cells.
    `folder` is the working folder as it was at first.
    """

    def __init__(self, shell: Any, *, path: Callable[[], str | None] = lambda: None) -> None:
        self._shell = shell
        self._path = path
        self._running: list[Any] = []
        self._message_id: str | None = None
        self._claimed: int | None = None  # the order of the turn that the running cell is
        self._turns = 0
        self.folder = working_folder()
        self.cells_begun = 0
        self._ran: list[tuple[str, str | None, bool]] = []  # source, cell id, succeeded

    def register(self) -> None:
        """Start to follow; a cell that already runs (the one that loads the extension) is not recorded."""
        self._shell.events.register("pre_run_cell", self._before)
        self._shell.events.register("post_run_cell", self._after)

    def unregister(self) -> None:
        """Stop to follow."""
        for event, callback in (("pre_run_cell", self._before), ("post_run_cell", self._after)):
            if callback in self._shell.events.callbacks.get(event, ()):
                self._shell.events.unregister(event, callback)

    def depth(self) -> int:
        """How many cells run: 0 between cells, 1 in a cell of the person's, 2 in code that it runs."""
        self._heal()
        return len(self._running)

    def claim(self) -> CellSite:
        """Say that the running cell is a turn, and return its place; claiming it again gives the same order."""
        if self._claimed is None:
            self._turns += 1
            self._claimed = self._turns
        from nbagent.notebook.cells import where

        site = where(self._shell, order=self._claimed, notebook_path=self._path(), typed=self._typed())
        if not self._running:  # no event told of the cell: nothing will end the claim
            self._claimed = None
        return site

    def _typed(self) -> bool:
        """Tell whether the running cell stands at a terminal's prompt; lines of a script are not in the history."""
        outer = self._running[0] if self._running else None
        return getattr(self._shell, "kernel", None) is None and bool(getattr(outer, "store_history", False))

    def take(self) -> tuple[RanCell, ...]:
        """Return the cells that the person ran since the last call, oldest first, and forget them."""
        ran, self._ran = self.peek(), []
        return ran

    def peek(self) -> tuple[RanCell, ...]:
        """Return what `take` would, and keep it."""
        from nbagent.notebook.cells import RanCell

        return tuple(RanCell(source=source, cell_id=cell_id, succeeded=ok) for source, cell_id, ok in self._ran)

    def _before(self, info: Any = None) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # a subshell's cell
        self._heal()
        if not self._running:
            self._claimed = None
            self.cells_begun += 1
            self._message_id = self._current_message()
        self._running.append(info)

    def _after(self, result: Any = None) -> None:
        if threading.current_thread() is not threading.main_thread() or not self._running:
            return
        info = getattr(result, "info", None)
        if info is not None and info is not self._running[-1]:
            return  # a blank cell: IPython fires no event before it
        info = self._running.pop()
        if self._running:
            return
        claimed, self._claimed = self._claimed, None
        source = getattr(info, "raw_cell", None)
        if claimed is None and isinstance(source, str) and agent_body(source) is None:
            cell_id = getattr(info, "cell_id", None)
            known = cell_id if isinstance(cell_id, str) and cell_id else cell_id_of(self._shell)
            self._ran.append((source, known, bool(getattr(result, "success", False))))

    def _heal(self) -> None:
        """Forget cells whose end was never told, when the kernel is at another request by now."""
        if self._running and self._message_id != self._current_message():
            self._running.clear()
            self._claimed = None

    def _current_message(self) -> str | None:
        message_id = (request_of(self._shell).get("header") or {}).get("msg_id")
        return message_id if isinstance(message_id, str) else None
