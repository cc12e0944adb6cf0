"""TurnRunner: makes one turn ready and drives it: place in the tree, prefix, tail, tools, model, limits."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from nbagent.context.assemble import assemble
from nbagent.context.tail import SeenVariable, Surroundings, compose, last_state
from nbagent.core.budget import Budget, Usage
from nbagent.core.effects import Notice, TurnBegan, TurnDone
from nbagent.core.entries import Entry, Snapshot, TurnStart, UsageReported
from nbagent.core.errors import PolicyError, UsageProblem
from nbagent.core.messages import Block, Prefix, Request
from nbagent.core.turn import Limits, TurnInput, TurnOutput, close_broken_turn, run_turn
from nbagent.core.view import View, ViewFold, build_view, visible_results
from nbagent.models.cassette import Player, RecordedTurn
from nbagent.models.catalog import ModelFacts
from nbagent.models.registry import NamedModel
from nbagent.runtime.approvals import Approvals, Rules, granted_in, granted_this_turn
from nbagent.runtime.driver import Driver
from nbagent.runtime.gauge import SessionGauge, price
from nbagent.runtime.matching import CellKey
from nbagent.runtime.ports import FinishedTurn, TurnOptions, TurnPorts
from nbagent.runtime.startup import make_prefix, startup_files
from nbagent.runtime.toolbox import Toolbox
from nbagent.runtime.writer import SessionWriter
from nbagent.store.artifacts import Artifacts
from nbagent.store.settings import Settings
from nbagent.tools.output import cap_chars
from nbagent.tools.tool import Artifact, Tool, ToolContext, ToolSpec

REPLY_TOKENS = 16_000  # DECISIONS 15
POLICIES = ("nbagent",)
MODES = ("plan", "ask", "auto")


@dataclass(slots=True, kw_only=True)
class TurnRunner:
    """What turns of one session share. `folder` is where the notebook is; it is the workspace root too."""

    writer: SessionWriter
    artifacts: Artifacts
    settings: Settings
    folder: Path
    home: Path
    tools: Mapping[str, Tool]
    gauge: SessionGauge = field(default_factory=SessionGauge)
    prefixes: dict[str, Prefix] = field(default_factory=dict)

    # ------------------------------------------------------------ the head

    def prefix_of(self, digest: str) -> Prefix:
        """Return the stored prefix `digest`; read from the artifacts at the first use."""
        if digest not in self.prefixes:
            self.prefixes[digest] = Prefix.from_text(self.artifacts.get_text(digest))
        return self.prefixes[digest]

    def root_prefix(self, path: Sequence[Entry]) -> str:
        """Return the digest of the prefix in force on `path`; a new conversation gets one, stored at once."""
        start = build_view(path).turn
        if start is not None:
            return start.prefix
        return self.store_prefix(self.new_prefix())

    def new_prefix(self) -> Prefix:
        """Return the prefix that a new conversation gets now."""
        files, _ = startup_files(self.folder, self.home)
        return make_prefix(self.specs(), files, extra={"system": f"The workspace folder is {self.folder}."})

    def store_prefix(self, prefix: Prefix) -> str:
        """Keep `prefix` as an artifact and return its digest."""
        digest = self.artifacts.put_text(prefix.to_text())
        self.prefixes[digest] = prefix
        return digest

    def specs(self) -> tuple[ToolSpec, ...]:
        """Return the tools that the person did not rule out, in their fixed order."""
        denied = {p.strip() for p in self.settings.tools.deny if "(" not in p}
        return tuple(t.spec for name, t in self.tools.items() if name not in denied)

    # ------------------------------------------------------------ the tail

    async def snapshot(self, path: Sequence[Entry], ports: TurnPorts, masked: tuple[str, ...]) -> Snapshot | None:
        """Return what the model has to hear of the notebook, the day and the files; None when nothing changed."""
        observe = self.settings.observe
        seen: tuple[SeenVariable, ...] = ()
        if ports.kernel is not None and observe != "off":
            found = await ports.kernel.variables()
            seen = tuple(
                SeenVariable(name=v.name, type=v.type_name, shape=v.shape, identity=v.identity) for v in found
            )
        files, _ = startup_files(self.folder, self.home)
        now = Surroundings(
            today=self.writer.clock.today(), kernel=ports.kernel_id, observe=observe, variables=seen, cells=ports.cells,
            files={f.name: f.text for f in files}, file_marks={f.name: f.mark for f in files}, masked=masked,
        )  # fmt: skip
        first = build_view(path).turn is None
        return compose(last_state(path), now, first=first)

    def masked(self, start_specs: Sequence[str], options: TurnOptions, mode: str) -> tuple[str, ...]:
        """Return the tools of the prefix that this turn may not use."""
        masked = set()
        if options.tools is not None:
            unknown = [t for t in options.tools if t not in self.tools]
            if unknown:
                raise UsageProblem(f"unknown tool {unknown[0]!r} in --tools; the tools are: {', '.join(self.tools)}")
            masked |= set(start_specs) - set(options.tools)
        if mode == "plan":
            masked |= {n for n in start_specs if n in self.tools and self.tools[n].spec.access != "read"}
        denied = {p.strip() for p in self.settings.tools.deny if "(" not in p}
        return tuple(sorted((masked | denied) & set(start_specs)))

    # ------------------------------------------------------------ one turn

    def start_of(
        self, turn: str, path: Sequence[Entry], named: NamedModel, options: TurnOptions, cell: CellKey
    ) -> TurnStart:
        """Return the entry that a new turn begins with."""
        mode = options.mode or self.settings.mode
        if mode not in MODES:
            raise UsageProblem(f"unknown mode {mode!r}; the modes are: {', '.join(MODES)}")
        digest = self.root_prefix(path)
        names = [str(t["name"]) for t in self.prefix_of(digest).tools]
        limits = self.limits(options)
        return TurnStart(
            turn=turn, model=named.name, policy=self.policy(options), mode=mode, prefix=digest, cell_id=cell.cell_id,
            source_hash=cell.source_hash, order=cell.order, masked_tools=self.masked(names, options, mode),
            options=provider_options(named), limits={k: v for k, v in vars_of(limits).items() if v is not None},
        )  # fmt: skip

    def policy(self, options: TurnOptions) -> str:
        """Return the policy's name.

        Raises:
            PolicyError: there is none of that name.
        """
        name = options.policy or self.settings.policy
        if name not in POLICIES:
            raise PolicyError(f"unknown policy {name!r}; the policies are: {', '.join(POLICIES)}")
        return name

    def limits(self, options: TurnOptions) -> Limits:
        """Return the ceilings of a turn: the options, else the settings."""
        own = self.settings.limits
        return Limits(
            max_steps=options.max_steps if options.max_steps is not None else own.max_steps,
            max_tokens=options.max_tokens if options.max_tokens is not None else own.max_tokens,
            max_cost_usd=options.max_cost_usd if options.max_cost_usd is not None else own.max_cost_usd,
            session_cost_usd=own.session_cost_usd, day_cost_usd=own.day_cost_usd,
        )  # fmt: skip

    def budget(self, facts: ModelFacts) -> Budget:
        """Return the working window and what is kept free of it."""
        window = min(self.settings.window_tokens, facts.window_tokens)
        threshold = self.settings.threshold or 0.6
        return Budget(window_tokens=window, max_output_tokens=REPLY_TOKENS, threshold_share=threshold)

    def request(self, view: View, start: TurnStart, max_tokens: int, named: NamedModel) -> Request:
        """Return the request for `view`, and let the gauge look at it."""
        prefix = self.prefix_of(start.prefix)
        self.gauge.look(view, prefix, named.facts)
        return assemble(view, prefix, model=start.model, max_tokens=max_tokens, options=start.options)

    def close_broken(self) -> None:
        """Give a turn that a crash left open its results and its end."""
        for body in close_broken_turn(build_view(self.writer.tree.path())):
            self.writer.write(body)

    async def run(
        self,
        named: NamedModel,
        ports: TurnPorts,
        *,
        start: TurnStart | None,
        prompt: tuple[Block, ...] = (),
        snapshot: Snapshot | None = None,
        limits: Limits,
        player: Player | None = None,
        free: bool = False,
    ) -> FinishedTurn:
        """Drive a turn at the leaf: a new one, or with `start` None the last one on.

        `player` plays a recording; `free` prices its calls at nothing (they were paid for once).
        """
        tree = self.writer.tree
        path = tree.path()
        before = len(tree)
        current = start or build_view(path).turn
        if current is None:
            raise UsageProblem("there is no turn to go on with; run a %%agent cell first")
        number = sum(1 for e in path if isinstance(e.body, TurnStart)) + (1 if start else 0)
        window = self.budget(named.facts).window_tokens
        replayed = player is not None
        ports.sink(
            TurnBegan(turn=current.turn, number=number, model=current.model, window_tokens=window, replayed=replayed)
        )
        driver = self._driver(named, ports, current, number, player)
        session, day = self.spent()
        turn = TurnInput(
            path=path, start=start, prompt=prompt, snapshot=snapshot, limits=limits, reply_tokens=REPLY_TOKENS,
            assemble=lambda view, begun, room: self.request(view, begun, room, named),
            price=lambda model, usage: 0.0 if free else price(named.facts, usage),
            output_tokens=lambda usage: Usage.from_wire(usage).output_tokens,
            spent_session_usd=session, spent_day_usd=day,
        )  # fmt: skip
        output = await driver.run(run_turn(turn))
        return self._finished(output, ports, driver, before=before, number=number, window=window, player=player)

    def _finished(
        self, output: TurnOutput, ports: TurnPorts, driver: Driver, *, before: int, number: int, window: int,
        player: Player | None,
    ) -> FinishedTurn:  # fmt: skip
        entries = tuple(list(self.writer.tree)[before:])
        reports = [e.body for e in entries if isinstance(e.body, UsageReported)]
        used = Usage.from_wire(reports[-1].usage).context_tokens if reports else 0
        total = Usage()
        for report in reports:
            total += Usage.from_wire(report.usage)
        for problem in driver.toolbox.problems:
            ports.sink(Notice(text=problem))
        ports.sink(
            TurnDone(
                outcome=output.outcome, message=output.message, steps=output.steps, context_tokens=used,
                window_tokens=window, cost_usd=output.cost_usd, duration_s=output.duration_s, usage=vars_of(total),
            )
        )  # fmt: skip
        return FinishedTurn(
            output=output, entries=entries, number=number, context_tokens=used, window_tokens=window,
            replayed=player is not None, differences=tuple(player.differences) if player else (),
        )  # fmt: skip

    def _driver(
        self, named: NamedModel, ports: TurnPorts, start: TurnStart, number: int, player: Player | None
    ) -> Driver:
        path = self.writer.tree.path()
        approvals = Approvals(
            tools=dict(self.tools), mode=start.mode, rules=self.rules(), ask=ports.ask,
            granted_turn=granted_this_turn(path), granted_notebook=granted_in(path),
        )  # fmt: skip
        if player is not None:
            approvals = replace(approvals, mode="auto", rules=Rules(allow=("*",)))
        counter = iter(range(1, 1 << 30))

        def context(call: Any) -> ToolContext:
            now = self.writer.tree.path()
            seen = visible_results(ViewFold(now).view(), now)
            window = self.budget(named.facts).window_tokens
            return ToolContext(
                call_id=call.id, root=self.folder, cwd=self.folder, cap_chars=cap_chars(window), window_tokens=window,
                keep=self.keep, kernel=ports.kernel, notebook=ports.notebook,
                extra_roots=(self.artifacts.folder, self.home / "skills"),
                seen={str(m["key"]): m for m in seen.values() if "key" in m}, sees_images=named.facts.sees_images,
                label=f"{number}.{next(counter)}", estimate=self.gauge.meter(named.facts.family).text,
            )  # fmt: skip

        toolbox = Toolbox(tools=dict(self.tools), context=context, tape=player, consent=ports.consent)
        return Driver(
            writer=self.writer, model=player or named.model, toolbox=toolbox, approvals=approvals, gauge=self.gauge,
            clock=self.writer.clock, sink=ports.sink, steering=ports.steering, on_request=ports.on_request,
        )  # fmt: skip

    def rules(self) -> Rules:
        """Return the person's rules on tools."""
        own = self.settings.tools
        return Rules(allow=tuple(own.allow), ask=tuple(own.ask), deny=tuple(own.deny))

    def keep(self, text: str) -> Artifact:
        """Keep a full text and say where it is."""
        digest = self.artifacts.put_text(text)
        size = len(text.encode("utf-8", "replace"))
        return Artifact(digest=digest, path=self.artifacts.shown_path(digest), size_bytes=size)

    def spent(self) -> tuple[float, float]:
        """Return what this session cost in all, and today (UTC), in US dollars."""
        day = datetime.datetime.fromtimestamp(self.writer.clock.now(), datetime.UTC).date()
        session = today = 0.0
        for entry in self.writer.tree:
            if isinstance(entry.body, UsageReported):
                session += entry.body.cost_usd
                if datetime.datetime.fromtimestamp(entry.at, datetime.UTC).date() == day:
                    today += entry.body.cost_usd
        return session, today


def provider_options(named: NamedModel) -> dict[str, Any]:
    """Return the provider's parameters for a model; the same for a whole conversation (claude.md A6)."""
    if named.source == "live" and named.facts.thinking in ("adaptive", "always"):
        return {"thinking": {"type": "adaptive", "display": "summarized"}}
    return {}


def replayed_start(recorded: RecordedTurn, cell: CellKey, prefix: str) -> TurnStart:
    """Return the start of a replayed turn: as recorded, at this cell."""
    return replace(
        recorded.start, cell_id=cell.cell_id, source_hash=cell.source_hash, order=cell.order, prefix=prefix
    )


def vars_of(value: Any) -> dict[str, Any]:
    """Return the fields of a slotted dataclass as a mapping."""
    return {name: getattr(value, name) for name in value.__dataclass_fields__}
