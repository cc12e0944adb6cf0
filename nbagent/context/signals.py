"""Signals: what the loop itself tells the model at the tail of a turn: how full the window is, and that it repeats.

A signal is a Snapshot after all results of a step, written once and never again; nothing earlier is rewritten.
It is told when something was crossed, not by habit. Pure: the same path gives the same signal.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from nbagent.core.budget import Budget
from nbagent.core.entries import (
    AssistantMessage,
    Body,
    Compaction,
    Entry,
    Restore,
    Snapshot,
    ToolResult,
    TurnEnd,
    TurnStart,
)
from nbagent.core.messages import ToolCall, canonical, joined_text, tool_calls
from nbagent.core.turn import ENDS_TURN
from nbagent.core.view import View

FIRST_LEVEL: Final = 3  # tenths of the window; below it there is nothing to say
ALIKE_RUN: Final = 8  # replies in a row with calls of one shape (MA-C7)
SAME_RUN: Final = 3  # replies in a row with the very same call
SAME_RESULTS: Final = 5  # the very same call with the very same result, within a turn
LONGEST_CYCLE: Final = 5  # calls that may come again and again, one after the other (Gemini CLI)
LOOP: Final = "loop"
VARIATION: Final = "variation"
LEVEL: Final = "level"

_TEXTS: Final = ("code", "command", "new", "old", "content")  # arguments whose words tell calls apart
_LITERAL: Final = re.compile(r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|\b\d[\w.]*|[\w.-]*/[\w./-]*|\b[\w-]+\.\w{1,5}\b")

_ALIKE: Final = (
    "The last {count} steps all called `{name}` in the same way. Look at what they showed: does the next step have to "
    "be one more of them, or can one call do the rest?",
    "{count} steps in a row were `{name}` calls of one kind. Before another one, say in a sentence what is known by "
    "now and what is still missing.",
    "`{name}` was called {count} times in a row with one pattern. Each case may differ: check the last result on its "
    "own before the pattern goes on.",
)
_SAME: Final = (
    "The very same `{name}` call was made {count} times in a row. If its result does not change, another approach or "
    "another argument is needed.",
    "`{name}` was called {count} times in a row with the same arguments. What would have to be different for its "
    "result to differ?",
)
_CYCLES: Final = (
    "The last {count} calls were the same {length} again and again ({names}). Stop: look at what they brought, then do "
    "something else, or tell the person what stands in the way. The turn ends if they come once more."
)
_ENDS: Final = "The turn was ended, since the same calls came once more ({names})."
ENDED: Final = (
    "stopped: the agent made the same calls again and again ({names}), also after it was told; `%agent resume` goes "
    "on, `%context set loop_calls=0` never stops for this"
)
_LOOPS: Final = (
    "The same `{name}` call has brought the same result {count} times in this turn. It will not bring another: do "
    "something else, or tell the person what stands in the way."
)


def level_line(level: int, used_tokens: int, budget: Budget) -> str:
    """Return the sentence on how full the window is (CC-C7, CR-C3)."""
    return (
        f"Context: about {10 * level} % used ({used_tokens:,} of {budget.window_tokens:,} tokens). Write down "
        "confirmed facts, produced paths and the next step before it fills."
    )


def crossed_level(path: Sequence[Entry], used_tokens: int, budget: Budget) -> int | None:
    """Return the step of ten that was crossed upward since it was last told; None when there is nothing to tell.

    After a compaction, or one taken back, the steps count anew.
    """
    level = budget.level(used_tokens)
    return level if level >= FIRST_LEVEL and level > told_level(path) else None


def told_level(path: Sequence[Entry]) -> int:
    """Return the step that the model was told last and that still holds, 0 when there is none."""
    for entry in reversed(path):
        body = entry.body
        if isinstance(body, Compaction | Restore):
            return 0
        if isinstance(body, Snapshot) and isinstance(level := body.state.get(LEVEL), int):
            return level
    return 0


def signal(
    path: Sequence[Entry], view: View, used_tokens: int, budget: Budget, turn: TurnCalls | None = None, *,
    loop_calls: int = 0,
) -> Snapshot | None:  # fmt: skip
    """Return what to append before the next call of an open turn; None as a rule.

    Only between two steps: after the results of the last reply, once. At the beginning of a turn its tail
    (`tail.compose`) tells how full the window is. `turn` is what was counted of this path at the last step.
    Where calls come `loop_calls` times in a row, also a few in a cycle, that is told once; then it ends the turn.
    """
    step = _last_step(path)
    if step is None or view.turn_ended or view.open_calls:
        return None
    lines: list[str] = []
    topics: list[str] = []
    state: dict[str, Any] = {}
    level = crossed_level(path, used_tokens, budget)
    if level is not None:
        lines.append(level_line(level, used_tokens, budget))
        topics.append(LEVEL)
        state[LEVEL] = level
    if not _told_since(path, step):
        turn = TurnCalls() if turn is None else turn
        turn.take(path)
        line, topic = "", LOOP
        if names := turn.cycle(loop_calls):
            told = {"count": loop_calls * len(names), "length": len(names), "names": ", ".join(names)}
            line, state = (_ENDS if turn.told else _CYCLES).format(**told), {**state, LOOP: len(names)}
            state |= {ENDS_TURN: ENDED.format(**told)} if turn.told else {}
        else:
            line, topic = _repetition(turn)
        if line:
            lines.append(line)
            topics.append(topic)
    if not lines:
        return None
    body = "\n".join(lines)
    return Snapshot(text=f"<reminder>\n{body}\n</reminder>", topics=tuple(topics), state=state)


def is_signal(body: object) -> bool:
    """Tell whether `body` is what `signal` made."""
    return isinstance(body, Snapshot) and bool(body.topics) and set(body.topics) <= {LEVEL, VARIATION, LOOP}


def _last_step(path: Sequence[Entry]) -> int | None:
    """Return where the last reply of the open turn stands, when its results have come since."""
    has_result = False
    for index in range(len(path) - 1, -1, -1):
        body = path[index].body
        if isinstance(body, TurnStart | TurnEnd):
            return None
        if isinstance(body, ToolResult):
            has_result = True
        elif isinstance(body, AssistantMessage):
            return index if has_result else None
    return None


def _told_since(path: Sequence[Entry], step: int) -> bool:
    return any(
        isinstance(e.body, Snapshot) and {VARIATION, LOOP} & set(e.body.topics) for e in path[step:]
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Call:
    """One call of a turn: `exact` and `shape` are what two calls are compared by, `result` a digest of its result."""

    name: str
    exact: str
    shape: str
    result: bytes


class TurnCalls:
    """The calls of the open turn, counted: `take` a path, and what of it was taken before is not gone through again.

    The counts follow from the path alone; a path that does not go on from the last one is counted anew. A reply
    without calls begins the count again.
    """

    def __init__(self) -> None:
        self._taken = 0
        self._last: Entry | None = None
        self.told = False  # that calls come again and again
        self._begin()

    def _begin(self) -> None:
        self._made: tuple[ToolCall, ...] = ()
        self._results: dict[str, bytes] = {}
        self.calls: tuple[_Call, ...] = ()
        self.counts: Counter[tuple[str, bytes]] = Counter()
        self.order: list[_Call] = []
        self.same = _Run()
        self.alike = _Run()

    def cycle(self, times: int) -> tuple[str, ...]:
        """Return the tools of the calls that came `times` times in a row, one after the other; none for none."""
        made = [c.exact for c in self.order[-LONGEST_CYCLE * times :]] if times else []
        for length in range(1, LONGEST_CYCLE + 1 if times else 0):
            if len(made) >= length * times and made[-length * times :] == made[-length:] * times:
                return tuple(c.name for c in self.order[-length:])
        return ()

    def take(self, path: Sequence[Entry]) -> None:
        """Count what `path` has after what was taken last. Afterwards `calls` are those of the last step."""
        goes_on = 0 < self._taken <= len(path) and path[self._taken - 1] is self._last
        if not goes_on:
            self._begin()
            self.told = False
        for entry in path[self._taken if goes_on else _turn_start(path) :]:
            self._add(entry.body)
        self._close_step()
        self._taken, self._last = len(path), path[-1] if path else None

    def _add(self, body: Body) -> None:
        if isinstance(body, TurnStart | TurnEnd):
            self._begin()
            self.told = False
        elif isinstance(body, Snapshot):
            self.told = self.told or LOOP in body.state
        elif isinstance(body, ToolResult):
            text = f"{body.status} {joined_text(body.content)}"
            digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
            self._results.setdefault(body.call_id, digest)
        elif isinstance(body, AssistantMessage):
            self._close_step()
            made = tool_calls(body.blocks)
            if not made:
                self._begin()
            self._made = made

    def _close_step(self) -> None:
        if not self._made:
            return
        self.calls = tuple(
            _Call(name=c.name, exact=f"{c.name} {canonical(c.input)}", shape=shape_of(c.name, c.input),
                  result=self._results.get(c.id, b""))
            for c in self._made
        )  # fmt: skip
        self._made, self._results = (), {}
        self.counts.update((c.exact, c.result) for c in self.calls)
        self.order += self.calls
        self.same.add([c.exact for c in self.calls])
        self.alike.add([c.shape for c in self.calls])


class _Run:
    """How many steps at the end made calls that all are alike."""

    def __init__(self) -> None:
        self.count = 0
        self._form = ""

    def add(self, forms: Sequence[str]) -> None:
        first = forms[0]
        if any(f != first for f in forms):
            self.count = 0
            return
        self.count = self.count + 1 if self.count and first == self._form else 1
        self._form = first


def _turn_start(path: Sequence[Entry]) -> int:
    return next((i for i in range(len(path) - 1, -1, -1) if isinstance(path[i].body, TurnStart)), 0)


def _repetition(turn: TurnCalls) -> tuple[str, str]:
    """Return what to say of the last step's calls, and its topic; empty when they did not get too many."""
    last = turn.calls
    if not last:
        return "", ""
    here = Counter((c.exact, c.result) for c in last)
    for call in last:
        times = turn.counts[(call.exact, call.result)]
        if _reached(SAME_RESULTS, times - here[(call.exact, call.result)], times):
            return _LOOPS.format(name=call.name, count=times), LOOP
    same = turn.same.count
    if _reached(SAME_RUN, same - 1, same):
        return _worded(_SAME, last[0].name, same, SAME_RUN), VARIATION
    alike = turn.alike.count
    if _reached(ALIKE_RUN, alike - 1, alike):
        return _worded(_ALIKE, last[0].name, alike, ALIKE_RUN), VARIATION
    return "", ""


def _worded(wordings: Sequence[str], name: str, count: int, every: int) -> str:
    """Return one of the wordings, by the count: a reminder that is always the same is a pattern too."""
    return wordings[(count // every - 1) % len(wordings)].format(name=name, count=count)


def _reached(every: int, before: int, now: int) -> bool:
    return now // every > max(0, before) // every


def shape_of(name: str, arguments: object) -> str:
    """Return what alike calls have in common: the tool, its arguments by name and type; of code its words.

    >>> shape_of("read", {"path": "a.csv"}) == shape_of("read", {"path": "b.csv"})
    True
    >>> shape_of("python", {"code": "len(a)"}) == shape_of("python", {"code": "print(df.head(3))"})
    False
    """
    if not isinstance(arguments, Mapping):
        return name
    parts = (f"{k}={_form(k, v)}" for k, v in sorted(arguments.items()))
    return f"{name}({', '.join(parts)})"


def _form(key: str, value: object) -> str:
    if isinstance(value, str) and key in _TEXTS:
        return " ".join(_LITERAL.sub("_", value).split())
    return type(value).__name__
