"""claude-code: after Claude Code's public documentation and changelog (to 2.1.24x, 2026-08), as far as it is
public.

Modelled: large results go to disk with a 2 KB preview (CC-C1), older results are cleared before summarising,
compaction at the window less output reserve and buffer (CC-C3), nine sections, draft apart from final, recently
read files attached again (CC-C4), the ladder of CC-C5. Left out: hooks, plan mode, provider-side clearing (a move
of its own).
"""

from __future__ import annotations

from dataclasses import dataclass

from nbagent.context.moves import Shown, freed_tokens, pointer, prune, shown_results
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
    "threshold": 0.0,  # share of the window; 0: the window less reserve and buffer
    "reserve_tokens": 20_000,  # for the reply; the cap of the output reserve (2.1.21)
    "buffer_tokens": 13_000,  # lore, fits the 967K of a 1M window
    "result_chars": 50_000,  # larger results go to disk (2.1.51)
    "message_chars": 200_000,  # of all results of one batch
    "preview_chars": 2_000,
    "clear_least_tokens": 20_000,  # the oldest results are cleared when this much comes free
    "protect_results": 3,
    "reattach": 5,  # files shown again afterwards (Anthropic's blog)
    "reattach_tokens": 5_000,
}
SEED: Numbers = {"threshold": 0.92, "clear_least_tokens": 0}


@dataclass(frozen=True, slots=True)
class ClaudeCodePolicy:
    """Oversized results to disk at once; near the window's end clear old results, then summarise everything."""

    numbers: Numbers
    name: str = "claude-code"

    def plan(self, situation: Situation) -> Plan:
        """Propose what Claude Code would do before this call."""
        results = shown_results(situation)
        plan = self._to_disk(results)
        forced = situation.moment.reason != "before_call"
        if not forced and situation.used_tokens < self.limit_tokens(situation):
            return plan
        old = [r for r in results[: max(0, len(results) - int(self.numbers["protect_results"]))] if r.sent]
        least = in_window(self.numbers["clear_least_tokens"], situation.window)
        over = situation.used_tokens - self.limit_tokens(situation)
        if not forced and least and freed_tokens(old) >= max(least, 2 * over):
            return (*plan, *prune(old, pointer, "older tool results were cleared"))
        return (*plan, Compact(first_kept=None, reason="the window is nearly full", style=self._style()))

    def limit_tokens(self, situation: Situation) -> int:
        """Return where compaction begins, tokens."""
        if self.numbers["threshold"]:
            return int(self.numbers["threshold"] * situation.window)
        away = in_window(self.numbers["reserve_tokens"], situation.window)
        return less_reserve(situation.window, away + in_window(self.numbers["buffer_tokens"], situation.window))

    def _to_disk(self, results: tuple[Shown, ...]) -> Plan:
        big = [r for r in results if not r.sent and _chars(r) > self.numbers["result_chars"]]
        batch = [r for r in results if not r.sent and r not in big]
        total = sum(_chars(r) for r in batch)
        for shown in sorted(batch, key=lambda r: (-_chars(r), r.entry_id)):
            if total <= self.numbers["message_chars"]:
                break
            big.append(shown)
            total -= _chars(shown)
        size = int(self.numbers["preview_chars"])
        placeholders = {r.entry_id: _preview(r, size) for r in big}
        return (Prune(placeholders=placeholders, reason="large results went to disk"),) if placeholders else ()

    def _style(self) -> NoteStyle:
        return NoteStyle(
            template="claude-code", users_tokens=0, appendix_tokens=0, reattach=int(self.numbers["reattach"]),
            reattach_tokens=int(self.numbers["reattach_tokens"]), last_resort="drop", reject_above=1.0,
            too_long="drop", transcript=True,
        )  # fmt: skip


def _chars(shown: Shown) -> int:
    return len(joined_text(shown.body.content))


def _preview(shown: Shown, size: int) -> str:
    """Return the beginning of a result, with how large the whole is and where (claude.md F30)."""
    text = joined_text(shown.body.content)
    meta = shown.body.meta
    path = meta.get("full_path") or (meta.get("path") if shown.body.name == "read" else "")
    where = f"is in {path}: `read` it with offset and limit, or `recall` {shown.entry_id}" if path else (
        f"is read by `recall` {shown.entry_id}"
    )  # fmt: skip
    whole = max(len(text), shown.body.full_chars or 0)
    return (
        f"[only a preview: {shown.label}, {whole:,} characters in all; the whole {where}]\n"
        f"{text[:size]}\n[end of the preview]"
    )


KIND = PolicyKind(
    name="claude-code", make=ClaudeCodePolicy, default=DEFAULT, seed=SEED,
    summary=(
        "results over 50,000 characters to disk, summary in nine sections near the end of the window, files "
        "attached again"
    ),
)  # fmt: skip
