"""The magics as IPython sees them: names, one line of help, configuration, and where to import what they do from.

A new magic is a line in `MAGICS` and a function `(agent, line, cell) -> value`. Imports nothing of ours that is heavy:
this is what `%load_ext` runs, the rest is imported by the first magic that is used.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from IPython.core.magic import Magics, magics_class, no_var_expand
from traitlets import Enum, Float, Int, Unicode

from nbagent.notebook.panel.door import PanelDoor
from nbagent.notebook.stopped import NOT_BEGUN, TurnStopped
from nbagent.notebook.tracker import CellTracker
from nbagent.notebook.transform import AWAITABLE
from nbagent.notebook.words import MODES, OBSERVED, RERUNS

if TYPE_CHECKING:
    from nbagent.notebook.app import NotebookAgent
    from nbagent.notebook.reports.context import TurnResult


TICK_S = 0.1


class Magic(NamedTuple):
    """One magic. `target` is "module:function"; `help_text`, if any, one that returns what `%NAME?` shows below `doc`.

    `kinds` are those of "line" and "cell" that it has.
    """

    name: str
    kinds: tuple[str, ...]
    target: str
    doc: str
    help_text: str = ""


MAGICS = (
    Magic(
        "agent", ("line", "cell"), "nbagent.notebook.magics:agent_magic",
        "A cell is a turn of the agent: `%%agent [options]`, and the request below. `%agent` alone shows the session."
        "\n\nThe request is sent byte for byte. `%agent help` lists the sub-commands.",
        "nbagent.notebook.magics:agent_help",
    ),
    Magic(
        "context", ("line", "cell"), "nbagent.notebook.magics:context_magic",
        "What the model has in its context. `%context` shows it, `%context help` lists the sub-commands.",
        "nbagent.notebook.magics:context_help",
    ),
    Magic(
        "skills", ("line",), "nbagent.notebook.magics:skills_magic",
        "Pages of instructions for kinds of tasks. `%skills` lists them, `%skills why NAME` says why one is hidden.",
        "nbagent.notebook.commands.skills:skills_help",
    ),
    Magic(
        "memory", ("line",), "nbagent.notebook.magics:memory_magic",
        "Notes that outlast a conversation: `%memory QUERY` searches them, `%memory add TEXT` notes a fact.",
        "nbagent.notebook.commands.memory:memory_help",
    ),
)  # fmt: skip


@magics_class
class AgentMagics(Magics):
    """Configuration of the agent; `%config AgentMagics` lists it. An empty value means: as the settings say."""

    model = Unicode("", help="Model of new turns, such as claude-sonnet-5-5.").tag(config=True)
    policy = Unicode("", help="Context policy of new turns.").tag(config=True)
    mode = Enum(["", *MODES], "", help="Permissions: ask, auto or plan (read only).").tag(config=True)
    rerun = Enum(["", *RERUNS], "", help="What running a cell again does.").tag(config=True)
    observation = Enum(["", *OBSERVED], "", help="What the model hears of your cells.").tag(config=True)
    window_tokens = Int(0, min=0, help="Working window in tokens; 0 leaves it to the settings.").tag(config=True)
    threshold = Float(0.0, min=0.0, max=1.0, help="Share of the window at which a policy acts; 0 leaves it.").tag(
        config=True
    )

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        self.tracker = CellTracker(shell)
        self.undo: Callable[[], None] = lambda: None
        self._agent: NotebookAgent | None = None
        self._making = threading.Lock()  # the panel may ask for the agent on a thread of its own
        self.door = PanelDoor(shell, lambda: self.agent_app)
        for magic in MAGICS:
            function = self._function(magic)
            for kind in magic.kinds:
                self.magics[kind][magic.name] = function

    def _function(self, magic: Magic) -> Callable[..., Any]:
        @no_var_expand
        def run(line: str, cell: str | None = None) -> Any:
            if self._agent is None and line.startswith(AWAITABLE):
                return _awaited(self._imported_first(magic, line, cell))
            try:
                function, agent = _imported(magic.target), self.agent_app
            except KeyboardInterrupt:
                raise TurnStopped(NOT_BEGUN) from None
            with _no_secrets_in_errors():
                value = function(agent, line, cell)
            return _awaited(value) if isinstance(value, Coroutine) else value

        run.__name__ = run.__qualname__ = magic.name
        run.__doc__ = magic.doc
        if magic.help_text:  # IPython asks for it before it reads __doc__
            run.getdoc = lambda: f"{magic.doc}\n\n{_imported(magic.help_text)()}"  # type: ignore[attr-defined]
        return run

    async def _imported_first(self, magic: Magic, line: str, cell: str | None) -> Any:
        """Import on a thread, so that Stop does not wait for it: in an awaited cell it comes as a cancellation.

        The kernel cancels from a signal handler, which does not wake its loop; so the loop wakes by itself.
        """
        import asyncio

        importing = asyncio.ensure_future(asyncio.to_thread(_imported, magic.target))
        try:
            while not importing.done():
                await asyncio.wait({importing}, timeout=TICK_S)
            function = importing.result()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            while task is not None and task.cancelling():
                task.uncancel()
            raise TurnStopped(NOT_BEGUN) from None
        return await function(self.agent_app, line, cell)

    @property
    def agent_app(self) -> NotebookAgent:
        """The agent of this shell; imported and made at the first use."""
        from nbagent.notebook.app import NotebookAgent

        with self._making:
            if self._agent is None:
                self._agent = NotebookAgent(self.shell, self.configured, self.tracker)
                self._agent.door = self.door
        return self._agent

    def configured(self) -> dict[str, Any]:
        """Return what is configured, by the names of the settings."""
        names = ("model", "policy", "mode", "rerun", "window_tokens", "threshold")
        values = {name: getattr(self, name) for name in names if getattr(self, name)}
        return {**values, **({"observe": self.observation} if self.observation else {})}

    def skill_names(self) -> Sequence[str]:
        """Return the names of the skills for completion."""
        from nbagent.notebook.commands.skills import skill_names

        return skill_names(self.agent_app)

    def refuse_beside_turn(self) -> None:
        """Raise when a turn runs, before something is taken away under it.

        Raises:
            UsageProblem: one does.
        """
        if self._agent is not None:
            self._agent.turnstile.refuse_beside_turn()

    def close(self) -> None:
        """Stop to follow the cells, and let go of what the agent holds."""
        self.door.close()
        self.tracker.unregister()
        if self._agent is not None:
            self._agent.close()

    # ------------------------------------------------------------ from Python

    def ask(self, prompt: str, **options: Any) -> TurnResult:
        """Run a turn; see `nbagent.ask`."""
        from nbagent.notebook.magics import ask

        with _no_secrets_in_errors():
            return ask(self.agent_app, prompt, **options)

    def last_result(self) -> TurnResult | None:
        """Return the last turn's result."""
        if self._agent is None or self._agent.last is None:
            return None
        from nbagent.notebook.results import turn_result

        return turn_result(self._agent, self._agent.last)


@contextlib.contextmanager
def _no_secrets_in_errors() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        from nbagent.runtime.scrubbed import hide_secrets

        hide_secrets(error)
        raise


async def _awaited(value: Coroutine[Any, Any, Any]) -> Any:
    with _no_secrets_in_errors():
        return await value


def _imported(target: str) -> Callable[..., Any]:
    from importlib import import_module

    module, _, name = target.partition(":")
    function: Callable[..., Any] = getattr(import_module(module), name)
    return function
