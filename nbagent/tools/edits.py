"""The tools `write` and `edit`: only what was read and is unchanged is changed, atomically, and nothing is lost."""

from __future__ import annotations

import asyncio
import difflib
import hashlib
import os
import re
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from nbagent.core.errors import ToolError
from nbagent.core.messages import JsonObject
from nbagent.tools import textfile
from nbagent.tools.output import cut_line, visible, well_formed
from nbagent.tools.paths import file_status, open_file, resolve_for_writing, shown_path
from nbagent.tools.textfile import Encoding
from nbagent.tools.tool import ToolContext, ToolOutput, ToolSpec

MAX_EDIT_BYTES: Final = 50 << 20
MAX_DIFF_LINES: Final = 60
SEARCHED_LINES: Final = 20_000  # of a file, for the lines nearest to a text that was not found

WRITE_SPEC: Final = ToolSpec(
    name="write",
    description=(
        "Write a whole file (UTF-8), making parent folders. An existing file must have been read in full before, "
        "and is overwritten; its previous content is kept. For a change in a file use edit. Not for the open "
        "notebook: propose a cell with the notebook tool."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "File, relative to the workspace"},
            "content": {"type": "string", "description": "The whole new content"},
        },
        "required": ["path", "content"],
    },
    access="write",
)

EDIT_SPEC: Final = ToolSpec(
    name="edit",
    description=(
        "Replace text in a file that you have read. `old` must match exactly, spaces and all, without line numbers, "
        "and occur once: add lines around it to make it unique, or set replace_all."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "File, relative to the workspace"},
            "old": {"type": "string", "description": "The exact text to replace"},
            "new": {"type": "string", "description": "What to put there; empty to delete"},
            "replace_all": {"type": "boolean", "description": "Replace every occurrence (default false)"},
        },
        "required": ["path", "old", "new"],
    },
    access="write",
)


@dataclass(frozen=True, slots=True)
class WriteTool:
    """Writes whole files."""

    spec: ToolSpec = WRITE_SPEC

    def summary(self, input: JsonObject) -> str:
        """Return path and size."""
        return f"{input.get('path', '')} ({len(str(input.get('content', ''))):,} characters)"

    def paths(self, input: JsonObject) -> tuple[str, ...]:
        """Return the one path."""
        return (str(input.get("path", "")),)

    async def run(self, input: JsonObject, context: ToolContext) -> ToolOutput:
        """Write the file.

        Raises:
            ToolError: outside the workspace, the open notebook, not read before, changed since, disk trouble.
        """
        return await asyncio.to_thread(_write, input, context)


@dataclass(frozen=True, slots=True)
class EditTool:
    """Replaces exact text."""

    spec: ToolSpec = EDIT_SPEC

    def summary(self, input: JsonObject) -> str:
        """Return path and the first line replaced."""
        old = str(input.get("old", "")).strip().split("\n")[0]
        return f"{input.get('path', '')}: {cut_line(old, 60)}"

    def paths(self, input: JsonObject) -> tuple[str, ...]:
        """Return the one path."""
        return (str(input.get("path", "")),)

    async def run(self, input: JsonObject, context: ToolContext) -> ToolOutput:
        """Edit the file.

        Raises:
            ToolError: as for `write`; or the text does not occur, or not once.
        """
        return await asyncio.to_thread(_edit, input, context)


def _write(input: JsonObject, context: ToolContext) -> ToolOutput:
    path, name = _target(input, context)
    raw = well_formed(str(input["content"])).encode()
    if not path.exists():
        _make_parents(path, name)
        _replace_file(path, name, raw)
        return _done(f"created {name}", raw, path=path, name=name, before=None, kept=None)
    before = _load(path, name)
    if before == raw:
        return ToolOutput(text=f"[{name} already holds exactly this; nothing was written]", meta={"path": name})
    if not _require_read(path, name, context, digest=_digest(before)):
        raise ToolError(f"only a part of {name!r} was read; read the rest before overwriting it, or use edit")
    kept = context.keep(_as_text(before))
    _replace_file(path, name, raw)
    text = f"overwrote {name} (the previous content is kept in {kept.path})"
    return _done(text, raw, path=path, name=name, before=before, kept=kept.digest)


