"""Compaction by hand, and taking one back: what `%context compact` and `%context undo` do to a session."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from nbagent.context.engine import no_flush
from nbagent.context.loss import loss_report
from nbagent.context.note import with_handoff
from nbagent.context.rot import RotFinding
from nbagent.core.entries import AssistantMessage, Compaction, Entry, Pin, Pruning, Restore, TurnStart, UsageReported
from nbagent.core.errors import UsageProblem, one_line
from nbagent.core.messages import is_provider_note
from nbagent.core.pieces import IMPORTED
from nbagent.core.tree import TurnNode
from nbagent.core.view import ViewFold
from nbagent.models.registry import NamedModel
from nbagent.runtime.contexts import CompactionResult, compact_by_hand, last_compaction
from nbagent.runtime.flushing import flush_of
from nbagent.runtime.ports import TurnPorts
from nbagent.runtime.scratch import scratch
from nbagent.runtime.session import Session
from nbagent.runtime.turn_facts import turn_facts
from nbagent.runtime.turn_notes import find_rot
from nbagent.runtime.writer import SessionWriter

MOST_PIN_CHARS = 4_000
SHOWN_CHARS = 70  # of a pinned text, and of a pinned turn's request
_NUMBER = re.compile(r"[-+]?\d+")
PROVIDER: Final = "(the provider's own)"  # in the place of a policy's name
WAITS: Final = (
    "waits until the agent has answered without calling a tool, since the thinking of the open tool loop is bound to "
    "what stands before it"
)
NO_CONVERSATION: Final = "there is no conversation yet; run a %%agent cell first"
NO_NOTE_IN_REPLAY: Final = (
    "a recording plays, so no model can write a note; write it yourself below a line `%%context note`, or compact in a "
    "live session"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    """A compaction taken back. `waits`: an open tool loop needs the context as it is until its end (`WAITS`)."""

    compaction: Entry
    waits: bool


async def compact(
    session: Session, ports: TurnPorts, *, focus: str = "", edited: str | None = None, dry_run: bool = False
) -> CompactionResult:
    """Compact the conversation now.

    `focus` is what the person wants kept above all; `edited` is a note to install instead of asking for one. A
    dry run asks for the note and writes down what that cost, nothing else.

    Raises:
        UsageProblem: there is no conversation yet, or a recording plays and no note is given.
        MissingKey: a note is needed and no model can be called.
    """
    if session.cassette is not None and edited is None:
        raise UsageProblem(NO_NOTE_IN_REPLAY)
    start = _start(session)
    if edited is None:
        named = await session.ready_model()
    else:
        named = measured_for(session)
    kept = session.runner.writer
    if not dry_run:
        kept.recover_partial()
    runner = scratch(session.runner, session.tree.path()) if dry_run else session.runner
    runner.close_broken()
    current = replace(start, policy=runner.settings.policy, model=named.name)
    driver = runner.side_driver(named, ports, current)
    flush = no_flush if dry_run else flush_of(runner, driver, current)
    engine = runner.engine(named, current, focus=focus, edited=edited, flush=flush)
    before = len(runner.writer.tree)
    try:
        result = await driver.run(compact_by_hand(ViewFold(runner.writer.tree.path()), engine))
    finally:
        if dry_run:
            _write_bill(kept, list(runner.writer.tree)[before:])
    return replace(result, applied=result.applied and not dry_run)


def no_note_now(session: Session | None) -> str:
    """Return why no note can be written for a compaction as things stand, "" when one can; cheap."""
    if session is None or not any(isinstance(e.body, TurnStart) for e in session.tree.path()):
        return NO_CONVERSATION
    return NO_NOTE_IN_REPLAY if session.cassette is not None else ""


def undo(session: Session) -> Undone:
    """Take the last compaction back; later turns stay. Inside a tool loop with bound thinking it waits for the end.

    Raises:
        UsageProblem: there is none, it is being taken back already, or what it gives back does not fit the window.
    """
    runner, path = session.runner, session.tree.path()
    found = last_compaction(path, to="take back")
    if any(isinstance(e.body, Restore) and e.body.cancels == found.id for e in _waiting(path)):
        raise UsageProblem(f"the last compaction is being taken back already; that {WAITS}")
    restored = ViewFold(_without(path, found.id)).view()  # also where the undoing itself has to wait
    start = _start(session)
    named = measured_for(session)
    engine = runner.engine(named, replace(start, policy=runner.settings.policy))
    size, window = engine.predict(restored), runner.budget(named.facts).window_tokens
    if size > window:
        raise UsageProblem(
            f"the conversation before that compaction takes about {size:,} tokens and the window holds {window:,}; "
            "widen it with `%context set window=…` first"
        )
    runner.writer.write(Restore(cancels=found.id))
    return Undone(compaction=found, waits=bool(_waiting(session.tree.path())))


def loss_in_force(session: Session) -> CompactionResult:
    """Return what the compaction in force, ours or the provider's, did to what it replaced; nothing is changed.

    Raises:
        UsageProblem: there is none.
    """
    runner, path = session.runner, session.tree.path()
    found = last_compaction(path, to="report on")
    start = _start(session)
    engine = runner.engine(measured_for(session), replace(start, policy=runner.settings.policy))
    before, after = ViewFold(_without(path, found.id)).view(), ViewFold(path).view()
    ours = found.body if isinstance(found.body, Compaction) else None
    told = (ours.before_tokens, ours.after_tokens) if ours else (0, 0)  # what was said when it was made
    sizes = told if all(told) else (engine.predict(before), engine.predict(after))
    return CompactionResult(
        applied=True, reason=ours.reason if ours else "the provider compacted", before_tokens=sizes[0],
        after_tokens=sizes[1], handoff=note_in_force(session), note=ours.note if ours else note_in_force(session),
        policy=str(ours.details.get("policy", "")) if ours else PROVIDER, loss=loss_report(path, before, after),
    )  # fmt: skip


def provider_lines(session: Session) -> tuple[str, ...]:
    """Return a line for what the provider itself keeps out of the model's sight now; empty as a rule."""
    view = ViewFold(session.tree.path()).view()
    lines = []
    if view.unread:
        count = len(view.unread)
        lines.append(
            f"{count} entries stand behind the provider's own compaction; `%context loss` says what became of them, "
            "`%context undo` takes it back"
        )
    if view.cleared:
        lines.append(f"{len(view.cleared)} old results were left out of the last request; `recall` finds them")
    return tuple(lines)


