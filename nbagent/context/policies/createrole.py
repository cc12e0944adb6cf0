"""createrole: after createrole's digital employees (CR-C1 to C5).

Modelled: old results are masked on assembly (all but those of the last two messages), at 90 % all that a request has
held, and when that is not enough there is a hand-off note with URLs and paths appended by machine; retry on overflow.
The estimate and the last measurement are compared and the larger is believed (the engine does that for every policy).
"""

from __future__ import annotations

from dataclasses import dataclass

from nbagent.context.moves import SKILL, freed_tokens, pointer, prune, shown_results
from nbagent.context.policy import Compact, NoteStyle, Numbers, Plan, PolicyKind, Situation

DEFAULT: Numbers = {
    "mask_above": 0.5,  # share of the window from which old results are masked
    "keep_steps": 2,  # results of the last two messages stay
    "threshold": 0.9,
    "least_gain": 0.05,  # of the window: masking for less would only break the cache
}


@dataclass(frozen=True, slots=True)
class CreateRolePolicy:
    """Mask, trim, mask within the turn, then a note."""

    numbers: Numbers
    name: str = "createrole"

    def plan(self, situation: Situation) -> Plan:
        """Propose the next step of the ladder."""
        forced = situation.moment.reason != "before_call"
        results = [r for r in shown_results(situation) if r.body.name != SKILL]
        old = [r for r in results if r.steps_ago >= self.numbers["keep_steps"]]
        gain = freed_tokens(old)
        enough = gain >= self.numbers["least_gain"] * situation.window
        after = (situation.used_tokens - gain) / max(1, situation.window)
        if situation.share >= self.numbers["mask_above"] and enough and after < self.numbers["threshold"]:
            return prune(old, pointer, "old results were masked")
        if not forced and situation.share < self.numbers["threshold"]:
            return ()
        seen = [r for r in results if r.steps_ago >= 1]
        gain = freed_tokens(seen)
        left = (situation.used_tokens - gain) / max(1, situation.window)
        if not forced and gain >= self.numbers["least_gain"] * situation.window and left < self.numbers["threshold"]:
            return prune(seen, pointer, "all results but the newest were masked")
        style = NoteStyle(
            template="createrole", users_tokens=4_000, appendix_tokens=2_000, reattach=0, last_resort="drop"
        )
        return (Compact(first_kept=None, reason="the window is nearly full", style=style),)


KIND = PolicyKind(
    name="createrole", make=CreateRolePolicy, default=DEFAULT,
    summary="masks old results on assembly, at 90 % a hand-off note with URLs and paths appended by machine",
)  # fmt: skip
