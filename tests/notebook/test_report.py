"""The values that `%agent` and `%context` return, and how they show themselves."""

from __future__ import annotations

import html.parser
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbagent.context.anchors import Anchor
from nbagent.core.errors import Diagnostic
from nbagent.core.messages import ToolCall
from nbagent.notebook.reports.compaction import CompactionReport
from nbagent.notebook.reports.context import (
    CATEGORIES,
    ContextReport,
    RequestReport,
    RequestSegment,
    SessionReport,
    SessionRow,
    SessionsReport,
    ToolRow,
    ToolsReport,
    TurnLogReport,
    TurnNode,
    TurnResult,
    TurnTreeReport,
)
from nbagent.notebook.reports.said import help_of
from nbagent.notebook.reports.tables import Line, Table, as_html, as_markdown, as_text, width

HOSTILE = '<img src=x onerror=alert(1)>"\'|`*_[a](javascript:x)\x1b[31m$\u202e\nnext'


class Tags(html.parser.HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict]] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def context(**changes) -> ContextReport:
    values = {
        "model": "claude-sonnet-5-5", "policy": "nbagent", "window_tokens": 200_000, "threshold_tokens": 120_000, "used_tokens": 12_345, "level": 1,
        "categories": {"messages": 10_000, "system": 2_000, "tool results": 345}, "cache_hit_rate": 0.93, "cost_usd": 0.0123,
    }  # fmt: skip
    return ContextReport(**{**values, **changes})


def turn(number: int, name: str, parent: str | None, **more) -> TurnNode:
    return TurnNode(number=number, turn_id=name, parent=parent, prompt=f"Do {name}", **more)


ALL = [
    context(),
    SessionReport(name="lesson-1", model="m", policy="nbagent", mode="ask", turns=3, stale=1, cost_usd=0.5, journal_path=".nbagent/j.jsonl"),
    TurnTreeReport(turns=(turn(1, "a", None), turn(2, "b", "a", leaf=True))),
    TurnLogReport(turns=(turn(1, "a", None, tokens=1_000),)),
    ToolsReport(mode="ask", tools=(ToolRow(name="python", description="Run code", verdict="ask", tokens=120),)),
    SessionsReport(sessions=(SessionRow(name="lesson-1", turns=3, current=True),)),
    RequestReport(model="m", window_tokens=1_000, request={"model": "m"}, segments=(RequestSegment(name="system", tokens=5, first_lines="You\nare"),)),
]


def hostile() -> list:
    return [
        context(model=HOSTILE, policy=HOSTILE, rot=(HOSTILE,)),
        SessionReport(name=HOSTILE, model=HOSTILE, policy="p", mode="ask", turns=1, journal_path=HOSTILE, diagnostics=(Diagnostic(path=HOSTILE, line=1, cause=HOSTILE, remedy="x"),)),
        TurnTreeReport(turns=(turn(1, HOSTILE, None, cell=HOSTILE, model=HOSTILE),)),
        TurnLogReport(turns=(turn(1, HOSTILE, None, cell=HOSTILE),)),
        ToolsReport(mode=HOSTILE, tools=(ToolRow(name=HOSTILE, description=HOSTILE, verdict="ask"),)),
        SessionsReport(sessions=(SessionRow(name=HOSTILE, turns=3, notebook=HOSTILE),)),
        RequestReport(model=HOSTILE, window_tokens=9, request={}, segments=(RequestSegment(name=HOSTILE, tokens=5, first_lines=HOSTILE),)),
    ]


def test_the_context_report_reads_well_as_text():
    assert repr(context(estimated=True, rot=("2 stale files",))) == "\n".join([
        "context 12,345 of 200,000 tokens (6 %) · level 1 of 10 · estimated",
        "[██░░░░░░░░░░░░░░░░░░░░░░┃░░░░░░░░░░░░░░░]",
        "compaction at 120,000 tokens",
        "category       tokens  of window",
        "────────────────────────────────",
        "system          2,000        1 %",
        "messages       10,000        5 %",
        "tool results      345       <1 %",
        "free          187,655       94 %",
        "model claude-sonnet-5-5 · policy nbagent · cache hits 93 % · this branch cost $0.0123",
        "rot: 2 stale files",
    ])  # fmt: skip


