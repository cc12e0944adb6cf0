"""From settings to context management: which policy, the engine of a turn, compaction by hand."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from nbagent.context.downshift import Former
from nbagent.context.engine import Engine, FlushHook, no_flush
from nbagent.context.extract import MachineNotes
from nbagent.context.loss import LossReport, loss_report
from nbagent.context.meanings import MEANINGS
from nbagent.context.moves import cut_keeping, tokens_before
from nbagent.context.policies import BUILT_IN
from nbagent.context.policy import (
    Compact,
    Numbers,
    Policy,
    PolicyKind,
    Situation,
    effective,
    in_window,
    less_reserve,
    make_policy,
    planned,
)
from nbagent.context.simulate import bare_path
from nbagent.context.transcript import message_texts
from nbagent.core.budget import Budget
from nbagent.core.effects import Effect
from nbagent.core.entries import Compaction, Entry, Restore, TurnStart
from nbagent.core.errors import JournalUnwritable, UsageProblem
from nbagent.core.messages import Message, Prefix, Request, without_images
from nbagent.core.pieces import IMPORTED
from nbagent.core.view import View, ViewFold, build_view
from nbagent.models.catalog import ModelFacts, lookup, platform_of
from nbagent.models.context_edits import without_compaction
from nbagent.models.registry import NamedModel
from nbagent.runtime.engines import engine_kinds
from nbagent.runtime.guarded import registered
from nbagent.tools.tool import Artifact

ENTRY_POINTS = "nbagent.policies"


def known_policies() -> Mapping[str, PolicyKind]:
    """Return the policies by name: the built-in ones, then those that installed packages register.

    A package registers a `PolicyKind` under the entry point group `nbagent.policies`; one that cannot be loaded
    says why when it is chosen. Context engines of others come last (`runtime/engines.py`).
    """
    return {**BUILT_IN, **{k: v for k, v in _installed().items() if k not in BUILT_IN}}


def policy_names() -> tuple[str, ...]:
    """Return what may be chosen: the policies, and behind them the presets of those that have one."""
    kinds = known_policies()
    return (*kinds, *(f"{name}@seed" for name, kind in kinds.items() if kind.seed))


@cache
def _installed() -> dict[str, PolicyKind]:
    """Return what packages register. Looked up once: reading the metadata of all packages takes a while."""
    found: dict[str, PolicyKind] = {}
    for point in entry_points(group=ENTRY_POINTS):
        found.setdefault(point.name, registered(point))
    for name, kind in engine_kinds().items():
        found.setdefault(name, kind)
    return found


def choose_policy(name: str, numbers: Numbers, threshold: float | None) -> Policy:
    """Return the policy `name` (or `name@seed`) with the person's numbers.

    Numbers that this policy does not have are left out when the policy was changed after they were set.

    Raises:
        PolicyError: no such policy or preset.
    """
    kinds = known_policies()
    kind = kinds.get(name.partition("@")[0])
    changes = {k: v for k, v in numbers.items() if kind is not None and k in kind.default}
    if threshold is not None and kind is not None and "threshold" in kind.default:
        changes.setdefault("threshold", threshold)
    if kind is not None and not changes.get("threshold", 1) and kind.default["threshold"]:
        del changes["threshold"]  # 0 takes a limit back; this policy always has one, its own
    return make_policy(kinds, name, changes)


def kept_numbers(numbers: Numbers, *, of: str, policy: str) -> dict[str, float]:
    """Return what of the numbers that were set for the policy `of` holds for `policy`.

    For another one that is the threshold, for a preset nothing: other numbers mean something else there.
    """
    if policy == of:
        return dict(numbers)
    return {k: v for k, v in numbers.items() if k == "threshold" and "@" not in policy}


def threshold_share(policy: Policy, window_tokens: int) -> float:
    """Return the share of the window at which a policy compacts by itself; 1 for one that never does.

    For one that compacts when it pays (`usual_share`) where that usually is; one may say it itself (`limit_share`).
    """
    numbers = policy.numbers
    own = getattr(policy, "limit_share", None)
    if callable(own):
        return float(own(window_tokens))
    if numbers.get("threshold"):
        return float(numbers["threshold"])
    usual = getattr(policy, "usual_share", None)
    if callable(usual):
        return float(usual(window_tokens))
    away = sum(in_window(numbers[k], window_tokens) for k in ("reserve_tokens", "buffer_tokens") if k in numbers)
    return less_reserve(window_tokens, away) / max(1, window_tokens)


def effective_numbers(policy: Policy, window_tokens: int) -> Numbers:
    """Return the numbers of a policy as they count in this window."""
    return effective(policy.numbers, window_tokens)


def acts_when_it_pays(policy: Policy) -> bool:
    """Tell whether a policy has no fixed size at which it compacts."""
    return not policy.numbers.get("threshold") and callable(getattr(policy, "usual_share", None))


def when_it_acts(policy: Policy, window_tokens: int) -> str:
    """Return when a policy compacts by itself, as people read it."""
    size = f"{round(threshold_share(policy, window_tokens) * window_tokens):,} tokens"
    if not acts_when_it_pays(policy):
        return f"acts by itself above {size} of this window"
    latest = f"{round(policy.numbers.get('latest', 1.0) * window_tokens):,}"
    return f"acts by itself when it pays, in this window usually at about {size}, at {latest} at the latest"


def numbers_of(name: str) -> Numbers:
    """Return the numbers that the policy `name` begins with; empty for one that nobody knows."""
    kind = known_policies().get(name.partition("@")[0])
    return kind.default if kind is not None else {}


def meaning_of(number: str) -> str:
    """Return what a number of a policy is, for people; empty for one of a policy of somebody else."""
    return MEANINGS.get(number, "")


def check_number(name: str, key: str, value: float) -> None:
    """Refuse a number that the policy `name` does not have, or a value that it cannot have.

    Raises:
        PolicyError: with the numbers it has.
    """
    make_policy(known_policies(), name, {key: value})


def prefix_in_force(path: Sequence[Entry]) -> str:
    """Return the digest of the prefix: that of the root, or the one made at the last compaction still in force.

    Empty before the first turn of ours: what another agent sent is `recorded_prefix`.
    """
    cancelled = {e.body.cancels for e in path if isinstance(e.body, Restore)}
    for entry in reversed(path):
        body = entry.body
        if isinstance(body, Compaction) and entry.id not in cancelled and body.details.get("prefix"):
            return str(body.details["prefix"])
    return next((e.body.prefix for e in path if isinstance(e.body, TurnStart) and e.body.policy != IMPORTED), "")


def recorded_prefix(path: Sequence[Entry]) -> str:
    """Return the digest of the prefix of the other agent that began this conversation; empty when it is ours."""
    first = next((e.body for e in path if isinstance(e.body, TurnStart)), None)
    return first.prefix if first is not None and first.policy == IMPORTED else ""


LED_BEFORE = "Until now another agent led this conversation, with tools of its own; yours are those listed here."


def led_before(path: Sequence[Entry], prefix_of: Callable[[str], Prefix]) -> Mapping[str, str]:
    """Return what the system text says of the other agent that began this conversation, by category; {} when none did.

    Its own system text is in it: a customer's rules hold on, whoever answers.
    """
    digest = recorded_prefix(path)
    if not digest:
        return {}
    told = "\n\n".join(str(block.get("text", "")) for block in prefix_of(digest).system)
    return {"instructions": f"{LED_BEFORE} What it was told:\n\n{told}" if told.strip() else LED_BEFORE}


@dataclass(slots=True)
class PrefixInForce:
    """`prefix_in_force` of a path that grows: asked at every call, it looks only at what came since the last time."""

    _seen: int = 0
    _last: Entry | None = None
    _digest: str = ""

    def of(self, path: Sequence[Entry]) -> str:
        """Return the digest, empty when nothing was begun."""
        grown = bool(self._digest) and len(path) >= self._seen and path[self._seen - 1] is self._last
        added = path[self._seen :] if grown else ()
        if not grown or any(isinstance(e.body, Compaction | Restore) for e in added):
            self._digest = prefix_in_force(path)
        self._seen, self._last = len(path), path[-1] if path else None
        return self._digest


NOTHING_TO_COMPACT = "there is nothing to compact yet"
NOTHING_SINCE = "there is nothing to compact but the note of the last compaction"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionResult:
    """What a compaction did or would do. `handoff` is the note as the model wrote it, `loss` what it costs."""

    applied: bool
    reason: str
    before_tokens: int
    after_tokens: int
    handoff: str
    note: str
    policy: str
    loss: LossReport | None = None


def compact_by_hand(
    fold: ViewFold, engine: Engine, *, report: Callable[[list[Entry], View, View], LossReport | None] = loss_report
) -> Generator[Effect, Any, CompactionResult]:
    """Compact now, whatever the threshold: as the policy would when asked, else with a note over the older part.

    Its prunings are left to the turns: whether it succeeds or fails, this is one move or none. `report` says what it
    does to the anchors of the path.
    """
    before_view, path = fold.view(), list(fold.path)
    before = engine.predict(before_view)
    if engine.edited is None and before_view.pieces and before_view.in_sight <= {before_view.compaction}:
        return _nothing(engine, before, NOTHING_SINCE)
    situation = yield from engine.situation(fold, "manual")
    plan = yield from planned(engine.policy, situation)
    if plan is None:
        return _nothing(engine, before, "stopped")
    move = _by_hand(situation, next((m for m in plan if isinstance(m, Compact)), None))
    if move is None:
        return _nothing(engine, before, NOTHING_TO_COMPACT)
    outcome = yield from engine.compact(fold, replace(move, reason="asked for"), "manual")
    if outcome != "applied":
        return _nothing(engine, before, outcome)
    body = fold.path[-1].body
    assert isinstance(body, Compaction)
    return CompactionResult(
        applied=True, reason="asked for", before_tokens=before, after_tokens=engine.predict(fold.view()),
        handoff=str(body.details.get("handoff", "")), note=body.note, policy=engine.policy.name,
        loss=report(path, before_view, fold.view()),
    )  # fmt: skip


def _by_hand(situation: Situation, planned: Compact | None) -> Compact | None:
    """Return the move of somebody who asks now: a policy's that keeps most of a conversation would gain nothing."""
    if planned is not None and planned.note:
        return planned
    history = sum(situation.tokens)
    move = planned or Compact(first_kept=None, reason="asked for")
    gone = tokens_before(situation, planned.first_kept) if planned is not None else 0
    if gone < history / 2:
        quarter = cut_keeping(situation, history // 4)
        if tokens_before(situation, quarter) > gone:
            move, gone = replace(move, first_kept=quarter), tokens_before(situation, quarter)
    style = replace(  # what stands in is less than half of what goes
        move.style, appendix_tokens=min(move.style.appendix_tokens, gone // 5),
        reattach_tokens=min(move.style.reattach_tokens, gone // 20),
    )  # fmt: skip
    return replace(move, style=style) if gone > 0 else None


def _nothing(engine: Engine, before: int, why: str) -> CompactionResult:
    return CompactionResult(
        applied=False, reason=why, before_tokens=before, after_tokens=before, handoff="", note="",
        policy=engine.policy.name,
    )  # fmt: skip


def last_compaction(path: Sequence[Entry], *, to: str) -> Entry:
    """Return the compaction in force; `to` says what it is wanted for, such as "take back".

    Raises:
        UsageProblem: there is none.
    """
    view = build_view(path)
    found = next((e for e in path if e.id == view.compaction), None)
    if found is None:
        raise UsageProblem(f"there is no compaction to {to}; `%context compact` makes one")
    return found


def transcript_of(entries: Sequence[Entry]) -> str:
    """Return a conversation as text from its beginning, every result whole: as if nothing had ever been left out."""
    return "\n\n".join(message_texts(build_view(bare_path(entries)).messages, result_chars=None)) + "\n"


def make_engine(
    *, named: NamedModel, policy: Policy, prefix: Callable[[], Prefix], budget: Budget, options: Mapping[str, Any],
    meter: Any, predict: Callable[[View], int], price_of: Callable[[ModelFacts, Any], float], working_tokens: int,
    fresh_prefix: Callable[[], Mapping[str, Any]], skills_note: Callable[[Sequence[Entry]], str],
    keep: Callable[[str], Artifact], focus: str = "", edited: str | None = None, flush: FlushHook = no_flush,
) -> Engine:  # fmt: skip
    """Return the engine that manages the context of one turn, or of one compaction by hand.

    `prefix` gives the one in force: thinking that is sent back with a request for a note is bound to it.
    """

    def request_of(
        model: str, options: Mapping[str, Any], facts: ModelFacts
    ) -> Callable[[Sequence[Message], int], Request]:
        def make_request(messages: Sequence[Message], max_tokens: int) -> Request:
            marks = tuple(i for i in (len(messages) - 3, len(messages) - 1) if i >= 0)
            return Request(
                model=model, max_tokens=max_tokens, prefix=prefix(), options=options,
                messages=tuple(messages) if facts.sees_images else without_images(messages),
                breakpoints=marks,
            )  # fmt: skip

        return make_request

    def former(start: TurnStart) -> Former | None:
        facts = lookup(start.model)
        if not facts.known or platform_of(start.model) != platform_of(named.name):
            return None
        return Former(
            model=start.model, window_tokens=min(working_tokens, facts.window_tokens),
            make_request=request_of(start.model, without_compaction(start.options), facts),
            price=lambda usage: price_of(facts, usage),
        )  # fmt: skip

    def transcript(replaced: Sequence[Entry]) -> str:
        try:
            return keep(transcript_of(replaced)).path
        except JournalUnwritable:
            return ""

    return Engine(
        policy=policy, meter=meter, prefix=prefix(), budget=budget,
        make_request=request_of(named.name, options, named.facts), predict=predict,
        price=lambda model, usage: price_of(named.facts, usage), former=former,
        binds_thinking=named.facts.binds_thinking, fresh_prefix=fresh_prefix,
        skills_note=skills_note, model=named.name, model_window=named.facts.window_tokens,
        focus=focus, edited=edited, flush=flush, machine_note=MachineNotes(meter.text),
        transcript=transcript,
    )  # fmt: skip
