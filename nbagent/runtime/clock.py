"""The clock and the source of ids: the only place that asks the machine for either."""

from __future__ import annotations

import datetime
import secrets
import time
from typing import Protocol


class Clock(Protocol):
    """What time it is, and fresh ids."""

    def now(self) -> float:
        """Return UTC in seconds since the epoch."""
        ...

    def monotonic(self) -> float:
        """Return seconds of a clock that never goes back."""
        ...

    def today(self) -> str:
        """Return the person's date as YYYY-MM-DD (weekday)."""
        ...

    def new_id(self) -> str:
        """Return an id that no other call returns, 12 hexadecimal digits."""
        ...


class SystemClock:
    """The machine's clock and randomness."""

    def now(self) -> float:
        """Return UTC in seconds since the epoch, to the millisecond."""
        return round(time.time(), 3)

    def monotonic(self) -> float:
        """Return seconds of a clock that never goes back."""
        return time.monotonic()

    def today(self) -> str:
        """Return the local date."""
        return day_text(datetime.date.today())

    def new_id(self) -> str:
        """Return twelve random hexadecimal digits."""
        return secrets.token_hex(6)


def wall_ns() -> int:
    """Return UTC in nanoseconds since the epoch, as the file system stamps what changes."""
    return time.time_ns()


class CountingClock:
    """A clock for replay and tests: starts at `start`, moves a millisecond a reading; ids are counted."""

    def __init__(self, start: float = 0.0, *, prefix: str = "e", day: str = "1970-01-01 (Thursday)") -> None:
        self._now = start
        self._count = 0
        self._prefix = prefix
        self._day = day

    def now(self) -> float:
        """Return the next millisecond."""
        self._now = round(self._now + 0.001, 3)
        return self._now

    def monotonic(self) -> float:
        """Return the time without moving it."""
        return self._now

    def today(self) -> str:
        """Return the fixed day."""
        return self._day

    def new_id(self) -> str:
        """Return the next id."""
        self._count += 1
        return f"{self._prefix}{self._count:06d}"


def day_text_of(at: float) -> str:
    """Return the day of `at` (seconds since the epoch) in UTC, as the model is told it."""
    return day_text(datetime.datetime.fromtimestamp(at, datetime.UTC).date())


def minute_text_of(at: float) -> str:
    """Return `at` (seconds since the epoch) in UTC, to the minute, for people."""
    return datetime.datetime.fromtimestamp(at, datetime.UTC).strftime("%Y-%m-%d %H:%M")


def day_text(day: datetime.date) -> str:
    """Return `day` as the model is told it; the same in every locale."""
    names = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
    return f"{day.isoformat()} ({names[day.weekday()]})"
