"""ConversationRecall: the whole path of a conversation, to search and to read; what `recall` works with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from nbagent.context.anchors import leaves, said
from nbagent.context.archive import Archive, Chunk, parts_of
from nbagent.core.entries import AssistantMessage, Body, Compaction, Entry, ToolResult, TurnStart
from nbagent.core.errors import JournalDamaged, ToolError
from nbagent.core.messages import joined_text, tool_calls
from nbagent.core.view import build_view
from nbagent.store.artifacts import Artifacts
from nbagent.tools.recall import SNIPPET_CHARS
from nbagent.tools.tool import Found

TOOL: Final = "recall"
INDEXED_CHARS: Final = 400_000  # of one full result; what is behind it is read, not found
CANDIDATES: Final = 4  # searched for each that is asked for: some are still in context
WHO: Final = {"person": "the person", "model": "your reply", "shown": "shown to you", "nobody": "note"}


@dataclass(slots=True, kw_only=True)
class ConversationRecall:
    """Looks things up on the current path. The index is made at the first search and grows with the path.

    What `recall` itself brought, and what it was asked, are not found again.
    """

    path: Callable[[], Sequence[Entry]]
    artifacts: Artifacts
    _archive: Archive = field(default_factory=Archive)
    _indexed: list[str] = field(default_factory=list)
    _turns: list[int] = field(default_factory=list)

    def search(self, query: str, limit: int) -> Sequence[Found]:
        """Return the best pieces for the words of `query`; what the model no longer sees comes first."""
        path = self._extend()
        terms = self._archive.words.terms(query)
        if not terms:
            return ()
        view = build_view(path)
        seen = view.seen
        best = self._archive.search(terms, limit=CANDIDATES * limit)
        ranked = sorted(best, key=lambda c: c.entry_id in seen and not self._is_cut(path[c.position]))
        return tuple(self._found(c, path[c.position], frozenset(terms), seen) for c in ranked[:limit])

    def read(self, first: str, last: str) -> str:
        """Return the text of the entry `first`, or of all from it to `last`; results in full.

        `ID#3` is the third part of what was shown of an entry, as notes point to it.

        Raises:
            ToolError: the conversation has no such entry, or the entry no such part.
        """
        path = self.path()
        first, _, part = first.partition("#")
        last = last.partition("#")[0]
        if part and first == last:
            return self._part(path[self._position(path, first)], part)
        low, high = sorted((self._position(path, first), self._position(path, last)))
        parts = [(e, text) for e in path[low : high + 1] if (text := self._text(e.body))]
        if low == high:
            return parts[0][1] if parts else ""
        return "\n\n".join(f"[{e.id} · {_who(e.body)}]\n{text}" for e, text in parts)

    def _part(self, entry: Entry, number: str) -> str:
        parts = parts_of(said(entry.body).text)
        if not number.isdecimal() or not 0 < int(number) <= len(parts):
            many = f"{len(parts)} parts" if len(parts) != 1 else "1 part"
            raise ToolError(f"recall: {entry.id} has {many}, no {number[:20]!r}; without # the whole entry is read")
        after = f"; the next is {entry.id}#{int(number) + 1}" if int(number) < len(parts) else ""
        return f"[part {int(number)} of {len(parts)}{after}]\n{parts[int(number) - 1]}"

    def _position(self, path: Sequence[Entry], name: str) -> int:
        exact = [i for i, e in enumerate(path) if e.id == name]
        found = exact or [i for i, e in enumerate(path) if len(name) >= 4 and e.id.startswith(name)]
        if len(found) != 1:
            raise ToolError(f"recall: this conversation has no entry {name[:60]!r}; search for it with query")
        return found[0]

    def _extend(self) -> Sequence[Entry]:
        """Take in what came on the path since; after a fork the index is made anew."""
        path = self.path()
        count = len(self._indexed)
        if count > len(path) or (count and path[count - 1].id != self._indexed[-1]):
            self._archive, self._indexed, self._turns, count = Archive(), [], [], 0
        for entry in path[count:]:
            self._archive.add(entry.id, self._indexable(entry.body))
            self._indexed.append(entry.id)
            self._turns.append((self._turns[-1] if self._turns else 0) + isinstance(entry.body, TurnStart))
        return path

    def _indexable(self, body: Body) -> str:
        if isinstance(body, ToolResult) and body.name == TOOL:
            return ""
        if isinstance(body, Compaction):
            return ""
        return self._text(body)[:INDEXED_CHARS]

    def _text(self, body: Body) -> str:
        match body:
            case ToolResult(artifact=str(digest)):
                try:
                    return self.artifacts.get_text(digest)
                except JournalDamaged:
                    return joined_text(body.content)
            case AssistantMessage():
                calls = (leaves(c.input) for c in tool_calls(body.blocks) if c.name != TOOL)
                return "\n".join(t for t in (joined_text(body.blocks), *calls) if t)
            case Compaction():
                return body.note
            case _:
                return said(body).text

    def _is_cut(self, entry: Entry) -> bool:
        return isinstance(entry.body, ToolResult) and entry.body.artifact is not None

    def _found(self, chunk: Chunk, entry: Entry, terms: frozenset[str], seen: frozenset[str]) -> Found:
        at = self._densest(chunk.text, terms)
        text = chunk.text[at : at + SNIPPET_CHARS]
        return Found(
            entry_id=entry.id, turn=self._turns[chunk.position], who=_who(entry.body),
            tool=entry.body.name if isinstance(entry.body, ToolResult) else "", text=text, start=chunk.start + at,
            full_chars=len(self._text(entry.body)), in_context=entry.id in seen and not self._is_cut(entry),
        )  # fmt: skip

    def _densest(self, text: str, terms: frozenset[str]) -> int:
        """Return where the stretch of a snippet's length begins that holds most of the terms."""
        if len(text) <= SNIPPET_CHARS:
            return 0
        starts = [0]
        for line in text.splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        starts += list(range(0, len(text), SNIPPET_CHARS // 2))  # a line may be longer than a snippet
        last = len(text) - SNIPPET_CHARS
        places = sorted({min(s, last) for s in starts})
        held = [len(terms.intersection(self._archive.words.terms(text[s : s + SNIPPET_CHARS]))) for s in places]
        return places[held.index(max(held))]


def _who(body: Body) -> str:
    if isinstance(body, ToolResult):
        return f"result of {body.name}"
    return WHO[said(body).author]
