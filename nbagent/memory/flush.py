"""The flush before compaction (OC-M7): when it is due, what it may write, what it is told. PURE.

A silent turn asks the model to store what matters. It has `read` and an appending `write` to the day's log only, runs
at most once a compaction cycle, may decline with NO_REPLY, and is neither shown nor kept as the person's text.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from nbagent.core.errors import ToolError, one_line

RESERVE_TOKENS: Final = 20_000  # OpenClaw 2026.5.28
SOFT_TOKENS: Final = 4_000
TRANSCRIPT_BYTES: Final = 2_097_152
SILENT: Final = "NO_REPLY"
NOTICE_CHARS: Final = 600
FLUSH_TOOLS: Final = ("read", "write")
READ_ONLY: Final = ("MEMORY.md", "AGENTS.md", "CLAUDE.md")

TurnKind = Literal["person", "flush", "heartbeat", "compaction"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushLimits:
    """When a flush is due. Tokens; `transcript_bytes` 0 is never by size."""

    reserve_tokens: int
    soft_tokens: int
    transcript_bytes: int = TRANSCRIPT_BYTES

    def threshold(self, window_tokens: int) -> int:
        """Return from how many tokens on."""
        return window_tokens - self.reserve_tokens - self.soft_tokens


def limits_for(window_tokens: int) -> FlushLimits:
    """Return limits that leave a positive threshold in any window: OpenClaw's from 32,000 tokens on, less below.

    Source: OpenClaw 2026.9, which has 4,000/2,000 for 8,000 and 16,000/4,000 for 24,000 (its issue 99958).

    >>> [(x.reserve_tokens, x.soft_tokens) for x in map(limits_for, (8_000, 16_000, 24_000, 200_000))]
    [(4000, 2000), (8000, 4000), (16000, 4000), (20000, 4000)]
    """
    reserve = min(RESERVE_TOKENS, max(window_tokens // 2, window_tokens - 8_000))
    return FlushLimits(reserve_tokens=reserve, soft_tokens=min(SOFT_TOKENS, window_tokens // 4))


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushState:
    """Counters of a session. `flushed_at` is the number of compactions when it was flushed last, None: never."""

    compactions: int | None = None
    flushed_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushDecision:
    """Whether to flush now, and why or why not."""

    due: bool
    reason: str


def should_flush(
    state: FlushState,
    *,
    total_tokens: int | None,
    window_tokens: int,
    transcript_bytes: int = 0,
    limits: FlushLimits | None = None,
    enabled: bool = True,
    writable: bool = True,
    kind: TurnKind = "person",
    new_messages: bool = True,
) -> FlushDecision:
    """Tell whether a flush is due before the next turn.

    `total_tokens` is what the next request will hold, None where no fresh count is known (a stale one is not to be
    given). `new_messages` says that somebody said something since the last flush or compaction.
    """
    limits = limits or limits_for(window_tokens)
    if not enabled:
        return FlushDecision(due=False, reason="switched off")
    if kind != "person":
        return FlushDecision(due=False, reason=f"a {kind} turn never flushes")
    if not writable:
        return FlushDecision(due=False, reason="the notes cannot be written")
    if state.flushed_at is not None and state.flushed_at >= (state.compactions or 0):
        return FlushDecision(due=False, reason="already flushed since the last compaction")
    if not new_messages:
        return FlushDecision(due=False, reason="nothing was said since")
    threshold = limits.threshold(window_tokens)
    if total_tokens is not None and threshold > 0 and total_tokens >= threshold:
        return FlushDecision(due=True, reason=f"{total_tokens:,} tokens, from {threshold:,} on")
    if limits.transcript_bytes and transcript_bytes >= limits.transcript_bytes:
        return FlushDecision(due=True, reason=f"a record of {transcript_bytes:,} bytes")
    return FlushDecision(due=False, reason="below the thresholds")


def after_flush(state: FlushState, *, ok: bool, compacted: bool = False) -> FlushState:
    """Return the counters after a flush turn. A failed one does not count, so it is tried again.

    When the flush turn itself compacted, the count it is kept under is that before it.
    """
    before = state.compactions or 0
    return FlushState(
        compactions=before + 1 if compacted else state.compactions, flushed_at=before if ok else state.flushed_at
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushPlan:
    """What a flush turn is told and may do. `note` is the only file it may append to (".nbagent/memory/….md")."""

    prompt: str
    note: str
    tools: Sequence[str] = FLUSH_TOOLS


_DEFAULT_PROMPT: Final = (
    "This conversation is about to be compacted. Store what must outlast it: decisions and their reasons, facts about "
    "the data, names, numbers, preferences of the person, what is left to do. One fact a line, each to be understood "
    "alone; leave out what MEMORY.md or the day's log already says, and every secret."
)


def flush_plan(today: str, *, prompt: str | None = None, folder: str = ".nbagent/memory") -> FlushPlan:
    """Return the plan for the day `today` (YYYY-MM-DD). Hints that the person's `prompt` lacks are added, once each."""
    note = f"{folder}/{today[:10]}.md"
    text = (prompt or _DEFAULT_PROMPT).replace("YYYY-MM-DD", today[:10]).strip()
    hints = (
        ("append", f"Write to {note} only, with `write`, which appends: never repeat or replace what is there."),
        ("read-only", f"{', '.join(READ_ONLY)} and all other notes are read-only in this turn."),
        (SILENT, f"When there is nothing to store, answer {SILENT} and nothing else."),
    )
    added = [hint for word, hint in hints if word not in text]
    return FlushPlan(prompt="\n".join([text, *added]), note=note)


def may_write(path: str, plan: FlushPlan, *, today: str | None = None, root: str = "") -> str:
    """Return the log that a `write` of the flush turn goes to. `root` is the folder that relative names start at.

    After midnight both the day it was planned for and `today` are right (OpenClaw's issue 118940 lost such text).

    Raises:
        ToolError: another file.
    """
    folder = posixpath.dirname(plan.note)
    allowed = [plan.note, *([f"{folder}/{today[:10]}.md"] if today else [])]
    given = posixpath.normpath(path.replace("\\", "/"))
    for note in allowed:
        short = note.removeprefix(".nbagent/")
        if given in {note, short, posixpath.normpath(posixpath.join(root, note)) if root else note}:
            return note
    raise ToolError(f"path {one_line(path)!r}: in this turn writes are limited to {plan.note}, which they append to")


def is_silent(reply: str) -> bool:
    """Tell whether a reply says nothing on purpose.

    >>> is_silent(" NO_REPLY\\n"), is_silent("NO_REPLY is what I would say")
    (True, False)
    """
    return not reply.strip() or reply.strip().strip("`*\"'.") == SILENT


def failure_notice(error: str) -> str:
    """Return what the person is told when a flush failed, at most 600 characters; the turn goes on."""
    text = f"Notes were not stored before compaction; it is tried again before the next one: {one_line(error)}"
    return text if len(text) <= NOTICE_CHARS else text[: NOTICE_CHARS - 1] + "…"
