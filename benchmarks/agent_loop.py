"""CPU per model call with a history behind it: our whole session beside the bare SDK loop and a framework.

    python benchmarks/agent_loop.py [CALLS ...] [--rounds N]

A conversation of CALLS tool calls (`read_chunk(i)` gives 4 KB) and a closing text, against
`fast_fake.py`. A client is a fresh process; it warms up with a conversation of two calls, so imports and
connecting are outside of the figure. Clients take turns, `--rounds` times; figures are medians of
`time.process_time` per model call. Needed: ours at most 0.5 of the bare SDK loop at 200 and 500 calls,
and from 200 to 500 no faster growth than that of the bytes sent. Ours runs with the policy `off`, so that all
send the same; with the default policy it sends less, and thinks about what.

The framework is pydantic-ai, from the interpreter that BENCHMARK_PEER_PYTHON names; left out if there is none.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

from measuring import PEER_PYTHON, fake, median, now_mb, peak_mb, run_client, table, verdict

GOAL = 0.5
MODEL = "claude-sonnet-5-5"  # of a window that holds 500 chunks
SYSTEM = "You read the chunks of a file, one after the other, and say when all are read. " * 26  # 2.1 KB
SCHEMA = {"type": "object", "properties": {"i": {"type": "integer"}}, "required": ["i"], "additionalProperties": False}
TOOL = {"name": "read_chunk", "description": "Return the chunk number i of the file.", "input_schema": SCHEMA}
PROMPT = "Read all chunks."
WARM_CALLS = 2
CLIENTS = ("sdk", "sdk stream", "nbagent", "nbagent without journal", "nbagent, default policy", "pydantic-ai")


def read_chunk(i: int) -> str:
    """Return 4 KB of text, another for each i."""
    return (f"chunk {i}: the values of row {i} are {i * 7}, {i * 11} and {i * 13}.\n" * 90)[:4096]


# ---------------------------------------------------------------- the clients, each in a process of its own


class SdkLoop:
    """The loop that the SDK's documentation shows."""

    def __init__(self, base_url: str, *, stream: bool) -> None:
        import anthropic

        self.client = anthropic.Anthropic(base_url=base_url)
        self.stream = stream

    def run(self, calls: int) -> None:
        messages: list[Any] = [{"role": "user", "content": PROMPT}]
        while True:
            reply = self.reply(messages)
            messages.append({"role": "assistant", "content": reply.content})
            if reply.stop_reason != "tool_use":
                return
            results = [
                {"type": "tool_result", "tool_use_id": block.id, "content": read_chunk(**block.input)}
                for block in reply.content
                if block.type == "tool_use"
            ]
            messages.append({"role": "user", "content": results})

    def reply(self, messages: list[Any]) -> Any:
        sent: dict[str, Any] = {"model": MODEL, "max_tokens": 1024, "system": SYSTEM, "tools": [TOOL]}
        if not self.stream:
            return self.client.messages.create(messages=messages, **sent)
        with self.client.messages.stream(messages=messages, **sent) as events:
            for _ in events:
                pass
            return events.get_final_message()


class Ours:
    """A session as a notebook has one, with one more tool.

    `journal` says whether it is written to disk; `policy` None is the default one, which moves things at some size.
    """

    def __init__(
        self, base_url: str, *, journal: bool = True, policy: str | None = "off", window_tokens: int = 1_000_000
    ) -> None:
        from nbagent.runtime.session import Session
        from nbagent.runtime.writer import NoLog
        from nbagent.store.settings import load_settings

        folder = Path(os.environ["BENCHMARK_SCRATCH"])
        options = {"the benchmark": {"model": MODEL, "base_url": base_url, "window_tokens": window_tokens}}
        settings = load_settings(folder, os.environ, options=options)
        self.session = Session.open(
            folder=folder, notebook=None, settings=settings, home=folder / "home", name="s", environ=os.environ
        )
        self.session.runner.tools = {**self.session.runner.tools, "read_chunk": our_tool()}
        if not journal:
            self.session.runner.writer.log = NoLog()
        self.loop = asyncio.new_event_loop()
        self.sink: Any = None
        self.policy, self.new = policy, True
        self.turns = 0

    def run(self, calls: int) -> None:
        from nbagent.core.entries import UsageReported
        from nbagent.runtime.matching import CellKey
        from nbagent.runtime.ports import TurnOptions, TurnPorts

        self.turns += 1
        cell = CellKey(cell_id=f"c{self.turns}", source_hash="h", order=self.turns)
        options = TurnOptions(max_steps=calls + 2, new=self.new, policy=self.policy)
        ports = TurnPorts() if self.sink is None else TurnPorts(sink=self.sink)
        done = self.loop.run_until_complete(self.session.send(PROMPT, cell, options, ports))
        notes = sum(1 for e in done.entries if isinstance(e.body, UsageReported) and e.body.purpose != "turn")
        # The fast fake answers a note's request with the next call, the full fake (`bill.py`) with a note.
        assert done.output.outcome == "completed", done.output
        assert calls + 1 in (done.output.steps, done.output.steps + notes, done.output.steps + notes - 1), done.output


