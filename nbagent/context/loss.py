"""Loss: what a compaction leaves of the anchors before it: verbatim, reachable by one retrieval, or lost.

The rules (section 3.2 of the performance and evaluation report, DECISIONS 27):

* verbatim: an entry that holds it is in the new context as it was, or the text is there; of a sentence at
  least 80 % of its content words, within one line or three sentences in a row (a long context holds the
  words of any sentence somewhere);
* reachable: a pointer in context leads to it (its label shares two content words with what needs it, and
  its target is at most 2,000 tokens), or a search with the words of what needs it, minus the anchor's own
  words, brings it up among the best five chunks of 2 KB;
* lost: neither.

What needs a word-like anchor is the later entry that writes it. What needs a sentence is the person's next
request: nobody searches for a rule by its own words. Where the future is not known, it is the lines around
the anchor, as far as the new context still holds their words; for a sentence the request at hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from nbagent.context.anchor_index import AnchorIndex, Need
from nbagent.context.anchors import KINDS, SENTENCES, WEIGHTS, Anchor, AnchorKind, Key
from nbagent.context.sight import Finder, Sight
from nbagent.core.entries import Entry
from nbagent.core.view import View

QUERY_CHARS: Final = 2_000  # of the later entry, as section 3.2
AROUND_CHARS: Final = 300  # on each side of an anchor, where the future is not known
MOST_SEARCHES: Final = 100  # of one report without a known future, so that its cost is bounded

Place: TypeAlias = Literal["verbatim", "reachable", "lost"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """How much of something is where: weights in scores, numbers of anchors in lists."""

    verbatim: int = 0
    reachable: int = 0
    lost: int = 0

    @property
    def total(self) -> int:
        """All of it."""
        return self.verbatim + self.reachable + self.lost

    @property
    def loss(self) -> float:
        """The lost share, 0 to 1; of nothing, nothing is lost."""
        return self.lost / self.total if self.total else 0.0

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            verbatim=self.verbatim + other.verbatim, reachable=self.reachable + other.reachable,
            lost=self.lost + other.lost,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Weights by kind. `needed`: what is used later, or without a known future what was used before.

    `standing`: rules, open requests, decisions and open errors. `sentences`: these and the answered ones.
    `retrievals`: the later steps that would have to fetch something.
    """

    needed: Mapping[AnchorKind, Tally]
    standing: Mapping[AnchorKind, Tally]
    sentences: Mapping[AnchorKind, Tally]
    retrievals: int = 0

    @property
    def needed_loss(self) -> float:
        """The lost share of what is needed, 0 to 1."""
        return summed(self.needed).loss

    @property
    def standing_loss(self) -> float:
        """The lost share of the sentences that stand, 0 to 1."""
        return summed(self.standing).loss

    @property
    def sentence_loss(self) -> float:
        """The same over all sentences, as the report's section 3.3 counts."""
        return summed(self.sentences).loss


def summed(by_kind: Mapping[AnchorKind, Tally]) -> Tally:
    """Return the sum over the kinds."""
    return sum(by_kind.values(), Tally())


@dataclass(frozen=True, slots=True, kw_only=True)
class LossReport:
    """What a compaction did to what it replaced: each anchor by where it is now, heaviest kinds first.

    Anchors that an entry still in context holds are not listed: they were not replaced.
    """

    verbatim: tuple[Anchor, ...]
    reachable: tuple[Anchor, ...]
    lost: tuple[Anchor, ...]
    scores: Scores

    @property
    def needed_loss(self) -> float:
        """The lost share of what is needed, 0 to 1."""
        return self.scores.needed_loss

    @property
    def standing_loss(self) -> float:
        """The lost share of the sentences that stand, 0 to 1."""
        return self.scores.standing_loss

    @property
    def by_kind(self) -> Mapping[AnchorKind, Tally]:
        """Return kind -> how many listed anchors are where, for the kinds there are."""
        counts: dict[AnchorKind, Tally] = {}
        one = (Tally(verbatim=1), Tally(reachable=1), Tally(lost=1))
        for anchors, count in zip((self.verbatim, self.reachable, self.lost), one, strict=True):
            for anchor in anchors:
                counts[anchor.kind] = counts.get(anchor.kind, Tally()) + count
        return {kind: counts[kind] for kind in KINDS if kind in counts}


def score_loss(index: AnchorIndex, after: View, *, cut: int | None = None) -> Scores:
    """Return how much of what was known before position `cut` (default: all) the context `after` leaves.

    `index` may reach beyond `cut`: then it holds the recorded future, and tells what was needed.
    """
    return _Judge(index, after, cut).scores()


