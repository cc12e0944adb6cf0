"""gemini-cli: after Gemini CLI (0.61, 2026-08) (GC-C1 to C5).

Modelled: at 50 % of the window, tool responses beyond the newest 50,000 tokens are offloaded, the oldest 70 % of
the history is summarised as a state snapshot, cut at the start of a request; a second call probes the summary;
larger than what it replaces is rejected; independently, old outputs are masked. Left out: the graph context
manager, next-speaker check. The seed triggers at 70 %.
"""

from __future__ import annotations

from dataclasses import dataclass

from nbagent.context.moves import beyond_budget, cut_keeping, freed_tokens, pointer, prune, shown_results, tokens_before
from nbagent.context.policy import Compact, NoteStyle, Numbers, Plan, PolicyKind, Situation, in_window

DEFAULT: Numbers = {
    "threshold": 0.5,  # compressionThreshold since 0.18
    "keep": 0.3,  # of the history, by size, snapped forward to a request
    "protect_tokens": 50_000,  # newest tool responses that stay (masking)
    "mask_least_tokens": 30_000,  # masking happens when this much can go
}
SEED: Numbers = {"threshold": 0.7}
NEVER_MASKED = ("skill", "ask")


@dataclass(frozen=True, slots=True)
class GeminiCliPolicy:
    """Mask old outputs, summarise the older 70 %, probe the summary."""

    numbers: Numbers
    name: str = "gemini-cli"

    def plan(self, situation: Situation) -> Plan:
        """Propose what Gemini CLI would do before this call."""
        forced = situation.moment.reason != "before_call"
        if not forced and situation.share < self.numbers["threshold"]:
            return self._mask(situation)
        history = situation.used_tokens - situation.fixed_tokens
        first_kept = cut_keeping(situation, int(self.numbers["keep"] * history), turns_only=True)
        if tokens_before(situation, first_kept) <= 0:
            return self._mask(situation)
        style = NoteStyle(
            template="gemini-cli", users_tokens=0, appendix_tokens=0, reattach=0, probe=True, reject_above=1.0,
            last_resort="",
        )  # fmt: skip
        return (Compact(first_kept=first_kept, reason="half of the window was used", style=style),)

    def _mask(self, situation: Situation) -> Plan:
        results = [r for r in shown_results(situation) if r.body.name not in NEVER_MASKED]
        latest = [r for r in results if r.steps_ago == 0]
        old = beyond_budget(
            [r for r in results if r not in latest], in_window(self.numbers["protect_tokens"], situation.window)
        )
        if freed_tokens(old) < in_window(self.numbers["mask_least_tokens"], situation.window):
            return ()
        return prune(old, pointer, "old tool outputs were masked")


KIND = PolicyKind(
    name="gemini-cli", make=GeminiCliPolicy, default=DEFAULT, seed=SEED,
    summary=(
        "masks old outputs, at 50 % summarises the older 70 % as a state snapshot and probes it with a second "
        "call"
    ),
)  # fmt: skip
