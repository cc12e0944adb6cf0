"""What streaming an answer costs: bytes to the front end, and CPU beside the SDK's own streaming helper.

    python benchmarks/streaming.py [--rounds N]

A 100 KB answer comes in 5,000 deltas over 50 seconds of a fake clock. Two tables:

* the display alone: bytes of the JSON content, and of whole Jupyter messages as jupyter_client signs and
  packs them, beside the naive way (needed: at most 5 MB);
* the whole way, wire to display: session, driver, journal and LiveDisplay, beside `messages.stream()` of the
  SDK, read to its end and shown nowhere (needed: at most 0.5 of its CPU). Fresh processes, taking turns.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from jupyter_client.session import Session
from measuring import fake, median, run_client, table, verdict

from nbagent.core.effects import StepBegan, StepEnded, TextDelta, TurnBegan, TurnDone, TurnEvent
from nbagent.core.messages import text_block
from nbagent.notebook.live import LiveDisplay

CHARS, DELTAS, SECONDS = 100_000, 5_000, 50.0
LIMIT_MB = 5.0
GOAL = 0.5
CLIENTS = ("messages.stream", "create(stream=True)", "nbagent, shown nowhere", "nbagent")


class Wire:
    """Counts what goes to the front end, and holds what it is."""

    def __init__(self) -> None:
        self.session = Session(key=b"benchmark")
        self.sent: list[tuple[str, dict[str, str]]] = []
        self.displays = 0

    def publish(self, bundle: dict[str, str]) -> str:
        self.displays += 1
        self.sent.append(("display_data", bundle))
        return f"display-{self.displays}"

    def update(self, handle: str, bundle: dict[str, str]) -> None:
        self.sent.append(("update_display_data", bundle))

    def content_mb(self) -> float:
        return sum(len(json.dumps(b, ensure_ascii=False).encode()) for _, b in self.sent) / 1e6

    def wire_mb(self) -> float:
        total = 0
        for kind, bundle in self.sent:
            content = {"data": bundle, "metadata": {}, "transient": {"display_id": "0123456789abcdef"}}
            total += sum(map(len, self.session.serialize(self.session.msg(kind, content=content))))
        return total / 1e6


def prose(chars: int) -> str:
    block = (
        "## Part {i}\n\nThe mean of `price` rose **by {i} %**, see [the table](#t{i}); the reason is that the "
        "sample changed between the two periods, as the outline says.\n\n- first point of {i}\n- second point\n\n"
        "```python\ndf.groupby('city').price.mean().sort_values()\n```\n\n"
    )
    return "".join(block.replace("{i}", str(i)) for i in range(chars // 250))[:chars]


def events(text: str, deltas: int) -> Iterator[TurnEvent]:
    yield TurnBegan(turn="t", number=1, model="m", window_tokens=200_000)
    yield StepBegan(step=1, context_tokens=12_345, cost_usd=0.0)
    size = len(text) // deltas
    for start in range(0, len(text), size):
        yield TextDelta(index=0, text=text[start : start + size])
    yield StepEnded(step=1, blocks=(text_block(text),), cut=None, context_tokens=40_000, cost_usd=0.4)
    yield TurnDone(
        outcome="completed",
        message="",
        steps=1,
        context_tokens=40_000,
        window_tokens=200_000,
        cost_usd=0.4,
        duration_s=SECONDS,
    )


def run_live(text: str, seconds: float, *, interactive: bool = True) -> tuple[Wire, float]:
    wire, now = Wire(), [0.0]
    show = LiveDisplay(wire.publish, wire.update, lambda: now[0], interactive=interactive)
    began = time.process_time()
    for event in events(text, DELTAS):
        now[0] += seconds / DELTAS
        show(event)
    show.close()
    return wire, time.process_time() - began


def run_naive(text: str, seconds: float) -> tuple[Wire, float]:
    wire, whole = Wire(), ""
    began = time.process_time()
    for event in events(text, DELTAS):
        if isinstance(event, TextDelta):
            whole += event.text
            wire.update("display-1", {"text/markdown": whole, "text/plain": "<Markdown>"})
    return wire, time.process_time() - began


def report(name: str, run: Callable[[], tuple[Wire, float]]) -> float:
    wire, cpu_s = run()
    content = wire.content_mb()
    print(f"{name:42} {len(wire.sent):6} {wire.displays:9} {content:9.2f} {wire.wire_mb():9.2f} {cpu_s * 1e3:9.0f}")
    return content


def display_table() -> None:
    fence = "```\n" + "value = compute(1)\n" * (CHARS // 19)
    run_live(prose(5_000), SECONDS)  # imports are not what is measured
    print(f"{CHARS:,} characters in {DELTAS:,} deltas; needed: at most {LIMIT_MB:g} MB\n")
    print(f"{'':42} {'msgs':>6} {'displays':>9} {'MB json':>9} {'MB wire':>9} {'CPU ms':>9}")
    report("whole text at every delta", lambda: run_naive(prose(CHARS), SECONDS))
    results = [
        report("LiveDisplay, 50 s", lambda: run_live(prose(CHARS), SECONDS)),
        report("LiveDisplay, 250 s", lambda: run_live(prose(CHARS), 250.0)),
        report("LiveDisplay, one unbroken code block, 50 s", lambda: run_live(fence, SECONDS)),
        report("one display at the end (nobody watches)", lambda: run_live(prose(CHARS), SECONDS, interactive=False)),
    ]
    print(f"\nat most {LIMIT_MB:g} MB: {verdict(max(results), LIMIT_MB)}")


# ---------------------------------------------------------------- the whole way, a process a client


class Shown:
    """A live display on a fake clock in which each delta comes `SECONDS / DELTAS` after the last."""

    def __init__(self) -> None:
        self.wire, self.now = Wire(), 0.0
        self.due: list[tuple[float, Callable[[], None]]] = []
        self.show = LiveDisplay(
            self.wire.publish, self.wire.update, lambda: self.now, interactive=True, later=self.later
        )  # fmt: skip

    def later(self, seconds: float, fn: Callable[[], None]) -> None:
        """What a loop's `call_later` is in a notebook; the display has one open at a time."""
        self.due.append((self.now + seconds, fn))

    def __call__(self, event: TurnEvent) -> None:
        if isinstance(event, TextDelta):
            self.now += SECONDS / DELTAS
            if self.due and self.due[0][0] <= self.now:
                self.due.pop(0)[1]()
        self.show(event)


