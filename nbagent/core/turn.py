"""run_turn: the agent loop as a restartable generator.

Everything it knows is on the path; everything it wants done it yields. It can be dropped at
any yield and started again from the path alone. A tool runs only when the provider said
`tool_use`; every call gets exactly one result; an end other than a completed answer is told
in one line.

Above 400 lines: the loop's rules refer to each other and are checked together, in one place.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from nbagent.core.effects import (
    Append,
    AskApproval,
    CallModel,
    Decision,
    Effect,
    ReadClock,
    RunTools,
    Say,
    TakeSteering,
    ToolsDone,
)  # fmt: skip
from nbagent.core.entries import (
    Approval,
    AssistantMessage,
    Body,
    Entry,
    Snapshot,
    Steering,
    ToolResult,
    TurnEnd,
    TurnOutcome,
    TurnStart,
    UsageReported,
    UserMessage,
)  # fmt: skip
from nbagent.core.errors import COMPACT_HELPS, ModelFailed, counted
from nbagent.core.messages import (
    Block,
    Request,
    Response,
    ToolCall,
    canonical,
    is_blank,
    is_thinking,
    is_tool_call,
    joined_text,
    text_block,
    tool_calls,
)  # fmt: skip
from nbagent.core.view import OpenCall, View, ViewFold

NOT_RUN = "Not run: the reply that asked for it was not whole ({why}). Ask again if it is still needed."
INTERRUPTED = "Interrupted, outcome unknown: the kernel ended while this ran. It was not run again."
STOPPED_WITHIN = "Interrupted by the person while this ran; its outcome is unknown. It was not run again."
STOPPED_BEFORE = "Not run: the person stopped the turn before this call began."
EMPTY_REPLY = "Your last reply was empty. Go on with the task, or say in a sentence that it is done."
GO_ON = "Go on from where you stopped."
SAYS_WHAT_TO_DO = frozenset({"invalid_request", "auth", "billing", "permission", "not_found", "too_large", "overflow"})
MAX_PAUSES = 10
ENDS_TURN = "ends_turn"  # in the state of a Snapshot: the line with which the turn ends behind it
MAX_OVERFLOWS = 2  # CR-C1: a request that did not fit is tried again at most twice, and only when it is smaller

Assemble: TypeAlias = Callable[[View, TurnStart, int], Request]
BeforeCall: TypeAlias = Callable[[ViewFold], Generator[Effect, Any, "str | None"]]
OnOverflow: TypeAlias = Callable[[ViewFold], Generator[Effect, Any, bool]]
OverflowLine: TypeAlias = Callable[[ViewFold], str]
PriceUsage: TypeAlias = Callable[[str, Any], float]


def _no_plan(fold: ViewFold) -> Generator[Effect, Any, str | None]:
    yield from ()
    return None


def _no_help(fold: ViewFold) -> Generator[Effect, Any, bool]:
    yield from ()
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Ceilings; None is no ceiling. `max_tokens` counts output tokens of the turn; costs in US dollars."""

    max_steps: int | None = 50
    max_tokens: int | None = None
    max_cost_usd: float | None = None
    session_cost_usd: float | None = None
    day_cost_usd: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnInput:
    """What a turn starts from.

    `start` and `prompt` are None for a turn that goes on (`%agent resume`). `brought` is what is written after the
    prompt. `spent_session_usd` and `spent_day_usd` are what was spent before it. `assemble(view, start, max_tokens)`
    makes the request, `price(model, usage)` gives dollars. `before_call` manages the context before each call and
    returns the line that ends the turn, None to go on; `on_overflow` makes the context smaller after the
    provider said that it does not fit, and says whether it did. `overflow_line` says what helps when compacting cannot,
    empty when it can.
    """

    path: Sequence[Entry]
    assemble: Assemble
    price: PriceUsage
    output_tokens: Callable[[Any], int]
    start: TurnStart | None = None
    prompt: tuple[Any, ...] = ()
    brought: tuple[Body, ...] = ()
    snapshot: Snapshot | None = None
    limits: Limits = field(default_factory=Limits)
    reply_tokens: int = 16_000
    spent_session_usd: float = 0.0
    spent_day_usd: float = 0.0
    before_call: BeforeCall = _no_plan
    on_overflow: OnOverflow = _no_help
    overflow_line: OverflowLine = lambda fold: ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnOutput:
    """How a turn ended. `message` is empty for a completed one, else the line that the person sees."""

    turn: str
    outcome: TurnOutcome
    message: str
    text: str
    steps: int
    stop_reason: str | None
    cost_usd: float
    duration_s: float


