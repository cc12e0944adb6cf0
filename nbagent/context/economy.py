"""Economy: whether it is cheaper to go on carrying the older part of a conversation, or to replace it by a note.

Every call reads again what the conversation holds; a compaction costs a call that reads all of it, the note it
writes, and writing what stays into the cache anew. The rule is that of renting or buying: compact when what the part
that could go has cost since the last compaction is what a compaction costs. Where a conversation grows evenly that
is the cheapest rhythm; where it ends soon, at most one compaction was paid in vain. Only the past is looked at.
Costs are in units of one uncached input token.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from nbagent.context.policy import Situation
from nbagent.core.entries import AssistantMessage

# Of one input token: read from the cache, written to it, put out. Anthropic's prices, 2026-11; others are alike.
READ: Final = 0.1
WRITE: Final = 1.25
OUTPUT: Final = 5.0
ASK_TOKENS: Final = 800  # of the request for a note
USUAL_GROWTH: Final = 1_000  # tokens a call brings; in the recorded sessions 640 to 2,000


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What a compaction now would leave, tokens: the model's note `written_tokens`, and all but the fixed part."""

    after_tokens: float
    written_tokens: float

    def cost(self, used_tokens: float) -> float:
        """Return what it costs when the request has `used_tokens`."""
        return READ * used_tokens + ASK_TOKENS + OUTPUT * self.written_tokens + WRITE * self.after_tokens


def carried_cost(situation: Situation, after_tokens: float) -> float:
    """Return what has been paid, this call included, for carrying more than `after_tokens` since the last compaction.

    The sizes of the requests since then follow from the view: it grew by what stands in it.
    """
    replies = _replies_since(situation)
    excess = total = 0.0
    before: list[float] = []
    for piece, tokens in zip(situation.view.pieces, situation.tokens, strict=True):
        if piece.role == "assistant":
            before.append(total)
        total += tokens
    for size in (*before[max(0, len(before) - replies) :], total):
        excess += max(0.0, size - after_tokens)
    return READ * excess


def _replies_since(situation: Situation) -> int:
    replies = 0
    for entry in reversed(situation.path):
        if entry.id == situation.view.compaction:
            break
        replies += isinstance(entry.body, AssistantMessage)
    return replies


def usual_trigger(fixed_tokens: float, outlook: Outlook) -> float:
    """Return the size of the request at which it usually pays: where a conversation grows as most do."""
    start = fixed_tokens + outlook.after_tokens
    return start + math.sqrt(2 * outlook.cost(start) * USUAL_GROWTH / READ)

