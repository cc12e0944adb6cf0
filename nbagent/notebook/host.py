"""Lends the kernel's main thread to the engine: the turn runs on a loop thread, the cell waits for it and serves it.

`host_async` is for the cell form that the kernel awaits, `host_sync` for callers that cannot await
(`%%capture`, `%%time`, `%run`, scripts). Both behave alike:

* The body runs as a task on the engine's loop, in the cell's context, so output goes to the cell.
* Jobs run on the cell's thread in the order asked for; one that awaits lets others run meanwhile.
* Stop cancels the body and interrupts code in `Jobs.interruptible`. The cell waits for the body's clean-up,
  at most `CLEANUP_S` once the main thread is free. What the body returns or raises is the cell's outcome;
  a body that ends as cancelled becomes `TurnStopped`. Later presses of Stop never cut the clean-up.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import queue
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, TypeVar

from nbagent.notebook.interrupts import CodeStopped, Interrupts, Job, current_job
from nbagent.notebook.stopped import STOPPED_TEXT, TurnStopped

T = TypeVar("T")
Body: TypeAlias = Callable[["Jobs"], Awaitable[T]]

CLEANUP_S = 3.0  # seconds a cancelled body may take to finish its book-keeping
NATIVE_NOTICE_S = 0.3  # seconds after Stop until the display is told that native code is waited for

__all__ = ["CellEnded", "CodeStopped", "Engine", "Jobs", "NestedTurn", "TurnStopped", "host_async", "host_sync"]


class NestedTurn(RuntimeError):
    """Code that an agent runs tried to start a turn of its own (the model sees this as the code's error)."""


class CellEnded(RuntimeError):
    """A job was asked for after its cell had ended, so no thread is lent any more."""


class Engine:
    """One daemon thread with an event loop, started on first use. One per kernel; the extension owns it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The engine's loop, running.

        Raises:
            RuntimeError: the engine was closed.
        """
        with self._lock:
            if self._closed:
                raise RuntimeError("the engine is closed; load the extension again")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._main, args=(self._loop,), name="nbagent-engine", daemon=True
                )
                self._thread.start()
            return self._loop

    def call_soon(self, fn: Callable[[], object]) -> None:
        """Call `fn` on the engine's thread, in the caller's context; safe from any thread and from signal handlers."""
        self.loop.call_soon_threadsafe(fn)

    def close(self) -> None:
        """Cancel what runs, stop the loop and wait up to 2 s for the thread. Idempotent."""
        with self._lock:
            self._closed, loop, thread = True, self._loop, self._thread
        if loop is None or thread is None or not thread.is_alive():
            return
        loop.call_soon_threadsafe(_cancel_all_and_stop, loop)
        if thread is not threading.current_thread():
            thread.join(2)

    def _main(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        while not self._closed:
            try:
                loop.run_forever()
            except (KeyboardInterrupt, SystemExit):  # one that left a task ends the loop's run, not the engine
                continue
        loop.close()


def _cancel_all_and_stop(loop: asyncio.AbstractEventLoop) -> None:
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.call_later(0.05, loop.stop)


class Jobs:
    """What the body gets: the way to the cell's thread.

    `can_await` says whether code with top-level `await` can run there. `exclusive` is to be held by jobs that
    must not overlap (running code); use it on the engine's loop only.
    """

    def __init__(self, turn: _Turn, *, can_await: bool) -> None:
        self._turn = turn
        self.can_await = can_await
        self.exclusive = asyncio.Lock()

    async def on_main(self, fn: Callable[..., Any], *args: Any) -> Any:
        """Run `fn(*args)` on the cell's thread and return its result; a coroutine that it returns is awaited there.

        When the caller is cancelled, a job not yet begun is dropped; one that runs is interrupted where it is
        `interruptible`, and the CancelledError comes only after it ended.

        Raises:
            CellEnded: the cell has ended.
        """
        job = Job(fn, args)
        self._turn.put(job)
        done = asyncio.wrap_future(job.future)
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            if not job.future.cancel():
                self._turn.interrupts.interrupt(job)
                await _settled(done)
            raise

    def post(self, fn: Callable[[], Any]) -> None:
        """Queue `fn` for the cell's thread behind what is queued already, and do not wait; engine's thread only.

        After the cell's end nothing happens; an exception of `fn` is dropped.
        """
        self._turn.put(Job(fn, ()))

    def interruptible(self, *, awaits: bool = False) -> contextlib.AbstractContextManager[None]:
        """Let Stop raise inside this block of the running job; outside of such blocks Stop never cuts a job.

        It raises KeyboardInterrupt, or, with `awaits`, CancelledError: a KeyboardInterrupt that left an
        asyncio task would end the kernel's loop.
        """
        return self._turn.interrupts.exposed(asyncio.CancelledError if awaits else KeyboardInterrupt)

    def was_interrupted(self) -> bool:
        """Say whether the running job was interrupted by Stop or by who asked for it."""
        job = current_job()
        return job is not None and job.interrupted


async def _settled(future: asyncio.Future[Any]) -> None:
    """Wait until `future` is done, whatever it holds and however often the waiting task is cancelled."""
    while not future.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([future])
    if not future.cancelled():
        future.exception()


class _Turn:
    """One body on the engine, and the state of its stop."""

    def __init__(self, engine: Engine, put: Callable[[Job | None], None], on_stop_pending: Callable[[], None] | None):
        self._engine = engine
        self._send = put
        self._on_stop_pending = on_stop_pending
        self._task: asyncio.Task[None] | None = None
        self._free_since: float | None = None
        self._closed = False
        self._cancelled = False
        self._waiting: set[Job] = set()
        self._lock = threading.Lock()
        self.ended = False  # the body has an outcome
        self.value: Any = None
        self.error: BaseException | None = None
        self.interrupts = Interrupts(engine.loop, self.stop)

    def start(self, body: Body[Any], jobs: Jobs) -> None:
        self._engine.call_soon(lambda: self._begin(body, jobs))

    def _begin(self, body: Body[Any], jobs: Jobs) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(body, jobs), name="nbagent-turn")
        self._task.add_done_callback(self._end)

    async def _run(self, body: Body[Any], jobs: Jobs) -> None:
        try:
            self.value = await body(jobs)
        except asyncio.CancelledError:
            raise
        except BaseException as e:  # noqa: BLE001 - handed out by `result`; a KeyboardInterrupt must not leave the task
            self.error = e

    def _end(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            self.error = asyncio.CancelledError()
        self.ended = True
        self._send(None)

    def put(self, job: Job) -> None:
        """Queue `job`; engine's thread."""
        with self._lock:
            if not self._closed:
                job.cleans_up = self._cancelled
                self._waiting.add(job)
                self._send(job)
                return
        _refuse(job)

    def begin(self, job: Job) -> Any:
        """Start `job` on the cell's thread; return its coroutine when it has one."""
        with self._lock:
            self._waiting.discard(job)
        return self.interrupts.begin(job)

    def wake(self) -> None:
        """Make the host look at the turn's state."""
        self._send(None)

    def close(self) -> None:
        """Refuse the jobs that wait and those that come."""
        with self._lock:
            self._closed = True
            rest, self._waiting = self._waiting, set()
        for job in rest:
            _refuse(job)

    def stop(self) -> None:
        """Cancel the body, once; safe from signal handlers and from any thread."""
        self._engine.call_soon(self._cancel)

    def _cancel(self) -> None:
        if self._cancelled:
            return
        self._cancelled = True
        if self._task is not None:
            self._task.cancel()
        asyncio.get_running_loop().call_later(NATIVE_NOTICE_S, self._tell_pending)

    def _tell_pending(self) -> None:
        if self.interrupts.stopping_jobs() and self._on_stop_pending is not None:
            self._on_stop_pending()

    def give_up(self) -> bool:
        """Say whether the clean-up had its time; to be asked again and again after Stop."""
        if not self.interrupts.stopped or self.interrupts.stopping_jobs():
            return False
        if self._free_since is None:
            self._free_since = time.monotonic()
        return time.monotonic() - self._free_since > CLEANUP_S

    def result(self, stop_text: str) -> Any:
        """Return or raise what the body did; a cancelled body raises TurnStopped."""
        if not self.ended:
            if self._task is not None:
                self._engine.call_soon(self._task.cancel)
            raise TurnStopped(stop_text)
        if isinstance(self.error, asyncio.CancelledError):
            raise TurnStopped(stop_text)
        if self.error is not None:
            raise self.error
        return self.value


def _refuse(job: Job) -> None:
    if job.future.set_running_or_notify_cancel():
        job.future.set_exception(CellEnded("the cell that lent its thread has ended"))


def _refuse_nested() -> None:
    if current_job() is not None:
        raise NestedTurn("code that an agent runs cannot start a turn of its own; answer in your own words instead")


async def host_async(
    engine: Engine,
    body: Body[T],
    *,
    on_stop_pending: Callable[[], None] | None = None,
    stop_text: str = STOPPED_TEXT,
) -> T:
    """Run `body` on the engine and serve its jobs on this loop's thread until it ends.

    `on_stop_pending` is called on the engine's thread, at most once, when Stop has to wait for a job. It cannot
    be called while native code holds the interpreter lock.

    Raises:
        TurnStopped: Stop, and the body ended as cancelled or did not end in time.
        NestedTurn: called by code that an agent runs.
    """
    _refuse_nested()
    loop = asyncio.get_running_loop()
    inbox: asyncio.Queue[Job | None] = asyncio.Queue()
    turn = _Turn(engine, lambda job: _post(loop, inbox, job), on_stop_pending)
    tasks: set[asyncio.Task[None]] = set()
    with turn.interrupts.handling(wake=lambda: _cancel_tasks(loop, turn)):
        turn.start(body, Jobs(turn, can_await=True))
        while not (turn.ended and not tasks) and not turn.give_up():
            job = await _next_job(turn, loop, inbox)
            if job is not None:
                _serve(turn, loop, job, tasks)
        turn.close()
    result: T = turn.result(stop_text)
    return result


def _post(loop: asyncio.AbstractEventLoop, inbox: asyncio.Queue[Job | None], job: Job | None) -> None:
    with contextlib.suppress(RuntimeError):  # the kernel's loop is gone
        loop.call_soon_threadsafe(inbox.put_nowait, job)


async def _next_job(turn: _Turn, loop: asyncio.AbstractEventLoop, inbox: asyncio.Queue[Job | None]) -> Job | None:
    """Wait for a job, or for a reason to look again (None)."""
    tick = loop.call_later(0.2, inbox.put_nowait, None) if turn.interrupts.stopped else None
    try:
        return await inbox.get()
    except asyncio.CancelledError:  # the kernel's own way to stop an awaited cell
        turn.interrupts.stop()
        _cancel_tasks(loop, turn)
        task = asyncio.current_task()
        while task is not None and task.cancelling():
            task.uncancel()
        return None
    finally:
        if tick is not None:
            tick.cancel()


def _serve(turn: _Turn, loop: asyncio.AbstractEventLoop, job: Job, tasks: set[asyncio.Task[None]]) -> None:
    result = turn.begin(job)
    if not inspect.iscoroutine(result):
        return
    task = loop.create_task(turn.interrupts.finish(job, result), context=job.context)
    job.task = task
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    task.add_done_callback(lambda _: turn.wake())


def _cancel_tasks(loop: asyncio.AbstractEventLoop, turn: _Turn) -> None:
    """Called at every Stop: cancel the awaiting jobs, and wake the host."""
    for job in turn.interrupts.stopping_jobs():
        if job.task is not None:
            loop.call_soon_threadsafe(job.task.cancel)
    turn.wake()


def host_sync(
    engine: Engine,
    body: Body[T],
    *,
    on_stop_pending: Callable[[], None] | None = None,
    stop_text: str = STOPPED_TEXT,
) -> T:
    """Do what `host_async` does where nothing can await: a job's coroutine must not suspend."""
    _refuse_nested()
    inbox: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
    turn = _Turn(engine, inbox.put, on_stop_pending)
    with turn.interrupts.handling(wake=lambda: inbox.put(None)):
        turn.start(body, Jobs(turn, can_await=False))
        while not turn.ended and not turn.give_up():
            try:
                job = inbox.get(timeout=0.2)  # a plain wait could not be interrupted on Windows
            except queue.Empty:
                continue
            if job is not None:
                _serve_at_once(turn, job)
        turn.close()
    result: T = turn.result(stop_text)
    return result


def _serve_at_once(turn: _Turn, job: Job) -> None:
    result = turn.begin(job)
    if not inspect.iscoroutine(result):
        return
    driver = turn.interrupts.finish(job, result)
    try:
        job.context.run(driver.send, None)
    except StopIteration:
        return
    job.context.run(driver.close)
    turn.interrupts.end(job, error=RuntimeError("code with `await` needs %%agent as the first line of the cell"))
