"""What `%context cache` asks a session: the bill of its conversation, with the prices and limits of its models."""

from __future__ import annotations

from nbagent.context.cache_bill import CacheBill, CachedCall, ModelTerms, TurnBill, cache_bill
from nbagent.context.cache_causes import Cause
from nbagent.runtime.session import Session

__all__ = ["CacheBill", "CachedCall", "Cause", "TurnBill", "session_bill"]


def session_bill(session: Session) -> CacheBill:
    """Return the bill of the current branch; nothing is called and nothing is written."""

    def terms(model: str) -> ModelTerms:
        facts = session.facts_of(model)
        return ModelTerms(prices=facts.prices, least_tokens=facts.min_cache_tokens)

    return cache_bill(session.tree, terms)
