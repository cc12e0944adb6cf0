"""Third-party context engines: their life cycle (OC-C1), and quarantine."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from nbagent.context.policy import Compact, Prune, make_policy
from nbagent.core.entries import Compaction
from nbagent.core.errors import PolicyError
from nbagent.runtime import engines
from nbagent.runtime.engines import EnginePolicy, engine_kinds
from tests.contracts.situations import Played, engine, reads, situation
from tests.core.builders import end, path, says, start, user


class Recorder:
    """An engine that takes notes of what it is told."""

    made: list[Recorder] = []  # noqa: RUF012  a test's own

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.made.append(self)

    def bootstrap(self, session: str, messages: Any) -> None:
        self.calls.append(("bootstrap", len(messages)))

    def ingest_batch(self, session: str, messages: Any) -> None:
        self.calls.append(("ingest_batch", [m["id"] for m in messages]))

    def after_turn(self, session: str, messages: Any) -> None:
        self.calls.append(("after_turn",))

    def assemble(self, session: str, messages: Any, *, budget_tokens: int) -> dict[str, str]:
        return {m["id"]: "[short]" for m in messages if m["content"][0]["type"] == "tool_result" and m["tokens"] > 800}

    def compact(self, session: str, messages: Any, *, budget_tokens: int, force: bool) -> Any:
        return {"summary": "ITS OWN NOTE", "first_kept": None}

    def prepare_subagent_spawn(self, parent: str, child: str) -> Any:
        return lambda: self.calls.append(("rolled back", child))

    def on_subagent_ended(self, child: str, reason: str) -> None:
        self.calls.append(("ended", child, reason))


class Throws(Recorder):
    def assemble(self, session: str, messages: Any, *, budget_tokens: int) -> dict[str, str]:
        raise ValueError("broken\ninside")


class Lies(Recorder):
    def compact(self, session: str, messages: Any, *, budget_tokens: int, force: bool) -> Any:
        return {"summary": "x", "first_kept": "e4"}  # a result: no place to cut


class Unloadable:
    def __init__(self) -> None:
        raise RuntimeError("no licence")


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    points = [EntryPoint(n.lower(), f"{__name__}:{n}", engines.ENTRY_POINTS) for n in ("Recorder", "Throws", "Lies", "Unloadable")]
    monkeypatch.setattr(engines, "entry_points", lambda group: points)
    engines._care_of.cache_clear()
    yield
    engines._care_of.cache_clear()


def chosen(name: str) -> EnginePolicy:
    policy = make_policy(engine_kinds(), name)
    assert isinstance(policy, EnginePolicy)
    return policy


TURNS = [*reads(900, 100), end()]


def test_an_engine_is_told_what_happens_in_its_order() -> None:
    policy = chosen("recorder")
    policy.plan(situation(path(*TURNS), 20_000))
    policy.plan(situation(path(*TURNS), 20_000))
    more = path(*TURNS, start("t2"), user("b"), says("c"), end("t2"), start("t3"), user("d"))
    chosen("recorder").plan(situation(more, 20_000))
    made = Recorder.made[-1]
    assert made.calls == [("bootstrap", 6), ("ingest_batch", ["e10", "e11", "e14"]), ("after_turn",)]
    policy.prepare_subagent_spawn("a", "b")()
    policy.on_subagent_ended("b", "completed")
    assert made.calls[-2:] == [("rolled back", "b"), ("ended", "b", "completed")]


def test_what_it_assembles_and_compacts_becomes_recorded_moves() -> None:
    plan = chosen("recorder").plan(situation(path(*TURNS), 20_000, reason="manual"))
    prune, compact = plan
    assert isinstance(prune, Prune)
    assert dict(prune.placeholders) == {"e4": "[short]"}
    assert isinstance(compact, Compact)
    played = Played(path(*TURNS), "never asked")
    assert played.run(engine(policy=chosen("recorder")).compact(played.fold, compact, "manual")) == "applied"
    body = played.fold.path[-1].body
    assert isinstance(body, Compaction)
    assert "ITS OWN NOTE" in body.note
    assert not played.requests


@pytest.mark.parametrize(("name", "why"), [("throws", "assemble raised ValueError: broken inside"), ("lies", "cannot be cut")])
def test_one_that_raises_or_lies_is_quarantined_and_the_default_takes_over(name: str, why: str, caplog: pytest.LogCaptureFixture) -> None:
    policy = chosen(name)
    with caplog.at_level(logging.WARNING):
        plan = policy.plan(situation(path(*TURNS), 1_300, reason="manual"))
    assert why in policy.care.quarantined
    assert sum("is not asked any more" in r.message for r in caplog.records) == 1
    assert plan == policy.fallback.plan(situation(path(*TURNS), 1_300, reason="manual"))
    assert chosen(name).care.quarantined


def test_one_that_cannot_be_loaded_is_told_when_it_is_chosen() -> None:
    assert "unloadable" in engine_kinds()
    with pytest.raises(PolicyError, match="cannot be loaded: RuntimeError: no licence"):
        chosen("unloadable")
