"""manus: after Manus' public posts and webinar (2025-07 to 2025-11) (MA-C3 to C6).

Modelled: below the pre-rot threshold nothing; there the oldest half of the tool calls goes to compact form with what
brings it back; when a round no longer frees much, a summary into a schema from the full data, also of what is in
compact form, the last calls kept whole; first the whole conversation goes into a file, which the summary names
(claude.md E). Errors and skills stay. Left out: the planner agent, tool masking by logits.
"""

from __future__ import annotations

from dataclasses import dataclass

from nbagent.context.moves import SKILL, cut_keeping, freed_tokens, pointer, prune, shown_results, tokens_before
from nbagent.context.policy import Compact, NoteStyle, Numbers, Plan, PolicyKind, Situation, in_window

DEFAULT: Numbers = {
    "threshold": 0.64,  # 128,000 of 200,000 tokens: the lower end of the pre-rot threshold
    "oldest": 0.5,  # share of the tool calls that goes to compact form
    "least_gain": 0.1,  # of the window: less than this, and a summary is made instead
    "keep_tokens": 20_000,  # the last calls keep full detail
}


@dataclass(frozen=True, slots=True)
class ManusPolicy:
    """Compact first (reversible), summarise only when that no longer pays."""

    numbers: Numbers
    name: str = "manus"

    def plan(self, situation: Situation) -> Plan:
        """Propose the reversible move as long as it pays."""
        forced = situation.moment.reason != "before_call"
        if not forced and situation.share < self.numbers["threshold"]:
            return ()
        results = [r for r in shown_results(situation) if r.body.status == "ok" and r.body.name != SKILL]
        half = results[: int(len(results) * self.numbers["oldest"])]
        if freed_tokens(half) >= self.numbers["least_gain"] * situation.window:
            return prune(half, pointer, "the oldest half of the tool calls went to compact form")
        first_kept = cut_keeping(situation, in_window(self.numbers["keep_tokens"], situation.window))
        if tokens_before(situation, first_kept) <= 0 and situation.moment.reason != "manual":
            return ()
        style = NoteStyle(
            template="manus", users_tokens=0, appendix_tokens=1_000, reattach=0, last_resort="", full=True,
            transcript=True,
        )  # fmt: skip
        return (Compact(first_kept=first_kept, reason="compact forms no longer free enough", style=style),)


KIND = PolicyKind(
    name="manus", make=ManusPolicy, default=DEFAULT,
    summary="compact forms of the oldest half first, a schema summary only when that no longer pays",
)  # fmt: skip
