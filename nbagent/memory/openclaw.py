"""The preset `openclaw`: searching as OpenClaw 2026.5.28 does (openclaw.md 2.5 to 2.7), over the same index."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from nbagent.core.ranking import STOP_WORDS, diversify, min_max, overlap
from nbagent.memory.notes import daily_date, is_evergreen
from nbagent.memory.recall import (
    POOL,
    Ranked,
    Why,
    decay_openclaw,
    merge_openclaw,
    openclaw_candidates,
    text_score,
)  # fmt: skip
from nbagent.memory.shelf import age_days
from nbagent.memory.words import CJK, index_text, normal

if TYPE_CHECKING:
    from nbagent.memory.index_parts import Row
    from nbagent.memory.library import Library

_TOKEN: Final = re.compile(r"\w+")
_CJK_RUN: Final = re.compile(rf"[{CJK}]+")
_MMR_TOKEN: Final = re.compile(rf"[a-z0-9_]+|[{CJK}]")
_PARTICLES: Final = tuple(
    "에서는 으로 에서 에게 까지 부터 은 는 이 가 을 를 의 에 로 와 과 도".split()  # noqa: SIM905
)
_CHATTER: Final = frozenset({"thing", "things", "stuff"})  # of OpenClaw's English stop list, beyond ours


def fts_query(text: str) -> list[str]:
    """Return the tokens that OpenClaw joins with AND: runs of letters, digits and underscores; none gives no query.

    >>> fts_query("hello world_2, foo!"), fts_query("?!")
    (['hello', 'world_2', 'foo'], [])
    """
    return list(dict.fromkeys(_TOKEN.findall(normal(text))))


def keywords(text: str) -> list[str]:
    """Return what is left of a question for searching word by word, without stop words, short words and numbers.

    >>> keywords("that thing we discussed about the API"), keywords("API를 the")
    (['discussed', 'api'], ['api'])
    """
    found: list[str] = []
    for token in _TOKEN.findall(normal(text).lower()):
        parts = [token]
        if _CJK_RUN.search(token):
            latin = re.findall(r"[a-z0-9_]+", token)
            parts = [*latin]
            for run in _CJK_RUN.findall(token):
                stemmed = next((run[: -len(p)] for p in _PARTICLES if run.endswith(p) and len(run) - len(p) >= 2), "")
                parts += [] if latin and run in _PARTICLES else [run, *([stemmed] if stemmed else [])]
        for part in parts:
            if part in STOP_WORDS or part in _CHATTER or part.isdigit() or (part.isascii() and len(part) < 3):
                continue
            found.append(part)
    return list(dict.fromkeys(found))


def search_openclaw(library: Library, query: str, count: int, today: str) -> list[Ranked]:
    """Return what OpenClaw would, best first: candidates of both lists, merged, aged, made diverse."""
    recipe = library.recipe
    limit = openclaw_candidates(count, recipe.candidates)
    vector = library.query_vector(query)
    shelf = library.shelf()
    cosines = shelf.cosines(vector)[0] if vector is not None else None
    if cosines is None:
        return _by_words_only(library, query, limit, today)
    found = library.index.find("piece_words", _expanded(fts_query(query)), limit, every=True)
    text = {i: text_score(-score) for i, score in found}
    near = {int(shelf.ids[s]): float(cosines[s]) for s in _nearest(cosines, shelf.alive, limit)}
    rows = library.index.read.rows(near.keys() | text.keys())
    ranked = merge_openclaw(near, text, _factors(library, rows, today), recipe)
    return _diverse(ranked, rows, recipe.mmr)


def _expanded(tokens: list[str]) -> list[str]:
    """Return tokens as the index has them: a run of CJK as its pairs (OpenClaw's tokenizer would find none of them)."""
    terms: list[str] = []
    for token in tokens:
        parts = index_text(token).split() or [token]
        pairs = [p for p in parts if len(p) == 2 and _CJK_RUN.fullmatch(p)]
        terms += pairs or (parts if _CJK_RUN.search(token) else [token])
    return list(dict.fromkeys(terms))


def _nearest(cosines: Any, alive: Any, limit: int) -> list[int]:
    import numpy as np

    scores = np.where(alive, cosines, -2.0)
    best = np.argsort(-scores, kind="stable")[:limit]
    return [int(s) for s in best if scores[s] > -2.0]


def _by_words_only(library: Library, query: str, limit: int, today: str) -> list[Ranked]:
    """Return hits without vectors: the whole question first, then keyword by keyword, with OpenClaw's boost."""
    index = library.index
    found = dict(index.find("piece_words", _expanded(fts_query(query)), limit, every=True))
    if not found:
        for word in keywords(query) or [query.strip()]:
            for i, score in index.find("piece_words", _expanded(fts_query(word)), limit, every=True):
                found[i] = max(score, found.get(i, 0.0))
    rows = index.read.rows(found)
    factors = _factors(library, rows, today)
    ranked = []
    for i, score in found.items():
        boosted = lexical_boost(text_score(-score), query, rows[i].text, rows[i].file)
        ranked.append(Ranked(id=i, score=boosted * factors[i], why=Why(keyword=boosted, decay=factors[i])))
    return sorted(ranked, key=lambda r: (-r.score, r.id))[:POOL]


def lexical_boost(score: float, query: str, text: str, path: str) -> float:
    """Return OpenClaw's score of a keyword hit where there are no vectors, at most 1 (MM 2699-2712)."""
    wanted = set(fts_query(query.lower()))
    words = _TOKEN.findall(text.lower())
    share = len(wanted & set(words)) / len(wanted) if wanted else 0.0
    density = sum(w in wanted for w in words) / len(words) if words else 0.0
    in_path = sum(w in path.lower() for w in wanted)
    return min(1.0, score + 0.45 * share + 0.2 * density + 0.18 * in_path + min(len(text) / 160, 0.18))


def _factors(library: Library, rows: Mapping[int, Row], today: str) -> dict[int, float]:
    """Return the factor of age: by the date in a daily log's name; evergreen notes keep 1.

    What is neither ages by the time of its file, which the index has.
    """
    half_life = library.recipe.half_life_days
    if half_life <= 0:
        return dict.fromkeys(rows, 1.0)
    return {i: decay_openclaw(age_days(_day(library, row), today), half_life) for i, row in rows.items()}


def _day(library: Library, row: Row) -> str:
    day = daily_date(row.file)
    if day or is_evergreen(row.file):
        return day
    return row.date or library.index.read.file_day(row.file)


def _diverse(ranked: list[Ranked], rows: Mapping[int, Row], relevance: float) -> list[Ranked]:
    if relevance >= 1 or len(ranked) < 2:
        return ranked
    words = {r.id: mmr_words(rows[r.id].text[:700]) for r in ranked}
    scores = min_max({str(r.id): r.score for r in ranked})
    order = diversify(
        scores, lambda a, b: overlap(words[int(a)], words[int(b)]), limit=len(ranked), relevance=max(0.0, relevance)
    )
    by_id = {str(r.id): r for r in ranked}
    kept: list[Ranked] = []
    for key in order:
        near = max((overlap(words[int(key)], words[k.id]) for k in kept), default=0.0)
        kept.append(replace(by_id[key], why=replace(by_id[key].why, diversity=-(1 - relevance) * near)))
    return kept


def mmr_words(text: str) -> frozenset[str]:
    """Return the words by which likeness is told: of Latin letters, and CJK characters and pairs.

    >>> sorted(mmr_words("Cache 缓存"))
    ['cache', '存', '缓', '缓存']
    """
    tokens = _MMR_TOKEN.findall(text.lower())
    pairs = [a + b for a, b in pairwise(tokens) if not a.isascii() and not b.isascii()]
    return frozenset([*tokens, *pairs])
