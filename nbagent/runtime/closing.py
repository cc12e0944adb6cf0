"""Closing: what outlives a turn is let go of, on the loop it belongs to."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Iterator

from nbagent.models.model import Model
from nbagent.store.journal import Journal

CLOSE_S = 2.0


def close_models(models: Iterable[Model], loop: asyncio.AbstractEventLoop | None) -> None:
    """Close the connections of `models`, which were opened on `loop`; wait for it a moment, on another thread only."""
    if loop is None or loop.is_closed():
        return
    closing = _close(tuple(models))
    try:
        here: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
    except RuntimeError:
        here = None
    if loop.is_running():
        closed = asyncio.run_coroutine_threadsafe(closing, loop)
        if here is not loop:
            with contextlib.suppress(TimeoutError):
                closed.result(CLOSE_S)
    elif here is None:
        loop.run_until_complete(closing)
    else:
        closing.close()


async def _close(models: Iterable[Model]) -> None:
    for model in models:
        await model.close()


@contextlib.contextmanager
def closed_on_failure(journal: Journal) -> Iterator[None]:
    """Let go of `journal` when what makes it ready fails: else nothing in this kernel could open it again."""
    try:
        yield
    except BaseException:
        journal.close()
        raise
