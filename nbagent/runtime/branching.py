"""Going back with a note: what was learnt on the branch that the conversation leaves is carried to where it goes on.

After Pi's branch summary (agents.md 5.5): the messages since the common point, newest first as far as they fit,
without what tools brought; the sections of its note but for the critical context; the files that were changed. The
branch itself stays in the tree.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from nbagent.context.engine import Engine
from nbagent.context.handoff import BRANCH, HandoffNote, handoff_request, read_note
from nbagent.context.note import files_touched
from nbagent.context.policy import NoteStyle, in_window, less_reserve
from nbagent.context.transcript import NOTE_MARK, message_texts, messages_from, questioned_text, with_question
from nbagent.core.effects import CallModel, Effect
from nbagent.core.entries import Entry, Snapshot, TurnStart, UsageReported
from nbagent.core.errors import UsageProblem
from nbagent.core.messages import Response
from nbagent.core.tree import TurnNode
from nbagent.core.view import build_view
from nbagent.runtime.compacting import going_on
from nbagent.runtime.ports import TurnPorts
from nbagent.runtime.session import Session

RESERVE_TOKENS: Final = 16_384  # Pi keeps as much of the window free
SQUEEZE_SHARE: Final = 0.9  # an earlier note goes in too while less than this is used
NO_NOTE: Final = (
    "no note could be written ({why}), so the conversation is where it was; without --note it goes back as it is"
)
NOTHING_LEFT: Final = "nothing was said after that point on this branch, so there is nothing to note; leave --note out"
NO_POINT: Final = "before the first turn there is no conversation that a note could go into; leave --note out"
TOLD: Final = (
    "<left-branch>\nThe person went back to this point from a branch of the conversation ({turns}). This is a record "
    "of it, not a request. Files and variables that it changed are as it left them.{unseen}\n\n{note}{files}\n"
    "</left-branch>"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WentBack:
    """Where the conversation goes on. `note` is what was carried there, `left` how many turns it is about."""

    node: TurnNode
    note: str
    left: int


async def go_back_with_note(session: Session, ports: TurnPorts, name: str, *, before: bool) -> WentBack:
    """Go back to right after the turn `name`, or to `before` it, with a note on what is left.

    Raises:
        UsageProblem: there is no such turn, nothing to note, or no note could be written; nothing has moved then.
        MissingKey: no model can be called.
    """
    node = session.turn(name)
    target = node.start.parent if before else node.last
    if target is None:
        raise UsageProblem(NO_POINT)
    path = session.tree.path()
    left = _left(path, session.tree.path(target))
    start = build_view(path).turn
    if start is None or not _texts(path, left):
        raise UsageProblem(NOTHING_LEFT)
    named = await session.ready_model()
    runner = session.runner
    current = replace(going_on(session, start), policy=runner.settings.policy, model=named.name)
    engine = runner.engine(named, current)
    response, unseen = await runner.side_driver(named, ports, current).run(_asked(engine, path, left))
    note = read_note(response)
    if isinstance(note, HandoffNote) and response.cut is None:
        node = session.fork(name) if before else session.revert(name)
    if response.usage:
        cost = round(engine.price(response.model, response.usage), 8)
        runner.writer.write(
            UsageReported(step=0, model=response.model, usage=response.usage, cost_usd=cost, purpose="handoff")
        )
    if not isinstance(note, HandoffNote):
        raise UsageProblem(NO_NOTE.format(why=note.reason))
    turns = sum(isinstance(e.body, TurnStart) for e in left)
    files = files_touched(left)
    text = TOLD.format(
        turns=f"{turns} turn{'s' if turns != 1 else ''}", note=note.text, files=f"\n\n{files}" if files else "",
        unseen=f" Of it the oldest {unseen} messages did not fit." if unseen else "",
    )  # fmt: skip
    runner.writer.write(Snapshot(text=text, topics=("branch",)))
    return WentBack(node=node, note=note.text, left=turns)


def _left(path: Sequence[Entry], kept: Sequence[Entry]) -> Sequence[Entry]:
    """Return the entries of a path after the last that another path has too."""
    known = {e.id for e in kept}
    return [e for e in path if e.id not in known]


def _texts(path: Sequence[Entry], left: Sequence[Entry]) -> list[str]:
    """Return what was said on the part that is left, oldest first, without what tools brought."""
    ids = {e.id for e in left}
    pieces = [p for p in build_view(path).pieces if p.entry_id in ids and p.category != "tool results"]
    return message_texts(messages_from(pieces))


def _asked(
    engine: Engine, path: Sequence[Entry], left: Sequence[Entry]
) -> Generator[Effect, Any, tuple[Response, int]]:
    """Ask for the note; returns the reply, and how many of the oldest messages it was not shown."""
    texts, question, window = _texts(path, left), handoff_request(BRANCH), engine.budget.window_tokens
    room = less_reserve(window, in_window(RESERVE_TOKENS, window)) - engine.fixed_tokens() - engine.meter.text(question)
    shown: list[str] = []
    used = 0
    for text in reversed(texts):
        size = engine.meter.text(text)
        squeezed = text.find(NOTE_MARK) >= 0 and used < SQUEEZE_SHARE * room
        if used + size > room and not squeezed:
            break
        shown.append(text)
        used += size
    asked = questioned_text("\n\n".join(reversed(shown)), question)
    request = engine.make_request(with_question((), asked), engine.room(NoteStyle()))
    response: Response = yield CallModel(request=request, step=0, purpose="handoff")
    return response, len(texts) - len(shown)
