"""NotebookAgent: what the extension holds for one shell: engine, session, settings, recording; runs turns in cells."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from nbagent.core.effects import (
    Notice,
    StepBegan,
    TextDelta,
    ThinkingDelta,
    ToolEnded,
    TurnBegan,
    TurnDone,
    TurnEvent,
)
from nbagent.core.errors import Diagnostic, TurnFailed, UsageProblem
from nbagent.notebook.cell_thread import CellThread
from nbagent.notebook.cells import CellSite, source_hash
from nbagent.notebook.host import Engine, Jobs, TurnStopped, host_async, host_sync
from nbagent.notebook.live import LiveDisplay, notebook_callables, terminal_publish
from nbagent.notebook.open_notebook import ShellNotebook
from nbagent.notebook.panel.hooks import PanelHooks
from nbagent.notebook.shell import ShellKernel
from nbagent.notebook.stopped import NOT_BEGUN
from nbagent.notebook.tracker import CellTracker, is_interactive, notebook_file, raw_source
from nbagent.notebook.turnstile import Turnstile
from nbagent.notebook.whereabouts import Whereabouts
from nbagent.runtime.agents import unheard_line
from nbagent.runtime.doors import CellRun, Settings, load_settings, model_is_ready
from nbagent.runtime.matching import CellKey
from nbagent.runtime.ports import FinishedTurn, TurnOptions, TurnPorts
from nbagent.runtime.preview import preview_turn
from nbagent.runtime.recording import Recorder
from nbagent.runtime.session import Session
from nbagent.tools.tool import SeenCell

if TYPE_CHECKING:
    from nbagent.core.messages import Request
    from nbagent.notebook.panel.door import PanelDoor

CONSENT = "This recording runs code in your kernel (it is shown above). Run it? [y]es, [n]o: "
KEPT_TURNS = 20
T = TypeVar("T")
PENDING = "Stop: waiting for native code to end …"
WOULD_ALLOW = "To allow it: "  # approvals.refused_line begins its last line so


@dataclass(slots=True, kw_only=True)
class Ask:
    """One turn as it was typed: the text, the options, how it is shown, and the cell it belongs to."""

    prompt: str
    options: TurnOptions = field(default_factory=TurnOptions)
    quiet: bool = False
    shown: bool = True
    resume: bool = False
    source: str = ""
    suffix: str = ""


class NotebookAgent:
    """The agent of one shell. Made at the first use; `tracker` follows the cells since the extension was loaded."""

    def __init__(self, shell: Any, configured: Callable[[], dict[str, Any]], tracker: CellTracker) -> None:
        self.shell = shell
        self.engine = Engine()
        self.tracker = tracker
        self.recorder: Recorder | None = None
        self.last: FinishedTurn | None = None
        self.steering: list[str] = []
        self.problems: list[Diagnostic] = []
        self.kernel_id = os.urandom(4).hex()
        self.consented = False
        self.chosen: dict[str, Any] = {}
        self.numbers: dict[str, float] = {}
        self.turnstile = Turnstile()
        self.whereabouts = Whereabouts(lambda: notebook_file(shell))
        self.panel: PanelHooks | None = None
        self.door: PanelDoor | None = None
        self._events: dict[str, list[TurnEvent]] = {}
        self._configured = configured
        self._session: Session | None = None
        self._opening = threading.RLock()  # the panel may be the first to need it
        self._seen: list[SeenCell] = []
        self._untold: list[CellRun] = []
        self._asked_in_cell: tuple[int, int] = (0, 0)

    # ------------------------------------------------------------ parts

    def notebook_path(self) -> Path | None:
        """Return the notebook's file, as the front end told it; None where it tells nothing."""
        return self.whereabouts.path()

    def folder(self) -> Path:
        """Return the folder of the notebook, else the working folder when the extension was loaded.

        A cell that changes the working folder changes neither settings nor session.
        """
        notebook = self.notebook_path()
        return notebook.parent if notebook is not None else Path(self.tracker.folder)

    def settings(self) -> Settings:
        """Return the effective settings now; reads files."""
        return self._settings(self.chosen)

    def choose(self, **values: Any) -> None:
        """Set keys of the settings for this notebook, by their names; all or none.

        Raises:
            SettingsError: a value is not possible; what was chosen before stays.
        """
        chosen = {**self.chosen, **values}
        self._settings(chosen)
        self.chosen = chosen

    def _settings(self, chosen: dict[str, Any]) -> Settings:
        options = {"%config AgentMagics": self._configured(), "chosen in this notebook": chosen}
        return load_settings(self.folder(), os.environ, options=options)

    @property
    def opened(self) -> Session | None:
        """The session, when it is open."""
        return self._session

    def session(self) -> Session:
        """Return the session, opened at the first call; settings are read anew each time."""
        settings = self.settings()
        with self._opening:
            if self._session is None:
                self._session = Session.open(
                    folder=self.folder(), notebook=self.notebook_path(), settings=settings, home=Path(settings.home)
                )
                self.problems.extend(self._session.opened.diagnostics)
            else:
                self._session.reconfigure(settings)
            self._session.runner.numbers = self.numbers
            return self._session

    @property
    def runs(self) -> bool:
        """Whether a turn runs now."""
        return self.turnstile.turn_runs

    def asks_people(self) -> bool:
        """Tell whether somebody can answer in this front end."""
        return is_interactive(self.shell)

    def has_key(self, settings: Settings) -> bool:
        """Tell whether the model of the settings could be called."""
        return model_is_ready(settings, os.environ)

    def shown(self, path: Path) -> str:
        """Return `path` as people are told it: relative to the notebook where it is below it."""
        folder = self.folder()
        return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else str(path)

    def events_of(self, turn: str) -> Sequence[TurnEvent]:
        """Return the events of a turn that ran in this kernel; not for ever, only of the last ones."""
        return self._events.get(turn, ())

    def recent_turns(self) -> tuple[str, ...]:
        """Return the turns that ran in this kernel, oldest first; only the last ones."""
        return tuple(self._events)

    def switch(self, session: Session | None) -> None:
        """Go on with another session; None opens the notebook's own at the next use."""
        if self._session is not None:
            self._session.close()
        self._session = session

    def close(self) -> None:
        """Let go of everything: session, engine."""
        self.switch(None)
        self.engine.close()

    # ------------------------------------------------------------ turns

    def run(self, ask: Ask, *, awaitable: bool) -> Any:
        """Run a turn in the running cell: returns a coroutine of the FinishedTurn when `awaitable`, else the turn."""
        if not ask.prompt.strip() and not ask.resume:
            raise UsageProblem("the cell has no text; write what the agent should do below the %%agent line")
        if ask.options.skill is not None and (session := self.session()).cassette is None:
            session.runner.skills.check(ask.options.skill)
        if awaitable:
            return self._hosted_async(ask)
        return self._hosted_sync(ask)

    def _hosted_sync(self, ask: Ask) -> FinishedTurn:
        live, body = self._prepared(ask)
        try:
            done: FinishedTurn = host_sync(self.engine, body, on_stop_pending=self._pending(live))
            return done
        except TurnStopped as stopped:
            raise _said(stopped, ask, live) from None
        finally:
            self._shut(live)

    async def _hosted_async(self, ask: Ask) -> FinishedTurn:
        live, body = self._prepared(ask)
        try:
            return await host_async(self.engine, body, on_stop_pending=self._pending(live))
        except TurnStopped as stopped:
            raise _said(stopped, ask, live) from None
        finally:
            self._shut(live)

    def _pending(self, live: LiveDisplay) -> Callable[[], None]:
        return lambda: live.at_once(Notice(text=PENDING))

    def _shut(self, live: LiveDisplay) -> None:
        if live.picture.items or live.picture.done is not None or live.picture.step:
            live.close()

    def _prepared(self, ask: Ask) -> tuple[LiveDisplay, Callable[[Jobs], Coroutine[Any, Any, FinishedTurn]]]:
        """Look at the cell on its own thread, and return what the engine has to run."""
        site = self.tracker.claim()
        session = self.session()
        cells = self._cells_to_tell()
        cell = self._cell_key(ask, site)
        interactive = site.interactive
        thread = CellThread(self.engine)
        live = self._display(ask, interactive, thread)

        async def body(jobs: Jobs) -> FinishedTurn:
            try:
                async with self.turnstile.turn():
                    ports = self._ports(session, jobs, self._sink(live if ask.shown else _silent), site, cells)
                    thread.jobs = jobs
                    done = await self._send(session, ask, cell, ports)
            finally:
                self._drop_unheard()
                if self.panel is not None:
                    self.panel.turn_over()
            return self._finished(done, session)

        return live, body

    async def _send(self, session: Session, ask: Ask, cell: CellKey, ports: TurnPorts) -> FinishedTurn:
        if ask.resume:
            return await session.resume(ask.options, ports)
        return await session.send(ask.prompt, cell, ask.options, ports)

    def _sink(self, shown: Callable[[TurnEvent], None]) -> Callable[[TurnEvent], None]:
        """Return a sink that keeps what happens and shows it."""
        kept: list[TurnEvent] = []
        told: list[str] = []

        def sink(event: TurnEvent) -> None:
            if isinstance(event, StepBegan):
                self._untold.clear()  # what the model is told is written by now
            if isinstance(event, TurnBegan):
                self._events[event.turn] = kept
                while len(self._events) > KEPT_TURNS:
                    self._events.pop(next(iter(self._events)))
            if not isinstance(event, TextDelta | ThinkingDelta):
                kept.append(event)
            if isinstance(event, TurnDone):
                for words in self._drop_unheard():
                    kept.append(Notice(text=unheard_line("the turn", words)))
                    shown(kept[-1])
            if self.panel is not None:
                self.panel.on_event(event)
            shown(event)
            if isinstance(event, ToolEnded) and event.status == "refused" and not told:
                told.extend(line for line in event.text.splitlines() if line.startswith(WOULD_ALLOW))
                if told:
                    shown(Notice(text=f"{event.name} was refused, since nobody can answer here. {told[0]}"))

        return sink

    def _drop_unheard(self) -> list[str]:
        """Take away what the turn was told and has not heard: it was meant for this one. Returns the words."""
        words = [self.steering.pop(0) for _ in range(len(self.steering))]
        if words and self.panel is not None:
            self.panel.unheard(words)
        return words

    def _finished(self, done: FinishedTurn, session: Session) -> FinishedTurn:
        self.last = done
        for line in done.differences:
            remedy = "the recording is older than what it runs on; record it again if the difference matters"
            self.problems.append(Diagnostic(path="replay", line=None, cause=line, remedy=remedy))
        if self.recorder is not None:
            self.recorder.save(session)
        if done.output.outcome == "stopped":
            raise TurnStopped(done.output.message)
        if done.output.outcome != "completed":
            raise TurnFailed(done.output.message)
        return done

    def _ports(
        self, session: Session, jobs: Jobs, sink: Callable[[Any], None], site: CellSite, cells: tuple[CellRun, ...]
    ) -> TurnPorts:
        kernel = ShellKernel(self.shell, jobs, scrubber=session.runner.scrubber)

        async def ask(question: str) -> str | None:  # a panel may have come since the turn began
            asked = kernel.ask if self.panel is None else self.panel.asking(kernel.ask)
            return await asked(question)

        return TurnPorts(
            kernel=kernel, notebook=ShellNotebook(self.shell, self.notebook_path, lambda: self._seen),
            ask=ask if site.interactive else None, sink=sink, interactive=site.interactive,
            kernel_id=self.kernel_id, cells=cells, steering=self.steering,
            consent=None if self.consented or not site.interactive else self._consent(kernel),
        )  # fmt: skip

    def _consent(self, kernel: ShellKernel) -> Callable[[], Coroutine[Any, Any, bool]]:
        async def asked() -> bool:
            if not self.consented:
                answer = await kernel.ask(CONSENT)
                self.consented = (answer or "").strip().lower() in ("y", "yes")
            return self.consented

        return asked

    def _display(self, ask: Ask, interactive: bool, thread: CellThread) -> LiveDisplay:
        publish, update = notebook_callables()
        if getattr(self.shell, "kernel", None) is None:
            return LiveDisplay(terminal_publish, None, time.monotonic, quiet=ask.quiet, post=thread.post)
        return LiveDisplay(
            publish, update, time.monotonic, interactive=interactive, quiet=ask.quiet, post=thread.post,
            later=thread.later,
        )  # fmt: skip

    def _cell_key(self, ask: Ask, site: CellSite) -> CellKey:
        source = ask.source or raw_source(self.shell) or ask.prompt
        cell_id = f"{site.cell_id}{ask.suffix}" if site.cell_id else None
        source_key = source_hash(source + ask.suffix)
        return CellKey(cell_id=cell_id, source_hash=source_key, order=site.order, typed=site.typed)

    def next_ask_number(self) -> int:
        """Return which call of `ask` this is in the running cell, from 1."""
        cell = self.tracker.cells_begun
        last, count = self._asked_in_cell
        self._asked_in_cell = (cell, count + 1 if cell == last else 1)
        return self._asked_in_cell[1]

    def _cells_to_tell(self) -> tuple[CellRun, ...]:
        """Return the cells that the model has not heard of: they are kept until a turn begins."""
        for cell in self.tracker.take():
            order = len(self._seen) + 1
            self._seen.append(SeenCell(order=order, cell_id=cell.cell_id, source=cell.source, ok=cell.succeeded))
            if not _is_ours(cell.source):
                self._untold.append(CellRun(label=f"cell {order}", source=cell.source, ok=cell.succeeded))
        return tuple(self._untold)

    # ------------------------------------------------------------ looking

    def preview(self, ask: Ask) -> Request:
        """Return what the turn would send; nothing is sent or written."""
        site = self.tracker.claim()
        session = self.session()
        cell = self._cell_key(ask, site)
        cells = self._cells_to_tell()

        async def body(jobs: Jobs) -> Request:
            ports = self._ports(session, jobs, _silent, site, cells)
            return await preview_turn(session, ask.prompt, cell, ask.options, ports)

        request: Request = host_sync(self.engine, body)
        return request


    def beside(self, work: Callable[[TurnPorts], Coroutine[Any, Any, T]]) -> T:
        """Run `work` in the running cell: something that calls the model and is no turn."""
        site = self.tracker.claim()
        session = self.session()

        async def body(jobs: Jobs) -> T:
            async with self.turnstile.turn():
                return await work(self._ports(session, jobs, _silent, site, ()))

        result: T = host_sync(self.engine, body)
        return result


def _said(stopped: TurnStopped, ask: Ask, live: LiveDisplay) -> TurnStopped:
    """Return the stop as it is to be told: whether the turn had begun."""
    begun = live.picture.done is not None or live.picture.step > 0 or not ask.shown
    return stopped if begun else TurnStopped(NOT_BEGUN)


def _silent(event: Any) -> None:
    return


def _is_ours(source: str) -> bool:
    """Tell whether a cell only drives nbagent, so that the model need not hear of it."""
    ours = ("%agent", "%%agent", "%context", "%skills", "%memory", "%load_ext nbagent", "%reload_ext nbagent")
    lines = [line.strip() for line in source.splitlines() if line.strip() and not line.strip().startswith("#")]
    return bool(lines) and all(line.startswith(ours) for line in lines)
