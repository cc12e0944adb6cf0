"""TurnRunner: makes one turn ready and drives it: place in the tree, prefix, tail, tools, model, limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from nbagent.context.assemble import assemble
from nbagent.context.engine import Engine, FlushHook, no_flush
from nbagent.context.fitting import refused
from nbagent.context.policy import Policy
from nbagent.context.tail import SeenVariable, Surroundings, compose, told_state
from nbagent.core.budget import Budget
from nbagent.core.effects import TurnBegan
from nbagent.core.entries import Entry, Snapshot, TurnStart
from nbagent.core.errors import Diagnostic, UsageProblem
from nbagent.core.messages import JsonObject, Prefix, Request, without_images
from nbagent.core.turn import Limits, TurnInput, close_broken_turn, run_turn
from nbagent.core.view import View, build_view
from nbagent.models.catalog import ModelFacts
from nbagent.models.registry import NamedModel
from nbagent.runtime import provider_edits as provider
from nbagent.runtime.agents import SubAgents
from nbagent.runtime.approvals import Approvals, granted_in, granted_this_turn
from nbagent.runtime.contexts import PrefixInForce, choose_policy, led_before, make_engine, threshold_share
from nbagent.runtime.driver import Driver
from nbagent.runtime.finishing import finished_turn, vars_of
from nbagent.runtime.flushing import flush_of
from nbagent.runtime.gauge import SessionGauge
from nbagent.runtime.matching import CellKey
from nbagent.runtime.playback import Playback, Withheld, played
from nbagent.runtime.ports import NOTHING, Asked, FinishedTurn, TurnOptions, TurnPorts
from nbagent.runtime.recalling import ConversationRecall
from nbagent.runtime.remembering import Remembering
from nbagent.runtime.rules import Rules
from nbagent.runtime.scrubbed import guarded
from nbagent.runtime.skilling import TOOLS as SKILL_TOOLS
from nbagent.runtime.skilling import SessionSkills
from nbagent.runtime.spent import DayLedger, spent_before, unpriced_ceilings
from nbagent.runtime.startup import StartupFile, file_marks, make_prefix, startup_files, stored_prefix
from nbagent.runtime.toolbox import Toolbox
from nbagent.runtime.turn_notes import TurnNotes, turn_notes
from nbagent.runtime.turn_skills import granted, granted_in_turn, reattached
from nbagent.runtime.turn_tools import tool_contexts, turn_skills
from nbagent.runtime.writer import SessionWriter
from nbagent.store.artifacts import Artifacts
from nbagent.store.secrets import Scrubber
from nbagent.store.settings import Settings
from nbagent.tools.tool import Artifact, Tool, ToolSpec

REPLY_TOKENS = 16_000  # DECISIONS 15
MODES = ("plan", "ask", "auto")


@dataclass(slots=True, kw_only=True)
class TurnRunner:
    """What turns of one session share. `folder` is where the notebook is; it is the workspace root too.

    `day` is the person's ledger over all sessions, None where nothing is paid. `notices` are lines for
    the person that the next turn to end brings. `forks` is where conversations of forked skills are kept, None for
    nowhere; `label` begins the names of inner code.
    """

    writer: SessionWriter
    artifacts: Artifacts
    settings: Settings
    folder: Path
    home: Path
    tools: Mapping[str, Tool]
    environ: Mapping[str, str] = field(default_factory=dict)
    session_name: str = ""
    gauge: SessionGauge = field(default_factory=SessionGauge)
    prefixes: dict[str, Prefix] = field(default_factory=dict)
    scrubber: Scrubber = field(default_factory=Scrubber)
    day: DayLedger | None = None
    notices: list[str] = field(default_factory=list)
    numbers: dict[str, float] = field(default_factory=dict)
    forks: Path | None = None
    agents: SubAgents = field(default_factory=SubAgents)
    label: str = ""
    memory: Remembering = field(init=False)
    recall: ConversationRecall = field(init=False)
    skills: SessionSkills = field(init=False)
    _told: set[str] = field(default_factory=set)
    _in_force: PrefixInForce = field(default_factory=PrefixInForce)

    def __post_init__(self) -> None:
        self.recall = ConversationRecall(path=self.writer.tree.path, artifacts=self.artifacts)
        self.skills = SessionSkills(
            folder=self.folder, home=self.home, environ=self.environ, settings=lambda: self.settings,
            entries=lambda: self.writer.tree, artifacts=self.artifacts,
        )  # fmt: skip
        self.memory = Remembering(
            folder=self.folder, home=self.home, settings=lambda: self.settings, today=self.writer.clock.today,
            scrub=lambda text: str(self.scrubber.value(text)), environ=self.environ, session=self.session_name,
        )  # fmt: skip

    # ------------------------------------------------------------ the head

    def prefix_of(self, digest: str) -> Prefix:
        """Return the stored prefix `digest`; read from the artifacts at the first use, made anew where it is lost."""
        if digest not in self.prefixes:
            self.prefixes[digest] = stored_prefix(self.artifacts, digest, self.new_prefix, self.notices.append)
        return self.prefixes[digest]

    def root_prefix(self, path: Sequence[Entry]) -> str:
        """Return the digest of the prefix in force on `path`; a new conversation gets one, stored at once."""
        return self._in_force.of(path) or self.store_prefix(self.new_prefix(path))

    def new_prefix(self, path: Sequence[Entry] = ()) -> Prefix:
        """Return the prefix that a new conversation gets now, or that of another agent which goes on after `path`."""
        files, _ = self._startup_files()
        listed = self.skills.prompt() if self.tools.keys() & SKILL_TOOLS else ""
        place = f"The workspace folder is {self.folder}."
        extra = {"skills": listed, "system": place, **led_before(path, self.prefix_of)}
        prefix = make_prefix(self.specs(), files, extra=extra, mode=self.settings.context.prompt)
        return replace(prefix, system=tuple(self.scrubber.value(b) for b in prefix.system))

    def fresh_prefix(self) -> dict[str, Any]:
        """Make the prefix anew; return what a compaction remembers of it: its digest, and the marks of its files."""
        files, _ = self._startup_files()
        made = self.store_prefix(self.new_prefix(self.writer.tree.path()))
        return {"prefix": made, "files": file_marks(files), "skills": self.skills.mark()}

    def _startup_files(self) -> tuple[tuple[StartupFile, ...], tuple[Diagnostic, ...]]:
        return startup_files(self.folder, self.home, self.writer.clock.today(), self.settings.context.prompt)

    def store_prefix(self, prefix: Prefix) -> str:
        """Keep `prefix` as an artifact and return its digest."""
        digest = self.artifacts.put_text(prefix.to_text())
        self.prefixes[digest] = prefix
        return digest

    def specs(self) -> tuple[ToolSpec, ...]:
        """Return the tools that the person did not rule out, in their fixed order."""
        denied = {p.strip() for p in self.settings.tools.deny if "(" not in p} | self.skills.hidden_tools()
        return tuple(t.spec for name, t in self.tools.items() if name not in denied)

    # ------------------------------------------------------------ the tail

    async def snapshot(
        self, path: Sequence[Entry], ports: TurnPorts, masked: tuple[str, ...], facts: ModelFacts
    ) -> Snapshot | None:
        """Return what the model has to hear of the notebook, the day and the files; None when nothing changed."""
        observe = self.settings.observe
        seen: tuple[SeenVariable, ...] = ()
        if ports.kernel is not None and observe != "off":
            found = await ports.kernel.variables()
            seen = tuple(
                SeenVariable(name=v.name, type=v.type_name, shape=v.shape, identity=v.identity) for v in found
            )
        view = build_view(path)
        before, first = told_state(path, view.in_sight), view.turn is None
        files, problems = self._startup_files()
        if first or before.get("files") != file_marks(files):
            self.notices.extend(map(str, problems))
        notes = self._notes(view, path, before, facts)
        told = self.skills.tell(before.get("skills"), None if first else self.prefix_of(self.root_prefix(path)))
        now = Surroundings(
            today=self.writer.clock.today(), kernel=ports.kernel_id, observe=observe, variables=seen, cells=ports.cells,
            files={f.name: f.text for f in files}, file_marks=file_marks(files), masked=masked,
            notes=notes.lines, skills=told.text, marks={**notes.marks, **({"skills": told.mark} if told.mark else {})},
        )  # fmt: skip
        return compose(before, now, first=first)

    def _notes(self, view: View, path: Sequence[Entry], told: JsonObject, facts: ModelFacts) -> TurnNotes:
        if not (digest := self._in_force.of(path)):
            return TurnNotes()
        used, budget = self.gauge.look(view, self.prefix_of(digest), facts), self.budget(facts)
        return turn_notes(view, path, told, root=self.folder, used_tokens=used, budget=budget)

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
        mode = self.mode(options)
        digest = self.root_prefix(path)
        names, limits = [str(t["name"]) for t in self.prefix_of(digest).tools], self.limits(options)
        return TurnStart(
            turn=turn, model=named.name, policy=self.policy(options),
            policy_numbers=dict(self.policy_of(self.policy(options)).numbers), mode=mode,
            prefix=digest if self.artifacts.has(digest) else self.store_prefix(self.prefix_of(digest)),
            cell_id=cell.cell_id, source_hash=cell.source_hash, order=cell.order,
            masked_tools=self.masked(names, options, mode),
            options=provider.options(named, self.settings.context.provider, self.budget(named.facts)),
            limits={k: v for k, v in vars_of(limits).items() if v is not None},
        )  # fmt: skip

    def mode(self, options: TurnOptions) -> str:
        """Return the permission mode of a turn.

        Raises:
            UsageProblem: there is none of that name.
        """
        mode = options.mode or self.settings.mode
        if mode not in MODES:
            raise UsageProblem(f"unknown mode {mode!r}; the modes are: {', '.join(MODES)}")
        return mode

    def policy(self, options: TurnOptions) -> str:
        """Return the policy's name.

        Raises:
            PolicyError: there is none of that name.
        """
        name = options.policy or self.settings.policy
        self.policy_of(name)
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
        share = threshold_share(self.policy_of(self.settings.policy), window)
        return Budget(window_tokens=window, max_output_tokens=REPLY_TOKENS, threshold_share=share)

    def request(self, view: View, start: TurnStart, max_tokens: int, named: NamedModel) -> Request:
        """Return the request for `view`, and let the gauge look at it."""
        prefix = self.prefix_of(self._in_force.of(self.writer.tree.path()) or start.prefix)
        share = self.gauge.look(view, prefix, named.facts) / self.budget(named.facts).window_tokens
        options = provider.options_now(start.options, self.writer.tree.path(), share)
        request = assemble(view, prefix, model=start.model, max_tokens=max_tokens, options=options)
        seen = request.messages if named.facts.sees_images else without_images(request.messages)
        return request if seen is request.messages else replace(request, messages=seen)

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
        asked: Asked = NOTHING,
        snapshot: Snapshot | None = None,
        limits: Limits,
        playback: Playback | None = None,
    ) -> FinishedTurn:
        """Drive a turn at the leaf: a new one, or with `start` None the last one on; with `playback` a recorded one."""
        tree = self.writer.tree
        if playback is None:
            mode, budget = self.settings.context.provider, self.budget(named.facts)
            self.notices += provider.begin(self.writer, named, mode, budget, self._told)
        path = tree.path()
        before = len(path)
        current = start or build_view(path).turn
        if current is None:
            raise UsageProblem("there is no turn to go on with; run a %%agent cell first")
        number = sum(1 for e in path if isinstance(e.body, TurnStart)) + (1 if start else 0)
        window, replayed = self.budget(named.facts).window_tokens, playback is not None
        ports = guarded(ports, self.scrubber)
        ports.sink(
            TurnBegan(turn=current.turn, number=number, model=current.model, window_tokens=window, replayed=replayed)
        )
        driver = self._driver(named, ports, current, number, playback)
        if start is not None:
            driver.approvals.granted_turn.clear()  # they were given for the turn before
        driver.approvals.grants = granted_in_turn(path) if start is None else granted(asked.brought)
        self.notices.extend(unpriced_ceilings(named, limits) if playback is None else ())
        all_sessions = self.day if self.settings.limits.day_cost_usd is not None else None
        session, day = spent_before(self.writer.tree, self.writer.clock.now(), all_sessions)
        turn = TurnInput(
            path=path, start=start, prompt=asked.blocks, brought=asked.brought, snapshot=snapshot, limits=limits,
            reply_tokens=REPLY_TOKENS, price=driver.price,
            assemble=lambda view, begun, room: self.request(view, begun, room, named),
            output_tokens=lambda usage: self.gauge.usage(usage).output_tokens,
            spent_session_usd=session, spent_day_usd=day,
        )  # fmt: skip
        if playback is None:
            flush = flush_of(self, driver, current)
            engine = self.engine(named, current, flush=flush)
            before_call, line = partial(flush.before_call, engine), partial(refused, engine)
            turn = replace(turn, before_call=before_call, on_overflow=engine.on_overflow, overflow_line=line)
        steps = run_turn(turn) if playback is None else played(turn, playback.player)
        output = await driver.run(steps)
        output = replace(output, text=self.scrubber.text(output.text), message=self.scrubber.text(output.message))
        return finished_turn(
            output, ports, entries=tuple(tree.path()[before:]), context_tokens=self.gauge.context_tokens, number=number,
            window_tokens=window, player=playback.player if playback else None,
            notices=(*self._take_notices(driver), *provider.told_edits(tree.path()[before:])),
        )  # fmt: skip

    def engine(
        self, named: NamedModel, start: TurnStart, *, focus: str = "", edited: str | None = None,
        flush: FlushHook = no_flush,
    ) -> Engine:  # fmt: skip
        """Return what manages the context: the policy of the turn `start`, with its numbers."""
        path = self.writer.tree.path()

        def prefix() -> Prefix:  # a compaction may make it anew in the middle of the turn
            return self.prefix_of(self._in_force.of(path) or start.prefix)

        self.gauge.replay(path, prefix(), named.facts)
        return make_engine(
            named=named, policy=provider.leaving(self.policy_of(start.policy), start.options), prefix=prefix,
            budget=self.budget(named.facts), options=provider.without_compaction(start.options),
            meter=self.gauge.meter(named.facts.family),
            predict=lambda view: self.gauge.look(view, prefix(), named.facts),
            price_of=self.gauge.price, working_tokens=self.settings.window_tokens,
            fresh_prefix=self.fresh_prefix, skills_note=self.skills_note, keep=self.keep,
            focus=focus, edited=edited, flush=flush,
        )  # fmt: skip

    def skills_note(self, replaced: Sequence[Entry]) -> str:
        """Return the skills in use among what a note replaces, as reference: a share of the window at most."""
        kept = self.writer.tree.path()[len(replaced) :]
        return reattached(replaced, kept, self.artifacts, self.settings.window_tokens)

    def side_driver(self, named: NamedModel, ports: TurnPorts, start: TurnStart) -> Driver:
        """Return a driver for what is no turn: a compaction by hand."""
        return self._driver(named, guarded(ports, self.scrubber), start, 0, None)

    def policy_of(self, name: str) -> Policy:
        """Return the policy `name` with the numbers in force.

        Raises:
            PolicyError: there is none of that name.
        """
        return choose_policy(name, self.numbers, self.settings.threshold)

    def _take_notices(self, driver: Driver) -> tuple[str, ...]:
        lines = [*self.notices, *driver.toolbox.problems]
        self.notices.clear()
        if self.day is not None and self.day.problem:
            lines.append(self.day.problem)
            self.day.problem = ""
        return tuple(dict.fromkeys(lines))

    def _driver(
        self, named: NamedModel, ports: TurnPorts, start: TurnStart, number: int, playback: Playback | None
    ) -> Driver:
        approvals, tools = self.approvals(ports, start), dict(self.tools)
        consent = ports.consent
        if playback is not None:
            withheld = playback.player.not_run()
            approvals = replace(approvals, mode=playback.mode, rules=playback.rules, withheld=withheld)
            tools = {name: Withheld(tool=tool, reasons=withheld) for name, tool in tools.items()}
            consent = ports.consent if playback.asks_consent else None
        player = playback.player if playback is not None else None
        skills = turn_skills(self, named, ports, start, approvals)
        context = tool_contexts(self, named, ports, number, start, skills)
        toolbox = Toolbox(tools=tools, context=context, tape=player, consent=consent)
        return Driver(
            writer=self.writer, model=player or named.model, toolbox=toolbox, approvals=approvals, gauge=self.gauge,
            clock=self.writer.clock, sink=ports.sink, steering=ports.steering, on_request=ports.on_request,
            after_result=skills.after, scrub=self.scrubber.value, beginning=self.scrubber.beginning,
            price=lambda model, usage: 0.0 if playback and playback.free else self.gauge.price(named.facts, usage),
        )  # fmt: skip

    def approvals(self, ports: TurnPorts, start: TurnStart) -> Approvals:
        """Return what decides on the calls of the turn that begins with `start`."""
        tree = self.writer.tree
        return Approvals(
            tools=dict(self.tools), mode=start.mode, rules=self.rules(), ask=ports.ask, root=self.folder,
            granted_turn=granted_this_turn(tree.path()), granted_notebook=granted_in(tree),
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
