"""What the tools of one turn work with: the context of each call, and the skills."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from nbagent.core.entries import TurnStart
from nbagent.core.messages import ToolCall
from nbagent.models.registry import NamedModel
from nbagent.runtime.approvals import Approvals
from nbagent.runtime.ports import TurnPorts
from nbagent.runtime.rules import Rules
from nbagent.runtime.seen import SeenResults
from nbagent.runtime.turn_skills import Forked, TurnSkills
from nbagent.tools.output import cap_chars
from nbagent.tools.shell import ShellTool
from nbagent.tools.tool import ToolContext

if TYPE_CHECKING:
    from nbagent.runtime.turns import TurnRunner
    from nbagent.skills.opening import Invocation

NO_OUTPUT = "(no output)"  # what the tool `shell` says


def tool_contexts(
    runner: TurnRunner, named: NamedModel, ports: TurnPorts, number: int, start: TurnStart, skills: TurnSkills | None
) -> Callable[[ToolCall], ToolContext]:
    """Return what makes the context of each call of turn `number`, which `start` begins."""
    counter = itertools.count(1)
    memory = runner.memory.bound(turn=start.turn, cell=start.cell_id or "")
    window = runner.budget(named.facts).window_tokens
    rules = runner.rules()

    def context(call: ToolCall) -> ToolContext:
        return ToolContext(
            call_id=call.id, root=runner.folder, cwd=runner.folder, cap_chars=cap_chars(window, start.policy),
            window_tokens=window,
            keep=runner.keep, scrub=runner.scrubber.text, kernel=ports.kernel, notebook=ports.notebook,
            hides=lambda path: rules.hides(path, runner.folder), recall=runner.recall, memory=memory, skills=skills,
            extra_roots=(runner.artifacts.folder, *runner.skills.read_roots()),
            seen=SeenResults(runner.writer.tree.path), sees_images=named.facts.sees_images,
            label=f"{runner.label}{number}.{next(counter)}", estimate=runner.gauge.meter(named.facts.family).text,
        )  # fmt: skip

    return context


def turn_skills(
    runner: TurnRunner, named: NamedModel, ports: TurnPorts, start: TurnStart, approvals: Approvals
) -> TurnSkills:
    """Return the skills of the turn that begins with `start`, whose calls `approvals` decides on."""

    async def run_command(command: str, environ: Mapping[str, str]) -> str:
        context = tool_contexts(runner, named, ports, 0, start, None)(ToolCall(id="", name="shell", input={}))
        output = await ShellTool(environ=environ).run({"command": command}, context)
        text = output.text.removesuffix("[exit code 0]").rstrip("\n")
        return "" if text == NO_OUTPUT else text

    async def fork(invocation: Invocation, text: str) -> Forked:
        from nbagent.runtime.forking import run_fork

        return await run_fork(runner, named, ports, start, invocation, text)

    def grant(rules: Rules) -> None:
        held = approvals.grants
        approvals.grants = Rules(allow=(*held.allow, *rules.allow), deny=(*held.deny, *rules.deny))

    return TurnSkills(
        session=runner.skills, path=runner.writer.tree.path, run_command=run_command, fork=fork, grant=grant,
        decide=lambda call: approvals.decide(call, masked=call.name in start.masked_tools),
        keep=runner.artifacts.put_text, estimate=runner.gauge.meter(named.facts.family).text,
        most_tokens=runner.budget(named.facts).window_tokens // 2,
    )  # fmt: skip
