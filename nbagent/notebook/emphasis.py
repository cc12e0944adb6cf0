"""Emphasis beside Chinese, Japanese and Korean letters, between which no blank stands.

CommonMark wants a blank or punctuation outside of `**` where punctuation is inside, so that `**注意：**请看` would show
its asterisks. Here a wide letter or mark outside does as well, and one inside counts as a letter: the amendment known
as "CJK-friendly emphasis" (markdown-cjk-friendly, 2024). Text without such characters is read as CommonMark reads it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from markdown_it.common.utils import isMdAsciiPunct, isPunctChar, isWhiteSpace
from markdown_it.parser_inline import ParserInline
from markdown_it.rules_inline import StateInline
from markdown_it.rules_inline.state_inline import Scanned

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token
    from markdown_it.utils import EnvType

_WIDE = re.compile(
    "[\u1100-\u11ff\u2e80-\u33ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\ufe30-\ufe4f"
    "\uff01-\uffee\U00020000-\U0003ffff]"
)


class EmphasisBesideWideLetters(ParserInline):
    """The inline parser of markdown-it, with the rules of `parser` and another reading of delimiters."""

    def __init__(self, parser: ParserInline) -> None:
        vars(self).update(vars(parser))  # what it holds beside the rules differs from release to release

    def parse(self, src: str, md: MarkdownIt, env: EnvType, tokens: list[Token]) -> list[Token]:
        """Parse inline text as `ParserInline.parse` does."""
        state = _State(src, md, env, tokens)
        self.tokenize(state)
        for rule in self.ruler2.getRules(""):
            rule(state)
        return state.tokens


class _State(StateInline):
    def scanDelims(self, start: int, canSplitWord: bool) -> Scanned:  # noqa: N802, N803
        marker, end = self.src[start], start
        while end < self.posMax and self.src[end] == marker:
            end += 1
        before = self.src[start - 1] if start > 0 else " "
        after = self.src[end] if end < self.posMax else " "
        if not (_WIDE.match(before) or _WIDE.match(after)):
            return super().scanDelims(start, canSplitWord)
        opens = _flanks(inside=after, outside=before)
        closes = _flanks(inside=before, outside=after)
        can_open = opens and (canSplitWord or not closes or _is_mark(before))
        can_close = closes and (canSplitWord or not opens or _is_mark(after))
        return Scanned(can_open, can_close, end - start)


def _flanks(*, inside: str, outside: str) -> bool:
    if isWhiteSpace(ord(inside)):
        return False
    narrow_mark = _is_mark(inside) and not _WIDE.match(inside)
    return not narrow_mark or isWhiteSpace(ord(outside)) or _is_mark(outside) or bool(_WIDE.match(outside))


def _is_mark(char: str) -> bool:
    return isMdAsciiPunct(ord(char)) or isPunctChar(char)
