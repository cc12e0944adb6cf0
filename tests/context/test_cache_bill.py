"""The bill of the prompt cache: every cause of a break, told from entries; costs that add up."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from nbagent.context.cache_bill import ModelTerms
from nbagent.core.entries import Compaction, UsageReported
from tests.context.cached import OTHER, Story, begun, measured
from tests.core.builders import (
    MODEL,
    call,
    calls,
    compacts,
    end,
    moved,
    prunes,
    reply,
    restores,
    result,
    says,
    start,
    thinks,
    user,
)


def last_cause(story: Story) -> tuple[str, str]:
    cause = story.bill().calls[-1].cause
    assert cause is not None
    return cause.kind, "; ".join((cause.text, *cause.also))


# ---------------------------------------------------------------- no break


def test_a_conversation_that_only_grows_has_no_break() -> None:
    story = begun()
    story.turn(measured(5_100, 80))
    bill = story.bill()
    assert bill.breaks == ()
    assert [c.cause.kind if c.cause else "" for c in bill.calls] == ["first", "", ""]
    assert [c.lost_tokens for c in bill.calls] == [0, 0, 0]
    assert bill.hit_rate == pytest.approx(10_100 / 15_280)


def test_a_few_tokens_less_are_no_break() -> None:
    story = begun()
    story.turn(measured(4_700, 480))
    assert story.bill().breaks == ()


def test_an_empty_conversation_has_an_empty_bill() -> None:
    bill = Story().bill()
    assert (bill.calls, bill.hit_rate, bill.dearest_turn, bill.cost, bill.saved) == ((), None, None, 0, 0)


# ---------------------------------------------------------------- causes


def test_the_cache_is_cold_after_five_minutes() -> None:
    story = begun()
    story.turn(measured(0, 5_200), wait=720)
    kind, text = last_cause(story)
    assert kind == "idle"
    assert "12 minutes since it was last sent; the cache lives 5 minutes" in text


def test_the_lifetime_counts_from_when_a_request_was_asked_not_from_its_answer() -> None:
    story = begun()
    story.turn(measured(0, 5_200), wait=299.0)  # the answer before took two seconds
    assert last_cause(story)[0] == "idle"


def test_what_was_written_for_an_hour_lives_an_hour() -> None:
    story = Story()
    story.turn(measured(0, 5_000, hour=True))
    story.turn(measured(0, 5_100, hour=True), wait=1_800)
    assert last_cause(story)[0] == "unknown"
    story.turn(measured(0, 5_200, hour=True), wait=7_200)
    assert last_cause(story) == ("idle", "2 hours since it was last sent; the cache lives 1 hour")


def test_another_model_has_a_cache_of_its_own() -> None:
    story = begun()
    story.turn(measured(0, 5_200, model=OTHER))
    kind, text = last_cause(story)
    assert kind == "model"
    assert f"{OTHER} after {MODEL}" in text


def test_back_at_the_first_model_too_long_after_its_last_call_the_time_is_the_cause() -> None:
    story = begun()
    story.turn(measured(0, 5_200, model=OTHER), wait=200)
    story.turn(measured(0, 5_300), wait=200)
    kind, text = last_cause(story)
    assert kind == "idle"
    assert "6 minutes" in text
    assert "another model" in text


def test_another_beginning_is_a_break() -> None:
    story = Story()
    story.turn(measured(0, 5_000), prefix="a")
    story.turn(measured(0, 5_100), prefix="b")
    assert last_cause(story)[0] == "prefix"


def test_other_thinking_or_effort_is_a_break() -> None:
    story = Story()
    story.turn(measured(0, 5_000), options={"thinking": {"type": "adaptive"}})
    story.turn(measured(2_000, 3_100), options={"thinking": {"type": "disabled"}, "output_config": {"effort": "low"}})
    assert last_cause(story) == ("options", "thinking and the effort changed, which begins the messages anew")


def test_a_compaction_is_a_break() -> None:
    story = begun()
    story.put(compacts(None))
    story.turn(measured(2_000, 700))
    assert last_cause(story)[0] == "compaction"
    assert story.bill().calls[-1].lost_tokens == 700


def test_a_compaction_that_made_the_prefix_anew_says_both() -> None:
    story = Story()
    story.turn(measured(0, 5_000), prefix="a")
    story.put(Compaction(first_kept=None, note="NOTE", details={"prefix": "b"}))
    story.turn(measured(0, 2_700), prefix="a")
    story.turn(measured(0, 2_800), prefix="b")
    bill = story.bill()
    causes = [c.cause.kind for c in bill.calls if c.cause]
    assert "compaction" in str(bill.calls[1].cause)
    assert causes[2] == "prefix"


def test_an_undo_is_a_break_and_the_compaction_before_it_is_not_named() -> None:
    story = begun()
    note = story.put(compacts(None))
    story.turn(measured(2_000, 700))
    story.put(restores(note))
    story.turn(measured(2_000, 3_500))
    assert last_cause(story) == ("undo", "a compaction or pruning was taken back (undo)")


def test_a_compaction_taken_back_before_the_next_call_changed_nothing() -> None:
    story = begun()
    note = story.put(compacts(None))
    story.put(restores(note))
    story.turn(measured(2_000, 3_500))
    assert last_cause(story)[0] == "unknown"


def test_a_pruning_is_a_break() -> None:
    story = Story()
    story.put(start(), user("go"), calls(id="a"), measured(0, 5_000))
    found = story.put(result("a"))
    story.put(prunes(found), says("done", step=2), measured(2_000, 2_000, step=2), end())
    assert last_cause(story)[0] == "pruning"


def test_a_pruning_that_waited_for_the_end_of_a_tool_loop_breaks_the_call_after_it() -> None:
    story = Story()
    story.put(start(), user("go"), calls(id="a"), measured(0, 5_000))
    old = story.put(result("a"))
    story.put(reply(thinks(), call(id="b"), stop="tool_use", step=2), measured(5_000, 100, step=2), result("b"))
    story.put(prunes(old), says("done", step=3), measured(5_100, 100, step=3), end())
    assert story.bill().breaks == ()
    story.turn(measured(2_000, 2_000))
    assert last_cause(story)[0] == "pruning"


def test_what_the_provider_cleared_is_a_break() -> None:
    story = begun()
    edits = [{"type": "clear_tool_uses_20250919", "cleared_tool_uses": 4, "cleared_input_tokens": 900}]
    story.turn(measured(2_000, 1_500, applied_edits=edits))
    assert last_cause(story) == ("provider", "the provider cleared old results by itself")


def test_a_compaction_by_the_provider_is_a_break() -> None:
    story = Story()
    note = reply({"type": "compaction", "content": "a note"}, "done")
    story.turn(measured(0, 5_000), reply=note)
    story.turn(measured(900, 600))
    assert last_cause(story) == ("provider", "the provider compacted the conversation by itself")


def test_a_fork_to_an_older_point_that_is_no_longer_kept_says_how_old_it_is() -> None:
    story = begun()
    older = story.put()
    for size in (5_100, 5_200, 5_300):
        story.turn(measured(size, 100), wait=200)
    story.put(moved("fork"), after=older)
    story.turn(measured(2_000, 3_200))
    kind, text = last_cause(story)
    assert kind == "fork"
    assert text == "the conversation went back to a point left 10 minutes ago; the cache lives 5 minutes"


def test_a_fork_whose_beginning_is_still_kept_is_no_break() -> None:
    story = begun()
    older = story.put()
    story.turn(measured(5_100, 900))
    story.put(moved("fork"), after=older)
    story.turn(measured(5_100, 50))
    bill = story.bill()
    assert bill.breaks == ()
    assert len(bill.calls) == 3  # of this branch


@pytest.mark.parametrize(("why", "how"), [("new", "%agent reset or --new"), ("fork", "its first cell was run again")])
def test_a_new_root_begins_anew_and_loses_nothing(why: str, how: str) -> None:
    story = begun()
    story.put(moved(why), at_root=True)
    story.turn(measured(2_000, 100))
    (row,) = story.bill().calls
    assert row.cause is not None
    assert (row.cause.kind, row.cause.text) == ("new", f"a new conversation begins ({how})")
    assert (row.is_break, row.lost_tokens, row.warm) == (False, 0, row.cost)


def test_a_request_below_the_least_length_is_not_kept_and_nothing_was_lost() -> None:
    story = Story()
    story.turn(measured(0, 0, 600))
    story.turn(measured(0, 0, 700))
    assert last_cause(story) == ("short", "the request before had 600 tokens; this model caches none below 1,024")
    assert story.bill().breaks == ()
    assert story.bill().break_cost == 0


def test_where_caching_is_off_nothing_is_called_a_break() -> None:
    story = Story()
    story.turn(measured(0, 0, 6_000))
    story.turn(measured(0, 0, 7_000))
    assert last_cause(story)[0] == "unkept"
    assert story.bill().breaks == ()


def test_more_than_twenty_blocks_behind_a_reply_that_said_nothing_are_out_of_sight() -> None:
    story = begun()
    story.turn(measured(5_100, 100), reply=reply())
    story.at += 10
    story.put(start("t9"), user(*(f"part {i}" for i in range(25))))
    story.put(says("done"), measured(3_000, 2_400), end("t9"))
    assert last_cause(story)[0] == "blocks"


def test_many_blocks_behind_a_reply_are_in_sight_for_the_mark_stands_before_it() -> None:
    story = begun()
    story.put(start("t9"), user(*(f"part {i}" for i in range(25))), says("done"), measured(3_000, 2_400), end("t9"))
    assert last_cause(story)[0] == "unknown"


def test_an_unknown_cause_is_said_to_be_unknown() -> None:
    story = begun()
    story.turn(measured(0, 5_200))
    kind, text = last_cause(story)
    assert kind == "unknown"
    assert text == "the provider's cache did not have it; nothing in the journal says why"


# ---------------------------------------------------------------- calls that are no steps


def test_a_call_for_a_note_is_a_row_and_keeps_the_cache_warm() -> None:
    story = begun()
    story.at += 250
    story.put(measured(5_100, 400, step=0, purpose="handoff"))
    story.turn(measured(5_100, 90), wait=250)
    bill = story.bill()
    assert [c.purpose for c in bill.calls] == ["turn", "turn", "handoff", "turn"]
    assert bill.breaks == ()


def test_a_note_asked_for_in_a_text_of_its_own_says_so() -> None:
    story = begun()
    story.put(measured(0, 4_000, step=0, purpose="handoff"))
    assert last_cause(story) == ("aside", "its request is, at least in part, a text of its own")


def test_the_calls_of_a_sub_agent_are_one_row_and_break_nothing() -> None:
    story = begun()
    story.put(measured(0, 9_000, step=0, purpose="skill", model=OTHER))
    story.turn(measured(5_100, 300))
    bill = story.bill()
    assert [c.purpose for c in bill.calls] == ["turn", "turn", "skill", "turn"]
    assert bill.breaks == ()


# ---------------------------------------------------------------- costs


def test_a_break_costs_what_a_warm_cache_would_have_saved() -> None:
    story = begun()
    cost = (5_200 * 1.25 * 2 + 10 * 10) / 1e6
    story.turn(measured(0, 5_200, cost=cost), wait=720)
    row = story.bill().calls[-1]
    assert row.lost_tokens == 5_100
    assert row.uncached == pytest.approx((5_200 * 2 + 100) / 1e6)
    assert row.warm == pytest.approx((5_100 * 0.1 * 2 + 100 * 1.25 * 2 + 100) / 1e6)
    assert story.bill().break_cost == pytest.approx(row.cost - row.warm)


def test_an_hour_lost_is_reckoned_at_the_price_of_an_hour() -> None:
    story = Story()
    story.turn(measured(0, 5_000, hour=True))
    story.turn(measured(0, 5_000, cost=5_000 * 2 * 2 / 1e6, out=0, hour=True), wait=7_200)
    assert story.bill().calls[-1].warm == pytest.approx(5_000 * 0.1 * 2 / 1e6)


def test_what_was_paid_stands_when_prices_have_changed_and_the_rest_is_in_proportion() -> None:
    story = begun()
    listed = (5_200 * 1.25 * 2 + 10 * 10) / 1e6
    story.turn(measured(0, 5_200, cost=2 * listed), wait=720)
    row = story.bill().calls[-1]
    assert row.cost == 2 * listed
    assert row.uncached == pytest.approx(2 * (5_200 * 2 + 100) / 1e6)


def test_without_a_price_costs_are_in_units_of_an_uncached_token() -> None:
    story = begun()
    bill = story.bill(lambda model: ModelTerms(prices=None, least_tokens=1_024))
    assert (bill.unit, bill.unpriced) == ("tokens", (MODEL,))
    assert bill.calls[1].cost == pytest.approx(5_000 * 0.1 + 100 * 1.25 + 10 * 5)
    assert bill.paid_usd == pytest.approx(0.02)


def test_a_call_from_a_recording_was_not_sent_and_warms_nothing() -> None:
    story = begun()
    story.turn(measured(5_100, 100, cost=0.0))
    story.turn(measured(5_100, 200))
    bill = story.bill()
    assert [c.free for c in bill.calls] == [False, False, True, False]
    assert (bill.calls[2].cost, bill.calls[2].uncached) == (0, 0)
    assert bill.breaks == ()


def test_an_imported_conversation_is_reckoned_at_list_prices() -> None:
    story = Story()
    imported = replace(start(), policy="imported")
    story.put(imported, user("go"), says("done"), measured(0, 5_000, cost=0.0), end())
    (row,) = story.bill().calls
    assert (row.free, row.paid_usd) == (False, 0)
    assert row.cost == pytest.approx((5_000 * 1.25 * 2 + 100) / 1e6)


def test_a_provider_without_cache_figures_gets_no_verdict() -> None:
    story = Story()
    bare = UsageReported(step=1, model=MODEL, usage={"input_tokens": 5_000, "output_tokens": 10}, cost_usd=0.01)
    story.turn(bare)
    story.turn(bare, wait=9_999)
    bill = story.bill()
    assert [c.reported for c in bill.calls] == [False, False]
    assert (bill.hit_rate, bill.breaks, bill.saved) == (None, (), 0)
    assert bill.cost == pytest.approx(0.02)


def test_the_dearest_turn_is_found_with_its_dearest_break() -> None:
    story = begun()
    story.turn(measured(0, 5_200, cost=0.2), wait=720)
    story.turn(measured(5_200, 100, cost=0.02))
    dearest = story.bill().dearest_turn
    assert dearest is not None
    assert (dearest.turn, dearest.times) == (3, pytest.approx(20.0))
    assert dearest.dearest.cause is not None
    assert dearest.dearest.cause.kind == "idle"


@pytest.mark.parametrize("seed", range(60))
def test_the_rows_add_up_to_what_the_session_cost_whatever_happened(seed: int) -> None:
    rng = random.Random(seed)
    story, paid = Story(), 0.0
    for _ in range(rng.randrange(1, 25)):
        match rng.randrange(8):
            case 0:
                story.put(compacts(None))
            case 1 if story.tree.leaf:
                past = [e.id for e in story.tree.path()]
                story.put(moved(rng.choice(["fork", "revert"])), after=rng.choice(past))
            case 2 if story.tree.leaf:
                story.put(moved("new"), at_root=True)
            case 3:
                made = [e.id for e in story.tree.path() if isinstance(e.body, Compaction)]
                story.put(restores(rng.choice(made) if made else "nobody"))
            case 4:
                story.put(_any_call(rng, "handoff" if rng.random() < 0.5 else "skill"))
            case _:
                story.turn(_any_call(rng, "turn"), wait=rng.choice([1.0, 100.0, 400.0, 5_000.0]))
    bill = story.bill()
    paid = sum(e.body.cost_usd for e in story.tree.path() if isinstance(e.body, UsageReported))
    assert sum(c.paid_usd for c in bill.calls) == pytest.approx(paid)
    assert bill.paid_usd == pytest.approx(paid)
    if bill.unit == "usd":
        assert bill.cost == pytest.approx(paid)
    assert sum(t.cost for t in bill.turns) == pytest.approx(bill.cost)
    assert all(0 <= c.lost_tokens <= c.prompt_tokens for c in bill.calls)
    assert all(c.warm <= c.cost + 1e-12 for c in bill.calls)
    assert all(c.cause is not None for c in bill.breaks)
    assert all(c.lost_tokens == 0 for c in bill.calls if not c.is_break)
    assert story.bill() == bill


def _any_call(rng: random.Random, purpose: str) -> UsageReported:
    size = rng.choice([0, 500, 3_000, 20_000])
    return measured(
        rng.randrange(size + 1), rng.randrange(size + 1), rng.randrange(50), out=rng.randrange(400),
        model=rng.choice([MODEL, MODEL, OTHER, "gpt-x"] if rng.random() < 0.1 else [MODEL, OTHER]),
        cost=round(rng.random() / 10, 8), step=1 if purpose == "turn" else 0, purpose=purpose, hour=rng.random() < 0.2,
    )  # fmt: skip
