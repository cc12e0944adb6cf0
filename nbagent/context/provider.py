"""LeavesToProvider: a policy that leaves clearing or compaction to the provider, and steps in when that is late.

Double compaction (CX-C2): the provider's own, where it exists; ours when the window is nearly full all the same (the
provider's failed, or was taken back), by hand, and after an overflow.
"""

from __future__ import annotations

from dataclasses import dataclass

from nbagent.context.policy import Numbers, Plan, Policy, Prune, Situation

BACKSTOP_SHARE = 0.85  # of the window: where compaction inside a bound tool loop begins too


@dataclass(frozen=True, slots=True, kw_only=True)
class LeavesToProvider:
    """The policy `inner` without what the provider does: `edits` holds "clear", "compact", or both."""

    inner: Policy
    edits: frozenset[str]

    @property
    def name(self) -> str:
        """The name of the policy itself."""
        return self.inner.name

    @property
    def numbers(self) -> Numbers:
        """The numbers of the policy itself."""
        return self.inner.numbers

    def plan(self, situation: Situation) -> Plan:
        """Return the plan less the moves that are the provider's, while there is room for it to make them."""
        plan = self.inner.plan(situation)
        if situation.moment.reason != "before_call" or situation.share >= BACKSTOP_SHARE:
            return plan
        return tuple(m for m in plan if ("clear" if isinstance(m, Prune) else "compact") not in self.edits)

