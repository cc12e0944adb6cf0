"""What a turn that ended tells: its figures for the display, and the FinishedTurn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nbagent.core.budget import Usage
from nbagent.core.effects import Notice, TurnDone
from nbagent.core.entries import Entry, UsageReported
from nbagent.core.turn import TurnOutput
from nbagent.models.player import Player
from nbagent.runtime.ports import FinishedTurn, TurnPorts


def finished_turn(
    output: TurnOutput, ports: TurnPorts, *, entries: tuple[Entry, ...],
    context_tokens: Callable[[UsageReported], int], number: int, window_tokens: int, player: Player | None,
    notices: tuple[str, ...],
) -> FinishedTurn:  # fmt: skip
    """Tell the display that the turn is over, and return it. `entries` are those it wrote, `player` what was played."""
    reports = [e.body for e in entries if isinstance(e.body, UsageReported)]
    sent = [r for r in reports if r.purpose == "turn"]
    used = context_tokens(sent[-1]) if sent else 0
    total = sum((Usage.from_wire(r.usage) for r in reports), Usage())
    for line in notices:
        ports.sink(Notice(text=line))
    ports.sink(
        TurnDone(
            outcome=output.outcome, message=output.message, steps=output.steps, context_tokens=used,
            window_tokens=window_tokens, cost_usd=output.cost_usd, duration_s=output.duration_s, usage=vars_of(total),
        )
    )  # fmt: skip
    return FinishedTurn(
        output=output, entries=entries, number=number, context_tokens=used, window_tokens=window_tokens,
        replayed=player is not None, differences=tuple(player.differences) if player else (), notices=notices,
    )  # fmt: skip


def vars_of(value: Any) -> dict[str, Any]:
    """Return the fields of a slotted dataclass as a mapping."""
    return {name: getattr(value, name) for name in value.__dataclass_fields__}
