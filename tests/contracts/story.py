"""Stories: random conversations played through one policy's engine, against a service that checks every request.

A story is read off a tape of bytes, so that a failing one is made small by making the tape short. The loop is
the real one (`run_turn`); only the world is played. What must hold is asserted while it goes on.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from nbagent.context.engine import Engine
from nbagent.context.extract import machine_note
from nbagent.context.loss import loss_report
from nbagent.context.measure import Meter
from nbagent.context.policies import BUILT_IN
from nbagent.context.policy import make_policy
from nbagent.core.budget import Budget
from nbagent.core.effects import (
    Append,
    AskApproval,
    CallModel,
    Decision,
    ReadClock,
    ReadNow,
    RunTools,
    Say,
    TakeSteering,
    ToolsDone,
)
from nbagent.core.entries import (
    Body,
    Compaction,
    Entry,
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
)
from nbagent.core.errors import ModelFailed
from nbagent.core.messages import Block, Message, Prefix, Request, Response, ToolCall, image_block, text_block
from nbagent.core.turn import Limits, TurnInput, close_broken_turn, run_turn
from nbagent.core.view import View, ViewFold
from nbagent.runtime.contexts import compact_by_hand
from tests.core.builders import stamp
from tests.core.wire_rules import broken_rules
from tests.fakes.catalog import MODELS
from tests.fakes.prefix import (
    bound_prefix,
    canonical_line,
    check_open_loop,
    check_thinking,
    issued_key,
    prompt_blocks,
    sign,
)

T = TypeVar("T")
BINDING, OTHER, FREE = "claude-sonnet-5-5", "claude-opus-5-5", "claude-sonnet-4-6"
# Small windows most of the time: texts grow with the window, and what may go wrong does not.
WINDOWS = (8_000,) * 5 + (12_000,) * 5 + (20_000,) * 4 + (30_000, 60_000)
LINE = "line {0} of value_{0} at /data/x{0}.csv: 数据 {0} must not get lost\n"
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PREFIXES = {
    name: Prefix(system=(text_block(f"You are an agent. {name}"),), tools=({"name": "read", "input_schema": {}},))
    for name in ("p1", "p2", "p3")
}


@functools.cache
def lines(count: int) -> str:
    return "".join(LINE.format(i) for i in range(count))


def no_report(path: Sequence[Entry], before: View, after: View) -> None:
    """Stand in for `loss_report`."""


class QuickMeter(Meter):
    """Counts a text once."""

    @functools.lru_cache(maxsize=4_096)  # noqa: B019  a handful of meters lives for the whole run
    def text(self, text: str) -> int:
        return super().text(text)


METER = QuickMeter("claude-4.7")


class Tape:
    """Bytes to decide by. At its end every choice is the first."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    @property
    def ended(self) -> bool:
        return self._at >= len(self._content)

    def pick(self, count: int) -> int:
        if self.ended:
            return 0
        self._at += 1
        return self._content[self._at - 1] % count

    def one_of(self, choices: Sequence[T]) -> T:
        return choices[self.pick(len(choices))]

    def chance(self, of: int) -> bool:
        """One time in `of`."""
        return self.pick(of) == of - 1


# ---------------------------------------------------------------- the service


class Service:
    """Signs thinking over what came before it, and refuses what the provider refuses."""

    def __init__(self, window: int) -> None:
        self.window = window
        self.issued: dict[str, list[tuple[bytes, ...]]] = {}

    def check(self, request: Request) -> None:
        assert broken_rules(request.messages) == []
        blocks = prompt_blocks(_body(request))
        facts = MODELS[request.model]
        check_open_loop(blocks, facts.id, self.issued)
        check_thinking(blocks, facts.id, binds=facts.binds_thinking, drops=False)

    def signed(self, request: Request, blocks: Sequence[Block]) -> tuple[Block, ...]:
        """Return the blocks of a reply to `request` with their signatures."""
        before = bound_prefix(prompt_blocks(_body(request)))
        made: list[Block] = []
        for one in blocks:
            block = dict(one)
            if block["type"] == "thinking":
                block["signature"] = sign(request.model, before.digest(), str(block["thinking"]))
            elif block["type"] == "redacted_thinking":
                block["data"] = sign(request.model, before.digest(), "")
            line = canonical_line("messages", "assistant", block)
            before.feed(line)
            made.append(block)
        thinking = tuple(canonical_line("messages", "assistant", dict(b)) for b in made if "thinking" in b["type"])
        for block in made:
            if block["type"] == "tool_use":
                self.issued.setdefault(issued_key(request.model, str(block["id"])), []).append(thinking)
        return tuple(made)


