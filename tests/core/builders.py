"""Builders of one line each: bodies of entries, and paths and trees of them.

`path(start(), user("hi"), calls("python", id="a"), result("a"))` is a list of stamped entries
with the ids e1, e2, …; an Entry among the bodies is taken as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from nbagent.core.entries import (
    AssistantMessage,
    Body,
    Compaction,
    Entry,
    LeafMoved,
    Pruning,
    Restore,
    Snapshot,
    Steering,
    ToolResult,
    ToolStarted,
    TurnEnd,
    TurnStart,
    UsageReported,
    UserMessage,
)  # fmt: skip
from nbagent.core.messages import Block, Message, Prefix, Request, Response, text_block
from nbagent.core.view import View

MODEL = "claude-sonnet-5-5"
PREFIX = Prefix(system=(text_block("You are an agent."),), tools=({"name": "python"},))


def start(turn: str = "t1", model: str = MODEL, **more: Any) -> TurnStart:
    return TurnStart(turn=turn, model=model, policy="nbagent", **more)


def end(turn: str = "t1", outcome: Any = "completed") -> TurnEnd:
    return TurnEnd(turn=turn, outcome=outcome)


def user(*texts: str) -> UserMessage:
    return UserMessage(blocks=tuple(text_block(t) for t in texts))


def thinks(text: str = "hm", signature: str = "sig") -> Block:
    return {"type": "thinking", "thinking": text, "signature": signature}


def call(name: str = "python", id: str = "a", input: Any = None) -> Block:
    return {"type": "tool_use", "id": id, "name": name, "input": {} if input is None else input}


def reply(
    *blocks: Block | str, stop: str | None = "end_turn", cut: str | None = None, step: int = 1
) -> AssistantMessage:
    made = tuple(text_block(b) if isinstance(b, str) else b for b in blocks)
    return AssistantMessage(blocks=made, stop_reason=stop, model=MODEL, step=step, cut=cut)


def says(text: str, **more: Any) -> AssistantMessage:
    return reply(text, **more)


def calls(name: str = "python", id: str = "a", **more: Any) -> AssistantMessage:
    return reply(call(name, id), **{"stop": "tool_use", **more})


def started(id: str = "a", name: str = "python") -> ToolStarted:
    return ToolStarted(call_id=id, name=name)


def result(id: str = "a", text: str = "ok", status: Any = "ok", name: str = "python") -> ToolResult:
    return ToolResult(call_id=id, name=name, content=(text_block(text),), status=status)


def note(text: str) -> Snapshot:
    return Snapshot(text=text)


def steer(text: str) -> Steering:
    return Steering(text=text)


def usage(step: int = 1) -> UsageReported:
    return UsageReported(step=step, model=MODEL, usage={"output_tokens": 5}, cost_usd=0.01)


def prunes(*entry_ids: str, text: str = "[cleared]") -> Pruning:
    return Pruning(placeholders=dict.fromkeys(entry_ids, text))


def compacts(first_kept: str | None, text: str = "NOTE") -> Compaction:
    return Compaction(first_kept=first_kept, note=text)


def restores(entry_id: str) -> Restore:
    return Restore(cancels=entry_id)


def moved(why: str = "fork") -> LeafMoved:
    return LeafMoved(why=why)


def stamp(bodies: Iterable[Body | Entry], before: Sequence[Entry] = ()) -> list[Entry]:
    """Return `before` and an entry a body after it, each the child of the one before."""
    entries = list(before)
    for body in bodies:
        if isinstance(body, Entry):
            entries.append(body)
            continue
        parent = entries[-1].id if entries else None
        entries.append(Entry(f"e{len(entries) + 1}", parent, float(len(entries)), body))
    return entries


def path(*bodies: Body | Entry) -> list[Entry]:
    return stamp(bodies)


def plain(view: View) -> list[tuple[str, list[str]]]:
    """Return a view in short: roles, and a word or two for each block."""
    return [(m.role, [_word(b) for b in m.blocks]) for m in view.messages]


def _word(block: Block) -> str:
    match block["type"]:
        case "text":
            return str(block["text"])
        case "tool_use":
            return f"call {block['id']}"
        case "tool_result":
            content = block["content"]
            text = content if isinstance(content, str) else " ".join(str(c.get("text", c["type"])) for c in content)
            return f"{'error' if block.get('is_error') else 'result'} {block['tool_use_id']}: {text}"
        case kind:
            return str(kind)


def chunks(messages: Sequence[Message]) -> list[bytes]:
    """Return the canonical form of a conversation, a piece a block."""
    return list(request(messages).canonical_chunks())


def request(messages: Sequence[Message]) -> Request:
    return Request(model=MODEL, max_tokens=100, prefix=PREFIX, messages=tuple(messages))


def response(*blocks: Block | str, stop: str | None = "end_turn", cut: str | None = None, **more: Any) -> Response:
    made = tuple(text_block(b) if isinstance(b, str) else b for b in blocks)
    return Response(
        blocks=made, stop_reason=stop, model=MODEL, cut=cut, usage={"output_tokens": len(str(made))}, **more
    )
