"""opencode: after OpenCode (1.18, 2026-08) (OD-C1).

Modelled: optional pruning of results older than two turns beyond 40,000 tokens when 20,000 come free, back to the
newest that is cleared already; compaction when the usable window is used, whole recent turns kept up to a quarter of it
(2,000 to 15,000 tokens), what comes before them as text, with thinking. Left out: the replay of an overflowed request,
plugin hooks. The seed prunes by default, and before it summarises.
"""

from __future__ import annotations

from dataclasses import dataclass

from nbagent.context.moves import (
    SKILL,
    Shown,
    beyond_budget,
    cut_keeping,
    fixed_text,
    freed_tokens,
    prune,
    shown_results,
    since_cleared,
    tokens_before,
)
from nbagent.context.policy import Compact, NoteStyle, Numbers, Plan, PolicyKind, Situation, in_window, less_reserve

DEFAULT: Numbers = {
    "prune": 0,  # opt-in since April 2026
    "threshold": 0.0,  # share of the window; 0: the window less the reply
    "reserve_tokens": 32_000,  # most output tokens
    "input_tokens": 0,  # the most that the model takes in one request where that is less than its window; 0: the window
    "buffer_tokens": 20_000,  # kept free of that (compaction.reserved)
    "protect_tokens": 40_000,
    "prune_least_tokens": 20_000,
    "keep_share": 0.25,  # of the usable window
    "keep_least_tokens": 2_000,
    "keep_most_tokens": 15_000,
}
SEED: Numbers = {"prune": 1}
CLEARED = "[Old tool result content cleared]"


@dataclass(frozen=True, slots=True)
class OpenCodePolicy:
    """Rules first (cheap), then a summary (dear)."""

    numbers: Numbers
    name: str = "opencode"

    def plan(self, situation: Situation) -> Plan:
        """Propose pruning at the end of a turn, compaction when the usable window is used."""
        forced = situation.moment.reason != "before_call"
        usable = self.usable_tokens(situation.window)
        if not forced and situation.used_tokens < usable:
            return () if situation.moment.mid_turn else self._prune(situation)
        pruned = () if forced else self._prune(situation)
        if pruned and situation.used_tokens - freed_tokens(self._old(situation)) < usable:
            return pruned
        least = in_window(self.numbers["keep_least_tokens"], situation.window)
        most = in_window(self.numbers["keep_most_tokens"], situation.window)
        keep = max(least, min(most, int(self.numbers["keep_share"] * usable)))
        first_kept = cut_keeping(situation, keep)
        if tokens_before(situation, first_kept) <= 0 and situation.moment.reason != "manual":
            return ()
        style = NoteStyle(
            template="opencode", users_tokens=0, appendix_tokens=0, reattach=0, serialised=True, reject_above=1.0,
            too_long="drop", last_resort="", head_only=True, thinking=True,
        )  # fmt: skip
        return (Compact(first_kept=first_kept, reason="the usable window was used", style=style),)

    def usable_tokens(self, window_tokens: int) -> int:
        """Return how many tokens may be used before a compaction."""
        if self.numbers["threshold"]:
            return int(self.numbers["threshold"] * window_tokens)
        most = in_window(self.numbers["input_tokens"], window_tokens)
        if most:
            return min(window_tokens, less_reserve(most, in_window(self.numbers["buffer_tokens"], window_tokens)))
        return less_reserve(window_tokens, in_window(self.numbers["reserve_tokens"], window_tokens))

    def limit_share(self, window_tokens: int) -> float:
        """Return the share of the window at which compaction begins."""
        return self.usable_tokens(window_tokens) / max(1, window_tokens)

    def _old(self, situation: Situation) -> list[Shown]:
        results = since_cleared(situation, shown_results(situation))
        old = [r for r in results if r.turns_ago >= 2 and r.body.status == "ok" and r.body.name != SKILL]
        return beyond_budget(old, in_window(self.numbers["protect_tokens"], situation.window))

    def _prune(self, situation: Situation) -> Plan:
        if not self.numbers["prune"]:
            return ()
        old = self._old(situation)
        if sum(r.tokens for r in old) <= in_window(self.numbers["prune_least_tokens"], situation.window):
            return ()
        return prune(old, fixed_text(CLEARED), "results of old turns were cleared")


KIND = PolicyKind(
    name="opencode", make=OpenCodePolicy, default=DEFAULT, seed=SEED,
    summary="optional pruning beyond 40,000 tokens, then a summary with whole recent turns kept",
)  # fmt: skip
