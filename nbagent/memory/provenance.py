"""Where a line of memory came from (turn, cell), written behind it. PURE (NB-M2)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from nbagent.memory.fences import Fence, fence_after, open_at_end

_MARK: Final = re.compile(r"<!-- nbagent((?: [a-z]+=[^\s<>]+)*) -->")
_PAIR: Final = re.compile(r" ([a-z]+)=([^\s<>]+)")
_BLOCK: Final = re.compile(r"\s*(?:[-*+]|\d+[.)])\s|#|\s*(?:```|~~~)")
_UNSAFE: Final = re.compile(r"[\s<>%\x00-\x1f]|--")
_FIELDS: Final = ("turn", "cell", "session", "notebook", "at")


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
