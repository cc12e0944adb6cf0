"""Set-up: the lock, the package's contents, and that no file of it points to one machine or index."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from nbagent import __version__

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LOCK = (ROOT / "requirements-lock.txt").read_text(encoding="utf-8").splitlines()
FILES = [
    "pyproject.toml", "Makefile", "requirements-lock.txt", ".ci/run", "README.md", "CONTRIBUTING.md", "hatch_build.py",
    "labextension/package.json", "labextension/package-lock.json", "labextension/.npmrc", "tools/build_labextension.py",
]  # fmt: skip


def locked() -> dict[str, str]:
    return {canonical(name): version for name, _, version in (line.partition("==") for line in LOCK)}


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def needed() -> list[Requirement]:
    extras = PROJECT["optional-dependencies"]
    return [Requirement(line) for line in (*PROJECT["dependencies"], *extras["lab"], *extras["test"])]


def test_the_lock_holds_names_and_exact_versions_only() -> None:
    assert [line for line in LOCK if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+", line)] == []
    assert len(locked()) == len(LOCK)
    assert sorted(LOCK, key=str.lower) == LOCK


@pytest.mark.parametrize("requirement", needed(), ids=str)
def test_what_the_project_needs_is_locked_in_its_range(requirement: Requirement) -> None:
    version = locked()[canonical(requirement.name)]
    assert requirement.specifier.contains(version, prereleases=True)


@pytest.mark.parametrize("name", FILES)
def test_set_up_names_no_index_host_or_machine_path(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    found = re.findall(r"--(?:extra-)?index-url|--find-links|--trusted-host|file://|(?:/root|/home|/work|/Users)/", text)
    assert found == []


def test_the_version_is_told_once() -> None:
    assert PROJECT["version"] == __version__


def test_ci_runs_the_command_of_the_readme() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "make test" in script
    assert "```sh\nmake demo\nmake test\n```" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert subprocess.run(["bash", "-n", str(ROOT / ".ci" / "run")], check=False).returncode == 0
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_the_lock_of_the_panel_names_no_address() -> None:
    packages = json.loads((ROOT / "labextension" / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    assert [name for name, found in packages.items() if "resolved" in found] == []
    assert all("integrity" in found for name, found in packages.items() if name)


def test_the_panel_has_the_version_of_the_package() -> None:
    assert json.loads((ROOT / "labextension" / "package.json").read_text(encoding="utf-8"))["version"] == __version__


@pytest.mark.parametrize("built", [True, False], ids=["built", "not built"])
def test_wheel_and_sdist_hold_the_panel_where_it_is_built(built: bool, tmp_path: Path) -> None:
    project = tmp_path / "project"
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", ".gitignore"):
        project.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, project / name)
    for name in ("nbagent/__init__.py", "notebooks/a.ipynb", "labextension/package.json"):
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text("", encoding="utf-8")
    if built:
        assets = project / "nbagent" / "labextension"
        assets.mkdir()
        (assets / "package.json").write_text("{}", encoding="utf-8")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d", str(tmp_path)]
    done = subprocess.run(command, cwd=project, check=True, capture_output=True, text=True, timeout=550)
    (wheel,) = tmp_path.glob("*.whl")
    (sdist,) = tmp_path.glob("*.tar.gz")
    packed = [n for n in zipfile.ZipFile(wheel).namelist() if "share/jupyter/labextensions/nbagent/package.json" in n]
    with tarfile.open(sdist) as archive:
        kept = [n for n in archive.getnames() if n.endswith("nbagent/labextension/package.json")]
    assert (len(packed), len(kept)) == ((1, 1) if built else (0, 0))
    assert ("holds no JupyterLab panel" in done.stdout + done.stderr) is not built
    if built:  # what `pip install` of the sdist does, where there is no node
        with tarfile.open(sdist) as archive:
            archive.extractall(tmp_path / "unpacked", filter="data")
        (source,) = (tmp_path / "unpacked").iterdir()
        again = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "again")]
        subprocess.run(again, cwd=source, check=True, capture_output=True, timeout=550, env={"PATH": "/usr/bin-none"})
        (rebuilt,) = (tmp_path / "again").glob("*.whl")
        names = zipfile.ZipFile(rebuilt).namelist()
        assert [n for n in names if "share/jupyter/labextensions/nbagent/package.json" in n] == packed


def test_the_wheel_holds_the_package_and_the_tutorials_and_nothing_private(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    environ = {**os.environ, "NBAGENT_PANEL": "asis"}
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=550, env=environ)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "nbagent/cli.py" in names
    assert "nbagent/py.typed" in names
    tutorials = {p.name for p in (ROOT / "notebooks").glob("*.ipynb")}
    assert {n.removeprefix("nbagent/_notebooks/") for n in names if n.endswith(".ipynb")} == tutorials
    scripts = {p.name for p in (ROOT / "notebooks" / "scripts").glob("*.json")}
    assert {n.rpartition("/")[2] for n in names if "/scripts/" in n} == scripts  # teacher.md names them
    private = re.compile(
        r"(^|/)(\.nbagent|\.ipynb_checkpoints|__pycache__|node_modules)/|^(?!nbagent/|jupyter_nbagent-)"
    )
    assert [n for n in names if private.search(n)] == []
