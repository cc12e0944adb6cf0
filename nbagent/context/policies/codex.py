"""codex: after Codex CLI (0.171, 2026-08), local compaction (CX-C1 to C3).

Modelled: every output is cut on entry, half head and half tail; compaction at 90 % of the window or at a lower limit
that was set, also in mid-turn; the whole history becomes a summary, and the person's messages stay whole from the
newest on up to 20,000 tokens, the one that crosses this cut in the middle, the summary last; a request for it that is
too long loses its oldest part until it fits. Left out: server-side compaction (a move of its own), model downshift,
notes without text, which are refused here. The seed cuts at 10 KB.
"""

from __future__ import annotations

from dataclasses import dataclass

from nbagent.context.moves import SKILL, Shown, head_and_tail, prune, shown_results
from nbagent.context.policy import Compact, NoteStyle, Numbers, Plan, PolicyKind, Situation, in_window
from nbagent.core.messages import joined_text

DEFAULT: Numbers = {
    "threshold": 0.9,  # the most: a higher one counts as this
    "limit_tokens": 0,  # model_auto_compact_token_limit; 0: none
    "output_chars": 40_000,  # 10,000 tokens of 4 bytes, for current models
    "users_tokens": 20_000,  # the person's messages that stay
}
SEED: Numbers = {"output_chars": 10_240}
MOST_SHARE = 0.9  # of the window; the hard limit, 95 %, is never reached before
GRACE = 1.2  # a result that the tool has cut to about the limit is not cut again
OVERFLOW_TRIES = 5  # a fifth goes each time: until little is left


@dataclass(frozen=True, slots=True)
class CodexPolicy:
    """Cut on entry; at 90 % summarise everything but the person's own words."""

    numbers: Numbers
    name: str = "codex"

    def plan(self, situation: Situation) -> Plan:
        """Propose the cut of new outputs, and the compaction when its time has come."""
        limit = in_window(self.numbers["output_chars"], situation.window)
        new = [r for r in shown_results(situation) if not r.sent and _too_long(r, limit)]
        plan = prune(new, head_and_tail(limit // 2, limit // 2), "outputs were cut on entry")
        forced = situation.moment.reason != "before_call"
        if not forced and situation.share < self.limit_share(situation.window):
            return plan
        style = NoteStyle(
            template="codex", users_tokens=in_window(self.numbers["users_tokens"], situation.window),
            users_newest=True, note_last=True, appendix_tokens=0, reattach=0, last_resort="", reject_above=1.0,
            too_long="drop", overflow_tries=OVERFLOW_TRIES,
        )  # fmt: skip
        return (*plan, Compact(first_kept=None, reason="the window is nearly full", style=style))

    def limit_share(self, window_tokens: int) -> float:
        """Return the share of the window at which compaction begins: never more than 90 %."""
        share = min(MOST_SHARE, self.numbers["threshold"])
        limit = self.numbers["limit_tokens"]
        return min(share, in_window(limit, window_tokens) / max(1, window_tokens)) if limit else share


def _too_long(shown: Shown, limit_chars: int) -> bool:
    """Tell whether a result is cut: no skill, whose text is in force, and none with an image, which would go."""
    content = shown.body.content
    if shown.body.name == SKILL or any(b.get("type") == "image" for b in content):
        return False
    return len(joined_text(content)) > GRACE * limit_chars


KIND = PolicyKind(
    name="codex", make=CodexPolicy, default=DEFAULT, seed=SEED,
    summary="cuts every output on entry, at 90 % keeps only the person's own messages and a summary",
)  # fmt: skip
