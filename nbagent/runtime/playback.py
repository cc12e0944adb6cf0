"""Playback: a turn driven by a recording: its tools withheld or run again, its end the recorded one."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from nbagent.core.effects import Append, CallModel, Effect, TakeSteering
from nbagent.core.entries import AssistantMessage, TurnEnd
from nbagent.core.errors import ToolError
from nbagent.core.messages import JsonObject, joined_text
from nbagent.core.turn import TurnInput, TurnOutput, run_turn
from nbagent.core.view import ViewFold
from nbagent.models.player import Player
from nbagent.runtime.rules import Rules
from nbagent.tools.tool import Tool, ToolContext, ToolOutput, ToolSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Playback:
    """How a recording is played: whose rules hold for its code, and whether its calls are priced."""

    player: Player
    rules: Rules
    mode: str
    asks_consent: bool = True
    free: bool = False


@dataclass(slots=True, kw_only=True)
class Withheld:
    """A tool that does not run the calls noted in `reasons`; their recorded results stand."""

    tool: Tool
    reasons: Mapping[str, str]
    spec: ToolSpec = field(init=False)

    def __post_init__(self) -> None:
        self.spec = self.tool.spec

    def summary(self, input: JsonObject) -> str:
        """Return what the tool says."""
        return self.tool.summary(input)

    def paths(self, input: JsonObject) -> tuple[str, ...]:
        """Return what the tool says."""
        return self.tool.paths(input)

    async def run(self, input: JsonObject, context: ToolContext) -> ToolOutput:
        """Run the call, unless it is withheld.

        Raises:
            ToolError: it is, and why.
        """
        if context.call_id in self.reasons:
            raise ToolError(f"not run: {self.reasons[context.call_id]}")
        return await self.tool.run(input, context)


def played(turn: TurnInput, player: Player) -> Generator[Effect, Any, TurnOutput]:
    """Run `turn` as it was recorded: with what the person said in mid-turn, and to the recorded end.

    What was done to the context is done again at the same places. A turn that was stopped, limited or failed ends
    at the same place with the same line.
    """

    def before_call(fold: ViewFold) -> Generator[Effect, Any, str | None]:
        while (move := player.next_move(fold.path)) is not None:
            fold.add((yield Append(body=move)))
        return None

    steps = run_turn(replace(turn, before_call=before_call))
    reply: Any = None
    while True:
        try:
            effect = steps.send(reply)
        except StopIteration as done:
            output: TurnOutput = done.value
            return _as_recorded(output, player.end)
        if isinstance(effect, CallModel) and player.is_over:
            steps.close()
            return (yield from _recorded_end(player))
        if isinstance(effect, Append) and isinstance(body := effect.body, TurnEnd):
            effect = Append(body=replace(player.end, turn=body.turn)) if body.outcome == player.end.outcome else effect
        reply = yield effect
        if isinstance(effect, TakeSteering):
            reply = (*player.steering(), *reply)


def _as_recorded(output: TurnOutput, end: TurnEnd) -> TurnOutput:
    if output.outcome != end.outcome:
        return output
    return replace(output, message=end.message, steps=end.steps, duration_s=end.duration_s)


def _recorded_end(player: Player) -> Generator[Effect, Any, TurnOutput]:
    end, stretch = player.end, player.turn.stretches[player.stretch]
    replies = [b for b in stretch.bodies if isinstance(b, AssistantMessage)]
    yield Append(body=end)
    return TurnOutput(
        turn=end.turn, outcome=end.outcome, message=end.message, steps=end.steps, duration_s=end.duration_s,
        text=next((t for b in reversed(replies) if (t := joined_text(b.blocks))), ""),
        stop_reason=replies[-1].stop_reason if replies else None, cost_usd=0.0,
    )  # fmt: skip
