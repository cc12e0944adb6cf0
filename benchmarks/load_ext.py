"""What `%load_ext nbagent` costs beside importing IPython in the same process, and what it imports.

    python benchmarks/load_ext.py [--rounds N]

Fresh processes, with all modules compiled, as pip leaves them (the first round compiles, and is not counted). Four settings: a plain shell (IPython alone), a kernel's process (ipykernel imported before,
as it always is in a notebook, which brings asyncio and ssl), and such a process beside a notebook with a kept
conversation, and in a folder with settings of its own. Needed: at most 0.2 of the import of IPython, and
neither the SDK nor SQLite, widgets or numpy, unless IPython or the kernel imported it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

from measuring import median, run_client, table, verdict

GOAL = 0.2
PREPARED = ("kept conversation", "settings")
HEAVY = (
    "anthropic",
    "httpx",
    "httpx2",
    "sqlite3",
    "ipywidgets",
    "anywidget",
    "numpy",
    "pandas",
    "tiktoken",
    "pydantic",
)


def measure(setting: str) -> dict[str, object]:
    """Load the extension and return CPU ms of both, with what was imported; called in a fresh process."""
    began = time.process_time()
    from IPython.core.interactiveshell import InteractiveShell

    ipython_s = time.process_time() - began
    if setting != "plain":
        import ipykernel.ipkernel  # noqa: F401
    if setting in PREPARED:
        prepared = run_client("load_ext.py", "--prepare", setting, os.getcwd())
        os.environ["JPY_SESSION_NAME"] = prepared["notebook"]
    shell = InteractiveShell.instance()
    before = set(sys.modules)
    began = time.process_time()
    shell.run_line_magic("load_ext", "nbagent")
    load_s = time.process_time() - began
    new = {name.partition(".")[0] for name in set(sys.modules) - before}
    count = sum(1 for m in sys.modules if m.partition(".")[0] == "nbagent")
    return {
        "ipython_ms": ipython_s * 1000, "load_ms": load_s * 1000, "heavy": sorted(new & set(HEAVY)), "modules": count
    }  # fmt: skip


def prepare(setting: str, folder: Path) -> dict[str, str]:
    """Make what a setting needs in `folder`, in a process of its own."""
    notebook = folder / "a.ipynb"
    notebook.write_text("{}")
    if setting == "settings":
        (folder / "nbagent.toml").write_text('mode = "plan"\n')
        return {"notebook": str(notebook)}
    import asyncio

    from nbagent.runtime.matching import CellKey
    from nbagent.runtime.ports import TurnOptions, TurnPorts
    from nbagent.runtime.session import Session
    from nbagent.store.settings import load_settings

    (folder / "script.json").write_text('[[{"type": "text", "text": "hello"}]]')
    settings = load_settings(folder, os.environ, options={"the benchmark": {"model": "scripted:script.json"}})
    session = Session.open(folder=folder, notebook=notebook, settings=settings, home=folder / "home")
    asyncio.run(
        session.send("hi", CellKey(cell_id="c", source_hash="h", order=1), TurnOptions(), TurnPorts())
    )
    session.close()
    return {"notebook": str(notebook)}


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--rounds", type=int, default=5)
    rounds = options.parse_args().rounds
    found: dict[str, list[dict[str, object]]] = {name: [] for name in ("plain", "kernel", *PREPARED)}
    with tempfile.TemporaryDirectory() as compiled:
        environ = {"PYTHONPYCACHEPREFIX": compiled, "PYTHONDONTWRITEBYTECODE": ""}
        for number in range(rounds + 1):
            for setting, rows in found.items():
                row = run_client("load_ext.py", "--client", setting, environ=environ)
                if number:
                    rows.append(row)
    lines = [
        ["process", "import IPython, CPU ms", "%load_ext nbagent, CPU ms", "ratio", "heavy modules", "own modules"]
    ]
    ratios = []
    for setting, rows in found.items():
        ipython, load = (median([float(str(r[k])) for r in rows]) for k in ("ipython_ms", "load_ms"))
        ratios.append(load / ipython)
        heavy = ", ".join(map(str, rows[0]["heavy"])) if isinstance(rows[0]["heavy"], list) else ""
        lines.append(
            [setting, f"{ipython:.0f}", f"{load:.0f}", f"{ratios[-1]:.2f}", heavy or "none", str(rows[0]["modules"])]
        )
    print(table(lines))
    print(f"\nneeded at most {GOAL:g}: {verdict(max(ratios), GOAL)}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--prepare"]:
        print(json.dumps(prepare(sys.argv[2], Path(sys.argv[3]))))
    elif sys.argv[1:2] == ["--client"]:
        print(json.dumps(measure(sys.argv[2])))
    else:
        main()
