"""What `%context` and a finished turn return: values that show themselves as text, Markdown and HTML."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from nbagent.core.effects import TurnEvent
from nbagent.core.errors import one_line
from nbagent.core.messages import JsonObject, ToolCall
from nbagent.notebook.render import context_words, markdown_bundle, money, percent, shortened
from nbagent.notebook.reports.session import (
    SessionReport,
    SessionRow,
    SessionsReport,
    ToolRow,
    ToolsReport,
    TurnLogReport,
    TurnNode,
    TurnTreeReport,
)
from nbagent.notebook.reports.tables import Bar, Code, Document, Line, Piece, Table, displayable

__all__ = [
    "CATEGORIES", "ContextReport", "RequestReport", "RequestSegment", "SessionReport", "SessionRow", "SessionsReport",
    "ToolRow", "ToolsReport", "TurnLogReport", "TurnNode", "TurnResult", "TurnTreeReport",
]  # fmt: skip

CATEGORIES = (
    "system", "tools", "skills", "memory", "instructions", "summary", "messages", "thinking", "images",
    "tool results", "notebook", "other",
)  # fmt: skip

SHOWN_ROT = 3  # findings; `%context rot` has all


@displayable
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ContextReport:
    """How full the context is, by category. Every place that shows occupancy uses this.

    Tokens are of the next request; `estimated` says that no provider has counted them yet.
    `level` is 0 to 10. `categories` holds all CATEGORIES in their order, absent ones as 0.
    `cache_hit_rate` is 0 to 1, None before the first call. `rot` are findings, each with a
    readable `str`. `pending` is a line for each move that is recorded and waits, `provider` one for what the
    provider itself keeps out of sight. `when` says in words when compaction begins, where `threshold_tokens` is only
    where it usually does.

    Raises:
        ValueError: the categories do not add up to `used_tokens`, or one of them is unknown.
    """

    model: str
    policy: str
    window_tokens: int
    threshold_tokens: int
    used_tokens: int
    level: int
    categories: Mapping[str, int]
    cache_hit_rate: float | None = None
    cost_usd: float = 0.0
    estimated: bool = False
    rot: tuple[object, ...] = ()
    pending: tuple[str, ...] = ()
    provider: tuple[str, ...] = ()
    when: str = ""

    def __post_init__(self) -> None:
        if unknown := set(self.categories) - set(CATEGORIES):
            raise ValueError(f"unknown categories {sorted(unknown)}; known are {', '.join(CATEGORIES)}")
        if (total := sum(self.categories.values())) != self.used_tokens:
            raise ValueError(f"the categories add up to {total} tokens, not to used_tokens={self.used_tokens}")
        ordered = {name: int(self.categories.get(name, 0)) for name in CATEGORIES}
        object.__setattr__(self, "categories", MappingProxyType(ordered))

    def document(self) -> Document:
        """Return what is shown."""
        title = f"{context_words(self.used_tokens, self.window_tokens)} · level {self.level} of 10"
        present = tuple((name, tokens) for name, tokens in self.categories.items() if tokens)
        rows = tuple((name, f"{tokens:,}", percent(tokens, self.window_tokens)) for name, tokens in present)
        free = max(0, self.window_tokens - self.used_tokens)
        rows += (("free", f"{free:,}", percent(free, self.window_tokens)),)
        words = [f"model {self.model}", f"policy {self.policy}"]
        if self.cache_hit_rate is not None:
            words.append(f"cache hits {100 * self.cache_hit_rate:.0f} %")
        if self.cost_usd > 0:
            words.append(f"this branch cost {money(self.cost_usd)}")
        pieces: list[Piece] = [
            Line(text=title + (" · estimated" if self.estimated else ""), strong=True),
            Bar(parts=tuple(self.categories.items()), whole=self.window_tokens, mark=self.threshold_tokens),
            Line(text=f"compaction {self.when}at {self.threshold_tokens:,} tokens", dim=True),
            Table(head=("category", "tokens", "of window"), rows=rows, numbers=frozenset({1, 2})),
            Line(text=" · ".join(words), dim=True),
        ]
        pieces += _pending_lines(self.pending)
        pieces += [Line(text=f"provider: {line}") for line in self.provider]
        pieces += [Line(text=f"rot: {finding}") for finding in self.rot[:SHOWN_ROT]]
        if len(self.rot) > SHOWN_ROT:
            pieces.append(Line(text=f"rot: {len(self.rot) - SHOWN_ROT} more; %context rot lists all", dim=True))
        return pieces


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSegment:
    """A stretch of a request: its name, tokens (estimated), how it begins, whether a cache mark stands after it."""

    name: str
    tokens: int
    first_lines: str
    breakpoint: bool = False


@displayable
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RequestReport:
    """The exact request the next turn would send; `segments` in order. `request` is it as the provider takes it.

    `pending` is a line for each move that is recorded and not in this request yet.
    """

    model: str
    segments: tuple[RequestSegment, ...]
    window_tokens: int
    request: JsonObject
    as_json: bool = False
    pending: tuple[str, ...] = ()

    def to_json(self) -> str:
        """Return the request as indented JSON."""
        return json.dumps(self.request, ensure_ascii=False, indent=1, default=_plain_value)

    def document(self) -> Document:
        """Return what is shown: the segments, or the request itself."""
        if self.as_json:
            return [Code(text=self.to_json())]
        total = sum(s.tokens for s in self.segments)
        rows = tuple(
            (str(i), s.name, f"{s.tokens:,}", "◆" if s.breakpoint else "", shortened(one_line(s.first_lines), 70))
            for i, s in enumerate(self.segments, start=1)
        )
        title = f"next request to {self.model}: {context_words(total, self.window_tokens)}, estimated"
        folded = [(i, s) for i, s in enumerate(self.segments, start=1) if "\n" in s.first_lines]
        return [
            Line(text=title, strong=True),
            Table(head=("", "segment", "tokens", "cache", "begins"), rows=rows, numbers=frozenset({0, 2})),
            Line(text="◆ the prefix up to here is cached; nothing was sent", dim=True),
            *_pending_lines(self.pending),
            *(Code(text=s.first_lines, title=f"{i} {s.name}") for i, s in folded),
        ]


def _pending_lines(pending: tuple[str, ...]) -> list[Piece]:
    return [Line(text=f"pending: {line}") for line in pending]


def _plain_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, tuple | set | frozenset) else str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnResult:
    """What a turn brought. `stop_reason` is the provider's word, `usage` adds up its steps, `events` are in order.

    How long it took is a value and not shown: outputs that hold a time cannot be compared.
    """

    text: str
    turn_id: str
    steps: int
    tool_calls: tuple[ToolCall, ...] = ()
    usage: JsonObject = field(default_factory=dict)
    cost_usd: float = 0.0
    stop_reason: str | None = None
    duration_s: float = 0.0
    events: tuple[TurnEvent, ...] = ()

    def __repr__(self) -> str:
        calls = len(self.tool_calls)
        words = f"steps={self.steps}, tool_calls={calls}, cost_usd={self.cost_usd:.4f}"
        text = shortened(one_line(self.text), 60)
        return f"TurnResult({self.turn_id!r}, {words}, stop_reason={self.stop_reason!r}, text={text!r})"

    def __str__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {**markdown_bundle(self.text), "text/plain": repr(self)}

    def _repr_html_(self) -> str:
        return markdown_bundle(self.text)["text/html"]

    def _repr_markdown_(self) -> str:
        return markdown_bundle(self.text)["text/markdown"]
