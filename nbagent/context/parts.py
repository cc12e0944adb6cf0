"""Parts: what of a conversation the writer of a note is shown: all of it, what is replaced, the results in full."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from nbagent.context.policy import Compact, NoteStyle
from nbagent.context.standing import before_request
from nbagent.context.transcript import RESULT_CHARS, SHORT_RESULT_CHARS, Transcript, messages_from, serialised
from nbagent.core.entries import Compaction, Entry, Pruning, ToolResult, TurnStart, UserMessage
from nbagent.core.messages import Message
from nbagent.core.view import Piece, ViewFold

if TYPE_CHECKING:
    from nbagent.context.engine import Engine

DROP_SHARE: Final = 0.2  # CC-C5: the oldest exchanges that go when the request itself does not fit
MOST_DROPPED: Final = 0.95
SHED_SHARES: Final = (0.0, 0.1, 0.2, 0.5, 1.0)  # of the results, from the middle outward, one share a refusal (Goose)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What of the conversation the writer of a note is shown. `tokens` is its estimated size in native form.

    `full` has the results whole that the conversation holds in short form only; it goes as text. So does a part that
    ends inside a tool loop, `broken_off`: the thinking of its last reply would have to be there as it came.
    """

    messages: Sequence[Message]
    tokens: int
    full: bool = False
    broken_off: bool = False


def shorter_and_shorter(part: Part, style: NoteStyle, dropped: float) -> Iterator[Transcript]:
    """Yield a part as text, from whole to little: results are cut, or left out, then the oldest messages go.

    `dropped` is the share of the oldest that goes already: a fifth more each time that the provider refused.
    """
    messages, thinking = part.messages, style.thinking
    if part.full and not dropped:
        yield serialised(messages, result_chars=None, thinking=thinking)
    if style.sheds == "results" and dropped:
        for shed in SHED_SHARES[round(dropped / DROP_SHARE) :]:
            yield serialised(messages, shed=shed, thinking=thinking)
    yield serialised(messages, drop_share=min(MOST_DROPPED, dropped), thinking=thinking)
    chars = SHORT_RESULT_CHARS if style.serialised else RESULT_CHARS
    for share in (dropped, dropped + DROP_SHARE, dropped + 2 * DROP_SHARE, 0.8):
        yield serialised(messages, drop_share=min(MOST_DROPPED, share), result_chars=chars, thinking=thinking)


def whole(engine: Engine, fold: ViewFold) -> Part:
    """Return all of the conversation but a request that has no reply yet: that is kept, the note is about the rest."""
    view = fold.view()
    return Part(messages=before_request(fold, view), tokens=engine.estimate(view) - engine.fixed_tokens())


def shown_part(engine: Engine, fold: ViewFold, move: Compact) -> Part:
    """Return what the style of a compaction shows to the writer of its note."""
    if move.style.full and fold.view().pruned:
        return replace(_of(engine, _before(_without_prunings(fold), move.first_kept)), full=True)
    if move.style.head_only and move.first_kept is not None:
        return _of(engine, _before(fold, move.first_kept))
    return whole(engine, fold)


def halves(engine: Engine, fold: ViewFold, first_kept: str, begins: int) -> tuple[Part | None, Part]:
    """Return what came before the turn that begins at `begins`, None when that is an earlier note at most, and its
    own first part."""
    pieces, view = _before(fold, first_kept), fold.view()
    at = {e.id: i for i, e in enumerate(fold.path)}
    older = [p for p in pieces if p.entry_id == view.compaction or at[p.entry_id] <= begins]
    said = any(p.entry_id != view.compaction for p in older)
    return _of(engine, older) if said else None, _of(engine, [p for p in pieces if p not in older])


def _of(engine: Engine, pieces: Sequence[Piece]) -> Part:
    messages = messages_from(pieces)
    tokens = sum(sum(engine.meter.piece(p).values()) for p in pieces)
    return Part(messages=messages, tokens=tokens, broken_off=bool(messages) and messages[-1].role == "user")


def _before(fold: ViewFold, first_kept: str | None) -> list[Piece]:
    """Return the pieces before the kept part, with the earlier note; None as `first_kept` is the open request."""
    view, path = fold.view(), fold.path
    at = {e.id: i for i, e in enumerate(path)}
    cut = len(path) if first_kept is None else at[first_kept]

    def stands_before(piece: Piece) -> bool:
        position = at[piece.entry_id]
        closes = piece.category == "tool results" and not isinstance(path[position].body, ToolResult)
        return piece.entry_id == view.compaction or position < cut or (position == cut and closes)

    return [p for p in view.pieces if stands_before(p)]


def divided_turn(fold: ViewFold, first_kept: str | None) -> int | None:
    """Return where the turn begins that a cut divides, a position on the path; None for a cut between turns.

    A turn whose request an earlier compaction replaced is none: what is left of it goes on from that note.
    """
    path = fold.path
    cut = next((i for i, e in enumerate(path) if e.id == first_kept), None)
    if cut is None or isinstance(path[cut].body, TurnStart):
        return None
    begins = next((i for i in range(cut, -1, -1) if isinstance(path[i].body, TurnStart)), None)
    if begins is None:
        return None
    asked = {e.id for e in path[begins:cut] if isinstance(e.body, UserMessage)}
    return begins if any(p.entry_id in asked for p in fold.view().pieces) else None


def note_in_force(fold: ViewFold) -> str:
    """Return the model's part of the note in force; empty when there is none."""
    current = fold.view().compaction
    body = next((e.body for e in fold.path if e.id == current), None)
    return str(body.details.get("handoff", "")) if isinstance(body, Compaction) else ""


def _without_prunings(fold: ViewFold) -> ViewFold:
    """Return the fold with every result whole."""
    kept: list[Entry] = []
    for entry in fold.path:
        if not isinstance(entry.body, Pruning):
            kept.append(replace(entry, parent=kept[-1].id if kept else None))
    return ViewFold(kept)
