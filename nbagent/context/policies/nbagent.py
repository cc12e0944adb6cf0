"""nbagent: the default. The best of the others: offload early, prune in bulk, compact at a boundary, check what is
lost.

Sources: Manus (oldest half first, pointers that bring back), Claude Code (prune before summarising, re-attach),
OpenHands (minimum progress), createrole (hand-off note, verbatim appendix); numbers by DECISIONS 26.
"""

from __future__ import annotations

from dataclasses import dataclass

from nbagent.context.moves import (
    cut_keeping,
    freed_tokens,
    newest,
    pointer,
    prune,
    shown_results,
    tokens_before,
)
from nbagent.context.policy import Compact, NoteStyle, Numbers, Plan, PolicyKind, Situation

DEFAULT: Numbers = {
    "prune_above": 0.5,  # share of the window from which old results are cleared
    "prune_least": 0.1,  # share of the window that has to come free, else the cache is not broken for it
    "protect_results": 8,  # the newest results stay whole
    "threshold": 0.6,  # share of the window at which the conversation is compacted
    "keep": 0.2,  # share of the window that is kept whole
}


@dataclass(frozen=True, slots=True)
class NbagentPolicy:
    """Prune the oldest half of the results in one go; compact when that no longer pays."""

    numbers: Numbers
    name: str = "nbagent"

    def plan(self, situation: Situation) -> Plan:
        """Propose the cheaper move that is enough; nothing while there is room."""
        forced = situation.moment.reason != "before_call"
        if not forced and situation.share < min(self.numbers["prune_above"], self.numbers["threshold"]):
            return ()
        pruned = self._prune(situation)
        if pruned and not forced:
            left = situation.used_tokens - self._freed(situation)
            if left < self.numbers["threshold"] * situation.window:
                return pruned
        if forced or situation.share >= self.numbers["threshold"]:
            return self._compact(situation, forced=forced)
        return ()

    def _old(self, situation: Situation) -> tuple[int, Plan]:
        results = shown_results(situation)
        protected = {r.entry_id for r in newest(results, int(self.numbers["protect_results"]))}
        old = [r for r in results if r.entry_id not in protected]
        half = old[: (len(old) + 1) // 2]
        return freed_tokens(half), prune(half, pointer, "the oldest half of the tool results was cleared")

    def _freed(self, situation: Situation) -> int:
        return self._old(situation)[0]

    def _prune(self, situation: Situation) -> Plan:
        freed, plan = self._old(situation)
        if situation.share < self.numbers["prune_above"] or freed < self.numbers["prune_least"] * situation.window:
            return ()
        return plan

    def _compact(self, situation: Situation, *, forced: bool) -> Plan:
        keep = int(self.numbers["keep"] * situation.window)
        first_kept = cut_keeping(situation, keep)
        replaced = tokens_before(situation, first_kept)
        over = situation.used_tokens - situation.fixed_tokens - keep
        if not forced and replaced < over / 2:
            return ()  # it would free less than half of what is over: no thrashing
        if replaced <= 0:
            return ()
        return (Compact(first_kept=first_kept, reason=_reason(situation), style=NoteStyle()),)


def _reason(situation: Situation) -> str:
    if situation.moment.reason == "manual":
        return "asked for"
    if situation.moment.reason == "overflow":
        return "the request did not fit"
    return f"{100 * situation.share:.0f} % of the window was used"


KIND = PolicyKind(
    name="nbagent", make=NbagentPolicy, default=DEFAULT,
    summary=(
        "clears the oldest half of results at 50 %, compacts at 60 %, keeps the newest 20 % whole, checks "
        "what is lost"
    ),
)  # fmt: skip
