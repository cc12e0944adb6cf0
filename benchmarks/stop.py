"""How long Stop takes, from the interrupt to the kernel's reply, beside the same interrupt of a cell without an agent.

    python benchmarks/stop.py [--rounds N]

A real kernel, and the fake of the Messages API. Stopped are: an answer that streams, a wait for the provider's first
byte, agent code that sleeps, a shell command. The yardstick is a plain cell that sleeps. Needed: at most half a second.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the fake and the kernel of the tests

from measuring import median, table, verdict

from tests.fakes.messages_api import FakeMessagesAPI
from tests.fakes.replies import Reply, call, reply, stall_before_headers
from tests.notebook.agent_kernel import AgentKernel, agent, running

GOAL_S = 0.5
SLEEPS = "print('GO', flush=True)\nimport time; time.sleep(60)"
COMMAND = "echo begun > begun.txt; sleep 60"


def phases(folder: Path) -> dict[str, tuple[Reply | None, Callable[[FakeMessagesAPI], bool] | None]]:
    """Return what is stopped: the model's reply (None: a plain cell), and what says that it runs (None: GO is shown)."""
    return {
        "a plain cell that sleeps": (None, None),
        "an answer that streams": (reply("word " * 4000, delta_delay_s=0.02), lambda fake: bool(fake.requests)),
        "a wait for the first byte": (
            reply("late", fault=stall_before_headers(60)), lambda fake: bool(fake.requests)
        ),
        "agent code that sleeps": (reply(call("python", {"code": SLEEPS})), None),
        "a shell command": (
            reply(call("shell", {"command": COMMAND})), lambda fake: (folder / "begun.txt").exists()
        ),
    }  # fmt: skip


def stopped_s(kernel: AgentKernel, folder: Path, phase: str) -> float:
    """Return the seconds from the interrupt to the reply."""
    answer, runs = phases(folder)[phase]
    (folder / "begun.txt").unlink(missing_ok=True)
    pressed: list[float] = []

    def press() -> None:
        pressed.append(time.monotonic())
        kernel.stop()

    with FakeMessagesAPI([answer or reply("")]) as fake:
        kernel.begin(folder, fake, NBAGENT_TOOLS__ALLOW="python,shell")
        cell = kernel.send(SLEEPS if answer is None else agent("go"))
        if runs is None:
            kernel.finish(cell, at=[("GO", press)])
        else:
            watch = threading.Thread(target=_press_when, args=(lambda: runs(fake), press))
            watch.start()
            kernel.finish(cell)
            watch.join()
        ended = time.monotonic()
    time.sleep(0.3)  # the kernel drops what comes within 0.1 s of an error
    return ended - pressed[0]


def _press_when(holds: Callable[[], bool], press: Callable[[], None]) -> None:
    while not holds():
        time.sleep(0.01)
    time.sleep(0.5)  # into the middle of it
    press()


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--rounds", type=int, default=5)
    rounds = options.parse_args().rounds
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        with running(folder) as kernel:
            found = {phase: [stopped_s(kernel, folder, phase) for _ in range(rounds)] for phase in phases(folder)}
    plain, *_ = (median(times) for times in found.values())
    rows = [["stopped", "median, ms", "longest, ms", "median beside a plain cell"]]
    rows += [
        [phase, f"{1000 * median(times):.0f}", f"{1000 * max(times):.0f}", f"{median(times) / plain:.1f}"]
        for phase, times in found.items()
    ]
    print(table(rows))
    print(f"\nneeded at most {GOAL_S:g} s: {verdict(max(median(times) for times in found.values()), GOAL_S)}")


if __name__ == "__main__":
    main()
