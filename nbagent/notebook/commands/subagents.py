"""`%agent agents`: the sub-agents of the conversation; tell one something, or stop it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nbagent.core.errors import UsageProblem, one_line
from nbagent.notebook.app import NotebookAgent
from nbagent.notebook.render import money, seconds_words, shortened
from nbagent.notebook.reports.tables import Document, Line, Table, displayable
from nbagent.runtime.agents import EndedAgent, ended_agents


@displayable
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class AgentsReport:
    """The sub-agents, oldest first: forked skills. `line` is what a command did, empty for the list."""

    agents: tuple[EndedAgent, ...] = ()
    line: str = ""

    def document(self) -> Document:
        """Return what is shown."""
        if self.line:
            return [Line(text=self.line)]
        if not self.agents:
            return [Line(text="no sub-agent has run; a skill with `context: fork` is one")]
        rows = tuple(
            (
                a.agent, a.name, shortened(one_line(a.why), 40), a.outcome, ", ".join(a.tools), f"{a.tokens:,}",
                money(a.cost_usd) if a.cost_usd > 0 else "", seconds_words(a.duration_s), a.journal,
            )
            for a in self.agents
        )  # fmt: skip
        head = ("id", "sub-agent", "for", "outcome", "tools", "tokens", "cost", "time", "journal")
        return [Table(head=head, rows=rows, numbers=frozenset({5, 6}))]


def agents_command(agent: NotebookAgent, words: Sequence[str]) -> AgentsReport:
    """The sub-agents; `send ID TEXT` tells one something, `stop ID` ends it."""
    session = agent.session()
    match list(words):
        case []:
            return AgentsReport(agents=ended_agents(session.tree))
        case ["send", name, *text]:
            return AgentsReport(line=session.runner.agents.send(name, " ".join(text)))
        case ["stop", name]:
            return AgentsReport(line=session.runner.agents.stop(name))
    raise UsageProblem("%agent agents takes nothing, `send ID TEXT` or `stop ID`")
