"""Session: one conversation tree of one notebook, and everything a person does with it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nbagent.core.entries import Entry
from nbagent.core.errors import Diagnostic, UsageProblem
from nbagent.core.tree import SessionTree, TurnNode
from nbagent.core.view import build_view
from nbagent.models.cassette import Cassette
from nbagent.models.catalog import ModelFacts, lookup
from nbagent.models.network import is_loopback
from nbagent.models.registry import NamedModel, check_known, open_model, with_endpoint_facts
from nbagent.runtime.clock import Clock, SystemClock
from nbagent.runtime.closing import close_models, closed_on_failure
from nbagent.runtime.gauge import Occupancy
from nbagent.runtime.matching import CellKey, earlier_turn, fork_parent, guessed_lines
from nbagent.runtime.occupied import occupancy_after
from nbagent.runtime.places import Place, came_along, cells_of, find_place, remember, remembered, turns_to_tell
from nbagent.runtime.ports import FinishedTurn, TurnOptions, TurnPorts, with_limits
from nbagent.runtime.prompting import asked
from nbagent.runtime.replay import recorded_clock, replay_resume, replay_turn, reuse_turn
from nbagent.runtime.spent import DayLedger
from nbagent.runtime.turns import TurnRunner
from nbagent.runtime.writer import NoLog, SessionWriter
from nbagent.store.artifacts import Artifacts
from nbagent.store.journal import Journal
from nbagent.store.scratch import ScratchFolder
from nbagent.store.secrets import Scrubber, secret_values
from nbagent.store.settings import Settings
from nbagent.tools.registry import builtin_tools


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """How a session was found when it was opened."""

    how: str
    origin: str
    turns: int
    diagnostics: tuple[Diagnostic, ...]


class Session:
    """A conversation that can be sent to, gone back in, and looked at. Use one thread at a time for turns."""

    def __init__(
        self, *, place: Place, runner: TurnRunner, opened: Opened, environ: Mapping[str, str],
        journal: Journal | None, cassette: Cassette | None = None, scratch: ScratchFolder | None = None,
    ) -> None:  # fmt: skip
        self.place = place
        self.runner = runner
        self.opened = opened
        self.cassette = cassette
        self._journal = journal
        self._environ = environ
        self._scratch = scratch
        self._models: dict[str, NamedModel] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._asked: set[str] = set()
        self._earlier = frozenset(t.turn for t in self.tree.turns())
        self._previous: TurnNode | None = None
        self.model_name: str | None = None

    @classmethod
    def open(
        cls, *, folder: Path, notebook: Path | None, settings: Settings, home: Path, name: str | None = None,
        environ: Mapping[str, str] = os.environ, clock: Clock | None = None,
    ) -> Session:  # fmt: skip
        """Open the session of `notebook` (or the one called `name`) in `folder`; nothing is written but the lock.

        Raises:
            JournalLocked, JournalUnwritable, JournalDamaged: as the journal says.
        """
        clock = clock or SystemClock()
        place = find_place(folder, notebook, name or settings.session, clock.new_id())
        journal = Journal.open(place.journal)
        with closed_on_failure(journal):
            tree = SessionTree(journal.entries)
            scrubber = Scrubber(secret_values(environ))
            day = DayLedger(home, place.name)
            writer = SessionWriter(journal, tree, clock, scrubber.entry, day.add)
            runner = _runner(
                writer, Artifacts(place.artifacts, folder), settings, folder=folder, home=home, environ=environ,
                session_name=place.name, scrubber=scrubber, day=day, forks=place.folder / "forks",
                notices=came_along(place),
            )  # fmt: skip
            writer.recover_partial()
            faults = (*journal.diagnostics, *runner.rules().faults(runner.tools))
            opened = Opened(how=place.how, origin=place.origin, turns=len(tree.turns_on_path()), diagnostics=faults)
            remember(place, cells_of(tree), turns=turns_to_tell(tree, faults))
            return cls(place=place, runner=runner, opened=opened, environ=environ, journal=journal)

    @classmethod
    def replay(
        cls, cassette: Cassette, *, folder: Path, settings: Settings, home: Path,
        environ: Mapping[str, str] = os.environ,
    ) -> Session:  # fmt: skip
        """Return a session that plays `cassette` and is never kept; clock and ids are the recording's."""
        scratch = ScratchFolder("replay")
        writer = SessionWriter(NoLog(), SessionTree(), recorded_clock(cassette))
        runner = _runner(
            writer, Artifacts(scratch.path / "artifacts", folder), settings, folder=folder, home=home, environ=environ
        )
        place = Place(name="replay", folder=scratch.path, notebook=None, how="replay")
        opened = Opened(how="replay", origin="", turns=0, diagnostics=())
        given: Any = {"cassette": cassette, "scratch": scratch}
        return cls(place=place, runner=runner, opened=opened, environ=environ, journal=None, **given)

    # ------------------------------------------------------------ parts

    @property
    def tree(self) -> SessionTree:
        """The conversation tree."""
        return self.runner.writer.tree

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self.runner.settings

    def reconfigure(self, settings: Settings) -> None:
        """Use other settings from the next turn on."""
        self.runner.settings = settings

    def close(self) -> None:
        """Let go of the journal, so that another kernel may open it; and of connections and a replay's folder."""
        close_models((named.model for named in self._models.values()), self._loop)
        self.runner.memory.close()
        if self._journal is not None:
            self._journal.close()
        if self._scratch is not None:
            self._scratch.remove()

    def model(self, name: str | None = None) -> NamedModel:
        """Return the model `name`; without one that of the session, else of the settings."""
        named = self._named(name)
        check_known(named, base_url=self._base_url)
        return named

    async def ready_model(self, name: str | None = None) -> NamedModel:
        """Return the model as `model` does, ready to be called: its limits as the provider tells them, asked once.

        Raises:
            MissingKey: it could not be called.
            UsageProblem: neither the table nor the provider knows it.
        """
        named, self._loop = self._named(name), asyncio.get_running_loop()
        named.model.check_ready()
        if named.name not in self._asked:
            named = self._models[named.name] = await with_endpoint_facts(named)
            self._asked.add(named.name)
        check_known(named, base_url=self._base_url)
        return named

    def _named(self, name: str | None) -> NamedModel:
        chosen = name or self.model_name or self.settings.model
        if chosen not in self._models:
            base_url, folder = self.settings.base_url, self.runner.folder
            self._models[chosen] = open_model(chosen, environ=self._environ, base_url=base_url, folder=folder)
        return self._models[chosen]

    @property
    def _base_url(self) -> str | None:
        return self.settings.base_url or self._environ.get("ANTHROPIC_BASE_URL")

    # ------------------------------------------------------------ turns

    async def send(self, prompt: str, cell: CellKey, options: TurnOptions, ports: TurnPorts) -> FinishedTurn:
        """Run a turn for `cell`: fork where it was run before on this path, else go on at the leaf.

        Raises:
            MissingKey, UsageProblem, CassetteMiss, PolicyError: before anything is written.
        """
        earlier, target = self.place_of(cell, options)
        runner = self.runner
        if self.cassette is not None:
            return self._after(await replay_turn(runner, self.cassette, prompt, cell, target, ports), earlier)
        if earlier is not None and (options.rerun or self.settings.rerun) == "reuse":
            reused = await reuse_turn(runner, self._named(options.model), prompt, cell, target, options, ports)
            if reused is not None:
                return self._after(reused, earlier)
        named = await self.ready_model(options.model)
        moves = target != self.tree.leaf
        path = self.tree.path(target) if target is not None else []
        start = runner.start_of(runner.writer.clock.new_id()[:8], path, named, options, cell)
        given = await asked(runner, prompt, options, named, ports, start)
        runner.writer.recover_partial()  # of a turn that could not write its reply, the disk being full
        runner.close_broken()
        if moves:
            runner.writer.move_leaf(target, "new" if options.new else "fork")
            runner.notices += guessed_lines(earlier, cell) if ports.interactive and not options.new else ()
        snapshot = await runner.snapshot(self.tree.path(), ports, start.masked_tools, named.facts)
        limits = runner.limits(options)
        done = await runner.run(named, ports, start=start, asked=given, snapshot=snapshot, limits=limits)
        return self._after(done, earlier)

    async def resume(self, options: TurnOptions, ports: TurnPorts) -> FinishedTurn:
        """Go on with the last turn, whose own ceilings hold, counted anew, where `options` have none.

        Raises:
            UsageProblem: there is none, or it is complete.
        """
        nodes = self.tree.turns_on_path()
        if not nodes:
            raise UsageProblem("there is no turn to go on with; run a %%agent cell first")
        last = nodes[-1]
        if self.cassette is not None:
            return await replay_resume(self.runner, self.cassette, ports)
        if last.end is not None and last.end.outcome == "completed":
            raise UsageProblem("the last turn is complete; there is nothing to go on with. Write a new %%agent cell")
        named, runner = await self.ready_model(options.model or last.body.model), self.runner
        runner.writer.recover_partial()
        snapshot = await runner.snapshot(self.tree.path(), ports, last.body.masked_tools, named.facts)
        limits = runner.limits(with_limits(options, last.body.limits))
        return await runner.run(named, ports, start=None, snapshot=snapshot, limits=limits)

    def place_of(self, cell: CellKey, options: TurnOptions) -> tuple[TurnNode | None, str | None]:
        """Return the cell's earlier turn, and the entry after which its turn comes."""
        turns = self.tree.turns()
        if cell.cell_id is None:
            turns = tuple(t for t in turns if t.turn in self._earlier)
        earlier = earlier_turn(turns, cell, previous=self._previous)
        forks, parent = fork_parent(earlier)
        forks = forks and (options.rerun or self.settings.rerun) != "append"
        return earlier, None if options.new else (parent if forks else self.tree.leaf)

    def _after(self, done: FinishedTurn, earlier: TurnNode | None) -> FinishedTurn:
        self._previous = earlier or self.tree.turn(done.output.turn)
        if self._journal is None:
            return done
        told = remembered(self.place, cells_of(self.tree), turns=turns_to_tell(self.tree, self.opened.diagnostics))
        return replace(done, notices=(*done.notices, *told)) if told else done

    def live_source(self) -> str:
        """Return what a recording of this session is of: "live", or "fake" for a service on this machine."""
        return "fake" if is_loopback(self._base_url) else "live"

    # ------------------------------------------------------------ looking and moving

    def turn(self, name: str) -> TurnNode:
        """Return the turn called `name`: an id or its beginning, a number on the path, or a cell id.

        Raises:
            UsageProblem: there is none, or the name fits several.
        """
        found = self.tree.turn(name)
        if found is None:
            of_cell = [t for t in self.tree.turns() if t.body.cell_id == name]
            found = of_cell[-1] if of_cell else None
        if found is None:
            here = ", -1 is the last" if self.tree.turns_on_path() else "; where the conversation stands there is none"
            raise UsageProblem(f"no turn is called {name!r}; `%agent tree` lists them{here}")
        return found

    def revert(self, name: str) -> TurnNode:
        """Go back to the state right after the turn `name`; nothing is removed."""
        node = self.turn(name)
        self.runner.close_broken()
        self.runner.writer.move_leaf(node.last, "revert")
        return node

    def fork(self, name: str) -> TurnNode:
        """Go back to the state right before the turn `name`: the next turn is its alternative."""
        node = self.turn(name)
        self.runner.close_broken()
        self.runner.writer.move_leaf(node.start.parent, "fork")
        return node

    def reset(self) -> None:
        """Begin a new conversation; the old one stays in the tree."""
        self.runner.close_broken()
        self.runner.writer.move_leaf(None, "new")

    def occupancy(self) -> Occupancy:
        """Return what the next request would hold, before the next prompt."""
        path = self.tree.path()
        return occupancy_after(self.runner, path, self.facts_of(self.current_model(path)))

    def current_model(self, path: Sequence[Entry] | None = None) -> str:
        """Return the name of the model of the next turn, as far as no option says otherwise."""
        start = build_view(self.tree.path() if path is None else path).turn if self.cassette else None
        return start.model if start else self.model_name or self.settings.model

    def facts_of(self, name: str) -> ModelFacts:
        """Return what is known of a model."""
        return self._models[name].facts if name in self._models else lookup(name)


def _runner(writer: SessionWriter, artifacts: Artifacts, settings: Settings, **given: Any) -> TurnRunner:
    tools = {t.spec.name: t for t in builtin_tools()}
    return TurnRunner(writer=writer, artifacts=artifacts, settings=settings, tools=tools, **given)
