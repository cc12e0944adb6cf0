"""Turns as the panel shows them: the gauge in mid-turn, stop, steering, forks, revert, questions."""

from __future__ import annotations

import re
from typing import Any

from tests.browser.desk import LONG, Notebook, Service, Window, endless, until
from tests.fakes.messages_api import Pace, call, reply


def used(window: Window) -> int:
    meter = window.panel.get_by_role("meter", name="Context used")
    return int(meter.get_attribute("aria-valuenow") or 0)


def turn(window: Window, number: int) -> Any:
    """The row of a turn; of forks, the newest."""
    rows = window.part("Turns").get_by_role("list", name="Turns").locator(":scope > li")
    return rows.filter(has_text=f"Turn {number}").last


def test_the_gauge_moves_while_an_answer_streams(notebook: Notebook, window: Window, service: Service) -> None:
    pace = Pace(1)
    service.replies.append(reply(LONG * 10, delta_size_chars=4_000, pace=pace))
    notebook.start(1)
    stop = window.panel.get_by_role("button", name="Stop", exact=True)
    stop.wait_for()
    window.panel.get_by_text("writing").wait_for()
    for _ in range(3):
        before = used(window)
        pace.more()
        until(lambda before=before: used(window) > before)
    assert stop.is_visible()  # the answer is not complete yet
    stop.click()
    notebook.wait()
    stop.wait_for(state="detached")
    status = window.page.get_by_role("button", name="Agent: context")
    until(lambda: f"{used(window):,} tokens" in (status.get_attribute("aria-label") or ""))


def test_the_stop_button_of_the_panel_stops_the_turn(notebook: Notebook, window: Window, service: Service) -> None:
    service.replies.append(endless())
    notebook.start(1)
    stop = window.panel.get_by_role("button", name="Stop", exact=True)
    stop.click()
    notebook.wait()
    assert "Stopped" in notebook.text(1)
    stop.wait_for(state="detached")
    notebook.run(2)  # the conversation goes on
    assert "ok" in notebook.text(2)


def test_what_is_told_to_a_running_turn_reaches_the_model(
    notebook: Notebook, window: Window, place: str, service: Service
) -> None:
    held = "import os, time\nwhile not os.path.exists('told'): time.sleep(0.05)"
    service.replies.append(reply(call("python", {"code": held})))
    service.replies.append("Done.")
    notebook.start(1)
    field = window.panel.get_by_role("textbox", name="Tell the agent something")
    field.fill("Use metres, please.")
    field.press("Enter")
    window.panel.get_by_text("The agent hears it before its next step.").wait_for()
    (window.folder / place / "told").touch()
    notebook.wait()
    assert any("Use metres, please." in prompt for prompt in service.prompts)
    assert "Done." in notebook.text(1)


def test_a_cell_run_again_makes_later_turns_stale_and_a_click_brings_them_back(
    notebook: Notebook, window: Window
) -> None:
    notebook.run(1, 2, 3)
    turn(window, 3).wait_for()
    marks = notebook.cell(2).locator(".nbagent-CellMark")
    marks.filter(has_text="Turn 2").wait_for()
    assert "stale" not in marks.inner_text()
    notebook.run(1)
    marks.filter(has_text="stale").wait_for()
    third = notebook.cell(3).locator(".nbagent-CellMark")
    third.filter(has_text="stale").wait_for()
    row = window.part("Turns").get_by_role("listitem").filter(has_text="Third question")
    row.get_by_text("stale", exact=True).wait_for()
    row.get_by_role("button", name=re.compile("Go back to turn 3 .*: Third question")).click()
    row.get_by_text("here", exact=True).wait_for()
    window.part("Turns").get_by_role("listitem").filter(has_text="Second question").get_by_text(
        "stale", exact=True
    ).wait_for(state="detached")
    third.filter(has_text="stale").wait_for(state="detached")


def test_a_question_is_answered_by_a_button(notebook: Notebook, window: Window, service: Service) -> None:
    window.panel.get_by_role("combobox", name="Permissions").select_option("ask")
    window.panel.get_by_text("From the next turn on").wait_for()
    service.replies.extend([reply(call("python", {"code": "print(6 * 7)"})), "It is 42."])
    notebook.start(1)
    question = window.panel.get_by_role("group", name="The agent asks: python")
    question.get_by_text("print(6 * 7)").wait_for()
    assert window.page.locator(".jp-Stdin-input").count() == 0  # never both
    question.get_by_role("button", name="Yes", exact=True).click()
    notebook.wait()
    assert "It is 42." in notebook.text(1)
    question.wait_for(state="detached")


