"""openclaw: after OpenClaw 2026.5.28 (OC-C2, C3, C4, C7, C8). Three lines of defence before any summary.

Modelled: results capped on entry, old results trimmed then cleared when the cache has gone cold, compaction at the
window less reserve with the newest 20,000 tokens kept, results shortened instead where that is enough, a summary
in chunks of 40 % of the window, in two parts that are merged, five headings and a check of what has to be in it; a
limit of turns, which OpenClaw has by channel. Left out: successor transcripts, the hot timeouts, the loop guard.
The seed compacts at 50 % of the window and drops the oldest half until less than half of it is left; it counts the
cache as cold after five minutes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nbagent.context.chunks import BASE_RATIO, chunk_ratio
from nbagent.context.handoff import TEMPLATES, HandoffNote, Missing
from nbagent.context.moves import (
    Shown,
    cut_dropping_halves,
    cut_keeping,
    cut_keeping_turns,
    head_and_tail,
    kept_entries,
    shown_results,
    shown_texts,
    tokens_before,
)
from nbagent.context.policy import (
    Compact,
    NoteStyle,
    Numbers,
    Plan,
    PolicyKind,
    Prune,
    Situation,
    in_window,
    less_reserve,
)
from nbagent.context.safeguard import kept_beside, missing_in
from nbagent.core.entries import Entry

DEFAULT: Numbers = {
    "threshold": 0.0,  # share of the window; 0: the window less reserve
    "reserve_tokens": 20_000,  # floor of the reserve (agent-settings)
    "keep_tokens": 20_000,  # keepRecentTokens; 0: the oldest half is dropped until history_share is left
    "history_share": 0.5,  # of the window: the most that is kept (maxHistoryShare)
    "chunk_share": 0.4,  # of the window: the most of it that one request for a summary shows; less for large messages
    "limit_turns": 0,  # the newest messages of the person that are sent (historyLimit); 0: all
    "ttl_s": 3_600,  # after this long without a call old results are pruned: the default beside Anthropic; 0: never
    "keep_assistants": 3,  # results after the 3rd-last reply are never touched
    "soft_share": 0.3,  # share of the window in characters from which results are trimmed
    "hard_share": 0.5,  # from which they are cleared
    "hard_least_chars": 50_000,  # minPrunableToolChars
    "soft_over_chars": 4_000,
    "soft_head_chars": 1_500,
    "soft_tail_chars": 1_500,
}
SEED: Numbers = {"threshold": 0.5, "keep_tokens": 0, "ttl_s": 300}
CLEARED = "[Old tool result content cleared]"
CHARS_A_TOKEN = 4  # OpenClaw's window in characters
OVERHEAD_TOKENS = 4_096  # of a request for a summary, besides what it shows
RESULT_CHARS = ((200_000, 64_000), (100_000, 32_000), (0, 16_000))  # from this window on, the most of one result
RESULT_SHARE = 0.3  # of the window
ALL_RESULTS = 4  # times the most of one result: the most of all of them (2026.9)
LEAST_RESULT_CHARS = 2_000
TAIL_SHARE, MOST_TAIL_CHARS = 0.3, 4_000
MARK_CHARS = 100  # what says that something is left out
SPARE_CHARS, SPARE_FACTOR = 2_048, 1.5  # what shortening must bring beyond what is over


@dataclass(frozen=True, slots=True)
class OpenClawPolicy:
    """Prune when the cache is cold anyway; compact near the end of the window."""

    numbers: Numbers
    name: str = "openclaw"

    def plan(self, situation: Situation) -> Plan:
        """Propose pruning after a pause, else shorter results or compaction when the window is nearly full."""
        forced = situation.moment.reason != "before_call"
        limit = int(self.numbers["limit_turns"])
        if not forced and (earliest := cut_keeping_turns(situation, limit)) is not None:
            style, why = NoteStyle(users_tokens=0, appendix_tokens=0, reattach=0), f"the last {limit} turns are sent"
            return (Compact(first_kept=earliest, reason=why, style=style, drop=True),)
        idle = situation.moment.idle_s
        if not forced and idle is not None and 0 < self.numbers["ttl_s"] < idle:
            pruned = self.prune_cold(situation)
            if pruned:
                return pruned
        if not forced and situation.used_tokens <= self.limit_tokens(situation):
            return ()
        return self._make_room(situation)

    def limit_tokens(self, situation: Situation) -> int:
        """Return where compaction begins, tokens; at least half of the window stays for the prompt."""
        if self.numbers["threshold"]:
            return int(self.numbers["threshold"] * situation.window)
        reserve = in_window(self.numbers["reserve_tokens"], situation.window)
        return less_reserve(situation.window, reserve)

    # ------------------------------------------------------------ near the end of the window

    def _make_room(self, situation: Situation) -> Plan:
        """Return OpenClaw's route (preemptive-compaction): shorter results, a summary, or first this and then that."""
        shortened, freed = self.shorten(situation)
        over = CHARS_A_TOKEN * (situation.used_tokens - self.limit_tokens(situation))
        if situation.moment.reason == "before_call" and freed >= max(over + SPARE_CHARS, SPARE_FACTOR * over):
            return (Prune(placeholders=shortened, reason="results were shortened; that is enough"),)
        first_kept = self._cut(situation)
        if tokens_before(situation, first_kept) <= 0:
            return (Prune(placeholders=shortened, reason="results were shortened"),) if shortened else ()
        plan: Plan = (Compact(first_kept=first_kept, reason="the window is nearly full", style=self._style(situation)),)
        kept = kept_entries(situation, first_kept)
        rest = {e: t for e, t in shortened.items() if e in kept} if situation.moment.reason != "manual" else {}
        return (*plan, Prune(placeholders=rest, reason="results were shortened")) if rest else plan

    def _cut(self, situation: Situation) -> str | None:
        most = int(self.numbers["history_share"] * situation.window)
        keep = in_window(self.numbers["keep_tokens"], situation.window)
        return cut_keeping(situation, min(keep, most)) if keep else cut_dropping_halves(situation, most)

    def _style(self, situation: Situation) -> NoteStyle:
        ratio = chunk_ratio(sum(situation.tokens) / max(1, len(situation.tokens)), situation.window)
        share = min(1.0, self.numbers["chunk_share"] * ratio / BASE_RATIO)
        chunk = max(1, int(share * situation.window) - in_window(OVERHEAD_TOKENS, situation.window)) if share else 0
        return NoteStyle(
            template="openclaw", users_tokens=0, appendix_tokens=600, reattach=0, last_resort="", chunk_tokens=chunk,
            too_long="stages always", checks=_missing, beside=kept_beside,
        )  # fmt: skip

    def shorten(self, situation: Situation) -> tuple[dict[str, str], int]:
        """Return the results that are too long, each and together, in shorter form, and how many characters that frees.

        Of all together the oldest are shortened first; each keeps its ends.
        """
        most = single_result_chars(situation.window)
        shown_now = shown_texts(situation)
        sizes = {r.entry_id: (r, len(shown_now.get(r.entry_id, ""))) for r in shown_results(situation)}
        total = sum(min(size, most) for _, size in sizes.values())
        texts: dict[str, str] = {}
        for entry_id, (shown, size) in sizes.items():
            allowed = min(size, most)
            if total > ALL_RESULTS * most:
                allowed = max(min(LEAST_RESULT_CHARS, allowed), allowed - (total - ALL_RESULTS * most))
            if allowed < size:
                total -= min(size, most) - allowed
                tail = min(int(allowed * TAIL_SHARE), MOST_TAIL_CHARS)
                texts[entry_id] = head_and_tail(max(0, allowed - tail - MARK_CHARS), tail)(shown)
        freed = sum(max(0, sizes[e][1] - len(t)) for e, t in texts.items())
        return texts, freed

    # ------------------------------------------------------------ when the cache is cold

    def prune_cold(self, situation: Situation) -> Plan:
        """Return OpenClaw's pruning: soft trim from 30 % of the window in characters, hard clear from 50 %."""
        replies = sum(1 for p in situation.view.pieces if p.role == "assistant")
        if replies < self.numbers["keep_assistants"]:
            return ()
        results = shown_results(situation, pruned=True)
        results = tuple(r for r in results if r.steps_ago >= self.numbers["keep_assistants"])
        window_chars = situation.window * CHARS_A_TOKEN
        used = situation.used_tokens * CHARS_A_TOKEN
        if used < self.numbers["soft_share"] * window_chars:
            return ()
        trim = head_and_tail(int(self.numbers["soft_head_chars"]), int(self.numbers["soft_tail_chars"]))
        shown_now = shown_texts(situation)
        left = {r.entry_id: shown_now.get(r.entry_id, "") for r in results}
        texts: dict[str, str] = {}
        for shown in results:
            text = left[shown.entry_id]
            if len(text) > self.numbers["soft_over_chars"] or shown.images:
                texts[shown.entry_id] = left[shown.entry_id] = _without_images(shown, trim(shown))
                used -= weight(text) - weight(left[shown.entry_id]) + IMAGE_CHARS * shown.images
        hard = used >= self.numbers["hard_share"] * window_chars
        left = {e: t for e, t in left.items() if t != CLEARED}
        if hard and sum(map(weight, left.values())) >= self.numbers["hard_least_chars"]:
            for entry_id, text in left.items():
                if used < self.numbers["hard_share"] * window_chars:
                    break
                texts[entry_id] = CLEARED
                used -= weight(text) - weight(CLEARED)
        return (Prune(placeholders=texts, reason="the cache was cold; old results were trimmed"),) if texts else ()


