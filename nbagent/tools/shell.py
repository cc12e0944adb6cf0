"""The tool `shell`: a command in its own process group, its output bounded, the group ended on timeout and stop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

from nbagent.core.errors import ToolError
from nbagent.core.messages import JsonObject
from nbagent.tools.output import cap_text, clean_text, cut_line
from nbagent.tools.summarize import MASK, is_secret_name, mask_secrets
from nbagent.tools.tool import ToolContext, ToolOutput, ToolSpec

DEFAULT_TIMEOUT_S: Final = 120
MAX_TIMEOUT_S: Final = 600
MAX_OUTPUT_BYTES: Final = 128 << 20
READ_BYTES: Final = 1 << 16
TERM_GRACE_S: Final = 2.0
STOP_GRACE_S: Final = 0.2  # Stop has to end a turn within half a second
NOTE_CHARS: Final = 300

SHELL_SPEC: Final = ToolSpec(
    name="shell",
    description=(
        "Run a shell command in the workspace and return what it printed (stdout and stderr together) and its exit "
        "code. It gets no input, so pass flags like --yes; everything it started ends with it. Long output is cut "
        "and kept in a file. For work on the person's variables use python."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "command": {"type": "string", "description": "The command line"},
            "timeout_s": {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_TIMEOUT_S,
                "description": f"Seconds until it is stopped (default {DEFAULT_TIMEOUT_S})",
            },
        },
        "required": ["command"],
    },
    access="run",
    formats_itself=True,
)


@dataclass(frozen=True, slots=True)
class ShellTool:
    """Runs commands. `max_output_bytes` is where a command that prints without end is stopped.

    `environ` are further variables of the environment.
    """

    spec: ToolSpec = SHELL_SPEC
    max_output_bytes: int = MAX_OUTPUT_BYTES
    environ: Mapping[str, str] = field(default_factory=dict)

    def summary(self, input: JsonObject) -> str:
        """Return the first line of the command."""
        return cut_line(str(input.get("command", "")).strip().split("\n")[0], 100)

    def paths(self, input: JsonObject) -> tuple[str, ...]:
        """Return nothing: a command's paths are not known before it runs."""
        return ()

    async def run(self, input: JsonObject, context: ToolContext) -> ToolOutput:
        """Run the command.

        Raises:
            ToolError: it could not be started.
            CancelledError: stopped from outside, after the whole process group was killed.
        """
        command = str(input["command"])
        if not command.strip() or "\0" in command:
            raise ToolError("command is empty or holds a NUL character; give one command line")
        if not context.cwd.is_dir():
            raise ToolError(f"the working folder {context.cwd} does not exist any more; make it, or use python")
        timeout_s = float(input.get("timeout_s") or DEFAULT_TIMEOUT_S)
        with tempfile.TemporaryFile(prefix="nbagent-") as spill:
            environ = {**child_environment(os.environ), **self.environ}
            ended = await _run(
                command, context.cwd, environ, spill, timeout_s=timeout_s, max_bytes=self.max_output_bytes
            )
            return await asyncio.to_thread(_format, spill, ended, context, timeout_s=timeout_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ended:
    """How a command ended: by itself with `code`, or stopped for `why` ("time", "output")."""

    code: int | None
    why: str
    size_bytes: int


@dataclass(slots=True)
class _Sink:
    """Takes what comes through the pipe into `spill`, until `max_bytes` came."""

    pipe: int
    spill: BinaryIO
    max_bytes: int
    size_bytes: int = 0

    def take(self) -> bool:
        """Read once; returns False when enough came."""
        try:
            chunk = os.read(self.pipe, READ_BYTES)
        except BlockingIOError:
            return True
        self.spill.write(chunk[: self.max_bytes - self.size_bytes])
        self.size_bytes = min(self.max_bytes, self.size_bytes + len(chunk))
        return self.size_bytes < self.max_bytes

    def drain(self) -> None:
        """Take what is in the pipe already, without waiting: a child in the background may hold it open."""
        before = -1
        while self.size_bytes != before:
            before = self.size_bytes
            if not self.take():
                return


async def _run(
    command: str, cwd: Path, environ: Mapping[str, str], spill: BinaryIO, *, timeout_s: float, max_bytes: int
) -> _Ended:
    """Run a command to its end, its timeout or its output limit; no process of its group is left."""
    with _pipe() as (read_end, write_end):
        sink = _Sink(read_end, spill, max_bytes)
        starting = asyncio.ensure_future(
            asyncio.create_subprocess_exec(
                _shell(), "-c", command,
                stdin=asyncio.subprocess.DEVNULL, stdout=write_end, stderr=write_end,
                cwd=cwd, env=environ, start_new_session=True,
            )
        )  # fmt: skip
        try:
            process = await asyncio.shield(starting)
        except OSError as error:
            raise ToolError(f"the command could not be started: {error.strerror}; a shorter one may do") from None
        except asyncio.CancelledError:
            await asyncio.shield(_end_started(starting))
            raise
        grace_s = TERM_GRACE_S
        try:
            why = await _wait(process, sink, timeout_s=timeout_s)
        except asyncio.CancelledError:
            grace_s = STOP_GRACE_S
            raise
        finally:
            await _end_group(process, grace_s=grace_s)
        sink.drain()
        return _Ended(code=process.returncode if not why else None, why=why, size_bytes=sink.size_bytes)


async def _wait(process: asyncio.subprocess.Process, sink: _Sink, *, timeout_s: float) -> str:
    """Wait for the command; returns "" when it ended, "time", or "output" when it printed too much."""
    loop = asyncio.get_running_loop()
    enough = asyncio.Event()

    def on_readable() -> None:
        if not sink.take():
            loop.remove_reader(sink.pipe)
            enough.set()

    loop.add_reader(sink.pipe, on_readable)
    exited = asyncio.ensure_future(process.wait())
    full = asyncio.ensure_future(enough.wait())
    try:
        await asyncio.wait({exited, full}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if enough.is_set():
            return "output"
        return "" if exited.done() else "time"
    finally:
        loop.remove_reader(sink.pipe)
        exited.cancel()
        full.cancel()


async def _end_started(starting: asyncio.Future[asyncio.subprocess.Process]) -> None:
    """End a command whose start was not told yet: it may run already, and its children outlive a start given up."""
    with contextlib.suppress(OSError):
        await _end_group(await starting, grace_s=STOP_GRACE_S)


async def _end_group(process: asyncio.subprocess.Process, *, grace_s: float) -> None:
    """End every process of the group: TERM, a moment, KILL; the KILL is sent also when this is cancelled."""
    try:
        if process.returncode is None and _signal_group(process.pid, signal.SIGTERM):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), grace_s)
    finally:
        _signal_group(process.pid, signal.SIGKILL)
    await process.wait()


