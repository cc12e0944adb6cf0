"""Shows a widget with controls beside a report, where it can be alive; elsewhere nothing."""

from __future__ import annotations

from nbagent.notebook.app import NotebookAgent
from nbagent.notebook.interrupts import current_job
from nbagent.notebook.tracker import is_interactive, raw_source


def show_controls(agent: NotebookAgent, kind: str) -> None:
    """Show the widget `kind` (context, skills, memory) in the running cell; one shown before in another cell goes.

    Only where the report is displayed too: the cell ends with the bare magic. Nothing is shown without a kernel, where
    nobody can answer (nbclient, nbval), while a recording plays, by code that the agent runs, and where anywidget is
    not installed.
    """
    lines = (raw_source(agent.shell) or "").strip().splitlines()
    if agent.door is None or not _would_live(agent) or lines[-1:] != [f"%{kind}"]:
        return
    try:
        from nbagent.notebook.widgets import PanelWidget
    except ImportError:
        return
    from IPython.display import display

    widget = PanelWidget(agent.door.bridge(), kind)
    agent.door.keep(kind, widget)
    display(widget.bundle(), raw=True)  # type: ignore[no-untyped-call]


def _would_live(agent: NotebookAgent) -> bool:
    replays = agent.opened is not None and agent.opened.cassette is not None
    has_kernel = getattr(agent.shell, "kernel", None) is not None
    return has_kernel and is_interactive(agent.shell) and not replays and current_job() is None
