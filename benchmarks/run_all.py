"""Run every benchmark, one after the other, and print what they print.

    python benchmarks/run_all.py [--quick]

About ten minutes on two cores, one with `--quick` (fewer rounds, fewer calls: for a look, not for the record).
`context_size.py` and `fit_tokens.py` need recorded sessions or tokenizers and are run by hand.
"""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
FULL = (
    ("agent_loop.py", "50", "200", "500", "--rounds", "3"),
    ("streaming.py", "--rounds", "5"),
    ("bill.py",),
    ("load_ext.py", "--rounds", "5"),
    ("journal.py",),
    ("memory.py",),
)
QUICK = (
    ("agent_loop.py", "50", "--rounds", "1"),
    ("streaming.py", "--rounds", "1"),
    ("bill.py",),
    ("load_ext.py", "--rounds", "1"),
    ("journal.py", "2000"),
    ("memory.py", "100"),
)


def main() -> int:
    """Run them; returns how many failed to run."""
    today = datetime.datetime.now(datetime.UTC).date()
    print(f"{today}, Python {platform.python_version()}, {platform.system()}, {os.cpu_count()} cores")
    failed = 0
    for script, *arguments in QUICK if "--quick" in sys.argv[1:] else FULL:
        print(f"\n## {' '.join((script, *arguments))}\n", flush=True)
        failed += subprocess.run([sys.executable, str(HERE / script), *arguments], check=False).returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main())
