"""What the commands of a panel do. Each is run on the panel's own thread; what changes the conversation, alone."""

from __future__ import annotations

import concurrent.futures
import hashlib
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeAlias

from nbagent.core.errors import UsageProblem, UserError, one_line
from nbagent.core.messages import JsonObject
from nbagent.notebook.app import NotebookAgent
from nbagent.notebook.commands.branches import reverted_line
from nbagent.notebook.commands.context import compaction_report, set_numbers
from nbagent.notebook.panel.commands import (
    Cells,
    Command,
    Compact,
    Page,
    PreviewCompaction,
    Read,
    Revert,
    Search,
    Send,
    Set,
    SetSkill,
    StopAgent,
    Undo,
)
from nbagent.notebook.panel.facts import MemorySource, PanelFacts, SkillSource, cells_of, matching
from nbagent.notebook.panel.protocol import reply
from nbagent.notebook.panel.results import (
    cells_result,
    compaction_result,
    page_bounds,
    page_result,
    read_result,
    search_result,
)
from nbagent.notebook.words import MODES
from nbagent.runtime.compacting import NO_CONVERSATION, compact, undo
from nbagent.runtime.contexts import CompactionResult
from nbagent.runtime.ports import TurnPorts
from nbagent.runtime.session import Session

NO_MEMORY = "memory is not in this version of the notebook"
NO_SKILLS = "skills are not in this version of the notebook"
MOVED = "The conversation has moved since this note was written, so nothing was changed; have it written again"
_log = logging.getLogger(__name__)
ALONE = (PreviewCompaction, Compact, Undo, Revert, Set, SetSkill)


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What a command did: a line (may be empty) and what the reply carries."""

    line: str = ""
    result: JsonObject | None = None
    waits: bool = False  # it was told to somebody who may hear it later, or not


Outcome: TypeAlias = Done | Coroutine[Any, Any, Done]


class PanelWork:
    """Does commands. All methods may raise UserError."""

    def __init__(
        self, agent: NotebookAgent, facts: PanelFacts, *, skills: SkillSource | None, memory: MemorySource | None
    ) -> None:
        self._agent, self._facts, self._skills, self._memory = agent, facts, skills, memory
        self._written: tuple[tuple[str, str], Done] | None = None  # the last preview, by base and focus

    def run(self, command: Command) -> Outcome:
        """Do `command`; one that calls the model returns a coroutine for the engine's loop."""
        match command:
            case Page():
                return self._page(command)
            case Cells():
                self._facts.refresh()
                rows = cells_of(self._facts.turns, command.cells)
                return Done(result=cells_result(rows, self._facts.state.tree.revision))
            case Search():
                return self._search(command)
            case Read():
                return self._read(command)
            case PreviewCompaction() | Compact():
                return self._compact(command)
            case Undo():
                return self._undo()
            case Revert():
                return Done(line=reverted_line(self._session(), command.turn))
            case Set():
                return self._set(command)
            case SetSkill():
                if self._skills is None:
                    raise UsageProblem(NO_SKILLS)
                return Done(line=self._skills.switch(command.skill, on=command.on))
            case Send():
                return Done(line=self._session().runner.agents.send(command.agent, command.text), waits=True)
            case StopAgent():
                return Done(line=self._session().runner.agents.stop(command.agent))
            case _:
                raise UsageProblem(f"{command.name} is not done here")

    def _session(self) -> Session:
        session = self._agent.opened
        if session is None:
            raise UsageProblem(NO_CONVERSATION)
        return session

    def _page(self, command: Page) -> Done:
        if command.of == "catalog":
            all_rows = matching(self._skills.rows() if self._skills is not None else (), command.text)
            self._facts.refresh()
            revision = self._facts.state.catalog.revision
        else:
            self._facts.refresh()
            all_rows = matching(self._facts.turns, command.text)
            revision = self._facts.state.tree.revision
        bounds = page_bounds(command.start, command.count, len(all_rows))
        rows = [all_rows[i] for i in bounds]
        return Done(
            result=page_result(command.of, rows, start=bounds.start, total=len(all_rows), revision=revision)
        )

    def _search(self, command: Search) -> Done:
        if self._memory is None:
            raise UsageProblem(NO_MEMORY)
        if not command.query.strip():
            return Done(result=search_result("", ()))
        found = self._memory.search(command.query, command.count)
        return Done(result=search_result(command.query, found.rows, found.note))

    def _read(self, command: Read) -> Done:
        if self._memory is None:
            raise UsageProblem(NO_MEMORY)
        part = self._memory.read(command.path, command.line)
        return Done(
            result=read_result(part.path, part.text, start_line=part.start_line, total_lines=part.total_lines)
        )

    async def _compact(self, command: PreviewCompaction | Compact) -> Done:
        dry_run = isinstance(command, PreviewCompaction)
        edited = command.note if isinstance(command, Compact) else None
        if edited is not None and not edited.strip():
            raise UsageProblem("the note is empty; write what the agent has to know, or cancel")
        ports = TurnPorts(kernel_id=self._agent.kernel_id)
        session = self._session()
        if isinstance(command, Compact) and command.base and command.base != _base(self._agent, session):
            raise UsageProblem(MOVED)
        if isinstance(command, PreviewCompaction) and not command.again and self._written is not None:
            of, preview = self._written
            if of == (_base(self._agent, session), command.focus):
                return preview  # it was paid for; who asked may have gone before it came
        text = edited.strip() if edited is not None else None
        made: CompactionResult = await compact(session, ports, focus=command.focus, edited=text, dry_run=dry_run)
        if not made.applied and made.loss is None:
            raise UsageProblem(f"Nothing was changed: {made.reason}.")
        report = compaction_report(made, dry_run=dry_run)
        sizes = f"{made.before_tokens:,} → {made.after_tokens:,} tokens"
        line = "" if dry_run else f"The conversation was compacted: {sizes}."
        base = _base(self._agent, session)
        done = Done(line=line, result=compaction_result(report, base))
        self._written = ((base, command.focus), done) if dry_run else None
        return done

    def _undo(self) -> Done:
        undo(self._session())
        used = self._session().occupancy().used_tokens
        return Done(line=f"The compaction is taken back: the context holds {used:,} tokens again.")

    def _set(self, command: Set) -> Done:
        if command.mode is not None and command.mode not in MODES:
            raise UsageProblem(f"unknown mode {command.mode!r}; the modes are: {', '.join(MODES)}")
        numbers = [
            f"{key}={value}"
            for key, value in (
                ("policy", command.policy), ("threshold", command.threshold), ("window", command.window_tokens)
            )
            if value is not None
        ]  # fmt: skip
        if numbers:
            set_numbers(self._agent, numbers)
        if command.mode is not None:
            self._agent.choose(mode=command.mode)
            self._agent.session()
        return Done(line=f"From the next turn on: {_set_words(command)}.")


