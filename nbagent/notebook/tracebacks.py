"""Exceptions of agent-run code as plain, short text: the frames a person wrote, library frames folded."""

from __future__ import annotations

import itertools
import linecache
import re
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from nbagent.tools.kernel_types import CodeError

MAX_MESSAGE_CHARS = 2_000
MAX_TRACEBACK_CHARS = 8_000
_MAX_FRAMES = 12  # per exception; a recursion shows its first and last frames
_MAX_CHAIN = 3
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_PACKAGES = ("site-packages", "dist-packages")

Label = Callable[[str], str | None]  # a code object's file name to "Cell In[5.2]", None for a file


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    where: str
    function: str
    line: int
    source: str
    is_cell: bool
    library: str  # the package's name, "" for the person's own code


def describe_error(error: BaseException, label: Label) -> CodeError:
    """Return what the model and the person read about `error`; each text bounded, without ANSI codes."""
    message = clip(plain(_message(error)), MAX_MESSAGE_CHARS)
    try:
        text = "\n\n".join(_chain(error, label))
    except Exception as e:  # noqa: BLE001 - a hostile exception class; said in the text
        text = f"{type(error).__name__}: {message}\n(its traceback could not be written: {type(e).__name__})"
    return CodeError(name=type(error).__name__, message=message, traceback=clip(plain(text), MAX_TRACEBACK_CHARS))


def plain(text: str) -> str:
    """Return `text` without ANSI codes and lone surrogates."""
    return _ANSI.sub("", text).encode("utf-8", "backslashreplace").decode("utf-8")


def clip(text: str, limit_chars: int) -> str:
    """Return `text`, its middle left out when it is longer than `limit_chars`."""
    if len(text) <= limit_chars:
        return text
    half = limit_chars // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half:,} characters left out ...]\n{text[-half:]}"


def _message(error: BaseException) -> str:
    try:
        # that of a SyntaxError ends in the name of the file, which for a cell is one of the kernel's own making
        return error.msg if isinstance(error, SyntaxError) and error.msg else str(error)
    except Exception as e:  # noqa: BLE001 - user code; said in the text
        return f"(its message raised {type(e).__name__})"


def _chain(error: BaseException, label: Label) -> list[str]:
    """The texts of `error` and of what led to it, oldest first."""
    texts = [_one(error, label)]
    seen = {id(error)}
    current = error
    while len(texts) < 2 * _MAX_CHAIN - 1:
        cause = current.__cause__
        earlier = cause or (None if current.__suppress_context__ else current.__context__)
        if earlier is None or id(earlier) in seen:
            break
        link = "The error above was the direct cause of:" if cause else "While handling it, another error occurred:"
        texts[:0] = [_one(earlier, label), link]
        seen.add(id(earlier))
        current = earlier
    return texts


def _one(error: BaseException, label: Label) -> str:
    lines = _fold([_frame(f, line, label) for f, line in _walk(error.__traceback__)])
    if isinstance(error, SyntaxError):
        lines += _syntax_lines(error, label)
    lines.append(f"{type(error).__name__}: {_message(error)}")
    lines += [f"  Note: {note}" for note in getattr(error, "__notes__", ())]
    if isinstance(error, BaseExceptionGroup):
        lines += [f"  - {type(e).__name__}: {_message(e)}" for e in error.exceptions]
    return "\n".join(lines)


def _walk(tb: TracebackType | None) -> Iterator[tuple[traceback.FrameSummary, int]]:
    for frame, line in traceback.walk_tb(tb):
        code = frame.f_code
        yield traceback.FrameSummary(code.co_filename, line, code.co_name, lookup_line=False), line


def _frame(summary: traceback.FrameSummary, line: int, label: Label) -> _Frame:
    cell = label(summary.filename)
    return _Frame(
        where=cell or _shown(summary.filename),
        function=summary.name,
        line=line,
        source=linecache.getline(summary.filename, line).strip(),
        is_cell=cell is not None,
        library="" if cell else _library(summary.filename),
    )


def _library(filename: str) -> str:
    """Name the package that `filename` belongs to, "" when it is the person's own."""
    if filename.startswith("<"):
        return "Python"
    return next(iter(_in_library(filename)), "").removesuffix(".py")


def _shown(filename: str) -> str:
    """Return the path of a file; of a library's only what is the same on every machine."""
    return "/".join(_in_library(filename)) or filename


def _in_library(filename: str) -> tuple[str, ...]:
    """Return the parts of `filename` below the folder of the libraries; none when it is the person's own."""
    path = Path(filename)
    for folder in _PACKAGES:
        if folder in path.parts:
            return path.parts[-path.parts[::-1].index(folder) :]
    root = next((r for r in _LIBRARIES if path.is_relative_to(r)), None)
    return path.relative_to(root).parts if root else ()


def _fold(frames: list[_Frame]) -> list[str]:
    """Drop what is above the first cell, show the person's frames, and of each run of library frames the last."""
    first = next((i for i, f in enumerate(frames) if f.is_cell), len(frames))
    shown: list[list[str]] = []
    for library, group in itertools.groupby(frames[first:], key=lambda f: bool(f.library)):
        members = list(group)
        if library and len(members) > 1:
            shown.append([f"  ... {len(members) - 1} frames in {', '.join(_names(members))}"])
        shown += [_lines(f) for f in (members[-1:] if library else members)]
    if len(shown) > _MAX_FRAMES:
        half = _MAX_FRAMES // 2
        shown = [*shown[:half], [f"  ... {len(shown) - 2 * half} frames left out"], *shown[-half:]]
    return [line for lines in shown for line in lines]


def _names(frames: list[_Frame]) -> list[str]:
    return list(dict.fromkeys(f.library for f in frames))[:4]


def _lines(frame: _Frame) -> list[str]:
    inside = "" if frame.function == "<module>" else f", in {frame.function}"
    head = f"{frame.where}, line {frame.line}{inside}"
    return [head, f"    {frame.source}"] if frame.source else [head]


def _syntax_lines(error: SyntaxError, label: Label) -> list[str]:
    filename = error.filename or "<code>"
    lines = [f"{label(filename) or _shown(filename)}, line {error.lineno}"] if error.lineno else []
    if error.text:
        text = error.text.rstrip("\n")
        lines.append(f"    {text.lstrip()}")
        if error.offset:
            lines.append("    " + " " * max(0, error.offset - 1 - (len(text) - len(text.lstrip()))) + "^")
    return lines
