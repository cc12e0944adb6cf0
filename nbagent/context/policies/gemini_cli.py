"""gemini-cli: after Gemini CLI (0.61, 2026-08) (GC-C1 to C5).

Modelled: at 50 % of the window, the oldest 70 % of the history, by characters, is summarised as a state snapshot, cut
at the start of a request; of the kept part, tool responses beyond the newest 50,000 tokens are cut to both ends; a
second call probes the summary. What a shell prints beyond 40,000 characters is cut on entry, a fifth of it the
beginning. One that is larger than what it replaces is rejected, and from then on only tool
responses are cut, until a compaction succeeds. Below 50 %, or where too little stands before the last request, old
outputs are masked; where Gemini CLI would stop for want of room, the turn itself is cut from 90 % on. Left out: the
graph context manager, next-speaker check. The seed triggers at 70 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nbagent.context.moves import (
    SKILL,
    Shown,
    beyond_budget,
    cut_after,
    cut_keeping,
    head_and_tail,
    over_budget,
    prune,
    shown_results,
    tokens_before,
    with_both_ends,
)
from nbagent.context.policy import Compact, NoteStyle, Numbers, Plan, PolicyKind, Situation, in_window
from nbagent.context.standing import gave_up
from nbagent.core.entries import Entry
from nbagent.core.errors import PolicyError
from nbagent.core.messages import joined_text

DEFAULT: Numbers = {
    "threshold": 0.5,  # compressionThreshold since 0.18
    "keep": 0.3,  # of the history, by JSON characters, snapped forward to a request
    "budget_tokens": 50_000,  # newest tool responses that stay whole at a compaction
    "stub_tokens": 10_000,  # 40,000 characters: what is left of one beyond that, a fifth of it the beginning
    "protect_tokens": 50_000,  # newest tool responses that stay (masking)
    "mask_least_tokens": 30_000,  # masking happens when this much can go
    "output_chars": 40_000,  # of what a shell or code prints; more is cut on entry
    "loop_calls": 5,  # the same calls so often in a row, also up to five in a cycle: told, then the turn ends; 0: never
}
SEED: Numbers = {"threshold": 0.7}
NEVER_MASKED = (SKILL, "ask")
CHARS_A_TOKEN = 4
PREVIEW_CHARS = 250  # of each end of a masked output
HEAD_SHARE = 0.2
PRINTING = ("shell", "python")
LEAST_OUTPUT_CHARS = 2_000  # Gemini CLI cuts nothing at all when no room is left
LEAST_SHARE = 0.1  # of the history: a smaller head is not worth two calls, and its note might be larger
LATEST_SHARE = 0.9  # of the window: from here a turn is cut inside when nothing else is left


@dataclass(frozen=True, slots=True)
class GeminiCliPolicy:
    """Mask old outputs, summarise the older 70 %, probe the summary."""

    numbers: Numbers
    name: str = "gemini-cli"

    def __post_init__(self) -> None:
        if not 0 < (keep := self.numbers["keep"]) < 1:
            raise PolicyError(f"policy {self.name!r}: keep={keep:g} is not possible; give a share above 0 and below 1")

    def plan(self, situation: Situation) -> Plan:
        """Propose what Gemini CLI would do before this call."""
        return (*self._on_entry(situation), *self._before_call(situation))

    def _on_entry(self, situation: Situation) -> Plan:
        """Return the move that cuts what was printed just now."""
        new = [r for r in shown_results(situation) if not r.sent and r.body.name in PRINTING and not r.images]
        room = CHARS_A_TOKEN * (situation.window - situation.used_tokens + sum(r.tokens for r in new))
        most = min(in_window(self.numbers["output_chars"], situation.window), max(LEAST_OUTPUT_CHARS, room))
        head = int(HEAD_SHARE * most)
        long = [r for r in new if len(joined_text(r.body.content)) > most]
        return prune(long, head_and_tail(head, most - head), "outputs were cut on entry")

    def _before_call(self, situation: Situation) -> Plan:
        forced = situation.moment.reason != "before_call"
        if not forced and situation.share < self.numbers["threshold"]:
            return self._mask(situation)
        if not forced and gave_up(situation.path, self.name):
            return self._cut(shown_results(situation), situation.window) or self._mask(situation)
        first_kept = cut_after(situation, 1 - self.numbers["keep"])
        history = sum(situation.tokens)
        if tokens_before(situation, first_kept) < LEAST_SHARE * history and situation.moment.reason != "manual":
            masked = self._mask(situation)
            if masked or (not forced and situation.share < LATEST_SHARE):
                return masked
            first_kept = cut_keeping(situation, int(self.numbers["keep"] * history))
            if tokens_before(situation, first_kept) <= 0:
                return ()
        style = NoteStyle(
            template="gemini-cli", users_tokens=0, appendix_tokens=0, reattach=0, probe=True, reject_above=1.0,
            last_resort="", head_only=True, tries=2, once_larger=True,
        )  # fmt: skip
        compact = Compact(first_kept=first_kept, reason="half of the window was used", style=style)
        kept = {e.id for e in _from(situation, first_kept)}
        return (*self._cut([r for r in shown_results(situation) if r.entry_id in kept], situation.window), compact)

    def _cut(self, results: Sequence[Shown], window_tokens: int) -> Plan:
        """Return the move that cuts the results beyond the newest ones to both ends; none that are short."""
        stub = in_window(self.numbers["stub_tokens"], window_tokens)
        over = over_budget(results, in_window(self.numbers["budget_tokens"], window_tokens), stub)
        head = int(HEAD_SHARE * stub * CHARS_A_TOKEN)
        return prune(over, head_and_tail(head, stub * CHARS_A_TOKEN - head), "old tool outputs were cut")

    def _mask(self, situation: Situation) -> Plan:
        results = [r for r in shown_results(situation) if r.body.name not in NEVER_MASKED]
        latest = [r for r in results if r.steps_ago == 0]
        old = beyond_budget(
            [r for r in results if r not in latest], in_window(self.numbers["protect_tokens"], situation.window)
        )
        if sum(r.tokens for r in old) < in_window(self.numbers["mask_least_tokens"], situation.window):
            return ()
        return prune(old, with_both_ends(PREVIEW_CHARS), "old tool outputs were masked")


def _from(situation: Situation, first_kept: str | None) -> Sequence[Entry]:
    at = next((i for i, e in enumerate(situation.path) if e.id == first_kept), len(situation.path))
    return situation.path[at:]


KIND = PolicyKind(
    name="gemini-cli", make=GeminiCliPolicy, default=DEFAULT, seed=SEED,
    summary=(
        "masks old outputs, at 50 % summarises the older 70 % as a state snapshot and probes it with a second "
        "call"
    ),
)  # fmt: skip
