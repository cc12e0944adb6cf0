"""The benchmarks run; at tiny sizes, and nothing here is timed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "benchmarks"


def run(tmp_path: Path, script: str, *arguments: str) -> str:
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("ANTHROPIC_", "NBAGENT_"))}
    environ["BENCHMARK_PEER_PYTHON"] = "/nonexistent"
    done = subprocess.run(
        [sys.executable, str(FOLDER / script), *arguments],
        capture_output=True, text=True, env=environ, cwd=tmp_path, timeout=550, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_loop_is_measured_for_the_bare_sdk_and_for_ours(tmp_path: Path) -> None:
    told = run(tmp_path, "agent_loop.py", "3", "--rounds", "1", "--only", "sdk", "nbagent")
    assert "| nbagent " in told
    assert "of the bare SDK loop" in told


def test_the_default_bill_is_within_its_goal_and_no_cache_breaks(tmp_path: Path) -> None:
    told = run(tmp_path, "bill.py")
    assert told.count(": met") == 2, told


def test_the_journal_is_measured(tmp_path: Path) -> None:
    assert "resume" in run(tmp_path, "journal.py", "60")


def test_loading_the_extension_imports_nothing_heavy(tmp_path: Path) -> None:
    told = json.loads(run(tmp_path, "load_ext.py", "--client", "kernel").splitlines()[-1])
    assert told["heavy"] == []
