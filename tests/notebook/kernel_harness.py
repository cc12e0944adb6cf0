"""A real kernel for tests: requests made by hand, output read to the end, Stop pressed at markers.

Nothing is timed. What has to come is waited for as long as `HANG_S`; when it does not, the test says what the cell
showed and where the kernel stands.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import KernelManager

from tests.kernels import reached
from tests.patience import HANG_S, LOOK_S

ROOT = Path(__file__).resolve().parents[2]
KERNEL_SIDE = Path(__file__).parent / "kernel_side"
SHOWN_CHARS = 3_000


@dataclass
class Result:
    """What one cell did: the reply, and its output messages in order."""

    reply: dict[str, Any] = field(default_factory=dict)
    messages: list[dict[str, Any]] = field(default_factory=list)

    @property
    def status(self) -> str:
        return str(self.reply["status"])

    def stream(self, name: str = "stdout") -> str:
        return "".join(m["content"]["text"] for m in self.of("stream") if m["content"]["name"] == name)

    def of(self, *kinds: str) -> list[dict[str, Any]]:
        return [m for m in self.messages if m["msg_type"] in kinds]

    def kinds(self) -> list[str]:
        return [m["msg_type"] for m in self.messages]

    def told(self) -> str:
        """What came, message by message, for who looks for the cause of a failure."""
        lines = [f"{m['msg_type']}: {_text(m)}" for m in self.messages]
        status = self.reply.get("status", "no reply")
        failure = f" {self.reply.get('ename')}: {self.reply.get('evalue')}" if status == "error" else ""
        return "\n".join([*lines, f"reply: {status}{failure}"])


@dataclass
class Ran:
    """A cell of the test that runs, for its report."""

    source: str
    result: Result


LAST: deque[Ran] = deque(maxlen=8)  # the newest cells of the running test, over all its kernels


class Kernel:
    """One kernel process; `NBAGENT_TEST_PYTHON` selects its Python, the client stays in this one."""

    def __init__(self, folder: Path) -> None:
        python = os.environ.get("NBAGENT_TEST_PYTHON", sys.executable)
        self.manager = KernelManager(**reached())
        self.manager._kernel_spec = KernelSpec(
            argv=[python, "-m", "ipykernel_launcher", "-f", "{connection_file}"], display_name="t", language="python"
        )
        folder.mkdir(parents=True, exist_ok=True)
        self._stacks = folder / "stacks.txt"
        self._env = {k: v for k, v in os.environ.items() if k not in ("PYTEST_CURRENT_TEST", "MPLBACKEND")}
        self._env |= {"IPYTHONDIR": str(folder / "ipython"), "MPLCONFIGDIR": str(folder / "mpl")}
        self._env |= {"PYTHONPATH": os.pathsep.join((str(ROOT), str(KERNEL_SIDE)))}
        self._env |= {"NBAGENT_TEST_STACKS": str(self._stacks)}
        self._replies: dict[str, dict[str, Any]] = {}
        self._sources: dict[str, str] = {}
        self.client: Any = None

    def start(self) -> None:
        self.manager.start_kernel(env=self._env)
        self.client = self.manager.client()
        self.client.start_channels()
        self.ready()

    def ready(self) -> None:
        """Wait until the kernel answers and what it publishes arrives here."""
        wait_for_ready(self.client, self.alive)

    def alive(self) -> bool:
        """Say whether the process is there; on any thread, where the manager's own way would leave an event loop."""
        process = getattr(self.manager.provisioner, "process", None)
        return process is not None and process.poll() is None

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)
        self.manager.cleanup_resources()

    def stop(self) -> None:
        """Press Stop."""
        self.manager.interrupt_kernel()

    def send(self, code: str, *, cell_id: str | None = None, **content: Any) -> str:
        """Send an execute request; return its id."""
        request = {"code": code, "silent": False, "store_history": True, "user_expressions": {}}
        request |= {"allow_stdin": True, "stop_on_error": True, **content}
        metadata = {} if cell_id is None else {"cellId": cell_id, "deletedCells": []}
        message = self.client.session.msg("execute_request", request, metadata=metadata)
        self._sources[str(message["header"]["msg_id"])] = code
        self.client.shell_channel.send(message)
        return str(message["header"]["msg_id"])

    def run(
        self,
        code: str,
        *,
        cell_id: str | None = None,
        stop_at: str | Sequence[str] = (),
        at: Iterable[tuple[str, Callable[[], object]]] = (),
        answers: Iterable[str | None] = (),
        **content: Any,
    ) -> Result:
        """Run a cell to its end.

        When its output holds `stop_at`, Stop is pressed; of several markers, at each, in their order. `at` are markers
        with what else is done there. `answers` go to input requests; None presses Stop there.
        """
        stops = [stop_at] if isinstance(stop_at, str) else stop_at
        steps = [*((marker, self.stop) for marker in stops), *at]
        given = list(answers)
        while True:
            result = self.finish(self.send(code, cell_id=cell_id, **content), at=steps, answers=given)
            if result.status != "aborted":  # the kernel was still dropping what came with a cell that failed
                return result

    def finish(
        self,
        message_id: str,
        *,
        at: Iterable[tuple[str, Callable[[], object]]] = (),
        answers: list[str | None] | None = None,
    ) -> Result:
        """Read what belongs to `message_id` until the kernel is idle and the reply is there."""
        result, seen, steps = Result(), "", deque(at)
        LAST.append(Ran(self._sources.get(message_id, "?"), result))
        ends, idle = time.monotonic() + HANG_S, False
        while not (idle and result.reply):
            self._check(ends, lambda: result.told())
            for message in self._arrived(self.client.iopub_channel, LOOK_S):
                if message["parent_header"].get("msg_id") != message_id:
                    continue
                if message["msg_type"] == "status":
                    idle = idle or message["content"]["execution_state"] == "idle"
                elif message["msg_type"] != "execute_input":
                    result.messages.append(message)
                    seen += _text(message)
            while steps and steps[0][0] in seen:
                marker, do = steps.popleft()
                seen = seen.partition(marker)[2]
                do()
            for request in self._arrived(self.client.stdin_channel, 0):
                self._answer(request, answers)
            for reply in self._arrived(self.client.shell_channel, 0):
                self._replies[str(reply["parent_header"].get("msg_id"))] = reply["content"]
            result.reply = self._replies.get(message_id, {})
        assert not steps or result.status == "aborted", f"{steps[0][0]!r} never came:\n{result.told()}"
        return result

    def reply_to(self, message_id: str) -> dict[str, Any]:
        """Return the reply to a request that was sent before, also one that came meanwhile."""
        ends = time.monotonic() + HANG_S
        while message_id not in self._replies:
            self._check(ends, lambda: f"no reply to {self._sources.get(message_id, message_id)!r}")
            for reply in self._arrived(self.client.shell_channel, LOOK_S):
                self._replies[str(reply["parent_header"].get("msg_id"))] = reply["content"]
        return self._replies[message_id]

    def _check(self, ends: float, told: Callable[[], str]) -> None:
        """Fail with what came so far where nothing more can come."""
        if not self.alive():
            raise AssertionError(f"the kernel has died; before that:\n{told()[-SHOWN_CHARS:]}")
        if time.monotonic() > ends:
            raise AssertionError(
                f"no end after {HANG_S:g} s; so far:\n{told()[-SHOWN_CHARS:]}\n\nthe kernel stands at:\n{self.stacks()}"
            )

    def stacks(self) -> str:
        """Return where each thread of the kernel is."""
        if not hasattr(signal, "SIGUSR1") or not self.alive():
            return "(not known)"
        with contextlib.suppress(OSError):
            os.kill(int(self.manager.provisioner.pid), signal.SIGUSR1)
        ends = time.monotonic() + 5
        while time.monotonic() < ends:
            if self._stacks.exists() and (found := self._stacks.read_text(errors="replace")):
                return found[-SHOWN_CHARS:]
            time.sleep(LOOK_S)
        return "(it does not say)"

    def _answer(self, request: dict[str, Any], answers: list[str | None] | None) -> None:
        answer = answers.pop(0) if answers else None
        if answer is None:
            self.stop()
        else:
            self.client.input(answer)

    @staticmethod
    def _arrived(channel: Any, timeout_s: float) -> list[dict[str, Any]]:
        messages = []
        while True:
            try:
                messages.append(channel.get_msg(timeout=timeout_s))
            except queue.Empty:
                return messages
            timeout_s = 0


