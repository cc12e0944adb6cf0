"""The sub-commands of `%skills`: each takes the agent and the rest of the line, and returns what shows itself."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nbagent.core.errors import Diagnostic, UsageProblem
from nbagent.notebook.app import Ask, NotebookAgent
from nbagent.notebook.commands.agent import names_at_a_glance
from nbagent.notebook.options import HELP, OneLineParser
from nbagent.notebook.reports.said import Said, help_of
from nbagent.notebook.reports.skills import (
    LintReport,
    Ranked,
    SkillLogReport,
    SkillPromptReport,
    SkillReport,
    SkillsReport,
    WhyReport,
)
from nbagent.notebook.transform import split_awaitable
from nbagent.runtime.ports import TurnOptions
from nbagent.runtime.skill_desk import changes_since, lint_skills, new_skill, skill_text, trust_skill, used_skills

if TYPE_CHECKING:
    from nbagent.runtime.skill_desk import Catalog, Skill

NEAR = 3  # names offered instead of one that there is not


def skills_command(agent: NotebookAgent, line: str) -> Any:
    """Run `%skills LINE`; `%skills` alone shows the catalog.

    Raises:
        UsageProblem: no such sub-command or skill.
    """
    awaitable, line = split_awaitable(line)
    word, _, rest = line.strip().partition(" ")
    if not word:
        return skills_report(agent)
    if word == "run":
        return _run(agent, rest.strip(), awaitable=awaitable)
    command = SKILLS_COMMANDS.get(HELP.get(word, word))
    if command is None:
        raise UsageProblem(f"%skills has no sub-command {word!r}; it has: {', '.join(SKILLS_COMMANDS)}")
    return command(agent, rest.strip())


def skills_help() -> str:
    """Return what `%skills?` shows."""
    return "\n".join([str(_help(None, "")), "", new_parser().format_help()])


def new_parser() -> OneLineParser:
    """Return the parser of `%skills new`. Options come first; what follows the name is the description."""
    parser = OneLineParser(prog="%skills new", add_help=False, allow_abbrev=False)
    parser.add_argument("--person", action="store_true", help="for you in every project, not for this one")
    parser.add_argument("name", help="lower-case letters, digits and hyphens")
    rest = parser.add_argument("description", nargs=argparse.REMAINDER, help="what it does, and when to use it")
    rest.required = False  # it may be empty, and the message on a missing name is not to ask for it
    return parser


def _catalog(agent: NotebookAgent) -> Catalog:
    return agent.session().runner.skills.look()


def skills_report(agent: NotebookAgent) -> SkillsReport:
    """Return the catalog as it is now."""
    catalog = _catalog(agent)
    return SkillsReport(
        skills=tuple(catalog), diagnostics=_shown(agent, catalog.diagnostics), prompt=catalog.prompt,
        prompt_tokens=prompt_tokens(_count(agent), catalog), tier=catalog.prompt_text.tier,
    )  # fmt: skip


def _count(agent: NotebookAgent) -> Callable[[str], int]:
    session = agent.session()
    return session.runner.gauge.meter(session.facts_of(session.current_model()).family).text


def prompt_tokens(count: Callable[[str], int], catalog: Catalog) -> int:
    """Return what the list takes of a request, estimated; the same wherever the skills lie."""
    text = catalog.prompt
    for skill in catalog.visible:
        text = text.replace(skill.location, f"~/.nbagent/skills/{skill.name}/SKILL.md")
    return count(text)


def _named(agent: NotebookAgent, name: str, what: str) -> Skill:
    """Return the skill called `name`.

    Raises:
        UsageProblem: none is, or no name was given.
    """
    catalog = _catalog(agent)
    if not name:
        raise UsageProblem(f"%skills {what} NAME: name a skill; `%skills` lists them")
    skill = catalog.named(name)
    if skill is None:
        near = _near(catalog, name)
        hint = f"did you mean {' or '.join(near)}?" if near else "`%skills` lists all"
        raise UsageProblem(f"no skill is called {name!r}; {hint}")
    return skill


def _shown(agent: NotebookAgent, diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Return diagnostics whose files are named from the notebook's folder where they lie in it."""
    return tuple(replace(d, path=agent.shown(Path(d.path))) for d in diagnostics)


