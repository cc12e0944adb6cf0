"""Closeness: what the best pieces share with a question when their texts are read, word by word. PURE.

The lists by words and the vectors choose the pieces; only some hundred texts are read, however many pieces there are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from nbagent.core.ranking import STOP_WORDS, stem
from nbagent.memory.forms import base, with_forms
from nbagent.memory.words import query_terms

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[Any]
    Likeness: TypeAlias = Callable[[Sequence[str], Sequence[str]], tuple[Array, Array]]  # as StaticEmbedder.likeness

MAX_WORDS: Final = 24  # of a question, for likeness word by word; of more the first count
_WORD: Final = re.compile(r"[^\W_]+")


@lru_cache(maxsize=50_000)
def _stem(word: str) -> str:
    return stem(base(word))



@dataclass(frozen=True, slots=True, kw_only=True)
class Closeness:
    """One number for each piece read.

    `pairs`: how many pairs of words that follow each other it shares with the question, stemmed; two stop words are
    none. `words`, 0..1: the mean over the question's words, without names, of the likeness of the piece's most alike
    word. `covered`, 0..1: the share of these words that stand in it or in the two pieces on either side. In both, rare
    words count more.
    """

    pairs: Array
    words: Array
    covered: Array


def read_closely(
    query: str,
    names: Collection[str],
    slots: Sequence[int],
    around: Sequence[Sequence[int]],
    texts: Mapping[int, str],
    likeness: Likeness | None,
) -> Closeness:
    """Return how close the pieces in `slots` come to a question.

    `around` gives the slots of each one and those near it; `texts` has the texts of all of them. `names` are words that
    tell who speaks, which are left out. Without `likeness` all but `pairs` is 0.
    """
    import numpy as np

    pairs = np.asarray(_shared_pairs(query, [texts[s] for s in slots]), np.float32)
    none = np.zeros(len(slots), np.float32)
    terms = [t for t in query_terms(query) if t not in names][:MAX_WORDS]
    if likeness is None or not terms or not slots:
        return Closeness(pairs=pairs, words=none, covered=none)
    found, weights = likeness(terms, [texts[s] for s in slots])
    if not weights.any():
        return Closeness(pairs=pairs, words=none, covered=none)
    weights = weights / weights.sum()
    covered = np.asarray(_covered(terms, weights.tolist(), around, texts), np.float32)
    return Closeness(pairs=pairs, words=weights @ np.maximum(found, 0), covered=covered)


def _covered(
    terms: Sequence[str], weights: Sequence[float], around: Sequence[Sequence[int]], texts: Mapping[int, str]
) -> list[float]:
    """Return for each piece the weight of the terms whose stem stands in a text around it."""
    weight: dict[str, float] = {}
    for term, share in zip(terms, weights, strict=True):
        weight.setdefault(_stem(term), share)
    whole = sum(weight.values()) or 1.0
    heads = _heads(terms)
    held = {s: {w for x in _WORD.findall(t.lower()) if x[:2] in heads and (w := _stem(x)) in weight}
            for s, t in texts.items()}  # fmt: skip
    return [sum(weight[w] for w in set().union(*(held[s] for s in near))) / whole for near in around]


def _heads(words: Iterable[str]) -> set[str]:
    """Return how words begin that may have the stem of one of `words`; others need not be stemmed."""
    return {form[:2] for word in words for form in with_forms([word, stem(word)])}


def _shared_pairs(query: str, texts: Sequence[str]) -> list[int]:
    asked = _WORD.findall(query.lower())
    told = [(a, b) for a, b in pairwise(asked) if not (a in STOP_WORDS and b in STOP_WORDS)]
    wanted = {(_stem(a), _stem(b)) for a, b in told}
    heads = _heads({w for pair in told for w in pair})
    shared = []
    for text in texts:
        words = [_stem(w) if w[:2] in heads else "" for w in _WORD.findall(text.lower())]
        shared.append(len(wanted.intersection(pairwise(words))))
    return shared
