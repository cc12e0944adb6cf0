"""SessionGauge: how large the next request is, who holds what of it, what was spent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from nbagent.context.measure import Meter
from nbagent.core.budget import Budget, Calibration, ContextSize, Ledger, Usage, cost_usd
from nbagent.core.entries import AssistantMessage, Body, Entry, TurnStart, UsageReported
from nbagent.core.messages import Prefix, Request
from nbagent.core.pieces import IMPORTED
from nbagent.core.tokens import TokenFamily
from nbagent.core.view import View, ViewFold
from nbagent.models.catalog import ModelFacts

_TRUSTED_FACTOR = 2.0  # of a measurement of another run of the kernel, beside the estimate of the same pieces
_OVERHEAD_WEIGHT = 0.3  # the newest pair of figures counts for this much, as in core/budget.py
_MOST_OVERHEAD_TOKENS = 64  # of one piece; a larger difference is no frame but an outlier


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupancy:
    """What the context holds now. `estimated` is False right after the provider measured this very request."""

    ledger: Ledger
    used_tokens: int
    budget: Budget
    estimated: bool
    cache_hit_rate: float | None
    cost_usd: float


@dataclass(slots=True, kw_only=True)
class _Look:
    """A request as it was looked at: `count` pieces up to the entry `last`, with the moves then in force.

    Filled by `_look`, and then left as it is.
    """

    model: str
    prefix: Prefix
    count: int
    last: str
    moves: tuple[object, ...]
    estimate: int
    overhead: float
    base: ContextSize = field(default_factory=ContextSize)
    predicted: int = 0
    added: int = 0  # pieces and estimated tokens since the measured request before it; 0 when there is none
    added_estimate: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Anchor:
    """A measured request and the size that follows from it."""

    look: _Look
    size: ContextSize


class SessionGauge:
    """Anchored on the last measured request on the same path; only what came since is an estimate.

    A path is recognised by its last `UsageReported`, so after a fork, a revert or an undo the figures are those
    of the place one is at. Looking changes nothing: only `predict` says that a request is sent.
    """

    def __init__(self) -> None:
        self._meters: dict[TokenFamily, Meter] = {}
        self._anchors: dict[int, tuple[UsageReported, _Anchor]] = {}
        self._learned: dict[str, Calibration] = {}
        self._overhead: dict[str, float] = {}
        self._looked: _Look | None = None
        self._looked_at: tuple[View, Prefix, ModelFacts] | None = None  # asked again and again before a call
        self._sent: _Look | None = None
        self._read: tuple[object, Usage] = (None, Usage())

    def usage(self, told: Mapping[str, Any]) -> Usage:
        """Return what a provider's report says; the same object is read once: price, size and limits ask for it."""
        if self._read[0] is not told:
            self._read = (told, Usage.from_wire(told))
        return self._read[1]

    def meter(self, family: TokenFamily) -> Meter:
        """Return the estimates of one tokenizer family."""
        return self._meters.setdefault(family, Meter(family))

    def calibrated(self, facts: ModelFacts, estimated_tokens: int) -> int:
        """Return an estimate as the provider would measure it, as far as its measurements have told."""
        return (self._learned.get(facts.model) or Calibration()).apply(estimated_tokens)

    # ------------------------------------------------------------ the next request

    def look(self, view: View, prefix: Prefix, facts: ModelFacts) -> int:
        """Return the predicted size in tokens of the request for `view`; nothing is sent yet."""
        at = self._looked_at
        if self._looked is None or at is None or at[0] is not view or at[1] is not prefix or at[2] is not facts:
            self._looked, self._looked_at = self._look(view, prefix, facts), (view, prefix, facts)
        return self._looked.predicted

    @property
    def looked_tokens(self) -> int:
        """The predicted size of the request that was looked at last; 0 before any."""
        return self._looked.predicted if self._looked else 0

    def _look(self, view: View, prefix: Prefix, facts: ModelFacts) -> _Look:
        meter = self.meter(facts.family)
        learned = self._learned.get(facts.model) or Calibration()
        found = _Look(
            model=facts.model, prefix=prefix, count=len(view.pieces),
            last=view.pieces[-1].entry_id if view.pieces else "", moves=(view.pruned, view.compaction, view.cleared),
            estimate=sum(meter.view(view, prefix).values()), overhead=self._overhead.get(facts.model, 0.0),
        )  # fmt: skip
        anchor = self._anchor(view, found, learned, meter)
        if anchor is None:
            found.base = ContextSize(calibration=learned)
        else:
            found.base = replace(anchor.size, calibration=learned)
            if _extends(view, found, anchor.look):
                _extend(view, found, anchor.look, meter)
                return found
        found.predicted = found.base.predict_request(found.estimate)
        return found

    def _anchor(self, view: View, found: _Look, learned: Calibration, meter: Meter) -> _Anchor | None:
        if view.last_usage is None:
            return None
        known = self._anchors.get(id(view.last_usage))
        if known is not None:
            return known[1] if known[1].look.model == found.model else None
        return _anchor_of_record(view, found, learned, meter)

    def predict(self, request: Request) -> int:
        """Return the size predicted by the last `look`, which is the request that is sent now."""
        self._sent = self._looked
        return self._sent.predicted if self._sent else 0

    # ------------------------------------------------------------ what was measured

    def believed(self, usage: Mapping[str, Any]) -> int:
        """Return the size of the request sent last, by a report of it; an absurd one is not believed."""
        measured = self.usage(usage)
        sent = None if _edited(usage) else self._sent
        return _weighed(sent, measured).measured_tokens if sent else measured.context_tokens

    def measured(self, usage: UsageReported) -> None:
        """Anchor on what the provider measured for the request sent last; `usage` is the entry's own body."""
        sent, self._sent = self._sent, None
        self._looked_at = None  # the next look is from here
        if sent is None or _edited(usage.usage):
            return  # the provider measured another request than the one that was estimated
        reported = self.usage(usage.usage)
        size = _weighed(sent, reported)
        self._learned[sent.model] = size.calibration
        if sent.added and size.measured_tokens == reported.context_tokens:
            self._learn_overhead(sent, size)
        self._anchors[id(usage)] = (usage, _Anchor(look=sent, size=size))

    def context_tokens(self, usage: UsageReported) -> int:
        """Return the size of the request that `usage` reports, as far as the report is believed."""
        _, anchor = self._anchors.get(id(usage), (usage, None))
        return anchor.size.measured_tokens if anchor else Usage.from_wire(usage.usage).context_tokens

    def _learn_overhead(self, sent: _Look, size: ContextSize) -> None:
        """Learn what a piece costs besides its text: the frame that the estimate does not know."""
        bare = sent.base.predict(sent.added_estimate)
        each = (size.measured_tokens - bare) / sent.added
        if abs(each) <= _MOST_OVERHEAD_TOKENS:
            known = self._overhead.get(sent.model)
            self._overhead[sent.model] = each if known is None else known + _OVERHEAD_WEIGHT * (each - known)

    def replay(self, path: Iterable[Entry], prefix: Prefix, facts: ModelFacts) -> None:
        """Learn from the last measured call on `path` when nothing of the model is known: a session opened again."""
        if facts.model in self._learned:
            return
        entries = list(path)
        at = next((i for i in range(len(entries) - 1, -1, -1) if _of_turn(entries[i].body)), None)
        start = next((e.body for e in reversed(entries[:at]) if isinstance(e.body, TurnStart)), None)
        if at is None or (start is not None and start.policy == IMPORTED):
            return  # what another agent's request measured tells nothing of ours
        body = entries[at].body
        asked = next((i for i in range(at, -1, -1) if isinstance(entries[i].body, AssistantMessage)), at)
        looked = self._looked
        self._sent = self._look(ViewFold(entries[:asked]).view(), prefix, facts)
        self._looked = looked
        if isinstance(body, UsageReported):
            self.measured(body)

    def price(self, facts: ModelFacts, usage: object) -> float:
        """Return what a call cost in US dollars; 0 where the price is not known."""
        if facts.prices is None or not isinstance(usage, dict):
            return 0.0
        return cost_usd(self.usage(usage), facts.prices)

    # ------------------------------------------------------------ for people

    def occupancy(
        self, view: View, prefix: Prefix, facts: ModelFacts, budget: Budget, path: Iterable[Entry]
    ) -> Occupancy:
        """Return what the next request would hold, by category, adding up exactly."""
        used = self._look(view, prefix, facts).predicted
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


