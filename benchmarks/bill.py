"""What a turn of fifty tool calls costs by default, by the cache rules of the fake in `tests/fakes`.

    python benchmarks/bill.py [CALLS]

Two turns in one conversation, with default settings. The price is in units of one uncached input token (reads
0.1, writes 1.25), as a share of what the same requests cost without a cache. Needed: at most 0.145 for the
first turn, and no cache break: no request may read less than the request before it read and wrote, but where the
journal says that the policy moved something. Nothing here is timed; the figures are the same on every machine.
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
from measuring import verdict

from nbagent.core.entries import Entry
from tests.fakes.cache import InputUsage, bill
from tests.fakes.messages_api import FakeMessagesAPI, Reply, call, reply

GOAL = 0.145


def script(calls: int) -> list[Reply | str]:
    """Return one turn: `calls` replies with a call each, then a text."""
    return [*(reply(call("read_chunk", {"i": i})) for i in range(1, calls + 1)), "All chunks are read."]


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


def run(calls: int) -> dict[str, Any]:
    """Run two turns and return their figures."""
    with FakeMessagesAPI(script(calls) + script(calls)) as fake, tempfile.TemporaryDirectory() as scratch:
        os.environ |= {"ANTHROPIC_API_KEY": "fake-key", "BENCHMARK_SCRATCH": scratch, "HOME": scratch}
        ours = Ours(fake.base_url, policy=None, window_tokens=200_000)
        ours.new = False
        for _ in range(2):
            ours.run(calls)
        announced = moved(ours.session.tree.path())
        ours.session.close()
        usages = [r.usage for r in fake.requests if r.usage is not None]
        problems = list(fake.problems)
    first, both = bill(usages[: calls + 1]), bill(usages)
    read = sum(u.read_tokens for u in usages[: calls + 1]) / first.without_caching
    return {
        "share": first.with_caching / first.without_caching, "share_of_both": both.with_caching / both.without_caching,
        "read": read, "breaks": [n for n in breaks(usages) if n not in announced], "moves": sorted(announced), "problems": problems, "requests": len(usages),
    }  # fmt: skip


def main() -> None:
    calls = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    found = run(calls)
    print(f"two turns of {calls} tool calls, {found['requests']} requests; {PROMPT!r}, 4 KB a call")
    print(f"read from the cache, first turn: {found['read']:.3f} of the input")
    print(
        f"price, first turn:  {found['share']:.4f} of the uncached price; needed {GOAL}: {verdict(found['share'], GOAL)}"
    )
    print(f"price, both turns:  {found['share_of_both']:.4f}")
    print(
        f"cache breaks:       {len(found['breaks'])} {found['breaks'] or ''}; needed 0: {verdict(len(found['breaks']), 0)}"
    )
    print(
        f"moves of the policy: before the requests {found['moves']}" if found["moves"] else "the policy moved nothing"
    )
    if found["problems"]:
        print("the fake found fault:", *found["problems"], sep="\n  ")


if __name__ == "__main__":
    main()
