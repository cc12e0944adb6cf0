"""How long tests wait, and a clock that they put forward: nothing here says how fast a machine has to be."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from typing import TypeVar

from tests.fakes.messages_api import FakeMessagesAPI

# What did not come in this time never comes; below the time that pytest gives a test.
HANG_S = float(os.environ.get("NBAGENT_TEST_HANG_S", "150"))
FOREVER_S = 3_600  # what takes so long is stopped by the test, or the test fails
LOOK_S = 0.02

T = TypeVar("T")


def until(check: Callable[[], T], *, told: Callable[[], object] = lambda: "") -> T:
    """Return what `check` gives as soon as it is true.

    Raises:
        AssertionError: it never was; with what `told` gives.
    """
    ends = time.monotonic() + HANG_S
    while not (found := check()):
        assert time.monotonic() < ends, f"it did not happen in {HANG_S:g} s: {told()}"
        time.sleep(LOOK_S)
    return found


class LeapLoop(asyncio.SelectorEventLoop):
    """A loop whose clock is put forward: a timeout of minutes is reached at once, and only when the test wants it."""

    _ahead_s = 0.0

    def time(self) -> float:
        return super().time() + self._ahead_s

    def leap(self, seconds: float) -> None:
        """Put the clock forward; on the loop's thread."""
        self._ahead_s += seconds

    def leap_over_stalls(self, fake: FakeMessagesAPI, seconds: float) -> None:
        """Put the clock forward by `seconds`, once in a while, as long as an answer of `fake` stalls and is waited for."""

        def leap(client_is_there: Callable[[], bool]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self.call_soon_threadsafe(lambda: self.leap(seconds) if client_is_there() else None)

        fake.on_stall(leap)