def _of_turn(body: Body) -> bool:
    return isinstance(body, UsageReported) and body.purpose == "turn"


def _edited(usage: Mapping[str, Any]) -> bool:
    """Tell whether the provider made the request smaller by itself: cleared results, or compacted."""
    parts = usage.get("iterations") or ()
    return bool(usage.get("applied_edits")) or any(
        isinstance(p, Mapping) and p.get("type") == "compaction" for p in parts
    )


def _weighed(sent: _Look, measured: Usage) -> ContextSize:
    """Return the state after a report of the request `sent`, anchored on its text alone."""
    return sent.base.observe(measured, sent.estimate)


def _extends(view: View, found: _Look, before: _Look) -> bool:
    """Tell whether the request `found` begins with the request `before`, as far as its sizes go."""
    same = found.moves == before.moves and found.prefix == before.prefix and 0 < before.count <= found.count
    return same and view.pieces[before.count - 1].entry_id == before.last


def _extend(view: View, found: _Look, before: _Look, meter: Meter) -> None:
    """Set the size of `found`: the measured request, its reply as measured, and the rest as estimated."""
    since = view.pieces[before.count :]
    sizes = [sum(meter.piece(p).values()) for p in since]
    base = found.base
    reply = base.after_tokens - base.measured_tokens
    if since and since[0].role == "assistant" and 2 * reply >= base.calibration.apply(sizes[0]):
        sizes[0] = 0  # measured, and more exactly than by its visible text
    else:  # nothing of the reply is sent back, or it was cut before its size was told
        found.base = base = replace(base, after_tokens=base.measured_tokens)
    found.added, found.added_estimate = len(since), sum(sizes)
    found.predicted = base.predict(found.added_estimate) + round(found.overhead * len(since))


def _anchor_of_record(view: View, found: _Look, learned: Calibration, meter: Meter) -> _Anchor | None:
    """Return the anchor that the last report on the path gives, when it was made in another run of the kernel."""
    replies = [i for i, p in enumerate(view.pieces) if p.role == "assistant"]
    if view.last_usage is None or not replies:
        return None
    count = replies[-1]
    since = sum(sum(meter.piece(p).values()) for p in view.pieces[count:])
    estimate = max(1, found.estimate - since)
    measured = Usage.from_wire(view.last_usage.usage)
    ratio = measured.context_tokens / estimate
    if not count or not 1 / _TRUSTED_FACTOR <= ratio <= _TRUSTED_FACTOR:
        return None  # the request was another: it was compacted or pruned since
    size = ContextSize(calibration=learned).observe(measured, estimate)
    return _Anchor(look=replace(found, count=count, last=view.pieces[count - 1].entry_id, estimate=estimate), size=size)
