"""Rot: four ways in which a context goes bad while it still fits, found by machine (NB-4).

* poisoning: a file, a notebook or a variable changed since it was read, and what was read still stands here;
* clash: an old and a new version of the same thing stand here together;
* confusion: two different sources are nearly alike;
* distraction: a large old result that nothing has used for some turns.

Clash and distraction are masked with a pointer, but only where the prefix moves anyway: at a compaction, or when
the cache has gone cold. Poisoning and confusion are told at the tail, each once. Errors stay (MA-C6).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final, Literal, TypeAlias

from nbagent.context.alike import Source, difference, likeness, source_text
from nbagent.context.anchors import Extractor, said
from nbagent.context.moves import label_of
from nbagent.context.policy import Prune
from nbagent.core.entries import AssistantMessage, Entry, Snapshot, ToolResult, TurnStart, UserMessage
from nbagent.core.messages import joined_text, tool_calls
from nbagent.core.view import View

RotKind: TypeAlias = Literal["poisoning", "clash", "confusion", "distraction"]

QUIET_TURNS: Final = 3  # a result not used for this many turns distracts
LARGE_CHARS: Final = 8_000  # about 2,000 tokens
ALIKE: Final = 0.8
MOST_SOURCES: Final = 40  # the newest are compared with each other
MOST_REMINDERS: Final = 5  # in one tail
MOST_TOLD: Final = 200  # kept in the snapshot's state
SCANNED_CHARS: Final = 20_000  # of a result, in search of what was used later


@dataclass(frozen=True, slots=True, kw_only=True)
class RotFinding:
    """One thing that is wrong. `where` names it, `what` says what is the matter, `remedy` what helps.

    `entry_ids` are the results concerned, the stale one first. `placeholder` stands in for that one when it is
    masked, empty when it is not to be. `mark` tells one change of a thing from the next; `remind` that the
    model has to hear of it.
    """

    kind: RotKind
    where: str
    what: str
    remedy: str
    entry_ids: tuple[str, ...]
    placeholder: str = ""
    mark: str = ""
    remind: bool = False

    @property
    def key(self) -> str:
        """What the finding is remembered by once it was told."""
        return f"{self.kind} {self.where} {self.mark}".strip()

    def __str__(self) -> str:
        return f"{self.kind}: {self.where}: {self.what}; {self.remedy}"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFile:
    """What the conversation knows of a file that it shows: its state when it was read or written last."""

    path: str
    mtime_ns: int | None
    size: int | None
    sha256: str


@dataclass(frozen=True, slots=True)
class _Seen:
    """A result of the path: where it stands, whether the model still sees it."""

    entry: Entry
    body: ToolResult
    position: int
    turn: int
    visible: bool

    @property
    def meta(self) -> Mapping[str, Any]:
        return self.body.meta

    @property
    def id(self) -> str:
        return self.entry.id


def detect(
    view: View, path: Sequence[Entry], *, changed_on_disk: Mapping[str, str] | None = None,
    quiet_turns: int = QUIET_TURNS,
) -> tuple[RotFinding, ...]:  # fmt: skip
    """Return what is wrong in the context `view` of `path`; poisoning first, then clash, confusion, distraction.

    `changed_on_disk` maps files whose state is no longer the one of `known_files` to a mark of the new state.
    """
    results = _results(view, path)
    stale = [*_files(results, changed_on_disk or {}), *_variables(results, path)]
    masked = {f.entry_ids[0] for f in stale if f.placeholder}
    poisoned = [f for f in stale if f.kind == "poisoning"]
    clashes = [f for f in stale if f.kind == "clash"]
    open_results = [r for r in results if r.visible and r.id not in masked]
    return (*poisoned, *clashes, *_confusions(open_results), *_distractions(open_results, path, quiet_turns))


def moves_for(findings: Sequence[RotFinding]) -> Prune | None:
    """Return the move that masks what clashes and distracts, each with a pointer; None when there is nothing."""
    texts = {f.entry_ids[0]: f.placeholder for f in findings if f.placeholder}
    return Prune(placeholders=texts, reason="old versions and unused old results were masked") if texts else None


def reminders(findings: Sequence[RotFinding], told: Collection[str] = ()) -> str:
    """Return what the model has to hear and was not told before, a line each; empty when nothing."""
    return "\n".join(f"{f.where}: {f.what}; {f.remedy}." for f in _untold(findings, told))


def told_after(findings: Sequence[RotFinding], told: Sequence[str]) -> list[str]:
    """Return the keys that were told once `reminders` was written: what goes into the snapshot's state."""
    return [*told, *(f.key for f in _untold(findings, told))][-MOST_TOLD:]


