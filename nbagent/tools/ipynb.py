"""Notebook files read tolerantly (PURE): cells, outlines and outputs as text, whatever is wrong with the JSON."""

from __future__ import annotations

import codecs
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from nbagent.core.errors import ToolError
from nbagent.core.messages import JsonObject
from nbagent.tools.output import cap_text, clean_text, cut_line, well_formed

FIRST_LINE_CHARS: Final = 100
MAX_NOTEBOOK_BYTES: Final = 100 << 20  # Claude Code 2.1: notebooks up to 100 MB
Outputs: TypeAlias = tuple[JsonObject, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One cell of a file. `index` counts from 1; `id` is "" when it has none; `count` is its execution count."""

    index: int
    id: str
    kind: str
    source: str
    outputs: Outputs = ()
    count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NotebookFile:
    """What could be read of a notebook file; `notes` says what was odd."""

    cells: tuple[Cell, ...]
    notes: tuple[str, ...] = ()
    language: str = ""


def parse_notebook(raw: bytes) -> NotebookFile:
    """Return the cells of a notebook file of any format version, also of an invalid one.

    Raises:
        ToolError: it is not a JSON object with cells.
    """
    if not raw.strip(b"\0 \t\r\n"):
        raise ToolError("the notebook file is empty (0 cells); it may not have been saved yet")
    text, notes = _decode(raw)
    document = _load(text)
    found = _raw_cells(document)
    if found is None:
        raise ToolError("the file is JSON but no notebook: it has no list of cells; read it as text with another name")
    version = document.get("nbformat")
    if version != 4:
        notes.append(f"nbformat is {version!r}, not 4; read as well as possible")
    cells = tuple(_cell(i, c) for i, c in enumerate((c for c in found if isinstance(c, Mapping)), 1))
    if len(cells) < len(found):
        notes.append(f"{len(found) - len(cells)} entries of the cell list are no cells and were left out")
    ids = [c.id for c in cells if c.id]
    if len(set(ids)) < len(ids):
        notes.append("some cell ids occur twice; name such cells by their number")
    return NotebookFile(cells=cells, notes=tuple(notes), language=_language(document))


def outline_line(cell: Cell, *, ran: str = "") -> str:
    """Return one line on a cell: number, id, kind, whether it ran, sizes, first line."""
    return f"{cell_head(cell, ran=ran)}: {first_line(cell.source)}"


def cell_head(cell: Cell, *, ran: str = "") -> str:
    """Return number, id, kind, whether it ran and sizes of a cell; `ran` stands in for the file's execution count."""
    parts = [f"[{cell.index}]", cell.kind]
    if cell.id:
        parts.append(f"id={_short(cell.id, 70)}")
    if cell.kind == "code":
        parts.append(ran or (f"run {cell.count}" if cell.count is not None else "not run"))
    lines = cell.source.count("\n") + 1 if cell.source else 0
    parts.append(f"{lines} line{'' if lines == 1 else 's'}")
    if cell.outputs:
        sizes = ", ".join(output_size(o) for o in cell.outputs[:4])
        parts.append(f"outputs: {sizes}{', …' if len(cell.outputs) > 4 else ''}")
    return " · ".join(parts)


def first_line(source: str) -> str:
    """Return the first line with something in it, cut."""
    line = next((line.strip() for line in source.splitlines() if line.strip()), "(empty)")
    return cut_line(line, FIRST_LINE_CHARS)


def output_size(output: JsonObject) -> str:
    """Return what an output is and how large: "image/png 34 KB"."""
    kind = str(output.get("output_type") or "output")
    if kind in ("error", "pyerr"):
        return f"error {_short(str(output.get('ename') or ''), 60)}".rstrip()
    if kind == "stream":
        return f"{output.get('name') or output.get('stream') or 'stream'} {len(_text(output.get('text')))} characters"
    bundle = _bundle(output)
    image = next((m for m in bundle if m.startswith("image/")), None)
    if image:
        return f"{image} {_image_size(bundle[image])}"
    return f"{kind} {max((len(_text(v)) for v in bundle.values()), default=0)} characters"


def output_text(output: JsonObject, limit_chars: int) -> str:
    """Return an output as text, capped; images and HTML are named, not shown."""
    kind = str(output.get("output_type") or "")
    if kind in ("error", "pyerr"):
        trace = clean_text("\n".join(map(str, _list(output.get("traceback")))))
        last = f"{output.get('ename') or 'error'}: {output.get('evalue') or ''}"
        return cap_text(trace if trace.strip() else clean_text(last), limit_chars).text
    if kind == "stream":
        return cap_text(clean_text(_text(output.get("text"))), limit_chars).text
    bundle = _bundle(output)
    lines = [f"[{m}, {_image_size(v)}, not shown]" for m, v in bundle.items() if m.startswith("image/")]
    plain = next((_text(bundle[m]) for m in ("text/plain", "text/markdown", "text/latex") if m in bundle), None)
    if plain is not None and not (lines and plain.startswith("<")):
        lines.append(cap_text(clean_text(plain), limit_chars).text)
    if not lines:
        lines = [f"[{m}, {len(_text(v))} characters, not shown]" for m, v in bundle.items()] or [f"[{kind}, empty]"]
    return "\n".join(lines)


def cell_text(cell: Cell, *, ran: str = "", output_chars: int = 0) -> str:
    """Return a cell with its source and, when `output_chars` is not 0, its outputs, each capped to that."""
    parts = [cell_head(cell, ran=ran), cell.source or "(empty)"]
    if output_chars:
        parts += outputs_text(cell, output_chars)
    return "\n".join(parts)


def outputs_text(cell: Cell, output_chars: int) -> list[str]:
    """Return the outputs of a cell, each numbered and capped."""
    return [f"[output {i}]\n{output_text(o, output_chars)}" for i, o in enumerate(cell.outputs, 1)]


def _decode(raw: bytes) -> tuple[str, list[str]]:
    for mark, name in ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16")):
        if raw.startswith(mark):
            return raw.decode("utf-8-sig" if name == "utf-8" else name, "replace"), []
    try:
        return raw.decode(), []
    except UnicodeDecodeError:
        return raw.decode("latin-1"), ["not UTF-8, read as Latin-1"]


def _load(text: str) -> Mapping[str, Any]:
    try:
        document = json.loads(text.strip("\0"))
    except (ValueError, RecursionError) as error:
        where = f" (line {error.lineno}: {error.msg})" if isinstance(error, json.JSONDecodeError) else ""
        conflict = "; it holds merge conflict marks" if "\n<<<<<<< " in text else ""
        raise ToolError(f"the notebook file is not valid JSON{where}{conflict}; search it with grep") from None
    if not isinstance(document, Mapping):
        raise ToolError(f"the notebook file holds a JSON {type(document).__name__}, not an object; it is no notebook")
    return document


def _raw_cells(document: Mapping[str, Any]) -> list[Any] | None:
    """Return the cell list; those of all worksheets in formats 2 and 3; None when there is none."""
    if isinstance(document.get("cells"), list):
        return list(document["cells"])
    sheets = document.get("worksheets")
    if not isinstance(sheets, list):
        return None
    return [c for s in sheets if isinstance(s, Mapping) for c in _list(s.get("cells"))]


def _cell(index: int, raw: Mapping[str, Any]) -> Cell:
    kind = str(raw.get("cell_type") or "unknown")
    source = raw.get("input") if kind == "code" and "input" in raw else raw.get("source")
    if kind == "heading":  # format 3
        level = raw.get("level")
        marks = "#" * (level if isinstance(level, int) and 0 < level < 7 else 1)
        return Cell(index=index, id="", kind="markdown", source=f"{marks} {_text(source)}")
    count = raw.get("execution_count", raw.get("prompt_number"))
    identity = raw.get("id")
    return Cell(
        index=index,
        id=well_formed(identity) if isinstance(identity, str) else "",
        kind=kind,
        source=_text(source, lines=True),
        outputs=tuple(o for o in _list(raw.get("outputs")) if isinstance(o, Mapping)),
        count=count if isinstance(count, int) and not isinstance(count, bool) else None,
    )


def _bundle(output: JsonObject) -> dict[str, Any]:
    """Return an output's MIME bundle; formats 2 and 3 have the short names beside the other keys."""
    bundle = output.get("data")
    if isinstance(bundle, Mapping):
        return {str(k): v for k, v in bundle.items()}
    short = {
        "text": "text/plain", "html": "text/html", "latex": "text/latex", "json": "application/json",
        "javascript": "application/javascript", "png": "image/png", "jpeg": "image/jpeg", "svg": "image/svg+xml",
    }  # fmt: skip
    return {mime: output[name] for name, mime in short.items() if name in output}


def _text(value: Any, *, lines: bool = False) -> str:
    """Return a multi-line string of a notebook; format 2 writes its lines without ends."""
    if value is None:
        return ""
    if isinstance(value, list):
        parts = [v if isinstance(v, str) else _text(v) for v in value]
        glue = "\n" if lines and len(parts) > 1 and not any(p.endswith("\n") for p in parts[:-1]) else ""
        return well_formed(glue.join(parts))
    return well_formed(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _image_size(value: Any) -> str:
    return f"{max(1, len(_text(value)) * 3 // 4 // 1024)} KB"


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _language(document: Mapping[str, Any]) -> str:
    metadata = document.get("metadata")
    for key, name in (("kernelspec", "language"), ("language_info", "name")):
        part = metadata.get(key) if isinstance(metadata, Mapping) else None
        if isinstance(part, Mapping) and isinstance(part.get(name), str):
            return str(part[name])
    return ""


def _short(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[:limit] + "…"
