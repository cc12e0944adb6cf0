"""PanelDoor: opens the panel's comm at `%load_ext`, and makes the bridge when somebody speaks on it. Light."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from nbagent.notebook.panel.comms import LEAST_VERSION, TARGET, VERSION, free_comm
from nbagent.notebook.tracker import is_interactive

if TYPE_CHECKING:
    from nbagent.notebook.app import NotebookAgent
    from nbagent.notebook.panel.bridge import Bridge, Peer


class PanelDoor:
    """One for a kernel. Where nobody can answer (nbclient, nbval) no comm is opened, and all is as without a panel."""

    def __init__(self, shell: Any, agent: Callable[[], NotebookAgent]) -> None:
        self._shell, self._agent = shell, agent
        self._comm: Any = None
        self._peer: Peer | None = None
        self._bridge: Bridge | None = None
        self._lock = threading.Lock()
        self._inbox = threading.Lock()
        self._early: list[Any] = []
        self._draining = False
        self._shut = False
        self._widgets: dict[str, Any] = {}
        self.report_id = ""  # the display of the last `%context` with controls

    def install(self) -> None:
        """Open the comm now, else in the first cell that comes from a front end which can answer."""
        self._shell.events.register("pre_run_cell", self._before_cell)
        self._shell.events.register("post_run_cell", self._after_cell)
        self._before_cell()

    def _before_cell(self, info: Any = None) -> None:
        shell = self._shell
        if self._comm is None and not self._shut and getattr(shell, "kernel", None) and is_interactive(shell):
            self._open()

    def _open(self) -> None:
        from comm import create_comm

        self._comm = free_comm(create_comm(target_name=TARGET, data=_welcome()))
        self._comm.on_msg(self._received)
        self._comm.on_close(self._closed)

    def bridge(self) -> Bridge:
        """Return the bridge, made at the first call; takes a while then."""
        from nbagent import __version__
        from nbagent.notebook.panel.beginning import Beginning
        from nbagent.notebook.panel.bridge import Bridge
        from nbagent.notebook.panel.sources import SessionMemory, SessionSkills

        with self._lock:
            if self._bridge is None:
                agent = self._agent()
                beginning = Beginning(agent)
                self._bridge = agent.panel = Bridge(
                    agent, package=__version__, memory=SessionMemory(agent), skills=SessionSkills(agent, beginning),
                    beginning=beginning,
                )  # fmt: skip
            return self._bridge

    def keep(self, kind: str, widget: Any) -> None:
        """Keep the widget of a kind; the one before it goes, wherever it is shown."""
        before = self._widgets.pop(kind, None)
        if before is not None:
            before.close()
        self._widgets[kind] = widget

    def _received(self, message: Any) -> None:
        """Take a message; the first ones wait for the bridge, which is made on a thread of its own."""
        with self._inbox:
            self._early.append(message["content"]["data"])
            if self._draining:
                return
            self._draining = True
        if self._peer is not None:
            self._drain()
            return
        run = contextvars.copy_context().run  # ipykernel 7.0 looks there for the parent of what a comm sends
        threading.Thread(target=run, args=(self._drain,), name="nbagent-panel-start", daemon=True).start()

    def _drain(self) -> None:
        bridge = self.bridge()
        from nbagent.notebook.panel.bridge import Peer

        comm = self._comm
        if self._peer is None and comm is not None:
            self._peer = Peer(send=comm.send)
        while True:
            with self._inbox:
                if not self._early or self._peer is None:
                    self._draining = False
                    return
                data = self._early.pop(0)
            bridge.receive(self._peer, data)

    def _closed(self, message: Any) -> None:
        """A front end has no panel, or put it away: another one that has one is asked to say hello again."""
        if self._bridge is not None and self._peer is not None:
            self._bridge.detach(self._peer)
        comm = self._comm
        if comm is not None:
            _still_open(comm)
            comm.send(_welcome())

    def _after_cell(self, result: Any = None) -> None:
        if self._bridge is not None:
            self._bridge.cell_over()

    def close(self) -> None:
        """Close the comm and end the bridge."""
        events = self._shell.events
        for name, callback in (("pre_run_cell", self._before_cell), ("post_run_cell", self._after_cell)):
            if callback in events.callbacks.get(name, ()):
                events.unregister(name, callback)
        for widget in self._widgets.values():
            widget.close()
        self._widgets.clear()
        self._shut, comm, self._comm = True, self._comm, None
        if comm is not None:
            comm.close()
        if self._bridge is not None:
            self._bridge.close()
            self._agent().panel = None


def _welcome() -> dict[str, Any]:
    """Return what protocol.welcome says; that module is read when somebody answers."""
    from nbagent import __version__

    return {"kind": "welcome", "version": VERSION, "least": LEAST_VERSION, "package": __version__}


def _still_open(comm: Any) -> None:
    """Let `comm` live on that a front end has closed.

    JupyterLab closes what it has no target for: a window without the panel, one with a console of this kernel. Another
    window may have the panel.
    """
    from comm import get_comm_manager

    comm._closed = False
    get_comm_manager().register_comm(comm)