def _untold(findings: Sequence[RotFinding], told: Collection[str]) -> list[RotFinding]:
    return [f for f in findings if f.remind and f.key not in told][:MOST_REMINDERS]


def known_files(view: View, path: Sequence[Entry]) -> tuple[KnownFile, ...]:
    """Return the files that the context shows, each as it was when the conversation last read or wrote it."""
    found: dict[str, KnownFile] = {}
    shown: set[str] = set()
    for seen in _results(view, path):
        name = seen.meta.get("path")
        if not isinstance(name, str) or "size" not in seen.meta:
            continue
        if seen.visible:
            shown.add(name)
        mtime, size = seen.meta.get("mtime_ns"), seen.meta.get("size")
        found[name] = KnownFile(
            path=name, mtime_ns=mtime if isinstance(mtime, int) else None, size=size if isinstance(size, int) else None,
            sha256=_file_digest(seen),
        )  # fmt: skip
    return tuple(f for name, f in found.items() if name in shown)


def _results(view: View, path: Sequence[Entry]) -> list[_Seen]:
    shown = view.seen
    found: list[_Seen] = []
    turn = 0
    for position, entry in enumerate(path):
        body = entry.body
        if isinstance(body, TurnStart):
            turn += 1
        elif isinstance(body, ToolResult) and body.status == "ok":
            found.append(_Seen(entry, body, position, turn, entry.id in shown))
    return found


# ---------------------------------------------------------------- files


def _files(results: Sequence[_Seen], changed: Mapping[str, str]) -> Iterator[RotFinding]:
    by_path: dict[str, list[_Seen]] = {}
    for seen in results:
        name = seen.meta.get("path")
        if isinstance(name, str) and "size" in seen.meta and "unchanged" not in seen.meta:
            by_path.setdefault(name, []).append(seen)
    for name, versions in by_path.items():
        reads = [v for v in versions if v.visible and v.body.name == "read"]
        if name in changed and (visible := [v.id for v in versions if v.visible]):
            yield RotFinding(
                kind="poisoning", where=name, what=_disk_words(changed[name], visible), mark=changed[name],
                remedy="read it again before you rely on it", entry_ids=tuple(visible), remind=True,
            )  # fmt: skip
        for old in reads:
            finding = _old_read(name, old, [v for v in versions if v.position > old.position])
            if finding is not None:
                yield finding


def _disk_words(mark: str, visible: Sequence[str]) -> str:
    what = "it is gone from the disk" if mark == "gone" else "it changed on disk"
    return f"{what} since it was read ({', '.join(visible[:3])}{' …' if len(visible) > 3 else ''})"


