"""BERT's WordPiece in Python: words of a text to numbers of the pieces in a vocabulary (Devlin et al. 2018). PURE."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

CACHED_WORDS: Final = 200_000
LONGEST_WORD: Final = 100  # characters; BERT gives up on longer ones too
_SPLIT: Final = re.compile(r"[^\W_]+|[^\w\s]|_")
_ENDINGS: Final = ("s", "es", "ies", "ed", "ing", "er", "ly", "ment", "ments")
_HAN: Final = re.compile("([\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff])")


class WordPiece:
    """Takes texts apart; the pieces of a word are worked out once. `vocabulary` maps pieces ("##ing") to numbers."""

    def __init__(self, vocabulary: Mapping[str, int]) -> None:
        self._vocabulary = vocabulary
        self._known: dict[str, tuple[int, ...]] = {}

    def known_share(self, words: Sequence[str]) -> float:
        """Return which share of words is one piece, as it is or but for an ending; 0 without words.

        >>> pieces = WordPiece({"puppy": 1, "pay": 2, "##q": 3, "z": 4})
        >>> pieces.known_share(["puppy", "payments", "zq", "Pay"])
        0.75
        """
        known = (any(w in self._vocabulary for w in _without_endings(word.lower())) for word in words)
        return sum(known) / len(words) if words else 0.0

    def ids(self, text: str) -> list[int]:
        """Return the numbers of the pieces of `text`; words that cannot be built give none."""
        text = text.lower()
        if not text.isascii():
            text = unicodedata.normalize("NFD", text)
            text = "".join(c for c in text if unicodedata.category(c) != "Mn")
            text = _HAN.sub(r" \1 ", text)
        found: list[int] = []
        for word in _SPLIT.findall(text):
            pieces = self._known.get(word)
            found.extend(self._remember(word) if pieces is None else pieces)
        return found

    def _remember(self, word: str) -> tuple[int, ...]:
        pieces = self._pieces(word) if len(word) <= LONGEST_WORD else ()
        if len(self._known) < CACHED_WORDS:
            self._known[word] = pieces
        return pieces

    def _pieces(self, word: str) -> tuple[int, ...]:
        found: list[int] = []
        start = 0
        while start < len(word):
            for end in range(len(word), start, -1):
                piece = word[start:end] if start == 0 else f"##{word[start:end]}"
                number = self._vocabulary.get(piece)
                if number is not None:
                    found.append(number)
                    start = end
                    break
            else:
                return ()
        return tuple(found)


def _without_endings(word: str) -> Iterator[str]:
    """Yield a word, and what is left of it without an English ending."""
    yield word
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            yield from (word[: -len(ending)] + end for end in ("", "e", "y"))
