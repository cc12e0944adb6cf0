"""The thread of the panel: does queued jobs in order, and between them sends what is due to whoever listens."""

from __future__ import annotations

import contextvars
import logging
import threading
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from nbagent.core.messages import JsonObject
from nbagent.notebook.panel.deltas import DeltaPacer
from nbagent.notebook.panel.protocol import PanelState

MOST_LISTENERS = 12  # widgets of cells that were run again and again: the oldest is left out

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class Peer:
    """One front end: how to send to it, and what it was told; `pacer` is None before it said hello."""

    send: Callable[[JsonObject], None]
    pacer: DeltaPacer | None = None


class PanelThread:
    """Started by the first job. Jobs and `send` run on it; the other methods may be called on any thread."""

    def __init__(self, state: Callable[[], PanelState], clock: Callable[[], float]) -> None:
        self._state, self._clock = state, clock
        self._peers: tuple[Peer, ...] = ()
        self._jobs: deque[Callable[[], Any]] = deque()
        self._condition = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    @property
    def peers(self) -> tuple[Peer, ...]:
        """Those that said hello, the newest last."""
        return self._peers

    def later(self, job: Callable[[], Any]) -> None:
        """Have `job` done."""
        with self._condition:
            if self._closed:
                return
            self._jobs.append(job)
            if self._thread is None:
                # In the opener's context: ipykernel 7.0 looks there for the parent of what a comm sends.
                run = contextvars.copy_context().run
                self._thread = threading.Thread(target=run, args=(self._main,), name="nbagent-panel", daemon=True)
                self._thread.start()
            self._condition.notify()

    def wake(self) -> None:
        """Look whether something is to be sent."""
        with self._condition:
            self._condition.notify()

    def send(self, peer: Peer, message: JsonObject) -> None:
        """Send a message; a front end that cannot be reached is forgotten."""
        try:
            peer.send(message)
        except Exception:  # noqa: BLE001  its comm is closed, or its socket: nobody listens there any more
            _log.debug("panel: a front end is gone", exc_info=True)
            self.forget(peer)

    def greet(self, peer: Peer, version: int, only: Collection[str] | None) -> None:
        """Send the whole state, and from now on what changes."""
        self.forget(peer)
        peer.pacer = DeltaPacer(self._state(), only=only)
        self._peers = (*self._peers, peer)[-MOST_LISTENERS:]
        self.send(peer, peer.pacer.snapshot(version))

    def forget(self, peer: Peer) -> None:
        """Send no more to `peer`."""
        self._peers = tuple(p for p in self._peers if p is not peer)

    def close(self) -> None:
        """End the thread; jobs that wait are dropped."""
        with self._condition:
            self._closed, thread = True, self._thread
            self._condition.notify()
        if thread is not None and thread is not threading.current_thread():
            thread.join(2)

    def _main(self) -> None:
        while (job := self._next()) is not None:
            try:
                job()
                self._publish()
            except Exception:  # noqa: BLE001  the thread must go on; it is recorded
                _log.warning("the panel failed inside; it goes on", exc_info=True)

    def _next(self) -> Callable[[], Any] | None:
        """Wait for a job, or for something that is due; None at the end."""
        with self._condition:
            while not self._closed:
                if self._jobs:
                    return self._jobs.popleft()
                wait_s = self._due_s()
                if wait_s == 0:
                    return _nothing
                self._condition.wait(wait_s)
        return None

    def _due_s(self) -> float | None:
        if not self._peers:
            return None
        state, now_s = self._state(), self._clock()
        waits = []
        for peer in self._peers:
            if peer.pacer is not None:
                peer.pacer.offer(state)
                waits.append(peer.pacer.due_s(now_s))
        return min((w for w in waits if w is not None), default=None)

    def _publish(self) -> None:
        if not self._peers:
            return
        state, now_s = self._state(), self._clock()
        for peer in self._peers:
            if peer.pacer is not None:
                peer.pacer.offer(state)
                if (message := peer.pacer.take(now_s)) is not None:
                    self.send(peer, message)


def _nothing() -> None:
    return
