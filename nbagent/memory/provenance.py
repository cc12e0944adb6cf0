"""Where a line of memory came from (turn, cell), written behind it; and lines that contradict. PURE (NB-M2)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from nbagent.core.ranking import STOP_WORDS, stem
from nbagent.memory.fences import Fence, fence_after, open_at_end

_MARK: Final = re.compile(r"<!-- nbagent((?: [a-z]+=[^\s<>]+)*) -->")
_PAIR: Final = re.compile(r" ([a-z]+)=([^\s<>]+)")
_BLOCK: Final = re.compile(r"\s*(?:[-*+]|\d+[.)])\s|#|\s*(?:```|~~~)")
_UNSAFE: Final = re.compile(r"[\s<>%\x00-\x1f]|--")
_FIELDS: Final = ("turn", "cell", "session", "notebook", "at")

ALIKE: Final = 0.6  # share of common words from which two lines speak of the same thing
MAX_VALUE_WORDS: Final = 3  # a longer end of a sentence is a story, not a value
MAX_UNIT: Final = 6  # words beside a number
_WORD: Final = re.compile(r"[^\W_][\w'-]*(?:\.\w+)*")
_HAN: Final = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_NUMBER: Final = re.compile(r"\d")
_COUNTED: Final = frozenset(
    stem(w) for w in (
        "case", "cell", "chapter", "day", "figure", "issue", "item", "line", "number", "page", "part", "row", "run",
        "section", "step", "table", "turn", "version", "week",
    )
)  # fmt: skip  # words whose number tells which one
_DATE: Final = re.compile(r"(?:19|20)\d\d(?:-\d\d(?:-\d\d)?)?|\d\d?:\d\d")
_NEGATIONS: Final = frozenset(
    {"not", "no", "never", "none", "without", "isn't", "don't", "doesn't", "won't", "不", "没"}
)
_TIES: Final = re.compile(
    r"^(.{3,80}?)\s*(:|=|→|->|\b(?:is|are|was|were|now|uses?|prefers?|means|至|是|は|은|는)\b)\s*(.+)$", re.DOTALL
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where a remembered line was written. `at` is UTC in ISO form; "" is unknown."""

    turn: str = ""
    cell: str = ""
    session: str = ""
    notebook: str = ""
    at: str = ""

    def mark(self) -> str:
        """Return the comment that goes behind the line, invisible where Markdown is rendered.

        >>> Provenance(turn="t7", cell="a1b2").mark()
        '<!-- nbagent turn=t7 cell=a1b2 -->'
        """
        values = [(name, getattr(self, name)) for name in _FIELDS]
        written = "".join(f" {n}={_UNSAFE.sub(_escaped, v)}" for n, v in values if v)
        return f"<!-- nbagent{written} -->" if written else ""


def _escaped(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02x}" for byte in found[0].encode())


def _unescaped(text: str) -> str:
    from urllib.parse import unquote

    return unquote(text)


def provenance_of(line: str) -> Provenance | None:
    """Return what a line's comment says of where it came from, None when it has none."""
    found = _MARK.search(line)
    if not found:
        return None
    pairs = {k: _unescaped(v) for k, v in _PAIR.findall(found[1]) if k in _FIELDS}
    return Provenance(**pairs) if pairs else None


def as_item(text: str, provenance: Provenance | None) -> str:
    """Return a fact as one list item: later lines indented, the comment at its end; comments in `text` are taken out.

    Behind code the comment has a line of its own, and code that is left open is closed.

    >>> as_item("two\\nlines", Provenance(turn="t1"))
    '- two\\n  lines <!-- nbagent turn=t1 -->'
    """
    clean = text.replace("<!--", "< !--").replace("\0", " ").replace("\r\n", "\n").replace("\r", "\n").strip()
    lines = [line.rstrip() for line in clean.split("\n") if line.strip()]
    lines[0] = re.sub(r"^[-*+]\s+", "", lines[0])
    mark = provenance.mark() if provenance else ""
    last_is_code = open_at_end(lines[:-1]) is not None
    if fence := open_at_end(lines):
        last_is_code = True
        lines.append(fence.sign)
    body = "- " + "\n  ".join(lines)
    return body + ("\n  " if last_is_code else " ") + mark if mark else body


