"""What `%context compare` asks a session: every policy on its own conversation, without a model call or with it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nbagent.context.compare import Comparing, Row, comparing
from nbagent.context.policy import Policy
from nbagent.context.transcript import message_texts, questioned_text
from nbagent.core.effects import Append, CallModel, Effect, Say
from nbagent.core.entries import TurnStart, UsageReported
from nbagent.core.errors import ModelFailed, PolicyError, UsageProblem
from nbagent.core.messages import Message, Request, Response, is_thinking, text_block
from nbagent.core.view import build_view
from nbagent.models.registry import NamedModel
from nbagent.runtime.compacting import going_on, measured_for
from nbagent.runtime.contexts import choose_policy, kept_numbers, known_policies
from nbagent.runtime.ports import TurnPorts
from nbagent.runtime.session import Session

__all__ = ["Comparison", "Row", "compare_live", "compare_session"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The rows, and what they are about. `in_force` is the policy of the session, `live` that a model wrote the notes.

    `notes_usd` is what the notes of all rows cost together, or would cost; None where the prices are not known.
    """

    model: str
    window_tokens: int
    turns: int
    in_force: str
    rows: tuple[Row, ...]
    live: bool = False
    notes_usd: float | None = None


def compare_session(
    session: Session, names: Sequence[str] = (), *, began: Callable[[str, int, int], None] = lambda name, i, n: None
) -> Comparison:
    """Compare the policies `names` (NAME or NAME@seed; all when empty) on the current path; the one in force too.

    Each has the numbers that it would have if it was chosen now. Nothing is written. The model and the policy
    of an imported conversation need not be known here. `began(name, number, of)` is called before each.

    Raises:
        UsageProblem: there is no conversation yet.
        PolicyError: no such policy or preset.
    """
    start = _start(session)
    named = measured_for(session)
    chosen = _chosen(session, names)
    steps = _steps(session, named, start, chosen)
    number = 0
    while True:
        try:
            step = next(steps)
        except StopIteration as done:
            return _comparison(session, named, done.value, live=False)
        if isinstance(step, str):
            number += 1
            began(step, number, len(chosen))


async def compare_live(session: Session, ports: TurnPorts, names: Sequence[str] = ()) -> Comparison:
    """Compare as `compare_session` does, with notes that the model writes; what they cost is written down.

    Raises:
        UsageProblem: there is no conversation yet, or a recording plays.
        MissingKey: no model can be called.
        ModelFailed: a call failed; the calls before it are paid and written down.
    """
    if session.cassette is not None:
        raise UsageProblem("a recording plays, so no model can be asked; `%context compare` without --live needs none")
    start = _start(session)
    named = await session.ready_model()
    start = going_on(session, start)  # what is asked goes out now
    steps = _steps(session, named, start, _chosen(session, names))
    driver = session.runner.side_driver(named, ports, replace(start, model=named.name))
    rows = await driver.run(_live(steps, lambda usage: session.runner.gauge.price(named.facts, usage)))
    return _comparison(session, named, rows, live=True)


def _live(steps: Comparing, price_of: Callable[[Any], float]) -> Generator[Effect, Any, tuple[Row, ...]]:
    """Drive a comparison whose notes the model writes; each call is written down as paid."""
    reply: Response | None = None
    while True:
        try:
            step = steps.send(reply)
        except StopIteration as done:
            rows: tuple[Row, ...] = done.value
            return rows
        if isinstance(step, str):
            reply = None
            yield Say(text=f"Comparing {step} …")
            continue
        reply = yield CallModel(request=_as_text(step), step=0, purpose="compare")
        assert isinstance(reply, Response)
        if reply.usage:
            cost = round(price_of(reply.usage), 8)
            paid = UsageReported(step=0, model=reply.model, usage=reply.usage, cost_usd=cost, purpose="compare")
            yield Append(body=paid)
        if reply.cut == "stopped":
            raise UsageProblem("the comparison was stopped; what its calls cost until then is in the session's costs")
        if reply.error is not None:
            raise ModelFailed(f"the comparison ended, a call for a note failed: {reply.error}", kind="server")


def _as_text(request: Request) -> Request:
    """Return a request for a note with the conversation as text where it holds thinking.

    Under another policy the thinking would stand behind another prefix than it was signed over.
    """
    if not any(is_thinking(b) for m in request.messages for b in m.blocks):
        return request
    last = request.messages[-1]
    before = [*request.messages[:-1], Message(last.role, last.blocks[:-1])]
    shown = "\n\n".join(message_texts(before, result_chars=None))
    whole = questioned_text(shown, str(last.blocks[-1].get("text", "")))
    return replace(request, messages=(Message("user", (text_block(whole),)),), breakpoints=())


def _start(session: Session) -> TurnStart:
    start = build_view(session.tree.path()).turn
    if start is None:
        raise UsageProblem("there is no conversation to compare policies on; run a %%agent cell first")
    return start


def _chosen(session: Session, names: Sequence[str]) -> tuple[str, ...]:
    if names:
        return tuple(dict.fromkeys(names))
    return tuple(n for n in dict.fromkeys([*known_policies(), session.settings.policy]) if _can_be_made(session, n))


def _can_be_made(session: Session, name: str) -> bool:
    try:
        _policy(session, name)
    except PolicyError:  # of somebody else: choosing it says why
        return False
    return True


def _policy(session: Session, name: str) -> Policy:
    settings = session.settings
    kept = kept_numbers(session.runner.numbers, of=settings.policy, policy=name)
    return choose_policy(name, kept, settings.threshold)


def _steps(session: Session, named: NamedModel, start: TurnStart, chosen: Sequence[str]) -> Comparing:
    runner = session.runner
    policies = {name: _policy(session, name) for name in chosen}
    engine = runner.engine(named, replace(start, policy=session.settings.policy))
    return comparing(session.tree.path(), policies, engine, prices=named.facts.prices)


def _comparison(session: Session, named: NamedModel, rows: tuple[Row, ...], *, live: bool) -> Comparison:
    prices = named.facts.prices
    sent, written = sum(r.note_tokens for r in rows), sum(r.note_output_tokens for r in rows)
    units = prices.input_usd * sent + prices.output_usd * written if prices else 0.0
    return Comparison(
        model=named.name, window_tokens=session.runner.budget(named.facts).window_tokens,
        turns=len(session.tree.turns_on_path()), in_force=session.settings.policy, rows=rows, live=live,
        notes_usd=units / 1_000_000 if prices else None,
    )  # fmt: skip
