"""A real kernel for tests: requests made by hand, output read to the end, Stop pressed at a marker."""

from __future__ import annotations

import os
import queue
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import KernelManager

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Result:
    """What one cell did: the reply, its output messages in order, and seconds."""

    reply: dict[str, Any] = field(default_factory=dict)
    messages: list[dict[str, Any]] = field(default_factory=list)
    duration_s: float = 0.0
    stop_latency_s: float | None = None

    @property
    def status(self) -> str:
        return str(self.reply["status"])

    def stream(self, name: str = "stdout") -> str:
        return "".join(m["content"]["text"] for m in self.of("stream") if m["content"]["name"] == name)

    def of(self, *kinds: str) -> list[dict[str, Any]]:
        return [m for m in self.messages if m["msg_type"] in kinds]

    def kinds(self) -> list[str]:
        return [m["msg_type"] for m in self.messages]


class Kernel:
    """One kernel process; `NBAGENT_TEST_PYTHON` selects its Python, the client stays in this one."""

    def __init__(self, folder: Path) -> None:
        python = os.environ.get("NBAGENT_TEST_PYTHON", sys.executable)
        self.manager = KernelManager()
        self.manager._kernel_spec = KernelSpec(
            argv=[python, "-m", "ipykernel_launcher", "-f", "{connection_file}"], display_name="t", language="python"
        )
        self._env = {k: v for k, v in os.environ.items() if k not in ("PYTEST_CURRENT_TEST", "MPLBACKEND")}
        self._env |= {"IPYTHONDIR": str(folder / "ipython"), "MPLCONFIGDIR": str(folder / "mpl")}
        self._env |= {"PYTHONPATH": os.pathsep.join((str(ROOT), str(Path(__file__).parent)))}
        self._replies: dict[str, dict[str, Any]] = {}
        self.client: Any = None

    def start(self) -> None:
        self.manager.start_kernel(env=self._env)
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)
        self.manager.cleanup_resources()

    def send(self, code: str, *, cell_id: str | None = None, **content: Any) -> str:
        """Send an execute request; return its id."""
        request = {"code": code, "silent": False, "store_history": True, "user_expressions": {}}
        request |= {"allow_stdin": True, "stop_on_error": True, **content}
        metadata = {} if cell_id is None else {"cellId": cell_id, "deletedCells": []}
        message = self.client.session.msg("execute_request", request, metadata=metadata)
        self.client.shell_channel.send(message)
        return str(message["header"]["msg_id"])

    def run(
        self,
        code: str,
        *,
        cell_id: str | None = None,
        stop_at: str | None = None,
        stop_after_s: float = 0.15,
        again_after_s: Iterable[float] = (),
        answers: Iterable[str | None] = (),
        on_marker: Callable[[], None] | None = None,
        timeout_s: float = 30,
        **content: Any,
    ) -> Result:
        """Run a cell to its end.

        When its output holds `stop_at`, Stop is pressed `stop_after_s` later, then again after each pause;
        `on_marker` is called at the marker instead. `answers` go to input requests; None presses Stop there.
        """
        return self.finish(
            self.send(code, cell_id=cell_id, **content),
            stop_at=stop_at,
            pauses=[stop_after_s, *again_after_s],
            answers=list(answers),
            on_marker=on_marker,
            timeout_s=timeout_s,
        )

    def finish(
        self,
        message_id: str,
        *,
        stop_at: str | None = None,
        pauses: list[float] | None = None,
        answers: list[str | None] | None = None,
        on_marker: Callable[[], None] | None = None,
        timeout_s: float = 30,
    ) -> Result:
        """Read what belongs to `message_id` until the kernel is idle and the reply is there."""
        result, began, seen, due = Result(), time.monotonic(), "", []
        idle, stopped_at = False, None
        while not (idle and result.reply):
            now = time.monotonic()
            assert now - began < timeout_s, f"no end after {timeout_s} s; so far {result.kinds()} {seen[-500:]!r}"
            while due and due[0] <= now:
                due.pop(0)
                stopped_at = stopped_at or now
                self.manager.interrupt_kernel()
            for message in self._arrived(self.client.iopub_channel, 0.01):
                if message["parent_header"].get("msg_id") != message_id:
                    continue
                if message["msg_type"] == "status":
                    idle = idle or message["content"]["execution_state"] == "idle"
                elif message["msg_type"] != "execute_input":
                    result.messages.append(message)
                    seen += _text(message)
                if stop_at is not None and stop_at in seen:
                    stop_at = None
                    if on_marker is not None:
                        on_marker()
                    else:
                        due = [time.monotonic() + sum(pauses[: i + 1]) for i in range(len(pauses or []))]
            for request in self._arrived(self.client.stdin_channel, 0):
                self._answer(request, answers)
                stopped_at = time.monotonic()
            for reply in self._arrived(self.client.shell_channel, 0):
                self._replies[str(reply["parent_header"].get("msg_id"))] = reply["content"]
                if reply["parent_header"].get("msg_id") == message_id:
                    result.reply = reply["content"]
                    if stopped_at is not None:
                        result.stop_latency_s = time.monotonic() - stopped_at
        result.duration_s = time.monotonic() - began
        return result

    def reply_to(self, message_id: str, timeout_s: float = 10) -> dict[str, Any]:
        """Return the reply to a request that was sent before, also one that came meanwhile."""
        ends = time.monotonic() + timeout_s
        while message_id not in self._replies and time.monotonic() < ends:
            for reply in self._arrived(self.client.shell_channel, 0.1):
                self._replies[str(reply["parent_header"].get("msg_id"))] = reply["content"]
        return self._replies[message_id]

    def _answer(self, request: dict[str, Any], answers: list[str | None] | None) -> None:
        answer = answers.pop(0) if answers else None
        if answer is None:
            self.manager.interrupt_kernel()
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


def _text(message: dict[str, Any]) -> str:
    content = message["content"]
    shown = content.get("data", {})
    return str(content.get("text", "")) + str(shown.get("text/plain") or shown.get("text/markdown") or "")
