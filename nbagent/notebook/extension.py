"""Loading and unloading: what the extension adds to IPython, and how it takes all of it back."""

from __future__ import annotations

import contextlib
from typing import Any

from traitlets import TraitError

from nbagent.core.errors import UsageProblem, one_line
from nbagent.notebook.cells import raw_source
from nbagent.notebook.completion import AgentMatcher
from nbagent.notebook.magics import AgentMagics
from nbagent.notebook.transform import AgentCellTransform, install, remove

_ATTRIBUTE = "_nbagent_magics"
MAGICS = {"line": ("agent", "context"), "cell": ("agent", "context")}


def load(shell: Any) -> None:
    """Register magics, completion, events and the transformer on `shell`, and print the one line of welcome."""
    if getattr(shell, _ATTRIBUTE, None) is not None:
        return
    magics, fault = _made(shell)
    agent = magics.agent_app
    shell.register_magics(magics)
    transform = AgentCellTransform(
        depth=agent.tracker.depth, raw_source=lambda: raw_source(shell), enabled=lambda: bool(shell.autoawait)
    )
    install(shell, transform)
    agent.tracker.register()
    matcher = AgentMatcher()
    if shell.Completer is not None:
        shell.Completer.custom_matchers.append(matcher)
    magics.undo = lambda: _undo(shell, magics, transform, matcher)
    setattr(shell, _ATTRIBUTE, magics)
    print(magics.welcome() + fault)


def _made(shell: Any) -> tuple[AgentMagics, str]:
    """Return the magics, and a line about a configuration that had to be left out."""
    try:
        return AgentMagics(shell), ""
    except TraitError as error:
        del shell.config["AgentMagics"]
        return AgentMagics(shell), f"\nThe configuration c.AgentMagics was left out: {one_line(str(error))}"


def unload(shell: Any) -> None:
    """Take everything back that `load` added; the conversation stays on disk."""
    magics = getattr(shell, _ATTRIBUTE, None)
    if magics is None:
        return
    magics.undo()
    delattr(shell, _ATTRIBUTE)


def current() -> AgentMagics:
    """Return the magics of the running shell.

    Raises:
        UsageProblem: the extension is not loaded.
    """
    from IPython.core.getipython import get_ipython

    shell = get_ipython()
    magics: AgentMagics | None = getattr(shell, _ATTRIBUTE, None)
    if magics is None:
        raise UsageProblem("nbagent is not loaded in this kernel; run `%load_ext nbagent` first")
    return magics


def _undo(shell: Any, magics: AgentMagics, transform: AgentCellTransform, matcher: AgentMatcher) -> None:
    remove(shell, transform)
    if shell.Completer is not None and matcher in shell.Completer.custom_matchers:
        shell.Completer.custom_matchers.remove(matcher)
    manager = shell.magics_manager
    for kind, names in MAGICS.items():
        for name in names:
            found = manager.magics[kind].get(name)
            if getattr(found, "__self__", None) is magics:
                del manager.magics[kind][name]
    manager.registry.pop(type(magics).__name__, None)
    with contextlib.suppress(ValueError, AttributeError):
        shell.configurables.remove(magics)
    magics.agent_app.close()
