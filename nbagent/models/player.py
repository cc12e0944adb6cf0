"""Player: plays one stretch of a recorded turn: its replies, its results, and its moves of the context."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from nbagent.core.entries import AssistantMessage, Body, Entry, Snapshot, Steering, ToolResult, TurnEnd, UsageReported
from nbagent.core.errors import CassetteMiss
from nbagent.core.messages import Request, Response, ToolCall, joined_text
from nbagent.models.cassette import HOW, RecordedTurn, is_move, located, speaks
from nbagent.models.model import Watch


@dataclass(slots=True)
class Player:
    """Plays one stretch of a recorded turn: a Model for its replies, a Tape for its results.

    `runs` are the tools whose recorded calls run again; None means all. `neutral` takes the folders of this
    machine out of a result before it is compared with the recorded one.
    """

    turn: RecordedTurn
    stretch: int = 0
    runs: frozenset[str] | None = None
    neutral: Callable[[str], str] = lambda text: text
    differences: list[str] = field(default_factory=list)
    _bodies: list[Body] = field(init=False)
    _usage: dict[int, UsageReported] = field(init=False)
    _results: dict[str, ToolResult] = field(init=False)

    def __post_init__(self) -> None:
        bodies = self.turn.stretches[self.stretch].bodies
        self._bodies = [b for b in bodies if isinstance(b, AssistantMessage | Snapshot | Steering) or is_move(b)]
        self._usage = {b.step: b for b in bodies if isinstance(b, UsageReported) and b.purpose == "turn"}
        self._results = {b.call_id: b for b in bodies if isinstance(b, ToolResult)}

    @property
    def end(self) -> TurnEnd:
        """How the recorded run ended."""
        return self.turn.stretches[self.stretch].end

    @property
    def is_over(self) -> bool:
        """Tell whether the recording ended here, other than with an answer: by a stop, a limit or an error."""
        return not speaks(self._bodies) and self.end.outcome != "completed"

    def steering(self) -> tuple[str, ...]:
        """Return what the person said in mid-turn at this place of the recording."""
        said: list[str] = []
        while self._bodies and isinstance(body := self._bodies[0], Steering):
            self._bodies.pop(0)
            if body.by == "person":
                said.append(body.text)
        return tuple(said)

    def next_move(self, path: Sequence[Entry]) -> Body | None:
        """Return what was written at this place to manage the context, as it reads on `path`; None when all was."""
        self.steering()  # what the loop itself said is said again by the loop
        if not self._bodies or not (is_move(self._bodies[0]) or isinstance(self._bodies[0], Snapshot)):
            return None
        return located(self._bodies.pop(0), path)

    def not_run(self) -> dict[str, str]:
        """Return the calls of the recording that do not run again, by id, and why."""
        return {
            r.call_id: "it is not run again"
            for r in self._results.values()
            if r.status not in ("ok", "error") or (self.runs is not None and r.name not in self.runs)
        }

    def check_ready(self) -> None:
        """A recording needs nothing."""

    async def close(self) -> None:
        """There is nothing to close."""

    async def call(self, request: Request, watch: Watch) -> Response:
        """Return the next recorded reply, as fast as it can be shown."""
        self.steering()  # what the loop itself said is said again by the loop
        body = self._bodies.pop(0) if self._bodies else None
        if not isinstance(body, AssistantMessage):
            error = CassetteMiss(f"not recorded: turn {self.turn.start.turn} has no further reply; {HOW}")
            return watch.reply.response(cut="the recording ended", error=error)
        usage = self._usage.get(body.step)
        for index, block in enumerate(body.blocks):
            if block.get("type") == "text":
                watch.on_text(index, str(block.get("text") or ""))
            elif block.get("type") == "thinking":
                watch.on_thinking(index, str(block.get("thinking") or ""))
        cut = body.cut if body.stop_reason not in ("max_tokens", "model_context_window_exceeded") else None
        return Response(
            blocks=body.blocks, stop_reason=body.stop_reason, model=body.model, response_id=body.response_id,
            usage=dict(usage.usage) if usage else {}, stop_details=body.stop_details, cut=cut,
        )  # fmt: skip

    def recorded(self, call: ToolCall) -> ToolResult | None:
        """Return the recorded result of `call`."""
        return self._results.get(call.id)

    def in_order(self, calls: Iterable[ToolCall]) -> list[ToolCall]:
        """Return `calls` in the order in which their recorded results came: tools that ran together end in any."""
        order = {call_id: i for i, call_id in enumerate(self._results)}
        return sorted(calls, key=lambda call: order.get(call.id, len(order)))

    def differs(self, call: ToolCall, recorded: ToolResult, now: ToolResult) -> None:
        """Note a result that came out differently this time."""
        if self.runs is not None and call.name not in self.runs:
            return
        then, here = joined_text(recorded.content), self.neutral(joined_text(now.content))
        if _without_addresses(then) == _without_addresses(here) and recorded.status == now.status:
            return
        line = next((f"{b[:80]!r}, recorded {a[:80]!r}" for a, b in _pairs(then, here) if a != b), "its status differs")
        self.differences.append(f"turn {self.turn.start.turn}: {call.name} now says {line}")


def _pairs(a: str, b: str) -> Iterable[tuple[str, str]]:
    return zip_longest(a.split("\n"), b.split("\n"), fillvalue="")


def _without_addresses(text: str) -> str:
    return re.sub(r"0x[0-9a-f]{6,}", "0x", text)