def _edit(input: JsonObject, context: ToolContext) -> ToolOutput:
    path, name = _target(input, context)
    if not str(input["old"]):
        raise ToolError("old is empty; give the text to replace, or use write for a new or whole file")
    file_status(path, name)
    before = _load(path, name)
    encoding = textfile.detect_encoding(before, whole=True)
    if encoding is None:
        raise ToolError(f"file {name!r} is not text ({len(before):,} bytes); change it with python")
    saw_all = _require_read(path, name, context, digest=_digest(before))
    text = textfile.decode(before, encoding)
    old, new = _with_line_ends(text, str(input["old"]), well_formed(str(input["new"])))
    if old == new:
        raise ToolError("old and new are the same; nothing to do")
    count = text.count(old)
    if count == 0:
        raise ToolError(_not_found(text, old, name))
    if count > 1 and not input.get("replace_all"):
        raise ToolError(_not_unique(text, old, name, count=count))
    changed = text.replace(old, new)
    raw = _encoded(changed, encoding, name)
    kept = context.keep(_as_text(before))
    _replace_file(path, name, raw)
    times = "1 place" if count == 1 else f"{count} places"
    done = _done(f"edited {name} in {times}", raw, path=path, name=name, before=before, kept=kept.digest)
    meta: dict[str, Any] = {**done.meta, "replacements": count}
    if not saw_all:
        meta |= {"partial": True, "lines": [0, 0]}
    return ToolOutput(text=f"{done.text}\n{short_diff(text, changed)}", meta=meta)


def _target(input: JsonObject, context: ToolContext) -> tuple[Path, str]:
    """Return the resolved path and how it is shown; never the open notebook."""
    path = resolve_for_writing(str(input["path"]), context.root, cwd=context.cwd)
    name = shown_path(path, context.root)
    if path.suffix.lower() == ".ipynb" and context.notebook is not None and path.exists():
        open_path = context.notebook.path()
        if open_path is None or _same_file(path, open_path):
            which = "is the open notebook" if open_path is not None else "may be the open notebook"
            raise ToolError(
                f"{name!r} {which}; saving it would overwrite what is written here. "
                "Offer a cell instead: notebook(action='propose', source=…)"
            )
    return path, name


def _same_file(path: Path, other: Path) -> bool:
    try:
        return path == Path(os.path.realpath(other)) or path.samefile(other)
    except OSError:
        return False


def _load(path: Path, name: str) -> bytes:
    size = file_status(path, name).st_size
    if size > MAX_EDIT_BYTES:
        raise ToolError(f"file {name!r} has {size:,} bytes, over the {MAX_EDIT_BYTES:,} that are changed; use python")
    with open_file(path, name) as handle:
        return handle.read()


def _require_read(path: Path, name: str, context: ToolContext, *, digest: str) -> bool:
    """Refuse a file that the model has not seen, or not as it is now; returns whether it saw all lines."""
    looks = [m for m in context.seen.values() if m.get("path") == name and "lines" in m]
    if not looks:
        raise ToolError(f"file {name!r} was not read in this conversation; read(path={name!r}) first")
    mtime_ns = path.stat().st_mtime_ns
    current = [m for m in looks if m.get("file_sha256", "") == digest or _same_time(m, mtime_ns)]
    if not current:
        raise ToolError(f"file {name!r} changed on disk since you read it; read(path={name!r}) again, then repeat this")
    return _shows_all(current)


def _same_time(meta: JsonObject, mtime_ns: int) -> bool:
    """Tell whether a file too large for a hash has the time that `read` saw."""
    return not meta.get("file_sha256") and meta.get("mtime_ns") == mtime_ns


def _shows_all(looks: Iterable[JsonObject]) -> bool:
    """Tell whether the ranges of several reads together cover the file."""
    next_line = 1
    for look in sorted(looks, key=lambda m: int(m["lines"][0])):
        if not look.get("partial"):
            return True
        first, last = look["lines"]
        if first <= next_line <= last + 1:
            next_line = last + 1
        if next_line - 1 == look.get("total_lines"):
            return True
    return False


