"""A skill with `context: fork`: a conversation of its own, run to its end; only its answer comes back (CC-S2).

It has the same kernel, tools and permissions, its own prefix without skills, and a journal of its own beside the
session's. What it cost is one entry of the conversation that asked.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from nbagent.core.budget import Usage
from nbagent.core.entries import Entry, ToolStarted, TurnStart, UsageReported
from nbagent.core.messages import text_block
from nbagent.core.tree import SessionTree
from nbagent.core.turn import Limits
from nbagent.models.registry import NamedModel
from nbagent.runtime.contexts import PrefixInForce
from nbagent.runtime.gauge import SessionGauge
from nbagent.runtime.matching import CellKey
from nbagent.runtime.ports import Asked, TurnOptions, TurnPorts
from nbagent.runtime.skilling import TOOLS
from nbagent.runtime.spent import spent_before
from nbagent.runtime.turn_skills import Forked, rules_of
from nbagent.runtime.writer import Log, NoLog, SessionWriter
from nbagent.store.journal import Journal

if TYPE_CHECKING:
    from nbagent.runtime.turns import TurnRunner
    from nbagent.skills.opening import Invocation

TASK = (
    "{text}\n\nDo this now. You work in a context of your own: of all this, only your last message goes back to the "
    "conversation that asked for it. Say in it what was asked for, with the numbers, and nothing else."
)


async def run_fork(
    runner: TurnRunner, named: NamedModel, ports: TurnPorts, start: TurnStart, invocation: Invocation, text: str
) -> Forked:
    """Run a skill whose text is `text` in a conversation of its own, for the turn that began with `start`.

    Never raises for how it ended: `outcome` and `message` say it.
    """
    from nbagent.skills.uses import skill_use

    clock = runner.writer.clock
    name, folder = clock.new_id(), runner.forks
    log: Log = NoLog() if folder is None else Journal.open(folder / name / "journal.jsonl")
    try:
        child = _child(runner, SessionWriter(log, SessionTree(), clock, runner.scrubber.entry), name)
        cell = CellKey(cell_id=None, source_hash="", order=0)
        begun = child.start_of(name[:8], [], named, TurnOptions(mode=start.mode), cell)
        narrowed = {*begun.masked_tools, *(t for t in start.masked_tools if t in child.tools)}
        rules = rules_of(invocation.allowed_tools, invocation.disallowed_tools)
        use = skill_use(
            invocation.skill.name, "fork", invocation.arguments, allowed=rules.allow, denied=rules.deny,
            digest=invocation.skill.file.digest,
        )  # fmt: skip
        quiet = replace(ports, sink=_silent, cells=(), steering=[])
        done = await child.run(
            named, quiet, start=replace(begun, masked_tools=tuple(sorted(narrowed))),
            asked=Asked(blocks=(text_block(TASK.format(text=text)),), brought=(use,)), limits=_limits(runner, start),
        )  # fmt: skip
    finally:
        if isinstance(log, Journal):
            log.close()
    output = done.output
    why, _, _ = output.message.partition("; `%agent resume`")  # nobody can resume it
    return Forked(
        text=output.text, outcome=output.outcome, message=why, tools=_tools(done.entries),
        duration_s=output.duration_s, usage=_usage(done.entries), journal="" if folder is None else f"forks/{name}",
    )  # fmt: skip


def _child(runner: TurnRunner, writer: SessionWriter, name: str) -> TurnRunner:
    """Return a runner for the fork: what the session has, without skills and with a tree of its own."""
    tools = {n: t for n, t in runner.tools.items() if n not in TOOLS}
    return replace(
        runner, writer=writer, tools=tools, gauge=SessionGauge(), notices=[], forks=None, label=f"{name[:4]}.",
        prefixes={}, _in_force=PrefixInForce(),
    )  # fmt: skip


def _limits(runner: TurnRunner, start: TurnStart) -> Limits:
    """Return the limits of the turn that asked; of the session's ceiling what is left."""
    own = Limits(**{k: v for k, v in start.limits.items() if k in Limits.__dataclass_fields__})
    if own.session_cost_usd is None:
        return own
    spent, _ = spent_before(runner.writer.tree, runner.writer.clock.now(), None)
    return replace(own, session_cost_usd=max(0.0, own.session_cost_usd - spent))


def _tools(entries: Iterable[Entry]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(e.body.name for e in entries if isinstance(e.body, ToolStarted)))


def _usage(entries: Iterable[Entry]) -> UsageReported | None:
    """Return what all calls of the fork cost as one report, None when there was no call."""
    reports = [e.body for e in entries if isinstance(e.body, UsageReported)]
    if not reports:
        return None
    total = sum((Usage.from_wire(r.usage) for r in reports), Usage())
    cost = round(sum(r.cost_usd for r in reports), 8)
    return UsageReported(step=0, model=reports[-1].model, usage=_wire(total), cost_usd=cost, purpose="skill")


def _wire(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens,
        "cache_read_input_tokens": usage.cache_read_tokens, "cache_creation_input_tokens": usage.cache_creation_tokens,
    }  # fmt: skip


def _silent(event: Any) -> None:
    return
