"""Ranking over small sets: words of a text, BM25, and the arithmetic that combines rankings.

Skills, memory and recall share it. Terms are joined by OR: a question in natural language almost
never has all its words in one place (DECISIONS 32). Everything is deterministic; ties keep the
order in which documents were added.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

K1: Final = 1.2  # Robertson and Zaragoza 2009, the usual values
B: Final = 0.75
MAX_QUERY_TERMS: Final = 32  # of a longer query the rarest terms count

_CJK: Final = "\u3005\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_TOKEN: Final = re.compile(rf"[{_CJK}]+|[^\W{_CJK}]+")
_IS_CJK: Final = re.compile(rf"[{_CJK}]")
_PARTS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_VOWEL: Final = re.compile(r"[aeiouy]")
LONGEST_TOKEN: Final = 80  # characters; longer runs are encoded bytes, not words

STOP_WORDS: Final = frozenset(
    """a about after again all also am an and any are as at be because been before being both but by can could did
    do does doing don done down during each few for from further get had has have having he her here hers him his how
    i if in into is it its itself just let like ll make me more most my need no nor not now of off on once one only
    or other our out over own please re s same see she should so some such sure t than that the their them then there
    these they this those through to too under until up us use ve very want was we were what when where which while
    who whom why will with would you your""".split()  # noqa: SIM905 (a list of 130 quoted words is harder to read)
)

_SUFFIXES: Final = (
    ("ational", "ate"), ("ization", "ize"), ("fulness", "ful"), ("ousness", "ous"), ("iveness", "ive"),
    ("ation", "ate"), ("ement", "e"), ("ment", ""), ("ness", ""), ("ally", "al"), ("ily", "y"), ("ly", ""),
)  # fmt: skip


def stem(word: str) -> str:
    """Return a lower-case English word without its commonest endings; a light form of Porter's algorithm (1980).

    >>> [stem(w) for w in ("caches", "cached", "caching", "cache", "tries", "class", "running")]
    ['cach', 'cach', 'cach', 'cach', 'try', 'class', 'run']
    """
    if len(word) <= 3 or not word.isascii() or not word.isalpha():
        return word
    word = _singular(word)
    for ending in ("ing", "ed"):
        root = word[: -len(ending)]
        if word.endswith(ending) and len(root) >= 3 and _VOWEL.search(root):
            word = root[:-1] if root[-1] == root[-2] and root[-1] not in "lsz" else root
            break
    for ending, instead in _SUFFIXES:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word[: -len(ending)] + instead
            break
    if len(word) > 3 and word.endswith("e"):
        word = word[:-1]
    return word


def _singular(word: str) -> str:
    if word.endswith("ies"):
        return word[:-3] + "y"
    if word.endswith(("sses", "shes", "ches", "xes")):
        return word[:-2]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


class Words:
    """Takes texts apart into terms; what a token gives is worked out once.

    A term is a stemmed lower-case word that is no stop word. An identifier gives itself whole and its
    parts (`handleAuth`: handleauth, handl, auth). A run of Chinese, Japanese or Korean gives its
    characters and its pairs of characters.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, ...]] = {}

    def terms(self, text: str) -> list[str]:
        """Return the terms of `text` in order, repeated as often as they occur."""
        found: list[str] = []
        known = self._known
        for token in _TOKEN.findall(text):
            terms = known.get(token)
            if terms is None:
                terms = known[token] = _token_terms(token)
            found.extend(terms)
        return found


