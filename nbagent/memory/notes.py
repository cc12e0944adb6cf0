"""Notes: the Markdown files that are the truth of memory (OC-M1, OC-M2), found, read and appended to.

`MEMORY.md` and undated files in `memory/` are evergreen; `memory/YYYY-MM-DD.md` are daily logs, only ever
appended to, under a lock. Names shown are `.nbagent/...` for the project and `~/.nbagent/...` for the person.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nbagent.core.errors import Diagnostic, JournalUnwritable, UserError
from nbagent.memory.pieces import real_date

MAX_NOTE_BYTES: Final = 8 << 20  # 8 MiB; a larger Markdown file is no note
MAX_FILES: Final = 100_000
SKIPPED: Final = frozenset({"sessions", "artifacts", "node_modules", "__pycache__"})
PROJECT_PREFIX: Final = ".nbagent/"
PERSON_PREFIX: Final = "~/.nbagent/"
LOCK_TIMEOUT_S: Final = 30.0
_DAILY: Final = re.compile(r"(?:^|/)memory/(\d{4})-(\d{2})-(\d{2})\.md$")
NOT_ORDINARY: Final = "is not an ordinary file"
_ORDINARY_REMEDY: Final = "remove it, or give it another name"
_LINK_REMEDY: Final = "copy the file there, or name its folder in memory.extra_dirs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """A folder with notes. `prefix` stands before a note's path in it; `whole` takes every Markdown file below."""

    folder: Path
    prefix: str
    whole: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteFile:
    """A note as found: `name` is what people and the model see; size in bytes, times in nanoseconds.

    `changed_ns` is when anything of it changed, also where the time of its text was set back (as `cp -p` does).
    """

    name: str
    path: Path
    size_bytes: int
    mtime_ns: int
    changed_ns: int = 0


def roots(folder: Path, home: Path, extra_dirs: Sequence[str] = ()) -> tuple[Root, ...]:
    """Return where notes are: the project's, the person's, then further folders; one that lies twice counts once."""
    found = [
        Root(folder=folder / ".nbagent", prefix=PROJECT_PREFIX),
        Root(folder=home, prefix=PERSON_PREFIX),
        *(Root(folder=Path(d), prefix=f"{Path(d).as_posix().rstrip('/')}/", whole=True) for d in extra_dirs),
    ]
    by_place: dict[str, Root] = {}
    for root in found:
        by_place.setdefault(os.path.realpath(root.folder), root)
    return tuple(by_place.values())


def find_notes(places: Sequence[Root]) -> tuple[list[NoteFile], list[Diagnostic]]:
    """Return all notes in the order of roots and names, and what was refused.

    Links are not followed: one that leads out of its folder is reported. Folders that begin with a dot are not entered.
    """
    files: list[NoteFile] = []
    refused: list[Diagnostic] = []
    for root in places:
        if root.whole:
            if not root.folder.is_dir():
                remedy = "make it, or take it out of the setting"
                cause = "is not there, though memory.extra_dirs names it"
                refused.append(Diagnostic(path=printable(str(root.folder)), line=None, cause=cause, remedy=remedy))
            _walk(root.folder, root, files, refused)
            continue
        with contextlib.suppress(OSError):
            for entry in sorted(os.scandir(root.folder), key=lambda e: e.name):
                if entry.name == "MEMORY.md":
                    _take(entry, root, files, refused)
        _walk(root.folder / "memory", root, files, refused)
    if len(files) > MAX_FILES:
        cause = f"{len(files):,} notes; only the first {MAX_FILES:,} are searched"
        refused.append(Diagnostic(path=str(files[MAX_FILES].path), line=None, cause=cause, remedy="move some away"))
    return files[:MAX_FILES], refused


def _walk(folder: Path, root: Root, files: list[NoteFile], refused: list[Diagnostic]) -> None:
    try:
        if folder.is_symlink():
            refused.append(Diagnostic(path=str(folder), line=None, cause="is a link", remedy=_LINK_REMEDY))
            return
        with os.scandir(folder) as scan:
            entries = sorted(scan, key=lambda e: e.name)
    except FileNotFoundError:
        return
    except OSError as error:
        cause = f"cannot be listed ({error.strerror})"
        refused.append(Diagnostic(path=str(folder), line=None, cause=cause, remedy="check its permissions"))
        return
    for entry in entries:
        if entry.name.lower().endswith(".md"):
            _take(entry, root, files, refused)
        elif entry.is_dir(follow_symlinks=False) and entry.name not in SKIPPED and not entry.name.startswith("."):
            _walk(Path(entry.path), root, files, refused)
        elif entry.is_symlink() and os.path.isdir(entry.path) and not _within(entry.path, root):
            cause = f"links to {printable(os.path.realpath(entry.path))}, outside of the notes"
            refused.append(Diagnostic(path=printable(entry.path), line=None, cause=cause, remedy=_LINK_REMEDY))


