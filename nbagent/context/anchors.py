"""Anchors: what must not get lost when a conversation is compacted, taken from its entries by pattern alone.

An anchor is a piece of text that somebody may need again word for word: a path, a number with its unit, a
rule the person gave. No model and no clock: the same entry gives the same anchors in the same order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, get_args

from nbagent.context.mixed import (
    BREAKS,
    HAS_LETTERS,
    MARKS,
    amounts,
    file_in,
    paths_in,
    pieces,
    whole_url,
    without_amounts,
)
from nbagent.core.entries import AssistantMessage, Body, Entry, Snapshot, Steering, ToolResult, UserMessage
from nbagent.core.messages import Block, joined_text, tool_calls

AnchorKind: TypeAlias = Literal[
    "constraint", "decision", "error", "path", "file", "url", "id", "num", "ident", "column"
]
KINDS: Final[tuple[AnchorKind, ...]] = get_args(AnchorKind)
SENTENCES: Final = frozenset({"error", "constraint", "decision"})  # they matter because they are not repeated

# Source: section 3.2 of the performance and evaluation report, 2026-11; `column` counts as an identifier there.
WEIGHTS: Final[Mapping[AnchorKind, int]] = {
    "path": 2, "file": 2, "url": 2, "id": 3, "num": 1, "ident": 1, "column": 1, "error": 2, "constraint": 3,
    "decision": 2,
}  # fmt: skip

# Who put a text into the conversation. What is authored shows that its anchors were needed.
Author: TypeAlias = Literal["person", "model", "shown", "nobody"]
Key: TypeAlias = tuple[AnchorKind, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """A text that may be needed word for word. `where` is the id of the entry that held it first.

    `standing` is False for a request that a completed turn has answered; for a rule, a decision or an error it
    is True, for the other kinds it says nothing.
    """

    kind: AnchorKind
    text: str
    where: str
    standing: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """An entry as anchors see it: its text (calls as their arguments' texts) and who is its author."""

    author: Author
    text: str


# --- text of an entry -----------------------------------------------------------------------------


def said(body: Body) -> Said:
    """Return the text of `body` and its author; thinking is left out, as no later request shows it for long."""
    match body:
        case UserMessage():
            return Said(author="person", text=joined_text(body.blocks))
        case Steering():
            return Said(author="person" if body.by == "person" else "nobody", text=body.text)
        case AssistantMessage():
            calls = (leaves(c.input) for c in tool_calls(body.blocks))
            return Said(author="model", text="\n".join(t for t in (joined_text(body.blocks), *calls) if t))
        case ToolResult():
            return Said(author="shown", text=joined_text(body.content))
        case Snapshot():
            return Said(author="shown", text=body.text)
        case _:
            return Said(author="nobody", text="")


def leaves(value: Any) -> str:
    """Return the texts in the arguments of a call, one a line, as written (not as JSON escapes them)."""
    return "\n".join(_leaves(value))


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _leaves(item)
    elif value is not None:
        yield str(value)


def blocks_text(blocks: Iterable[Block]) -> str:
    """Return everything readable in blocks of any kind: text, arguments of calls, results; not thinking."""
    parts: list[str] = []
    for block in blocks:
        kind = block.get("type")
        if kind == "text":
            parts.append(str(block.get("text", "")))
        elif kind == "tool_use":
            parts.append(leaves(block.get("input")))
        elif kind == "tool_result":
            inner = block.get("content")
            parts.append(inner if isinstance(inner, str) else blocks_text(inner or ()))
    return "\n".join(p for p in parts if p)


# --- words that are anchors -----------------------------------------------------------------------

_EXTENSIONS: Final = (
    "py|pyi|ts|tsx|js|jsx|mjs|cjs|md|json|jsonl|csv|tsv|ipynb|toml|yaml|yml|txt|html|css|rs|go|c|h|cc|cpp|hpp|java|kt|sh|"
    "sql|parquet|feather|pkl|npy|npz|h5|hdf5|xlsx|db|sqlite|png|jpg|svg|pdf|log|rst|tex|cfg|ini|lock|xml|zip|gz|r|R|jl|pony"
)
_URL: Final = re.compile(rf"\b[a-z][a-z0-9+.]{{1,14}}://[^\s\"'<>\]}}`|\\{MARKS}]+", re.ASCII)
_PATH: Final = re.compile(
    r"(?<![\w/.-])(?:~|\.{1,2}|[A-Za-z]:)?(?:/|\\{1,2})[\w.@+-]+(?:(?:/|\\{1,2})[\w.@+-]+)+"
    rf"|(?<![\w/.])[\w@.+-]+(?:/[\w@.+-]+)+\.(?:{_EXTENSIONS})\b"
)
_QUOTED_PATH: Final = re.compile(  # with blanks in it
    rf"(?<=[\"'`“「『])((?:[A-Za-z]:|~|\.{{1,2}})?(?:/|\\{{1,2}})[^\"'`“”「」『』\n]{{3,260}}\.(?:{_EXTENSIONS}))(?=[\"'`”」』])"
)
_FILE: Final = re.compile(rf"(?<![\w/.-])[\w-]+(?:\.[\w-]+)*?\.(?:{_EXTENSIONS})(?![A-Za-z0-9_])")
_ID: Final = re.compile(
    r"(?<![\w-])[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"
    r"|\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,64}\b"
    r"|#\d{2,}\b|\b[A-Z]{2,}(?:-[A-Z0-9]+)*-\d{2,}\b|\b(?=[A-Z]*\d)(?=\d*[A-Z])[A-Z0-9]{5,12}\b"
    r"|\b[A-Za-z]+(?:_[A-Za-z]+)*_(?=\w*\d)[A-Za-z0-9]{3,}\b"
)
_UNITS: Final = (
    "%|ms|us|ns|s|sec|seconds|min|minutes|h|hours|days|[KMGT]i?B|kB|bytes|k|M|px|Hz|[kMG]Hz|tokens?|lines?|rows?|tests?|"
    "columns?|EUR|USD|GBP|€|£|kg|mg|µg|km/h|m/s|km|cm|mm|ml|kWh?|[mM]W|m[VA]|ppm|dB|rpm|°[CF]?|℃|℉|‰"
)
_NUMBER: Final = re.compile(
    r"(?<![\w.])(?:[$€£¥]\d+(?:,\d{3})*(?:\.\d+)?"
    rf"|\d+(?:[.,]\d+)*(?:{_UNITS})|\d{{4}}-\d\d-\d\d(?:T\d\d:\d\d[\d:.+-]*Z?)?|\d+(?:\.\d+)?[eE][+-]?\d+"
    r"|\d+\.\d{2,}|\d{1,3}(?:,\d{3})+|\d{4,})(?!\w)"
)
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d")
_SPACED_NUMBER: Final = re.compile(rf"(?<![\w.#$])\d+(?:[.,]\d+)* (?:{_UNITS})(?!\w)")
_IDENTIFIER: Final = re.compile(
    r"\b_*[a-z][a-z0-9]*(?:_[A-Za-z0-9]+)+\b|\b[a-z][a-z0-9]*[A-Z]\w+\b|\b[A-Z][a-z0-9]+[A-Z]\w+\b|\b[A-Z][A-Z0-9]*_[A-Z0-9_]+\b"
)
_BREAKS: Final = str.maketrans(dict.fromkeys("\"'`<>(){}[]|;=*", " ")) | BREAKS
_MOMENT: Final = re.compile(r"(?<!\d)\d{4}-\d\d-\d\dT\d\d:\d\d[\d:.+-]*Z?(?!\w)")
_EDGES: Final = ".,:;!?/…、。，：；！？"
SHORTEST: Final = 4  # characters; shorter ones are found everywhere
LONGEST_WORD: Final = 300  # characters; longer runs are encoded bytes
MAX_OF_A_KIND: Final = 400  # in one entry: a listing of ten thousand files is not ten thousand facts


class Extractor:
    """Takes anchors from texts; what a word gives is worked out once, so that a long history stays cheap."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Key, ...]] = {}

    def entry(self, entry: Entry, spoken: Said) -> tuple[Key, ...]:
        """Return the anchors of an entry, in the order of their first mention; sentences last."""
        if not spoken.text:
            return ()
        found = dict.fromkeys(self.words(spoken.text))
        body = entry.body
        if isinstance(body, Snapshot):  # the day is told anew after each compaction; nobody has to keep it
            found = {key: None for key in found if not (key[0] == "num" and _DATE.fullmatch(key[1]))}
        elif isinstance(body, ToolResult):
            found |= dict.fromkeys(("column", name) for name in _columns(spoken.text))
            found |= dict.fromkeys(("error", line) for line in error_lines(body, spoken.text))
        elif spoken.author in ("person", "model"):
            prose = spoken.text if spoken.author == "person" else joined_text(getattr(body, "blocks", ()))
            found |= dict.fromkeys(sentences_of(prose, spoken.author))
        return tuple(found)

    def words(self, text: str) -> Iterator[Key]:
        """Yield the anchors that are words, by first mention (URLs and spaced numbers first)."""
        counts = dict.fromkeys(KINDS, 0)
        for key in self._all_words(text):
            counts[key[0]] += 1
            if counts[key[0]] <= MAX_OF_A_KIND:
                yield key

    def _all_words(self, text: str) -> Iterator[Key]:
        if "://" in text:
            yield from dict.fromkeys(("url", whole_url(m, _EDGES)) for m in _URL.findall(text))
            text = _URL.sub(lambda m: " " + m[0][len(whole_url(m[0], _EDGES)) :], text)
        if "/" in text or "\\" in text:
            spaced = [m for m in _QUOTED_PATH.findall(text) if " " in m]
            yield from dict.fromkeys(("path", m) for m in spaced)
            text = _QUOTED_PATH.sub(lambda m: " " if " " in m[0] else m[0], text) if spaced else text
        yield from dict.fromkeys(("num", m) for m in _SPACED_NUMBER.findall(text))
        if not text.isascii():
            yield from dict.fromkeys(("num", m) for m in amounts(text))
        for word in dict.fromkeys(text.translate(_BREAKS).split()):
            known = self._known.get(word)
            if known is None:
                known = self._known[word] = _word_anchors(word)
            yield from known


def _word_anchors(word: str) -> tuple[Key, ...]:
    if len(word) < 2 or len(word) > LONGEST_WORD or "://" in word:
        return ()
    if not word.isascii() and HAS_LETTERS.search(word):
        return tuple(dict.fromkeys(_mixed_anchors(word)))
    found: list[Key] = []
    rest = word
    if "/" in word or "\\" in word:
        found += [("path", m.rstrip(_EDGES)) for m in _PATH.findall(word)]
        rest = _PATH.sub(" ", rest)
    if "." in rest:
        found += [("file", m) for m in _FILE.findall(rest)]
        rest = _FILE.sub(" ", rest)
    if any(c.isdigit() for c in rest):
        found += [("num", m) for m in _MOMENT.findall(rest)]
        rest = _MOMENT.sub(" ", rest)
        found += [("id", m) for m in _ID.findall(rest)]
        found += [("num", m) for m in _NUMBER.findall(_ID.sub(" ", rest))]
    if not rest.islower() or "_" in rest:
        found += [("ident", m) for m in _IDENTIFIER.findall(_ID.sub(" ", rest))]
    return tuple(key for key in found if len(key[1]) >= SHORTEST or (key[0] == "num" and len(key[1]) > 1))


def _mixed_anchors(word: str) -> Iterator[Key]:
    """Yield the anchors of a word in which Chinese, Japanese or Korean stands beside Latin without a blank."""
    rest = word
    for found in paths_in(word, _EXTENSIONS):
        if _PATH.fullmatch(path := found.rstrip(_EDGES)):
            yield ("path", path)
            rest = rest.replace(path, " ", 1)
    for found in _FILE.findall(rest):
        yield ("file", file_in(found))
        rest = rest.replace(found, " ", 1)
    for piece in pieces(without_amounts(rest)):
        yield from _word_anchors(piece)


# How `inspect` writes the columns of a table (tools/summarize.py).
_TABLE: Final = re.compile(r"DataFrame, \d+ rows x \d+ columns.*\n((?: {2}.+: .+\n?)+)")
_COLUMN: Final = re.compile(r"^ {2}(.+?): ", re.MULTILINE)


def _columns(text: str) -> list[str]:
    if "DataFrame, " not in text:
        return []
    return [name for table in _TABLE.findall(text) for name in _COLUMN.findall(table)][:MAX_OF_A_KIND]


# --- lines and sentences that are anchors ---------------------------------------------------------

# Tools that show what a file holds: an "Error" in a listing is source text, not something that went wrong.
_READERS: Final = re.compile(r"read|view|cat|open|grep|glob|search|find|fetch|list|edit|str_replace", re.IGNORECASE)
_ERROR: Final = re.compile(
    r"^(?:.*\s)?(?:[\w.]+\.)?(?:[A-Z]\w*)?(?:Error|Exception)(?:\[\w+\])?: \S"
    r"|\berror(?: ?\[?[A-Z]{1,3}\d+\]?)?: \S|^(?:fatal|panic|npm ERR!|ERROR)\b.{3}|\bFAILED\b|command not found$"
    r"|: No such file or directory|\bexit(?:ed with)? (?:code|status) [1-9]|Traceback \(most recent",
)
_ERROR_WORDS: Final = (
    "rror",
    "xception",
    "FAILED",
    "fatal",
    "panic",
    "ERR",
    "not found",
    "No such",
    "exit",
    "Traceback",
)
MAX_ERRORS: Final = 20  # lines of one result
ERROR_CHARS: Final = 160  # of one line


def error_lines(body: ToolResult, text: str) -> list[str]:
    """Return the lines of a result that say what failed, at most 20, each cut at 160 characters.

    Of a result that succeeded, only from tools that run something. One that failed has at least its last line.
    """
    if body.status == "ok" and (_READERS.search(body.name) or not any(w in text for w in _ERROR_WORDS)):
        return []
    lines = [line.strip() for line in text.splitlines()]
    found = [line[:ERROR_CHARS] for line in lines if len(line) < 1_000 and _ERROR.search(line)]
    if not found and body.status == "error":
        found = [line[:ERROR_CHARS] for line in lines if line][-1:]
    return list(dict.fromkeys(found))[:MAX_ERRORS]


# A rule holds until it is taken back; a request until it is answered. English, German, French, Spanish; then
# Chinese, Japanese, Korean, whose words have no borders.
_RULE: Final = re.compile(
    r"\b(?:must(?:n'?t)?|never|always|don'?t|do not|should(?:n'?t)?|only|instead of|prefer(?:ably)?|make sure|ensure|"
    r"from now on|at (?:most|least)|no (?:more|longer)|avoid|forbidden|not allowed|required?|cannot|can'?t use|"
    r"muss|müssen|darf|dürfen|niemals|nie|immer|nur|nicht|kein[e]?[nmrs]?|sollst?|sollte[n]?|bevorzug\w*|"
    r"doit|doivent|jamais|toujours|seulement|uniquement|ne pas|n'utilise[rz]?|il faut|évite[rz]?|préfèr\w*|"
    r"debe[ns]?|nunca|siempre|s[oó]lo|solamente|no uses?|evita\w*|prefier\w*|hay que)\b"
    r"|必须|必須|不要|不能|不得|不许|只能|只用|只要|禁止|请勿|務必|务必|应该|應該|不应|别|總是|总是|永远|一定|优先|避免"
    r"|しないで|てはいけない|てはなりません|なければ|だけ|のみ|絶対|常に|べき|ないこと"
    r"|하지 ?마|해야|반드시|절대|항상|금지|오직|안 ?됩니다|안 ?돼|말아",
    re.IGNORECASE,
)
_REQUEST: Final = re.compile(
    r"\b(?:want|need|please|would like|i'd like|could you|can you|let'?s|bitte|möchte|brauche|s'il (?:te|vous)|"
    r"voudrais|veux|por favor|quiero|quisiera|necesito)\b|^no,|^stop\b"
    r"|请|想要|需要|ください|ほしい|お願い|주세요|원해|필요",
    re.IGNORECASE,
)
_DECISION: Final = re.compile(
    r"\b(?:decided?|decision|we(?:'ll| will) (?:use|keep|go)|going with|chose|chosen|agreed|instead of|"
    r"switch(?:ed|ing)? to|the (?:root )?cause|turns out|plan is|entschieden|statt|choisi|décidé|decidido|elegido)\b"
    r"|决定|採用|采用|改用|原因是|決定|結論|결정|선택",
    re.IGNORECASE,
)
_FENCED: Final = re.compile(r"^```.*?(?:^```|\Z)", re.MULTILINE | re.DOTALL)
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")
SENTENCE_CHARS: Final = range(6, 401)


def sentences_of(text: str, author: Author) -> Iterator[Key]:
    """Yield the sentences that bind: constraints the person gave, decisions anyone took. Code is no sentence."""
    for sentence in split_sentences(_FENCED.sub("\n", text) if "```" in text else text):
        if len(sentence) not in SENTENCE_CHARS:
            continue
        if author == "person" and (_RULE.search(sentence) or _REQUEST.search(sentence)):
            yield ("constraint", sentence)
        elif _DECISION.search(sentence):
            yield ("decision", sentence)


def split_sentences(text: str) -> list[str]:
    """Return the sentences and lines of `text`, stripped, without empty ones."""
    return [s for s in (part.strip() for part in _SENTENCE_END.split(text)) if s]


def is_rule(sentence: str) -> bool:
    """Tell whether a constraint outlives the turn it was given in; a question or a plain request does not."""
    return _RULE.search(sentence) is not None and not sentence.endswith(("?", "？"))
