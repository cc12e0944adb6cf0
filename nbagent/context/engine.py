"""The engine: asks the policy before each model call and carries its plan out. One code path for all compactions.

A generator of effects, like the turn that it is part of. Atomic: a compaction that fails or is stopped has
written nothing that changes the view. At most three in a row; after three failures a cool-down. A request of the
person that has no reply yet is never part of what is replaced; one whose turn is open stays word for word.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from nbagent.context.downshift import Former
from nbagent.context.fitting import OFF, alone_too_large, fit, mask_all, unplanned
from nbagent.context.handoff import HandoffNote, Rejected
from nbagent.context.held import Held
from nbagent.context.measure import Meter
from nbagent.context.moves import cut_keeping
from nbagent.context.note import DROPPED, NO_NOTE, NoteParts, compose_note, files_touched, shown_again, users_messages
from nbagent.context.parts import DROP_SHARE, Part, shorter_and_shorter, whole
from nbagent.context.pins import SHARE, pinned_texts, unpinned
from nbagent.context.policy import Compact, Moment, NoteStyle, Policy, Prune, Reason, Situation, in_window, planned
from nbagent.context.rot import detect, moves_for
from nbagent.context.signals import TurnCalls, signal
from nbagent.context.standing import (
    failures,
    in_a_row,
    keeping_request,
    pending_request,
    split,
    undone,
)
from nbagent.context.transcript import (
    NOT_ON_DISK,
    NOT_SHOWN,
    Question,
    message_texts,
    only_of,
    questioned,
    serialised,
    with_question,
)
from nbagent.context.writing import MAX_TRIES, written_note
from nbagent.core.budget import Budget
from nbagent.core.effects import Append, Effect, ReadNow, Say
from nbagent.core.entries import Body, Compaction, Entry, Pruning, Report, Snapshot, TurnStart, UsageReported
from nbagent.core.messages import Message, Prefix, Request, Response
from nbagent.core.view import View, ViewFold

COOL_DOWN_S = 300.0
NEAR_OVERFLOW = 0.95
BOUND_SHARE = 0.85  # inside a tool loop whose thinking is bound to its prefix, compaction waits until here
LEAST_TOKENS = 2_000  # smaller conversations are not compacted by themselves

MASKS_ROT = frozenset({"nbagent"})  # other policies are modelled after products that do not
COLD_S = 300.0  # without a call for this long the provider's cache is empty: moving the prefix costs nothing more

Flow = Generator[Effect, Any, "str | None"]
MachineNote = Callable[[Sequence[Entry], Sequence[Entry], int], str]
FlushHook = Callable[["Engine", ViewFold, NoteStyle, Reason], Generator[Effect, Any, str]]


def no_flush(engine: Engine, fold: ViewFold, style: NoteStyle, reason: Reason) -> Generator[Effect, Any, str]:
    """Store nothing."""
    yield from ()
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """What one turn's context management works with. `make_request` turns messages into a request of this turn.

    `machine_note(replaced, kept, limit_tokens)` lists what must not get lost; `skills_note` is attached again;
    `flush` may let the model store what matters first; `transcript` puts entries into a file and returns its path,
    empty when it cannot be written; `fresh_prefix` makes the prefix anew and gives its digest as `prefix`, with what
    else a compaction has to remember of it. `model` is the model that notes are asked of, `model_window` what it holds;
    `former` gives the model of an earlier turn, None where its window is not known. `checks_notes` is False where a
    stand-in writes them.
    """

    policy: Policy
    meter: Meter
    prefix: Prefix
    budget: Budget
    make_request: Callable[[Sequence[Message], int], Request]
    predict: Callable[[View], int]
    price: Callable[[str, Any], float]
    binds_thinking: bool = False
    machine_note: MachineNote = lambda replaced, kept, limit_tokens: ""
    flush: FlushHook = no_flush
    skills_note: Callable[[Sequence[Entry]], str] = lambda replaced: ""
    transcript: Callable[[Sequence[Entry]], str] | None = None
    fresh_prefix: Callable[[], Mapping[str, Any]] = dict
    model: str = ""
    model_window: int = 0
    former: Callable[[TurnStart], Former | None] = lambda start: None
    checks_notes: bool = True
    focus: str = ""
    edited: str | None = None
    held: Held = field(default_factory=Held)
    turn: TurnCalls = field(default_factory=TurnCalls)
    halted: list[str] = field(default_factory=list)

    # ------------------------------------------------------------ before a call

    def before_call(self, fold: ViewFold) -> Flow:
        """Let the policy act before the next call. Returns the line that ends the turn, None to go on."""
        if self.halted:
            return self.halted.pop()
        situation = yield from self.situation(fold, "before_call")
        if line := self.fixed_too_large(situation):
            return line
        used = situation.used_tokens
        if used > situation.window and (line := alone_too_large(self, fold, used)):
            return line  # before anything is asked for that could not help
        plan = yield from planned(self.policy, situation)
        if plan is None:
            return "stopped"
        if any(isinstance(m, Prune) for m in plan) or (situation.moment.idle_s or 0.0) > COLD_S:
            yield from self._mask_rot(fold)
        for move in plan:
            if isinstance(move, Prune):
                yield from self.record_pruning(fold, unpinned(move, fold.path, situation.view))
                continue
            kept = keeping_request(fold, move)
            if kept is None or self.waits(fold.path, situation, drops=kept.drop):
                continue
            if kept.drop:
                yield from self._drop(fold, kept)
            elif (yield from self.compact(fold, kept, "before_call")) == "stopped":
                return "stopped"
        unfit = yield from fit(self, fold, planned=any(isinstance(m, Compact) for m in plan))
        view = fold.view()
        loops = int(self.policy.numbers.get("loop_calls", 0))
        told = signal(fold.path, view, self.predict(view), self.budget, self.turn, loop_calls=loops)
        if not unfit and told is not None:
            yield from self.record(fold, told)
        self.held.note(fold.view())
        return unfit

    def on_overflow(self, fold: ViewFold) -> Generator[Effect, Any, bool]:
        """Make the context smaller after the provider said it does not fit. Returns whether to try again.

        What is not smaller is not sent again (CR-C1). When the person stops it, the next `before_call` says so.
        """
        if self.policy.name == OFF:
            return False
        before = self.estimate(fold.view())
        situation = yield from self.situation(fold, "overflow")
        plan = yield from planned(self.policy, situation)
        if plan is None:
            self.halted.append("stopped")
            return True
        for move in plan:
            if isinstance(move, Prune):
                yield from self.record_pruning(fold, move)
            elif (yield from self._compact_now(fold, move)) == "stopped":
                return True  # the next `before_call` ends the turn
        if self.estimate(fold.view()) >= before:
            yield from mask_all(self, fold, keep=2)
        if self.estimate(fold.view()) >= before and not any(isinstance(m, Compact) for m in plan):
            yield from self._compact_now(fold, unplanned(situation))
        return bool(self.halted) or self.estimate(fold.view()) < before

    def _compact_now(self, fold: ViewFold, move: Compact) -> Generator[Effect, Any, str]:
        kept = keeping_request(fold, move)
        done = "" if kept is None else (yield from self.compact(fold, kept, "overflow"))
        if done == "stopped":
            self.halted.append(done)
        return done

    def situation(self, fold: ViewFold, reason: Reason) -> Generator[Effect, Any, Situation]:
        """Return what the policy sees now."""
        now: float = yield ReadNow()
        view = fold.view()
        last = next((e.at for e in reversed(fold.path) if isinstance(e.body, UsageReported)), None)
        tokens = self.meter.view_sizes(view)
        moment = Moment(
            now=now, idle_s=None if last is None else max(0.0, now - last), reason=reason,
            mid_turn=not view.turn_ended and view.steps > 0,
        )  # fmt: skip
        return Situation(
            path=fold.path, view=view, tokens=tokens, used_tokens=self.predict(view), fixed_tokens=self.fixed_tokens(),
            budget=self.budget, moment=moment, binds_thinking=self.binds_thinking,
            sent=self.held.on(fold.path),
        )  # fmt: skip

    def fixed_tokens(self) -> int:
        """Return the estimated size of what no move can reduce."""
        return sum(self.meter.prefix(self.prefix).values())

    def estimate(self, view: View) -> int:
        """Return the estimated size of a request for `view`."""
        return sum(self.meter.view(view, self.prefix).values())

    def fixed_too_large(self, situation: Situation) -> str:
        """Return the line that says that nothing can help, empty when there is room."""
        if situation.fixed_tokens < situation.window - min(self.budget.max_output_tokens, situation.window // 4):
            return ""
        return (
            f"the system text, tools and start-up files alone take about {situation.fixed_tokens:,} of "
            f"{situation.window:,} tokens; shorten AGENTS.md or MEMORY.md, or widen the window (%context set window=…)"
        )

    # ------------------------------------------------------------ when not to

    def waits(self, path: Sequence[Entry], situation: Situation, *, drops: bool = False) -> bool:
        """Tell whether an automatic compaction is held back: after an undo, after failures, or without progress.

        One that only `drops` cannot fail and is not about the size.
        """
        if situation.moment.reason != "before_call":
            return False
        if situation.view.bound and situation.share < BOUND_SHARE:
            return True
        if drops:
            return undone(path) and situation.share < NEAR_OVERFLOW
        if situation.used_tokens - situation.fixed_tokens < min(LEAST_TOKENS, situation.window // 10):
            return True
        if undone(path) and situation.share < NEAR_OVERFLOW:
            return True
        failed_at = failures(path)
        if len(failed_at) >= MAX_TRIES and 0 <= situation.moment.now - failed_at[-1] < COOL_DOWN_S:
            return True  # a clock that was set back does not make it wait for days
        return in_a_row(path) >= MAX_TRIES

    # ------------------------------------------------------------ compaction

    def compact(self, fold: ViewFold, move: Compact, reason: Reason) -> Generator[Effect, Any, str]:
        """Carry a compaction out. Returns "applied", "stopped", or why nothing was changed."""
        yield Say(text="Compacting the conversation …")
        if (yield from self.flush(self, fold, move.style, reason)) == "stopped":
            return "stopped"
        before = self.predict(fold.view())
        outcome = yield from written_note(self, fold, move)
        if isinstance(outcome, Rejected):
            if outcome.reason == "stopped":
                return "stopped"
            if reason != "manual" and move.style.last_resort == "extract":
                note = HandoffNote(text=NO_NOTE, sections={})
            elif reason != "manual" and move.style.last_resort == "drop":
                note, move = HandoffNote(text=DROPPED, sections={}), (yield from self._oldest(fold, move, reason))
            else:
                return (yield from self._failed(fold, outcome.reason, reason))
        body = self.compaction(fold, move, outcome if isinstance(outcome, HandoffNote) else note)
        after = self.predict(self._preview(fold, body))
        if after >= before or (after > move.style.reject_above * before and reason != "overflow"):
            why = f"the note would leave {after:,} of {before:,} tokens"
            return (yield from self._failed(fold, why, reason, larger=move.style.once_larger and after >= before))
        yield from self.record(fold, replace(body, before_tokens=before, after_tokens=after))
        how = f" without the model's note ({outcome.reason})" if isinstance(outcome, Rejected) else ""
        saved = f"{how} ({before:,} → {after:,} tokens)"
        if isinstance(outcome, HandoffNote) and outcome.unseen:
            yield Say(text=NOT_SHOWN.format(unseen=outcome.unseen[0].upper() + outcome.unseen[1:]))
        if body.details.get("transcript") == "":
            yield Say(text=NOT_ON_DISK)
        yield Say(text=f"The conversation was compacted{saved}; `%context undo` takes it back.")
        return "applied"

    def _drop(self, fold: ViewFold, move: Compact) -> Generator[Effect, Any, None]:
        """Leave out what stands before the kept part; a note that stood there goes on standing."""
        in_force = next((e.body for e in fold.path if e.id == fold.view().compaction), None)
        earlier = str(in_force.details.get("handoff", "")) if isinstance(in_force, Compaction) else ""
        text = earlier if DROPPED in earlier else "\n\n".join(filter(None, [earlier, DROPPED]))
        body = self.compaction(fold, move, HandoffNote(text=text, sections={}))
        sizes = self.predict(fold.view()), self.predict(self._preview(fold, body))
        yield from self.record(fold, replace(body, before_tokens=sizes[0], after_tokens=sizes[1]))
        yield Say(text=f"Older turns were left out: {move.reason}; `%context undo` takes it back.")

    def compaction(self, fold: ViewFold, move: Compact, note: HandoffNote) -> Compaction:
        """Return the entry that a note would make."""
        replaced, kept = split(fold, move.first_kept)
        first_kept, recent = move.first_kept, ""
        view = fold.view()
        if view.bound is not None and any(e.id == view.bound for e in kept):
            asked = pending_request([*replaced, *kept], [])
            steps = only_of(view, {e.id for e in kept} - asked)  # that is said once, among the person's messages
            recent = "\n\n".join(message_texts(steps, result_chars=None))
            first_kept, replaced, kept = None, [*replaced, *kept], []
        style, count = move.style, self.meter.text
        transcript = self.transcript(replaced) if style.transcript and self.transcript is not None else None
        tenth = self.budget.window_tokens // 10
        users_limit = style.users_tokens if style.users_newest else min(style.users_tokens, tenth)
        machine_limit = style.appendix_tokens and min(style.appendix_tokens, self.budget.window_tokens // 20)
        parts = NoteParts(
            handoff=note.text, unseen=note.unseen, files=files_touched(replaced) if style.files else "",
            users=users_messages(
                replaced, users_limit, count, whole=pending_request(replaced, kept), newest=style.users_newest
            ),
            note_last=style.note_last,
            machine=self.machine_note(replaced, kept, machine_limit) if machine_limit else "",
            attached=shown_again(replaced, kept, self._scaled(style), count) if style.reattach else "",
            skills=self.skills_note(replaced), recent=recent, missing="\n".join(note.missing.lines()),
            transcript=transcript or "",
            beside=style.beside(replaced, self.budget.window_tokens) if style.beside else "",
            pins=pinned_texts(replaced, view.pins, self.budget.window_tokens // SHARE, count),
        )  # fmt: skip
        told = any(isinstance(e.body, Snapshot) and {"files", "skills"}.intersection(e.body.topics) for e in kept)
        details = {
            "policy": self.policy.name, "handoff": note.text, "template": style.template,
            **({"parts": note.parts} if note.parts > 1 else {}),
            **({} if transcript is None else {"transcript": transcript}),
            **({} if told else self.fresh_prefix()),  # what the kept part tells of a change is told once
        }  # fmt: skip
        return Compaction(first_kept=first_kept, note=compose_note(parts), reason=move.reason, details=details)

    def _scaled(self, style: NoteStyle) -> NoteStyle:
        """Return the style with what is shown again bounded by the window: a fiftieth each, or its share of one."""
        window = self.budget.window_tokens
        most = max(window // 50, in_window(style.reattach_tokens, window))
        return replace(style, reattach_tokens=min(style.reattach_tokens, most))

    def ask(
        self, fold: ViewFold, text: str, style: NoteStyle, dropped: float, part: Part | None = None
    ) -> Question | None:
        """Return the request for a note on the conversation, or on a `part` of it, which goes on with `text` or is
        sent as a transcript; None when not even a fifth of it fits."""
        part = part or whole(self, fold)
        room, limit = self.room(style), self.ask_limit(style)
        if not dropped and self._goes_on(fold.view(), text, style, part):
            return Question(request=self.make_request(with_question(part.messages, text), room))
        for told in shorter_and_shorter(part, style, dropped):
            shown = questioned(told, text)
            if self.meter.text(shown.text) <= limit:
                return Question(request=self.make_request(with_question((), shown.text), room), left_out=shown.left_out)
        return None

    def room(self, style: NoteStyle) -> int:
        """Return the most tokens that a note may take."""
        return min(style.reply_tokens, self.budget.max_output_tokens)

    def ask_limit(self, style: NoteStyle) -> int:
        """Return the most tokens that a request for a note may show, with what it asks."""
        return self.budget.window_tokens - min(self.room(style), self.budget.window_tokens // 8) - self.fixed_tokens()

    def fits_one_request(self, fold: ViewFold, text: str, style: NoteStyle, part: Part) -> bool:
        """Tell whether one request can show the whole part, as it is or as a transcript, and ask `text`."""
        if self._goes_on(fold.view(), text, style, part):
            return True
        shown = questioned(serialised(part.messages, thinking=style.thinking), text)
        return self.meter.text(shown.text) <= self.ask_limit(style)

    def _goes_on(self, view: View, text: str, style: NoteStyle, part: Part) -> bool:
        """Tell whether `text` can be asked in the conversation itself; of another model's thinking nothing is sent."""
        if style.serialised or part.full or part.broken_off or (self.model and view.model != self.model):
            return False
        return part.tokens + self.meter.text(text) <= self.ask_limit(style)

    def _oldest(self, fold: ViewFold, move: Compact, reason: Reason) -> Generator[Effect, Any, Compact]:
        """Return the move that drops the oldest fifth, or more when its policy keeps less than the rest."""
        situation = yield from self.situation(fold, reason)
        fifth = cut_keeping(situation, int((1 - DROP_SHARE) * sum(situation.tokens)))
        return move if fifth is None else replace(move, first_kept=fifth)

    def paid(self, fold: ViewFold, response: Response, purpose: str = "handoff") -> Generator[Effect, Any, None]:
        """Record what a call that is no step of the turn took."""
        if response.usage:
            cost = round(self.price(response.model, response.usage), 8)
            body = UsageReported(step=0, model=response.model, usage=response.usage, cost_usd=cost, purpose=purpose)
            yield from self.record(fold, body)

    def _failed(
        self, fold: ViewFold, why: str, reason: Reason, *, larger: bool = False
    ) -> Generator[Effect, Any, str]:
        told = {"applied": False, "policy": self.policy.name, "reason": reason, **({"larger": True} if larger else {})}
        yield from self.record(fold, Report(source="compaction", text=why, details=told))
        line = f"Compaction changed nothing: {why}."
        if larger and reason != "manual":
            line += " From now on only results are cut by itself; `%context compact` asks for a note at once."
        elif len(failures(fold.path)) == MAX_TRIES:
            line += " It is not tried again for a while; `%context compact` tries at once."
        yield Say(text=line)
        return why

    # ------------------------------------------------------------ entries

    def record(self, fold: ViewFold, body: Body) -> Generator[Effect, Any, None]:
        """Write an entry at the end of the path."""
        entry: Entry = yield Append(body=body)
        fold.add(entry)

    def record_pruning(self, fold: ViewFold, move: Prune) -> Generator[Effect, Any, None]:
        """Record a pruning; one that waits for the end of a tool loop is not recorded again and again."""
        view = fold.view()
        if not move.placeholders or (view.deferred and any(e in self.held.sent for e in move.placeholders)):
            return
        yield from self.record(fold, Pruning(placeholders=move.placeholders, reason=move.reason))

    def _mask_rot(self, fold: ViewFold) -> Generator[Effect, Any, None]:
        """Mask what clashes and distracts; never inside a tool loop whose thinking is bound to its prefix."""
        view = fold.view()
        if self.policy.name in MASKS_ROT and view.bound is None:
            move = moves_for(detect(view, fold.path))
            if move is not None:
                yield from self.record_pruning(fold, unpinned(move, fold.path, view))

    def _preview(self, fold: ViewFold, body: Body) -> View:
        path = list(fold.path)
        return ViewFold([*path, Entry("preview", path[-1].id if path else None, 0.0, body)]).view()
