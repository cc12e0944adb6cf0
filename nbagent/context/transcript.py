"""A view as text, for a request that shows the conversation as material instead of going on with it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from nbagent.context.contained import material
from nbagent.core.errors import counted
from nbagent.core.messages import Block, Message, Request, canonical, is_thinking, text_block
from nbagent.core.view import Piece, View

NOTE_MARK = "<context-note>"  # how the note of a compaction begins
NOT_SHOWN = "{unseen} did not fit the request for the note: no summary tells of them, `recall` does."
NOT_ON_DISK = (
    "What was replaced could not be put into a file of its own, so the note names none; the journal holds it, and "
    "`recall` finds it."
)
RESULT_CHARS = 2_000  # pi and OpenCode: more of a result does not go into a summary request
SHED = "[left out]"
SHORT_RESULT_CHARS = 200  # where that is too long for one request, before anything is left out


def messages_without(view: View, entry_ids: Collection[str]) -> tuple[Message, ...]:
    """Return the messages of a view without what some entries say; results that they stand in for remain."""
    return messages_from(p for p in view.pieces if p.entry_id not in entry_ids or p.category == "tool results")


def only_of(view: View, entry_ids: Collection[str]) -> tuple[Message, ...]:
    """Return the messages of a view with what some entries say, and nothing else."""
    return messages_from(p for p in view.pieces if p.entry_id in entry_ids)


def messages_from(pieces: Iterable[Piece]) -> tuple[Message, ...]:
    """Return the messages that pieces of a view make; those of one role in a row are one."""
    made: list[Message] = []
    for piece in pieces:
        if made and made[-1].role == piece.role:
            made[-1] = Message(piece.role, made[-1].blocks + piece.blocks)
        else:
            made.append(Message(piece.role, piece.blocks))
    return tuple(made)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """A conversation as text. `left_out` says what is not in it, such as "the oldest 3 messages"."""

    text: str
    left_out: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A request for a note. `left_out` says what it does not show, as of a Transcript."""

    request: Request
    left_out: str = ""


def serialised(
    messages: Sequence[Message], *, drop_share: float = 0.0, result_chars: int | None = RESULT_CHARS,
    thinking: bool = False, shed: float = 0.0,
) -> Transcript:  # fmt: skip
    """Return a conversation as labelled text, each result cut; the oldest share is left out.

    `thinking` shows what the model thought too; None as `result_chars` cuts no result. `shed` leaves out that share of
    the results, from the middle outward. The note of an earlier compaction is the oldest of all, and stays: what it
    stands for is nowhere else.
    """
    count = math.ceil(shed * sum(b.get("type") == "tool_result" for m in messages for b in m.blocks))
    messages = _without_results(messages, count) if count else messages
    parts = message_texts(messages, result_chars=result_chars, thinking=thinking)
    noted = 1 if parts and NOTE_MARK in parts[0] else 0
    drop = int((len(parts) - noted) * min(1.0, max(0.0, drop_share)))
    told = [f"[{drop} earlier messages left out]"] if drop else []
    left_out = counted(count, "result") if count else oldest(drop)
    return Transcript(text="\n\n".join([*parts[:noted], *told, *parts[noted + drop :]]), left_out=left_out)


def oldest(count: int) -> str:
    """Return what to call so many messages that were left out; empty for none."""
    return f"the oldest {counted(count, 'message')}" if count else ""


def _without_results(messages: Sequence[Message], count: int) -> list[Message]:
    """Return messages with so many of their results emptied, from the middle outward (Goose)."""
    total = sum(b.get("type") == "tool_result" for m in messages for b in m.blocks)
    gone, at = set(sorted(range(total), key=lambda i: abs(2 * i - total + 1))[:count]), itertools.count()
    return [
        Message(m.role, tuple(
            {**b, "content": SHED} if b.get("type") == "tool_result" and next(at) in gone else b for b in m.blocks
        ))
        for m in messages
    ]  # fmt: skip


def questioned(transcript: Transcript, text: str) -> Transcript:
    """Return a transcript as material, with what is asked about it after it."""
    return replace(transcript, text=questioned_text(transcript.text, text))


def questioned_text(transcript: str, text: str) -> str:
    """Return the text of a transcript as material, with what is asked about it after it."""
    return f"<transcript>\n{material(transcript)}\n</transcript>\n\n{text}"


def message_texts(
    messages: Sequence[Message], *, result_chars: int | None = RESULT_CHARS, thinking: bool = False
) -> list[str]:
    """Return each message as labelled text; those without any are left out. None as `result_chars` cuts no result."""
    return [f"[{m.role}]\n{text}" for m in messages if (text := _text(m.blocks, result_chars, thinking))]


def _text(blocks: Sequence[Block], result_chars: int | None, thinking: bool) -> str:
    return "\n".join(t for b in blocks if (t := _block(b, result_chars, thinking)))


def _block(block: Block, result_chars: int | None, thinking: bool = False) -> str:
    kind = block.get("type")
    if is_thinking(block):
        thought = str(block.get("thinking", "")).strip() if thinking else ""
        return f"(thinks: {thought})" if thought else ""
    if kind == "text":
        return str(block.get("text", ""))
    if kind == "tool_use":
        return f"(calls {block.get('name')}: {canonical(block.get('input'))})"
    if kind == "tool_result":
        inner = block.get("content")
        text = inner if isinstance(inner, str) else "\n".join(_block(b, result_chars) for b in inner or ())
        more = 0 if result_chars is None else len(text) - result_chars
        return f"(result: {text[:result_chars]} [{more:,} more characters])" if more > 0 else f"(result: {text})"
    return f"({kind})"


def with_question(messages: Sequence[Message], text: str) -> tuple[Message, ...]:
    """Return the conversation with `text` as the last thing that the person says."""
    if messages and messages[-1].role == "user":
        return (*messages[:-1], Message("user", (*messages[-1].blocks, text_block(text))))
    return (*messages, Message("user", (text_block(text),)))