def _within(path: str, root: Root) -> bool:
    """Tell whether a link leads to something below the root, which is found where it is."""
    return f"{os.path.realpath(path)}{os.sep}".startswith(f"{os.path.realpath(root.folder)}{os.sep}")


def _take(entry: os.DirEntry[str], root: Root, files: list[NoteFile], refused: list[Diagnostic]) -> None:
    def refuse(cause: str, remedy: str) -> None:
        refused.append(Diagnostic(path=printable(entry.path), line=None, cause=cause, remedy=remedy))

    try:
        found = entry.stat(follow_symlinks=False)
    except OSError as error:
        return refuse(f"cannot be read ({error.strerror})", "check its permissions")
    if stat.S_ISLNK(found.st_mode):
        target = os.path.realpath(entry.path)
        if _within(entry.path, root):
            return None  # the file itself is found where it is
        return refuse(f"links to {printable(target)}, outside of the notes", _LINK_REMEDY)
    if not stat.S_ISREG(found.st_mode):
        return refuse(NOT_ORDINARY, _ORDINARY_REMEDY)
    if found.st_size > MAX_NOTE_BYTES:
        size = f"{found.st_size / (1 << 20):,.0f} MiB"
        return refuse(f"has {size}, more than {MAX_NOTE_BYTES >> 20} MiB, and is not searched", "split it")
    inner = entry.path[len(str(root.folder)) + 1 :].replace(os.sep, "/")
    name = printable(root.prefix + inner)
    times = {"mtime_ns": found.st_mtime_ns, "changed_ns": found.st_ctime_ns}
    files.append(NoteFile(name=name, path=Path(entry.path), size_bytes=found.st_size, **times))
    return None


def printable(name: str) -> str:
    """Return a file's name on one line, without what cannot be encoded.

    >>> printable("a\\nb.md")
    'a\\\\nb.md'
    """
    if name.isascii() and name.isprintable():
        return name
    text = name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteText:
    """A note's text, and what was wrong with it (None: nothing). `content` are its bytes; `binary` has no text."""

    text: str
    content: bytes
    fault: Diagnostic | None = None
    binary: bool = False


