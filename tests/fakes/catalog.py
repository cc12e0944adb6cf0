"""What the fake knows about each model: window, caps and which parameters it takes.

Source: the public model tables and the `ModelInfo` type of anthropic 2.14 (November 2026).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

EFFORT_LEVELS = ("low", "medium", "high", "xhigh", "max")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """One model as the service describes it.

    `thinking` holds the accepted values of `thinking.type`. `binds_thinking`: a thinking
    block is bound to the conversation before it. `omits_thinking`: `display` defaults to
    "omitted", so thinking arrives as a signature only.
    """

    id: str
    thinking: tuple[str, ...]
    window_tokens: int = 1_000_000
    max_output_tokens: int = 128_000
    binds_thinking: bool = False
    omits_thinking: bool = True
    takes_effort: bool = True
    takes_prefill: bool = False
    takes_forced_tool: bool = True
    takes_system_messages: bool = False
    compacts: bool = True

    def as_json(self, window_tokens: int | None) -> dict[str, Any]:
        """Return the body of `GET /v1/models/{id}`; `window_tokens` overrides the table."""
        return {
            "type": "model",
            "id": self.id,
            "display_name": self.id.replace("-", " ").title(),
            "created_at": "1970-01-01T00:00:00Z",
            "lifecycle": "active",
            "deprecated_at": None,
            "retires_at": None,
            "line": None,
            "max_input_tokens": window_tokens or self.window_tokens,
            "max_tokens": self.max_output_tokens,
            "capabilities": self._capabilities(),
        }

    def _capabilities(self) -> dict[str, Any]:
        yes, no = {"supported": True}, {"supported": False}
        edits = ("clear_thinking_20251015", "clear_tool_uses_20250919", "compact_20260112")
        thinking = {name: {"supported": name in self.thinking} for name in ("adaptive", "disabled", "enabled")}
        return {
            "batch": no,
            "citations": no,
            "code_execution": no,
            "context_management": {"supported": True, **dict.fromkeys(edits, yes), **({} if self.compacts else {edits[2]: no})},
            "effort": {
                "supported": self.takes_effort,
                **dict.fromkeys(EFFORT_LEVELS, yes if self.takes_effort else no),
            },
            "image_input": yes,
            "pdf_input": yes,
            "server_tools": {"supported": True, "code_execution": yes, "web_search": yes},
            "structured_outputs": yes,
            "thinking": {"supported": True, "types": {**thinking, "between_tools": no}},
        }


_ADAPTIVE_OR_OFF = ("adaptive", "disabled")
_ALL = ("adaptive", "enabled", "disabled")


def _bound(model_id: str, *, thinking: tuple[str, ...] = ("adaptive",), forced: bool = True) -> ModelFacts:
    return ModelFacts(
        id=model_id, thinking=thinking, binds_thinking=True, takes_forced_tool=forced, takes_system_messages=True
    )


def _extended_only(model_id: str, *, effort: bool = False) -> ModelFacts:
    return ModelFacts(
        id=model_id,
        thinking=("enabled", "disabled"),
        window_tokens=200_000,
        max_output_tokens=64_000,
        omits_thinking=False,
        takes_effort=effort,
        takes_prefill=True,
        compacts=False,
    )


_FACTS = (
    _bound("claude-opus-5-5", forced=False),
    _bound("claude-sonnet-5-5", thinking=_ADAPTIVE_OR_OFF),
    _bound("claude-haiku-5-5", thinking=_ADAPTIVE_OR_OFF),
    _bound("claude-fable-5-2"),
    _bound("claude-fable-5-1", forced=False),
    _bound("claude-mythos-5-2"),
    _bound("claude-mythos-5-1"),
    ModelFacts(id="claude-fable-5", thinking=("adaptive",), takes_system_messages=True),
    ModelFacts(id="claude-mythos-5", thinking=("adaptive",), takes_system_messages=True),
    ModelFacts(id="claude-opus-5", thinking=_ADAPTIVE_OR_OFF, takes_system_messages=True),
    ModelFacts(id="claude-sonnet-5", thinking=_ADAPTIVE_OR_OFF),
    ModelFacts(id="claude-opus-4-8", thinking=_ADAPTIVE_OR_OFF, takes_system_messages=True),
    ModelFacts(id="claude-opus-4-7", thinking=_ADAPTIVE_OR_OFF),
    ModelFacts(id="claude-opus-4-6", thinking=_ALL, omits_thinking=False),
    ModelFacts(id="claude-sonnet-4-6", thinking=_ALL, omits_thinking=False),
    _extended_only("claude-opus-4-5", effort=True),
    _extended_only("claude-opus-4-5-20251101", effort=True),
    _extended_only("claude-sonnet-4-5"),
    _extended_only("claude-sonnet-4-5-20250929"),
    _extended_only("claude-haiku-4-5"),
    _extended_only("claude-haiku-4-5-20251001"),
)

MODELS: Mapping[str, ModelFacts] = MappingProxyType({facts.id: facts for facts in _FACTS})
