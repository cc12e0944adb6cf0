"""What a turn would send, made without sending or writing anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nbagent.core.entries import Body, Entry, Snapshot, TurnStart, UserMessage
from nbagent.core.messages import Block, Request
from nbagent.core.view import ViewFold, build_view
from nbagent.models.registry import NamedModel
from nbagent.runtime.matching import CellKey
from nbagent.runtime.ports import TurnOptions, TurnPorts
from nbagent.runtime.prompting import asked
from nbagent.runtime.scratch import scratch
from nbagent.runtime.session import Session
from nbagent.runtime.turns import REPLY_TOKENS, TurnRunner


async def preview_turn(
    session: Session, prompt: str, cell: CellKey, options: TurnOptions, ports: TurnPorts
) -> Request:
    """Return what `Session.send` would send first; nothing is sent or written.

    In replay nothing is known of the next turn but its past: no snapshot is made.
    """
    _, leaf = session.place_of(cell, options)
    path = session.tree.path(leaf) if leaf is not None else []
    runner, last = scratch(session.runner, path), build_view(path).turn
    name = options.model or session.current_model(path)
    if session.cassette is not None and last is not None:
        named = NamedModel(name=name, model=session.model().model, facts=session.facts_of(name), source="recorded")
        start, snapshot = replace(last, turn="preview"), None
    else:
        named = session.model(name)
        start = runner.start_of("preview", path, named, options, cell)
        snapshot = await runner.snapshot(path, ports, start.masked_tools, named.facts)
    given = await asked(runner, prompt, options, named, ports, start, preview=True)
    return preview_request(runner, named, path, start=start, snapshot=snapshot, prompt=given.blocks if prompt else ())


def preview_request(
    runner: TurnRunner, named: NamedModel, path: Sequence[Entry], *, start: TurnStart, snapshot: Snapshot | None,
    prompt: tuple[Block, ...],
) -> Request:  # fmt: skip
    """Return the first request of the turn that `start`, `snapshot` and `prompt` would begin after `path`."""
    fold = ViewFold(path)
    parent = path[-1].id if path else None
    bodies: list[Body] = [start, *([snapshot] if snapshot else []), *([UserMessage(blocks=prompt)] if prompt else [])]
    for number, body in enumerate(bodies):
        entry = Entry(f"preview-{number}", parent, 0.0, body)
        fold.add(entry)
        parent = entry.id
    return runner.request(fold.view(), start, REPLY_TOKENS, named)