_NATIVE = """
import ctypes, os, sys, threading, time
libc, mutex, held = ctypes.CDLL(None), ctypes.create_string_buffer(128), threading.Event()
libc.pthread_mutex_init(mutex, None)
lock, unlock, main = libc.pthread_mutex_lock, libc.pthread_mutex_unlock, threading.main_thread().ident
def native():
    lock(mutex)
def hold():
    lock(mutex); held.set()
    while True:
        frame = sys._current_frames()[main]
        if frame.f_code is native.__code__ and frame.f_lineno > native.__code__.co_firstlineno: break
        time.sleep(.01)
    print('GO', flush=True)
    while not (@ENDS@): time.sleep(.01)
    unlock(mutex)
threading.Thread(target=hold).start(); held.wait()
native()
print('NATIVE ENDED')
"""


def native_code(ends: str) -> str:
    """Return code whose main thread is in native code, which no signal ends, until the expression `ends` is true.

    It prints GO when it is there: it waits for a mutex that another thread holds.
    """
    return _NATIVE.replace("@ENDS@", ends).strip()


def wait_for_ready(client: Any, alive: Callable[[], bool]) -> None:
    """Wait until the kernel of `client` answers and what it publishes arrives here.

    The client's own way gives up when the kernel's heart pauses for a second.
    """
    ends, asked = time.monotonic() + HANG_S, set()
    while True:
        assert alive(), "the kernel has died before it answered"
        assert time.monotonic() < ends, f"the kernel did not answer in {HANG_S:g} s"
        asked.add(client.kernel_info())
        again = time.monotonic() + 1
        while time.monotonic() < again:
            for message in Kernel._arrived(client.iopub_channel, LOOK_S):
                if message["parent_header"].get("msg_id") in asked and _is_idle(message):
                    return


def _is_idle(message: dict[str, Any]) -> bool:
    return message["msg_type"] == "status" and message["content"]["execution_state"] == "idle"


def _text(message: dict[str, Any]) -> str:
    content = message["content"]
    shown = content.get("data", {})
    told = str(content.get("text", "")) + "\n".join(content.get("traceback", ()))
    return told + str(shown.get("text/plain") or shown.get("text/markdown") or "")
