"""The magics: `%%agent`, `%agent`, `%context`. They parse, delegate and show."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from IPython.core.magic import Magics, line_cell_magic, magics_class, no_var_expand
from traitlets import Enum, Float, Int, Unicode

from nbagent.core.errors import UsageProblem
from nbagent.notebook.app import Ask, NotebookAgent
from nbagent.notebook.commands import agent_command, welcome
from nbagent.notebook.context_commands import context_command, note_cell
from nbagent.notebook.options import MODES, OBSERVED, RERUNS, cell_parser, parse_cell_line, turn_options
from nbagent.notebook.results import turn_result
from nbagent.notebook.transform import split_awaitable
from nbagent.runtime.ports import FinishedTurn, TurnOptions

if TYPE_CHECKING:
    from nbagent.notebook.report import TurnResult


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
        self.agent_app = NotebookAgent(shell, self._configured)
        self.undo: Callable[[], None] = lambda: None

    def _configured(self) -> dict[str, Any]:
        names = ("model", "policy", "mode", "rerun", "window_tokens", "threshold")
        values = {name: getattr(self, name) for name in names if getattr(self, name)}
        return {**values, **({"observe": self.observation} if self.observation else {})}

    def welcome(self) -> str:
        """Return the one line that `%load_ext` prints."""
        return welcome(self.agent_app)

    @no_var_expand
    @line_cell_magic
    def agent(self, line: str, cell: str | None = None) -> Any:
        """A cell is a turn of the agent: `%%agent [options]`, and the request below. `%agent` alone shows the session.

        The request is sent byte for byte. `%agent help` lists the sub-commands.
        """
        awaitable, options = split_awaitable(line)
        if cell is None:
            return agent_command(self.agent_app, options, awaitable=awaitable)
        parsed = parse_cell_line(options)
        ask = Ask(prompt=cell, options=turn_options(parsed), quiet=parsed.quiet)
        if parsed.dry_run:
            shown = context_command(self.agent_app, "show", ask=ask)
            return _later(shown) if awaitable else shown
        running = self.agent_app.run(ask, awaitable=awaitable)
        if awaitable:
            return self._bound(running, parsed.out)
        self._bind(running, parsed.out)
        return None

    @no_var_expand
    @line_cell_magic
    def context(self, line: str, cell: str | None = None) -> Any:
        """What the model has in its context. `%context` shows it, `%context help` lists the sub-commands."""
        if cell is None:
            return context_command(self.agent_app, line)
        if line.split() != ["note"]:
            raise UsageProblem("%%context is a cell only as `%%context note`, with the note below it")
        return note_cell(self.agent_app, cell)

    async def _bound(self, running: Coroutine[Any, Any, FinishedTurn], name: str | None) -> None:
        self._bind(await running, name)

    def _bind(self, done: FinishedTurn, name: str | None) -> None:
        if name:
            self.agent_app.shell.user_ns[name] = turn_result(self.agent_app, done)

    # ------------------------------------------------------------ from Python

    def ask(self, prompt: str, *, show: bool = True, quiet: bool = False, **options: Any) -> TurnResult:
        """Run a turn; see `nbagent.ask`."""
        if "max_cost" in options:
            options["max_cost_usd"] = options.pop("max_cost")
        if options.get("tools") is not None:
            options["tools"] = tuple(options["tools"])
        known = TurnOptions.__dataclass_fields__
        if unknown := [name for name in options if name not in known]:
            names = ", ".join(n.replace("max_cost_usd", "max_cost") for n in known)
            raise UsageProblem(f"nbagent.ask has no option {unknown[0]!r}; it has: {names}, quiet, show")
        if not isinstance(prompt, str) or not prompt.strip():
            raise UsageProblem("nbagent.ask: the prompt is empty; give the text that the agent should answer")
        chosen = TurnOptions(**options)
        number = self.agent_app.next_ask_number()
        ask = Ask(prompt=prompt, options=chosen, quiet=quiet, shown=show, source=prompt, suffix=f"#ask{number}")
        return turn_result(self.agent_app, self.agent_app.run(ask, awaitable=False))

    def last_result(self) -> TurnResult | None:
        """Return the last turn's result."""
        last = self.agent_app.last
        return None if last is None else turn_result(self.agent_app, last)


async def _later(value: Any) -> Any:
    return value


AgentMagics.agent.__doc__ = (AgentMagics.agent.__doc__ or "") + "\n\n" + cell_parser().format_help()
