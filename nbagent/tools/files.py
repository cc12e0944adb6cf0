"""The tool `read`: text a page at a time, images, notebooks in outline; the result always says what it shows."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from nbagent.core.errors import ToolError
from nbagent.core.messages import JsonObject, image_block
from nbagent.tools import ipynb, textfile
from nbagent.tools.output import cap_text, cut_span, visible
from nbagent.tools.paths import file_status, open_file, resolve, shown_path
from nbagent.tools.textfile import Encoding, Line
from nbagent.tools.tool import ToolContext, ToolOutput, ToolSpec

MAX_LINES: Final = 2_000  # OpenClaw read tool; Claude Code's tool description says the same
MAX_PAGE_BYTES: Final = 50 << 10  # OpenClaw read tool: 51,200 bytes
MAX_LINE_CHARS: Final = 2_000  # Claude Code
MAX_WHOLE_BYTES: Final = 256 << 10  # Claude Code: larger files need offset or limit
MAX_RESULT_TOKENS: Final = 25_000  # Claude Code
MAX_IMAGE_BYTES: Final = 3_500_000  # in base64 below the Messages API's 5 MB an image
MAX_IMAGE_SIDE: Final = 8_000  # pixels, Messages API
COUNT_LIMIT_BYTES: Final = 64 << 20  # larger files are not read to the end for a line count or a hash
NOTE_CHARS: Final = 450  # room kept for the closing note

READ_SPEC: Final = ToolSpec(
    name="read",
    description=(
        "Read a file of the workspace. Text comes with line numbers, at most 2,000 lines or 50 KB a call; the last "
        "line says what was shown and which offset continues. Files over 256 KB need offset and limit; find the "
        "place with grep first. Images are shown, notebooks come as an outline of cells (with offset or limit: their "
        "source). Read a file before you edit or overwrite it."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "File, relative to the workspace"},
            "offset": {"type": "integer", "minimum": 1, "description": "First line (or notebook cell) to show, from 1"},
            "limit": {"type": "integer", "minimum": 1, "description": "How many lines (or cells) to show"},
            "column": {"type": "integer", "minimum": 1, "description": "First character of each line, for long lines"},
        },
        "required": ["path"],
    },
    access="read",
    concurrent=True,
    formats_itself=True,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What a call asks for; `limit` is None when it did not say, `name` is the path as shown."""

    path: Path
    name: str
    offset: int
    limit: int | None
    column: int
    ranged: bool

    @property
    def key(self) -> str:
        """Under which the result is found again while it is in the model's context."""
        column = f":{self.column}" if self.column > 1 else ""
        return f"read:{self.name}:{self.offset}:{self.limit or ''}{column}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Page:
    """Rendered lines; `ended` says that the file ends with them, `total` is None when not counted."""

    lines: list[str]
    first: int
    digest: str
    cut_lines: bool
    ended: bool
    total: int | None
    why: str

    @property
    def last(self) -> int:
        return self.first + len(self.lines) - 1


@dataclass(frozen=True, slots=True)
class ReadTool:
    """Shows files."""

    spec: ToolSpec = READ_SPEC

    def summary(self, input: JsonObject) -> str:
        """Return path and range."""
        start, limit = input.get("offset"), input.get("limit")
        where = f" from {start}" if start else ""
        return f"{input.get('path', '')}{where}{f', {limit} lines' if limit else ''}"

    def paths(self, input: JsonObject) -> tuple[str, ...]:
        """Return the one path."""
        return (str(input.get("path", "")),)

    async def run(self, input: JsonObject, context: ToolContext) -> ToolOutput:
        """Read off the event loop; large files take a while.

        Raises:
            ToolError: outside the workspace, missing, binary, or too large without a range.
        """
        return await asyncio.to_thread(_read, input, context)