def _old_read(name: str, old: _Seen, later: Sequence[_Seen]) -> RotFinding | None:
    """Return what is wrong with a read, given what came of the same file since."""
    if not later or _same_state(old, later[-1]):
        return None
    newest = later[-1]
    covering = next((v for v in reversed(later) if v.visible and _same_state(v, newest) and _covers(v, old)), None)
    if covering is not None:
        new = f"the version since then is in {covering.id}"
        text = f"[cleared: an older version of {name}{_lines(old)}; {new}; `recall` {old.id} shows the old one]"
        return RotFinding(
            kind="clash", where=name, what=f"an older version ({old.id}) stands beside a newer one ({covering.id})",
            remedy="the older one is masked where the prefix moves anyway", entry_ids=(old.id, covering.id),
            placeholder=text, mark=_file_digest(newest)[:12],
        )  # fmt: skip
    if all(v.visible and v.body.name == "edit" for v in later if not _same_state(old, v)):
        return None  # the model made the changes itself and still sees them
    return RotFinding(
        kind="poisoning", where=name, what=f"it changed since it was read ({old.id}; seen in {newest.id})",
        remedy="read it again before you rely on it", entry_ids=(old.id, newest.id), mark=_file_digest(newest)[:12],
    )  # fmt: skip


def _file_digest(seen: _Seen) -> str:
    return str(seen.meta.get("file_sha256") or "")


def _same_state(one: _Seen, other: _Seen) -> bool:
    """Tell whether two results are of the same state of their file: by its digest, else by time and size."""
    digests = _file_digest(one), _file_digest(other)
    if all(digests):
        return digests[0] == digests[1]
    known = [k for k in ("mtime_ns", "size") if k in one.meta and k in other.meta]
    return all(one.meta[k] == other.meta[k] for k in known)


def _covers(new: _Seen, old: _Seen) -> bool:
    """Tell whether `new` shows all that `old` shows: a whole file, what was written, or the same lines."""
    if new.body.name == "write":
        return True
    if new.body.name != "read":
        return False
    inner, outer = _span(old), _span(new)
    if inner is None or outer is None:
        return old.meta.get("cells") == new.meta.get("cells") and "cells" in old.meta
    return not new.meta.get("partial", True) or (outer[0] <= inner[0] and outer[1] >= inner[1])


def _span(seen: _Seen) -> tuple[int, int] | None:
    lines = seen.meta.get("lines")
    if isinstance(lines, list | tuple) and len(lines) == 2 and all(isinstance(n, int) for n in lines):
        return lines[0], lines[1]
    return None


def _lines(seen: _Seen) -> str:
    span = _span(seen)
    return f" (lines {span[0]}-{span[1]})" if span else ""


# ---------------------------------------------------------------- variables


def _variables(results: Sequence[_Seen], path: Sequence[Entry]) -> Iterator[RotFinding]:
    latest = _latest_identities(results, path)
    looks = [r for r in results if r.visible and isinstance(r.meta.get("variables"), Mapping)]
    for old in looks:
        bound = old.meta["variables"]
        changed = [n for n, identity in bound.items() if latest.get(n, identity) != identity]
        if not changed:
            continue
        named = old.meta.get("key") != "inspect:"
        newer = [
            r for r in looks
            if r.position > old.position and (r.meta.get("key") != "inspect:" or not named)
        ]  # fmt: skip
        now = {n: r.id for r in newer for n, identity in r.meta["variables"].items() if latest.get(n) == identity}
        where = ", ".join(changed[:5]) + (" …" if len(changed) > 5 else "")
        mark = " ".join(latest[n] for n in changed[:5])[:80]
        if all(n in now for n in bound):
            news = sorted({now[n] for n in bound})
            yield RotFinding(
                kind="clash", where=where, what=f"what {old.id} says of it is older than what {', '.join(news)} says",
                remedy="the older one is masked where the prefix moves anyway", entry_ids=(old.id, *news), mark=mark,
                placeholder=f"[cleared: {label_of(old.body, None)} of {where} before it was bound anew; see "
                f"{', '.join(news)}; `recall` {old.id} shows the old one]",
            )  # fmt: skip
        elif any(n not in now for n in changed):
            yield RotFinding(
                kind="poisoning", where=where, what=f"bound anew since it was looked at ({old.id})",
                remedy="inspect it again before you rely on it", entry_ids=(old.id,), mark=mark,
            )  # fmt: skip


