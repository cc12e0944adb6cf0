"""The sub-commands of `%agent`: each takes the agent and its words, and returns a value that shows itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from nbagent.core.entries import Entry
from nbagent.core.errors import Diagnostic, UsageProblem, UserError, one_line
from nbagent.notebook.app import Ask, NotebookAgent
from nbagent.notebook.commands.branches import fork_command, moves, only_word, revert_command
from nbagent.notebook.commands.subagents import agents_command
from nbagent.notebook.greeting import counted, facts_line, key_line
from nbagent.notebook.options import HELP, nearest, no_words, resume_options, split_line
from nbagent.notebook.reports.said import Said, help_of
from nbagent.notebook.reports.session import (
    SessionReport,
    SessionRow,
    SessionsReport,
    ToolRow,
    ToolsReport,
    TurnLogReport,
    TurnNode,
    TurnTreeReport,
)
from nbagent.notebook.words import MODES, OBSERVED
from nbagent.runtime.contexts import choose_policy
from nbagent.runtime.doors import Settings, kept_sessions, load_cassette
from nbagent.runtime.places import cell_ids, known_sessions
from nbagent.runtime.recording import Recorder
from nbagent.runtime.session import Session
from nbagent.runtime.set_start import names_of_skills
from nbagent.runtime.turn_facts import TurnFacts, calls_of, code_run, turn_facts

Words = Sequence[str]
Command = Callable[[NotebookAgent, Words], Any]


def welcome(agent: NotebookAgent) -> str:
    """Return the line of `%load_ext`; the same for the same settings and session, whatever the time or machine."""
    from nbagent import __version__

    try:
        settings = agent.settings()
        choose_policy(settings.policy, {}, settings.threshold)
    except UserError as error:
        return f"nbagent {__version__} is loaded, but cannot work yet: {one_line(str(error))}"
    turns: int | None = 0
    name, notes = settings.session or "new", ""
    if _is_known(agent, settings):
        try:
            session = agent.session()
        except UserError as error:
            turns, notes = None, f"\nThe conversation of this notebook cannot be opened now: {one_line(str(error))}"
        else:
            name, turns = session.place.name, session.opened.turns
            if (last := session.tree.turns_on_path()[-1:]) and last[0].end is None:
                notes += " · the last turn was broken off, see %agent"
            if session.place.how in ("renamed", "moved", "copied"):
                notes += f" ({session.place.how} from {session.place.origin})"
    if problems := len(agent.problems) + len(settings.diagnostics):
        notes = f" · {counted(problems, 'problem')}, see %agent{notes}"
    skills = len(names_at_a_glance(agent, settings))
    facts = (settings.model, settings.policy, settings.window_tokens)
    line = facts_line(*facts, session=name, turns=turns, skills=skills)
    return line + notes + key_line(agent.shell, has_key=agent.has_key(settings))


def names_at_a_glance(agent: NotebookAgent, settings: Settings) -> frozenset[str]:
    """Return the names of the skills there seem to be, without reading one."""
    values = {key: value for key, value, _ in settings.rows()}
    return names_of_skills(str(agent.folder()), values, trusted=settings.trusted)


def _is_known(agent: NotebookAgent, settings: Settings) -> bool:
    """Tell whether there is a conversation to go on with; nothing is written or copied."""
    known, notebook = known_sessions(agent.folder()), agent.notebook_path()
    if settings.session is not None:
        return any(s.name == settings.session for s in known)
    if notebook is None or not known:
        return False
    cells = cell_ids(notebook)
    return any(s.notebook == notebook or s.cells & cells for s in known)


# ---------------------------------------------------------------- %agent


def agent_command(agent: NotebookAgent, line: str, *, awaitable: bool = False) -> Any:
    """Run `%agent LINE`; with `awaitable` (the whole cell is `%agent resume`) return the coroutine of it.

    Raises:
        UsageProblem: no such sub-command; the line teaches `%%agent`.
    """
    words = split_line(line)
    if not words:
        return session_report(agent)
    if awaitable and words[0] == "resume":
        return _resumed(agent, words[1:])
    command = AGENT_COMMANDS.get(HELP.get(words[0], words[0]))
    if command is None:
        raise UsageProblem(
            f"%agent has no sub-command {words[0]!r}.{nearest(words[0], AGENT_COMMANDS)} To send a request, write it "
            "as a cell of its own: `%%agent` on the first line, the request below. `%agent help` lists the sub-commands"
        )
    return command(agent, words[1:])


def session_report(agent: NotebookAgent) -> SessionReport:
    """Return the session as it stands."""
    session = agent.session()
    settings = session.settings
    facts = turn_facts(session.tree)
    return SessionReport(
        name=session.place.name, model=session.model_name or settings.model, policy=settings.policy,
        mode=settings.mode, turns=sum(f.current for f in facts), stale=sum(f.stale for f in facts),
        cost_usd=sum(f.cost_usd for f in facts),
        journal_path="" if session.cassette is not None else agent.shown(session.place.journal),
        diagnostics=(*_unfinished(agent, facts), *agent.problems, *settings.diagnostics),
    )  # fmt: skip


def _unfinished(agent: NotebookAgent, facts: Sequence[TurnFacts]) -> tuple[Diagnostic, ...]:
    """Return what is to be said of the last turn when it did not complete."""
    last = next((f for f in facts if f.leaf), None)
    if last is None or agent.runs or last.outcome == "completed":
        return ()
    here = last.turn in agent.recent_turns()
    broken = "its end could not be written" if here else "its kernel ended before it did"
    how = {"broken off": broken, "stopped": "it was stopped"}
    outcome = _outcome(agent, last)
    cause = how.get(outcome) or last.message or f"it ended as {outcome}"
    return (Diagnostic(path=f"turn {last.turn}", line=None, cause=cause, remedy="`%agent resume` goes on with it"),)


def _help(agent: NotebookAgent, words: Words) -> Said:
    """This list."""
    return help_of("%agent", AGENT_COMMANDS, width=10)


def _tree(agent: NotebookAgent, words: Words) -> TurnTreeReport:
    """All turns as a tree: current, stale, forked."""
    no_words(words, "%agent tree")
    return TurnTreeReport(turns=_nodes(agent))


def _log(agent: NotebookAgent, words: Words) -> TurnLogReport:
    """The turns of the current path with outcome, calls and cost."""
    no_words(words, "%agent log")
    return TurnLogReport(turns=tuple(n for n in _nodes(agent) if n.current))


def _nodes(agent: NotebookAgent) -> tuple[TurnNode, ...]:
    return tuple(_node(f, _outcome(agent, f)) for f in turn_facts(agent.session().tree))


def _outcome(agent: NotebookAgent, facts: TurnFacts) -> str:
    """Return how a turn ended; one without an end runs now, or its kernel ended before it did."""
    return "broken off" if facts.outcome == "running" and not agent.runs else facts.outcome


def _node(facts: TurnFacts, outcome: str) -> TurnNode:
    return TurnNode(
        number=facts.number, turn_id=facts.turn, parent=facts.parent, cell=facts.cell, prompt=facts.prompt,
        outcome=outcome, model=facts.model, steps=facts.steps, tool_calls=len(facts.calls), tokens=facts.tokens,
        cost_usd=facts.cost_usd, current=facts.current, leaf=facts.leaf, stale=facts.stale,
        compacted=facts.compacted,
    )  # fmt: skip


def _resume(agent: NotebookAgent, words: Words) -> None:
    """Go on with the last turn after a stop, a limit, a cut reply or a crash: [--max-steps N] and the like."""
    agent.run(Ask(prompt="", options=resume_options(words), resume=True), awaitable=False)


async def _resumed(agent: NotebookAgent, words: Words) -> None:
    await agent.run(Ask(prompt="", options=resume_options(words), resume=True), awaitable=True)


@moves
def _reset(agent: NotebookAgent, words: Words) -> Said:
    """Begin a new conversation; the old one stays in the tree."""
    no_words(words, "%agent reset")
    agent.session().reset()
    return Said("The next turn begins a new conversation; the old one stays, see `%agent tree`.")


def _model(agent: NotebookAgent, words: Words) -> Said:
    """Show or choose the model of the turns to come."""
    session = agent.session()
    if words:
        name = only_word(words, "%agent model NAME")
        if not session.facts_of(name).known and session.cassette is None:  # the provider may know it
            agent.beside(lambda ports: session.ready_model(name))
        session.model_name = session.model(name).name
    named = session.model()
    facts, prices = named.facts, named.facts.prices
    cost = f", ${prices.input_usd:g} in and ${prices.output_usd:g} out per million tokens" if prices else ""
    return Said(f"{named.name}: window {facts.window_tokens:,} tokens{cost}")


def _mode(agent: NotebookAgent, words: Words) -> Said:
    """Show or choose the permissions: ask, auto, plan."""
    if words:
        mode = only_word(words, "%agent mode NAME")
        if mode not in MODES:
            raise UsageProblem(f"unknown mode {mode!r}; the modes are: {', '.join(MODES)}")
        agent.choose(mode=mode)
    return Said(f"mode {agent.session().settings.mode}")


def _observe(agent: NotebookAgent, words: Words) -> Said:
    """What the model hears of your cells and variables: off, outline, full."""
    if words:
        level = only_word(words, "%agent observe LEVEL")
        if level not in OBSERVED:
            raise UsageProblem(f"unknown level {level!r}; the levels are: {', '.join(OBSERVED)}")
        agent.choose(observe=level)
    return Said(f"observe {agent.session().settings.observe}")


def _tools(agent: NotebookAgent, words: Words) -> ToolsReport:
    """The tools, and what happens when the agent calls one."""
    no_words(words, "%agent tools")
    session = agent.session()
    runner = session.runner
    meter = runner.gauge.meter(session.model().facts.family)
    used = calls_of(session.tree.path())
    rules, mode = runner.rules(), session.settings.mode
    rows = []
    for spec in runner.specs():
        verdict = rules.verdict(spec.name, ()) or _by_mode(spec.access, mode)
        calls = sum(c.name == spec.name for c in used)
        tokens = meter.tool(spec.to_wire())
        text = one_line(spec.description)
        rows.append(ToolRow(name=spec.name, description=text, verdict=verdict, tokens=tokens, calls=calls))
    return ToolsReport(mode=mode, tools=tuple(rows))


def _by_mode(access: str, mode: str) -> str:
    if access == "read":
        return "allow"
    return {"plan": "deny", "auto": "allow"}.get(mode, "ask")


def _code(agent: NotebookAgent, words: Words) -> Said:
    """What the agent ran (in TURN, or on the path), as a cell to keep; it rebuilds the variables."""
    session = agent.session()
    entries: Sequence[Entry] = session.tree.path()
    if words:
        node = session.turn(only_word(words, "%agent code TURN"))
        path = session.tree.path(node.last)
        entries = path[path.index(node.start) :]
    pieces = code_run(entries)
    if not pieces:
        return Said("The agent ran no code here.")
    source = "\n\n".join(piece.strip() for piece in pieces)
    agent.shell.set_next_input(source, replace=False)
    return Said(source)


def _export(agent: NotebookAgent, words: Words) -> Said:
    """Write the conversation to FILE: .md, .html or .json."""
    target = agent.folder() / only_word(words, "%agent export FILE")
    session = agent.session()
    from nbagent.runtime.export import export

    export(session.tree.path(), target, title=session.place.name)
    return Said(f"Written: {agent.shown(target)}")


def _record(agent: NotebookAgent, words: Words) -> Said:
    """Write this conversation to FILE from now on (cassettes/NAME.json); `stop` ends it."""
    if list(words) == ["stop"]:
        if agent.recorder is None:
            raise UsageProblem("nothing is being recorded; `%agent record FILE` begins to")
        agent.recorder = None
        return Said("Recording ended.")
    notebook = agent.notebook_path()
    default = f"cassettes/{notebook.stem if notebook else 'session'}.json"
    name = only_word(words, "%agent record FILE", default)
    if not name.strip() or name.endswith(("/", "\\")) or name.startswith("-"):
        raise UsageProblem(f"%agent record FILE: {name!r} names no file; give one, such as {default}")
    path = agent.folder() / name
    recorder = Recorder(path=path)
    turns = recorder.begin(agent.session())
    agent.recorder = recorder
    return Said(f"Recording to {agent.shown(path)} ({counted(turns, 'turn')} so far); `%agent record stop` ends it.")


@moves
def _replay(agent: NotebookAgent, words: Words) -> Said:
    """Play the recording FILE instead of calling a model (--live-with-key: only without a key); `stop` ends it."""
    if list(words) == ["stop"]:
        if agent.opened is None or agent.opened.cassette is None:
            raise UsageProblem("no recording is being played; `%agent replay FILE` plays one")
        agent.switch(None)
        return Said("The recording is put away; the conversation of this notebook goes on.")
    live = "--live-with-key" in words
    name = only_word([w for w in words if w != "--live-with-key"], "%agent replay FILE")
    if live and agent.asks_people() and agent.has_key(agent.settings()):
        return Said("A key is set, so this notebook runs live; without one it plays the recording.")
    path = agent.folder() / name
    cassette = load_cassette(path)
    settings = agent.settings()
    agent.switch(Session.replay(cassette, folder=agent.folder(), settings=settings, home=Path(settings.home)))
    agent.consented = settings.trusted
    sources = {"scripted": "a scripted model", "fake": "a service on one machine", "live": "a live session"}
    made, turns = sources.get(cassette.source, cassette.source), counted(len(cassette.turns), "turn")
    return Said(f"Playing {Path(name).as_posix()}: {turns}, recorded from {made}. No key is needed.")


def _sessions(agent: NotebookAgent, words: Words) -> SessionsReport:
    """The sessions kept beside this notebook."""
    no_words(words, "%agent sessions")
    here = agent.opened.place.name if agent.opened else ""
    rows = tuple(
        SessionRow(
            name=kept.name, turns=kept.turns, model=kept.model, cost_usd=kept.cost_usd, notebook=kept.notebook,
            last_turn=kept.last_turn, current=kept.name == here,
        )
        for kept in kept_sessions(agent.folder())
    )  # fmt: skip
    return SessionsReport(sessions=rows)


@moves
def _open(agent: NotebookAgent, words: Words) -> SessionReport:
    """Go on with the session NAME in this notebook."""
    name = only_word(words, "%agent open NAME")
    names = [s.name for s in kept_sessions(agent.folder())]
    if name not in names:
        raise UsageProblem(f"no session is called {name!r}; here are: {', '.join(names) or 'none'}")
    settings = agent.settings()
    if agent.opened is None or agent.opened.place.name != name:
        agent.switch(None)
        agent.switch(
            Session.open(folder=agent.folder(), notebook=None, settings=settings, home=Path(settings.home), name=name)
        )
    return session_report(agent)


AGENT_COMMANDS: Mapping[str, Command] = {
    "help": _help, "resume": _resume, "tree": _tree, "log": _log, "fork": fork_command,
    "revert": revert_command, "reset": _reset, "model": _model, "mode": _mode, "observe": _observe,
    "tools": _tools, "code": _code, "agents": agents_command,
    "export": _export, "record": _record, "replay": _replay, "sessions": _sessions, "open": _open,
}  # fmt: skip
