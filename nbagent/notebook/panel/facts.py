"""What the panel shows between turns: figures of the session as parts and rows. Reads; changes nothing."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from nbagent.core.entries import Compaction, Restore, UsageReported
from nbagent.core.errors import UserError, one_line
from nbagent.notebook.app import NotebookAgent
from nbagent.notebook.panel.beginning import Beginning
from nbagent.notebook.panel.protocol import (
    CatalogPart,
    CompactionPart,
    GaugePart,
    PanelState,
    Refusal,
    SessionPart,
    TreePart,
    TurnPart,
)
from nbagent.notebook.panel.results import HitRow, SkillRow, TurnRow
from nbagent.notebook.tracker import notebook_file
from nbagent.runtime.compacting import NO_CONVERSATION, no_note_now
from nbagent.runtime.contexts import known_policies
from nbagent.runtime.doors import Settings
from nbagent.runtime.gauge import Occupancy
from nbagent.runtime.kept_glance import kept_at_a_glance
from nbagent.runtime.occupied import occupancy_before_turn
from nbagent.runtime.session import Session
from nbagent.runtime.turn_facts import TurnFacts, turn_facts


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a search in memory gave."""

    rows: tuple[HitRow, ...]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteLines:
    """Lines of a note."""

    path: str
    text: str
    start_line: int
    total_lines: int


class SkillSource(Protocol):
    """The skills as the panel needs them. All may raise UserError."""

    def rows(self) -> Sequence[SkillRow]:
        """Return every skill, in prompt order, hidden ones last."""
        ...

    def summary(self) -> CatalogPart:
        """Return the skills in short; another `revision` when anything of them changed."""
        ...

    def switch(self, name: str, *, on: bool) -> str:
        """Let the model use a skill, or not; returns a line."""
        ...


class MemorySource(Protocol):
    """Memory as the panel needs it. All may raise UserError."""

    def search(self, query: str, count: int) -> Found:
        """Return at most `count` hits."""
        ...

    def read(self, path: str, line: int) -> NoteLines:
        """Return lines of the note `path`, as a hit names it, from `line` on."""
        ...


class PanelFacts:
    """Keeps what was counted until something changed. One thread at a time."""

    def __init__(self, agent: NotebookAgent, package: str, skills: SkillSource | None, beginning: Beginning) -> None:
        self._agent, self._package, self._skills, self._beginning = agent, package, skills, beginning
        self._tree_key: object = None
        self._gauge_key: object = None
        self._rows: tuple[TurnRow, ...] = ()
        self.state = PanelState(session=SessionPart(package=package))

    def refresh(self) -> None:
        """Look at session, turns and skills again. What cannot be read is one line in `session.trouble`."""
        try:
            session = self._agent.opened or self._kept()
            if session is None:
                self._unopened()
            else:
                with session.runner.writer.held():
                    self._read_tree(session)
                part = SessionPart(
                    name=session.place.name, package=self._package, replay=session.cassette is not None,
                    refused=refused_now(session, runs=self._agent.runs),
                )  # fmt: skip
                self.state = replace(self.state, session=part)
            if self._skills is not None:
                self.state = replace(self.state, catalog=self._skills.summary())
        except UserError as error:
            self._say(error)

    def _kept(self) -> Session | None:
        """Open the conversation that the notebook has; `%load_ext` may have told of it without."""
        notebook = notebook_file(self._agent.shell)
        folder = os.path.dirname(notebook) if notebook else os.getcwd()
        kept = kept_at_a_glance(folder, notebook)
        return None if kept is None or kept.turns == 0 else self._agent.session()

    def count_gauge(self) -> None:
        """Count how full the context is, if anything changed: long work in a long conversation, not in mid-turn."""
        session = self._agent.opened
        try:
            if session is None:
                self.state = replace(self.state, gauge=self._first_gauge())
                return
            key = (
                id(session), session.tree.leaf, session.settings, tuple(self._agent.numbers.items()), session.model_name
            )  # fmt: skip
            if key != self._gauge_key:
                self.state = replace(self.state, gauge=gauge_part(session))
                self._gauge_key = key
        except UserError as error:
            self._say(error)

    def gauge_before_turn(self) -> GaugePart | None:
        """Return how full the context was when the running turn began; None when it cannot be told yet."""
        session = self._agent.opened
        if session is None:
            return None
        try:
            facts = session.facts_of(session.current_model())
            before = occupancy_before_turn(session.runner, facts)
            return self._first_gauge() if before is None else _gauge(session, before.occupancy, before.cost_usd)
        except UserError as error:
            self._say(error)
            return None

    def _first_gauge(self) -> GaugePart:
        """Return how full the context of a conversation is that begins now; nothing is written."""
        begins = self._beginning.now()
        settings = begins.settings
        return _part_of(begins.occupancy(), model=settings.model, settings=settings, cost_usd=0.0)

    def _say(self, error: UserError) -> None:
        line = one_line(str(error))
        refused = (Refusal(name="preview_compaction", line=line),)
        part = replace(self.state.session, trouble=line, refused=refused)
        self.state = replace(self.state, session=part)

    def _unopened(self) -> None:
        self._tree_key, self._gauge_key, self._rows = None, None, ()
        tree = TreePart(revision=self.state.tree.revision + (self.state.tree.total > 0))
        self.state = replace(
            self.state, tree=tree, compaction=CompactionPart(),
            session=SessionPart(package=self._package, refused=refused_now(None, runs=self._agent.runs)),
        )  # fmt: skip

    def _read_tree(self, session: Session) -> None:
        key = (id(session), len(session.tree), session.tree.leaf, self._agent.runs)
        if key == self._tree_key:
            return
        self._rows = turn_rows(turn_facts(session.tree), runs=self._agent.runs)
        self._tree_key = key
        revision = self.state.tree.revision + 1
        self.state = replace(
            self.state, tree=tree_part(self._rows, revision=revision), compaction=compaction_part(session)
        )

    @property
    def turns(self) -> tuple[TurnRow, ...]:
        """Every turn, in the order written."""
        return self._rows

    @property
    def last_turn(self) -> TurnPart:
        """The turn one is at."""
        row = next((r for r in self._rows if r.leaf), None)
        return TurnPart() if row is None else TurnPart(turn=row.turn, number=row.number, outcome=row.outcome)


