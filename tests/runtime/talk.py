"""Talk: a Session against the wire fake, driven from synchronous tests. No real waiting: `sleep` only takes notes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar

from nbagent.core.entries import Entry
from nbagent.core.messages import JsonObject, joined_text
from nbagent.models.anthropic import AnthropicModel
from nbagent.models.catalog import lookup
from nbagent.models.registry import NamedModel
from nbagent.runtime.matching import CellKey
from nbagent.runtime.ports import FinishedTurn, TurnOptions, TurnPorts
from nbagent.runtime.session import Session
from nbagent.store.settings import load_settings
from nbagent.tools.tool import ToolContext, ToolOutput, ToolSpec
from tests.fakes.messages_api import FakeMessagesAPI
from tests.patience import LeapLoop

T = TypeVar("T")
MODEL = "claude-sonnet-5-5"


class Probe:
    """A tool `name` that runs `action(input)`; what it returns is its text."""

    def __init__(
        self, name: str, action: Callable[[JsonObject], Awaitable[str]], *, concurrent: bool = False
    ) -> None:
        schema = {"type": "object", "properties": {"x": {}}, "additionalProperties": True}
        self.spec = ToolSpec(
            name=name, description="For tests.", input_schema=schema, access="read", concurrent=concurrent
        )
        self._action = action

    def summary(self, input: JsonObject) -> str:
        return "probe"

    def paths(self, input: JsonObject) -> tuple[str, ...]:
        return ()

    async def run(self, input: JsonObject, context: ToolContext) -> ToolOutput:
        return ToolOutput(text=await self._action(input))


class Talk:
    """One session in `folder`. `events` are what a display saw, `slept` the waits that would have been."""

    def __init__(
        self, folder: Path, fake: FakeMessagesAPI | None, *, model: str = MODEL, tools: Mapping[str, Any] | None = None,
        environ: Mapping[str, str] | None = None, read_timeout_s: float = 60.0, max_tries: int = 5,
        sleep: Callable[[float], Awaitable[None]] | None = None, options: JsonObject | None = None,
    ) -> None:  # fmt: skip
        self.folder = folder
        self._read_timeout_s = read_timeout_s
        self.events: list[Any] = []
        self.slept: list[float] = []
        self.cells = 0
        own = {"ANTHROPIC_API_KEY": "k"} | ({"ANTHROPIC_BASE_URL": fake.base_url} if fake else {})
        self.environ = {"HOME": str(folder), **own, **(environ or {})}
        settings = load_settings(
            folder, self.environ, options={"test": {"home": str(folder / "home"), "model": model, **(options or {})}}
        )
        self.session = Session.open(
            folder=folder, notebook=None, settings=settings, home=folder / "home", name="x", environ=self.environ
        )
        if tools is not None:
            self.session.runner.tools = tools
        self.model = AnthropicModel(
            environ=self.environ, sleep=sleep or self._sleep, read_timeout_s=read_timeout_s, max_tries=max_tries
        )
        # Not through `open_model`: only so do the tests decide how long a wait is.
        self.session._models[model] = NamedModel(
            name=model, model=self.model, facts=lookup(model), source="live", ask_facts=self.model.facts
        )
        self.ports = TurnPorts(sink=self.events.append)
        self._runner = asyncio.Runner(loop_factory=LeapLoop)

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    def leap_over_stalls(self, fake: FakeMessagesAPI) -> None:
        """Have the time for reading be over as soon as an answer stalls, and not before."""
        loop = self._runner.get_loop()
        assert isinstance(loop, LeapLoop)
        loop.leap_over_stalls(fake, self._read_timeout_s + 1)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def send(self, prompt: str = "hi", **options: Any) -> FinishedTurn:
        return self.run(self.sending(prompt, **options))

    async def sending(self, prompt: str = "hi", **options: Any) -> FinishedTurn:
        self.cells += 1
        cell = CellKey(cell_id=f"c{self.cells}", source_hash=f"h{self.cells}", order=self.cells)
        return await self.session.send(prompt, cell, TurnOptions(**options), self.ports)

    def resume(self) -> FinishedTurn:
        return self.run(self.session.resume(TurnOptions(), self.ports))

    def send_and_stop(self, when: Callable[[Any], bool], prompt: str = "hi") -> FinishedTurn:
        """Send, and press Stop at the first event for which `when` is true."""

        async def both() -> FinishedTurn:
            task = asyncio.ensure_future(self.sending(prompt))
            seen = self.ports.sink

            def watch(event: Any) -> None:
                seen(event)
                if when(event):
                    task.cancel()

            self.ports.sink = watch
            try:
                return await task
            finally:
                self.ports.sink = seen

        return self.run(both())

    def close(self) -> None:
        async def end() -> None:
            for named in self.session._models.values():
                await named.model.close()

        self.run(end())
        self._runner.close()
        self.session.close()

    def __enter__(self) -> Talk:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    # ------------------------------------------------------------ looking

    @property
    def path(self) -> list[Entry]:
        return self.session.tree.path()

    def bodies(self, kind: type[T]) -> list[T]:
        return [e.body for e in self.path if isinstance(e.body, kind)]

    def seen(self, kind: type[T]) -> list[T]:
        return [e for e in self.events if isinstance(e, kind)]

    def text(self) -> str:
        """The text of the last reply in the journal."""
        from nbagent.core.entries import AssistantMessage

        return joined_text(self.bodies(AssistantMessage)[-1].blocks)
