"""Lab: sessions over a temporary folder with scripted models, a namespace for a kernel, and a clock that is told."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import hashlib
import io
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from nbagent.context.tail import CellRun
from nbagent.core.entries import Snapshot
from nbagent.core.messages import Request, joined_text
from nbagent.models.catalog import lookup
from nbagent.models.registry import NamedModel
from nbagent.models.scripted import ScriptedModel
from nbagent.runtime.clock import SystemClock
from nbagent.runtime.matching import CellKey
from nbagent.runtime.neutral import Neutral
from nbagent.runtime.ports import FinishedTurn, TurnOptions, TurnPorts
from nbagent.runtime.session import Session
from nbagent.store.settings import load_settings
from nbagent.tools.kernel_types import CodeError, CodeOutcome, VariableSummary

MODEL = "claude-sonnet-5-5"


class Namespace:
    """A kernel in a dictionary: runs code with exec, keeps what was run in `ran`."""

    def __init__(self, **bound: Any) -> None:
        self.names: dict[str, Any] = dict(bound)
        self.ran: list[str] = []

    async def run_code(self, code: str, *, label: str) -> CodeOutcome:
        self.ran.append(code)
        out, result = io.StringIO(), None
        try:
            body = ast.parse(code).body
            last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
            with contextlib.redirect_stdout(out):
                exec(compile(ast.Module(body, []), label, "exec"), self.names)
                if last is not None:
                    value = eval(compile(ast.Expression(last.value), label, "eval"), self.names)
                    result = None if value is None else repr(value)
        except Exception as error:
            failed = CodeError(name=type(error).__name__, message=str(error), traceback=traceback.format_exc(limit=0))
            return CodeOutcome(stdout=out.getvalue(), error=failed)
        return CodeOutcome(stdout=out.getvalue(), result_text=result)

    async def inspect(self, names: Sequence[str], *, detail: str = "summary") -> tuple[VariableSummary, ...]:
        return tuple(self._summary(n, text=f"value {self.names.get(n)!r}") for n in names)

    async def variables(self) -> tuple[VariableSummary, ...]:
        return tuple(self._summary(n) for n in sorted(self.names) if not n.startswith("_"))

    def _summary(self, name: str, text: str = "") -> VariableSummary:
        if name not in self.names:
            return VariableSummary(name=name, type_name="", exists=False)
        value = self.names[name]
        return VariableSummary(name=name, type_name=type(value).__name__, identity=repr(value), text=text)


class ToldClock(SystemClock):
    """A clock whose day, and whose time when given, is what the test says."""

    def __init__(self, day: str = "2026-11-30 (Monday)", at: float | None = None) -> None:
        self.day = day
        self.at = at

    def today(self) -> str:
        return self.day

    def now(self) -> float:
        return super().now() if self.at is None else self.at


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


class Lab:
    """One folder. `open` opens a session in it with a script of replies; `send` runs a cell, whose id is its name.

    `requests` are the requests of the session that is open; `asked` the questions put to the person.
    """

    def __init__(self, folder: Path, *, environ: dict[str, str] | None = None, **options: Any) -> None:
        self.folder = folder
        self.home = folder.parent / f"{folder.name}-home"
        folder.mkdir(exist_ok=True)
        self.environ = {"HOME": str(self.home), "ANTHROPIC_API_KEY": "k", **(environ or {})}
        self.options = options
        self.clock = ToldClock()
        self.kernel = Namespace()
        self.kernel_id = "kernel-1"
        self.cells: tuple[CellRun, ...] = ()
        self.answers: list[str | None] | None = None
        self.asked: list[str] = []
        self.events: list[Any] = []
        self.requests: list[Request] = []
        self.consent: Any = None
        self.order = 0
        self.session: Session
        self._runner: asyncio.Runner | None = None

    def run(self, work: Any) -> Any:
        return self._runner.run(work) if self._runner is not None else asyncio.run(work)

    def close(self) -> None:
        """Close the session, and with a live one the client and its loop."""
        if self._runner is not None:
            for named in self.session._models.values():
                self._runner.run(named.model.close())
            self._runner.close()
            self._runner = None
        self.session.close()

    def settings(self, **options: Any) -> Any:
        given = {"home": str(self.home), **self.options, **options}
        return load_settings(self.folder, self.environ, options={"test": {k.replace("__", "."): v for k, v in given.items()}})

    def open(
        self, replies: Iterable[Any] = (), *, notebook: str | None = None, name: str | None = "x", model: str = MODEL,
        live: bool = False, **options: Any,
    ) -> Session:
        path = self.folder / notebook if notebook else None
        self.session = Session.open(
            folder=self.folder, notebook=path, settings=self.settings(**options), home=self.home,
            name=None if notebook else name, environ=self.environ, clock=self.clock,
        )
        self.order, self.requests = 0, []
        if live:
            self._runner = asyncio.Runner()
        else:
            self.script(replies, model)
        return self.session

    def script(self, replies: Iterable[Any], model: str = MODEL, *, source: Any = "scripted") -> ScriptedModel:
        scripted = ScriptedModel([[r] if isinstance(r, dict) else r for r in replies])
        self.session._models[model] = NamedModel(name=model, model=scripted, facts=lookup(model), source=source)
        return scripted

    def restart(self, replies: Iterable[Any] = (), **given: Any) -> Session:
        """Close, and open again in another kernel with nothing in it."""
        self.close()
        self.kernel, self.kernel_id = Namespace(), self.kernel_id + "'"
        return self.open(replies, **given)

    def replay(self, cassette: Any, **options: Any) -> Session:
        self.session = Session.replay(
            cassette, folder=self.folder, settings=self.settings(**options), home=self.home, environ={}
        )
        self.order, self.requests = 0, []
        return self.session

    def ports(self) -> TurnPorts:
        return TurnPorts(
            kernel=self.kernel, ask=self._ask if self.answers is not None else None, sink=self.events.append,
            kernel_id=self.kernel_id, cells=self.cells, consent=self.consent, on_request=self.requests.append,
        )  # fmt: skip

    async def _ask(self, text: str) -> str | None:
        self.asked.append(text)
        assert self.answers is not None
        return self.answers.pop(0) if self.answers else "d"

    def cell(self, prompt: str, cell: str | None) -> CellKey:
        self.order += 1
        return CellKey(cell_id=cell, source_hash=digest(prompt), order=self.order)

    def send(self, prompt: str, cell: str | None = "c1", **options: Any) -> FinishedTurn:
        return self.run(self.session.send(prompt, self.cell(prompt, cell), TurnOptions(**options), self.ports()))

    def resume(self, **options: Any) -> FinishedTurn:
        return self.run(self.session.resume(TurnOptions(**options), self.ports()))

    # ------------------------------------------------------------ looking

    def bodies(self, kind: type) -> list[Any]:
        return [e.body for e in self.session.tree.path() if isinstance(e.body, kind)]

    def told(self) -> list[str]:
        """The snapshots on the path."""
        return [s.text for s in self.bodies(Snapshot)]

    def sent(self) -> list[bytes]:
        """The requests as a recording has them: without this folder."""
        neutral = Neutral(self.folder, self.home)
        return [neutral.text(r.canonical_bytes().decode()).encode() for r in self.requests]

    def prompts(self, request: Request | None = None) -> list[str]:
        """What the person wrote, as the last request (or `request`) holds it."""
        shown = request or self.requests[-1]
        texts = [str(b["text"]) for m in shown.messages if m.role == "user" for b in m.blocks if b.get("type") == "text"]
        return [t for t in texts if not t.startswith(("<notebook-state>", "<attached"))]


def result_texts(request: Request) -> list[str]:
    """The tool results in a request."""
    found = [b for m in request.messages for b in m.blocks if b.get("type") == "tool_result"]
    return [b["content"] if isinstance(b["content"], str) else joined_text(b["content"]) for b in found]


def extended_by(first: Request, second: Request) -> bool:
    """Whether the canonical bytes of `second` begin with those of `first`."""
    return second.canonical_bytes().startswith(first.canonical_bytes())


def write_notebook(path: Path, *cell_ids: str) -> None:
    import json

    cells = [{"cell_type": "code", "id": i, "source": [], "metadata": {}, "outputs": [], "execution_count": None} for i in cell_ids]
    path.write_text(json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells}))