def refused_now(session: Session | None, *, runs: bool) -> tuple[Refusal, ...]:
    """Return the commands that would be refused as things stand; what waits for a turn that `runs` finds one."""
    line = no_note_now(session)
    line = "" if runs and line == NO_CONVERSATION else line
    return (Refusal(name="preview_compaction", line=line[:1].upper() + line[1:] + "."),) if line else ()


def gauge_part(session: Session) -> GaugePart:
    """Return how full the context is: the figures of `%context`."""
    return _gauge(session, session.occupancy(), cost_of(session))


def _gauge(session: Session, held: Occupancy, cost_usd: float) -> GaugePart:
    return _part_of(held, model=session.current_model(), settings=session.settings, cost_usd=cost_usd)


def _part_of(held: Occupancy, *, model: str, settings: Settings, cost_usd: float) -> GaugePart:
    budget = held.budget
    return GaugePart(
        model=model, policy=settings.policy, mode=settings.mode, policies=tuple(known_policies()),
        window_tokens=budget.window_tokens, threshold_tokens=round(budget.threshold_share * budget.window_tokens),
        used_tokens=held.used_tokens, level=budget.level(held.used_tokens), categories=held.ledger.as_mapping(),
        cache_hit_rate=held.cache_hit_rate, cost_usd=cost_usd, estimated=held.estimated,
    )  # fmt: skip


def cost_of(session: Session) -> float:
    """Return what the whole session cost, US dollars, as `%agent` says it: also of the branches that were left."""
    with session.runner.writer.held():
        return sum(e.body.cost_usd for e in session.tree if isinstance(e.body, UsageReported))


def compaction_part(session: Session) -> CompactionPart:
    """Return the compaction in force: the last on the path that was not taken back."""
    taken_back: set[str] = set()
    for entry in reversed(session.tree.path()):
        body = entry.body
        if isinstance(body, Restore):
            taken_back.add(body.cancels)
        elif isinstance(body, Compaction) and entry.id not in taken_back:
            return CompactionPart(
                entry=entry.id, reason=body.reason, before_tokens=body.before_tokens, after_tokens=body.after_tokens
            )
    return CompactionPart()


def turn_rows(facts: Sequence[TurnFacts], *, runs: bool) -> tuple[TurnRow, ...]:
    """Return the turns as rows; one without an end is broken off unless a turn `runs`."""
    children = Counter(f.parent for f in facts)
    return tuple(
        TurnRow(
            turn=f.turn, number=f.number, parent=f.parent or "", cell=f.cell, prompt=f.prompt,
            outcome="broken off" if f.outcome == "running" and not runs else f.outcome, model=f.model, steps=f.steps,
            cost_usd=f.cost_usd, current=f.current, leaf=f.leaf, stale=f.stale, forked=children[f.parent] > 1,
            compacted=f.compacted,
        )
        for f in facts
    )  # fmt: skip


def tree_part(rows: Sequence[TurnRow], *, revision: int) -> TreePart:
    """Return the turns in short."""
    return TreePart(
        revision=revision, total=len(rows), current=sum(r.current for r in rows), stale=sum(r.stale for r in rows),
        leaf=next((r.turn for r in rows if r.leaf), ""),
    )  # fmt: skip


def cells_of(rows: Sequence[TurnRow], cells: Sequence[str]) -> list[TurnRow]:
    """Return the turn of each cell of `cells` that has one: that on the current path, else the newest."""
    wanted, found = set(cells), dict[str, TurnRow]()
    for row in rows:
        known = found.get(row.cell)
        if row.cell in wanted and not (known is not None and known.current and not row.current):
            found[row.cell] = row
    return list(found.values())


def matching(rows: Sequence[SkillRow] | Sequence[TurnRow], text: str) -> list[SkillRow | TurnRow]:
    """Return the rows that hold every word of `text`, in their order."""
    words = text.casefold().split()
    return [row for row in rows if all(w in _searched(row) for w in words)]


def _searched(row: SkillRow | TurnRow) -> str:
    if isinstance(row, SkillRow):
        return f"{row.name} {row.source} {row.description} {row.reason}".casefold()
    return f"{row.turn} {row.number} {row.prompt} {row.outcome} {row.model}".casefold()
