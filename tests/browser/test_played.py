"""What a conversation cannot bring about at will: sub-agents, hostile names, other versions; the kernel's side is played."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.browser.desk import Notebook, Window, until
from tests.browser.played import bundle, cell


def played(window: Window, place: str, parts: dict[str, Any] | None = None, **options: Any) -> Notebook:
    """Open a notebook whose kernel is played; cell 1 shows what it heard, cell 2 begins a sub-agent."""
    parts = parts or bundle("state")["parts"]
    agents = [{"agent": "sa1", "name": "look-at-logs", "status": "running", "activity": "step 2", "cost_usd": 0.01}]
    more = ("import json; print(json.dumps(heard))", f"delta(agents={{'total': 1, 'rows': {agents!r}}})")
    notebook = window.notebook(f"{place}/played.ipynb", cell(parts, **options), *more)
    window.command("nbagent:open")
    notebook.run(0)
    return notebook


def commands(notebook: Notebook, name: str) -> list[dict[str, Any]]:
    """Return the commands of that name that the kernel heard."""
    notebook.run(1)
    return [m for m in json.loads(notebook.text(1)) if m.get("name") == name]


def test_every_part_of_the_panel_has_a_role_and_a_name(window: Window, place: str) -> None:
    notebook = played(window, place)
    for part in ("Skills", "Memory", "Sub-agents"):
        window.part(part)
    window.part("Turns").get_by_role("listitem").first.wait_for()
    window.part("Skills").get_by_role("switch").first.wait_for()
    tree = window.page.locator("#nbagent-panel").aria_snapshot()
    for line in (
        '- region "Agent of played.ipynb"', '- meter "Context used"', '- region "Context"', '- region "Compaction"',
        '- region "Turns"', '- region "Skills"', '- region "Memory"', '- region "Sub-agents"', '- search "Memory"',
        '- searchbox "Search memory"', '- searchbox "Search skills"', '- list "Turns"', '- list "Skills"',
        '- combobox "Permissions"', '- combobox "Policy"', '- button "Compact …"', '- button "Undo"',
        '- table "What the context holds, in tokens"', '- switch "Skill ', "- status",
    ):  # fmt: skip
        assert line in tree, tree
    unnamed = window.panel.evaluate(
        """panel => [...panel.querySelectorAll('button, input, select, textarea')].filter(node =>
             !(node.getAttribute('aria-label') || node.textContent.trim() || node.labels?.length)
           ).map(node => node.outerHTML)"""
    )
    assert unnamed == []
    assert window.page.get_by_role("complementary", name="Agent").count() == 1
    assert commands(notebook, "page") != []


def test_the_panel_works_by_keyboard(window: Window, place: str) -> None:
    notebook = played(window, place)
    page = window.page
    window.part("Context").get_by_role("meter").wait_for()
    page.keyboard.press("Alt+Shift+M")
    search = window.panel.get_by_role("searchbox", name="Search memory")
    until(lambda: search.evaluate("node => node === document.activeElement"))
    page.keyboard.type("which port")
    page.keyboard.press("Enter")
    window.panel.get_by_role("list", name="Memory results").get_by_role("listitem").first.wait_for()
    assert [c["query"] for c in commands(notebook, "search")] == ["which port"]
    heading = window.panel.get_by_role("button", name="Memory", exact=True)
    heading.focus()
    page.keyboard.press("Enter")
    until(lambda: heading.get_attribute("aria-expanded") == "false")
    page.keyboard.press("Tab")
    assert window.panel.locator(":focus").count() == 1
    outline = window.panel.locator(":focus").evaluate("node => getComputedStyle(node).outlineStyle")
    assert outline != "none"


def test_the_palette_has_the_commands(window: Window, place: str) -> None:
    played(window, place)
    window.part("Context").get_by_role("meter").wait_for()
    labels = window.page.evaluate(
        """() => jupyterapp.commands.listCommands().filter(id => id.startsWith('nbagent:'))
             .map(id => [jupyterapp.commands.label(id), jupyterapp.commands.isEnabled(id)])"""
    )
    assert ["Show the Agent Panel", True] in labels
    assert ["Search Memory", True] in labels
    assert ["Compact the Conversation …", True] in labels
    assert ["Stop the Running Turn", True] in labels  # pressed while none runs, it says so
    assert ["Undo the Last Compaction", False] in labels  # there is none


def test_a_skill_is_switched_off(window: Window, place: str) -> None:
    notebook = played(window, place)
    part = window.part("Skills")
    switch = part.get_by_role("switch").first
    switch.wait_for()
    name = (switch.get_attribute("aria-label") or "").removeprefix("Skill ")
    on = switch.get_attribute("aria-checked") == "true"
    switch.click()
    window.panel.get_by_text("did set_skill").wait_for()
    part.get_by_role("searchbox", name="Search skills").fill("look")
    until(lambda: [c for c in commands(notebook, "page") if c["text"] == "look"])
    assert [(c["skill"], c["on"]) for c in commands(notebook, "set_skill")] == [(name, not on)]


def test_a_memory_hit_opens_the_file_at_the_line(window: Window, place: str) -> None:
    (window.folder / place).mkdir(exist_ok=True)
    (window.folder / place / "facts.md").write_text("one\ntwo\nthree\nfour\n", encoding="utf-8")
    hit = bundle("hostile")["search"]["rows"][0] | {
        "path": "facts.md", "relative": "facts.md", "start_line": 3, "end_line": 3,
    }  # fmt: skip
    answers = {"search": {"query": "x", "note": "", "rows": [hit]}}
    played(window, place, answers=answers)
    part = window.part("Memory")
    part.get_by_role("searchbox").fill("x")
    part.get_by_role("button", name="Search").click()
    part.get_by_role("button", name="facts.md:3").click()
    where = """() => { const w = jupyterapp.shell.currentWidget; const e = w?.content?.editor;
                       return e ? [w.context.path, e.getCursorPosition().line] : null }"""
    until(lambda: window.page.evaluate(where) == [f"{place}/facts.md", 2])
    window.page.evaluate("() => jupyterapp.shell.currentWidget.dispose()")


def test_a_memory_hit_that_the_server_hides_is_shown_in_the_panel(window: Window, place: str) -> None:
    notebook = played(window, place)
    part = window.part("Memory")
    part.get_by_role("searchbox").fill("port")
    part.get_by_role("button", name="Search").click()
    part.get_by_role("listitem").first.get_by_role("button").click()
    part.get_by_role("group", name="Note").wait_for()
    assert commands(notebook, "read")[0]["path"] == bundle("commands")["exchanges"][4]["reply"]["result"]["rows"][0]["path"]


def test_a_sub_agent_can_be_told_something_and_stopped(window: Window, place: str) -> None:
    notebook = played(window, place)
    notebook.run(2)
    part = window.part("Sub-agents")
    part.get_by_text("look-at-logs").first.wait_for()
    field = part.get_by_role("textbox", name="Tell look-at-logs something")
    field.fill("only today's")
    part.get_by_role("button", name="Send").click()
    until(lambda: field.input_value() == "")
    part.get_by_role("button", name="Stop look-at-logs").click()
    window.panel.get_by_text("did stop_agent").wait_for()
    assert [(c["agent"], c["text"]) for c in commands(notebook, "send")] == [("sa1", "only today's")]
    assert [c["agent"] for c in commands(notebook, "stop_agent")] == ["sa1"]


def test_hostile_names_stay_text(window: Window, place: str) -> None:
    hostile = bundle("hostile")
    answers = {"page": {"catalog": hostile["catalog"], "tree": hostile["tree"]}, "search": hostile["search"]}
    played(window, place, hostile["parts"], answers=answers)
    window.part("Skills").get_by_text("<img src=x").first.wait_for()
    window.part("Turns").get_by_role("listitem").first.wait_for()
    window.part("Sub-agents").get_by_text("<img src=x").first.wait_for()
    part = window.part("Memory")
    part.get_by_role("searchbox").fill("x")
    part.get_by_role("button", name="Search").click()
    part.get_by_role("listitem").first.wait_for()
    window.panel.get_by_role("group", name="The agent asks: <img src=x").wait_for()
    assert window.panel.locator("img, script, svg, a").count() == 0
    assert window.page.locator("img[src='x']").count() == 0
    assert window.page.evaluate("() => window.hacked") is None


def test_a_question_of_a_notebook_in_the_background_is_told(window: Window, place: str) -> None:
    notebook = played(window, place)
    window.part("Context").get_by_role("meter").wait_for()
    window.notebook(f"{place}/front.ipynb", "1")
    window.panel.get_by_role("heading", name="front.ipynb").wait_for()
    ask = {**bundle("hostile")["parts"]["approval"], "tool": "<b>python</b>"}
    notebook.page.evaluate(
        """async ([path, code]) => {
          await books[path].sessionContext.session.kernel.requestExecute({code}).done }""",
        [notebook.path, f"delta(approval={ask!r})"],
    )
    told = window.page.get_by_role("alert").filter(has_text="the agent asks whether it may use <b>python</b>")
    told.get_by_role("button", name="Answer").click()
    question = window.panel.get_by_role("group", name="The agent asks: <b>python</b>")
    question.get_by_role("button").first.click()
    window.panel.get_by_text("did answer").wait_for()
    assert [c["approval"] for c in commands(notebook, "answer")] == ["q1"]
    notebook.restart()
    told.wait_for(state="detached")


def test_a_kernel_package_that_is_too_new_is_told_in_a_line(window: Window, place: str) -> None:
    played(window, place, version=3, least=2)
    window.panel.get_by_role("alert").get_by_text(bundle("versions")["message"]["line"]).wait_for()
    assert window.panel.get_by_role("meter").count() == 0


def test_a_kernel_package_that_is_too_old_is_told_in_a_line(window: Window, place: str) -> None:
    notebook = played(window, place, version=0, least=0)
    window.panel.get_by_role("alert").get_by_text("update it where the kernel runs").wait_for()
    assert window.panel.get_by_role("meter").count() == 0
    notebook.run(1)  # cells go on


def test_a_turn_that_runs_its_question_and_its_sub_agents_have_roles_and_names(window: Window, place: str) -> None:
    parts = bundle("state")["parts"]
    agent = {"agent": "sa1", "name": "look-at-logs", "status": "running", "activity": "step 2", "calls": 1, "tokens": 9, "cost_usd": 0.0}
    choices = [{"answer": "y", "label": "Yes"}, {"answer": "n", "label": "No"}]
    parts |= {
        "agents": {"total": 1, "rows": [agent]},
        "turn": {**parts["turn"], "status": "running", "delivers": True, "step": 1},
        "approval": {"approval": "q1", "tool": "python", "text": "print(1)", "more_chars": 30, "choices": choices},
        "compaction": {**parts["compaction"], "entry": "e1", "before_tokens": 900, "after_tokens": 300},
    }
    played(window, place, parts)
    window.part("Sub-agents")
    window.part("Compaction").get_by_role("button", name="Compact …").click()
    window.panel.get_by_role("group", name="Compaction, not applied yet").wait_for()
    tree = window.page.locator("#nbagent-panel").aria_snapshot()
    for line in (
        '- textbox "Tell the agent something"', '- button "Tell"', '- button "Stop"', 'group "The agent asks: python"',
        "- alert", '- button "Show 30 more characters"', '- button "Yes"', '- button "No"', '- list "Sub-agents"',
        '- button "Stop look-at-logs"', '- textbox "Tell look-at-logs something"', '- button "Send"',
        '- textbox "Hand-off note, to be edited"', '- button "Apply"', '- button "Cancel"', '- button "Undo"',
    ):  # fmt: skip
        assert line in tree, tree


def test_a_second_click_on_show_more_answers_nothing(window: Window, place: str) -> None:
    parts = bundle("state")["parts"]
    choices = [{"answer": "t", "label": "For this turn"}, {"answer": "n", "label": "No"}]
    text = "\n".join(f"print({i})" for i in range(40))
    parts |= {
        "turn": {**parts["turn"], "status": "running", "delivers": True, "step": 1},
        "approval": {"approval": "q1", "tool": "python", "text": text, "more_chars": 30, "choices": choices},
    }
    notebook = played(window, place, parts, answers={"question": {"text": f"{text}\nprint('the end')"}})
    question = window.panel.get_by_role("group", name="The agent asks: python")
    more = question.get_by_role("button", name="Show 30 more characters")
    more.scroll_into_view_if_needed()
    box = more.bounding_box()
    assert box is not None
    at = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    window.page.mouse.click(*at)
    question.get_by_text("the end").wait_for()
    window.page.mouse.click(*at)
    shown = question.get_by_role("button", name="All of it is shown")
    assert shown.evaluate("node => node === document.activeElement")
    question.get_by_role("button", name="No", exact=True).click()
    until(lambda: commands(notebook, "answer"))
    assert [c["answer"] for c in commands(notebook, "answer")] == ["n"]


def test_words_that_were_not_sent_outlive_a_panel_that_is_put_away_or_shows_another_notebook(
    window: Window, place: str
) -> None:
    parts = bundle("state")["parts"]
    notebook = played(window, place, parts | {"turn": {**parts["turn"], "status": "running", "delivers": True}})
    words = window.panel.get_by_role("textbox", name="Tell the agent something")
    words.fill("half a sent")
    query = window.part("Memory").get_by_role("searchbox")
    query.fill("which po")
    window.page.evaluate("() => jupyterapp.shell.collapseRight()")
    words.wait_for(state="hidden")
    window.command("nbagent:open")
    assert (words.input_value(), query.input_value()) == ("half a sent", "which po")
    window.notebook(f"{place}/other.ipynb", "1")
    words.wait_for(state="detached")
    notebook.focus()
    assert (words.input_value(), query.input_value()) == ("half a sent", "which po")
    words.press("Enter")
    until(lambda: words.input_value() == "")
    window.page.evaluate("() => jupyterapp.shell.collapseRight()")
    window.command("nbagent:open")
    words.wait_for()
    assert words.input_value() == ""


def test_a_note_that_comes_or_goes_takes_no_keyboard_from_a_cell(window: Window, place: str) -> None:
    notebook = played(window, place)
    press = """([path, name]) => {
      const buttons = [...document.querySelectorAll('.nbagent-Panel button')];
      buttons.find(button => button.textContent === name).click();
      books[path].content.activeCell.editor.focus(); }"""  # before the answer can come
    in_a_cell = "() => document.activeElement.closest('.jp-Cell') !== null"
    window.part("Compaction").get_by_role("button", name="Compact …").wait_for()
    window.page.evaluate(press, [notebook.path, "Compact …"])
    note = window.panel.get_by_role("textbox", name="Hand-off note, to be edited")
    note.wait_for()
    assert window.page.evaluate(in_a_cell)
    window.page.evaluate(press, [notebook.path, "Apply"])
    note.wait_for(state="detached")
    assert window.page.evaluate(in_a_cell)


def test_of_many_turns_the_newest_is_in_view_and_the_other_parts_stay_near(window: Window, place: str) -> None:
    tree = bundle("commands")["exchanges"]
    page = next(e["reply"]["result"] for e in tree if e["command"]["name"] == "page" and e["command"]["of"] == "tree")
    rows = [{**page["rows"][0], "turn": f"{i:08x}", "number": i, "leaf": i == 1999} for i in range(1950, 2000)]
    many = {**page, "start": 1950, "total": 2000, "rows": rows}
    played(window, place, answers={"page": {"tree": many}})
    turns = window.part("Turns").get_by_role("list", name="Turns")
    newest = turns.get_by_text("Turn 1999")
    newest.wait_for()
    inside = """node => {
      const list = node.closest('ol').getBoundingClientRect(), own = node.getBoundingClientRect();
      return own.top >= list.top && own.bottom <= list.bottom + 1; }"""
    until(lambda: newest.evaluate(inside))
    assert not turns.get_by_text("Turn 1950").evaluate(inside)
    near = "panel => panel.querySelector('.nbagent-Scroll').scrollHeight < 3 * panel.clientHeight"
    assert window.panel.evaluate(near)


def test_large_letters_fit_into_a_narrow_panel(window: Window, place: str) -> None:
    played(window, place)
    for part in ("Skills", "Memory"):
        window.part(part)
    window.part("Compaction").get_by_role("button", name="Compact …").click()
    window.panel.get_by_role("button", name="Apply").wait_for()
    scroll = window.panel.locator(".nbagent-Scroll")
    measure = """panel => [...panel.querySelectorAll('*')].filter(n => n.scrollWidth > n.clientWidth + 1 && n.clientWidth > 1)
      .map(n => `${n.tagName} ${n.className}`)"""
    broken = """panel => [...panel.querySelectorAll('.nbagent-Facts dd')].filter(
      n => n.offsetHeight > 1.8 * parseFloat(getComputedStyle(n).fontSize) && n.offsetWidth < n.parentElement.offsetWidth - 1
    ).map(n => n.textContent)"""
    double = "const s = document.documentElement.style; for (const i of [0, 1, 2]) s.setProperty"
    try:
        window.page.evaluate(f"() => {{ {double}(`--jp-ui-font-size${{i}}`, `${{22 + 4 * i}}px`); }}")
        assert scroll.evaluate(measure) == []
        assert scroll.evaluate(broken) == []
    finally:
        window.page.evaluate(f"() => {{ {double}(`--jp-ui-font-size${{i}}`, ''); }}")


def test_a_compaction_is_made_by_keyboard_alone(window: Window, place: str) -> None:
    notebook = played(window, place)
    page = window.page
    window.part("Context").get_by_role("meter").wait_for()
    page.keyboard.press("Alt+Shift+C")
    note = window.panel.get_by_role("textbox", name="Hand-off note, to be edited")
    until(lambda: note.count() and note.evaluate("node => node === document.activeElement"))
    page.keyboard.press("Escape")
    note.wait_for(state="detached")
    button = window.panel.get_by_role("button", name="Compact …")
    until(lambda: button.evaluate("node => node === document.activeElement"))
    page.keyboard.press("Enter")
    until(lambda: note.count() and note.evaluate("node => node === document.activeElement"))
    page.keyboard.press("Control+End")
    page.keyboard.type(" And mind the gap.")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    window.panel.get_by_text("did compact").wait_for()
    assert commands(notebook, "compact")[0]["note"].endswith(" And mind the gap.")


def test_escape_drops_what_an_input_method_composes_and_not_the_note(window: Window, place: str) -> None:
    played(window, place)
    window.part("Compaction").get_by_role("button", name="Compact …").click()
    note = window.panel.get_by_role("textbox", name="Hand-off note, to be edited")
    press = """(node, isComposing) => {
      node.dispatchEvent(new KeyboardEvent('keydown', { key: 'Escape', isComposing, bubbles: true }));
    }"""
    note.fill("目标：总结")
    note.evaluate(press, True)
    assert note.input_value() == "目标：总结"
    note.evaluate(press, False)
    note.wait_for(state="detached")


def test_where_the_server_shows_hidden_files_a_hit_in_one_opens_at_its_line(window: Window, place: str) -> None:
    hit = bundle("commands")["exchanges"][4]["reply"]["result"]["rows"][0]
    name = hit["relative"].rpartition("/")[2]

    def answer(route: Any) -> None:
        file = {
            "name": name, "path": f"{place}/{hit['relative']}", "type": "file", "format": "text", "mimetype": "text/markdown",
            "content": "line\n" * 9 if "content=0" not in route.request.url else None, "writable": False,
            "created": "2026-01-01T00:00:00Z", "last_modified": "2026-01-01T00:00:00Z", "size": 45,
        }  # fmt: skip
        if "/checkpoints" not in route.request.url:
            route.fulfill(json=file)
        elif route.request.method == "POST":
            route.fulfill(status=201, json={"id": "checkpoint", "last_modified": file["last_modified"]})
        else:
            route.fulfill(json=[])

    played(window, place)
    window.page.route(f"**/api/contents/{place}/.nbagent/**", answer)
    try:
        part = window.part("Memory")
        part.get_by_role("searchbox").fill("port")
        part.get_by_role("button", name="Search").click()
        part.get_by_role("listitem").first.get_by_role("button").click()
        where = """() => { const w = jupyterapp.shell.currentWidget; const e = w?.content?.editor;
                           return e ? [w.context.path, e.getCursorPosition().line] : null }"""
        until(lambda: window.page.evaluate(where) == [f"{place}/{hit['relative']}", hit["start_line"] - 1])
        window.page.evaluate("() => jupyterapp.shell.currentWidget.dispose()")
    finally:
        window.page.unroute(f"**/api/contents/{place}/.nbagent/**")


def test_a_lost_delta_is_noticed_and_the_whole_state_asked_for(window: Window, place: str) -> None:
    notebook = played(window, place)
    window.part("Context").get_by_role("meter").wait_for()
    notebook.page.evaluate(
        "(path) => { books[path].context.model.sharedModel.cells[2].setSource('seq += 5; delta(turn={})') }",
        notebook.path,
    )
    notebook.run(2)
    hellos = "print(json.dumps([m for m in heard if m['kind'] == 'hello']))"
    notebook.page.evaluate(
        "([path, source]) => { books[path].context.model.sharedModel.cells[2].setSource(source) }",
        [notebook.path, hellos],
    )
    until(lambda: notebook.run(2) or len(json.loads(notebook.text(2))) == 2)


@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark", "JupyterLab Dark High Contrast"])
def test_text_can_be_read_in_every_theme(window: Window, place: str, theme: str) -> None:
    played(window, place)
    window.part("Skills").get_by_role("switch").first.wait_for()
    set_theme = "async (theme) => { await jupyterapp.commands.execute('apputils:change-theme', {theme}) }"
    try:
        window.page.evaluate(set_theme, theme)
        until(lambda: window.page.evaluate("() => document.body.dataset.jpThemeName") == theme)
        poor = until(lambda: [window.panel.evaluate(_CONTRAST)])[0]
    finally:
        window.page.evaluate(set_theme, "JupyterLab Light")
    assert poor == []


# The texts whose contrast to what is behind them is below 4.5, what WCAG 2.1 AA asks of small text.
_CONTRAST = """panel => {
  const rgb = text => (text.match(/[0-9.]+/g) ?? []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = node => {
    for (let n = node; n; n = n.parentElement) {
      const colour = rgb(getComputedStyle(n).backgroundColor);
      if (colour.length === 3 || colour[3] > 0.9) return colour;
    }
    return [255, 255, 255];
  };
  const opacity = node => node ? Number(getComputedStyle(node).opacity) * opacity(node.parentElement) : 1;
  const poor = [];
  for (const node of panel.querySelectorAll('p, strong, span, button, th, td, dt, dd, label, option')) {
    const own = [...node.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
    if (!own || node.disabled || !node.checkVisibility()) continue;
    const back = behind(node), front = rgb(getComputedStyle(node).color), o = opacity(node) * (front[3] ?? 1);
    const seen = front.slice(0, 3).map((v, i) => v * o + back[i] * (1 - o));
    const [a, b] = [light(seen), light(back)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) poor.push(`${node.className || node.tagName}: ${node.textContent.slice(0, 30)} ${ratio.toFixed(2)}`);
  }
  return poor;
}"""


def test_a_way_back_by_keyboard_keeps_the_focus(window: Window, place: str) -> None:
    notebook = played(window, place)
    button = window.part("Turns").get_by_role("button", name="Go back to turn 3 · 77aa01bc: Plot it by month")
    button.focus()
    window.page.keyboard.press("Enter")
    window.panel.get_by_text("did revert").wait_for()
    assert button.evaluate("node => node === document.activeElement")
    notebook.page.evaluate(
        """async ([path, code]) => {
          await books[path].sessionContext.session.kernel.requestExecute({code}).done }""",
        [notebook.path, "played['pages']['tree']['rows'][0]['leaf'] = True; delta(tree={'revision': 8})"],
    )
    until(lambda: button.get_attribute("aria-disabled") == "true")
    assert button.evaluate("node => node === document.activeElement")
    assert [c["turn"] for c in commands(notebook, "revert")] == ["77aa01bc"]


def test_the_shortcuts_show_the_panel_and_stop_a_turn_or_say_that_none_runs(window: Window, place: str) -> None:
    notebook = played(window, place)
    page, meter = window.page, window.part("Context").get_by_role("meter")
    meter.wait_for()
    page.evaluate("() => jupyterapp.shell.collapseRight()")
    meter.wait_for(state="hidden")
    page.keyboard.press("Alt+Shift+A")
    meter.wait_for()
    until(lambda: window.panel.locator(":focus").count() == 1)
    page.keyboard.press("Tab")
    assert window.panel.get_by_role("button", name="Context", exact=True).evaluate("n => n === document.activeElement")
    page.keyboard.press("Alt+Shift+S")
    window.panel.get_by_text("No turn is running; there is nothing to stop.").wait_for()
    assert commands(notebook, "stop") == []
    page.evaluate(
        """async ([path, code]) => {
          await books[path].sessionContext.session.kernel.requestExecute({code}).done }""",
        [notebook.path, "delta(turn={'status': 'running', 'number': 5})"],
    )
    window.panel.get_by_role("button", name="Stop", exact=True).wait_for()
    page.keyboard.press("Alt+Shift+S")
    window.panel.get_by_text("did stop").wait_for()
    assert len(commands(notebook, "stop")) == 1


def test_the_policy_is_chosen_from_a_list_and_the_message_can_be_closed(window: Window, place: str) -> None:
    notebook = played(window, place)
    window.part("Context").get_by_role("combobox", name="Policy").select_option("claude-code")
    said = window.panel.get_by_text("did set")
    said.wait_for()
    assert [c["policy"] for c in commands(notebook, "set")] == ["claude-code"]
    line, content = (window.panel.locator(f".nbagent-{part}").bounding_box() for part in ("Line", "Scroll"))
    assert line["y"] >= content["y"] + content["height"] - 1  # never over the content
    window.panel.get_by_role("button", name="Close the message").click()
    said.wait_for(state="detached")
