"""The tools `glob` and `grep`: find files by name and lines by pattern, bounded in time and length."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from nbagent.core.errors import ToolError, counted
from nbagent.core.messages import JsonObject
from nbagent.tools.output import visible
from nbagent.tools.paths import file_status, resolve, shown_path
from nbagent.tools.tool import ToolContext, ToolOutput, ToolSpec
from nbagent.tools.walk import Walk, compile_glob

MAX_FOUND: Final = 200
GREP_LIMIT: Final = 100
MAX_GREP_LIMIT: Final = 1_000
MAX_GREP_FILES: Final = 50_000
GREP_LIMIT_S: Final = 10.0
NOTE_CHARS: Final = 400
WORKER: Final = Path(__file__).with_name("grep_worker.py")

GLOB_SPEC: Final = ToolSpec(
    name="glob",
    description=(
        "List files whose path matches a pattern, sorted, at most 200: *.csv here, **/*.py anywhere below, "
        "data/**/part-?.parquet, src/*.{py,pyi}. Skips .git, .venv, node_modules, caches."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "pattern": {"type": "string", "description": "Pattern, relative to path"},
            "path": {"type": "string", "description": "Folder to start in (default: the current one)"},
        },
        "required": ["pattern"],
    },
    access="read",
    concurrent=True,
    formats_itself=True,
)

GREP_SPEC: Final = ToolSpec(
    name="grep",
    description=(
        "Search file contents line by line with a Python regular expression. Results are `path:line: text`. "
        "Skips binary files, .git, .venv, node_modules, caches. Narrow with path (file or folder) and glob."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "pattern": {"type": "string", "description": "Python regular expression"},
            "path": {"type": "string", "description": "File or folder to search (default: the current folder)"},
            "glob": {"type": "string", "description": "Only files like this, for example *.py or src/**/*.ts"},
            "ignore_case": {"type": "boolean", "description": "Ignore upper and lower case (default false)"},
            "context_lines": {"type": "integer", "minimum": 0, "maximum": 20, "description": "Lines around a match"},
            "limit": {"type": "integer", "minimum": 1, "maximum": MAX_GREP_LIMIT, "description": "Most matches (100)"},
        },
        "required": ["pattern"],
    },
    access="read",
    concurrent=True,
    formats_itself=True,
)


@dataclass(frozen=True, slots=True)
class GlobTool:
    """Finds files by name."""

    spec: ToolSpec = GLOB_SPEC

    def summary(self, input: JsonObject) -> str:
        """Return pattern and folder."""
        return f"{input.get('pattern', '')}{_inside(input)}"

    def paths(self, input: JsonObject) -> tuple[str, ...]:
        """Return the folder."""
        return (str(input.get("path") or "."),)

    async def run(self, input: JsonObject, context: ToolContext) -> ToolOutput:
        """List the files.

        Raises:
            ToolError: outside the workspace, no folder, a pattern that cannot be.
        """
        return await asyncio.to_thread(_glob, input, context, asyncio.get_running_loop().time)


@dataclass(frozen=True, slots=True)
class GrepTool:
    """Finds lines by a pattern. `limit_s` is how long one search may take."""

    spec: ToolSpec = GREP_SPEC
    limit_s: float = GREP_LIMIT_S

    def summary(self, input: JsonObject) -> str:
        """Return pattern and place."""
        return f"{input.get('pattern', '')}{_inside(input)}"

    def paths(self, input: JsonObject) -> tuple[str, ...]:
        """Return the file or folder."""
        return (str(input.get("path") or "."),)

    async def run(self, input: JsonObject, context: ToolContext) -> ToolOutput:
        """Search in a process of its own; see `grep_worker` for why.

        Raises:
            ToolError: outside the workspace, missing, an invalid pattern.
        """
        pattern = str(input["pattern"])
        if len(pattern) > 2_000:
            raise ToolError(f"pattern has {len(pattern):,} characters, at most 2,000; search for a shorter part")
        found, complete = await asyncio.to_thread(_grep_files, input, context, asyncio.get_running_loop().time)
        files = [file for file in found if not context.hides(file[0])]
        task = {
            "pattern": pattern,
            "ignore_case": bool(input.get("ignore_case")),
            "context_lines": int(input.get("context_lines") or 0),
            "limit": int(input.get("limit") or GREP_LIMIT),
            "files": files,
        }
        raw, in_time = await _run_worker(json.dumps(task).encode(), limit_s=self.limit_s)
        output = _grep_output(raw, context, pattern=pattern, files=len(files), complete=complete, in_time=in_time)
        if hidden := len(found) - len(files):
            note = f"\n[{counted(hidden, 'file')} left out: a rule of the person keeps them from you. Do not retry.]"
            output = replace(output, text=output.text + note)
        return output


def _inside(input: JsonObject) -> str:
    return f" in {input['path']}" if input.get("path") else ""


def _glob(input: JsonObject, context: ToolContext, clock: Callable[[], float]) -> ToolOutput:
    start, prefix = _start(input, context)
    if not start.is_dir():
        raise ToolError(f"path {input.get('path')!r} is not a folder; give a folder, or read the file")
    pattern = str(input["pattern"])
    matches = compile_glob(pattern)
    walk = Walk(start, start if not start.is_relative_to(context.root.resolve()) else context.root, clock)
    shown: list[str] = []
    found = used = 0
    for name in walk.files():
        if matches(name):
            found += 1
            line = visible(prefix + name).replace("\n", "␊")
            used += len(line) + 1
            if len(shown) < MAX_FOUND and used <= context.cap_chars - NOTE_CHARS:
                shown.append(line)
    notes = [] if walk.complete else ["the folder is too large: not all of it was looked at; start deeper with path"]
    if found > len(shown):
        notes.append(f"{found - len(shown)} more files match; use a narrower pattern")
    if not found:
        deeper = f"; **/{pattern} searches all folders" if "/" not in pattern and "**" not in pattern else ""
        notes.append(f"no file matches {pattern!r}{_inside(input)}{deeper}")
    text = "\n".join([*shown, *(f"[{n}]" for n in notes)])
    return ToolOutput(text=text, shown=f"{len(shown)} of {found} files", meta={"found": found})


def _start(input: JsonObject, context: ToolContext) -> tuple[Path, str]:
    """Return where to start, and what comes before relative paths when they are shown."""
    path = str(input.get("path") or ".")
    start = resolve(path, context.root, cwd=context.cwd, extra_roots=context.extra_roots)
    if not start.exists():
        raise ToolError(f"path {path!r} does not exist; list folders with glob(pattern='**')")
    name = shown_path(start, context.root)
    return start, "" if name == "." else f"{name}/"


def _grep_files(
    input: JsonObject, context: ToolContext, clock: Callable[[], float]
) -> tuple[list[tuple[str, str]], bool]:
    """Return the files to search with the names shown for them, and whether these are all."""
    start, prefix = _start(input, context)
    if not start.is_dir():
        file_status(start, str(input.get("path")))
        return [(str(start), prefix.removesuffix("/"))], True
    glob = str(input.get("glob") or "**")
    matches = compile_glob(glob if "/" in glob or glob == "**" else f"**/{glob}")
    walk = Walk(start, start if not start.is_relative_to(context.root.resolve()) else context.root, clock)
    files: list[tuple[str, str]] = []
    for name in walk.files():
        if matches(name):
            if len(files) == MAX_GREP_FILES:
                return files, False
            path = os.path.join(start, name)
            files.append((os.path.realpath(path) if os.path.islink(path) else path, prefix + name))
    return files, walk.complete


async def _run_worker(task: bytes, *, limit_s: float) -> tuple[bytes, bool]:
    """Return what the worker wrote, and whether it ended by itself in time."""
    if not sys.executable:
        raise ToolError("grep needs a Python program to run, and none is known here; use python or shell")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-S", str(WORKER),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    chunks: list[bytes] = []
    try:
        async with asyncio.timeout(limit_s):
            process.stdin.write(task)
            process.stdin.close()
            while chunk := await process.stdout.read(1 << 16):
                chunks.append(chunk)
    except TimeoutError:
        return b"".join(chunks), False
    finally:
        if process.returncode is None:
            try:
                process.kill()
            except ProcessLookupError:
                pass
            await process.wait()
    return b"".join(chunks), True


def _grep_output(
    raw: bytes, context: ToolContext, *, pattern: str, files: int, complete: bool, in_time: bool
) -> ToolOutput:
    records = [json.loads(line) for line in raw.split(b"\n")[:-1]]
    counts: dict[str, Any] = next((r["done"] for r in records if "done" in r), {})
    invalid = next((r["invalid"] for r in records if "invalid" in r), None)
    if invalid is not None:
        raise ToolError(
            f"pattern {pattern[:200]!r} is not a valid regular expression ({invalid}); "
            f"to search for the text itself use {re.escape(pattern)[:300]!r}"
        )
    lines: list[str] = []
    shown = used = 0
    for record in records:
        if "line" not in record:
            continue
        mark = ":" if record.get("match") else "-"
        line = f"{record['name']}{mark}{record['line']}{mark} {visible(record['text'])}"
        used += len(line) + 1
        if used > context.cap_chars - NOTE_CHARS:
            break
        lines.append(line)
        shown += bool(record.get("match"))
    found = counts.get("matches", sum(1 for r in records if r.get("match")))
    notes = _grep_notes(
        counts, pattern, found=found, shown=shown, files=files, complete=complete and in_time
    )  # fmt: skip
    if not in_time:
        notes.append("the search took too long and was stopped; use a simpler pattern, or narrow it with path and glob")
    text = "\n".join([*lines, *(f"[{n}]" for n in notes)])
    return ToolOutput(text=text, shown=f"{shown} of {found} matches", meta={"found": found, "complete": in_time})


def _grep_notes(
    counts: dict[str, Any], pattern: str, *, found: int, shown: int, files: int, complete: bool
) -> list[str]:
    notes: list[str] = []
    if found > shown:
        at_least = "" if complete else "at least "
        notes.append(f"{at_least}{found - shown} more matching lines were left out; narrow the pattern, path or glob")
    elif found:
        notes.append(f"{found} matching line{'' if found == 1 else 's'}")
    elif complete:
        literal = re.escape(pattern)
        special = f"; as plain text it would be {literal!r}" if re.search(r"[.*+?()\[\]{}|^$\\]", pattern) else ""
        lines = "; grep works line by line" if "\n" in pattern or r"\n" in pattern else ""
        notes.append(f"no line matches in {files} file{'' if files == 1 else 's'}{special}{lines}")
    if skipped := counts.get("binary", 0) + counts.get("unreadable", 0):
        notes.append(f"{skipped} binary or unreadable files were skipped")
    return notes
