"""Compaction by hand, and taking one back: what `%context compact` and `%context undo` do to a session."""

from __future__ import annotations

from dataclasses import replace

from nbagent.core.entries import Entry, Restore, TurnStart
from nbagent.core.errors import UsageProblem
from nbagent.core.tree import SessionTree
from nbagent.core.view import ViewFold
from nbagent.runtime.contexts import CompactionResult, compact_by_hand, last_compaction
from nbagent.runtime.ports import TurnPorts
from nbagent.runtime.session import Session
from nbagent.runtime.turns import TurnRunner
from nbagent.runtime.writer import NoLog, SessionWriter


async def compact(
    session: Session, ports: TurnPorts, *, focus: str = "", edited: str | None = None, dry_run: bool = False
) -> CompactionResult:
    """Compact the conversation now.

    `focus` is what the person wants kept above all; `edited` is a note to install instead of asking for one. A
    dry run asks for the note and writes nothing.

    Raises:
        UsageProblem: there is no conversation yet, or a recording plays.
        MissingKey: a note is needed and no model can be called.
    """
    if session.cassette is not None:
        raise UsageProblem("a recording plays, which keeps its own compactions; compact in a live session")
    start = _start(session)
    named = await session.ready_model(session.model_name or start.model)
    if edited is None:
        named.model.check_ready()
    runner = session.runner
    runner.writer.recover_partial()
    runner.close_broken()
    if dry_run:
        runner = _scratch(runner)
    current = replace(start, policy=runner.settings.policy, model=named.name)
    engine = runner.engine(named, current, focus=focus, edited=edited)
    fold = ViewFold(runner.writer.tree.path())
    result = await runner.side_driver(named, ports, current).run(compact_by_hand(fold, engine))
    return replace(result, applied=result.applied and not dry_run)


def undo(session: Session) -> Entry:
    """Take the last compaction back; later turns stay. Returns the compaction that counts as absent now.

    Raises:
        UsageProblem: there is none, or what it gives back does not fit the window.
    """
    runner, tree = session.runner, session.tree
    found = last_compaction(tree.path())
    restored = ViewFold([*tree.path(), Entry("preview", tree.leaf, 0.0, Restore(cancels=found.id))]).view()
    start = _start(session)
    named = session.model(session.model_name or start.model)
    engine = runner.engine(named, start)
    size, window = engine.estimate(restored), runner.budget(named.facts).window_tokens
    if size > window:
        raise UsageProblem(
            f"the conversation before that compaction takes about {size:,} tokens and the window holds {window:,}; "
            "widen it with `%context set window=…` first"
        )
    runner.writer.write(Restore(cancels=found.id))
    return found


def _start(session: Session) -> TurnStart:
    start = ViewFold(session.tree.path()).view().turn
    if start is None:
        raise UsageProblem("there is no conversation yet; run a %%agent cell first")
    return start


def _scratch(runner: TurnRunner) -> TurnRunner:
    """Return a runner over a copy of the current path that writes nothing."""
    tree = SessionTree(runner.writer.tree.path())
    return replace(runner, writer=SessionWriter(NoLog(), tree, runner.writer.clock))
