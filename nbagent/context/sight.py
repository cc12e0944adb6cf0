"""Sight: what a context lets the model see of earlier entries, and Finder: what one retrieval brings back."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from nbagent.context.anchor_index import AnchorIndex
from nbagent.context.anchors import SENTENCES, Key, blocks_text, split_sentences
from nbagent.context.archive import Chunk, find_handles, target_text
from nbagent.context.mixed import HAS_LETTERS, LETTERS
from nbagent.core.messages import is_provider_note
from nbagent.core.ranking import Words
from nbagent.core.tokens import estimate_tokens
from nbagent.core.view import View

SHARED_WORDS: Final = 2  # of a pointer's label with what needs the anchor
TARGET_TOKENS: Final = 2_000  # DECISIONS 27: a pointer to more is no one retrieval
SENTENCE_SHARE: Final = 0.8  # of a sentence's content words; section 3.2 of the performance and evaluation report
_WORD: Final = re.compile(rf"[^\W{LETTERS}]+")
_PLAIN: Final = re.compile(r"[A-Za-z0-9_]+")
_ONE_WORD: Final = frozenset({"id", "num", "ident", "column"})


@dataclass(frozen=True, slots=True)
class Lead:
    """A pointer in sight: the words of its label, and the text of the part it leads to; None for whole entries."""

    label: frozenset[str]
    part: str | None


class Sight:
    """What a view lets the model see of the entries of an index, and of other text (notes, placeholders)."""

    def __init__(self, index: AnchorIndex, view: View) -> None:
        self.index = index
        self.words: Words = index.words
        self.whole: set[int] = set()
        seen = view.seen
        other: list[str] = []
        for piece in view.pieces:
            position = index.positions.get(piece.entry_id)
            known = position is not None and index.said[position].author != "nobody"
            if piece.entry_id in view.unread:
                continue
            if position is not None and known and piece.entry_id in seen:
                self.whole.add(position)
                other.extend(str(b.get("content") or "") for b in piece.blocks if is_provider_note(b))
            elif piece.entry_id in view.cleared:
                continue
            else:
                other.append(blocks_text(piece.blocks))
        self.other = "\n".join(other)
        self._text: str | None = None
        self._tokens: set[str] | None = None
        self._windows: list[frozenset[str]] | None = None
        self._terms: frozenset[str] | None = None
        self._handles: dict[int, list[Lead]] | None = None

    def add(self, position: int) -> None:
        """Take in an entry that was appended since."""
        self.whole.add(position)
        self._text = self._terms = None
        if self._tokens is not None:
            self._tokens.update(_WORD.findall(self.index.said[position].text))

    @property
    def text(self) -> str:
        """All that is seen."""
        if self._text is None:
            said = self.index.said
            self._text = "\n".join([*(said[p].text for p in sorted(self.whole)), self.other])
        return self._text

    @property
    def tokens(self) -> set[str]:
        """The runs of letters, digits and underscores in all that is seen; Chinese beside Latin ends one."""
        if self._tokens is None:
            self._tokens = set(_WORD.findall(self.text))
        return self._tokens

    @property
    def terms(self) -> frozenset[str]:
        """The content words of all that is seen."""
        if self._terms is None:
            self._terms = frozenset(self.words.terms(self.text))
        return self._terms

    def holds(self, key: Key, cut: int) -> bool:
        """Tell whether `key`, known before `cut`, is seen word for word."""
        if any(p in self.whole for p in self.index.occurrences(key, cut)):
            return True
        kind, text = key
        if kind in _ONE_WORD and _PLAIN.fullmatch(text):
            return text in self.tokens  # the same as to look for it as a word of its own, without reading all again
        if kind not in SENTENCES:
            return _stands_in(self.text, text, whole_word=kind in _ONE_WORD)
        return text in self.other or self._said_again(text)

    def _said_again(self, sentence: str) -> bool:
        wanted = frozenset(self.words.terms(sentence))
        if self._windows is None:
            self._windows = [frozenset(self.words.terms(w)) for w in _windows(self.other)]
        least = SENTENCE_SHARE * len(wanted)
        return bool(wanted) and any(len(wanted & window) >= least for window in self._windows)

    def handles_to(self, position: int) -> list[Lead]:
        """Return the usable pointers that lead to the entry at `position` or to a part of it."""
        if self._handles is None:
            self._handles = {}
            texts = [s.text for s in self.index.said]
            for handle in find_handles(self.other, self.index.positions):
                target = target_text(texts, handle)
                if len(target) > 8 * TARGET_TOKENS or estimate_tokens(target, "claude-4.7") > TARGET_TOKENS:
                    continue
                lead = Lead(frozenset(self.words.terms(handle.label)), target if handle.part else None)
                for p in range(handle.first, handle.last + 1):
                    self._handles.setdefault(p, []).append(lead)
        return self._handles.get(position, [])


def _stands_in(text: str, wanted: str, *, whole_word: bool) -> bool:
    at = text.find(wanted)
    while at >= 0 and whole_word:
        before, after = text[at - 1 : at] if at else "", text[at + len(wanted) : at + len(wanted) + 1]
        if not (_goes_on(before, wanted[0]) or _goes_on(wanted[-1], after)):
            return True
        at = text.find(wanted, at + 1)
    return at >= 0


def _goes_on(before: str, after: str) -> bool:
    """Tell whether a word goes on from one character to the next; Chinese beside Latin, or beside itself, does not."""
    both = before + after
    return len(both) == 2 and all(c.isalnum() or c == "_" for c in both) and not HAS_LETTERS.search(both)


def _windows(text: str) -> Iterator[str]:
    """Yield each line, and three sentences in a row within a line."""
    for line in text.splitlines():
        sentences = split_sentences(line)
        for i in range(max(1, len(sentences) - 2)):
            yield " ".join(sentences[i : i + 3])


class Finder:
    """Answers whether one retrieval would bring an anchor back."""

    def __init__(self, sight: Sight, cut: int) -> None:
        self.sight = sight
        self._archive = sight.index.archive()
        self._cut = cut
        self._found: dict[frozenset[str], list[Chunk]] = {}
        self._windows: dict[tuple[int, int], list[frozenset[str]]] = {}

    def finds(self, key: Key, need: str) -> bool:
        """Tell whether `key` is reachable for somebody who has the words of `need`, but not the anchor's own."""
        return self.finds_by(key, frozenset(self.sight.words.terms(need)))

    def finds_by(self, key: Key, terms: frozenset[str]) -> bool:
        """The same, from terms."""
        own = frozenset(self.sight.words.terms(key[1]))
        return self._by_handle(key, terms - own) or self._by_search(key, terms - own, own)

    def _by_handle(self, key: Key, asked: frozenset[str]) -> bool:
        return any(
            len(lead.label & asked) >= SHARED_WORDS and (lead.part is None or self._is_in(key, lead.part))
            for position in self.sight.index.occurrences(key, self._cut)
            for lead in self.sight.handles_to(position)
        )

    def _is_in(self, key: Key, text: str) -> bool:
        return _stands_in(text, key[1], whole_word=key[0] in _ONE_WORD)

    def _by_search(self, key: Key, asked: frozenset[str], own: frozenset[str]) -> bool:
        chunks = self._found.get(asked)
        if chunks is None:
            chunks = self._found[asked] = self._archive.search(sorted(asked), before=self._cut)
        kind, text = key
        if kind not in SENTENCES:
            return any(_stands_in(c.text, text, whole_word=kind in _ONE_WORD) for c in chunks)
        least = SENTENCE_SHARE * len(own)
        return any(text in c.text or any(len(own & w) >= least for w in self._windows_of(c)) for c in chunks)

    def _windows_of(self, chunk: Chunk) -> list[frozenset[str]]:
        place = (chunk.position, chunk.start)
        if place not in self._windows:
            self._windows[place] = [frozenset(self.sight.words.terms(w)) for w in _windows(chunk.text)]
        return self._windows[place]
