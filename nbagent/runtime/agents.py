"""SubAgents: those that run now, so that a person can tell one something or stop it; and what is shown of each."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from nbagent.core.effects import (
    Sink,
    StepBegan,
    StepEnded,
    SubAgentMoved,
    SubAgentStatus,
    ToolBegan,
    ToolEnded,
    TurnDone,
    TurnEvent,
    Waiting,
)
from nbagent.core.entries import Entry, SkillUse, UsageReported
from nbagent.core.errors import UsageProblem
from nbagent.runtime.driver import SafeSink


@dataclass(slots=True, kw_only=True)
class RunningAgent:
    """A sub-agent that runs: `task` ends in good order when it is cancelled, `steering` is taken at each step."""

    agent: str
    name: str
    task: asyncio.Future[object]
    loop: asyncio.AbstractEventLoop
    steering: list[str] = field(default_factory=list)
    stopped: bool = False


def unheard_line(who: str, text: str) -> str:
    """Return that `who`, a turn or a sub-agent, was told `text` and has not heard it."""
    return f"Not heard, {who} had ended: {' '.join(text.split())}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hearing:
    """A sub-agent, how many messages it has not heard, and whether it has ended, so that it never will."""

    name: str
    waiting: int
    ended: bool


class SubAgents:
    """The sub-agents of one session. `send` and `stop` may be called on any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[str, RunningAgent] = {}
        self._ended: dict[str, RunningAgent] = {}

    @contextmanager
    def running(self, agent: RunningAgent) -> Iterator[RunningAgent]:
        """Let people reach `agent` inside this block."""
        with self._lock:
            self._running[agent.agent] = agent
        try:
            yield agent
        finally:
            with self._lock:
                del self._running[agent.agent]
                self._ended[agent.agent] = agent

    def send(self, agent: str, text: str) -> str:
        """Tell a sub-agent something before its next step; returns a line.

        Raises:
            UsageProblem: the text is empty, or no such sub-agent runs.
        """
        if not text.strip():
            raise UsageProblem("the message is empty; write what the sub-agent should hear")
        with self._lock:
            found = self._find(agent)
            found.steering.append(text)
        return f"{found.name} hears it before its next step."

    def hearing(self, agent: str) -> Hearing:
        """Return what `agent`, an id or a name, has not heard of what it was told; it may have ended."""
        with self._lock:
            known = {**self._ended, **self._running}
            found = known.get(agent) or next((a for a in reversed(known.values()) if a.name == agent), None)
            if found is None:
                return Hearing(name=agent, waiting=0, ended=True)
            return Hearing(name=found.name, waiting=len(found.steering), ended=found.agent not in self._running)

    def stop(self, agent: str) -> str:
        """Stop a sub-agent: what it was used for gets an error, the turn goes on. Returns a line.

        Raises:
            UsageProblem: no such sub-agent runs.
        """
        with self._lock:
            found = self._find(agent)
            found.stopped = True
            found.loop.call_soon_threadsafe(found.task.cancel)
        return f"Stopping {found.name}; the turn goes on without it."

    def _find(self, agent: str) -> RunningAgent:
        if agent in self._running:
            return self._running[agent]
        if agent in self._ended:
            raise UsageProblem(f"the sub-agent {self._ended[agent].name} has ended; it hears nothing any more")
        named = [a for a in self._running.values() if a.name == agent]
        if len(named) == 1:
            return named[0]
        there = ", ".join(f"{a.agent} ({a.name})" for a in self._running.values())
        raise UsageProblem(f"no sub-agent is called {agent!r}; {f'those that run: {there}' if there else 'none runs'}")


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedAgent:
    """A sub-agent as the journal tells it. `why` is the request it served; `tokens` are all it cost, in and out."""

    agent: str
    name: str
    why: str
    outcome: str
    tools: tuple[str, ...]
    tokens: int
    cost_usd: float
    duration_s: float
    journal: str


def ended_agents(entries: Iterable[Entry]) -> tuple[EndedAgent, ...]:
    """Return the sub-agents among `entries`, in their order; what one cost stands right before it."""
    found: list[EndedAgent] = []
    cost: UsageReported | None = None
    for entry in entries:
        body = entry.body
        if isinstance(body, UsageReported):
            cost = body if body.purpose == "skill" else None
        elif isinstance(body, SkillUse) and body.details.get("agent"):
            details, usage = body.details, cost.usage if cost is not None else {}
            journal = str(details.get("journal") or "")
            found.append(
                EndedAgent(
                    agent=journal.rpartition("/")[2][:8], name=body.name, why=body.why,
                    outcome=str(details.get("outcome") or "completed"), journal=journal,
                    tools=tuple(map(str, details.get("tools") or ())),
                    tokens=sum(v for v in usage.values() if isinstance(v, int)),
                    cost_usd=cost.cost_usd if cost is not None else 0.0,
                    duration_s=float(details.get("duration_s") or 0.0),
                )
            )  # fmt: skip
            cost = None
    return tuple(found)


class AgentWatch:
    """A sink for the events of a sub-agent: tells the turn that asked for it what it does, a word at a time."""

    def __init__(self, agent: str, name: str, tell: Sink) -> None:
        self._tell = SafeSink(tell)
        self._now = SubAgentMoved(agent=agent, name=name, status="running", activity="getting ready")
        self._tell(self._now)

    def __call__(self, event: TurnEvent) -> None:
        """Take an event of the sub-agent's own turn."""
        match event:
            case StepBegan():
                self._say(f"step {event.step}", tokens=event.context_tokens, cost_usd=event.cost_usd)
            case StepEnded():
                self._say(self._now.activity, tokens=event.context_tokens, cost_usd=event.cost_usd)
            case ToolBegan():
                self._say(f"{event.name} {event.summary}".strip(), calls=self._now.tool_calls + 1)
            case ToolEnded() if event.status not in ("ok", "interrupted"):
                self._say(f"{event.name}: {event.status}")
            case Waiting():
                self._say(f"waiting: {event.reason}")
            case TurnDone():  # with its last call
                self._say(self._now.activity, tokens=event.context_tokens, cost_usd=event.cost_usd)
            case _:
                return

    def end(self, status: SubAgentStatus, line: str = "") -> None:
        """Tell how it ended."""
        self._say(line, status=status)

    def _say(
        self, activity: str, *, tokens: int | None = None, cost_usd: float | None = None, calls: int | None = None,
        status: SubAgentStatus = "running",
    ) -> None:  # fmt: skip
        before = self._now
        self._now = SubAgentMoved(
            agent=before.agent, name=before.name, status=status, activity=activity,
            tool_calls=before.tool_calls if calls is None else calls,
            context_tokens=tokens or before.context_tokens,
            cost_usd=before.cost_usd if cost_usd is None else cost_usd,
        )  # fmt: skip
        if self._now != before:
            self._tell(self._now)
