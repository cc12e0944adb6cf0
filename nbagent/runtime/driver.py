"""Driver: performs the effects of a turn. The only code that knows both the generator and the world."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar, assert_never

from nbagent.core.effects import (
    Append,
    AskApproval,
    CallModel,
    Consult,
    Decision,
    Effect,
    Notice,
    ReadClock,
    ReadNow,
    RunAside,
    RunTools,
    Say,
    Sink,
    StepBegan,
    StepEnded,
    TakeSteering,
    TextDelta,
    ThinkingDelta,
    ToolBegan,
    ToolEnded,
    ToolsDone,
    TurnEvent,
    Waiting,
)
from nbagent.core.entries import AssistantMessage, Body, Entry, ToolResult, ToolStarted, UsageReported
from nbagent.core.errors import JournalUnwritable, ModelFailed, one_line
from nbagent.core.messages import Block, JsonObject, Response, ToolCall, joined_text, text_block, tool_calls
from nbagent.models.model import Model, Watch
from nbagent.models.reply import ReplyBuilder
from nbagent.runtime.approvals import Approvals
from nbagent.runtime.beside import beside
from nbagent.runtime.clock import Clock
from nbagent.runtime.toolbox import Toolbox

Outcome = TypeVar("Outcome")
INTERRUPTED = "Interrupted by the person while it ran; its outcome is unknown."
SHOWN_CHARS = 4_000
PARTIAL_CHARS = 4_000
CLEAN_UP_S = 2.5  # seconds that stopped tools get to clean up

_log = logging.getLogger(__name__)


class Writer(Protocol):
    """Where entries go."""

    def write(self, body: Body) -> Entry:
        """Stamp and append `body` at the leaf."""
        ...

    def save_partial(self, blocks: tuple[Block, ...], model: str, step: int) -> None:
        """Keep the finished blocks of a running reply, in case the process ends now."""
        ...

    def clear_partial(self) -> None:
        """The reply is an entry now."""
        ...


class Gauge(Protocol):
    """Knows how large the next request is."""

    def predict(self, request: Any) -> int:
        """Return the predicted size of `request`, tokens, and remember that it is the one being sent."""
        ...

    def believed(self, usage: JsonObject) -> int:
        """Return the size of the request being sent, by what the provider reports of it, tokens."""
        ...

    def measured(self, usage: UsageReported) -> None:
        """Take in what the provider measured of the request last predicted."""
        ...


class SafeSink:
    """A sink that never raises: a display that fails is logged, once a turn, and the turn goes on."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._failed = False

    def __call__(self, event: TurnEvent) -> None:
        """Show `event`."""
        try:
            self._sink(event)
        except Exception:  # noqa: BLE001  a display must not end a turn; it is recorded
            if not self._failed:
                _log.warning("the display of a turn failed; the turn goes on", exc_info=True)
            self._failed = True


