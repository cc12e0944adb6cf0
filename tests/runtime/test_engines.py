"""Third-party context engines: their life cycle (OC-C1), and quarantine."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from nbagent.context.policy import Compact, Prune, make_policy
from nbagent.core.entries import Compaction
from nbagent.core.errors import JournalUnwritable, PolicyError
from nbagent.models.scripted import calls as asks
from nbagent.models.scripted import says as replies
from nbagent.runtime import contexts, engines, forking
from nbagent.runtime.engines import EnginePolicy, engine_kinds
from tests.contracts.situations import Played, engine, reads, situation
from tests.core.builders import end, path, says, start, user
from tests.runtime.lab import Lab
from tests.skills.builders import skill


class Recorder:
    """An engine that takes notes of what it is told."""

    made: list[Recorder] = []  # noqa: RUF012  a test's own

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.made.append(self)

    def bootstrap(self, session: str, messages: Any) -> None:
        self.calls.append(("bootstrap", len(messages), session))

    def ingest_batch(self, session: str, messages: Any) -> None:
        self.calls.append(("ingest_batch", [m["id"] for m in messages]))

    def after_turn(self, session: str, messages: Any) -> None:
        self.calls.append(("after_turn",))

    def assemble(self, session: str, messages: Any, *, budget_tokens: int) -> dict[str, str]:
        return {m["id"]: "[short]" for m in messages if m["content"][0]["type"] == "tool_result" and m["tokens"] > 800}

    def compact(self, session: str, messages: Any, *, budget_tokens: int, force: bool) -> Any:
        return {"summary": "ITS OWN NOTE", "first_kept": None}

    def prepare_subagent_spawn(self, parent: str, child: str) -> Any:
        self.calls.append(("spawn", parent, child))
        return lambda: self.calls.append(("rolled back", child))

    def on_subagent_ended(self, child: str, reason: str) -> None:
        self.calls.append(("ended", child, reason))


class Throws(Recorder):
    def assemble(self, session: str, messages: Any, *, budget_tokens: int) -> dict[str, str]:
        raise ValueError("broken\ninside")


class Lies(Recorder):
    def compact(self, session: str, messages: Any, *, budget_tokens: int, force: bool) -> Any:
        return {"summary": "x", "first_kept": "e4"}  # a result: no place to cut


class Odd(Recorder):
    """One whose `method` behaves as the test says."""

    method, act = "", staticmethod(lambda *_, **__: None)

    def __getattribute__(self, name: str) -> Any:
        if name == type(self).method and name:
            return type(self).act
        return object.__getattribute__(self, name)


class Unloadable:
    def __init__(self) -> None:
        raise RuntimeError("no licence")


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    points = [EntryPoint(n.lower(), f"{__name__}:{n}", engines.ENTRY_POINTS) for n in ("Recorder", "Throws", "Lies", "Odd", "Unloadable")]
    monkeypatch.setattr(engines, "entry_points", lambda group: points)
    for known in (engines._care_of, contexts._installed):
        known.cache_clear()
    yield
    for known in (engines._care_of, contexts._installed):
        known.cache_clear()


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
    assert made.calls == [("bootstrap", 6, "t1"), ("ingest_batch", ["e10", "e11", "e14"]), ("after_turn",)]
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


def raising(error: Exception) -> Any:
    def act(*_: Any, **__: Any) -> Any:
        raise error

    return act


async def later(*_: Any, **__: Any) -> dict[str, str]:
    return {}


class NoTruth:
    def __bool__(self) -> bool:
        raise ValueError("ambiguous")


@pytest.mark.parametrize(
    ("method", "act"),
    [
        *((m, raising(KeyError("x"))) for m in ("bootstrap", "ingest_batch", "after_turn", "assemble", "compact")),
        *((m, later) for m in ("bootstrap", "assemble", "compact")),
        *(("assemble", lambda *_, answer=a, **__: answer) for a in ([1], "no", {"e4": 3}, {4: "x"}, {"nosuch": "x"}, NoTruth())),
        *(
            ("compact", lambda *_, answer=a, **__: answer)
            for a in ([1], "no", {}, {"summary": ""}, {"summary": 3}, {"summary": "x", "first_kept": ["e4"]}, NoTruth())
        ),
        *((m, 7) for m in ("bootstrap", "assemble", "compact")),
    ],
)
def test_whatever_an_engine_does_wrong_the_turn_goes_on_under_the_default(
    method: str, act: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Odd, "method", method)
    monkeypatch.setattr(Odd, "act", act)
    policy = chosen("odd")
    first = situation(path(*TURNS), 20_000)
    second = situation(path(*TURNS, start("t2"), user("y"), says("z"), end("t2")), 1_300, reason="manual")
    policy.plan(first)
    assert policy.plan(second) == policy.fallback.plan(second)
    assert method in policy.care.quarantined


def test_an_engine_cannot_edit_what_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def edits(session: str, messages: Any, *, budget_tokens: int) -> dict[str, str]:
        for message in messages:
            for block in message["content"]:
                inner = block.get("content")
                if isinstance(inner, list):
                    inner[0]["text"] = "EDITED"
                block["text"] = "EDITED"
        return {}

    monkeypatch.setattr(Odd, "method", "assemble")
    monkeypatch.setattr(Odd, "act", edits)
    entries = path(*TURNS)
    before = repr(entries)
    chosen("odd").plan(situation(entries, 20_000))
    assert repr(entries) == before


def test_what_it_writes_can_be_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Odd, "method", "compact")
    monkeypatch.setattr(Odd, "act", lambda *_, **__: {"summary": "half \ud83d \x1b[31mred", "first_kept": None})
    (_, compact) = chosen("odd").plan(situation(path(*TURNS), 20_000, reason="manual"))
    assert isinstance(compact, Compact)
    assert compact.note == "half \ufffd red"


@pytest.mark.parametrize(
    ("inner", "reason", "steps"), [([replies("4")], "completed", 9), ([asks("python", code="1")] * 2, "limit", 2)]
)
def test_it_is_told_of_sub_agents_and_how_they_ended(
    tmp_path: Path, inner: list[Any], reason: str, steps: int
) -> None:
    lab = Lab(tmp_path / "work", environ={"HOME": str(tmp_path / "person"), "PATH": os.environ["PATH"]})
    skill(lab.home / "skills" / "check", "check", "Checks. Use when asked.", context="fork")
    lab.open([asks("skill", skill="check"), *inner, replies("done")], skills__mode="tool", mode="auto", policy="recorder")
    lab.send("go", "A", max_steps=steps)
    told = Recorder.made[-1].calls
    _, parent, child = next(c for c in told if c[0] == "spawn")
    assert parent == lab.session.tree.turns()[0].turn
    assert [c[:2] for c in told].count(("ended", child)) == 1
    assert ("ended", child, reason) in told
    assert ("rolled back", child) not in told
    assert [c[2] for c in told if c[0] == "bootstrap"] == [parent, child]


def test_a_sub_agent_that_cannot_begin_is_rolled_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise JournalUnwritable("the disk is full")

    lab = Lab(tmp_path / "work", environ={"HOME": str(tmp_path / "person"), "PATH": os.environ["PATH"]})
    skill(lab.home / "skills" / "check", "check", "Checks. Use when asked.", context="fork")
    lab.open([asks("skill", skill="check"), replies("done")], skills__mode="tool", mode="auto", policy="recorder")
    monkeypatch.setattr(forking, "_child", full)
    with pytest.raises(JournalUnwritable):
        lab.send("go", "A")
    told = Recorder.made[-1].calls
    _, _, child = next(c for c in told if c[0] == "spawn")
    assert ("rolled back", child) in told
