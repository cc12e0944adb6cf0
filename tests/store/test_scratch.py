"""ScratchFolder: gone when its process is, however that ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from nbagent.store.scratch import FORGOTTEN_S, LOCK, YOUNG_S, ScratchFolder

MAKE = """
from nbagent.store.scratch import ScratchFolder
folder = ScratchFolder("test")
(folder.path / "artifacts").mkdir()
print(folder.path, flush=True)
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def age(folder: Path, seconds: float) -> None:
    at = folder.stat().st_mtime - seconds
    os.utime(folder, (at, at))


def left(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_it_goes_when_it_is_removed_and_removing_it_again_does_nothing(temporary: Path) -> None:
    scratch = ScratchFolder("test")
    (scratch.path / "a").write_text("x")
    scratch.remove()
    scratch.remove()
    assert left(temporary) == []


def test_it_goes_when_its_process_ends_without_removing_it(temporary: Path) -> None:
    done = subprocess.run([sys.executable, "-c", MAKE], capture_output=True, text=True, check=True, timeout=550)
    assert Path(done.stdout.strip()).parent == temporary
    assert left(temporary) == []


def test_what_a_killed_process_left_goes_when_the_next_is_made(temporary: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", MAKE + "input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    killed = Path(process.stdout.readline().decode().strip())
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=550)
    assert killed.is_dir()
    age(killed, YOUNG_S + 1)
    scratch = ScratchFolder("test")
    assert left(temporary) == [scratch.path.name]
    scratch.remove()


def test_a_folder_that_a_process_holds_is_let_be_however_old(temporary: Path) -> None:
    held = ScratchFolder("test")
    age(held.path, 10 * FORGOTTEN_S)
    second = ScratchFolder("test")
    assert left(temporary) == sorted([held.path.name, second.path.name])
    held.remove()
    second.remove()


def test_what_was_never_locked_is_let_be_for_a_day_and_other_names_for_ever(temporary: Path) -> None:
    names = {"nbagent-test-new": 60.0, "nbagent-test-old": FORGOTTEN_S + 1, "nbagent-other-old": 2 * FORGOTTEN_S}
    for name, seconds in names.items():
        (temporary / name).mkdir()
        age(temporary / name, seconds)
    (temporary / "nbagent-test-just-made").mkdir()
    (temporary / "nbagent-test-just-made" / LOCK).touch()
    scratch = ScratchFolder("test")
    scratch.remove()
    assert left(temporary) == ["nbagent-other-old", "nbagent-test-just-made", "nbagent-test-new"]
