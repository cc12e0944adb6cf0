"""The silent turn before a compaction in which the model may store what must outlast it (OC-M7).

It goes on with the conversation but is no part of it: only what it cost and how it ended are entries. `read` works as
ever, `write` and `remember` append to the day's log, every other call is refused. It never asks the person.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from nbagent.context.engine import Engine
from nbagent.context.policy import NoteStyle, Reason
from nbagent.core.effects import Append, CallModel, Effect, RunAside, Say
from nbagent.core.entries import AssistantMessage, Compaction, Entry, Report, ToolResult, TurnStart, UserMessage
from nbagent.core.errors import ToolError, UserError
from nbagent.core.messages import (
    Message,
    Request,
    Response,
    ToolCall,
    joined_text,
    text_block,
    tool_calls,
    tool_result_block,
)
from nbagent.core.view import ViewFold
from nbagent.memory.bound import BoundMemory
from nbagent.memory.flush import (
    TRANSCRIPT_BYTES,
    FlushPlan,
    FlushState,
    failure_notice,
    flush_plan,
    is_silent,
    may_write,
    should_flush,
)
from nbagent.runtime.approvals import Approvals
from nbagent.runtime.toolbox import Toolbox
from nbagent.tools.registry import validate_input

if TYPE_CHECKING:
    from nbagent.runtime.driver import Driver
    from nbagent.runtime.turns import TurnRunner

SOURCE: Final = "flush"
MAX_STEPS: Final = 6
REPLY_TOKENS: Final = 2_000
OVERFLOW_DROP: Final = 0.2  # of the transcript, when the conversation did not fit
WRITERS: Final = frozenset({"write", "remember"})
REFUSED: Final = "only `read`, and `write` or `remember` to the day's log, may be used before a compaction"


def flush_state(path: Sequence[Entry]) -> FlushState:
    """Return how many compactions the path has, and at which of them it was flushed last."""
    compactions, flushed_at = 0, None
    for entry in path:
        body = entry.body
        if isinstance(body, Compaction):
            compactions += 1
        elif isinstance(body, Report) and body.source == SOURCE and body.details.get("ok"):
            flushed_at = compactions
    return FlushState(compactions=compactions, flushed_at=flushed_at)


def said_since(path: Sequence[Entry]) -> bool:
    """Tell whether anybody said something since the last compaction or flush."""
    for entry in reversed(path):
        if isinstance(entry.body, Compaction) or (isinstance(entry.body, Report) and entry.body.source == SOURCE):
            return False
        if isinstance(entry.body, UserMessage | AssistantMessage):
            return True
    return False


@dataclass(slots=True, kw_only=True)
class FlushTools:
    """The tools of a flush, each call guarded. `stored` counts the texts appended, `writers` are the tools that may."""

    plan: FlushPlan
    memory: BoundMemory
    today: Callable[[], str]
    root: str
    toolbox: Toolbox
    approvals: Approvals
    writers: frozenset[str] = WRITERS
    stored: int = 0
    logs: list[str] = field(default_factory=list)  # what was appended to: midnight may have passed

    async def run(self, call: ToolCall) -> ToolResult:
        """Run one call; what may not run gives an error."""
        tool = self.toolbox.tools.get(call.name)
        if call.name not in {"read", *self.writers} or tool is None:
            return _answer(call, f"{call.name}: {REFUSED}", ok=False)
        if call.name == "read":
            decision = await replace(self.approvals, mode="plan", ask=None).decide(call, masked=False)
            return await self.toolbox.run(call) if decision.allowed else _answer(call, decision.reason, ok=False)
        try:
            return _answer(call, self._stored(call, validate_input(tool.spec, call.input)), ok=True)
        except (ToolError, UserError) as error:
            return _answer(call, str(error), ok=False)

    def _stored(self, call: ToolCall, given: Any) -> str:
        if call.name == "write":
            may_write(str(given["path"]), self.plan, today=self.today(), root=self.root)
            path = self.memory.append(str(given["content"]))
        elif given.get("scope") == "person":
            raise ToolError(f"remember: in this turn facts go to {self.plan.note} only; leave scope out")
        else:
            path = self.memory.remember(str(given["text"]))
        self.stored += 1
        self.logs.append(path)
        return f"Appended to {path}."


def _answer(call: ToolCall, text: str, *, ok: bool) -> ToolResult:
    return ToolResult(
        call_id=call.id, name=call.name, content=(text_block(text),), status="ok" if ok else "error",
        full_chars=len(text),
    )  # fmt: skip


@dataclass(slots=True, kw_only=True)
class Flush:
    """The flush of one turn's engine. `writable` says that the person's rules and mode let the log be written.

    `journal_bytes` is how large the record of the conversation is; a large one flushes without a compaction too.
    """

    tools: FlushTools
    enabled: bool
    writable: bool
    journal_bytes: int = 0
    _size: int = field(init=False)

    def __post_init__(self) -> None:
        self._size = self.journal_bytes

    def before_call(self, engine: Engine, fold: ViewFold) -> Generator[Effect, Any, str | None]:
        """Flush a conversation whose record has grown large, once; then let the engine act."""
        size, self._size = self._size, 0
        due = size >= TRANSCRIPT_BYTES and self._due(fold, None, engine.budget.window_tokens, size)
        if due and (yield from self._run(engine, fold, NoteStyle(), 0.0)) == "stopped":
            return "stopped"
        return (yield from engine.before_call(fold))

    def __call__(
        self, engine: Engine, fold: ViewFold, style: NoteStyle, reason: Reason
    ) -> Generator[Effect, Any, str]:
        """Flush before a compaction, when none came since the last one. Returns "stopped" when the person stops it."""
        window = engine.budget.window_tokens
        if engine.edited is not None or not self._due(fold, window, window, 0):
            return ""
        return (yield from self._run(engine, fold, style, OVERFLOW_DROP if reason == "overflow" else 0.0))

    def _due(self, fold: ViewFold, total: int | None, window: int, size_bytes: int) -> bool:
        """Tell whether it is due. A compaction about to happen counts as a full window: policies know when."""
        return should_flush(
            flush_state(fold.path), total_tokens=total, window_tokens=window, transcript_bytes=size_bytes,
            enabled=self.enabled, writable=self.writable, new_messages=said_since(fold.path),
        ).due  # fmt: skip

    def _run(self, engine: Engine, fold: ViewFold, style: NoteStyle, drop: float) -> Generator[Effect, Any, str]:
        style = replace(style, reply_tokens=REPLY_TOKENS, sheds="oldest")
        asked = engine.ask(fold, self.tools.plan.prompt, style, drop)
        if asked is None:
            return (yield from self._ended(fold, failed="the conversation does not fit the window, even shortened"))
        marks = asked.request.breakpoints[:-1]  # its own question is read by nobody again
        request = replace(asked.request, breakpoints=marks)
        before = self.tools.stored
        for _ in range(MAX_STEPS):
            response: Response = yield CallModel(request=request, step=0, purpose=SOURCE)
            yield from engine.paid(fold, response, purpose=SOURCE)
            if response.cut == "stopped":
                return "stopped"
            if response.error is not None or response.cut is not None:
                return (yield from self._ended(fold, failed=str(response.error or response.cut)))
            calls = tool_calls(response.blocks) if response.stop_reason == "tool_use" else ()
            if not calls:
                said = "" if is_silent(joined_text(response.blocks)) else "unasked"
                return (yield from self._ended(fold, stored=self.tools.stored - before, said=said))
            results: Sequence[ToolResult] | None = yield RunAside(calls=tuple(calls), run=self.tools.run)
            if results is None:
                return "stopped"
            request = _going_on(request, response, results)
        return (yield from self._ended(fold, stored=self.tools.stored - before, said="no end"))

    def _ended(
        self, fold: ViewFold, *, stored: int = 0, said: str = "", failed: str = ""
    ) -> Generator[Effect, Any, str]:
        note = ", ".join(dict.fromkeys(self.tools.logs[-stored:])) if stored else self.tools.plan.note
        if failed:
            text = f"notes were not stored: {failed}"
            yield Say(text=failure_notice(failed))
        else:
            text = f"{stored} stored in {note}" if stored else "nothing to store"
            if stored:
                yield Say(text=f"Before the conversation is compacted, the agent noted what must last in {note}.")
        details = {"ok": not failed, "stored": stored, "note": note, **({"said": said} if said else {})}
        fold.add((yield Append(body=Report(source=SOURCE, text=text, details=details))))
        return ""


def _going_on(request: Request, response: Response, results: Sequence[ToolResult]) -> Request:
    """Return the next request of a flush: with the reply, and what its calls brought."""
    blocks = tuple(tool_result_block(r.call_id, r.content, is_error=r.status != "ok") for r in results)
    return replace(
        request, messages=(*request.messages, Message("assistant", response.blocks), Message("user", blocks))
    )


def flush_of(runner: TurnRunner, driver: Driver, start: TurnStart) -> Flush:
    """Return what lets the model store notes before a compaction of the turn `start`."""
    memory, rules, mode = runner.memory, driver.approvals.rules, driver.approvals.mode
    named = {str(t["name"]) for t in runner.prefix_of(start.prefix).tools} - set(start.masked_tools)
    may = (n for n in WRITERS & named if rules.verdict(n) not in ("deny", "ask"))
    writers = frozenset(may if mode != "plan" else ())
    tools = FlushTools(
        plan=flush_plan(memory.today()), memory=memory.bound(turn=start.turn, cell=start.cell_id or ""),
        today=memory.today, root=str(runner.folder), toolbox=driver.toolbox, approvals=driver.approvals,
        writers=writers,
    )  # fmt: skip
    enabled = runner.settings.memory.flush == "on"
    return Flush(tools=tools, enabled=enabled, writable=bool(writers), journal_bytes=runner.writer.size_bytes())
