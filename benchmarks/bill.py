"""What a turn of fifty tool calls costs by default, by the cache rules of the fake in `tests/fakes`.

    python benchmarks/bill.py [CALLS]

Two turns in one conversation with default settings, and the same with the policy `off`, which shows what caching
alone does. The price is in units of one uncached input token (reads 0.1, writes 1.25), as a share of what the
conversation costs when nothing is cached and nothing moved. Needed: at most 0.145 for the first turn, and no cache
break: no request may read less than the request before it read and wrote, but where the journal says that the
policy moved something. Nothing here is timed; the figures are the same on every machine.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from agent_loop import PROMPT, Ours
from measuring import table, verdict

from nbagent.core.entries import Entry
from tests.fakes.cache import InputUsage, bill
from tests.fakes.messages_api import FakeMessagesAPI, Reply, call, reply

GOAL = 0.145


class Script:
    """Answers a turn's requests with `calls` calls and a text; a request for a note with a note."""

    def __init__(self, calls: int) -> None:
        self.calls, self.made = calls, 0

    def __call__(self, body: dict[str, Any]) -> Reply | str:
        last = body["messages"][-1]["content"][-1]
        asked = str(last.get("text", "")) if last["type"] == "text" else ""
        if asked and asked != PROMPT and not asked.startswith("<reminder>"):
            return "## Goal\nRead all chunks.\n\n## Next steps\nRead the chunks that are left."
        self.made = 0 if asked == PROMPT else self.made
        if self.made == self.calls:
            return "All chunks are read."
        self.made += 1
        return reply(call("read_chunk", {"i": self.made}))


def breaks(usages: list[InputUsage]) -> list[int]:
    """Return the numbers (from 1) of the requests that did not read all that the one before them left in the cache."""
    left = [u.read_tokens + u.written_5m_tokens + u.written_1h_tokens for u in usages]
    return [i + 1 for i in range(1, len(usages)) if usages[i].read_tokens < left[i - 1]]


def moved(path: Iterable[Entry]) -> set[int]:
    """Return the numbers of the requests right before which the policy moved something."""
    numbers, number = set(), 1
    for entry in path:
        if entry.kind in ("pruning", "compaction", "restore"):
            numbers.add(number)
        number += entry.kind == "usage"
    return numbers


def run(calls: int, policy: str | None) -> dict[str, Any]:
    """Run two turns and return their figures; prices in units."""
    with FakeMessagesAPI(Script(calls)) as fake, tempfile.TemporaryDirectory() as scratch:
        os.environ |= {"ANTHROPIC_API_KEY": "fake-key", "BENCHMARK_SCRATCH": scratch, "HOME": scratch}
        ours = Ours(fake.base_url, policy=policy, window_tokens=200_000)
        ours.new = False
        ours.run(calls)
        first = len(fake.requests)
        ours.run(calls)
        announced = moved(ours.session.tree.path())
        ours.session.close()
        usages = [r.usage for r in fake.requests if r.usage is not None]
        problems = list(fake.problems)
    return {
        "first": bill(usages[:first]), "both": bill(usages), "requests": len(usages), "problems": problems,
        "breaks": [n for n in breaks(usages) if n not in announced], "moves": sorted(announced),
    }  # fmt: skip


def main() -> None:
    calls = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    off, default = run(calls, "off"), run(calls, None)
    print(f"two turns of {calls} tool calls, 4 KB a call; shares of the uncached, unmanaged price\n")
    rows = [["policy", "first turn", "both turns", "requests", "moves before", "cache breaks"]]
    for name, found in (("off", off), ("default", default)):
        shares = [f"{found[k].with_caching / off[k].without_caching:.4f}" for k in ("first", "both")]
        moves = ", ".join(map(str, found["moves"])) or "none"
        rows.append([name, *shares, str(found["requests"]), moves, str(len(found["breaks"]))])
    print(table(rows))
    share = default["first"].with_caching / off["first"].without_caching
    worst = max(len(off["breaks"]), len(default["breaks"]))
    print(f"\nprice of a turn by default: {share:.4f}; needed at most {GOAL}: {verdict(share, GOAL)}")
    print(f"cache breaks: {off['breaks'] + default['breaks'] or 0}; needed 0: {verdict(worst, 0)}")
    if problems := off["problems"] + default["problems"]:
        print("the fake found fault:", *problems, sep="\n  ")


if __name__ == "__main__":
    main()
