"""nbagent: the default. Compact when it pays, keep little whole; the machine's note carries what must not get lost.

Sources: Claude Code (recent files shown again), OpenHands (minimum progress), createrole (hand-off note, verbatim
appendix), Manus (oldest half first, pointers that bring back; off unless `prune_above` is lowered). The
numbers replace those of DECISIONS 26: each is from the replay of recorded sessions (`benchmarks/compaction.py`,
`docs/compaction-results.md`, 2026-11), and why these is in `docs/decisions/0006-default-policy-numbers.md`.
"""

from __future__ import annotations

from dataclasses import dataclass

from nbagent.context.economy import Outlook, carried_cost, usual_trigger
from nbagent.context.moves import (
    Shown,
    cut_keeping,
    freed_tokens,
    newest,
    pointer,
    prune,
    shown_results,
    tokens_before,
)
from nbagent.context.policy import Compact, NoteStyle, Numbers, Plan, PolicyKind, Situation
from nbagent.core.entries import TurnEnd, TurnStart, UserMessage

DEFAULT: Numbers = {
    # Share of the window at which the conversation is compacted; 0: when it pays (`context/economy.py`). Replay: on
    # the long session that costs 0.52 of what 90 % costs, at a sixth of the unreachable misses of a fixed 23 % (0.54).
    "threshold": 0.0,
    "latest": 0.85,  # share of the window at which it is compacted whether it pays or not
    # Share of the window that is kept whole, at most an eighth of where it is compacted; the newest step is kept
    # whatever its size. Replay: a fifth costs 5 % more, a tenth saves 2 % and misses 7 names instead of 5.
    "keep": 0.2,
    # Share of the window for what the machine collects. DECISIONS 27: above 5 % a list of words would do.
    "note": 0.05,
    # Share of the window that a compaction has to free. Replay: without it windows of 20,000 are compacted twice as
    # often at 20 % and 25 %, for 7 to 9 % more.
    "compact_least": 0.1,
    # Share of the window from which old results are cleared before anything is compacted; 1 never. Replay: clearing
    # from 50 % on costs 6 % more at a threshold of 60 %, 18 % at 75 %, 2 % at 90 %, 3 % less at 95 %; the losses of
    # the first three about double.
    "prune_above": 1.0,
    "prune_least": 0.1,  # share of the window that has to come free, else the cache is not broken for it (DECISIONS 26)
    "protect_results": 8,  # the newest results stay whole (DECISIONS 26; 16 made little difference in the replay)
}
# Of where it is compacted: the threshold, or when it pays the size then, up to a quarter of the window (what is kept
# costs at every later call, however large the conversation was).
LARGEST_SHARE = 0.25
KEEP_OF_THRESHOLD = 0.12  # see "keep"
NOTE_OF_THRESHOLD = 0.25  # a note does not fill what it made free; replay at 20 %: with 0.2 2.1 % of names are lost
USERS_OF_THRESHOLD = 0.1  # the person's messages, word for word; in recorded sessions nearly all fit
SHOWN_OF_THRESHOLD = 0.02  # each of up to five files and variables shown again; the recordings do not tell
STEP_OF_WINDOW = 1 / 3  # of the newest step, at most: larger ones are replaced, and pointed to
# What the last steps brought is likely written next (replay, the long session: a name shown in the last three 36 %, an
# older one 1 to 3 %; a long file is worked on for about eight), so a compaction that would replace a tenth of the
# threshold of it waits a little: where the person set a threshold, for three steps' results and for long ones.
FRESH_STEPS = 3
FRESH_STEPS_LONG = 8
LONG_TOKENS = 5_000
FRESH_OF_THRESHOLD = 0.1
WAIT_UNTIL = 1.3  # of the threshold; 1.6 costs 2 % more and misses as much
WAIT_COSTS = 2.0  # times the cost of a compaction, where there is no threshold
LEAST_EXCESS = 1.3  # of what a compaction leaves: with less there is nothing to win
MOST_NOTE_OF_CONTENT = 0.2  # of what is replaced: small conversations have little to list
HANDOFF_TOKENS = 1_200  # of a model's note; the two recorded ones had 3.6 and 4.3 kB
HANDOFF_OF_WINDOW = 1 / 40  # of it, at most
USUAL_FIXED_TOKENS = 3_000  # system text and tools


