"""Oversize: which single text is too large for the window, and what helps. Compacting cannot: it is what is asked."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from nbagent.core.entries import Entry, Snapshot, Steering, TurnStart, UserMessage
from nbagent.core.messages import Block
from nbagent.core.view import View

_ATTACHED: Final = re.compile(r'<attached (?:file|variable)="([^"]*)">')
_SKILL: Final = re.compile(r'<skill\w*\b[^>]*\bname="([^"]*)"')
LITTLE: Final = 0.1  # of the conversation
LARGE_TOKENS: Final = 1_000  # what is shorter is not why a request was refused
MOST_FIXED: Final = 0.75  # of the window: where system text and tools take as much, they are what is too large

SHORTER_PROMPT: Final = "shorten it, or put the text into a file and name that with @: the agent reads it in parts"
SHORTER_ATTACHED: Final = "leave out the @, so that the agent reads what it needs of it (`read` has offset and limit)"
SHORTER_SKILL: Final = "move what is seldom needed from its SKILL.md into files beside it, to be read when needed"
SHORTER_IMAGE: Final = "make it smaller"
SHORTER_STEERING: Final = "send less of it, or put it into a file for the agent to read in parts"
WIDER: Final = "widen the window with `%context set window=…` (the model has {room:,})"
OTHER_MODEL: Final = "take a model with a larger window (`%agent model NAME`)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One text of what is asked: `what` names it for a person, `helps` says how it can be made smaller."""

    what: str
    tokens: int
    helps: str


def too_large_line(asked: Sequence[Asked], *, fixed_tokens: int, window_tokens: int, model_window: int) -> str:
    """Return the line that says that what is asked cannot fit beside `fixed_tokens`; empty when it can.

    `fixed_tokens` are system text and tools. The largest text is named; `model_window` is what the model itself holds.
    """
    total = sum(a.tokens for a in asked)
    if fixed_tokens + total <= window_tokens or not asked or fixed_tokens >= MOST_FIXED * window_tokens:
        return ""
    largest = max(asked, key=lambda a: a.tokens)
    beside = f" beside {fixed_tokens:,} of system text and tools" if fixed_tokens else ""
    room = WIDER.format(room=model_window) if model_window > window_tokens else OTHER_MODEL
    among = "" if fixed_tokens + largest.tokens > window_tokens else f", the largest of {total:,} asked at once"
    return (
        f"{largest.what} takes about {largest.tokens:,} tokens{among} and the window holds {window_tokens:,}{beside}, "
        f"so compacting cannot help: {largest.helps}, or {room}"
    )


def refused_line(asked: Sequence[Asked], *, total_tokens: int) -> str:
    """Return what helps when the provider found a request too long; empty when compacting could still help.

    `total_tokens` is the estimated size of the conversation without system text and tools.
    """
    largest = max(asked, key=lambda a: a.tokens, default=None)
    rest = total_tokens - sum(a.tokens for a in asked)
    if largest is None or largest.tokens < LARGE_TOKENS or rest > LITTLE * total_tokens:
        return ""
    helps = largest.helps if largest.helps == SHORTER_IMAGE else f"{largest.helps}, or {OTHER_MODEL}"
    return f"{largest.what} takes about {largest.tokens:,} tokens, and there is little else to leave out: {helps}"


def asked_in(blocks: Sequence[Block], size: Callable[[Block], int]) -> list[Asked]:
    """Return the texts of a prompt: what the person wrote first, then what was attached and the skill."""
    found = []
    for index, block in enumerate(blocks):
        text = str(block.get("text", ""))
        what, helps = "the text of this cell", SHORTER_PROMPT
        if block.get("type") == "image":
            what, helps = "an image of this cell", SHORTER_IMAGE
        elif index and text.startswith("<attached"):
            named = _ATTACHED.match(text)
            what, helps = f"@{named[1]}" if named else "what is attached", SHORTER_ATTACHED
        elif index:
            named = _SKILL.search(text[:1_000])
            what, helps = f"the skill {named[1]!r}" if named else "the skill of this turn", SHORTER_SKILL
        found.append(Asked(what=what, tokens=size(block), helps=helps))
    return found


def asked_now(path: Sequence[Entry], view: View, size: Callable[[Block], int]) -> list[Asked]:
    """Return the texts of the turn that `path` ends in which no policy may drop, as far as the model sees them."""
    shown = view.in_sight
    found: list[Asked] = []
    for entry in reversed(path):
        body = entry.body
        if isinstance(body, TurnStart):
            break
        if entry.id not in shown:
            continue
        if isinstance(body, UserMessage):
            found += asked_in(body.blocks, size)
        elif isinstance(body, Steering):
            what = "what you sent while the turn ran" if body.by == "person" else "a reminder"
            found.append(Asked(what=what, tokens=size({"type": "text", "text": body.text}), helps=SHORTER_STEERING))
        elif isinstance(body, Snapshot):
            helps = "show less of the notebook (`%agent observe off`)"
            tokens = size({"type": "text", "text": body.text})
            found.append(Asked(what="the state of the notebook", tokens=tokens, helps=helps))
    return found
