"""What counts as an anchor, and whose."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbagent.context.anchor_index import AnchorIndex
from nbagent.context.anchors import Extractor, Key, error_lines, is_rule, said, sentences_of
from nbagent.core.entries import ToolResult
from nbagent.core.messages import text_block
from tests.core.builders import call, calls, end, note, path, reply, result, says, start, steer, thinks, user


def words(text: str) -> list[Key]:
    return list(Extractor().words(text))


def constraints(text: str) -> list[str]:
    return [text for kind, text in sentences_of(text, "person") if kind == "constraint"]


def ran(text: str, name: str = "shell", status: str = "ok") -> ToolResult:
    return ToolResult(call_id="a", name=name, content=(text_block(text),), status=status)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("path", "/srv/app/src/main.py"),
        ("path", "src/nbagent/core/view.py"),
        ("path", "../lib/util"),
        ("path", r"C:\data\sales\may.csv"),
        ("file", "train.parquet"),
        ("url", "https://example.org/a/b?x=1"),
        ("id", "3f30550"),
        ("id", "#151"),
        ("id", "JIRA-4411"),
        ("id", "HAT083"),
        ("id", "mia_li_3668"),
        ("id", "7303a99b-16a3-4bd6-b212-1acc3003f158"),
        ("num", "$47,500"),
        ("num", "250 ms"),
        ("num", "12.5%"),
        ("num", "2024-05-20"),
        ("num", "18937"),
        ("ident", "build_view"),
        ("ident", "handleAuth"),
        ("ident", "MAX_TOKENS"),
        ("ident", "SessionTree"),
    ],
)
def test_a_word_is_an_anchor_of_its_kind(kind: str, text: str) -> None:
    assert (kind, text) in words(f"we saw {text}, and went on")


@pytest.mark.parametrize("text", ["and so it goes", "a/b", "3 of 4", "x = y", "I think so.", "A" * 5000])
def test_ordinary_text_has_no_anchors(text: str) -> None:
    assert words(text) == []


def test_a_path_keeps_no_punctuation_and_no_line_number() -> None:
    assert words("see `/srv/app/main.py:12`.") == [("path", "/srv/app/main.py")]


def test_compact_json_is_taken_apart() -> None:
    found = words('{"user_id":"mia_li_3668","price":1234,"file":"/data/a/b.csv"}')
    assert [text for _, text in found] == ["user_id", "mia_li_3668", "1234", "/data/a/b.csv"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("读取/data/a.csv，然后继续", [("path", "/data/a.csv")]),
        ("读取 /data/销售.csv文件里的数据", [("path", "/data/销售.csv")]),
        ("在~/data/raw目录下找", [("path", "~/data/raw")]),
        ("打开C:\\数据\\2026年销售.xlsx。", [("path", "C:\\数据\\2026年销售.xlsx")]),
        ("结果在数据/销售.csv里", [("path", "结果在数据/销售.csv")]),
        ("ファイル/home/u/データ.csvを読む", [("path", "/home/u/データ.csv")]),
        ("결과는 /data/out.csv에 user_id로 저장", [("path", "/data/out.csv"), ("ident", "user_id")]),
        ("把sales_2026.csv和a.csv合并", [("file", "sales_2026.csv"), ("file", "a.csv")]),
        ("请看https://example.com/a?x=1，然后运行", [("url", "https://example.com/a?x=1")]),
        ("见https://example.com/路径/文件.csv。", [("url", "https://example.com/路径/文件.csv")]),
        ("访问https://example.com/a然后登录", [("url", "https://example.com/a")]),
        ("阈值是0.85，超过1200元的订单", [("num", "1200元"), ("num", "0.85")]),
        ("共1,234 条记录，温度37.5度", [("num", "1,234 条"), ("num", "37.5度"), ("num", "1,234")]),
        ("日付は2026-11-30です", [("num", "2026-11-30")]),
        ("列user_id的缺失值用handleAuth函数", [("ident", "user_id"), ("ident", "handleAuth")]),
        ("订单号ORD-2024-001已发货", [("id", "ORD-2024-001")]),
    ],
)
def test_words_are_found_where_no_blanks_stand_between_them(text: str, found: list[Key]) -> None:
    assert words(text) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("(https://en.wikipedia.org/wiki/Python_(language))", ["https://en.wikipedia.org/wiki/Python_(language)"]),
        ("see [it](https://x.com/a), <https://x.com/b> or `https://x.com/c`.",
         ["https://x.com/a", "https://x.com/b", "https://x.com/c"]),
        ("https://x.com/a?b=1&c=%20#top; done!", ["https://x.com/a?b=1&c=%20#top"]),
        ("s3://bucket/data/x.parquet and gs://b/k", ["s3://bucket/data/x.parquet", "gs://b/k"]),
        ("postgresql://host:5432/db, file:///home/u/x.csv", ["postgresql://host:5432/db", "file:///home/u/x.csv"]),
    ],
)  # fmt: skip
def test_a_url_is_whole_and_takes_nothing_with_it(text: str, found: list[str]) -> None:
    assert words(text) == [("url", url) for url in found]


@pytest.mark.parametrize(
    "path",
    [
        r"C:\Users\Jan Meier\my data.csv", r"\\server\share\f.txt", "C:\\\\Users\\\\me\\\\d.csv",
        "/home/u/My Drive/x y.ipynb", "D:/a/b.csv",
    ],
)  # fmt: skip
def test_paths_of_windows_and_paths_with_blanks_are_whole(path: str) -> None:
    assert [text for kind, text in words(f'read "{path}" now') if kind == "path"] == [path]


@pytest.mark.parametrize(
    "number",
    ["37.5°C", "25℃", "15 mg", "10 km/h", "234,56 €", "1e-5", "1.5e6", "2026-11-30T12:00:00Z", "3.5万元", "99‰"],
)
def test_numbers_keep_their_units(number: str) -> None:
    assert ("num", number) in words(f"about {number} of it")


def test_a_long_listing_counts_only_so_far() -> None:
    assert len(words(" ".join(f"some_name_{chr(97 + i % 26)}{chr(97 + i // 26)}x" for i in range(600)))) == 400


@pytest.mark.parametrize(
    "sentence",
    [
        "You must never push to main.",
        "Only use pandas for this.",
        "Bitte nur die Tests ändern.",
        "Il ne faut jamais effacer ce dossier.",
        "Nunca borres los datos.",
        "必须保留原始文件。",
        "请勿修改配置文件。",
        "元のファイルは絶対に消さないでください。",
        "원본 파일은 절대 지우지 마세요.",
    ],
)
def test_a_constraint_is_found_in_many_languages(sentence: str) -> None:
    assert constraints(sentence) == [sentence]


def test_code_and_chat_are_no_constraints() -> None:
    assert constraints("```\nyou must not see this\n```\nThanks, looks good so far!") == []


def test_a_question_and_a_request_are_no_rules() -> None:
    assert is_rule("Never touch the raw data.")
    assert not is_rule("I want a plot of it.")
    assert not is_rule("Should we only use polars?")


def test_only_the_person_gives_constraints_and_anyone_decides() -> None:
    assert list(sentences_of("You must wait. We decided on polars.", "model")) == [
        ("decision", "We decided on polars.")
    ]


def test_an_error_line_of_a_run_counts_but_not_one_in_a_file() -> None:
    text = "working\nValueError: bad shape (3, 4)\ndone"
    assert error_lines(ran(text), text) == ["ValueError: bad shape (3, 4)"]
    assert error_lines(ran(text, name="read"), text) == []


def test_a_failed_result_has_at_least_its_last_line() -> None:
    text = "first\nno such column: total"
    assert error_lines(ran(text, name="edit", status="error"), text) == ["no such column: total"]


def test_columns_of_an_inspected_table_are_anchors() -> None:
    text = "DataFrame, 3 rows x 2 columns; index: RangeIndex\n  customer id: int64\n  total: float64, 1 null\nfirst 3 rows:"
    index = AnchorIndex(path(start(), user("hi"), calls(), result(text=text)))
    assert [key for key in index.keys(4) if key[0] == "column"] == [("column", "customer id"), ("column", "total")]


def test_thinking_is_not_said_and_arguments_are_said_as_written() -> None:
    body = reply(
        thinks("secret_plan"), "ok", call(input={"code": 'open("a\\b")\nx_y = 1', "n": [1, {"k": "deep_val"}]})
    )
    assert said(body).text == 'ok\nopen("a\\b")\nx_y = 1\n1\ndeep_val'


def test_a_request_is_over_when_its_turn_was_completed_but_a_rule_stands() -> None:
    entries = path(
        start(), user("I want a plot of total_sales."), says("done"), end(),
        start("t2"), user("Never use seaborn. Please go on."), says("ok"),
    )  # fmt: skip
    index = AnchorIndex(entries)
    standing = {
        text: index.stands(("constraint", text), at, len(index)) for (_, text), at in index.sentences(7).items()
    }
    assert standing == {"I want a plot of total_sales.": False, "Never use seaborn.": True, "Please go on.": True}


def test_an_error_is_over_when_the_same_command_succeeded_since() -> None:
    def run(id: str, command: str) -> object:
        return reply(call("shell", id, {"command": command}), stop="tool_use")

    entries = path(
        start(), user("hi"),
        run("a", "make"), result("a", "KeyError: total", name="shell"),
        run("b", "ls"), result("b", "ValueError: other", name="shell"),
        run("c", "make"), result("c", "all good", name="shell"),
    )  # type: ignore[arg-type]  # fmt: skip
    index = AnchorIndex(entries)
    assert [index.stands(key, at, 8) for key, at in index.sentences(8).items()] == [False, True]
    assert index.stands(("error", "KeyError: total"), 3, 6)


def test_needed_is_what_is_written_again_before_it_is_shown_again() -> None:
    entries = path(
        start(), user("look"), calls(), result(text="first_name second_name third_name"),
        says("I use first_name"), calls(id="b"), result("b", "second_name"), says("second_name"), says("first_name"),
    )  # fmt: skip
    needed = AnchorIndex(entries).needed(4)
    assert {key: (need.weight, need.position) for key, need in needed.items()} == {("ident", "first_name"): (2, 4)}


def test_steering_by_the_person_is_the_persons() -> None:
    assert said(steer("use v2")).author == "person"


@given(st.text(max_size=300))
def test_every_anchor_is_in_its_text(text: str) -> None:
    assert all(anchor in text for _, anchor in Extractor().words(text))


@given(st.lists(st.text(alphabet="ab_/.19 #", max_size=40), max_size=6))
def test_an_index_that_grows_equals_one_made_at_once(texts: list[str]) -> None:
    entries = path(start(), *(user(t) for t in texts))
    grown = AnchorIndex()
    for entry in entries:
        grown.extend([entry])
    assert grown.anchors == AnchorIndex(entries).anchors


def test_the_day_that_the_tail_tells_is_no_anchor_and_a_day_in_a_result_is() -> None:
    tail = path(note("Today is 2026-11-30; the notebook has 12,345 rows."))[0]
    told = Extractor().entry(tail, said(tail.body))
    assert ("num", "2026-11-30") not in told
    assert ("num", "12,345") in told
    shown = path(result("a", text="departs 2026-12-24"))[0]
    assert ("num", "2026-12-24") in Extractor().entry(shown, said(shown.body))
