"""Safeguard: what OpenClaw puts beside a summary, and what it asks of one (2026.5.28, reference 4.11). PURE.

The newest turns of what is replaced are kept word for word in short form, as are failed calls and the names of files;
a summary has to have its headings, the identifiers written last and what the person asked for last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from nbagent.context.anchors import Extractor, said
from nbagent.context.handoff import HandoffNote, Missing, Template, missing_sections
from nbagent.context.note import files_touched
from nbagent.core.entries import AssistantMessage, Entry, ToolResult, UserMessage
from nbagent.core.messages import joined_text, tool_calls
from nbagent.core.ranking import Words

REFERENCE_WINDOW: Final = 200_000
RECENT_TURNS, TURN_CHARS = 3, 600
FAILURES, FAILURE_CHARS = 8, 240
FILE_CHARS: Final = 900  # of the list of files read, and of those changed
LEAST_CHARS: Final = 120  # in a small window each text shrinks with it, to no less than this
IDENTIFIERS: Final = 12
IDENTIFIER_ENTRIES: Final = 10  # the newest entries of the person and the model that identifiers are taken from
IDENTIFIER_KINDS: Final = frozenset({"url", "id", "path"})
ASK_CHARS: Final = 600
MARK: Final = " […]"


# ---------------------------------------------------------------- what stands beside the summary


def preserved(roles: Sequence[str], turns: int) -> list[int]:
    """Return the positions of the messages of the newest `turns` turns, `roles` being "user" or "assistant".

    Where there are fewer turns: what the person said, and the newest messages up to twice as many in all.

    >>> preserved(["user", "assistant"] * 3, 1), preserved(["user"] + ["assistant"] * 8, 3)
    ([4, 5], [0, 4, 5, 6, 7, 8])
    """
    asked = [i for i, role in enumerate(roles) if role == "user"]
    if turns <= 0:
        return []
    if len(asked) >= turns:
        return list(range(asked[-turns], len(roles)))
    others = [i for i, role in enumerate(roles) if role != "user"]
    room = max(0, 2 * turns - len(asked))
    return sorted([*asked, *others[len(others) - min(room, len(others)) :]])


def kept_beside(replaced: Sequence[Entry], window_tokens: int) -> str:
    """Return the newest turns of `replaced`, what failed in it and which files it touched, each text bounded."""
    share = min(1.0, window_tokens / REFERENCE_WINDOW)

    def cut(text: str, chars: int) -> str:
        most = max(LEAST_CHARS, int(chars * share))
        one = " ".join(text.split())
        return one if len(one) <= most else one[: most - len(MARK)].rstrip() + MARK

    spoken = [e for e in replaced if isinstance(e.body, UserMessage | AssistantMessage)]
    roles = ["user" if isinstance(e.body, UserMessage) else "assistant" for e in spoken]
    recent = [f"- {roles[i]}: {cut(_words_of(spoken[i]), TURN_CHARS)}" for i in preserved(roles, RECENT_TURNS)]
    failed = [e.body for e in replaced if isinstance(e.body, ToolResult) and e.body.status == "error"]
    failures = [f"- {b.name}: {cut(joined_text(b.content), FAILURE_CHARS)}" for b in failed[-FAILURES:]]
    files = [f"- {cut(line, FILE_CHARS)}" for line in files_touched(replaced).split("\n") if line]
    sections = (
        ("Newest turns, shortened", recent[-2 * RECENT_TURNS :]), ("Calls that failed", failures), ("Files", files)
    )
    return "\n\n".join("\n".join([f"## {title}", *lines]) for title, lines in sections if lines)


def _words_of(entry: Entry) -> str:
    body = entry.body
    blocks = body.blocks if isinstance(body, UserMessage | AssistantMessage) else ()
    named = [f"[called {c.name}]" for c in tool_calls(blocks)]
    named += ["[an image]" for b in blocks if b.get("type") == "image"]
    return " ".join([joined_text(blocks), *named]).strip() or "[no text]"


# ---------------------------------------------------------------- what is asked of the summary


def missing_in(note: HandoffNote, template: Template, replaced: Sequence[Entry]) -> Missing:
    """Return what the note should hold and does not: headings, identifiers, what the person asked for last.

    As many headings as were asked for may be in another language.
    """
    ids = [i for i in identifiers(replaced) if i not in note.text]
    headings = missing_sections(note, template) if len(note.sections) < len(template.sections) else ()
    return Missing(headings=headings, identifiers=tuple(ids), ask=_missing_ask(note, replaced))


def identifiers(replaced: Sequence[Entry]) -> list[str]:
    """Return the identifiers, paths and addresses that person and model wrote last, newest entry first."""
    extractor = Extractor()
    spoken = [s.text for e in replaced if (s := said(e.body)).author in ("person", "model") and s.text]
    found: dict[str, None] = {}
    for text in reversed(spoken[-IDENTIFIER_ENTRIES:]):
        found |= dict.fromkeys(word for kind, word in extractor.words(text) if kind in IDENTIFIER_KINDS)
    return list(found)[:IDENTIFIERS]


def _missing_ask(note: HandoffNote, replaced: Sequence[Entry]) -> str:
    """Return the newest request when too few of its words are in the note: one of one or two, two of more."""
    asked = next((joined_text(e.body.blocks) for e in reversed(replaced) if isinstance(e.body, UserMessage)), "")
    words = Words()
    wanted = frozenset(words.terms(asked[:ASK_CHARS]))
    shared = wanted & frozenset(words.terms(note.text))
    needed = min(len(wanted), 2 if len(wanted) >= 3 else 1)
    return asked[:ASK_CHARS].strip() if len(shared) < needed else ""
