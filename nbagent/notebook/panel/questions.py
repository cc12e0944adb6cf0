"""A question as it is asked below a cell, taken apart for buttons; and the one that waits for an answer."""

from __future__ import annotations

import concurrent.futures
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from nbagent.notebook.panel.protocol import ApprovalPart, Choice, Status

_KEY = re.compile(r"\[([a-z])\]")
_TOOL = re.compile(r"The agent wants to use (\w[\w.-]{0,60}):")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question: its text without the choices, the tool it is about (empty when none), and the choices."""

    text: str
    tool: str
    choices: tuple[Choice, ...]


def taken_apart(question: str) -> Asked | None:
    """Return `question` for buttons; None when it is not one that a key answers.

    The choices are the last sentence: words with one letter in brackets each, set apart by commas, then a colon.
    """
    body, _, last = question.rstrip().rpartition("\n")
    if not last.endswith(":"):
        return None
    lead, _, words = last.removesuffix(":").rpartition("? ")
    choices = [_choice(w.strip()) for w in words.split(",")]
    known = [c for c in choices if c is not None]
    if len(known) < len(choices) or len({c.answer for c in known}) < len(choices):
        return None
    asked = f"{lead}?" if lead else ""
    found = _TOOL.match(question)
    text = "\n".join(filter(None, [body, asked]))
    return Asked(text=text, tool=found[1] if found else "", choices=tuple(known))


def _choice(words: str) -> Choice | None:
    keys = _KEY.findall(words)
    if len(keys) != 1:
        return None
    label = _KEY.sub(r"\1", words)
    return Choice(answer=keys[0], label=label[:1].upper() + label[1:])


class OpenQuestion:
    """The question that waits in panels, at most one. Safe from any thread; `changed` is called at each change."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._lock = threading.Lock()
        self._number = 0
        self._answered = self._answer = ""
        self._asked: Asked | None = None
        self._question = ""
        self._future: concurrent.futures.Future[str | None] | None = None

    def begin(self, question: str) -> concurrent.futures.Future[str | None] | None:
        """Show `question`; the future gets the answer, or None when no panel is there any more.

        None when it is none for buttons.
        """
        asked = taken_apart(question)
        if asked is None:
            return None
        with self._lock:
            self._number += 1
            self._asked, self._question, self._future = asked, question, concurrent.futures.Future()
            future = self._future
        self._changed()
        return future

    def end(self) -> None:
        """Take the question away."""
        with self._lock:
            self._asked, self._question, self._future = None, "", None
        self._changed()

    def answer(self, approval: str, answer: str) -> tuple[Status, str]:
        """Give an answer; returns the status and the line of the reply."""
        with self._lock:
            asked, future = self._asked, self._future
            if approval and approval == self._answered:
                return "error", f"that question was answered already: {self._answer}"
            if asked is None or future is None or future.done() or approval != self._name():
                return "error", "that question is not open any more"
            choice = next((c for c in asked.choices if c.answer == answer), None)
            if choice is None:
                known = ", ".join(c.answer for c in asked.choices)
                return "error", f"{answer[:20]!r} is not an answer; the answers are: {known}"
            self._answered, self._answer = approval, choice.label
            future.set_result(answer)
        return "ok", f"Answered: {choice.label}."

    def give_up(self) -> None:
        """No panel is there any more: the question is asked in another way."""
        with self._lock:
            future = self._future
            if future is not None and not future.done():
                future.set_result(None)

    def text(self, approval: str) -> str | None:
        """Return the whole question; None when it is not open."""
        with self._lock:
            return self._question if self._asked is not None and approval == self._name() else None

    def part(self) -> ApprovalPart:
        """Return what the state shows."""
        with self._lock:
            last = ApprovalPart(answered=self._answered, answer=self._answer)
            if self._asked is None:
                return last
            asked = self._asked
            return replace(last, approval=self._name(), tool=asked.tool, text=asked.text, choices=asked.choices)

    def _name(self) -> str:
        return f"q{self._number}"
