"""A Jupyter notebook as an agent's session: `%load_ext nbagent`, then every `%%agent` cell is a turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nbagent.notebook.reports.context import TurnResult

__version__ = "0.1.0"
__all__ = ["__version__", "ask", "last_turn", "load_ipython_extension", "unload_ipython_extension"]


def load_ipython_extension(ipython: Any) -> None:
    """Register the magics; called by `%load_ext nbagent`."""
    from nbagent.notebook.extension import load

    load(ipython)


def unload_ipython_extension(ipython: Any) -> None:
    """Leave IPython as it was; called by `%unload_ext nbagent`."""
    from nbagent.notebook.extension import unload

    unload(ipython)


def ask(prompt: str, **options: Any) -> TurnResult:
    """Run a turn from Python, as a `%%agent` cell does, and return its result; for loops and papermill.

    `options` are those of `%%agent` with underscores: `model`, `policy`, `mode`, `skill`, `tools` (a list),
    `max_steps`, `max_tokens`, `max_cost`, `rerun`, `new`, `quiet`; `show=False` displays nothing.

    Raises:
        UserError: the extension is not loaded, an option is wrong, or the turn did not complete.
    """
    from nbagent.notebook.extension import current

    return current().ask(prompt, **options)


def last_turn() -> TurnResult | None:
    """Return the result of the last turn of this kernel, None before any."""
    from nbagent.notebook.extension import current

    return current().last_result()