def test_categories_come_in_their_order_and_add_up():
    report = context()
    assert tuple(report.categories) == CATEGORIES
    assert sum(report.categories.values()) == report.used_tokens
    with pytest.raises(ValueError, match="add up to 1 tokens"):
        context(categories={"system": 1})
    with pytest.raises(ValueError, match="unknown categories"):
        context(categories={"sytem": 12_345})


def test_a_full_or_empty_window_breaks_nothing():
    assert "(150 %)" in repr(context(window_tokens=8_230))
    assert "context 0 of" in repr(context(used_tokens=0, categories={}))
    assert "context 12,345 tokens" in repr(context(window_tokens=0))


def test_a_report_without_cost_or_cache_names_neither():
    assert "$" not in repr(context(cost_usd=0.0, cache_hit_rate=None))
    assert "cache" not in repr(context(cost_usd=0.0, cache_hit_rate=None))


@pytest.mark.parametrize("report", ALL, ids=lambda r: type(r).__name__)
def test_every_report_has_the_three_forms_and_no_script(report):
    bundle = report._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/markdown", "text/html"}
    assert bundle["text/plain"] == repr(report)
    assert bundle["text/html"] == report._repr_html_()
    assert "<script" not in bundle["text/html"]
    assert not Tags(bundle["text/html"]).open
    json.dumps(bundle)


@pytest.mark.parametrize("report", hostile(), ids=lambda r: type(r).__name__)
def test_hostile_names_stay_text(report):
    tags = Tags(report._repr_html_())
    assert not tags.open
    assert {t for t, _ in tags.found} <= {"div", "span", "table", "thead", "tbody", "tr", "th", "td", "pre", "details", "summary"}
    assert {a for _, attrs in tags.found for a in attrs} <= {"class", "style", "title"}
    assert "\x1b" not in repr(report)
    outside = re.sub(r"(?ms)^```.*?^```$", "", report._repr_markdown_())
    assert "<img" not in outside
    assert "](java" not in outside


def test_a_tree_goes_straight_down_and_indents_forks():
    turns = (
        turn(1, "a", None),
        turn(2, "b", "a", current=False, stale=True),
        turn(3, "c", "b", current=False),
        turn(2, "d", "a", model="m", cost_usd=0.01, leaf=True, outcome="cut_off"),
    )
    assert repr(TurnTreeReport(turns=turns)).splitlines()[:-1] == [
        "● 1 · a · “Do a”",
        "├─ ○ 2 · b · stale · “Do b”",
        "│  ○ 3 · c · “Do c”",
        "└─ ● 2 · d · m · cut off · $0.0100 · “Do d” · ← here",
    ]


def test_a_tree_of_ten_thousand_turns_is_drawn():
    turns = tuple(turn(i, f"t{i}", f"t{i - 1}" if i else None) for i in range(10_000))
    assert len(repr(TurnTreeReport(turns=turns)).splitlines()) == 10_001


def test_a_cycle_or_a_lost_parent_does_not_hang_the_tree():
    assert "● 1 · a" in repr(TurnTreeReport(turns=(turn(1, "a", "gone"), turn(2, "b", "c"), turn(3, "c", "b"))))


def test_the_request_as_json_is_the_exact_request():
    request = {"model": "m", "messages": [{"role": "user", "content": "é"}]}
    report = RequestReport(model="m", window_tokens=10, request=request, segments=(), as_json=True)
    assert json.loads(repr(report)) == request


