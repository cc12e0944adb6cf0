"""openclaw: after OpenClaw 2026.5.28 (OC-C2, C3, C4, C7, C8). Three lines of defence before any summary.

Modelled: results capped on entry, old results trimmed then cleared when the cache has gone cold, compaction at the
window less reserve with the newest 20,000 tokens kept, five headings, an identifier check; a limit of turns, which
OpenClaw has by channel. Left out: successor transcripts, the hot timeouts. The seed compacts at 50 % of the window.
"""

from __future__ import annotations

from dataclasses import dataclass

from nbagent.context.moves import (
    Shown,
    cut_keeping,
    cut_keeping_turns,
    fixed_text,
    head_and_tail,
    prune,
    shown_results,
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
from nbagent.core.messages import joined_text

DEFAULT: Numbers = {
    "threshold": 0.0,  # share of the window; 0: the window less reserve
    "reserve_tokens": 20_000,  # floor of the reserve (agent-settings)
    "keep_tokens": 20_000,  # keepRecentTokens
    "limit_turns": 0,  # the newest messages of the person that are sent (historyLimit); 0: all
    "ttl_s": 300,  # the cache counts as cold after this long without a call (ttl omitted)
    "keep_assistants": 3,  # results after the 3rd-last reply are never touched
    "soft_share": 0.3,  # share of the window in characters from which results are trimmed
    "hard_share": 0.5,  # from which they are cleared
    "hard_least_chars": 50_000,  # minPrunableToolChars
    "soft_over_chars": 4_000,
    "soft_head_chars": 1_500,
    "soft_tail_chars": 1_500,
}
SEED: Numbers = {"threshold": 0.5}
CLEARED = "[Old tool result content cleared]"
CHARS_A_TOKEN = 4  # OpenClaw's window in characters


@dataclass(frozen=True, slots=True)
class OpenClawPolicy:
    """Prune when the cache is cold anyway; compact near the end of the window."""

    numbers: Numbers
    name: str = "openclaw"

    def plan(self, situation: Situation) -> Plan:
        """Propose pruning after a pause, else compaction when the window is nearly full."""
        forced = situation.moment.reason != "before_call"
        limit = int(self.numbers["limit_turns"])
        if not forced and (earliest := cut_keeping_turns(situation, limit)) is not None:
            style, why = NoteStyle(users_tokens=0, appendix_tokens=0, reattach=0), f"the last {limit} turns are sent"
            return (Compact(first_kept=earliest, reason=why, style=style, drop=True),)
        idle = situation.moment.idle_s
        if not forced and idle is not None and idle > self.numbers["ttl_s"]:
            pruned = self.prune_cold(situation)
            if pruned:
                return pruned
        if not forced and situation.used_tokens <= self.limit_tokens(situation):
            return ()
        first_kept = cut_keeping(situation, in_window(self.numbers["keep_tokens"], situation.window))
        if tokens_before(situation, first_kept) <= 0:
            return ()
        style = NoteStyle(template="openclaw", users_tokens=0, appendix_tokens=600, reattach=0, last_resort="")
        return (Compact(first_kept=first_kept, reason="the window is nearly full", style=style),)

    def limit_tokens(self, situation: Situation) -> int:
        """Return where compaction begins, tokens; at least half of the window stays for the prompt."""
        if self.numbers["threshold"]:
            return int(self.numbers["threshold"] * situation.window)
        reserve = in_window(self.numbers["reserve_tokens"], situation.window)
        return less_reserve(situation.window, reserve)

    def prune_cold(self, situation: Situation) -> Plan:
        """Return OpenClaw's pruning: soft trim from 30 % of the window in characters, hard clear from 50 %."""
        replies = sum(1 for p in situation.view.pieces if p.role == "assistant")
        if replies < self.numbers["keep_assistants"]:
            return ()
        results = [r for r in shown_results(situation) if r.steps_ago >= self.numbers["keep_assistants"]]
        window_chars = situation.window * CHARS_A_TOKEN
        used = situation.used_tokens * CHARS_A_TOKEN
        if used < self.numbers["soft_share"] * window_chars:
            return ()
        trim = head_and_tail(int(self.numbers["soft_head_chars"]), int(self.numbers["soft_tail_chars"]))
        texts: dict[str, str] = {}
        for shown in results:
            text = joined_text(shown.body.content)
            if len(text) > self.numbers["soft_over_chars"]:
                texts[shown.entry_id] = trim(shown)
                used -= len(text) - len(texts[shown.entry_id])
        left = {r.entry_id: texts.get(r.entry_id, joined_text(r.body.content)) for r in results}
        hard = used >= self.numbers["hard_share"] * window_chars
        if hard and sum(map(len, left.values())) >= self.numbers["hard_least_chars"]:
            for entry_id, text in left.items():
                if used < self.numbers["hard_share"] * window_chars:
                    break
                texts[entry_id] = CLEARED
                used -= len(text) - len(CLEARED)
        return (Prune(placeholders=texts, reason="the cache was cold; old results were trimmed"),) if texts else ()


def cleared(results: list[Shown]) -> Plan:
    """Return the move that clears `results` with OpenClaw's fixed text."""
    return prune(results, fixed_text(CLEARED), "old results were cleared")


KIND = PolicyKind(
    name="openclaw", make=OpenClawPolicy, default=DEFAULT, seed=SEED,
    summary=(
        "prunes old results when the cache is cold, compacts at the window less 20,000 tokens, keeps the "
        "newest 20,000"
    ),
)  # fmt: skip
