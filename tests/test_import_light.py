"""Importing nbagent stays cheap: what is heavy is loaded by what needs it."""

from __future__ import annotations

import json
import subprocess
import sys

HEAVY = {
    "anthropic",
    "httpx2",
    "httpx",
    "sqlite3",
    "numpy",
    "pandas",
    "ipywidgets",
    "tiktoken",
    "matplotlib",
    "markdown_it",
}
REPORT = "import sys, json; print(json.dumps(sorted({m.partition('.')[0] for m in sys.modules})))"


def loaded_by(statement: str) -> set[str]:
    """Return the top-level modules that a fresh interpreter holds after `statement`."""
    done = subprocess.run(
        [sys.executable, "-c", f"{statement}\n{REPORT}"], capture_output=True, text=True, check=True, timeout=60
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_importing_the_package_brings_in_nothing_heavy() -> None:
    assert loaded_by("import nbagent") & (HEAVY | {"IPython", "asyncio"}) == set()


def test_importing_the_core_brings_in_nothing_heavy() -> None:
    assert loaded_by("import nbagent.core.turn, nbagent.core.tree") & (HEAVY | {"IPython", "asyncio"}) == set()


def test_importing_the_extension_brings_in_no_more_than_ipython_does() -> None:
    shell = loaded_by("import IPython.core.interactiveshell, IPython.core.magic")
    assert loaded_by("import nbagent.notebook.extension") & (HEAVY - shell) == set()
