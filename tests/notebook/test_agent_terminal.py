"""IPython in a terminal and as a script: no kernel, no front end that updates displays."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.notebook.kernel_harness import ROOT
from tests.patience import HANG_S

pytestmark = pytest.mark.kernel


def reply(*parts: str | dict[str, str]) -> list[dict[str, object]]:
    """A scripted reply: texts, and calls of python as {"code": …}."""
    return [
        {"type": "text", "text": p}
        if isinstance(p, str)
        else {"type": "tool_use", "id": "", "name": "python", "input": p}
        for p in parts
    ]


def start(folder: Path, *replies: list[dict[str, object]]) -> dict[str, str]:
    """Write the script of the model, and return the environment."""
    (folder / "script.json").write_text(json.dumps(replies))
    return {
        **os.environ, "NBAGENT_HOME": str(folder / "home"), "NBAGENT_MODEL": "scripted:script.json", "NBAGENT_MODE": "auto",
        "IPYTHONDIR": str(folder / "ipython"), "PYTHONPATH": str(ROOT), "TERM": "dumb", "NBAGENT_SESSION": "terminal",
    }  # fmt: skip


def test_a_script_runs_turns(tmp_path: Path) -> None:
    env = start(tmp_path, reply("Look.", {"code": "x = 6 * 7\nprint('x is', x)"}), reply("**x** is 42."), reply("Ok."))
    (tmp_path / "s.ipy").write_text(
        "%load_ext nbagent\nget_ipython().run_cell_magic('agent', '-o r', 'What is x?')\nprint(r.steps, x)\n"
        "import nbagent\nprint(nbagent.ask('and?', show=False).text)\n%agent log\n"
    )
    command = [sys.executable, "-m", "IPython", "--no-banner", "s.ipy"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=HANG_S, input="")
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    assert lines[1:5] == ["Look.", "x is 42", "[python x = 6 * 7 (+1 line)] ok", "**x** is 42."], (
        done.stdout + done.stderr
    )
    assert "2 42" in lines
    assert "Ok." in lines


@pytest.mark.skipif(os.name == "nt", reason="no pseudo-terminal")
def test_a_terminal_shows_turns_asks_and_stops(tmp_path: Path) -> None:
    sleeps = {"code": "import time\nprint('GO', flush=True)\ntime.sleep(3600)"}
    env = start(tmp_path, reply("Look.", {"code": "x = 42"}), reply("It is **42**."), reply(sleeps), reply("Resumed."))
    terminal = Terminal(tmp_path, env)
    try:
        terminal.read("In [1]: ")
        assert "policy nbagent" in terminal.type("%load_ext nbagent\n", "In [2]: ")
        asked = terminal.type("%%agent --mode ask\nWhat is x?\n\n\n", "[n]o: ")
        assert "x = 42" in asked
        assert "It is **42**." in terminal.type("y\n", "In [3]: ")
        terminal.type("%%agent\nwait\n\n\n", "GO\r\n")
        stopped = terminal.type("\x03", "In [4]: ")
        assert "Stopped in step 1." in stopped
        assert "Traceback" not in stopped
        assert "Resumed." in terminal.type("%agent resume\n", "In [5]: ")
        assert "Out[5]: 42" in terminal.type("x\n", "In [6]: ")
    finally:
        terminal.close()


@pytest.mark.skipif(os.name == "nt", reason="no pseudo-terminal")
def test_what_is_typed_after_a_restart_goes_on_with_the_conversation(tmp_path: Path) -> None:
    """No cell is run again at a prompt: neither another first request nor the same one is an edit of the first."""
    env = start(tmp_path, reply("One."), reply("Two."))
    for requests in (("first", "second"), ("another", "second")):
        terminal = Terminal(tmp_path, env)
        try:
            terminal.read("In [1]: ")
            terminal.type("%load_ext nbagent\n", "In [2]: ")
            for number, request in enumerate(requests, 3):
                terminal.type(f"%%agent\n{request}\n\n\n", f"In [{number}]: ")
            tree = terminal.type("%agent tree\n", "In [5]: ")
        finally:
            terminal.close()
    assert re.findall(r"([●○]) (\d) .*“(\w+)”", tree) == [
        ("●", "1", "first"), ("●", "2", "second"), ("●", "3", "another"), ("●", "4", "second"),
    ]  # fmt: skip


class Terminal:
    """IPython at a pseudo-terminal."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        main, other = os.openpty()
        command = [sys.executable, "-m", "IPython", "--no-banner", "--simple-prompt", "--colors=nocolor"]
        self.process = subprocess.Popen(
            command, cwd=folder, env=env, stdin=other, stdout=other, stderr=other, preexec_fn=_own_terminal
        )
        os.close(other)
        self._fd = main
        os.set_blocking(main, False)

    def type(self, text: str, until: str) -> str:
        os.write(self._fd, text.encode())
        return self.read(until)

    def read(self, until: str) -> str:
        """Return what is written up to `until`."""
        seen, ends = "", time.monotonic() + HANG_S
        while until not in seen:
            assert time.monotonic() < ends, f"{until!r} never came after {seen!r}"
            assert self.process.poll() is None, f"it has ended; {until!r} never came after {seen!r}"
            try:
                seen += os.read(self._fd, 65_536).decode(errors="replace")
            except BlockingIOError:
                time.sleep(0.02)
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", seen)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._fd)


def _own_terminal() -> None:
    import fcntl
    import termios

    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
