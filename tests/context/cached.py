"""Builders of conversations with cache figures: a turn and its call in one line, times given in seconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nbagent.context.cache_bill import CacheBill, ModelTerms, cache_bill
from nbagent.core.budget import Prices
from nbagent.core.entries import Body, Entry, UsageReported
from nbagent.core.tree import SessionTree
from tests.core.builders import MODEL, end, says, start, user

OTHER = "claude-opus-5-5"
PRICES = {MODEL: Prices(input_usd=2, output_usd=10), OTHER: Prices(input_usd=4, output_usd=20)}


def terms(model: str) -> ModelTerms:
    return ModelTerms(prices=PRICES.get(model), least_tokens=1_024)


def measured(
    read: int, written: int, fresh: int = 0, *, out: int = 10, model: str = MODEL, cost: float = 0.01, step: int = 1,
    purpose: str = "turn", hour: bool = False, **more: Any,
) -> UsageReported:  # fmt: skip
    usage = {
        "input_tokens": fresh, "cache_read_input_tokens": read, "cache_creation_input_tokens": written,
        "output_tokens": out, **more,
    }  # fmt: skip
    if hour:
        usage["cache_creation"] = {"ephemeral_1h_input_tokens": written}
    return UsageReported(step=step, model=model, usage=usage, cost_usd=cost, purpose=purpose)


class Story:
    """A session that is written down entry by entry; `at` is the time of the next entry, UTC seconds."""

    def __init__(self) -> None:
        self.tree = SessionTree()
        self.at = 1_000.0
        self._turns = 0

    def put(self, *bodies: Body, at_root: bool = False, after: str | None = None) -> str:
        """Write entries at the leaf, at a new root, or after an entry; returns the id of the last."""
        parent = None if at_root else after or self.tree.leaf
        for body in bodies:
            entry = Entry(f"e{len(self.tree) + 1}", parent, self.at, body)
            self.tree.add(entry)
            parent = entry.id
        return str(parent)

    def turn(
        self, call: UsageReported, *, wait: float = 10.0, asked: str = "go", reply: Body | None = None, **more: Any
    ) -> str:
        """Write a turn of one call, `wait` seconds after what came before; returns the id of the call's report."""
        self.at += wait
        self._turns += 1
        self.put(start(f"t{self._turns}", call.model, **more), user(asked))
        self.at += 2.0
        self.put(reply or says("done", step=call.step))
        found = self.put(call)
        self.put(end(f"t{self._turns}"))
        return found

    def bill(self, known: Callable[[str], ModelTerms] = terms) -> CacheBill:
        return cache_bill(self.tree, known)


def begun(*, size: int = 5_000) -> Story:
    """Return a session of one turn that wrote `size` tokens, and one that read them and wrote 100 more."""
    story = Story()
    story.turn(measured(0, size))
    story.turn(measured(size, 100))
    return story
