"""ScrubbedSink: what a turn shows passes the scrubber, as what it keeps does."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

from nbagent.core.effects import Sink, StepBegan, StepEnded, TextDelta, ThinkingDelta, TurnEvent, Waiting
from nbagent.core.errors import NbAgentError
from nbagent.runtime.driver import SafeSink
from nbagent.runtime.ports import TurnPorts
from nbagent.store.secrets import Scrubber, secret_values

KEPT_FIELDS = frozenset({"kind", "call_id", "turn", "model", "status", "outcome"})
LONGEST_HELD = 400  # characters of one word; a key is shorter


class ScrubbedSink:
    """Scrubs every event on its way to `sink`.

    Streamed text is passed on as it comes, but for a last word that may become a secret: it waits until it has
    ended. What spans several words is caught when the step ends: its whole blocks replace what was streamed.
    """

    def __init__(self, sink: Sink, scrubber: Scrubber) -> None:
        self._sink, self._scrubber = sink, scrubber
        self._words: dict[tuple[type[TextDelta | ThinkingDelta], int], _Word] = {}

    def __call__(self, event: TurnEvent) -> None:
        """Take an event."""
        if isinstance(event, TextDelta | ThinkingDelta):
            self._delta(event)
            return
        if isinstance(event, StepEnded):
            for (kind, index), word in self._words.items():
                if word.held:
                    self._sink(kind(index=index, text=self._clean(word.shown, word.held)))
        if isinstance(event, StepBegan | StepEnded | Waiting):  # after a wait the reply begins anew
            self._words.clear()
        self._sink(scrubbed_event(event, self._scrubber))

    def _delta(self, event: TextDelta | ThinkingDelta) -> None:
        key = type(event), event.index
        word = self._words.get(key) or self._words.setdefault(key, _Word())
        text = word.held + event.text
        begins = max(text.rfind(" "), text.rfind("\n")) + 1
        last = text[begins:] if begins else word.shown + text
        if not self._scrubber.may_begin_secret(word.shown + text):  # so it is with most deltas
            word.held, word.shown = "", last[-LONGEST_HELD:]
            self._sink(event if text == event.text else replace(event, text=text))
            return
        held = len(last) <= LONGEST_HELD and self._scrubber.may_begin_secret(last)
        passed, before = text[:begins] if held else text, word.shown
        word.held = text[begins:] if held else ""
        word.shown = last[: len(last) - len(word.held)][-LONGEST_HELD:]
        if passed:
            clean = self._clean(before, passed)
            self._sink(event if clean == event.text else replace(event, text=clean))

    def _clean(self, before: str, text: str) -> str:
        """Return `text` scrubbed, which goes on with the word of which `before` is shown."""
        clean = self._scrubber.text(before + text)
        return clean[len(before) :] if clean.startswith(before) else clean


@dataclass(slots=True)
class _Word:
    """The last word of a streamed text: the end of it that was `shown`, and what is `held`."""

    shown: str = ""
    held: str = ""


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
