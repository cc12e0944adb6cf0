"""Where a streaming turn is drawn: which text is frozen, what is shown now, how often. Pure: the time is passed in.

The items of a turn lie in slots; a slot is one display. Only the last slot is alive. A slot is
closed when enough finished Markdown lies in it, or when a tool has ended, so that what the tool
printed stands between the displays.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from nbagent.core.effects import StepBegan, StepEnded, TextDelta, ThinkingDelta, ToolBegan, ToolEnded, TurnEvent
from nbagent.notebook.markdown import clean_line, collect_references, finished_chars
from nbagent.notebook.picture import Item, TextItem, ToolItem, TurnPicture
from nbagent.notebook.render import (
    Bundle,
    Foot,
    Part,
    end_lines,
    frozen_text,
    is_shown,
    live_line,
    live_markdown,
    render,
    shortened,
)

FREEZE_CHARS = 2_048  # finished text that is worth a display of its own; at 2 KB a 100 KB answer costs 3.7 MB
INTERVAL_S = 0.1  # ten updates a second, which JupyterLab keeps up with for 8 KB
INTERVAL_S_PER_KB = 0.008  # measured with JupyterLab: what it needs to draw Markdown
LONG_CHARS = 16_000  # text longer than this is left to the front end's renderer: HTML costs 2 to 20 ms a KB here
ENVELOPE_BYTES = 1_000  # of a Jupyter message around its content
TRAFFIC_START_BYTES = 100_000
TRAFFIC_FACTOR = 30  # bytes of live updates per byte of answer, at most: 3 MB for 100 KB, however slow or unbroken


@dataclass(frozen=True, slots=True, kw_only=True)
class Show:
    """Publish (`first`) or update the display `key`."""

    key: int
    first: bool
    bundle: Bundle


@dataclass(slots=True)
class _Slot:
    key: int
    parts: list[Part] = field(default_factory=list)
    closed: bool = False
    dirty: bool = True
    shown: bool = False
    references: int = 0

    @property
    def is_text(self) -> bool:
        return all(isinstance(p.item, TextItem) and not p.item.thinking for p in self.parts)

    @property
    def has_tools(self) -> bool:
        return any(isinstance(p.item, ToolItem) for p in self.parts)


class StreamLayout:
    """Decides what is drawn. `add` events as they come, `take` what to show when `due_s` says 0.

    `silent_tools` are names of tools that print nothing, so that text may follow their line in
    one display. `append_only` is for a front end that cannot update: each part is shown once,
    when it is finished.
    """

    def __init__(self, *, quiet: bool = False, append_only: bool = False, silent_tools: Collection[str] = ()) -> None:
        self.picture = TurnPicture()
        self._quiet, self._append_only, self._silent = quiet, append_only, frozenset(silent_tools)
        self._freeze_chars = self._try_chars = 1 if append_only else FREEZE_CHARS
        self._slots: list[_Slot] = []
        self._placed: dict[int, tuple[Item, int]] = {}  # by identity: the item and the generation that is laid out
        self._growing: TextItem | None = None
        self._break = False
        self._foot_due = False
        self._urgent = False
        self._dirty = False
        self._last_s = float("-inf")
        self._received_bytes = self._live_bytes = self._known = 0

    @property
    def parts(self) -> list[list[Part]]:
        """The parts of each display, in order."""
        return [list(s.parts) for s in self._slots]

    @property
    def is_urgent(self) -> bool:
        """Tell whether something waits that must be drawn at once."""
        return self._urgent

    def add(self, event: TurnEvent) -> None:
        """Take the next event of the turn."""
        if self.picture.done is not None:
            return
        self.picture.add(event)
        self._dirty = True
        if isinstance(event, TextDelta | ThinkingDelta):
            self._received_bytes += len(event.text.encode("utf-8", "replace"))
            newest = self.picture.items[-1]
            if newest is not self._growing:
                self._settle()
                self._growing = newest if isinstance(newest, TextItem) else None
                self._try_chars = self._freeze_chars
            return
        self._urgent = True
        if isinstance(event, StepBegan | StepEnded | ToolBegan) or self.picture.done is not None:
            self._settle()
        if isinstance(event, StepBegan) or self.picture.done is not None:
            self._foot_due = True
        if isinstance(event, ToolEnded):
            self._place()
            self._break = self._break or event.name not in self._silent

    def stop(self, line: str) -> None:
        """End the turn at once as stopped."""
        self.picture.stop(line)
        self._settle()
        self._dirty = self._urgent = self._foot_due = True

    def due_s(self, now_s: float) -> float | None:
        """Return in how many seconds there is something to draw; None when only the next event can tell."""
        if self._urgent:
            return 0.0
        if not self._dirty or (self._append_only and not self._may_close()):
            return None
        size = self._live_chars()
        spent = self._live_bytes + size + ENVELOPE_BYTES
        if spent > TRAFFIC_START_BYTES + TRAFFIC_FACTOR * self._received_bytes:
            return None
        return max(0.0, self._last_s + max(INTERVAL_S, INTERVAL_S_PER_KB * size / 1_000) - now_s)

    def take(self, now_s: float) -> list[Show]:
        """Return what to show now, in order, and count it as shown."""
        if self.due_s(now_s) != 0.0:
            return []
        self._last_s, self._dirty, self._urgent = now_s, False, False
        self._place()
        self._freeze()
        if self._slots:
            self._slots[-1].dirty = True
            self._slots[-1].closed = self._slots[-1].closed or self._append_done(self._slots[-1])
        shows = [show for slot in self._slots if slot.dirty and (show := self._show(slot))]
        known = sum(len(item.references) for item in self.picture.items if isinstance(item, TextItem))
        if known == self._known:
            return shows
        self._known = known
        return shows + [show for slot in self._slots if self._refers_later(slot) and (show := self._show(slot))]

    # ------------------------------------------------------------ laying out

    def _place(self) -> None:
        """Give every new item a slot, and take out what is gone."""
        self._take_back()
        for item in self.picture.items:
            if id(item) in self._placed or not is_shown(item, self._quiet):
                continue
            self._placed[id(item)] = (item, item.generation if isinstance(item, TextItem) else 0)
            text_after_tool = isinstance(item, TextItem) and bool(self._slots) and self._slots[-1].has_tools
            # What can only be appended is shown when it is whole: text must not wait for the tool that follows it.
            tool_after_text = (
                self._append_only and isinstance(item, ToolItem) and bool(self._slots) and self._slots[-1].is_text
            )
            if not self._slots or self._break or text_after_tool or tool_after_text or self._slots[-1].closed:
                self._open()
            self._slots[-1].parts.append(Part(item))
            self._slots[-1].dirty = True
        if self._foot_due and self._has_foot() and self._foot_is_apart():
            self._open()
        self._foot_due = False

    def _foot_is_apart(self) -> bool:
        """Tell whether the status line needs a display of its own."""
        if not self._slots or self._break or self._slots[-1].closed:
            return True
        last = self._slots[-1]
        return self.picture.done is not None and last.is_text and sum(len(p.text) for p in last.parts) > LONG_CHARS

    def _open(self) -> None:
        if self._slots:
            self._slots[-1].closed = self._slots[-1].dirty = True
        self._slots.append(_Slot(len(self._slots)))
        self._break = False

    def _take_back(self) -> None:
        for item, generation in tuple(self._placed.values()):
            replaced = isinstance(item, TextItem) and item.generation != generation
            if not item.gone and not replaced:
                continue
            first = not item.gone
            for slot in self._slots:
                mine = [p for p in slot.parts if p.item is item]
                if not mine:
                    continue
                slot.dirty, slot.shown = True, slot.shown and not self._append_only
                slot.parts = [p for p in slot.parts if p.item is not item or (first and p is mine[0])]
                if first:
                    mine[0].start, mine[0].end, first = 0, None, False
            if item.gone:
                del self._placed[id(item)]
            elif isinstance(item, TextItem):
                self._placed[id(item)] = (item, item.generation)

    def _freeze(self) -> None:
        """Close the last slot behind the finished blocks of text that still grows, if they are many enough."""
        part = self._live_part()
        if part is None or not isinstance(part.item, TextItem) or part.item.thinking:
            return
        text = part.text
        if len(text) < self._try_chars:
            return
        cut = finished_chars(text, enough=self._freeze_chars)
        if cut < self._freeze_chars:
            self._try_chars = len(text) + len(text) // 8  # a long list or fence is not parsed at every draw
            return
        self._try_chars = self._freeze_chars
        collect_references(text[:cut], part.item.references)
        part.end = part.start + cut
        part.growing = False
        self._open()
        self._slots[-1].parts.append(Part(part.item, start=part.end, growing=True))

    def _live_part(self) -> Part | None:
        if not self._slots or not self._slots[-1].parts or self._slots[-1].closed:
            return None
        part = self._slots[-1].parts[-1]
        part.growing = part.item is self._growing
        return part if part.growing else None

    def _settle(self) -> None:
        """The text that grew is complete."""
        item, self._growing = self._growing, None
        if item is None or item.gone or item.thinking:
            return
        collect_references(item.text, item.references)
        for slot in self._slots:
            for part in slot.parts:
                part.growing = False

    # ------------------------------------------------------------ drawing

    def _has_foot(self) -> bool:
        if self.picture.done is None:
            return not self._quiet and not self._append_only
        return end_lines(self.picture, self._quiet) != Foot()

    def _live_chars(self) -> int:
        last = self._slots[-1] if self._slots else None
        return sum(len(p.text.encode("utf-8", "replace")) for p in last.parts if p.growing) if last else 0

    def _may_close(self) -> bool:
        """Tell whether text that can only be appended may have a finished block."""
        return self._growing is not None and "\n" in self._growing.text

    def _append_done(self, slot: _Slot) -> bool:
        return self._append_only and self._growing is None and not self.picture.running

    def _refers_later(self, slot: _Slot) -> bool:
        """Tell whether a closed slot uses link definitions that came after it was drawn."""
        known = sum(len(p.item.references) for p in slot.parts if isinstance(p.item, TextItem))
        return slot.shown and self._ended(slot) and known > slot.references and any("[" in p.text for p in slot.parts)

    def _ended(self, slot: _Slot) -> bool:
        return slot.closed or self.picture.done is not None

    def _show(self, slot: _Slot) -> Show | None:
        ended = self._ended(slot)
        if self._append_only and (not ended or slot.shown):
            return None
        slot.dirty = False
        slot.references = sum(len(p.item.references) for p in slot.parts if isinstance(p.item, TextItem))
        bundle = self._bundle(slot, ended)
        if not any(bundle.values()):
            if not slot.shown:
                return None
            bundle = {"text/plain": ""}
        first, slot.shown = not slot.shown, True
        if not ended:
            self._live_bytes += ENVELOPE_BYTES + sum(len(v.encode("utf-8", "replace")) for v in bundle.values())
        return Show(key=slot.key, first=first, bundle=bundle)

    def _bundle(self, slot: _Slot, ended: bool) -> Bundle:
        last = slot is self._slots[-1]
        if ended:
            if last and self.picture.done is not None:
                return render(slot.parts, self.picture, foot=end_lines(self.picture, self._quiet))
            return frozen_text(slot.parts) if slot.is_text else render(slot.parts, self.picture, foot=Foot())
        line = "" if self._quiet else live_line(self.picture, self._thought())
        parts = [p for p in slot.parts if not (isinstance(p.item, TextItem) and p.item.thinking and p.growing)]
        if slot.has_tools:
            return render(parts, self.picture, foot=Foot(status=line, timed=line))
        return live_markdown(parts, line)

    def _thought(self) -> str:
        """Return the last line of thinking that arrives now."""
        item = self._growing
        if item is None or not item.thinking:
            return ""
        lines = item.text[-400:].strip().splitlines()
        return shortened(clean_line(lines[-1]), 100) if lines else "…"
