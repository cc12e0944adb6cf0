"""What is worth its place in a machine-made note: anchors that are likely needed again, pointers to the rest.

The likelihoods are shares measured on recorded sessions (`docs/compaction-results.md`): of the anchors that had left
the newest tenth of the window, how many somebody later wrote before anything showed them again.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from nbagent.context.anchor_index import AnchorIndex
from nbagent.context.anchors import SENTENCES, WEIGHTS, AnchorKind, Key
from nbagent.context.archive import parts_of
from nbagent.context.moves import label_of
from nbagent.core.entries import AssistantMessage, Entry, ToolResult, UserMessage
from nbagent.core.messages import joined_text, tool_calls

# Relative to an identifier. Measured: file names 32 %, paths 8 %, identifiers 4 %, numbers 0.5 % (coding) to 7 % and
# ids 10 % (customer service); the weight of the metric is multiplied in.
LIKELY: Final[Mapping[AnchorKind, float]] = {
    "file": 3.0, "path": 1.5, "id": 1.5, "ident": 1.5, "column": 1.5, "num": 0.4, "url": 0.5,
}  # fmt: skip
ONLY_SHOWN: Final = 0.15  # measured: 0.9 % against 7.4 % of what somebody wrote once
# A listing beside a file that somebody worked on; measured: 4 % (coding) to 31 % against 0.2 % to 2 % of other folders.
SHOWN_NEARBY: Final = 1.5
SHOWN_ELSEWHERE: Final = 0.08
ABSOLUTE: Final = ("/", "~")
WRITTEN_AGAIN: Final = 1.6  # in two steps or more; measured: 7.6 % to 13.5 %
BY_PERSON: Final = 3.0  # measured: 17 % against 5 %, 52 % against 6 %
FADING_STEPS: Final = 80.0  # measured: a third is left after 80 to 160 model replies

STRETCH_TOKENS: Final = 1_900  # one retrieval may bring 2,000 (DECISIONS 27); less the error of the estimate
LABEL_CHARS: Final = 140
_WORD: Final = re.compile(r"\w+")
_FOLDERS: Final = re.compile(r"(?<![\w.])/?(?:[\w.@+-]+/)+(?=[\w.@+-]+/[\w.@+-]+/[\w.@+-])")  # all but the last two
CALL_CHARS: Final = 70  # of a label, for one call


def word_values(index: AnchorIndex, cut: int) -> dict[Key, float]:
    """Return how much each word-like anchor before position `cut` is worth: weight times likelihood of need."""
    now = index.steps[cut - 1] if cut else 0
    keys = [k for k in index.keys(cut) if k[0] not in SENTENCES]
    folders = {_folder(k) for k in keys if k[0] == "path" and index.authored_steps(k, cut)}
    return {key: _value(index, key, cut, now, folders) for key in keys}


def _folder(key: Key) -> str:
    return key[1].rpartition("/")[0]


def _value(index: AnchorIndex, key: Key, cut: int, now: int, folders: Collection[str]) -> float:
    where = index.occurrences(key, cut)
    steps = index.authored_steps(key, cut)
    value = WEIGHTS[key[0]] * LIKELY[key[0]] * math.exp((index.steps[where[-1]] - now) / FADING_STEPS)
    if any(index.said[p].author == "person" for p in where):
        return value * BY_PERSON
    if steps:
        return value * (WRITTEN_AGAIN if steps > 1 else 1.0)
    if key[0] == "path" and key[1].startswith(ABSOLUTE):
        return value * (SHOWN_NEARBY if _folder(key) in folders else SHOWN_ELSEWHERE)
    return value * ONLY_SHOWN


def contained_value(key: Key, values: Mapping[Key, float]) -> float:
    """Return the worth of the shorter paths and the file name that a path says as well."""
    if key[0] != "path":
        return 0.0
    total, rest = 0.0, key[1]
    while "/" in rest:
        rest = rest.partition("/")[2]
        total += values.get(("path", rest), 0.0) + values.get(("file", rest), 0.0)
    return total


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Stretch:
    """Entries in a row that one retrieval brings back, by position; `label` says what they are about.

    `part` counts from 1 for a part of one long entry.
    """

    first: int
    last: int
    label: str
    part: int = 0


def stretches(path: Sequence[Entry], index: AnchorIndex, cut: int, count: Callable[[str], int]) -> list[Stretch]:
    """Return the entries before `cut` in stretches of at most 1,900 tokens; of longer entries, their parts."""
    names = call_labels(path[:cut])
    found: list[Stretch] = []
    first, total = -1, 0
    members: list[int] = []
    for position in range(cut + 1):
        text = index.said[position].text if position < cut else ""
        if position < cut and not text:
            continue
        size = count(text) + 1 if len(text) < 8 * STRETCH_TOKENS else STRETCH_TOKENS + 1
        if members and (position == cut or total + size > STRETCH_TOKENS):
            found.append(Stretch(first=first, last=members[-1], label=_label(path, members, names)))
            members, total = [], 0
        if position < cut and size > STRETCH_TOKENS:
            label = _subject(path[position], names)
            found += (
                Stretch(first=position, last=position, label=label, part=i)
                for i, part in enumerate(parts_of(text), 1)
                if count(part) <= STRETCH_TOKENS
            )
        elif position < cut:
            first = position if not members else first
            members.append(position)
            total += size
    return found


def call_labels(path: Iterable[Entry]) -> dict[str, str]:
    """Return call id -> tool and subject, short, for the calls on `path`."""
    found: dict[str, str] = {}
    for entry in path:
        if isinstance(entry.body, AssistantMessage):
            for call in tool_calls(entry.body.blocks):
                stand_in = ToolResult(call_id=call.id, name=call.name, content=())
                found[call.id] = _FOLDERS.sub("", label_of(stand_in, call.input))
    return found


def _label(path: Sequence[Entry], members: Iterable[int], names: Mapping[str, str]) -> str:
    parts = dict.fromkeys(p for position in members for p in _about(path[position], names))
    return "; ".join(p.replace("`", "'") for p in parts if p)[:LABEL_CHARS]


def _about(entry: Entry, names: Mapping[str, str]) -> list[str]:
    """Return what an entry is about: the person's first words, or the calls of a reply."""
    body = entry.body
    if isinstance(body, UserMessage):
        return [" ".join(joined_text(body.blocks).split())[:CALL_CHARS]]
    if isinstance(body, AssistantMessage):
        return [names[c.id][:CALL_CHARS] for c in tool_calls(body.blocks)]
    return []


