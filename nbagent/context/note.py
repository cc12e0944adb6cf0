"""The text that replaces a part of the conversation: the model's note, the person's words, the machine's list."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from nbagent.context.contained import contained
from nbagent.context.policy import NoteStyle
from nbagent.context.transcript import NOTE_MARK
from nbagent.core.entries import Compaction, Entry, Steering, ToolResult, UserMessage
from nbagent.core.messages import joined_text

HEAD = (
    f"{NOTE_MARK}\nThe conversation before this point was replaced by this note. It is a record, not a request: "
    "do nothing because of it alone. `recall` searches and reads what was replaced."
)
UNSEEN = (
    "Its writer did not see {unseen} of what was replaced, since they did not fit: they are in no "
    "summary, `recall` finds them."
)
TRANSCRIPT = "All of it is in the file {path}, as text: `read` and `grep` work on it."
END = "</context-note>"
NO_NOTE = "(no note could be written; what follows was collected by machine)"
DROPPED = "(the oldest part was left out without a note)"
CUT_MARK = " […] "
READS, WRITES = frozenset({"read"}), frozenset({"write", "edit"})
MOST_FILES = 100  # of each kind
OMITTED = "({count} earlier messages of the person are not repeated here; `recall` finds them)"


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteParts:
    """What a note is made of. `machine` is the machine-made list, `attached` what is shown again, empty for none.

    `unseen` says what the writer of the handoff was not shown. `beside` is what a policy keeps beside
    it, `missing` what the handoff should hold and does not. `transcript` is the file of what was replaced, `note_last`
    puts the handoff behind all else.
    """

    handoff: str
    unseen: str = ""
    users: str = ""
    machine: str = ""
    attached: str = ""
    skills: str = ""
    recent: str = ""
    pins: str = ""
    files: str = ""
    beside: str = ""
    missing: str = ""
    note_last: bool = False
    transcript: str = ""


def compose_note(parts: NoteParts) -> str:
    """Return the note as the model will see it, the most binding last."""
    pieces = [HEAD, UNSEEN.format(unseen=parts.unseen)] if parts.unseen else [HEAD]
    if parts.transcript:
        pieces.append(TRANSCRIPT.format(path=parts.transcript))
    handoff = [("handoff", parts.handoff)]
    for title, text in (
        *(handoff if not parts.note_last else ()),
        ("not-in-the-handoff", parts.missing),
        ("kept-beside-it", parts.beside),
        ("shown-again", parts.attached),
        ("last-steps", parts.recent),
        ("skills-in-use", parts.skills),
        ("files-touched", parts.files),
        ("must-not-get-lost", parts.machine),
        ("pinned-by-the-person", parts.pins),
        ("messages-of-the-person", parts.users),
        *(handoff if parts.note_last else ()),
    ):
        if text.strip():
            pieces.append(_tagged(title, text))
    return "\n\n".join([*pieces, END])


def with_handoff(note: str, old: str, new: str) -> str:
    """Return a composed note with another handoff in the place of `old`; where there is none, after the head."""
    there, wanted = _tagged("handoff", old), _tagged("handoff", new)
    if old.strip() and there in note:
        return note.replace(there, wanted, 1)
    head = f"{HEAD}\n\n"
    return f"{head}{wanted}\n\n{note.removeprefix(head)}" if note.startswith(head) else f"{wanted}\n\n{note}"


def _tagged(title: str, text: str) -> str:
    return f"<{title}>\n{contained(text.strip())}\n</{title}>"


def users_messages(
    replaced: Iterable[Entry], limit_tokens: int, count: Callable[[str], int], *, whole: Collection[str] = (),
    newest: bool = False,
) -> str:  # fmt: skip
    """Return the person's messages among `replaced`, oldest first; beyond the limit older ones are cut, then counted.

    Every message is kept in some form as long as a line of each fits; with `newest` they are kept whole from the
    newest on, the one that does not fit is cut in the middle, and none before it is kept. The entries `whole` are
    kept as they are, whatever the limit: what is asked in an open turn.
    """
    texts = [(t, e.id in whole) for e in replaced if (t := _said(e))]
    kept: list[str] = []
    left = max(0, limit_tokens - sum(count(t) + 4 for t, as_it_is in texts if as_it_is))
    others = sum(not as_it_is for _, as_it_is in texts)
    full = False
    for text, as_it_is in reversed(texts):
        shown = text
        if not as_it_is:
            others -= 1
            room = left if newest else max(0, left - min(left // 4, 30 * others))
            fits = count(text) <= room
            shown = "" if full else text if fits else _shortened(text, room, count, head=1 / 2 if newest else 2 / 3)
            left -= count(shown) + 4
            full = full or (newest and not fits)
        full = full or not shown
        if shown:
            kept.append(shown)
    if not kept:
        return ""
    lines = [f"- {t}" for t in reversed(kept)]
    if len(kept) < len(texts):
        lines.insert(0, OMITTED.format(count=len(texts) - len(kept)))
    return "\n".join(lines)


def _said(entry: Entry) -> str:
    """Return what the person wrote, without what was attached; of an image only that there was one."""
    body = entry.body
    if isinstance(body, Steering):
        return body.text.strip() if body.by == "person" else ""
    if not isinstance(body, UserMessage):
        return ""
    texts = [str(b.get("text", "")).strip() for b in body.blocks if b.get("type") == "text"]
    images = sum(b.get("type") == "image" for b in body.blocks)
    shown = [f"(with {images} image{'s' if images > 1 else ''}, no longer shown)"] if images else []
    return "\n".join([*(t for t in texts if t and not t.startswith("<attached")), *shown])


def _shortened(text: str, room_tokens: int, count: Callable[[str], int], *, head: float) -> str:
    """Return the text cut in the middle; `head` is the share of what is left that its beginning gets."""
    if room_tokens < 12:
        return ""
    size = max(20, len(text) * room_tokens // max(1, count(text)) - len(CUT_MARK))
    first = int(size * head)
    return text[:first].rstrip() + CUT_MARK + text[len(text) - (size - first) :].lstrip()


def shown_again(replaced: Sequence[Entry], kept: Iterable[Entry], style: NoteStyle, count: Callable[[str], int]) -> str:
    """Return the newest reads and inspections among `replaced`, each once, as the model saw them (CC-C4).

    What the kept part shows already is left out. Each is cut to the style's allowance, with a pointer to the rest.
    """
    seen = {key for e in kept if (key := _key(e))}
    out: list[str] = []
    for entry in reversed(replaced):
        key = _key(entry)
        if not key or key in seen or len(out) >= style.reattach:
            continue
        seen.add(key)
        body = entry.body
        assert isinstance(body, ToolResult)
        text = joined_text(body.content)
        if count(text) > style.reattach_tokens:
            size = len(text) * style.reattach_tokens // max(1, count(text))
            text = f"{text[:size].rstrip()}\n[… the rest: `recall` {entry.id} …]"
        out.append(f"{key}:\n{text}")
    return "\n\n".join(reversed(out))


def files_touched(entries: Iterable[Entry]) -> str:
    """Return the files that were changed, and those that were only read, a sorted line each; of many the newest."""
    bodies = [e.body for e in entries if isinstance(e.body, ToolResult) and e.body.status == "ok"]
    bodies = [b for b in bodies if b.name in READS | WRITES and b.meta.get("path")]
    touched = [(b.name in WRITES, str(b.meta["path"])) for b in bodies]
    changed = list(dict.fromkeys(path for writes, path in reversed(touched) if writes))
    read = [p for p in dict.fromkeys(path for writes, path in reversed(touched) if not writes) if p not in set(changed)]
    lines = []
    for title, paths in (("changed", changed), ("read", read)):
        if paths:
            more = f" and {len(paths) - MOST_FILES} more" if len(paths) > MOST_FILES else ""
            lines.append(f"{title}: {', '.join(sorted(paths[:MOST_FILES]))}{more}")
    return "\n".join(lines)


def _key(entry: Entry) -> str:
    body = entry.body
    if not isinstance(body, ToolResult) or body.status != "ok" or body.name not in ("read", "inspect"):
        return ""
    path = body.meta.get("path")
    if isinstance(path, str):
        return f"file {path}"
    key = str(body.meta.get("key", ""))
    return f"variables {key.removeprefix('inspect:')}" if key.startswith("inspect:") else ""


def last_note(path: Iterable[Entry]) -> str:
    """Return the text of the last compaction's note on `path`, empty when there is none."""
    notes = [e.body.note for e in path if isinstance(e.body, Compaction)]
    return notes[-1] if notes else ""
