"""ScratchFolder: a temporary folder of this process, which goes with it, or soon after it was killed."""

from __future__ import annotations

import atexit
import contextlib
import shutil
import tempfile
from pathlib import Path

LOCK = ".lock"
YOUNG_S = 60.0  # a folder is made before it is locked
FORGOTTEN_S = 86_400.0  # one that was never locked is let be for a day


class ScratchFolder:
    """A folder called nbagent-KIND-... in the system's temporary one.

    It is removed by `remove`, or when the process ends; what killed processes left is removed when the next is made.
    """

    def __init__(self, kind: str) -> None:
        from filelock import FileLock

        prefix = f"nbagent-{kind}-"
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        self._lock = FileLock(str(self.path / LOCK), thread_local=False)
        with contextlib.suppress(OSError, NotImplementedError):  # then it counts as never locked
            self._lock.acquire(timeout=0)
        atexit.register(self.remove)
        _sweep(prefix, self.path.stat().st_mtime)

    def remove(self) -> None:
        """Remove the folder; a second time does nothing."""
        atexit.unregister(self.remove)
        self._lock.release()
        shutil.rmtree(self.path, ignore_errors=True)


def _sweep(prefix: str, now: float) -> None:
    """Remove the folders whose processes are gone; one that cannot be removed stays. `now`: as files have it."""
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with contextlib.suppress(OSError):
            if folder.is_dir() and not folder.is_symlink() and _is_left(folder, now - folder.stat().st_mtime):
                shutil.rmtree(folder, ignore_errors=True)


def _is_left(folder: Path, age_s: float) -> bool:
    from filelock import FileLock, Timeout

    lock = folder / LOCK
    if not lock.exists():
        return age_s > FORGOTTEN_S
    try:
        with FileLock(str(lock), timeout=0):
            return age_s > YOUNG_S
    except (Timeout, NotImplementedError):
        return False
