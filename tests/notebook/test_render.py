"""The picture of a turn as HTML, Markdown and plain text."""

from __future__ import annotations

import html.parser
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbagent.core.effects import Notice, StepBegan, StepEnded, TextDelta, ToolBegan, ToolEnded, TurnBegan, TurnDone
from nbagent.core.messages import text_block
from nbagent.notebook.markdown import is_safe_link, markdown_html, safe_markdown
from nbagent.notebook.render import TurnPicture, bounded, fenced, final_bundle

HOSTILE = "</code></summary></details><script>alert(1)</script><img src=x onerror=alert(1)>\x1b[31m`*_[a](javascript:x)\nnext"
ALLOWED = {"div", "span", "p", "strong", "em", "s", "code", "pre", "details", "summary", "ul", "ol", "li", "table", "thead", "tbody",
           "tr", "th", "td", "h1", "h2", "h3", "h4", "h5", "h6", "a", "hr", "br", "blockquote"}  # fmt: skip


class Tags(html.parser.HTMLParser):
    """Every start tag with its attributes; fails when tags are not nested."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict]] = []
        self.open: list[str] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in ("br", "hr"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def are_safe(self) -> bool:
        names = {t for t, _ in self.found}
        attributes = {a for _, attrs in self.found for a in attrs}
        links = [attrs["href"] for t, attrs in self.found if t == "a"]
        return names <= ALLOWED and attributes <= {"class", "style", "href", "title", "rel", "start"} and all(map(is_safe_link, links))


def picture(*events, replayed: bool = False) -> TurnPicture:
    result = TurnPicture()
    began = TurnBegan(turn="t1", number=1, model="m", window_tokens=200_000, replayed=replayed)
    for event in (began, StepBegan(step=1, context_tokens=12_000, cost_usd=0.0), *events):
        result.add(event)
    return result


def step(text: str, number: int = 1, thinking: str = "") -> StepEnded:
    blocks = [{"type": "thinking", "thinking": thinking, "signature": "s"}] if thinking else []
    blocks += [text_block(text)] if text else []
    return StepEnded(step=number, blocks=tuple(blocks), cut=None, context_tokens=12_345, cost_usd=0.01)


def done(outcome: str = "completed", message: str = "") -> TurnDone:
    return TurnDone(outcome=outcome, message=message, steps=2, context_tokens=12_345, window_tokens=200_000, cost_usd=0.0123, duration_s=3.21)


def tool(status: str = "ok", name: str = "python", summary: str = "df.head()", text: str = "   a\n0  1", code: str = "df.head()") -> list:
    return [
        ToolBegan(call_id="c1", name=name, summary=summary, input={"code": code}),
        ToolEnded(call_id="c1", name=name, summary=summary, status=status, text=text, duration_s=0.52),
    ]


def whole_turn(replayed: bool = False) -> TurnPicture:
    return picture(step("Let me **look**.", thinking="Which column?"), *tool(), step("The mean is `3.5`, it costs $5.", 2), done(), replayed=replayed)


def test_the_whole_turn_as_plain_text():
    assert final_bundle(whole_turn())["text/plain"] == "\n\n".join([
        "[thinking] Which column?",
        "Let me **look**.",
        "[python df.head()] ok",
        "The mean is `3.5`, it costs $5.",
        "step 2 · context 12,345 of 200,000 tokens (6 %) · $0.0123",
    ])  # fmt: skip


def test_the_whole_turn_as_markdown():
    assert final_bundle(whole_turn())["text/markdown"] == "\n\n".join([
        "<details><summary>Thinking</summary>", "Which column?", "</details>",
        "Let me **look**.",
        "<details><summary><code>python</code> <code>df.head()</code> · ok · 0.5 s</summary>",
        "```python\ndf.head()\n```", "```\n   a\n0  1\n```", "</details>",
        "The mean is `3.5`, it costs $5.",
        "<small>step 2 · context 12,345 of 200,000 tokens (6 %) · <span>$</span>0.0123 · 3.2 s</small>",
    ])  # fmt: skip


def test_the_whole_turn_as_html():
    shown = re.sub(r' style="[^"]*"', "", final_bundle(whole_turn())["text/html"])
    assert shown == "\n".join([
        '<div class="nbagent-turn">',
        "<details><summary><span>Thinking</span></summary>",
        "<div><p>Which column?</p>", "</div>",
        "</details>",
        "<p>Let me <strong>look</strong>.</p>", "",
        "<details><summary><code>python</code> <span>df.head()</span> · <span>ok</span> <span>· 0.5 s</span></summary>",
        "<pre><code>df.head()</code></pre>",
        "<pre>   a\n0  1</pre>",
        "</details>",
        "<p>The mean is <code>3.5</code>, it costs <span>$</span>5.</p>", "",
        "<div>step 2 · context 12,345 of 200,000 tokens (6 %) · <span>$</span>0.0123 · 3.2 s</div>",
        "</div>",
    ])  # fmt: skip


def test_plain_text_holds_no_time_and_a_replayed_turn_none_anywhere():
    assert "3.2 s" not in final_bundle(whole_turn())["text/plain"]
    replayed = json.dumps(final_bundle(whole_turn(replayed=True)))
    assert "3.2 s" not in replayed
    assert "0.5 s" not in replayed


@pytest.mark.parametrize(("status", "word"), [("ok", "ok"), ("error", "failed"), ("refused", "refused"), ("interrupted", "interrupted"), ("not_run", "not run")])
def test_a_tool_says_how_it_ended(status: str, word: str):
    bundle = final_bundle(picture(*tool(status), done()))
    assert f"[python df.head()] {word}" in bundle["text/plain"]
    assert f">{word}</span>" in bundle["text/html"]
    assert f"· {word}" in bundle["text/markdown"]


def test_a_tool_that_never_ended_is_interrupted():
    assert "[python df.head()] interrupted" in final_bundle(picture(tool()[0], done("stopped", "Stopped.")))["text/plain"]


def test_a_refused_call_that_never_began_has_a_line():
    assert "[python df.head()] refused" in final_bundle(picture(tool("refused")[1], done()))["text/plain"]


def test_a_failed_turn_says_why_in_every_form():
    for text in final_bundle(picture(step("Half"), done("error", "the provider refused: <b> & 'x'\nsecond"))).values():
        assert "the provider refused" in text
        assert "<b>" not in text.replace("<b> & 'x'", "") or "&lt;b&gt;" in text


def test_a_quiet_turn_is_its_answer_and_its_failure():
    events = [step("Answer", thinking="hm"), *tool(), Notice(text="note")]
    assert final_bundle(picture(*events, done()), quiet=True)["text/plain"] == "Answer"
    assert final_bundle(picture(*events, done("limit", "limit reached")), quiet=True)["text/plain"] == "Answer\n\nlimit reached"


@pytest.mark.parametrize("where", ["text", "name", "summary", "result", "code", "thinking", "notice", "failure"])
def test_hostile_data_stays_text(where: str):
    events = {
        "text": [step(HOSTILE)],
        "name": tool(name=HOSTILE),
        "summary": tool(summary=HOSTILE),
        "result": tool(text=HOSTILE),
        "code": tool(code=HOSTILE),
        "thinking": [step("x", thinking=HOSTILE)],
        "notice": [Notice(text=HOSTILE)],
        "failure": [],
    }[where]
    bundle = final_bundle(picture(*events, done("error", HOSTILE if where == "failure" else "broke")))
    assert Tags(bundle["text/html"]).are_safe()
    assert "\x1b" not in json.dumps(bundle)
    outside = re.sub(r"(?ms)^```.*?^```$", "", bundle["text/markdown"])
    assert not re.search(r"<(script|img)", outside)
    assert outside.count("</details>") == outside.count("<details>")


PIECES = [*"<>\"'&`*_[]()!\\$#-|~:/ \n\t\x1b\x00ab", "javascript:", "http://e", "<img ", "data:", "\ud800", "```", "](", "\n\n"]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=80).map("".join))
def test_no_text_of_a_model_makes_an_unsafe_tag(text: str):
    bundle = final_bundle(picture(step(text, thinking=text), *tool(text=text, name=text, summary=text, code=text), done("error", text)))
    assert Tags(bundle["text/html"]).are_safe()
    for form in bundle.values():
        form.encode()


def test_links_lead_to_safe_places_only_and_pictures_are_not_loaded():
    shown = markdown_html("[a](javascript:alert(1)) [b](data:text/html,x) [c](https://x.y) ![p](https://evil/?secret) <https://x.y>")
    assert [attrs["href"] for t, attrs in Tags(shown).found if t == "a"] == ["https://x.y", "https://evil/?secret", "https://x.y"]
    assert "<img" not in shown


def test_markdown_for_a_front_end_loads_nothing_and_keeps_code():
    text = "![p](https://evil/?s) <img src=https://evil> `<b>` <https://ok.example>\n\n```html\n<img src=x> ![a](b)\n```\n"
    safe = safe_markdown(text)
    assert "![" not in safe.split("```")[0]
    assert "<img" not in safe.split("```")[0]
    assert "<https://ok.example>" in safe
    assert safe.endswith("```html\n<img src=x> ![a](b)\n```\n")


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("It costs $5 and $6.", "It costs @5 and @6."),
        ("$E = mc^2$ costs $5 a line\nor $6", "$E = mc^2$ costs @5 a line\nor @6"),
        ("US$ 5, US$ 6", "US@ 5, US@ 6"),
        ("| $5 | $6 |\n|---|---|\n| $x$ | $7 |", "| @5 | @6 |\n|---|---|\n| $x$ | @7 |"),
        ("`$HOME` and ``a`$`` $5", "`$HOME` and ``a`$`` @5"),
        ("\\$5, [a](b$c) and https://e.org/$d, $5", "@5, [a](b$c) and https://e.org/$d, @5"),
        ("\\(a $ b$\\) $5", "\\(a $ b$\\) @5"),
        ("$$\na + b\n$$\n\n$5 $6", "$$\na + b\n$$\n\n@5 @6"),
        ("```sh\n$ ls $a\n```\n\nonly $5", "```sh\n$ ls $a\n```\n\nonly $5"),
    ],
)
def test_a_dollar_that_is_no_math_is_none_for_a_front_end_either(text: str, safe: str) -> None:
    """JupyterLab takes what stands between any two dollars for math; one alone in a paragraph does nothing."""
    assert safe_markdown(text) == safe.replace("@", "<span>&#36;</span>")


def test_math_is_left_to_the_front_end_and_money_is_no_math():
    shown = markdown_html("$a_1*b*c$ and \\(x_2\\), but $5 and $10\n\n$$\nx\n= y\n$$\n")
    assert "$a_1*b*c$ and \\(x_2\\)" in shown
    assert "<span>$</span>5 and <span>$</span>10" in shown
    assert "<h1>" not in shown


def test_who_logs_everything_does_not_read_how_markdown_is_parsed(caplog: pytest.LogCaptureFixture):
    with caplog.at_level("DEBUG"):
        markdown_html("# a\n\n- b\n\n```\nc\n```")
        safe_markdown("![a](b)\n\n$5 $6")
    assert caplog.records == []


def test_code_has_the_colours_of_the_editor():
    shown = markdown_html("```python\nimport os\n```")
    assert 'style="color:var(--jp-mirror-editor-keyword-color,inherit)">import</span> os' in shown
    assert '<code class="language-nosuchlang">a&lt;b\n</code></pre>\n' in markdown_html("```nosuchlang\na<b\n```")


@pytest.mark.parametrize("text", ["```py\nx\n```", "    x\n", "- a\n\n  ~~~\n  x\n  ~~~"])
def test_a_code_block_has_room_around_it(text: str):
    (pre,) = [attrs for tag, attrs in Tags(markdown_html(text)).found if tag == "pre"]
    assert "margin" in pre["style"]


def test_long_results_are_bounded_and_say_what_is_missing():
    assert bounded("x" * 10_000).count("x") == 4_000
    assert "6,000 characters left out" in bounded("x" * 10_000)
    assert len(final_bundle(picture(*tool(text="y" * 1_000_000), done()))["text/html"]) < 8_000


def test_a_fence_is_longer_than_the_backticks_in_it():
    assert fenced("a ```` b").startswith("`````\n")


def test_a_cut_fence_does_not_swallow_the_status_line():
    bundle = final_bundle(picture(step("```py\nx = 1"), done("stopped", "Stopped.")))
    assert "x = 1\n```\n\n**Stopped.**" in bundle["text/markdown"]


def test_wide_characters_stay_as_they_are():
    bundle = final_bundle(picture(step("平均值是 **3.5**"), done()))
    assert "平均值是 <strong>3.5</strong>" in bundle["text/html"]
    assert "平均值是" in bundle["text/plain"]


def test_input_of_any_shape_is_shown():
    for given_input in (None, {}, [], "text", {"path": "a.csv", "limit": 3}, {"code": 5}, {"code": "x", "timeout_s": 3}, {"a": {1, 2}}):
        final_bundle(picture(ToolBegan(call_id="c", name="t", summary="", input=given_input), done()))


@pytest.mark.parametrize("text", ["[" * 5_000, "*a_" * 5_000, "> " * 5_000, "`a``" * 5_000, "\\(" * 20_000, "$$" * 20_001, "$a " * 20_000, "- " * 3_000, "<" * 20_000, "|a" * 5_000 + "\n|-"])
@pytest.mark.timeout(60)
def test_hostile_markdown_is_rendered(text: str):
    assert final_bundle(picture(step(text), done()))["text/html"]


def test_text_of_deltas_and_of_the_whole_reply_is_the_same_picture():
    streamed = picture(TextDelta(index=0, text="Hel"), TextDelta(index=0, text="lo"), step("Hello"), done())
    assert final_bundle(streamed) == final_bundle(picture(step("Hello"), done()))


@pytest.mark.parametrize("exporter", ["html", "markdown"])
def test_an_exported_notebook_reads_well_without_nbagent(exporter: str):
    nbformat = pytest.importorskip("nbformat")
    nbconvert = pytest.importorskip("nbconvert")
    v4 = nbformat.v4
    output = v4.new_output("display_data", data=final_bundle(whole_turn()))
    frozen = v4.new_output("display_data", data={k: v for k, v in final_bundle(whole_turn()).items() if k != "text/html"})
    notebook = v4.new_notebook(cells=[v4.new_code_cell("%%agent\nlook", outputs=[output, frozen], id="a1")])
    nbformat.validate(notebook)
    body, _ = nbconvert.get_exporter(exporter)().from_notebook_node(notebook)
    assert body.count("The mean is") == 2
    assert "df.head()" in body
    assert "Error displaying widget" not in body
    assert "step 2 · context 12,345 of 200,000 tokens (6 %)" in body
    if exporter == "html":
        assert "<strong>look</strong>" in body