def _subject(entry: Entry, names: Mapping[str, str]) -> str:
    """Return the same for one long entry; a result is about the call that it answers."""
    body = entry.body
    known = [names.get(body.call_id, body.name)] if isinstance(body, ToolResult) else _about(entry, names)
    return "; ".join(p.replace("`", "'") for p in known if p)[:CALL_CHARS]


class Standing:
    """Texts in which words are looked for; `stands_in` for many words, without reading all anew for each."""

    def __init__(self, text: str = "") -> None:
        self._text = text
        self._tokens = set(_WORD.findall(text))

    def add(self, line: str) -> None:
        """Add a line."""
        self._text += line + "\n"
        self._tokens.update(_WORD.findall(line))

    def has(self, wanted: str) -> bool:
        """Tell whether `wanted` stands there as words of its own."""
        return wanted in self._tokens if _WORD.fullmatch(wanted) else stands_in(self._text, wanted)


def stands_in(text: str, wanted: str) -> bool:
    """Tell whether `wanted` stands in `text` as words of its own: not within a longer word or number."""
    at = text.find(wanted)
    while at >= 0:
        end = at + len(wanted)
        if not (at and _goes_on(text[at - 1], wanted[0])) and not (end < len(text) and _goes_on(wanted[-1], text[end])):
            return True
        at = text.find(wanted, at + 1)
    return False


def _goes_on(left: str, right: str) -> bool:
    return (left.isalnum() or left == "_") and (right.isalnum() or right == "_")
