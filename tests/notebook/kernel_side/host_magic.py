"""An extension for tests: the body of `%%agent` is Python that defines `async def turn(jobs, kernel)`.

`EV` in the namespace of the person collects what happened, `PRESSED` has an element for each Stop that arrived;
`kernel` is a ShellKernel; `show(text)` updates one display.
"""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from typing import Any

from IPython.core.magic import no_var_expand
from IPython.display import DisplayHandle, Pretty

from nbagent.notebook import host
from nbagent.notebook.interrupts import Interrupts
from nbagent.notebook.panel.comms import free_comm
from nbagent.notebook.shell import ShellKernel
from nbagent.notebook.tracker import CellTracker, raw_source
from nbagent.notebook.transform import AgentCellTransform, install, remove, split_awaitable

_LOADED: dict[str, Any] = {}
PRESSED: list[int] = []
_taken = Interrupts._on_sigint


def _noted(self: Interrupts, number: int, frame: Any) -> None:
    PRESSED.append(number)
    _taken(self, number, frame)


Interrupts._on_sigint = _noted  # type: ignore[method-assign]


def load_ipython_extension(shell: Any) -> None:
    engine, tracker, events = host.Engine(), CellTracker(shell), []
    tracker.register()
    transform = AgentCellTransform(depth=tracker.depth, raw_source=lambda: raw_source(shell))
    install(shell, transform)
    bodies: list[str] = []

    def make(source: str) -> Any:
        def body(jobs: host.Jobs) -> Any:
            kernel, handle = ShellKernel(shell, jobs), DisplayHandle()

            async def show(text: str, *, update: bool = True) -> None:
                await jobs.on_main(handle.update if update else handle.display, Pretty(text))

            scope = {
                "jobs": jobs,
                "kernel": kernel,
                "show": show,
                "EV": events,
                "engine": engine,
                "free_comm": free_comm,
                "host": host,
                "PRESSED": PRESSED,
            }
            scope |= {"asyncio": asyncio, "time": time, "signal": signal, "threading": threading}
            scope |= {"TurnStopped": host.TurnStopped, "shell": shell}
            exec(compile(source, "<turn>", "exec"), scope)
            return scope["turn"]()

        return body

    @no_var_expand
    def agent(line: str, cell: str) -> Any:
        awaitable, _ = split_awaitable(line)
        tracker.claim()
        bodies.append(cell)
        run = host.host_async if awaitable else host.host_sync
        return run(engine, make(cell), on_stop_pending=lambda: events.append("pending"), stop_text="Stopped by test.")

    shell.register_magic_function(agent, "cell", "agent")
    shell.user_ns.update(EV=events, PRESSED=PRESSED, TRACKER=tracker, BODIES=bodies)
    _LOADED.update(engine=engine, tracker=tracker, transform=transform)


def unload_ipython_extension(shell: Any) -> None:
    remove(shell, _LOADED["transform"])
    _LOADED["tracker"].unregister()
    _LOADED["engine"].close()