def waiting_lines(session: Session) -> tuple[str, ...]:
    """Return a line for each move that is recorded and has not taken effect yet; empty as a rule."""
    path = session.tree.path()
    kinds = {e.id: type(e.body) for e in path}
    return tuple(
        f"{_named(e, kinds)}: {WAITS}; `%agent resume` goes on" for e in _waiting(path)
    )  # fmt: skip


def _waiting(path: Sequence[Entry]) -> list[Entry]:
    deferred = set(ViewFold(path).view().deferred)
    return [e for e in path if e.id in deferred]


def _named(entry: Entry, kinds: dict[str, type]) -> str:
    body = entry.body
    if isinstance(body, Restore):
        cleared = kinds.get(body.cancels) is Pruning
        return "bringing cleared results back" if cleared else "undo of the last compaction"
    return f"clearing {len(body.placeholders)} old results" if isinstance(body, Pruning) else "a compaction"


def _without(path: Sequence[Entry], absent: str) -> list[Entry]:
    """Return the path as if the compaction `absent` had never been: ours, or the provider's in a reply."""
    kept: list[Entry] = []
    for entry in path:
        body = entry.body
        if entry.id == absent and isinstance(body, AssistantMessage):
            body = replace(body, blocks=tuple(b for b in body.blocks if not is_provider_note(b)))
        elif entry.id == absent:
            continue
        kept.append(replace(entry, parent=kept[-1].id if kept else None, body=body))
    return kept


def note_in_force(session: Session) -> str:
    """Return the note of the compaction in force, as the model or the provider wrote it; empty when there is none."""
    path = session.tree.path()
    current = ViewFold(path).view().compaction
    body = next((e.body for e in path if e.id == current), None)
    if isinstance(body, AssistantMessage):
        return "\n\n".join(str(b["content"]) for b in body.blocks if is_provider_note(b))
    return str(body.details.get("handoff", "")) if isinstance(body, Compaction) else ""