@dataclass(slots=True, kw_only=True)
class Driver:
    """Performs one turn. `steering` is filled by others while it runs; a `sink` that raises is logged.

    `after_result` gives what else is to be written once a call has its result. `scrub` and `beginning` are the
    scrubber's, for what is shown. `price` gives what a reply of a model costs, in US dollars.

    The journal may turn out to be unwritable at any write: then `run` raises, what was written stands, and the
    next turn goes on from there. A reply is kept as a partial until it is an entry.
    """

    writer: Writer
    model: Model
    toolbox: Toolbox
    approvals: Approvals
    gauge: Gauge
    clock: Clock
    sink: Sink
    steering: list[str] = field(default_factory=list)
    on_request: Callable[[Any], None] = lambda request: None
    after_result: Callable[[ToolCall, ToolResult], Iterable[Body]] = lambda call, result: ()
    scrub: Callable[[Any], Any] = lambda value: value
    beginning: Callable[[str, int], str] = lambda text, chars: text[:chars]
    price: Callable[[str, JsonObject], float] = lambda model, usage: 0.0
    _began_at: float = 0.0
    _cost_usd: float = 0.0
    _context_tokens: int = 0
    _partial_failed: bool = False
    _abandoned: set[str] = field(default_factory=set)
    _asked: dict[str, ToolCall] = field(default_factory=dict)  # the calls of the last reply as they came
    stopped: bool = False

    def __post_init__(self) -> None:
        self.sink = SafeSink(self.sink)

    async def run(self, turn: Generator[Effect, Any, Outcome]) -> Outcome:
        """Drive `turn` to its end. A cancellation becomes an orderly stop; the turn writes what is left and ends.

        Raises:
            JournalUnwritable: an entry could not be written.
        """
        self._began_at = self.clock.monotonic()
        reply: Any = None
        while True:
            try:
                effect = turn.send(reply)
            except StopIteration as done:
                output: Outcome = done.value
                return output
            reply = await self._perform(effect)

    async def _perform(self, effect: Effect) -> Any:
        match effect:
            case Append():
                return self._append(effect.body)
            case CallModel():
                return await self._call(effect)
            case AskApproval():
                return await self._decide(effect)
            case RunTools():
                return await self._run_tools(effect.calls)
            case RunAside():
                return await self._run_aside(effect)
            case Consult():
                return await self._consult(effect)
            case ReadClock():
                return self.clock.monotonic() - self._began_at
            case ReadNow():
                return self.clock.now()
            case Say():
                self.sink(Notice(text=effect.text))
                return None
            case TakeSteering():
                return tuple([self.steering.pop(0) for _ in range(len(self.steering))])  # others may add to it now
            case _:
                assert_never(effect)

    def _append(self, body: Body) -> Entry:
        try:
            entry = self.writer.write(body)
        except JournalUnwritable:
            if isinstance(body, AssistantMessage):  # its blocks wait in the partial for better times
                with contextlib.suppress(JournalUnwritable):
                    self.writer.save_partial(body.blocks, body.model, body.step)
            raise
        if isinstance(body, AssistantMessage):
            self.writer.clear_partial()
        elif isinstance(body, UsageReported):
            self._cost_usd += body.cost_usd
            if body.purpose != "turn":
                return entry
            self.gauge.measured(entry.body if isinstance(entry.body, UsageReported) else body)
        elif isinstance(entry.body, ToolResult):
            self._tool_ended(entry.body)
        return entry

    # ------------------------------------------------------------ the model

    async def _call(self, effect: CallModel) -> Response:
        if effect.purpose != "turn":
            return await self._side_call(effect)
        self._context_tokens = self.gauge.predict(effect.request)
        self.on_request(effect.request)
        self.sink(StepBegan(step=effect.step, context_tokens=self._context_tokens, cost_usd=self._cost_usd))
        watch = self._watch(effect)
        try:
            response = await self.model.call(effect.request, watch)
        except asyncio.CancelledError:
            self.stopped = True
            response = watch.reply.response(cut="stopped")
        except Exception as error:  # noqa: BLE001  a model must not raise; what came is kept and the turn says why
            line = f"the model's client failed inside: {type(error).__name__}: {one_line(str(error))[:300]}"
            response = watch.reply.response(cut="the call failed", error=ModelFailed(line, kind="protocol"))
        self._asked = {c.id: c for c in tool_calls(response.blocks)}
        cost_usd = self._cost_usd  # what is counted when the reply is an entry is told with its end
        if response.usage:
            self._context_tokens = self.gauge.believed(response.usage)
            cost_usd += self.price(response.model, response.usage)
        self.sink(
            StepEnded(
                step=effect.step, blocks=response.blocks, cut=response.cut,
                context_tokens=self._context_tokens, cost_usd=cost_usd,
            )
        )  # fmt: skip
        return response

    async def _side_call(self, effect: CallModel) -> Response:
        """Call the model for a note: nothing of it is shown, kept as a partial, or taken for the context's size."""
        self.on_request(effect.request)
        watch = Watch(reply=ReplyBuilder(effect.request.model))
        watch.on_wait = lambda reason, s, n: self.sink(Waiting(reason=reason, seconds=s, attempt=n))
        try:
            return await self.model.call(effect.request, watch)
        except asyncio.CancelledError:
            self.stopped = True
            return watch.reply.response(cut="stopped")
        except Exception as error:  # noqa: BLE001  as in `_call`: the flow that asked decides what a failure means
            line = f"the model's client failed inside: {type(error).__name__}: {one_line(str(error))[:300]}"
            return watch.reply.response(cut="the call failed", error=ModelFailed(line, kind="protocol"))

    def _watch(self, effect: CallModel) -> Watch:
        model, step = effect.request.model, effect.step
        return Watch(
            reply=ReplyBuilder(model),
            on_text=lambda index, text: self.sink(TextDelta(index=index, text=text)),
            on_thinking=lambda index, text: self.sink(ThinkingDelta(index=index, text=text)),
            on_block=lambda blocks: self._keep(blocks, model, step),
            on_wait=lambda reason, s, n: self.sink(Waiting(reason=reason, seconds=s, attempt=n)),
        )

    def _keep(self, blocks: tuple[Block, ...], model: str, step: int) -> None:
        """Keep what came of a reply; when that fails the reply goes on, and is written when it is whole."""
        try:
            self.writer.save_partial(blocks, model, step)
        except JournalUnwritable as error:
            if not self._partial_failed:
                self.sink(Notice(text=f"the running reply cannot be kept yet: {error}"))
            self._partial_failed = True

    # ------------------------------------------------------------ tools

    async def _decide(self, effect: AskApproval) -> Decision:
        try:
            return await self.approvals.decide(self._as_asked(effect.call), masked=effect.masked)
        except asyncio.CancelledError:
            self.stopped = True
            return Decision(allowed=False, stopped=True)

    def _as_asked(self, call: ToolCall) -> ToolCall:
        """Return a call as the model wrote it: what runs is that, also where the journal has no secret of it."""
        asked = self._asked.get(call.id, call)
        return asked if asked.name == call.name and self.scrub(asked.input) == call.input else call

    async def _run_tools(self, calls: tuple[ToolCall, ...]) -> ToolsDone:
        entries: list[Entry] = []
        for batch in self.toolbox.batches(tuple(map(self._as_asked, calls))):
            tasks = {asyncio.create_task(self._run_one(call, entries)): call for call in batch}
            if await self._settle(tasks):
                self.stopped = True
                self._answer_stopped(tasks.values(), entries)
                return ToolsDone(entries=tuple(entries), stopped=True)
        return ToolsDone(entries=tuple(entries))

    async def _run_aside(self, effect: RunAside) -> tuple[ToolResult, ...] | None:
        try:
            return tuple([await effect.run(call) for call in effect.calls])
        except asyncio.CancelledError:
            self.stopped = True
            return None

    async def _consult(self, effect: Consult) -> Any:
        try:
            return await beside(effect.call)
        except asyncio.CancelledError:
            self.stopped = True
            return None

    async def _settle(self, tasks: dict[asyncio.Task[None], ToolCall]) -> bool:
        """Wait for a batch. Returns whether it was stopped; then none of its tools can write any more.

        Raises:
            Exception: what a task raised, the journal being unwritable, say; no other task goes on unwatched.
        """
        stopped = False
        try:  # not `gather`: when cancelled it waits for tools that do not end
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        except asyncio.CancelledError:
            stopped = True
        if not all(task.done() for task in tasks):
            await self._wind_up(tasks)
        ended = [task for task in tasks if task.done()]
        errors = [e for e in (t.exception() for t in ended if not t.cancelled()) if e is not None]
        if errors:
            raise errors[0]
        return stopped or any(task.cancelled() for task in ended)

    async def _run_one(self, call: ToolCall, entries: list[Entry]) -> None:
        entries.append(self._append(ToolStarted(call_id=call.id, name=call.name)))
        shown = self.scrub(call.input)  # before it is shortened
        summary = self.toolbox.summary(call if shown is call.input else replace(call, input=shown))
        self.sink(ToolBegan(call_id=call.id, name=call.name, summary=summary, input=call.input))
        began = self.clock.monotonic()
        result = await self.toolbox.run(call)
        if call.id in self._abandoned:
            return
        seconds = round(self.clock.monotonic() - began, 3)
        result = replace(result, duration_s=seconds)
        entries.append(self._append(result))
        entries.extend(self._append(body) for body in self.after_result(call, result))

    async def _wind_up(self, tasks: dict[asyncio.Task[None], ToolCall]) -> None:
        """Let cancelled tools clean up; one that does not end in time can write nothing more."""
        for task in tasks:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):  # a second Stop: do not wait any longer
            await asyncio.wait(tasks, timeout=CLEAN_UP_S)
        self._abandoned.update(call.id for task, call in tasks.items() if not task.done())

    def _answer_stopped(self, calls: Iterable[ToolCall], entries: list[Entry]) -> None:
        """Answer each call that started and has no result."""
        started = {e.body.call_id for e in entries if isinstance(e.body, ToolStarted)}
        answered = {e.body.call_id for e in entries if isinstance(e.body, ToolResult)}
        for call in calls:
            if call.id in started and call.id not in answered:
                printed = self.toolbox.partials.get(call.id, "")
                text = f"{INTERRUPTED}\nIt had printed:\n{printed[-PARTIAL_CHARS:]}" if printed else INTERRUPTED
                body = ToolResult(
                    call_id=call.id, name=call.name, content=(text_block(text),), status="interrupted",
                    full_chars=len(text),
                )  # fmt: skip
                entries.append(self._append(body))

    def _tool_ended(self, body: ToolResult) -> None:
        self.sink(
            ToolEnded(
                call_id=body.call_id, name=body.name, summary="", status=body.status,
                text=self.beginning(joined_text(body.content), SHOWN_CHARS), duration_s=body.duration_s,
                stopped=body.status == "error" and body.meta.get("stopped") is True,
            )
        )  # fmt: skip
