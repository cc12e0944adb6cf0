"""Pins: what the person said no policy may drop: a text, or a turn with all that was said and shown in it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

from nbagent.context.anchors import said
from nbagent.context.archive import pointer
from nbagent.context.policy import Prune
from nbagent.core.entries import AssistantMessage, Entry, Pin, Steering, ToolResult, TurnStart, UserMessage
from nbagent.core.messages import joined_text
from nbagent.core.view import View

LEAST_TOKENS: Final = 40  # of one pin; what does not get that much is only pointed to
SHARE: Final = 20  # pins take at most a twentieth of the window (DECISIONS 27)


def pinned_entries(path: Sequence[Entry], pins: Collection[Pin]) -> dict[str, list[Entry]]:
    """Return target -> its entries on `path`; a target is an entry or a turn by id."""
    wanted = {p.target for p in pins if p.target}
    found: dict[str, list[Entry]] = {}
    turn = ""
    for entry in path if wanted else ():
        if isinstance(entry.body, TurnStart):
            turn = entry.body.turn
        for target in {entry.id, turn} & wanted:
            found.setdefault(target, []).append(entry)
    return found


def unpinned(move: Prune, path: Sequence[Entry], view: View) -> Prune:
    """Return the move without the results that are pinned."""
    if not view.pins:
        return move
    held = {e.id for entries in pinned_entries(path, view.pins).values() for e in entries}
    return Prune(placeholders={k: t for k, t in move.placeholders.items() if k not in held}, reason=move.reason)


def pinned_texts(
    replaced: Sequence[Entry], pins: Sequence[Pin], limit_tokens: int, count: Callable[[str], int]
) -> str:  # fmt: skip
    """Return every pinned text word for word, and what was said in pinned turns among `replaced`, as they were pinned.

    Within the limit the newest pin comes first; an older one is shortened, and says so with the pointer to the rest.
    """
    held = pinned_entries(replaced, pins)
    out: list[str] = []
    left = limit_tokens
    for pin in reversed(pins):
        text, where = pin.text, ""
        if pin.target:
            entries = held.get(pin.target, [])
            text = "\n".join(t for e in entries if (t := _words(e)))
            where = pointer(entries[0].id, entries[-1].id) if entries else ""
        if not text.strip():
            continue
        shown = _within(text.strip(), max(left, LEAST_TOKENS), where, count)
        left -= count(shown)
        out.append(f"- {shown}")
    return "\n".join(reversed(out))


def _words(entry: Entry) -> str:
    """Return what somebody said or a tool brought; what the tail told of the notebook is left out."""
    match entry.body:
        case UserMessage() | Steering():
            who, text = "The person", said(entry.body).text
        case AssistantMessage():
            who, text = "You", joined_text(entry.body.blocks)
        case ToolResult():
            who, text = f"Result of {entry.body.name}", said(entry.body).text
        case _:
            return ""
    return f"{who}: {text}" if text.strip() else ""


def _within(text: str, room_tokens: int, where: str, count: Callable[[str], int]) -> str:
    if count(text) <= room_tokens:
        return text
    rest = f" [shortened; the whole: {where}]" if where else " [shortened: the pins take more than their room]"
    size = max(20, len(text) * max(1, room_tokens - count(rest)) // max(1, count(text)))
    return text[:size].rstrip() + " …" + rest