def replace_note(session: Session, text: str) -> None:
    """Put an edited hand-off note in the place of the one in force; all else of that compaction stays.

    Raises:
        UsageProblem: there is no compaction, or it is the provider's, whose note only the provider writes.
    """
    found = last_compaction(session.tree.path(), to="show the note of")
    body = found.body
    if not isinstance(body, Compaction):
        raise UsageProblem(
            "the note in force is the provider's own and cannot be changed; `%context undo` takes it back, then "
            "`%context compact` writes one that can"
        )
    old = str(body.details.get("handoff", ""))
    note = with_handoff(body.note, old, text)
    session.runner.writer.write(Restore(cancels=found.id))
    count = session.runner.gauge.meter(session.facts_of(session.current_model()).family).text
    after = max(0, body.after_tokens + count(note) - count(body.note)) if body.after_tokens else 0
    details = {**body.details, "handoff": text, "edited": True}
    edited = replace(body, note=note, reason="asked for", after_tokens=after, details=details)
    session.runner.writer.write(edited)


def set_pin(session: Session, what: str, *, remove: bool) -> str:
    """Pin (or unpin) a turn by its name, else the text itself; returns a line that says what was done.

    Raises:
        UsageProblem: nothing is named, there is no such pin, or the text is too long.
    """
    if not what.strip():
        line = "unpin: name the TURN or TEXT whose pin is taken back" if remove else "pin: say what no policy may drop"
        raise UsageProblem(f"%context {line}, such as -1 or a column's name")
    _start(session)
    pins = ViewFold(session.tree.path()).view().pins
    node = session.tree.turn(what.strip())
    if not remove:
        _check_pinned(session, what.strip(), node)
    pin = Pin(target=node.turn, remove=remove) if node is not None else Pin(text=what.strip(), remove=remove)
    if remove and not any((p.target, p.text) == (pin.target, pin.text) for p in pins):
        listed = "; ".join(p.target or one_line(p.text)[:SHOWN_CHARS] for p in pins) or "none"
        raise UsageProblem(f"{what!r} is not pinned; the pins are: {listed}")
    if len(pin.text) > MOST_PIN_CHARS:
        raise UsageProblem(f"the text has {len(pin.text):,} characters; a pin holds at most {MOST_PIN_CHARS:,}")
    session.runner.writer.write(pin)
    word = "is no longer pinned" if remove else "is pinned: no compaction drops it"
    return f"{'Turn ' + node.turn if node else 'The text'} {word}."


def _check_pinned(session: Session, what: str, node: TurnNode | None) -> None:
    """Refuse to pin what would keep nothing: the number of a turn that is not there, a turn of another branch."""
    if node is None and _NUMBER.fullmatch(what):
        raise UsageProblem(
            f"no turn is called {what!r}; `%agent tree` lists them, -1 is the last. To pin a text, write more of it "
            "than a number"
        )
    if node is not None and all(n.turn != node.turn for n in session.tree.turns_on_path()):
        raise UsageProblem(f"turn {node.turn} is on another branch; `%agent revert {node.turn}` goes there")


def pins_of(session: Session) -> tuple[str, ...]:
    """Return the pins in force, oldest first: the text, or the turn with the beginning of its request."""
    pins = ViewFold(session.tree.path()).view().pins
    turns = turn_facts(session.tree) if any(p.target for p in pins) else ()
    asked = {f.turn: one_line(f.prompt)[:SHOWN_CHARS] for f in turns}
    return tuple(f"turn {p.target}: {asked.get(p.target, '')}" if p.target else one_line(p.text) for p in pins)


def rot_of(session: Session) -> tuple[RotFinding, ...]:
    """Return what is stale, conflicting, confusable or distracting in the context now."""
    path = session.tree.path()
    return find_rot(ViewFold(path).view(), path, session.runner.folder)


def measured_for(session: Session) -> NamedModel:
    """Return the model that sizes are for where none is called: it may be that of a recording, known by name only."""
    name = session.current_model()
    return NamedModel(name=name, model=session.model().model, facts=session.facts_of(name), source="recorded")


def _start(session: Session) -> TurnStart:
    start = ViewFold(session.tree.path()).view().turn
    if start is None:
        raise UsageProblem(NO_CONVERSATION)
    return going_on(session, start)


def going_on(session: Session, start: TurnStart) -> TurnStart:
    """Return the last turn's start as requests go on from it: those of another agent began with a prefix of its own."""
    if start.policy != IMPORTED:
        return start
    return replace(start, prefix=session.runner.root_prefix(session.tree.path()))


def _write_bill(writer: SessionWriter, entries: Sequence[Entry]) -> None:
    """Write down what the calls among `entries` cost."""
    for entry in entries:
        if isinstance(entry.body, UsageReported):
            writer.write(entry.body)
