"""Sweep: recorded conversations under policies at several thresholds; what each would have sent, cost and lost (NB-3).

No model is called and nothing is written; two runs give the same figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

from nbagent.context.compare import Row, comparing
from nbagent.context.engine import Engine
from nbagent.context.extract import machine_note
from nbagent.context.measure import Meter
from nbagent.context.policy import Policy
from nbagent.core.budget import Budget
from nbagent.core.entries import Entry, TurnStart
from nbagent.core.errors import UsageProblem, UserError
from nbagent.core.messages import Message, Prefix, Request
from nbagent.core.tree import SessionTree
from nbagent.core.view import View
from nbagent.models.catalog import lookup
from nbagent.runtime.contexts import choose_policy, known_policies, prefix_in_force, recorded_prefix
from nbagent.runtime.importing.formats import parse_recording
from nbagent.runtime.importing.sessions import imported_entries, imported_prefix, read_recording
from nbagent.runtime.places import known_sessions
from nbagent.store.artifacts import Artifacts
from nbagent.store.journal_reading import read_journal

JOURNAL = "journal.jsonl"
Key: TypeAlias = "tuple[str, float | None]"  # a policy as it was asked for, and its threshold; None for its own


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A conversation to walk: its current path, its stored prefix, the model that it was held with."""

    name: str
    path: tuple[Entry, ...]
    prefix: Prefix
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What one policy at one threshold (a share of the window; None for its own) does to one conversation."""

    session: str
    policy: str
    threshold: float | None
    row: Row


def recordings(places: Iterable[Path]) -> tuple[Recorded, ...]:
    """Return the conversations in `places`: journals, folders of sessions or of a notebook, files of other agents.

    Raises:
        UsageProblem: a place holds none, or a file is in no known format.
        JournalDamaged: a journal cannot be read.
    """
    return tuple(found for place in places for found in _recordings(place))


def _recordings(place: Path) -> Iterator[Recorded]:
    if not place.exists():
        raise UsageProblem(f"{str(place)!r} does not exist; name a journal, a folder with sessions, or a recording")
    if place.is_dir():
        kept = [place / JOURNAL] if (place / JOURNAL).is_file() else [s.folder / JOURNAL for s in known_sessions(place)]
        found = [one for journal in kept if journal.is_file() for one in _of_journal(journal)]
        if not found:
            raise UsageProblem(f"no conversation is kept in {str(place)!r}; name a journal, or a folder with sessions")
        yield from found
    elif place.name == JOURNAL:
        yield from _of_journal(place)
    else:
        for part in parse_recording(read_recording(place), place.name):
            name = f"{place.stem}#{part.name}" if part.name else place.stem
            path = tuple(imported_entries(part))
            yield Recorded(name=name, path=path, prefix=imported_prefix(part), model=_model(path))


def _of_journal(journal: Path) -> Iterator[Recorded]:
    path = tuple(SessionTree(read_journal(journal).entries).path())
    if any(isinstance(e.body, TurnStart) for e in path):
        yield Recorded(name=journal.parent.name, path=path, prefix=_prefix(path, journal.parent), model=_model(path))


def _prefix(path: Sequence[Entry], folder: Path) -> Prefix:
    digest = prefix_in_force(path) or recorded_prefix(path)
    if not digest:
        return Prefix(system=(), tools=())
    try:
        return Prefix.from_text(Artifacts(folder / "artifacts").get_text(digest))
    except (UserError, ValueError) as error:
        what = f"the system text of {str(folder)!r} cannot be read ({error})"
        raise UsageProblem(f"{what}; 'nbagent verify {folder}' tells more") from error


def _model(path: Sequence[Entry]) -> str:
    return next((e.body.model for e in reversed(path) if isinstance(e.body, TurnStart)), "")


def chosen_policies(names: Sequence[str], thresholds: Sequence[float | None]) -> Mapping[Key, Policy]:
    """Return the policies to walk, each at each threshold; one that acts at none stands there once, with its own.

    Raises:
        PolicyError: no such policy, preset or threshold.
    """
    chosen: dict[Key, Policy] = {}
    for name in names:
        kind = known_policies().get(name.partition("@")[0])
        adjustable = kind is None or "threshold" in kind.default
        for threshold in thresholds if adjustable else (None,):
            chosen[name, threshold] = choose_policy(name, {}, threshold)
    return chosen


def sweep(
    found: Iterable[Recorded], policies: Mapping[Key, Policy], *, window_tokens: int | None = None
) -> Iterator[Swept]:
    """Yield what each of `policies` does to each conversation, one at a time. Without a window it is the model's."""
    for one in found:
        facts = lookup(one.model)
        engine = _engine(one, window_tokens or facts.window_tokens)
        for (name, threshold), policy in policies.items():
            steps = comparing(one.path, {name: policy}, engine, prices=facts.prices)
            while True:
                try:
                    next(steps)
                except StopIteration as done:
                    yield Swept(session=one.name, policy=name, threshold=threshold, row=done.value[0])
                    break


def summed(swept: Iterable[Swept]) -> tuple[Swept, ...]:
    """Return one row for each policy and threshold: the sums over the conversations, and the largest of the sizes."""
    rows: dict[Key, Swept] = {}
    for one in swept:
        before = rows.get((one.policy, one.threshold))
        rows[one.policy, one.threshold] = one if before is None else replace(
            before, session="", row=_sum(before.row, one.row)
        )  # fmt: skip
    return tuple(rows.values())


def _sum(a: Row, b: Row) -> Row:
    sent = a.tokens_sent + b.tokens_sent
    read = a.cache_hit_rate * a.tokens_sent + b.cache_hit_rate * b.tokens_sent
    counts = (
        "calls", "tokens_sent", "cost_units", "notes", "prunings", "compactions", "verbatim", "reachable", "lost",
        "note_tokens", "note_output_tokens", "over_window",
    )  # fmt: skip
    usd = None if a.cost_usd is None or b.cost_usd is None else a.cost_usd + b.cost_usd
    return replace(
        a, **{name: getattr(a, name) + getattr(b, name) for name in counts}, cost_usd=usd,
        cache_hit_rate=read / max(1, sent), last_tokens=max(a.last_tokens, b.last_tokens),
        peak_tokens=max(a.peak_tokens, b.peak_tokens), problem=a.problem or b.problem,
    )  # fmt: skip


def _engine(one: Recorded, window_tokens: int) -> Engine:
    facts = lookup(one.model)
    meter = Meter(facts.family)

    def make_request(messages: Sequence[Message], max_tokens: int) -> Request:
        return Request(model=one.model, max_tokens=max_tokens, prefix=one.prefix, messages=tuple(messages))

    def size(view: View) -> int:
        return sum(meter.view(view, one.prefix).values())

    return Engine(
        policy=choose_policy("off", {}, None), meter=meter, prefix=one.prefix,
        budget=Budget(window_tokens=window_tokens), make_request=make_request, predict=size,
        price=lambda model, usage: 0.0, binds_thinking=facts.binds_thinking,
        machine_note=partial(machine_note, count=meter.text), model=one.model,
    )  # fmt: skip