def with_origin(text: str, provenance: Provenance) -> str:
    """Return Markdown in which each paragraph and list item ends in where it came from; headings and code do not.

    Code that is left open is closed.

    >>> with_origin("# Data\\n- one\\n- two,\\n  on two lines\\n", Provenance(turn="t1")).split("\\n")[1:3]
    ['- one <!-- nbagent turn=t1 -->', '- two,']
    """
    mark = provenance.mark()
    clean = text.replace("<!--", "< !--").replace("\0", " ").replace("\r\n", "\n").replace("\r", "\n")
    lines = clean.rstrip().split("\n")
    fence: Fence | None = None
    for i, line in enumerate(lines):
        before, fence = fence, fence_after(line, fence)
        code = fence is not None or (before is not None and not before.is_left_by(line))
        plain = line.strip() and not code and not line.startswith("#")
        after = lines[i + 1] if i + 1 < len(lines) else ""
        goes_on = after.strip() and not _BLOCK.match(after)
        if plain and mark and not goes_on:
            lines[i] = f"{line.rstrip()} {mark}"
    if fence is not None:
        lines.append(" " * fence.indent + fence.sign)
    return "\n".join(lines)


def contradict(one: str, other: str) -> bool:
    """Tell whether two lines say different things of the same: a rule of thumb, for showing both, never for deciding.

    >>> contradict("The port is 8080", "The port is 9090"), contradict("The port is 8080", "Anna likes tea")
    (True, False)
    """
    return Claim.of(one).contradicts(Claim.of(other))


@dataclass(frozen=True, slots=True)
class Claim:
    """A line taken apart: its words, its numbers, whether it denies, and what it says of which subject.

    `labels` are the numbers that tell which thing is spoken of: dates, years, and the 12 of "Run 12 took 30 s".
    """

    words: frozenset[str]
    plain: frozenset[str]
    numbers: frozenset[str]
    labels: frozenset[str]
    negated: bool
    subject: frozenset[str]
    rest: frozenset[str]
    many: bool

    @classmethod
    def of(cls, text: str) -> Claim:
        """Take a line apart."""
        body = re.sub(r"^\s*(?:[-*+]|\d+[.)])\s+", "", text.strip())
        found = _words(body)
        content = [_stem(w) for w in found if w not in STOP_WORDS or w in _NEGATIONS]
        words = frozenset(content)
        every = frozenset(w for w in words if _NUMBER.search(w))
        labels = frozenset(w for i, w in enumerate(content) if w in every and _is_label(content[:i], w))
        tie = _TIES.match(body[:400])
        return cls(
            words=words, plain=words - every - _NEGATIONS, numbers=every - labels, labels=labels,
            negated=bool(_NEGATIONS & set(found)),
            subject=_content(tie[1]) if tie else frozenset(), rest=_content(tie[3]) if tie else frozenset(),
            many=tie is not None and tie[2] in ("are", "were"),
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
        if self.subject and self.subject == other.subject:
            return "value" if self._says_other_than(other) else ""
        if self.labels and other.labels and self.labels != other.labels:
            return ""
        short, long = sorted((self.plain, other.plain), key=len)
        if len(short) < 2 or not short <= long or len(short) < ALIKE * len(long):
            return ""
        if self.numbers and other.numbers and self.numbers != other.numbers:
            return "number"
        return "negation" if self.negated != other.negated else ""

    def _says_other_than(self, other: Claim) -> bool:
        """Tell whether both give the subject one value, and not the same.

        A name before ":" alone is who speaks, but for a number of the same unit; what things "are" may be much.
        """
        said, other_said = self.rest - _NEGATIONS, other.rest - _NEGATIONS
        if self.negated != other.negated:
            return said == other_said
        if not said or not other_said or said <= other_said or other_said <= said:
            return False
        mine, others = (frozenset(w for w in c.rest if _NUMBER.search(w)) for c in (self, other))
        if mine and others:
            unit, other_unit = self.rest - mine, other.rest - others
            return mine != others and (unit <= other_unit or other_unit <= unit) and len(unit | other_unit) < MAX_UNIT
        longest = max(len(self.rest), len(other.rest))
        return len(self.subject) >= 2 and longest <= MAX_VALUE_WORDS and not (self.many or other.many)


def _is_label(before: Sequence[str], number: str) -> bool:
    """Tell whether a number names a thing, as a date does and the 12 of "Run 12 took 30 s"."""
    return bool(_DATE.fullmatch(number)) or len(before) == 1 or (bool(before) and before[-1] in _COUNTED)


_stem = lru_cache(maxsize=20_000)(stem)


def _words(text: str) -> Sequence[str]:
    found: list[str] = []
    for word in _WORD.findall(text.lower()):
        found.extend(word if _HAN.search(word) else [word.rstrip(".'-")])
    return found


def _content(text: str) -> frozenset[str]:
    return frozenset(_stem(w) for w in _words(text) if w not in STOP_WORDS or w in _NEGATIONS)
