"""Writing a note: one request where the conversation fits it, else parts one after the other, merged in the end.

Nothing is written here that changes the view: whatever fails, the history is as it was.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from nbagent.context.chunks import SAFETY, chunked, split_by_share, units
from nbagent.context.downshift import note_of_former
from nbagent.context.handoff import (
    TEMPLATES,
    HandoffNote,
    Rejected,
    again_request,
    handoff_request,
    merge_request,
    part_request,
    probe_request,
    read_note,
)
from nbagent.context.parts import DROP_SHARE, Part, divided_turn, halves, note_in_force, shown_part
from nbagent.context.policy import Compact
from nbagent.context.standing import split
from nbagent.context.transcript import NOTE_MARK, oldest, only_of, questioned_text, with_question
from nbagent.core.effects import CallModel, Effect, Say
from nbagent.core.entries import UsageReported
from nbagent.core.messages import Request, Response
from nbagent.core.view import ViewFold

if TYPE_CHECKING:
    from nbagent.context.engine import Engine

MAX_TRIES: Final = 3
STAGES: Final = 2  # parts that are summarised apart and merged
LEAST_UNITS: Final = 4  # fewer messages are not put into parts
FEW_CHUNKS: Final = 8  # with more than these a chunk takes all that one request can show, whatever its style asks for
MOST_CHUNKS: Final = 30  # requests for one note; what is older than they can hold is left out, and counted
LEAST_ROOM_TOKENS: Final = 300
NO_ROOM: Final = (
    "a window of {window:,} tokens, {fixed:,} of them system text and tools, has no room for a request for a note; "
    "widen it with `%context set window=…`"
)
NO_HISTORY: Final = "(nothing came before this turn)"
TURN_PART: Final = "{history}\n\n---\n\nThe turn that goes on, up to what is kept:\n\n{turn}"
IN_PARTS: Final = "The conversation is too long for one request for a note: it is read in {count} parts."
CEILING: Final = "its note costs more than the turn may (${ceiling:g}, --max-cost); `%context compact` has no ceiling"

Written = HandoffNote | Rejected
Flow = Generator[Effect, Any, Written]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """What is asked for one after the other: `parts` of chunks of texts. `left_out` counts what is in none."""

    parts: Sequence[Sequence[Sequence[str]]]
    left_out: int = 0

    @property
    def count(self) -> int:
        return sum(map(len, self.parts))


def written_note(engine: Engine, fold: ViewFold, move: Compact) -> Flow:
    """Let the model write the note of a compaction; one that is there already is taken as it is."""
    if engine.edited is not None or move.note:
        return HandoffNote(text=move.note if engine.edited is None else engine.edited, sections={})
    if move.style.former_model and (noted := (yield from note_of_former(engine, fold, move))) is not None:
        return noted
    if move.style.turn_template and (begins := divided_turn(fold, move.first_kept)) is not None:
        return (yield from _of_divided_turn(engine, fold, move, begins))
    part = shown_part(engine, fold, move)
    note = yield from _of_part(engine, fold, move, part)
    if isinstance(note, HandoffNote) and move.style.checks is not None and engine.checks_notes:
        note = yield from _checked(engine, fold, move, note)
    if isinstance(note, HandoffNote) and move.style.probe:
        note = yield from _probed(engine, fold, move, note, part)
    return note


def _of_part(engine: Engine, fold: ViewFold, move: Compact, part: Part) -> Flow:
    if one_request_does(engine, fold, move, part):
        return (yield from _in_one(engine, fold, move, part))
    return (yield from _in_stages(engine, fold, move, part, 1))


def _of_divided_turn(engine: Engine, fold: ViewFold, move: Compact, begins: int) -> Flow:
    """Write what came before a turn and the turn's own first part apart: the turn goes on in what is kept.

    When nothing but an earlier note came before it, that stands as it is and is not written again.
    """
    assert move.first_kept is not None
    before, first = halves(engine, fold, move.first_kept, begins)
    history: Written = HandoffNote(text=note_in_force(fold) or NO_HISTORY, sections={})
    if before is not None:
        history = yield from _of_part(engine, fold, move, before)
    if isinstance(history, Rejected):
        return history
    style = replace(move.style, template=move.style.turn_template)
    turn = yield from _of_part(engine, fold, replace(move, style=style), first)
    if isinstance(turn, Rejected):
        return turn
    return HandoffNote(
        text=TURN_PART.format(history=history.text, turn=turn.text), sections={**history.sections, **turn.sections},
        unseen=" and ".join(filter(None, [history.unseen, turn.unseen])), parts=max(history.parts, turn.parts),
    )  # fmt: skip


def one_request_does(engine: Engine, fold: ViewFold, move: Compact, part: Part) -> bool:
    """Tell whether one request is asked for the note: its style may want smaller ones, or the oldest left out."""
    style, question = move.style, _question(engine, move)
    if style.too_long == "drop":
        return True
    texts = _texts(fold, move, part)
    if style.chunk_tokens and sum(map(engine.meter.text, texts)) > style.chunk_tokens:
        return False
    return engine.fits_one_request(fold, question, style, part)


def _no_room(engine: Engine) -> str:
    return NO_ROOM.format(window=engine.budget.window_tokens, fixed=engine.fixed_tokens())


def _question(engine: Engine, move: Compact, missing: Sequence[str] = ()) -> str:
    return handoff_request(TEMPLATES[move.style.template], focus=engine.focus, missing=missing)


# ---------------------------------------------------------------- one request


def _in_one(engine: Engine, fold: ViewFold, move: Compact, part: Part) -> Flow:
    """Ask until a note can be used, as often as the style allows; a request that is too long is made shorter."""
    asked, style, dropped = _question(engine, move), move.style, 0.0
    note: Written = Rejected(reason="not asked")
    unusable = tried = 0
    while unusable < style.tries and tried < max(style.tries, style.overflow_tries):
        question = engine.ask(fold, asked, style, dropped, part)
        if question is None:
            return Rejected(reason=_no_room(engine))
        response = yield from _reply(engine, fold, question.request)
        if response.cut == "stopped":
            return Rejected(reason="stopped")
        note = read_note(response)
        if isinstance(note, HandoffNote):
            return replace(note, unseen=question.left_out)
        if note.too_long and style.too_long == "stages always":
            return (yield from _in_stages(engine, fold, move, part, 2 << tried))
        if response.error is not None and not note.too_long:
            break  # the client has tried again already
        tried += 1
        unusable += not note.too_long
        dropped += DROP_SHARE if note.shorter_helps else 0.0
        if not note.too_long:
            asked = again_request(_question(engine, move), note.reason)
    return note


def _reply(
    engine: Engine, fold: ViewFold, request: Request, purpose: str = "handoff"
) -> Generator[Effect, Any, Response]:
    response: Response = yield CallModel(request=request, step=0, purpose=purpose)
    yield from engine.paid(fold, response)
    return response


def _probed(engine: Engine, fold: ViewFold, move: Compact, note: HandoffNote, part: Part) -> Flow:
    """Ask once what is missing (GC-C4); a note that was read in parts is compared with what fits."""
    question = engine.ask(fold, probe_request(note.text), move.style, 0.0, part)
    if question is None:
        return note
    response = yield from _reply(engine, fold, question.request, "probe")
    if response.cut == "stopped":
        return Rejected(reason="stopped")
    better = read_note(response)
    return replace(better, unseen=note.unseen, parts=note.parts) if isinstance(better, HandoffNote) else note


def _checked(engine: Engine, fold: ViewFold, move: Compact, note: HandoffNote) -> Flow:
    """Ask once more for a note that lacks what its style asks of it; what is still missing is told beside it."""
    assert move.style.checks is not None
    replaced, _ = split(fold, move.first_kept)
    missing = move.style.checks(note, replaced)
    if not missing:
        return note
    asked = _question(engine, move, [*missing.headings, *missing.lines()])
    question = engine.ask(fold, asked, move.style, 0.0) if note.parts == 1 and not note.unseen else None
    if question is not None:
        request = question.request
    elif engine.meter.text(merged := merge_request([note.text], asked)) <= engine.ask_limit(move.style):
        request = engine.make_request(with_question((), merged), engine.room(move.style))
    else:
        return replace(note, missing=missing)
    response = yield from _reply(engine, fold, request)
    if response.cut == "stopped":
        return Rejected(reason="stopped")
    better = read_note(response)
    if isinstance(better, HandoffNote):
        note = replace(better, unseen=note.unseen, parts=note.parts)
        missing = move.style.checks(note, replaced)
    return replace(note, missing=missing)


# ---------------------------------------------------------------- in stages


def _in_stages(engine: Engine, fold: ViewFold, move: Compact, part: Part, divisor: int) -> Flow:
    """Read what is replaced in parts. A provider that finds a part too long gets smaller ones, twice at most."""
    note: Written = Rejected(reason=_no_room(engine))
    for _ in range(MAX_TRIES):
        stages = stages_of(engine, fold, move, part, divisor)
        if stages is None:
            return note
        yield Say(text=IN_PARTS.format(count=stages.count))
        note = yield from _through(engine, fold, move, stages)
        if isinstance(note, HandoffNote) or not note.too_long:
            return note
        divisor *= 2
    return note


def _texts(fold: ViewFold, move: Compact, part: Part) -> list[str]:
    """Return what the note is to tell of: what is replaced of the part, and of a request without a reply nothing."""
    view = fold.view()
    if move.first_kept is None or part.full or move.style.head_only:
        return units(part.messages)
    replaced, _ = split(fold, move.first_kept)
    gone = {e.id for e in replaced} | {view.compaction or ""}
    return units(only_of(view, gone))


def stages_of(engine: Engine, fold: ViewFold, move: Compact, part: Part, divisor: int = 1) -> Stages | None:
    """Return in which parts a conversation is read for its note; None when not even small ones fit."""
    count, style = engine.meter.text, move.style
    asked = part_request(_question(engine, move), part=MOST_CHUNKS, of=MOST_CHUNKS)
    note_room = min(engine.room(style), engine.budget.window_tokens // 8)  # the notes so far stand there too
    room = engine.ask_limit(style) - count(asked) - note_room
    texts = _texts(fold, move, part)
    wanted = style.chunk_tokens or room
    few = sum(map(count, texts)) <= FEW_CHUNKS * wanted / SAFETY
    limit = (min(room, wanted) if few else room) // divisor
    if limit < LEAST_ROOM_TOKENS:
        return None
    noted = texts[:1] if texts and NOTE_MARK in texts[0] else []
    left_out = 0
    while True:
        sizes = [count(t) for t in texts]
        parts = split_by_share(sizes, STAGES if len(texts) >= LEAST_UNITS else 1)
        stages = Stages(parts=[chunked([texts[i] for i in run], limit, count) for run in parts], left_out=left_out)
        if stages.count <= MOST_CHUNKS:
            return stages if stages.count else None
        go = max(1, (len(texts) - len(noted)) * (stages.count - MOST_CHUNKS) // stages.count)
        texts, left_out = [*noted, *texts[len(noted) + go :]], left_out + go
        if len(texts) == len(noted):
            return None


def _through(engine: Engine, fold: ViewFold, move: Compact, stages: Stages) -> Flow:
    """Ask for each part's note, the chunks of a part one after the other; then for one note of all."""
    notes: list[str] = []
    number, begun = 0, len(fold.path)
    for part in stages.parts:
        so_far = ""
        for chunk in part:
            if line := _ceiling_reached(fold, begun):
                return Rejected(reason=line)
            number += 1
            question = part_request(_question(engine, move), part=number, of=stages.count, so_far=so_far)
            note = yield from _asked(engine, fold, move, questioned_text("\n\n".join(chunk), question))
            if isinstance(note, Rejected):
                return note
            so_far = note.text
        notes.append(so_far)
    if len(notes) > 1:
        merge = merge_request(notes, _question(engine, move))
        note = yield from _asked(engine, fold, move, merge)
    if isinstance(note, Rejected):
        return note
    return replace(note, unseen=oldest(stages.left_out), parts=stages.count)


def _ceiling_reached(fold: ViewFold, begun: int) -> str:
    """Return the line that says that what was asked since `begun` took all that the running turn may cost."""
    view = fold.view()
    ceiling = view.turn.limits.get("max_cost_usd") if view.turn is not None and not view.turn_ended else None
    spent = sum(e.body.cost_usd for e in fold.path[begun:] if isinstance(e.body, UsageReported))
    return CEILING.format(ceiling=ceiling) if ceiling is not None and spent >= ceiling else ""


def _asked(engine: Engine, fold: ViewFold, move: Compact, text: str) -> Flow:
    """Ask for one note; a bad one is asked for once more."""
    if engine.meter.text(text) > engine.ask_limit(move.style):
        return Rejected(reason=_no_room(engine), too_long=True)
    note: Written = Rejected(reason="")
    for _ in range(min(2, move.style.tries)):
        question = again_request(text, note.reason) if isinstance(note, Rejected) and note.reason else text
        request = engine.make_request(with_question((), question), engine.room(move.style))
        response = yield from _reply(engine, fold, request)
        if response.cut == "stopped":
            return Rejected(reason="stopped")
        note = read_note(response)
        if isinstance(note, HandoffNote) or response.error is not None:
            return note
    return note
