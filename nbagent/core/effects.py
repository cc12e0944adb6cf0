"""Effects: what a turn may ask of the driver; and TurnEvents, which a display may watch.

A turn is a generator of effects. The driver performs each and sends the reply back in.
TurnEvents go from the driver to a display and are never stored.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeAlias

from nbagent.core.entries import Body, Entry, ResultStatus, ToolResult
from nbagent.core.messages import JsonObject, Request, ToolCall


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """Write an entry at the leaf. Reply: the stamped Entry."""

    kind: ClassVar[Literal["append"]] = "append"
    body: Body


@dataclass(frozen=True, slots=True, kw_only=True)
class CallModel:
    """Call the model. Reply: a Response, also when the call failed or was stopped (see its `cut`)."""

    kind: ClassVar[Literal["call_model"]] = "call_model"
    request: Request
    step: int
    purpose: str = "turn"


@dataclass(frozen=True, slots=True, kw_only=True)
class AskApproval:
    """Decide whether a call may run. Reply: a Decision."""

    kind: ClassVar[Literal["ask_approval"]] = "ask_approval"
    call: ToolCall
    masked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTools:
    """Run approved calls; the driver writes ToolStarted and ToolResult entries as they happen. Reply: ToolsDone."""

    kind: ClassVar[Literal["run_tools"]] = "run_tools"
    calls: tuple[ToolCall, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAside:
    """Run calls that are no part of the conversation by `run`; nothing is written or shown.

    Reply: their ToolResults in order, None when the person stopped it.
    """

    kind: ClassVar[Literal["run_aside"]] = "run_aside"
    calls: tuple[ToolCall, ...]
    run: Callable[[ToolCall], Awaitable[ToolResult]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadClock:
    """Ask how long the turn has run. Reply: seconds as float."""

    kind: ClassVar[Literal["read_clock"]] = "read_clock"


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeSteering:
    """Ask for text that the person sent while the turn runs. Reply: tuple of str."""

    kind: ClassVar[Literal["take_steering"]] = "take_steering"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadNow:
    """Ask what time it is. Reply: UTC in seconds since the epoch."""

    kind: ClassVar[Literal["read_now"]] = "read_now"


@dataclass(frozen=True, slots=True, kw_only=True)
class Consult:
    """Call somebody else's code, which may take long or hang. Reply: what it returns, None when the person stopped."""

    kind: ClassVar[Literal["consult"]] = "consult"
    call: Callable[[], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Say:
    """Tell the person one line; it is not recorded. Reply: None."""

    kind: ClassVar[Literal["say"]] = "say"
    text: str


Effect: TypeAlias = (
    Append | CallModel | AskApproval | RunTools | RunAside | Consult | ReadClock | ReadNow | Say | TakeSteering
)
Step: TypeAlias = Generator[Effect, Any, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The reply to AskApproval. `reason` is what the model is told when it may not run."""

    allowed: bool
    reason: str = ""
    scope: str = "once"
    by: str = "rule"
    record: bool = False
    stopped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsDone:
    """The reply to RunTools: the entries written, in order, and whether the person stopped the batch."""

    entries: tuple[Entry, ...]
    stopped: bool = False


# ---------------------------------------------------------------- events for a display


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnBegan:
    """A turn starts; `number` counts from 1 on the current path."""

    kind: ClassVar[Literal["turn_began"]] = "turn_began"
    turn: str
    number: int
    model: str
    window_tokens: int
    replayed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBegan:
    """A model call is about to be sent; `context_tokens` is its predicted size."""

    kind: ClassVar[Literal["step_began"]] = "step_began"
    step: int
    context_tokens: int
    cost_usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta:
    """Text of the reply arrived; block `index` of the current step."""

    kind: ClassVar[Literal["text_delta"]] = "text_delta"
    index: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingDelta:
    """A summary of the model's thinking arrived."""

    kind: ClassVar[Literal["thinking_delta"]] = "thinking_delta"
    index: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEnded:
    """A reply is whole, or `cut` says why not. `blocks` is what will be kept of it."""

    kind: ClassVar[Literal["step_ended"]] = "step_ended"
    step: int
    blocks: tuple[JsonObject, ...]
    cut: str | None
    context_tokens: int
    cost_usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolBegan:
    """A tool call runs; `summary` is its arguments in a few words."""

    kind: ClassVar[Literal["tool_began"]] = "tool_began"
    call_id: str
    name: str
    summary: str
    input: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolEnded:
    """A tool call is over; `text` is what the model sees, bounded. `stopped`: by the person, and the turn goes on."""

    kind: ClassVar[Literal["tool_ended"]] = "tool_ended"
    call_id: str
    name: str
    summary: str
    status: ResultStatus
    text: str
    duration_s: float
    stopped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """The provider asked to wait, or a request is tried again."""

    kind: ClassVar[Literal["waiting"]] = "waiting"
    reason: str
    seconds: float
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One line for the person."""

    kind: ClassVar[Literal["notice"]] = "notice"
    text: str


SubAgentStatus: TypeAlias = Literal["running", "done", "failed", "stopped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubAgentMoved:
    """A sub-agent of the turn began, went on or ended: all that is shown of it.

    `activity` is what it does now, or why it did not come to its end. `context_tokens` is the size of its own context.
    """

    kind: ClassVar[Literal["sub_agent_moved"]] = "sub_agent_moved"
    agent: str
    name: str
    status: SubAgentStatus
    activity: str = ""
    tool_calls: int = 0
    context_tokens: int = 0
    cost_usd: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnDone:
    """The turn is over."""

    kind: ClassVar[Literal["turn_done"]] = "turn_done"
    outcome: str
    message: str
    steps: int
    context_tokens: int
    window_tokens: int
    cost_usd: float
    duration_s: float
    usage: JsonObject = field(default_factory=dict)


TurnEvent: TypeAlias = (
    TurnBegan | StepBegan | TextDelta | ThinkingDelta | StepEnded | ToolBegan | ToolEnded | Waiting | Notice
    | SubAgentMoved | TurnDone
)  # fmt: skip
Sink: TypeAlias = Callable[[TurnEvent], None]
