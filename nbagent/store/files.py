"""Private folders, atomic writes, and the words for what the operating system refuses."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

from nbagent.core.errors import JournalUnwritable, one_line

HOME_NAME = ".nbagent"
PRIVATE_FOLDER = 0o700
PRIVATE_FILE = 0o600

_REMEDIES = {
    errno.ENOSPC: "free some space on that disk and run the cell again",
    errno.EDQUOT: "your disk quota is used up: delete something and run the cell again",
    errno.EFBIG: "a limit on the size of files is in force: raise it, or start a new session with %agent reset",
    errno.EACCES: "give yourself write permission there, or copy the notebook to a folder of your own",
    errno.EPERM: "give yourself write permission there, or copy the notebook to a folder of your own",
    errno.EROFS: "the file system is read-only: copy the notebook to a folder that can be written",
    errno.ENAMETOOLONG: "the path is too long: move the notebook to a folder with a shorter path",
    errno.ENOTDIR: "a part of the path is a file: rename or remove it",
    errno.EISDIR: "a folder has that name: rename or remove it",
    errno.ENOENT: "its folder is not there: make it; where the notebook had it, a restart of the kernel does",
    errno.EIO: "the disk reports a fault: check it, and copy the notebook to another one",
}


def unwritable(path: Path, error: OSError) -> JournalUnwritable:
    """Return the error that tells a person why `path` cannot be written, and what to do."""
    reason = error.strerror or str(error)
    remedy = _REMEDIES.get(error.errno or 0, "look at the path and its permissions, then run the cell again")
    return JournalUnwritable(one_line(f"cannot write {path}: {reason}; {remedy}"))


def remedy_for(error: OSError, otherwise: str) -> str:
    """Return what to do when a file of the person's choice cannot be written; `otherwise` unless the disk is full."""
    return _REMEDIES[error.errno] if error.errno in (errno.ENOSPC, errno.EDQUOT) else otherwise


def write_whole(path: Path, text: str) -> None:
    """Write a file that the person reads, with line feeds; the old one, and one that it is a link to, stays until then.

    Raises:
        OSError: it cannot be written; the old file stands, and nothing is left behind.
    """
    path = Path(os.path.realpath(path))
    new = path.with_name(f"{path.name}.new")
    try:
        new.write_text(text, encoding="utf-8", newline="\n")
        os.replace(new, path)
    except (OSError, UnicodeError):
        with contextlib.suppress(OSError):
            new.unlink()
        raise


def make_private(folder: Path) -> None:
    """Make `folder` and what is missing above it.

    Folders from `.nbagent` downward are private (0700), those above get the usual mode. A
    `.nbagent` on the way gets a `.gitignore` holding `*`, unless it has one.

    Raises:
        JournalUnwritable: a folder or the `.gitignore` cannot be made.
    """
    try:
        for step in (*reversed(folder.parents), folder):
            inside = HOME_NAME in step.parts
            with contextlib.suppress(FileExistsError):
                if not step.is_dir():
                    step.mkdir(mode=PRIVATE_FOLDER if inside or step == folder else 0o777)
            if step.name == HOME_NAME:
                _write_gitignore(step)
        if not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    except OSError as error:
        raise unwritable(folder, error) from error


def _write_gitignore(folder: Path) -> None:
    path = folder / ".gitignore"
    with contextlib.suppress(FileExistsError):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE)
        try:
            os.write(fd, b"*\n")
        finally:
            os.close(fd)


def write_atomic(path: Path, content: bytes, *, durable: bool = False) -> None:
    """Write `content` (bytes) to `path` so that a reader sees the old file or the new one, never a part.

    The file is private (0600). `durable` waits until it is on the disk.

    Raises:
        JournalUnwritable: it cannot be written; the old file stands.
    """
    temp, moved = path.with_name(f"{path.name}.tmp-{os.getpid()}"), False
    try:
        fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0), PRIVATE_FILE)
        try:
            write_all(fd, content)
            if durable:
                os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(temp, path)
        moved = True
    except OSError as error:
        raise unwritable(path, error) from error
    finally:
        if not moved:
            with contextlib.suppress(OSError):
                temp.unlink()


def write_all(fd: int, content: bytes) -> None:
    """Write all of `content` (bytes); the system may take it in parts, of which the last raises when the disk is full.

    Raises:
        OSError: as the system says.
    """
    done = os.write(fd, content)
    while done < len(content):
        more = os.write(fd, content[done:])
        if more == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done += more


def sync_folder(folder: Path) -> None:
    """Ask that a new name in `folder` is on the disk; systems that cannot do that for folders are left alone."""
    with contextlib.suppress(OSError):
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
