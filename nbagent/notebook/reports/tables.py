"""Small documents (lines, tables, code, a bar) as plain text, Markdown and HTML; shared by all reports."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from nbagent.notebook.markdown import clean, clean_line, escape

BAR_CELLS = 40
MOST_EMS = 12  # what a column of Chinese text is given beside others, in letters
_COLOURS = (210, 30, 120, 280, 0, 180, 55, 330, 90, 250, 150, 15)  # hues, far apart for neighbours


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of text. `dim` is for what is beside the point."""

    text: str
    dim: bool = False
    strong: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table; columns in `numbers`, counted from 0, are set to the right."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """Text shown as it is; folded behind `title` in HTML when there is one."""

    text: str
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """Parts (label, size) of a whole, with a mark at `mark` when that is positive."""

    parts: tuple[tuple[str, int], ...]
    whole: int
    mark: int = 0


Piece: TypeAlias = Line | Table | Code | Bar
Document: TypeAlias = Sequence[Piece]
_Class = TypeVar("_Class", bound=type)
_CODE = re.compile(r"`((?:%|nbagent )[^`]*)`")  # what is to be typed, in our own lines


def displayable(cls: _Class) -> _Class:
    """Give a class with a method `document` its repr, HTML, Markdown and MIME bundle."""
    document: Callable[[Any], Document] = cls.document  # type: ignore[attr-defined]

    def mimebundle(self: Any, include: Any = None, exclude: Any = None) -> dict[str, str]:
        pieces = document(self)
        return {
            "text/plain": as_text(pieces), "text/markdown": as_markdown(pieces), "text/html": as_html(pieces),
        }  # fmt: skip

    methods: dict[str, Callable[..., object]] = {
        "__repr__": lambda self: as_text(document(self)),
        "_repr_html_": lambda self: as_html(document(self)),
        "_repr_markdown_": lambda self: as_markdown(document(self)),
        "_repr_mimebundle_": mimebundle,
    }
    for name, method in methods.items():
        setattr(cls, name, method)
    return cls


def width(text: str) -> int:
    """Return how many columns a terminal gives `text`; a wide character takes two, a combining one none."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.combining(c) > 0 or unicodedata.category(c) == "Cf" for c in text)


def as_text(document: Document) -> str:
    """Return the document as plain text."""
    return "\n".join(filter(None, (_text(p) for p in document)))


def as_markdown(document: Document) -> str:
    """Return the document as Markdown."""
    return "\n\n".join(filter(None, (_markdown(p) for p in document)))


def as_html(document: Document) -> str:
    """Return the document as HTML without script, in the colours of what is around it."""
    return '<div class="nbagent-report">\n' + "\n".join(filter(None, (_html(p) for p in document))) + "\n</div>"


