"""Toolbox: runs one call: validate, guard, run, cap, keep the whole text. Never raises but for a stop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Protocol

from nbagent.core.entries import ResultStatus, ToolResult
from nbagent.core.errors import JournalUnwritable, ToolError, ToolStopped, one_line
from nbagent.core.messages import ToolCall, canonical, text_block
from nbagent.tools.kernel_types import CodeCancelled
from nbagent.tools.output import PREVIEW_OVER_CHARS, cap_text, clean_text
from nbagent.tools.registry import validate_input
from nbagent.tools.tool import Artifact, Tool, ToolContext, ToolOutput

NOT_ALLOWED = "the recorded code was not allowed to run; its recorded results are shown"


class Tape(Protocol):
    """A recording that is played: it holds what each call brought."""

    def recorded(self, call: ToolCall) -> ToolResult | None:
        """Return the recorded result of `call`; None when the recording does not hold it."""
        ...

    def in_order(self, calls: Iterable[ToolCall]) -> list[ToolCall]:
        """Return `calls` in the order in which their results came."""
        ...

    def differs(self, call: ToolCall, recorded: ToolResult, now: ToolResult) -> None:
        """Note that running the call brought something else."""
        ...


@dataclass(slots=True, kw_only=True)
class Toolbox:
    """The tools of one turn. `context` makes what a call may use.

    `tape` is set in replay, and `consent` is asked before code of a recording runs, until it says no.
    `partials` holds what stopped code had printed, by call id.
    """

    tools: dict[str, Tool]
    context: Callable[[ToolCall], ToolContext]
    tape: Tape | None = None
    consent: Callable[[], Awaitable[bool]] | None = None
    partials: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def summary(self, call: ToolCall) -> str:
        """Return the arguments of `call` in a few words."""
        tool = self.tools.get(call.name)
        if tool is None or not isinstance(call.input, dict):
            return _short(canonical(call.input))
        try:
            return _short(tool.summary(call.input))
        except Exception:  # noqa: BLE001  arguments are the model's and not yet validated
            return _short(canonical(call.input))

    def batches(self, calls: Iterable[ToolCall]) -> list[list[ToolCall]]:
        """Group `calls` in order, in replay that of the recorded results: neighbours that may run together are one."""
        groups: list[list[ToolCall]] = []
        together = False
        for call in self.tape.in_order(calls) if self.tape is not None else calls:
            tool = self.tools.get(call.name)
            concurrent = tool is not None and tool.spec.concurrent and self.tape is None
            if concurrent and together and groups:
                groups[-1].append(call)
            else:
                groups.append([call])
            together = concurrent
        return groups

    async def run(self, call: ToolCall) -> ToolResult:
        """Run `call` and return its result; in replay the recorded one, after running it for its effects."""
        if self.tape is None:
            return await self._run(call)
        recorded = self.tape.recorded(call)
        if recorded is None:
            return _error(call, "Not in the recording, so it was not run.", "not_run")
        if recorded.status in ("ok", "error") and await self._may_run(call):
            now = await self._run(call)
            if now.content != recorded.content or now.status != recorded.status:
                self.tape.differs(call, recorded, now)
        return recorded

    async def _may_run(self, call: ToolCall) -> bool:
        tool = self.tools.get(call.name)
        if tool is not None and not tool.spec.replayed:
            return False
        if tool is None or tool.spec.access == "read" or self.consent is None:
            return True
        if NOT_ALLOWED in self.problems:
            return False
        if await self.consent():
            return True
        self.problems.append(NOT_ALLOWED)
        return False

    async def _run(self, call: ToolCall) -> ToolResult:
        tool = self.tools.get(call.name)
        if tool is None:
            known = ", ".join(self.tools)
            return _error(call, f"There is no tool {call.name!r}. The tools are: {known}.")
        try:
            context = self.context(call)
            output = await tool.run(validate_input(tool.spec, call.input), context)
            return _result(call, tool, output, context)
        except JournalUnwritable:
            raise  # the full text cannot be kept: the turn ends with the line that says so
        except ToolStopped as stopped_by_person:
            return replace(_error(call, str(stopped_by_person)), meta={"stopped": True})
        except ToolError as error:
            return _error(call, str(error))
        except CodeCancelled as stopped:
            self.partials[call.id] = clean_text(f"{stopped.outcome.stdout}\n{stopped.outcome.stderr}").strip()
            raise
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001  also a KeyboardInterrupt of the tool's own code: one that left
            # an asyncio task would end the engine's loop; Stop comes as a cancellation. It is recorded.
            self.problems.append(f"tool {call.name!r} failed inside: {type(error).__name__}: {one_line(str(error))}")
            return _error(call, f"The tool failed inside: {type(error).__name__}: {one_line(str(error))[:500]}")


def _result(call: ToolCall, tool: Tool, output: ToolOutput, context: ToolContext) -> ToolResult:
    text = context.scrub(clean_text(output.text))
    full = context.scrub(clean_text(output.full_text)) if output.full_text is not None else text
    artifact: Artifact | None = None
    shown = output.shown
    if not tool.spec.formats_itself and len(text) > context.cap_chars:
        artifact = context.keep(full)
        capped = cap_text(text, context.cap_chars, artifact_path=artifact.path)
        text, shown = capped.text, capped.shown
    elif len(full) > (len(text) if output.full_text is not None else PREVIEW_OVER_CHARS):
        artifact = context.keep(full)
    meta = output.meta
    if artifact is not None and len(full) > PREVIEW_OVER_CHARS:
        meta = {**meta, "full_path": artifact.path}  # a policy may show a beginning of it only
    blocks = (text_block(text), *output.images) if text.strip() else output.images
    return ToolResult(
        call_id=call.id, name=call.name, content=tuple(blocks), status=output.status,
        artifact=artifact.digest if artifact else None, full_chars=len(full), shown=shown, meta=meta,
    )  # fmt: skip


def _error(call: ToolCall, text: str, status: ResultStatus = "error") -> ToolResult:
    clean = clean_text(text)
    return ToolResult(
        call_id=call.id, name=call.name, content=(text_block(clean),), status=status, full_chars=len(clean)
    )


def _short(text: str) -> str:
    folded = " ".join(clean_text(text).split())
    return folded if len(folded) <= 120 else folded[:119] + "…"
