"""Stage: what one run shows in the cell, so that its `clear_output` takes back that, and nothing else of the turn.

A display of the run keeps its place: what is shown after `clear_output` takes the place of what was shown before, by
display id. Text that was printed before the first `clear_output` cannot be taken back; what is printed after it is a
display too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Publish = Callable[..., Any]
BLANK: Mapping[str, str] = {"text/plain": ""}
MOST_TEXT_CHARS = 20_000  # printed since the last `clear_output`; more of it is a plain stream, which costs less


@dataclass(slots=True)
class _Place:
    """One display in the cell: its id there, and whether it shows something."""

    display_id: str
    filled: bool = True


class Stage:
    """The displays of one run, through `publish` (the front end's). Safe to call from several threads.

    Where displays cannot be updated (a terminal) `clear` does nothing.
    """

    def __init__(self, publish: Publish, *, can_update: bool = True) -> None:
        self._publish, self._can_update = publish, can_update
        self._lock = threading.RLock()
        self._places: list[_Place] = []
        self._used = 0  # places taken since the last `clear_output`
        self._aliases: dict[str, str] = {}  # a display id of the code -> the id of its place
        self._text, self._text_place = "", ""
        self._drawn_chars = self._printed_chars = 0
        self.cleared = False

    def show(self, bundle: Mapping[str, Any], metadata: Any, *, options: Mapping[str, Any], may_grow: bool) -> Any:
        """Show a display where it belongs; a new place is taken only when it `may_grow`."""
        transient = dict(options.get("transient") or {})
        own = transient.get("display_id")
        with self._lock:
            self._end_text()
            if options.get("update"):
                transient["display_id"] = self._aliases.get(own or "", own)
                return self._publish(bundle, metadata, **{**options, "transient": transient})
            reused = self._used < len(self._places)
            if not reused and not may_grow:
                return None
            place = self._take(own)
            transient["display_id"] = place
            update = {"update": True} if reused else {}
            return self._publish(bundle, metadata, **{**options, "transient": transient, **update})

    def _take(self, own: str | None) -> str:
        """Return the id of the next place."""
        if self._used < len(self._places):
            place = self._places[self._used]
            place.filled = True
            if own:
                self._aliases[own] = place.display_id
        else:
            place = _Place(own or _new_id())
            self._places.append(place)
        self._used += 1
        return place.display_id

    def write(self, text: str) -> bool:
        """Show printed text in a place of its own; False when it is to be printed as always."""
        with self._lock:
            self._printed_chars += len(text)
            if not self.cleared or self._printed_chars > MOST_TEXT_CHARS:
                self._end_text()
                return False
            self._text += text
            if "\n" in text or "\r" in text:
                self._draw_text()
            return True

    def _draw_text(self) -> None:
        lines = (line.rstrip("\r").rpartition("\r")[2] for line in self._text.split("\n"))
        bundle = {"text/plain": "\n".join(lines).rstrip("\n")}
        reused = bool(self._text_place) or self._used < len(self._places)
        self._text_place = self._text_place or self._take(None)
        self._drawn_chars = len(self._text)
        update = {"update": True} if reused else {}
        self._publish(bundle, {}, transient={"display_id": self._text_place}, **update)

    def _end_text(self) -> None:
        """What is printed later is another display."""
        if len(self._text) > self._drawn_chars:
            self._draw_text()
        self._text, self._text_place, self._drawn_chars = "", "", 0

    def clear(self, *, wait: bool) -> None:
        """Take back what the run has shown, at once or as something new comes."""
        if not self._can_update:
            return
        with self._lock:
            self.close()
            self.cleared, self._used, self._printed_chars = True, 0, 0
            self._aliases.clear()
            if not wait:
                self._blank_from(0)

    def close(self) -> None:
        """Draw what is left, and blank what nothing new has taken the place of."""
        with self._lock:
            self._end_text()
            if self._used > 0:
                self._blank_from(self._used)

    def _blank_from(self, first: int) -> None:
        for place in self._places[first:]:
            if place.filled:
                place.filled = False
                self._publish(BLANK, {}, transient={"display_id": place.display_id}, update=True)


def _new_id() -> str:
    from IPython.display import DisplayHandle

    return str(DisplayHandle().display_id)  # type: ignore[no-untyped-call]
