"""Bridge: publishes the panel's state to whoever listens, and does what panels ask. Made when the first one speaks.

Messages come on any thread (a subshell's, the main one) and only queue work: the panel's own thread counts, does
the commands and sends. Compaction runs on the engine's loop, since it calls the model. What changes the conversation
waits until no turn runs.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from nbagent.core.effects import StepBegan, SubAgentMoved, TurnBegan, TurnDone, TurnEvent
from nbagent.core.messages import JsonObject
from nbagent.notebook.app import NotebookAgent
from nbagent.notebook.interrupts import press_stop
from nbagent.notebook.panel.beginning import Beginning
from nbagent.notebook.panel.commands import (
    Answer,
    BadMessage,
    Bye,
    Command,
    Hello,
    NotebookPath,
    Pong,
    PreviewCompaction,
    Question,
    Send,
    Steer,
    Stop,
    read_message,
)
from nbagent.notebook.panel.controls import renew_report
from nbagent.notebook.panel.facts import MemorySource, PanelFacts, SkillSource
from nbagent.notebook.panel.live import LiveTurn
from nbagent.notebook.panel.protocol import (
    PanelState,
    QueuePart,
    Status,
    Versions,
    Waiting,
    agreed,
    mismatch,
    mismatch_line,
    ping,
    reply,
)
from nbagent.notebook.panel.questions import OpenQuestion
from nbagent.notebook.panel.thread import PanelThread, Peer
from nbagent.notebook.panel.words import THE_TURN, Settled, ToldWords
from nbagent.notebook.panel.work import ALONE, Done, PanelWork, answered, raised
from nbagent.runtime.approvals import Ask

__all__ = ["Bridge", "Peer"]

WAITS_FOR_TURN = "A turn runs; this is done when it ends."
WAITS_FOR_PERSON = "waiting for your answer"
WAITS_BELOW = "waiting for your answer below the cell"  # of no use to a page that was loaded since; Stop is
WAITS_FOR_WORK = "The conversation is being compacted; this is done after that."
PONG_S = 1.0  # how long a question waits for a front end that may show it
LOOK_S = 0.02
COUNT_S = 2.0  # how long a new widget waits for figures; it gets them anyway when it says hello

_log = logging.getLogger(__name__)


class Bridge:
    """One for a kernel. Every public method may be called on any thread and returns at once."""

    def __init__(
        self, agent: NotebookAgent, *, package: str, skills: SkillSource | None = None,
        memory: MemorySource | None = None, clock: Callable[[], float] = time.monotonic,
        beginning: Beginning | None = None,
    ) -> None:  # fmt: skip
        self._agent, self._package = agent, package
        self._facts = PanelFacts(agent, package, skills, beginning or Beginning(agent))
        self._work = PanelWork(agent, self._facts, skills=skills, memory=memory)
        self._live, self._live_lock = LiveTurn(), threading.Lock()
        self._thread = PanelThread(self._state, clock)
        self._question = OpenQuestion(changed=self._thread.wake)
        self._told = ToldWords()
        self._waiting: deque[tuple[Peer, Command]] = deque()
        self._compacting: asyncio.Task[Any] | None = None
        self._works, self._asks, self._asks_below = False, 0, False
        self._token, self._approves = 0, False
        self._gauge_is_due = False
        for turn in agent.recent_turns()[-1:] if agent.runs else ():
            for event in agent.events_of(turn):
                self._live.add(event)

    def close(self) -> None:
        """End: open questions are asked below the cell, what waits is dropped."""
        self._question.give_up()
        self._thread.close()

    # ------------------------------------------------------------ from front ends

    def receive(self, peer: Peer, data: object) -> None:
        """Take a message."""
        try:
            message = read_message(data, package=self._package)
        except BadMessage as error:
            if error.id:
                self._answer(peer, error.id, "error", str(error))
            _log.debug("panel: %s", error)
            return
        match message:
            case Hello():
                self._thread.later(lambda: self._greet(peer, message))
            case Bye():
                self.detach(peer)
            case Pong():
                self._pong(message)
            case Stop():
                self._answer(peer, message.id, *self._stop())
            case Steer():
                self._steer(peer, message)
            case Answer():
                self._answer(peer, message.id, *self._question.answer(message.approval, message.answer))
            case Question():
                self._whole_question(peer, message)
            case NotebookPath():
                self._agent.whereabouts.renamed(message.path)
                self._answer(peer, message.id, "ok")
            case _:
                self._thread.later(lambda: self._do(peer, message))

    def parts(self) -> JsonObject:
        """Return the state as it is now, for a widget to begin with; waits a moment for it to be counted."""
        counted = threading.Event()

        def count() -> None:
            self._count()
            self._count_gauge()
            counted.set()

        self._thread.later(count)
        counted.wait(COUNT_S)
        return self._state().to_wire()

    def detach(self, peer: Peer) -> None:
        """A front end is gone, or shows nothing any more."""
        self._thread.later(lambda: self._forget(peer))

    def _forget(self, peer: Peer) -> None:
        self._thread.forget(peer)
        if not self._thread.peers:
            self._question.give_up()

    def _greet(self, peer: Peer, hello: Hello) -> None:
        version = agreed(Versions(), hello.versions)
        if version is None:
            line = mismatch_line(Versions(), hello.versions, package=self._package, client=hello.client or "unknown")
            self._thread.forget(peer)
            self._thread.send(peer, mismatch(line))
            return
        self._agent.whereabouts.seen_as(hello.notebook)
        self._thread.greet(peer, version, hello.parts)
        self._thread.later(self._count)
        if self._live.runs and not self._live.turn.delivers:
            self._ping([peer])

    def _answer(self, peer: Peer, command_id: str, status: Status, line: str = "", result: Any = None) -> None:
        self._thread.later(lambda: self._thread.send(peer, reply(command_id, status, line, result)))

    def _stop(self) -> tuple[Status, str]:
        compacting = self._compacting
        if compacting is not None:  # not its future: it would count as done while the task still cleans up
            self._agent.engine.call_soon(compacting.cancel)
            return "ok", "Stopping the compaction."
        if not self._agent.runs:
            return "error", "no turn runs; there is nothing to stop"
        with self._live_lock:
            self._live.stopping()
        press_stop()
        return "ok", "Stopping."

    def _steer(self, peer: Peer, command: Steer) -> None:
        if not command.text.strip():
            self._answer(peer, command.id, "error", "the message is empty; write what the agent should hear")
            return
        runs = self._agent.runs
        line = "The agent hears it before its next step." if runs else "No turn runs; the next one hears it."
        self._answer(peer, command.id, "queued", line)
        self._agent.steering.append(command.text)
        self._told.add(THE_TURN, peer, command.id, command.text)

    def _settle(self, settled: Sequence[Settled]) -> None:
        for one in settled:
            self._thread.later(partial(self._thread.send, one.peer, one.message))

    def _settle_agents(self) -> None:
        """Look which sub-agents heard what they were told, or ended without."""
        session = self._agent.opened
        for listener in self._told.listeners:
            if listener != THE_TURN and session is not None:
                found = session.runner.agents.hearing(listener)
                self._settle(self._told.settle(listener, found.waiting, ended=found.ended, name=found.name))

    def _whole_question(self, peer: Peer, command: Question) -> None:
        text = self._question.text(command.approval)
        if text is None:
            self._answer(peer, command.id, "error", "that question is not open any more")
        else:
            self._answer(peer, command.id, "ok", "", {"approval": command.approval, "text": text})

    # ------------------------------------------------------------ commands, on the panel's thread

    def _do(self, peer: Peer, command: Command) -> None:
        if not isinstance(command, ALONE):
            self._finish(peer, command, lambda: self._work.run(command))
        elif not self._waiting and self._agent.turnstile.enter_panel():
            self._do_alone(peer, command)
        else:
            self._waiting.append((peer, command))
            line = WAITS_FOR_WORK if self._works else WAITS_FOR_TURN
            self._thread.send(peer, reply(command.id, "queued", line))

    def _do_alone(self, peer: Peer, command: Command) -> None:
        """Do a command that changes the conversation; the turnstile is the panel's until it is done."""
        try:
            outcome = self._work.run(command)
        except Exception as error:  # noqa: BLE001  told to who asked; what is not for people is logged
            self._done_alone(peer, command, partial(raised, error))
            return
        if isinstance(outcome, Coroutine):
            self._works = True
            future = asyncio.run_coroutine_threadsafe(self._stoppable(outcome), self._agent.engine.loop)
            future.add_done_callback(
                lambda done: self._thread.later(lambda: self._done_alone(peer, command, done.result))
            )
        else:
            self._done_alone(peer, command, lambda: outcome)

    async def _stoppable(self, work: Coroutine[Any, Any, Done]) -> Done:
        self._compacting = asyncio.current_task()
        try:
            return await work
        finally:
            self._compacting = None

    def _done_alone(self, peer: Peer, command: Command, outcome: Callable[[], Any]) -> None:
        self._works = False
        self._agent.turnstile.leave_panel()
        self._finish(peer, command, outcome)
        self._after_work()
        if not isinstance(command, PreviewCompaction):
            self._thread.later(lambda: renew_report(self._agent))

    def _finish(self, peer: Peer, command: Command, outcome: Callable[[], Any]) -> None:
        message, waits = answered(command, outcome)
        self._thread.send(peer, message)
        if waits and isinstance(command, Send):
            self._told.add(command.agent, peer, command.id, command.text)
            self._settle_agents()

    def _after_work(self) -> None:
        """Count anew, and do the next command that waits, if nothing else holds the conversation."""
        self._count()
        if self._waiting and not self._works and self._agent.turnstile.enter_panel():
            self._do_alone(*self._waiting.popleft())

    def _count(self) -> None:
        """Look at the turns again now, and count the gauge after what else waits: that takes longer."""
        self._facts.refresh()
        if not self._agent.runs:
            with self._live_lock:
                self._live.at(self._facts.last_turn)
        if not self._gauge_is_due:
            self._gauge_is_due = True
            self._thread.later(self._count_gauge)

    def _count_gauge(self) -> None:
        self._gauge_is_due = False
        if self._agent.runs:
            self._count_before_turn()
            return
        self._facts.count_gauge()
        if not self._agent.runs:
            with self._live_lock:
                self._live.rebase(self._facts.state.gauge)

    def _count_before_turn(self) -> None:
        """A turn has figures of its own; what they grow from is counted here when it began before that was done."""
        if self._live.lacks_base and (base := self._facts.gauge_before_turn()) is not None:
            with self._live_lock:
                self._live.found_base(base)

    def _state(self) -> PanelState:
        waiting = tuple(Waiting(id=c.id, name=c.name) for _, c in tuple(self._waiting))
        with self._live_lock:
            turn, gauge, agents = self._live.turn, self._live.gauge, self._live.agents
        if self._asks and turn.status == "running":
            turn = replace(turn, activity=WAITS_BELOW if self._asks_below else WAITS_FOR_PERSON)
        return replace(
            self._facts.state, gauge=gauge, turn=turn, agents=agents, approval=self._question.part(),
            queue=QueuePart(total=len(waiting), rows=waiting),
        )  # fmt: skip

    # ------------------------------------------------------------ from turns and cells (app.PanelHooks)

    def on_event(self, event: TurnEvent) -> None:
        """Take an event of the running turn."""
        with self._live_lock:
            changed = self._live.add(event)
        if isinstance(event, StepBegan):
            self._settle(self._told.settle(THE_TURN, len(self._agent.steering), ended=False))
        elif isinstance(event, SubAgentMoved | TurnDone):
            self._settle_agents()
        if not self._thread.peers:
            return
        if isinstance(event, TurnBegan):
            self._thread.later(self._turn_began)
        elif changed:
            self._thread.wake()

    def unheard(self, words: Sequence[str]) -> None:
        """The turn ends without having heard the last words that it was told."""
        self._settle(self._told.settle(THE_TURN, len(words), ended=True))

    def turn_over(self) -> None:
        """The turn has ended: count again, and do what waits."""
        if self._thread.peers or self._waiting:
            self._thread.later(self._after_work)

    def cell_over(self) -> None:
        """A cell has ended, which may have changed something."""
        if self._thread.peers and not self._agent.runs:
            self._thread.later(self._count)

    def asking(self, below: Ask) -> Ask:
        """Return how the person is asked: by buttons where they come through now, else below the cell."""

        async def ask(question: str) -> str | None:
            self._asks += 1
            self._thread.wake()
            try:
                return await answer(question)
            finally:
                self._asks -= 1
                self._thread.wake()

        async def answer(question: str) -> str | None:
            shown = self._question.begin(question) if await self._shows_questions() else None
            given = None
            if shown is not None:
                try:
                    given = await asyncio.wrap_future(shown)
                finally:
                    self._question.end()
            if given is not None:
                return given
            self._asks_below = True
            self._thread.wake()
            try:
                return await below(question)
            finally:
                self._asks_below = False

        return ask

    async def _shows_questions(self) -> bool:
        """Ask the front ends, and wait a moment for one that shows questions."""
        if not self._thread.peers:
            return False
        self._ping(self._thread.peers)
        for _ in range(round(PONG_S / LOOK_S)):
            await asyncio.sleep(LOOK_S)
            if self._approves:
                return True
        return False

    def _turn_began(self) -> None:
        self._ping(self._thread.peers)
        self._count()

    def _ping(self, peers: Sequence[Peer]) -> None:
        self._token, self._approves = self._token + 1, False
        message = ping(f"t{self._token}")
        for peer in peers:
            self._thread.later(partial(self._thread.send, peer, message))

    def _pong(self, pong: Pong) -> None:
        if not self._agent.runs:
            return  # it waited until the cell had ended
        if pong.token == f"t{self._token}":
            self._approves = self._approves or pong.approvals
        with self._live_lock:
            self._live.delivers()
        self._thread.wake()
