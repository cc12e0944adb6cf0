"""What a provider accepts as `messages`, told independently of the view that makes them (claude.md B4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nbagent.core.messages import Message, canonical

ASSISTANT_ONLY = {"tool_use", "thinking", "redacted_thinking", "server_tool_use"}


def broken_rules(messages: Sequence[Message], *, open_at_end: bool = False) -> list[str]:
    """Return what a provider would refuse, one line each; none when it would accept.

    `open_at_end`: the conversation may end in the model's side, also in calls without results.
    """
    wire = [m.to_wire() for m in messages]
    found: list[str] = []
    seen_ids: set[str] = set()
    for i, message in enumerate(wire):
        before = wire[i - 1] if i else None
        after = wire[i + 1] if i + 1 < len(wire) else None
        found += [f"{i}: {line}" for line in _message(message, before)]
        found += [f"{i}: {line}" for line in _pairing(message, before, after, open_at_end and i + 2 >= len(wire))]
        for block in _of(message, "tool_use"):
            if block["id"] in seen_ids:
                found.append(f"{i}: call id {block['id']} twice")
            seen_ids.add(block["id"])
    if wire and wire[-1]["role"] != "user" and not open_at_end:
        found.append("the last message is the model's")
    return found


def _of(message: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [b for b in message["content"] if b["type"] == kind]


def _message(message: dict[str, Any], before: dict[str, Any] | None) -> list[str]:
    found = []
    role, content = message["role"], message["content"]
    if before is None and role != "user":
        found.append("the first message is not the user's")
    if before is not None and before["role"] == role:
        found.append("two messages of one role in a row")
    if not content:
        found.append("no content")
    for block in content:
        found += _block(block, role)
    if content and all(b["type"] in ("thinking", "redacted_thinking") for b in content):
        found.append("thinking alone")
    canonical(message).encode()
    return found


def _block(block: dict[str, Any], role: str) -> list[str]:
    kind = block["type"]
    if kind in ASSISTANT_ONLY and role != "assistant":
        return [f"{kind} in a {role} message"]
    if kind == "tool_result" and role != "user":
        return ["a result in the model's message"]
    if kind == "text" and not block["text"].strip():
        return ["blank text"]
    if kind == "thinking" and not block.get("signature"):
        return ["thinking without a signature"]
    if kind == "redacted_thinking" and not block.get("data"):
        return ["redacted thinking without its text"]
    if kind == "tool_use" and not isinstance(block["input"], dict):
        return ["a call whose input is no object"]
    if kind == "tool_result":
        inner = block["content"]
        if not inner or (isinstance(inner, str) and not inner.strip()):
            return ["an empty result"]
        return [] if isinstance(inner, str) else [line for b in inner for line in _block(b, role)]
    return []


def _pairing(
    message: dict[str, Any], before: dict[str, Any] | None, after: dict[str, Any] | None, open_at_end: bool
) -> list[str]:
    found = []
    asked = [b["id"] for b in _of(message, "tool_use")]
    if asked:
        answered = {b["tool_use_id"] for b in _of(after, "tool_result")} if after else set()
        lost = [a for a in asked if a not in answered]
        if lost and not open_at_end:
            found.append(f"calls without results: {lost}")
    results = [b["tool_use_id"] for b in _of(message, "tool_result")]
    if len(set(results)) != len(results):
        found.append("two results for one call")
    known = {b["id"] for b in _of(before, "tool_use")} if before else set()
    if strangers := [r for r in results if r not in known]:
        found.append(f"results without calls: {strangers}")
    kinds = [b["type"] == "tool_result" for b in message["content"]]
    if kinds != sorted(kinds, reverse=True):
        found.append("something before a result")
    return found
