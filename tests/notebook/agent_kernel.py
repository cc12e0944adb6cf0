"""Helpers for tests of the magics in a real kernel, with the fake of the Messages API as the provider."""

from __future__ import annotations

import ast
import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.fakes.messages_api import FakeMessagesAPI
from tests.notebook.kernel_harness import LAST, Kernel, Ran, Result
from tests.patience import HANG_S, LOOK_S, until

_CLEAR = (
    "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "JPY_SESSION_NAME", "NBAGENT_SESSION", "NBAGENT_TOOLS__ALLOW",
    "NBAGENT_MODEL",
)  # fmt: skip
_BEGIN = """
import os
get_ipython().extension_manager.unload_extension("nbagent")
for _name in {clear!r}:
    os.environ.pop(_name, None)
get_ipython().config.pop("AgentMagics", None)
os.chdir({folder!r}); os.environ.update({env!r})
get_ipython().user_ns_hidden.update(os=os, _name=None)
get_ipython().events.trigger("post_execute"); get_ipython().history_manager.reset()
for _name in set(get_ipython().user_ns) - set(get_ipython().user_ns_hidden):
    if not _name.startswith("_"): del get_ipython().user_ns[_name]
"""


class AgentKernel(Kernel):
    """A kernel in which nbagent is loaded anew for each test."""

    def begin(self, folder: Path, fake: FakeMessagesAPI | None = None, *, load: bool = True, **env: str) -> Result:
        """Stand in `folder` as a fresh notebook there; returns what `%load_ext nbagent` brought."""
        values = {"NBAGENT_HOME": str(folder / "home"), "NBAGENT_MODE": "auto", "NBAGENT_OFFLINE": "1", **env}
        if fake is not None:
            values |= {"ANTHROPIC_BASE_URL": fake.base_url, "ANTHROPIC_API_KEY": "x"}
        begun = self.run(_BEGIN.format(clear=_CLEAR, folder=str(folder), env=values))
        assert begun.status == "ok", begun.reply
        if not load:
            return begun
        loaded = self.run("%load_ext nbagent")
        assert loaded.status == "ok", shown(loaded)
        return loaded

    def restart(self) -> None:
        """Restart the process, as the button does."""
        self.manager.restart_kernel(now=True)
        self.ready()

    def kill(self) -> None:
        """End the process as the out-of-memory killer does, and wait until it has."""
        os.kill(self.pid(), signal.SIGKILL)
        until(lambda: not self.alive())

    def pid(self) -> int:
        return int(self.manager.provisioner.pid)

    def run_all(self, cells: list[tuple[str, str | None]]) -> list[Result]:
        """Send all cells (source, id) at once, as Run All does; return what each brought."""
        found = {self.send(source, cell_id=cell_id): Result() for source, cell_id in cells}
        LAST.extend(Ran(source, result) for (source, _), result in zip(cells, found.values(), strict=True))
        idle: set[str] = set()
        ends = time.monotonic() + HANG_S
        while len(idle) < len(found) or not all(r.reply for r in found.values()):
            self._check(ends, lambda: "\n".join(r.told() for r in found.values()))
            for message in self._arrived(self.client.iopub_channel, LOOK_S):
                owner = message["parent_header"].get("msg_id")
                if owner not in found:
                    continue
                if message["msg_type"] == "status":
                    idle |= {owner} if message["content"]["execution_state"] == "idle" else set()
                elif message["msg_type"] != "execute_input":
                    found[owner].messages.append(message)
            for reply in self._arrived(self.client.shell_channel, 0):
                if (owner := reply["parent_header"].get("msg_id")) in found:
                    found[owner].reply = reply["content"]
        return list(found.values())

    def value(self, expression: str) -> Any:
        """Return the value of an expression whose repr is a literal."""
        result = self.run(f"print(repr({expression}))")
        assert result.status == "ok", result.reply
        return ast.literal_eval(result.stream())

    def complete(self, code: str) -> list[str]:
        """Return what Tab offers at the end of `code`, as whole lines."""
        reply = self.client.complete(code, reply=True, timeout=HANG_S)["content"]
        return [code[: reply["cursor_start"]] + m + code[reply["cursor_end"] :] for m in reply["matches"]]


@contextmanager
def running(folder: Path) -> Iterator[AgentKernel]:
    """Start a kernel and end it."""
    kernel = AgentKernel(folder)
    kernel.start()
    try:
        yield kernel
    finally:
        kernel.close()


def agent(prompt: str, options: str = "") -> str:
    """A cell that is a turn."""
    return f"{'%%agent ' + options}".rstrip() + f"\n{prompt}"


def shown(result: Result) -> str:
    """Return what stands below the cell at the end, as text: prints, final states of displays, results."""
    parts: list[list[str]] = []
    displays: dict[str, list[str]] = {}
    for message in result.of("stream", "display_data", "update_display_data", "execute_result", "error"):
        content = message["content"]
        text = content.get("text") or "\n".join(content.get("traceback", ())) or best_text(content.get("data", {}))
        key = (content.get("transient") or {}).get("display_id")
        if message["msg_type"] == "update_display_data":
            displays[key][0] = text
            continue
        parts.append([text])
        if key:
            displays[key] = parts[-1]
    return "\n".join(p[0] for p in parts)


def best_text(data: dict[str, Any]) -> str:
    return str(data.get("text/plain") or data.get("text/markdown") or "")


def error_line(result: Result) -> str:
    """Return the one line of a cell that failed; it must be the only thing that says so."""
    errors = result.of("error")
    assert result.status == "error", (result.reply, shown(result))
    assert len(errors) == 1, errors
    (line,) = errors[0]["content"]["traceback"]
    assert "\n" not in line
    assert "Traceback" not in line
    assert "During handling" not in line
    assert "During handling" not in shown(result)
    return str(line)


def sent(fake: FakeMessagesAPI) -> list[dict[str, Any]]:
    """Return the bodies of the requests that asked for a message, in order; none may have been refused."""
    assert [r.refusal for r in fake.requests if r.refusal] == []
    assert fake.problems == []
    return [r.body for r in fake.requests]


def texts(body: dict[str, Any], role: str = "user") -> list[str]:
    """Return the text blocks of the messages of `role`, in order, without what nbagent adds."""
    blocks = [b for m in body["messages"] if m["role"] == role for b in _blocks(m)]
    return [b["text"] for b in blocks if b["type"] == "text" and not b["text"].startswith("<notebook-state>")]


def states(body: dict[str, Any]) -> list[str]:
    """Return what the model was told of the notebook, in order."""
    blocks = [b for m in body["messages"] for b in _blocks(m)]
    return [b["text"] for b in blocks if b["type"] == "text" and b["text"].startswith("<notebook-state>")]


def results(body: dict[str, Any]) -> dict[str, str]:
    """Return the text of each tool result by its call's id."""
    blocks = [b for m in body["messages"] for b in _blocks(m) if b["type"] == "tool_result"]
    return {b["tool_use_id"]: "\n".join(c.get("text", "") for c in b["content"]) for b in blocks}


def _blocks(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def turn_ids(text: str) -> list[str]:
    """Return the ids of turns in what `%agent tree` or `%agent log` shows, in order."""
    return re.findall(r"\b[0-9a-f]{8}\b", text)
