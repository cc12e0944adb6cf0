"""What the benchmarks share: the fake as a process, a client as a process, medians, and a table."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PEER_PYTHON = Path(os.environ.get("BENCHMARK_PEER_PYTHON", "/tmp/peervenv/bin/python"))


@contextlib.contextmanager
def fake() -> Iterator[str]:
    """Run `fast_fake.py` in a process of its own; gives its URL."""
    process = subprocess.Popen(
        [sys.executable, str(HERE / "fast_fake.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.stdin.close()
        process.wait(timeout=10)
        process.stdout.close()


def run_client(
    script: str, *arguments: object, python: Path | str = sys.executable, environ: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Run `script` of this folder in a fresh process and return the JSON object of its last line."""
    with tempfile.TemporaryDirectory() as scratch:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("ANTHROPIC_", "NBAGENT_"))}
        kept |= {"ANTHROPIC_API_KEY": "fake-key", "HOME": scratch, "BENCHMARK_SCRATCH": scratch}
        done = subprocess.run(
            [str(python), str(HERE / script), *map(str, arguments)],
            capture_output=True, text=True, env={**kept, **(environ or {})}, cwd=scratch, timeout=600,
        )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{script} {arguments} failed:\n{done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def peak_mb() -> float:
    """Return the most memory this process has had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def now_mb() -> float:
    """Return the memory this process has now, in MB; the peak where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return peak_mb()
    return pages * resource.getpagesize() / 1e6


def median(values: Sequence[float]) -> float:
    """Return the median."""
    return statistics.median(values)


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return `rows` as a Markdown table; the first is the head."""
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)) + " |" for r in rows]
    lines.insert(1, "| " + " | ".join("-" * w for w in widths) + " |")
    return "\n".join(lines)


def verdict(figure: float, goal: float) -> str:
    """Return "met" or "MISSED" for a figure that may be at most `goal`."""
    return "met" if figure <= goal else "MISSED"
