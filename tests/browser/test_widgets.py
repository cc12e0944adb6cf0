"""The widgets below cells in JupyterLab: alive beside a running cell, and gone without taking the report with them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.browser.desk import LONG, Notebook, Service, Window, until
from tests.fakes.messages_api import Pace, reply

CELLS = ("%load_ext nbagent", "%%agent\nFirst question", "%%agent\nSecond question", "%context", "%memory")


@pytest.fixture
def desk(window: Window, place: str) -> Notebook:
    """A notebook with nbagent loaded."""
    notebook = window.notebook(f"{place}/notes.ipynb", *CELLS)
    notebook.run(0)
    return notebook


def gauge(notebook: Notebook) -> Any:
    return notebook.cell(3).get_by_role("meter", name="Context used")


def used(notebook: Notebook) -> int:
    return int(gauge(notebook).get_attribute("aria-valuenow") or 0)


def test_the_gauge_below_the_cell_moves_while_a_later_cell_streams(desk: Notebook, service: Service) -> None:
    desk.run(3)
    gauge(desk).wait_for()
    pace = Pace(1)
    service.replies.append(reply(LONG * 10, delta_size_chars=4_000, pace=pace))
    desk.start(1)
    for _ in range(3):
        before = used(desk)
        pace.more()
        until(lambda before=before: used(desk) > before)
    desk.page.evaluate("() => { void jupyterapp.commands.execute('notebook:interrupt-kernel'); }")
    desk.wait()
    assert "Stopped" in desk.text(1)


def report_of(notebook: Notebook) -> str:
    """The text of the stored report, which needs no widget."""
    outputs = notebook.page.evaluate("(path) => books[path].context.model.toJSON().cells[3].outputs", notebook.path)
    (report,) = [o for o in outputs if "nbagent-report" in "".join(o["data"].get("text/html", ""))]
    assert not any("widget" in kind for kind in report["data"])
    return "".join(report["data"]["text/plain"])


def test_compact_with_an_edited_note_and_undo(desk: Notebook, service: Service) -> None:
    service.replies.extend([reply(LONG * 8), reply(LONG * 8)])
    desk.run(1, 2, 3)
    cell = desk.cell(3)
    until(lambda: used(desk) > 0)
    before = used(desk)
    report = report_of(desk)
    assert f"{before:,} of" in report
    service.replies.append("## Goal\nFrom the model.")
    cell.get_by_role("button", name="Compact…").click()
    note = cell.get_by_role("textbox", name="Hand-off note")
    note.wait_for()
    note.fill("## Goal\nAs the person wrote it.")
    cell.get_by_role("button", name="Apply").click()
    cell.get_by_text("The conversation was compacted").wait_for()
    until(lambda: used(desk) < before)
    until(lambda: report_of(desk) != report and f"{used(desk):,} of" in report_of(desk))  # the report follows
    compacted = report_of(desk)
    cell.get_by_role("button", name="Undo").click()
    cell.get_by_text("The compaction is taken back").wait_for()
    until(lambda: used(desk) >= before - 100)
    until(lambda: report_of(desk) != compacted and f"{used(desk):,} of" in report_of(desk))
    drawn = cell.locator(".nbagent-report")
    until(lambda: f"{used(desk):,} of" in drawn.inner_text())


def test_the_report_outlives_the_kernel(desk: Notebook, service: Service) -> None:
    desk.run(1, 3)
    gauge(desk).wait_for()
    desk.restart()
    desk.cell(3).get_by_text(re.compile(r"level \d+ of 10")).first.wait_for()
    assert "level" in report_of(desk)


def test_a_search_in_memory_opens_the_file_or_shows_its_lines(desk: Notebook, service: Service, window: Window) -> None:
    folder = (window.folder / desk.path).parent / ".nbagent" / "memory"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ports.md").write_text("# Ports\n\nThe database listens on port 5433.\n", encoding="utf-8")
    desk.run(4)
    cell = desk.cell(4)
    box = cell.get_by_role("searchbox", name="Search memory")
    box.wait_for()
    box.fill("which port does the database use")
    box.press("Enter")
    cell.get_by_text("port 5433").first.wait_for()
    place = cell.get_by_role("button", name=re.compile("ports.md:"))
    cells = "(path) => books[path].content.widgets.length"
    before = desk.page.evaluate(cells, desk.path)
    place.focus()
    for _ in range(2):
        desk.page.keyboard.press("d")  # JupyterLab's shortcut to delete a cell
    assert desk.page.evaluate(cells, desk.path) == before
    place.click()
    until(lambda: cell.locator("pre:not([hidden])").count() or desk.page.get_by_text("ports.md").count() > 1)
