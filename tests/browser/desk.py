"""A JupyterLab, a browser, notebooks in it, and the service that answers their turns."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.fakes.messages_api import FakeMessagesAPI, Reply, reply
from tests.fakes.replies import stall
from tests.kernels import TRANSPORT
from tests.patience import FOREVER_S, HANG_S

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = os.environ.get("NBAGENT_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
]  # fmt: skip
KERNEL_SIDE = ROOT / "tests" / "notebook" / "kernel_side"  # what the kernels of the tests do not hurry with
NOTES = "notes.ipynb"  # how most tests call their notebook
WAIT_MS = int(HANG_S * 1000)  # nothing waits so long when all is well

_OPEN = """async (path) => {
  const w = await jupyterapp.commands.execute('docmanager:open', {path, factory: 'Notebook'});
  await w.context.ready; await w.sessionContext.ready; await w.sessionContext.session.kernel.info;
  (window.books ??= {})[path] = w;
}"""
_TAKE = """async (path) => {
  await jupyterapp.restored;
  const w = jupyterapp.shell.currentWidget;
  await w.context.ready; await w.sessionContext.ready; await w.sessionContext.session.kernel.info;
  (window.books ??= {})[path] = w;
}"""
_FOCUS = "(path) => { jupyterapp.shell.activateById(books[path].id); }"
_START = """([path, i]) => {
  jupyterapp.shell.activateById(books[path].id);
  books[path].content.activeCellIndex = i;
  (window.runs ??= {})[path] = jupyterapp.commands.execute('notebook:run-cell');
}"""
_CLOSE = """async (path) => {
  const w = books[path]; delete books[path];
  await w.sessionContext.shutdown(); await w.context.save(); w.dispose();
}"""


# What takes long to import is there when a test opens the notebook whose kernel was begun ahead (see Kernels).
_STARTUP = f"""import os
if os.environ.get("JPY_SESSION_NAME", "").endswith("{NOTES}"):
    import anthropic, anywidget, nbagent.notebook.panel.bridge, nbagent.notebook.app
    del anthropic, anywidget, nbagent
