"""Which cell of which notebook runs, and what the person ran since the last turn."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nbagent.notebook.transform import agent_body


@dataclass(frozen=True, slots=True, kw_only=True)
class CellSite:
    """Where a turn stands.

    `cell_id` is the front end's (JupyterLab: the id in the file; VS Code: a URI), None where it sends none.
    `notebook_path` may be stale after a rename. `deleted_cells` are ids deleted since the last run.
    `order` counts the `%%agent` cells of this kernel from 1; 0 when nobody counts.
    """

    cell_id: str | None
    notebook_path: str | None
    deleted_cells: tuple[str, ...]
    interactive: bool
    order: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RanCell:
    """A cell that the person ran, as it was sent."""

    source: str
    cell_id: str | None
    succeeded: bool


def where(shell: Any) -> CellSite:
    """Return the place of the cell that runs now; call it at the start of a cell, on its thread."""
    metadata = _request(shell).get("metadata") or {}
    cell_id = metadata.get("cellId")
    notebook_path = shell.user_ns.get("__vsc_ipynb_file__") or os.environ.get("JPY_SESSION_NAME")
    return CellSite(
        cell_id=cell_id if isinstance(cell_id, str) and cell_id else None,
        notebook_path=str(notebook_path) if notebook_path else None,
        deleted_cells=tuple(str(c) for c in metadata.get("deletedCells") or ()),
        interactive=is_interactive(shell),
    )


def is_interactive(shell: Any) -> bool:
    """Say whether somebody can answer questions here: the front end allows input, or this is a terminal."""
    content = _request(shell).get("content") or {}
    return bool(content.get("allow_stdin", getattr(shell, "kernel", None) is None))


def raw_source(shell: Any) -> str | None:
    """Return the cell that runs now as the front end sent it; None without a kernel."""
    code = (_request(shell).get("content") or {}).get("code")
    return code if isinstance(code, str) else None


def source_hash(source: str) -> str:
    """Return 16 hex digits for a cell's source; line ends and blank lines at the end do not count."""
    text = "\n".join(source.splitlines()).rstrip()
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _request(shell: Any) -> dict[str, Any]:
    """The execute request; from the kernel and not the event, whose `cell_meta` exists from ipykernel 7.3 only."""
    kernel = getattr(shell, "kernel", None)
    if kernel is None or not hasattr(kernel, "get_parent"):
        return {}
    return kernel.get_parent("shell") or {}


class CellTracker:
    """Follows the cells of one kernel by IPython's events: `depth`, the run order of turns, cells of the person's.

    Code that a cell runs itself (also an agent's) is nested, so it is not recorded; neither are `%%agent` cells.
    """

    def __init__(self, shell: Any, *, path: Callable[[], str | None] = lambda: None) -> None:
        self._shell = shell
        self._path = path
        self._running: list[Any] = []
        self._message_id: str | None = None
        self._claimed: int | None = None  # the order of the turn that the running cell is
        self._turns = 0
        self.cells_begun = 0
        self._ran: list[RanCell] = []

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
        site = where(self._shell)
        order = self._claimed
        if not self._running:  # no event told of the cell: nothing will end the claim
            self._claimed = None
        return dataclasses.replace(site, order=order, notebook_path=self._path() or site.notebook_path)

    def take(self) -> tuple[RanCell, ...]:
        """Return the cells that the person ran since the last call, oldest first, and forget them."""
        ran, self._ran = tuple(self._ran), []
        return ran

    def peek(self) -> tuple[RanCell, ...]:
        """Return what `take` would, and keep it."""
        return tuple(self._ran)

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
            succeeded = bool(getattr(result, "success", False))
            self._ran.append(RanCell(source=source, cell_id=_cell_id(info, self._shell), succeeded=succeeded))

    def _heal(self) -> None:
        """Forget cells whose end was never told, when the kernel is at another request by now."""
        if self._running and self._message_id != self._current_message():
            self._running.clear()
            self._claimed = None

    def _current_message(self) -> str | None:
        message_id = (_request(self._shell).get("header") or {}).get("msg_id")
        return message_id if isinstance(message_id, str) else None


def _cell_id(info: Any, shell: Any) -> str | None:
    cell_id = getattr(info, "cell_id", None)
    return cell_id if isinstance(cell_id, str) and cell_id else where(shell).cell_id
