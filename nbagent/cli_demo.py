"""`nbagent demo`: a copy of the tutorials, opened in JupyterLab or run here from its recording."""

from __future__ import annotations

import filecmp
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote

from nbagent.core.errors import JournalUnwritable, UsageProblem
from nbagent.store.settings import load_settings
from nbagent.store.trust import trust

INSTALL_LAB = "pip install 'jupyter-nbagent[lab]' (from a clone: pip install '.[lab]')"
FIRST = "01_first_turn.ipynb"
CELL_TIMEOUT_S = 600
OWN_SETTINGS = "# Settings of this demo alone; those of the folders above do not hold here.\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """The copy of the tutorials: `kept` are files that differ from ours and were left as they are."""

    notebooks: tuple[Path, ...]
    kept: tuple[Path, ...]
    fresh: bool


def tutorials() -> Path:
    """Return the folder with the shipped tutorials: in the package, or in the repository beside it.

    Raises:
        UsageProblem: there are none.
    """
    package = Path(__file__).resolve().parent
    for folder in (package / "_notebooks", package.parent / "notebooks"):
        if any(folder.glob("*.ipynb")):
            return folder
    raise UsageProblem("no tutorials came with this installation; install nbagent from a wheel or run it from a clone")


def copy_tutorials(source: Path, target: Path) -> Copied:
    """Copy what is in `source` to `target`, leaving every file that is there already.

    Raises:
        UsageProblem: `target` is a file.
        JournalUnwritable: it cannot be written.
    """
    if target.exists() and not target.is_dir():
        raise UsageProblem(f"{str(target)!r} is a file; name a folder with --folder DIR")
    files = sorted(_files(source))
    fresh = not target.exists() or not any(target.iterdir())
    kept = []
    try:
        for path in files:
            copy = target / path.relative_to(source)
            if not copy.exists():
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy)
            elif not copy.is_file() or not filecmp.cmp(path, copy, shallow=False):
                kept.append(copy)
    except OSError as error:
        raise JournalUnwritable(
            f"the tutorials cannot be copied to {str(target)!r} ({error.strerror}); name another folder with --folder"
        ) from error
    notebooks = tuple(target / p.relative_to(source) for p in files if p.parent == source and p.suffix == ".ipynb")
    return Copied(notebooks=notebooks, kept=tuple(kept), fresh=fresh)


def _files(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        parts = path.relative_to(folder).parts
        hidden = any(part.startswith((".", "__")) for part in parts)
        if path.is_file() and not hidden:
            yield path


def trust_copy(target: Path, environ: Mapping[str, str]) -> None:
    """Trust a folder that holds nothing but our copy, apart from the settings of any project around it."""
    settings = load_settings(target, environ)
    if Path(settings.project) != target.resolve():
        (target / "nbagent.toml").write_text(OWN_SETTINGS, encoding="utf-8")
    trust(target, settings.home)


def demo(target: Path, *, check: bool, browser: bool) -> int:
    """Copy the tutorials to `target`, then open the first or, with `check`, run it and print its answers."""
    _require("nbclient" if check else "jupyterlab")
    copied = copy_tutorials(tutorials(), target)
    for path in copied.kept:
        print(f"Kept as it is, since it differs from the one shipped: {path}")
    if copied.fresh:
        trust_copy(target, os.environ)
    first = next((n for n in copied.notebooks if n.name == FIRST), copied.notebooks[0])
    print(f"Tutorials: {target} ({len(copied.notebooks)} notebooks), first: {first.name}")
    sys.stdout.flush()
    return run_notebook(first) if check else open_lab(first, browser=browser)


def _require(module: str) -> None:
    if find_spec(module) is None:
        raise UsageProblem(f"{module} is not installed; install it with {INSTALL_LAB}")


def open_lab(notebook: Path, *, browser: bool) -> int:
    """Run JupyterLab on `notebook` until it is stopped."""
    # Not the file's name as an argument: the address that is printed would not lead to it.
    command = [sys.executable, "-m", "jupyterlab", f"--LabApp.default_url=/lab/tree/{quote(notebook.name)}"]
    command += [] if browser else ["--no-browser"]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")
    if not os.environ.get("ANTHROPIC_API_KEY"):
        print("No ANTHROPIC_API_KEY is set: the tutorials play their recordings.")
    print("Opening JupyterLab; Ctrl+C here ends it.")
    sys.stdout.flush()
    return subprocess.run(command, cwd=notebook.parent, check=False).returncode


def sealed(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which a notebook can only be replayed: no keys, and no model is called."""
    keys = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY")
    kept = {k: v for k, v in environ.items() if k not in keys}
    return {**kept, "NBAGENT_OFFLINE": "1", "PYDEVD_DISABLE_FILE_VALIDATION": "1"}


def run_notebook(path: Path) -> int:
    """Run the notebook at `path` without a front end, print its requests and answers; 1 when a cell fails.

    The file is left as it is.

    Raises:
        UsageProblem: it is not a notebook.
    """
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    try:
        notebook: Any = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise UsageProblem(
            f"{str(path)!r} cannot be read as a notebook ({error}); remove it to get ours again"
        ) from error
    client = NotebookClient(
        notebook, timeout=CELL_TIMEOUT_S, kernel_name="python3", resources={"metadata": {"path": str(path.parent)}},
        extra_arguments=["--log-level=ERROR"],
    )  # fmt: skip
    failure = ""
    try:
        client.execute(env=sealed(os.environ))
    except CellExecutionError as error:
        failure = f"{error.ename}: {error.evalue}"
    except CellTimeoutError:
        failure = f"a cell did not end within {CELL_TIMEOUT_S} s"
    except DeadKernelError as error:
        failure = f"the kernel died ({error})"
    answers = [print_turn(cell) for cell in notebook.cells]
    if failure:
        print(f"nbagent: {path.name} failed: {' '.join(failure.split())}", file=sys.stderr)
        return 1
    print(f"\n{path.name}: {sum(answers)} answers, replayed without a model")
    return 0


def print_turn(cell: Any) -> bool:
    """Print the request and the answer of a `%%agent` cell that was run; tell whether it has one."""
    source = str(cell.get("source", ""))
    if cell.get("cell_type") != "code" or not source.lstrip().startswith("%%agent") or cell.execution_count is None:
        return False
    line, _, request = source.lstrip().partition("\n")
    print("\n" + "\n".join(f"> {row}".rstrip() for row in (request.strip() or line).split("\n")) + "\n")
    for output in cell.outputs:
        if output.output_type == "stream":
            print(output.text.rstrip())
        elif output.output_type in ("display_data", "execute_result"):
            print(str(output.data.get("text/plain", "")).rstrip())
    return True
