"""Stop during a turn: who is interrupted, where, and what only takes note of it.

The kernel's Stop is SIGINT. Python runs a signal handler on the main thread between bytecodes, so native code that
runs long delays it; the wake-up descriptor tells the engine's thread at once that the signal came.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import inspect
import os
import signal
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator
from types import FrameType
from typing import Any

_JOB: contextvars.ContextVar[Job | None] = contextvars.ContextVar("nbagent_job", default=None)


NUDGE_S = 0.1  # seconds after which the main thread should have heard of Stop
HEARD = 0  # what the handler writes beside the numbers of signals: no signal has this one


class CodeStopped(Exception):
    """Stop hit agent-run code. An ordinary exception: a KeyboardInterrupt must not leave an asyncio task."""


class Job:
    """One call that the engine wants made on the cell's thread. `cleans_up`: it was asked for after Stop."""

    def __init__(self, fn: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.fn = fn
        self.args = args
        self.cleans_up = False
        self.context = contextvars.copy_context()
        self.future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        self.task: asyncio.Task[None] | None = None
        self.raises: list[type[BaseException]] = []  # not empty while inside `exposed`
        self.interrupted = False


def press_stop() -> None:
    """Do what the Stop button of a notebook does: interrupt the main thread. From any thread."""
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    else:
        signal.raise_signal(signal.SIGINT)


def current_job() -> Job | None:
    """The job in whose context the caller runs: code started by it counts, on any thread that inherits contexts."""
    return _JOB.get()


class Interrupts:
    """The jobs of one turn and what Stop does to them.

    Rules: only code inside `exposed` is ever cut, and only in jobs asked for before the engine heard of Stop, also
    in those that begin later; every further Stop cuts those again (code may swallow the first); `on_stop` is called
    once.
    """

    def __init__(self, engine_loop: asyncio.AbstractEventLoop, on_stop: Callable[[], None]) -> None:
        self._loop = engine_loop
        self._on_stop = on_stop
        self._wake: Callable[[], None] = lambda: None
        self._running: list[Job] = []
        self._target: Job | None = None
        self._own_signals = 0
        self._unheard = 0  # signals received since the handler ran; below 0: it ran before its signal was told of
        self._writer: socket.socket | None = None
        self._handles_signals = False
        self._main_id = threading.get_ident()
        self.stopped = False

    # ------------------------------------------------------------------ jobs
    def begin(self, job: Job) -> Any:
        """Start `job`: return its coroutine when it has one, else None, and the job is over."""
        if not job.future.set_running_or_notify_cancel():
            return None
        if not job.cleans_up:
            self._running.append(job)
        try:
            result = job.context.run(self._call, job)
        except BaseException as e:  # noqa: BLE001 - handed to who asked for the job
            self._reinstall()
            self.end(job, error=e)
            return None
        self._reinstall()
        if inspect.iscoroutine(result):
            return result
        self.end(job, value=result)
        return None

    def _call(self, job: Job) -> Any:
        _JOB.set(job)
        return job.fn(*job.args)

    async def finish(self, job: Job, result: Coroutine[Any, Any, Any]) -> None:
        """Await the coroutine of `job`; never raises, so that nothing reaches the kernel's loop."""
        try:
            value = await result
        except GeneratorExit:
            self._reinstall()
            raise
        except BaseException as e:  # noqa: BLE001 - handed to who asked for the job
            self._reinstall()  # before the asker goes on: Stop may come at once
            self.end(job, error=e)
        else:
            self._reinstall()
            self.end(job, value=value)

    def end(self, job: Job, *, value: Any = None, error: BaseException | None = None) -> None:
        """Hand the outcome of `job` to who asked for it."""
        if job in self._running:
            self._running.remove(job)
        if job.future.done():
            return
        if isinstance(error, KeyboardInterrupt | asyncio.CancelledError):
            error = CodeStopped("stopped")
        if error is not None:
            job.future.set_exception(error)
        else:
            job.future.set_result(value)

    def stopping_jobs(self) -> tuple[Job, ...]:
        """The jobs that run and are no clean-up."""
        return tuple(self._running)

    @contextlib.contextmanager
    def exposed(self, error: type[BaseException]) -> Iterator[None]:
        """Let Stop raise `error` in the current job inside this block."""
        job = _JOB.get()
        if job is None:
            raise RuntimeError("only code of a job can be interruptible")
        if job.interrupted or (self.stopped and job in self._running):
            job.interrupted = True
            raise error
        job.raises.append(error)
        try:
            yield
        finally:
            job.raises.pop()

    # ------------------------------------------------------------------ stop
    def stop(self) -> None:
        """Note the person's Stop; idempotent."""
        if not self.stopped:
            self.stopped = True
            self._on_stop()

    def interrupt(self, job: Job) -> None:
        """Cut one running job, on behalf of its asker (engine's thread). After Stop its own signal does this."""
        if self.stopped or job.future.done() or not self._handles_signals:
            return
        self._target = job
        self._own_signals += 1
        if hasattr(signal, "pthread_kill"):
            signal.pthread_kill(self._main_id, signal.SIGINT)
        else:
            signal.raise_signal(signal.SIGINT)

    def _on_sigint(self, _signum: int, _frame: FrameType | None) -> None:
        self._say_heard()
        target, self._target = self._target, None
        if target is None:
            self.stop()
            cut = self.stopping_jobs()
        else:
            cut = (target,)
        for job in cut:
            job.interrupted = True
        self._wake_for(target)
        job_here = _JOB.get()
        if job_here is not None and job_here in cut and job_here.raises:
            raise job_here.raises[-1]

    def _say_heard(self) -> None:
        """Put down, behind the signals that came before, that the main thread has heard of them."""
        if self._writer is not None:
            with contextlib.suppress(OSError):
                self._writer.send(bytes((HEARD,)))

    def _wake_for(self, target: Job | None) -> None:
        if target is None:
            self._wake()
        elif target.task is not None:
            target.task.get_loop().call_soon_threadsafe(target.task.cancel)

    @contextlib.contextmanager
    def handling(self, *, wake: Callable[[], None]) -> Iterator[None]:
        """Take SIGINT for the time of a turn; what was there before is restored. Skipped off the main thread.

        `wake` is called at every Stop, in the signal handler.
        """
        self._wake = wake
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGINT, self._on_sigint)
        self._handles_signals = True
        try:
            with self._watching():
                yield
        finally:
            self._handles_signals = False
            signal.signal(signal.SIGINT, before if before is not None else signal.default_int_handler)

    def _reinstall(self) -> None:
        """Take SIGINT again: agent code may have set a handler of its own."""
        if self._handles_signals and signal.getsignal(signal.SIGINT) != self._on_sigint:
            signal.signal(signal.SIGINT, self._on_sigint)

    @contextlib.contextmanager
    def _watching(self) -> Iterator[None]:
        """Tell the engine's thread of SIGINT at once, also while native code keeps the handler from running."""
        reader, writer = socket.socketpair()
        reader.setblocking(False)
        writer.setblocking(False)
        self._writer = writer
        before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        self._loop.call_soon_threadsafe(self._watch, reader, before)
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)
            self._writer = None
            writer.close()  # the reader sees the end and closes itself

    def _watch(self, reader: socket.socket, forward_to: int) -> None:
        try:
            self._loop.add_reader(reader, self._on_wakeup, reader, forward_to)
        except NotImplementedError:  # the Proactor loop of Windows: Stop waits for the handler there
            reader.close()

    def _on_wakeup(self, reader: socket.socket, forward_to: int) -> None:
        try:
            received = reader.recv(256)
        except BlockingIOError:
            return
        if not received:
            self._loop.remove_reader(reader)
            reader.close()
            return
        signals = bytes(number for number in received if number != HEARD)
        if forward_to != -1 and signals:
            with contextlib.suppress(OSError):
                os.write(forward_to, signals)
        for number in received:
            if number == HEARD:
                self._unheard = min(self._unheard - 1, 0)  # one run of the handler may be for several signals
            elif number == signal.SIGINT:
                self._unheard += 1
                self._received()

    def _received(self) -> None:
        """Take note of one SIGINT: one of our own, or the person's Stop."""
        if self._own_signals:
            self._own_signals -= 1
            return
        self.stop()
        self._wake()
        self._loop.call_later(NUDGE_S, self._nudge)

    def _nudge(self) -> None:
        """Send the signal to the main thread itself, where it has not heard of a Stop, or a job has not, yet.

        The system may give it to any thread; then a call that waits on the main thread goes on waiting.
        """
        jobs = self.stopping_jobs()
        if self._handles_signals and jobs and (self._unheard > 0 or any(not job.interrupted for job in jobs)):
            self._own_signals += 1
            if hasattr(signal, "pthread_kill"):
                signal.pthread_kill(self._main_id, signal.SIGINT)
            else:
                signal.raise_signal(signal.SIGINT)
