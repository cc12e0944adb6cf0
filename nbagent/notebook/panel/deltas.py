"""Deltas of the panel's state: what changed, how it is merged, at what pace it goes. Pure (docs/panel-protocol.md)."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any, Final

from nbagent.core.messages import JsonObject
from nbagent.notebook.panel.protocol import PanelState, delta, snapshot

MAX_DELTA_BYTES: Final = 4_096  # of one delta, as JSON
MIN_INTERVAL_S: Final = 0.11  # between two deltas: never more than ten in a second
CALM_INTERVAL_S: Final = 1.0  # while a turn runs and only the gauge moves: each time the page is drawn


def changed(old: JsonObject, new: JsonObject) -> JsonObject:
    """Return what of `new` differs from `old`: objects field by field, all else whole. No field is ever removed."""
    out: dict[str, Any] = {}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            if inner := changed(before, value):
                out[key] = inner
        elif key not in old or before != value:
            out[key] = value
    return out


def merged(parts: JsonObject, changes: JsonObject) -> JsonObject:
    """Return `parts` after a delta: what a front end does with it."""
    out = dict(parts)
    for key, value in changes.items():
        before = out.get(key)
        out[key] = merged(before, value) if isinstance(value, dict) and isinstance(before, dict) else value
    return out


def size_bytes(message: JsonObject) -> int:
    """Return the size of a message as JSON in UTF-8, as Jupyter packs it."""
    return len(json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8"))


class DeltaPacer:
    """Holds back what changed so that the limits are kept: MIN_INTERVAL_S between deltas (CALM_INTERVAL_S where nothing
    but the figures of a running turn moved), MAX_DELTA_BYTES each.

    `offer` takes the newest state; what was never sent and is out of date by then is never sent. What does not fit
    into one delta comes with the next. A turn's start and end (`turn`) and a question go first. `only` are the parts
    that the listener wants, None for all.
    """

    def __init__(self, state: PanelState | None = None, *, only: Collection[str] | None = None) -> None:
        self._only = only
        self._sent = self._newest = self._wanted(state or PanelState())
        self._last_s = float("-inf")
        self._runs = False
        self.seq = 0

    def offer(self, state: PanelState) -> None:
        """Take the state as it is now."""
        self._newest = self._wanted(state)
        self._runs = state.turn.status == "running"

    def _wanted(self, state: PanelState) -> JsonObject:
        parts = state.to_wire()
        return parts if self._only is None else {k: v for k, v in parts.items() if k in self._only}

    def due_s(self, now_s: float) -> float | None:
        """Return in how many seconds a delta may go, 0 for now; None when nothing changed."""
        if self._newest == self._sent:
            return None
        calm = self._runs and all(v == self._sent.get(k) for k, v in self._newest.items() if k != "gauge")
        return max(0.0, self._last_s + (CALM_INTERVAL_S if calm else MIN_INTERVAL_S) - now_s)

    def take(self, now_s: float) -> JsonObject | None:
        """Return the delta to send now; None when nothing changed or it is too early."""
        if self.due_s(now_s) != 0:
            return None
        changes = _fitting(changed(self._sent, self._newest), self.seq + 1)
        self._sent = merged(self._sent, changes)
        self._last_s = now_s
        self.seq += 1
        return delta(changes, seq=self.seq)

    def snapshot(self, version: int) -> JsonObject:
        """Return the state as it was sent so far, so that it fits the deltas to come whoever else listens."""
        return snapshot(self._sent, seq=self.seq, version=version)


_FIRST: Final = ("turn", "approval", "gauge")


def _fitting(changes: JsonObject, seq: int) -> JsonObject:
    """Return as many of the changed fields as fit into one delta, at least one."""
    names: Sequence[str] = sorted(changes, key=lambda n: (_FIRST.index(n) if n in _FIRST else len(_FIRST), n))
    out: JsonObject = {}
    for name in names:
        for key, value in changes[name].items():
            more = merged(out, {name: {key: value}})
            if out and size_bytes(delta(more, seq=seq)) > MAX_DELTA_BYTES:
                return out
            out = more
    return out