def _near(catalog: Catalog, name: str) -> tuple[str, ...]:
    return tuple(difflib.get_close_matches(name, [s.name for s in catalog], n=NEAR, cutoff=0.5))


def _show(agent: NotebookAgent, rest: str) -> SkillReport:
    """One skill with its text: NAME."""
    skill = _named(agent, rest, "show")
    found = agent.session().runner.skills.diagnostics_of(skill.name)
    return SkillReport(
        skill=skill, text=skill_text(skill), path=agent.shown(Path(skill.path)), diagnostics=_shown(agent, found),
        arguments=skill.manifest.argument_hint,
    )  # fmt: skip


def _why(agent: NotebookAgent, rest: str) -> WhyReport:
    """Why the model is told of a skill or not: NAME; with a REQUEST, how well it fits that: NAME REQUEST."""
    name, _, request = rest.partition(" ")
    if not name:
        raise UsageProblem("%skills why NAME [REQUEST]: name a skill; `%skills` lists them")
    skills = agent.session().runner.skills
    catalog = skills.look()
    skill = catalog.named(name)
    ranking: tuple[Ranked, ...] = ()
    if request.strip():
        found = skills.ranking(request.strip())
        ranking = tuple(Ranked(name=f.skill.name, score=f.score, about=f.skill.summary) for f in found)
    return WhyReport(
        name=name, skill=skill, diagnostics=_shown(agent, skills.diagnostics_of(skill.name if skill else name)),
        near=_near(catalog, name), request=request.strip(), ranking=ranking,
    )  # fmt: skip


def _lint(agent: NotebookAgent, rest: str) -> LintReport:
    """What could be better in the skills, or in one: [NAME]."""
    catalog = _catalog(agent)
    tools = [spec.name for spec in agent.session().runner.specs()]
    found = lint_skills(catalog, tools)
    if not rest:
        return LintReport(diagnostics=_shown(agent, found), checked=len(catalog))
    skill = catalog.named(rest)
    mine = agent.session().runner.skills.is_of(skill.name if skill is not None else rest)
    chosen = tuple(d for d in found if mine(d))
    if skill is None and not chosen:
        _named(agent, rest, "lint")
    return LintReport(diagnostics=_shown(agent, chosen), checked=1)


def _run(agent: NotebookAgent, rest: str, *, awaitable: bool) -> Any:
    """Run a skill now, as a turn: NAME [ARGS]."""
    name, _, arguments = rest.partition(" ")
    skill = _named(agent, name, "run")
    arguments = arguments.strip()
    prompt = f"Use the skill {skill.name}" + (f": {arguments}" if arguments else ".")
    ask = Ask(prompt=prompt, options=TurnOptions(skill=skill.name, skill_arguments=arguments))
    running = agent.run(ask, awaitable=awaitable)
    return _nothing(running) if awaitable else None


async def _nothing(running: Any) -> None:
    await running


def _run_line(agent: NotebookAgent, rest: str) -> Any:
    """Run a skill now, as a turn: NAME [ARGS]."""
    return _run(agent, rest, awaitable=False)


def _log(agent: NotebookAgent, rest: str) -> SkillLogReport:
    """Which skills were used: by whom, for what, what they cost and ran, how it came out."""
    return SkillLogReport(uses=used_skills(agent.session().tree))


def _enable(agent: NotebookAgent, rest: str) -> Said:
    """Let the model use a skill again: NAME."""
    return Said(switch(agent, rest, on=True))


def _disable(agent: NotebookAgent, rest: str) -> Said:
    """Hide a skill from the model, in this notebook until the kernel restarts: NAME."""
    return Said(switch(agent, rest, on=False))


