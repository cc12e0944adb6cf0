"""What streaming an answer costs on the display side: bytes to the front end and CPU, beside the naive way.

A 100 KB answer comes in 5,000 deltas over 50 seconds of a fake clock. Bytes are those of the
JSON content, and of whole Jupyter messages as jupyter_client signs and packs them. Run:

    python benchmarks/streaming.py
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator

from jupyter_client.session import Session

from nbagent.core.effects import StepBegan, StepEnded, TextDelta, TurnBegan, TurnDone, TurnEvent
from nbagent.core.messages import text_block
from nbagent.notebook.live import LiveDisplay

CHARS, DELTAS, SECONDS = 100_000, 5_000, 50.0
LIMIT_MB = 5.0


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


def main() -> None:
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
    print(f"\nat most {LIMIT_MB:g} MB: {'yes' if max(results) <= LIMIT_MB else 'NO'}")


if __name__ == "__main__":
    main()