def _read(input: JsonObject, context: ToolContext) -> ToolOutput:
    path = resolve(str(input["path"]), context.root, cwd=context.cwd, extra_roots=context.extra_roots)
    if context.skills is not None and (why := context.skills.refusal(path)):
        raise ToolError(f"{why}; go on without it")
    asked = _Asked(
        path=path,
        name=shown_path(path, context.root),
        offset=int(input.get("offset") or 1),
        limit=int(input["limit"]) if input.get("limit") else None,
        column=int(input.get("column") or 1),
        ranged=bool(input.get("offset") or input.get("limit")),
    )
    size = file_status(path, asked.name).st_size
    with open_file(path, asked.name) as handle:
        head = handle.read(textfile.SNIFF_BYTES)
        media_type = image_type(head)
        if media_type:
            return _image(asked, context, media_type=media_type, size=size)
        if path.suffix == ".ipynb":
            return _cells(asked, context, size=size)
        encoding = textfile.detect_encoding(head, whole=size <= len(head))
        if encoding is None:
            kind = textfile.binary_kind(head) or "binary data"
            raise ToolError(f"file {asked.name!r} is {kind} ({size:,} bytes), not text; open it with python")
        if size > MAX_WHOLE_BYTES and not asked.ranged:
            raise ToolError(
                f"file {asked.name!r} has {size:,} bytes, over the {MAX_WHOLE_BYTES:,} that are read in one piece; "
                f"read a part: read(path={asked.name!r}, offset=1, limit=200), "
                f"or find the place first: grep(pattern=…, path={asked.name!r})"
            )
        source, encoding = _line_source(handle, encoding, asked=asked, size=size)
        return _text(asked, context, source=source, encoding=encoding, size=size)


def _line_source(handle: BinaryIO, encoding: Encoding, *, asked: _Asked, size: int) -> tuple[BinaryIO, Encoding]:
    """Return where lines come from, behind the mark; wide encodings as UTF-8 in memory."""
    if not encoding.is_wide:
        handle.seek(len(encoding.mark))
        return handle, encoding
    if size > textfile.WIDE_LIMIT_BYTES:
        raise ToolError(f"file {asked.name!r} is {encoding.name} and {size:,} bytes large; convert it first")
    handle.seek(0)
    text = textfile.decode(handle.read(), encoding)
    return io.BytesIO(text.encode()), Encoding(name="utf-8", note=f"the file is {encoding.name}")


def _text(asked: _Asked, context: ToolContext, *, source: BinaryIO, encoding: Encoding, size: int) -> ToolOutput:
    page = _page(asked, context, source=source, encoding=encoding, size=size)
    status = asked.path.stat()
    meta: dict[str, Any] = {
        "path": asked.name,
        "sha256": page.digest,
        "file_sha256": file_digest(asked.path) if size <= COUNT_LIMIT_BYTES else "",
        "mtime_ns": status.st_mtime_ns,
        "size": size,
        "lines": [page.first, page.last],
        "total_lines": page.total,
        "partial": page.cut_lines or page.first > 1 or not page.ended,
    }
    before = context.seen.get(asked.key)
    if before and page.lines and before.get("sha256") == page.digest and before.get("size") == size:
        # No "key": a stub must not stand for the text once the text has left the context.
        text = f"[unchanged: lines {page.first}-{page.last} of {asked.name} are as you read them above, not repeated]"
        return ToolOutput(text=text, shown="unchanged", meta={**meta, "unchanged": asked.key})
    note = _note(asked, page, encoding)
    text = "\n".join([*page.lines, note])
    capped = cap_text(text, context.cap_chars)  # only bites for caps of a few hundred characters
    shown = f"lines {page.first}-{page.last} of {page.total or 'more'}" if page.lines else "nothing"
    return ToolOutput(text=capped.text, shown=shown, meta={"key": asked.key, **meta})


