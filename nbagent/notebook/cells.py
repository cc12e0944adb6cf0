"""The place of a cell and what a cell was, as values; `tracker` follows them."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import Any

from nbagent.notebook.tracker import cell_id_of, is_interactive, request_of


@dataclass(frozen=True, slots=True, kw_only=True)
class CellSite:
    """Where a turn stands.

    `cell_id` is the front end's (JupyterLab: the id in the file; VS Code: a URI), None where it sends none.
    `notebook_path` may be stale after a rename. `deleted_cells` are ids deleted since the last run.
    `order` counts the `%%agent` cells of this kernel from 1; 0 when nobody counts.
    `typed` says that it is no cell of a file: somebody typed it at a terminal's prompt.
    """

    cell_id: str | None
    notebook_path: str | None
    deleted_cells: tuple[str, ...]
    interactive: bool
    order: int = 0
    typed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RanCell:
    """A cell that the person ran, as it was sent."""

    source: str
    cell_id: str | None
    succeeded: bool


def where(shell: Any, *, order: int = 0, notebook_path: str | None = None, typed: bool = False) -> CellSite:
    """Return the place of the cell that runs now; call it at the start of a cell, on its thread.

    `notebook_path` is what is known better than the front end's word.
    """
    metadata = request_of(shell).get("metadata") or {}
    told = shell.user_ns.get("__vsc_ipynb_file__") or os.environ.get("JPY_SESSION_NAME")
    return CellSite(
        cell_id=cell_id_of(shell),
        notebook_path=notebook_path or (str(told) if told else None),
        deleted_cells=tuple(str(c) for c in metadata.get("deletedCells") or ()),
        interactive=is_interactive(shell),
        order=order,
        typed=typed,
    )


def source_hash(source: str) -> str:
    """Return 16 hex digits for a cell's source; line ends and blank lines at the end do not count."""
    text = "\n".join(source.splitlines()).rstrip()
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
