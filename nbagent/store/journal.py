"""Journal: the append-only file of a session's entries, one JSON line an entry.

A line is `{"v","seq","id","parent","at","body","hash"}`; the hash chains over parents. Files
beside `journal.jsonl`: `journal.lock` and `journal.owner` (who writes), `partial.json` (a reply
that was being streamed), `journal.torn-N` (bytes cut off after a crash), `artifacts/`.
"""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

from nbagent.core.entries import Entry, chain_hash, entry_to_text, seal_line
from nbagent.core.errors import BrokenPath, Diagnostic, JournalUnwritable
from nbagent.store.files import PRIVATE_FILE, make_private, sync_folder, unwritable, write_all
from nbagent.store.journal_reading import check_regular, scan
from nbagent.store.lock import WriterLock
from nbagent.store.partial import Partial

_READ_BYTES = 1 << 18  # lines of several KB: twice as fast as the default buffer of 8 KB


class Journal:
    """An open journal. Made by `Journal.open`; also a context manager.

    `entries` are all that could be read, in the order written, and what was appended since;
    every parent among them is in the list before its child. `diagnostics` say what was not as
    written. `append` may be called from any thread.
    """

    def __init__(self, path: Path, lock: WriterLock | None) -> None:
        """For `open` only."""
        self.path = path
        self.folder = path.parent
        self.entries: list[Entry] = []
        self.diagnostics: list[Diagnostic] = []
        self._lock = lock
        self._mutex = threading.RLock()
        self._hashes: dict[str, str] = {}
        self._next_seq = 1
        self._size_bytes = 0
        self._fd: int | None = None
        self._partial = Partial(self.folder / "partial.json")

    @classmethod
    def open(cls, path: Path | str, *, lock: bool = True) -> Journal:
        """Open the journal at `path` for writing; file and folders are made when missing.

        A torn last line is cut off, its bytes kept in `journal.torn-N`. `lock=False` is for
        file systems without locks; then the caller guarantees that nobody else writes.

        Raises:
            JournalLocked: another process, or another Journal of this one, has it open.
            JournalUnwritable: it cannot be made or written.
            JournalDamaged: `path` is a folder or a device.
        """
        where = Path(os.path.abspath(path))
        check_regular(where)
        make_private(where.parent)
        journal = cls(where, WriterLock(where) if lock else None)
        opened = False
        try:
            journal._load()
            opened = True
        except OSError as error:
            raise unwritable(where, error) from error
        finally:
            if not opened:
                journal.close()
        return journal

    def _load(self) -> None:
        binary = getattr(os, "O_BINARY", 0)
        fd = self._fd = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | binary, PRIVATE_FILE)
        with self.path.open("rb", buffering=_READ_BYTES) as lines:
            found = scan(lines, str(self.path))
        if found.good_bytes < found.total_bytes:
            self._keep_torn(found.good_bytes)
            os.ftruncate(fd, found.good_bytes)
        if found.open_end:
            write_all(fd, b"\n")
        self._size_bytes = os.fstat(fd).st_size
        self.entries, self.diagnostics = found.entries, found.diagnostics
        self._hashes, self._next_seq = found.hashes, found.next_seq

    def _keep_torn(self, start: int) -> None:
        with self.path.open("rb") as whole:
            whole.seek(start)
            torn = whole.read()
        number = 1
        while True:
            target = self.path.with_name(f"{self.path.stem}.torn-{number}")
            try:
                fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), PRIVATE_FILE)
                break
            except FileExistsError:
                number += 1
        try:
            write_all(fd, torn)
            os.fsync(fd)
        finally:
            os.close(fd)

    def append(self, entry: Entry) -> None:
        """Write `entry` as one line, handed to the operating system when this returns.

        All or nothing: when it raises, file and memory are as before, so that the same call
        can be made again.

        Raises:
            JournalUnwritable: the disk is full, the folder is read-only, the file was replaced.
            BrokenPath: the id is taken, or the parent is not in the journal.
            ValueError, TypeError: the body is not JSON (NaN, a foreign object).
        """
        with self._mutex:
            fd = self._checked_fd()
            if entry.id in self._hashes:
                raise BrokenPath(f"entry id {entry.id!r} occurs twice")
            if entry.parent is not None and entry.parent not in self._hashes:
                raise BrokenPath(f"entry {entry.id!r} names the parent {entry.parent!r}, which is not in the journal")
            text = entry_to_text(entry, self._next_seq)
            line_hash = chain_hash(self._hashes.get(entry.parent, "") if entry.parent else "", text)
            line = (seal_line(text, line_hash) + "\n").encode()
            count, written = len(self.entries), False
            try:
                write_all(fd, line)
                self._hashes[entry.id] = line_hash
                self.entries.append(entry)
                written = True
            except OSError as error:
                raise unwritable(self.path, error) from error
            finally:
                if written:
                    self._next_seq += 1
                    self._size_bytes += len(line)
                else:
                    self._roll_back(fd, entry.id, count)

    def _roll_back(self, fd: int, entry_id: str, count: int) -> None:
        """Undo a write that failed or was interrupted."""
        self._hashes.pop(entry_id, None)
        del self.entries[count:]
        with contextlib.suppress(OSError):
            os.ftruncate(fd, self._size_bytes)

    def _checked_fd(self) -> int:
        if self._fd is None:
            raise JournalUnwritable(f"the journal {self.path} is closed; restart the kernel or run %agent reset")
        try:
            there = os.stat(self.path)
            ours = os.fstat(self._fd)
        except OSError as error:
            raise unwritable(self.path, error) from error
        if not os.path.samestat(there, ours):
            raise JournalUnwritable(
                f"the journal {self.path} was replaced by another program while open; restart the kernel to read it"
            )
        if ours.st_size != self._size_bytes:
            raise JournalUnwritable(
                f"the journal {self.path} was changed by another program while open "
                f"({ours.st_size} bytes, expected {self._size_bytes}); restart the kernel to read it"
            )
        return self._fd

    def sync(self) -> None:
        """Wait until everything appended is on the disk; once a turn.

        Raises:
            JournalUnwritable: the disk refuses, or the file was removed.
        """
        with self._mutex:
            fd = self._checked_fd()
            try:
                os.fsync(fd)
            except OSError as error:
                raise unwritable(self.path, error) from error
            sync_folder(self.folder)

    def close(self) -> None:
        """Close the file and give the lock back; a second time does nothing."""
        with self._mutex:
            if self._fd is not None:
                os.close(self._fd)
                self._fd = None
            if self._lock is not None:
                self._lock.release()
                self._lock = None

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def save_partial(self, content: Any) -> None:
        """Keep `content` (JSON: the finished blocks of the reply being streamed) in place of the last partial.

        It belongs to the place after the newest entry; an append makes it out of date.

        Raises:
            JournalUnwritable: it cannot be written; the last one stands.
        """
        self._partial.save(content, self._newest())

    def load_partial(self) -> Any:
        """Return the partial that was kept after the newest entry; None when there is none or it is out of date.

        One that cannot be read is reported in `diagnostics`.
        """
        return self._partial.load(self._newest(), self.diagnostics)

    def clear_partial(self) -> None:
        """Remove the partial, if any."""
        self._partial.clear()

    def _newest(self) -> str | None:
        return self.entries[-1].id if self.entries else None
