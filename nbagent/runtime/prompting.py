"""What a turn is asked: the prompt, what `@name` attaches, and the skill that the person chose for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from nbagent.context.oversize import asked_in, too_large_line
from nbagent.core.effects import Sink, SubAgentMoved, ToolBegan, ToolEnded, TurnEvent
from nbagent.core.entries import Body, ResultStatus, TurnStart, UsageReported
from nbagent.core.errors import ToolError, TurnFailed, UsageProblem, one_line
from nbagent.core.messages import Block, text_block
from nbagent.models.registry import NamedModel
from nbagent.runtime.attach import attach
from nbagent.runtime.ports import Asked, TurnOptions, TurnPorts
from nbagent.runtime.turn_tools import turn_skills

if TYPE_CHECKING:
    from nbagent.runtime.turns import TurnRunner

RESULT = '<skill_result name="{name}">\n{text}\n</skill_result>'


async def asked(
    runner: TurnRunner, prompt: str, options: TurnOptions, named: NamedModel, ports: TurnPorts, start: TurnStart, *,
    preview: bool = False,
) -> Asked:  # fmt: skip
    """Return what the turn that `start` begins is asked. A `preview` runs nothing and writes nothing.

    Raises:
        UsageProblem: there is no skill of that name, or it cannot be used; or what is asked is alone too large for
            the window.
        TurnFailed: the skill ran in a context of its own and did not come to an end.
    """
    kernel, sees_images = ports.kernel, named.facts.sees_images
    tell = runner.notices.append if not preview else lambda line: None
    blocks = await attach(prompt, kernel=kernel, root=runner.folder, sees_images=sees_images, tell=tell)
    _check_size(runner, named, start, blocks)
    if options.skill is None:
        return Asked(blocks=blocks)
    try:
        text, brought = await _skill(runner, prompt, options, named, ports, start, preview=preview)
    except ToolError as error:
        raise UsageProblem(str(error)) from None
    given = (*blocks, text_block(text))
    _check_size(runner, named, start, given)
    return Asked(blocks=given, brought=brought)


def _check_size(runner: TurnRunner, named: NamedModel, start: TurnStart, blocks: Sequence[Block]) -> None:
    """Refuse what no compaction could make room for, before anything of it is written."""
    facts = named.facts
    meter, gauge = runner.gauge.meter(facts.family), runner.gauge
    fixed = gauge.calibrated(facts, sum(meter.prefix(runner.prefix_of(start.prefix)).values()))
    line = too_large_line(
        asked_in(blocks, lambda block: gauge.calibrated(facts, meter.block(block))), fixed_tokens=fixed,
        window_tokens=runner.budget(facts).window_tokens, model_window=facts.window_tokens,
    )  # fmt: skip
    if line:
        raise UsageProblem(f"nothing was sent: {line}")


async def _skill(
    runner: TurnRunner, prompt: str, options: TurnOptions, named: NamedModel, ports: TurnPorts, start: TurnStart, *,
    preview: bool,
) -> tuple[str, tuple[Body, ...]]:  # fmt: skip
    name = str(options.skill)
    arguments = _arguments(runner, name, prompt if options.skill_arguments is None else options.skill_arguments)
    if preview:
        from nbagent.skills.opening import invoke

        invocation = invoke(runner.skills.catalog, name, arguments, by_model=False)
        return invocation.text(), ()
    shown = _Shown(ports.sink, name, runner.writer.clock.monotonic)
    approvals = runner.approvals(ports, start)
    skills = turn_skills(runner, named, replace(ports, sink=shown), start, approvals)
    try:
        taken = await skills.take(name, arguments, by_model=False, why=prompt[:500])
    except BaseException as error:
        shown.end("interrupted" if isinstance(error, asyncio.CancelledError) else "error", one_line(str(error)))
        raise
    shown.end("error" if taken.failed else "ok", taken.failed or taken.text)
    if taken.failed:
        for body in taken.bodies:  # no turn writes it down
            if isinstance(body, UsageReported):
                runner.writer.write(body)
        raise TurnFailed(f"skill {taken.name!r} did not come to its end: {taken.failed}")
    return RESULT.format(name=taken.name, text=taken.text) if taken.forked else taken.text, taken.bodies


class _Shown:
    """A sink for what is told of a skill that the person chose: from its sub-agent's first word on it shows as a call.

    No step has begun, so nothing else would say what the cell is at.
    """

    def __init__(self, sink: Sink, name: str, now: Callable[[], float]) -> None:
        self._sink, self._name, self._now = sink, name, now
        self._agent, self._began_at = "", 0.0

    def __call__(self, event: TurnEvent) -> None:
        if isinstance(event, SubAgentMoved) and not self._agent:
            self._agent, self._began_at = event.agent, self._now()
            called = {"skill": self._name}
            self._sink(ToolBegan(call_id=event.agent, name="skill", summary=self._name, input=called))
        self._sink(event)

    def end(self, status: ResultStatus, text: str) -> None:
        """Tell how it ended, if it ran apart at all."""
        if self._agent:
            took_s = round(self._now() - self._began_at, 3)
            self._sink(
                ToolEnded(
                    call_id=self._agent, name="skill", summary=self._name, status=status, text=text, duration_s=took_s
                )
            )  # fmt: skip


def _arguments(runner: TurnRunner, name: str, text: str) -> str:
    """Return `text` where the skill has a place for arguments; else nothing, since it stands in the prompt anyway."""
    from nbagent.skills.opening import invoke

    invocation = invoke(runner.skills.catalog, name, text, by_model=False)
    added = f"\n\nARGUMENTS: {text.strip()}"
    fits = invocation.fork or not invocation.rendered.text().endswith(added)
    return text if fits else ""
