"""Builders for tests of tools: a context over a temporary workspace, and a call in one line."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nbagent.core.messages import JsonObject
from nbagent.tools.kernel_types import CodeOutcome, VariableSummary
from nbagent.tools.registry import validate_input
from nbagent.tools.tool import Artifact, SeenCell, Tool, ToolContext, ToolOutput


class Kept:
    """Stands in for the artifact store: remembers every text kept."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def __call__(self, text: str) -> Artifact:
        self.texts.append(text)
        digest = hashlib.sha256(text.encode()).hexdigest()
        return Artifact(digest=digest, path=f".nbagent/artifacts/{digest[:8]}.txt", size_bytes=len(text.encode()))


class FakeKernel:
    """Returns a prepared outcome and describes prepared variables."""

    def __init__(self, outcome: CodeOutcome | None = None, variables: Sequence[VariableSummary] = ()) -> None:
        self.outcome = outcome or CodeOutcome()
        self.bound = tuple(variables)
        self.asked: list[tuple[str, ...]] = []

    async def run_code(self, code: str, *, label: str) -> CodeOutcome:
        return self.outcome

    async def inspect(self, names: Sequence[str], *, detail: str = "summary") -> tuple[VariableSummary, ...]:
        self.asked.append(tuple(names))
        known = {v.name: v for v in self.bound}
        return tuple(known.get(n) or VariableSummary(name=n, type_name="", exists=False) for n in names)

    async def variables(self) -> tuple[VariableSummary, ...]:
        return self.bound


class FakeNotebook:
    """A notebook at `path` whose `ran` cells have run."""

    def __init__(self, path: Path | None, ran: Sequence[SeenCell] = ()) -> None:
        self._path = path
        self._ran = tuple(ran)
        self.proposed: list[str] = []

    def path(self) -> Path | None:
        return self._path

    def cells_run(self) -> Sequence[SeenCell]:
        return self._ran

    def propose(self, source: str) -> str:
        self.proposed.append(source)
        return "The cell is offered below."


class Desk:
    """A workspace with what the model has seen so far; `call` runs a tool as the runtime does."""

    def __init__(self, root: Path, **options: Any) -> None:
        self.root = root
        self.kept = Kept()
        self.seen: dict[str, JsonObject] = {}
        self.options: dict[str, Any] = {"cap_chars": 64_000, "window_tokens": 200_000, **options}

    def context(self) -> ToolContext:
        given = {"cwd": self.root, **self.options}
        return ToolContext(call_id="call", root=self.root, keep=self.kept, seen=dict(self.seen), **given)

    async def acall(self, tool: Tool, **input: Any) -> ToolOutput:
        output = await tool.run(validate_input(tool.spec, input), self.context())
        if "key" in output.meta:
            self.seen[str(output.meta["key"])] = output.meta
        return output

    def call(self, tool: Tool, **input: Any) -> ToolOutput:
        return asyncio.run(self.acall(tool, **input))
