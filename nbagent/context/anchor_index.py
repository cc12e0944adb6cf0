"""AnchorIndex: where on a path each anchor was written and shown, which are needed later, which still stand."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from nbagent.context.anchors import SENTENCES, WEIGHTS, Extractor, Key, Said, is_rule, said
from nbagent.context.archive import Archive, parts_of
from nbagent.core.entries import AssistantMessage, Body, Entry, ToolResult, TurnEnd, TurnStart
from nbagent.core.messages import canonical, tool_calls
from nbagent.core.ranking import Words

MOST_USES: Final = 3  # later steps that count towards the weight of an anchor; section 3.2 of the report
_SUBJECTS: Final = ("path", "file_path", "command", "code", "pattern")  # the argument that tells calls apart
_NEVER: Final = 1 << 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """An anchor that is used again: its weight, and the position of the entry that uses it first."""

    weight: int
    position: int


class Reader:
    """Reads bodies of entries once, also for several indexes: their text, their anchors, those of their parts."""

    def __init__(self) -> None:
        self.words = Words()
        self._extractor = Extractor()
        self._read: dict[int, tuple[Body, Said, tuple[Key, ...]]] = {}  # by identity of the body
        self._parts: dict[int, list[tuple[Key, ...]]] = {}

    def read(self, entry: Entry) -> tuple[Said, tuple[Key, ...]]:
        """Return text and anchors of an entry."""
        known = self._read.get(id(entry.body))
        if known is None:
            spoken = said(entry.body)
            known = self._read[id(entry.body)] = (entry.body, spoken, self._extractor.entry(entry, spoken))
        return known[1], known[2]

    def parts(self, body: Body) -> list[tuple[Key, ...]]:
        """Return the anchors in each part of a body that was read."""
        if id(body) not in self._parts:
            _, spoken, keys = self._read[id(body)]
            known = set(keys)
            found = [tuple(k for k in self._extractor.words(t) if k in known) for t in parts_of(spoken.text)]
            self._parts[id(body)] = found
        return self._parts[id(body)]


class AnchorIndex:
    """The anchors of a path, by position. Grows with the path; each entry is read once."""

    def __init__(self, path: Iterable[Entry] = (), *, reader: Reader | None = None) -> None:
        self._reader = reader or Reader()
        self.words = self._reader.words
        self.bodies: list[Body] = []
        self._archive = Archive(words=self.words)
        self.ids: list[str] = []
        self.positions: dict[str, int] = {}
        self.said: list[Said] = []
        self.anchors: list[tuple[Key, ...]] = []
        self.steps: list[int] = []  # model replies up to here
        self._authored: dict[Key, list[int]] = {}
        self._shown: dict[Key, list[int]] = {}
        self._turn_of: list[int] = []
        self._answered_at: dict[int, int] = {}  # turn -> position of its completed end
        self._subjects: dict[str, str] = {}  # call id -> tool and subject
        self._subject_of: dict[int, str] = {}  # position of a result -> the same
        self._succeeded: dict[str, list[int]] = {}
        self.extend(path)

    def __len__(self) -> int:
        return len(self.ids)

    def archive(self) -> Archive:
        """Return the same entries as something to search; brought up to date at each call."""
        for position in range(len(self._archive), len(self.ids)):
            self._archive.add(self.ids[position], self.said[position].text)
        return self._archive

    def extend(self, entries: Iterable[Entry]) -> None:
        """Add what came on the path since."""
        for entry in entries:
            position = len(self.ids)
            spoken, keys = self._reader.read(entry)
            self.ids.append(entry.id)
            self.bodies.append(entry.body)
            self.positions[entry.id] = position
            self.said.append(spoken)
            self.anchors.append(keys)
            is_reply = isinstance(entry.body, AssistantMessage)
            self.steps.append((self.steps[-1] if self.steps else 0) + is_reply)
            is_start = isinstance(entry.body, TurnStart)
            self._turn_of.append((self._turn_of[-1] if self._turn_of else 0) + is_start)
            where = self._shown if spoken.author == "shown" else self._authored
            for key in keys:
                where.setdefault(key, []).append(position)
            self._follow(position, entry)

    def _follow(self, position: int, entry: Entry) -> None:
        """Note what answers a request, and what repairs an error."""
        body = entry.body
        if isinstance(body, TurnEnd) and body.outcome == "completed":
            self._answered_at.setdefault(self._turn_of[position], position)
        elif isinstance(body, AssistantMessage):
            for call in tool_calls(body.blocks):
                self._subjects[call.id] = f"{call.name} {_subject(call.input)}"
        elif isinstance(body, ToolResult):
            subject = self._subjects.get(body.call_id, body.name)
            self._subject_of[position] = subject
            if body.status == "ok" and not any(kind == "error" for kind, _ in self.anchors[position]):
                self._succeeded.setdefault(subject, []).append(position)

    def parts(self, position: int) -> list[tuple[Key, ...]]:
        """Return the anchors in each part of a long entry that a pointer may lead to; worked out once."""
        return self._reader.parts(self.bodies[position])

    def keys(self, cut: int) -> list[Key]:
        """Return every anchor seen before position `cut`, in the order of first mention."""
        return list(dict.fromkeys(key for keys in self.anchors[:cut] for key in keys))

    def occurrences(self, key: Key, cut: int) -> list[int]:
        """Return the positions before `cut` that hold `key` as an anchor, in order."""
        both = sorted(self._authored.get(key, []) + self._shown.get(key, []))
        return both[: bisect_left(both, cut)]

    def authored_steps(self, key: Key, cut: int) -> int:
        """Return in how many steps before `cut` somebody wrote `key`."""
        return len({self.steps[p] for p in self._authored.get(key, ()) if p < cut})

    def needed(self, cut: int) -> dict[Key, Need]:
        """Return the anchors seen before `cut` whose next mention is written by somebody, before anything shows them.

        The weight is that of the kind, times the number of later steps that use it, at most 3.
        """
        found: dict[Key, Need] = {}
        for key, written in self._authored.items():
            if key[0] in SENTENCES or written[-1] < cut:
                continue
            shown = self._shown.get(key, [])
            if min(written[0], shown[0] if shown else _NEVER) >= cut:
                continue
            next_written, next_shown = bisect_left(written, cut), bisect_left(shown, cut)
            if next_shown < len(shown) and shown[next_shown] < written[next_written]:
                continue
            uses = len({self.steps[p] for p in written[next_written:]})
            found[key] = Need(weight=WEIGHTS[key[0]] * min(MOST_USES, uses), position=written[next_written])
        return found

    def sentences(self, cut: int) -> Mapping[Key, int]:
        """Return constraints, decisions and errors seen before `cut`, with the position of their last mention."""
        return {
            key: position for position in range(cut) for key in self.anchors[position] if key[0] in SENTENCES
        }  # fmt: skip

    def stands(self, key: Key, position: int, cut: int) -> bool:
        """Tell whether the sentence mentioned last at `position` still binds at `cut`.

        A plain request is over when its turn was completed, an error when the same tool succeeded on the
        same subject since. Rules and decisions stand.
        """
        if key[0] == "constraint":
            ended = self._answered_at.get(self._turn_of[position], _NEVER)
            return is_rule(key[1]) or ended >= cut
        if key[0] == "error":
            since = self._succeeded.get(self._subject_of.get(position, ""), [])
            later = bisect_left(since, position)
            return later == len(since) or since[later] >= cut
        return True

    def request_before(self, cut: int) -> str:
        """Return the person's last words before `cut`."""
        return next((s.text for s in reversed(self.said[:cut]) if s.author == "person"), "")

    def request_after(self, cut: int) -> str | None:
        """Return the person's next words from `cut` on; None when there are none."""
        return next((s.text for s in self.said[cut:] if s.author == "person"), None)


def _subject(arguments: object) -> str:
    if not isinstance(arguments, Mapping):
        return ""
    named = [arguments[name] for name in _SUBJECTS if name in arguments]
    return str(named[0]) if named else canonical(dict(arguments))
