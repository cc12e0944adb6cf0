"""Chunks: a conversation too long for one request, in parts that each fit, in order and without a word left out.

Source: OpenClaw 2026.5.28, compaction.ts (reference 4.10). A call and its results are never in two chunks, unless
the two alone are larger than a chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate

from nbagent.context.transcript import message_texts
from nbagent.core.messages import Message

Count = Callable[[str], int]

SAFETY = 1.2  # estimates may be short by a sixth
BASE_RATIO, LEAST_RATIO = 0.4, 0.15
LARGE_MESSAGE = 0.1  # of the window: above this the ratio falls
CONTINUED = "[the message goes on]\n"
LEAST_PIECE_CHARS = 40


def chunk_ratio(mean_message_tokens: float, window_tokens: int) -> float:
    """Return which share of the window a chunk takes: less where messages are large.

    >>> [round(chunk_ratio(share * 200_000, 200_000), 3) for share in (0.01, 0.1, 0.5)]
    [0.4, 0.16, 0.15]
    """
    mean = SAFETY * mean_message_tokens / max(1, window_tokens)
    if mean <= LARGE_MESSAGE:
        return BASE_RATIO
    return LEAST_RATIO if 2 * mean >= BASE_RATIO - LEAST_RATIO else BASE_RATIO - 2 * mean


def units(messages: Sequence[Message]) -> list[str]:
    """Return the conversation as texts; a reply that calls tools and the message with its results are one."""
    texts: list[str] = []
    open_call = False
    for message in messages:
        shown = "\n\n".join(message_texts((message,)))
        calls = any(b.get("type") == "tool_use" for b in message.blocks)
        if open_call and message.role == "user" and texts:
            texts[-1] = "\n\n".join(filter(None, [texts[-1], shown]))
        elif shown:
            texts.append(shown)
        open_call = calls and bool(shown)
    return texts


def split_by_share(sizes: Sequence[int], parts: int) -> list[range]:
    """Return the positions of `sizes` in at most `parts` runs of about equal sums, each with something in it.

    >>> [list(r) for r in split_by_share([5, 5, 5, 5], 2)], [list(r) for r in split_by_share([9, 1, 1], 2)]
    ([[0, 1], [2, 3]], [[0], [1, 2]])
    """
    total = sum(sizes)
    runs: list[range] = []
    begin = 0
    for index, reached in enumerate(accumulate(sizes)):
        left = parts - len(runs) - 1
        if left > 0 and index + 1 < len(sizes) and reached * parts >= total * (len(runs) + 1):
            runs.append(range(begin, index + 1))
            begin = index + 1
    return [*runs, range(begin, len(sizes))] if begin < len(sizes) else runs


def chunked(texts: Sequence[str], limit_tokens: int, count: Count) -> list[list[str]]:
    """Return `texts` in chunks of at most `limit_tokens` by estimate; a text that is larger is cut into several."""
    limit = max(1, int(limit_tokens / SAFETY))
    chunks: list[list[str]] = [[]]
    room = limit
    for text in texts:
        for piece in [text] if count(text) <= limit else _pieces(text, limit, count):
            size = count(piece)
            if size > room and chunks[-1]:
                chunks.append([])
                room = limit
            chunks[-1].append(piece)
            room -= size
    return [c for c in chunks if c]


def _pieces(text: str, limit: int, count: Count) -> list[str]:
    """Return a text cut at ends of lines where there are some, each piece of at most `limit` tokens."""
    pieces: list[str] = []
    usual = max(LEAST_PIECE_CHARS, len(text) * limit // max(1, count(text)))
    begin, mark = 0, ""
    while begin < len(text):
        size = usual
        while size > LEAST_PIECE_CHARS and count(mark + text[begin : begin + size]) > limit:
            size = max(LEAST_PIECE_CHARS, size * 3 // 4)
        end = begin + size
        if end < len(text):
            end = text.rfind("\n", begin + size // 2, end) + 1 or end
        pieces.append(mark + text[begin:end])
        begin, mark = end, CONTINUED
    return pieces
