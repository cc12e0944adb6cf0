"""Which paths a tool may touch: inside the workspace, links resolved, ordinary files only."""

from __future__ import annotations

import difflib
import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Final

from nbagent.core.errors import ToolError

MAX_PATH_BYTES: Final = 4_096  # Linux PATH_MAX
MAX_NAME_BYTES: Final = 255  # what common file systems take for one name
_LOG_NAME: Final = re.compile(r"\d{4}-\d{2}-\d{2}\.md", re.IGNORECASE)


def resolve(path: str, root: Path, *, cwd: Path, extra_roots: Sequence[Path] = ()) -> Path:
    """Return `path` as an absolute path without links, inside `root` or one of `extra_roots`.

    Relative paths start at `cwd`; "~" is the home folder. The file need not exist; links in
    the part that exists are followed. Pass `extra_roots` for reading only.

    Raises:
        ToolError: the name cannot be a path, or it leads outside.
    """
    _check_name(path)
    real = Path(os.path.realpath(os.path.join(cwd, os.path.expanduser(path))))
    if real.is_symlink():
        raise ToolError(f"path {path!r} is a link that leads back to itself; name the real file")
    roots = [Path(os.path.realpath(r)) for r in (root, *extra_roots)]
    if not any(real == r or r in real.parents for r in roots):
        also = f" or, for reading, under {', '.join(map(str, extra_roots))}" if extra_roots else ""
        target = "" if str(real) == path else f" (it leads to {str(real)!r})"
        raise ToolError(
            f"path {path!r} is outside the workspace{target}; use a path under {root}{also}, "
            "or ask the person to copy the file there"
        )
    return real


def resolve_for_writing(path: str, root: Path, *, cwd: Path) -> Path:
    """Return a path inside `root` that a tool may write; nbagent's own records are not among them.

    Raises:
        ToolError: see `resolve`; or it is a session's journal, a stored result, or the log of a day in memory.
    """
    real = resolve(path, root, cwd=cwd)
    for folder, inner in zip(real.parts, real.parts[1:], strict=False):
        if folder == ".nbagent" and inner in ("sessions", "artifacts"):
            raise ToolError(f"path {path!r} belongs to nbagent's record of this session; write somewhere else")
    if real.parts[-3:-1] == (".nbagent", "memory") and _LOG_NAME.fullmatch(real.name):
        raise ToolError(f"path {path!r} is a day's log of memory, which is only appended to; use remember for a fact")
    return real


def shown_path(path: Path, root: Path) -> str:
    """Return a resolved path as the model reads it: relative to the workspace where possible, with "/"."""
    real_root = Path(os.path.realpath(root))
    return path.relative_to(real_root).as_posix() if path.is_relative_to(real_root) else path.as_posix()


def file_status(path: Path, name: str) -> os.stat_result:
    """Return the status of an ordinary file; `name` is how messages call it.

    Raises:
        ToolError: it is missing, a folder, a device, a pipe or a socket.
    """
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise ToolError(f"file {name!r} does not exist{_near_names(path)}") from None
    except OSError as error:
        raise ToolError(f"file {name!r} cannot be looked at: {error.strerror}") from None
    if stat.S_ISDIR(status.st_mode):
        raise ToolError(f"{name!r} is a folder; list it with glob(pattern='*', path={name!r})")
    if not stat.S_ISREG(status.st_mode):
        raise ToolError(f"{name!r} is a device, pipe or socket, not an ordinary file; it is not read or written")
    return status


def open_file(path: Path, name: str) -> BinaryIO:
    """Open a resolved path for reading bytes; what became a link or pipe since is refused, not waited for.

    Raises:
        ToolError: it is no ordinary file, or cannot be opened.
    """
    file_status(path, name)
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        handle = os.open(path, flags)
    except OSError as error:
        raise ToolError(f"file {name!r} cannot be opened: {error.strerror}") from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise ToolError(f"{name!r} is no ordinary file any more; it is not read")
    return os.fdopen(handle, "rb")


def _check_name(path: str) -> None:
    if not path:
        raise ToolError("path is empty; name a file relative to the workspace")
    if "\0" in path or "\n" in path or "\r" in path:
        raise ToolError(f"path {path[:200]!r} holds a NUL or a line break; give one path without them")
    try:
        encoded = os.fsencode(path)
    except UnicodeEncodeError:
        raise ToolError(f"path {path[:200]!r} cannot be a file name; it holds half a character") from None
    if len(encoded) > MAX_PATH_BYTES or max(map(len, encoded.split(b"/"))) > MAX_NAME_BYTES:
        raise ToolError(
            f"path {path[:60]!r}… is too long ({len(encoded)} bytes); "
            f"a name has at most {MAX_NAME_BYTES} bytes, a path {MAX_PATH_BYTES}"
        )


def _near_names(path: Path) -> str:
    """Return what to try instead of a missing file: names beside it that look alike."""
    try:
        names = sorted(os.listdir(path.parent))[:5_000]
    except OSError:
        return f"; the folder {path.parent.name!r} does not exist either: find files with glob"
    near = difflib.get_close_matches(path.name, names, n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else "; find files with glob"