def close_broken_turn(view: View) -> tuple[Body, ...]:
    """Return what has to be written before a new turn, when the last one has no end: results and a TurnEnd."""
    if view.turn is None or (view.turn_ended and not view.open_calls):
        return ()
    results = tuple(_dead_result(c, INTERRUPTED) for c in view.open_calls)
    message = "the kernel ended before this turn did"
    return (*results, TurnEnd(turn=view.turn.turn, outcome="stopped", steps=view.steps, message=message))


def _dead_result(open_call: OpenCall, interrupted: str) -> ToolResult:
    """Return the result of a call that will not run; `interrupted` is what is said of one that had begun."""
    call = open_call.call
    text, status = STOPPED_BEFORE, "not_run"
    if open_call.started:
        text, status = interrupted, "interrupted"
    elif not open_call.runnable:
        text = NOT_RUN.format(why="it was cut")
    return _result(call, text, status)


def _result(call: ToolCall, text: str, status: Any) -> ToolResult:
    return ToolResult(call_id=call.id, name=call.name, content=(text_block(text),), status=status, full_chars=len(text))


class _Run:
    """The state of one run of the loop; all of it can be derived from the path again."""

    def __init__(self, turn: TurnInput) -> None:
        self.turn = turn
        self.fold = ViewFold(turn.path)
        self.steps = 0
        self.steps_before = self.fold.view().steps if turn.start is None else 0
        self.cost = 0.0  # of all calls since the turn was begun or taken up, those for hand-off notes too
        self.counted = len(self.fold.path)
        self.output = 0
        self.stop_reason: str | None = None
        self.texts: list[str] = []
        self.empty_told = False
        self.pauses = 0
        self.overflows = 0
        self.call_ids = {
            c.id for e in turn.path if isinstance(e.body, AssistantMessage) for c in tool_calls(e.body.blocks)
        }

    @property
    def step(self) -> int:
        """The current step's number in the turn, from 1; a resumed turn counts on, its limits count from 0."""
        return self.steps_before + self.steps

    def append(self, body: Body) -> Generator[Effect, Any, Entry]:
        entry: Entry = yield Append(body=body)
        self.fold.add(entry)
        return entry

    @property
    def start(self) -> TurnStart:
        start = self.fold.view().turn
        if start is None:
            raise ModelFailed("there is no turn to go on with: run a %%agent cell first", kind="invalid_request")
        return start

    def end(self, outcome: TurnOutcome, message: str = "") -> Generator[Effect, Any, TurnOutput]:
        seconds: float = yield ReadClock()
        start = self.start
        self.count_costs()
        yield from self.append(
            TurnEnd(turn=start.turn, outcome=outcome, steps=self.step, message=message, duration_s=round(seconds, 3))
        )
        return TurnOutput(
            turn=start.turn, outcome=outcome, message=message, text=self.texts[-1] if self.texts else "",
            steps=self.step, stop_reason=self.stop_reason, cost_usd=self.cost, duration_s=seconds,
        )  # fmt: skip

    # ------------------------------------------------------------ the loop

    def run(self) -> Generator[Effect, Any, TurnOutput]:
        reply = self.unsettled_reply()
        stopped = yield from self.begin()
        if reply is not None:
            finished = yield from self.settle(reply)
            if finished is not None:
                return finished
        while True:
            if stopped:
                return (yield from self.end("stopped", self.stopped_line()))
            if line := self.limit_reached():
                return (yield from self.end("limit", line))
            line = (yield from self.turn.before_call(self.fold)) or ""
            if line == "stopped":
                return (yield from self.end("stopped", self.stopped_line()))
            if line:
                return (yield from self.end("window_full", line))
            if line := self.limit_reached():  # a hand-off note costs too
                return (yield from self.end("limit", line))
            response = yield from self.call()
            finished = yield from self.take(response)
            if finished is not None:
                return finished
            stopped = yield from self.run_open_calls()
            if not stopped:
                yield from self.take_steering()

    def begin(self) -> Generator[Effect, Any, bool]:
        turn = self.turn
        if turn.start is None:
            return (yield from self.go_on())
        yield from self.append(turn.start)
        if turn.snapshot is not None:
            yield from self.append(turn.snapshot)
        yield from self.append(UserMessage(blocks=tuple(turn.prompt)))
        for body in turn.brought:
            yield from self.append(body)
        return False

    def go_on(self) -> Generator[Effect, Any, bool]:
        """Take a turn up again: answer what started and was lost, run what never started, then go on."""
        _ = self.start.turn  # refuses a path without a turn before anything is written
        for open_call in self.fold.view().open_calls:
            if open_call.started or not open_call.runnable:
                yield from self.append(_dead_result(open_call, INTERRUPTED))
        stopped = yield from self.run_open_calls()
        if stopped:
            return True
        if self.turn.snapshot is not None:
            yield from self.append(self.turn.snapshot)
        if self.unsettled_reply() is None and self.must_be_told_to_go_on():
            yield from self.append(Steering(text=GO_ON, by="person"))
        return False

    def must_be_told_to_go_on(self) -> bool:
        """Tell whether the request needs words: its last side is the model's, or its last reply was cut.

        A paused reply is sent back as it is, and the provider goes on with it.
        """
        messages = self.fold.view().messages
        ends_in_reply = not messages or messages[-1].role == "assistant"
        for entry in reversed(self.fold.path):
            if isinstance(entry.body, AssistantMessage):
                return entry.body.cut is not None or (ends_in_reply and entry.body.stop_reason != "pause_turn")
            if isinstance(entry.body, UserMessage | Steering):
                return False
        return True

    def unsettled_reply(self) -> Response | None:
        """Return the whole reply after which a crash came before the turn's end was written."""
        if self.turn.start is not None or self.fold.view().turn_ended:
            return None
        for entry in reversed(self.fold.path):
            body = entry.body
            if isinstance(body, UserMessage | Steering | ToolResult | TurnStart | Snapshot):
                return None
            if isinstance(body, AssistantMessage):
                if body.cut is not None or body.stop_reason == "tool_use":
                    return None
                return Response(
                    blocks=body.blocks, stop_reason=body.stop_reason, model=body.model,
                    response_id=body.response_id, stop_details=body.stop_details,
                )  # fmt: skip
        return None

    def call(self) -> Generator[Effect, Any, Response]:
        self.steps += 1
        request = self.turn.assemble(self.fold.view(), self.start, self.reply_tokens())
        response: Response = yield CallModel(request=request, step=self.step)
        return response

    def reply_tokens(self) -> int:
        ceiling = self.turn.limits.max_tokens
        return self.turn.reply_tokens if ceiling is None else max(1, min(self.turn.reply_tokens, ceiling - self.output))

    def limit_reached(self) -> str:
        self.count_costs()
        last = self.fold.path[-1].body if self.fold.path else None
        if isinstance(last, Snapshot) and last.state.get(ENDS_TURN):
            return str(last.state[ENDS_TURN])
        limits = self.turn.limits
        go_on = "`%agent resume` goes on"
        again = go_on + " with as much again, `%agent resume {} …` with another limit"
        if limits.max_steps is not None and self.steps >= limits.max_steps:
            steps = counted(limits.max_steps, "step")
            return f"stopped at the limit of {steps} (--max-steps); {go_on}"
        if limits.max_tokens is not None and self.output >= limits.max_tokens:
            tokens = counted(limits.max_tokens, "output token")
            return f"stopped at the limit of {tokens} (--max-tokens); {again.format('--max-tokens')}"
        for name, ceiling, before in (
            ("--max-cost", limits.max_cost_usd, 0.0),
            ("limits.session_cost_usd", limits.session_cost_usd, self.turn.spent_session_usd),
            ("limits.day_cost_usd", limits.day_cost_usd, self.turn.spent_day_usd),
        ):
            if ceiling is not None and before + self.cost >= ceiling:
                how = again.format(name) if name == "--max-cost" else f"raise it in the settings, then {go_on}"
                return f"stopped at the cost ceiling of ${ceiling:g} ({name}); {how}"
        return ""

    def take(self, response: Response) -> Generator[Effect, Any, TurnOutput | None]:
        """Record a reply and decide what follows: None to go on, else the turn's end."""
        blocks = self.storable(response.blocks)
        response = response if blocks is response.blocks else replace(response, blocks=blocks)
        cut = response.cut
        if cut is None and response.stop_reason is None and response.blocks:
            cut = "the stream ended early"
        if response.blocks or cut is None:
            yield from self.append(
                AssistantMessage(
                    blocks=response.blocks, stop_reason=response.stop_reason, model=response.model, step=self.step,
                    response_id=response.response_id, stop_details=response.stop_details,
                    cut=cut or _cut_of(response.stop_reason),
                )
            )  # fmt: skip
        if response.usage:
            yield from self.record_usage(response)
        return (yield from self.settle(response, cut))

    def storable(self, blocks: tuple[Block, ...]) -> tuple[Block, ...]:
        """Return the blocks as a journal can hold them: call ids are new, and an input holds no NaN (else its text).

        Some providers number their calls anew in each reply; others refuse an id that came before.
        """
        kept: list[Block] = []
        for block in blocks:
            if is_tool_call(block):
                call_id = own = str(block["id"])
                number = 1
                while own in self.call_ids:
                    number += 1
                    own = f"{call_id}-{number}"
                self.call_ids.add(own)
                block = block if own == call_id else {**block, "id": own}
                block = block if _is_json(block.get("input")) else {**block, "input": str(block["input"])}
            kept.append(block)
        return blocks if all(a is b for a, b in zip(kept, blocks, strict=True)) else tuple(kept)

    def settle(self, response: Response, cut: str | None = None) -> Generator[Effect, Any, TurnOutput | None]:
        """Answer the calls of a recorded reply that may not run, then decide by its stop reason."""
        self.stop_reason = response.stop_reason
        if text := joined_text(response.blocks):
            self.texts.append(text)
        if response.stop_reason != "tool_use" or cut is not None:
            for open_call in self.fold.view().open_calls:
                why = NOT_RUN.format(why=cut or response.stop_reason)
                yield from self.append(_result(open_call.call, why, "not_run"))
        if cut is not None:
            return (yield from self.end_cut(response, cut))
        return (yield from self.by_stop_reason(response))

    def record_usage(self, response: Response) -> Generator[Effect, Any, None]:
        cost = self.turn.price(response.model, response.usage)
        self.output += self.turn.output_tokens(response.usage)
        yield from self.append(
            UsageReported(step=self.step, model=response.model, usage=response.usage, cost_usd=round(cost, 8))
        )

    def count_costs(self) -> None:
        path = self.fold.path
        self.cost += sum(e.body.cost_usd for e in path[self.counted :] if isinstance(e.body, UsageReported))
        self.counted = len(path)

    def end_cut(self, response: Response, cut: str) -> Generator[Effect, Any, TurnOutput | None]:
        if cut == "stopped":
            return (yield from self.end("stopped", self.stopped_line()))
        error = response.error
        if isinstance(error, ModelFailed) and error.kind == "overflow" and self.overflows < MAX_OVERFLOWS:
            self.overflows += 1
            if (yield from self.turn.on_overflow(self.fold)):
                return None  # smaller now: the loop sends it again (CR-C1)
        came = "what came is kept" if response.blocks else "nothing of it came"
        line = str(error) if error is not None else f"the reply is not whole ({cut}); {came}"
        if isinstance(error, ModelFailed) and error.kind in ("overflow", "too_large"):
            line = line.replace(COMPACT_HELPS, self.turn.overflow_line(self.fold) or COMPACT_HELPS)
        again = error is None or (isinstance(error, ModelFailed) and error.kind not in SAYS_WHAT_TO_DO)
        if "%agent resume" not in line and (response.blocks or again):
            line += "; `%agent resume` goes on" if response.blocks else "; `%agent resume` tries again"
        return (yield from self.end("error", line))

    def by_stop_reason(self, response: Response) -> Generator[Effect, Any, TurnOutput | None]:
        match response.stop_reason:
            case "tool_use" if tool_calls(response.blocks):
                return None
            case "pause_turn" if self.pauses < MAX_PAUSES:
                self.pauses += 1
                return None
            case "end_turn" | "stop_sequence" | "tool_use" | "pause_turn" | "compaction":
                return (yield from self.finish(response))
            case "max_tokens":
                outcome: TurnOutcome = "limit" if self.limit_reached() else "cut_off"
                limit = f"the output limit ({self.turn.reply_tokens} tokens)"
                line = self.limit_reached() or f"the reply was cut off at {limit}; `%agent resume` goes on"
                return (yield from self.end(outcome, line))
            case "refusal":
                return (yield from self.end("refusal", _refusal_line(response)))
            case "model_context_window_exceeded":
                helps = self.turn.overflow_line(self.fold) or COMPACT_HELPS
                line = f"the context window is full and the reply was cut; {helps}"
                return (yield from self.end("window_full", line))
            case None:
                return (yield from self.end("error", "the provider sent an empty reply; run the cell again"))
            case _:
                yield Say(text=f"The reply ended for a reason that nbagent does not know: {response.stop_reason!r}.")
                return (yield from self.finish(response))

    def finish(self, response: Response) -> Generator[Effect, Any, TurnOutput | None]:
        if tool_calls(response.blocks):
            line = f"the reply asked for tools but ended with {response.stop_reason!r}, so nothing was run"
            return (yield from self.end("cut_off", f"{line}; `%agent resume` goes on"))
        if any(not is_thinking(b) and not is_blank(b) for b in response.blocks):
            late = yield from self.take_steering()
            return None if late else (yield from self.end("completed"))
        if not self.empty_told:
            self.empty_told = True
            yield from self.append(Steering(text=EMPTY_REPLY, by="loop"))
            return None
        yield Say(text="The agent ended without an answer: its reply was empty, twice.")
        return (yield from self.end("completed"))

    def stopped_line(self) -> str:
        return f"Stopped in step {max(self.step, 1)}. What was done so far is kept; `%agent resume` goes on."

    def take_steering(self) -> Generator[Effect, Any, bool]:
        texts: Iterable[str] = yield TakeSteering()
        taken = False
        for text in texts:
            taken = True
            yield from self.append(Steering(text=text))
        return taken

    # ------------------------------------------------------------ tools

    def run_open_calls(self) -> Generator[Effect, Any, bool]:
        """Ask for and run the calls at the end of the path. Returns whether the person stopped it."""
        allowed: list[ToolCall] = []
        stopped = False
        masked = self.start.masked_tools if self.fold.view().open_calls else ()
        for open_call in self.fold.view().open_calls:
            call = open_call.call
            if stopped:
                break
            decision: Decision = yield AskApproval(call=call, masked=call.name in masked)
            if decision.stopped:
                stopped = True
                break
            if decision.record:
                verdict = "allow" if decision.allowed else ("deny" if decision.by == "person" else "refused")
                yield from self.append(
                    Approval(call_id=call.id, tool=call.name, decision=verdict, scope=decision.scope, by=decision.by)
                )
            if decision.allowed:
                allowed.append(call)
            else:
                yield from self.append(_result(call, decision.reason, "refused"))
        if allowed and not stopped:
            done: ToolsDone = yield RunTools(calls=tuple(allowed))
            self.fold.extend(done.entries)
            stopped = done.stopped
        for open_call in self.fold.view().open_calls:
            yield from self.append(_dead_result(open_call, STOPPED_WITHIN if stopped else INTERRUPTED))
        return stopped


def run_turn(turn: TurnInput) -> Generator[Effect, Any, TurnOutput]:
    """Run one turn: yield effects, take their replies, return how it ended.

    Rules: a tool runs only when the reply's stop reason is `tool_use`; every call gets one
    result before the next model call; after a stop only entries are written.
    """
    return (yield from _Run(turn).run())


def _is_json(value: Any) -> bool:
    try:
        canonical(value)
    except (ValueError, TypeError):
        return False
    return True


def _cut_of(stop_reason: str | None) -> str | None:
    if stop_reason == "max_tokens":
        return "it reached the output limit"
    if stop_reason == "model_context_window_exceeded":
        return "the context window was full"
    return None


def _refusal_line(response: Response) -> str:
    details = response.stop_details or {}
    why = details.get("explanation") or details.get("category")
    tail = f" ({why})" if why else ""
    return f"the model declined to answer{tail}; change the request and run the cell again"
