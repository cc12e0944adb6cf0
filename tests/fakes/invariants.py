"""What must hold of every conversation with the fake (MA-C1); the fixtures `fake` and `make_fake` check it.

Put `from tests.fakes.invariants import fake, make_fake, pytest_configure` into a conftest. After each test:

* every request of a conversation extends the one before it (`@pytest.mark.prefix_moves(reason=...)` lifts it),
* the fake's own checks refused nothing (`@pytest.mark.refused(reason=...)` lifts it),
* the script sufficed.

A conversation is known by its model and the first words of the person.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pytest

from tests.fakes.messages_api import FakeMessagesAPI, RecordedRequest, extends
from tests.fakes.prefix import as_blocks

NOT_THE_PERSON = "<notebook-state>"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "refused(reason): the fake refuses a request in this test, for the reason given")


def conversation_of(request: RecordedRequest) -> tuple[str, str]:
    """Return what names the conversation of a request: its model and the person's first text."""
    for message in request.body.get("messages") or ():
        for block in as_blocks(message.get("content")):
            if block.get("type") == "text" and not str(block["text"]).startswith(NOT_THE_PERSON):
                return str(request.body.get("model")), str(block["text"])
    return str(request.body.get("model")), ""


def moved_prefixes(requests: Sequence[RecordedRequest]) -> list[str]:
    """Return a line for each request that does not extend the one before it in its conversation."""
    last: dict[tuple[str, str], RecordedRequest] = {}
    moved = []
    for number, request in enumerate(requests):
        before = last.get(conversation_of(request))
        why = extends(before.body, request.body) if before is not None else None
        if why is not None:
            moved.append(f"request {number} moves the prefix: {why}")
        last[conversation_of(request)] = request
    return moved


def broken_invariants(fake: FakeMessagesAPI, *, moves_allowed: bool, refusals_allowed: bool) -> list[str]:
    """Return a line for each rule that a finished test broke."""
    broken = [f"the script: {p}" for p in fake.problems]
    if not refusals_allowed:
        broken += [f"request {i} was refused: {r.refusal}" for i, r in enumerate(fake.requests) if r.refusal]
    return broken if moves_allowed else broken + moved_prefixes(fake.requests)


@pytest.fixture
def make_fake(request: pytest.FixtureRequest) -> Iterator[Callable[..., FakeMessagesAPI]]:
    """Return a function that starts a fake; it takes the arguments of FakeMessagesAPI."""
    made: list[FakeMessagesAPI] = []
    with ExitStack() as stack:

        def make(*script: Any, **options: Any) -> FakeMessagesAPI:
            made.append(stack.enter_context(FakeMessagesAPI(script, **options)))
            return made[-1]

        yield make
    moves = request.node.get_closest_marker("prefix_moves") is not None
    refusals = request.node.get_closest_marker("refused") is not None
    for one in made:
        broken = broken_invariants(one, moves_allowed=moves, refusals_allowed=refusals)
        assert broken == [], broken


@pytest.fixture
def fake(make_fake: Callable[..., FakeMessagesAPI]) -> FakeMessagesAPI:
    """Return a running fake without a script: `enqueue` replies."""
    return make_fake()