def _latest_identities(results: Sequence[_Seen], path: Sequence[Entry]) -> dict[str, str]:
    """Return what each variable was when it was seen last: by an inspection, or by the tail of a turn."""
    looks = {r.position: r.meta.get("variables") for r in results}
    found: dict[str, str] = {}
    for position, entry in enumerate(path):
        bound = looks.get(position)
        if isinstance(bound, Mapping):
            found.update((str(n), str(i)) for n, i in bound.items())
        if isinstance(entry.body, Snapshot) and isinstance(listed := entry.body.state.get("variables"), Mapping):
            found.update((n, str(v[2])) for n, v in listed.items() if isinstance(v, list | tuple) and len(v) == 3)
    return found


# ---------------------------------------------------------------- alike and unused


def _confusions(results: Sequence[_Seen]) -> Iterator[RotFinding]:
    sources: dict[tuple[str, str], Source] = {}
    for seen in results:
        source = _source(seen)
        if source is not None:
            sources[(source.kind, source.name)] = source
    newest = sorted(sources.values(), key=lambda s: s.order)[-MOST_SOURCES:]
    for one, other in combinations(newest, 2):
        share = likeness(one, other)
        if share < ALIKE:
            continue
        alike = "the same" if share == 1.0 else f"{100 * share:.0f} % alike"
        yield RotFinding(
            kind="confusion", where=f"{one.name} and {other.name}", what=f"{alike}: {difference(one, other)}",
            remedy="say which one you mean by its whole name", entry_ids=(one.entry_id, other.entry_id), remind=True,
        )  # fmt: skip


def _source(seen: _Seen) -> Source | None:
    text = joined_text(seen.body.content)
    name, bound = seen.meta.get("path"), seen.meta.get("variables")
    if seen.body.name == "read" and isinstance(name, str) and "unchanged" not in seen.meta:
        kind = "file"
    elif seen.body.name == "inspect" and isinstance(bound, Mapping) and len(bound) == 1:
        kind, name = "variable", str(next(iter(bound)))
    else:
        return None
    return Source(kind=kind, name=name, entry_id=seen.id, order=seen.position, text=source_text(kind, name, text))


def _distractions(results: Sequence[_Seen], path: Sequence[Entry], quiet_turns: int) -> Iterator[RotFinding]:
    now = sum(isinstance(e.body, TurnStart) for e in path)
    old = [
        r for r in results
        if now - r.turn >= quiet_turns and sum(len(str(b.get("text", ""))) for b in r.body.content) >= LARGE_CHARS
    ]  # fmt: skip
    if not old:
        return
    extractor = Extractor()
    recent = _written_since(path, now - quiet_turns, extractor.words)
    inputs = {c.id: c.input for e in path if isinstance(e.body, AssistantMessage) for c in tool_calls(e.body.blocks)}
    for seen in old:
        text = joined_text(seen.body.content)
        name = str(seen.meta.get("path") or "")
        if recent & set(extractor.words(text[:SCANNED_CHARS])) or (name and recent & set(extractor.words(name))):
            continue
        label = label_of(seen.body, inputs.get(seen.body.call_id))
        turns = now - seen.turn
        yield RotFinding(
            kind="distraction", where=label, what=f"{len(text):,} characters, not used for {turns} turns ({seen.id})",
            remedy="it is masked where the prefix moves anyway; the pointer brings it back", entry_ids=(seen.id,),
            placeholder=f"[cleared: {label} ({len(text):,} characters), not used for {turns} turns; `recall` {seen.id} "
            "brings it back]",
        )  # fmt: skip


def _written_since(path: Sequence[Entry], turn: int, words: Callable[[str], Iterator[Any]]) -> set[Any]:
    """Return the anchors that the person or the model wrote after the turn numbered `turn`."""
    found: set[Any] = set()
    number = 0
    for entry in path:
        number += isinstance(entry.body, TurnStart)
        if number > turn and isinstance(entry.body, UserMessage | AssistantMessage):
            found.update(words(said(entry.body).text))
    return found