def read_note(path: Path) -> NoteText:
    """Return a note's text with "\\n" between lines. Binary gives no text; bytes that are not UTF-8 give U+FFFD.

    A pipe or device is not waited for.

    Raises:
        OSError: it cannot be read, or is no ordinary file.
    """
    with open(path, "rb", opener=_open_at_once) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, NOT_ORDINARY)
        content = file.read(MAX_NOTE_BYTES + 1)
    if _is_binary(content[:8192]):
        wide = content[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
        cause, remedy = ("is UTF-16", "save it as UTF-8") if wide else ("is binary", "rename it")
        binary = Diagnostic(path=str(path), line=None, cause=f"{cause} and is not searched", remedy=remedy)
        return NoteText(text="", content=content, fault=binary, binary=True)
    fault: Diagnostic | None = None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        text = content.decode("utf-8-sig", "replace")
        fault = Diagnostic(
            path=str(path), line=line, cause="is not UTF-8; what is broken is left out", remedy="save it as UTF-8"
        )
    return NoteText(text=text.replace("\r\n", "\n").replace("\r", "\n"), content=content, fault=fault)


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _is_binary(sample: bytes) -> bool:
    """Tell whether bytes are no text: many NULs, or some among bytes that are not UTF-8."""
    zeros = sample.count(0)
    if not zeros:
        return False
    try:
        sample[:-3].decode("utf-8")
    except UnicodeDecodeError:
        return True
    return zeros > len(sample) // 20


def daily_date(name: str) -> str:
    """Return the date of a daily log's name, "" for an evergreen note and for dates no calendar has.

    >>> daily_date(".nbagent/memory/2026-02-28.md"), daily_date("memory/2026-02-28-notes.md")
    ('2026-02-28', '')
    """
    found = _DAILY.search(name)
    return real_date(*found.groups()) if found else ""


def is_evergreen(name: str) -> bool:
    """Tell whether a note never ages: `MEMORY.md` and what below `memory/` is not named like a daily log."""
    return not _DAILY.search(name) and (name.rsplit("/", 1)[-1] == "MEMORY.md" or "/memory/" in f"/{name}")


def daily_path(folder: Path, date: str) -> Path:
    """Return the path of a day's log in the memory folder `folder` (the one that holds MEMORY.md)."""
    return folder / "memory" / f"{date}.md"


def append(path: Path, text: str) -> None:
    """Append `text` as whole lines to `path`.

    Locked against other threads and processes. A last line without its end gets one first. When the disk is full
    the file is as it was before.

    Raises:
        JournalUnwritable: it cannot be written, is a link or no ordinary file.
    """
    from filelock import FileLock, Timeout

    content = (text.rstrip("\n") + "\n").encode("utf-8", "replace")
    try:
        _make_private(path.parent)
        with FileLock(str(path.parent / ".lock"), timeout=LOCK_TIMEOUT_S, mode=0o600):
            _append_locked(path, content)
    except Timeout:
        raise _unwritable(path, "another process holds its lock", "wait for it, or restart that kernel") from None
    except OSError as error:
        raise _unwritable(
            path, error.strerror or str(error), "free space or check its permissions; nothing was changed"
        ) from error


def _append_locked(path: Path, content: bytes) -> None:
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
    for name in ("O_BINARY", "O_NOFOLLOW", "O_NONBLOCK"):
        flags |= getattr(os, name, 0)
    fd = os.open(path, flags, 0o600)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise _unwritable(path, f"it {NOT_ORDINARY}", _ORDINARY_REMEDY)
        before = os.fstat(fd).st_size
        if before:
            os.lseek(fd, before - 1, os.SEEK_SET)
            content = content if os.read(fd, 1) == b"\n" else b"\n" + content
        try:
            write_all(fd, content)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(fd, before)
            raise
    finally:
        os.close(fd)


def write_all(fd: int, content: bytes) -> None:
    """Write all of `content`; the system may take it in parts."""
    while content:
        content = content[os.write(fd, content) :]


def _make_private(folder: Path) -> None:
    """Make the folder, private; a `.nbagent` on the way gets its `.gitignore`."""
    if folder.is_dir():
        return
    for step in (*reversed(folder.parents), folder):
        if not step.is_dir():
            step.mkdir(mode=0o700, exist_ok=True)
        if step.name == ".nbagent":
            with contextlib.suppress(FileExistsError), open(step / ".gitignore", "x", encoding="utf-8") as file:
                file.write("*\n")


def _unwritable(path: Path, reason: str, remedy: str) -> JournalUnwritable:
    return JournalUnwritable(f"cannot write {printable(str(path))}: {reason}; {remedy}")


def locate(name: str, places: Sequence[Root]) -> Path:
    """Return the file that a note's name means; `MEMORY.md` and `memory/x.md` are the project's, then the person's.

    Raises:
        UserError: the name leads outside of the notes, is no Markdown file, is a link or no ordinary file.
    """
    if "\0" in name or not name.lower().endswith(".md"):
        raise UserError(f"path {printable(name)!r} is no note; give a path that a search in memory returned")
    for root in places:
        for inner in _inner_names(name, root):
            path = Path(os.path.normpath(root.folder / inner))
            if not path.is_relative_to(Path(os.path.normpath(root.folder))):
                continue
            if not path.exists() and not path.is_symlink():
                continue
            if not _is_note(path, root) or Path(os.path.realpath(path)) != Path(
                os.path.realpath(root.folder)
            ) / inner_path(path, root):
                continue
            if not path.is_file():
                raise UserError(f"note {printable(name)!r} {NOT_ORDINARY}; {_ORDINARY_REMEDY}")
            return path
    raise UserError(f"there is no note {printable(name)!r}; notes are MEMORY.md and memory/*.md")


def inner_path(path: Path, root: Root) -> Path:
    """Return the path of a note within its root."""
    return path.relative_to(Path(os.path.normpath(root.folder)))


def _inner_names(name: str, root: Root) -> Iterator[str]:
    if name.startswith(root.prefix):
        yield name[len(root.prefix) :]
    elif os.path.isabs(name):
        with contextlib.suppress(ValueError):
            yield str(Path(os.path.normpath(name)).relative_to(Path(os.path.normpath(root.folder))))
    elif not name.startswith((PROJECT_PREFIX, PERSON_PREFIX, "~")):
        yield name


def _is_note(path: Path, root: Root) -> bool:
    inner = inner_path(path, root).parts
    return root.whole or inner == ("MEMORY.md",) or inner[0] == "memory"


def lines_of(text: str) -> Sequence[str]:
    """Return the lines of a note."""
    return text.removesuffix("\n").split("\n")
