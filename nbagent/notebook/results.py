"""From a finished turn of the session to the value that people get."""

from __future__ import annotations

from nbagent.core.budget import Usage
from nbagent.core.entries import UsageReported
from nbagent.notebook.app import NotebookAgent
from nbagent.notebook.reports.context import TurnResult
from nbagent.runtime.ports import FinishedTurn
from nbagent.runtime.turn_facts import calls_of


def turn_result(agent: NotebookAgent, done: FinishedTurn) -> TurnResult:
    """Return a finished turn as the value that people get."""
    output = done.output
    total = Usage()
    for entry in done.entries:
        if isinstance(entry.body, UsageReported):
            total += Usage.from_wire(entry.body.usage)
    usage = {
        "input_tokens": total.input_tokens, "cache_read_tokens": total.cache_read_tokens,
        "cache_creation_tokens": total.cache_creation_tokens, "output_tokens": total.output_tokens,
    }  # fmt: skip
    return TurnResult(
        text=output.text, turn_id=output.turn, steps=output.steps, tool_calls=calls_of(done.entries), usage=usage,
        cost_usd=output.cost_usd, stop_reason=output.stop_reason, duration_s=output.duration_s,
        events=tuple(agent.events_of(output.turn)),
    )  # fmt: skip
