"""The panel follows: kernels that restart or die, pages that reload, several notebooks, several windows."""

from __future__ import annotations

import json
import os
import re
import signal
from typing import Any

from tests.browser.desk import Notebook, Service, Window, endless, until
from tests.fakes.messages_api import Pace, call, reply

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
    notebook.page.evaluate(_RESTART_ELSEWHERE, notebook.path)
    window.panel.get_by_text(NOT_LOADED).wait_for()
    notebook.run(0)
    turns(window).filter(has_text="Second question").wait_for()


# As another window does: this one hears only that the kernel starts.
_RESTART_ELSEWHERE = """async (path) => {
  const token = document.cookie.replace(/.*_xsrf=([^;]*).*/, '$1');
  const kernel = books[path].sessionContext.session.kernel.id;
  await fetch(`/api/kernels/${kernel}/restart`, { method: 'POST', headers: { 'X-XSRFToken': token } }); }"""


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
    pace = Pace(5)
    service.replies.append(reply("word " * 200, delta_size_chars=50, pace=pace))
    notebook.start(1)
    window.panel.get_by_role("button", name="Stop", exact=True).wait_for()
    other = window.notebook(f"{place}/other.ipynb", LOAD)
    other.run(0)
    pace.finish()
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


def load_again(notebook: Notebook, window: Window) -> None:
    """Load the page again while a cell runs: its notebook opens, but the kernel answers JupyterLab only after the cell."""
    window.load()
    window.page.evaluate("(path) => { void jupyterapp.commands.execute('docmanager:open', {path}) }", notebook.path)
    window.command("nbagent:open")


def test_a_page_that_is_loaded_again_in_mid_turn_takes_it_up(another: Window, place: str, service: Service) -> None:
    notebook = another.notebook(f"{place}/notes.ipynb", LOAD, "%%agent\nFirst question", "%%agent\nSecond question")
    another.command("nbagent:open")
    notebook.run(0)
    notebook.page.evaluate("async (path) => { await books[path].context.save() }", notebook.path)
    another.panel.get_by_role("combobox", name="Permissions").select_option("ask")
    another.panel.get_by_text("From the next turn on").wait_for()
    service.replies.extend([reply(call("python", {"code": "print(6 * 7)"})), endless()])
    notebook.start(1)
    question = another.panel.get_by_role("group", name="The agent asks: python")
    question.wait_for()
    load_again(notebook, another)
    question.get_by_role("button", name="Yes", exact=True).click()
    question.wait_for(state="detached")
    another.panel.get_by_text("writing").wait_for()
    another.panel.get_by_role("button", name="Stop", exact=True).click()
    turns(another).filter(has_text="First question").get_by_text("stopped").wait_for()
    notebook = another.notebook(notebook.path)
    notebook.run(2)
    turns(another).filter(has_text="Second question").get_by_text("completed").wait_for()
    notebook.close()


def test_a_page_that_knows_no_comm_can_stop_a_running_cell(another: Window, place: str, service: Service) -> None:
    notebook = another.notebook(f"{place}/notes.ipynb", LOAD, "%%agent\nFirst question")
    another.command("nbagent:open")
    notebook.run(0)
    notebook.page.evaluate("async (path) => { await books[path].context.save() }", notebook.path)
    service.replies.append(endless())
    notebook.start(1)
    another.panel.get_by_role("button", name="Stop", exact=True).wait_for()
    another.page.evaluate("() => localStorage.clear()")
    load_again(notebook, another)
    another.panel.get_by_text("it may answer only when the cell ends").wait_for()
    another.panel.get_by_role("button", name="Stop the running cell").click()
    turns(another).filter(has_text="First question").get_by_text("stopped").wait_for()
    notebook = another.notebook(notebook.path)
    notebook.close()


def test_a_note_that_is_half_edited_outlives_the_kernel_and_the_page(
    another: Window, place: str, service: Service
) -> None:
    notebook = another.notebook(f"{place}/notes.ipynb", LOAD, "%%agent\nFirst question", "%reload_ext nbagent")
    another.command("nbagent:open")
    service.replies.extend([reply("An answer. " * 500), "## Goal\nAs the model wrote it."])
    notebook.run(0, 1)
    notebook.page.evaluate("async (path) => { await books[path].context.save() }", notebook.path)
    another.part("Compaction").get_by_role("button", name="Compact …").click()
    note = another.panel.get_by_role("textbox", name="Hand-off note, to be edited")
    note.fill("## Goal\nAs the person wrote it.")
    notebook.run(2)
    assert note.input_value() == "## Goal\nAs the person wrote it."
    notebook.restart()
    note.wait_for(state="detached")
    notebook.run(0)
    assert note.input_value() == "## Goal\nAs the person wrote it."
    another.load()
    notebook = another.notebook(notebook.path)
    another.command("nbagent:open")
    assert note.input_value() == "## Goal\nAs the person wrote it."
    another.panel.get_by_role("button", name="Apply").click()
    another.panel.get_by_text("The conversation was compacted").wait_for()
    notebook.close()


