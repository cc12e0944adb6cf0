"""Make the pictures of README and docs: a tutorial in a real JupyterLab, replayed without a key.

Run it with `python tools/screenshots.py [PICTURE ...]`; it needs the packages playwright and jupyterlab, and a Chromium
(`/usr/bin/chromium`, or the one that NBAGENT_CHROMIUM names). It writes `docs/images/*.png`.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
CHROMIUM = os.environ.get("NBAGENT_CHROMIUM", "/usr/bin/chromium")
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
OPEN = """async (path) => {
  const w = await jupyterapp.commands.execute('docmanager:open', {path, factory: 'Notebook'});
  await w.context.ready; await w.sessionContext.ready; await w.sessionContext.session.kernel.info; window.nb = w;
}"""
RUN = "async (i) => { nb.content.activeCellIndex = i; await jupyterapp.commands.execute('notebook:run-cell'); }"
SHOW = "(i) => { const n = nb.content.widgets[i].node; n.scrollIntoView({block: 'start'}); }"
CLEAN = "() => jupyterapp.commands.execute('application:toggle-left-area')"

PANEL = "async () => { await jupyterapp.commands.execute('nbagent:open'); }"


@dataclass(frozen=True)
class Picture:
    """A notebook run up to the first cell that begins with `cell`, which is then on top; with the panel or without."""

    notebook: str
    cell: str
    height_px: int
    width_px: int = 1080
    panel: bool = False


PICTURES = {
    "first-turn.png": Picture("01_first_turn.ipynb", "%%agent", 1150),
    "context.png": Picture("01_first_turn.ipynb", "%context", 620),
    "panel.png": Picture("03_compaction_without_regret.ipynb", "%%agent\nWhich species", 900, 1320, panel=True),
}


@contextmanager
def lab(folder: Path) -> Iterator[str]:
    """Run JupyterLab over `folder`; yields its address."""
    home = folder / ".home"
    settings = home / "settings" / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True)
    quiet = json.dumps({"fetchNews": "false", "checkForUpdates": False})
    (settings / "notification.jupyterlab-settings").write_text(quiet)
    names = {"HOME": home, "IPYTHONDIR": home / "ipython", "JUPYTERLAB_SETTINGS_DIR": home / "settings"}
    names |= {f"JUPYTER_{n}_DIR": home / n.lower() for n in ("CONFIG", "DATA", "RUNTIME")}
    environ = {**os.environ, **{k: str(v) for k, v in names.items()}, "NBAGENT_HOME": str(home / "nbagent")}
    environ.pop("ANTHROPIC_API_KEY", None)
    subprocess.run([sys.executable, "-m", "nbagent", "trust", str(folder)], env=environ, check=True, cwd=ROOT)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [
            sys.executable, "-m", "jupyter", "lab", "--no-browser", "--allow-root", "--ip=127.0.0.1",
            f"--port={port}", "--ServerApp.port_retries=0", "--IdentityProvider.token=", "--ServerApp.password=",
            "--ServerApp.disable_check_xsrf=True", f"--ServerApp.root_dir={folder}",
            "--LabApp.expose_app_in_browser=True",
        ],
        env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield _ready(f"http://127.0.0.1:{port}")
    finally:
        server.terminate()
        server.wait(10)


def _ready(address: str) -> str:
    for _ in range(150):
        try:
            with urllib.request.urlopen(f"{address}/api/status"):
                return address
        except OSError:
            time.sleep(0.3)
    raise SystemExit("JupyterLab did not start")


def main() -> None:
    """Take every picture."""
    from playwright.sync_api import sync_playwright

    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="nbagent-pictures-") as scratch:
        folder = Path(scratch) / "tutorials"
        shutil.copytree(ROOT / "notebooks", folder)
        with lab(folder) as address, sync_playwright() as play:
            page = play.chromium.launch(executable_path=CHROMIUM, args=FLAGS).new_page()
            for name in sys.argv[1:] or PICTURES:
                picture = PICTURES[name]
                _take(page, address, name, picture)


def _take(page: Any, address: str, name: str, picture: Picture) -> None:
    notebook, cell = picture.notebook, picture.cell
    page.set_viewport_size({"width": picture.width_px, "height": picture.height_px})
    page.goto(f"{address}/lab/workspaces/{name[:4]}?reset", wait_until="domcontentloaded")
    page.wait_for_function("() => window.jupyterapp")
    page.evaluate("async () => { await jupyterapp.restored }")
    page.evaluate(OPEN, notebook)
    page.evaluate(CLEAN)
    if picture.panel:
        page.evaluate(PANEL)
    sources = [c["source"] for c in json.loads((ROOT / "notebooks" / notebook).read_text())["cells"]]
    texts = ["".join(s) if isinstance(s, list) else s for s in sources]
    first = next(i for i, text in enumerate(texts) if text.startswith(cell))
    for index in range(first + 1):
        page.evaluate(RUN, index)
    page.wait_for_timeout(1500)
    page.evaluate(SHOW, first)
    page.wait_for_timeout(800)
    page.screenshot(path=str(IMAGES / name))
    print(f"docs/images/{name}")


if __name__ == "__main__":
    main()
