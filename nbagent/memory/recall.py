"""Recall: how pieces are ranked for a question. PURE.

The default adds BM25 of the piece, of it with its neighbours, and of its section, likeness of vectors of the piece and
with its neighbours, each stretched to 0..1 over the store, small priors, and for the best pieces what their texts share
with the question word by word (closeness.py). Its weights were learned and are frozen; in the preset
`recipe` they are hand-rounded and not learned. The preset `openclaw` is OpenClaw 2026.5.28's arithmetic.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from nbagent.core.errors import SettingsError
from nbagent.core.ranking import decay
from nbagent.memory.days import Days, named_days, named_months, named_years
from nbagent.memory.pieces import Chunking
from nbagent.memory.words import brevity

if TYPE_CHECKING:
    from nbagent.memory.closeness import Closeness
    from nbagent.memory.shelf import Array, Shelf, Signals


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Which numbers rank. Weights are of parts stretched to 0..1; `half_life_days` 0 and `mmr` 1 switch a stage off.

    The weights here are those of the preset `recipe`.
    """

    name: str
    scoring: Literal["nbagent", "openclaw"]
    chunking: Chunking = "pieces"
    max_results: int = 6
    piece: float = 1.0
    window: float = 1.0
    section: float = 1.0
    piece_vector: float = 1.0
    window_vector: float = 1.0
    length: float = 2.0 / 6  # of ln(1 + characters)
    author: float = 1.0  # the piece begins with a name that the question says
    when: float = 0.75  # the question asks when, and the piece has a word of time
    date: float = 1.5  # month or year in the question are those of the piece's day
    day: float = 8.0  # the question names the piece's day; that alone makes a hit
    question: float = 0.0  # the piece ends in a question mark, so it tells nothing
    answer: float = 0.0  # the piece before it does, and is what the words found
    turn: float = 0.0  # of BM25 of the piece two before it: in talk, what the same one said last
    number: float = 0.0  # the question asks how many, and the piece has a figure
    pairs: float = (
        0.0  # of each pair of words in a row that it shares with the question; this and the rest: closeness.py
    )
    words: float = 0.0
    covered: float = 0.0
    title: float = 0.0  # the question asks for a book, a song and the like, and the piece quotes something
    short: float = 0.0  # more for BM25 of the piece where a query is one word; less where two or three
    cut: float = 0.0  # of the best score: what has less, and was found for words beside it only, is no hit
    blind: Mapping[str, float] = field(default_factory=dict)  # weights where vectors tell nothing
    vector_weight: float = 0.7  # the rest of this and the next two is OpenClaw's
    text_weight: float = 0.3
    min_score: float = 0.35
    candidates: int = 4  # times max_results
    half_life_days: float = 0.0
    decay_floor: float = 0.9  # DECISIONS 32
    mmr: float = 1.0  # lambda

    @property
    def reads(self) -> bool:
        """Tell whether it needs the texts of the best pieces."""
        return any((self.pairs, self.words, self.covered))

    def seen(self, share: float) -> Recipe:
        """Return the recipe for vectors that tell that much, 0..1: weights between those of `blind` and its own."""
        if share >= 1 or not self.blind:
            return self
        mixed: dict[str, Any] = {k: share * getattr(self, k) + (1 - share) * v for k, v in self.blind.items()}
        return replace(self, **mixed)


