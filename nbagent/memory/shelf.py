"""Shelf: what ranking needs of all pieces, as arrays in memory; numpy is imported when it is first used.

One slot a piece, in the order of ids; a piece that went keeps its slot, not alive, until a quarter is dead. Up to
300,000 pieces one float32 matrix is multiplied whole; above, sign bits choose and 8-bit rows score again
(memory-and-models.md section 3).
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from nbagent.core.ranking import decay
from nbagent.memory.recall import Question, Recipe, has_number, has_quote, has_time_word

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

MATRIX_PIECES: Final = 300_000
RESCORED: Final = 500
DEAD_SHARE: Final = 0.25
Fact = tuple[int, int, str, str, str, str, bytes | None]  # as MemoryIndex.facts gives them


@dataclass(frozen=True, slots=True, kw_only=True)
class Signals:
    """What the lists said of every slot: BM25 (0: not found), cosines (None: no vectors), and the day of asking.

    `covers` is how far the embedder knows the question's language, 0..1; `alone` that its likeness alone makes a hit.
    """

    piece: Array
    window: Array
    section: Array
    piece_vector: Array | None
    window_vector: Array | None
    covers: float
    today: str
    alone: bool = True


class Shelf:
    """Arrays over all pieces. `matrix_pieces` is up to how many the matrix is multiplied whole."""

    def __init__(self, facts: Iterable[Fact], *, matrix_pieces: int = MATRIX_PIECES) -> None:
        import numpy as np

        self._matrix_pieces = matrix_pieces
        self.size = 0
        self.ids: Array = np.zeros(0, np.int64)
        self.alive: Array = np.zeros(0, bool)
        self.log_chars: Array = np.zeros(0, np.float32)
        self.has_time: Array = np.zeros(0, np.float32)
        self.asks: Array = np.zeros(0, np.float32)
        self.has_number: Array = np.zeros(0, np.float32)
        self.has_quote: Array = np.zeros(0, np.float32)
        self._chars: Array = np.zeros(0, np.float32)
        self.text_keys: Array = np.zeros(0, np.int64)  # equal for equal texts
        self._run: Array = np.zeros(0, np.int64)
        self._label: Array = np.zeros(0, np.int32)
        self._day: Array = np.zeros(0, np.int32)
        self._has_vector: Array = np.zeros(0, bool)
        self._vectors: Array | None = None
        self._bits: Array | None = None
        self._norms: Array | None = None
        self._labels: dict[str, int] = {"": 0}
        self._days: dict[str, int] = {"": 0}
        self._runs = 0
        self._last_run: tuple[int, str] | None = None
        self.add(facts)

    def add(self, facts: Iterable[Fact]) -> None:
        """Put pieces at the end; their ids are above all others."""
        import numpy as np

        found = list(facts)
        if not found:
            return
        chars = np.fromiter((len(f[3]) for f in found), np.float32, len(found))
        runs = []
        for f in found:
            if self._last_run != (f[1], f[2]):
                self._runs += 1
                self._last_run = (f[1], f[2])
            runs.append(self._runs)
        self._extend("ids", [f[0] for f in found])
        self._extend("alive", [True] * len(found))
        self._extend("_chars", chars)
        self._extend("text_keys", [hash(f[3]) for f in found])
        self._extend("log_chars", np.log1p(chars))
        self._extend("has_time", [float(has_time_word(f[3])) for f in found])
        self._extend("asks", [float(f[3].rstrip().endswith(("?", "？"))) for f in found])
        self._extend("has_number", [float(has_number(f[3])) for f in found])
        self._extend("has_quote", [float(has_quote(f[3])) for f in found])
        self._extend("_run", runs)
        self._extend("_label", [self._labels.setdefault(f[4], len(self._labels)) for f in found])
        self._extend("_day", [self._days.setdefault(f[5], len(self._days)) for f in found])
        self._extend("_has_vector", [f[6] is not None for f in found])
        self.size += len(found)
        self._add_vectors([f[6] for f in found])

    def _extend(self, name: str, values: Any) -> None:
        import numpy as np

        old = getattr(self, name)
        setattr(self, name, np.concatenate([old, np.asarray(values, dtype=old.dtype)]))

    def _add_vectors(self, stored: Sequence[bytes | None]) -> None:
        import numpy as np

        width = next((len(v) // 2 for v in stored if v), 0)
        if self._vectors is not None:
            width = self._vectors.shape[1]
        self._norms = None
        if not width:
            return
        joined = b"".join(v if v is not None and len(v) == 2 * width else bytes(2 * width) for v in stored)
        rows = np.frombuffer(joined, np.float16).reshape(len(stored), width).astype(np.float32)
        before = self.size - len(stored)
        if self._vectors is None:
            self._vectors = np.zeros((before, width), np.float32)
        capacity = len(self._vectors)
        if self.size > capacity:  # grown by an eighth, so that one changed note copies nothing
            grown = np.zeros((max(self.size, before + before // 8), width), np.float32)
            grown[:before] = self._vectors[:before]
            self._vectors = grown
        self._vectors[before : self.size] = rows
        self._bits = None

    def remove(self, ids: Sequence[int]) -> None:
        """Take pieces out; their slots stay."""
        import numpy as np

        slots, known = self.slots(np.asarray(ids, np.int64))
        self.alive[slots[known]] = False
        self._has_vector[slots[known]] = False

    def worn(self) -> bool:
        """Tell whether so many slots are dead that the shelf had better be made anew."""
        return self.size > 0 and 1 - self.alive.sum() / self.size > DEAD_SHARE

    def set_vectors(self, vectors: Mapping[int, bytes]) -> None:
        """Give pieces that are there their vectors."""
        import numpy as np

        if not vectors:
            return
        width = len(next(iter(vectors.values()))) // 2
        if self._vectors is None or self._vectors.shape[1] != width:
            self._vectors = np.zeros((self.size, width), np.float32)
            self._has_vector[:] = False
        slots, known = self.slots(np.fromiter(vectors, np.int64, len(vectors)))
        rows = np.frombuffer(b"".join(vectors.values()), np.float16).reshape(-1, width)
        self._vectors[slots[known]] = rows[known]
        self._has_vector[slots[known]] = True
        self._norms = self._bits = None

    def slots(self, ids: Array) -> tuple[Array, Array]:
        """Return the slot of each id, and whether it is there."""
        import numpy as np

        if not self.size:
            return np.zeros(len(ids), np.int64), np.zeros(len(ids), bool)
        at = np.minimum(np.searchsorted(self.ids, ids), self.size - 1)
        return at, self.ids[at] == ids

    def spread(self, found: Sequence[tuple[int, float]]) -> Array:
        """Return one score a slot from (piece, score)."""
        import numpy as np

        scores = np.zeros(self.size, np.float32)
        if found and self.size:
            pairs = np.asarray(found, np.float64)
            at, known = self.slots(pairs[:, 0].astype(np.int64))
            scores[at[known]] = pairs[known, 1]
        return scores

    def spread_ranges(self, found: Sequence[tuple[int, float]], ranges: Mapping[int, tuple[int, int]]) -> Array:
        """Return one score a slot from (section, score): the most of the sections that hold it."""
        import numpy as np

        scores = np.zeros(self.size, np.float32)
        spans = [(ranges[i], score) for i, score in found if i in ranges]
        if not spans or not self.size:
            return scores
        firsts = np.searchsorted(self.ids, [a for (a, _), _ in spans])
        ends = np.searchsorted(self.ids, [b for (_, b), _ in spans], side="right")
        for first, end, (_, score) in zip(firsts.tolist(), ends.tolist(), spans, strict=True):
            part = scores[first:end]
            np.maximum(part, score, out=part)
        return scores

    def cosines(self, query: Array) -> tuple[Array | None, Array | None]:
        """Return the likeness of each piece, and of each with its neighbours, to a query of unit length.

        A neighbourhood's vector is the sum of its pieces' vectors, each times its length in characters: for the static
        table that is nearly the vector of the joined text. Pieces without a vector have the least likeness there is.
        """

        if self._vectors is None or self._vectors.shape[1] != len(query) or not self._has_vector.any():
            return None, None
        vectors = self._vectors[: self.size]
        piece = self._by_bits(vectors, query) if self.size > self._matrix_pieces else vectors @ query
        weighted = piece * self._chars
        window = weighted.copy()
        same = self._run[1:] == self._run[:-1]
        window[1:] += weighted[:-1] * same
        window[:-1] += weighted[1:] * same
        window /= self._window_norms(vectors, same)
        without = ~self._has_vector
        if without.any():
            piece[without] = piece[self._has_vector].min()
            window[without] = window[self._has_vector].min()
        return piece, window

    def _window_norms(self, vectors: Array, same: Array) -> Array:
        """Return the lengths of the neighbourhoods' sums, from products of neighbours; kept until something changes."""
        import numpy as np

        if self._norms is not None and len(self._norms) == self.size:
            return self._norms
        squares = np.zeros(self.size, np.float64)
        own = self._chars.astype(np.float64) * self._has_vector
        squares += own**2
        squares[1:] += own[:-1] ** 2 * same
        squares[:-1] += own[1:] ** 2 * same
        for distance in (1, 2):
            if self.size <= distance:
                break
            product = np.einsum("ij,ij->i", vectors[distance:], vectors[:-distance]) * own[distance:] * own[:-distance]
            if distance == 1:
                squares[1:] += 2 * product * same
                squares[:-1] += 2 * product * same
            else:  # the two neighbours of the piece between them
                squares[1:-1] += 2 * product * (same[1:] & same[:-1])
        self._norms = np.sqrt(np.maximum(squares, 1e-6)).astype(np.float32)
        return self._norms

    def _by_bits(self, vectors: Array, query: Array) -> Array:
        """Return estimates from the share of equal sign bits, and exact numbers for the best 500 of them."""
        import numpy as np

        if self._bits is None or len(self._bits) != self.size:
            self._bits = np.packbits(vectors > 0, axis=1)
        ones = np.array([i.bit_count() for i in range(256)], np.uint8)
        apart = np.zeros(self.size, np.int32)
        asked = np.packbits(query > 0)
        for column, byte in zip(self._bits.T, asked, strict=True):
            apart += ones[np.bitwise_xor(column, byte)]
        estimate = np.cos(math.pi * apart.astype(np.float32) / len(query))
        best = np.argpartition(apart, min(RESCORED, self.size - 1))[:RESCORED]
        estimate[best] = vectors[best] @ query
        return estimate.astype(np.float32)

    def answering(self, scores: Array) -> Array:
        """Return for each piece the score of the one before it where that asks, below the same heading."""
        import numpy as np

        before = np.zeros_like(scores)
        before[1:] = scores[:-1] * self.asks[:-1] * (self._run[1:] == self._run[:-1])
        return before

    def second_after(self, scores: Array) -> Array:
        """Return for each piece the score of the one two before it, below the same heading."""
        import numpy as np

        before = np.zeros_like(scores)
        before[2:] = scores[:-2] * (self._run[2:] == self._run[:-2])
        return before

    def placed(self, slots: Sequence[int], scores: Array) -> Array:
        """Return one score a slot: `scores` at `slots`, 0 elsewhere."""
        import numpy as np

        whole = np.zeros(self.size, np.float32)
        whole[slots] = scores
        return whole

    def around(self, slots: Sequence[int], distance: int) -> list[list[int]]:
        """Return the slots of each piece and of those up to so many places before and after it, below its heading."""
        run, size = self._run, self.size
        return [
            [n for n in range(max(0, s - distance), min(size, s + distance + 1)) if run[n] == run[s]] for s in slots
        ]

    def label_words(self) -> frozenset[str]:
        """Return the words of all labels."""
        return frozenset(w for label in self._labels for w in re.findall(r"\w+", label))

    def labelled(self, question: Question) -> Array:
        """Return 1 for pieces whose label the question names."""
        return self._looked_up(self._labels, self._label, lambda label: float(bool(label) and question.names(label)))

    def dated(self, question: Question) -> Array:
        """Return 1 for pieces whose day has the month and year that the question names."""

        def fits(day: str) -> float:
            return float(bool(day) and question.matches(int(day[5:7]), int(day[:4])))

        return self._looked_up(self._days, self._day, fits)

    def on_day(self, question: Question) -> Array:
        """Return 1 for pieces of a day that the question names."""
        days = set(question.days)

        def fits(day: str) -> float:
            if not day or not days:
                return 0.0
            year, month, number = int(day[:4]), int(day[5:7]), int(day[8:10])
            return float((year, month, number) in days or (0, month, number) in days)

        return self._looked_up(self._days, self._day, fits)

    def newest_copies(self, slots: Sequence[int]) -> dict[int, int]:
        """Return for each slot the one that holds the same text and has the latest day, of equal days the last."""
        import numpy as np

        wanted = np.asarray([self.text_keys[s] for s in slots], np.int64)
        copies = np.flatnonzero(np.isin(self.text_keys, wanted) & self.alive)
        days = list(self._days)
        newest: dict[int, int] = {}
        for slot in copies.tolist():
            key = int(self.text_keys[slot])
            old = newest.get(key)
            if old is None or days[self._day[slot]] >= days[self._day[old]]:
                newest[key] = slot
        return {s: newest.get(int(self.text_keys[s]), s) for s in slots}

    def distinct(self, ids: Sequence[int]) -> int:
        """Return how many different texts these pieces have."""
        import numpy as np

        at, known = self.slots(np.asarray(ids, np.int64))
        return len(np.unique(self.text_keys[at[known]])) if len(ids) else 0

    def decay_factor(self, recipe: Recipe, today: str) -> Array:
        """Return the factor by which age lowers each piece: 1 for undated ones, and for all where decay is off."""

        def factor(day: str) -> float:
            if not day or recipe.half_life_days <= 0:
                return 1.0
            return decay(age_days(day, today), half_life_days=recipe.half_life_days, floor=recipe.decay_floor)

        return self._looked_up(self._days, self._day, factor)

    def _looked_up(self, values: Mapping[str, int], column: Array, score: Callable[[str], float]) -> Array:
        import numpy as np

        table = np.fromiter((score(v) for v in values), np.float32, len(values))
        return table[column]


def age_days(day: str, today: str) -> int:
    """Return how many days `day` lies before `today` (both YYYY-MM-DD); negative in the future, 0 where one is none."""
    try:
        return (datetime.date.fromisoformat(today[:10]) - datetime.date.fromisoformat(day)).days
    except ValueError:
        return 0
