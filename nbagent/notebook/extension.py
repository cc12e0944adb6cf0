"""Loading and unloading: what the extension adds to IPython, and how it takes all of it back.

Loading is light: what the magics do is imported at their first use (`registered`).
"""

from __future__ import annotations

from typing import Any

from traitlets import TraitError

from nbagent.notebook.greeting import welcome
from nbagent.notebook.matcher import AgentMatcher
from nbagent.notebook.registered import MAGICS, AgentMagics
from nbagent.notebook.tracker import raw_source
from nbagent.notebook.transform import AgentCellTransform, install, remove

_ATTRIBUTE = "_nbagent_magics"


def load(shell: Any) -> None:
    """Register magics, completion, events and the transformer on `shell`, and print the one line of welcome."""
    if getattr(shell, _ATTRIBUTE, None) is not None:
        return
    magics, fault = _made(shell)
    shell.register_magics(magics)
    transform = AgentCellTransform(
        depth=magics.tracker.depth, raw_source=lambda: raw_source(shell), enabled=lambda: bool(shell.autoawait)
    )
    install(shell, transform)
    magics.tracker.register()
    matcher = AgentMatcher(magics.skill_names)
    if shell.Completer is not None:
        shell.Completer.custom_matchers.append(matcher)
    magics.undo = lambda: _undo(shell, magics, transform, matcher)
    setattr(shell, _ATTRIBUTE, magics)
    print(welcome(magics) + fault)
    magics.door.install()


def _made(shell: Any) -> tuple[AgentMagics, str]:
    """Return the magics, and a line about a configuration that had to be left out."""
    try:
        return AgentMagics(shell), ""
    except TraitError as error:
        from nbagent.core.errors import one_line

        del shell.config["AgentMagics"]
        return AgentMagics(shell), f"\nThe configuration c.AgentMagics was left out: {one_line(str(error))}"


def unload(shell: Any) -> None:
    """Take everything back that `load` added; the conversation stays on disk.

    Raises:
        UsageProblem: a turn runs.
    """
    magics = getattr(shell, _ATTRIBUTE, None)
    if magics is None:
        return
    magics.refuse_beside_turn()
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
        from nbagent.core.errors import UsageProblem

        raise UsageProblem("nbagent is not loaded in this kernel; run `%load_ext nbagent` first")
    return magics


def _undo(shell: Any, magics: AgentMagics, transform: AgentCellTransform, matcher: AgentMatcher) -> None:
    remove(shell, transform)
    if shell.Completer is not None and matcher in shell.Completer.custom_matchers:
        shell.Completer.custom_matchers.remove(matcher)
    manager = shell.magics_manager
    for magic in MAGICS:
        for kind in magic.kinds:
            if manager.magics[kind].get(magic.name) is magics.magics[kind][magic.name]:
                del manager.magics[kind][magic.name]
    manager.registry.pop(type(magics).__name__, None)
    if magics in shell.configurables:
        shell.configurables.remove(magics)
    magics.close()
