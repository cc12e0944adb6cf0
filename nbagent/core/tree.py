"""SessionTree: the entries of a journal by id, and the paths through them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from nbagent.core.entries import Entry, LeafMoved, TurnEnd, TurnStart
from nbagent.core.errors import BrokenPath

LEAST_ID = 4  # characters of a turn's id that name it


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnNode:
    """One turn as it stands in the tree.

    `end` is the last TurnEnd (a resumed turn has several), None while it runs for the first time
    or after a crash. `last` is the entry written last that belongs to it. `current` says that
    its start is on the path to the leaf.
    """

    turn: str
    start: Entry
    body: TurnStart
    end: TurnEnd | None
    last: str
    current: bool


class SessionTree:
    """The conversation tree of one journal. The leaf is the entry added last."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._by_id: dict[str, Entry] = {}
        self._children: dict[str | None, list[str]] = {}
        self._leaf: str | None = None
        self._path: list[Entry] = []
        for entry in entries:
            self.add(entry)

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Entry]:
        return iter(tuple(self._by_id.values()))  # another thread may add one meanwhile

    def __contains__(self, entry_id: object) -> bool:
        return entry_id in self._by_id

    def __getitem__(self, entry_id: str) -> Entry:
        return self._by_id[entry_id]

    @property
    def leaf(self) -> str | None:
        """Id of the current leaf; None for an empty tree."""
        return self._leaf

    def add(self, entry: Entry) -> None:
        """Add `entry`, which becomes the leaf.

        Raises:
            BrokenPath: its id is taken, or its parent is not in the tree.
        """
        if entry.id in self._by_id:
            raise BrokenPath(f"entry id {entry.id!r} occurs twice")
        if entry.parent is not None and entry.parent not in self._by_id:
            raise BrokenPath(f"entry {entry.id!r} names the parent {entry.parent!r}, which is not there")
        self._by_id[entry.id] = entry
        self._children.setdefault(entry.parent, []).append(entry.id)
        if entry.parent == self._leaf:
            self._path.append(entry)
        else:
            self._path = self._walk(entry)
        self._leaf = entry.id

    def _walk(self, entry: Entry) -> list[Entry]:
        path = [entry]
        while entry.parent is not None:
            entry = self._by_id[entry.parent]
            path.append(entry)
        path.reverse()
        return path

    def path(self, leaf: str | None = None) -> list[Entry]:
        """Return the entries from the root to `leaf` (default: the current leaf).

        The caller must not change the list; the one to the current leaf grows as entries are added.
        """
        if leaf is None or leaf == self._leaf:
            return self._path
        return self._walk(self._by_id[leaf])

    def children(self, entry_id: str | None) -> tuple[str, ...]:
        """Return the ids of the entries whose parent is `entry_id`, in the order written; None asks for the roots."""
        return tuple(self._children.get(entry_id, ()))

    def turns(self) -> tuple[TurnNode, ...]:
        """Return every turn of the tree in the order written; those on the current path are marked.

        A turn owns what follows its start until another starts or the leaf is moved; so what a
        resumed turn adds after its end still belongs to it.
        """
        on_path = {e.id for e in self._path}
        starts: dict[str, tuple[Entry, TurnStart]] = {}
        ends: dict[str, TurnEnd] = {}
        last: dict[str, str] = {}
        owner: dict[str | None, str] = {}
        for entry in self:
            body = entry.body
            if isinstance(body, TurnStart):
                turn = body.turn
                starts[turn] = entry, body
                ends.pop(turn, None)
            elif entry.parent not in owner or isinstance(body, LeafMoved):
                continue
            else:
                turn = owner[entry.parent]
                if isinstance(body, TurnEnd):
                    ends[turn] = body
            owner[entry.id] = turn
            last[turn] = entry.id
        return tuple(
            TurnNode(turn=t, start=e, body=b, end=ends.get(t), last=last[t], current=e.id in on_path)
            for t, (e, b) in starts.items()
        )

    def turns_on_path(self) -> tuple[TurnNode, ...]:
        """Return the turns of the current path, oldest first."""
        return tuple(n for n in self.turns() if n.current)

    def turn(self, name: str) -> TurnNode | None:
        """Return the turn named: by id, by number on the path (1 first, -1 last), or by a unique start of an id.

        A start has at least four characters: `3` is a number, and `df` a variable.
        """
        nodes = self.turns()
        exact = [n for n in nodes if n.turn == name]
        if exact:
            return exact[0]
        number = int(name) if re.fullmatch(r"-?[0-9]{1,9}", name) else 0
        current = [n for n in nodes if n.current]
        index = number - 1 if number > 0 else len(current) + number
        if number and 0 <= index < len(current):
            return current[index]
        starts = [n for n in nodes if n.turn.startswith(name)] if len(name) >= LEAST_ID else []
        return starts[0] if len(starts) == 1 else None
