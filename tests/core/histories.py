"""Random histories for property tests: any order of what a journal may hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from nbagent.core.cuts import cut_points
from nbagent.core.entries import (
    AssistantMessage,
    Body,
    Compaction,
    Entry,
    LeafMoved,
    Pin,
    Pruning,
    Restore,
    Snapshot,
    Steering,
    ToolResult,
    ToolStarted,
    TurnEnd,
    TurnStart,
    UserMessage,
)  # fmt: skip
from nbagent.core.in_force import summarises
from nbagent.core.messages import Block, Message, image_block, text_block, tool_calls
from nbagent.core.view import build_view
from tests.core.builders import MODEL, call, stamp, thinks, usage

TEXTS = ("hi", "数据框 df 有 3 行", "こんにちは", "", "  \n", "cut \ud83d", "x" * 50, "🙂")
MODELS = (MODEL, "claude-opus-5-5")
STOPS = ("end_turn", "tool_use", "max_tokens", "pause_turn", "refusal", "a later word", None)
UNSIGNED: Block = {"type": "thinking", "thinking": "half", "signature": ""}
REDACTED: Block = {"type": "redacted_thinking", "data": "sealed"}
LATER: Block = {"type": "a_later_kind", "payload": {"n": None}}
SUMMED: Block = {"type": "compaction", "content": "the provider's own note", "encrypted_content": "sealed"}
FAILED: Block = {"type": "compaction", "content": None}


@dataclass
class Writer:
    """Draws entries one after another onto a path; `tidy` writes what a real loop would."""

    draw: Any
    tidy: bool
    entries: list[Entry]
    turns: int = 0
    ids: int = 0
    moves: tuple[type[Any], ...] = (Pruning, Compaction, Restore)

    def add(self, *bodies: Body) -> None:
        self.entries = stamp(bodies, self.entries)

    def one_of(self, choices: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(choices))

    def text(self) -> str:
        return str(self.one_of(TEXTS))

    def begin_turn(self) -> None:
        if self.tidy:
            self.close()
        self.turns += 1
        prefix = "p2" if self.draw(st.integers(0, 9)) == 0 else "p1"
        self.add(TurnStart(turn=f"t{self.turns}", model=self.one_of((MODELS[0], *MODELS)), policy="p", prefix=prefix))
        if self.draw(st.booleans()):
            self.add(Snapshot(text=self.text()))
        if self.tidy or self.draw(st.integers(0, 5)):
            self.add(self.user())

    def user(self) -> UserMessage:
        blocks: list[Block] = [text_block(self.text()) for _ in range(self.draw(st.integers(0, 2)))]
        if self.draw(st.integers(0, 4)) == 0:
            blocks.append(image_block("image/png", "aGk="))
        return UserMessage(blocks=tuple(blocks))

    def reply(self) -> None:
        if self.tidy:
            self.close()
        asks = self.draw(st.booleans())
        blocks: list[Block] = []
        if self.draw(st.booleans()):
            blocks.append(self.thinking())
        if self.draw(st.booleans()):
            blocks.append(text_block(self.text()))
        for _ in range(self.draw(st.integers(1, 3)) if asks else 0):
            self.ids += 1
            broken = self.draw(st.integers(0, 9)) == 0
            blocks.append(call("python", f"c{self.ids}", [1] if broken else {"code": self.text()}))
        if self.draw(st.integers(0, 5)) == 0:
            blocks.insert(0, self.one_of((UNSIGNED, REDACTED, LATER, SUMMED, FAILED)))
        stop = ("tool_use" if asks else "end_turn") if self.draw(st.integers(0, 2)) else self.one_of(STOPS)
        cut = "stopped" if self.draw(st.integers(0, 5)) == 0 else None
        self.add(AssistantMessage(blocks=tuple(blocks), stop_reason=stop, model=MODEL, step=1, cut=cut), usage())

    def thinking(self) -> Block:
        return thinks(f"thought {len(self.entries)}", f"sig{len(self.entries)}")

    def open_ids(self) -> list[str]:
        return [c.call.id for c in build_view(self.entries).open_calls]

    def result(self) -> None:
        known = [c.id for e in self.entries if isinstance(e.body, AssistantMessage) for c in tool_calls(e.body.blocks)]
        choices = self.open_ids() if self.tidy else [*known[-4:], "stranger"]
        if choices:
            self.answer(self.one_of(choices))

    def answer(self, call_id: str) -> None:
        blocks = tuple(text_block(self.text()) for _ in range(self.draw(st.integers(0, 2))))
        status = self.one_of(("ok", "ok", "error", "interrupted"))
        self.add(ToolStarted(call_id=call_id, name="python"))
        self.add(ToolResult(call_id=call_id, name="python", content=blocks, status=status))

    def close(self) -> None:
        for call_id in self.open_ids():
            self.answer(call_id)

    def move(self) -> None:
        kind = self.one_of(self.moves)
        if kind is Restore:
            made = [e.id for e in self.entries if isinstance(e.body, Pruning | Compaction) or summarises(e.body)]
            if made:
                self.add(Restore(cancels=self.one_of(made)))
        elif kind is Pruning:
            results = [e.id for e in self.entries if isinstance(e.body, ToolResult)]
            if results:
                self.add(Pruning(placeholders={self.one_of(results): self.one_of(("", "[cleared]"))}))
        else:
            points = [None, *(p.entry_id for p in cut_points(self.entries))]
            anywhere = [None, *(e.id for e in self.entries)]
            self.add(Compaction(first_kept=self.one_of(points if self.tidy else anywhere), note=self.text()))

    def step(self) -> None:
        match self.draw(st.integers(0, 11)):
            case 0 | 1:
                self.begin_turn()
            case 2 | 3 | 4:
                self.reply()
            case 5 | 6:
                self.result()
            case 7:
                if self.tidy:
                    self.close()
                self.add(self.one_of((Steering(text=self.text()), Snapshot(text=self.text()))))
            case 8:
                if self.tidy:
                    self.close()
                self.add(TurnEnd(turn=f"t{self.turns}", outcome="completed"))
            case 9:
                self.add(self.one_of((Pin(text="keep"), LeafMoved(why="fork"), Pin(text="keep", remove=True))))
            case _:
                if self.tidy:
                    self.close()
                self.move()


@st.composite
def histories(draw: Any, *, tidy: bool = False, moves: bool = True) -> list[Entry]:
    """Paths of up to forty steps. `tidy`: as the loop writes them, so that every prefix of it could be asked for."""
    writer = Writer(draw, tidy, [], moves=(Pruning, Compaction, Restore) if moves else (Restore,))
    writer.begin_turn()
    for _ in range(draw(st.integers(0, 25))):
        writer.step()
    return writer.entries


def sent_at(entries: Sequence[Entry], position: int) -> tuple[Message, ...]:
    """Return the conversation that the reply at `position` was asked with.

    Taken from the view after a reply that is bound, since that lets no waiting move take effect.
    """
    probe = AssistantMessage(
        blocks=(thinks("probe", "probe"), call(id="probe")), stop_reason="tool_use", model=MODEL, step=1
    )
    messages = build_view(stamp([probe], entries[:position])).messages
    assert messages[-1].blocks[-2:] == probe.blocks
    blocks = messages[-1].blocks[:-2]
    return (*messages[:-1], Message("assistant", blocks)) if blocks else messages[:-1]
