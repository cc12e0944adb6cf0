"""Fitting: the token check before a request is sent, and what is masked when it would not fit."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from nbagent.context.moves import cut_keeping, head_and_tail, prune, shown_results
from nbagent.context.oversize import asked_now, refused_line, too_large_line
from nbagent.context.policy import Compact, Situation
from nbagent.context.standing import keeping_request
from nbagent.core.effects import Effect
from nbagent.core.errors import COMPACT_HELPS
from nbagent.core.view import ViewFold

if TYPE_CHECKING:
    from nbagent.context.engine import Engine

FRAME = 50  # a fiftieth of the window stays free when a request is sent: later than any policy's own limit
OFF = "off"  # the policy that manages nothing: nothing is masked either


def fit(engine: Engine, fold: ViewFold, *, planned: bool = True) -> Generator[Effect, Any, str | None]:
    """Mask what can be masked until the request fits. Returns the line that it does not, None when it does.

    Where the policy has not `planned` a compaction, one is made as after an overflow that the provider tells of.
    Nothing is masked below the threshold that the person set: what the policy does there comes first.
    """
    window = engine.budget.window_tokens
    limit = window - min(engine.budget.reserve_tokens, window // FRAME)
    limit = max(limit, int(engine.policy.numbers.get("threshold", 0.0) * window))
    if engine.predict(fold.view()) <= limit:
        return None
    for keep in (2, 0) if engine.policy.name != OFF else ():
        yield from mask_all(engine, fold, keep=keep)
        if engine.predict(fold.view()) <= limit:
            return None
    if not planned and engine.policy.name != OFF and engine.predict(fold.view()) > window:
        situation = yield from engine.situation(fold, "overflow")
        move = keeping_request(fold, unplanned(situation))
        if move is not None and (yield from engine.compact(fold, move, "overflow")) == "stopped":
            return "stopped"
    size = engine.predict(fold.view())
    if size <= window:
        return None
    return alone_too_large(engine, fold, size) or (
        f"the conversation takes about {size:,} tokens and the window holds {window:,}; "
        f"{COMPACT_HELPS}, or widen it with `%context set window=…`"
    )


def unplanned(situation: Situation) -> Compact:
    """Return the compaction that is made where the policy plans none: the newest quarter of the conversation stays.

    Counted as the cut counts, in estimates: what was measured may be less than the estimate of system text and tools.
    """
    return Compact(first_kept=cut_keeping(situation, sum(situation.tokens) // 4), reason="the request did not fit")


def alone_too_large(engine: Engine, fold: ViewFold, size: int) -> str:
    """Return the line that says which text of the open turn is too large by itself; empty when none is.

    `size` is what the whole request takes, as predicted.
    """
    view = fold.view()
    scale = size / max(1, engine.estimate(view))
    asked = asked_now(fold.path, view, lambda block: round(scale * engine.meter.block(block)))
    return too_large_line(
        asked, fixed_tokens=round(scale * engine.fixed_tokens()), window_tokens=engine.budget.window_tokens,
        model_window=engine.model_window,
    )  # fmt: skip


def refused(engine: Engine, fold: ViewFold) -> str:
    """Return what helps when the provider found the request too long and nothing could be left out, else nothing."""
    view = fold.view()
    asked = asked_now(fold.path, view, engine.meter.block)
    return refused_line(asked, total_tokens=engine.estimate(view) - engine.fixed_tokens())


def mask_all(engine: Engine, fold: ViewFold, *, keep: int) -> Generator[Effect, Any, None]:
    """Cut all results but the newest `keep` to their ends."""
    situation = yield from engine.situation(fold, "overflow")
    results = shown_results(situation)
    old = results[: max(0, len(results) - keep)] if keep else results
    small = max(200, engine.budget.window_tokens // 100)
    for move in prune([r for r in old if r.tokens > 60], head_and_tail(small, small), "the context did not fit"):
        yield from engine.record_pruning(fold, move)
