"""When a compaction is cheaper than going on: what was carried, what a compaction costs, and the rhythm that follows."""

from __future__ import annotations

import pytest

from nbagent.context.economy import READ, USUAL_GROWTH, Outlook, carried_cost, usual_trigger
from nbagent.core.entries import Compaction
from tests.contracts.situations import reads, situation
from tests.core.builders import calls, path, result, says, stamp


def test_what_was_carried_is_every_request_s_excess_since_the_last_compaction() -> None:
    entries = path(*reads(500, 500, 500))
    now = situation(entries, 20_000)
    whole = sum(now.tokens)
    before = [sum(now.tokens[:i]) for i, piece in enumerate(now.view.pieces) if piece.role == "assistant"]
    assert carried_cost(now, 0.0) == pytest.approx(READ * (sum(before) + whole))
    assert carried_cost(now, 700.0) == pytest.approx(READ * sum(max(0, b - 700) for b in (*before, whole)))
    assert carried_cost(now, whole) == 0.0


def test_a_compaction_begins_a_new_account() -> None:
    """What is kept of earlier steps was paid for before."""
    entries = path(*reads(500, 500, 500))
    kept = next(e.id for e in entries if e.kind == "assistant_message" and entries.index(e) > 4)
    compacted = stamp([Compaction(first_kept=kept, note="what was read")], entries)
    now = situation(compacted, 20_000)
    assert carried_cost(now, 0.0) == pytest.approx(READ * sum(now.tokens))
    later = situation(stamp([calls("read", id="z"), result("z", "so"), says("done")], compacted), 20_000)
    assert carried_cost(later, 0.0) > carried_cost(now, 0.0)


def test_the_usual_trigger_is_the_cheapest_of_an_evenly_growing_conversation() -> None:
    """Cost per call of a cycle: what is carried above the note, and one compaction; no other trigger is cheaper."""
    outlook, fixed = Outlook(after_tokens=12_000, written_tokens=1_200), 3_000
    start = fixed + outlook.after_tokens

    def per_call(trigger: float) -> float:
        calls_of = (trigger - start) / USUAL_GROWTH
        return (outlook.cost(start) + READ * USUAL_GROWTH * calls_of**2 / 2) / calls_of

    best = usual_trigger(fixed, outlook)
    assert all(per_call(best) <= per_call(best + step) for step in (-10_000, -1_000, -10, 10, 1_000, 10_000))
    carried = READ * USUAL_GROWTH * ((best - start) / USUAL_GROWTH) ** 2 / 2
    assert carried == pytest.approx(outlook.cost(start)), "there the rent paid is the price of buying"
