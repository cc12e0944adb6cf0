"""The checks of the service on `messages`: roles, contents, and the pairing of calls and results."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.fakes.catalog import ModelFacts
from tests.fakes.errors import Refused
from tests.fakes.prefix import THINKING_TYPES, as_blocks

JSON = dict[str, Any]
TOOL_ID = re.compile(r"^[a-zA-Z0-9_-]+$")
USER_TYPES = frozenset(["text", "image", "document", "search_result", "tool_result", "container_upload"])
FIELDS = {
    "text": {"type", "text", "cache_control", "citations"},
    "tool_use": {"type", "id", "name", "input", "cache_control", "caller", "toolset_name"},
    "tool_result": {"type", "tool_use_id", "content", "is_error", "cache_control", "toolset_name"},
    "thinking": {"type", "thinking", "signature", "cache_control"},
    "redacted_thinking": {"type", "data", "cache_control"},
}
REQUIRED: dict[str, dict[str, type]] = {
    "text": {"text": str},
    "tool_use": {"id": str, "name": str, "input": dict},
    "tool_result": {"tool_use_id": str},
    "thinking": {"thinking": str, "signature": str},
    "redacted_thinking": {"data": str},
}
TYPE_NAMES: dict[type, str] = {str: "string", dict: "dictionary"}
WITHOUT_RESULT = (
    "`tool_use` ids were found without `tool_result` blocks immediately after: {ids}. "
    "Each `tool_use` block must have a corresponding `tool_result` block in the next message."
)
WITHOUT_USE = (
    "unexpected `tool_use_id` found in `tool_result` blocks: {id}. "
    "Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
)
NO_PREFILL = "This model does not support assistant message prefill. The conversation must end with a user message."


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Consecutive messages of one role; `places` are paths such as "messages.1.content.0"."""

    role: str
    path: str
    blocks: list[JSON] = field(default_factory=list)
    places: list[str] = field(default_factory=list)

    def of_type(self, kind: str) -> list[JSON]:
        """Return the blocks of one type."""
        return [block for block in self.blocks if block["type"] == kind]

    def placed(self) -> Iterator[tuple[str, JSON]]:
        """Yield each block with its path."""
        return zip(self.places, self.blocks, strict=True)


def check_messages(messages: object, facts: ModelFacts, *, strict: bool) -> None:
    """Check the conversation; `strict` adds the rules of API version 2026-10-21.

    Raises:
        Refused: with the first violated rule.
    """
    if not isinstance(messages, list):
        raise Refused("messages: Input should be a valid list")
    if not messages:
        raise Refused("messages: at least one message is required")
    for i, message in enumerate(messages):
        _check_message(message, i, last=i == len(messages) - 1)
        for j, block in enumerate(as_blocks(message["content"])):
            _check_block(block, message["role"], f"messages.{i}.content.{j}", strict=strict)
    turns = _merged(messages)
    if turns[0].role != "user":
        raise Refused('messages: first message must use the "user" role')
    _check_system_turns(turns, facts)
    _check_pairs(turns)
    _check_server_tools(turns)
    if turns[-1].role == "assistant":
        _check_prefill(turns[-1], facts)


def _check_message(message: object, i: int, *, last: bool) -> None:
    if not isinstance(message, dict):
        raise Refused(f"messages.{i}: Input should be a valid dictionary")
    for name in ("role", "content"):
        if name not in message:
            raise Refused(f"messages.{i}.{name}: Field required")
    for name in message:
        if name not in ("role", "content"):
            raise Refused(f"messages.{i}.{name}: Extra inputs are not permitted")
    if message["role"] not in ("user", "assistant", "system"):
        raise Refused(f"messages.{i}.role: Input should be 'user', 'assistant' or 'system'")
    content = message["content"]
    if not isinstance(content, str | list):
        raise Refused(f"messages.{i}.content: Input should be a valid string or list")
    if not content and not (last and message["role"] == "assistant"):
        raise Refused(
            f"messages.{i}: all messages must have non-empty content except for the optional final assistant message"
        )
    for j, block in enumerate(content if isinstance(content, list) else []):
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            raise Refused(f"messages.{i}.content.{j}.type: Field required")


def _check_block(block: JSON, role: str, path: str, *, strict: bool) -> None:
    kind = block["type"]
    for name in sorted(block.keys() - FIELDS.get(kind, block.keys())):
        raise Refused(f"{path}.{kind}.{name}: Extra inputs are not permitted")
    for name, expected in REQUIRED.get(kind, {}).items():
        if name not in block:
            raise Refused(f"{path}.{kind}.{name}: Field required")
        if not isinstance(block[name], expected):
            raise Refused(f"{path}.{kind}.{name}: Input should be a valid {TYPE_NAMES[expected]}")
    _check_role(kind, role, path)
    if kind == "text":
        _check_text(block, role, path, strict=strict)
    if kind == "tool_use" and not TOOL_ID.fullmatch(block["id"]):
        raise Refused(f"{path}.tool_use.id: String should match pattern '{TOOL_ID.pattern}'")
    if kind == "document" and role == "assistant" and strict:
        raise Refused(f"{path}: `document` blocks are not permitted in assistant messages")


