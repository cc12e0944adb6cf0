"""An extract under headings, of a given size: what stands in where a model would write a summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from nbagent.context.anchor_index import AnchorIndex
from nbagent.core.entries import Entry, UserMessage
from nbagent.core.messages import joined_text


def heading_extract(index: AnchorIndex, hidden: Sequence[Entry], tokens: int, count: Callable[[str], int]) -> str:
    """Return requests, files, identifiers, errors and decisions of `hidden`, newest or commonest first."""
    written: Counter[tuple[str, str]] = Counter()
    errors: list[str] = []
    decisions: list[str] = []
    for entry in reversed(hidden):
        position = index.positions[entry.id]
        for kind, text in index.anchors[position]:
            if kind == "error":
                errors.append(text)
            elif kind == "decision":
                decisions.append(text)
            elif kind != "constraint" and index.said[position].author != "shown":
                written[(kind, text)] += 1
    words = [key for key, _ in written.most_common()]
    asked = [joined_text(e.body.blocks)[:600] for e in reversed(hidden) if isinstance(e.body, UserMessage)]
    parts = (
        ("Requests of the person, newest first", asked, 0.35),
        ("Files", [t for k, t in words if k in ("path", "file", "url")], 0.2),
        ("Identifiers", [t for k, t in words if k in ("id", "num", "ident", "column")], 0.2),
        ("Errors", errors, 0.1),
        ("Decisions", decisions, 0.15),
    )
    out = []
    for title, items, share in parts:
        left = tokens * share
        lines = []
        for item in dict.fromkeys(items):
            takes = count(item) + 1
            if takes <= left:
                left -= takes
                lines.append(item)
        out.append(f"## {title}\n" + "\n".join(lines))
    return "\n".join(out)