def _token_terms(token: str) -> tuple[str, ...]:
    if len(token) > LONGEST_TOKEN:
        return ()
    if _IS_CJK.match(token):
        return (*token, *(token[i : i + 2] for i in range(len(token) - 1)))
    lower = token.lower()
    if lower in STOP_WORDS or len(lower) < 2:
        return ()
    parts = [p.lower() for p in _PARTS.findall(token)] if token.isascii() else []
    if len(parts) < 2:
        return (stem(lower),)
    kept = (stem(p) for p in parts if len(p) > 1 and p not in STOP_WORDS)
    return tuple(dict.fromkeys((lower, *kept)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A document found: its number in the order added, and its score (higher is better)."""

    index: int
    score: float


class Search(Protocol):
    """What can be searched by words."""

    def search(self, query: str, limit: int) -> Sequence[Hit]:
        """Return at most `limit` hits, best first."""
        ...


class Bm25:
    """An inverted index that grows. Cost of a query: the postings of its terms."""

    def __init__(self, words: Words | None = None) -> None:
        self.words = words or Words()
        self._documents: dict[str, list[int]] = {}
        self._counts: dict[str, list[int]] = {}
        self._lengths: list[int] = []
        self._norms: list[float] = []
        self._total = 0

    def __len__(self) -> int:
        return len(self._lengths)

    def add(self, text: str) -> int:
        """Add a document and return its number."""
        index = len(self._lengths)
        terms = self.words.terms(text)
        for term, count in Counter(terms).items():
            self._documents.setdefault(term, []).append(index)
            self._counts.setdefault(term, []).append(count)
        self._lengths.append(len(terms))
        self._total += len(terms)
        return index

    def search(self, query: str, limit: int) -> list[Hit]:
        """Return at most `limit` documents that share a term with `query`, best first."""
        return self.search_terms(self.words.terms(query), limit)

    def search_terms(self, terms: Iterable[str], limit: int, *, below: int | None = None) -> list[Hit]:
        """Search by terms; `below` leaves out the documents from that number on."""
        size = len(self._lengths)
        end = size if below is None else min(below, size)
        if not end:
            return []
        scores: dict[int, float] = {}
        norms = self._length_norms()
        for term in self._rarest(terms):
            found, counts = self._documents[term], self._counts[term]
            weight = (K1 + 1) * math.log(1 + (size - len(found) + 0.5) / (len(found) + 0.5))
            if end < size:
                found = found[: bisect_left(found, end)]
            for index, count in zip(found, counts, strict=False):
                scores[index] = scores.get(index, 0.0) + weight * count / (count + norms[index])
        best = sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))[:limit]
        return [Hit(index=index, score=score) for index, score in best]

    def _length_norms(self) -> list[float]:
        """Return what a document's length adds to the count in the denominator; kept until a document is added."""
        if len(self._norms) != len(self._lengths):
            mean = self._total / len(self._lengths) or 1.0
            self._norms = [K1 * (1 - B + B * length / mean) for length in self._lengths]
        return self._norms

    def _rarest(self, terms: Iterable[str]) -> list[str]:
        known = [t for t in dict.fromkeys(terms) if t in self._documents]
        if len(known) > MAX_QUERY_TERMS:
            known = sorted(known, key=lambda t: (len(self._documents[t]), t))[:MAX_QUERY_TERMS]
        return known


def min_max(scores: Mapping[str, float]) -> dict[str, float]:
    """Return the scores stretched to 0..1; equal ones all become 1.

    >>> min_max({"a": 4.0, "b": 2.0, "c": 3.0})
    {'a': 1.0, 'b': 0.0, 'c': 0.5}
    """
    if not scores:
        return {}
    low, high = min(scores.values()), max(scores.values())
    if high == low:
        return dict.fromkeys(scores, 1.0)
    return {key: (score - low) / (high - low) for key, score in scores.items()}


def fuse(rankings: Sequence[tuple[float, Mapping[str, float]]]) -> dict[str, float]:
    """Return the weighted sum of rankings, each stretched to 0..1 first; best first, ties by key."""
    total: dict[str, float] = {}
    for weight, scores in rankings:
        for key, score in min_max(scores).items():
            total[key] = total.get(key, 0.0) + weight * score
    return dict(sorted(total.items(), key=lambda pair: (-pair[1], pair[0])))


def diversify(
    scores: Mapping[str, float], alike: Callable[[str, str], float], *, limit: int, relevance: float = 0.7
) -> list[str]:
    """Choose at most `limit` keys by maximal marginal relevance (Carbonell and Goldstein 1998).

    `alike` gives 0..1. Each choice has the highest `relevance * score - (1 - relevance) * likeness` to what
    is already chosen; `relevance` 1 keeps the order of the scores, which should be 0..1.
    """
    left = sorted(scores, key=lambda key: (-scores[key], key))
    nearest = dict.fromkeys(left, 0.0)
    chosen: list[str] = []
    while left and len(chosen) < limit:
        best = max(left, key=lambda key: relevance * scores[key] - (1 - relevance) * nearest[key])
        left.remove(best)
        chosen.append(best)
        for key in left:
            nearest[key] = max(nearest[key], alike(best, key))
    return chosen


def overlap(a: frozenset[str], b: frozenset[str]) -> float:
    """Return the shared part of two sets of terms (Jaccard), 0..1."""
    return len(a & b) / len(a | b) if a or b else 0.0


def decay(age_days: float, *, half_life_days: float, floor: float = 0.9) -> float:
    """Return the factor by which age lowers a score: halves every `half_life_days`, never below `floor`.

    The floor of 0.9 keeps old knowledge findable (DECISIONS 33); 0 gives the plain exponential.
    """
    if age_days <= 0 or half_life_days <= 0:
        return 1.0
    return max(floor, math.pow(0.5, age_days / half_life_days))
