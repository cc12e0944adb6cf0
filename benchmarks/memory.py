"""Peak memory of a session over 500 tool calls, beside the bare SDK loop.

    python benchmarks/memory.py [CALLS]

Fresh processes; the start is after a conversation of two calls, so the SDK's import is not counted. The text of
the tool results alone is 4 KB a call. Needed: at most 20 MB over the start.
"""

from __future__ import annotations

import sys

from agent_loop import compare
from measuring import fake, table, verdict

GOAL_MB = 20.0


def main() -> None:
    calls = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    with fake() as url:
        figures = compare(url, calls, 1, ("sdk", "sdk stream", "nbagent", "nbagent, default policy"))
    over = {name: max(0.0, row["peak_mb"] - row["start_mb"]) for name, row in figures.items()}
    rows = [[f"{calls} tool calls", "MB at the start", "MB at the peak", "MB over the start"]]
    rows += [[n, f"{r['start_mb']:.0f}", f"{r['peak_mb']:.0f}", f"{over[n]:.1f}"] for n, r in figures.items()]
    print(table(rows))
    worst = max(over["nbagent"], over["nbagent, default policy"])
    print(f"\nnbagent {worst:.1f} MB; needed at most {GOAL_MB:g}: {verdict(worst, GOAL_MB)}")


if __name__ == "__main__":
    main()
