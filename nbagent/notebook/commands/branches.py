"""`%agent fork` and `%agent revert`: back to an earlier point, as it is or with a note on what is left."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from nbagent.core.errors import UsageProblem
from nbagent.core.tree import TurnNode
from nbagent.notebook.app import NotebookAgent
from nbagent.notebook.greeting import counted
from nbagent.notebook.reports.said import Said
from nbagent.runtime.ports import TurnPorts
from nbagent.runtime.session import Session
from nbagent.runtime.turn_facts import numbered

Words = Sequence[str]
C = TypeVar("C", bound=Callable[..., Any])
M = TypeVar("M")


def moves(command: C) -> C:
    """Let a command that changes the conversation hold it meanwhile; it must not run a turn itself."""

    @functools.wraps(command)
    def alone(agent: NotebookAgent, *arguments: Any) -> Any:
        with agent.turnstile.command():
            return command(agent, *arguments)

    return alone  # type: ignore[return-value]


def only_word(words: Words, what: str, default: str | None = None) -> str:
    """Return the one word, or `default` when there is none."""
    if len(words) == 1:
        return words[0]
    if not words and default is not None:
        return default
    raise UsageProblem(f"{what}: give exactly one, not {len(words)}")


def fork_command(agent: NotebookAgent, words: Words) -> Said:
    """Go back to before TURN: the next turn is its alternative; --note carries what was learnt since."""
    name, carried = _with_note(agent, words, "%agent fork TURN", before=True)
    node = agent.session().turn(name) if carried else _moved(agent, agent.session().fork, name)
    line = f"The next turn goes on from before turn {node.turn}; `%agent revert {node.turn}` brings it back."
    return Said(line + carried)


def revert_command(agent: NotebookAgent, words: Words) -> Said:
    """Go back to right after TURN; later turns stay in the tree; --note carries what was learnt in them."""
    name, carried = _with_note(agent, words, "%agent revert TURN", before=False)
    session = agent.session()
    if carried:
        return Said(_at_the_end_of(session, session.turn(name)) + carried)
    return Said(_moved(agent, partial(reverted_line, session), name))


@moves
def _moved(agent: NotebookAgent, move: Callable[[str], M], name: str) -> M:
    return move(name)


def _with_note(agent: NotebookAgent, words: Words, what: str, *, before: bool) -> tuple[str, str]:
    """Return the turn's name, and what to say of the note that was carried: empty where none was asked for."""
    name = only_word([w for w in words if w != "--note"], what)
    if "--note" not in words:
        return name, ""
    from nbagent.runtime.branching import WentBack, go_back_with_note

    async def work(ports: TurnPorts) -> WentBack:
        return await go_back_with_note(agent.session(), ports, name, before=before)

    went = agent.beside(work)
    return name, f" A note on the {counted(went.left, 'turn')} that it leaves went along:\n{went.note}"


def reverted_line(session: Session, turn: str) -> str:
    """Go back to right after `turn`; returns a line that names it as the tree and the panel do."""
    return _at_the_end_of(session, session.revert(turn))


def _at_the_end_of(session: Session, node: TurnNode) -> str:
    return f"The conversation is at the end of turn {numbered(session.tree, node.turn)} again; nothing was removed."