def sdk_reader(base_url: str, *, helper: bool) -> Callable[[], int]:
    import anthropic

    client = anthropic.Anthropic(base_url=base_url)
    sent: dict[str, Any] = {
        "model": "claude-sonnet-4-5", "max_tokens": 32_000, "messages": [{"role": "user", "content": "Write."}]
    }  # fmt: skip

    def by_helper() -> int:
        with client.messages.stream(**sent) as stream:
            return sum(map(len, stream.text_stream))

    def by_events() -> int:
        size = 0
        for event in client.messages.create(stream=True, **sent):
            if event.type == "content_block_delta" and event.delta.type == "text_delta":
                size += len(event.delta.text)
        return size

    return by_helper if helper else by_events


def our_reader(base_url: str, *, shown: bool) -> Callable[[], int]:
    from agent_loop import Ours

    ours = Ours(base_url)

    def read() -> int:
        ours.sink = Shown() if shown else None
        ours.run(0)
        [reply] = [e.body for e in ours.session.tree.path() if e.kind == "assistant_message"]
        return sum(len(b["text"]) for b in reply.blocks)

    return read


def measure(name: str, url: str, chars: int, deltas: int) -> dict[str, float]:
    """Read a short answer, then the long one, and return its figures; called in a fresh process."""
    base_url = f"{url}/answer/1000-{chars}/50-{deltas}/{os.getpid()}"
    ours = name.startswith("nbagent")
    read = our_reader(base_url, shown=name == "nbagent") if ours else sdk_reader(base_url, helper="." in name)
    read()
    gc.collect()
    began = time.process_time()
    size = read()
    cpu_s = time.process_time() - began
    assert size == chars, (size, chars)
    return {"cpu_ms": cpu_s * 1000}


def whole_way(url: str, rounds: int, chars: int = CHARS, deltas: int = DELTAS) -> dict[str, float]:
    """Return client -> median CPU in ms of one answer."""
    found: dict[str, list[float]] = {name: [] for name in CLIENTS}
    for _ in range(rounds):
        for name in CLIENTS:
            found[name].append(run_client("streaming.py", "--client", name, url, chars, deltas)["cpu_ms"])
    return {name: median(values) for name, values in found.items()}


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--rounds", type=int, default=5)
    given = options.parse_args()
    display_table()
    with fake() as url:
        figures = whole_way(url, given.rounds)
    helper = figures["messages.stream"]
    rows = [[f"{CHARS:,} characters in {DELTAS:,} deltas", "CPU ms", "us a delta", "x messages.stream"]]
    rows += [[n, f"{ms:.0f}", f"{ms * 1000 / DELTAS:.1f}", f"{ms / helper:.2f}"] for n, ms in figures.items()]
    print(f"\n{table(rows)}")
    ratio = figures["nbagent"] / helper
    print(f"\nnbagent {ratio:.2f} of messages.stream(); needed at most {GOAL:g}: {verdict(ratio, GOAL)}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--client"]:
        print(json.dumps(measure(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))))
    else:
        main()
