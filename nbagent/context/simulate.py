"""Simulate: walk a conversation call by call under another policy, without calling a model.

The engine that manages real turns does the work; its effects are performed on a copy of the path. Where it asks a
model for a note it gets a stand-in: first lines of the conversation, evenly taken, up to the size notes usually
have. The machine's own parts of a note are the real ones.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from nbagent.context.engine import Engine
from nbagent.context.measure import Meter
from nbagent.context.policy import Policy, in_window
from nbagent.context.signals import is_signal
from nbagent.core.effects import Append, CallModel, Consult, Effect, ReadNow
from nbagent.core.entries import (
    AssistantMessage,
    Body,
    Compaction,
    Entry,
    Pruning,
    Report,
    Restore,
    UsageReported,
)
from nbagent.core.in_force import summarises
from nbagent.core.messages import Block, Message, Request, Response, is_provider_note, text_block
from nbagent.core.view import Piece, ViewFold

NOTE_TOKENS: Final = 1_500  # what a model's note usually takes, in a window of 200,000
LINE_CHARS: Final = 160
STAND_IN: Final = "## Stand-in for a note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One model call of the walk. `tokens` is the whole request, estimated; `purpose` is "turn" for the agent's own.

    `problem` is the line with which a real turn would have ended here. `request` is that of a call for a note: who
    drives the walk may send the model's reply to it.
    """

    purpose: str
    at: float
    messages: tuple[Message, ...]
    tokens: int
    output_tokens: int
    problem: str = ""
    request: Request | None = None


Walk: TypeAlias = Generator[Call, "Response | None", None]


def bare_path(path: Sequence[Entry]) -> list[Entry]:
    """Return the entries without what managed the context: as if it had always been large enough."""
    kept: list[Entry] = []
    for entry in path:
        if not _manages(entry):
            body = _unmanaged(entry.body)
            kept.append(replace(entry, parent=kept[-1].id if kept else None, body=body))
    return kept


def _unmanaged(body: Body) -> Body:
    """Return a body without what the provider did to the context by itself."""
    if isinstance(body, UsageReported) and "applied_edits" in body.usage:
        return replace(body, usage={k: v for k, v in body.usage.items() if k != "applied_edits"})
    if not isinstance(body, AssistantMessage) or not summarises(body):
        return body
    return replace(body, blocks=tuple(b for b in body.blocks if not is_provider_note(b)))


def _manages(entry: Entry) -> bool:
    body = entry.body
    if isinstance(body, UsageReported):
        return body.purpose != "turn"
    if isinstance(body, Report):
        return body.source == "compaction"
    return isinstance(body, Pruning | Compaction | Restore) or is_signal(body)


def simulated_engine(engine: Engine, policy: Policy) -> Engine:
    """Return an engine for `policy` that works as `engine` does, but stores nothing and estimates every size."""
    return Engine(
        policy=policy, meter=engine.meter, prefix=engine.prefix, budget=engine.budget,
        make_request=engine.make_request, predict=lambda view: sum(engine.meter.view(view, engine.prefix).values()),
        price=engine.price, binds_thinking=engine.binds_thinking, machine_note=engine.machine_note,
        skills_note=engine.skills_note, checks_notes=False,
    )  # fmt: skip


def walk(path: Sequence[Entry], engine: Engine, fold: ViewFold) -> Walk:
    """Yield every model call of the bare `path` as `engine` would have sent it; `fold` holds the result in the end.

    A reply sent back for a call that asks for a note is taken as that note; without one a stand-in is.
    """
    for entry in path:
        if isinstance(entry.body, AssistantMessage):
            problem = yield from _before_call(engine, fold, entry.at)
            view = fold.view()
            yield Call(
                purpose="turn", at=entry.at, messages=view.messages, tokens=engine.estimate(view),
                output_tokens=_size(engine.meter, entry, entry.body.blocks), problem=problem,
            )  # fmt: skip
        fold.add(replace(entry, parent=fold.path[-1].id if fold.path else None))


def _before_call(engine: Engine, fold: ViewFold, at: float) -> Generator[Call, Response | None, str]:
    """Let the engine act; its calls for a note are yielded. Returns the line that would end the turn."""
    flow: Generator[Effect, Any, str | None] = engine.before_call(fold)
    reply: Any = None
    while True:
        try:
            effect = flow.send(reply)
        except StopIteration as done:
            return done.value or ""
        reply = None
        match effect:
            case Append():
                reply = Entry(f"simulated-{len(fold.path)}", fold.path[-1].id if fold.path else None, at, effect.body)
            case ReadNow():
                reply = at
            case Consult():
                reply = effect.call()
            case CallModel():
                request = effect.request
                note = stand_in(request.messages, engine.meter, in_window(NOTE_TOKENS, engine.budget.window_tokens))
                sizes = (engine.meter.text(m.to_bytes().decode()) for m in request.messages)
                told = yield Call(
                    purpose=effect.purpose, at=at, messages=request.messages, tokens=engine.fixed_tokens() + sum(sizes),
                    output_tokens=engine.meter.text(note), request=request,
                )  # fmt: skip
                reply = told or Response(blocks=(text_block(note),), stop_reason="end_turn", model=request.model)
            case _:
                pass


def stand_in(messages: Sequence[Message], meter: Meter, limit_tokens: int) -> str:
    """Return what stands in for a model's note: first lines of messages and results, evenly taken, in order."""
    lines = list(dict.fromkeys(line for m in messages[:-1] for b in m.blocks if (line := _first_line(b))))
    size = sum(map(meter.text, lines)) + 2 * len(lines)
    share = min(1.0, limit_tokens / max(1, size))
    count = max(1, int(share * len(lines)))
    chosen = [lines[i * len(lines) // count] for i in range(count)] if lines else ["(nothing)"]
    return "\n".join([STAND_IN, *(f"- {line}" for line in chosen)])


def _first_line(block: Block) -> str:
    text = ""
    if block.get("type") == "text":
        text = str(block.get("text", ""))
    elif block.get("type") == "tool_result":
        inner = block.get("content")
        text = inner if isinstance(inner, str) else "\n".join(str(b.get("text", "")) for b in inner or ())
    return next((line.strip()[:LINE_CHARS] for line in text.split("\n") if line.strip()), "")


def _size(meter: Meter, entry: Entry, blocks: tuple[Block, ...]) -> int:
    piece = Piece(entry_id=f"{entry.id} as sent out", role="assistant", blocks=blocks, category="messages")
    return sum(meter.piece(piece).values())
