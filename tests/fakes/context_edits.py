"""Context edits as the service makes them: old tool results cleared, a conversation compacted.

The client sends everything every time; what the model sees is worked out here, per request. Thinking is checked
against what was sent, so that nothing that the service does by itself unbinds it.

Source: claude.md A10, November 2026.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.fakes.errors import Refused
from tests.fakes.prefix import PromptBlock, canonical_line

JSON = dict[str, Any]
CLEAR_BETA, COMPACT_BETA = "context-management-2025-06-27", "compact-2026-01-12"
CLEAR_TOOLS, CLEAR_THINKING, COMPACT = "clear_tool_uses_20250919", "clear_thinking_20251015", "compact_20260112"
BETA_OF = {CLEAR_TOOLS: CLEAR_BETA, CLEAR_THINKING: CLEAR_BETA, COMPACT: COMPACT_BETA}
FIELDS = {
    CLEAR_TOOLS: {"type", "trigger", "keep", "clear_at_least", "exclude_tools", "clear_tool_inputs"},
    CLEAR_THINKING: {"type", "keep"},
    COMPACT: {"type", "trigger", "pause_after_compaction", "instructions"},
}
UNITS = {"trigger": ("input_tokens", "tool_uses"), "keep": ("tool_uses",), "clear_at_least": ("input_tokens",)}
CLEAR_TRIGGER, KEEP, COMPACT_TRIGGER, LEAST_COMPACT_TRIGGER = 100_000, 3, 150_000, 50_000
PLACEHOLDER = "[Old tool result content cleared]"


def check_edits(
    body: Mapping[str, Any], betas: frozenset[str], *, compacts: bool, least_trigger: int = LEAST_COMPACT_TRIGGER
) -> None:
    """Refuse edits that the service does not take, and compaction blocks without their beta; `compacts`: the model can.

    Raises:
        Refused: with the first violated rule.
    """
    _check_blocks(body, betas, compacts=compacts)
    asked = body.get("context_management")
    if asked is None:
        return
    if not isinstance(asked, dict) or set(asked) - {"edits"} or not isinstance(asked.get("edits", []), list):
        raise Refused("context_management: Input should be an object with edits")
    kinds = []
    for i, edit in enumerate(asked.get("edits", [])):
        where = f"context_management.edits.{i}"
        kind = edit.get("type") if isinstance(edit, dict) else None
        if kind not in FIELDS:
            raise Refused(f"{where}.type: Input tag {kind!r} is not one of {', '.join(FIELDS)}")
        if BETA_OF[kind] not in betas:
            raise Refused(f"{where}: {kind} needs the beta {BETA_OF[kind]}")
        if kind == COMPACT and not compacts:
            raise Refused(f"{where}: the model {body.get('model')} does not support {COMPACT}")
        if extra := set(edit) - FIELDS[kind]:
            raise Refused(f"{where}.{min(extra)}: Extra inputs are not permitted")
        if kind != CLEAR_THINKING:
            _check_values(edit, where)
        if kind == COMPACT and _value(edit, "trigger", COMPACT_TRIGGER) < least_trigger:
            raise Refused(f"{where}.trigger.value: Input should be greater than or equal to {least_trigger}")
        kinds.append(kind)
    if len(set(kinds)) < len(kinds):
        raise Refused("context_management.edits: each strategy may be given once")
    if CLEAR_THINKING in kinds[1:]:
        raise Refused(f"context_management.edits: {CLEAR_THINKING} must be the first")


def _check_values(edit: JSON, where: str) -> None:
    for name, units in UNITS.items():
        given = edit.get(name)
        if given is None:
            continue
        if not isinstance(given, dict) or given.get("type") not in units:
            raise Refused(f"{where}.{name}.type: Input should be {' or '.join(units)}")
        if isinstance(given.get("value"), bool) or not isinstance(given.get("value"), int) or given["value"] < 0:
            raise Refused(f"{where}.{name}.value: Input should be a whole number")


def _check_blocks(body: Mapping[str, Any], betas: frozenset[str], *, compacts: bool) -> None:
    for i, message in enumerate(body.get("messages") or ()):
        content = message.get("content") if isinstance(message, dict) else None
        for j, block in enumerate(content if isinstance(content, list) else ()):
            if not isinstance(block, dict) or block.get("type") != "compaction":
                continue
            where = f"messages.{i}.content.{j}"
            if not compacts:
                raise Refused(f"{where}: the model {body.get('model')} does not read compaction blocks")
            if COMPACT_BETA not in betas:
                raise Refused(f"{where}: compaction blocks need the beta {COMPACT_BETA}")
            if message.get("role") != "assistant":
                raise Refused(f"{where}: compaction blocks are the assistant's")
            if "content" not in block or block["content"] == "":
                raise Refused(f"{where}.content: Input should be a text or null")


def _value(edit: Mapping[str, Any], name: str, default: int) -> int:
    given = edit.get(name)
    return int(given["value"]) if isinstance(given, dict) else default


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenPrompt:
    """What the model sees of a prompt. `applied` is told in the reply; `compacts`: this reply begins with a note."""

    blocks: tuple[PromptBlock, ...]
    applied: tuple[JSON, ...] = ()
    compacts: bool = False


def seen_prompt(
    body: Mapping[str, Any], blocks: Sequence[PromptBlock], count: Callable[[bytes], int], issued: Sequence[JSON]
) -> SeenPrompt:
    """Return what the model sees of `blocks` after earlier compactions and the edits asked for.

    `issued` are the compaction blocks that this service made.

    Raises:
        Refused: a compaction block is not as it was made.
    """
    shown = list(behind_note(blocks, issued))
    edits = {e["type"]: e for e in (body.get("context_management") or {}).get("edits", ())}
    applied: tuple[JSON, ...] = ()
    if CLEAR_TOOLS in edits:
        shown, applied = _cleared(edits[CLEAR_TOOLS], shown, count)
    size = sum(count(b.line) for b in shown)
    compacts = COMPACT in edits and size > _value(edits[COMPACT], "trigger", COMPACT_TRIGGER)
    return SeenPrompt(blocks=tuple(shown), applied=applied, compacts=compacts)


def behind_note(blocks: Sequence[PromptBlock], issued: Sequence[JSON]) -> Sequence[PromptBlock]:
    """Return system, tools, and the messages from the last compaction on; a failed one is a no-op."""
    last = None
    for i, block in enumerate(blocks):
        if block.part == "messages" and block.block.get("type") == "compaction":
            plain = {k: v for k, v in block.block.items() if k != "cache_control"}
            if plain not in issued:
                raise Refused(f"{block.path}: compaction_content_mismatch: the block is not as it was returned")
            last = i if plain["content"] is not None else last
    if last is None:
        return blocks
    return [*(b for b in blocks if b.part != "messages"), *blocks[last:]]


def _cleared(
    edit: JSON, blocks: list[PromptBlock], count: Callable[[bytes], int]
) -> tuple[list[PromptBlock], tuple[JSON, ...]]:
    names = {b.block.get("id"): b.block.get("name") for b in blocks if b.block.get("type") == "tool_use"}
    results = [i for i, b in enumerate(blocks) if b.block.get("type") == "tool_result"]
    by_uses = (edit.get("trigger") or {}).get("type") == "tool_uses"
    size = len(results) if by_uses else sum(count(b.line) for b in blocks)
    if size <= _value(edit, "trigger", CLEAR_TRIGGER):
        return blocks, ()
    keep = _value(edit, "keep", KEEP)
    old = [
        i for i in results[: max(0, len(results) - keep)]
        if names.get(blocks[i].block["tool_use_id"]) not in (edit.get("exclude_tools") or ())
    ]  # fmt: skip
    made = {i: _placeholder(blocks[i]) for i in old}
    freed = sum(count(blocks[i].line) - count(new.line) for i, new in made.items())
    if not old or freed < _value(edit, "clear_at_least", 0):
        return blocks, ()
    told = {"type": CLEAR_TOOLS, "cleared_tool_uses": len(old), "cleared_input_tokens": freed}
    return [made.get(i, b) for i, b in enumerate(blocks)], (told,)


def _placeholder(block: PromptBlock) -> PromptBlock:
    cleared = {**block.block, "content": [{"type": "text", "text": PLACEHOLDER}]}
    return replace(block, block=cleared, line=canonical_line(block.part, block.role, cleared))