def our_tool() -> Any:
    from nbagent.tools.tool import ToolOutput, ToolSpec

    class ReadChunk:
        spec = ToolSpec(name="read_chunk", description=str(TOOL["description"]), input_schema=SCHEMA, access="read")

        def summary(self, input: Any) -> str:
            return str(input["i"])

        def paths(self, input: Any) -> tuple[str, ...]:
            return ()

        async def run(self, input: Any, context: Any) -> ToolOutput:
            return ToolOutput(text=read_chunk(input["i"]))

    return ReadChunk()


class PydanticAi:
    """An agent as the documentation of pydantic-ai shows it."""

    def __init__(self, base_url: str) -> None:
        from anthropic import AsyncAnthropic
        from pydantic_ai import Agent
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider

        client = AsyncAnthropic(base_url=base_url)
        model = AnthropicModel(MODEL, provider=AnthropicProvider(anthropic_client=client))
        self.agent = Agent(model, instructions=SYSTEM, model_settings={"max_tokens": 1024})
        self.agent.tool_plain(read_chunk)

    def run(self, calls: int) -> None:
        from pydantic_ai.usage import UsageLimits

        self.agent.run_sync(PROMPT, usage_limits=UsageLimits(request_limit=None))


def client_of(name: str, base_url: str) -> Any:
    if name.startswith("nbagent"):
        policy = None if "default policy" in name else "off"
        return Ours(base_url, journal="without journal" not in name, policy=policy)
    return PydanticAi(base_url) if name == "pydantic-ai" else SdkLoop(base_url, stream=name == "sdk stream")


def seen(url: str) -> dict[str, int]:
    head, path = url.split("/loop/")
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"{head}/seen/loop/{path}") as answer:
        told: dict[str, int] = json.load(answer)
    return told


def measure(name: str, url: str, calls: int) -> dict[str, float]:
    """Run one conversation after a short one, and return its figures; called in a fresh process."""
    base_url = f"{url}/loop/{WARM_CALLS}-{calls}/{os.getpid()}"
    client = client_of(name, base_url)
    client.run(WARM_CALLS)
    gc.collect()
    start_mb, before = now_mb(), seen(f"{base_url}/v1/messages")
    wall, cpu = time.perf_counter(), time.process_time()
    client.run(calls)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    after = seen(f"{base_url}/v1/messages")
    made = after["requests"] - before["requests"]
    assert made in (calls + 1, calls + 2), (before, after)
    return {
        "cpu_ms": cpu * 1000 / made, "wall_ms": wall * 1000 / made, "start_mb": start_mb, "peak_mb": peak_mb(),
        "kb": (after["bytes"] - before["bytes"]) / 1000 / made,
    }  # fmt: skip


# ---------------------------------------------------------------- the comparison


def compare(url: str, calls: int, rounds: int, clients: tuple[str, ...] = CLIENTS) -> dict[str, dict[str, float]]:
    """Return client -> medians over `rounds`, in which the clients take turns."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in clients}
    for _ in range(rounds):
        for name in clients:
            if name == "pydantic-ai":
                if not PEER_PYTHON.exists():
                    continue
                found[name].append(run_client("agent_loop.py", "--client", name, url, calls, python=PEER_PYTHON))
            else:
                found[name].append(run_client("agent_loop.py", "--client", name, url, calls))
    return {n: {k: median([r[k] for r in rows]) for k in rows[0]} for n, rows in found.items() if rows}


def report(calls: int, figures: dict[str, dict[str, float]]) -> None:
    bare = figures["sdk"]["cpu_ms"]
    rows = [[f"{calls} tool calls", "CPU ms a call", "x SDK", "wall ms a call", "KB sent a call", "MB over the start"]]
    for name, row in figures.items():
        rows.append(
            [
                name, f"{row['cpu_ms']:.2f}", f"{row['cpu_ms'] / bare:.2f}", f"{row['wall_ms']:.2f}", f"{row['kb']:.0f}",
                f"{max(0.0, row['peak_mb'] - row['start_mb']):.1f}",
            ]
        )  # fmt: skip
    print(table(rows))
    ratio = figures["nbagent"]["cpu_ms"] / bare
    print(f"\nnbagent {ratio:.2f} of the bare SDK loop; needed at most {GOAL:g}: {verdict(ratio, GOAL)}\n")


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("calls", nargs="*", type=int, default=[50, 200, 500])
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--only", nargs="*", default=CLIENTS, choices=CLIENTS)
    given = options.parse_args()
    clients = tuple(c for c in CLIENTS if c in given.only)
    if "pydantic-ai" in clients and not PEER_PYTHON.exists():
        print(f"pydantic-ai is left out: there is no {PEER_PYTHON} (set BENCHMARK_PEER_PYTHON)\n")
    runs: dict[int, dict[str, dict[str, float]]] = {}
    with fake() as url:
        for calls in given.calls:
            runs[calls] = compare(url, calls, given.rounds, clients)
            report(calls, runs[calls])
    if 200 in runs and 500 in runs:
        ours = {n: runs[n]["nbagent"] for n in (200, 500)}
        cpu, sent = (ours[500][k] / ours[200][k] for k in ("cpu_ms", "kb"))
        print(f"from 200 to 500 calls: CPU a call x {cpu:.2f}, bytes a call x {sent:.2f}: {verdict(cpu, sent)}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--client"]:
        print(json.dumps(measure(sys.argv[2], sys.argv[3], int(sys.argv[4]))))
    else:
        main()
