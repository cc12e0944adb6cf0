"""Runs the kernel tests against several ipykernels: `python tests/matrix.py [NAME ...] [-- PYTEST OPTIONS]`.

Each NAME ("6.31", "7.0", "7.3", "7.4"; all when none is given) gets a virtual environment in `build/matrix/` (or
`NBAGENT_MATRIX_DIR`), made once. The tests run in this Python; only their kernel uses that environment.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VERSIONS = {
    "6.31": ("ipykernel==6.31.*", "ipython==8.37.*"),
    "7.0": ("ipykernel==7.0.1", "ipython"),
    "7.3": ("ipykernel==7.3.*", "ipython"),
    "7.4": ("ipykernel==7.4.*", "ipython"),
}
LIBRARIES = ("matplotlib", "pandas")


def python_of(name: str) -> Path:
    """Return the Python of the environment for `name`; make it when it is not there."""
    folder = Path(os.environ.get("NBAGENT_MATRIX_DIR", ROOT / "build" / "matrix")) / name
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    complete = folder / "complete"
    if not complete.exists():
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *VERSIONS[name], *LIBRARIES, str(ROOT)], check=True)
        complete.touch()
    return python


def run(name: str, options: list[str]) -> int:
    """Run the kernel tests with the ipykernel `name`; return pytest's exit code."""
    python = python_of(name)
    asked = "import IPython, ipykernel; print('ipykernel', ipykernel.__version__, 'IPython', IPython.__version__)"
    subprocess.run([python, "-c", asked], check=True)
    command = [sys.executable, "-m", "pytest", "-m", "kernel", "tests/notebook", *options]
    return subprocess.run(command, cwd=ROOT, env=os.environ | {"NBAGENT_TEST_PYTHON": str(python)}).returncode


def main(arguments: list[str]) -> int:
    """Run the matrix; return 0 when every part passed."""
    split = arguments.index("--") if "--" in arguments else len(arguments)
    names, options = arguments[:split] or list(VERSIONS), arguments[split + 1 :]
    unknown = [name for name in names if name not in VERSIONS]
    if unknown:
        print(f"unknown ipykernel {unknown[0]!r}; known: {', '.join(VERSIONS)}", file=sys.stderr)
        return 2
    codes = {name: run(name, options) for name in names}
    for name, code in codes.items():
        print(f"ipykernel {name}: {'passed' if code == 0 else f'failed ({code})'}")
    return int(any(codes.values()))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
