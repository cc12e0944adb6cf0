"""Closeness: what the best pieces share with a question when their texts are read, word by word. PURE.

The lists by words and the vectors choose the pieces; only some hundred texts are read, however many pieces there are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from nbagent.core.ranking import STOP_WORDS, stem
from nbagent.memory.words import query_terms

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[Any]
    Likeness: TypeAlias = Callable[[Sequence[str], Sequence[str]], tuple[Array, Array]]  # as StaticEmbedder.likeness

MAX_WORDS: Final = 24  # of a question, for likeness word by word; of more the first count
_WORD: Final = re.compile(r"[^\W_]+")
_stem: Final = lru_cache(maxsize=50_000)(stem)


@dataclass(frozen=True, slots=True, kw_only=True)
class Closeness:
    """One number for each piece read.

    `pairs`: how many pairs of words that follow each other it shares with the question, stemmed; two stop words are
    none. `words`, 0..1: the mean over the question's words, without names, of the likeness of the piece's most alike
    word; rare words count more. `near`: the same where the words of its neighbours may be that word.
    """

    pairs: Array
    words: Array
    near: Array


def read_closely(
    query: str,
    names: Collection[str],
    slots: Sequence[int],
    beside: Sequence[tuple[int, int]],
    texts: Mapping[int, str],
    likeness: Likeness | None,
) -> Closeness:
    """Return how close the pieces in `slots` come to a question.

    `beside` gives the slots of each one's neighbours, -1 where there is none; `texts` has the texts of all of them.
    `names` are words that tell who speaks, which are left out. Without `likeness` all but `pairs` is 0.
    """
    import numpy as np

    pairs = np.asarray(_shared_pairs(query, [texts[s] for s in slots]), np.float32)
    none = np.zeros(len(slots), np.float32)
    terms = [t for t in query_terms(query) if t not in names][:MAX_WORDS]
    if likeness is None or not terms or not slots:
        return Closeness(pairs=pairs, words=none, near=none)
    order = list(texts)
    row = {slot: i for i, slot in enumerate(order)} | {-1: len(order)}
    found, weights = likeness(terms, [texts[s] for s in order])
    if not weights.any():
        return Closeness(pairs=pairs, words=none, near=none)
    weights = weights / weights.sum()
    found = np.concatenate([np.maximum(found, 0), np.zeros((len(terms), 1), np.float32)], axis=1)
    own = found[:, [row[s] for s in slots]]
    around = np.maximum.reduce([own, *(found[:, [row[b[side]] for b in beside]] for side in (0, 1))])
    return Closeness(pairs=pairs, words=weights @ own, near=weights @ around)


def _shared_pairs(query: str, texts: Sequence[str]) -> list[int]:
    asked = _WORD.findall(query.lower())
    told = [(a, b) for a, b in pairwise(asked) if not (a in STOP_WORDS and b in STOP_WORDS)]
    wanted = {(_stem(a), _stem(b)) for a, b in told}
    heads = {w[:2] for pair in told for w in pair}  # a stem begins as its word does; other words need none
    shared = []
    for text in texts:
        words = [_stem(w) if w[:2] in heads else "" for w in _WORD.findall(text.lower())]
        shared.append(len(wanted.intersection(pairwise(words))))
    return shared
