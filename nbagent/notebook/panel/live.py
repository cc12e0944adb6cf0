"""What the panel shows of the running turn: a fold of its events. Pure; the figures at its start are passed in."""

from __future__ import annotations

from dataclasses import replace

from nbagent.core.budget import Ledger
from nbagent.core.effects import (
    Notice,
    StepBegan,
    StepEnded,
    SubAgentMoved,
    TextDelta,
    ThinkingDelta,
    ToolBegan,
    ToolEnded,
    TurnBegan,
    TurnDone,
    TurnEvent,
    Waiting,
)
from nbagent.notebook.markdown import clean_line
from nbagent.notebook.panel.protocol import AgentRow, AgentsPart, GaugePart, TurnPart
from nbagent.notebook.render import shortened

CHARS_PER_TOKEN = 4  # of text that streams; the end of the step tells the measured size
LEAST_GROWTH_TOKENS = 256  # the gauge moves by no less while text streams: 100 KB make at most 100 deltas
GROWTH_SHARE = 400  # of the window, as a divisor
MOST_AGENTS = 100  # that are remembered after they ended
_SUMMARY_CHARS = 60


class LiveTurn:
    """Takes the events of one turn after another; `turn` and `gauge` say what to show.

    `base` are the figures before the turn: set it at its start, and again when they were counted anew.
    """

    def __init__(self, base: GaugePart | None = None) -> None:
        self.turn = TurnPart()
        self._base = base or GaugePart()
        self._used_tokens: int | None = None
        self._cost_usd = 0.0
        self._streamed_chars = 0
        self._running: dict[str, str] = {}
        self._agents: dict[str, AgentRow] = {}
        self._agents_total = 0

    @property
    def agents(self) -> AgentsPart:
        """The sub-agents of this kernel: those that run first, then the newest."""
        newest = reversed(self._agents.values())
        return AgentsPart(total=self._agents_total, rows=tuple(sorted(newest, key=lambda r: r.status != "running")))

    @property
    def runs(self) -> bool:
        """Whether a turn runs."""
        return self.turn.status != "idle"

    def rebase(self, base: GaugePart) -> None:
        """Go on from figures that were counted now. Not while a turn runs."""
        self._base = base
        self._used_tokens, self._streamed_chars, self._cost_usd = None, 0, 0.0

    @property
    def lacks_base(self) -> bool:
        """Whether the turn began before anything was counted."""
        return not self._base.categories

    def found_base(self, base: GaugePart) -> None:
        """Take the figures from before the running turn, counted late."""
        if self.lacks_base:
            self._base = base

    def at(self, last: TurnPart) -> None:
        """Show the turn one is at. Not while a turn runs."""
        if last.turn != self.turn.turn:
            self.turn = last

    @property
    def gauge(self) -> GaugePart:
        """The figures now. While text streams they move in steps, so that not every token is a change."""
        if self._used_tokens is None:
            return self._base
        return replace(grown(self._base, self._shown_tokens()), cost_usd=self._base.cost_usd + self._cost_usd)

    def _shown_tokens(self) -> int:
        if self._used_tokens is None:
            return self._base.used_tokens
        step = max(LEAST_GROWTH_TOKENS, self._base.window_tokens // GROWTH_SHARE)
        return self._used_tokens + self._streamed_chars // CHARS_PER_TOKEN // step * step

    def _exact_tokens(self) -> int:
        used = self._base.used_tokens if self._used_tokens is None else self._used_tokens
        return used + self._streamed_chars // CHARS_PER_TOKEN

    def delivers(self) -> None:
        """What the front end sends comes through while the turn runs."""
        if self.runs:
            self.turn = replace(self.turn, delivers=True)

    def stopping(self) -> None:
        """The person pressed stop."""
        if self.runs:
            self.turn = replace(self.turn, status="stopping", activity="stopping")

    def add(self, event: TurnEvent) -> bool:
        """Take the next event; returns whether something else is shown now."""
        before = self.turn, self._shown_tokens(), self._cost_usd
        self._take(event)
        return isinstance(event, SubAgentMoved) or (self.turn, self._shown_tokens(), self._cost_usd) != before

    def _take(self, event: TurnEvent) -> None:
        match event:
            case TurnBegan():
                self._base = self.gauge  # of the turn before, when nobody counted since
                self.turn = TurnPart(turn=event.turn, number=event.number, status="running", activity="getting ready")
                self._used_tokens, self._streamed_chars, self._cost_usd = None, 0, 0.0
                self._running.clear()
                if self._base.window_tokens == 0:
                    self._base = replace(self._base, window_tokens=event.window_tokens, model=event.model)
            case StepBegan():
                self._measured(event.context_tokens, event.cost_usd)
                self._doing("waiting for the model", step=event.step)
            case TextDelta():
                self._streamed_chars += len(event.text)
                self._doing("writing")
            case ThinkingDelta():
                self._streamed_chars += len(event.text)
                self._doing("thinking")
            case StepEnded():
                streamed = self._streamed_chars // CHARS_PER_TOKEN
                self._measured(event.context_tokens + streamed, event.cost_usd)
            case ToolBegan():
                summary = shortened(clean_line(event.summary), _SUMMARY_CHARS)
                self._running[event.call_id] = " ".join(filter(None, [clean_line(event.name), summary]))
                self._doing(self._tools())
            case ToolEnded():
                self._running.pop(event.call_id, None)
                if self._running:
                    self._doing(self._tools())
            case Waiting():
                self._doing(f"waiting: {clean_line(event.reason)}")
            case Notice():
                self._doing(clean_line(event.text))
            case SubAgentMoved():
                self._agent(event)
            case TurnDone():
                self._cost_usd = event.cost_usd
                self._running.clear()
                for agent, row in self._agents.items():
                    if row.status == "running":  # its turn left it behind
                        self._agents[agent] = replace(row, status="stopped", activity="")
                self.turn = replace(
                    self.turn, status="idle", activity="", outcome=event.outcome, step=event.steps, delivers=False
                )

    def _agent(self, event: SubAgentMoved) -> None:
        self._agents_total += event.agent not in self._agents
        self._agents[event.agent] = AgentRow(
            agent=event.agent, name=clean_line(event.name), status=event.status, calls=event.tool_calls,
            activity=shortened(clean_line(event.activity), _SUMMARY_CHARS), tokens=event.context_tokens,
            cost_usd=event.cost_usd,
        )  # fmt: skip
        ended = [a for a, row in self._agents.items() if row.status != "running"]
        for agent in ended[: max(0, len(self._agents) - MOST_AGENTS)]:
            del self._agents[agent]

    def _measured(self, context_tokens: int, cost_usd: float) -> None:
        if context_tokens > 0:
            if not self.lacks_base:  # go on from what it holds by now: an answer that grows later makes no tool grow
                self._base = grown(grown(self._base, self._exact_tokens()), context_tokens)
            self._used_tokens = context_tokens
        self._streamed_chars, self._cost_usd = 0, cost_usd

    def _doing(self, activity: str, step: int | None = None) -> None:
        if self.turn.status == "running":
            self.turn = replace(self.turn, activity=activity, step=self.turn.step if step is None else step)

    def _tools(self) -> str:
        return "running " + ", ".join(list(self._running.values())[:3])


def grown(base: GaugePart, used_tokens: int) -> GaugePart:
    """Return `base` at another size: what is more is messages, what is less is taken from all; they add up again."""
    more = used_tokens - base.used_tokens
    if more >= 0 or not base.categories:
        categories = {**base.categories, "messages": base.categories.get("messages", 0) + max(0, more)}
    else:
        categories = Ledger.from_mapping(base.categories).scaled_to(used_tokens).as_mapping()
    level = min(10, used_tokens * 10 // base.window_tokens) if base.window_tokens > 0 else 0
    return replace(base, used_tokens=used_tokens, categories=categories, level=level, estimated=True)
