"""A driver for `run_turn` without a clock, a kernel or a network: a script of replies, and plain answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from nbagent.core.effects import (
    Append,
    AskApproval,
    CallModel,
    Decision,
    ReadClock,
    RunTools,
    Say,
    TakeSteering,
    ToolsDone,
)
from nbagent.core.entries import AssistantMessage, Body, Entry, Steering, ToolResult, ToolStarted, TurnStart
from nbagent.core.messages import Message, Request, Response, ToolCall, text_block, tool_calls
from nbagent.core.turn import Limits, TurnInput, TurnOutput, run_turn
from nbagent.core.view import View, build_view
from tests.core.builders import PREFIX, response, stamp, start
from tests.core.wire_rules import broken_rules


def assemble(view: View, turn: TurnStart, max_tokens: int) -> Request:
    return Request(model=turn.model, max_tokens=max_tokens, prefix=PREFIX, messages=view.messages)


@dataclass
class Driver:
    """Performs effects. `replies` run out into "done"; `approve` decides on a call; `stop_in` names the call
    during which the person stops; `steering` is handed out in portions, one a question."""

    replies: list[Response] = field(default_factory=list)
    approve: Callable[[ToolCall], Decision] = lambda call: Decision(allowed=True)
    steering: list[tuple[str, ...]] = field(default_factory=list)
    stop_in: str = ""
    path: list[Entry] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    ran: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    yields: int = 0

    def turn(self, prompt: str | None = "hi", *, drop_at: int | None = None, **more: Any) -> TurnOutput | None:
        """Run a turn, or go on with the last one for prompt None; `drop_at`: leave the generator at that yield."""
        begin = None if prompt is None else more.pop("start", start())
        blocks = () if prompt is None else (text_block(prompt),)
        loop = run_turn(
            TurnInput(
                path=list(self.path), assemble=assemble, price=lambda m, u: 0.01,
                output_tokens=lambda u: int(u["output_tokens"]), start=begin, prompt=blocks, **more,
            )
        )  # fmt: skip
        answer: Any = None
        count = 0
        try:
            while True:
                effect = loop.send(answer)
                count += 1
                self.yields = count
                if count == drop_at:
                    loop.close()
                    return None
                answer = self.perform(effect)
        except StopIteration as done:
            output: TurnOutput = done.value
            return output

    def perform(self, effect: Any) -> Any:
        match effect:
            case Append():
                return self.write(effect.body)
            case CallModel():
                self.requests.append(effect.request)
                return self.replies.pop(0) if self.replies else response("done")
            case AskApproval():
                self.asked.append(effect.call.id)
                return self.approve(effect.call) if not effect.masked else Decision(allowed=False, reason="masked")
            case RunTools():
                return self.run(effect.calls)
            case TakeSteering():
                return self.steering.pop(0) if self.steering else ()
            case ReadClock():
                return 1.5
            case Say():
                self.said.append(effect.text)
                return None
        raise AssertionError(effect)

    def write(self, body: Body) -> Entry:
        self.path = stamp([body], self.path)
        return self.path[-1]

    def run(self, wanted: Sequence[ToolCall]) -> ToolsDone:
        written = []
        for call in wanted:
            written.append(self.write(ToolStarted(call_id=call.id, name=call.name)))
            self.ran.append(call.id)
            if call.id == self.stop_in:
                return ToolsDone(entries=tuple(written), stopped=True)
            written.append(
                self.write(ToolResult(call_id=call.id, name=call.name, content=(text_block(f"ran {call.id}"),)))
            )
        return ToolsDone(entries=tuple(written))

    # ------------------------------------------------------------ what must always hold

    @property
    def messages(self) -> tuple[Message, ...]:
        return build_view(self.path).messages

    def results(self) -> list[ToolResult]:
        return [e.body for e in self.path if isinstance(e.body, ToolResult)]

    def status(self) -> dict[str, str]:
        return {r.call_id: r.status for r in self.results()}

    def texts(self) -> dict[str, str]:
        return {r.call_id: str(r.content[0]["text"]) for r in self.results()}

    def check(self) -> None:
        """Every request was valid and extended the one before; every call has one result; the next turn is accepted."""
        for request in self.requests:
            paused = request.messages[-1].role == "assistant"
            assert broken_rules(request.messages, open_at_end=paused) == []
        for before, after in zip(self.requests, self.requests[1:], strict=False):
            was = list(before.canonical_chunks())
            assert list(after.canonical_chunks())[: len(was)] == was
        wanted = [c.id for e in self.path if isinstance(e.body, AssistantMessage) for c in tool_calls(e.body.blocks)]
        assert sorted(r.call_id for r in self.results()) == sorted(wanted)
        assert len(set(self.ran)) == len(self.ran)
        assert broken_rules(build_view(stamp([Steering(text="next")], self.path)).messages) == []


def driver(*replies: Response, **more: Any) -> Driver:
    return Driver(replies=list(replies), **more)


def limits(**more: Any) -> Limits:
    return Limits(**more)


def ids(entries: Iterable[Entry]) -> list[str]:
    return [e.kind for e in entries]