def test_a_prompt_with_markup_is_shown_as_it_is(window: Window, place: str, service: Service) -> None:
    prompt = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'
    notebook = window.notebook(f"{place}/<b>bold<b>.ipynb", "%load_ext nbagent", f"%%agent\n{prompt}")
    window.command("nbagent:open")
    notebook.run(0, 1)
    window.part("Turns").get_by_role("button", name=prompt, exact=True).wait_for()
    window.panel.get_by_role("heading", name="<b>bold<b>.ipynb").wait_for()
    assert window.panel.locator("img, script, b").count() == 0
    assert window.page.evaluate("() => window.hacked") is None


def test_compaction_with_an_edited_note_is_applied_and_undone(
    notebook: Notebook, window: Window, service: Service
) -> None:
    service.replies.extend([reply(f"{LONG * 12} The port is {5000 + i}.") for i in range(3)])
    notebook.run(1, 2, 3)
    part = window.part("Compaction")
    until(lambda: used(window) > 5_000)
    before = used(window)
    service.replies.append(reply("## Goal\nAnswer questions about ports."))
    part.get_by_role("button", name="Compact …").click()
    note = part.get_by_role("textbox", name="Hand-off note, to be edited")
    note.wait_for()
    assert "Answer questions about ports." in note.input_value()
    part.get_by_text("Loss report").wait_for()
    note.fill(note.input_value() + "\nThe person likes harbours.")
    part.get_by_role("button", name="Apply").click()
    window.panel.get_by_text("The conversation was compacted").wait_for()
    until(lambda: used(window) < before)
    part.get_by_text("In force:").wait_for()
    turn(window, 1).get_by_text("compacted", exact=True).wait_for()  # a note stands in its place
    part.get_by_role("button", name="Undo").click()
    until(lambda: used(window) >= before)
    part.get_by_text("No compaction is in force.").wait_for()
    turn(window, 1).get_by_text("compacted", exact=True).wait_for(state="detached")


def test_the_edited_note_is_what_the_model_gets(notebook: Notebook, window: Window, service: Service) -> None:
    service.replies.extend([reply(LONG * 12) for _ in range(2)])
    notebook.run(1, 2)
    part = window.part("Compaction")
    service.replies.append(reply("## Goal\nAnswer."))
    part.get_by_role("button", name="Compact …").click()
    note = part.get_by_role("textbox", name="Hand-off note, to be edited")
    note.fill("## Goal\nAnswer.\nThe person likes harbours.")
    part.get_by_role("button", name="Apply").click()
    window.panel.get_by_text("The conversation was compacted").wait_for()
    notebook.run(3)
    assert b"The person likes harbours." in service.fake.requests[-1].raw



def test_memory_is_searched_and_a_note_in_a_hidden_folder_is_shown_in_the_panel(
    notebook: Notebook, window: Window, place: str
) -> None:
    memory = window.folder / place / ".nbagent" / "memory"
    memory.mkdir(parents=True, exist_ok=True)
    (memory / "2026-03-02.md").write_text("# Ports\n\nThe database listens on port 5433.\n", encoding="utf-8")
    part = window.part("Memory")
    part.get_by_role("searchbox", name="Search memory").fill("which port does the database use")
    part.get_by_role("button", name="Search").click()
    hit = part.get_by_role("list", name="Memory results").get_by_role("listitem").first
    hit.get_by_text("port 5433").wait_for()
    hit.get_by_role("button").click()
    part.get_by_role("group", name="Note").get_by_text("port 5433").wait_for()


