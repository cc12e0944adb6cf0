"""The provider's own clearing and compaction: the request's `context_management` and its beta headers. Pure.

Source: claude.md A10, 2026-11. The client keeps and sends the whole history; the provider leaves out of it what the
edits say, and tells what it left out. A compaction comes as a block at the beginning of a reply, is sent back as it
came, and what stands before it is not read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from nbagent.core.messages import Block, Message, Request

CLEAR_BETA: Final = "context-management-2025-06-27"
COMPACT_BETA: Final = "compact-2026-01-12"
CLEAR: Final = "clear_tool_uses_20250919"
COMPACT: Final = "compact_20260112"
LEAST_TRIGGER_TOKENS: Final = 50_000  # of the provider's compaction
KEPT_RESULTS: Final = 8  # as the default policy protects
PARAMETER: Final = "context_management"
MODES: Final = ("off", "clear", "compact", "both")


def wanted_edits(mode: str) -> frozenset[str]:
    """Return what the setting `context.provider` asks for: some of "clear" and "compact".

    >>> sorted(wanted_edits("both")), sorted(wanted_edits("off"))
    (['clear', 'compact'], [])
    """
    return frozenset(("clear", "compact") if mode == "both" else () if mode == "off" else (mode,))


def edits_parameter(edits: frozenset[str], *, trigger_tokens: int, window_tokens: int) -> dict[str, Any]:
    """Return the parameter that asks for `edits` from `trigger_tokens` of input on, empty for none.

    Results are cleared only when a tenth of the window comes free: each clearing breaks the cache.
    """
    found: list[dict[str, Any]] = []
    if "clear" in edits:
        found.append({
            "type": CLEAR, "trigger": _tokens(trigger_tokens), "keep": {"type": "tool_uses", "value": KEPT_RESULTS},
            "clear_at_least": _tokens(window_tokens // 10),
        })  # fmt: skip
    if "compact" in edits:
        found.append({"type": COMPACT, "trigger": _tokens(max(trigger_tokens, LEAST_TRIGGER_TOKENS))})
    return {PARAMETER: {"edits": found}} if found else {}


def _tokens(value: int) -> dict[str, Any]:
    return {"type": "input_tokens", "value": value}


def without_compaction(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the options of a request that must not be compacted now."""
    asked = options.get(PARAMETER)
    if not isinstance(asked, Mapping):
        return options
    kept = [e for e in asked.get("edits", ()) if e.get("type") != COMPACT]
    rest = {k: v for k, v in options.items() if k != PARAMETER}
    return {**rest, PARAMETER: {**asked, "edits": kept}} if kept else rest


class SentBack:
    """Tells whether messages hold a compaction of the provider's; a message that stays is looked at once."""

    def __init__(self) -> None:
        self._messages: tuple[Message, ...] = ()
        self._found = False

    def holds(self, messages: tuple[Message, ...]) -> bool:
        """Tell it of the messages of a request, of which most were in the last one."""
        known = len(self._messages)
        if messages[:known] != self._messages:  # the same objects, as a rule: a comparison of pointers
            known, self._found = 0, False
        new = messages[known:]
        self._found = self._found or any(_is_compaction(b) for m in new if m.role == "assistant" for b in m.blocks)
        self._messages = messages
        return self._found


def beta_names(request: Request, sent_back: SentBack | None = None) -> tuple[str, ...]:
    """Return the beta names that a request needs, sorted: for its edits, and for compactions that it sends back."""
    asked = request.options.get(PARAMETER)
    kinds = {str(e.get("type")) for e in asked.get("edits", ())} if isinstance(asked, Mapping) else set()
    names = {CLEAR_BETA for kind in kinds if kind.startswith("clear_")}
    if (sent_back or SentBack()).holds(request.messages) or COMPACT in kinds:
        names.add(COMPACT_BETA)
    return tuple(sorted(names))


def _is_compaction(block: Block) -> bool:
    return block.get("type") == "compaction"
