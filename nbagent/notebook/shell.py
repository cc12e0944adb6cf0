"""ShellKernel: the agent's way into the person's namespace, over IPython's InteractiveShell.

Agent-run code behaves like a cell of its own (top-level await, magics, figures in place), but it leaves the
person's cell as it was: no history, no new number, no error of the cell, no way to end or block the kernel.
"""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import getpass
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from nbagent.notebook.capture import CaptureLimits, Recorder, capturing, printable, recording, shadowed
from nbagent.notebook.host import CodeStopped, Jobs
from nbagent.notebook.tracebacks import describe_error, plain
from nbagent.notebook.tracker import is_interactive
from nbagent.runtime.doors import Scrubber, outline, summarize
from nbagent.tools.kernel_types import CodeCancelled, CodeError, CodeOutcome, VariableSummary

AWAIT_REFUSED = (
    "top-level await does not work in this cell (it runs inside %%capture, %%time or a script); use code without await"
)


class InputUnavailable(EOFError):
    """Code that the agent runs asked the person for input; raised to the model."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}() is not available to code that the agent runs: take the value from a variable, "
            "or ask the person in your answer"
        )


class ShellKernel:
    """The Kernel protocol over `shell`, for one turn: `jobs` lends the thread.

    `spill` gets every piece of text that runs write, also what the outcome and the cell leave out; it is called
    on the writing thread and must be quick. What runs show in the cell passes `scrubber`.
    """

    def __init__(
        self,
        shell: Any,
        jobs: Jobs,
        *,
        limits: CaptureLimits | None = None,
        spill: Callable[[str], None] | None = None,
        scrubber: Scrubber | None = None,
    ) -> None:
        self._shell = shell
        self._jobs = jobs
        self._limits = limits or CaptureLimits()
        self._spill = spill
        self._scrubber = scrubber

    async def run_code(self, code: str, *, label: str, spill: Callable[[str], None] | None = None) -> CodeOutcome:
        """Run `code` in the person's namespace; what it shows appears in the cell, a failure only in the outcome.

        `label` stands in tracebacks ("5.2" gives "Cell In[5.2]"). Runs of one turn never overlap.

        Raises:
            CodeCancelled: Stop, or the caller was cancelled; it carries the outcome so far.
        """
        recorder = Recorder(self._limits, spill or self._spill, self._scrubber)
        run = _Run(self._shell, self._jobs, code, label, recorder)
        async with self._jobs.exclusive:
            try:
                await self._jobs.on_main(run.start)
            except CodeStopped:
                raise CodeCancelled(run.outcome()) from None
            except asyncio.CancelledError:
                run.stopped = True
                raise CodeCancelled(run.outcome()) from None
        return run.outcome()

    async def variables(self) -> tuple[VariableSummary, ...]:
        """List the person's variables, sorted by name: no modules, nothing private, nothing of IPython's own."""
        found: tuple[VariableSummary, ...] = await self._look(lambda: _list_variables(self._shell))
        return found

    async def inspect(self, names: Sequence[str], *, detail: str = "summary") -> tuple[VariableSummary, ...]:
        """Describe the variables `names`, in this order; `detail` is "summary" or "full"."""
        found: tuple[VariableSummary, ...] = await self._look(
            lambda: tuple(_describe(self._shell, name, detail) for name in names)
        )
        return found

    async def attach(self, name: str) -> VariableSummary | None:
        """Describe the variable `name`, None when there is none."""
        (summary,) = await self.inspect([name])
        return summary if summary.exists else None

    async def ask(self, question: str) -> str | None:
        """Ask the person by `input()` below the cell; None when nobody can answer."""
        answer: str | None = await self._look(lambda: _ask(self._shell, question))
        return answer

    async def _look(self, fn: Callable[[], Any]) -> Any:
        def job() -> Any:
            with self._jobs.interruptible():
                return fn()

        return await self._jobs.on_main(job)


def _list_variables(shell: Any) -> tuple[VariableSummary, ...]:
    hidden, absent = shell.user_ns_hidden, object()
    names = sorted(
        name
        for name, value in list(shell.user_ns.items())
        if isinstance(name, str) and not name.startswith("_") and hidden.get(name, absent) is not value
    )
    module = type(sys)
    return tuple(outline(name, shell.user_ns[name]) for name in names if not isinstance(shell.user_ns[name], module))


def _describe(shell: Any, name: str, detail: str) -> VariableSummary:
    if name not in shell.user_ns:
        return VariableSummary(name=name, type_name="", text="not defined", exists=False)
    return summarize(name, shell.user_ns[name], full=detail == "full")


def _ask(shell: Any, question: str) -> str | None:
    if not is_interactive(shell):
        return None
    try:
        return input(question)
    except (EOFError, NotImplementedError, OSError):  # StdinNotImplementedError is a NotImplementedError
        return None


class _Run:
    """One run of code: started on the main thread, its outcome read from anywhere."""

    def __init__(self, shell: Any, jobs: Jobs, code: str, label: str, recorder: Recorder) -> None:
        self._shell = shell
        self._jobs = jobs
        self._code = code if code.strip() else "pass"  # IPython fires no pre_run_cell for a blank cell
        self._label = label
        self._recorder = recorder
        self._held: list[BaseException] = []
        self._error: CodeError | None = None
        self._duration_s = 0.0
        self.stopped = False

    def start(self) -> Any:
        """Prepare the run; return the coroutine that does it. It suspends only where the code awaits."""
        return self._main()

    def outcome(self) -> CodeOutcome:
        """Return what the run did so far."""
        error = self._error
        if self.stopped and error is None:
            error = CodeError(name="KeyboardInterrupt", message="stopped", traceback="KeyboardInterrupt: stopped")
        taken = self._recorder
        return CodeOutcome(
            stdout=taken.stdout,
            stderr=taken.stderr,
            displays=taken.displays,
            result_text=taken.result_text,
            error=error,
            duration_s=self._duration_s,
            dropped_chars=taken.dropped_chars,
            displays_dropped=taken.displays_dropped,
            stopped=self.stopped,
        )

    async def _main(self) -> None:
        shell, began = self._shell, time.monotonic()
        code, failure = self._transformed()
        awaits = shell.should_run_async(self._code, transformed_cell=code, preprocessing_exc_tuple=failure)
        if awaits and not self._jobs.can_await:
            trace = f"RuntimeError: {AWAIT_REFUSED}"
            self._error = CodeError(name="RuntimeError", message=AWAIT_REFUSED, traceback=trace)
            return
        result = None
        with self._as_inner_cell(), capturing(shell, self._recorder), _guarded(shell):
            try:
                with self._jobs.interruptible(awaits=awaits):
                    result = await shell.run_cell_async(
                        self._code, store_history=False, transformed_cell=code, preprocessing_exc_tuple=failure
                    )
            except (KeyboardInterrupt, asyncio.CancelledError) as e:
                self._note(e)
            finally:
                shell.events.trigger("post_execute")  # matplotlib's inline backend shows its figures here
                shell.events.trigger("post_run_cell", result)
                self._duration_s = time.monotonic() - began
                self._finish(result)
        if self.stopped:
            raise CodeStopped("stopped")

    def _transformed(self) -> tuple[str, Any]:
        try:
            return self._shell.transform_cell(self._code), None
        except Exception:  # noqa: BLE001 - IPython shows it as the cell's error; so do we
            return self._code, sys.exc_info()

    def _finish(self, result: Any) -> None:
        error = None if result is None else result.error_before_exec or result.error_in_exec
        if error is not None:
            self._note(error)
        for held in self._held:
            if held is not error:
                self._recorder.record("stderr", printable(describe_error(held, self._name_of).traceback + "\n"))

    def _note(self, error: BaseException) -> None:
        """Take over `error` (IPython swallows interrupts as well: look for those here)."""
        if self._jobs.was_interrupted() and isinstance(error, KeyboardInterrupt | asyncio.CancelledError):
            self.stopped = True
            described = describe_error(error, self._name_of)
            trace = described.traceback.replace("CancelledError: ", "KeyboardInterrupt: ")
            self._error = CodeError(name="KeyboardInterrupt", message="stopped", traceback=f"{trace.rstrip()} stopped")
        elif self._error is None:
            self._error = describe_error(error, self._name_of)

    def _name_of(self, filename: str) -> str | None:
        named = getattr(self._shell.compile, "format_code_name", lambda _: None)(filename)
        return None if named is None else f"{named[0]} {named[1]}"

    @contextlib.contextmanager
    def _as_inner_cell(self) -> Iterator[None]:
        """Keep the outer cell's number, result object and label; label this code in tracebacks."""
        shell, hook, compiler = self._shell, self._shell.displayhook, self._shell.compile
        kept = [
            (shell, name, getattr(shell, name))
            for name in ("execution_count", "last_execution_result", "last_execution_succeeded")
        ]
        kept += [(hook, "exec_result", hook.exec_result)]
        if hasattr(shell, "_last_traceback_during_displayhook"):  # ipykernel 7.4: would fail the cell
            kept.append((shell, "_last_traceback_during_displayhook", shell._last_traceback_during_displayhook))
        hold = shadowed(shell, showtraceback=self._hold, showsyntaxerror=self._hold, showindentationerror=self._hold)
        with hold, shadowed(hook, quiet=self._quiet), shadowed(compiler, cache=self._cache(compiler.cache)):
            try:
                yield
            finally:
                for target, name, value in kept:
                    setattr(target, name, value)

    def _hold(self, exc_tuple: Any = None, *_args: Any, **_options: Any) -> None:
        """Stand in for showtraceback, which would publish an error of the cell; `%debug` still finds the frame."""
        exc_tuple = exc_tuple if isinstance(exc_tuple, tuple) else None
        with contextlib.suppress(ValueError, AttributeError):
            _, value, trace = self._shell._get_exc_info(exc_tuple)
            self._shell.InteractiveTB.tb = trace
            self._held.append(value)

    def _quiet(self) -> bool:
        """Say whether the code ends in `;`; IPython looks for it in the history, where this code is not."""
        try:
            return bool(self._shell.displayhook.semicolon_at_end_of_expression(self._code))
        except Exception:  # noqa: BLE001 - the tokenizer fails on magics; then nothing is silenced
            return False

    def _cache(self, cache: Callable[..., str]) -> Callable[..., str]:
        def labelled(code: str, number: int = 0, raw_code: str | None = None) -> str:
            name = cache(code, number, raw_code=raw_code)
            if hasattr(self._shell.compile, "_filename_map"):
                self._shell.compile._filename_map[name] = self._label
            return name

        return labelled