def _missing(note: HandoffNote, replaced: Sequence[Entry]) -> Missing:
    return missing_in(note, TEMPLATES["openclaw"], replaced)


IMAGE_CHARS = 8_000
CJK_WEIGHT = 4  # a Chinese, Japanese or Korean character is about a token


def weight(text: str) -> int:
    """Return the length of a text in characters of a quarter of a token each."""
    return len(text) if text.isascii() else len(text) + (CJK_WEIGHT - 1) * sum(c >= "\u2e80" for c in text)


def single_result_chars(window_tokens: int) -> int:
    """Return the most characters of one result.

    >>> [single_result_chars(n) for n in (10_000, 50_000, 128_000, 200_000)]
    [12000, 16000, 32000, 64000]
    """
    tier = next(chars for least, chars in RESULT_CHARS if window_tokens >= least)
    return min(int(window_tokens * RESULT_SHARE) * CHARS_A_TOKEN, tier)


def _without_images(shown: Shown, text: str) -> str:
    return f"{text}\n[{shown.images} image{'s' if shown.images > 1 else ''} removed]".lstrip() if shown.images else text


KIND = PolicyKind(
    name="openclaw", make=OpenClawPolicy, default=DEFAULT, seed=SEED,
    summary=(
        "prunes old results when the cache is cold, compacts at the window less 20,000 tokens, keeps the "
        "newest 20,000"
    ),
)  # fmt: skip
