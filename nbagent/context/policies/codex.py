"""codex: after Codex CLI (0.171, 2026-08), local compaction (CX-C1 to C3).

Modelled: every output is cut on entry, half head and half tail, counted in bytes; compaction at 90 % of the window or
at a lower limit that was set, also in mid-turn; after a change to a model with a smaller window the one before writes
the summary; the whole history becomes one, and the person's messages stay whole from the newest on up to 20,000 tokens,
the one that crosses this cut in the middle, the summary last; a request for it that is too long loses its oldest part
until it fits. Left out: server-side compaction (a move of its own), notes without text, which are refused here. The
seed cuts at 10 KB.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nbagent.context.moves import SKILL, Shown, left_out, prune, shown_results
from nbagent.context.policy import Compact, NoteStyle, Numbers, Plan, PolicyKind, Situation, in_window
from nbagent.core.messages import joined_text

DEFAULT: Numbers = {
    "threshold": 0.9,  # the most: a higher one counts as this
    "limit_tokens": 0,  # model_auto_compact_token_limit; 0: none
    "output_tokens": 10_000,  # of 4 bytes each, for current models
    "output_bytes": 0,  # for older ones; 0: the tokens count
    "users_tokens": 20_000,  # the person's messages that stay
}
SEED: Numbers = {"output_bytes": 10_240}
MOST_SHARE = 0.9  # of the window; the hard limit, 95 %, is never reached before
BYTES_A_TOKEN = 4
GRACE = 1.2  # a result that the tool has cut to about the limit is not cut again
OVERFLOW_TRIES = 5  # a fifth goes each time: until little is left


@dataclass(frozen=True, slots=True)
class CodexPolicy:
    """Cut on entry; at 90 % summarise everything but the person's own words."""

    numbers: Numbers
    name: str = "codex"

    def plan(self, situation: Situation) -> Plan:
        """Propose the cut of new outputs, and the compaction when its time has come."""
        by_bytes = in_window(self.numbers["output_bytes"], situation.window)
        limit = by_bytes or BYTES_A_TOKEN * in_window(self.numbers["output_tokens"], situation.window)
        new = [r for r in shown_results(situation) if not r.sent and _too_long(r, limit)]
        plan = prune(new, _both_halves(limit, in_tokens=not by_bytes), "outputs were cut on entry")
        forced = situation.moment.reason != "before_call"
        if not forced and situation.share < self.limit_share(situation.window):
            return plan
        style = NoteStyle(
            template="codex", users_tokens=in_window(self.numbers["users_tokens"], situation.window),
            users_newest=True, note_last=True, appendix_tokens=0, reattach=0, last_resort="", reject_above=1.0,
            too_long="drop", overflow_tries=OVERFLOW_TRIES, former_model=True,
        )  # fmt: skip
        return (*plan, Compact(first_kept=None, reason="the window is nearly full", style=style))

    def limit_share(self, window_tokens: int) -> float:
        """Return the share of the window at which compaction begins: never more than 90 %."""
        share = min(MOST_SHARE, self.numbers["threshold"])
        limit = self.numbers["limit_tokens"]
        return min(share, in_window(limit, window_tokens) / max(1, window_tokens)) if limit else share


def _both_halves(limit_bytes: int, *, in_tokens: bool) -> Callable[[Shown], str]:
    """Return a placeholder function that keeps both halves of a limit in whole characters, and says what is gone."""

    def halved(shown: Shown) -> str:
        content = joined_text(shown.body.content).encode("utf-8", "replace")
        half = limit_bytes // 2
        head = content[:half].decode("utf-8", "ignore")
        tail = content[len(content) - half :].decode("utf-8", "ignore")
        removed = len(content) - len(head.encode()) - len(tail.encode())
        chars = len(content.decode("utf-8")) - len(head) - len(tail)
        gone = f"{-(-removed // BYTES_A_TOKEN):,} tokens" if in_tokens else f"{chars:,} characters"
        return f"{head}\n{left_out(shown, gone)}\n{tail}"

    return halved


def _too_long(shown: Shown, limit_bytes: int) -> bool:
    """Tell whether a result is cut: no skill, whose text is in force, and none with an image, which would go."""
    content = shown.body.content
    if shown.body.name == SKILL or any(b.get("type") == "image" for b in content):
        return False
    return len(joined_text(content).encode("utf-8", "replace")) > GRACE * limit_bytes


KIND = PolicyKind(
    name="codex", make=CodexPolicy, default=DEFAULT, seed=SEED,
    summary="cuts every output on entry, at 90 % keeps only the person's own messages and a summary",
)  # fmt: skip
