"""Context edits of the fake: what it refuses, and what it does to a prompt."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fakes.context_edits import check_edits, seen_prompt
from tests.fakes.errors import Refused
from tests.fakes.prefix import prompt_blocks

CLEAR, THINK, COMPACT = "clear_tool_uses_20250919", "clear_thinking_20251015", "compact_20260112"
BOTH = frozenset({"context-management-2025-06-27", "compact-2026-01-12"})
NOTE = {"type": "compaction", "content": "the note", "encrypted_content": "x"}


def tokens(value: int) -> dict[str, Any]:
    return {"type": "input_tokens", "value": value}


def body(*edits: dict[str, Any], results: int = 6, middle: dict[str, Any] | None = None) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    for i in range(results):
        blocks = [{"type": "tool_use", "id": f"t{i}", "name": "read", "input": {}}]
        if middle is not None and i == results // 2:
            blocks.insert(0, middle)
        messages.append({"role": "assistant", "content": blocks})
        content = [{"type": "text", "text": "x" * 100}]
        messages.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"t{i}", "content": content}]})
    return {"messages": messages, **({"context_management": {"edits": list(edits)}} if edits else {})}


@pytest.mark.parametrize(
    ("edits", "betas", "why"),
    [
        (({"type": "tidy_up"},), BOTH, "is not one of"),
        (({"type": CLEAR},), BOTH - {"context-management-2025-06-27"}, "needs the beta context-management-2025-06-27"),
        (({"type": COMPACT},), BOTH - {"compact-2026-01-12"}, "needs the beta compact-2026-01-12"),
        (({"type": COMPACT, "trigger": tokens(49_999)},), BOTH, "greater than or equal to 50000"),
        (({"type": COMPACT, "trigger": {"type": "tool_uses", "value": 9}},), BOTH, r"trigger.type|trigger"),
        (({"type": CLEAR, "keep": tokens(3)},), BOTH, "keep.type: Input should be tool_uses"),
        (({"type": CLEAR, "keep": {"type": "tool_uses", "value": "3"}},), BOTH, "keep.value"),
        (({"type": CLEAR, "keeps": 3},), BOTH, "keeps: Extra inputs"),
        (({"type": CLEAR}, {"type": THINK, "keep": "all"}), BOTH, "must be the first"),
        (({"type": CLEAR}, {"type": CLEAR}), BOTH, "may be given once"),
    ],
)  # fmt: skip
def test_edits_that_the_service_does_not_take_are_refused(edits: Any, betas: frozenset[str], why: str) -> None:
    with pytest.raises(Refused, match=why):
        check_edits(body(*edits), betas, compacts=True)


def test_a_model_without_compaction_neither_makes_nor_reads_one() -> None:
    with pytest.raises(Refused, match="does not support"):
        check_edits(body({"type": COMPACT}), BOTH, compacts=False)
    with pytest.raises(Refused, match="does not read"):
        check_edits(body(middle=NOTE), BOTH, compacts=False)


def test_a_compaction_block_needs_its_beta_and_the_assistants_side() -> None:
    with pytest.raises(Refused, match="need the beta"):
        check_edits(body(middle=NOTE), frozenset(), compacts=True)
    with pytest.raises(Refused, match="a text or null"):
        check_edits(body(middle={**NOTE, "content": ""}), BOTH, compacts=True)
    sent = body()
    sent["messages"][0]["content"] = [NOTE]
    with pytest.raises(Refused, match="are the assistant's"):
        check_edits(sent, BOTH, compacts=True)


def seen(sent: dict[str, Any], *issued: dict[str, Any]) -> Any:
    return seen_prompt(sent, prompt_blocks(sent), len, issued)


def test_the_oldest_results_are_cleared_and_the_newest_kept() -> None:
    shown = seen(body({"type": CLEAR, "trigger": tokens(100), "keep": {"type": "tool_uses", "value": 2}}))
    texts = [b.block["content"][0]["text"][:4] for b in shown.blocks if b.block["type"] == "tool_result"]
    assert texts == ["[Old"] * 4 + ["xxxx"] * 2
    assert shown.applied[0]["cleared_tool_uses"] == 4


def test_too_little_or_too_early_clears_nothing() -> None:
    for edit in ({"trigger": tokens(10**6)}, {"trigger": tokens(100), "clear_at_least": tokens(10**6)}):
        assert seen(body({"type": CLEAR, **edit})).applied == ()


def test_nothing_before_a_compaction_is_read_and_a_failed_one_is_a_no_op() -> None:
    sent = body(middle=NOTE)
    assert seen(sent, NOTE).blocks[0].block == NOTE
    failed = {**NOTE, "content": None}
    whole = body(middle=failed)
    assert len(seen(whole, failed).blocks) == len(prompt_blocks(whole))


def test_a_changed_compaction_block_is_refused() -> None:
    with pytest.raises(Refused, match="compaction_content_mismatch"):
        seen(body(middle={**NOTE, "content": "another note"}), NOTE)
