"""Claims: lines taken apart, to tell which contradict each other. A rule of thumb. PURE (NB-M2)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from nbagent.core.ranking import STOP_WORDS, stem

ALIKE: Final = 0.6  # share of common words from which two lines speak of the same thing
MAX_VALUE_WORDS: Final = 3  # a longer end of a sentence is a story, not a value
MAX_VALUE_CHARACTERS: Final = 5  # likewise in Chinese, Japanese and Korean
MAX_UNIT: Final = 6  # words beside a number
_CJK: Final = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_HAN: Final = re.compile(f"[{_CJK}]")
_WEEKDAY: Final = re.compile(
    "(?:mon|tues|wednes|thurs|fri|satur|sun)days?|(?:周|星期|礼拜)[一二三四五六日天]|[月火水木金土日]曜日?|[월화수목금토일]요일"
)
_TIME: Final = re.compile(r"\d\d?:\d\d")
_WORD: Final = re.compile(
    rf"\d\d?:\d\d|(?:周|星期|礼拜)[一二三四五六日天]|[月火水木金土日]曜日?|[월화수목금토일]요일|[{_CJK}]"
    rf"|[^\W_{_CJK}](?:[^\W{_CJK}]|['-])*(?:\.[^\W{_CJK}]+)*"
)
_NUMBER: Final = re.compile(r"\d")
_IDENTIFIER: Final = re.compile(r"[^\W\d_][\w-]*\d[\w-]*")
_COUNTED: Final = frozenset(
    stem(w) for w in (
        "case", "cell", "chapter", "day", "figure", "issue", "item", "line", "number", "page", "part", "row", "run",
        "section", "step", "table", "turn", "version", "week",
    )
)  # fmt: skip  # words whose number tells which one
_DATE: Final = re.compile(r"(?:19|20)\d\d(?:-\d\d(?:-\d\d)?)?")
_NEGATIONS: Final = frozenset(
    {"not", "no", "never", "none", "without", "isn't", "don't", "doesn't", "won't", "不", "没"}
)
_TIES: Final = re.compile(
    r"^(.{2,80}?)\s*(：|(?<!\d):|:(?!\d)|=|→|->|\b(?:is|are|was|were|now|uses?|prefers?|means)\b"
    rf"|(?<=[{_CJK}])(?:(?<![但不还或就也都只总可要若])是|(?<![因认成作行])为(?!了|什么)|至|は|[은는](?=\s)))\s*(.+)$",
    re.DOTALL,
)
_DEFINITE: Final = re.compile(r"(?i)(?:the|our|my|this)\s")
_KEYS: Final = frozenset(
    stem(w) for w in (
        "author", "contact", "database", "deadline", "default", "editor", "framework", "host", "language", "lead",
        "maintainer", "manager", "model", "owner", "region", "reviewer", "status", "timezone",
    )
)  # fmt: skip  # what stands before ":" and is nobody's name
_KEY_ENDS: Final = tuple("人者值口库標标期间間点點本型言址态率数量名法集列算語语")


def contradict(one: str, other: str) -> bool:
    """Tell whether two lines say different things of the same: a rule of thumb, for showing both, never for deciding.

    >>> contradict("The port is 8080", "The port is 9090"), contradict("The port is 8080", "Anna likes tea")
    (True, False)
    """
    return Claim.of(one).contradicts(Claim.of(other))


@dataclass(frozen=True, slots=True)
class Claim:
    """A line taken apart: its words, its numbers, whether it denies, and what it says of which subject.

    Numbers are also times and days of the week. `labels` are those that tell which thing is spoken of: dates, years,
    `exp-07`, and the 12 of "Run 12 took 30 s"; `qualifiers` come behind another number and a word ("0.84 on fold 1").
    `shape` is all words in order, "#" for a number. `single`: a subject of one word that can have but one value.
    """

    words: frozenset[str]
    plain: frozenset[str]
    numbers: frozenset[str]
    labels: frozenset[str]
    qualifiers: frozenset[str]
    negated: bool
    subject: frozenset[str]
    rest: frozenset[str]
    many: bool
    single: bool
    shape: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> Claim:
        """Take a line apart."""
        body = re.sub(r"^\s*(?:[-*+]|\d+[.)])\s+", "", text.strip())
        found = _words(body)
        kept = [i for i, w in enumerate(found) if w not in STOP_WORDS or w in _NEGATIONS]
        content = [_stem(found[i]) for i in kept]
        words = frozenset(content)
        every = frozenset(w for w in words if _is_number(w))
        labels = frozenset(
            w for i, w in enumerate(content)
            if w in every and _is_label(content[:i], w, len(every), named=i > 0 and kept[i - 1] == kept[i] - 1)
        )  # fmt: skip
        numbers = every - labels
        behind = (i for i, w in enumerate(content) if w in numbers and _is_qualifier(content[:i], numbers))
        tie = _TIES.match(body[:400])
        subject = _content(tie[1]) if tie else frozenset()
        return cls(
            words=words, plain=words - every - _NEGATIONS, numbers=numbers, labels=labels,
            qualifiers=frozenset(content[i] for i in behind), negated=bool(_NEGATIONS & set(found)),
            subject=subject, rest=_content(tie[3]) if tie else frozenset(),
            many=tie is not None and tie[2] in ("are", "were"),
            single=tie is not None and _has_one_value(tie[1].strip(), tie[2], subject),
            shape=tuple("#" if _is_number(w) else w for w in found),
        )  # fmt: skip

    def contradicts(self, other: Claim) -> bool:
        """Tell whether both speak of the same and do not say the same.

        Either the part before ":", "=", "is" and the like is the same and the value after it is not, or one says all
        words of the other and a number or a negation differs. Lists of like facts on different things do not.
        """
        return bool(self.clash(other))

    def clash(self, other: Claim) -> str:
        """Return how they contradict: "value" of a subject, "number", "negation"; "" when they do not."""
        if self.words == other.words and self.negated == other.negated:
            return ""
        if self._on_another_thing(other):
            return ""
        if self.subject and self.subject == other.subject:
            return "value" if self._says_other_than(other) else ""
        if self.labels and other.labels and self.labels != other.labels:
            return ""
        shared = self.numbers & other.numbers
        short, long = sorted((self.plain | shared, other.plain | shared), key=len)
        like = len(short) >= 2 and short <= long and len(short) >= ALIKE * len(long)
        if not like and not (short and self.shape == other.shape and len(self.shape) > 2):
            return ""
        if self.numbers and other.numbers and self.numbers != other.numbers:
            return "number"
        return "negation" if self.negated != other.negated else ""

    def _on_another_thing(self, other: Claim) -> bool:
        """Tell whether a number that tells which thing differs, and another one with it."""
        mine, others = (c.qualifiers | {x for x in c.labels if not _DATE.fullmatch(x)} for c in (self, other))
        values, other_values = self.numbers - self.qualifiers, other.numbers - other.qualifiers
        return bool(mine and others and mine != others and values and other_values and values != other_values)

    def _says_other_than(self, other: Claim) -> bool:
        """Tell whether both give the subject one value, and not the same.

        A name before ":" alone is who speaks, but for a number of the same unit; what things "are" may be much.
        """
        said, other_said = self.rest - _NEGATIONS, other.rest - _NEGATIONS
        if self.negated != other.negated:
            return said == other_said
        if not said or not other_said or said <= other_said or other_said <= said:
            return False
        mine, others = (frozenset(w for w in c.rest if _is_number(w)) for c in (self, other))
        if mine and others:
            unit, other_unit = self.rest - mine, other.rest - others
            return mine != others and (unit <= other_unit or other_unit <= unit) and len(unit | other_unit) < MAX_UNIT
        longest = max(len(self.rest), len(other.rest))
        if self.many or other.many or not (self.single and other.single):
            return False
        wide = any(_HAN.match(w) for w in said | other_said)
        return longest <= (MAX_VALUE_CHARACTERS if wide else MAX_VALUE_WORDS if len(self.subject) > 1 else 1)


def _has_one_value(written: str, tie: str, subject: frozenset[str]) -> bool:
    """Tell whether a subject is no name of somebody who speaks, and no thing that may be all kinds of things."""
    colon = tie in (":", "：")
    if written and _HAN.match(written[-1]):
        return not colon or written.endswith(_KEY_ENDS)
    if len(subject) >= 2:
        return True
    if colon or tie == "=":
        return written.islower() or subject <= _KEYS
    return tie in ("is", "now") and _DEFINITE.match(written) is not None


def _is_number(word: str) -> bool:
    return _NUMBER.search(word) is not None or _WEEKDAY.fullmatch(word) is not None


def _is_label(before: Sequence[str], number: str, count: int, *, named: bool) -> bool:
    """Tell whether a number, one of `count`, names a thing, as a date does and the 12 of "Run 12 took 30 s".

    `named`: no stop word is left out between the last of `before` and it.
    """
    if _TIME.fullmatch(number) or _WEEKDAY.fullmatch(number):
        return not before and not _HAN.search(number)
    if _DATE.fullmatch(number) or (count > 1 and _IDENTIFIER.fullmatch(number)):
        return True
    if len(before) == 1:
        return named and not _HAN.match(before[0])
    return bool(before) and before[-1] in _COUNTED


def _is_qualifier(before: Sequence[str], numbers: frozenset[str]) -> bool:
    return len(before) > 1 and not _is_number(before[-1]) and any(w in numbers for w in before[:-1])


_stem = lru_cache(maxsize=20_000)(stem)


def _words(text: str) -> list[str]:
    return [word.rstrip(".'-") for word in _WORD.findall(text.lower())]


def _content(text: str) -> frozenset[str]:
    return frozenset(_stem(w) for w in _words(text) if w not in STOP_WORDS or w in _NEGATIONS)