def answered(command: Command, outcome: Callable[[], Any]) -> tuple[JsonObject, bool]:
    """Return the reply to a command that was done, and whether a second one follows; `outcome` gives it or raises."""
    try:
        done: Done = outcome()
    except concurrent.futures.CancelledError:
        return reply(command.id, "error", "Stopped; nothing was changed."), False
    except UserError as error:
        return reply(command.id, "error", one_line(str(error))), False
    except Exception as error:  # noqa: BLE001  told to who asked, and logged
        _log.warning("panel: %s failed", command.name, exc_info=True)
        line = f"{command.name} failed inside: {type(error).__name__}: {one_line(str(error))[:300]}"
        return reply(command.id, "error", line), False
    return reply(command.id, "queued" if done.waits else "ok", done.line, done.result), done.waits


def raised(error: Exception) -> Done:
    """Raise it, where an outcome is asked for."""
    raise error


def _set_words(command: Set) -> str:
    """Return what was set, and nothing else."""
    policy, mode, share, window = command.policy, command.mode, command.threshold, command.window_tokens
    words = [
        f"policy {policy}" if policy is not None else "",
        f"permissions {mode}" if mode is not None else "",
        (f"compaction at {share:.0%} of the window" if share else "no fixed threshold") if share is not None else "",
        f"a window of {window:,} tokens" if window is not None else "",
    ]
    return ", ".join(filter(None, words))


def _base(agent: NotebookAgent, session: Session) -> str:
    """Return a name for what a compaction would start from; another when the conversation or a setting of it moved."""
    settings = session.settings
    parts = (
        session.tree.leaf, session.model_name, settings.policy, settings.window_tokens, settings.context.provider,
        sorted(agent.numbers.items()),
    )  # fmt: skip
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
