"""What a turn asks of its provider: thinking, and the provider's own clearing and compaction (`context.provider`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nbagent.context.engine import NEAR_OVERFLOW
from nbagent.context.policy import Policy
from nbagent.context.provider import LeavesToProvider
from nbagent.context.standing import undone
from nbagent.core.budget import Budget, Usage
from nbagent.core.entries import AssistantMessage, Entry, Restore, UsageReported
from nbagent.core.in_force import summarises
from nbagent.core.messages import JsonObject
from nbagent.core.view import build_view
from nbagent.models.catalog import PLATFORM_PREFIXES, ModelFacts
from nbagent.models.context_edits import (
    COMPACT,
    LEAST_TRIGGER_TOKENS,
    PARAMETER,
    edits_parameter,
    wanted_edits,
    without_compaction,
)
from nbagent.models.registry import NamedModel
from nbagent.runtime.writer import SessionWriter

__all__ = [
    "begin", "edits_of", "leaving", "missing_edits", "options", "options_now", "told_edits", "without_compaction",
]  # fmt: skip

WORDS = {"clear": "clear old results", "compact": "compact a conversation"}


def options(named: NamedModel, mode: str, budget: Budget) -> dict[str, Any]:
    """Return the provider's parameters for a model; the same for a whole conversation (claude.md A6)."""
    found: dict[str, Any] = {}
    if named.source == "live" and named.facts.thinking in ("adaptive", "always"):
        found["thinking"] = {"type": "adaptive", "display": "summarized"}
    edits = frozenset(e for e in wanted_edits(mode) if not _missing(e, named, budget))
    window = budget.window_tokens
    return {**found, **edits_parameter(edits, trigger_tokens=budget.threshold_tokens, window_tokens=window)}


def leaving(policy: Policy, options: JsonObject) -> Policy:
    """Return `policy` without what the options of a turn leave to the provider."""
    edits = edits_of(options)
    return LeavesToProvider(inner=policy, edits=edits) if edits else policy


def begin(writer: SessionWriter, named: NamedModel, mode: str, budget: Budget, told: set[str]) -> list[str]:
    """Make the conversation one that `named` can read. Returns lines for the person; those in `told` only once."""
    taken_back, missing = _take_back_unreadable(writer, named.facts), missing_edits(named, mode, budget)
    lines = [line for line in (taken_back, missing if missing not in told else "") if line]
    told.update(lines)
    return lines


def missing_edits(named: NamedModel, mode: str, budget: Budget) -> str:
    """Return the line that says what of the setting `context.provider` cannot be had here, empty for nothing."""
    why = [f"{WORDS[e]}: {line}" for e in sorted(wanted_edits(mode)) if (line := _missing(e, named, budget))]
    if not why:
        return ""
    return (
        f"context.provider={mode}: the provider cannot {'; nor '.join(why)}. The policy does it instead; "
        "`%context set provider=off` ends this message"
    )


def _missing(edit: str, named: NamedModel, budget: Budget) -> str:
    if named.name.startswith(PLATFORM_PREFIXES) or named.source not in ("live", "fake"):
        return f"{named.name} is not Anthropic's own API"
    if edit not in named.facts.edits:
        return f"{named.name} does not offer it"
    if edit == "compact" and budget.window_tokens <= LEAST_TRIGGER_TOKENS:
        return f"it begins at {LEAST_TRIGGER_TOKENS:,} tokens and the window holds {budget.window_tokens:,}"
    return ""


def edits_of(options: JsonObject) -> frozenset[str]:
    """Return which moves the options of a turn leave to the provider."""
    asked = options.get(PARAMETER)
    kinds = [str(e.get("type")) for e in asked.get("edits", ())] if isinstance(asked, Mapping) else []
    return frozenset("compact" if k == COMPACT else "clear" for k in kinds)


def options_now(options: JsonObject, path: Sequence[Entry], share: float) -> JsonObject:
    """Return the options of the next request: after an undo the provider too waits until the window is nearly full."""
    if "compact" in edits_of(options) and share < NEAR_OVERFLOW and undone(path):
        return without_compaction(options)
    return options


def _take_back_unreadable(writer: SessionWriter, facts: ModelFacts) -> str:
    """Take the provider's compaction back where the next model cannot read it; returns the line that says so."""
    path = writer.tree.path()
    last = build_view(path).compaction
    if "compact" in facts.edits or not any(e.id == last and summarises(e.body) for e in path):
        return ""
    writer.write(Restore(cancels=last or ""))
    return f"{facts.model} cannot read the provider's compaction; it was taken back and the whole conversation is sent"


def told_edits(entries: Iterable[Entry]) -> tuple[str, ...]:
    """Return a line for what the provider did to the context in `entries`: a turn's, as they were written."""
    lines: list[str] = []
    cleared = 0
    before = after = 0
    for entry in entries:
        body = entry.body
        if isinstance(body, AssistantMessage) and summarises(body):
            before, after = -1, -1
        elif isinstance(body, UsageReported) and body.purpose == "turn":
            edits = body.usage.get("applied_edits") or ()
            cleared = max([cleared, *(int(e.get("cleared_tool_uses") or 0) for e in edits)])
            if before == -1:
                before, after = _sizes(body.usage)
    if before:
        lines.append(
            f"The provider compacted the conversation ({before:,} → {after:,} tokens); `%context undo` takes it back."
        )
    if cleared:
        lines.append(f"The provider left the {cleared} oldest results out of the request; `recall` finds them.")
    return tuple(lines)


def _sizes(usage: JsonObject) -> tuple[int, int]:
    """Return the context's size before and after the compaction in a reply, as the provider measured it."""
    parts = [p for p in usage.get("iterations") or () if isinstance(p, Mapping)]
    first = next((Usage.from_wire(p).context_tokens for p in parts if p.get("type") == "compaction"), 0)
    return first, Usage.from_wire(usage).context_tokens