def _page(asked: _Asked, context: ToolContext, *, source: BinaryIO, encoding: Encoding, size: int) -> _Page:
    """Apply the limits in this order: lines, bytes, the cap in force, tokens."""
    line_chars = min(MAX_LINE_CHARS, max(40, context.cap_chars // 2 - NOTE_CHARS))
    room_chars = max(1, context.cap_chars - NOTE_CHARS)
    room_bytes = MAX_PAGE_BYTES - NOTE_CHARS
    wanted = min(asked.limit or MAX_LINES, MAX_LINES)
    keep_bytes = (asked.column - 1 + line_chars) * 4 + 8
    lines: list[str] = []
    raws: list[bytes] = []
    used_bytes = used_chars = 0
    why, cut, ended = "", False, False
    source_lines: Iterator[Line] = textfile.iter_lines(source, asked.offset, keep_bytes=keep_bytes)
    for line in source_lines:
        text, was_cut = _render(line, encoding, line_chars=line_chars, column=asked.column)
        used_bytes += len(text.encode()) + 1
        used_chars += len(text) + 1
        if lines and (used_bytes > room_bytes or used_chars > room_chars):
            why = f"{'50 KB' if used_bytes > room_bytes else f'{context.cap_chars:,} characters'} a result"
            break
        lines.append(text)
        raws.append(line.raw)
        cut = cut or was_cut
        if len(lines) == wanted:  # the next line is not fetched: it may be the rest of a huge file
            ended = not source.read(1)
            why = "2,000 lines a result" if asked.limit and wanted < asked.limit and not ended else ""
            break
    else:
        ended = True
    fitting = _fitting_lines(lines, context)
    if fitting < len(lines):
        lines, raws, ended, why = lines[:fitting], raws[:fitting], False, f"{MAX_RESULT_TOKENS:,} tokens a result"
    total = _total_lines(asked, lines, source=source, encoding=encoding, ended=ended, size=size)
    digest = hashlib.sha256(b"\n".join(raws)).hexdigest()
    return _Page(
        lines=lines, first=asked.offset, digest=digest, cut_lines=cut, ended=ended, total=total, why=why
    )  # fmt: skip


def _fitting_lines(lines: list[str], context: ToolContext) -> int:
    """Return how many of the lines stay inside the token limit; at least one."""
    fitting = len(lines)
    while fitting > 1:
        tokens = context.estimate("\n".join(lines[:fitting]))
        if tokens <= MAX_RESULT_TOKENS:
            break
        fitting = max(1, min(fitting - 1, fitting * MAX_RESULT_TOKENS * 9 // (tokens * 10)))
    return fitting


def _total_lines(
    asked: _Asked, lines: list[str], *, source: BinaryIO, encoding: Encoding, ended: bool, size: int
) -> int | None:
    """Return how many lines the file has; None for a large file that was not read to its end."""
    if ended and lines:
        return asked.offset + len(lines) - 1
    if size > COUNT_LIMIT_BYTES and lines:
        return None
    source.seek(len(encoding.mark))
    return textfile.count_lines(source)


def _render(line: Line, encoding: Encoding, *, line_chars: int, column: int) -> tuple[str, bool]:
    """Return a line with its number, and whether a part of it is missing."""
    text = visible(textfile.decode_line(line.raw, encoding))
    span = cut_span(text, line_chars, column=column)
    before = f"[from column {span.start + 1}] " if span.start else ""
    cut = span.end < len(text) or line.size_bytes > len(line.raw) + 1
    after = f" [… line cut: {line.size_bytes:,} bytes; column={span.end + 1} continues]" if cut else ""
    return f"{line.number}\t{before}{text[span.start : span.end]}{after}", cut or bool(before)


def _note(asked: _Asked, page: _Page, encoding: Encoding) -> str:
    """Return the closing line: what was shown, what continues."""
    also = f"; {encoding.note}" if encoding.note else ""
    if not page.lines:
        if not page.total:
            return f"[{asked.name} is empty: 0 lines{also}]"
        return f"[offset {asked.offset} is past the end: {asked.name} has {page.total} lines{also}]"
    if page.ended:
        all_of_it = "to the end; long lines only in part" if page.cut_lines else "the whole file"
        whole = f"{page.total} line{'' if page.total == 1 else 's'}, {all_of_it}"
        return f"[{whole if page.first == 1 else f'lines {page.first}-{page.last} of {page.total}, to the end'}{also}]"
    of = f"of {page.total}" if page.total else "of many more"
    why = f"; {page.why}" if page.why else ""
    if page.why and asked.limit and asked.limit > len(page.lines):
        why += f", use a smaller limit (limit={len(page.lines)} fits)"
    return f"[lines {page.first}-{page.last} {of}{why}; continue with offset={page.last + 1}{also}]"


def _cells(asked: _Asked, context: ToolContext, *, size: int) -> ToolOutput:
    """Show a notebook: an outline, or with a range the source of those cells."""
    if size > ipynb.MAX_NOTEBOOK_BYTES:
        raise ToolError(f"notebook {asked.name!r} has {size:,} bytes, over {ipynb.MAX_NOTEBOOK_BYTES:,}; use python")
    with open_file(asked.path, asked.name) as handle:
        raw = handle.read()
    notebook = ipynb.parse_notebook(raw)
    total = len(notebook.cells)
    chosen = notebook.cells[asked.offset - 1 : asked.offset - 1 + (asked.limit or MAX_LINES)]
    parts: list[str] = []
    used = 0
    for cell in chosen:
        part = ipynb.cell_text(cell, output_chars=300) + "\n" if asked.ranged else ipynb.outline_line(cell)
        part = cap_text(part, max(100, context.cap_chars - 2 * NOTE_CHARS)).text
        used += len(part) + 1
        if parts and used > context.cap_chars - NOTE_CHARS:
            break
        parts.append(part)
    fitting = _fitting_lines(parts, context)
    last = asked.offset + fitting - 1
    if not chosen:
        end = f"[offset {asked.offset} is past the end: the notebook has {total} cells]" if total else "[no cells]"
    else:
        more = f"; continue with offset={last + 1}" if last < total else ""
        source = "" if asked.ranged else "; offset and limit show the source of cells"
        end = f"[notebook cells {asked.offset}-{last} of {total}{more}{source}]"
    text = "\n".join([*parts[:fitting], *(f"[{n}]" for n in notebook.notes), end])
    meta = {"path": asked.name, "size": size, "cells": [asked.offset, last], "partial": True}
    return ToolOutput(text=text, shown=f"cells {asked.offset}-{last} of {total}", meta=meta)


def _image(asked: _Asked, context: ToolContext, *, media_type: str, size: int) -> ToolOutput:
    what = f"{asked.name}: {media_type}, {size:,} bytes"
    if not context.sees_images:
        raise ToolError(f"{what}; this model does not see images, look at it with python (for example with PIL)")
    if size > MAX_IMAGE_BYTES:
        raise ToolError(f"{what}, over the {MAX_IMAGE_BYTES:,} that can be shown; make a smaller copy with python")
    with open_file(asked.path, asked.name) as handle:
        raw = handle.read(MAX_IMAGE_BYTES + 1)
    sides = image_sides(raw)
    if max(sides, default=0) > MAX_IMAGE_SIDE:
        raise ToolError(f"{what}, {sides[0]}x{sides[1]} pixels; at most {MAX_IMAGE_SIDE} a side can be shown")
    pixels = f", {sides[0]}x{sides[1]} pixels" if sides else ""
    meta = {"path": asked.name, "sha256": hashlib.sha256(raw).hexdigest(), "size": size, "partial": False}
    block = image_block(media_type, base64.b64encode(raw).decode())
    return ToolOutput(text=f"[{what}{pixels}]", images=(block,), shown="the image", meta=meta)


def image_type(head: bytes) -> str:
    """Return the media type of an image that providers take, "" for anything else."""
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if head.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    return "image/webp" if head[:4] == b"RIFF" and head[8:12] == b"WEBP" else ""


def image_sides(raw: bytes) -> tuple[int, ...]:
    """Return width and height in pixels of a PNG or GIF; nothing for others."""
    if raw.startswith(b"\x89PNG") and len(raw) >= 24:
        return int.from_bytes(raw[16:20], "big"), int.from_bytes(raw[20:24], "big")
    if raw.startswith(b"GIF8") and len(raw) >= 10:
        return int.from_bytes(raw[6:8], "little"), int.from_bytes(raw[8:10], "little")
    return ()


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal."""
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
