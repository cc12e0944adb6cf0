"""CacheReport: what `%context cache` returns: why a call cost what it did, a call a row."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from nbagent.core.errors import counted
from nbagent.notebook.render import money
from nbagent.notebook.reports.tables import Code, Document, Line, Piece, Table, displayable
from nbagent.runtime.caching import CacheBill, CachedCall, TurnBill

MOST_ROWS, MOST_BREAKS = 60, 40  # shown: the newest, and of those before the dearest breaks; all are in `.rows`
NO_CALLS = "No model call was measured in this conversation yet, so there is nothing to tell."
LEGEND = (
    "fresh: neither read from the cache nor written to it · uncached: the same call without a cache · warm: had it "
    "read all that the call before could leave. A break: a call that read clearly less than the call before had sent."
)
UNITS = "in prices of one uncached input token of the call's own model (read 0.1, written 1.25, output 5)"
PURPOSES = {"handoff": "note", "probe": "note", "flush": "memory", "skill": "sub-agent", "compare": "comparison"}
_HEAD = ("turn", "call", "read", "written", "fresh", "output", "cost", "uncached", "warm", "what broke the cache")


@displayable
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CacheReport:
    """The bill of the current branch. `rows` are its calls; `bill` holds sums, breaks and turns.

    `replayed` says that a recording plays, so that nothing was paid.
    """

    bill: CacheBill
    replayed: bool = False
    as_json: bool = False

    @property
    def rows(self) -> tuple[CachedCall, ...]:
        """A row for each call, oldest first."""
        return self.bill.calls

    @property
    def breaks(self) -> tuple[CachedCall, ...]:
        """The calls that read clearly less than the call before had sent."""
        return self.bill.breaks

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[CachedCall]:
        return iter(self.rows)

    def to_json(self) -> str:
        """Return the bill as indented JSON."""
        bill, dearest = self.bill, self.bill.dearest_turn
        told = {
            "unit": bill.unit, "unpriced": bill.unpriced, "replayed": self.replayed, "calls": len(bill.calls),
            "hit_rate": bill.hit_rate, "cost": bill.cost, "uncached": bill.uncached, "saved": bill.saved,
            "paid_usd": bill.paid_usd, "breaks": len(bill.breaks), "break_cost": bill.break_cost,
            "dearest_turn": dearest.turn if dearest else None, "rows": [_plain(row) for row in bill.calls],
        }  # fmt: skip
        return json.dumps(told, ensure_ascii=False, indent=1)

    def document(self) -> Document:
        """Return what is shown."""
        if self.as_json:
            return [Code(text=self.to_json())]
        if not self.rows:
            return [Line(text=NO_CALLS, strong=True)]
        shown, left_out = self._shown()
        pieces: list[Piece] = [Line(text=self._title(), strong=True)]
        pieces += [Line(text=text) for text in (self._sums(), self._dearest()) if text]
        pieces.append(
            Table(head=_HEAD, rows=tuple(map(self._cells, shown)), numbers=frozenset(range(2, len(_HEAD) - 1)))
        )
        if left_out:
            line = f"{counted(left_out, 'older call')} left out; `.rows` has all"
            pieces.append(Line(text=line, dim=True))
        return [*pieces, *(Line(text=text, dim=True) for text in (*self._doubts(), LEGEND))]

    def _shown(self) -> tuple[list[CachedCall], int]:
        older, newest = self.rows[:-MOST_ROWS], self.rows[-MOST_ROWS:]
        dearest = sorted((r for r in older if r.is_break), key=lambda r: -r.break_cost)[:MOST_BREAKS]
        chosen = set(map(id, dearest))
        shown = [*(r for r in older if id(r) in chosen), *newest]
        return shown, len(self.rows) - len(shown)

    def _title(self) -> str:
        made = f"{counted(len(self.rows), 'model call')} in {counted(len(self.bill.turns), 'turn')}"
        rate = self.bill.hit_rate
        if rate is None:
            return f"{made}: no cache figures"
        return f"{made}: {100 * rate:.0f} % of the input was read from the cache"

    def _sums(self) -> str:
        bill = self.bill
        if bill.hit_rate is None:
            return f"cost {self._cost(bill.cost)}"
        share = f" ({100 * bill.saved / bill.uncached:.0f} %)" if bill.uncached > 0 else ""
        saved = "caching saved" if bill.saved >= 0 else "caching cost more than it saved by"
        words = [
            f"cost {self._cost(bill.cost)}", f"without a cache {self._cost(bill.uncached)}",
            f"{saved} {self._cost(abs(bill.saved))}{share if bill.saved >= 0 else ''}",
        ]  # fmt: skip
        count = len(bill.breaks)
        words.append(f"{counted(count, 'break')} cost {self._cost(bill.break_cost)}" if count else "no break")
        return " · ".join(words)

    def _dearest(self) -> str:
        found = self.bill.dearest_turn
        if found is None or not found.cost:
            return ""
        times = f", {found.times:.1f} times the turn before" if found.times is not None else ""
        return f"The dearest turn is {found.turn}: {self._cost(found.cost)}{times}; {_why(found)}."

    def _cost(self, value: float) -> str:
        return money(value) if self.bill.unit == "usd" else f"{value:,.0f} units"

    def _cells(self, row: CachedCall) -> tuple[str, ...]:
        costs = (row.cost, row.uncached, row.warm)
        told = ("–", "–") if not row.reported else (f"{row.read_tokens:,}", f"{row.written_tokens:,}")
        return (
            str(row.turn), _called(row), *told, f"{row.fresh_tokens:,}", f"{row.output_tokens:,}",
            *(money(c) if self.bill.unit == "usd" else f"{c:,.0f}" for c in costs), _reason(row),
        )  # fmt: skip

    def _doubts(self) -> list[str]:
        bill, found = self.bill, list[str]()
        if bill.unpriced:
            found.append(f"the price of {', '.join(bill.unpriced)} is not known: costs are {UNITS}")
            if bill.paid_usd:
                found.append(f"of calls whose price is known {money(bill.paid_usd)} was paid")
        silent = sum(not c.reported for c in bill.calls)
        if silent == len(bill.calls):
            found.append("the provider tells no cache figures, so nothing can be said of caching")
        elif silent:
            found.append(
                f"{silent} of {len(bill.calls)} calls came without cache figures; what they saved is not counted"
            )
        if free := sum(c.free for c in bill.calls):
            found.append(f"{counted(free, 'call')} came from a recording: nothing was sent, nothing paid")
        if self.replayed:
            found.append("a recording plays: nothing is paid here; these are the figures of the recorded calls")
        return found


def _called(row: CachedCall) -> str:
    return str(row.step) if row.purpose == "turn" else PURPOSES.get(row.purpose, row.purpose)


def _reason(row: CachedCall) -> str:
    if row.free:
        return "(from a recording)"
    if not row.reported:
        return "(no cache figures)"
    if row.cause is None:
        return ""
    return "; also: ".join((row.cause.text, *row.cause.also))


def _why(turn: TurnBill) -> str:
    row = turn.dearest
    if row.is_break and row.cause is not None and row.break_cost > 0.1 * turn.cost:
        return (
            f"{_named(row)} read {row.read_tokens:,} of {row.prompt_tokens:,} tokens from the cache ({row.cause.text})"
        )
    size = sum(c.written_tokens + c.fresh_tokens for c in turn.calls)
    out = sum(c.output_tokens for c in turn.calls)
    begins = next((c.cause.text for c in turn.calls if c.cause and c.cause.kind in ("first", "new")), "no break")
    return f"{begins}: {counted(len(turn.calls), 'call')}, {size:,} tokens of new input, {out:,} of output"


def _named(row: CachedCall) -> str:
    return f"call {row.step}" if row.purpose == "turn" else f"its call for a {_called(row)}"


def _plain(row: CachedCall) -> dict[str, Any]:
    return {**asdict(row), "prompt_tokens": row.prompt_tokens, "is_break": row.is_break, "break_cost": row.break_cost}
