"""off: nothing is managed. What the provider says when the window is full is shown as it is."""

from __future__ import annotations

from dataclasses import dataclass

from nbagent.context.policy import Numbers, Plan, PolicyKind, Situation


@dataclass(frozen=True, slots=True)
class OffPolicy:
    """Never moves anything by itself; `%context compact` works all the same."""

    numbers: Numbers
    name: str = "off"

    def plan(self, situation: Situation) -> Plan:
        """Propose nothing."""
        return ()


KIND = PolicyKind(name="off", make=OffPolicy, default={}, summary="manages nothing by itself")
