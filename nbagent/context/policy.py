"""Policy: how context is managed. A policy looks at a Situation and proposes a Plan; it never edits the journal.

A policy is a small file of choices and constants over the shared moves (`moves.py`). Its numbers have a
default (the newest source) and may have a `seed` (the first published ones); a person changes one by
`%context set KEY=VALUE`. Absolute numbers are min(absolute, its share of a 200,000-token window), so that a
lesson in a small window shows the same things.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Generator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, Protocol, TypeAlias

from nbagent.context.handoff import HandoffNote, Missing
from nbagent.core.budget import Budget
from nbagent.core.effects import Consult, Effect
from nbagent.core.entries import Entry
from nbagent.core.errors import PolicyError
from nbagent.core.view import View

REFERENCE_WINDOW = 200_000
SCALED = ("_tokens", "output_chars", "output_bytes")  # how the names of numbers end that shrink with the window
Reason: TypeAlias = Literal["before_call", "manual", "overflow"]
Numbers: TypeAlias = Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """When a policy is asked. `idle_s` is the time since the last model call, None before any; `now` is UTC.

    `mid_turn` says that a turn is open: a step of it has been taken and its results are in.
    """

    now: float = 0.0
    idle_s: float | None = None
    reason: Reason = "before_call"
    mid_turn: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What a policy sees. `tokens[i]` is the estimated size of `view.pieces[i]`, `used_tokens` the whole request's.

    `fixed_tokens` (system text, tools) cannot be reduced by any move. `binds_thinking`: the model checks the
    prefix of its thinking. `sent` are the entries that a request has held already: what was not yet sent can be
    cut without moving the prefix.
    """

    path: Sequence[Entry]
    view: View
    tokens: Sequence[int]
    used_tokens: int
    fixed_tokens: int
    budget: Budget
    moment: Moment = Moment()
    binds_thinking: bool = False
    sent: Set[str] = frozenset()

    @property
    def window(self) -> int:
        """The working window, tokens."""
        return self.budget.window_tokens

    @property
    def share(self) -> float:
        """How full the window is; above 1 when it does not fit."""
        return self.used_tokens / max(1, self.window)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteStyle:
    """How a compaction's note is made.

    `template` names the sections asked for (`handoff.TEMPLATES`). `users_tokens` is how much of the person's own
    messages is kept word for word, newest first; 0 keeps none. `appendix_tokens` bounds the machine-made list of
    what must not get lost; 0 leaves it out. `reattach` is how many recently read files and variables are shown
    again, `reattach_tokens` each. `probe` asks the model once more what is missing. `serialised` sends the
    transcript as text instead of going on in the conversation. `reject_above` is the largest new size, as a
    share of the old. `last_resort` goes on without a model when it fails: "extract" (the machine's note),
    "drop" (the oldest fifth is dropped), "" (nothing changes). `files` lists the files read and changed so far.
    `too_long`: what is done with a conversation that one request for a note cannot hold: "stages" reads it in parts
    and merges their notes (after the provider's own refusal the oldest part is left out), "stages always" does so in
    either case, "drop" leaves the oldest out in either. `chunk_tokens` is the most that one request shows of it, 0 for
    all that fits. `checks(note, replaced)` says what a note lacks: it is asked for once more, and what is missing then
    is listed behind it. `beside(replaced, window_tokens)` is kept beside the note. `transcript` puts the whole
    conversation before the cut into a file, which the note names.

    What the writer is shown: `head_only` leaves out the part that is kept; `full` shows results whole that were put
    into a short form; `thinking` shows in a transcript what the model thought; `turn_template` names the sections for
    the first part of a turn that the cut divides, which is noted apart from what came before it; `former_model` asks
    the model of the turns before, where the one of this turn has a smaller window. `tries` bounds how often a note that
    cannot be used is asked for, `overflow_tries` how often a request that is too long is shortened:
    by its "oldest" fifth, or by `sheds` "results", ever more from the middle outward, which leaves every word else.
    With `once_larger` a note that would make the context larger is recorded as such, for a policy that then asks for
    none by itself (`standing.gave_up`).

    How the person's messages stay: each in some form, or with `users_newest` whole from the newest on, the one that
    does not fit cut in the middle and none before it. `note_last` puts the model's note behind all else.
    """

    template: str = "handoff"
    users_tokens: int = 20_000
    appendix_tokens: int = 10_000  # 5 % of the reference window, the most that DECISIONS 27 allows
    reattach: int = 5
    reattach_tokens: int = 2_000
    probe: bool = False
    serialised: bool = False
    reject_above: float = 0.9
    last_resort: str = "extract"
    files: bool = False
    reply_tokens: int = 8_000
    too_long: Literal["stages", "stages always", "drop"] = "stages"
    chunk_tokens: int = 0
    checks: Callable[[HandoffNote, Sequence[Entry]], Missing] | None = None
    beside: Callable[[Sequence[Entry], int], str] | None = None
    head_only: bool = False
    full: bool = False
    thinking: bool = False
    turn_template: str = ""
    former_model: bool = False
    tries: int = 3
    once_larger: bool = False
    overflow_tries: int = 3
    sheds: Literal["oldest", "results"] = "oldest"
    users_newest: bool = False
    note_last: bool = False
    transcript: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Prune:
    """Replace tool results: entry id -> the text that stands in."""

    placeholders: Mapping[str, str]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Compact:
    """Replace everything before `first_kept` (None: everything) by a note; `note` is one that is written already.

    `drop` leaves it out with no more than a line that says so, and the earlier note when there is one: no model is
    asked, nothing is stored first, and it is done however little that saves.
    """

    first_kept: str | None
    reason: str
    style: NoteStyle = field(default_factory=NoteStyle)
    note: str = ""
    drop: bool = False


