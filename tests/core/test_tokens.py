from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbagent.core.tokens import FEATURES, TokenFamily, estimate_tokens, family_of, frame_tokens, text_features

GOLDEN = json.loads((Path(__file__).parent / "golden_tokens.json").read_text("utf-8"))
FAMILIES: tuple[TokenFamily, ...] = get_args(TokenFamily)
CHINESE = "数据分析的第一步是了解数据的结构有多少行多少列每一列是什么类型有没有缺失的值"
PARTS = (*"aoisquechugnzAZ01 .-=\r\n\t_é中😀", "  ", "\n  ", "sch", "as ", "que", "ung", "zu", "aB", "A1", "  9", " .", "a" * 9, "x1" * 13)
texts = st.text(max_size=400)
families = st.sampled_from(FAMILIES)


def errors_by_kind(family: TokenFamily) -> dict[str, float]:
    """Estimated / true - 1 of all texts of a kind together."""
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for row in GOLDEN:
        sums[row["kind"]][0] += estimate_tokens(row["text"], family)
        sums[row["kind"]][1] += row["tokens"][family]
    return {kind: estimated / true - 1 for kind, (estimated, true) in sums.items()}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_mean_error_over_kinds_of_text_is_at_most_five_percent(family: TokenFamily) -> None:
    errors = errors_by_kind(family)
    report = ", ".join(f"{kind} {error:+.1%}" for kind, error in errors.items())
    assert sum(map(abs, errors.values())) / len(errors) <= 0.05, report


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", ["chinese", "japanese", "korean", "cyrillic", "arabic"])
def test_scripts_other_than_latin_are_within_eight_percent(family: TokenFamily, kind: str) -> None:
    assert abs(errors_by_kind(family)[kind]) <= 0.08


@pytest.mark.parametrize("family", FAMILIES)
def test_no_kind_of_text_is_undercounted_by_a_fifth(family: TokenFamily) -> None:
    assert min(errors_by_kind(family).values()) > -0.20, errors_by_kind(family)


@pytest.mark.parametrize("family", ["claude-3", "claude-4.7"])
def test_thirty_thousand_chinese_characters_are_about_thirty_thousand_tokens(family: TokenFamily) -> None:
    """openclaw 160."""
    text = (CHINESE * 1_000)[:30_000]
    assert 27_000 <= estimate_tokens(text, family) <= 33_000


@pytest.mark.parametrize("family", ["claude-3", "claude-4.7"])
def test_ten_thousand_chinese_characters_are_at_most_twelve_thousand_tokens(family: TokenFamily) -> None:
    texts = [row["text"] for row in GOLDEN if row["kind"] == "chinese"]
    assert estimate_tokens(("".join(texts) * 100)[:10_000], family) <= 12_000


@given(texts, texts, families)
def test_text_that_grows_never_costs_noticeably_less(first: str, second: str, family: TokenFamily) -> None:
    whole = estimate_tokens(first + second, family)
    assert whole >= max(estimate_tokens(first, family), estimate_tokens(second, family)) - 6


@given(st.text(alphabet="aZ0 .\n_-中かк가é😀", max_size=200), families)
def test_a_text_and_itself_cost_about_twice_as_much(text: str, family: TokenFamily) -> None:
    assert estimate_tokens(text * 2, family) == pytest.approx(2 * estimate_tokens(text, family), abs=9)


@given(texts, families)
def test_only_no_text_is_no_token(text: str, family: TokenFamily) -> None:
    assert (estimate_tokens(text, family) == 0) == (text == "")
    assert estimate_tokens(text, family) >= 0


@given(st.text(alphabet=st.characters(), max_size=100))
def test_features_are_counts_of_which_none_is_negative(text: str) -> None:
    features = text_features(text)
    assert len(features) == len(FEATURES)
    assert min(features) >= 0
    assert features == text_features(text)