PRESETS: Final[Mapping[str, Recipe]] = {
    # Weights learned on five conversations of LoCoMo and rounded: a linear model, softmax over the 60 best turns by the
    # weights before these, L2 of 0.01 on standardized parts. Fitted with one conversation left out in turn and measured
    # on it: recall@5 .753, @10 .809, nDCG .677, where `recipe` has .696, .785, .630. The five fits differ by less than
    # a fifth of a weight (standard deviation), but for `piece_vector` (a third).
    # Set by hand, since all of LoCoMo is English questions: `blind` (earlier weights, without what talk alone has),
    # `short` (over the Markdown of docs/ the one line that holds all of two or three words comes first in .92 of
    # queries, without it in .88), `cut`.
    "nbagent": Recipe(
        name="nbagent", scoring="nbagent", piece=0.6, window=0.7, section=1.9, piece_vector=1.0, window_vector=2.7,
        length=0.4, author=2.5, when=1.9, date=2.7, question=-0.7, answer=1.4, turn=0.7, number=2.0, pairs=0.3,
        words=1.6, covered=2.4, title=1.8, short=3.0, cut=0.5,
        blind={"piece": 1.6, "window": 1.0, "section": 2.5, "length": 0.7, "turn": 0.0},
    ),
    # The same parts with the weights of memory-and-models.md 4.3, as they stand there.
    "recipe": Recipe(name="recipe", scoring="nbagent"),
    "openclaw": Recipe(name="openclaw", scoring="openclaw", chunking="openclaw", decay_floor=0.0),
    # The first published description (SPEC OC-M4), with both stages on that 2026.5.28 has off.
    "openclaw@seed": Recipe(
        name="openclaw@seed", scoring="openclaw", chunking="openclaw", decay_floor=0.0, half_life_days=30.0, mmr=0.7
    ),
}  # fmt: skip
POOL: Final = 200  # candidates; OpenClaw's upper limit, and where the reference lost nothing
READ: Final = 60  # pieces whose texts are read, whatever the number of hits; 100 rank alike
MIN_COSINE: Final = 0.35  # below it likeness alone makes no hit; OpenClaw's minScore
LIKE_SCORE: Final = 0.25  # of a piece found only as a part of a word; below any hit by words

_WHEN: Final = re.compile(
    r"(?i)\bwhen\b|\b(?:what|which) (?:date|day|month|year|time|week)\b|\bhow (?:long|recently|often)\b"
    r"|什么时候|何时|几时|哪天|いつ|何日|언제|며칠"
)
_HOW_MANY: Final = re.compile(
    r"(?i)\bhow (?:many|much|long|old|far|often)\b|多少|几[个次年天岁]|いくつ|いくら|何[人個回年]|몇"
)
_TITLE: Final = re.compile(
    r"(?i)\b(?:books?|movies?|films?|songs?|games?|bands?|names?|quotes?|signs?|posters?|titles?|called)\b"
    r"|什么书|哪本书|电影|歌|叫什么|映画|영화|노래"
)
_QUOTE: Final = re.compile(r'"[^"\n]+"|“[^”\n]+”|«[^»\n]+»|《[^》\n]+》|「[^」\n]+」')
_FIGURE: Final = re.compile(r"\d")
_TIME_WORD: Final = re.compile(
    r"(?i)\b(?:yesterday|today|tonight|tomorrow|ago|last|next|week(?:s|end|ends)?|months?|years?|morning|afternoon|"
    r"evening|(?:mon|tues|wednes|thurs|fri|satur|sun)day|january|february|march|april|june|july|august|september|"
    r"october|november|december|since|recently|(?:19|20)\d\d)\b|昨天|今天|明天|上周|去年|今年|昨日|今日|어제|오늘|작년"
)


