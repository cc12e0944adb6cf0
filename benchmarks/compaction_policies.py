"""The shipped policies in the replay: the real plan and the real note, with a declared stand-in for the model's part.

The stand-in has the size of the two recorded summaries (about 1,200 tokens, in small windows a fortieth of it). A
policy whose note has a machine-made part gets filler that says nothing, so that the model's note costs what it costs
and adds nothing to what is kept: the real one can only be better. The others get an extract of that size, made from
headings (requests, files, identifiers, errors, decisions); the report's section 3.3 found such an extract within 1 to
5 points of a strong model's summary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from compaction_notes import heading_extract

from nbagent.context.anchor_index import AnchorIndex
from nbagent.context.engine import Engine
from nbagent.context.extract import note_of
from nbagent.context.handoff import HandoffNote
from nbagent.context.measure import Meter
from nbagent.context.parts import Part, divided_turn, shown_part
from nbagent.context.policies import BUILT_IN
from nbagent.context.policy import Compact, Numbers, Policy, Prune, Situation, make_policy
from nbagent.context.transcript import RESULT_CHARS, serialised
from nbagent.context.writing import one_request_does, stages_of
from nbagent.core.entries import Body, Compaction, Entry, Pruning
from nbagent.core.messages import Message, Prefix, Request
from nbagent.core.view import View, ViewFold

HANDOFF_TOKENS = 1_200
FILLER = "Here would stand what the model itself wrote down about the work so far. "
SUMMARISER = "summariser"  # in the details of a Compaction: what the call for its note costs

Step = Callable[[Situation], Sequence[Body]]


def policy_named(name: str, threshold: float, numbers: Numbers | None = None) -> Policy:
    """Return a built-in policy that acts at `threshold` (a share of the window), where it has such a number."""
    kind = BUILT_IN[name.partition("@")[0]]
    changes = {k: v for k, v in {"threshold": threshold, **(numbers or {})}.items() if k in kind.default}
    if not threshold:
        changes.pop("threshold", None)
    return make_policy(BUILT_IN, name, changes)


def policy_step(policy: Policy) -> Step:
    """Return what the engine does with a policy's plan before a call, the model's part of a note replaced."""
    index = AnchorIndex()
    meter = Meter("claude-4.7")

    def machine(replaced: Sequence[Entry], kept: Sequence[Entry], limit_tokens: int) -> str:
        return note_of([*replaced, *kept], len(replaced), limit_tokens, count=meter.text, index=index)

    def step(situation: Situation) -> Sequence[Body]:
        engine = _engine(policy, meter, situation, machine)
        bodies: list[Body] = []
        for move in policy.plan(situation):
            if isinstance(move, Prune):
                late = situation.view.deferred and any(e in situation.sent for e in move.placeholders)
                if not late:
                    bodies.append(Pruning(placeholders=dict(move.placeholders), reason=move.reason))
            elif not engine.waits(situation.path, situation):
                index.extend(situation.path[len(index) :])
                body = _compacted(engine, situation, move, index)
                if body is not None:
                    bodies.append(body)
        return bodies

    return step


def _engine(
    policy: Policy, meter: Meter, situation: Situation, machine: Callable[[Sequence[Entry], Sequence[Entry], int], str]
) -> Engine:
    def no_request(messages: Sequence[Message], max_tokens: int) -> Request:
        raise AssertionError("no model is called in a replay")

    def size(view: View) -> int:
        return situation.fixed_tokens + sum(sum(meter.piece(p).values()) for p in view.pieces)

    return Engine(
        policy=policy, meter=meter, prefix=Prefix(system=(), tools=()), budget=situation.budget,
        make_request=no_request, predict=size, price=lambda model, usage: 0.0, machine_note=machine,
    )  # fmt: skip


def _compacted(engine: Engine, situation: Situation, move: Compact, index: AnchorIndex) -> Compaction | None:
    """Return the compaction, None when the engine would reject it as not small enough."""
    tokens = min(HANDOFF_TOKENS, situation.window // 40)
    cut = index.positions.get(move.first_kept or "", len(index))
    count = engine.meter.text
    if move.style.appendix_tokens:
        text = FILLER * (tokens // count(FILLER))
    else:
        text = heading_extract(index, situation.path[:cut], tokens, count)
    body = engine.compaction(ViewFold(situation.path), move, HandoffNote(text=text, sections={}))
    whole = situation.used_tokens
    done = replace(body, details={**body.details, SUMMARISER: _call(engine, situation, move, tokens)})
    after = situation.fixed_tokens + sum(
        sum(engine.meter.piece(p).values())
        for p in ViewFold([*situation.path, Entry("preview", situation.path[-1].id, 0.0, done)]).view().pieces
    )
    return None if after > move.style.reject_above * whole else done


def _call(engine: Engine, situation: Situation, move: Compact, tokens: int) -> dict[str, float]:
    """Return what asking for the note takes: what is read from the cache and what is sent anew, for each call."""
    fold = ViewFold(situation.path)
    part = shown_part(engine, fold, move)
    divided = bool(move.style.turn_template) and divided_turn(fold, move.first_kept) is not None
    if not divided and not one_request_does(engine, fold, move, part):
        return _staged_call(engine, fold, move, part, tokens)
    if move.style.serialised or part.full or part.broken_off:
        chars = None if part.full else RESULT_CHARS
        shown = serialised(part.messages, result_chars=chars, thinking=move.style.thinking)
        read, fresh = 0, engine.meter.text(shown.text)
    else:
        head = move.style.head_only and move.first_kept is not None
        read, fresh = part.tokens + situation.fixed_tokens if head else situation.used_tokens, 0
    calls = 2 if move.style.probe or divided else 1
    halves = 2 if divided else 1  # each call is shown one of them
    return {"read": read / halves, "fresh": fresh / halves, "written": tokens, "calls": calls}


def _staged_call(engine: Engine, fold: ViewFold, move: Compact, part: Part, tokens: int) -> dict[str, float]:
    """Return what a note read in parts takes: each part with the note so far, then all notes of parts at once."""
    stages = stages_of(engine, fold, move, part)
    if stages is None:
        return {"read": 0, "fresh": part.tokens, "written": tokens, "calls": 1}
    shown = sum(engine.meter.text(text) for run in stages.parts for chunk in run for text in chunk)
    calls = stages.count + (len(stages.parts) > 1)
    return {"read": 0, "fresh": (shown + calls * tokens) / calls, "written": tokens, "calls": calls}
