"""Order: what becomes of ranked pieces before they are shown: equal texts once, diversity, contradictions. PURE."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from nbagent.core.ranking import diversify, min_max, overlap
from nbagent.memory.claims import Claim
from nbagent.memory.pieces import date_in
from nbagent.memory.words import query_terms

if TYPE_CHECKING:
    from nbagent.memory.index_parts import Row
    from nbagent.memory.recall import Ranked

PARTNERS: Final = 200  # better hits among which a contradicting one is looked for
PARTNER_SHARE: Final = 0.5  # of the score of the hit that it contradicts; what is found worse is about something else
SHARED_WORDS: Final = 1 / 3  # of the shorter line, before both are taken apart; lines on the same share more
TOGETHER: Final = 3  # lines of one contradiction that come before other hits
SERIES: Final = 3  # so many lines of one note that differ in a number are a list

_claim = lru_cache(maxsize=4_096)(Claim.of)


def distinct(ranked: Sequence[Ranked], rows: Mapping[int, Row]) -> list[Ranked]:
    """Return each text once, where the best of its copies is placed; what is shown is the newest copy."""
    newest: dict[bytes, Row] = {}
    for found in ranked:
        row = rows[found.id]
        newest[row.digest] = max(newest.get(row.digest, row), row, key=_age_key)
    first = {rows[found.id].digest: found for found in reversed(ranked)}
    order = dict.fromkeys(rows[found.id].digest for found in ranked)
    return [replace(first[digest], id=newest[digest].id) for digest in order]


def diverse(ranked: list[Ranked], rows: Mapping[int, Row], count: int, *, relevance: float) -> list[Ranked]:
    """Return pieces by maximal marginal relevance; `relevance` (lambda) 1 changes nothing."""
    if relevance >= 1 or len(ranked) < 2:
        return ranked
    words = {r.id: frozenset(query_terms(rows[r.id].text)) for r in ranked[: 4 * count]}
    scores = min_max({str(r.id): r.score for r in ranked[: 4 * count]})
    chosen = diversify(
        scores, lambda a, b: overlap(words[int(a)], words[int(b)]), limit=4 * count, relevance=relevance
    )
    by_id = {str(r.id): r for r in ranked}
    kept: list[Ranked] = []
    for key in chosen:
        near = max((overlap(words[int(key)], words[k.id]) for k in kept), default=0.0)
        taken = round((1 - relevance) * near, 4)
        kept.append(replace(by_id[key], why=replace(by_id[key].why, diversity=-taken)))
    return kept


def with_contradictions(ranked: Sequence[Ranked], rows: Mapping[int, Row], count: int) -> list[tuple[Ranked, str]]:
    """Return the first `count` hits, older ones right behind a newer one that says something else of the same thing.

    With each comes the place of the newer one, "" for most. The older may have been found far behind; then one hit
    more than `count` may come, so that neither hides the other. Of many that contradict, the newest three come first,
    the others where there is room.
    """
    pool = ranked[:PARTNERS]
    words = {r.id: frozenset(rows[r.id].text.lower().split()) for r in pool}
    shown: list[tuple[Ranked, str]] = []
    spare: list[tuple[Ranked, str]] = []
    placed: set[int] = set()
    for found in ranked[: max(PARTNERS, count)]:
        if len(shown) >= count:
            break
        if found.id in placed:
            continue
        least = PARTNER_SHARE * found.score
        near = [o for i, o in enumerate(pool) if i < count or o.score >= least] if found.id in words else []
        others = [o for o in near if o.id != found.id and o.id not in placed and _asked(o) == _asked(found)]
        group = [found, *_contradicting(rows[found.id], others, rows, words)]
        group.sort(key=lambda r: _age_key(rows[r.id]), reverse=True)
        marked = [(r, _place_of_newer(r, group[:i], rows)) for i, r in enumerate(group)]
        shown += marked[:TOGETHER]
        spare += marked[TOGETHER:]
        placed.update(r.id for r in group)
    shown += spare[: max(0, count - len(shown))]
    return shown[: count + 1] if shown[count:] and shown[count][1] else shown[:count]


def _asked(found: Ranked) -> bool:
    """Tell whether the query names the day of a piece: then a newer one of another day does not go before it."""
    return "day" in found.why.parts


def _place_of_newer(found: Ranked, newer: Sequence[Ranked], rows: Mapping[int, Row]) -> str:
    """Return where the newest of `newer` stands that says something else, "" when all say the same."""
    claim = _claim(rows[found.id].text)
    place = next((rows[r.id] for r in newer if claim.contradicts(_claim(rows[r.id].text))), None)
    return f"{place.file}:{place.start_line}" if place else ""


def _contradicting(
    row: Row, others: Sequence[Ranked], rows: Mapping[int, Row], words: Mapping[int, frozenset[str]]
) -> list[Ranked]:
    """Return those of `others` that contradict `row`, without lists: lines of one note that differ in a number."""
    found = []
    series = 1
    for other in others:
        with_it = rows[other.id]
        if not _alike(words[row.id], words[other.id]) or _elsewhere(row, with_it):
            continue
        clash = _claim(row.text).clash(_claim(with_it.text))
        same_note = clash == "number" and with_it.file == row.file
        series += same_note
        if clash:
            found.append((other, same_note))
    return [other for other, same_note in found if not (same_note and series >= SERIES)]


def _alike(one: frozenset[str], other: frozenset[str]) -> bool:
    """Tell whether lines share so many words that they may speak of the same; such as have no blanks may always."""
    least = min(len(one), len(other))
    return least < 3 or len(one & other) >= SHARED_WORDS * least


def _elsewhere(row: Row, other: Row) -> bool:
    """Tell whether headings say that two lines are on different things.

    They stand below different headings of one note, or below headings that differ in a number only ("Part 1"). A date
    is no such heading.
    """
    if date_in(row.heading) or date_in(other.heading):
        return False
    if row.heading == other.heading or not (row.heading and other.heading):
        return False
    return row.file == other.file or _without_numbers(row.heading) == _without_numbers(other.heading)


def _without_numbers(text: str) -> str:
    return re.sub(r"\d+", "", text)


def _age_key(row: Row) -> tuple[str, int]:
    """Return what orders two lines by age: their day, then their place. Of undated notes nothing is known: the last."""
    return (row.date, row.id)
