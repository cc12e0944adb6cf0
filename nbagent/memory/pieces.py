"""Notes taken apart: one piece for a paragraph or list item, with its heading path and its place. PURE.

A piece holds at most 200 tokens (measured: within a fixed budget of tokens small pieces find most), and
knows its heading. Sections are runs of pieces below one heading, of at most 400 tokens, 80 of them shared
with the next. The preset `openclaw` cuts as OpenClaw does: by lines, 400 tokens and 80 of overlap.
"""

from __future__ import annotations

import datetime
import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from nbagent.memory.fences import Fence, fence_opened

Chunking = Literal["pieces", "openclaw"]

PIECE_TOKENS: Final = 200  # memory-and-models.md 4.1
SECTION_TOKENS: Final = 400  # the unit "parent section" was measured with, 4.3
SECTION_OVERLAP: Final = 80
CHARS_A_TOKEN: Final = 4  # OpenClaw's rule, and the reference's: four characters, or one of CJK
OPENCLAW_TOKENS: Final = 400  # OpenClaw 2026.5.28, memory-search 13-30
OPENCLAW_OVERLAP: Final = 80

_WIDE: Final = re.compile("[\u2e80-\u9fff\ua000-\ua4ff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0002fa1f]")
_HEADING: Final = re.compile(r"^ {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*$")
_ITEM: Final = re.compile(r"^\s{0,12}(?:[-*+]|\d{1,9}[.)])[ \t]")
_COMMENT: Final = re.compile(r"[ \t]*<!--.*?-->")
_ORIGIN_ENDS: Final = re.compile(r"<!-- nbagent [^<>]*-->\s*$")  # one that is remembered ends here
_LABEL: Final = re.compile(
    r"^\s*(?:(?:[-*+]|\d{1,9}[.)])\s+)?(?:\[[^\]\n]{1,40}\]\s*)?"
    r"[*_]{0,2}([^\W\d_][\w'’. -]{0,38}?)[*_]{0,2}:[*_]{0,2}\s"
)
_SENTENCE: Final = re.compile(r"(?<=[.!?。！？])\s*")
_ISO: Final = re.compile(r"(?<!\d)(\d{4})-(\d{2})-(\d{2})(?!\d)")
_MONTHS: Final = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
)  # fmt: skip
_NAMED: Final = re.compile(
    rf"(?i)\b(?:(\d{{1,2}})(?:st|nd|rd|th)?\s+({'|'.join(_MONTHS)}),?\s+(\d{{4}})"
    rf"|({'|'.join(_MONTHS)})\s+(\d{{1,2}})(?:st|nd|rd|th)?,?\s+(\d{{4}}))\b"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A part of a note. Lines count from 1, both included.

    `text` is without comments. `heading` is the path of headings ("Cache > Redis"); `label` who or what the
    piece begins with ("Anna: ..."), lower case; `date` is the day in a heading over it, "" for none.
    `origin` are the comments taken out.
    """

    start_line: int
    end_line: int
    text: str
    heading: str = ""
    label: str = ""
    date: str = ""
    origin: str = ""

    @property
    def digest(self) -> bytes:
        """Return 16 bytes of the text's SHA-256."""
        return hashlib.sha256(self.text.encode("utf-8", "replace")).digest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """The pieces `first` to `last` (numbers in the file, both included) below one heading."""

    first: int
    last: int
    heading: str


def weight(text: str) -> int:
    """Return the length in characters, of which one of CJK counts as four."""
    if text.isascii():
        return len(text)
    return len(text) + (CHARS_A_TOKEN - 1) * len(_WIDE.findall(text))


def split(text: str, chunking: Chunking) -> list[Piece]:
    """Return the pieces of a note, in order; blank ones are left out."""
    return list(_openclaw_chunks(text) if chunking == "openclaw" else _pieces(text))


@dataclass(frozen=True, slots=True)
class _Block:
    start: int
    lines: list[str]
    heading: str
    date: str


def _pieces(text: str) -> Iterator[Piece]:
    for block in _blocks(text.split("\n")):
        origin = "".join(_COMMENT.findall("\n".join(block.lines))).strip()  # that of each part of a long one
        plain = [_COMMENT.sub("", line) for line in block.lines]
        for start, lines in _within(block.start, plain, PIECE_TOKENS * CHARS_A_TOKEN):
            shown = "\n".join(lines).strip()
            if not shown:
                continue
            named = _LABEL.match(shown)
            yield Piece(
                start_line=start,
                end_line=start + len(lines) - 1,
                text=shown,
                heading=block.heading,
                label=named[1].strip().lower() if named and len(named[1].split()) <= 3 else "",
                date=block.date,
                origin=origin,
            )


def _blocks(lines: Sequence[str]) -> Iterator[_Block]:
    """Yield paragraphs, list items, fenced code and tables with the headings over them.

    A heading with nothing below it, before the next that is not below it, is a block of its own.
    """
    path: list[tuple[int, str]] = []
    date = ""
    block: list[str] = []
    start = 1
    fence: Fence | None = None
    bare: _Block | None = None  # the last heading, while nothing stands below it
    bare_level = 0

    def heading() -> str:
        return " > ".join(title for _, title in path if title)

    for number, line in enumerate(lines, 1):
        if fence and not fence.is_left_by(line):
            block.append(line)
            fence = None if fence.is_closed_by(line) else fence
            continue
        fence = None
        title = _HEADING.match(line)
        ended = bool(block) and bool(_ORIGIN_ENDS.search(block[-1]))
        if block and (title or ended or not line.strip() or _ITEM.match(line)):
            yield _Block(start, block, heading(), date)
            block = []
        if title:
            level = len(title[1])
            if bare and level <= bare_level:
                yield bare
            path = [(depth, name) for depth, name in path if depth < level]
            path.append((level, _COMMENT.sub("", title[2] or "").strip()))
            above = " > ".join(name for _, name in path[:-1] if name)
            date = next(filter(None, (date_in(name) for _, name in reversed(path))), "")
            bare, bare_level = (_Block(number, [line], above, date) if path[-1][1] else None), level
        elif line.strip():
            bare = None
            start = start if block else number
            block.append(line)
            fence = fence_opened(line)
    if block:
        yield _Block(start, block, heading(), date)
    if bare:
        yield bare


def _within(start: int, lines: list[str], limit: int) -> Iterator[tuple[int, list[str]]]:
    """Yield (first line, lines) of parts whose weight is at most `limit`; a long line is cut at sentences."""
    kept: list[str] = []
    kept_weight = 0
    first = start
    for number, line in enumerate(lines, start):
        size = weight(line) + 1
        if kept and kept_weight + size > limit + 1:
            yield first, kept
            kept, kept_weight = [], 0
        if size > limit + 1:
            yield from ((number, [part]) for part in _cut(line, limit))
            first = number + 1
            continue
        first = first if kept else number
        kept.append(line)
        kept_weight += size
    if kept:
        yield first, kept


def _cut(line: str, limit: int) -> Iterator[str]:
    """Yield parts of a line within `limit`: whole sentences where possible, whole words else."""
    part = ""
    for sentence in _SENTENCE.split(line):
        if part and weight(part) + weight(sentence) + 1 > limit:
            yield part
            part = ""
        part = f"{part} {sentence}" if part else sentence
        start = 0  # the line may have megabytes, so nothing is done to all that is left
        while len(part) - start > limit or weight(part[start:]) > limit:
            window = part[start : start + limit + 1]
            end = _fitting(window, limit)
            blank = window.rfind(" ", end // 2, end)
            yield window[: blank if blank > 0 else end]
            start += blank + 1 if blank > 0 else end
        part = part[start:]
    if part.strip():
        yield part


def _fitting(text: str, limit: int) -> int:
    """Return how many characters of `text` weigh at most `limit`, at least one."""
    if text.isascii():
        return limit
    low, high = 1, min(len(text), limit)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if weight(text[:middle]) <= limit else (low, middle - 1)
    return low


def sections(pieces: Sequence[Piece]) -> list[Section]:
    """Return the sections of a file: below one heading, at most 400 tokens each, sharing about 80 with the next."""
    found: list[Section] = []
    first = 0
    while first < len(pieces):
        last, size = first, weight(pieces[first].text)
        while last + 1 < len(pieces) and pieces[last + 1].heading == pieces[first].heading:
            size += weight(pieces[last + 1].text)
            if size > SECTION_TOKENS * CHARS_A_TOKEN:
                break
            last += 1
        found.append(Section(first=first, last=last, heading=pieces[first].heading))
        done = last + 1 == len(pieces) or pieces[last + 1].heading != pieces[first].heading
        after, shared = last + 1, 0
        while not done and after - 1 > first and shared < SECTION_OVERLAP * CHARS_A_TOKEN:
            after -= 1
            shared += weight(pieces[after].text)
        first = after
    return found


def _openclaw_chunks(text: str) -> Iterator[Piece]:
    """Yield OpenClaw's chunks; other than there, none exceeds the limit because of its overlap (section 10)."""
    limit, overlap = OPENCLAW_TOKENS * CHARS_A_TOKEN, OPENCLAW_OVERLAP * CHARS_A_TOKEN
    chunk: list[tuple[int, str]] = []
    size = 0
    for number, line in enumerate(text.split("\n"), 1):
        for part in [line[i : i + limit] for i in range(0, len(line), limit)] or [""]:
            step = OPENCLAW_TOKENS if weight(part) > limit else limit
            for bit in [part[i : i + step] for i in range(0, len(part), step)] or [""]:
                if chunk and size + weight(bit) + 1 > limit:
                    yield from _chunk(chunk)
                    chunk = _overlap(chunk, overlap, limit - weight(bit) - 1)
                    size = sum(weight(t) + 1 for _, t in chunk)
                chunk.append((number, bit))
                size += weight(bit) + 1
    yield from _chunk(chunk)


def _overlap(chunk: list[tuple[int, str]], wanted: int, most: int) -> list[tuple[int, str]]:
    kept: list[tuple[int, str]] = []
    size = 0
    for line in reversed(chunk):
        more = weight(line[1]) + 1
        if size >= wanted or size + more > most:
            break
        kept.insert(0, line)
        size += more
    return kept


def _chunk(lines: list[tuple[int, str]]) -> Iterator[Piece]:
    text = "\n".join(t for _, t in lines)
    if text.strip():
        yield Piece(start_line=lines[0][0], end_line=lines[-1][0], text=text)


def date_in(text: str) -> str:
    """Return the first real date written in `text` as YYYY-MM-DD, "" when there is none.

    >>> date_in("1:56 pm on 8 May, 2023"), date_in("2026-02-31"), date_in("May 8th, 2023")
    ('2023-05-08', '', '2023-05-08')
    """
    iso = _ISO.search(text)
    if iso:
        return real_date(*iso.groups())
    named = _NAMED.search(text)
    if not named:
        return ""
    day, month, year = named.group(1, 2, 3) if named[1] else named.group(5, 4, 6)
    return real_date(year, str(_MONTHS.index(month.lower()) + 1), day)


def real_date(year: str, month: str, day: str) -> str:
    """Return the date as YYYY-MM-DD, "" when no calendar has it."""
    try:
        return datetime.date(int(year), int(month), int(day)).isoformat()
    except ValueError:
        return ""
