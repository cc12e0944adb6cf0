"""Records what agent-run code prints and shows, while the person sees it live.

Only what belongs to the run is recorded: output written in its context, by threads that it started, and by
child processes (through the kernel's pipe). Other handlers and threads are left alone.
"""

from __future__ import annotations

import base64
import collections
import contextlib
import contextvars
import json
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from nbagent.notebook.clearing import Stage
from nbagent.runtime.doors import ScrubbedText, Scrubber
from nbagent.tools.kernel_types import Display

StreamName = Literal["stdout", "stderr"]

_RECORDER: contextvars.ContextVar[Recorder | None] = contextvars.ContextVar("nbagent_recorder", default=None)
_COALESCE_CHARS = 8_192


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureLimits:
    """How much of one run is kept and shown; characters unless the name says otherwise."""

    kept_stream: int = 1_000_000  # each of stdout and stderr
    kept_text: int = 200_000  # a text of a display, or the result
    kept_image: int = 6_000_000  # base64 text of an image
    kept_displays: int = 40  # a count
    shown_stream: int = 1_000_000  # what the front end gets of stdout and stderr together
    shown_displays: int = 400  # a count


class BoundedText:
    """Text that keeps its head and its tail, in memory bounded by `limit` characters."""

    def __init__(self, limit: int) -> None:
        self._head_limit = limit // 2
        self._tail_limit = limit - self._head_limit
        self._head: list[str] = []
        self._head_chars = 0
        self._tail: collections.deque[str] = collections.deque()
        self._tail_chars = 0
        self._recent: list[str] = []
        self._recent_chars = 0
        self._dropped = 0

    def add(self, text: str) -> None:
        """Append `text`."""
        room = self._head_limit - self._head_chars
        if room > 0:
            self._head.append(text[:room])
            self._head_chars += min(room, len(text))
            text = text[room:]
        if text:
            self._recent.append(text)
            self._recent_chars += len(text)
        if self._recent_chars > _COALESCE_CHARS or len(self._head) > _COALESCE_CHARS:
            self._coalesce()

    def _coalesce(self) -> None:
        self._head = ["".join(self._head)]
        if self._recent:
            self._tail.append("".join(self._recent))
            self._tail_chars += self._recent_chars
            self._recent, self._recent_chars = [], 0
        while (excess := self._tail_chars - self._tail_limit) > 0:
            first = self._tail.popleft()
            cut = min(excess, len(first))
            if cut < len(first):
                self._tail.appendleft(first[cut:])
            self._tail_chars -= cut
            self._dropped += cut

    @property
    def dropped_chars(self) -> int:
        """How many characters are not kept."""
        self._coalesce()
        return self._dropped

    def text(self) -> str:
        """Return what is kept, with a line in the place of what is not."""
        dropped = self.dropped_chars
        gap = f"\n[... {dropped:,} characters left out ...]\n" if dropped else ""
        return "".join((*self._head, gap, *self._tail))


