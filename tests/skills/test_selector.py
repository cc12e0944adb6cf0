"""The right skill among more than two hundred, for requests half of which tempt to another."""

from __future__ import annotations

import pytest

from nbagent.skills.lint import lint
from nbagent.skills.selector import Selector
from tests.skills.builders import Place, skill
from tests.skills.catalog.build import TABLE, cases, write


@pytest.fixture(scope="module")
def catalog(tmp_path_factory):
    place = Place(tmp_path_factory.mktemp("catalog"))
    write(place.workspace)
    return place.load(mode="nbagent")


def test_the_catalog_is_as_large_as_asked_and_half_of_its_requests_are_near_misses():
    assert len(cases()) >= 200
    assert len({c.name for c in cases()}) == len(cases())
    assert sum(bool(c.near) for c in cases()) >= len(cases()) / 2
    assert {c.near for c in cases()} - {""} <= {c.name for c in cases()}


def test_the_right_skill_is_in_the_first_three_for_95_percent(catalog):
    selector = Selector(catalog)
    hits = [c.name in [f.skill.name for f in selector.find(c.request, 3)] for c in cases()]
    near = [h for h, c in zip(hits, cases(), strict=True) if c.near]
    assert sum(hits) / len(hits) >= 0.95
    assert sum(near) / len(near) >= 0.95


def test_requests_that_were_never_tuned_on(catalog):
    """72 % when written: these are other words than the descriptions use, which words alone cannot bridge."""
    rows = [
        line.split("|") for line in (TABLE.parent / "held_out.txt").read_text("utf-8").splitlines() if line[0] != "#"
    ]
    selector = Selector(catalog)
    hits = [name.strip() in [f.skill.name for f in selector.find(request, 3)] for name, request in rows]
    assert len(hits) == 40
    assert sum(hits) / len(hits) >= 0.7


def test_nothing_that_fits_is_an_empty_list(catalog):
    assert Selector(catalog).find("zzz qqq", 3) == ()


def test_the_text_of_a_skill_counts_too(tmp_path):
    place = Place(tmp_path)
    skill(place.workspace / "a", "a", body="How to talk to the zorblax device.\n")
    skill(place.workspace / "b", "b")
    assert [f.skill.name for f in Selector(place.load()).find("zorblax", 3)] == ["a"]


def test_chinese_requests_find_chinese_descriptions(tmp_path):
    place = Place(tmp_path)
    skill(place.workspace / "a", "a", "检查数据泄漏。当模型分数过高时使用。")
    skill(place.workspace / "b", "b", "制作印刷用的图表。")
    assert Selector(place.load()).find("模型有没有数据泄漏", 1)[0].skill.name == "a"


def causes_of(place, **given):
    return "\n".join(str(d) for d in lint(place.load(), **given))


def test_lint_names_what_makes_a_skill_be_chosen_wrongly(tmp_path):
    place = Place(tmp_path)
    skill(place.workspace / "one", "one", "Converts tables from CSV files into Parquet files quickly. Use when asked.")
    skill(place.workspace / "two", "two", "Converts tables from CSV files into Parquet files safely. Use when asked.")
    skill(place.workspace / "vague", "vague", "Helper stuff")
    skill(place.workspace / "long", "long", "Use when asked. " + "many different words about it " * 25)
    skill(place.workspace / "body", "body", "Plots maps. Use when asked.", body="x\n" * 600)
    skill(place.workspace / "huge", "huge", "Sings songs. Use when asked.", body="word " * 5_000)
    skill(place.workspace / "tools", "tools", "Bakes bread. Use when asked.", allowed_tools="Bash Read zap")
    skill(place.workspace / "folder", "other", "Paints walls. Use when asked.")
    text = causes_of(place, tools=("read", "python"))
    for words in (
        "too much like that of 'two'",
        "no words that trigger it",
        "is long",
        "over 500 lines",
        "costs about 6,2",
        "Bash, zap",
        "differ",
    ):
        assert words in text, words


def test_lint_knows_when_a_skill_is_to_be_used_in_other_languages(tmp_path):
    place = Place(tmp_path)
    for name, text in {
        "zh": "清洗表格。当用户提到缺失值时使用。", "ja": "報告書を作成する。ユーザーが報告を求めたときに使う。",
        "ko": "보고서를 작성한다. 사용자가 보고서를 요청할 때 쓴다.",
    }.items():  # fmt: skip
        skill(place.workspace / name, name, text)
    assert "no words that trigger it" not in causes_of(place)
    skill(place.workspace / "vague", "vague", "日本語の報告書")
    assert "no words that trigger it" in causes_of(place)


def test_the_bundled_skills_are_without_fault(tmp_path):
    from nbagent.skills.roots import BUNDLED

    place = Place(tmp_path)
    found = place.load(bundled=BUNDLED)
    assert [s.name for s in found] == ["check-for-leakage", "figure-for-print", "look-at-data"]
    assert lint(found, tools=("read", "python")) == ()
    assert all(s.body_tokens < 1_500 for s in found)
