"""nbagent: the default. Compact early, keep little whole, and let the machine's note carry what must not get lost.

Sources: Claude Code (recent files shown again), OpenHands (minimum progress), createrole (hand-off note, verbatim
appendix), Manus (oldest half first, pointers that bring back; off unless `prune_above` is lowered). The
numbers replace those of DECISIONS 26: each is from the replay of recorded sessions (`benchmarks/compaction.py`,
`docs/compaction-results.md`, 2026-11), and why these is in `docs/decisions/0006-default-policy-numbers.md`.
"""

from __future__ import annotations

from dataclasses import dataclass

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
from nbagent.context.policy import Compact, NoteStyle, Numbers, Plan, PolicyKind, Situation, in_window
from nbagent.core.entries import TurnEnd, TurnStart, UserMessage

DEFAULT: Numbers = {
    # Share of the window at which the conversation is compacted. Replay: on the long session 23 % costs 0.54 of what
    # 90 % costs, 25 % 0.57, 20 % 0.53; at 20 % a third more is missed at use.
    "threshold": 0.23,
    # Share of the window that is kept whole, at most a fifth of the threshold (5 % at 25 %, 19 % at 95 %). Replay: a
    # third costs 8 % more at 25 %, a sixth saves nothing; the newest step is kept whatever its size.
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
KEEP_OF_THRESHOLD = 0.2  # see "keep"
NOTE_OF_THRESHOLD = 0.25  # a note does not fill what it made free; replay at 20 %: with 0.2 2.1 % of names are lost
USERS_OF_THRESHOLD = 0.1  # the person's messages, word for word; in recorded sessions nearly all fit
SHOWN_OF_THRESHOLD = 0.02  # each of up to five files and variables shown again; the recordings do not tell
STEP_OF_WINDOW = 1 / 3  # of the newest step, at most: larger ones are replaced, and pointed to
# What the last steps brought is likely written next (replay, the long session: a name shown there 36 %, an older one
# 1 to 3 %), so a compaction that would replace a tenth of the threshold of it waits a little. Replay at 20 %: misses
# fall from 2.4 % to 2.0 %.
FRESH_STEPS = 3
FRESH_OF_THRESHOLD = 0.1
WAIT_UNTIL = 1.3  # of the threshold; 1.5 saves nothing more
HANDOFF_TOKENS = 1_200  # of a model's note; the two recorded ones had 3.6 and 4.3 kB


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
        if situation.share < self.numbers["threshold"]:
            return ()
        return self._compact(situation)

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
        if left >= self.numbers["threshold"] * situation.window:
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
        if situation.moment.reason != "before_call" or situation.share >= WAIT_UNTIL * self.numbers["threshold"]:
            return False
        fresh = _fresh_tokens(situation, first_kept)
        return fresh > FRESH_OF_THRESHOLD * self.numbers["threshold"] * situation.window

    def _keep_tokens(self, situation: Situation) -> int:
        share = min(self.numbers["keep"], KEEP_OF_THRESHOLD * self.numbers["threshold"])
        step = min(_newest_step(situation), STEP_OF_WINDOW * situation.window)
        return int(max(share * situation.window, step))

    def _least_tokens(self, situation: Situation, first_kept: str | None) -> float:
        """Return what has to be replaced: the note's size and what must come free, at least half of what is over."""
        over = situation.used_tokens - situation.fixed_tokens - self._keep_tokens(situation)
        style = self._style(situation)
        note = style.appendix_tokens + in_window(HANDOFF_TOKENS, situation.window)
        asked = _asked_tokens(situation, first_kept, style.users_tokens)
        return note + asked + max(over / 2, self.numbers["compact_least"] * situation.window)

    def _style(self, situation: Situation) -> NoteStyle:
        limit = self.numbers["threshold"] * situation.window
        return NoteStyle(
            users_tokens=int(USERS_OF_THRESHOLD * limit), reattach_tokens=int(SHOWN_OF_THRESHOLD * limit),
            appendix_tokens=int(min(self.numbers["note"] * situation.window, NOTE_OF_THRESHOLD * limit)),
        )  # fmt: skip


def _newest_step(situation: Situation) -> int:
    """Return the size of the last reply and of what its calls brought, which the model has not seen yet."""
    total = 0
    for piece, tokens in zip(reversed(situation.view.pieces), reversed(situation.tokens), strict=True):
        total += tokens
        if piece.role == "assistant":
            break
    return total


def _fresh_tokens(situation: Situation, first_kept: str | None) -> int:
    """Return how much of the last steps' results a compaction would replace."""
    kept = next((i for i, e in enumerate(situation.path) if e.id == first_kept), len(situation.path))
    replaced = {e.id for e in situation.path[:kept]}
    total = steps = 0
    for piece, tokens in zip(reversed(situation.view.pieces), reversed(situation.tokens), strict=True):
        steps += piece.role == "assistant"
        if steps > FRESH_STEPS:
            break
        if piece.category == "tool results" and piece.entry_id in replaced:
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
        "compacts at 23 %, keeps the newest 5 % whole and lists word for word what must not get lost, with pointers "
        "to the rest"
    ),
)  # fmt: skip
