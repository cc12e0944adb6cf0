"""Model: what the driver needs of a provider, and the watcher that sees a reply arrive."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from nbagent.core.messages import Block, Request, Response
from nbagent.models.reply import ReplyBuilder


def _ignore_text(index: int, text: str) -> None:
    return


def _ignore_blocks(blocks: tuple[Block, ...]) -> None:
    return


def _ignore_wait(reason: str, seconds: float, attempt: int) -> None:
    return


@dataclass(slots=True, kw_only=True)
class Watch:
    """Sees a reply arrive.

    `reply` is filled while the stream runs: when the call is cancelled, what came is in it.
    `on_block` is called with all finished blocks when one more is finished, unless the reply ended with it: once
    for all that arrive together, before anything more is waited for.
    """

    reply: ReplyBuilder
    on_text: Callable[[int, str], None] = _ignore_text
    on_thinking: Callable[[int, str], None] = _ignore_text
    on_block: Callable[[tuple[Block, ...]], None] = _ignore_blocks
    on_wait: Callable[[str, float, int], None] = _ignore_wait


class Model(Protocol):
    """One model behind one provider.

    `call` returns a Response also for failures (its `cut` and `error` say which); it raises
    only CancelledError, and then `watch.reply` holds what had come.
    """

    async def call(self, request: Request, watch: Watch) -> Response:
        """Send `request` and return the reply."""
        ...

    def check_ready(self) -> None:
        """Raise MissingKey when a call could not even be tried."""
        ...

    async def close(self) -> None:
        """Release connections."""
        ...