def counted(text: str) -> dict[str, int]:
    """Return the features of ASCII as their names say, counted with patterns."""
    marks = "".join(chr(c) for c in range(128) if not chr(c).isalnum() and chr(c) not in " \n\t_")
    mark = f"[{re.escape(marks)}]"

    def number(pattern: str) -> int:
        return len(re.findall(pattern, text))

    space_runs = number(" {2,}")
    return {
        "lower words": number("[a-z]+") - number("[A-Z][a-z]"),
        "capitalised words": number("[A-Z][a-z]"),
        "upper runs": number("[A-Z]{2,}"),
        "letters past the 7th": sum(len(run) - 7 for run in re.findall("[a-z]{8,}", text)),
        "lower letters": number("[a-z]"),
        "upper letters": number("[A-Z]"),
        "digits": number("[0-9]"),
        "digit runs": number("[0-9]+"),
        "punctuation": number(mark),
        "punctuation runs": number(f"{mark}+"),
        "newlines": number("\n"),
        "spaces in runs": sum(map(len, re.findall(" {2,}", text))),
        "space runs": space_runs,
        "indents": number("\n  "),
        "gaps before digits": number("  (?=[0-9])"),
        "german pieces": sum(text.count(p) for p in ("sch", "ich", "ei", "en ", "ung", "zu")),
        "romance endings": sum(text.count(p) for p in ("a ", "o ", "os ", "as ", "que", "i ")),
        "tabs": number("\t"),
        "underscores": number("_"),
        "letter and digit changes": number("(?<=[A-Za-z])[0-9]") + number("(?<=[0-9])[A-Za-z]"),
        "camel humps": number("[a-z][A-Z]"),
        "digit triples": number("[0-9]{3}"),
        "spaces before punctuation": number(f" {mark}"),
        "long mixed runs": number("[A-Za-z0-9]{24}"),
    }


@given(st.lists(st.sampled_from(PARTS), max_size=60).map("".join) | st.text(alphabet="abO1", max_size=120))
def test_features_are_what_their_names_say(text: str) -> None:
    named = counted(text)
    assert {name: n for name, n in zip(FEATURES, text_features(text), strict=True) if name in named} == named


def test_a_long_text_is_counted_as_its_lines_are() -> None:
    text = "".join(f"  row {i}:\tthe Values are {i * 7}, x_{i} and 'camelCase'.\n\n" for i in range(2_000)) + "中é" * 9_000
    named = counted(text)
    assert {name: n for name, n in zip(FEATURES, text_features(text), strict=True) if name in named} == named


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "\udc80" * 50])
def test_a_lone_surrogate_is_counted(text: str, family: TokenFamily) -> None:
    assert estimate_tokens(text, family) > 0


@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("claude-3-5-sonnet-20241022", "claude-3"),
        ("claude-3-opus-20240229", "claude-3"),
        ("claude-opus-4-20250514", "claude-3"),
        ("claude-opus-4-5-20251101", "claude-3"),
        ("claude-opus-4-6", "claude-3"),
        ("claude-sonnet-4-6", "claude-3"),
        ("claude-haiku-4-5", "claude-3"),
        ("claude-2.1", "claude-3"),
        ("claude-instant-1.2", "claude-3"),
        ("claude-opus-4-7", "claude-4.7"),
        ("claude-opus-4-8", "claude-4.7"),
        ("claude-opus-4.7", "claude-4.7"),
        ("claude-sonnet-5", "claude-4.7"),
        ("claude-sonnet-5-5", "claude-4.7"),
        ("claude-fable-5-1", "claude-4.7"),
        ("claude-mythos-preview", "claude-4.7"),
        ("us.anthropic.claude-opus-4-6-v1:0", "claude-3"),
        ("anthropic/claude-opus-5-5", "claude-4.7"),
        ("gpt-4o-mini", "o200k"),
        ("gpt-4.1", "o200k"),
        ("gpt-5.2", "o200k"),
        ("o3-mini", "o200k"),
        ("gpt-4-turbo", "cl100k"),
        ("gpt-4", "cl100k"),
        ("gpt-3.5-turbo", "cl100k"),
        ("qwen2.5-coder:1.5b", "o200k"),
        ("", "o200k"),
    ],
)
def test_the_family_is_part_of_the_model_id(model: str, family: str) -> None:
    assert family_of(model) == family


def test_every_family_has_a_frame_for_a_message() -> None:
    assert {family: frame_tokens(family) for family in FAMILIES} == {
        "claude-3": 7,
        "claude-4.7": 6,
        "o200k": 4,
        "cl100k": 4,
    }


@pytest.mark.parametrize("family", FAMILIES)
def test_it_is_several_times_nearer_than_a_quarter_of_the_characters(family: TokenFamily) -> None:
    """agents 20, otherwise than there (0007): ASCII by four, one and a half for every other character."""
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for row in GOLDEN:
        wide = sum(not c.isascii() for c in row["text"])
        sums[row["kind"]][0] += (len(row["text"]) - wide) / 4 + 1.5 * wide
        sums[row["kind"]][1] += row["tokens"][family]
    theirs = [abs(estimated / true - 1) for estimated, true in sums.values()]
    ours = [abs(e) for e in errors_by_kind(family).values()]
    assert sum(theirs) > 4 * sum(ours), (sum(theirs) / len(theirs), sum(ours) / len(ours), max(theirs))
