"""Benchmark recordings: OpenHands event histories, SWE-agent trajectories, OpenAI chat messages."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from nbagent.core.messages import Block, text_block
from nbagent.runtime.importing.recorder import Imported, Recorder, seconds, text_blocks

_NO_ACTION = frozenset({None, "system", "condensation", "change_agent_state", "recall"})
_NO_RESULT = frozenset({"finish", "message"})  # actions of OpenHands that end a turn instead of running something


def from_histories(rows: Sequence[Mapping[str, Any]]) -> tuple[Imported, ...]:
    """Read what has a `history`: of messages (SWE-agent) or of events (OpenHands)."""
    found = []
    for number, row in enumerate(rows, 1):
        history = row["history"]
        is_chat = bool(history) and "role" in history[0]
        name = str(row.get("instance_id") or number) if len(rows) > 1 else ""
        found.append(_swe_agent(history, name) if is_chat else _open_hands(history, name))
    return tuple(found)


# --- OpenAI chat messages -------------------------------------------------------------------------


def conversations(rows: Sequence[Any]) -> tuple[Imported, ...]:
    """Read conversations of chat messages: one list of them, or objects with `traj`, `messages` or `conversation`."""
    if rows and all(isinstance(r, Mapping) and "role" in r for r in rows):
        return (_chat(rows, ""),)
    found = []
    for number, row in enumerate(rows, 1):
        messages = row if isinstance(row, list) else None
        if isinstance(row, Mapping):
            messages = next(
                (row[k] for k in ("traj", "messages", "conversation") if isinstance(row.get(k), list)), None
            )
        if not messages or not all(isinstance(m, Mapping) and "role" in m for m in messages):
            return ()
        found.append(_chat(messages, f"{number:03d}" if len(rows) > 1 else ""))
    return tuple(found)


def _chat(messages: Sequence[Mapping[str, Any]], name: str) -> Imported:
    recorder = Recorder()
    for message in messages:
        _chat_message(recorder, message)
    return recorder.done(name)


def _chat_message(recorder: Recorder, message: Mapping[str, Any]) -> None:
    role, content = message["role"], message.get("content")
    at = seconds(message.get("timestamp"))
    if role in ("system", "developer"):
        _system(recorder, _text(content), at)
    elif role == "user":
        recorder.ask(text_blocks(content), at)
    elif role in ("tool", "function"):
        named = message.get("tool_call_id") or next(iter(message.get("tool_call_ids") or ()), None)
        recorder.result(str(named) if named else None, text_blocks(content), at=at)
    elif role == "assistant":
        recorder.model = str(message.get("model") or recorder.model)
        calls = _chat_calls(message.get("tool_calls"))
        recorder.reply([*text_blocks(content), *calls], stop="tool_use" if calls else "end_turn", at=at)


def _system(recorder: Recorder, text: str, at: float) -> None:
    if recorder.system or recorder.bodies:
        recorder.remark(text, "notes", at)
    else:
        recorder.system = text


def _text(content: Any) -> str:
    return "\n".join(str(b.get("text", "")) for b in text_blocks(content))


def _chat_calls(calls: Any) -> list[Block]:
    return [
        {"type": "tool_use", "id": c.get("id"), "name": c["function"]["name"], "input": _arguments(c["function"])}
        for c in calls or ()
    ]


def _arguments(function: Mapping[str, Any]) -> Any:
    raw = function.get("arguments")
    if not isinstance(raw, str):
        return raw or {}
    try:
        return json.loads(raw) if raw.strip() else {}
    except ValueError:
        return {"value": raw}


# --- SWE-agent ------------------------------------------------------------------------------------


def _swe_agent(history: Sequence[Mapping[str, Any]], name: str) -> Imported:
    """Read a SWE-agent history (3ea751c0, 2025). A reply without `tool_calls` runs its `action` as text."""
    recorder = Recorder()
    for message in history:
        if message.get("is_demo"):
            continue
        if message["role"] == "assistant" and not message.get("tool_calls") and message.get("action"):
            thought, action = str(message.get("thought") or ""), str(message["action"])
            call = {"type": "tool_use", "id": None, "name": "shell", "input": {"command": action}}
            recorder.reply([text_block(thought), call], stop="tool_use")
        elif message["role"] == "user" and recorder.has_open_call:
            recorder.result(None, text_blocks(message.get("content")))
        else:
            _chat_message(recorder, message)
    return recorder.done(name)


# --- OpenHands ------------------------------------------------------------------------------------


def _open_hands(events: Sequence[Mapping[str, Any]], name: str) -> Imported:
    """Read an OpenHands event history (d6fab190, 2025-05): actions of one model response are one reply."""
    recorder = Recorder()
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for event in events:
        if _is_action(event):
            groups.setdefault(_response_id(event), []).append(event)
    for event in events:
        at = seconds(event.get("timestamp"))
        action, arguments = event.get("action"), event.get("args") or {}
        if _is_action(event):
            group = groups.pop(_response_id(event), None)
            if group is not None:
                _open_hands_reply(recorder, group, at)
        elif event.get("observation"):
            _open_hands_result(recorder, event, at)
        elif action == "system":
            _system(recorder, str(arguments.get("content") or event.get("message") or ""), at)
        elif action == "message":
            recorder.ask([text_block(str(arguments.get("content") or event.get("message") or ""))], at)
        elif action == "condensation":
            recorder.summary(str(arguments.get("summary") or ""), None, at=at)
    return recorder.done(name)


def _is_action(event: Mapping[str, Any]) -> bool:
    action = event.get("action")
    return event.get("source") == "agent" and action not in _NO_ACTION


def _response_id(event: Mapping[str, Any]) -> str:
    response = (event.get("tool_call_metadata") or {}).get("model_response") or {}
    return str(response.get("id") or f"event {event.get('id')}")


def _open_hands_reply(recorder: Recorder, group: Sequence[Mapping[str, Any]], at: float) -> None:
    metadata = group[0].get("tool_call_metadata") or {}
    response = metadata.get("model_response") or {}
    choice: Mapping[str, Any] = next(iter(response.get("choices") or ()), {})
    recorder.model = str(response.get("model") or recorder.model)
    arguments = group[0].get("args") or {}
    said = choice.get("message", {}).get("content") or arguments.get("thought") or arguments.get("final_thought")
    ends = all(event["action"] in _NO_RESULT for event in group)
    if not said and ends:
        said = arguments.get("content") or group[0].get("message")
    calls = [] if ends else [_open_hands_call(e, choice) for e in group if e["action"] not in _NO_RESULT]
    usage = response.get("usage") or {}
    recorder.reply(
        [*text_blocks(said), *calls], stop="tool_use" if calls else "end_turn", at=at,
        usage={ours: int(usage[theirs]) for theirs, ours in (("prompt_tokens", "input_tokens"),
               ("completion_tokens", "output_tokens")) if usage.get(theirs)},
    )  # fmt: skip


def _open_hands_call(event: Mapping[str, Any], choice: Mapping[str, Any]) -> Block:
    metadata = event.get("tool_call_metadata") or {}
    recorded = metadata.get("tool_call_id")
    for call in (choice.get("message") or {}).get("tool_calls") or ():
        if call.get("id") == recorded:
            return {**_chat_calls([call])[0], "id": _key(event)}
    named = {k: v for k, v in (event.get("args") or {}).items() if k != "thought" and v not in (None, "", False)}
    return {"type": "tool_use", "id": _key(event), "name": str(event["action"]), "input": named}


def _key(event: Mapping[str, Any]) -> str:
    """Return an id for the call of an action: the recorded one repeats between responses."""
    return f"event_{event.get('id')}"


def _open_hands_result(recorder: Recorder, event: Mapping[str, Any], at: float) -> None:
    text = str(event.get("content") or event.get("message") or "")
    failed = event["observation"] == "error"
    answered = recorder.result(f"event_{event.get('cause')}", [text_block(text)], failed=failed, at=at)
    if not answered and failed:
        recorder.remark(text, "notes", at)