@dataclass(frozen=True, slots=True)
class NbagentPolicy:
    """Compact when it frees enough; clear the oldest half of the results first where that is asked for."""

    numbers: Numbers
    name: str = "nbagent"

    def plan(self, situation: Situation) -> Plan:
        """Propose the cheaper move that is enough; nothing while there is room."""
        if situation.moment.reason != "before_call":
            return self._compact(situation)
        if pruned := self._prune(situation):
            return pruned
        return self._compact(situation) if self._due(situation) else ()

    def usual_share(self, window_tokens: int) -> float:
        """Return the share of the window at which a conversation that grows as most do is compacted."""
        if self.numbers["threshold"]:
            return self.numbers["threshold"]
        style = self._sized(LARGEST_SHARE, window_tokens)
        kept = self._kept_share(LARGEST_SHARE) * window_tokens
        after = kept + style.appendix_tokens + style.users_tokens / 2 + _handoff_tokens(window_tokens)
        outlook = Outlook(after_tokens=after, written_tokens=_handoff_tokens(window_tokens))
        return min(self.numbers["latest"], usual_trigger(USUAL_FIXED_TOKENS, outlook) / max(1, window_tokens))

    # ------------------------------------------------------------ when

    def _due(self, situation: Situation) -> bool:
        """Tell whether the threshold is reached; without one, whether a compaction pays, or the window is full."""
        if self.numbers["threshold"]:
            return situation.share >= self.numbers["threshold"]
        return situation.share >= self.numbers["latest"] or self._pays(situation, 1.0)

    def _pays(self, situation: Situation, times: float) -> bool:
        """Tell whether carrying what could go has cost `times` a compaction."""
        body = situation.used_tokens - situation.fixed_tokens
        written = _handoff_tokens(situation.window)
        none = Outlook(after_tokens=0.0, written_tokens=written)
        if carried_cost(situation, 0.0) < times * none.cost(situation.used_tokens):
            return False  # the commonest case, without looking for a cut
        after = self._after_tokens(situation)
        outlook = Outlook(after_tokens=after, written_tokens=written)
        paid = carried_cost(situation, after)
        return body > LEAST_EXCESS * after and paid >= times * outlook.cost(situation.used_tokens)

    def _after_tokens(self, situation: Situation) -> float:
        """Return about what a compaction would leave, less the fixed part."""
        first_kept = cut_keeping(situation, self._keep_tokens(situation))
        style = self._style(situation)
        kept = sum(situation.tokens) - tokens_before(situation, first_kept)
        listed = min(style.appendix_tokens, MOST_NOTE_OF_CONTENT * (situation.used_tokens - situation.fixed_tokens))
        asked = _asked_tokens(situation, first_kept, style.users_tokens)
        return kept + listed + asked + _handoff_tokens(situation.window)

    def _at_share(self, situation: Situation) -> float:
        """Return the share of the window that sizes follow from: the threshold, else how full it is."""
        full = LARGEST_SHARE if situation.moment.reason != "before_call" else situation.share
        return self.numbers["threshold"] or min(LARGEST_SHARE, full)

    # ------------------------------------------------------------ clearing results

    def _prune(self, situation: Situation) -> Plan:
        """Clear the oldest half of the old results when that is worth it and makes a compaction needless."""
        if situation.share < self.numbers["prune_above"]:
            return ()
        half = self._old_half(situation)
        freed = freed_tokens(half)
        left = situation.used_tokens - freed
        if freed < self.numbers["prune_least"] * situation.window:
            return ()
        if left >= (self.numbers["threshold"] or self.numbers["latest"]) * situation.window:
            return ()
        return prune(half, pointer, "the oldest half of the tool results was cleared")

    def _old_half(self, situation: Situation) -> list[Shown]:
        results = shown_results(situation)
        protected = {r.entry_id for r in newest(results, int(self.numbers["protect_results"]))}
        old = [r for r in results if r.entry_id not in protected]
        return old[: (len(old) + 1) // 2]

    # ------------------------------------------------------------ compaction

    def _compact(self, situation: Situation) -> Plan:
        first_kept = cut_keeping(situation, self._keep_tokens(situation))
        replaced = tokens_before(situation, first_kept)
        least = self._least_tokens(situation, first_kept) if situation.moment.reason == "before_call" else 1
        if replaced < least or self._too_fresh(situation, first_kept):
            return ()
        return (Compact(first_kept=first_kept, reason=_reason(situation), style=self._style(situation)),)

    def _too_fresh(self, situation: Situation, first_kept: str | None) -> bool:
        """Tell whether to wait a little: what was brought in the last steps would go before it could be used."""
        if situation.moment.reason != "before_call" or self._waited_enough(situation):
            return False
        fresh = _fresh_tokens(situation, first_kept, LONG_TOKENS if self.numbers["threshold"] else 0)
        return fresh > FRESH_OF_THRESHOLD * self._at_share(situation) * situation.window

    def _waited_enough(self, situation: Situation) -> bool:
        if self.numbers["threshold"]:
            until = min(WAIT_UNTIL * self.numbers["threshold"], self.numbers["latest"])
            return situation.share >= until
        return situation.share >= self.numbers["latest"] or self._pays(situation, WAIT_COSTS)

    def _keep_tokens(self, situation: Situation) -> int:
        step = min(_newest_step(situation), STEP_OF_WINDOW * situation.window)
        return int(max(self._kept_share(self._at_share(situation)) * situation.window, step))

    def _kept_share(self, at_share: float) -> float:
        return min(self.numbers["keep"], KEEP_OF_THRESHOLD * at_share)

    def _least_tokens(self, situation: Situation, first_kept: str | None) -> float:
        """Return what has to be replaced: the note's size and what must come free, at least half of what is over."""
        over = situation.used_tokens - situation.fixed_tokens - self._keep_tokens(situation)
        style = self._style(situation)
        note = style.appendix_tokens + _handoff_tokens(situation.window)
        asked = _asked_tokens(situation, first_kept, style.users_tokens)
        return note + asked + max(over / 2, self.numbers["compact_least"] * situation.window)

    def _style(self, situation: Situation) -> NoteStyle:
        return self._sized(self._at_share(situation), situation.window)

    def _sized(self, at_share: float, window_tokens: int) -> NoteStyle:
        limit = at_share * window_tokens
        return NoteStyle(
            users_tokens=int(USERS_OF_THRESHOLD * limit), reattach_tokens=int(SHOWN_OF_THRESHOLD * limit),
            appendix_tokens=int(min(self.numbers["note"] * window_tokens, NOTE_OF_THRESHOLD * limit)),
            sheds="results", overflow_tries=5,
        )  # fmt: skip


def _handoff_tokens(window_tokens: int) -> int:
    """Return about how long the model's note will be."""
    return int(min(HANDOFF_TOKENS, HANDOFF_OF_WINDOW * window_tokens))


def _newest_step(situation: Situation) -> int:
    """Return the size of the last reply and of what its calls brought, which the model has not seen yet."""
    total = 0
    for piece, tokens in zip(reversed(situation.view.pieces), reversed(situation.tokens), strict=True):
        total += tokens
        if piece.role == "assistant":
            break
    return total


def _fresh_tokens(situation: Situation, first_kept: str | None, long_tokens: int) -> int:
    """Return how much of the last steps' results a compaction would replace; of older ones those that are long."""
    kept: set[str] = set()  # from the end: what is kept is little
    for entry in reversed(situation.path) if first_kept is not None else ():
        kept.add(entry.id)
        if entry.id == first_kept:
            break
    total = steps = 0
    for piece, tokens in zip(reversed(situation.view.pieces), reversed(situation.tokens), strict=True):
        steps += piece.role == "assistant"
        if steps > FRESH_STEPS_LONG:
            break
        counts = steps <= FRESH_STEPS or tokens >= long_tokens
        if counts and piece.category == "tool results" and piece.entry_id not in kept:
            total += tokens
    return total


def _asked_tokens(situation: Situation, first_kept: str | None, limit_tokens: int) -> int:
    """Return about how much a note will repeat of the person: messages up to the limit, an open request whole."""
    sizes: dict[str, int] = {}
    for piece, tokens in zip(situation.view.pieces, situation.tokens, strict=True):
        sizes[piece.entry_id] = sizes.get(piece.entry_id, 0) + tokens
    total = pending = 0
    for entry in situation.path:
        if entry.id == first_kept:
            break
        if isinstance(entry.body, TurnStart | TurnEnd):
            pending = 0
        elif isinstance(entry.body, UserMessage):
            pending = sizes.get(entry.id, 0)
            total += pending
    return max(min(total, limit_tokens), pending)


def _reason(situation: Situation) -> str:
    if situation.moment.reason == "manual":
        return "asked for"
    if situation.moment.reason == "overflow":
        return "the request did not fit"
    return f"{100 * situation.share:.0f} % of the window was used"


KIND = PolicyKind(
    name="nbagent", make=NbagentPolicy, default=DEFAULT,
    summary=(
        "compacts as soon as that is cheaper than going on, keeps the newest part whole and lists word for word what "
        "must not get lost, with pointers to the rest"
    ),
)  # fmt: skip