def test_a_sub_agent_is_shown_told_something_and_stopped_and_the_turn_goes_on(
    window: Window, place: str, service: Service
) -> None:
    skill = window.folder.parent / "home" / "nbagent" / "skills" / "look-at-logs" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    head = "---\nname: look-at-logs\ndescription: Looks at logs.\ncontext: fork\n---\n"
    skill.write_text(f"{head}Look at the logs.\n", encoding="utf-8")
    load = "import os; os.environ['NBAGENT_SKILLS__MODE'] = 'tool'\n%load_ext nbagent"
    notebook = window.notebook(f"{place}/notes.ipynb", load, "%%agent\nAre there errors?")
    window.command("nbagent:open")
    notebook.run(0)
    waits = "import time\nfor _ in range(36_000): time.sleep(0.1)"
    service.replies.extend(
        [
            reply("x", call("skill", {"skill": "look-at-logs"})), reply("y", call("python", {"code": "1"})),
            reply("z", call("python", {"code": waits})), reply("I go on without it."),
        ]
    )  # fmt: skip
    notebook.start(1)
    row = window.panel.get_by_role("list", name="Sub-agents").get_by_role("listitem")  # it unfolds by itself
    row.get_by_text("look-at-logs").wait_for()
    row.get_by_text("2 calls").wait_for()
    row.get_by_text("python").wait_for()
    row.get_by_role("textbox", name="Tell look-at-logs something").fill("Only today's.")
    row.get_by_role("button", name="Send").click()
    window.panel.get_by_text("look-at-logs hears it before its next step.").wait_for()
    row.get_by_role("button", name="Stop look-at-logs").click()
    notebook.wait()
    assert "I go on without it." in notebook.text(1)
    assert b"the person stopped it" in service.fake.requests[-1].raw
    row.get_by_text("stopped").wait_for()
    assert row.get_by_role("textbox").count() == 0


def test_a_skill_that_is_switched_off_is_hidden_from_the_model(
    window: Window, place: str, service: Service
) -> None:
    skill = window.folder.parent / "home" / "nbagent" / "skills" / "count-birds" / "SKILL.md"  # the person's own
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: count-birds\ndescription: Counts birds in a table.\n---\nCount.\n", encoding="utf-8")
    notebook = window.notebook(f"{place}/notes.ipynb", "%load_ext nbagent", "%%agent\nFirst", "%%agent\nSecond")
    window.command("nbagent:open")
    notebook.run(0, 1)
    assert b"count-birds" in service.fake.requests[-1].raw
    part = window.part("Skills")
    part.get_by_role("searchbox", name="Search skills").fill("birds")
    switch = part.get_by_role("switch", name="Skill count-birds", exact=True)
    switch.click()
    until(lambda: switch.get_attribute("aria-checked") == "false")
    part.get_by_text("hidden from the model").wait_for()
    notebook.run(2)
    said = service.fake.requests[-1].body["messages"][-1]
    assert "count-birds" in str(said)  # the model is told at the tail; the prefix stays as it was


def test_a_cell_that_is_the_agents_no_more_loses_its_mark(notebook: Notebook, window: Window) -> None:
    notebook.run(1)
    mark = notebook.cell(1).locator(".nbagent-CellMark")
    mark.filter(has_text="Turn 1").wait_for()
    assert "$" in mark.inner_text()  # what it cost
    write = "([path, source]) => { books[path].context.model.sharedModel.cells[1].setSource(source) }"
    notebook.page.evaluate(write, [notebook.path, "x = 1"])
    mark.wait_for(state="detached")
    notebook.page.evaluate(write, [notebook.path, "%%agent\nFirst question"])
    mark.filter(has_text="Turn 1").wait_for()


def test_before_the_first_turn_the_gauge_shows_what_a_turn_would_send(
    another: Window, place: str, service: Service
) -> None:
    window = another
    service.replies.clear()
    notebook = window.notebook(f"{place}/notes.ipynb", "%load_ext nbagent", "%%agent\nFirst question")
    window.command("nbagent:open")
    notebook.run(0)
    asked = len(service.fake.requests)
    table = window.part("Context").get_by_role("table", name="What the context holds, in tokens")
    for name in ("system", "tools", "skills"):
        table.get_by_role("row", name=re.compile(f"{name} [1-9]")).wait_for()
    window.part("Context").get_by_text(re.compile("Compacts at")).wait_for()
    assert "–" not in window.part("Context").locator("dd").first.inner_text()  # the threshold
    assert used(window) > 0
    assert len(service.fake.requests) == asked
    skills = window.part("Skills")
    skills.get_by_role("switch").first.wait_for()
    assert "sees 0 of 0" not in skills.inner_text()
    assert not (window.folder / place / ".nbagent" / "sessions").exists()
    window.part("Turns").get_by_text("No turn yet. A cell that begins with %%agent is a turn").wait_for()
    compact = window.part("Compaction").get_by_role("button", name="Compact …")
    assert compact.get_attribute("aria-disabled") == "true"
    window.part("Compaction").get_by_text("There is no conversation yet").wait_for()
    notebook.run(1)
    until(lambda: compact.get_attribute("aria-disabled") == "false")
    notebook.close()


