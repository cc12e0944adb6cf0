"""Words, BM25 and the arithmetic of rankings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbagent.core.ranking import Bm25, Words, decay, diversify, fuse, min_max, overlap, stem

TEXTS = st.lists(st.text(alphabet="abc 的猫 _A1", max_size=30), max_size=12)


def found(texts: list[str], query: str, limit: int = 5) -> list[int]:
    index = Bm25()
    for text in texts:
        index.add(text)
    return [hit.index for hit in index.search(query, limit)]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("cache", "caching"),
        ("tries", "try"),
        ("tests", "test"),
        ("running", "run"),
        ("configuration", "configurations"),
    ],
)
def test_forms_of_a_word_have_one_stem(one: str, other: str) -> None:
    assert stem(one) == stem(other)


@pytest.mark.parametrize("word", ["class", "status", "thing", "bed", "ключи", "v2"])
def test_a_word_without_an_ending_stays(word: str) -> None:
    assert stem(word) == word


def test_an_identifier_gives_itself_and_its_parts() -> None:
    assert Words().terms("handleAuth") == ["handleauth", "handl", "auth"]
    assert "df_train" in Words().terms("df_train.v2")


def test_cjk_gives_characters_and_pairs() -> None:
    assert Words().terms("数据库") == ["数", "据", "库", "数据", "据库"]


def test_a_search_needs_only_one_of_the_words() -> None:
    assert found(["the database is slow", "cats sleep"], "why does my database crash on tuesdays") == [0]


def test_stop_words_find_nothing() -> None:
    assert found(["the cat and the dog"], "what is the") == []


def test_a_rare_word_outweighs_a_common_one() -> None:
    assert found(["common words", "common thing", "common needle"], "common needle")[0] == 2


def test_equal_documents_come_in_the_order_added() -> None:
    assert found(["same text", "same text", "same text"], "text") == [0, 1, 2]


def test_chinese_is_found_inside_a_longer_run() -> None:
    assert found(["今天天气很好", "修复了数据库连接的错误"], "数据库错误") == [1]


def test_documents_from_a_number_on_can_be_left_out() -> None:
    index = Bm25()
    for text in ("alpha", "beta", "alpha beta"):
        index.add(text)
    assert [h.index for h in index.search_terms(["alpha"], 5, below=2)] == [0]
    assert index.search_terms(["alpha"], 5, below=0) == []


def test_scores_are_stretched_weighted_and_summed() -> None:
    assert fuse([(0.7, {"a": 10.0, "b": 5.0}), (0.3, {"b": 1.0, "c": 0.0})]) == {"a": 0.7, "b": 0.3, "c": 0.0}
    assert min_max({"a": 3.0}) == {"a": 1.0}
    assert min_max({}) == {}


def test_diversity_passes_over_what_is_nearly_the_same() -> None:
    words = {"a": frozenset("xy"), "b": frozenset("xy"), "c": frozenset("z")}
    chosen = diversify({"a": 1.0, "b": 0.9, "c": 0.6}, lambda m, n: overlap(words[m], words[n]), limit=2)
    assert chosen == ["a", "c"]


def test_age_lowers_a_score_only_to_the_floor() -> None:
    assert decay(0, half_life_days=30) == 1.0
    assert decay(10_000, half_life_days=30) == 0.9
    assert decay(30, half_life_days=30, floor=0.0) == 0.5


@given(TEXTS, st.text(alphabet="abc 的猫", max_size=12), st.integers(1, 4))
def test_a_search_is_sorted_bounded_and_the_same_again(texts: list[str], query: str, limit: int) -> None:
    index = Bm25()
    for text in texts:
        index.add(text)
    hits = index.search(query, limit)
    assert len(hits) <= limit
    assert [h.score for h in hits] == sorted((h.score for h in hits), reverse=True)
    assert hits == index.search(query, limit)


@given(st.dictionaries(st.text(max_size=3), st.floats(-10, 10), max_size=8))
def test_stretched_scores_lie_between_0_and_1(scores: dict[str, float]) -> None:
    assert all(0 <= v <= 1 for v in min_max(scores).values())
