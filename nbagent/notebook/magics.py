"""What the magics do: they parse, delegate and show. `registered` lists them."""

from __future__ import annotations

import contextlib
from collections.abc import Coroutine, Iterator
from typing import TYPE_CHECKING, Any

from nbagent.core.errors import UsageProblem
from nbagent.notebook.app import Ask, NotebookAgent
from nbagent.notebook.commands.agent import agent_command
from nbagent.notebook.commands.context import compact_parser, context_command, note_cell, take_policy
from nbagent.notebook.options import asked_options, cell_parser, parse_cell_line, resume_parser, turn_options
from nbagent.notebook.panel.controls import show_controls, with_controls
from nbagent.notebook.results import turn_result
from nbagent.notebook.transform import split_awaitable
from nbagent.runtime.ports import FinishedTurn

if TYPE_CHECKING:
    from nbagent.notebook.reports.context import TurnResult


def agent_magic(agent: NotebookAgent, line: str, cell: str | None) -> Any:
    """Run the turn of a `%%agent` cell, or the sub-command of `%agent`."""
    awaitable, options = split_awaitable(line)
    if cell is None:
        return agent_command(agent, options, awaitable=awaitable)
    parsed = parse_cell_line(options)
    ask = Ask(prompt=cell, options=turn_options(parsed), quiet=parsed.quiet)
    if parsed.dry_run:
        shown = context_command(agent, "show", ask=ask)
        return _later(shown) if awaitable else shown
    if parsed.policy is not None and cell.strip():
        take_policy(agent, parsed.policy)
    if awaitable:
        return _bound(agent, agent.run(ask, awaitable=True), parsed.out)
    with _binding(agent, parsed.out):
        agent.run(ask, awaitable=False)
    return None


def agent_help() -> str:
    """Return the options of `%%agent`."""
    return f"{cell_parser().format_help()}\n{resume_parser().format_help()}"


def context_help() -> str:
    """Return the sub-commands of `%context`, and the options of `%context compact`."""
    return f"{context_command(None, 'help')}\n\n{compact_parser().format_help()}"


def context_magic(agent: NotebookAgent, line: str, cell: str | None) -> Any:
    """Show or change what the model has in its context; as a cell, the note that stands below."""
    if cell is None:
        report = context_command(agent, line)
        return report if line.strip() else with_controls(agent, report)
    if line.split() != ["note"]:
        raise UsageProblem("%%context is a cell only as `%%context note`, with the note below it")
    return note_cell(agent, cell)


def memory_magic(agent: NotebookAgent, line: str, cell: str | None) -> Any:
    """Search, read or add notes."""
    from nbagent.notebook.commands.memory import memory_command

    report = memory_command(agent, line)
    if not line.strip():
        show_controls(agent, "memory")
    return report


def skills_magic(agent: NotebookAgent, line: str, cell: str | None) -> Any:
    """Show the skills, or do something with one."""
    from nbagent.notebook.commands.skills import skills_command

    report = skills_command(agent, line)
    if not line.strip():
        show_controls(agent, "skills")
    return report


async def _bound(agent: NotebookAgent, running: Coroutine[Any, Any, FinishedTurn], name: str | None) -> None:
    with _binding(agent, name):
        await running


@contextlib.contextmanager
def _binding(agent: NotebookAgent, name: str | None) -> Iterator[None]:
    """Bind the turn's result to `name`, also what there is of one that failed, was stopped or came to a limit.

    A turn that did not begin binds nothing.
    """
    before = agent.last
    try:
        yield
    finally:
        if name and agent.last is not None and agent.last is not before:
            agent.shell.user_ns[name] = turn_result(agent, agent.last)


async def _later(value: Any) -> Any:
    return value


# ---------------------------------------------------------------- from Python


def ask(agent: NotebookAgent, prompt: str, *, show: bool = True, quiet: bool = False, **options: Any) -> TurnResult:
    """Run a turn; see `nbagent.ask`."""
    if not isinstance(prompt, str):
        raise UsageProblem(f"nbagent.ask: the prompt must be a text (str), not {type(prompt).__name__}")
    if not prompt.strip():
        raise UsageProblem("nbagent.ask: the prompt is empty; give the text that the agent should answer")
    chosen = asked_options(options)
    number = agent.next_ask_number()
    request = Ask(prompt=prompt, options=chosen, quiet=quiet, shown=show, source=prompt, suffix=f"#ask{number}")
    return turn_result(agent, agent.run(request, awaitable=False))