del os
"""
LONG = "A sentence of the answer that goes on for a while. " * 60


def endless() -> Reply:
    """An answer that grows for minutes and comes to no end, unless it is stopped."""
    return reply(LONG * 40, delta_size_chars=60, delta_delay_s=0.1, fault=stall(FOREVER_S, after=1_000_000))


class Service:
    """The model of all tests: answers what is queued, else "ok"; a hand-off note when one is asked for."""

    def __init__(self) -> None:
        self.replies: deque[Reply | str] = deque()
        self.fake = FakeMessagesAPI(self._answer)

    def _answer(self, body: dict[str, Any]) -> Reply | str:
        return self.replies.popleft() if self.replies else reply("ok")

    @property
    def prompts(self) -> list[str]:
        """The last text of each request, oldest first."""
        return [_last_text(request.body) for request in self.fake.requests]


def _last_text(body: dict[str, Any]) -> str:
    content = body["messages"][-1]["content"]
    blocks = [content] if isinstance(content, str) else [b.get("text", "") for b in content]
    return "\n".join(blocks)


@contextmanager
def lab(folder: Path, **env: str) -> Iterator[str]:
    """Run JupyterLab, and Notebook 7 beside it, over `folder`; yields the address. What they write is in its neighbour."""
    home = folder.parent / "home"
    settings = home / "settings" / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True)
    quiet = json.dumps({"fetchNews": "false", "checkForUpdates": False})
    (settings / "notification.jupyterlab-settings").write_text(quiet)
    startup = home / "ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "00-ahead.py").write_text(_STARTUP)
    names = {"HOME": home, "IPYTHONDIR": home / "ipython", "JUPYTERLAB_SETTINGS_DIR": home / "settings"}
    names |= {f"JUPYTER_{n}_DIR": home / n.lower() for n in ("CONFIG", "DATA")}  # the sockets are in the suite's
    names |= {"JUPYTERLAB_WORKSPACES_DIR": home / "workspaces", "NBAGENT_HOME": home / "nbagent"}
    names |= {"PYTHONPATH": KERNEL_SIDE}
    with socket.socket() as held, (folder.parent / "server.log").open("w") as log:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # the server may bind it as well, nobody gets it at random
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        server = subprocess.Popen(
            [
                sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1",
                f"--port={port}", "--ServerApp.port_retries=0", "--IdentityProvider.token=", "--ServerApp.password=",
                "--ServerApp.disable_check_xsrf=True", f"--ServerApp.root_dir={folder}",
                "--LabApp.expose_app_in_browser=True", "--JupyterNotebookApp.expose_app_in_browser=True",
                f"--KernelManager.transport={TRANSPORT}",
            ],
            env={**os.environ, **{k: str(v) for k, v in names.items()}, **env}, stdout=log, stderr=log,
        )  # fmt: skip
        try:
            yield _ready(f"http://127.0.0.1:{port}", server, folder.parent / "server.log")
        finally:
            server.terminate()
            try:
                server.wait(15)
            except subprocess.TimeoutExpired:
                server.kill()


def _ready(address: str, server: subprocess.Popen[bytes], log: Path) -> str:
    ends = time.monotonic() + HANG_S
    while time.monotonic() < ends and server.poll() is None:
        try:
            with urllib.request.urlopen(f"{address}/api/status"):
                return address
        except OSError:
            time.sleep(0.2)
    raise RuntimeError(f"JupyterLab did not start; it said:\n{log.read_text(errors='replace')[-4000:]}")


class Kernels:
    """Kernels begun before a test needs them: opening a notebook finds the one of its path."""

    def __init__(self, address: str, folder: Path) -> None:
        self._url, self._folder = f"{address}/api/sessions", folder
        self._begun: dict[str, Future[str]] = {}
        self._threads = ThreadPoolExecutor(2)

    def begin(self, path: str) -> None:
        """Begin the kernel of the notebook `path`, unless it was."""
        if path not in self._begun:
            self._begun[path] = self._threads.submit(self._post, path)

    def _post(self, path: str) -> str:
        (self._folder / path).parent.mkdir(parents=True, exist_ok=True)
        wanted = {"path": path, "name": Path(path).name, "type": "notebook", "kernel": {"name": "python3"}}
        request = urllib.request.Request(self._url, json.dumps(wanted).encode(), method="POST")
        with urllib.request.urlopen(request, timeout=HANG_S) as answer:
            return str(json.load(answer)["id"])

    def end(self, path: str) -> None:
        """End the kernel, if nobody has."""
        found = self._begun.pop(path).result()
        request = urllib.request.Request(f"{self._url}/{found}", method="DELETE")
        with contextlib.suppress(urllib.error.HTTPError):
            urllib.request.urlopen(request, timeout=HANG_S).close()

    def close(self) -> None:
        """End all."""
        for path in tuple(self._begun):
            self.end(path)
        self._threads.shutdown()


class Window:
    """One browser window with JupyterLab in it."""

    def __init__(self, page: Any, address: str, name: str, folder: Path) -> None:
        self.page, self.folder = page, folder
        self.url = f"{address}/lab/workspaces/{name}"
        page.set_default_timeout(WAIT_MS)
        self.load()

    def load(self, reset: bool = True) -> None:
        """Load the page."""
        self.page.goto(self.url + ("?reset" if reset else ""), wait_until="domcontentloaded")
        self.page.wait_for_function("() => window.jupyterapp")
        self.page.evaluate("async () => { await jupyterapp.restored }")

    def command(self, name: str) -> None:
        """Run a command, without waiting for it."""
        self.page.evaluate("(name) => { void jupyterapp.commands.execute(name); }", name)

    @property
    def panel(self) -> Any:
        """The panel."""
        return self.page.locator("#nbagent-panel")

    def part(self, name: str) -> Any:
        """A part of the panel by its heading, unfolded."""
        heading = self.panel.get_by_role("button", name=name, exact=True)
        heading.wait_for()
        if heading.get_attribute("aria-expanded") == "false":
            heading.click()
        return self.panel.get_by_role("region", name=name, exact=True)

    def notebook(self, path: str, *cells: str) -> Notebook:
        """Write a notebook with these cells, and open it."""
        if cells:
            write_notebook(self.folder / path, cells)
        return Notebook(self, path)

    def show(self, path: str) -> None:
        """Open the notebook `path`, and wait until its kernel is there."""
        self.page.evaluate(_OPEN, path)


class NotebookPage(Window):
    """One browser window with Notebook 7 in it: a page for each notebook."""

    def __init__(self, page: Any, address: str, folder: Path) -> None:
        self.page, self.folder = page, folder
        self.url = f"{address}/notebooks"
        page.set_default_timeout(WAIT_MS)

    def show(self, path: str) -> None:
        """Load the page of the notebook `path`, and wait until its kernel is there."""
        self.page.goto(f"{self.url}/{path}", wait_until="domcontentloaded")
        self.page.wait_for_function("() => window.jupyterapp?.shell.currentWidget?.sessionContext")
        self.page.evaluate(_TAKE, path)


class Notebook:
    """A notebook that is open in a window."""

    def __init__(self, window: Window, path: str) -> None:
        self.window, self.page, self.path = window, window.page, path
        window.show(path)

    def focus(self) -> None:
        """Make it the current one."""
        self.page.evaluate(_FOCUS, self.path)

    def start(self, index: int) -> None:
        """Begin to run a cell."""
        self.page.evaluate(_START, [self.path, index])

    def wait(self) -> None:
        """Wait until the cell that was started has ended."""
        self.page.evaluate("async (path) => { await runs[path] }", self.path)

    def run(self, *indexes: int) -> None:
        """Run cells, one after the other."""
        for index in indexes:
            self.start(index)
            self.wait()

    def text(self, index: int) -> str:
        """Return the text of the outputs of a cell, and its errors."""
        outputs = self.page.evaluate(
            "([path, i]) => books[path].context.model.toJSON().cells[i].outputs", [self.path, index]
        )
        return "\n".join(_text(output) for output in outputs)

    def cell(self, index: int) -> Any:
        """A cell as it is drawn."""
        return self.page.locator(f"[id='{self._id()}'] .jp-Cell").nth(index)

    def restart(self) -> None:
        """Restart the kernel, as the menu does."""
        self.page.evaluate(
            """async (path) => { const c = books[path].sessionContext;
               await c.restartKernel(); await c.session.kernel.info; }""",
            self.path,
        )

    def pid(self, index: int) -> int:
        """Return the kernel's process, which the cell prints."""
        self.run(index)
        return int(self.text(index))

    def close(self) -> None:
        """Shut its kernel down and close it."""
        self.page.evaluate(_CLOSE, self.path)

    def _id(self) -> str:
        return str(self.page.evaluate("(path) => books[path].id", self.path))


def _text(output: dict[str, Any]) -> str:
    found = output.get("text") or output.get("data", {}).get("text/plain") or output.get("evalue") or ""
    return "".join(found)


def write_notebook(path: Path, cells: tuple[str, ...]) -> None:
    """Write a notebook of code cells, whose ids are the name and a number: notes-0, notes-1."""
    body = [
        {"cell_type": "code", "id": f"{path.stem}-{i}", "metadata": {}, "source": s, "outputs": [], "execution_count": None}
        for i, s in enumerate(cells)
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = {"cells": body, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(notebook), encoding="utf-8")


def until(check: Callable[[], Any], seconds: float = WAIT_MS / 1000) -> Any:
    """Return what `check` gives as soon as it is true.

    Raises:
        AssertionError: it never was.
    """
    ends = time.monotonic() + seconds
    while not (found := check()):
        assert time.monotonic() < ends, "it did not happen in time"
        time.sleep(0.05)
    return found
