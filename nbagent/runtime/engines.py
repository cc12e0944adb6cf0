"""Third-party context engines as policies (OC-C1): their life cycle over ours, and quarantine when one raises.

A package registers under the entry point group `nbagent.engines` what makes an engine; its name is chosen like a
policy's. What an engine wants is carried out as recorded moves: it can replace results and write the note of a
compaction, but edit nothing that was said. One that raises, or asks for what cannot be, is not asked again in this
process; the default policy manages the context instead, and a warning says why.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Protocol

from nbagent.context.policies import nbagent as default
from nbagent.context.policy import Compact, NoteStyle, Numbers, Plan, Policy, PolicyKind, Prune, Situation
from nbagent.core.cuts import cut_points
from nbagent.core.entries import Entry, ToolResult, TurnEnd, TurnStart
from nbagent.core.errors import PolicyError, told
from nbagent.core.messages import JsonObject
from nbagent.core.text import clean
from nbagent.runtime.beside import within

ENTRY_POINTS = "nbagent.engines"
NUMBERS: Numbers = {"threshold": 0.9}  # share of the window from which `compact` is asked

NOTICE_S = 5.0  # a method that only takes note is waited for so long

_log = logging.getLogger(__name__)


class ContextEngine(Protocol):
    """What an engine may implement; `assemble` and `compact` it must. `session` names the conversation.

    Its methods are ordinary functions; a sub-agent's conversation is named as `prepare_subagent_spawn` was told.

    A message is a mapping of `id` (of its entry), `role`, `content` (blocks) and `tokens` (estimated).
    """

    def bootstrap(self, session: str, messages: Sequence[JsonObject]) -> None:
        """Take in a conversation that exists already; called once for each."""

    def ingest(self, session: str, message: JsonObject) -> None:
        """Take in one message; called where there is no `ingest_batch`."""

    def ingest_batch(self, session: str, messages: Sequence[JsonObject]) -> None:
        """Take in what came since the last call."""

    def after_turn(self, session: str, messages: Sequence[JsonObject]) -> None:
        """A turn is over; called before the next model call at the latest."""

    def assemble(self, session: str, messages: Sequence[JsonObject], *, budget_tokens: int) -> Mapping[str, str]:
        """Return what stands in for results from now on: entry id -> text."""
        ...

    def compact(
        self, session: str, messages: Sequence[JsonObject], *, budget_tokens: int, force: bool
    ) -> Mapping[str, Any] | None:
        """Return `summary` and `first_kept` (id of the first entry that stays, None: nothing); None to do nothing."""
        ...

    def prepare_subagent_spawn(self, parent: str, child: str) -> Callable[[], None] | None:
        """A sub-agent is about to start; returns what takes that back."""
        ...

    def on_subagent_ended(self, child: str, reason: str) -> None:
        """A sub-agent is over."""


@dataclass(slots=True, kw_only=True)
class EngineCare:
    """One engine and what it was told. `quarantined` says why it is not asked any more, empty while it is."""

    name: str
    engine: Any
    quarantined: str = ""
    told: dict[str, set[str]] = field(default_factory=dict)
    turns: dict[str, int] = field(default_factory=dict)

    def ask(self, method: str, *arguments: Any, otherwise: Any = None, **more: Any) -> Any:
        """Call a method; one that it does not have, or that raises, gives `otherwise`."""
        if self.quarantined:
            return otherwise
        try:
            call = getattr(self.engine, method, None)
            made = otherwise if call is None else call(*arguments, **more)
        except (Exception, SystemExit) as error:  # noqa: BLE001  somebody else's code must not end a turn; it is recorded
            self.quarantine(f"{method} raised {type(error).__name__}: {told(error)}")
            return otherwise
        if inspect.isawaitable(made):
            if inspect.iscoroutine(made):
                made.close()
            self.quarantine(f"{method} is asynchronous; the methods of an engine are ordinary functions")
            return otherwise
        return made

    def call_back(self, what: str, call: Any) -> None:
        """Call what a method returned, when it can be called."""
        try:
            if callable(call):
                within(call, NOTICE_S)
        except Exception as error:  # noqa: BLE001  as above
            self.quarantine(f"{what} raised {type(error).__name__}: {told(error)}")

    def has(self, method: str) -> bool:
        """Tell whether the engine has a method of that name."""
        try:
            return hasattr(self.engine, method)
        except Exception as error:  # noqa: BLE001  as above
            self.quarantine(f"{method} raised {type(error).__name__}: {told(error)}")
            return False

    def quarantine(self, why: str) -> None:
        """Ask it no more."""
        self.quarantined = why
        line = "the context engine %r is not asked any more: %s; the default policy manages the context"
        _log.warning(line, self.name, why)

    def take_in(self, session: str, messages: Sequence[JsonObject], turns: int) -> None:
        """Tell it what is new in a conversation, and that turns are over."""
        known = self.told.get(session)
        self.told[session] = (known or set()) | {m["id"] for m in messages}
        fresh = [m for m in messages if m["id"] not in (known or ())]
        if known is None:
            self.ask("bootstrap", session, messages)
        elif fresh:
            if self.has("ingest_batch"):
                self.ask("ingest_batch", session, fresh)
            else:
                for message in fresh:
                    self.ask("ingest", session, message)
        if turns > self.turns.setdefault(session, turns):
            self.turns[session] = turns
            self.ask("after_turn", session, messages)


@dataclass(frozen=True, slots=True)
class EnginePolicy:
    """A third-party engine, seen as a policy."""

    numbers: Numbers
    name: str
    care: EngineCare
    fallback: Policy
    aside: bool = True

    def plan(self, situation: Situation) -> Plan:
        """Propose what the engine wants; what the default policy wants once the engine is quarantined."""
        plan = () if self.care.quarantined else self._asked(situation)
        return self.fallback.plan(situation) if self.care.quarantined else plan

    def prepare_subagent_spawn(self, parent: str, child: str) -> Callable[[], None]:
        """Tell that a sub-agent is about to start; returns what takes that back."""
        undo = self._notify("prepare_subagent_spawn", parent, child)
        return functools.partial(self.care.call_back, "what takes a sub-agent back", undo)

    def on_subagent_ended(self, child: str, reason: str) -> None:
        """Tell that a sub-agent is over."""
        self._notify("on_subagent_ended", child, reason)

    def _notify(self, method: str, *arguments: str) -> Any:
        """Call a method that only takes note, and is waited for no longer than `NOTICE_S`."""
        try:
            return within(functools.partial(self.care.ask, method, *arguments), NOTICE_S)
        except Exception as error:  # noqa: BLE001  as above
            self.care.quarantine(f"{method}: {told(error)}")
            return None

    def _asked(self, situation: Situation) -> Plan:
        session = session_name(situation.path)
        messages = [
            {"id": p.entry_id, "role": p.role, "content": copied(p.blocks), "tokens": t}
            for p, t in zip(situation.view.pieces, situation.tokens, strict=True)
        ]
        self.care.take_in(session, messages, sum(isinstance(e.body, TurnEnd) for e in situation.path))
        budget = situation.window
        plan: list[Prune | Compact] = []
        found = self.care.ask("assemble", session, messages, budget_tokens=budget, otherwise={})
        if placeholders := self._placeholders(situation, found):
            plan.append(Prune(placeholders=placeholders, reason=f"the engine {self.name} asked for it"))
        force = situation.moment.reason != "before_call"
        if force or situation.share >= self.numbers["threshold"]:
            made = self.care.ask("compact", session, messages, budget_tokens=budget, force=force)
            if made is not None and (move := self._compact(situation, made)) is not None:
                plan.append(move)
        return tuple(plan)

    def _placeholders(self, situation: Situation, found: Any) -> Mapping[str, str]:
        results = {e.id for e in situation.path if isinstance(e.body, ToolResult)}
        if not isinstance(found, Mapping) or not all(k in results and isinstance(v, str) for k, v in found.items()):
            self.care.quarantine("assemble named something that is no tool result")
            return {}
        return {k: clean(v) for k, v in found.items() if k not in situation.view.pruned}

    def _compact(self, situation: Situation, made: Any) -> Compact | None:
        summary = made.get("summary") if isinstance(made, Mapping) else None
        summary = clean(summary) if isinstance(summary, str) else None
        first_kept = made.get("first_kept") if isinstance(made, Mapping) else None
        cuts = [None, *(p.entry_id for p in cut_points(situation.path))]
        if summary is None or not summary.strip() or first_kept not in cuts:
            self.care.quarantine("compact gave no summary, or a place where a conversation cannot be cut")
            return None
        style = NoteStyle(users_tokens=0, appendix_tokens=0, reattach=0)
        return Compact(first_kept=first_kept, reason=f"the engine {self.name} asked for it", style=style, note=summary)


def session_name(path: Sequence[Entry]) -> str:
    """Return how a conversation is named to engines: the id of its first turn; that of a sub-agent is its own id."""
    return next((e.body.turn for e in path if isinstance(e.body, TurnStart)), "")


def copied(value: Any) -> Any:
    """Return blocks as lists and dictionaries of their own: what an engine does to them changes no entry."""
    if isinstance(value, Mapping):
        return {k: copied(v) for k, v in value.items()}
    return [copied(v) for v in value] if isinstance(value, list | tuple) else value


@dataclass(slots=True)
class SubAgentLife:
    """What an engine is told of one sub-agent. One that never began is taken back; one that did has an end."""

    policy: EnginePolicy | None
    child: str
    undo: Callable[[], None]
    begun: bool = False
    over: bool = False

    def ended(self, reason: str) -> None:
        """Tell how it ended, once."""
        if self.over:
            return
        self.over = True
        if not self.begun:
            self.undo()
        elif self.policy is not None:
            self.policy.on_subagent_ended(self.child, reason)


@contextmanager
def sub_agent_told(policy: Policy, parent: str, child: str) -> Iterator[SubAgentLife]:
    """Tell the engine of `policy`, when it is one, of a sub-agent that is about to start (OC-C1)."""
    asked = policy if isinstance(policy, EnginePolicy) else None
    life = SubAgentLife(asked, child, asked.prepare_subagent_spawn(parent, child) if asked else lambda: None)
    reason = "failed"
    try:
        yield life
    except asyncio.CancelledError:
        reason = "stopped"
        raise
    finally:
        life.ended(reason)


def engine_kinds() -> Mapping[str, PolicyKind]:
    """Return the engines that installed packages register, as policies by name."""
    return {point.name: _kind(point) for point in entry_points(group=ENTRY_POINTS)}


def _kind(point: EntryPoint) -> PolicyKind:
    def make(numbers: Numbers) -> Policy:
        fallback = default.KIND.make(default.KIND.default)
        return EnginePolicy(numbers, point.name, _care_of(point), fallback)

    return PolicyKind(name=point.name, make=make, default=NUMBERS, summary=f"the context engine {point.value}")


@functools.cache  # an engine keeps what it was told, and its quarantine, as long as the process lives
def _care_of(point: EntryPoint) -> EngineCare:
    try:
        return EngineCare(name=point.name, engine=point.load()())
    except Exception as error:
        line = f"the context engine {point.name!r} cannot be loaded: {type(error).__name__}: {told(error)}"
        raise PolicyError(f"{line}; choose another with %context policy") from error
