"""Draws a turn in its cell while it runs: events come on any thread, drawing is done by injected callables."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection
from typing import Any, TypeAlias

from nbagent.core.effects import TurnDone, TurnEvent
from nbagent.notebook.picture import TurnPicture
from nbagent.notebook.render import Bundle, final_bundle
from nbagent.notebook.stream import Show, StreamLayout

Publish: TypeAlias = Callable[[Bundle], Any]
"""Show a bundle in the cell; returns a handle by which it is updated."""
Update: TypeAlias = Callable[[Any, Bundle], None]
"""Show a bundle instead of what the handle stands for."""
Post: TypeAlias = Callable[[Callable[[], None]], None]
"""Have a function called on the main thread, in order, soon; never waits for it."""
Later: TypeAlias = Callable[[float, Callable[[], None]], None]
"""Have a function called after so many seconds, on any thread."""


def _at_once(draw: Callable[[], None]) -> None:
    draw()


class LiveDisplay:
    """A Sink that draws. One turn has one; `close` or `stop` must be called at its end, on the main thread.

    `publish` and `update` are called by `draw` only, which goes through `post` but for `at_once`. Rules for the
    caller: events of a tool's start are sent before the tool's code is posted to the main
    thread, and its end before the next thing is, so that prints stand where they belong.
    Without `update` (a terminal) each part is shown once, when it is finished. Without
    `interactive` nothing is shown before the end, then one display. Without `later`, text that
    came less than an interval ago is drawn at the next event.
    """

    def __init__(
        self,
        publish: Publish,
        update: Update | None,
        clock: Callable[[], float],
        *,
        interactive: bool = True,
        quiet: bool = False,
        silent_tools: Collection[str] = (),
        post: Post = _at_once,
        later: Later | None = None,
    ) -> None:
        self._publish, self._update, self._clock = publish, update, clock
        self._interactive, self._quiet, self._post, self._later = interactive, quiet, post, later
        self._layout = StreamLayout(quiet=quiet, append_only=update is None, silent_tools=silent_tools)
        self._handles: dict[int, Any] = {}
        self._shows: deque[Show] = deque()
        self._lock = threading.RLock()  # guards the layout and the flags
        self._drawing = threading.RLock()  # one draws at a time
        self._posted = self._timed = self._ended = False

    @property
    def picture(self) -> TurnPicture:
        """What the turn has shown so far."""
        return self._layout.picture

    def __call__(self, event: TurnEvent) -> None:
        """Take an event, on any thread; never raises for what comes after the end."""
        with self._lock:
            self._layout.add(event)
        self._ask()

    def at_once(self, event: TurnEvent) -> None:
        """Take an event and draw it on the caller's thread: for when the main thread is the one that is waited for."""
        self(event)
        self.draw()

    def draw(self) -> None:
        """Draw what is due, on the main thread."""
        with self._drawing:
            with self._lock:
                self._posted = False
                if self._interactive:
                    self._shows.extend(self._layout.take(self._clock()))
                elif self.picture.done is not None and not self._ended:
                    self._ended = True
                    self._shows.append(Show(key=0, first=True, bundle=final_bundle(self.picture, self._quiet)))
            while self._shows:  # taken off after it is shown: an interrupt in between loses nothing
                self._draw_one(self._shows[0])
                self._shows.popleft()
        self._ask()

    def close(self) -> None:
        """Draw what is left; a turn that sent no TurnDone is shown as ended early. Idempotent."""
        with self._lock:
            if self.picture.done is None:
                picture = self.picture
                self._layout.add(
                    TurnDone(
                        outcome="error", steps=picture.step, duration_s=0.0,
                        message="the turn ended early" if picture.step else "the turn had not begun",
                        context_tokens=picture.context_tokens, window_tokens=picture.window_tokens,
                        cost_usd=picture.cost_usd,
                    )
                )  # fmt: skip
        self.draw()

    def stop(self, line: str) -> None:
        """End at once as stopped, with `line` under what had come; later events change nothing."""
        with self._lock:
            self._layout.stop(line)
        self.draw()

    def _ask(self) -> None:
        """Have drawn what is due, now or when its time comes; one request is open at a time."""
        with self._lock:
            if self._timed and not self._layout.is_urgent:
                return  # nothing is measured for a piece of text while a drawing is due anyway
            if self._posted or not self._interactive:
                wait_s = 0.0 if not self._posted and self.picture.done is not None and not self._ended else None
            else:
                wait_s = self._layout.due_s(self._clock())
            if wait_s is None or (wait_s > 0 and (self._timed or self._later is None)):
                return
            self._posted, self._timed = wait_s == 0, wait_s > 0
        if wait_s == 0:
            self._post(self.draw)
        elif self._later is not None:
            self._later(wait_s, self._tick)

    def _tick(self) -> None:
        with self._lock:
            self._timed = False
        self._ask()

    def _draw_one(self, show: Show) -> None:
        if not any(show.bundle.values()) and show.first:
            return
        if show.first or self._update is None:
            self._handles[show.key] = self._publish(show.bundle)
        else:
            self._update(self._handles[show.key], show.bundle)


def notebook_callables() -> tuple[Publish, Update]:
    """Return publish and update by IPython's display, for a front end that updates displays."""
    from IPython.display import display

    def publish(bundle: Bundle) -> Any:
        return display(bundle, raw=True, display_id=True)  # type: ignore[no-untyped-call]

    def update(handle: Any, bundle: Bundle) -> None:
        handle.update(bundle, raw=True)

    return publish, update


def terminal_publish(bundle: Bundle) -> None:
    """Show a bundle where nothing can be updated."""
    from IPython.display import display

    display(bundle, raw=True)  # type: ignore[no-untyped-call]
