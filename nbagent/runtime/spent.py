"""DayLedger: what the person spent on a day, over all sessions, in a small file in their home."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import sys
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from nbagent.core.entries import Entry, UsageReported
from nbagent.core.turn import Limits
from nbagent.models.registry import NamedModel
from nbagent.store.files import PRIVATE_FILE, write_all

FILE_NAME = "spent.jsonl"
MAX_READ_BYTES = 4 << 20  # about 50,000 calls: more than a day's
LOCK_TIMEOUT_S, LOCK_POLL_S = 1.0, 0.005


def utc_day(at: float) -> str:
    """Return the day of `at` (seconds since the epoch) in UTC as YYYY-MM-DD."""
    return datetime.datetime.fromtimestamp(at, datetime.UTC).date().isoformat()


def spent_before(entries: Iterable[Entry], now: float, day: DayLedger | None) -> tuple[float, float]:
    """Return what a session cost in all, and what was spent today (UTC), US dollars; with `day` by all sessions."""
    today = utc_day(now)
    session = here = 0.0
    for entry in entries:
        if isinstance(entry.body, UsageReported) and entry.body.cost_usd:
            session += entry.body.cost_usd
            here += entry.body.cost_usd if utc_day(entry.at) == today else 0.0
    return session, here if day is None else max(here, day.spent_on(today))


@dataclass(slots=True)
class DayLedger:
    """One line a paid call: day (UTC), US dollars, session. `problem` says why a line could not be written."""

    home: Path
    session: str
    problem: str = ""

    @property
    def path(self) -> Path:
        """The file."""
        return self.home / FILE_NAME

    def add(self, at: float, usd: float) -> None:
        """Write down that a call at `at` cost `usd`; a home that cannot be written is noted, and stops nothing."""
        line = json.dumps({"day": utc_day(at), "usd": round(usd, 8), "session": self.session}) + "\n"
        try:
            self._append(line.encode())
        except (OSError, TimeoutError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            self.problem = (
                f"what was spent today cannot be kept in {str(self.path)!r} ({reason}), so limits.day_cost_usd counts "
                "this session alone; make the folder writable"
            )

    def _append(self, line: bytes) -> None:
        try:
            fd = self._open()
        except FileNotFoundError:
            self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = self._open()
        try:  # no file object, no path object: at every call, so that several kernels may write and none holds it
            with _alone(fd, self.home):
                size = os.lseek(fd, 0, os.SEEK_END)
                if size:
                    os.lseek(fd, size - 1, os.SEEK_SET)
                    line = line if os.read(fd, 1) == b"\n" else b"\n" + line
                write_all(fd, line)
        finally:
            os.close(fd)

    def _open(self) -> int:
        binary = getattr(os, "O_BINARY", 0)
        return os.open(f"{self.home}/{FILE_NAME}", os.O_RDWR | os.O_APPEND | os.O_CREAT | binary, PRIVATE_FILE)

    def spent_on(self, day: str) -> float:
        """Return what all sessions spent on `day`, US dollars; lines that are torn or not ours do not count."""
        total = 0.0
        for line in self._lines():
            with contextlib.suppress(ValueError, TypeError, KeyError, RecursionError):
                entry = json.loads(line)
                usd = entry["usd"]
                if entry["day"] == day and isinstance(usd, int | float) and 0 < usd < 1e9:
                    total += usd
        return total

    def _lines(self) -> list[bytes]:
        try:
            with self.path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - MAX_READ_BYTES))
                return file.read(MAX_READ_BYTES).split(b"\n")
        except OSError:
            return []


@contextlib.contextmanager
def _alone(fd: int, home: Path) -> Iterator[None]:
    """Hold the ledger: by the system's lock on the file itself, which costs microseconds, or a lock file on Windows.

    Raises:
        TimeoutError: another process holds it for too long.
    """
    if sys.platform == "win32":
        from filelock import FileLock

        with FileLock(str(home / "spent.lock"), timeout=LOCK_TIMEOUT_S):
            yield
        return
    import fcntl

    for _ in range(int(LOCK_TIMEOUT_S / LOCK_POLL_S)):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            threading.Event().wait(LOCK_POLL_S)
    else:
        raise TimeoutError("another process holds the file")
    yield  # the lock falls when the file is closed


def unpriced_ceilings(named: NamedModel, limits: Limits) -> tuple[str, ...]:
    """Return a line when a ceiling in dollars is set for a paid model whose price is not known: it counts nothing."""
    if named.source != "live" or named.facts.prices is not None:
        return ()
    ceilings = {
        "limits.max_cost_usd": limits.max_cost_usd, "limits.session_cost_usd": limits.session_cost_usd,
        "limits.day_cost_usd": limits.day_cost_usd,
    }  # fmt: skip
    told = ", ".join(name for name, value in ceilings.items() if value is not None)
    line = f"the price of {named.name} is not known, so {told} cannot stop its turns; use --max-steps or --max-tokens"
    return (line,) if told else ()
