"""ScrubbedSink: what a turn shows passes the scrubber, as what it keeps does."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

from nbagent.core.effects import Sink, StepBegan, StepEnded, TextDelta, ThinkingDelta, TurnEvent, Waiting
from nbagent.core.errors import NbAgentError
from nbagent.runtime.driver import SafeSink
from nbagent.runtime.ports import TurnPorts
from nbagent.store.secrets import Scrubber, secret_values

KEPT_FIELDS = frozenset({"kind", "call_id", "turn", "model", "status", "outcome"})
LONGEST_HELD = 400  # characters of one word; a key is shorter


class ScrubbedText:
    """Scrubs one text that comes in pieces.

    Each piece is passed on as it comes, but for a last word (what follows the last of `ends`) that may become a
    secret: it waits until it has ended.
    """

    def __init__(self, scrubber: Scrubber, ends: str = " \n") -> None:
        self._scrubber, self._ends = scrubber, ends
        self._shown = self._held = ""  # of the last word: what is passed on, and what waits

    def take(self, piece: str) -> str:
        """Return what may be shown now that `piece` has come."""
        text, before = self._held + piece, self._shown
        begins = max(map(text.rfind, self._ends)) + 1
        last = text[begins:] if begins else before + text
        if not self._scrubber.may_begin_secret(before + text):  # so it is with most pieces
            self._held, self._shown = "", last[-LONGEST_HELD:]
            return text
        held = len(last) <= LONGEST_HELD and self._scrubber.may_begin_secret(last)
        passed = text[:begins] if held else text
        self._held = text[begins:] if held else ""
        self._shown = last[: len(last) - len(self._held)][-LONGEST_HELD:]
        return self._clean(before, passed) if passed else ""

    def end(self) -> str:
        """Return what waited: nothing more comes."""
        text, before = self._held, self._shown
        self._held = self._shown = ""
        return self._clean(before, text) if text else ""

    def _clean(self, before: str, text: str) -> str:
        """Return `text` scrubbed, which goes on with the word of which `before` is shown."""
        clean = self._scrubber.text(before + text)
        return clean[len(before) :] if clean.startswith(before) else clean


class ScrubbedSink:
    """Scrubs every event on its way to `sink`.

    Streamed text is passed on as `ScrubbedText` lets it. What spans several words is caught when the step ends: its
    whole blocks replace what was streamed.
    """

    def __init__(self, sink: Sink, scrubber: Scrubber) -> None:
        self._sink, self._scrubber = sink, scrubber
        self._texts: dict[tuple[type[TextDelta | ThinkingDelta], int], ScrubbedText] = {}

    def __call__(self, event: TurnEvent) -> None:
        """Take an event."""
        if isinstance(event, TextDelta | ThinkingDelta):
            self._delta(event)
            return
        if isinstance(event, StepEnded):
            for (kind, index), streamed in self._texts.items():
                if rest := streamed.end():
                    self._sink(kind(index=index, text=rest))
        if isinstance(event, StepBegan | StepEnded | Waiting):  # after a wait the reply begins anew
            self._texts.clear()
        self._sink(scrubbed_event(event, self._scrubber))

    def _delta(self, event: TextDelta | ThinkingDelta) -> None:
        key = type(event), event.index
        streamed = self._texts.get(key)
        if streamed is None:
            streamed = self._texts[key] = ScrubbedText(self._scrubber)
        if text := streamed.take(event.text):
            self._sink(event if text == event.text else replace(event, text=text))


def scrubbed_event(event: TurnEvent, scrubber: Scrubber) -> TurnEvent:
    """Return `event` with its texts scrubbed; the same object when there is nothing to scrub."""
    changed = scrubber.changes(event, KEPT_FIELDS)
    return replace(event, **changed) if changed else event


def guarded(ports: TurnPorts, scrubber: Scrubber) -> TurnPorts:
    """Return `ports` whose display fails without harm, and shows, as questions do, no secret."""
    ask = ports.ask

    async def asked(question: str) -> str | None:
        return await ask(scrubber.text(question)) if ask is not None else None

    return replace(
        ports, sink=ScrubbedSink(SafeSink(ports.sink), scrubber), ask=asked if ask is not None else None
    )


def hide_secrets(error: Exception, environ: Mapping[str, str] = os.environ) -> None:
    """Scrub the words of an error of ours in place: as it is raised it is shown, and kept in the notebook."""
    if isinstance(error, NbAgentError):
        scrubber = Scrubber(secret_values(environ))
        error.args = tuple(scrubber.value(word) for word in error.args)
