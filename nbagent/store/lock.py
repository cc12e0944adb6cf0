"""WriterLock: at most one process writes a session's journal.

The lock is the operating system's (filelock), so it falls when its process dies. Who holds
it is written into a second file, since a waiting process cannot read the first everywhere.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING

from nbagent.core.errors import JournalLocked, JournalUnwritable
from nbagent.store.files import PRIVATE_FILE, unwritable, write_atomic

if TYPE_CHECKING:
    from filelock import BaseFileLock


class WriterLock:
    """The lock of the journal at `path`, taken when made; `release` gives it back.

    Raises:
        JournalLocked: another writer holds it; the message names the process.
        JournalUnwritable: the lock file cannot be made.
    """

    def __init__(self, path: Path) -> None:
        from filelock import FileLock, Timeout

        self._owner = path.with_name(f"{path.stem}.owner")
        self._lock: BaseFileLock = FileLock(
            str(path.with_name(f"{path.stem}.lock")), mode=PRIVATE_FILE, thread_local=False
        )
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            raise JournalLocked(_locked_message(path, self._owner)) from None
        except OSError as error:
            raise unwritable(path, error) from error
        try:
            write_atomic(self._owner, json.dumps({"pid": os.getpid(), "host": platform.node()}).encode())
        except JournalUnwritable:
            self._lock.release()
            raise

    def release(self) -> None:
        """Give the lock back; a second time does nothing."""
        if self._lock.is_locked:
            with contextlib.suppress(OSError):
                self._owner.unlink()
            self._lock.release()


def _locked_message(path: Path, owner: Path) -> str:
    who = "another process"
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        held = json.loads(owner.read_text("utf-8"))
        if held["pid"] == os.getpid() and held["host"] == platform.node():
            return f"the session in {path.parent} is already open in this kernel; close it there first (%agent reset)"
        who = f"process {held['pid']} on {held['host']}"
    return (
        f"the session in {path.parent} is being written by {who}; shut down the kernel of that notebook, "
        "or set NBAGENT_SESSION to another name to work in a session of your own"
    )
