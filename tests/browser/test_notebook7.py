"""Notebook 7: the widgets below cells, and what JupyterLab's extension does there (no status bar; side bars there are)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import WINDOWS, watch
from tests.browser.desk import LONG, Notebook, NotebookPage, Service, endless, until
from tests.fakes.messages_api import reply

CELLS = (
    "%load_ext nbagent", "%%agent\nFirst question", "%%agent\nSecond question", "%context", "%memory", "%skills",
    "%%agent\nLast question",
)  # fmt: skip


@pytest.fixture
def page(browser: Any, address: tuple[str, Path], service: Service, request: pytest.FixtureRequest) -> Iterator[NotebookPage]:
    """A window with Notebook 7."""
    pytest.importorskip("notebook")
    service.replies.clear()
    page = browser.new_page(viewport={"width": 1400, "height": 1000})
    watch(request.session, "notebook7", page)
    yield NotebookPage(page, *address)
    page.evaluate("async () => { for (const w of Object.values(window.books ?? {})) await w.sessionContext.shutdown() }")
    del request.session.stash[WINDOWS]["notebook7"]
    page.close()


@pytest.fixture
def desk(page: NotebookPage, place: str) -> Notebook:
    """A notebook with nbagent loaded."""
    notebook = page.notebook(f"{place}/notes.ipynb", *CELLS)
    notebook.run(0)
    return notebook


def used(meter: Any) -> int:
    return int(meter.get_attribute("aria-valuenow") or 0)


def test_the_widget_of_context_is_live_compacts_with_an_edited_note_and_takes_it_back(desk: Notebook, service: Service) -> None:
    service.replies.extend([reply(LONG * 8), reply(LONG * 8)])
    desk.run(1, 2, 3)
    cell = desk.cell(3)
    meter = cell.get_by_role("meter", name="Context used")
    until(lambda: used(meter) > 0)
    before = used(meter)
    service.replies.append("## Goal\nFrom the model.")
    cell.get_by_role("button", name="Compact…").click()
    note = cell.get_by_role("textbox", name="Hand-off note")
    note.wait_for()
    note.fill("## Goal\nAs the person wrote it.")
    cell.get_by_role("button", name="Apply").click()
    cell.get_by_text("The conversation was compacted").wait_for()
    until(lambda: used(meter) < before)
    cell.get_by_role("button", name="Undo").click()
    cell.get_by_text("The compaction is taken back").wait_for()
    until(lambda: used(meter) >= before - 100)
    service.replies.append(endless())
    desk.start(6)
    seen = {used(meter)}
    until(lambda: seen.add(used(meter)) or len(seen) >= 3)
    desk.page.evaluate("() => { void jupyterapp.commands.execute('notebook:interrupt-kernel'); }")
    desk.wait()
    assert "Stopped" in desk.text(6)


def test_the_widgets_of_memory_and_skills_search_and_switch(desk: Notebook, page: NotebookPage) -> None:
    root = (page.folder / desk.path).parent
    (root / ".nbagent/memory").mkdir(parents=True, exist_ok=True)
    (root / ".nbagent/memory/ports.md").write_text("# Ports\n\nThe database listens on port 5433.\n", encoding="utf-8")
    skill = page.folder.parent / "home/nbagent/skills/weigh-stones/SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: weigh-stones\ndescription: Weighs stones.\n---\nWeigh.\n", encoding="utf-8")
    desk.run(4, 5)
    memory, skills = desk.cell(4), desk.cell(5)
    box = memory.get_by_role("searchbox", name="Search memory")
    box.fill("which port does the database use")
    box.press("Enter")
    hit = memory.get_by_role("list", name="Results").get_by_role("listitem").first
    hit.get_by_text("port 5433").first.wait_for()
    hit.get_by_role("button", name=re.compile("ports.md:")).click()
    hit.locator("pre:not([hidden])").get_by_text("port 5433").wait_for()  # the server hides the folder: shown here
    skills.get_by_role("searchbox", name="Search skills").fill("stones")
    switch = skills.get_by_role("switch", name="Let the model use weigh-stones")
    switch.click()
    until(lambda: switch.get_attribute("aria-checked") == "false")


def test_the_extension_loads_without_an_error_and_its_panel_works(page: NotebookPage, place: str, service: Service) -> None:
    told: list[str] = []
    page.page.on("console", lambda message: told.append(message.text) if message.type == "error" else None)
    page.page.on("pageerror", lambda error: told.append(str(error)))
    notebook = page.notebook(f"{place}/notes.ipynb", *CELLS)
    plugins = page.page.evaluate("() => [jupyterapp.hasPlugin('nbagent:panel'), jupyterapp.isPluginActivated('nbagent:panel')]")
    assert plugins == [True, True]
    page.command("nbagent:open")
    notebook.run(0, 1)
    turns = page.part("Turns").get_by_role("list", name="Turns").get_by_role("listitem")
    turns.filter(has_text="First question").wait_for()
    notebook.cell(1).locator(".nbagent-CellMark").filter(has_text="Turn 1").wait_for()
    service.replies.append(endless())
    notebook.start(2)
    page.panel.get_by_role("button", name="Stop", exact=True).click()
    notebook.wait()
    assert "Stopped" in notebook.text(2)
    turns.filter(has_text="Second question").wait_for()
    assert page.page.locator("#jp-main-statusbar, .jp-StatusBar-Widget").count() == 0
    assert [line for line in told if "nbagent" in line] == []