def test_a_command_in_a_line_is_set_as_code_and_nothing_in_it_is_html():
    html = as_html([Line(text="make room: `%context compact <b>`; a lone ` stays")])
    assert "<code>%context compact &lt;b&gt;</code>; a lone ` stays" in html
    assert "`%context compact <b>`" in as_text([Line(text="make room: `%context compact <b>`")])


def test_a_listing_is_text_in_columns_and_a_table_elsewhere():
    def undo() -> None:
        """Take it back.

        More.
        """

    listed = help_of("%context", {"undo": undo, "rot": undo}, width=5)
    assert repr(listed) == "%context undo  Take it back.\n%context rot   Take it back."
    assert "<td style=\"text-align:left\">%context undo</td>" in listed._repr_html_()
    assert "| %context rot | Take it back. |" in listed._repr_markdown_()


def test_a_turn_result_is_short_as_text_and_an_answer_as_html():
    result = TurnResult(text="**Hi** " * 50, turn_id="t1", steps=2, tool_calls=(ToolCall(id="c", name="python", input={}),), duration_s=3.3)
    assert len(repr(result)) < 200
    assert "3.3" not in json.dumps(result._repr_mimebundle_())
    assert "<strong>Hi</strong>" in result._repr_html_()
    assert str(result) == result.text


def test_tables_align_wide_characters():
    assert width("数据 a") == 6
    table = Table(head=("name", "n"), rows=(("数据", "1"), ("ab", "10")), numbers=frozenset({1}))
    assert as_text([table]).splitlines()[2:] == ["数据   1", "ab    10"]


def test_a_column_of_chinese_text_is_not_pressed_to_one_letter_a_line():
    rows = (("研究助手", "调查北京的天气，写出一个很长的摘要。", "12"), ("look-at-data", "look at it", "3"))
    drawn = as_html([Table(head=("skill", "for", "tokens"), rows=rows, numbers=frozenset({2}))])
    assert re.findall(r'<th style="([^"]*)"', drawn) == [
        "text-align:left;min-width:4em", "text-align:left;min-width:12em", "text-align:right",
    ]  # fmt: skip
    assert "min-width" not in as_html([Table(head=("skill",), rows=(("look-at-data",),))])


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.text(max_size=20), st.text(max_size=20)), max_size=4))
def test_any_text_fits_in_a_table(rows):
    document = [Table(head=("a", "b"), rows=tuple(rows)), *(Line(text=a) for a, _ in rows)]
    assert not Tags(as_html(document)).open
    assert as_text([document[0]]).count("\n") == len(rows) + 1
    assert as_markdown([document[0]]).count("\n") == len(rows) + 1
    (as_text(document) + as_html(document)).encode()


def test_much_rot_does_not_bury_the_gauge() -> None:
    shown = repr(context(rot=tuple(f"finding {i}" for i in range(15)))).splitlines()
    assert shown[-4:] == ["rot: finding 0", "rot: finding 1", "rot: finding 2", "rot: 12 more; %context rot lists all"]
    assert repr(context(rot=("a", "b", "c"))).splitlines()[-3:] == ["rot: a", "rot: b", "rot: c"]


def test_of_much_that_is_lost_every_kind_is_shown() -> None:
    def lost(kind: str, count: int) -> tuple[Anchor, ...]:
        return tuple(Anchor(kind=kind, text=f"{kind}-{i}", where="e") for i in range(count))

    report = CompactionReport(
        applied=True, reason="", before_tokens=10, after_tokens=5, handoff="", policy="pi",
        lost=(*lost("id", 1_200), *lost("error", 2), *lost("path", 40)),
    )  # fmt: skip
    text = repr(report)
    shown = [line.split()[1] for line in text.splitlines() if line.startswith(("id  ", "error  ", "path  ")) and "-" in line]
    assert shown == [*(f"id-{i}" for i in range(14)), "error-0", "error-1", *(f"path-{i}" for i in range(14))]
    assert "and 1,212 more, see .lost" in text
    assert "1,242" in text
