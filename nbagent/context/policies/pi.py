"""pi: after Pi (earendil-works/pi, 1.6, 2026). The baseline: everything is sent; near the limit one summary (PI-C1).

Modelled: trigger at the window less 16,384; at least the newest 20,000 tokens kept, a call with its result also when
that is more; what comes before as text with results cut at 2,000 characters, in six sections; of a turn that is cut
inside, the first part is noted apart; computed lists of the files read and changed; nothing appended on failure, and
a note that cannot be used is not asked for again. A branch summary is `%agent revert --note`. Left out: extension
hooks.
"""

from __future__ import annotations

from dataclasses import dataclass

from nbagent.context.moves import cut_reaching, tokens_before
from nbagent.context.policy import Compact, NoteStyle, Numbers, Plan, PolicyKind, Situation, in_window, less_reserve

DEFAULT: Numbers = {
    "threshold": 0.0,  # share of the window; 0: the window less the reserve
    "reserve_tokens": 16_384,  # Pi's default reserve for the reply
    "keep_tokens": 20_000,  # Pi's keepRecentTokens
}


@dataclass(frozen=True, slots=True)
class PiPolicy:
    """No budget until the limit, then one summary."""

    numbers: Numbers
    name: str = "pi"

    def plan(self, situation: Situation) -> Plan:
        """Propose a compaction when the context is strictly above the limit."""
        limit = less_reserve(situation.window, in_window(self.numbers["reserve_tokens"], situation.window))
        if self.numbers["threshold"]:
            limit = int(self.numbers["threshold"] * situation.window)
        if situation.moment.reason == "before_call" and situation.used_tokens <= limit:
            return ()
        first_kept = cut_reaching(situation, in_window(self.numbers["keep_tokens"], situation.window))
        if tokens_before(situation, first_kept) <= 0 and situation.moment.reason != "manual":
            return ()
        style = NoteStyle(
            template="pi", users_tokens=0, appendix_tokens=600, reattach=0, serialised=True, reject_above=1.0,
            too_long="drop", last_resort="", files=True, head_only=True, turn_template="pi-turn", tries=1,
        )  # fmt: skip
        return (Compact(first_kept=first_kept, reason="the window is nearly full", style=style),)


KIND = PolicyKind(
    name="pi", make=PiPolicy, default=DEFAULT,
    summary="sends everything; at the window less 16,384 tokens one summary, the newest 20,000 tokens kept",
)  # fmt: skip