def find_preset(name: str) -> Recipe:
    """Return the preset of that name.

    Raises:
        SettingsError: there is none.
    """
    if name not in PRESETS:
        raise SettingsError(f"memory.preset = {name!r}: there is no such preset; choose one of {', '.join(PRESETS)}")
    return PRESETS[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a question says besides its words: does it ask when or how many, which months and years does it name.

    `brevity` is how far it is no question but a word or two to look up, 0..1.
    """

    asks_when: bool
    asks_number: bool
    asks_title: bool
    months: frozenset[int]
    years: frozenset[int]
    words: frozenset[str]
    brevity: float = 0.0
    days: Days = ()

    @classmethod
    def of(cls, text: str, today: str = "") -> Question:
        """Read a question that is asked `today` (YYYY-MM-DD).

        >>> q = Question.of("When did Anna move in May 2023?")
        >>> q.asks_when, sorted(q.months), sorted(q.years)
        (True, [5], [2023])
        """
        return cls(
            asks_when=bool(_WHEN.search(text)),
            asks_number=bool(_HOW_MANY.search(text)),
            asks_title=bool(_TITLE.search(text)),
            months=named_months(text),
            years=named_years(text),
            words=frozenset(re.findall(r"\w+", text.lower())),
            brevity=brevity(text),
            days=named_days(text, today),
        )

    def names(self, label: str) -> bool:
        """Tell whether the question says what a piece begins with (its label, lower case), or its first word."""
        words = re.findall(r"\w+", label)
        return bool(words) and (words[0] in self.words or all(w in self.words for w in words))

    def matches(self, month: int, year: int) -> bool:
        """Tell whether a day's month and year are among those named; what is not named fits."""
        if not (self.months or self.years) or not year:
            return False
        return (not self.months or month in self.months) and (not self.years or year in self.years)


def has_time_word(text: str) -> bool:
    """Tell whether a text says when something was, or is."""
    return _TIME_WORD.search(text) is not None


def has_quote(text: str) -> bool:
    """Tell whether something stands in quotation marks."""
    return _QUOTE.search(text) is not None


def has_number(text: str) -> bool:
    """Tell whether there is a figure in a text."""
    return _FIGURE.search(text) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """The parts of a hit's score. `keyword`, `vector` and `prior` add up before `decay` multiplies.

    `diversity` is what maximal marginal relevance took for likeness to better hits. `parts` are the single numbers.
    `beside`: the piece holds no word of the query and is not like it; the pieces around it do or are.
    """

    keyword: float = 0.0
    vector: float = 0.0
    prior: float = 0.0
    decay: float = 1.0
    diversity: float = 0.0
    beside: bool = False
    parts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """A piece with its score."""

    id: int
    score: float
    why: Why


def rank(
    recipe: Recipe,
    question: Question,
    shelf: Shelf,
    signals: Signals,
    limit: int,
    read: Callable[[Sequence[int]], Closeness] | None = None,
) -> list[Ranked]:
    """Return the best pieces by the measured recipe, best first; ties keep the order of the notes.

    Where the recipe wants it, `read` is asked for the closeness of the best 60 slots; that of all others counts as 0.
    """
    import numpy as np

    def stretched(scores: Array | None) -> Array:
        """Min-max over the store; all 1 where all were found alike."""
        if scores is None or not len(scores):
            return np.zeros(shelf.size, np.float32)
        low, high = float(scores.min()), float(scores.max())
        if high > low:
            return (scores - low) / (high - low)
        return np.full_like(scores, float(high > 0))

    named_day = shelf.on_day(question)
    recipe = recipe.seen(0.0 if signals.piece_vector is None else signals.covers)
    keyword = {
        "piece": (recipe.piece + recipe.short * question.brevity) * stretched(signals.piece),
        "window": recipe.window * stretched(signals.window),
        "section": recipe.section * stretched(signals.section),
        "answer": recipe.answer * shelf.answering(stretched(signals.piece)),
        "turn": recipe.turn * shelf.second_after(stretched(signals.piece)),
    }
    vector = {
        "piece_vector": recipe.piece_vector * signals.covers * stretched(signals.piece_vector),
        "window_vector": recipe.window_vector * signals.covers * stretched(signals.window_vector),
    }
    prior = {
        "length": recipe.length * shelf.log_chars,
        "author": recipe.author * shelf.labelled(question),
        "when": recipe.when * (shelf.has_time if question.asks_when else np.zeros(shelf.size, np.float32)),
        "date": recipe.date * shelf.dated(question),
        "day": recipe.day * named_day,
        "question": recipe.question * shelf.asks,
        "title": recipe.title * (shelf.has_quote if question.asks_title else np.zeros(shelf.size, np.float32)),
        "number": recipe.number * (shelf.has_number if question.asks_number else np.zeros(shelf.size, np.float32)),
    }
    words = signals.piece + signals.window + signals.section
    found = words > 0
    alike = np.zeros(shelf.size, bool)
    if signals.piece_vector is not None and signals.covers > 0 and signals.alone:
        alike = signals.piece_vector >= MIN_COSINE
    found = (found | alike | (named_day > 0)) & shelf.alive
    factor = shelf.decay_factor(recipe, signals.today)

    def added() -> Array:
        total = sum(keyword.values()) + sum(vector.values()) + sum(prior.values())
        return np.where(found, total * factor, -1.0)

    total = added()
    if read is not None and recipe.reads:
        pool = _best_texts(total, READ, int(found.sum()), shelf)
        close = read(pool)
        keyword["pairs"] = recipe.pairs * shelf.placed(pool, close.pairs)
        vector["words"] = recipe.words * signals.covers * shelf.placed(pool, close.words)
        keyword["covered"] = recipe.covered * signals.covers * shelf.placed(pool, close.covered)
        total = added()
    slots = _best_texts(total, limit, int(found.sum()), shelf)
    own = (signals.piece > 0) | alike | (named_day > 0)
    looked_up = question.brevity > 0 and recipe.cut > 0 and any(own[s] for s in slots)
    slots = [s for s in slots if own[s] or (not looked_up and total[s] >= recipe.cut * total[slots[0]])]
    timed = question.days or question.months or question.years
    newest = {s: s for s in slots} if timed else shelf.newest_copies(slots)
    return [
        Ranked(
            id=int(shelf.ids[newest[s]]),
            score=round(float(total[s]), 6),
            why=Why(
                keyword=_sum(keyword, s), vector=_sum(vector, s), prior=_sum(prior, s),
                decay=round(float(factor[s]), 4), beside=not own[s],
                parts={k: round(float(v[s]), 4) for k, v in (keyword | vector | prior).items() if v[s]},
            ),
        )
        for s in slots
    ]  # fmt: skip


def _sum(parts: Mapping[str, Array], slot: int) -> float:
    return round(float(sum(part[slot] for part in parts.values())), 4)


def _best(array: Array, count: int) -> list[int]:
    import numpy as np

    if count <= 0:
        return []
    best = np.argpartition(-array, count - 1)[:count] if count < len(array) else np.arange(len(array))
    edge = array[best].min()
    best = np.flatnonzero(array >= edge) if count < len(array) else best  # all ties at the edge, then by order
    return [int(s) for s in best[np.lexsort((best, -array[best]))][:count]]


def _best_texts(total: Array, limit: int, found: int, shelf: Shelf) -> list[int]:
    """Return the best slots of those found, each text once."""
    asked = limit
    while True:
        best = _best(total, min(asked, found))
        first: dict[int, int] = {}
        for slot in best:
            first.setdefault(int(shelf.text_keys[slot]), slot)
        if len(first) >= limit or asked >= found:
            return list(first.values())[:limit]
        asked *= 8


def text_score(rank: float) -> float:
    """Return OpenClaw's score of FTS5's rank (negative is better): r / (1 + r).

    >>> [round(text_score(r), 3) for r in (-4.2, -2.1, -0.5)], text_score(0.0), text_score(math.inf)
    ([0.808, 0.677, 0.333], 1.0, 0.001)
    """
    if not math.isfinite(rank):
        return 0.001
    return -rank / (1 - rank) if rank < 0 else 1 / (1 + rank)


def openclaw_weights(vector: float, text: float) -> tuple[float, float]:
    """Return both weights within 0..1 and of sum 1; both 0 give the defaults.

    >>> openclaw_weights(2, 1), openclaw_weights(0, 0)
    ((0.5, 0.5), (0.7, 0.3))
    """
    vector, text = min(1.0, max(0.0, vector)), min(1.0, max(0.0, text))
    total = vector + text
    return (vector / total, text / total) if total else (0.7, 0.3)


def openclaw_candidates(max_results: int, multiplier: int) -> int:
    """Return how many candidates each list gives: at most 200."""
    return min(POOL, max(1, math.floor(max_results * min(20, max(1, multiplier)))))


def merge_openclaw(
    vector: Mapping[int, float], text: Mapping[int, float], factors: Mapping[int, float], recipe: Recipe
) -> list[Ranked]:
    """Return the union of both lists, weighted and aged, best first, that passes the least score.

    When none does, what the keywords found comes all the same (OpenClaw's rescue); places that are left over go to
    keyword hits too (its pull request 92524).
    """
    wv, wt = openclaw_weights(recipe.vector_weight, recipe.text_weight)
    merged = []
    for i in sorted(vector.keys() | text.keys()):
        v, t, factor = wv * vector.get(i, 0.0), wt * text.get(i, 0.0), factors.get(i, 1.0)
        why = Why(keyword=t, vector=v, decay=factor, parts={"cosine": vector.get(i, 0.0), "text": text.get(i, 0.0)})
        merged.append(Ranked(id=i, score=(v + t) * factor, why=why))
    merged.sort(key=lambda r: -r.score)
    strict = [r for r in merged if r.score >= recipe.min_score]
    rescued = [r for r in merged if r.score < recipe.min_score and r.id in text]
    return strict + rescued


def decay_openclaw(age_days: float, half_life_days: float) -> float:
    """Return OpenClaw's factor of age: no floor, none for the future."""
    return decay(age_days, half_life_days=half_life_days, floor=0.0)
