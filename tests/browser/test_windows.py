"""The panel follows: kernels that restart or die, pages that reload, several notebooks, several windows."""

from __future__ import annotations

import os
import signal
from typing import Any

from tests.browser.desk import Notebook, Service, Window, endless, until
from tests.fakes.messages_api import reply

NOT_LOADED = "nbagent is not loaded in this notebook"
LOAD = "%load_ext nbagent"


def turns(window: Window) -> Any:
    """The rows of turns."""
    return window.part("Turns").get_by_role("list", name="Turns").get_by_role("listitem")


def test_a_notebook_without_nbagent_is_told_what_to_do(window: Window, place: str) -> None:
    notebook = window.notebook(f"{place}/plain.ipynb", "1 + 1", LOAD)
    window.command("nbagent:open")
    window.panel.get_by_text(NOT_LOADED).wait_for()
    notebook.run(0)
    window.panel.get_by_text(NOT_LOADED).wait_for()
    notebook.run(1)
    window.part("Context").get_by_role("meter").wait_for()


def test_after_a_restart_the_conversation_is_there_again(notebook: Notebook, window: Window) -> None:
    notebook.run(1)
    turns(window).filter(has_text="First question").wait_for()
    notebook.restart()
    window.panel.get_by_text(NOT_LOADED).wait_for()
    notebook.run(0)
    turns(window).filter(has_text="First question").wait_for()
    notebook.run(2)
    turns(window).filter(has_text="Second question").wait_for()


def test_a_kernel_that_dies_in_mid_turn_leaves_a_line_and_loses_no_turn(
    window: Window, place: str, service: Service
) -> None:
    cells = (LOAD, "%%agent\nFirst question", "import os; print(os.getpid())", "%%agent\nLast words")
    notebook = window.notebook(f"{place}/notes.ipynb", *cells)
    window.command("nbagent:open")
    notebook.run(0, 1)
    turns(window).filter(has_text="First question").wait_for()
    pid = notebook.pid(2)
    service.replies.append(endless())
    notebook.start(3)
    window.panel.get_by_role("button", name="Stop", exact=True).wait_for()
    os.kill(pid, signal.SIGKILL)
    window.panel.get_by_text("The kernel ended while turn 2 ran: it was broken off").wait_for()
    window.panel.get_by_text("%load_ext nbagent, then %agent resume").wait_for()
    until(lambda: status(notebook) == "idle")  # the server has started another
    told = window.page.get_by_role("dialog").filter(has_text="It will restart automatically")
    told.get_by_role("button", name="Ok").click()  # else it lies over what comes next
    notebook.run(0)
    turns(window).filter(has_text="First question").wait_for()
    turns(window).filter(has_text="Last words").wait_for()


def status(notebook: Notebook) -> str:
    script = "(path) => books[path].sessionContext.session?.kernel?.status ?? ''"
    return str(notebook.page.evaluate(script, notebook.path))


def test_two_notebooks_each_have_their_own_panel(notebook: Notebook, window: Window, place: str) -> None:
    notebook.run(1)
    other = window.notebook(f"{place}/other.ipynb", LOAD, "%%agent\nAnother question")
    window.panel.get_by_text(NOT_LOADED).wait_for()
    other.run(0, 1)
    turns(window).filter(has_text="Another question").wait_for()
    assert turns(window).filter(has_text="First question").count() == 0
    notebook.focus()
    window.panel.get_by_role("heading", name="notes.ipynb").wait_for()
    turns(window).filter(has_text="First question").wait_for()
    assert turns(window).filter(has_text="Another question").count() == 0


def test_a_turn_of_a_notebook_in_the_background_is_there_when_one_comes_back(
    notebook: Notebook, window: Window, place: str, service: Service
) -> None:
    service.replies.append(reply("word " * 200, delta_size_chars=50, delta_delay_s=0.1))
    notebook.start(1)
    window.panel.get_by_role("button", name="Stop", exact=True).wait_for()
    other = window.notebook(f"{place}/other.ipynb", LOAD)
    other.run(0)
    notebook.wait()
    notebook.focus()
    turns(window).filter(has_text="First question").wait_for()
    window.panel.get_by_role("button", name="Stop", exact=True).wait_for(state="detached")