Move: TypeAlias = Prune | Compact
Plan: TypeAlias = tuple[Move, ...]


class Policy(Protocol):
    """One way to manage context."""

    @property
    def name(self) -> str:
        """The name a person types."""
        ...

    @property
    def numbers(self) -> Numbers:
        """The numbers in force."""
        ...

    def plan(self, situation: Situation) -> Plan:
        """Propose moves; an empty plan changes nothing. Pure: same situation, same plan."""
        ...


def planned(policy: Policy, situation: Situation) -> Generator[Effect, Any, Plan | None]:
    """Return what a policy proposes; None when the person stopped one of somebody else, asked beside the turn."""
    if not getattr(policy, "aside", False):
        return policy.plan(situation)
    found: Plan | None = yield Consult(call=partial(policy.plan, situation))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyKind:
    """An entry of the registry: how a policy is made from its numbers. `summary` is a line for people."""

    name: str
    make: Callable[[Numbers], Policy]
    default: Numbers
    seed: Numbers = field(default_factory=dict)
    summary: str = ""


class Given(float):
    """A number that a person gave: it is meant for the window at hand, and not scaled."""


def in_window(absolute: float, window_tokens: int) -> int:
    """Return an absolute number of tokens, scaled down in windows smaller than the one it was chosen for.

    >>> in_window(20_000, 200_000), in_window(20_000, 1_000_000), in_window(20_000, 20_000)
    (20000, 20000, 2000)
    >>> in_window(Given(10_000), 20_000)
    10000
    """
    if isinstance(absolute, Given):
        return int(absolute)
    return int(min(absolute, absolute * window_tokens / REFERENCE_WINDOW))


def less_reserve(window_tokens: int, reserve_tokens: int) -> int:
    """Return what of a window may be used when `reserve_tokens` are kept free: half of it at least."""
    return window_tokens - min(reserve_tokens, window_tokens // 2)


def effective(numbers: Numbers, window_tokens: int) -> Numbers:
    """Return the numbers as they count in this window."""
    return {k: in_window(v, window_tokens) if k.endswith(SCALED) else v for k, v in numbers.items()}


def make_policy(kinds: Mapping[str, PolicyKind], name: str, changes: Numbers | None = None) -> Policy:
    """Return the policy `name` or `name@seed`, with `changes` to its numbers.

    Raises:
        PolicyError: no such policy, preset or number; with the nearest.
    """
    base, _, preset = name.partition("@")
    kind = kinds.get(base)
    if kind is None:
        near = difflib.get_close_matches(base, kinds, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise PolicyError(f"unknown policy {base!r}; {hint}the policies are: {', '.join(kinds)}")
    if preset not in ("", "seed"):
        raise PolicyError(f"policy {base!r} has no preset {preset!r}; there is {base}@seed")
    numbers = {**kind.default, **(kind.seed if preset else {})}
    for key, value in (changes or {}).items():
        if key not in numbers:
            near = difflib.get_close_matches(key, numbers, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            has = f"it has: {', '.join(numbers)}" if numbers else "it has none"
            raise PolicyError(f"policy {base!r} has no number {key!r}; {hint}{has}")
        numbers[key] = Given(_checked(base, key, value, kind))
    return kind.make(numbers)


def _checked(name: str, key: str, value: float, kind: PolicyKind) -> float:
    """Refuse a value that the number `key` cannot have. A default that is a fraction (0.7, 0.0) makes it a share."""
    default = kind.default[key]
    if isinstance(default, float) and default <= 1:
        least = 1e-9 if key == "threshold" and default else 0.0
        if not least <= value <= 1:
            above = "above 0 and" if least else "from 0"
            raise PolicyError(f"policy {name!r}: {key}={value:g} is no share; give one {above} up to 1, such as 0.7")
    elif not 0 <= value < 1e9 or (isinstance(default, int) and value != int(value)):
        raise PolicyError(f"policy {name!r}: {key}={value:g} is not possible; give a whole number below a billion")
    return value
