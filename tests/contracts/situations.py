"""Situations and flows of one line each, for tests of policies and of the engine."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Any

from nbagent.context.engine import Engine
from nbagent.context.measure import Meter
from nbagent.context.policies import BUILT_IN
from nbagent.context.policy import Moment, Plan, Policy, Situation, make_policy
from nbagent.core.budget import Budget
from nbagent.core.effects import Append, CallModel, Consult, ReadNow, Say
from nbagent.core.entries import Entry
from nbagent.core.messages import Request, Response, text_block
from nbagent.core.view import ViewFold, build_view
from tests.core.builders import MODEL, PREFIX, calls, result, says, stamp, start, user

METER = Meter("claude-4.7")


def policy(name: str, **numbers: float) -> Policy:
    return make_policy(BUILT_IN, name, numbers)


def situation(path: Sequence[Entry], window: int, *, used: int | None = None, **moment: Any) -> Situation:
    """What a policy sees on `path`; `used` tokens are claimed in place of the estimate."""
    view = build_view(path)
    tokens = METER.sizes(view.pieces)
    return Situation(
        path=path, view=view, tokens=tokens, used_tokens=sum(tokens) if used is None else used, fixed_tokens=0,
        budget=Budget(window_tokens=window), moment=Moment(**moment), sent=frozenset(e.id for e in path[:-1]),
    )  # fmt: skip


def plan(name: str, path: Sequence[Entry], window: int, *, used: int | None = None, numbers: Any = None, **moment: Any) -> Plan:
    return policy(name, **(numbers or {})).plan(situation(path, window, used=used, **moment))


def words(tokens: int) -> str:
    """A text of about so many tokens."""
    text = "look at the value of the table again and again " * (tokens // 8 + 1)
    return text[: len(text) * tokens // max(1, METER.text(text))]


def reads(*sizes: int, text: str = "so") -> list[Any]:
    """A turn of one step a size, each with a result of about that many tokens, and a last reply."""
    bodies: list[Any] = []
    for i, size in enumerate(sizes):
        bodies += [calls("read", id=f"c{i}"), result(f"c{i}", words(size), name="read")]
    return [start(), user("read them"), *bodies, says(text)]


def engine(name: str = "nbagent", window: int = 20_000, **more: Any) -> Engine:
    def make_request(messages: Any, room: int) -> Request:
        return Request(model=MODEL, max_tokens=room, prefix=PREFIX, messages=tuple(messages))

    more.setdefault("policy", policy(name))
    return Engine(
        meter=METER, prefix=PREFIX, budget=Budget(window_tokens=window), make_request=make_request,
        predict=lambda view: sum(METER.view(view, PREFIX).values()), price=lambda model, usage: 0.0, **more,
    )  # fmt: skip


class Played:
    """A flow of the engine, played: `answers` are given to its model calls; then it repeats the last."""

    def __init__(self, path: Iterable[Entry], *answers: Response | str, now: float = 0.0) -> None:
        self.fold = ViewFold(path)
        self.answers = [text_reply(a) if isinstance(a, str) else a for a in answers]
        self.requests: list[Request] = []
        self.purposes: list[str] = []
        self.lines: list[str] = []
        self.now = now

    def run(self, flow: Generator[Any, Any, Any]) -> Any:
        reply: Any = None
        while True:
            try:
                effect = flow.send(reply)
            except StopIteration as done:
                return done.value
            match effect:
                case Append():
                    reply = stamp([effect.body], self.fold.path)[-1]
                case CallModel():
                    self.requests.append(effect.request)
                    self.purposes.append(effect.purpose)
                    reply = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                case ReadNow():
                    reply = self.now
                case Consult():
                    reply = effect.call()
                case Say():
                    self.lines.append(effect.text)
                    reply = None

    @property
    def kinds(self) -> list[str]:
        return [e.kind for e in self.fold.path]


def text_reply(text: str, stop: str | None = "end_turn", **more: Any) -> Response:
    return Response(blocks=(text_block(text),) if text else (), stop_reason=stop, model=MODEL, **more)


def asked(request: Request) -> str:
    return str(request.messages[-1].blocks[-1].get("text", ""))
