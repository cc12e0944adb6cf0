"""What a turn would send, made without sending or writing anything."""

from __future__ import annotations

from collections.abc import Sequence

from nbagent.core.entries import Body, Entry, Snapshot, TurnStart, UserMessage
from nbagent.core.messages import Block, Request
from nbagent.core.view import ViewFold
from nbagent.models.registry import NamedModel
from nbagent.runtime.turns import REPLY_TOKENS, TurnRunner


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
