"""A skill with `context: fork`: a conversation of its own, run to its end; only its answer comes back (CC-S2).

It has the same kernel, tools and permissions, its own prefix without skills, and a journal of its own beside the
session's. What it cost is one entry of the conversation that asked. While it runs it is a sub-agent: people see what
it does, can tell it something, and can stop it; the turn that asked goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from nbagent.core.budget import Usage
from nbagent.core.effects import Notice, SubAgentStatus
from nbagent.core.entries import Entry, ToolStarted, TurnStart, UsageReported
from nbagent.core.errors import one_line
from nbagent.core.messages import text_block
from nbagent.core.tree import SessionTree
from nbagent.core.turn import Limits
from nbagent.models.registry import NamedModel
from nbagent.runtime.agents import AgentWatch, RunningAgent, unheard_line
from nbagent.runtime.contexts import PrefixInForce
from nbagent.runtime.engines import SubAgentLife, session_name, sub_agent_told
from nbagent.runtime.gauge import SessionGauge
from nbagent.runtime.matching import CellKey
from nbagent.runtime.ports import Asked, FinishedTurn, TurnOptions, TurnPorts
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
STOPPED = "the person stopped it; go on without it, and do not start it again unless asked to"


async def run_fork(
    runner: TurnRunner, named: NamedModel, ports: TurnPorts, start: TurnStart, invocation: Invocation, text: str
) -> Forked:
    """Run a skill whose text is `text` in a conversation of its own, for the turn that began with `start`.

    Never raises for how it ended: `outcome` and `message` say it.
    """
    name = runner.writer.clock.new_id()
    parent = session_name(runner.writer.tree.path())
    with sub_agent_told(runner.policy_of(start.policy), parent, name[:8]) as life:
        return await _run(runner, named, ports, start, invocation, text, name=name, life=life)


async def _run(
    runner: TurnRunner, named: NamedModel, ports: TurnPorts, start: TurnStart, invocation: Invocation, text: str, *,
    name: str, life: SubAgentLife,
) -> Forked:  # fmt: skip
    from nbagent.skills.uses import skill_use

    folder = runner.forks
    log: Log = NoLog() if folder is None else Journal.open(folder / name / "journal.jsonl")
    try:
        child = _child(runner, SessionWriter(log, SessionTree(), runner.writer.clock, runner.scrubber.entry), name)
        cell = CellKey(cell_id=None, source_hash="", order=0)
        begun = child.start_of(name[:8], [], named, TurnOptions(mode=start.mode), cell)
        narrowed = {*begun.masked_tools, *(t for t in start.masked_tools if t in child.tools)}
        rules = rules_of(invocation.allowed_tools, invocation.disallowed_tools)
        use = skill_use(
            invocation.skill.name, "fork", invocation.arguments, allowed=rules.allow, denied=rules.deny,
            digest=invocation.skill.file.digest,
        )  # fmt: skip
        watch, steering = AgentWatch(name[:8], invocation.skill.name, ports.sink), list[str]()
        work = child.run(
            named, replace(ports, sink=watch, cells=(), steering=steering),
            start=replace(begun, masked_tools=tuple(sorted(narrowed))),
            asked=Asked(blocks=(text_block(TASK.format(text=text)),), brought=(use,)), limits=_limits(runner, start),
        )  # fmt: skip
        agent = RunningAgent(
            agent=name[:8], name=invocation.skill.name, task=asyncio.ensure_future(work), steering=steering,
            loop=asyncio.get_running_loop(),
        )  # fmt: skip
        life.begun = True
        try:
            with runner.agents.running(agent):
                done = await _ended(agent)
        except Exception as error:
            watch.end("failed", one_line(str(error)))
            raise
        forked = _forked(done, agent, "" if folder is None else f"forks/{name}")
        life.ended(forked.outcome)
        for unheard in steering:
            ports.sink(Notice(text=unheard_line(agent.name, unheard)))
        watch.end(_status(forked.outcome), "" if forked.message == STOPPED else forked.message)
        return forked
    finally:
        if isinstance(log, Journal):
            log.close()


async def _ended(agent: RunningAgent) -> FinishedTurn | None:
    """Wait for a sub-agent to end; None when it was stopped before its first step."""
    try:
        done = await agent.task
    except asyncio.CancelledError:
        current = asyncio.current_task()
        if not agent.stopped or (current is not None and current.cancelling()):
            raise
        return None
    return done if isinstance(done, FinishedTurn) else None


def _forked(done: FinishedTurn | None, agent: RunningAgent, journal: str) -> Forked:
    if done is None:
        return Forked(text="", outcome="stopped", message=STOPPED, tools=(), duration_s=0.0, usage=None)
    output = done.output
    why, _, _ = output.message.partition("; `%agent resume`")  # nobody can resume it
    if agent.stopped and output.outcome == "stopped":
        why = STOPPED
    return Forked(
        text=output.text, outcome=output.outcome, message=why, tools=_tools(done.entries),
        duration_s=output.duration_s, usage=_usage(done.entries), journal=journal,
    )  # fmt: skip


def _status(outcome: str) -> SubAgentStatus:
    return "done" if outcome == "completed" else "stopped" if outcome == "stopped" else "failed"


def _child(runner: TurnRunner, writer: SessionWriter, name: str) -> TurnRunner:
    """Return a runner for the fork: what the session has, without skills, with a tree and less system text (OC-C9)."""
    own = runner.settings.context
    brief = replace(own, prompt="none" if own.prompt == "none" else "minimal")
    tools = {n: t for n, t in runner.tools.items() if n not in TOOLS}
    return replace(
        runner, writer=writer, tools=tools, gauge=SessionGauge(), notices=[], forks=None, label=f"{name[:4]}.",
        prefixes={}, _in_force=PrefixInForce(), settings=replace(runner.settings, context=brief),
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
