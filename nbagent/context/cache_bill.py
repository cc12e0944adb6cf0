"""CacheBill: every model call of a conversation with what the prompt cache did for it, and what broke it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from nbagent.context.cache_calls import TURN, MeasuredCall, measured_calls
from nbagent.context.cache_causes import UNTIED, Cause, Trail, beginning, cause_of
from nbagent.context.compare import UNIT_PRICES
from nbagent.core.budget import Prices, Usage, cost_usd
from nbagent.core.entries import Entry, UsageReported
from nbagent.core.tree import SessionTree

Unit: TypeAlias = Literal["usd", "tokens"]
CLEARLY: Final = 0.9  # of what the call before had sent: whoever reads less has lost something


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTerms:
    """What a model's cache costs and holds. `prices` is None where they are not known."""

    prices: Prices | None
    least_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedCall:
    """One row of the bill.

    `turn` and `step` count from 1; `purpose` is "turn", or what a call besides was for ("handoff" and "probe": a note,
    "flush": storing notes, "skill": all calls of a sub-agent together, "compare"). The four kinds of tokens are
    disjoint. `cost`, `uncached` (the same call without any caching) and `warm` (had it read what the call before could
    leave it) are in the unit of the bill; `paid_usd` is what the journal says. `lost_tokens` could have been read and
    were not. `reported`: the provider told cache figures. `free`: replayed, so nothing was sent.
    """

    turn: int
    turn_id: str
    step: int
    purpose: str
    model: str
    read_tokens: int
    written_tokens: int
    fresh_tokens: int
    output_tokens: int
    cost: float
    uncached: float
    warm: float
    paid_usd: float
    lost_tokens: int = 0
    cause: Cause | None = None
    reported: bool = True
    free: bool = False

    @property
    def prompt_tokens(self) -> int:
        """All input tokens."""
        return self.read_tokens + self.written_tokens + self.fresh_tokens

    @property
    def is_break(self) -> bool:
        """Whether it read clearly less than the call before it had sent."""
        return self.cause is not None and self.cause.kind not in UNTIED

    @property
    def break_cost(self) -> float:
        """What it cost more than with a warm cache, in the unit of the bill."""
        return self.cost - self.warm


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnBill:
    """One turn: what its calls cost together, and how many times as much as the turn before (None for the first)."""

    turn: int
    calls: tuple[CachedCall, ...]
    cost: float
    times: float | None = None

    @property
    def dearest(self) -> CachedCall:
        """The call whose break cost most; without a break the one that cost most."""
        return max(self.calls, key=lambda c: (c.break_cost, c.cost))


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheBill:
    """The calls of the current branch, oldest first; sums are of those whose cache figures are known.

    `unit` is "usd", or "tokens" where a model's price is not known: then a cost is in prices of one uncached input
    token of the call's own model.
    """

    calls: tuple[CachedCall, ...]
    unit: Unit
    unpriced: tuple[str, ...] = ()

    @property
    def reported(self) -> tuple[CachedCall, ...]:
        """The calls whose cache figures are known."""
        return tuple(c for c in self.calls if c.reported and not c.free)

    @property
    def breaks(self) -> tuple[CachedCall, ...]:
        """The calls that read clearly less than the call before had sent."""
        return tuple(c for c in self.calls if c.is_break)

    @property
    def hit_rate(self) -> float | None:
        """The share of the input that was read from the cache, 0 to 1; None when nothing is known."""
        prompt = sum(c.prompt_tokens for c in self.reported)
        return sum(c.read_tokens for c in self.reported) / prompt if prompt else None

    @property
    def cost(self) -> float:
        """What all calls cost, in the unit of the bill."""
        return sum(c.cost for c in self.calls)

    @property
    def paid_usd(self) -> float:
        """What the journal says was paid, US dollars; calls without a known price count nothing."""
        return sum(c.paid_usd for c in self.calls)

    @property
    def uncached(self) -> float:
        """What all calls would have cost without any caching."""
        return sum(c.uncached for c in self.calls)

    @property
    def saved(self) -> float:
        """What caching saved; negative when writing cost more than reading saved."""
        return self.uncached - self.cost

    @property
    def break_cost(self) -> float:
        """What the breaks cost."""
        return sum(c.break_cost for c in self.breaks)

    @property
    def turns(self) -> tuple[TurnBill, ...]:
        """The turns that made calls, oldest first."""
        groups: dict[int, list[CachedCall]] = {}
        for call in self.calls:
            groups.setdefault(call.turn, []).append(call)
        found: list[TurnBill] = []
        for turn, calls in groups.items():
            cost = sum(c.cost for c in calls)
            before = found[-1].cost if found else 0.0
            found.append(TurnBill(turn=turn, calls=tuple(calls), cost=cost, times=cost / before if before else None))
        return tuple(found)

    @property
    def dearest_turn(self) -> TurnBill | None:
        """The turn that cost most, the first of equals; None without a call."""
        return max(self.turns, key=lambda t: t.cost, default=None)


