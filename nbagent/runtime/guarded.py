"""A policy of somebody else: what it proposes is looked at before it is done.

One that raises, or asks for what cannot be, is not asked again in this process; the default policy manages the
context instead, and a warning says why. A plan that was carried out unseen could leave entries that no later version
can read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from importlib.metadata import EntryPoint
from typing import Any

from nbagent.context.handoff import TEMPLATES, Missing
from nbagent.context.policies import nbagent as default
from nbagent.context.policy import Compact, NoteStyle, Numbers, Plan, Policy, PolicyKind, Prune, Situation
from nbagent.core.cuts import cut_points
from nbagent.core.entries import ToolResult
from nbagent.core.errors import PolicyError, told
from nbagent.core.text import clean

SHARES = ("limit_share", "usual_share")
_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Quarantine:
    """Whether somebody else's code is still asked. `why` is empty while it is."""

    what: str
    name: str
    why: str = ""

    def put(self, why: str) -> None:
        """Ask it no more."""
        if not self.why:
            self.why = why
            line = "the %s %r is not asked any more: %s; the default policy manages the context"
            _log.warning(line, self.what, self.name, why)


@dataclass(frozen=True, slots=True)
class GuardedPolicy:
    """A policy of somebody else, with the default one behind it."""

    numbers: Numbers
    name: str
    inner: Any
    quarantine: Quarantine
    fallback: Policy
    aside: bool = True

    def plan(self, situation: Situation) -> Plan:
        """Propose what it wants; what the default policy wants once it is quarantined."""
        if not self.quarantine.why:
            try:
                return self._checked(situation, self.inner.plan(situation))
            except (Exception, SystemExit) as error:  # noqa: BLE001  somebody else's code must not end a turn
                self.quarantine.put(f"plan raised {type(error).__name__}: {told(error)}")
        return self.fallback.plan(situation)

    def __getattr__(self, name: str) -> Any:
        """Return what a policy may say of itself besides: at which share of the window it compacts."""
        if name in SHARES and callable(getattr(self.inner, name, None)):
            return partial(self._share, name)
        raise AttributeError(name)

    def _share(self, name: str, window_tokens: int) -> float:
        try:
            return min(1.0, max(0.0, float(getattr(self.inner, name)(window_tokens))))
        except Exception as error:  # noqa: BLE001  as above
            self.quarantine.put(f"{name} raised {type(error).__name__}: {told(error)}")
            return 1.0

    def _checked(self, situation: Situation, plan: Any) -> Plan:
        """Return the plan with nothing in it that cannot be.

        Raises:
            ValueError: there is; it says what.
        """
        if isinstance(plan, str | Mapping) or not isinstance(plan, Iterable):
            raise ValueError(f"a plan is a tuple of moves, not {type(plan).__name__}")
        results = {e.id for e in situation.path if isinstance(e.body, ToolResult)}
        cuts = {None, *(p.entry_id for p in cut_points(situation.path))}
        moves: list[Prune | Compact] = []
        for move in plan:
            if isinstance(move, Prune):
                moves.append(_prune(move, results))
            elif isinstance(move, Compact):
                moves.append(self._compact(move, cuts))
            else:
                raise ValueError(f"a move is a Prune or a Compact, not {type(move).__name__}")
        return tuple(moves)

    def _compact(self, move: Compact, cuts: set[str | None]) -> Compact:
        if move.first_kept not in cuts:
            raise ValueError(f"a conversation cannot be cut before {move.first_kept!r}")
        style = move.style
        if not isinstance(style, NoteStyle) or style.template not in TEMPLATES:
            raise ValueError("the style of a note is a NoteStyle with a known template")
        for field in fields(NoteStyle):
            given, usual = getattr(style, field.name), field.default
            if isinstance(usual, int | float | str) and not isinstance(given, _kinds(usual)):
                raise ValueError(f"{field.name} of the style is {given!r}")
        if style.turn_template and style.turn_template not in TEMPLATES:
            raise ValueError(f"there is no template {style.turn_template!r}")
        checks, beside = style.checks, style.beside
        style = replace(
            style, checks=self._safely("checks", checks, Missing, Missing()) if checks else None,
            beside=self._safely("beside", beside, str, "") if beside else None,
        )  # fmt: skip
        return replace(move, style=style, note=_text(move.note), reason=_text(move.reason), drop=bool(move.drop))

    def _safely(self, name: str, call: Callable[..., Any], kind: type, otherwise: Any) -> Callable[..., Any]:
        def asked(*arguments: Any) -> Any:
            try:
                made = call(*arguments)
            except Exception as error:  # noqa: BLE001  as above
                self.quarantine.put(f"{name} raised {type(error).__name__}: {told(error)}")
                return otherwise
            return made if isinstance(made, kind) else otherwise

        return asked


def _kinds(usual: object) -> tuple[type, ...]:
    return (str,) if isinstance(usual, str) else (int, float)


def _prune(move: Prune, results: set[str]) -> Prune:
    placeholders = move.placeholders
    if not isinstance(placeholders, Mapping) or not all(k in results for k in placeholders):
        raise ValueError("a Prune named something that is no tool result")
    return Prune(placeholders={str(k): _text(v) for k, v in placeholders.items()}, reason=_text(move.reason))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no text")
    return clean(value)


def registered(point: EntryPoint) -> PolicyKind:
    """Return the kind of policy that a package registers; one that cannot be loaded says so when it is chosen."""
    try:
        kind = point.load()
        if not isinstance(kind, PolicyKind):
            raise TypeError(f"{point.value} is no PolicyKind")
        return guarded(kind, point.name)
    except Exception as error:  # noqa: BLE001  somebody else's package; choosing the policy says what is wrong
        why = f"cannot be loaded: {type(error).__name__}: {told(error)}"

    def make(given: Numbers) -> Policy:
        raise PolicyError(f"policy {point.name!r} {why}; choose another with %context policy")

    return PolicyKind(name=point.name, make=make, default={}, summary=why)


def guarded(kind: PolicyKind, name: str = "") -> PolicyKind:
    """Return the kind of a policy of somebody else, whose policies are `GuardedPolicy`; `name` is what people type."""
    name = name or str(kind.name)
    quarantine = Quarantine(what="policy", name=name)
    numbers = {str(k): v for k, v in dict(kind.default).items() if isinstance(v, int | float)}
    seed = {str(k): v for k, v in dict(kind.seed).items() if isinstance(v, int | float)}

    def make(given: Numbers) -> Policy:
        try:
            inner = kind.make(given)
        except Exception as error:
            raise PolicyError(f"policy {name!r} cannot be made: {told(error)}; choose another") from error
        return GuardedPolicy(given, name, inner, quarantine, default.KIND.make(default.KIND.default))

    return PolicyKind(name=name, make=make, default=numbers, seed=seed, summary=str(kind.summary))
