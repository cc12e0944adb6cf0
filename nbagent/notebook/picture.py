"""What a turn has shown so far: a fold of TurnEvents into items in the order in which they came."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, assert_never

from nbagent.core.effects import (
    Notice,
    StepBegan,
    StepEnded,
    SubAgentMoved,
    TextDelta,
    ThinkingDelta,
    ToolBegan,
    ToolEnded,
    TurnBegan,
    TurnDone,
    TurnEvent,
    Waiting,
)
from nbagent.core.messages import JsonObject
from nbagent.notebook.markdown import References

STATUS_WORDS = {"error": "failed", "not_run": "not run"}
"""Words for the statuses of a result that are not their own word."""


@dataclass(slots=True)
class TextItem:
    """Text or thinking of one block of a reply. `generation` counts how often it was replaced, not extended."""

    step: int
    index: int
    thinking: bool
    generation: int = 0
    gone: bool = False
    references: References = field(default_factory=dict)
    _parts: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The text so far."""
        if len(self._parts) > 1:
            self._parts[:] = ["".join(self._parts)]
        return self._parts[0] if self._parts else ""

    def extend(self, text: str) -> None:
        """Add a delta."""
        self._parts.append(text)

    def replace(self, text: str) -> None:
        """Take `text` instead of what was streamed."""
        self._parts[:] = [text]
        self.generation += 1
        self.references.clear()


@dataclass(slots=True)
class ToolItem:
    """One tool call. `status` is "running" or a word of the result; `text` is what the model sees."""

    call_id: str
    name: str
    summary: str
    input: Any = None
    status: str = "running"
    text: str = ""
    duration_s: float | None = None
    gone: bool = False


@dataclass(slots=True)
class NoticeItem:
    """One line for the person."""

    text: str
    gone: bool = False


Item: TypeAlias = TextItem | ToolItem | NoticeItem


@dataclass(slots=True)
class TurnPicture:
    """The fold: `add` events in order, read the rest. Total: no order of events raises."""

    items: list[Item] = field(default_factory=list)
    window_tokens: int = 0
    replayed: bool = False
    step: int = 0
    context_tokens: int = 0
    cost_usd: float = 0.0
    waiting: Waiting | None = None
    done: TurnDone | None = None
    agents: dict[str, SubAgentMoved] = field(default_factory=dict)
    _retried: bool = False

    def add(self, event: TurnEvent) -> None:
        """Take the next event; those after the end are ignored."""
        if self.done is not None:
            return
        match event:
            case TurnBegan():
                self.window_tokens, self.replayed = event.window_tokens, event.replayed
            case StepBegan():
                self._began(event)
            case TextDelta() | ThinkingDelta():
                self._delta(event.index, event.text, thinking=isinstance(event, ThinkingDelta))
            case StepEnded():
                self._ended(event)
            case ToolBegan():
                self._tool_began(event)
            case ToolEnded():
                self._tool_ended(event)
            case Waiting():
                self.waiting, self._retried = event, True
            case Notice():
                self.items.append(NoticeItem(event.text))
            case SubAgentMoved():
                self.agents[event.agent] = event
            case TurnDone():
                self._done(event)
            case _:
                assert_never(event)

    def stop(self, line: str) -> None:
        """End the picture at once as stopped by the person, with what is known."""
        self.add(
            TurnDone(
                outcome="stopped", message=line, steps=self.step, context_tokens=self.context_tokens,
                window_tokens=self.window_tokens, cost_usd=self.cost_usd, duration_s=0.0,
            )
        )  # fmt: skip

    @property
    def running(self) -> tuple[ToolItem, ...]:
        """The calls that run now."""
        return tuple(i for i in self.items if isinstance(i, ToolItem) and i.status == "running")

    def answer(self) -> str:
        """Return the text of the reply, blocks apart by a blank line."""
        texts = (i.text for i in self.items if isinstance(i, TextItem) and not i.thinking)
        return "\n\n".join(t for t in texts if t.strip())

    def _of_step(self, step: int) -> list[TextItem]:
        return [i for i in self.items if isinstance(i, TextItem) and i.step == step]

    def _drop(self, items: Sequence[TextItem]) -> None:
        for item in items:
            item.gone = True
        self.items = [i for i in self.items if not i.gone]

    def _began(self, event: StepBegan) -> None:
        self._drop(self._of_step(event.step))  # the same step again: what it streamed before was not kept
        self.step, self.context_tokens = event.step, event.context_tokens
        self.cost_usd = event.cost_usd
        self.waiting, self._retried = None, False

    def _delta(self, index: int, text: str, *, thinking: bool) -> None:
        if self._retried:  # the reply starts anew
            self._drop(self._of_step(self.step))
        self.waiting, self._retried = None, False
        found = next((i for i in self._of_step(self.step) if i.index == index and i.thinking == thinking), None)
        if found is None:
            found = TextItem(self.step, index, thinking)
            self.items.append(found)
        found.extend(text)

    def _ended(self, event: StepEnded) -> None:
        self.step, self.context_tokens, self.cost_usd = event.step, event.context_tokens, event.cost_usd
        self.waiting, self._retried = None, False
        streamed = [i for i in self._of_step(event.step) if i.text.strip()]
        kept = [part for block in event.blocks if (part := _shown_text(block))]
        if [(i.thinking, i.text) for i in streamed] == kept:
            return
        for index, (thinking, text) in enumerate(kept):
            if index < len(streamed) and streamed[index].thinking == thinking:
                if streamed[index].text != text:
                    streamed[index].replace(text)
                continue
            self._drop(streamed[index:])
            streamed = streamed[:index]
            self._add_text(event.step, index, thinking, text)
        self._drop(streamed[len(kept) :])

    def _add_text(self, step: int, index: int, thinking: bool, text: str) -> None:
        item = TextItem(step, index, thinking)
        item.extend(text)
        self.items.append(item)

    def _tool(self, call_id: str) -> ToolItem | None:
        return next((i for i in self.items if isinstance(i, ToolItem) and i.call_id == call_id), None)

    def _tool_began(self, event: ToolBegan) -> None:
        self.waiting = None
        if (item := self._tool(event.call_id)) is None:
            self.items.append(ToolItem(event.call_id, event.name, event.summary, event.input))
        elif item.status == "running":
            item.summary, item.input = event.summary, event.input

    def _tool_ended(self, event: ToolEnded) -> None:
        if (item := self._tool(event.call_id)) is None:
            item = ToolItem(event.call_id, event.name, event.summary)
            self.items.append(item)
        item.status = "stopped" if event.stopped else STATUS_WORDS.get(event.status, event.status)
        item.text, item.duration_s = event.text, event.duration_s

    def _done(self, event: TurnDone) -> None:
        for item in self.running:
            item.status = "interrupted"
        self.waiting, self.done = None, event
        self.step, self.cost_usd = event.steps, event.cost_usd
        self.context_tokens = event.context_tokens
        self.window_tokens = event.window_tokens or self.window_tokens


def _shown_text(block: JsonObject) -> tuple[bool, str] | None:
    """Return (is it thinking, text) of a block that is shown as text, None for others and for blank ones."""
    kind = block.get("type")
    text = str(block.get("text" if kind == "text" else "thinking") or "")
    return (kind == "thinking", text) if kind in ("text", "thinking") and text.strip() else None
