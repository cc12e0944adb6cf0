"""SessionGauge: how large the next request is, who holds what of it, what was spent."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from nbagent.context.measure import Meter
from nbagent.core.budget import Budget, ContextSize, Ledger, Usage, cost_usd
from nbagent.core.entries import AssistantMessage, Entry, UsageReported
from nbagent.core.messages import Prefix, Request
from nbagent.core.tokens import TokenFamily
from nbagent.core.view import View, ViewFold
from nbagent.models.catalog import ModelFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupancy:
    """What the context holds now. `estimated` is False right after the provider measured this very request."""

    ledger: Ledger
    used_tokens: int
    budget: Budget
    estimated: bool
    cache_hit_rate: float | None
    cost_usd: float


class SessionGauge:
    """Anchored on the last measured request of the same model; only what came since is an estimate."""

    def __init__(self) -> None:
        self._meters: dict[TokenFamily, Meter] = {}
        self._size: dict[str, ContextSize] = {}
        self._estimate = 0
        self._predicted = 0
        self._moves: object = None

    def meter(self, family: TokenFamily) -> Meter:
        """Return the estimates of one tokenizer family."""
        return self._meters.setdefault(family, Meter(family))

    def look(self, view: View, prefix: Prefix, facts: ModelFacts) -> int:
        """Take in the request that is about to be sent and return its predicted size in tokens."""
        meter = self.meter(facts.family)
        self._estimate = sum(meter.view(view, prefix).values())
        self._predicted = self._predict(view, meter, facts.model)
        return self._predicted

    def _predict(self, view: View, meter: Meter, model: str) -> int:
        size = self._size.get(model, ContextSize())
        moves = (view.pruned, view.compaction)
        moved, self._moves = self._moves not in (None, moves), moves
        last = max((i for i, p in enumerate(view.pieces) if p.role == "assistant"), default=None)
        if last is None or not size.measured_tokens or moved:
            return size.predict_request(self._estimate)
        since = view.pieces[last + 1 :]
        return size.predict(sum(sum(meter.piece(p).values()) for p in since))

    def predict(self, request: Request) -> int:
        """Return the size predicted by the last `look`."""
        return self._predicted

    def measured(self, usage: UsageReported) -> None:
        """Anchor on what the provider measured for the request last looked at."""
        size = self._size.get(usage.model, ContextSize())
        self._size[usage.model] = size.observe(Usage.from_wire(usage.usage), self._estimate)

    def replay(self, path: Iterable[Entry], prefix: Prefix, facts: ModelFacts) -> None:
        """Learn from the measured calls on `path`, as when a session is opened again."""
        fold = ViewFold()
        model_path = list(path)
        measured = [i for i, e in enumerate(model_path) if isinstance(e.body, UsageReported)]
        if not measured:
            return
        asked = next(
            (i for i in range(measured[-1], -1, -1) if isinstance(model_path[i].body, AssistantMessage)), measured[-1]
        )
        fold.extend(model_path[:asked])
        self.look(fold.view(), prefix, facts)
        body = model_path[measured[-1]].body
        if isinstance(body, UsageReported):
            self.measured(body)

    def occupancy(
        self, view: View, prefix: Prefix, facts: ModelFacts, budget: Budget, path: Iterable[Entry]
    ) -> Occupancy:
        """Return what the next request would hold, by category, adding up exactly."""
        used = self.look(view, prefix, facts)
        rows = self.meter(facts.family).view(view, prefix)
        reports = [e.body for e in path if isinstance(e.body, UsageReported)]
        total = Usage()
        for report in reports:
            total += Usage.from_wire(report.usage)
        read, billed = total.cache_read_tokens, total.billed_input_tokens
        return Occupancy(
            ledger=Ledger.from_mapping(rows).scaled_to(used), used_tokens=used, budget=budget, estimated=True,
            cache_hit_rate=read / billed if billed else None, cost_usd=sum(r.cost_usd for r in reports),
        )  # fmt: skip


def price(facts: ModelFacts, usage: object) -> float:
    """Return what a call cost in US dollars; 0 where the price is not known."""
    if facts.prices is None or not isinstance(usage, dict):
        return 0.0
    return cost_usd(Usage.from_wire(usage), facts.prices)