class Recorder:
    """What one run printed, displayed and evaluated to. Safe to write from several threads.

    What the person is shown is kept in the notebook's file: it passes `scrubber`.
    """

    def __init__(
        self, limits: CaptureLimits, spill: Callable[[str], None] | None = None, scrubber: Scrubber | None = None
    ) -> None:
        self._limits = limits
        self._spill = spill
        self._scrubber = scrubber or Scrubber()
        self._shown = {name: ScrubbedText(self._scrubber, ends="\n\r") for name in ("stdout", "stderr")}
        self._lock = threading.RLock()
        self._streams = {"stdout": BoundedText(limits.kept_stream), "stderr": BoundedText(limits.kept_stream)}
        self._displays: list[tuple[str | None, Display]] = []
        self._shown_chars = 0
        self._shown_displays = 0
        self.displays_dropped = 0
        self.result_text: str | None = None
        self._clears = False

    def clear(self, *, wait: bool) -> None:
        """Forget what was printed and displayed, at once or as something new comes (`clear_output`)."""
        with self._lock:
            self._clears = True
            if not wait:
                self._clear_now()

    def _clear_now(self) -> None:
        if self._clears:
            self._clears = False
            kept = self._limits.kept_stream
            self._streams = {"stdout": BoundedText(kept), "stderr": BoundedText(kept)}
            self._displays, self.displays_dropped = [], 0

    def record(self, name: StreamName, text: str) -> None:
        """Record `text`, which the person is not shown."""
        with self._lock:
            self._clear_now()
            self._streams[name].add(text)
            if self._spill is not None:
                self._spill(text)

    def stream(self, name: StreamName, text: str) -> str:
        """Record `text` and return what of it the person is to be shown."""
        text = printable(text)
        with self._lock:
            self.record(name, text)
            text = self._shown[name].take(text)
            room = self._limits.shown_stream - self._shown_chars
            if room < 0:
                return ""
            self._shown_chars += len(text)
            if len(text) <= room:
                return text
            self._shown_chars = self._limits.shown_stream + 1
            return text[:room] + f"\n[more than {self._limits.shown_stream:,} characters: the rest is not shown here]\n"

    def held(self, name: StreamName) -> str:
        """Return the end of a line that has not been shown yet, since it may have become a secret."""
        with self._lock:
            text = self._shown[name].end()
            return text if self._shown_chars <= self._limits.shown_stream else ""

    def scrubbed(self, bundle: Mapping[str, Any]) -> dict[str, Any]:
        """Return a bundle as the person is to see it: without secrets in its texts."""
        return {mime: v if mime.startswith("image/") else self._scrubber.value(v) for mime, v in bundle.items()}

    def display(self, bundle: Mapping[str, Any], *, display_id: str | None = None, update: bool = False) -> bool:
        """Record a display; say whether the person is to be shown it."""
        with self._lock:
            shown = Display(**_kept_bundle(bundle, self._limits))
            if not update:
                self._clear_now()
            if update:
                self._displays = [(k, shown if k and k == display_id else old) for k, old in self._displays]
            elif len(self._displays) < self._limits.kept_displays:
                self._displays.append((display_id, shown))
            else:
                self.displays_dropped += 1
            self._shown_displays += 1
            return self._shown_displays <= self._limits.shown_displays

    def result(self, bundle: Mapping[str, Any]) -> dict[str, Any]:
        """Record the value of the last expression; return the bundle for the person, its text bounded."""
        plain = printable(str(bundle.get("text/plain", "")))
        if self._spill is not None and len(plain) > self._limits.kept_text:
            self._spill(plain)
        self.result_text = _bounded(plain, self._limits.kept_text)
        if any(mime.startswith("image/") for mime in bundle):
            self.display(bundle)
        return self.scrubbed({**bundle, "text/plain": self.result_text} if "text/plain" in bundle else bundle)

    @property
    def stdout(self) -> str:
        """The standard output, with redrawn lines (progress bars) as they were left."""
        with self._lock:
            return _as_left(self._streams["stdout"].text())

    @property
    def stderr(self) -> str:
        """The error output, likewise."""
        with self._lock:
            return _as_left(self._streams["stderr"].text())

    @property
    def dropped_chars(self) -> int:
        """The characters that are in neither text."""
        with self._lock:
            return sum(stream.dropped_chars for stream in self._streams.values())

    @property
    def displays(self) -> tuple[Display, ...]:
        """The displays kept, in order, each in its last state."""
        return tuple(display for _, display in self._displays)


