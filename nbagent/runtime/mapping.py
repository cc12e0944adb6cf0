"""Mapping: one prompt over many inputs, each a conversation of its own, some at a time; what is answered is kept."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from nbagent.core.errors import UserError, one_line
from nbagent.runtime.map_inputs import MapInput
from nbagent.runtime.matching import CellKey
from nbagent.runtime.ports import TurnOptions, TurnPorts
from nbagent.runtime.session import Session

IN_A_ROW = 3  # after so many failures in a row the rest is not begun: they would most likely fail too
STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came of one input. `outcome` is that of its turn, "error" when none began; `message` says why it failed."""

    number: int
    input: Any
    text: str
    outcome: str
    message: str
    cost_usd: float
    steps: int
    model: str
    session: str
    turn: str
    mark: str

    @property
    def answered(self) -> bool:
        """Whether the model answered to the end."""
        return self.outcome == "completed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapped:
    """How a mapping ended. `left` inputs were not begun; `why` says why, empty when all were."""

    answered: int
    failed: int
    left: int
    cost_usd: float
    why: str


class Mapping:
    """Asks each of `inputs` in a session of `open_session(number)`, at most `jobs` at a time.

    The first is asked alone, so that the others find the system text and the tools in the provider's cache, and so
    that a missing key fails once. `heard` is given each answer as it comes. With `max_cost_usd` no input is begun, and
    no call of a running one, once all have cost that much.
    """

    def __init__(
        self, inputs: Iterable[MapInput], *, open_session: Callable[[int], Session], options: TurnOptions, jobs: int,
        heard: Callable[[Answer], None], max_cost_usd: float | None = None,
    ) -> None:  # fmt: skip
        self._waiting = deque(inputs)
        self._open = open_session
        self._options = replace(options, new=True)
        self._jobs = jobs
        self._heard = heard
        self._max_cost_usd = max_cost_usd
        self._sessions: list[Session] = []
        self._answered = self._failed = self._in_a_row = 0
        self._cost_usd = 0.0
        self._why = ""

    async def run(self) -> Mapped:
        """Ask them all.

        Raises:
            UserError: the first input could not be asked, so that none was.
        """
        if not self._waiting:
            return self.now()
        session = self._session()
        await self._ask(session, self._waiting.popleft(), first=True)
        if self._waiting and not self._why:
            others = (self._work(self._session()) for _ in range(min(self._jobs, len(self._waiting)) - 1))
            await asyncio.gather(self._work(session), *others)
        return self.now()

    def now(self) -> Mapped:
        """Return how far it is."""
        return Mapped(
            answered=self._answered, failed=self._failed, left=len(self._waiting), cost_usd=self._cost_usd,
            why=self._why,
        )  # fmt: skip

    def close(self) -> None:
        """Let go of the journals and connections; call it when `run` is over, on the same thread."""
        for session in self._sessions:
            session.close()

    def _session(self) -> Session:
        session = self._open(len(self._sessions) + 1)
        self._sessions.append(session)
        return session

    async def _work(self, session: Session) -> None:
        while self._waiting and not self._why:
            if self._max_cost_usd is not None and self._cost_usd >= self._max_cost_usd:
                self._why = f"stopped at the cost ceiling of ${self._max_cost_usd:g} (--max-cost)"
                return
            await self._ask(session, self._waiting.popleft())

    async def _ask(self, session: Session, one: MapInput, *, first: bool = False) -> None:
        options = self._options
        if self._max_cost_usd is not None:
            options = replace(options, max_cost_usd=max(self._max_cost_usd - self._cost_usd, 1e-9))
        known = {"number": one.number, "input": one.value, "mark": one.mark, "session": session.place.name}
        key = CellKey(cell_id=None, source_hash=one.mark, order=one.number)
        try:
            done = await session.send(one.prompt, key, options, TurnPorts())
        except UserError as error:
            if first:
                raise
            self._count(_unasked(known, one_line(str(error))))
            return
        output, model = done.output, session.current_model()
        self._count(
            Answer(
                **known, text=output.text, outcome=output.outcome, message=output.message, model=model,
                cost_usd=round(output.cost_usd, 6), steps=output.steps, turn=output.turn,
            )
        )  # fmt: skip

    def _count(self, answer: Answer) -> None:
        self._cost_usd += answer.cost_usd
        if answer.answered:
            self._answered, self._in_a_row = self._answered + 1, 0
        else:
            self._failed, self._in_a_row = self._failed + 1, self._in_a_row + 1
        if answer.outcome == STOPPED:
            self._why = STOPPED
        elif self._in_a_row >= IN_A_ROW and not self._why:
            self._why = f"{IN_A_ROW} failed in a row ({answer.message})"
        self._heard(answer)


def _unasked(known: dict[str, Any], message: str) -> Answer:
    return Answer(**known, text="", outcome="error", message=message, cost_usd=0.0, steps=0, model="", turn="")
