"""The widgets of the notebook: the live gauge with Compact and Undo, the catalog of skills, the search in memory.

They speak the panel's protocol over comms of their own. What they show is beside the report of the cell, never instead
of it: stored output does not need them (DECISIONS of the panel: docs/panel.md). anywidget is imported here only.
"""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

import anywidget
import traitlets

from nbagent.notebook.panel.comms import free_comm
from nbagent.notebook.panel.thread import Peer

if TYPE_CHECKING:
    from nbagent.notebook.panel.bridge import Bridge

VIEW: Final = "application/vnd.jupyter.widget-view+json"
HINTS: Final = {
    "context": "Compact and Undo are buttons here while the kernel runs, as %context compact and %context undo.",
    "skills": "The skills are switched here while the kernel runs, as by %skills enable and %skills disable.",
    "memory": "Memory is searched here while the kernel runs, as by %memory QUERY.",
}


def _text(name: str) -> str:
    return files("nbagent.notebook.panel").joinpath("static", name).read_text(encoding="utf-8")


class PanelWidget(anywidget.AnyWidget):
    """One of the three; `kind` says which. `start` is the state to draw before the kernel answers."""

    kind = traitlets.Unicode("context")
    start = traitlets.Dict().tag(sync=True)

    def __init__(self, bridge: Bridge, kind: str) -> None:
        self._esm = f"{_text('common.js')}\n{_text(f'{kind}.js')}"
        self._css = _text("widgets.css")
        super().__init__(kind=kind, start=dict(bridge.parts()))
        self._bridge = bridge
        self._peer = Peer(send=self.send)
        for comm in (self.comm, self.layout.comm):
            free_comm(comm)
        self.on_msg(self._received)

    def _received(self, _widget: Any, content: Any, _buffers: Any) -> None:
        self._bridge.receive(self._peer, content)

    def close(self) -> None:
        """Take the widget away, wherever it is shown."""
        if getattr(self, "_bridge", None) is not None:
            self._bridge.detach(self._peer)
        super().close()

    def bundle(self) -> dict[str, Any]:
        """Return what the cell shows: the view, and a line for where it is not alive."""
        hint = HINTS[self.kind]
        view = {"version_major": 2, "version_minor": 0, "model_id": self.model_id}
        return {"text/plain": hint, "text/html": f"<small>{hint}</small>", VIEW: view}