def printable(text: str) -> str:
    """Return `text` with lone surrogates written as escapes: no encoder of a message can take them."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def _as_left(text: str) -> str:
    """Return `text` with every line as its last carriage return left it."""
    if "\r" not in text:
        return text
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))


def _bounded(text: str, limit: int) -> str:
    kept = BoundedText(limit)
    kept.add(text)
    return kept.text()


def _kept_bundle(bundle: Mapping[str, Any], limits: CaptureLimits) -> dict[str, Any]:
    kept: dict[str, str] = {}
    dropped: list[str] = []
    for mime, value in bundle.items():
        text = _as_text(value)
        if mime.startswith("image/") and len(text) > limits.kept_image:
            dropped.append(mime)
        elif mime.startswith("image/"):
            kept[mime] = text
        else:
            kept[mime] = _bounded(text, limits.kept_text)
    return {"bundle": MappingProxyType(kept), "dropped": tuple(dropped)}


def _as_text(value: object) -> str:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return json.dumps(value, default=str)


@contextlib.contextmanager
def shadowed(target: object, **replacements: object) -> Iterator[None]:
    """Set attributes on the instance `target` for the time of the block, and leave it as it was."""
    own = vars(target)
    before = {name: own[name] for name in replacements if name in own}
    try:
        for name, value in replacements.items():
            setattr(target, name, value)
        yield
    finally:
        for name in replacements:
            if name in before:
                setattr(target, name, before[name])
            else:
                with contextlib.suppress(AttributeError):
                    delattr(target, name)


def recording() -> Recorder | None:
    """The recorder of the run in whose context the caller is."""
    return _RECORDER.get()


@contextlib.contextmanager
def capturing(shell: Any, recorder: Recorder) -> Iterator[None]:
    """Let `recorder` take what the code inside the block prints and shows.

    The methods of the stream objects are replaced, not `sys.stdout`: log handlers made earlier hold the objects.
    """
    known_threads = {thread.ident for thread in threading.enumerate()}
    pipes = {ident for s in (sys.stdout, sys.stderr) if (ident := _pipe_thread(s)) is not None}

    def mine() -> bool:
        if _RECORDER.get() is recorder:
            return True
        ident = threading.get_ident()
        return ident in pipes or ident not in known_threads

    token = _RECORDER.set(recorder)
    publisher, hook = shell.display_pub, shell.displayhook
    stage = Stage(publisher.publish, can_update=getattr(shell, "kernel", None) is not None)
    try:
        with contextlib.ExitStack() as stack:
            streams: tuple[tuple[StreamName, Any], ...] = (("stdout", sys.stdout), ("stderr", sys.stderr))
            writers = {name: stream.write for name, stream in streams}

            def release() -> None:
                for name, write in writers.items():
                    if (text := recorder.held(name)) and not stage.write(text):
                        write(text)

            for name, stream in streams:
                stack.enter_context(shadowed(stream, write=_tee(stream.write, name, recorder, stage, mine)))
            show = _publish(publisher.publish, recorder, stage, mine, release)
            stack.enter_context(shadowed(publisher, publish=show))
            stack.enter_context(shadowed(publisher, clear_output=_clear(publisher.clear_output, recorder, stage, mine)))
            compute = _compute(hook.compute_format_data, recorder, mine)
            stack.enter_context(shadowed(hook, compute_format_data=compute))
            yield
            release()
            stage.close()
    finally:
        _RECORDER.reset(token)


def _pipe_thread(stream: object) -> int | None:
    """The thread on which ipykernel writes what child processes print."""
    ident = getattr(getattr(stream, "watch_fd_thread", None), "ident", None)
    return ident if isinstance(ident, int) else None


def _tee(
    write: Callable[[str], Any], name: Any, recorder: Recorder, stage: Stage, mine: Callable[[], bool]
) -> Callable[[str], Any]:
    def tee(text: str) -> Any:
        if not isinstance(text, str) or not mine():
            return write(text)
        shown = recorder.stream(name, text)
        if shown and not stage.write(shown):
            write(shown)
        return len(text)

    return tee


def _publish(
    publish: Callable[..., Any], recorder: Recorder, stage: Stage, mine: Callable[[], bool], release: Callable[[], None]
) -> Callable[..., Any]:
    def recorded(data: Any, metadata: Any = None, **options: Any) -> Any:
        if not mine() or not isinstance(data, Mapping):
            return publish(data, metadata, **options)
        display_id = (options.get("transient") or {}).get("display_id")
        may_grow = recorder.display(data, display_id=display_id, update=bool(options.get("update")))
        release()  # what was printed before it stands above it
        return stage.show(recorder.scrubbed(data), metadata, options=options, may_grow=may_grow)

    return recorded


def _clear(
    clear: Callable[..., Any], recorder: Recorder, stage: Stage, mine: Callable[[], bool]
) -> Callable[..., Any]:
    """Return a `clear_output` that takes back what the run showed: the rest of the cell's output is the turn's."""

    def cleared(wait: bool = False) -> Any:
        if not mine():
            return clear(wait)
        recorder.clear(wait=wait)
        return stage.clear(wait=wait)

    return cleared


def _compute(compute: Callable[[object], Any], recorder: Recorder, mine: Callable[[], bool]) -> Callable[[object], Any]:
    def recorded(result: object) -> Any:
        bundle, metadata = compute(result)
        return (recorder.result(bundle), metadata) if mine() and bundle else (bundle, metadata)

    return recorded
