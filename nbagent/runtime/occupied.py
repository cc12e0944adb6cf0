"""How full a context is at a place where no turn stands: where a conversation has not begun, and where one runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nbagent.core.entries import Entry, TurnStart, UsageReported
from nbagent.core.tree import SessionTree
from nbagent.core.view import build_view
from nbagent.models.catalog import ModelFacts, lookup
from nbagent.runtime.clock import SystemClock
from nbagent.runtime.contexts import prefix_in_force
from nbagent.runtime.gauge import Occupancy, SessionGauge
from nbagent.runtime.turns import TurnRunner
from nbagent.runtime.writer import NoLog, SessionWriter
from nbagent.store.artifacts import Artifacts
from nbagent.store.secrets import Scrubber, secret_values
from nbagent.store.settings import Settings
from nbagent.tools.registry import builtin_tools


def occupancy_after(
    runner: TurnRunner, path: Sequence[Entry], facts: ModelFacts, *, gauge: SessionGauge | None = None
) -> Occupancy:
    """Return what the next request after `path` would hold; without a turn there, that of a conversation begun now.

    `gauge` measures in the place of the session's own. Nothing is written.
    """
    gauge = gauge or runner.gauge
    view = build_view(path)
    prefix = runner.prefix_of(runner.root_prefix(path)) if view.turn else runner.new_prefix()
    gauge.replay(path, prefix, facts)
    return gauge.occupancy(view, prefix, facts, runner.budget(facts), path)


@dataclass(frozen=True, slots=True, kw_only=True)
class BeforeTurn:
    """How full the context was when the running turn began, and what the whole session had cost by then, US dollars."""

    occupancy: Occupancy
    cost_usd: float


def occupancy_before_turn(runner: TurnRunner, facts: ModelFacts) -> BeforeTurn | None:
    """Return the figures from before the turn that runs; None while its first entry is not written.

    For another thread than the turn's: what the turn measures with is not touched.
    """
    with runner.writer.held():
        tree = runner.writer.tree
        path = tree.path()
        spent = sum(e.body.cost_usd for e in tree if isinstance(e.body, UsageReported))
    at = next((i for i in range(len(path) - 1, -1, -1) if isinstance(path[i].body, TurnStart)), None)
    if at is None:
        return None
    spent -= sum(e.body.cost_usd for e in path[at:] if isinstance(e.body, UsageReported))
    before, gauge = path[:at], SessionGauge()
    prefix = runner.prefix_of(prefix_in_force(path[: at + 1]))
    gauge.replay(before, prefix, facts)
    held = gauge.occupancy(build_view(before), prefix, facts, runner.budget(facts), before)
    return BeforeTurn(occupancy=held, cost_usd=max(0.0, spent))


class NotBegun:
    """The conversation that a notebook in `folder` would begin. It is nowhere on disk, nor is it made by looking."""

    def __init__(self, folder: Path, home: Path, settings: Settings, environ: Mapping[str, str]) -> None:
        nowhere = home / ".none"  # an artifact is only written when a root is made
        self.runner = TurnRunner(
            writer=SessionWriter(NoLog(), SessionTree(), SystemClock()), artifacts=Artifacts(nowhere, folder),
            settings=settings, folder=folder, home=home, tools={t.spec.name: t for t in builtin_tools()},
            environ=environ, scrubber=Scrubber(secret_values(environ)),
        )  # fmt: skip
        self.place = (folder, home)

    def use(self, settings: Settings, numbers: Mapping[str, float]) -> None:
        """Let other settings hold; `numbers` are the person's for the policy."""
        self.runner.settings, self.runner.numbers = settings, dict(numbers)

    @property
    def settings(self) -> Settings:
        """The settings that hold."""
        return self.runner.settings

    @property
    def facts(self) -> ModelFacts:
        """What is known of the model."""
        return lookup(self.settings.model)

    def occupancy(self) -> Occupancy:
        """Return what its first request would hold, before the prompt."""
        return occupancy_after(self.runner, (), self.facts)