def loss_report(
    path: Sequence[Entry], before: View, after: View, *, future: Iterable[Entry] = (), index: AnchorIndex | None = None
) -> LossReport:
    """Return what the step from `before` to `after` does to the anchors of `path`.

    `path` are the entries up to here; the compaction itself may or may not be among them, so that a dry run
    gives the same report. `future` are recorded entries that follow. `index` saves reading `path` again: it
    must hold exactly `path`, then `future`. Cost is linear in the path, less what `index` knows.
    """
    index = index if index is not None else AnchorIndex([*path, *future])
    judge = _Judge(index, after, min(len(path), len(index)))
    return judge.report(Sight(index, before))


class _Judge:
    """Classifies the anchors before `cut` against one context."""

    def __init__(self, index: AnchorIndex, after: View, cut: int | None) -> None:
        self.index = index
        self.cut = len(index) if cut is None else cut
        self.sight = Sight(index, after)
        self.finder = Finder(self.sight, self.cut)
        self.future = any(s.author != "nobody" for s in index.said[self.cut :])
        self.needed = index.needed(self.cut) if self.future else self._used_before()
        self._request = (index.request_after(self.cut) or index.request_before(self.cut))[:QUERY_CHARS]
        self._places: dict[Key, Place] = {}
        self._searches = MOST_SEARCHES

    def _used_before(self) -> dict[Key, Need]:
        """Without a future: what somebody wrote may be written again. Heaviest first."""
        steps = {k: self.index.authored_steps(k, self.cut) for k in self.index.keys(self.cut) if k[0] not in SENTENCES}
        needs = {k: Need(weight=WEIGHTS[k[0]] * min(3, n), position=-1) for k, n in steps.items() if n}
        return dict(sorted(needs.items(), key=lambda pair: -pair[1].weight))

    def place(self, key: Key) -> Place:
        """Return where `key` is now."""
        known = self._places.get(key)
        if known is None:
            held = self.sight.holds(key, self.cut)
            known = self._places[key] = "verbatim" if held else "reachable" if self._reachable(key) else "lost"
        return known

    def _reachable(self, key: Key) -> bool:
        if key[0] in SENTENCES:
            return self.finder.finds(key, self._request)
        need = self.needed.get(key)
        if self.future and need is not None:
            return self.finder.finds(key, self.index.said[need.position].text[:QUERY_CHARS])
        if not self._searches:
            return False
        self._searches -= 1
        return self.finder.finds_by(key, self._around(key))

    def _around(self, key: Key) -> frozenset[str]:
        text = self.index.said[self.index.occurrences(key, self.cut)[-1]].text
        at = max(0, text.find(key[1]))
        near = text[max(0, at - AROUND_CHARS) : at + len(key[1]) + AROUND_CHARS]
        return frozenset(self.sight.words.terms(near)) & self.sight.terms

    def scores(self) -> Scores:
        """Return the weights by kind."""
        needed: dict[AnchorKind, Tally] = {}
        fetching: set[int] = set()
        for key, need in self.needed.items():
            place = self.place(key)
            _count(needed, key[0], place, need.weight)
            if place == "reachable" and need.position >= 0:
                fetching.add(self.index.steps[need.position])
        standing: dict[AnchorKind, Tally] = {}
        sentences: dict[AnchorKind, Tally] = {}
        for key, position in self.index.sentences(self.cut).items():
            _count(sentences, key[0], self.place(key), WEIGHTS[key[0]])
            if self.index.stands(key, position, self.cut):
                _count(standing, key[0], self.place(key), WEIGHTS[key[0]])
        return Scores(needed=needed, standing=standing, sentences=sentences, retrievals=len(fetching))

    def report(self, before: Sight) -> LossReport:
        """Return the lists over what `before` held and no entry in the new context does."""
        scores = self.scores()
        listed: dict[Place, list[Anchor]] = {"verbatim": [], "reachable": [], "lost": []}
        latest = self.index.sentences(self.cut)
        for key in self.index.keys(self.cut):
            where = self.index.occurrences(key, self.cut)
            if any(p in self.sight.whole for p in where) or not before.holds(key, self.cut):
                continue
            standing = self.index.stands(key, latest.get(key, where[-1]), self.cut)
            anchor = Anchor(kind=key[0], text=key[1], where=self.index.ids[where[0]], standing=standing)
            listed[self.place(key)].append(anchor)
        for anchors in listed.values():
            anchors.sort(key=lambda a: (not a.standing, -WEIGHTS[a.kind], KINDS.index(a.kind)))
        return LossReport(
            verbatim=tuple(listed["verbatim"]), reachable=tuple(listed["reachable"]), lost=tuple(listed["lost"]),
            scores=scores,
        )  # fmt: skip


def _count(tallies: dict[AnchorKind, Tally], kind: AnchorKind, place: Place, weight: int) -> None:
    one = {"verbatim": Tally(verbatim=weight), "reachable": Tally(reachable=weight), "lost": Tally(lost=weight)}
    tallies[kind] = tallies.get(kind, Tally()) + one[place]
