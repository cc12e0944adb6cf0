"""A runner that writes nothing: what dry runs look with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nbagent.core.entries import Entry
from nbagent.core.tree import SessionTree
from nbagent.runtime.turns import TurnRunner
from nbagent.runtime.writer import NoLog, SessionWriter
from nbagent.store.artifacts import UnwrittenArtifacts


def scratch(runner: TurnRunner, path: Sequence[Entry]) -> TurnRunner:
    """Return a runner over a copy of `path` that writes to no journal and to no file."""
    writer = SessionWriter(NoLog(), SessionTree(path), runner.writer.clock)
    return replace(runner, writer=writer, artifacts=UnwrittenArtifacts(runner.artifacts))
