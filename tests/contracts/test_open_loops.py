"""Open tool loops whatever moves were made in them: several compactions, prunings, undoings, other models."""

from __future__ import annotations

import os

from hypothesis import given, settings

from nbagent.core.entries import AssistantMessage, Entry, TurnStart
from nbagent.core.messages import is_signed_thinking, is_thinking
from nbagent.core.view import build_view
from tests.core.histories import histories

EXAMPLES = 10_000 if os.environ.get("NBAGENT_HYPOTHESIS") == "fuzz" else 500


@settings(max_examples=EXAMPLES)
@given(histories(tidy=True))
def test_an_open_loop_goes_with_all_its_thinking_or_as_text(entries: list[Entry]) -> None:
    """A provider that binds thinking refuses a loop whose last reply lacks a block; as text there is no loop."""
    for end in range(1, len(entries) + 1):
        seen = entries[:end]
        view = build_view(seen)
        if len(view.messages) < 2 or view.messages[-1].role != "user":
            continue
        if not any(b["type"] == "tool_result" for b in view.messages[-1].blocks):
            continue
        own = next(e for e in reversed(seen) if e.id in view.sources[-2])
        assert isinstance(own.body, AssistantMessage)
        voices = [(e.body.model, e.body.prefix) for e in seen if isinstance(e.body, TurnStart)]
        then = [(e.body.model, e.body.prefix) for e in seen[: seen.index(own)] if isinstance(e.body, TurnStart)]
        if voices[-1] != then[-1]:
            continue
        signed = [b for b in own.body.blocks if is_signed_thinking(b)]
        shown = [b for b in view.messages[-2].blocks if is_thinking(b)]
        assert shown[len(shown) - len(signed) :] == signed
