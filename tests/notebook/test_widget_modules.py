"""The widgets' JavaScript in a bare page of Chromium, with a kernel played by the fixtures of the protocol."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nbagent.notebook.reports.context import CATEGORIES
from nbagent.notebook.reports.tables import hue
from tests.patience import HANG_S

sync_api = pytest.importorskip("playwright.sync_api")

STATIC = Path(__file__).parents[2] / "nbagent" / "notebook" / "panel" / "static"
BUNDLES = Path(__file__).parents[1] / "fixtures" / "bundles"
CHROMIUM = os.environ.get("NBAGENT_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
KINDS = ("context", "skills", "memory")

# A model as anywidget gives it; `answers` are results by command, and whatever is sent is kept in `window.sent`.
MOUNT = """async ({source, css, parts, answers}) => {
  const module = await import(URL.createObjectURL(new Blob([source], {type: 'text/javascript'})));
  document.head.replaceChildren(Object.assign(document.createElement('style'), {textContent: css}));
  const listeners = new Set();
  let open = 0;
  const soon = (does) => { open += 1; setTimeout(() => { open -= 1; does(); }); };
  window.hacked = undefined; window.sent = []; window.answers = answers;
  window.kernel = (message) => { for (const take of [...listeners]) take(message); };
  const model = {
    get: () => parts, on: (_name, take) => listeners.add(take), off: (_name, take) => listeners.delete(take),
    send: (message) => {
      window.sent.push(message);
      if (message.kind === 'hello') soon(() => window.kernel({kind: 'snapshot', version: 1, seq: 0, parts}));
      const made = message.kind === 'command' ? window.answers[message.name] : undefined;
      for (const reply of made ? [].concat(made) : []) {
        soon(() => window.kernel({kind: 'reply', id: message.id, status: 'ok', line: '', result: null, ...reply}));
      }
    },
  };
  window.listeners = listeners;
  document.body.replaceChildren(document.createElement('div'));
  window.cleanup = module.default.render({model, el: document.body.firstChild});
  do { await new Promise((resolve) => setTimeout(resolve)); } while (open > 0);  // what was asked for has come
}"""

# Timers of a second or more wait in `late` until the test says that the time is over.
HOLD_TIMERS = """() => {
  const [set, clear] = [window.setTimeout, window.clearTimeout];
  window.late = [];
  window.setTimeout = (does, ms, ...rest) => ms >= 1000 ? -window.late.push(does) : set(does, ms, ...rest);
  window.clearTimeout = (id) => { if (id < 0) window.late[-id - 1] = () => {}; else clear(id); };
  window.release = () => { Object.assign(window, {setTimeout: set, clearTimeout: clear}); for (const does of window.late) does(); };
}"""


def bundle(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((BUNDLES / f"{name}.json").read_text(encoding="utf-8"))
    return loaded


def result_of(command: str) -> Any:
    """The first good result of a command in the fixtures."""
    return next(e["reply"]["result"] for e in bundle("commands")["exchanges"] if e["command"]["name"] == command)


@pytest.fixture(scope="module")
def page() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("no Chromium was found (install it, or set NBAGENT_CHROMIUM)")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        page.set_default_timeout(HANG_S * 1000)
        sync_api.expect.set_options(timeout=HANG_S * 1000)
        yield page
        browser.close()


def mount(tab: Any, kind: str, *, parts: Any = None, **answers: Any) -> None:
    source = (STATIC / "common.js").read_text("utf-8") + (STATIC / f"{kind}.js").read_text("utf-8")
    css = (STATIC / "widgets.css").read_text("utf-8")
    state = bundle("state")["parts"] if parts is None else parts
    tab.evaluate(MOUNT, {"source": source, "css": css, "parts": state, "answers": answers})


def sent(page: Any, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = page.evaluate("window.sent")
    return [m for m in found if m.get("name") == name]


def says(page: Any, text: str) -> None:
    sync_api.expect(page.get_by_role("status")).to_contain_text(text)


# ---------------------------------------------------------------- the gauge


def test_the_gauge_shows_the_figures_and_has_a_name_and_values_for_a_screen_reader(page: Any) -> None:
    mount(page, "context")
    assert "48,210 of 200,000 tokens · level 2 of 10 · cache hits 91 % · session cost $0.2140" in page.inner_text("body")
    meter = page.get_by_role("meter", name="Context used")
    assert meter.get_attribute("aria-valuenow") == "48210"
    assert meter.get_attribute("aria-valuemax") == "200000"
    assert page.locator(".nbagent-piece").count() == 5
    assert page.locator(".nbagent-mark").evaluate("e => e.style.left") == "60%"
    assert page.get_by_role("button", name="Undo").is_disabled()


def test_the_two_buttons_stay_beside_each_other_in_a_narrow_notebook(page: Any) -> None:
    mount(page, "context")
    one_row = page.locator("body").evaluate("""(body) => [...Array(40)].map((_, i) => {
      body.style.width = `${300 + 10 * i}px`;
      return new Set([...body.querySelectorAll('.nbagent-row button')].map(b => b.getBoundingClientRect().top)).size;
    })""")
    page.locator("body").evaluate("(body) => { body.style.width = ''; }")
    assert set(one_row) == {1}


def test_of_a_context_that_does_not_fit_the_bar_shows_parts_and_mark_to_one_scale(page: Any) -> None:
    parts = bundle("state")["parts"]
    parts["gauge"] |= {"used_tokens": 40_000, "window_tokens": 10_000, "threshold_tokens": 8_000}
    parts["gauge"]["categories"] = {"messages": 30_000, "tools": 10_000}
    mount(page, "context", parts=parts)
    assert page.locator(".nbagent-piece").evaluate_all("all => all.map(e => e.style.width)") == ["25%", "75%"]
    assert page.locator(".nbagent-mark").evaluate("e => e.style.left") == "20%"
    assert page.get_by_role("meter").get_attribute("aria-valuenow") == "10000"


def test_deltas_move_the_gauge_and_a_missed_one_asks_for_everything(page: Any) -> None:
    held = bundle("deltas")
    mount(page, "context", parts=held["start"])
    for message in held["messages"]:
        page.evaluate("m => kernel(m)", message)
    assert "15,000 of 200,000 tokens" in page.inner_text("body")
    assert page.get_by_role("button", name="Undo").is_enabled()
    hellos = "sent.filter(m => m.kind === 'hello').length"
    assert page.evaluate(hellos) == 1
    page.evaluate("kernel({kind: 'delta', seq: 99, parts: {}})")
    assert page.evaluate(hellos) == 2


def test_the_note_is_shown_for_editing_with_sizes_and_losses_and_then_applied(page: Any) -> None:
    preview = result_of("preview_compaction")
    applied = {"result": {**preview, "applied": True}, "line": "The conversation was compacted."}
    mount(page, "context", preview_compaction={"result": preview}, compact=applied)
    page.get_by_role("button", name="Compact…").click()
    note = page.get_by_role("textbox", name="Hand-off note")
    assert note.input_value() == preview["note"]
    assert note.evaluate("e => e === document.activeElement")
    text = page.inner_text("body")
    assert "49,010 → 15,000 tokens (69 % less)" in text
    assert "Lost: 2" in text
    note.fill("my own note")
    page.get_by_role("button", name="Apply").click()
    says(page, "The conversation was compacted.")
    assert sent(page, "compact")[0]["note"] == "my own note"
    assert page.get_by_role("textbox", name="Hand-off note").count() == 0


def test_escape_leaves_the_conversation_as_it_is(page: Any) -> None:
    mount(page, "context", preview_compaction={"result": result_of("preview_compaction")})
    page.get_by_role("button", name="Compact…").click()
    page.get_by_role("textbox", name="Hand-off note").press("Escape")
    says(page, "Nothing was changed.")
    assert sent(page, "compact") == []


def test_a_refusal_is_said_and_undo_can_be_pressed_again(page: Any) -> None:
    parts = bundle("deltas")["end"]
    mount(page, "context", parts=parts, undo={"status": "error", "line": "it does not fit the window"})
    page.get_by_role("button", name="Undo").click()
    says(page, "it does not fit the window")
    assert page.get_by_role("button", name="Undo").is_enabled()


def test_a_queued_command_says_so_and_then_what_came_of_it(page: Any) -> None:
    parts = bundle("deltas")["end"]
    mount(page, "context", parts=parts, undo={"status": "queued", "line": "A turn runs; this is done when it ends."})
    page.get_by_role("button", name="Undo").click()
    says(page, "A turn runs; this is done when it ends.")
    page.evaluate("kernel({kind: 'reply', id: sent.at(-1).id, status: 'ok', line: 'Taken back.', result: null})")
    says(page, "Taken back.")


def test_without_an_answer_it_says_that_it_waits_for_the_cell(page: Any) -> None:
    parts = bundle("deltas")["end"]
    mount(page, "context", parts={**parts, "turn": {**parts["turn"], "status": "running", "delivers": False}})
    page.evaluate(HOLD_TIMERS)
    page.get_by_role("button", name="Undo").click()
    page.evaluate("release()")
    says(page, "Sent; it is done when the cell ends.")


@pytest.mark.parametrize("turn", [{"status": "idle"}, {"status": "running", "delivers": True}])
def test_what_takes_long_where_it_is_heard_does_not_wait_for_a_cell(page: Any, turn: dict[str, Any]) -> None:
    parts = bundle("deltas")["end"]
    mount(page, "context", parts={**parts, "turn": {**parts["turn"], **turn}})
    page.evaluate(HOLD_TIMERS)
    page.get_by_role("button", name="Compact…").click()
    page.evaluate("release()")  # longer than it waits before it says so
    says(page, "The hand-off note is being written …")


def test_a_preview_that_the_conversation_has_left_behind_cannot_be_applied(page: Any) -> None:
    mount(page, "context", preview_compaction={"result": result_of("preview_compaction")})
    page.get_by_role("button", name="Compact…").click()
    apply = page.get_by_role("button", name="Apply")
    sync_api.expect(apply).to_be_enabled()
    assert "With the note as the model wrote it: 49,010 → 15,000 tokens" in page.inner_text("body")
    page.evaluate("kernel({kind: 'delta', seq: 1, parts: {turn: {status: 'running'}}})")
    sync_api.expect(apply).to_be_disabled()
    page.evaluate("kernel({kind: 'delta', seq: 2, parts: {turn: {status: 'idle'}, tree: {leaf: 'another'}}})")
    sync_api.expect(apply).to_be_disabled()
    says(page, "Out of date: the conversation has moved since")
    page.get_by_role("button", name="Compact…").click()
    sync_api.expect(apply).to_be_enabled()


def test_a_note_that_was_edited_is_kept_beside_a_new_one(page: Any) -> None:
    preview = result_of("preview_compaction")
    mount(page, "context", preview_compaction={"result": preview})
    compact = page.get_by_role("button", name="Compact…")
    compact.click()
    note = page.get_by_role("textbox", name="Hand-off note")
    note.fill("mine")
    compact.click(force=True)  # not offered: a note that was paid for is not written over
    assert len(sent(page, "preview_compaction")) == 1
    assert compact.get_attribute("aria-disabled") == "true"
    page.evaluate("kernel({kind: 'delta', seq: 1, parts: {tree: {leaf: 'another'}}})")
    says(page, "yours is kept")
    compact.click()
    sync_api.expect(note).to_have_value(preview["note"])
    assert page.get_by_label("The other note").inner_text() == "mine"
    page.get_by_role("button", name="Swap the two notes").click()
    assert note.input_value() == "mine"


def test_a_note_that_was_edited_and_cancelled_is_kept_beside_another_one(page: Any) -> None:
    preview = result_of("preview_compaction")
    mount(page, "context", preview_compaction={"result": preview}, compact={"result": result_of("compact")})
    compact = page.get_by_role("button", name="Compact…")
    compact.click()
    note = page.get_by_role("textbox", name="Hand-off note")
    note.fill("mine")
    page.get_by_role("button", name="Cancel").click()
    compact.click()
    sync_api.expect(note).to_have_value(preview["note"])
    assert page.get_by_label("The other note").inner_text() == "mine"
    page.get_by_role("button", name="Apply").click()
    sync_api.expect(note).to_have_count(0)
    compact.click()
    sync_api.expect(note).to_have_value(preview["note"])
    assert page.get_by_label("The other note").count() == 0
    assert [c["again"] for c in sent(page, "preview_compaction")] == [False, True, False]


def test_what_the_kernel_would_refuse_is_not_offered_and_says_why(page: Any) -> None:
    parts = bundle("state")["parts"]
    refused = [{"name": "preview_compaction", "line": "A recording plays."}]
    mount(page, "context", parts={**parts, "session": {**parts["session"], "refused": refused}})
    compact = page.get_by_role("button", name="Compact…")
    sync_api.expect(compact).to_have_accessible_description("A recording plays.")
    assert compact.get_attribute("title") == "A recording plays."
    compact.click(force=True)
    assert sent(page, "preview_compaction") == []


def test_commands_that_wait_have_a_line_each(page: Any) -> None:
    waits = {"status": "queued", "line": "A turn runs; this is done when it ends."}
    mount(page, "context", parts=bundle("deltas")["end"], undo=waits, preview_compaction=waits)
    page.get_by_role("button", name="Compact…").click()
    page.get_by_role("button", name="Undo").click()
    says(page, "Compact: A turn runs")
    says(page, "Undo: A turn runs")
    told = "kernel({kind: 'reply', id: sent.find((m) => m.name === 'undo').id, status: 'error', line: 'none there', result: null})"
    page.evaluate(told)
    says(page, "Undo: none there")
    says(page, "Compact: A turn runs")


def test_a_category_has_the_colour_that_the_report_gives_it(page: Any) -> None:
    parts = bundle("state")["parts"]
    sizes = {"messages": 5, "tool results": 4, "system": 3}
    mount(page, "context", parts={**parts, "gauge": {**parts["gauge"], "categories": sizes}})
    pieces = page.locator(".nbagent-piece").evaluate_all(
        "pieces => pieces.map(p => [p.title.split(':')[0], p.style.background, p.style.width])"
    )
    reference = page.locator(".nbagent-mark")
    wanted = []
    for name in sorted(sizes, key=CATEGORIES.index):
        colour = hue(CATEGORIES.index(name))
        wanted.append([name, reference.evaluate("(m, c) => { m.style.background = c; return m.style.background }", colour)])
    assert [piece[:2] for piece in pieces] == wanted


def test_while_a_question_waits_the_turn_waits_for_the_person(page: Any) -> None:
    parts = bundle("state")["parts"]
    turn = {**parts["turn"], "status": "running", "activity": "waiting for the model"}
    mount(page, "context", parts={**parts, "turn": turn, "approval": {**parts["approval"], "approval": "q1"}})
    assert "waiting for your answer" in page.inner_text("body")
    assert "waiting for the model" not in page.inner_text("body")


def test_what_another_view_asked_for_changes_nothing_here(page: Any) -> None:
    mount(page, "context")
    page.evaluate("kernel({kind: 'reply', id: 'other-1', status: 'error', line: 'not yours', result: null})")
    page.evaluate("kernel({kind: 'future', anything: 1}); kernel(null); kernel('x')")
    assert page.get_by_role("status").inner_text() == ""


# ---------------------------------------------------------------- skills


def test_keys_that_belong_to_an_input_method_do_nothing_else(page: Any) -> None:
    """Enter takes the characters that are being composed, Escape drops them: no search, and no note is given up."""
    press = """(e, [key, isComposing]) => {
      e.dispatchEvent(new KeyboardEvent('keydown', { key, isComposing, bubbles: true }));
    }"""
    mount(page, "memory", search={"result": result_of("search")})
    query = page.get_by_role("searchbox", name="Search memory")
    query.fill("上海")
    query.evaluate(press, ["Enter", True])
    assert sent(page, "search") == []
    query.evaluate(press, ["Enter", False])
    assert [m["query"] for m in sent(page, "search")] == ["上海"]
    mount(page, "context", preview_compaction={"result": result_of("preview_compaction")})
    page.get_by_role("button", name="Compact…").click()
    note = page.get_by_role("textbox", name="Hand-off note")
    note.evaluate(press, ["Escape", True])
    assert note.is_visible()
    note.evaluate(press, ["Escape", False])
    note.wait_for(state="detached")


def test_the_catalog_shows_reason_tokens_and_source_and_switches(page: Any) -> None:
    mount(page, "skills", page={"result": result_of("page")}, set_skill={"line": "plots is off."})
    text = page.inner_text("body")
    assert "9 of 12 visible · 410 tokens in every request · 1 problem, see %skills lint" in text
    assert "Hidden: it needs the program psql" in text
    assert "project · 44 tokens · used 3 times" in text
    switch = page.get_by_role("switch", name="Let the model use plots")
    assert switch.get_attribute("aria-checked") == "true"
    switch.focus()
    page.keyboard.press("Enter")
    says(page, "plots is off.")
    (command,) = sent(page, "set_skill")
    assert (command["skill"], command["on"]) == ("plots", False)


def test_long_words_are_broken_and_each_script_goes_its_own_way(page: Any) -> None:
    found = result_of("page")
    names = ("a" * 64, "数据清洗与可视化以及报告自动生成的综合技能包第一版", "arabic")
    texts = ("averylongword" * 20, "很长的一段没有空格的中文说明，" * 9, "مرحبا بالعالم, CSV!")
    rows = [{**found["rows"][0], "name": n, "description": t, "visible": True} for n, t in zip(names, texts, strict=True)]
    mount(page, "skills", page={"result": {**found, "rows": rows, "total": 3}})
    page.get_by_text("arabic").wait_for()
    listed = page.get_by_role("list", name="Skills")
    page.locator("body").evaluate("(body) => { body.style.width = '360px'; }")
    assert listed.evaluate("(e) => e.scrollWidth <= e.clientWidth")
    ends = """(e) => [0, e.textContent.length - 1].map((at) => {
      const range = document.createRange();
      range.setStart(e.firstChild, at); range.setEnd(e.firstChild, at + 1);
      return range.getBoundingClientRect().left;
    })"""
    first, last = page.get_by_text("CSV!").evaluate(ends)
    assert last < first  # the sentence begins at the right, its last mark stands at the left
    assert first > 300
    page.locator("body").evaluate("(body) => { body.style.width = ''; }")


def test_the_search_asks_the_kernel_and_more_asks_for_the_next_page(page: Any) -> None:
    mount(page, "skills", page={"result": result_of("page")})
    assert page.get_by_role("button", name="More").is_visible()
    page.get_by_role("button", name="More").click()
    page.get_by_role("searchbox", name="Search skills").fill("plot")
    page.wait_for_function("sent.at(-1).text === 'plot'")
    assert [(m["start"], m["text"]) for m in sent(page, "page")] == [(0, ""), (2, ""), (0, "plot")]


def test_a_new_revision_loads_the_page_again(page: Any) -> None:
    mount(page, "skills", page={"result": result_of("page")})
    page.evaluate("kernel({kind: 'delta', seq: 1, parts: {catalog: {revision: 2}}})")
    assert len(sent(page, "page")) == 2


# ---------------------------------------------------------------- memory


def test_a_search_shows_hits_and_a_hit_asks_to_be_opened_at_its_line(page: Any) -> None:
    mount(page, "memory", search={"result": result_of("search")}, read={"result": result_of("read")})
    page.evaluate("document.addEventListener('nbagent:open', e => { window.opened = {...e.detail, refused: null}; window.refuse = e.detail.refused; e.preventDefault(); }, {once: true})")
    page.get_by_role("searchbox", name="Search memory").fill("which port")
    page.keyboard.press("Enter")
    says(page, "1 found")
    hit = page.get_by_role("button", name="memory/2026-03-02.md:4")
    hit.click()
    assert page.evaluate("window.opened") == {"relative": ".nbagent/memory/2026-03-02.md", "line": 4, "refused": None}
    assert sent(page, "read") == []
    page.evaluate("refuse()")  # the server does not show the file
    page.wait_for_selector("pre:not([hidden])")
    assert "port 5433" in page.locator("pre").inner_text()
    hit.click()  # nobody opens files now
    page.wait_for_selector("pre[hidden]", state="attached")


def test_an_empty_search_asks_nothing(page: Any) -> None:
    mount(page, "memory")
    page.get_by_role("button", name="Search").click()
    assert sent(page, "search") == []


# ---------------------------------------------------------------- all of them


@pytest.mark.parametrize("kind", KINDS)
def test_hostile_names_stay_text(page: Any, kind: str) -> None:
    evil = bundle("hostile")
    found = {"result": evil["compaction"]}
    mount(page, kind, parts=evil["parts"], page={"result": evil["catalog"]}, search={"result": evil["search"]},
          preview_compaction=found, read={"result": {"path": "x", "text": "<b>x</b>", "start_line": 1, "total_lines": 1}})  # fmt: skip
    if kind == "context":
        page.get_by_role("button", name="Compact…").click()
    if kind == "memory":
        page.get_by_role("searchbox").fill("x")
        page.keyboard.press("Enter")
        page.locator(".nbagent-link").click()
        page.wait_for_selector("pre:not([hidden])")
    page.wait_for_timeout(50)
    assert page.evaluate("window.hacked") is None
    assert page.locator("img, svg, script, b, a").count() == 0
    if kind != "context":
        assert "<img src=x" in page.inner_text("body")


@pytest.mark.parametrize("kind", KINDS)
def test_a_view_that_goes_leaves_nothing_behind(page: Any, kind: str) -> None:
    mount(page, kind, page={"result": result_of("page")})
    page.evaluate("cleanup()")
    assert page.evaluate("listeners.size") == 0


@pytest.mark.parametrize("kind", KINDS)
def test_every_control_is_reached_by_the_keyboard_and_has_a_name(page: Any, kind: str) -> None:
    mount(page, kind, page={"result": result_of("page")}, parts=bundle("deltas")["end"])
    page.evaluate("document.body.focus()")
    controls = page.locator("button:visible, input:visible").count()
    reached = []
    for _ in range(controls):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.getAttribute('aria-label') || document.activeElement.textContent"))
    assert len(set(reached)) == controls
    assert all(reached)


@pytest.mark.parametrize("kind", KINDS)
def test_colours_come_from_the_theme(kind: str) -> None:
    css = (STATIC / "widgets.css").read_text("utf-8")
    colours = re.findall(r"(?:color|background|border-color):\s*([^;]+);", css)
    assert colours
    assert all(c.startswith(("var(--jp-", "inherit", "none")) for c in colours), colours
    module = (STATIC / f"{kind}.js").read_text("utf-8") + (STATIC / "common.js").read_text("utf-8")
    assert "innerHTML" not in module
    assert not re.search(r"https?://", module)
