"""The machine-made part of a compaction's note: what must not get lost, taken from the whole path by pattern alone.

Rebuilt at every compaction from the entries, never from the note before, so that nothing fades from note to note.
What binds comes first, word for word and a line each (the person's rules, open requests, errors, decisions); the
rest of the room goes to the words most likely needed again, and to pointers. What the kept part shows is left out.
No model and no clock: the same entries give the same note.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Final

from nbagent.context.anchor_index import AnchorIndex, Reader
from nbagent.context.anchors import AnchorKind, Key, is_rule
from nbagent.context.archive import pointer
from nbagent.context.extract_rank import Standing, Stretch, call_labels, contained_value, stretches, word_values
from nbagent.context.tail import last_state
from nbagent.core.entries import AssistantMessage, Compaction, Entry, Pruning, Restore, ToolResult
from nbagent.core.messages import tool_calls

Count = Callable[[str], int]

SENTENCE_SHARE: Final = 0.6  # of the room, at most, for what binds
KERNEL_SHARE: Final = 0.1  # for variables and cells
FIXED_SHARE: Final = 0.06  # for errors that are over
# Of what is left after these, and room for one or two where that is little. Replay: a fifth costs 1 % more, and twice
# as many names have to be fetched.
POINTER_SHARE: Final = 0.1
FIRST_POINTERS_SHARE: Final = 0.2
FIRST_POINTERS_TOKENS: Final = 80
POINTER_TOKENS: Final = 20  # of a pointer without its label
NOTEBOOK_TOOL: Final = "notebook"
CELL_CHARS: Final = 60
LEAST_POINTER_TOKENS: Final = 12
CHARS_PER_TOKEN: Final = 3  # of names and paths, about
FRAME_CHARS: Final = 4  # what a comma and a space cost, in characters
MOST_CHARS_PER_TOKEN: Final = 12  # a longer line does not fit, without counting
MOST_FIXED: Final = 5
MOST_PLACES: Final = 12  # line numbers and other numbers of errors that are the same
_VARYING: Final = re.compile(r"'[^'\n]{1,80}'|\"[^\"\n]{1,80}\"|\d+")

RULES = "Rules of the person, word for word"
REQUESTS = "Open requests of the person"
DECISIONS = "Decisions"
ERRORS = "Errors that nothing has repaired yet"
FIXED = "Errors that are over, and what came before the call that worked"
VARIABLES = "Variables in the kernel"
CELLS = "Cells of the notebook that were looked at or changed"
PATHS = "Files and paths"
URLS = "URLs"
NAMES = "Identifiers, columns and values"
POINTERS = "Where the rest is"
_SECTION: Final[Mapping[AnchorKind, str]] = {
    "path": PATHS, "file": PATHS, "url": URLS, "id": NAMES, "num": NAMES, "ident": NAMES, "column": NAMES,
}  # fmt: skip
_ORDER: Final = (
    RULES, REQUESTS, DECISIONS, ERRORS, FIXED, VARIABLES, CELLS, PATHS, URLS, NAMES, POINTERS,
)  # fmt: skip


def machine_note(replaced: Sequence[Entry], kept: Sequence[Entry], limit_tokens: int, count: Count) -> str:
    """Return what of `replaced` must not get lost, in at most `limit_tokens` as `count` estimates; empty if nothing.

    `replaced` and `kept` together are the path from its root.
    """
    return note_of([*replaced, *kept], len(replaced), limit_tokens, count=count)


def note_of(
    path: Sequence[Entry], cut: int, limit_tokens: int, *, count: Count, index: AnchorIndex | None = None
) -> str:
    """Return the same for a path that is kept from position `cut` on. `index`, if given, holds at least `path`."""
    index = index if index is not None else AnchorIndex(path)
    for share in (1.0, 0.9, 0.8, 0.6, 0.4):  # sums of estimates differ from the estimate of the sum
        text = _Extract(path, cut, int(share * limit_tokens), count=count, index=index).text()
        if count(text) <= limit_tokens:
            return text
    return ""


class MachineNotes:
    """Writes machine notes of one conversation, or of several that share entries, and remembers what it read.

    The same text as `machine_note`: an entry that was seen is not read again, a line not counted again.
    """

    def __init__(self, count: Count) -> None:
        self._count = count
        self._counted: dict[str, int] = {}
        self._reader = Reader()
        self._index = AnchorIndex(reader=self._reader)

    def __call__(self, replaced: Sequence[Entry], kept: Sequence[Entry], limit_tokens: int) -> str:
        """Return what of `replaced` must not get lost; see `machine_note`."""
        path = [*replaced, *kept]
        return note_of(path, len(replaced), limit_tokens, count=self._tokens, index=self._index_of(path))

    def _index_of(self, path: Sequence[Entry]) -> AnchorIndex:
        """Return an index of exactly `path`: the last one goes on where the path does."""
        known = len(self._index)
        goes_on = known <= len(path) and all(
            entry.id == id and entry.body is body
            for entry, id, body in zip(path, self._index.ids, self._index.bodies, strict=False)
        )
        if not goes_on:
            self._index, known = AnchorIndex(reader=self._reader), 0
        self._index.extend(path[known:])
        return self._index

    def _tokens(self, text: str) -> int:
        known = self._counted.get(text)
        if known is None:
            known = self._counted[text] = self._count(text)
        return known


@dataclass(slots=True)
class _Sections:
    """Lines under their titles, and how much room they take."""

    room: float
    count: Count
    lines: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    said: Standing = field(default_factory=Standing)

    def add(self, title: str, line: str, order: int, *, room: float | None = None) -> float:
        """Add a line if it fits; returns what it takes, 0 when it does not fit or stands there already."""
        if self.said.has(line):
            return 0.0
        if len(line) > MOST_CHARS_PER_TOKEN * self.room:
            return 0.0
        takes = self.count(line) + 2.0 + (0 if title in self.lines else self.count(title) + 4)
        if takes > min(self.room, self.room if room is None else room):
            return 0.0
        self.room -= takes
        self.said.add(line)
        self.lines.setdefault(title, []).append((order, line))
        return takes


class _Extract:
    def __init__(self, path: Sequence[Entry], cut: int, limit: int, *, count: Count, index: AnchorIndex) -> None:
        self.path, self.cut, self.index, self.count = path, cut, index, count
        self.end = len(path)
        self.limit = limit
        self.seen = _visible(path, cut, index)
        self.out = _Sections(room=float(limit), count=count)

    def text(self) -> str:
        """Return the note."""
        self._sentences()
        self._kernel()
        self._fixed()
        first = min(FIRST_POINTERS_TOKENS, self.out.room * FIRST_POINTERS_SHARE)
        pointers = max(self.out.room * POINTER_SHARE, first)
        self.out.room -= pointers
        values = self._words()
        self.out.room += pointers
        self._pointers(values)
        return "\n".join(self._render(title) for title in _ORDER if self.out.lines.get(title))

    def _render(self, title: str) -> str:
        lines = self.out.lines[title]
        if title in (PATHS, NAMES):
            groups: dict[str, list[str]] = {}
            for line in sorted(line for _, line in lines):
                groups.setdefault(_top(line), []).append(line)
            return f"## {title}\n" + "\n".join(", ".join(group) for group in groups.values())
        return f"## {title}\n" + "\n".join(f"- {line}" for _, line in sorted(lines))

    # ------------------------------------------------------------ what binds

    def _sentences(self) -> None:
        """Standing sentences, newest first as long as there is room: rules, open requests, errors, decisions."""
        room = self.out.room * SENTENCE_SHARE
        by_title: dict[str, list[tuple[int, str]]] = {}
        for key, position in self.index.sentences(self.end).items():
            if position < self.cut and key[1] not in self.seen and self.index.stands(key, position, self.end):
                by_title.setdefault(_title(key), []).append((position, key[1]))
        by_title[ERRORS] = one_of_a_kind(by_title.get(ERRORS, []))
        for title in (RULES, REQUESTS, ERRORS, DECISIONS):
            for position, text in reversed(by_title.get(title, [])):
                room -= self.out.add(title, text, position, room=room)

    def _fixed(self) -> None:
        """The newest errors that are over, with the last call between the failure and the success."""
        room = self.limit * FIXED_SHARE
        names = call_labels(self.path[: self.cut])
        done = [
            (i, names.get(e.body.call_id, e.body.name))
            for i, e in enumerate(self.path[: self.cut])
            if isinstance(e.body, ToolResult)
        ]
        over: dict[str, tuple[int, str]] = {}
        for key, position in reversed(list(self.index.sentences(self.cut).items())):
            if key[0] == "error" and not self.index.stands(key, position, self.end):
                over.setdefault(_VARYING.sub("#", key[1]), (position, key[1]))
        for position, line in list(over.values())[:MOST_FIXED]:
            room -= self.out.add(FIXED, f"{line} (then: {_what_fixed(done, position)})", position, room=room)

    # ------------------------------------------------------------ the kernel and the notebook

    def _kernel(self) -> None:
        room = self.limit * KERNEL_SHARE
        variables = last_state(self.path).get("variables")
        if isinstance(variables, Mapping):
            for order, (name, known) in enumerate(variables.items()):
                about = " ".join(str(k) for k in list(known)[:2] if k) if isinstance(known, list | tuple) else ""
                room -= self.out.add(VARIABLES, f"{name} ({about})" if about else str(name), order, room=room)
        cells = dict.fromkeys(reversed(list(_cells_touched(self.path[: self.cut]))))
        for order, line in enumerate(cells):
            room -= self.out.add(CELLS, line, -order, room=room)

    # ------------------------------------------------------------ words

    def _words(self) -> dict[Key, float]:
        """Add words by worth for their length; returns the worth of those that found no room."""
        seen = Standing(self.seen)
        values = {k: v for k, v in word_values(self.index, self.end).items() if not seen.has(k[1])}
        whole = {key: value + contained_value(key, values) for key, value in values.items()}
        ranked = sorted(values, key=lambda k: (-whole[k] / (FRAME_CHARS + len(k[1])), k))
        for key in ranked:
            if self.out.room < 4:
                break
            self.out.add(_SECTION[key[0]], key[1], 0)
        return {k: v for k, v in values.items() if not self.out.said.has(k[1])}

    # ------------------------------------------------------------ pointers

    def _pointers(self, values: Mapping[Key, float]) -> None:
        """Add pointers to what holds most of what found no room; those with the same label share a line."""
        missing = dict(values)
        lines: dict[str, list[tuple[Stretch, str]]] = {}
        left = [s for s in stretches(self.path, self.index, self.cut, self.count) if s.label]
        heap = [(-self._worth(s, missing), -s.first, s) for s in left]
        heapify(heap)
        while heap and self.out.room > LEAST_POINTER_TOKENS:
            _, order, best = heappop(heap)
            worth = self._worth(best, missing)
            if heap and -worth > heap[0][0]:  # what it holds was pointed to meanwhile
                heappush(heap, (-worth, order, best))
            elif worth <= 0:
                break
            elif self._point(best, missing, lines):
                for key in self._held(best):
                    missing.pop(key, None)
        for label, line in lines.items():
            backs = ", ".join(back for _, back in sorted(line))
            self.out.lines.setdefault(POINTERS, []).append((line[0][0].first, f"{label}: {backs}"))

    def _point(
        self, stretch: Stretch, missing: Mapping[Key, float], lines: dict[str, list[tuple[Stretch, str]]]
    ) -> bool:
        """Add a pointer to the line with its label if there is room."""
        back = pointer(self.index.ids[stretch.first], self.index.ids[stretch.last], part=stretch.part)
        if stretch.part and (here := [k for k in self._held(stretch) if k in missing]):
            back += f" ({min(here, key=lambda k: (-missing[k], k))[1]})"  # which of the parts to read
        takes = self.count(back) + 1.0 + (0 if lines else self.count(POINTERS) + 4)
        takes += 0 if stretch.label in lines else self.count(stretch.label) + 2
        if takes > self.out.room:
            return False
        self.out.room -= takes
        lines.setdefault(stretch.label, []).append((stretch, back))
        return True

    def _held(self, stretch: Stretch) -> Iterable[Key]:
        if stretch.part:
            return self.index.parts(stretch.first)[stretch.part - 1]
        return {k: None for p in range(stretch.first, stretch.last + 1) for k in self.index.anchors[p]}

    def _worth(self, stretch: Stretch, missing: Mapping[Key, float]) -> float:
        """Return what a stretch holds of what is missing, for about each token of its line."""
        held = sum(missing.get(key, 0.0) for key in self._held(stretch))
        return held / (POINTER_TOKENS + len(stretch.label) / CHARS_PER_TOKEN)


def one_of_a_kind(errors: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
    """Return error lines that differ in numbers and quoted names only as one: the newest, with what the others name.

    A compiler that is run ten times says the same thing of ten names at a hundred places.
    """
    groups: dict[str, list[tuple[int, str]]] = {}
    for position, line in errors:
        groups.setdefault(_VARYING.sub("#", line), []).append((position, line))
    merged = []
    for group in groups.values():
        position, newest = group[-1]
        said = set(_VARYING.findall(newest))
        others = dict.fromkeys(
            part for _, line in reversed(group[:-1]) for part in _VARYING.findall(line) if part not in said
        )
        names = [o for o in others if not o.isdigit()]
        places = [o for o in others if o.isdigit()][:MOST_PLACES]
        merged.append((position, f"{newest} (also {', '.join([*names, *places])})" if others else newest))
    return sorted(merged)


def _cells_touched(path: Iterable[Entry]) -> Iterator[str]:
    for entry in path:
        for call in tool_calls(entry.body.blocks) if isinstance(entry.body, AssistantMessage) else ():
            if call.name == NOTEBOOK_TOOL and isinstance(call.input, Mapping):
                cells = call.input.get("cells") or ()
                named = ", ".join(map(str, cells)) if isinstance(cells, list | tuple) else str(cells)
                source = str(call.input.get("source") or "").strip().partition("\n")[0][:CELL_CHARS]
                yield " ".join(filter(None, (str(call.input.get("action", "")), named, source)))


def _what_fixed(done: Sequence[tuple[int, str]], failed_at: int) -> str:
    """Return the last call between the one that failed and the next of the same kind, else the one after it."""
    failed = next((name for at, name in done if at == failed_at), "")
    since = [name for at, name in done if at > failed_at]
    between = since[: since.index(failed)] if failed in since else since[:1]
    return between[-1] if between else failed


def _top(word: str) -> str:
    """Return the first folder of a path; words without one share a line."""
    return word.strip("/").partition("/")[0] if "/" in word else ""


def _title(key: Key) -> str:
    if key[0] == "constraint":
        return RULES if is_rule(key[1]) else REQUESTS
    return ERRORS if key[0] == "error" else DECISIONS


def _visible(path: Sequence[Entry], cut: int, index: AnchorIndex) -> str:
    """Return the text that stays in sight: the kept entries that no pruning in force replaces."""
    cancelled = {e.body.cancels for e in path if isinstance(e.body, Restore)}
    pruned = {
        p for e in path if isinstance(e.body, Pruning) and e.id not in cancelled for p in e.body.placeholders
    }  # fmt: skip
    kept: Iterable[int] = range(cut, len(path))
    return "\n".join(index.said[p].text for p in kept if path[p].id not in pruned and not _is_note(path[p]))


def _is_note(entry: Entry) -> bool:
    return isinstance(entry.body, Compaction)