def switch(agent: NotebookAgent, name: str, *, on: bool) -> str:
    """Switch a skill on or off for this notebook; returns a line that says how it stands now.

    Raises:
        UsageProblem: there is no such skill.
    """
    skill = _named(agent, name, "enable" if on else "disable")
    key = skill.manifest.requires.key or skill.name
    entries = {k: dict(v) for k, v in agent.settings().skills.entries.items()}
    agent.chosen["skills.entries"] = {**entries, key: {**entries.get(key, {}), "enabled": on}}
    now = _named(agent, skill.name, "enable")
    keep = f'To keep it so: [skills.entries.{key}] enabled = {str(on).lower()} in nbagent.toml.'
    if on and not now.visible:
        return f"{now.name} is switched on, but stays hidden from the model: {now.reason}."
    if on:
        return f"{now.name} is on: the model is told at the next turn. {keep}"
    return f"{now.name} is off: the model is told at the next turn, and cannot read it any more. {keep}"


def _trust(agent: NotebookAgent, rest: str) -> Said:
    """Accept one skill of a project that is not trusted: NAME. Read it first (%skills show NAME)."""
    skill = _named(agent, rest, "trust")
    if skill.trusted:
        return Said(f"{skill.name} is trusted already.")
    trust_skill(skill, Path(agent.settings().home))
    now = _named(agent, skill.name, "trust")
    more = "the model is told at the next turn" if now.visible else f"it stays hidden from the model: {now.reason}"
    return Said(f"{now.name} is trusted, as long as it stays in {now.folder}: {more}.")


def _new(agent: NotebookAgent, rest: str) -> Said:
    """Begin a skill of your own: [--person] NAME [DESCRIPTION]; written, trusted and linted."""
    parsed = new_parser().parse_args(rest.split())
    home = Path(agent.settings().home)
    root = home / "skills" if parsed.person else agent.folder() / "skills"
    path = new_skill(root, parsed.name, " ".join(parsed.description).strip("\"'"), home=home)
    found = _lint(agent, parsed.name).diagnostics
    lines = [f"Written: {agent.shown(path)}. Say in it what to do; the model is told of it at the next turn."]
    return Said("\n".join([*lines, *(f"- {d.cause}; {d.remedy}" for d in found)]))


def _reload(agent: NotebookAgent, rest: str) -> Said:
    """Look at the folders again, and say what changed (every turn does so by itself)."""
    skills = agent.session().runner.skills
    before = skills.catalog
    after = skills.look()
    text = changes_since(before, after)
    return Said(text or f"Nothing changed: {len(after.visible)} of {len(after)} skills are visible to the model.")


def _prompt(agent: NotebookAgent, rest: str) -> SkillPromptReport:
    """The text by which the model knows the skills."""
    catalog = _catalog(agent)
    tokens = prompt_tokens(_count(agent), catalog)
    return SkillPromptReport(text=catalog.prompt, tokens=tokens, tier=catalog.prompt_text.tier)


def _help(agent: NotebookAgent | None, rest: str) -> Said:
    """This list."""
    return help_of("%skills", SKILLS_COMMANDS, width=8)


def skill_names(agent: NotebookAgent) -> Sequence[str]:
    """Return the names for completion: of the catalog where it was looked at, else of the folders."""
    seen = None if agent.opened is None else agent.opened.runner.skills.seen
    return [s.name for s in seen] if seen is not None else sorted(names_at_a_glance(agent, agent.settings()))


SKILLS_COMMANDS: Mapping[str, Callable[[NotebookAgent, str], Any]] = {
    "help": _help, "show": _show, "why": _why, "lint": _lint, "run": _run_line, "log": _log, "enable": _enable,
    "disable": _disable, "trust": _trust, "new": _new, "reload": _reload, "prompt": _prompt,
}  # fmt: skip