def _check_role(kind: str, role: str, path: str) -> None:
    if role == "system" and kind != "text":
        raise Refused(f"{path}: `system` messages can only have `text` blocks")
    if role == "assistant" and kind == "tool_result":
        raise Refused(f"{path}: `tool_result` blocks can only be in `user` messages")
    if role != "user" or kind in USER_TYPES:
        return
    if kind in ("tool_use", "server_tool_use", *THINKING_TYPES):
        raise Refused(f"{path}: `{kind}` blocks can only be in `assistant` messages")
    raise Refused(f"{path}: Input tag '{kind}' found using 'type' does not match any of the expected tags")


def _check_text(block: JSON, role: str, path: str, *, strict: bool) -> None:
    if not block["text"]:
        raise Refused("messages: text content blocks must be non-empty")
    if not block["text"].strip():
        raise Refused("messages: text content blocks must contain non-whitespace text")
    if role == "user" and block.get("citations") and strict:
        raise Refused(f"{path}.text.citations: citations are not permitted on user text blocks")


def _merged(messages: list[JSON]) -> list[Turn]:
    turns: list[Turn] = []
    for i, message in enumerate(messages):
        if not turns or turns[-1].role != message["role"]:
            turns.append(Turn(role=message["role"], path=f"messages.{i}"))
        for j, block in enumerate(as_blocks(message["content"])):
            turns[-1].blocks.append(block)
            turns[-1].places.append(f"messages.{i}.content.{j}")
    return turns


def _check_system_turns(turns: list[Turn], facts: ModelFacts) -> None:
    for i, turn in enumerate(turns):
        if turn.role != "system":
            continue
        if not facts.takes_system_messages:
            raise Refused(f"{turn.path}: role 'system' is not supported on this model")
        if turns[i - 1].role != "user":
            raise Refused(f"{turn.path}: a `system` message must follow a user message or tool results")
        if i + 1 < len(turns) and turns[i + 1].role != "assistant":
            raise Refused(f"{turn.path}: a `system` message must be last or come before an assistant message")


def _check_pairs(turns: list[Turn]) -> None:
    known: set[str] = set()
    for i, turn in enumerate(turns):
        if turn.role == "assistant":
            _check_unique(turn, known)
            _check_answered(turn, turns[i + 1] if i + 1 < len(turns) else None)
        elif turn.role == "user":
            _check_results(turn, turns[i - 1] if i else None)


def _check_unique(turn: Turn, known: set[str]) -> None:
    for place, block in turn.placed():
        if block["type"] in ("tool_use", "server_tool_use"):
            if block.get("id") in known:
                raise Refused(f"{place}: `tool_use` ids must be unique")
            known.add(str(block.get("id")))


def _check_answered(turn: Turn, following: Turn | None) -> None:
    open_ids = {block["id"] for block in turn.of_type("tool_use")}
    if following is None or following.role != "user":
        answered: set[str] = set()
    else:
        answered = _leading_result_ids(following)
    missing = [block["id"] for block in turn.of_type("tool_use") if block["id"] not in answered]
    if open_ids and missing:
        raise Refused(f"{turn.path}: {WITHOUT_RESULT.format(ids=', '.join(missing))}")


def _leading_result_ids(turn: Turn) -> set[str]:
    found: set[str] = set()
    for block in turn.blocks:
        if block["type"] != "tool_result":
            break
        found.add(block["tool_use_id"])
    return found


def _check_results(turn: Turn, before: Turn | None) -> None:
    open_ids = {block["id"] for block in before.of_type("tool_use")} if before and before.role == "assistant" else set()
    seen: set[str] = set()
    for place, block in turn.placed():
        if block["type"] != "tool_result":
            continue
        found = block["tool_use_id"]
        if found in seen:
            raise Refused(
                f"{place}: each tool_use must have a single result. Found multiple `tool_result` blocks with id: {found}"
            )
        if found not in open_ids:
            raise Refused(f"{place}: {WITHOUT_USE.format(id=found)}")
        seen.add(found)


def _check_server_tools(turns: list[Turn]) -> None:
    """Refuse content after a server tool call whose result is missing.

    A call may stay open at the end of the conversation, or across a user turn of tool
    results alone: the service finishes it in its next reply.
    """
    open_calls: dict[str, JSON] = {}
    silent = {"tool_use", "server_tool_use", "tool_result", *THINKING_TYPES}
    for turn in turns:
        for place, block in turn.placed():
            kind, answers = block["type"], str(block.get("tool_use_id"))
            if kind == "server_tool_use":
                open_calls[str(block.get("id"))] = block
            elif kind.endswith("_tool_result"):
                if open_calls.pop(answers, None) is None:
                    raise Refused(f"{place}: unexpected `tool_use_id` found in `{kind}` blocks: {answers}")
            elif open_calls and kind not in silent:
                name, call_id = next((call.get("name"), call_id) for call_id, call in open_calls.items())
                raise Refused(
                    f"{place}: `{name}` tool use with id `{call_id}` was found without a corresponding "
                    f"`{name}_tool_result` block"
                )


def _check_prefill(turn: Turn, facts: ModelFacts) -> None:
    paused = turn.blocks and (
        turn.blocks[-1]["type"] == "server_tool_use" or turn.blocks[-1]["type"].endswith("_tool_result")
    )
    if not facts.takes_prefill and not paused:
        raise Refused(NO_PREFILL)
    if (
        turn.blocks
        and turn.blocks[-1].get("type") == "text"
        and turn.blocks[-1]["text"] != turn.blocks[-1]["text"].rstrip()
    ):
        raise Refused("messages: final assistant content cannot end with trailing whitespace")
