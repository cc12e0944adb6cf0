"""Rewrites a `%%agent` cell into an awaited call, since IPython does not await what a magic returns.

See ipython issues 11314 and 14157; to be removed when a magic's coroutine is awaited. Cells of one line are rewritten
as well: `%agent resume` and `%skills run`, for the same reason, and `%agent TEXT?`, `%memory TEXT?` and
`%skills TEXT?`, which IPython takes for a request for help.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

RUNNING = "skills"  # the line magic whose `run` is a turn
ASKING = "memory"  # a magic whose line may be a question
AWAITABLE = "--awaitable"  # put before the options: the magic then returns a coroutine


def agent_body(source: str, *, magic: str = "agent") -> str | None:
    """Return what stands below the `%%agent` line of `source`, byte for byte; None when it is another cell.

    >>> agent_body("%%agent -q\\nhow many rows?  \\n\\n")
    'how many rows?  \\n\\n'
    """
    lines = _from_magic(source.splitlines(keepends=True), magic)
    return None if lines is None else "".join(lines[1:])


def split_awaitable(line: str) -> tuple[bool, str]:
    """Split the magic's line into "was rewritten by the transformer" and the options as the person typed them."""
    head, _, rest = line.partition(" ")
    return (True, rest) if head == AWAITABLE else (False, line)


def _from_magic(lines: list[str], magic: str) -> list[str] | None:
    for i, line in enumerate(lines):
        if line.strip():
            return lines[i:] if line.split()[0] == f"%%{magic}" and line.startswith("%%") else None
    return None


class AgentCellTransform:
    """An input transformer for `input_transformers_cleanup`, put first: the others would strip `>>>` from prompts.

    It may be tried on any cell, and gives back what is not its own.

    `depth` counts the cells that run: only a cell of the person's (depth 0) is rewritten. `raw_source` returns the
    cell as it was sent, so that a final newline that IPython added can be told from one that was typed.
    """

    has_side_effects = True  # check_complete skips it, and keeps IPython's rule for '%%' cells in the terminal

    def __init__(
        self,
        *,
        depth: Callable[[], int],
        raw_source: Callable[[], str | None] = lambda: None,
        enabled: Callable[[], bool] = lambda: True,
        magic: str = "agent",
    ) -> None:
        self._depth = depth
        self._raw_source = raw_source
        self._enabled = enabled
        self._magic = magic

    def __call__(self, lines: list[str]) -> list[str]:
        """Return `lines`, or the one line that stands for the `%%agent` cell."""
        cell = _from_magic(lines, self._magic)
        if self._depth() != 0 or not self._enabled():
            return lines
        if cell is None:
            return self._line_cell(lines)
        options = cell[0].strip().removeprefix(f"%%{self._magic}").strip()
        body = self._as_typed("".join(cell[1:]), "".join(lines))
        if options and not body:
            body = "\n"  # else IPython answers, and it knows only that the body is empty
        line = f"{AWAITABLE} {options}".rstrip()
        return [f"await get_ipython().run_cell_magic({self._magic!r}, {line!r}, {body!r})\n"]

    def _line_cell(self, lines: list[str]) -> list[str]:
        source = "".join(lines).strip()
        words = source.split()
        if len(words) < 2 or words[0] not in (f"%{self._magic}", f"%{ASKING}", f"%{RUNNING}") or "\n" in source:
            return lines
        name = words[0][1:]
        resumes = name == self._magic and words[1] == "resume" and not source.endswith("?")
        if resumes or (name == RUNNING and words[1] == "run"):
            line = f"{AWAITABLE} {source.removeprefix(words[0]).strip()}"
            return [f"await get_ipython().run_line_magic({name!r}, {line!r})\n"]
        if source.endswith("?"):
            return [f"get_ipython().run_line_magic({name!r}, {source.removeprefix(words[0]).strip()!r})\n"]
        return lines

    def _as_typed(self, body: str, cell: str) -> str:
        raw = self._raw_source()
        typed = raw is not None and raw == cell
        return body if typed else body.removesuffix("\n")


def install(shell: Any, transform: AgentCellTransform) -> None:
    """Put `transform` before the shell's other transformers."""
    shell.input_transformers_cleanup.insert(0, transform)


def remove(shell: Any, transform: AgentCellTransform) -> None:
    """Take `transform` out again; nothing happens when it is not there."""
    shell.input_transformers_cleanup[:] = [t for t in shell.input_transformers_cleanup if t is not transform]