def markdown_text(text: str) -> str:
    """Return one line of text in which nothing is Markdown or HTML.

    >>> markdown_text("a|b *c* <d>")
    'a&#124;b &#42;c&#42; &lt;d&gt;'
    """
    line = clean_line(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "".join(f"&#{ord(c)};" if c in "\\`*_[]|~$#" else c for c in line)


def _text(piece: Piece) -> str:
    match piece:
        case Line():
            return clean_line(piece.text)
        case Code():
            return "\n".join(filter(None, [clean_line(piece.title), clean(piece.text)]))
        case Bar():
            return _text_bar(piece)
        case Table():
            return _text_table(piece)


def _text_bar(bar: Bar) -> str:
    total = sum(size for _, size in bar.parts)
    whole = max(bar.whole, total, 1)
    full = round(BAR_CELLS * total / whole) or int(total > 0)
    cells = ["█" if i < full else "░" for i in range(BAR_CELLS)]
    if 0 < bar.mark < whole:
        cells[min(BAR_CELLS - 1, round(BAR_CELLS * bar.mark / whole))] = "┃"
    return f"[{''.join(cells)}]"


def _text_table(table: Table) -> str:
    rows = [tuple(clean_line(c) for c in row) for row in (table.head, *table.rows)]
    widths = [max(width(row[i]) for row in rows) for i in range(len(table.head))]
    lines = []
    for row in rows:
        cells = []
        for i, cell in enumerate(row):
            space = " " * (widths[i] - width(cell))
            cells.append(space + cell if i in table.numbers else cell + space)
        lines.append("  ".join(cells).rstrip())
    return "\n".join([lines[0], "─" * (sum(widths) + 2 * (len(widths) - 1)), *lines[1:]])


def _markdown(piece: Piece) -> str:
    match piece:
        case Line():
            text = markdown_text(piece.text)
            return f"**{text}**" if piece.strong and text else text
        case Code():
            text = clean(piece.text)
            ticks = "```"
            while ticks in text:
                ticks += "`"
            return "\n\n".join(filter(None, [markdown_text(piece.title), f"{ticks}\n{text}\n{ticks}"]))
        case Bar():
            return f"`{_text_bar(piece)}`"
        case Table():
            marks = ["---:" if i in piece.numbers else "---" for i in range(len(piece.head))]
            rows = [piece.head, *piece.rows]
            lines = ["| " + " | ".join(markdown_text(c) for c in row) + " |" for row in rows]
            return "\n".join([lines[0], "| " + " | ".join(marks) + " |", *lines[1:]])


def _html(piece: Piece) -> str:
    match piece:
        case Line():
            style = "font-weight:600" if piece.strong else ("opacity:0.75;font-size:0.9em" if piece.dim else "")
            text = _CODE.sub(r"<code>\1</code>", escape(clean_line(piece.text)))
            return f'<div style="{style}">{text}</div>' if text else ""
        case Code():
            pre = f'<pre style="white-space:pre-wrap;overflow-wrap:anywhere;margin:0.3em 0">{escape(piece.text)}</pre>'
            title = escape(clean_line(piece.title))
            return f"<details><summary>{title}</summary>\n{pre}\n</details>" if title else pre
        case Bar():
            return _html_bar(piece)
        case Table():
            return _html_table(piece)


def _html_bar(bar: Bar) -> str:
    whole = max(bar.whole, sum(size for _, size in bar.parts), 1)
    segments = "".join(
        f'<div title="{escape_attribute(label)}: {size:,}" style="width:{100 * size / whole:.2f}%;'
        f'background:{hue(i)}"></div>'
        for i, (label, size) in enumerate(bar.parts)
        if size > 0
    )
    place = f"position:absolute;left:{100 * bar.mark / whole:.2f}%;top:0;bottom:0"
    mark = f'<div style="{place};border-left:2px solid currentColor"></div>' if 0 < bar.mark < whole else ""
    return (
        '<div style="position:relative;display:flex;height:0.9em;max-width:40em;margin:0.4em 0;'
        f'border:1px solid var(--jp-border-color2,currentColor)">{segments}{mark}</div>'
    )


def hue(index: int) -> str:
    """Return the colour of a bar's part, of middle lightness: seen on light and on dark."""
    return f"hsl({_COLOURS[index % len(_COLOURS)]},55%,55%)"


def escape_attribute(text: str) -> str:
    """Return `text` for an attribute in double quotes."""
    return clean_line(text).replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")


def _html_table(table: Table) -> str:
    least = {i: f";min-width:{ems}em" for i, ems in _least_ems(table).items()}

    def cells(row: tuple[str, ...], tag: str) -> str:
        aligned = ("right" if i in table.numbers else "left" for i in range(len(row)))
        return "".join(
            f'<{tag} style="text-align:{side}{least.get(i, "") if tag == "th" else ""}">{escape(clean_line(c))}</{tag}>'
            for i, (c, side) in enumerate(zip(row, aligned, strict=True))
        )

    body = "\n".join(f"<tr>{cells(row, 'td')}</tr>" for row in table.rows)
    return f"<table>\n<thead><tr>{cells(table.head, 'th')}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def _least_ems(table: Table) -> dict[int, int]:
    """Return how wide columns with Chinese, Japanese or Korean text are at least: it breaks at any letter."""
    least = {}
    for i in range(len(table.head)):
        wide = max((sum(unicodedata.east_asian_width(c) in "WF" for c in row[i]) for row in table.rows), default=0)
        if wide > 1:
            least[i] = min(wide, MOST_EMS)
    return least