def _body(request: Request) -> dict[str, Any]:
    return {
        "tools": [dict(t) for t in request.prefix.tools], "system": [dict(b) for b in request.prefix.system],
        "messages": [m.to_wire() for m in request.messages],
    }  # fmt: skip


def chunks(request: Request) -> list[bytes]:
    return list(request.canonical_chunks())


# ---------------------------------------------------------------- who writes notes


def _said(text: str, stop: str = "end_turn", **more: Any) -> Response:
    return Response(blocks=(text_block(text),) if text else (), stop_reason=stop, model="m", usage={"output_tokens": 9}, **more)


def _failed(kind: str) -> Response:
    return Response(blocks=(), stop_reason=None, model="m", cut="the call failed", error=ModelFailed("it failed", kind=kind))


def _calling() -> Response:
    call = {"type": "tool_use", "id": "toolu_note", "name": "read", "input": {}}
    return Response(blocks=(text_block("<note>## Goal\nx</note>"), call), stop_reason="tool_use", model="m")


WRITERS: dict[str, Callable[[int], Response]] = {
    "good": lambda window: _said("<draft>so</draft>\n<note>## Goal\nread the files\n## Constraints\nnever delete\n</note>"),
    "lies": lambda window: _said("<note>## Goal\nAll is done. The person asked for nothing.</note>"),
    "loops": lambda window: _said("<note>" + "I must keep in mind that I must keep in mind. " * 400 + "</note>"),
    "refuses": lambda window: Response(blocks=(), stop_reason="refusal", model="m", stop_details={"category": "bio"}),
    "another language": lambda window: _said("<note>## 目标\n读取全部文件。ファイルを消さない。</note>"),
    "calls a tool": lambda window: _calling(),
    "analysis tags": lambda window: _said("<analysis>hm</analysis><summary>## Goal\nread</summary>"),
    "no tags": lambda window: _said("## Goal\nread all"),
    "open draft": lambda window: _said("<draft>first I think <note>## Goal\nread</note>"),
    "larger than the conversation": lambda window: _said("<note>" + lines(window // 20) + "</note>"),
    "cut off": lambda window: _said("<note>## Goal\nread a", stop="max_tokens"),
    "empty": lambda window: _said("<note>\n</note>"),
    "nothing at all": lambda window: _said(""),
    "connection": lambda window: _failed("connection"),
    "overflow": lambda window: _failed("overflow"),
    "stopped": lambda window: Response(blocks=(), stop_reason=None, model="m", cut="stopped"),
}


# ---------------------------------------------------------------- the story


@dataclass
class Story:
    """One conversation under one policy."""

    policy: str
    tape: Tape
    path: list[Entry] = field(default_factory=list)
    now: float = 1_000.0
    turns: int = 0
    ids: int = 0
    disk: str = "p1"
    before: tuple[list[bytes], object] | None = None
    undoable: dict[str, tuple[list[bytes], object]] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    requests: int = 0
    happened: dict[str, int] = field(default_factory=dict)
    _fold: ViewFold = field(default_factory=ViewFold)

    def __post_init__(self) -> None:
        self.window = self.tape.one_of(WINDOWS)
        self.service = Service(self.tape.one_of((10**9, 10**9, self.window * 6 // 10)))
        self.rule = make_policy(BUILT_IN, self.policy)
        self.model = self.tape.one_of((BINDING, BINDING, FREE))
        self.lists = self.tape.chance(6)  # whether the machine's own list goes into notes: it costs most of a story

    def view(self) -> View:
        """Return the view of the whole path, from a fold that goes on as the running session's does."""
        self._fold.extend(self.path[len(self._fold.path) :])
        return self._fold.view()

    def play(self) -> None:
        for _ in range(10):
            match self.tape.pick(8):
                case 5:
                    self.by_hand()
                case 4 | 6:
                    self.undo()
                    self.pin()
                case 7 if any(isinstance(e.body, TurnStart) for e in self.path):
                    self.turn(resume=True)
                case _:
                    self.turn()
            if self.tape.ended:
                break
        assert self.view() == ViewFold(self.path).view()

    # ------------------------------------------------------------ what happens

    def turn(self, *, resume: bool = False) -> None:
        if not resume:
            for body in close_broken_turn(self.view()):
                if not (isinstance(body, ToolResult) and self.tape.chance(3)):  # an import may lack results
                    self.write(body)
            self.turns += 1
            self.now += self.tape.one_of((1.0, 30.0, 4_000.0, -500.0))
            if self.tape.chance(6):
                self.model = OTHER if self.model == BINDING else BINDING
            if self.tape.chance(6):
                self.disk = self.tape.one_of(tuple(PREFIXES))
        view = self.view()
        digest = prefix_at(self.path) or self.disk
        start = TurnStart(turn=f"t{self.turns}", model=self.model, policy=self.policy, prefix=digest)
        engine = self.engine(start if not resume else view.turn or start)
        steps = run_turn(
            TurnInput(
                path=list(self.path), start=None if resume else start, prompt=() if resume else self.prompt(),
                snapshot=Snapshot(text=self.tape.one_of(("<notebook-state>df</notebook-state>", ""))) if self.tape.chance(3) else None,
                limits=Limits(max_steps=6), assemble=self.assemble, price=lambda model, usage: 0.0,
                output_tokens=lambda usage: 1, reply_tokens=1_000,
                before_call=lambda fold: self.watched(engine, fold), on_overflow=engine.on_overflow,
            )
        )  # fmt: skip
        self.drive(steps, crash_at=self.tape.pick(200) if self.tape.chance(8) else None)

    def watched(self, engine: Engine, fold: ViewFold) -> Generator[Any, Any, str | None]:
        """A failed compaction leaves the request as it was."""
        before, moves, at = fold.view(), _moves(fold.path), len(fold.path)
        line = yield from engine.before_call(fold)
        if _moves(fold.path) == moves:
            was, now = chunks(self.request(before)), chunks(self.request(fold.view()))
            told = any(isinstance(e.body, Snapshot) for e in fold.path[at:])  # how full the window is
            assert now[: len(was)] == was
            assert told or now == was
        if line == "stopped":
            self.count("stopped")
        elif line:
            self.count("does not fit")
        return line

    def by_hand(self) -> None:
        view = self.view()
        if view.turn is None:
            return
        for body in close_broken_turn(view):
            self.write(body)
        fold = ViewFold(self.path)
        before = fold.view()
        report = loss_report if self.tape.chance(8) else no_report  # it costs more than all the rest
        result = self.drive(compact_by_hand(fold, self.engine(view.turn), report=report))
        assert (result.loss is not None) == (result.applied and report is loss_report)
        assert result.applied == (fold.view().compaction != before.compaction)
        if not result.applied:
            assert fold.view().messages == before.messages
            assert result.reason

    def undo(self) -> None:
        made = self.view().compaction
        if made is None:
            return
        self.write(Restore(cancels=made))
        self.count("undone")
        at = next(i for i, e in enumerate(self.path) if e.id == made)
        before, state = self.undoable[made]
        others = _moves(self.path[at + 1 : -1])
        fold = ViewFold(self.path)
        if not others and not fold.view().deferred and state == self.voice(fold.path) and not self.same_loop(at):
            now = chunks(self.request(fold.view()))
            assert now[: len(before)] == before
            self.count("undone and compared")

    def pin(self) -> None:
        if self.turns and self.tape.chance(2):
            self.write(Pin(text=f"Pinned {self.turns}: 不要 touch gauge_{self.turns}"))

    def same_loop(self, at: int) -> bool:
        """Whether the tool loop open at `at` is still the one at the end, with thinking that has to go as text."""
        bound = ViewFold(self.path[:at]).view().bound
        return bound is not None and not any(
            isinstance(e.body, UserMessage) or (e.kind == "assistant_message" and not any(b["type"] == "tool_use" for b in e.body.blocks))
            for e in self.path[at:]
        )

    # ------------------------------------------------------------ what is asked of the world

    def drive(self, flow: Generator[Any, Any, T], *, crash_at: int | None = None) -> T | Any:
        reply: Any = None
        count = 0
        while True:
            try:
                effect = flow.send(reply)
            except StopIteration as done:
                return done.value
            count += 1
            if count == crash_at:
                flow.close()
                return None
            reply = self.perform(effect)

    def perform(self, effect: Any) -> Any:
        match effect:
            case Append():
                return self.write(effect.body)
            case CallModel():
                return self.answer(effect.request) if effect.purpose == "turn" else self.note(effect.request)
            case AskApproval():
                return Decision(allowed=not self.tape.chance(12), reason="no")
            case RunTools():
                return self.results(effect.calls)
            case TakeSteering():
                return (self.remember(f"Steer {len(self.path)}: 也不要删除"),) if self.tape.chance(9) else ()
            case Say():
                self.said.append(effect.text)
                return None
            case ReadClock() | ReadNow():
                return self.now
        raise AssertionError(effect)

    def write(self, body: Body) -> Entry:
        if isinstance(body, Compaction):
            view = self.view()
            made = (chunks(self.request(view)), self.voice(self.path)) if not view.deferred else ([], None)
            self.count("compacted")
        self.path = stamp([body], self.path)
        self.path[-1].at = self.now
        if isinstance(body, Compaction):
            self.undoable[self.path[-1].id] = made
        if isinstance(body, Pruning):
            self.count("pruned")
        return self.path[-1]

    def answer(self, request: Request) -> Response:
        self.check_turn(request)
        self.now += 1
        if METER.view(self.view(), request.prefix) and self.size(request) > self.service.window:
            self.count("overflow")
            return _failed("overflow")
        if self.tape.chance(25):
            return _failed("connection")
        blocks: list[Block] = []
        if self.tape.pick(3):
            blocks.append({"type": "thinking", "thinking": f"so {len(self.path)}"})
        if self.tape.chance(8):
            blocks.append({"type": "redacted_thinking"})
        calls = self.tape.pick(4)
        if not calls or self.tape.pick(2):
            blocks.append(text_block(self.tape.one_of((f"Part {len(self.path)} is done.", "完成了", "", "  "))))
        for _ in range(calls):
            self.ids += 1
            blocks.append({"type": "tool_use", "id": f"toolu_{self.ids}", "name": "read", "input": {"path": f"a{self.ids}.txt"}})
        made = self.service.signed(request, blocks)
        stop = "tool_use" if calls else "end_turn"
        cut = None
        if self.tape.chance(15):
            cut = self.tape.one_of(("the stream ended early", "stopped"))
            stop = None if cut == "stopped" else stop
        elif self.tape.chance(20):
            stop = self.tape.one_of(("max_tokens", "pause_turn", "refusal", "a later word"))
        usage = {"input_tokens": self.size(request), "output_tokens": 10}
        return Response(blocks=made, stop_reason=stop, model=request.model, usage=usage, cut=cut)

    def note(self, request: Request) -> Response:
        self.service.check(request)
        self.requests += 1
        assert self.size(request) <= self.window
        kind = self.tape.one_of(("good", "good", "good", *WRITERS))
        self.count(f"note: {kind}")
        if self.size(request) > self.service.window:
            kind = "overflow"
        return WRITERS[kind](self.window)

    def results(self, calls: Sequence[ToolCall]) -> ToolsDone:
        written: list[Entry] = []
        for call in calls:
            written.append(self.write(ToolStarted(call_id=call.id, name=call.name)))
            if self.tape.chance(30):
                return ToolsDone(entries=tuple(written), stopped=True)
            if self.tape.chance(15):
                continue  # missing: the loop has to say so
            for _ in range(2 if self.tape.chance(15) else 1):
                status = self.tape.one_of(("ok", "ok", "ok", "error"))
                content = self.content()
                size = sum(len(str(b.get("text", ""))) for b in content)
                meta = {"path": f"a{self.ids}.txt"} if self.tape.pick(2) else {}
                written.append(self.write(ToolResult(call_id=call.id, name=call.name, content=content, status=status, full_chars=size, meta=meta)))
        return ToolsDone(entries=tuple(written))

    def content(self) -> tuple[Block, ...]:
        unit = self.window // 25  # lines: about the window
        match self.tape.pick(10):
            case 0:
                return (text_block("ok"),)
            case 1:
                return ()
            case 2:
                return (text_block(" "), text_block("数据框 df 有 3 行"))
            case 3:
                return (text_block("a figure"), image_block("image/png", PNG))
            case 4 | 5 | 6:
                return (text_block(lines(unit // 8)),)
            case 7 | 8:
                return (text_block(lines(unit // 3)),)
            case _:
                return (text_block(lines(unit * self.tape.one_of((1, 1, 3)))),)

    def prompt(self) -> tuple[Block, ...]:
        blocks: list[Block] = [text_block(self.remember(f"Part {self.turns}: read the files, never delete row_{self.turns}. 不要删除"))]
        match self.tape.pick(8):
            case 5:
                blocks.append(text_block(self.remember(f"And also {self.turns}: " + lines(self.window // 250))))
            case 6:
                blocks.append(image_block("image/png", PNG))
            case 7:
                blocks.insert(0, text_block("  "))
        return tuple(blocks)

    def remember(self, text: str) -> str:
        return text

    # ------------------------------------------------------------ requests

    def engine(self, start: TurnStart) -> Engine:
        def make_request(messages: Sequence[Message], room: int) -> Request:
            return self.made(messages, room, start.model)

        return Engine(
            policy=self.rule, meter=METER, prefix=self.prefix(), model=start.model, budget=Budget(window_tokens=self.window, max_output_tokens=self.window // 5),
            make_request=make_request, predict=lambda view: sum(METER.view(view, self.prefix()).values()),
            price=lambda model, usage: 0.0, binds_thinking=MODELS[start.model].binds_thinking,
            fresh_prefix=lambda: {"prefix": self.disk},
            **({"machine_note": functools.partial(machine_note, count=METER.text)} if self.lists else {}),
        )  # fmt: skip

    def prefix(self) -> Prefix:
        return PREFIXES[prefix_at(self.path) or self.disk]

    def made(self, messages: Sequence[Message], room: int, model: str) -> Request:
        return Request(model=model, max_tokens=room, prefix=self.prefix(), messages=tuple(messages))

    def assemble(self, view: View, start: TurnStart, room: int) -> Request:
        return self.made(view.messages, room, start.model)

    def request(self, view: View) -> Request:
        return self.made(view.messages, 100, view.model)

    def size(self, request: Request) -> int:
        rows = METER.prefix(request.prefix)
        return sum(rows.values()) + sum(
            METER.text(str(b.get("text") or b.get("content") or b.get("input") or "")) for m in request.messages for b in m.blocks
        )

    # ------------------------------------------------------------ what must hold

    def voice(self, path: Sequence[Entry]) -> object:
        start = [e.body for e in path if isinstance(e.body, TurnStart)][-1]
        return start.model, prefix_at(path)

    def check_turn(self, request: Request) -> None:
        self.requests += 1
        if request.messages[-1].role == "assistant":  # a paused reply goes back as it is
            assert broken_rules(request.messages, open_at_end=True) == []
        else:
            self.service.check(request)
        shown = "\n".join(str(b.get("text", "")) for m in request.messages if m.role == "user" for b in m.blocks)
        for text in self.pending():
            assert text.strip() in shown, f"lost: {text[:80]!r}"
        for text in self.pinned():
            assert text in shown, f"lost the pin: {text!r}"
        state = (self.voice(self.path), 100 * _moves(self.path) - len(self.view().deferred))
        now = chunks(request)
        if self.before is not None and self.before[1] == state:
            assert now[: len(self.before[0])] == self.before[0]
        self.before = (now, state)

    def pending(self) -> list[str]:
        """What the person said in the turn that is open, since it was last completed."""
        at = max(i for i, e in enumerate(self.path) if _begins(e.body))
        texts: list[str] = []
        for entry in self.path[at:]:
            if isinstance(entry.body, UserMessage):
                texts += [str(b["text"]) for b in entry.body.blocks if b["type"] == "text"]
            elif isinstance(entry.body, Steering) and entry.body.by == "person":
                texts.append(entry.body.text)
        return texts

    def pinned(self) -> list[str]:
        """What was pinned before the compaction in force was made; what is pinned later is told at the next turn."""
        view = self.view()
        at = next((i for i, e in enumerate(self.path) if e.id == view.compaction), 0)
        return [e.body.text for e in self.path[:at] if isinstance(e.body, Pin)]

    def count(self, what: str) -> None:
        self.happened[what] = self.happened.get(what, 0) + 1


def _moves(path: Sequence[Entry]) -> int:
    return sum(isinstance(e.body, Pruning | Compaction | Restore) for e in path)


def prefix_at(path: Sequence[Entry]) -> str:
    """The stored prefix: of the last compaction that made one and was not taken back, else of the first turn."""
    cancelled = {e.body.cancels for e in path if isinstance(e.body, Restore)}
    made = [str(e.body.details["prefix"]) for e in path if isinstance(e.body, Compaction) and e.id not in cancelled and "prefix" in e.body.details]
    return made[-1] if made else next((e.body.prefix for e in path if isinstance(e.body, TurnStart)), "")


def _begins(body: Body) -> bool:
    return isinstance(body, TurnStart) or (isinstance(body, TurnEnd) and body.outcome == "completed")
