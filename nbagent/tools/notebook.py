"""The tool `notebook`: the open notebook as outline, sources and outputs, what ran but is unsaved included."""

from __future__ import annotations

import asyncio
import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from nbagent.core.errors import ToolError
from nbagent.core.messages import JsonObject
from nbagent.tools.ipynb import (
    MAX_NOTEBOOK_BYTES,
    Cell,
    cell_head,
    cell_text,
    outline_line,
    outputs_text,
    parse_notebook,
)
from nbagent.tools.output import cap_text, cut_line, well_formed
from nbagent.tools.paths import open_file
from nbagent.tools.tool import Notebook, SeenCell, ToolContext, ToolOutput, ToolSpec

OUTPUT_CHARS: Final = 2_000  # of each output, when several cells are shown
ONE_CELL_OUTPUT_CHARS: Final = 8_000

NOTEBOOK_SPEC: Final = ToolSpec(
    name="notebook",
    description=(
        "Look at the open notebook, or offer a new cell. Start with action outline (one line a cell), then source or "
        "outputs for the cells you need: numbers, ranges like '3-7', or ids. Cells that ran since the last save are "
        "marked. propose offers `source` as a cell below the running one, once a turn; the person decides."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "action": {"type": "string", "enum": ["outline", "source", "outputs", "propose"]},
            "cells": {
                "type": "array",
                "items": {"type": "string"},
                "description": "For source and outputs: '4', '3-7', a cell id, or 'run:2' for an unsaved one",
            },
            "source": {"type": "string", "description": "For propose: the new cell's code"},
        },
        "required": ["action"],
    },
    access="read",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """A cell of the file with what is known of its last run; or one that only ran (`name` is "run:N")."""

    cell: Cell
    name: str
    ran: str = ""
    run_source: str | None = None


@dataclass(frozen=True, slots=True)
class NotebookTool:
    """Shows the open notebook."""

    spec: ToolSpec = NOTEBOOK_SPEC

    def summary(self, input: JsonObject) -> str:
        """Return action and cells."""
        cells = ", ".join(map(str, input.get("cells") or ()))
        return " ".join(filter(None, (str(input.get("action", "")), cells)))

    def paths(self, input: JsonObject) -> tuple[str, ...]:
        """Return nothing: the open notebook needs no rule."""
        return ()

    async def run(self, input: JsonObject, context: ToolContext) -> ToolOutput:
        """Do the action.

        Raises:
            ToolError: no notebook, no such cell, or a file that cannot be read and nothing ran.
        """
        notebook = context.notebook
        if notebook is None:
            raise ToolError("no notebook is open in this session; read .ipynb files with read")
        action = str(input["action"])
        if action == "propose":
            return _propose(notebook, str(input.get("source") or ""))
        known, notes = await asyncio.to_thread(_known_cells, notebook.path(), tuple(notebook.cells_run()))
        if action == "outline":
            return _outline(known, notes)
        return _details(known, notes, list(input.get("cells") or ()), outputs=action == "outputs")


def _propose(notebook: Notebook, source: str) -> ToolOutput:
    if not source.strip():
        raise ToolError("source is empty; propose needs the code of the new cell")
    return ToolOutput(text=notebook.propose(well_formed(source)))


def _known_cells(path: Path | None, ran: Sequence[SeenCell]) -> tuple[list[_Known], list[str]]:
    """Return the file's cells with their runs, then the runs that the file does not hold."""
    cells: tuple[Cell, ...] = ()
    notes: list[str] = []
    try:
        if path is None:
            raise ToolError("the notebook's file is not known")
        cells, notes = _file_cells(path)
    except ToolError as error:
        if not ran:
            raise
        notes = [f"{error}; only cells that ran in this kernel are listed"]
    by_id = {run.cell_id: run for run in ran if run.cell_id}
    by_source = {run.source.strip(): run for run in ran}
    ids = [cell.id for cell in cells]
    known: list[_Known] = []
    used: set[int] = set()
    for cell in cells:
        run = by_id.get(cell.id) if cell.id and ids.count(cell.id) == 1 else None
        run = run or (by_source.get(cell.source.strip()) if cell.kind == "code" and cell.source.strip() else None)
        if run is not None:
            used.update(r.order for r in ran if r is run or (r.cell_id and r.cell_id == run.cell_id))
        known.append(_with_run(cell, run))
    return known + _unsaved(ran, used, {c.source.strip() for c in cells}, first=len(cells) + 1), notes


