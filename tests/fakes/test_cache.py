"""Tests of simulated prompt caching through the fake's usage and bill."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.fakes import replies
from tests.fakes.client import send
from tests.fakes.messages_api import FakeMessagesAPI, Reply, reply

JSON = dict[str, Any]
AUTO = {"type": "ephemeral"}


class Clock:
    """A clock that moves when told."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def fake(clock: Clock) -> Iterator[FakeMessagesAPI]:
    with FakeMessagesAPI(["ok"], repeat=True, clock=clock, count=lambda line: 1000) as server:
        yield server


def user(count: int = 1) -> JSON:
    return {"role": "user", "content": [{"type": "text", "text": f"part {i}"} for i in range(count)]}


def ask(fake: FakeMessagesAPI, blocks: int, **more: Any) -> list[int]:
    """Return uncached, written and read tokens of a prompt of `blocks` thousand tokens."""
    body = {"model": "claude-opus-5-5", "max_tokens": 10, "messages": [user(blocks)], "cache_control": AUTO, **more}
    usage = send(fake.base_url, body).json()["usage"]
    return [usage[f"{name}input_tokens"] for name in ("", "cache_creation_", "cache_read_")]


def test_a_growing_prompt_reads_what_it_wrote(fake: FakeMessagesAPI) -> None:
    assert ask(fake, 2) == [0, 2000, 0]
    assert ask(fake, 3) == [0, 1000, 2000]
    assert ask(fake, 3) == [0, 0, 3000]
    bill = fake.bill()
    assert (bill.with_caching, bill.without_caching) == (3000 * 1.25 + 5000 * 0.1, 8000)


def test_without_a_breakpoint_nothing_is_written_or_read(fake: FakeMessagesAPI) -> None:
    ask(fake, 2)
    assert ask(fake, 2, cache_control=None) == [2000, 0, 0]


def test_a_prefix_below_the_minimum_is_silently_uncached(fake: FakeMessagesAPI) -> None:
    assert ask(fake, 1) == [1000, 0, 0]


def test_entries_expire_five_minutes_after_their_last_use(fake: FakeMessagesAPI, clock: Clock) -> None:
    ask(fake, 2)
    clock.now = 299
    assert ask(fake, 2) == [0, 0, 2000]
    clock.now = 598
    assert ask(fake, 2) == [0, 0, 2000]
    clock.now = 898
    assert ask(fake, 2) == [0, 2000, 0]


def test_an_hour_entry_lives_longer_and_costs_more(fake: FakeMessagesAPI, clock: Clock) -> None:
    hour = {"type": "ephemeral", "ttl": "1h"}
    ask(fake, 2, cache_control=hour)
    assert fake.bill().with_caching == 4000
    clock.now = 3599
    assert ask(fake, 2, cache_control=hour) == [0, 0, 2000]


@pytest.mark.parametrize(("added", "read"), [(19, 2000), (20, 0)])
def test_a_breakpoint_looks_back_twenty_blocks(fake: FakeMessagesAPI, added: int, read: int) -> None:
    ask(fake, 2)
    assert ask(fake, 2 + added)[2] == read


def test_writes_happen_only_at_breakpoints(fake: FakeMessagesAPI) -> None:
    ask(fake, 4)
    assert ask(fake, 3) == [0, 3000, 0]


@pytest.mark.parametrize(
    "change",
    [{"system": "new"}, {"model": "claude-sonnet-5-5"}, {"output_config": {"effort": "low"}}],
)
def test_a_changed_prefix_or_setting_misses(fake: FakeMessagesAPI, change: JSON) -> None:
    ask(fake, 2)
    assert ask(fake, 2, **change)[2] == 0


def test_changed_settings_keep_the_system_prompt(fake: FakeMessagesAPI) -> None:
    system = [{"type": "text", "text": "a"}, {"type": "text", "text": "b", "cache_control": AUTO}]
    ask(fake, 2, system=system)
    assert ask(fake, 2, system=system, thinking={"type": "adaptive"}) == [0, 2000, 2000]


def test_a_failed_request_writes_nothing_and_costs_nothing() -> None:
    script: list[Reply | str] = [reply(fault=replies.overloaded()), "ok"]
    with FakeMessagesAPI(script, count=lambda line: 1000) as fake:
        body = {"model": "claude-opus-5-5", "max_tokens": 10, "messages": [user(2)], "cache_control": AUTO}
        assert send(fake.base_url, body).status == 529
        assert send(fake.base_url, body).json()["usage"]["cache_creation_input_tokens"] == 2000
        assert fake.bill().requests == 1


def test_max_tokens_of_zero_warms_the_cache_without_a_reply(fake: FakeMessagesAPI) -> None:
    assert ask(fake, 2, max_tokens=0) == [0, 2000, 0]
    assert ask(fake, 2) == [0, 0, 2000]
