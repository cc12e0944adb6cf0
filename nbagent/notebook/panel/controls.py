"""Shows a widget with controls beside a report, where it can be alive; elsewhere nothing. The report follows them."""

from __future__ import annotations

import logging
from dataclasses import dataclass, fields

from nbagent.notebook.app import NotebookAgent
from nbagent.notebook.interrupts import current_job
from nbagent.notebook.reports.context import ContextReport
from nbagent.notebook.tracker import is_interactive, raw_source

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FollowingReport(ContextReport):
    """A report that is shown in the display `display_id`, where another can take its place."""

    display_id: str

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display(_bundle(self), raw=True, display_id=self.display_id)  # type: ignore[no-untyped-call]


def with_controls(agent: NotebookAgent, report: ContextReport) -> ContextReport:
    """Show the widget of `%context` if it can be alive; return `report`, which then follows Compact and Undo."""
    if not show_controls(agent, "context") or agent.door is None:
        return report
    from IPython.display import DisplayHandle

    shown = DisplayHandle().display_id  # type: ignore[no-untyped-call]
    agent.door.report_id = shown
    return FollowingReport(display_id=shown, **{f.name: getattr(report, f.name) for f in fields(report)})


def renew_report(agent: NotebookAgent) -> None:
    """Show the figures as they are now where `%context` was run last with its controls. On any thread."""
    from nbagent.notebook.commands.context_looks import context_report

    if agent.door is None or not agent.door.report_id:
        return
    try:
        bundle, transient = _bundle(context_report(agent)), {"display_id": agent.door.report_id}
        agent.shell.display_pub.publish(bundle, {}, transient=transient, update=True)
    except Exception:  # noqa: BLE001  the report is a copy; what was asked for is done, and this is recorded
        _log.warning("the report of %%context could not be shown anew", exc_info=True)


def _bundle(report: ContextReport) -> dict[str, str]:
    bundle: dict[str, str] = report._repr_mimebundle_()  # type: ignore[attr-defined]
    return bundle


def show_controls(agent: NotebookAgent, kind: str) -> bool:
    """Show the widget `kind` (context, skills, memory) in the running cell; one shown before in another cell goes.

    Returns whether it was shown.

    Only where the report is displayed too: the cell ends with the bare magic. Nothing is shown without a kernel, where
    nobody can answer (nbclient, nbval), while a recording plays, by code that the agent runs, and where anywidget is
    not installed.
    """
    lines = (raw_source(agent.shell) or "").strip().splitlines()
    if agent.door is None or not _would_live(agent) or lines[-1:] != [f"%{kind}"]:
        return False
    try:
        from nbagent.notebook.panel.widgets import PanelWidget
    except ImportError:
        return False
    from IPython.display import display

    widget = PanelWidget(agent.door.bridge(), kind)
    agent.door.keep(kind, widget)
    display(widget.bundle(), raw=True)  # type: ignore[no-untyped-call]
    return True


def _would_live(agent: NotebookAgent) -> bool:
    replays = agent.opened is not None and agent.opened.cassette is not None
    has_kernel = getattr(agent.shell, "kernel", None) is not None
    return has_kernel and is_interactive(agent.shell) and not replays and current_job() is None