def test_a_notebook_that_shares_its_kernel_says_that_another_one_has_the_panel(
    notebook: Notebook, window: Window, place: str
) -> None:
    other = window.notebook(f"{place}/other.ipynb", "1")
    window.page.evaluate(
        """async ([path, of]) => {
          const { id, name } = books[of].sessionContext.session.kernel;
          await books[path].sessionContext.changeKernel({ id, name }); }""",
        [other.path, notebook.path],
    )
    window.panel.get_by_text("shares its kernel with another notebook").wait_for()
    notebook.focus()
    window.part("Context").get_by_role("meter").wait_for()


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
    row.get_by_role("button", name=re.compile("Go back to turn 1 .*: First question")).click()
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


def test_a_connection_that_drops_and_comes_back_is_followed(another: Window, place: str, service: Service) -> None:
    sockets: list[Any] = []
    cut = False

    def through(socket: Any) -> None:
        if cut:
            socket.close(code=1012)
            return
        socket.connect_to_server()
        sockets.append(socket)

    another.page.route_web_socket(re.compile("/api/kernels/.*/channels"), through)
    another.load()
    notebook = another.notebook(f"{place}/notes.ipynb", LOAD, "%%agent\nFirst question", "%%agent\nSecond question")
    another.command("nbagent:open")
    notebook.run(0)
    pace = Pace(20)
    service.replies.append(reply("word " * 600, delta_size_chars=30, pace=pace))
    notebook.start(1)
    another.panel.get_by_role("button", name="Stop", exact=True).wait_for()
    cut = True
    for socket in sockets:
        socket.close(code=1012)  # as a server that restarts does; 1000 and 1001 are a farewell
    lost = another.panel.get_by_text("The connection to the kernel is lost")
    lost.wait_for()
    cut = False
    lost.wait_for(state="detached")
    pace.finish()
    notebook.wait()
    turns(another).filter(has_text="First question").get_by_text("completed").wait_for()
    assert another.panel.get_by_role("button", name="Stop", exact=True).count() == 0
    notebook.run(2)
    turns(another).filter(has_text="Second question").wait_for()
    notebook.close()


def test_of_two_windows_the_first_answer_counts_and_the_other_says_that_it_was_answered(
    notebook: Notebook, window: Window, another: Window, service: Service
) -> None:
    notebook.page.evaluate("async (path) => { await books[path].context.save() }", notebook.path)
    twin = another.notebook(notebook.path)
    another.command("nbagent:open")
    window.panel.get_by_role("combobox", name="Permissions").select_option("ask")
    until(lambda: another.panel.get_by_role("combobox", name="Permissions").input_value() == "ask")
    service.replies.extend([reply(call("python", {"code": "print(6 * 7)"})), "It is 42."])
    notebook.start(1)
    questions = [each.panel.get_by_role("group", name="The agent asks: python") for each in (window, another)]
    for question in questions:
        question.get_by_text("print(6 * 7)").wait_for()
    questions[1].get_by_role("button", name="Yes", exact=True).click()
    window.panel.get_by_text("Another window has answered the question: Yes.").wait_for()
    for question in questions:
        question.wait_for(state="detached")
    notebook.wait()
    assert "It is 42." in notebook.text(1)
    assert another.panel.get_by_text("Another window has answered").count() == 0
    another.page.evaluate("(path) => { books[path].context.model.dirty = false; books[path].dispose() }", twin.path)


def test_a_saved_notebook_that_is_opened_without_a_kernel_shows_answer_and_report(
    window: Window, another: Window, place: str, service: Service
) -> None:
    service.replies.append("The answer is **42**.")
    notebook = window.notebook(f"{place}/notes.ipynb", LOAD, "%%agent\nFirst question", "%context")
    notebook.run(0, 1, 2)
    notebook.page.evaluate("async (path) => { await books[path].context.save() }", notebook.path)
    saved = json.loads((window.folder / notebook.path).read_text(encoding="utf-8"))
    saved["metadata"] = {"kernelspec": {"name": "gone", "display_name": "Gone", "language": "gone"}}
    (window.folder / place / "saved.ipynb").write_text(json.dumps(saved), encoding="utf-8")
    page = another.page
    page.evaluate("(path) => { void jupyterapp.commands.execute('docmanager:open', {path}) }", f"{place}/saved.ipynb")
    page.locator(".jp-Dialog").get_by_role("button", name="No Kernel").click()
    cells = page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Cell")
    cells.nth(1).get_by_text("The answer is 42.").wait_for()
    assert cells.nth(1).locator("strong", has_text="42").count() == 1  # HTML, also where the notebook is not trusted
    report = cells.nth(2)
    report.get_by_text(re.compile(r"level \d+ of 10")).first.wait_for()
    assert report.get_by_role("table").get_by_text("tools", exact=True).count() == 1
    another.command("nbagent:open")
    another.panel.get_by_text(NOT_LOADED).wait_for()
