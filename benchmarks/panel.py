"""What the JupyterLab panel costs, in a real browser.

    python benchmarks/panel.py [--rounds N] [--chars N] [--only streaming|opening]

* Streaming: a 100 KB answer with the panel open and closed, taking turns. Main-thread time of the page (Chromium's
  `TaskDuration`; needed: open at most 1.2 of closed), and bytes of the panel's messages beside those of the answer's
  own display (needed: at most 5 %).
* Opening: from the command to drawn rows of turns and skills, after a page load, with 10 and 10, and with 2,000 turns
  and 500 skills (needed: at most 2 times).

Needs a Chromium and the built panel (`make panel`). It takes some ten minutes.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measuring import median, table, verdict

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from nbagent.core.entries import AssistantMessage, Body, Entry, TurnEnd, TurnStart, UsageReported, UserMessage
from nbagent.store.journal import Journal
from tests.browser.desk import CHROMIUM, FLAGS, Notebook, Service, Window, lab
from tests.fakes.messages_api import reply

SECONDS = 20.0  # that the answer takes on the wire
DELTA_CHARS = 20
LOAD = "%load_ext nbagent"
_COUNT = """(path) => {
  const sizes = (window.sizes = {panel: 0, messages: 0, display: 0});
  books[path].sessionContext.iopubMessage.connect((_, msg) => {
    const size = JSON.stringify(msg.content).length;
    if (msg.header.msg_type === 'comm_msg') { sizes.panel += size; sizes.messages += 1; }
    if (/display_data$/.test(msg.header.msg_type)) sizes.display += size;
  });
}"""
_OPENED = """async () => {
  const rows = name => document.querySelectorAll(`#nbagent-panel [aria-label=${name}] > li`).length;
  const begun = performance.now();
  await jupyterapp.commands.execute('nbagent:open');
  const frame = () => new Promise(requestAnimationFrame);
  let heading;
  while (!(heading = document.getElementById('nbagent-skills-heading'))) await frame();
  heading.click();
  while (!rows('Turns') || !(rows('Skills') || document.querySelector('.nbagent-none'))) await frame();
  await frame();
  return [performance.now() - begun, rows('Turns'), rows('Skills')];
}"""


def prose(chars: int) -> str:
    line = "The mean of `price` rose **by {i} %**, see the table; the reason is that the sample changed between the two.\n\n"
    return "".join(line.replace("{i}", str(i)) for i in range(chars // 100 + 1))[:chars]


def streaming(window: Window, service: Service, rounds: int, chars: int) -> None:
    """Stream the answer with the panel open and closed, and print both."""
    cdp = window.page.context.new_cdp_session(window.page)
    cdp.send("Performance.enable")

    def busy_s() -> float:
        found = cdp.send("Performance.getMetrics")["metrics"]
        return float(next(m["value"] for m in found if m["name"] == "TaskDuration"))

    costs: dict[bool, list[float]] = {True: [], False: []}
    for number in range(rounds * 2):
        is_open = number % 2 == 0
        notebook = window.notebook(f"stream{number}/stream-{number}.ipynb", LOAD, "%%agent\nWrite.", "%%agent\nBegin.")
        window.command("nbagent:open")
        notebook.run(0, 2)
        if not is_open:
            window.command("application:toggle-right-area")
            window.panel.wait_for(state="hidden")
        service.replies.append(_answer(chars))
        before = busy_s()
        notebook.run(1)
        costs[is_open].append(busy_s() - before)
        notebook.close()
    share = median(costs[True]) / median(costs[False])
    sizes = _traffic(window, service, chars)
    part = sizes["panel"] / sizes["display"]
    print(table([
        ("a 100 KB answer" if chars == 100_000 else f"{chars:,} characters", "main thread", ""),
        ("panel closed", f"{median(costs[False]):.2f} s", "1.00"),
        ("panel open", f"{median(costs[True]):.2f} s", f"{share:.2f}"),
    ]))  # fmt: skip
    print(f"\nmain thread, open / closed: {share:.2f} (needed: at most 1.2): {verdict(share, 1.2)}")
    print(
        f"panel {sizes['panel'] / 1000:.1f} KB in {sizes['messages']} messages, display {sizes['display'] / 1e6:.2f} MB: "
        f"{100 * part:.2f} % (needed: at most 5 %): {verdict(part, 0.05)}"
    )


def _answer(chars: int) -> Any:
    return reply(prose(chars), delta_size_chars=DELTA_CHARS, delta_delay_s=SECONDS / (chars / DELTA_CHARS))


def _traffic(window: Window, service: Service, chars: int) -> dict[str, int]:
    notebook = window.notebook("traffic/traffic.ipynb", LOAD, "%%agent\nWrite.")
    window.command("nbagent:open")
    notebook.run(0)
    notebook.page.evaluate(_COUNT, notebook.path)
    service.replies.append(_answer(chars))
    notebook.run(1)
    notebook.page.wait_for_timeout(500)
    sizes: dict[str, int] = notebook.page.evaluate("() => window.sizes")
    notebook.close()
    return sizes


def opening(window: Window, rounds: int) -> None:
    """Open the panel after page loads, with little and with much to show, and print both."""
    sizes = {"10 turns, 10 skills": (10, 10), "2,000 turns, 500 skills": (2_000, 500)}
    books = {name: _furnished(window, *size) for name, size in sizes.items()}
    times: dict[str, list[float]] = {name: [] for name in sizes}
    rows: dict[str, str] = {}
    for _ in range(rounds):
        for name, path in books.items():
            window.load()
            notebook = Notebook(window, path)
            window.page.wait_for_selector(".nbagent-Status-button")
            took, turns, skills = window.page.evaluate(_OPENED)
            times[name].append(took)
            rows[name] = f"{turns} and {skills}"
            notebook.page.evaluate("(path) => { books[path].context.model.dirty = false; books[path].dispose() }", path)
    few, many = (median(times[name]) for name in sizes)
    print(table([
        ("opening the panel", "time", "rows drawn", ""),
        *((name, f"{median(times[name]):.0f} ms", rows[name], f"{median(times[name]) / few:.2f}") for name in sizes),
    ]))  # fmt: skip
    print(f"\nmuch / little: {many / few:.2f} (needed: at most 2): {verdict(many / few, 2)}")


def _furnished(window: Window, turns: int, skills: int) -> str:
    """Make a notebook with a conversation of so many turns and so many skills; its kernel runs, nbagent is loaded."""
    folder = f"much{turns}"
    for i in range(skills):
        skill = window.folder / folder / "skills" / f"skill-{i:03}" / "SKILL.md"
        skill.parent.mkdir(parents=True)
        skill.write_text(
            f"---\nname: skill-{i:03}\ndescription: Does the thing with number {i} when it is asked for.\n---\nText.\n",
            encoding="utf-8",
        )
    notebook = window.notebook(f"{folder}/{folder}.ipynb", LOAD, "%%agent\nBegin.", "%agent")
    notebook.run(0, 1)
    notebook.restart()
    (journal,) = (window.folder / folder / ".nbagent" / "sessions").glob("*/journal.jsonl")
    _lengthen(journal, turns - 1)
    notebook.run(0, 2)
    notebook.page.evaluate("async (path) => { await books[path].context.save() }", notebook.path)
    return notebook.path


def _lengthen(path: Path, turns: int) -> None:
    with Journal.open(path, lock=False) as journal:
        entries = list(journal.entries)
        parent, at = entries[-1].id, entries[-1].at
        start = next(e.body for e in entries if isinstance(e.body, TurnStart))
        for i in range(turns):
            for k, body in enumerate(_turn(start, i)):
                entry = Entry(f"m{i:05}{k}", parent, at + i, body)
                journal.append(entry)
                parent = entry.id


def _turn(start: TurnStart, i: int) -> tuple[Body, ...]:
    blocks = ({"type": "text", "text": f"Question {i} of a long conversation about the table."},)
    return (
        dataclasses.replace(start, turn=f"m{i:05}", cell_id=f"cell-{i}"),
        UserMessage(blocks=blocks),
        AssistantMessage(
            blocks=({"type": "text", "text": "An answer."},), stop_reason="end_turn", model=start.model, step=1
        ),
        UsageReported(
            step=1, model=start.model, cost_usd=0.001, usage={"input_tokens": 900 + 40 * i, "output_tokens": 20}
        ),
        TurnEnd(turn=f"m{i:05}", outcome="completed", steps=1, duration_s=1.0),
    )


def main() -> None:
    """Measure, and print what came out."""
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description="What the panel costs in a browser.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--chars", type=int, default=100_000)
    parser.add_argument("--only", choices=["streaming", "opening"])
    options = parser.parse_args()
    service = Service()
    env = {"ANTHROPIC_API_KEY": "x", "ANTHROPIC_BASE_URL": service.fake.base_url, "NBAGENT_MODE": "auto"}
    with tempfile.TemporaryDirectory(prefix="nbagent-panel-") as scratch, service.fake, sync_playwright() as play:
        folder = Path(scratch) / "work"
        folder.mkdir()
        with lab(folder, NBAGENT_OFFLINE="1", **env) as address:
            browser = play.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            window = Window(browser.new_page(viewport={"width": 1400, "height": 1000}), address, "bench", folder)
            parts: dict[str, Callable[[], None]] = {
                "streaming": lambda: streaming(window, service, options.rounds, options.chars),
                "opening": lambda: opening(window, options.rounds),
            }
            for name, part in parts.items():
                if options.only in (None, name):
                    print(f"### {name}\n")
                    part()
                    print(flush=True)
            browser.close()


if __name__ == "__main__":
    main()
