"""SessionWriter: the one hand that writes entries: stamped, scrubbed, to the journal and the tree."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from nbagent.core.entries import AssistantMessage, Body, Entry, LeafMoved, TurnEnd, UsageReported
from nbagent.core.messages import Block
from nbagent.core.tree import SessionTree
from nbagent.runtime.clock import Clock

CRASHED = "the kernel ended while it was being written"


class Log(Protocol):
    """Where lines go: a Journal, or nothing for a conversation that is not kept."""

    def append(self, entry: Entry) -> None:
        """Write one entry."""
        ...

    def sync(self) -> None:
        """Make what was written durable."""
        ...

    def save_partial(self, content: Any) -> None:
        """Keep the finished blocks of a running reply."""
        ...

    def load_partial(self) -> Any:
        """Return what was kept, None when there is none."""
        ...

    def clear_partial(self) -> None:
        """Forget it."""
        ...


class NoLog:
    """A log that keeps nothing: for replay and dry runs."""

    def append(self, entry: Entry) -> None:
        """Keep nothing."""

    def sync(self) -> None:
        """Nothing to do."""

    def save_partial(self, content: Any) -> None:
        """Keep nothing."""

    def load_partial(self) -> Any:
        """Return nothing."""
        return None

    def clear_partial(self) -> None:
        """Nothing to do."""


class SessionWriter:
    """Writes at the leaf of `tree`. Every write holds the lock, so that other threads may write too.

    `paid` is told of every measured call that cost something: when (UTC seconds), US dollars.
    """

    def __init__(
        self, log: Log, tree: SessionTree, clock: Clock, scrub: Callable[[Entry], Entry] = lambda entry: entry,
        paid: Callable[[float, float], None] = lambda at, usd: None,
    ) -> None:  # fmt: skip
        self.log = log
        self._paid = paid
        self.tree = tree
        self.clock = clock
        self._scrub = scrub
        self._lock = threading.RLock()
        self._unsaved: dict[str, Any] | None = None  # a partial that the disk did not take

    def held(self) -> AbstractContextManager[object]:
        """Keep others from writing while the tree is read on another thread."""
        return self._lock

    def write(self, body: Body) -> Entry:
        """Append `body` at the leaf; returns the entry as it stands in the journal (secrets replaced).

        Raises:
            JournalUnwritable: it could not be written; nothing has changed.
        """
        with self._lock:
            return self._put(self.tree.leaf, body)

    def move_leaf(self, target: str | None, why: str) -> Entry | None:
        """Let the conversation go on from `target` (None: a new root). Returns None when it is there already."""
        with self._lock:
            if self.tree.leaf == target:
                return None
            return self._put(target, LeafMoved(why=why))

    def _put(self, parent: str | None, body: Body) -> Entry:
        entry = self._scrub(Entry(self.clock.new_id(), parent, self.clock.now(), body))
        self.log.append(entry)
        self._unsaved = None  # it belonged to the place after the newest entry
        self.tree.add(entry)
        if isinstance(body, TurnEnd):
            self.log.sync()
        elif isinstance(body, UsageReported) and body.cost_usd > 0:
            self._paid(entry.at, body.cost_usd)
        return entry

    def size_bytes(self) -> int:
        """Return how large the journal is on disk; 0 for one that is not kept."""
        path: Path | None = getattr(self.log, "path", None)
        try:
            return path.stat().st_size if path is not None else 0
        except OSError:
            return 0

    def save_partial(self, blocks: tuple[Block, ...], model: str, step: int) -> None:
        """Keep the finished blocks of a reply that is still arriving.

        Raises:
            JournalUnwritable: the disk does not take them; they are kept as long as this process lives.
        """
        with self._lock:
            self._unsaved = {"blocks": list(blocks), "model": model, "step": step}
            self.log.save_partial(self._unsaved)
            self._unsaved = None

    def clear_partial(self) -> None:
        """Forget the kept blocks: they are about to become an entry."""
        self.log.clear_partial()

    def recover_partial(self) -> Entry | None:
        """Write what a crash or a full disk left of a reply as an entry of its own, marked; None if nothing."""
        with self._lock:
            kept = self._unsaved or self.log.load_partial()
            if not isinstance(kept, dict) or not kept.get("blocks"):
                return None
            entry = self._put(
                self.tree.leaf,
                AssistantMessage(
                    blocks=tuple(kept["blocks"]), stop_reason=None, model=str(kept.get("model", "")),
                    step=int(kept.get("step", 0)), cut=CRASHED,
                ),
            )  # fmt: skip
            self.log.clear_partial()
            return entry