def test_pressed_in_mid_turn_a_search_is_done_at_once_and_what_changes_the_conversation_when_the_turn_ends(
    notebook: Notebook, window: Window, place: str, service: Service
) -> None:
    memory = window.folder / place / ".nbagent" / "memory"
    memory.mkdir(parents=True, exist_ok=True)
    (memory / "2026-03-02.md").write_text("# Ports\n\nThe database listens on port 5433.\n", encoding="utf-8")
    service.replies.extend([reply(LONG * 12), reply(LONG * 12)])
    notebook.run(1, 2)
    service.replies.extend([endless(), reply("## Goal\nAnswer questions about ports.")])
    notebook.start(3)
    stop = window.panel.get_by_role("button", name="Stop", exact=True)
    stop.wait_for()
    until(lambda: window.panel.get_by_text("listens between cells only").count() == 0)  # it delivers
    part = window.part("Memory")
    part.get_by_role("searchbox", name="Search memory").fill("which port does the database use")
    part.get_by_role("button", name="Search").click()
    part.get_by_role("list", name="Memory results").get_by_text("port 5433").first.wait_for()
    compaction = window.part("Compaction")
    compaction.get_by_role("button", name="Compact …").click()
    window.panel.get_by_role("combobox", name="Permissions").select_option("plan")
    lines = window.panel.get_by_role("status", name="Messages")
    lines.get_by_text("Write the hand-off note: A turn runs; this is done when it ends.").wait_for()
    lines.get_by_text("Change permissions or policy: A turn runs; this is done when it ends.").wait_for()
    window.panel.get_by_text("Waiting for the turn to end: Write the hand-off note, Change permissions").wait_for()
    assert stop.is_visible()
    assert compaction.get_by_role("textbox").count() == 0
    stop.click()
    notebook.wait()
    note = compaction.get_by_role("textbox", name="Hand-off note, to be edited")
    note.wait_for()
    assert "Answer questions about ports." in note.input_value()
    lines.get_by_text("From the next turn on: permissions plan.").wait_for()
    window.panel.get_by_text("Waiting for the turn to end").wait_for(state="detached")


def test_a_note_that_was_edited_is_kept_when_the_conversation_has_moved_and_it_is_written_again(
    notebook: Notebook, window: Window, service: Service
) -> None:
    service.replies.extend([reply(LONG * 12), reply(LONG * 12)])
    notebook.run(1, 2)
    part = window.part("Compaction")
    service.replies.append(reply("## Goal\nThe first."))
    part.get_by_role("button", name="Compact …").click()
    note = part.get_by_role("textbox", name="Hand-off note, to be edited")
    note.fill("## Goal\nAs the person wrote it.")
    service.replies.append(reply("fine"))
    notebook.run(3)
    part.get_by_text("Out of date: the conversation has moved since.").wait_for()
    service.replies.append(reply("## Goal\nThe second."))
    part.get_by_role("button", name="Write again").click()
    until(lambda: "The second." in note.input_value())
    part.get_by_text("As the person wrote it.").wait_for()
    part.get_by_role("button", name="Swap the two notes").click()
    assert note.input_value() == "## Goal\nAs the person wrote it."
    part.get_by_role("button", name="Apply").click()
    window.panel.get_by_text("The conversation was compacted").wait_for()


def test_compact_is_not_offered_while_a_recording_plays(window: Window, place: str) -> None:
    cells = (
        "%load_ext nbagent", "%agent record cassettes/talk.json", "%%agent\nFirst question", "%agent record stop",
        "%agent replay cassettes/talk.json", "%agent replay stop",
    )  # fmt: skip
    notebook = window.notebook(f"{place}/notes.ipynb", *cells)
    window.command("nbagent:open")
    notebook.run(0, 1, 2, 3)
    button = window.part("Compaction").get_by_role("button", name="Compact …")
    until(lambda: button.get_attribute("aria-disabled") == "false")
    notebook.run(4, 2)
    until(lambda: "recording plays" in (button.get_attribute("title") or ""))
    assert button.get_attribute("aria-disabled") == "true"
    window.part("Compaction").get_by_text("A recording plays, so no model can write a note").wait_for()
    palette = "() => [jupyterapp.commands.isEnabled('nbagent:compact'), jupyterapp.commands.caption('nbagent:compact')]"
    enabled, caption = window.page.evaluate(palette)
    assert (enabled, "recording plays" in caption) == (False, True)
    button.click(force=True)
    assert window.panel.get_by_role("alert").count() == 0
    notebook.run(5, 2)
    until(lambda: button.get_attribute("aria-disabled") == "false")
