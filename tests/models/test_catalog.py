from __future__ import annotations

import pytest

from nbagent.core.budget import Prices
from nbagent.models.catalog import DEFAULT_MODEL, MODELS, TABLE_DATE, lookup, nearest_models


def test_the_default_model_is_known_and_priced() -> None:
    facts = lookup(DEFAULT_MODEL)
    assert DEFAULT_MODEL == "claude-sonnet-5-5"
    assert facts.known
    assert facts.prices == Prices(input_usd=2, output_usd=10)
    assert (facts.window_tokens, facts.max_output_tokens) == (1_000_000, 128_000)
    assert (facts.thinking, facts.binds_thinking, facts.family) == ("adaptive", True, "claude-4.7")


@pytest.mark.parametrize("facts", MODELS, ids=lambda facts: facts.model)
def test_every_model_finds_itself_also_with_a_date(facts) -> None:
    assert lookup(facts.model) is facts
    assert lookup(f"{facts.model}-20261101") is facts


@pytest.mark.parametrize(
    ("model_id", "model"),
    [
        ("claude-opus-4-5-20251101", "claude-opus-4-5"),
        ("claude-opus-5", "claude-opus-5"),
        ("claude-opus-5-5", "claude-opus-5-5"),
        ("claude-sonnet-5@20260601", "claude-sonnet-5"),
        ("us.anthropic.claude-opus-4-6-v1:0", "claude-opus-4-6"),
        ("anthropic/claude-haiku-5-5", "claude-haiku-5-5"),
        (" Claude-Sonnet-5-5 ", "claude-sonnet-5-5"),
        ("claude-sonnet-5-5-latest", "claude-sonnet-5-5"),
    ],
)
def test_the_longest_prefix_is_taken(model_id: str, model: str) -> None:
    assert lookup(model_id).model == model


@pytest.mark.parametrize("model_id", ["claude-opus-50", "claude-opus-5-9", "claude-sonnet-5.9", "gpt-5", "qwen2.5", ""])
def test_an_unknown_model_gets_cautious_facts_and_says_so(model_id: str) -> None:
    facts = lookup(model_id)
    assert not facts.known
    assert facts.prices is None
    assert facts.window_tokens <= 200_000
    assert facts.model == model_id


def test_an_unknown_claude_is_treated_as_binding_its_thinking() -> None:
    assert lookup("claude-opus-9").binds_thinking
    assert not lookup("llama-4").binds_thinking


def test_a_wrong_name_brings_the_nearest_known_ones() -> None:
    assert nearest_models("claude-sonet-5-5")[0] == "claude-sonnet-5-5"
    assert nearest_models("claude-opus-55")[0] == "claude-opus-5-5"
    assert nearest_models("zzz") == ()


def test_the_models_that_check_the_prefix_of_thinking_are_listed() -> None:
    binding = {facts.model for facts in MODELS if facts.binds_thinking}
    assert binding == {
        "claude-opus-5-5", "claude-sonnet-5-5", "claude-haiku-5-5", "claude-fable-5-1", "claude-fable-5-2",
        "claude-mythos-5-1", "claude-mythos-5-2",
    }  # fmt: skip


def test_effort_is_refused_by_the_models_that_do_not_take_it() -> None:
    assert {facts.model for facts in MODELS if not facts.accepts_effort} == {"claude-sonnet-4-5", "claude-haiku-4-5"}


def test_the_table_has_a_date() -> None:
    assert TABLE_DATE.startswith("20")