@contextlib.contextmanager
def _guarded(shell: Any) -> Iterator[None]:
    """Keep code of this context from asking for input, ending the kernel or opening the pager."""
    recorder = recording()

    def ours() -> bool:
        return recording() is recorder

    def refuse(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def asked(*args: Any, **options: Any) -> Any:
            if ours():
                raise InputUnavailable(name)
            return original(*args, **options)

        return asked

    def leave() -> None:
        raise SystemExit("code that the agent runs cannot end the kernel")

    with contextlib.ExitStack() as stack:
        stack.enter_context(shadowed(builtins, input=refuse("input", builtins.input)))
        stack.enter_context(shadowed(getpass, getpass=refuse("getpass", getpass.getpass)))
        stack.enter_context(shadowed(shell, ask_exit=leave))
        payloads = getattr(shell, "payload_manager", None)
        if payloads is not None and recorder is not None:
            write = _page_to_stdout(payloads.write_payload, recorder)
            stack.enter_context(shadowed(payloads, write_payload=write))
        yield


def _page_to_stdout(write_payload: Callable[..., Any], recorder: Recorder) -> Callable[..., Any]:
    """Let `name?` print for the model instead of opening the person's pager."""

    def write(payload: Any, *args: Any, **options: Any) -> Any:
        if payload.get("source") == "page":
            recorder.record("stdout", printable(plain(str(payload.get("data", {}).get("text/plain", "")))))
            return None
        return write_payload(payload, *args, **options)

    return write