def _make_parents(path: Path, name: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ToolError(f"the folder of {name!r} cannot be made: {error.strerror}") from None


def _replace_file(path: Path, name: str, raw: bytes) -> None:
    """Write `raw` so that a reader sees the old file or the new one, never a part; the mode is kept."""
    try:
        mode = path.stat().st_mode & 0o7777 if path.exists() else None
        with tempfile.TemporaryDirectory(prefix=".nbagent-", suffix=".tmp", dir=path.parent) as folder:
            temporary = Path(folder) / "new"
            with temporary.open("xb") as fh:
                fh.write(raw)
                fh.flush()
                os.fsync(fh.fileno())
            if mode is not None:
                temporary.chmod(mode)
            os.replace(temporary, path)
    except OSError as error:
        raise ToolError(f"file {name!r} cannot be written: {error.strerror}; it is as it was") from None


def _done(text: str, raw: bytes, *, path: Path, name: str, before: bytes | None, kept: str | None) -> ToolOutput:
    """Return the result; its meta lets the next edit know that the model has seen this state."""
    lines = raw.count(b"\n") + (raw[-1:] not in (b"", b"\n"))
    status = path.stat()
    digest = _digest(raw)
    meta: dict[str, Any] = {
        "key": f"read:{name}:written",
        "path": name,
        "sha256": digest,
        "file_sha256": digest,
        "before_sha256": _digest(before) if before is not None else None,
        "after_sha256": digest,
        "before_artifact": kept,
        "mtime_ns": status.st_mtime_ns,
        "size": len(raw),
        "lines": [1, lines],
        "total_lines": lines,
        "partial": False,
    }
    return ToolOutput(text=f"{text}: {len(raw):,} bytes, {lines:,} lines", meta=meta)


def _digest(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def _as_text(raw: bytes) -> str:
    """Return bytes as text that holds all of them: UTF-8, else Latin-1."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def _encoded(text: str, encoding: Encoding, name: str) -> bytes:
    try:
        return textfile.encode(text, encoding)
    except UnicodeEncodeError as error:
        char = text[error.start]
        raise ToolError(f"file {name!r} is {encoding.name}, which has no {char!r}; convert the file first") from None


def _with_line_ends(text: str, old: str, new: str) -> tuple[str, str]:
    """Return old and new text with the file's line ends, since a model writes \\n."""
    crlf = text.count("\r\n")
    if crlf and (crlf == text.count("\n") or old not in text):
        return re.sub("\r?\n", "\r\n", old), re.sub("\r?\n", "\r\n", new)
    return old, new


def _not_found(text: str, old: str, name: str) -> str:
    """Return an error that teaches: what is nearest to the text that does not occur."""
    lines = text.splitlines()[:SEARCHED_LINES]
    wanted = next((line for line in old.splitlines() if line.strip()), old)
    head = f"old does not occur in {name!r}"
    if re.match(r"\s*\d+\t", wanted):
        return f"{head}; it starts with a line number: leave the numbers that read shows out"
    squeezed = " ".join(old.split())
    first = " ".join(wanted.split())
    alike = [i for i, line in enumerate(lines) if first and first in " ".join(line.split())]
    if alike and (squeezed == first or squeezed in " ".join(text.split())):
        return f"{head}, but line {alike[0] + 1} differs only in spaces or line breaks: {_quoted(lines, alike[:1])}"
    if not alike:
        near = difflib.get_close_matches(wanted[:300], [line[:300] for line in lines], n=3, cutoff=0.6)
        alike = [next(i for i, line in enumerate(lines) if line[:300] == found) for found in near]
    if not alike:
        return f"{head}, and no line is like {cut_line(visible(wanted), 100)!r}; read the file again"
    return f"{head}; nearest lines: {_quoted(lines, sorted(alike)[:3])}. Copy the text exactly from read"


def _quoted(lines: Sequence[str], numbers: Sequence[int]) -> str:
    return "; ".join(f"{i + 1}: {cut_line(visible(lines[i]), 200)!r}" for i in numbers)


def _not_unique(text: str, old: str, name: str, *, count: int) -> str:
    at, places = -1, []
    for _ in range(min(count, 10)):
        at = text.index(old, at + 1)
        places.append(text.count("\n", 0, at) + 1)
        at += len(old) - 1
    more = ", …" if count > len(places) else ""
    where = ", ".join(map(str, places))
    return (
        f"old occurs {count} times in {name!r}, at lines {where}{more}; "
        "add lines around it to name one place, or set replace_all=true"
    )


def short_diff(before: str, after: str, *, context_lines: int = 2) -> str:
    """Return a unified diff of the changed region without file names, at most 60 lines of 200 characters."""
    old, new = before.split("\n"), after.split("\n")
    same = min(len(old), len(new))
    head = next((i for i in range(same) if old[i] != new[i]), same)
    tail = next((i for i in range(same - head) if old[-1 - i] != new[-1 - i]), same - head)
    start = max(0, head - context_lines)
    end = max(0, tail - context_lines)
    old_part, new_part = old[start : len(old) - end], new[start : len(new) - end]
    if len(old_part) + len(new_part) > 4_000:  # difflib is quadratic
        return f"[lines {head + 1}-{len(old) - tail} were changed in many places; no diff]"
    diff = list(difflib.unified_diff(old_part, new_part, n=context_lines, lineterm=""))[2:]
    lines = [_moved(d, start) if d.startswith("@@") else cut_line(visible(d.rstrip("\r")), 200) for d in diff]
    if len(lines) > MAX_DIFF_LINES:
        lines = [*lines[:MAX_DIFF_LINES], f"[… {len(lines) - MAX_DIFF_LINES} more lines of the diff]"]
    return "\n".join(lines)


def _moved(header: str, lines: int) -> str:
    """Return a hunk header with its line numbers moved down."""
    return re.sub(r"([-+])(\d+)", lambda m: f"{m[1]}{int(m[2]) + lines}", header)
