"""CompareReport: what `%context compare` returns, a policy a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nbagent.core.errors import counted
from nbagent.notebook.render import money
from nbagent.notebook.reports.tables import Document, Line, Table, displayable
from nbagent.runtime.comparing import Comparison, Row

STAND_IN = (
    "No model was called. Where a policy asks for a note, first lines of the conversation stand in for it; what the "
    "machine adds to a note is real. Tokens are estimates."
)
LIVE = "The notes were written by {model}; what that cost is in the session's costs. Sizes of requests are estimates."
PRICED = (
    "Cost: input read from the cache at a tenth of the price, written to it at 1.25 times; a pause of over 5 minutes "
    "empties it. Fetching back what was cleared is not counted."
)
ANCHORS = (
    "Anchors: paths, identifiers, numbers and names that somebody wrote, and rules, decisions and errors that stand; "
    "in the last context word for word, one retrieval away, or lost (beyond 100 searches the rest counts as lost)."
)


@displayable
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CompareReport:
    """Every policy on one conversation; `comparison.rows` holds the figures."""

    comparison: Comparison

    def document(self) -> Document:
        """Return what is shown."""
        found = self.comparison
        calls = max((r.calls for r in found.rows), default=0)
        count = len(found.rows)
        title = (
            f"{counted(count, 'policy', 'policies')} on this conversation: {counted(found.turns, 'turn')}, "
            f"{counted(calls, 'model call')}, window {found.window_tokens:,} tokens"
        )
        head = (
            "policy", "tokens sent", "cost", "cache hits", "notes", "prunings", "compactions", "last context",
            "verbatim", "reachable", "lost",
        )  # fmt: skip
        rows = tuple(self._cells(row) for row in found.rows)
        problems = tuple(Line(text=f"{r.policy}: {_problem(r)}") for r in found.rows if r.problem)
        return [
            Line(text=title, strong=True), Table(head=head, rows=rows, numbers=frozenset(range(1, len(head)))),
            *problems, *(Line(text=t, dim=True) for t in (self._notes(), PRICED, ANCHORS)),
        ]  # fmt: skip

    def _notes(self) -> str:
        return LIVE.format(model=self.comparison.model) if self.comparison.live else STAND_IN

    def _cells(self, row: Row) -> tuple[str, ...]:
        name = f"{row.policy} (in force)" if row.policy == self.comparison.in_force else row.policy
        cost = money(row.cost_usd) if row.cost_usd is not None else f"{row.cost_units:,.0f} units"
        return (
            name, f"{row.tokens_sent:,}", cost, f"{100 * row.cache_hit_rate:.0f} %", f"{row.notes}",
            f"{row.prunings}", f"{row.compactions}", f"{row.last_tokens:,}", f"{row.verbatim:,}",
            f"{row.reachable:,}", f"{row.lost:,}",
        )  # fmt: skip


def _problem(row: Row) -> str:
    if not row.over_window:
        return row.problem
    return f"{row.over_window} of {row.calls} calls would not have been made: {row.problem}"


def live_cost(found: Comparison, names: Sequence[str]) -> str:
    """Return the line that says what a live comparison would ask of the model, before anything is paid."""
    calls, sent = sum(r.notes for r in found.rows), sum(r.note_tokens for r in found.rows)
    if not calls:
        return "No policy asks for a note on this conversation: --live would show what the comparison without it shows."
    price = "the price is not known" if found.notes_usd is None else f"about {money(found.notes_usd)}"
    again = " ".join(["%context compare", *names, "--live --yes"])
    return (
        f"--live asks {found.model} for {calls} note{'' if calls == 1 else 's'} with {sent:,} tokens of input: "
        f"{price}. Nothing was asked yet; `{again}` does it."
    )