def _file_cells(path: Path) -> tuple[tuple[Cell, ...], list[str]]:
    with open_file(path, path.name) as handle:
        raw = handle.read(MAX_NOTEBOOK_BYTES + 1)
    if len(raw) > MAX_NOTEBOOK_BYTES:
        raise ToolError(f"notebook {path.name!r} has over {MAX_NOTEBOOK_BYTES:,} bytes and is not read")
    notebook = parse_notebook(raw)
    return notebook.cells, list(notebook.notes)


def _with_run(cell: Cell, run: SeenCell | None) -> _Known:
    if run is None:
        return _Known(cell=cell, name=str(cell.index))
    how = f"ran #{run.order} in this kernel{'' if run.ok else ', failed'}"
    if run.source.strip() == cell.source.strip():
        return _Known(cell=cell, name=str(cell.index), ran=how)
    return _Known(cell=cell, name=str(cell.index), ran=f"{how}, with unsaved source", run_source=run.source)


def _unsaved(ran: Sequence[SeenCell], used: set[int], saved: set[str], *, first: int) -> list[_Known]:
    """Return the last run of each cell that is not in the file, oldest first."""
    left = [run for run in ran if run.order not in used and run.source.strip() not in saved]
    latest = {run.cell_id or run.source: run for run in left}
    known = []
    for index, run in enumerate(sorted(latest.values(), key=lambda r: r.order), first):
        cell = Cell(index=index, id=run.cell_id or "", kind="code", source=run.source)
        how = f"ran #{run.order}{'' if run.ok else ', failed'}, unsaved: not in the file"
        known.append(_Known(cell=cell, name=f"run:{run.order}", ran=how))
    return known


def _outline(known: Sequence[_Known], notes: Sequence[str]) -> ToolOutput:
    lines = [f"[{n}]" for n in notes]
    for k in known:
        line = outline_line(k.cell, ran=k.ran)
        lines.append(line if not k.name.startswith("run:") else line.replace(f"[{k.cell.index}]", f"[{k.name}]", 1))
    saved = sum(1 for k in known if not k.name.startswith("run:"))
    lines.append(f"[{saved} cells in the file, {len(known) - saved} more ran unsaved]" if known else "[no cells]")
    return ToolOutput(text="\n".join(lines), shown=f"outline of {len(known)} cells")


def _details(known: list[_Known], notes: Sequence[str], asked: list[str], *, outputs: bool) -> ToolOutput:
    if not asked:
        raise ToolError("name the cells to show: cells=['3', '5-7']; action outline lists them")
    chosen = list(dict.fromkeys(i for word in asked for i in _chosen(known, str(word).strip())))
    parts = [f"[{n}]" for n in notes]
    for i in chosen:
        k = known[i]
        limit = ONE_CELL_OUTPUT_CHARS if len(chosen) == 1 else OUTPUT_CHARS
        parts.append(_outputs_of(k, limit) if outputs else _source_of(k))
    names = ", ".join(known[i].name for i in chosen)
    return ToolOutput(text="\n\n".join(parts), shown=f"cells {cut_line(names, 200)}")


def _source_of(known: _Known) -> str:
    if known.run_source is None:
        return cell_text(known.cell, ran=known.ran)
    ran = cell_text(replace(known.cell, source=known.run_source), ran=known.ran)
    return f"{ran}\n[the file still has:]\n{known.cell.source}"


def _outputs_of(known: _Known, limit_chars: int) -> str:
    shown = outputs_text(known.cell, limit_chars)
    if not shown:
        unsaved = " in the file; what it showed since is not saved yet" if known.ran else ""
        shown = [f"[no outputs{unsaved}]"]
    return cap_text("\n".join([cell_head(known.cell, ran=known.ran), *shown]), 10 * limit_chars).text


def _chosen(known: Sequence[_Known], word: str) -> list[int]:
    """Return the places that a number, range, id or run names."""
    numbers = {k.name: i for i, k in enumerate(known)}
    if word in numbers:
        return [numbers[word]]
    by_id = [i for i, k in enumerate(known) if k.cell.id and k.cell.id == word]
    if by_id:
        return by_id
    span = re.fullmatch(r"(\d{1,9})\s*(?:-|\.\.|:)\s*(\d{1,9})", word)
    if span:
        found = [i for i, k in enumerate(known) if k.name.isdigit() and int(span[1]) <= int(k.name) <= int(span[2])]
        if found:
            return found
    saved = sum(1 for k in known if k.name.isdigit())
    near = difflib.get_close_matches(word, [*numbers, *(k.cell.id for k in known if k.cell.id)], n=3)
    hint = f"did you mean {', '.join(near)}? " if near else ""
    raise ToolError(f"there is no cell {cut_line(word, 80)!r}; {hint}the file has cells 1-{saved}, see action outline")
