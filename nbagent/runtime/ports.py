"""What a turn is given by whoever hosts it: options as typed, and ports to the kernel and the person."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from nbagent.context.tail import CellRun
from nbagent.core.effects import Sink
from nbagent.core.entries import Body, Entry
from nbagent.core.messages import Block, Request
from nbagent.core.turn import TurnOutput
from nbagent.runtime.approvals import Ask
from nbagent.tools.tool import Kernel, Notebook


def _no_sink(event: Any) -> None:
    return


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnOptions:
    """Options of one `%%agent` cell; None means: as the session has it.

    `skill` is used for the turn; `skill_arguments` are what it is given, the prompt itself when None.
    """

    model: str | None = None
    policy: str | None = None
    mode: str | None = None
    tools: tuple[str, ...] | None = None
    skill: str | None = None
    skill_arguments: str | None = None
    max_steps: int | None = None
    max_tokens: int | None = None
    max_cost_usd: float | None = None
    rerun: str | None = None
    new: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The blocks of a prompt, the person's own words first, and what is to be written after it."""

    blocks: tuple[Block, ...] = ()
    brought: tuple[Body, ...] = ()


NOTHING = Asked()


def with_limits(options: TurnOptions, limits: Mapping[str, Any]) -> TurnOptions:
    """Return `options` with what a turn may spend, as its start keeps it, where they do not say it themselves.

    Steps are not among them: who goes on has seen that there were too few.
    """
    names = ("max_tokens", "max_cost_usd")
    return replace(options, **{n: limits[n] for n in names if getattr(options, n) is None and n in limits})


@dataclass(slots=True, kw_only=True)
class TurnPorts:
    """The world of one turn. `ask` is None where nobody can answer; `kernel_id` names this run of the kernel.

    `consent` is asked before the code of a recording runs; None where it needs none.
    `cells` are what the person ran since the last turn. `steering` may be filled by others while the turn runs.
    """

    kernel: Kernel | None = None
    notebook: Notebook | None = None
    ask: Ask | None = None
    sink: Sink = _no_sink
    interactive: bool = False
    kernel_id: str = ""
    cells: tuple[CellRun, ...] = ()
    steering: list[str] = field(default_factory=list)
    consent: Callable[[], Awaitable[bool]] | None = None
    on_request: Callable[[Request], None] = lambda request: None


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedTurn:
    """A turn that ran: how it ended, the entries it wrote, and its number on the path (from 1).

    `context_tokens` is the size of the last request as measured, else as estimated. `differences` are
    results that came out differently in replay. `notices` are lines for the person.
    """

    output: TurnOutput
    entries: tuple[Entry, ...]
    number: int
    context_tokens: int
    window_tokens: int
    replayed: bool = False
    differences: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
