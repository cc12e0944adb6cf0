"""What `%context cache` shows: a line that answers the question, a row for each call, and what is not known."""

from __future__ import annotations

import json

from nbagent.context.cache_bill import ModelTerms
from nbagent.notebook.reports.cache import MOST_BREAKS, MOST_ROWS, CacheReport
from tests.context.cached import OTHER, Story, begun, measured
from tests.core.builders import MODEL, moved


def report(story: Story, **more: bool) -> CacheReport:
    return CacheReport(bill=story.bill(), **more)


def broken() -> Story:
    story = begun()
    story.turn(measured(5_100, 50, cost=0.01))
    story.turn(measured(0, 5_200, cost=0.1), wait=720)
    return story


def test_the_first_lines_tell_rate_savings_breaks_and_the_dearest_turn_with_its_cause() -> None:
    title, sums, dearest, *_ = repr(report(broken())).splitlines()
    assert title == "4 model calls in 4 turns: 49 % of the input was read from the cache"
    assert sums.startswith("cost $0.1300 · without a cache $")
    assert " · 1 break cost $0.0" in sums
    assert dearest == (
        "The dearest turn is 4: $0.1000, 10.0 times the turn before; call 1 read 0 of 5,200 tokens from the cache "
        "(12 minutes since it was last sent; the cache lives 5 minutes)."
    )


def test_a_row_has_turn_call_tokens_costs_and_cause() -> None:
    row = repr(report(broken())).splitlines()[-2]
    assert row.split()[:6] == ["4", "1", "0", "5,200", "0", "10"]
    assert row.endswith("12 minutes since it was last sent; the cache lives 5 minutes")


def test_values_are_attributes_and_a_report_is_a_sequence_of_its_rows() -> None:
    shown = report(broken())
    assert len(shown) == 4
    assert [row.is_break for row in shown] == [False, False, False, True]
    assert [row.turn for row in shown.breaks] == [4]
    assert shown.bill.dearest_turn is not None


def test_json_holds_sums_and_every_row() -> None:
    told = json.loads(report(broken()).to_json())
    assert (told["unit"], told["calls"], told["breaks"], told["dearest_turn"]) == ("usd", 4, 1, 4)
    assert told["rows"][3]["cause"]["kind"] == "idle"
    assert told["rows"][0]["prompt_tokens"] == 5_000
    assert repr(report(broken(), as_json=True)) == report(broken()).to_json()


def test_an_empty_conversation_says_that_there_was_no_call() -> None:
    assert repr(report(Story())) == "No model call was measured in this conversation yet, so there is nothing to tell."
    assert json.loads(report(Story()).to_json())["rows"] == []


def test_names_and_prompts_cannot_bring_html_or_break_a_table() -> None:
    story = begun()
    story.turn(measured(0, 5_200, model="模型<script>alert(1)</script>|x"), asked="请解释一下 <b>")
    html, markdown = report(story)._repr_html_(), report(story)._repr_markdown_()
    assert "<script>" not in html
    assert "模型&lt;script&gt;" in html
    assert "<script>" not in markdown
    assert "模型" in repr(report(story))


def test_a_model_without_a_price_is_named_and_costs_are_units() -> None:
    bill = broken().bill(lambda model: ModelTerms(prices=None, least_tokens=1_024))
    text = repr(CacheReport(bill=bill))
    assert "cost 14,148 units · without a cache 20,650 units" in text
    assert "the price of claude-sonnet-5-5 is not known: costs are in prices of one uncached input token" in text
    assert "$0.1300 was paid" in text


def test_a_provider_without_cache_figures_is_said() -> None:
    story = Story()
    story.turn(measured(0, 0, 5_000, cache_read_input_tokens=None, cache_creation_input_tokens=None))
    lines = repr(report(story)).splitlines()
    assert lines[0] == "1 model call in 1 turn: no cache figures"
    assert lines[1] == "cost $0.0100"
    assert "the provider tells no cache figures, so nothing can be said of caching" in lines
    assert "(no cache figures)" in lines[-3]


def test_some_calls_without_cache_figures_are_counted() -> None:
    story = begun()
    story.turn(measured(0, 0, 5_000, cache_read_input_tokens=None, cache_creation_input_tokens=None))
    assert "1 of 3 calls came without cache figures; what they saved is not counted" in repr(report(story))


def test_recorded_turns_that_were_shown_again_cost_nothing_and_say_so() -> None:
    story = begun()
    story.turn(measured(5_100, 100, cost=0.0))
    text = repr(report(story))
    assert "1 call came from a recording: nothing was sent, nothing paid" in text
    assert "(from a recording)" in text


def test_a_replay_says_that_nothing_is_paid() -> None:
    assert "a recording plays: nothing is paid here" in repr(report(begun(), replayed=True))


def test_writing_that_never_pays_off_is_not_called_a_saving() -> None:
    story = Story()
    story.turn(measured(0, 5_000, out=0, cost=0.0125))
    assert "caching cost more than it saved by $0.0025 · no break" in repr(report(story))


def test_a_new_conversation_is_named_as_the_reason_of_its_first_turn() -> None:
    story = begun()
    story.put(moved("new"), at_root=True)
    story.turn(measured(2_000, 100))
    assert "The dearest turn is 1: $0.0100; a new conversation begins (%agent reset or --new): 1 call" in repr(
        report(story)
    )


def test_of_a_long_conversation_only_the_newest_calls_and_the_dearest_breaks_are_in_the_table() -> None:
    story = begun()
    story.turn(measured(0, 5_200, model=OTHER))
    size = 5_200
    for _ in range(MOST_ROWS + 5):
        story.turn(measured(size, 10, model=OTHER))
        size += 10
    shown = report(story)
    text = repr(shown)
    assert "7 older calls left out; `.rows` has all" in text
    assert f"{OTHER} after" in text
    assert len(shown.rows) == MOST_ROWS + 8


def test_of_very_many_breaks_the_dearest_are_shown() -> None:
    story = begun()
    for number in range(MOST_ROWS + 2 * MOST_BREAKS):
        story.turn(measured(0, 5_200 + number, model=(OTHER, MODEL)[number % 2], cost=0.01 + number / 10_000))
    lines = repr(report(story)).splitlines()
    turns = [int(line.split()[0]) for line in lines if line[:1].isdigit() and "call" not in line]
    assert turns == [
        *range(MOST_BREAKS + 3, 2 * MOST_BREAKS + 3),
        *range(2 * MOST_BREAKS + 3, MOST_ROWS + 2 * MOST_BREAKS + 3),
    ]
