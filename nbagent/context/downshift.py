"""Downshift: after a change to a model with a smaller window, the note is asked of the model that still holds it all.

It has read the conversation, goes on in it with its own thinking, and its cache may still be warm. When it cannot
answer any more, the new model writes the note as it would anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from nbagent.context.handoff import TEMPLATES, HandoffNote, Rejected, handoff_request, read_note
from nbagent.context.moves import pending_start
from nbagent.context.policy import Compact
from nbagent.context.transcript import with_question
from nbagent.core.effects import CallModel, Effect, Say
from nbagent.core.entries import UsageReported
from nbagent.core.messages import Message, Request, Response
from nbagent.core.view import ViewFold, build_view

if TYPE_CHECKING:
    from nbagent.context.engine import Engine

ASKS_FORMER: Final = "Its note is asked of {model}, whose window still holds the conversation."
NOT_FORMER: Final = "{model} could not write the note ({why}); {now} is asked."


@dataclass(frozen=True, slots=True, kw_only=True)
class Former:
    """The model that a conversation was held with before. `make_request` is as the engine's, `price` in US dollars."""

    model: str
    window_tokens: int
    make_request: Callable[[Sequence[Message], int], Request]
    price: Callable[[Any], float]


def note_of_former(
    engine: Engine, fold: ViewFold, move: Compact
) -> Generator[Effect, Any, HandoffNote | Rejected | None]:
    """Ask the model of the turns before for the note. None when the window did not get smaller, or that did not help.

    Rejected only when the person stopped it.
    """
    at = pending_start(fold.path, fold.view())
    before = build_view(fold.path[:at]) if at else None
    if before is None or before.turn is None or before.turn.model == engine.model:
        return None
    former = engine.former(before.turn)
    room, asked = engine.room(move.style), handoff_request(TEMPLATES[move.style.template], focus=engine.focus)
    if former is None or former.window_tokens <= engine.budget.window_tokens:
        return None
    if engine.estimate(before) + engine.meter.text(asked) + room > former.window_tokens:
        return None
    yield Say(text=ASKS_FORMER.format(model=former.model))
    request = former.make_request(with_question(before.messages, asked), room)
    response: Response = yield CallModel(request=request, step=0, purpose="handoff")
    if response.usage:
        cost = round(former.price(response.usage), 8)
        yield from engine.record(
            fold, UsageReported(step=0, model=former.model, usage=response.usage, cost_usd=cost, purpose="handoff")
        )
    if response.cut == "stopped":
        return Rejected(reason="stopped")
    note = read_note(response)
    if isinstance(note, HandoffNote):
        return note
    yield Say(text=NOT_FORMER.format(model=former.model, why=note.reason, now=engine.model))
    return None