def cache_bill(tree: SessionTree, terms: Callable[[str], ModelTerms]) -> CacheBill:
    """Return the bill of the conversation at the leaf of `tree`; `terms` gives what is known of a model by its name.

    Total and deterministic: a fold of entries, no clock is read. Linear in the path, but for a break that nothing
    explains, which is looked at once more.
    """
    path = tree.path()
    calls = measured_calls(path)
    known = {c.model: terms(c.model) for c in calls}
    unpriced = tuple(sorted({c.model for c in calls if known[c.model].prices is None and c.usage != Usage()}))
    prices = {m: (UNIT_PRICES if unpriced else t.prices) or UNIT_PRICES for m, t in known.items()}
    trail = Trail.of(path) if calls else None
    earlier = bool(calls) and _earlier(tree, path, calls[0])
    rows: list[CachedCall] = []
    seen: list[MeasuredCall] = []
    for call in calls:
        row = _priced(call, prices[call.model], in_usd=not unpriced)
        if trail is not None and row.reported and not row.free and call.in_conversation:
            row = _explained(row, call, trail, seen, prices[call.model], known, earlier)
        if not row.free and call.in_conversation:
            seen.append(call)
        rows.append(row)
    return CacheBill(calls=tuple(rows), unit="tokens" if unpriced else "usd", unpriced=unpriced)


def _earlier(tree: Iterable[Entry], path: Sequence[Entry], first: MeasuredCall) -> bool:
    """Tell whether the session had a call before the first one of `path`: in another conversation."""
    own = {e.id for e in path}
    for entry in tree:
        if entry.id == first.entry:
            return False
        if entry.id not in own and isinstance(entry.body, UsageReported):
            return True
    return False


def _priced(call: MeasuredCall, prices: Prices, *, in_usd: bool) -> CachedCall:
    """Return the row of a call by itself. What was paid stands, also when the prices have changed since."""
    usage = call.usage
    listed, bare = cost_usd(usage, prices), cost_usd(_uncached(usage), prices)
    free = in_usd and not call.paid_usd and listed > 0 and not call.imported
    factor = (call.paid_usd or (0.0 if free else listed)) / listed if in_usd and listed else 1.0
    cost = call.paid_usd if in_usd and (call.paid_usd or free) else listed
    return CachedCall(
        turn=call.turn, turn_id=call.turn_id, step=call.step, purpose=call.purpose, model=call.model,
        read_tokens=usage.cache_read_tokens, written_tokens=usage.cache_creation_tokens,
        fresh_tokens=usage.input_tokens, output_tokens=usage.output_tokens, cost=cost,
        uncached=bare * factor if call.reported else cost, warm=cost, paid_usd=call.paid_usd, reported=call.reported,
        free=free,
    )  # fmt: skip


def _uncached(usage: Usage) -> Usage:
    return Usage(input_tokens=usage.billed_input_tokens, output_tokens=usage.output_tokens)


def _explained(
    row: CachedCall, call: MeasuredCall, trail: Trail, seen: Sequence[MeasuredCall], prices: Prices,
    known: dict[str, ModelTerms], earlier: bool,
) -> CachedCall:  # fmt: skip
    """Return the row with what it lost, and why, compared with the last step before it."""
    steps = [c for c in reversed(seen) if c.purpose == TURN]
    if not steps:
        return replace(row, cause=beginning(trail, call, earlier=earlier)) if not seen else row
    before = steps[0]
    sent = before.usage.context_tokens
    if not before.reported or row.read_tokens >= CLEARLY * sent:
        return row
    last_used = next((c for c in reversed(seen) if c.model == call.model), None)
    cause = cause_of(trail, call, before, last_used=last_used, least_tokens=known[call.model].least_tokens)
    if cause.kind in UNTIED:
        return replace(row, cause=cause)
    lost = max(0, min(sent, call.usage.context_tokens) - row.read_tokens)
    listed, warm = cost_usd(call.usage, prices), cost_usd(_warmer(call.usage, lost), prices)
    factor = row.cost / listed if listed else 1.0
    return replace(row, cause=cause, lost_tokens=lost, warm=warm * factor)


def _warmer(usage: Usage, lost_tokens: int) -> Usage:
    """Return the usage of the same call had it read `lost_tokens` more: first of what was written, then of the rest."""
    short = usage.cache_creation_tokens - usage.cache_creation_1h_tokens
    from_short = min(lost_tokens, short)
    from_long = min(lost_tokens - from_short, usage.cache_creation_1h_tokens)
    fresh = min(lost_tokens - from_short - from_long, usage.input_tokens)
    return replace(
        usage, cache_read_tokens=usage.cache_read_tokens + from_short + from_long + fresh,
        cache_creation_tokens=usage.cache_creation_tokens - from_short - from_long,
        cache_creation_1h_tokens=usage.cache_creation_1h_tokens - from_long,
        input_tokens=usage.input_tokens - fresh,
    )  # fmt: skip
