"""Sessions of terminal agents: pi and Claude Code, whose messages hold blocks much like ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nbagent.core.messages import Block, text_block
from nbagent.runtime.importing.recorder import Imported, Recorder, seconds, text_blocks

_PI_STOPS = {"stop": "end_turn", "toolUse": "tool_use", "length": "max_tokens", "error": "error"}


def pi(rows: Sequence[Mapping[str, Any]]) -> Imported:
    """Read a pi session (badlogic/pi-mono, versions up to 3 as of 2026-11): branches are followed to the last row."""
    recorder = Recorder(model=str(rows[0].get("modelId") or "unknown"))
    rows = _last_branch(rows)
    starts: dict[int | str, int] = {}
    for number, row in enumerate(rows):
        starts[number] = starts[str(row.get("id"))] = len(recorder.bodies)
        at = seconds(row.get("timestamp"))
        message = row.get("message") or {}
        kind = row.get("type")
        if kind == "compaction":
            kept = row.get("firstKeptEntryId", row.get("firstKeptEntryIndex"))
            tokens = int(row.get("tokensBefore") or 0)
            first = _turn_start(recorder, starts.get(kept))
            recorder.summary(str(row.get("summary") or ""), first, before_tokens=tokens, at=at)
        elif kind == "model_change":
            recorder.model = str(row.get("modelId") or recorder.model)
        elif kind == "message":
            _pi_message(recorder, message, at)
    return recorder.done()


def _turn_start(recorder: Recorder, index: int | None) -> int | None:
    """Return where the kept part begins: with the start of a turn, not with the end of the one before."""
    if index is None or index >= len(recorder.bodies):
        return None
    return index + (recorder.bodies[index].body.kind == "turn_end")


def _last_branch(rows: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    by_id = {row["id"]: row for row in rows[1:] if row.get("id") and "parentId" in row}
    if len(by_id) < len(rows) - 1:
        return rows
    branch: list[Mapping[str, Any]] = []
    row: Mapping[str, Any] | None = rows[-1]
    while row is not None:
        branch.append(row)
        row = by_id.get(row.get("parentId"))
    return [rows[0], *reversed(branch)]


def _pi_message(recorder: Recorder, message: Mapping[str, Any], at: float) -> None:
    role = message.get("role")
    if role == "user":
        recorder.ask(text_blocks(message.get("content")), at)
    elif role == "assistant":
        recorder.model = str(message.get("model") or recorder.model)
        stop = str(message.get("stopReason"))
        usage = message.get("usage") or {}
        recorder.reply(
            [_pi_block(b) for b in message.get("content") or () if _pi_block(b)],
            stop=_PI_STOPS.get(stop), at=at, cut=None if stop in ("stop", "toolUse") else stop,
            usage=_pi_usage(usage), cost_usd=float((usage.get("cost") or {}).get("total") or 0.0),
        )  # fmt: skip
    elif role == "toolResult":
        content = text_blocks(message.get("content"))
        recorder.result(message.get("toolCallId"), content, failed=bool(message.get("isError")), at=at)
    elif role == "bashExecution":
        recorder.remark(f"The person ran `{message.get('command')}`:\n{message.get('output')}", "cells", at)


def _pi_block(block: Mapping[str, Any]) -> Block:
    kind = block.get("type")
    if kind == "toolCall":
        return {"type": "tool_use", "id": block.get("id"), "name": block.get("name"), "input": block.get("arguments")}
    if kind == "thinking":
        signature = block.get("thinkingSignature") or ""
        return {"type": "thinking", "thinking": block.get("thinking") or "", "signature": signature}
    return text_block(str(block.get("text") or ""))


def _pi_usage(usage: Mapping[str, Any]) -> dict[str, int]:
    names = {"input": "input_tokens", "output": "output_tokens", "cacheRead": "cache_read_input_tokens",
             "cacheWrite": "cache_creation_input_tokens"}  # fmt: skip
    return {ours: int(usage[theirs]) for theirs, ours in names.items() if usage.get(theirs)}


def claude_code(rows: Sequence[Mapping[str, Any]]) -> Imported:
    """Read a Claude Code transcript (2.1, as of 2026-01), in file order; side chains (sub-agents) are left out.

    One reply is spread over rows that share `message.id`; results may stand between them.
    """
    recorder = Recorder()
    kept = [row for row in rows if not row.get("isSidechain") and row.get("type") in ("user", "assistant")]
    parts: dict[str, list[Mapping[str, Any]]] = {}
    for row in kept:
        if row["type"] == "assistant":
            parts.setdefault(_reply_id(row), []).append(row)
    for row in kept:
        at = seconds(row.get("timestamp"))
        if row["type"] == "assistant":
            whole = parts.pop(_reply_id(row), None)
            if whole is not None:
                _claude_reply(recorder, whole, at)
        else:
            _claude_user(recorder, row, at)
    return recorder.done()


def _reply_id(row: Mapping[str, Any]) -> str:
    return str((row.get("message") or {}).get("id") or row.get("uuid"))


def _claude_reply(recorder: Recorder, rows: Sequence[Mapping[str, Any]], at: float) -> None:
    messages = [row["message"] for row in rows]
    blocks: list[Block] = []
    for message in messages:
        content = message.get("content")
        blocks += [text_block(content)] if isinstance(content, str) else [dict(b) for b in content or ()]
    recorder.model = str(messages[0].get("model") or recorder.model)
    calls = any(b.get("type") == "tool_use" for b in blocks)
    recorded = next((m["stop_reason"] for m in reversed(messages) if m.get("stop_reason")), None)
    recorder.reply(
        blocks, stop=recorded or ("tool_use" if calls else "end_turn"), at=at,
        usage=messages[-1].get("usage"), response_id=str(messages[0].get("id") or ""),
    )  # fmt: skip


def _claude_user(recorder: Recorder, row: Mapping[str, Any], at: float) -> None:
    content = (row.get("message") or {}).get("content")
    if row.get("isCompactSummary"):
        recorder.summary("".join(str(b.get("text", "")) for b in text_blocks(content)), None, at=at)
        return
    asked: list[Block] = []
    for block in [text_block(content)] if isinstance(content, str) else content or ():
        if block.get("type") == "tool_result":
            inner = text_blocks(block.get("content"))
            recorder.result(str(block.get("tool_use_id")), inner, failed=bool(block.get("is_error")), at=at)
        else:
            asked += text_blocks([block])
    if row.get("isMeta"):
        recorder.remark("\n".join(str(b.get("text", "")) for b in asked), "notes", at)
    else:
        recorder.ask(asked, at)
