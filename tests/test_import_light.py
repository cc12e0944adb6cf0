"""Importing nbagent stays cheap: what is heavy is loaded by what needs it."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from nbagent.notebook.registered import MAGICS
from tests.runtime.lab import Lab, write_notebook

HEAVY = {
    "anthropic",
    "httpx2",
    "httpx",
    "aiohttp",
    "sqlite3",
    "numpy",
    "pandas",
    "ipywidgets",
    "anywidget",
    "tiktoken",
    "matplotlib",
    "markdown_it",
}
REPORT = "import sys, json; print(json.dumps(sorted({m.partition('.')[0] for m in sys.modules})))"


def loaded_by(statement: str) -> set[str]:
    """Return the top-level modules that a fresh interpreter holds after `statement`."""
    done = subprocess.run(
        [sys.executable, "-c", f"{statement}\n{REPORT}"], capture_output=True, text=True, check=True, timeout=550
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_importing_the_package_brings_in_nothing_heavy() -> None:
    assert loaded_by("import nbagent") & (HEAVY | {"IPython", "asyncio"}) == set()


def test_importing_the_core_brings_in_nothing_heavy() -> None:
    assert loaded_by("import nbagent.core.turn, nbagent.core.tree") & (HEAVY | {"IPython", "asyncio"}) == set()


def test_importing_the_extension_brings_in_no_more_than_ipython_does() -> None:
    shell = loaded_by("import IPython.core.interactiveshell, IPython.core.magic")
    assert loaded_by("import nbagent.notebook.extension") & (HEAVY - shell) == set()


LOAD = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "nbagent")
import sys, json
{more}
print(json.dumps(sorted(m for m in sys.modules if m.startswith("nbagent."))))
"""
LIGHT = {
    "nbagent.notebook", "nbagent.notebook.panel", "nbagent.notebook.panel.comms", "nbagent.notebook.extension", "nbagent.notebook.greeting",
    "nbagent.notebook.matcher", "nbagent.notebook.panel.door", "nbagent.notebook.registered", "nbagent.notebook.stopped",
    "nbagent.notebook.tracker", "nbagent.notebook.transform", "nbagent.notebook.words",
    "nbagent.models", "nbagent.models.credentials", "nbagent.runtime", "nbagent.runtime.kept_glance",
    "nbagent.runtime.plain_start", "nbagent.runtime.skill_glance",
    "nbagent.store", "nbagent.store.settings_defaults",
}  # fmt: skip


def modules_after(more: str, folder: Path) -> set[str]:
    """Return our modules after `%load_ext nbagent` in a fresh process and `more`."""
    script = LOAD.format(more=more)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=folder)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_loading_the_extension_imports_what_registers_it_and_no_more(tmp_path: Path) -> None:
    ran = "shell.run_cell('x = 1'); shell.Completer.completions('x.re', 4); shell.run_line_magic('lsmagic', '')"
    assert modules_after(ran, tmp_path) == LIGHT


def test_loading_beside_a_kept_conversation_imports_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(tmp_path)
    write_notebook(tmp_path / "a.ipynb", "c1")
    lab.open(["hello"], notebook="a.ipynb", name=None)
    lab.send("c1", "hi")
    lab.close()
    monkeypatch.setenv("JPY_SESSION_NAME", str(tmp_path / "a.ipynb"))
    monkeypatch.setenv("NBAGENT_HOME", str(lab.home))
    assert modules_after("", tmp_path) == LIGHT


def test_loading_beside_settings_reads_them_and_opens_nothing(tmp_path: Path) -> None:
    (tmp_path / "nbagent.toml").write_text("mode = 'plan'\n")
    found = modules_after("", tmp_path)
    assert "nbagent.store.settings_layers" in found
    assert found.isdisjoint(
        {"nbagent.notebook.app", "nbagent.core.entries", "nbagent.store.journal", "nbagent.store.settings"}
    )


def test_loading_the_extension_brings_in_no_sdk() -> None:
    """claude 82."""
    found = loaded_by(LOAD.format(more="").rpartition("print")[0])
    assert "nbagent" in found
    assert "anthropic" not in found


def test_the_first_magic_imports_what_it_needs(tmp_path: Path) -> None:
    assert "nbagent.notebook.app" in modules_after("shell.run_line_magic('agent', 'help')", tmp_path)


def test_every_magic_names_a_function_that_exists() -> None:
    for magic in MAGICS:
        for target in filter(None, (magic.target, magic.help_text)):
            module, _, name = target.partition(":")
            assert callable(getattr(importlib.import_module(module), name)), target
