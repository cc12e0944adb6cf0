"""One body of every kind, and a hypothesis strategy for each, for the tests of the journal."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from nbagent.core.entries import (
    Approval,
    AssistantMessage,
    Body,
    Compaction,
    Entry,
    LeafMoved,
    Pin,
    Pruning,
    Report,
    Restore,
    SkillUse,
    Snapshot,
    Steering,
    ToolResult,
    ToolStarted,
    TurnEnd,
    TurnStart,
    Unknown,
    UsageReported,
    UserMessage,
)

EVERY_KIND: tuple[Body, ...] = (
    TurnStart(
        turn="t1", model="m", policy="nbagent", policy_numbers={"threshold": 0.7}, mode="auto", prefix="0" * 16,
        cell_id="c1", source_hash="abc", order=2, masked_tools=("shell",), options={"effort": "low"},
        limits={"max_steps": 5}, notebook="a.ipynb",
    ),
    UserMessage(blocks=({"type": "text", "text": "größe\u2028?\n"},)),
    AssistantMessage(
        blocks=(
            {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
            {"type": "redacted_thinking", "data": "b3BhcXVl"},
            {"type": "new_block", "z": [1, 2.5, None, True], "a": {}},
            {"type": "tool_use", "id": "toolu_1", "name": "python", "input": {"code": "df"}},
        ),
        stop_reason="tool_use", model="m", step=1, response_id="msg_1", stop_details={"x": 1}, cut="stopped",
    ),
    ToolStarted(call_id="toolu_1", name="python"),
    ToolResult(
        call_id="toolu_1", name="python", content=({"type": "text", "text": "42"},), status="error",
        full_chars=2, shown="0-2", duration_s=0.5, meta={"path": "x"},
    ),
    UsageReported(step=1, model="m", usage={"input_tokens": 3}, cost_usd=0.001, estimated_tokens=4, purpose="handoff"),
    Approval(call_id="toolu_1", tool="python", decision="allow", scope="turn", by="rule"),
    Snapshot(text="df: 3 rows", topics=("variables",), state={"df": "x"}),
    Pruning(placeholders={"e5": "[cleared]"}, reason="old"),
    Compaction(first_kept=None, note="what was", reason="hand", before_tokens=9, after_tokens=3, details={"n": 1}),
    Restore(cancels="e9"),
    Pin(target="e2", text="keep", remove=True),
    LeafMoved(why="fork"),
    Steering(text="faster", by="loop"),
    SkillUse(name="pdf", by="model", why="asked", details={"ok": True}),
    Report(source="agent-1", text="done", details={"n": 2}),
    TurnEnd(turn="t1", outcome="limit", steps=3, message="max_steps reached", duration_s=1.5),
    Unknown(raw={"kind": "hologram", "later": {"b": [1], "a": "x"}, "1": 1.0}),
)  # fmt: skip

text = st.text(max_size=20)
number = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
json_value: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | number | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
json_object = st.dictionaries(text, json_value, max_size=3)
blocks = st.lists(json_object, max_size=3).map(tuple)

every_body: st.SearchStrategy[Body] = st.one_of(
    st.sampled_from(EVERY_KIND),
    st.builds(UserMessage, blocks=blocks),
    st.builds(
        AssistantMessage, blocks=blocks, stop_reason=st.none() | text, model=text, step=st.integers(0, 99),
        stop_details=st.none() | json_object, cut=st.none() | text,
    ),
    st.builds(ToolResult, call_id=text, name=text, content=blocks, meta=json_object, artifact=st.none() | text),
    st.builds(Snapshot, text=text, topics=st.lists(text, max_size=3).map(tuple), state=json_object),
    st.builds(Pruning, placeholders=st.dictionaries(text, text, max_size=3)),
    st.builds(Compaction, first_kept=st.none() | text, note=text, details=json_object),
    st.builds(TurnStart, turn=text, model=text, policy=text, options=json_object, cell_id=st.none() | text),
    st.builds(Unknown, raw=json_object.map(lambda raw: {"kind": "hologram", **raw, "kind2": 1} | {"kind": "hologram"})),
)  # fmt: skip


def chain(*bodies: Body) -> list[Entry]:
    """Return entries e1, e2, … each the child of the one before."""
    return [Entry(f"e{i}", f"e{i - 1}" if i > 1 else None, 1.7e9 + i, body) for i, body in enumerate(bodies, 1)]


def said(*texts: str) -> list[Entry]:
    """Return a chain of user messages."""
    return chain(*(UserMessage(blocks=({"type": "text", "text": t},)) for t in texts))
