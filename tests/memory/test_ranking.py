"""How hits are ranked: OpenClaw's arithmetic (OC cases 28-47), decay, diversity, the default recipe (OC-M4, OC-M5)."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nbagent.core.ranking import diversify, min_max, overlap, stem
from nbagent.memory.closeness import read_closely
from nbagent.memory.embedders import StaticEmbedder
from nbagent.memory.hits import SNIPPET_CHARS, snippet
from nbagent.memory.notes import daily_date, is_evergreen
from nbagent.memory.openclaw import fts_query, keywords, lexical_boost, mmr_words
from nbagent.memory.pieces import split
from nbagent.memory.recall import (
    PRESETS,
    Question,
    decay_openclaw,
    find_preset,
    merge_openclaw,
    openclaw_candidates,
    openclaw_weights,
    text_score,
)
from nbagent.memory.shelf import Shelf
from nbagent.memory.words import query_terms
from nbagent.notebook.reports.memory import MemoryHits
from nbagent.store.settings_keys import MEMORY_PRESETS
from tests.memory.desk import Desk, WordsEmbedder, snippets

OPENCLAW = PRESETS["openclaw"]


def test_better_ranks_give_strictly_higher_scores() -> None:
    # OC case 28
    scores = [text_score(r) for r in (-4.2, -2.1, -0.5)]
    assert scores == sorted(set(scores), reverse=True)
    assert text_score(float("nan")) == 0.001


def test_the_query_is_quoted_tokens_joined_by_and() -> None:
    # OC case 29
    assert fts_query("hello world_2, foo!") == ["hello", "world_2", "foo"]
    assert fts_query("?!…") == []


def test_an_entry_of_both_lists_is_merged_once() -> None:
    # OC case 31
    (one,) = merge_openclaw({7: 0.2}, {7: 1.0}, {}, replace(OPENCLAW, vector_weight=0.5, text_weight=0.5))
    assert one.score == pytest.approx(0.6)
    assert (one.why.keyword, one.why.vector) == (0.5, 0.1)


def test_weights_are_clamped_and_made_one() -> None:
    # OC case 32
    assert openclaw_weights(2, 1) == (0.5, 0.5)
    assert openclaw_weights(0, 0) == (0.7, 0.3)


def test_keyword_hits_are_rescued_when_nothing_passes() -> None:
    # openclaw.md 2.5 step 7: a pure keyword hit has at most 0.3, below 0.35
    assert [r.id for r in merge_openclaw({1: 0.4}, {2: 0.9}, {}, OPENCLAW)] == [2]


def test_spare_places_go_to_keyword_hits() -> None:
    # bug list 15 (PR 92524)
    assert [r.id for r in merge_openclaw({1: 0.9, 3: 0.1}, {2: 0.9}, {}, OPENCLAW)] == [1, 2]


def test_age_halves_the_score_in_30_days() -> None:
    # OC case 34
    assert decay_openclaw(30, 30) == pytest.approx(0.5)
    assert decay_openclaw(0, 30) == decay_openclaw(-5, 30) == 1
    assert decay_openclaw(9_500, 30) < 0.001


def seed(desk: Desk) -> list[tuple[str, float]]:
    memory = desk.open(WordsEmbedder("port"), preset="openclaw@seed")
    memory.recipe = replace(memory.recipe, min_score=0.0)
    return [(h.path.removeprefix(".nbagent/"), round(h.why.decay, 3)) for h in memory.search("port", 10)]


def old(path: Path) -> None:
    os.utime(path, (1_262_304_000, 1_262_304_000))  # 2010-01-01


def test_evergreen_notes_do_not_age_whatever_their_files_say(desk: Desk) -> None:
    # OC case 35
    for name in ("MEMORY.md", "memory/projects.md"):
        old(desk.note(name, "- port 1\n"))
    desk.note("memory/2026-01-30.md", "- port 2\n")
    assert dict(seed(desk)) == {"MEMORY.md": 1.0, "memory/projects.md": 1.0, "memory/2026-01-30.md": 0.5}


def test_impossible_dates_age_by_the_files_time_and_lookalikes_never(desk: Desk) -> None:
    # OC case 37
    for name in ("memory/2026-02-31.md", "memory/2026-02-28-notes.md", "memory/sub/2026-02-28.md"):
        old(desk.note(name, f"- port {name}\n"))
    found = dict(seed(desk))
    assert found["memory/2026-02-31.md"] < 0.001
    assert found["memory/2026-02-28-notes.md"] == found["memory/sub/2026-02-28.md"] == 1
    assert daily_date("memory/2026-02-31.md") == ""
    assert not is_evergreen("memory/2026-02-31.md")


def test_openclaws_defaults() -> None:
    # OC case 38
    assert (OPENCLAW.max_results, OPENCLAW.min_score, OPENCLAW.candidates) == (6, 0.35, 4)
    assert (OPENCLAW.mmr, OPENCLAW.half_life_days) == (1, 0)
    assert (openclaw_candidates(6, 4), openclaw_candidates(100, 20), openclaw_candidates(0, 4)) == (24, 200, 1)


TEXTS = {"A": "the port is open", "B": "the port is open", "C": "zebra crossing"}


def by_mmr(scores: dict[str, float], relevance: float) -> list[str]:
    words = {k: mmr_words(t) for k, t in TEXTS.items()}
    return diversify(min_max(scores), lambda a, b: overlap(words[a], words[b]), limit=3, relevance=relevance)


def test_diversity_puts_a_different_text_before_a_copy() -> None:
    # OC case 40
    scores = {"A": 1.0, "B": 0.99, "C": 0.5}
    assert by_mmr(scores, 0.5) == ["A", "C", "B"]
    assert by_mmr(scores, 1) == ["A", "B", "C"]


def test_equal_scores_are_ordered_by_diversity_alone() -> None:
    # OC case 41
    assert by_mmr({"A": 0.7, "B": 0.7, "C": 0.7}, 0.5) == ["A", "C", "B"]


def test_keywords_of_a_question() -> None:
    # OC cases 46, 47
    assert keywords("that thing we discussed about the API") == ["discussed", "api"]
    assert keywords("the of and") == []
    assert "api" in keywords("API를 바꿨다")
    assert "데이터" in keywords("데이터에서")


def test_the_boost_of_keyword_hits_stays_within_one() -> None:
    assert lexical_boost(0.9, "port", "port port port", "memory/port.md") == 1
    assert lexical_boost(0.1, "port", "nothing here", "a.md") < lexical_boost(0.1, "port", "a port", "a.md")


def test_openclaw_without_vectors_falls_back_to_single_keywords(desk: Desk) -> None:
    # openclaw.md 2.10: a seven-word question is answered through one keyword
    desk.note("MEMORY.md", "- postgres runs on the big machine\n")
    assert snippets(desk.open(preset="openclaw"), "which database did we choose, was it postgres")
    assert desk.open(preset="openclaw").search("缓存") == []


def test_openclaws_chunks_and_snippets_begin_at_the_chunk(desk: Desk) -> None:
    desk.note("MEMORY.md", "x " * 600 + "\nneedle\n")
    (hit,) = desk.open(preset="openclaw").search("needle")
    assert hit.snippet == ("x " * 600)[:700]


def test_a_changed_preset_makes_the_index_anew(desk: Desk) -> None:
    desk.note("MEMORY.md", "- alpha\n- beta\n")
    assert desk.open().status().pieces == 2
    assert desk.open(preset="openclaw").status().pieces == 1


@pytest.mark.parametrize("name", ["nbagent", "recipe", "openclaw", "openclaw@seed"])
def test_presets_are_found_by_name(name: str) -> None:
    assert find_preset(name).name == name


def test_every_part_of_the_score_is_in_why(desk: Desk) -> None:
    desk.note("MEMORY.md", "# Ports\n\n- Anna: the port opened in May 2023\n- something else entirely\n")
    hit = desk.open(WordsEmbedder("port", "else")).search("When did Anna say the port opened in May?")[0]
    why = hit.why
    assert hit.score == pytest.approx((why.keyword + why.vector + why.prior) * why.decay, abs=1e-3)
    assert {"piece", "window", "section", "piece_vector", "window_vector", "length", "author", "when"} <= set(why.parts)


def test_month_and_year_in_the_question_prefer_that_days_log(desk: Desk) -> None:
    for day in ("2025-12-03", "2026-01-15", "2026-02-20"):
        desk.note(f"memory/{day}.md", "- ran the benchmark\n- wrote a report\n")
    hits = desk.open().search("which benchmark did we run in January 2026?")
    assert hits[0].date == "2026-01-15"


def test_bounded_decay_and_diversity_can_be_switched_on(desk: Desk) -> None:
    desk.note("memory/2020-01-01.md", "- the port is open\n")
    desk.note("memory/2026-02-28.md", "- the port is open now\n- the port is open now, again\n")
    memory = desk.open()
    memory.recipe = replace(memory.recipe, half_life_days=30.0, mmr=0.5)
    found = {h.path[-13:]: h.why for h in memory.search("port open")}
    assert found["2020-01-01.md"].decay == 0.9
    assert any(h.why.diversity < 0 for h in memory.search("port open"))


def test_the_learned_weights_prefer_an_answer_to_its_question(desk: Desk) -> None:
    desk.note("memory/a.md", "- Ben: Anna, which port did you choose?\n- Anna: 8080, since it was free.\n- Ben: good\n")
    assert snippets(desk.open(), "Which port did Anna choose?")[0].startswith("- Anna: 8080")


def test_equal_texts_are_shown_once(desk: Desk) -> None:
    desk.note("memory/a.md", "- the port is open\n")
    desk.note("memory/b.md", "- the port is open\n")
    assert snippets(desk.open(), "port") == ["- the port is open"]


def test_questions_say_when_and_which_month() -> None:
    asked = Question.of("How long ago, in 2026-03, was it?")
    assert (asked.asks_when, asked.months, asked.years) == (True, {3}, {2026})
    assert asked.matches(3, 2026)
    assert not asked.matches(3, 2025)
    assert not asked.matches(0, 0)
    assert Question.of("what did anna say").names("anna lee")


@pytest.mark.parametrize("terms", [["needle"], ["缓存"], []])
def test_a_snippet_has_at_most_700_characters_around_the_match(terms: list[str]) -> None:
    # OC-M5
    text = "word " * 400 + f"here is the {''.join(terms)} in it " + "tail " * 400
    part = snippet(text, terms)
    assert len(part) <= SNIPPET_CHARS
    assert all(t in part for t in terms)


def test_sign_bits_find_what_the_matrix_finds() -> None:
    chance = np.random.default_rng(0)
    centres = chance.normal(size=(30, 64))
    rows = centres[chance.integers(0, 30, 2_000)] + 0.3 * chance.normal(size=(2_000, 64))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    facts = [(i + 1, 1, "", "text", "", "", rows[i].astype(np.float16).tobytes()) for i in range(2_000)]
    whole, bits = Shelf(facts), Shelf(facts, matrix_pieces=100)
    query = rows[17].astype(np.float32)
    exact, estimated = whole.cosines(query)[0], bits.cosines(query)[0]
    assert exact is not None
    assert estimated is not None
    assert set(np.argsort(-exact)[:10]) == set(np.argsort(-estimated)[:10])
    assert np.abs(exact - estimated).max() < 0.5


def test_a_neighbourhood_has_the_vector_of_its_sum() -> None:
    rows = np.eye(3, dtype=np.float16)
    facts = [(i + 1, 1, "", "abcd", "", "", rows[i].tobytes()) for i in range(3)]
    window = Shelf(facts).cosines(np.array([0, 1, 0], np.float32))[1]
    assert window == pytest.approx([1 / 2**0.5, 1 / 3**0.5, 1 / 2**0.5], abs=1e-3)


def test_pieces_of_other_headings_are_no_neighbours() -> None:
    rows = np.eye(2, dtype=np.float16)
    facts = [(i + 1, 1, f"heading {i}", "abcd", "", "", rows[i].tobytes()) for i in range(2)]
    window = Shelf(facts).cosines(np.array([0, 1], np.float32))[1]
    assert window == pytest.approx([0, 1])


def test_the_settings_know_the_presets() -> None:
    assert set(MEMORY_PRESETS) == set(PRESETS)


def test_words_alike_lift_the_piece_that_says_it_in_other_words(desk: Desk) -> None:
    desk.note("memory/a.md", "- the automobile needs new tyres\n- the garden needs water\n- the report needs a title\n")
    hit = desk.open(StaticEmbedder()).search("what does my car need?")[0]
    assert "automobile" in hit.snippet
    assert "words" in hit.why.parts


def test_pairs_of_words_count_by_stem_and_once_each() -> None:
    texts = {0: "run shoe, run shoe", 1: "shoes run", 2: "ran shoes"}
    close = read_closely("Which running shoes?", (), [0, 1, 2], [[0, 1], [0, 1], [2]], texts, None)
    assert close.pairs.tolist() == [1, 0, 1]
    assert close.words.tolist() == close.covered.tolist() == [0, 0, 0]


def test_words_of_the_pieces_around_cover_a_question_and_names_are_left_out() -> None:
    asked: list[Sequence[str]] = []

    def likeness(words: Sequence[str], texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        asked.append(words)
        found = np.array([[float(w in t.split()) for t in texts] for w in words], np.float32)
        return found, np.array([3.0, 1.0], np.float32)

    texts = {4: "the ports", 5: "is open", 6: "we chose it"}
    close = read_closely("anna port choose", {"anna"}, [5, 6], [[4, 5, 6], [5, 6]], texts, likeness)
    assert asked == [["port", "choose"]]
    assert close.words.tolist() == [0, 0]
    assert close.covered.tolist() == [1, 0.25]


def test_likeness_of_words_is_the_cosine_of_the_most_alike_one() -> None:
    found, weights = StaticEmbedder().likeness(["car", "缓存缓"], ["a car", "an automobile", "", "the garden"])
    assert found[0, 0] == pytest.approx(1, abs=1e-3)
    assert found[0, 0] > found[0, 1] > found[0, 3]
    assert found[0, 2] == 0
    assert weights[0] > 0


def test_where_vectors_tell_nothing_the_weights_without_them_count() -> None:
    recipe = PRESETS["nbagent"]
    assert recipe.seen(1) is recipe
    assert recipe.seen(0).piece == recipe.blind["piece"]
    assert recipe.seen(0.5).piece == pytest.approx((recipe.piece + recipe.blind["piece"]) / 2)
    assert PRESETS["recipe"].seen(0) is PRESETS["recipe"]


def test_pieces_two_before_and_beside_stay_below_one_heading() -> None:
    facts = [(i + 1, 1, "a" if i < 3 else "b", "text", "", "", None) for i in range(5)]
    shelf = Shelf(facts)
    assert shelf.second_after(np.arange(1, 6, dtype=np.float32)).tolist() == [0, 0, 1, 0, 0]
    assert shelf.around([0, 2, 3], 1) == [[0, 1], [1, 2], [3, 4]]
    assert shelf.around([0], 2) == [[0, 1, 2]]


@pytest.mark.parametrize("embedder", ["static", "none"])
@pytest.mark.parametrize(("query", "line"), [("which database did we choose", "- Ana chose Postgres"), ("what was bought", "- Ben buys a lamp")])
def test_irregular_forms_are_found(desk: Desk, embedder: str, query: str, line: str) -> None:
    desk.note("memory/a.md", "- Ana chose Postgres\n- Ben buys a lamp\n- The garden needs water\n")
    assert snippets(desk.open(embedder_name=embedder), query)[0] == line


@pytest.mark.parametrize("query", ["zxqv flurb", "xkcdq", "blorptang wibble", "recipe for pancakes", "lorem ipsum dolor", "?!"])
def test_nonsense_and_what_no_note_is_on_finds_nothing(desk: Desk, query: str) -> None:
    desk.note("MEMORY.md", "- Moved the database from MySQL to Postgres.\n- Redis holds the sessions.\n- Ana checks figures.\n")
    assert snippets(desk.open(embedder_name="static"), query) == []


def test_what_only_stands_far_from_the_word_is_no_hit(desk: Desk) -> None:
    lines = ["The target column is churn.", "Region codes follow ISO.", "The TTL is 30 s.", "Redis holds sessions.", "We deploy on Fridays."]
    desk.note("MEMORY.md", "".join(f"- {line}\n" for line in lines))
    for embedder in ("static", "none"):
        assert snippets(desk.open(embedder_name=embedder), "TTL") == ["- The TTL is 30 s."]


def test_of_a_question_what_stands_beside_its_words_is_told_from_what_holds_them(desk: Desk) -> None:
    desk.note("memory/a.md", "- Ben: Anna, which port did you choose for it?\n- 8080, since nothing was there.\n- good\n")
    hits = desk.open().search("Which port did Anna choose for the new server?")
    beside = {h.snippet: h.why.beside for h in hits}
    assert beside["- Ben: Anna, which port did you choose for it?"] is False
    assert beside["- 8080, since nothing was there."] is True
    assert "no word of the query in it" in repr(MemoryHits("x", hits))


@pytest.mark.parametrize(("query", "line"), [("C#", "- The client is in C#"), ("C++", "- The core is in C++")])
def test_languages_with_signs_in_their_names_are_found(desk: Desk, query: str, line: str) -> None:
    desk.note("memory/a.md", "- The client is in C#\n- The core is in C++\n- Section C is empty\n- The C shell\n")
    for embedder in ("static", "none"):
        assert snippets(desk.open(embedder_name=embedder), query) == [line]


def test_a_word_looked_up_comes_before_its_long_neighbours(desk: Desk) -> None:
    long = "is a long line on many other things, which goes on and on, so that its length counts for much in any ranking"
    desk.note("memory/a.md", f"- This {long}\n- TTL: 30 s\n- That {long}\n\nAnd a paragraph that {long} of them.\n")
    for embedder in ("static", "none"):
        assert snippets(desk.open(embedder_name=embedder), "TTL")[0] == "- TTL: 30 s"
        assert snippets(desk.open(embedder_name=embedder), "what is the TTL?")[0] == "- TTL: 30 s"


@pytest.mark.parametrize("embedder", ["static", "none"])
@pytest.mark.parametrize("words", [1, 2, 3])
def test_in_real_notes_the_one_line_that_holds_all_words_of_a_short_query_comes_first(
    desk: Desk, embedder: str, words: int
) -> None:
    docs = sorted((Path(__file__).parents[2] / "docs").glob("*.md"))
    pieces = [(f.name, p) for f in docs for p in split(f.read_text(encoding="utf-8"), "pieces")]
    for file in docs:
        desk.note(f"memory/{file.name}", file.read_text(encoding="utf-8"))
    stems = [{stem(w) for w in query_terms(p.text)} for _, p in pieces]
    chance = random.Random(words)
    memory = desk.open(embedder_name=embedder)
    first = asked = 0
    while asked < 25:
        name, piece = chance.choice(pieces)
        choice = [w for w in query_terms(piece.text) if w.isalpha() and len(w) > 3]
        query = chance.sample(choice, min(words, len(choice)))
        if len(query) < words or sum(stems_of >= {stem(w) for w in query} for stems_of in stems) != 1:
            continue
        (hit, *_) = memory.search(" ".join(query), 1)
        first += (hit.path, hit.start_line) == (f".nbagent/memory/{name}", piece.start_line)
        asked += 1
    assert first >= 0.8 * asked