def test_a_page_that_is_loaded_again_takes_the_conversation_up(
    another: Window, place: str, service: Service
) -> None:
    notebook = another.notebook(f"{place}/notes.ipynb", LOAD, "%%agent\nFirst question", "%%agent\nSecond question")
    another.command("nbagent:open")
    notebook.run(0, 1)
    turns(another).filter(has_text="First question").wait_for()
    notebook.page.evaluate("async (path) => { await books[path].context.save() }", notebook.path)
    another.load()
    notebook = another.notebook(notebook.path)
    another.command("nbagent:open")
    turns(another).filter(has_text="First question").wait_for()
    notebook.cell(1).locator(".nbagent-CellMark").filter(has_text="Turn 1").wait_for()
    notebook.run(2)
    turns(another).filter(has_text="Second question").wait_for()
    notebook.close()


def test_a_page_that_is_loaded_again_in_mid_turn_can_stop_it(another: Window, place: str, service: Service) -> None:
    notebook = another.notebook(f"{place}/notes.ipynb", LOAD, "%%agent\nFirst question")
    another.command("nbagent:open")
    notebook.run(0)
    notebook.page.evaluate("async (path) => { await books[path].context.save() }", notebook.path)
    service.replies.append(endless())
    notebook.start(1)
    another.panel.get_by_role("button", name="Stop", exact=True).wait_for()
    another.load()
    page = another.page
    page.evaluate("(path) => { void jupyterapp.commands.execute('docmanager:open', {path}) }", notebook.path)
    another.command("nbagent:open")
    # JupyterLab sends a kernel nothing before its first question was answered, and that waits for the cell.
    another.panel.get_by_text("it answers when the cell ends").wait_for()
    another.panel.get_by_role("button", name="Stop the running cell").click()
    turns(another).filter(has_text="First question").get_by_text("stopped").wait_for()
    notebook = another.notebook(notebook.path)
    notebook.close()


def test_two_windows_on_one_notebook_show_the_same(notebook: Notebook, window: Window, another: Window) -> None:
    notebook.run(1)
    notebook.page.evaluate("async (path) => { await books[path].context.save() }", notebook.path)
    twin = another.notebook(notebook.path)
    another.command("nbagent:open")
    turns(another).filter(has_text="First question").wait_for()
    notebook.run(2)
    for each in (window, another):
        turns(each).filter(has_text="Second question").wait_for()
    row = turns(another).filter(has_text="First question")
    row.get_by_role("button", name="Go back to turn 1: First question").click()
    for each in (window, another):
        turns(each).filter(has_text="First question").get_by_text("here", exact=True).wait_for()
    assert another.panel.get_by_text("The conversation is at the end of turn").count() == 1
    assert window.panel.get_by_text("The conversation is at the end of turn").count() == 0
    another.page.evaluate("(path) => { books[path].context.model.dirty = false; books[path].dispose() }", twin.path)
    notebook.run(3)
    turns(window).filter(has_text="Third question").wait_for()


def test_unloading_nbagent_closes_the_panel_of_the_notebook(window: Window, place: str) -> None:
    notebook = window.notebook(f"{place}/notes.ipynb", LOAD, "%unload_ext nbagent")
    window.command("nbagent:open")
    notebook.run(0)
    window.part("Context").get_by_role("meter").wait_for()
    notebook.run(1)
    window.panel.get_by_text(NOT_LOADED).wait_for()
    notebook.run(0)
    window.part("Context").get_by_role("meter").wait_for()


def test_a_renamed_notebook_keeps_its_conversation(notebook: Notebook, window: Window, place: str) -> None:
    notebook.run(1)
    turns(window).filter(has_text="First question").wait_for()
    notebook.page.evaluate(
        """async ([from, to]) => {
          await jupyterapp.serviceManager.contents.rename(from, to);
          books[to] = books[from]; delete books[from];
        }""",
        [notebook.path, f"{place}/renamed.ipynb"],
    )
    notebook.path = f"{place}/renamed.ipynb"
    window.panel.get_by_role("heading", name="renamed.ipynb").wait_for()
    notebook.run(2)
    turns(window).filter(has_text="Second question").wait_for()
    assert turns(window).count() == 2
