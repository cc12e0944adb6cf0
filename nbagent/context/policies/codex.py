"""codex: after Codex CLI (0.171, 2026-08), local compaction (CX-C1 to C3).

Modelled: every output is cut on entry, half head and half tail; compaction at 90 % of the window, also in mid-turn;
the whole history becomes a summary, and the person's newest messages stay up to 20,000 tokens, the summary last.
Left out: server-side compaction (a move of its own), model downshift. The seed cuts at 10 KB.
"""

from __future__ import annotations

from dataclasses import dataclass

from nbagent.context.moves import head_and_tail, prune, shown_results
from nbagent.context.policy import Compact, NoteStyle, Numbers, Plan, PolicyKind, Situation, in_window
from nbagent.core.messages import joined_text

DEFAULT: Numbers = {
    "threshold": 0.9,  # auto_compact_token_limit when none is set
    "output_chars": 40_000,  # 10,000 tokens of 4 bytes, for current models
    "users_tokens": 20_000,  # the person's messages that stay
}
SEED: Numbers = {"output_chars": 10_240}


@dataclass(frozen=True, slots=True)
class CodexPolicy:
    """Cut on entry; at 90 % summarise everything but the person's own words."""

    numbers: Numbers
    name: str = "codex"

    def plan(self, situation: Situation) -> Plan:
        """Propose the cut of new outputs, and the compaction when its time has come."""
        limit = int(self.numbers["output_chars"])
        new = [r for r in shown_results(situation) if not r.sent and len(joined_text(r.body.content)) > 1.2 * limit]
        plan = prune(new, head_and_tail(limit // 2, limit // 2), "outputs were cut on entry")
        forced = situation.moment.reason != "before_call"
        if not forced and situation.share < self.numbers["threshold"]:
            return plan
        style = NoteStyle(
            template="codex", users_tokens=in_window(self.numbers["users_tokens"], situation.window),
            appendix_tokens=0, reattach=0, last_resort="", reject_above=1.0,
        )  # fmt: skip
        return (*plan, Compact(first_kept=None, reason="the window is nearly full", style=style))


KIND = PolicyKind(
    name="codex", make=CodexPolicy, default=DEFAULT, seed=SEED,
    summary="cuts every output on entry, at 90 % keeps only the person's own messages and a summary",
)  # fmt: skip