def _signal_group(group: int, number: int) -> bool:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


@contextlib.contextmanager
def _pipe() -> Iterator[tuple[int, int]]:
    """Give a pipe whose read end does not block.

    The write end stays open here, so that the pipe never ends: a command is over when it exits, not when
    the last child in the background has closed its output.
    """
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    try:
        yield read_end, write_end
    finally:
        os.close(read_end)
        os.close(write_end)


def _shell() -> str:
    return shutil.which("bash") or "/bin/sh"


def child_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without what looks like a secret, and without pagers and prompts."""
    kept = {name: value for name, value in environment.items() if not _is_secret(name, value)}
    return {**kept, "TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}


def _is_secret(name: str, value: str) -> bool:
    if re.search(r"_SOCK$|_PROXY$", name, re.IGNORECASE):  # an agent's socket and proxies hold no key of ours
        return False
    return is_secret_name(name) or MASK in mask_secrets(value)


def _format(spill: BinaryIO, ended: _Ended, context: ToolContext, *, timeout_s: float) -> ToolOutput:
    """Return the output inside the cap, the whole of it kept, and how the command ended."""
    spill.seek(0)
    full = context.scrub(clean_text(spill.read()))
    room = context.cap_chars - NOTE_CHARS
    notes = _notes(ended, timeout_s=timeout_s)
    meta = {"exit_code": ended.code, "size_bytes": ended.size_bytes}
    failed = ended.code != 0
    if len(full) <= room:
        text = "\n".join([*([full.rstrip("\n")] if full.strip() else ["(no output)"]), *notes])
        return ToolOutput(text=text, status="error" if failed else "ok", meta=meta)
    artifact = context.keep(full)
    capped = cap_text(full, room, artifact_path=artifact.path)
    return ToolOutput(
        text="\n".join([capped.text.rstrip("\n"), *notes]),
        status="error" if failed else "ok",
        full_text=full,
        shown=capped.shown,
        meta={**meta, "artifact_path": artifact.path},
    )


def _notes(ended: _Ended, *, timeout_s: float) -> list[str]:
    """Return how a command ended, in a line; no durations, so that the same run gives the same text."""
    if ended.why == "time":
        return [f"[stopped after {timeout_s:g} s; raise timeout_s (at most {MAX_TIMEOUT_S}) or do less at once]"]
    if ended.why == "output":
        return [f"[stopped: it printed {ended.size_bytes:,} bytes, the most that are taken; filter with head or grep]"]
    if ended.code is not None and ended.code < 0:
        return [f"[killed by signal {-ended.code} ({signal.Signals(-ended.code).name})]"]
    return [f"[exit code {ended.code}]"]
