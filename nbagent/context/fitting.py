"""Fitting: the token check before a request is sent, and what is masked when it would not fit."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from nbagent.context.moves import head_and_tail, prune, shown_results
from nbagent.core.effects import Effect
from nbagent.core.view import ViewFold

if TYPE_CHECKING:
    from nbagent.context.engine import Engine

FRAME = 50  # a fiftieth of the window stays free when a request is sent: later than any policy's own limit
OFF = "off"  # the policy that manages nothing: nothing is masked either


def fit(engine: Engine, fold: ViewFold) -> Generator[Effect, Any, str | None]:
    """Mask what can be masked until the request fits. Returns the line that it does not, None when it does."""
    window = engine.budget.window_tokens
    limit = window - min(engine.budget.reserve_tokens, window // FRAME)
    if engine.predict(fold.view()) <= limit:
        return None
    for keep in (2, 0) if engine.policy.name != OFF else ():
        yield from mask_all(engine, fold, keep=keep)
        if engine.predict(fold.view()) <= limit:
            return None
    size = engine.predict(fold.view())
    if size <= window:
        return None
    return (
        f"the conversation takes about {size:,} tokens and the window holds {window:,}; "
        "`%context compact` makes room, or widen it with `%context set window=…`"
    )


def mask_all(engine: Engine, fold: ViewFold, *, keep: int) -> Generator[Effect, Any, None]:
    """Cut all results but the newest `keep` to their ends."""
    situation = yield from engine.situation(fold, "overflow")
    results = shown_results(situation)
    old = results[: max(0, len(results) - keep)] if keep else results
    small = max(200, engine.budget.window_tokens // 100)
    for move in prune([r for r in old if r.tokens > 60], head_and_tail(small, small), "the context did not fit"):
        yield from engine.record_pruning(fold, move)
