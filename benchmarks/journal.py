"""Time opening and folding a journal against bare `json.loads` over its lines.

    python benchmarks/journal.py [ENTRIES]

Prints fold / json.loads (needed: at most 0.25) and resume / json.loads (at most 2), where
resume is opening, making the tree and the view. Each number is the least CPU time of five runs.
"""

from __future__ import annotations

import gc
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from nbagent.core.entries import (
    AssistantMessage,
    Body,
    Entry,
    ToolResult,
    ToolStarted,
    TurnEnd,
    TurnStart,
    UsageReported,
    UserMessage,
)
from nbagent.core.tree import SessionTree
from nbagent.core.view import build_view
from nbagent.store.journal import Journal

WORDS = (
    "the",
    "frame",
    "column",
    "mean",
    "of",
    "each",
    "group",
    "plotted",
    "below",
    "and",
    "größe",
    "values",
    "missing",
)


def prose(rng: random.Random, chars: int) -> str:
    """Return words with line breaks, quotes and some non-ASCII, about `chars` long."""
    words = [rng.choice(WORDS) for _ in range(chars // 5)]
    return "\n".join(" ".join(words[i : i + 12]) for i in range(0, len(words), 12)) + ' "quoted"\t1.25'


def bodies(count: int) -> Iterator[Body]:
    """Yield `count` bodies of turns of four steps with three tool calls each, as a session has them."""
    rng = random.Random(7)
    made = 0
    turn = 0
    while made < count:
        turn += 1
        part: list[Body] = [
            TurnStart(
                turn=f"t{turn}",
                model="claude-sonnet-5-5",
                policy="nbagent",
                prefix="0123456789abcdef",
                cell_id=f"c{turn}",
            ),
            UserMessage(blocks=({"type": "text", "text": prose(rng, 400)},)),
        ]
        for step in range(1, 5):
            calls = [f"toolu_{turn}_{step}_{n}" for n in range(3 if step < 4 else 0)]
            blocks: list[dict[str, Any]] = [
                {"type": "thinking", "thinking": prose(rng, 1500), "signature": "QUJD" * 120},
                {"type": "text", "text": prose(rng, 1500)},
            ]
            blocks += [
                {"type": "tool_use", "id": c, "name": "python", "input": {"code": prose(rng, 600)}} for c in calls
            ]
            part.append(
                AssistantMessage(
                    blocks=tuple(blocks),
                    stop_reason="tool_use" if calls else "end_turn",
                    model="claude-sonnet-5-5",
                    step=step,
                )
            )
            part.append(
                UsageReported(
                    step=step, model="claude-sonnet-5-5", cost_usd=0.0123,
                    usage={"input_tokens": 12, "cache_read_input_tokens": 34567, "output_tokens": 890},
                )
            )  # fmt: skip
            for call in calls:
                part.append(ToolStarted(call_id=call, name="python"))
                part.append(
                    ToolResult(
                        call_id=call, name="python", content=({"type": "text", "text": prose(rng, rng.choice((300, 6000, 12000)))},),
                        duration_s=0.25, full_chars=6000, artifact="0123456789abcdef",
                    )
                )  # fmt: skip
        part.append(TurnEnd(turn=f"t{turn}", outcome="completed", steps=4, duration_s=12.5))
        yield from part[: count - made]
        made += len(part)


def best(call: Callable[[], object], runs: int = 5) -> float:
    """Return the shortest CPU time of `runs` calls, in seconds."""
    times = []
    for _ in range(runs):
        gc.collect()
        start = time.process_time()
        kept = call()
        times.append(time.process_time() - start)
        del kept
    return min(times)


def main(count: int) -> None:
    """Make a journal of `count` entries and print the ratios."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.jsonl"
        with Journal.open(path, lock=False) as journal:
            parent: str | None = None
            start = time.process_time()
            for i, body in enumerate(bodies(count)):
                journal.append(Entry(f"e{i:07d}", parent, 1.7e9 + i, body))
                parent = f"e{i:07d}"
            append_s = time.process_time() - start
            entries = list(journal.entries)
        lines = path.read_text("utf-8").splitlines()

        def opened() -> Journal:
            with Journal.open(path, lock=False) as journal:
                return journal

        def resume() -> object:
            journal = opened()
            tree = SessionTree(journal.entries)
            return journal, build_view(tree.path())

        loads_s = best(lambda: [json.loads(line) for line in lines])
        open_s = best(opened)
        fold_s = best(lambda: build_view(entries))
        resume_s = best(resume)
    size = sum(map(len, lines))
    print(f"{count} entries, {size / count / 1000:.1f} KB on average; made and appended in {append_s:.2f} s")
    print(f"json.loads {loads_s * 1000:7.1f} ms   1.00")
    print(f"open       {open_s * 1000:7.1f} ms   {open_s / loads_s:.2f}")
    print(f"fold       {fold_s * 1000:7.1f} ms   {fold_s / loads_s:.2f}  (needed: at most 0.25)")
    print(f"resume     {resume_s * 1000:7.1f} ms   {resume_s / loads_s:.2f}  (needed: at most 2)")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
