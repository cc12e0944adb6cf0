"""A panel for tests: a front end of its own that speaks the protocol on the kernel's comm."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient

from nbagent.notebook.panel.comms import TARGET
from nbagent.notebook.panel.deltas import merged
from tests.notebook.kernel_harness import Kernel, wait_for_ready
from tests.patience import HANG_S, LOOK_S


class PanelClient:
    """Connect it before `%load_ext`. `subshell` sends as JupyterLab does, beside a busy cell."""

    def __init__(self, kernel: Kernel, *, subshell: bool = False, approvals: bool = False, pongs: bool = True) -> None:
        self.client = BlockingKernelClient(connection_file=kernel.manager.connection_file)  # a session of its own
        self.client.load_connection_file()
        self.client.start_channels()
        wait_for_ready(self.client, kernel.alive)
        self.subshell_id = self._make_subshell() if subshell else None
        self.approvals, self.pongs = approvals, pongs
        self.comm_id = ""
        self.messages: list[dict[str, Any]] = []
        self.parts: dict[str, Any] = {}
        self.closed = False
        self._number = 0

    def close(self) -> None:
        self.client.stop_channels()

    def _make_subshell(self) -> str:
        info = self.client.kernel_info(reply=True, timeout=HANG_S)["content"]
        if "kernel subshells" not in info.get("supported_features", ()):
            self.close()
            pytest.skip("this ipykernel has no subshells: what a panel sends waits for the cell")
        session, channel = self.client.session, self.client.control_channel
        sent = session.msg("create_subshell_request")
        channel.send(sent)
        while True:
            answer = channel.get_msg(timeout=HANG_S)
            if answer["parent_header"].get("msg_id") == sent["header"]["msg_id"]:
                return str(answer["content"]["subshell_id"])

    # ------------------------------------------------------------ sending

    def post(self, data: Any) -> None:
        message = self.client.session.msg("comm_msg", {"comm_id": self.comm_id, "data": data})
        if self.subshell_id is not None:
            message["header"]["subshell_id"] = self.subshell_id
        self.client.shell_channel.send(message)

    def hello(self, **fields: Any) -> dict[str, Any]:
        """Say hello; return the snapshot."""
        self.wait(lambda m: m["kind"] == "welcome")
        self.post({"kind": "hello", "version": 1, "least": 1, "client": "tests", **fields})
        return self.wait(lambda m: m["kind"] in ("snapshot", "mismatch"))

    def command(self, name: str, **fields: Any) -> str:
        """Send a command; return its id."""
        self._number += 1
        command_id = f"p{self._number}"
        self.post({"kind": "command", "id": command_id, "name": name, **fields})
        return command_id

    def reply(self, command_id: str, *, number: int = 1) -> dict[str, Any]:
        """Return the first (or second) reply to a command."""
        seen: list[dict[str, Any]] = []

        def is_it(message: dict[str, Any]) -> bool:
            if message["kind"] == "reply" and message["id"] == command_id:
                seen.append(message)
            return len(seen) == number

        return self.wait(is_it)

    def ask(self, name: str, **fields: Any) -> dict[str, Any]:
        """Send a command and return its first reply."""
        return self.reply(self.command(name, **fields))

    # ------------------------------------------------------------ receiving

    def wait(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Return the first message, of those that came before too, for which `wanted` is true."""
        looked, ends = 0, time.monotonic() + HANG_S
        while True:
            while looked < len(self.messages):
                message = self.messages[looked]
                looked += 1
                if wanted(message):
                    return message
            assert time.monotonic() < ends, f"it never came; last came {self.messages[-5:]}"
            self.read()

    def until(self, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Read until the state holds what is wanted; return its parts."""
        ends = time.monotonic() + HANG_S
        while not (self.parts and holds(self.parts)):
            assert time.monotonic() < ends, self.parts
            self.read()
        return self.parts

    def read(self) -> None:
        """Take what comes now, or in a moment."""
        for message in Kernel._arrived(self.client.iopub_channel, LOOK_S):
            self._take(message)

    def read_all(self) -> None:
        """Take what the kernel published up to now: until it is idle again after a question."""
        asked, ends, idle = self.client.kernel_info(), time.monotonic() + HANG_S, False
        while not idle:
            assert time.monotonic() < ends, "the kernel does not answer"
            for message in Kernel._arrived(self.client.iopub_channel, LOOK_S):
                mine = message["parent_header"].get("msg_id") == asked
                idle = idle or (mine and message["content"].get("execution_state") == "idle")
                self._take(message)

    def _take(self, message: dict[str, Any]) -> None:
        content = message["content"]
        if message["msg_type"] == "comm_open" and content["target_name"] == TARGET:
            self.comm_id, self.closed = content["comm_id"], False
        elif message["msg_type"] == "comm_close" and content["comm_id"] == self.comm_id:
            self.closed = True
            return
        elif message["msg_type"] != "comm_msg" or content["comm_id"] != self.comm_id:
            return
        data = content["data"]
        self.messages.append(data)
        if data["kind"] == "snapshot":
            self.parts = data["parts"]
        elif data["kind"] == "delta":
            self.parts = merged(self.parts, data["parts"])
        elif data["kind"] == "ping" and self.pongs:
            self.post({"kind": "pong", "token": data["token"], "approvals": self.approvals})

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [m for m in self.messages if m["kind"] == kind]
