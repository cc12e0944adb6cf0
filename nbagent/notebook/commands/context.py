"""The sub-commands of `%context`: each takes the agent and its words, and returns a value that shows itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from time import monotonic
from typing import Any

from nbagent.core.budget import Budget
from nbagent.core.effects import Notice
from nbagent.core.errors import PolicyError, TurnFailed, UsageProblem, UserError
from nbagent.notebook.app import Ask, NotebookAgent
from nbagent.notebook.commands.branches import Words, moves, only_word
from nbagent.notebook.commands.context_looks import cache, context_report, show
from nbagent.notebook.options import HELP, OneLineParser, nearest, no_words, split_line, verbatim
from nbagent.notebook.reports.compaction import CompactionReport
from nbagent.notebook.reports.compare import CompareReport, live_cost
from nbagent.notebook.reports.rot import RotReport
from nbagent.notebook.reports.said import Listing, Said, help_of
from nbagent.notebook.stopped import TurnStopped
from nbagent.notebook.words import PROMPT, PROVIDER
from nbagent.runtime.compacting import (
    WAITS,
    compact,
    loss_in_force,
    note_in_force,
    pins_of,
    replace_note,
    rot_of,
    set_pin,
    undo,
    waiting_lines,
)
from nbagent.runtime.comparing import compare_live, compare_session
from nbagent.runtime.contexts import (
    NOTHING_TO_COMPACT,
    CompactionResult,
    check_number,
    effective_numbers,
    kept_numbers,
    known_policies,
    meaning_of,
    numbers_of,
    when_it_acts,
)
from nbagent.runtime.ports import TurnOptions, TurnPorts
from nbagent.runtime.provider_edits import missing_edits

BESIDES: Mapping[str, Sequence[str]] = {  # what `%context set` takes besides numbers of the policy, and their words
    "policy": (), "window": ("model",), "provider": PROVIDER, "prompt": PROMPT,
}  # fmt: skip
LONG_ENTRIES = 2_000  # from here on a comparison tells how far it is


def context_command(agent: Any, line: str, *, ask: Ask | None = None) -> Any:
    """Run `%context LINE`; `ask` is the turn that a dry run shows."""
    name, _, rest = line.strip().partition(" ")
    words = [name, *verbatim(rest)] if name in ("pin", "unpin") else split_line(line)
    if not any(words):
        return context_report(agent)
    command = CONTEXT_COMMANDS.get(HELP.get(words[0], words[0]))
    if command is None:
        near = nearest(words[0], CONTEXT_COMMANDS)
        raise UsageProblem(f"%context has no sub-command {words[0]!r}; it has: {', '.join(CONTEXT_COMMANDS)}.{near}")
    return command(agent, words[1:], ask)


def _policy(agent: NotebookAgent, words: Words, ask: Ask | None) -> Said:
    """Show the policies, or choose one: NAME or NAME@seed."""
    session = agent.session()
    if words:
        take_policy(agent, only_word(words, "%context policy NAME"))
        return _effective(agent, f"policy {agent.session().settings.policy}:")
    here = session.settings.policy.partition("@")[0]
    listed = [("→" if name == here else " ", name, kind.summary) for name, kind in known_policies().items()]
    return Listing(
        "\n".join(f"{mark} {name:<12} {summary}" for mark, name, summary in listed),
        head=("policy", "what it does"), rows=[(f"{mark} {name}".strip(), summary) for mark, name, summary in listed],
    )  # fmt: skip


def take_policy(agent: NotebookAgent, name: str) -> None:
    """Use a policy from now on.

    Raises:
        PolicyError: there is none of that name.
    """
    agent.session().runner.policy(TurnOptions(policy=name))
    agent.numbers = _kept_numbers(agent, name)
    agent.choose(policy=name)


def _kept_numbers(agent: NotebookAgent, policy: str) -> dict[str, float]:
    return kept_numbers(agent.numbers, of=agent.session().settings.policy, policy=policy)


def _numbers(agent: NotebookAgent) -> str:
    numbers, acts = _numbers_in_force(agent)
    return " ".join(f"{key}={value}" for key, value in numbers) + f" · {acts}" if numbers else acts


def _numbers_in_force(agent: NotebookAgent) -> tuple[list[tuple[str, str]], str]:
    """Return the numbers of the policy, and when it acts in this window."""
    session = agent.session()
    policy = session.runner.policy_of(session.settings.policy)
    if not policy.numbers:
        return [], "no numbers"
    window = _budget(agent).window_tokens
    numbers = [(k, f"{v:.10g}") for k, v in effective_numbers(policy, window).items()]
    return numbers, when_it_acts(policy, window)


def _set(agent: NotebookAgent, words: Words, ask: Ask | None) -> Said:
    """Change numbers of the policy: KEY=VALUE; window=TOKENS or =model; provider=MODE; prompt=MODE; shows all."""
    set_numbers(agent, words)
    settings = agent.session().settings
    window = _budget(agent).window_tokens
    own = settings.context
    prompt = f"prompt={own.prompt} " if own.prompt != "full" else ""
    return _effective(
        agent, f"window={window:,} provider={own.provider} {prompt}policy={settings.policy}", meanings=not words
    )


def _effective(agent: NotebookAgent, head: str, *, meanings: bool = False) -> Listing:
    """Return the numbers in force; `head` is said before them. With `meanings` each says what it is."""
    numbers, acts = _numbers_in_force(agent)
    title = f"{head.removesuffix(':')} · {acts}"
    if not meanings:
        return Listing(f"{head} {_numbers(agent)}", title=title, head=("number", "value"), rows=numbers)
    told = [(f"{key}={value}", meaning_of(key)) for key, value in numbers]
    width = max((len(number) for number, _ in told), default=0)
    lines = [f"  {number:<{width}}  {meaning}".rstrip() for number, meaning in told]
    return Listing("\n".join([title, *lines]), title=title, head=("number", "what it is"), rows=told)


def set_numbers(agent: NotebookAgent, words: Words) -> None:
    """Change policy, window, provider, prompt and numbers of the policy, each given as KEY=VALUE.

    Raises:
        UsageProblem, PolicyError: a word is none of those.
    """
    session, numbers = agent.session(), {}
    chosen: dict[str, Any] = {}
    for word in re.sub(r"\s*=\s*", "=", " ".join(words)).split():
        key, _, value = word.partition("=")
        if not value:
            raise UsageProblem(f"%context set takes KEY=VALUE, not {word!r}; the numbers are: {_numbers(agent)}")
        if key == "policy":
            session.runner.policy(TurnOptions(policy=value))
            chosen["policy"] = value
        elif key in ("provider", "prompt"):
            chosen[f"context.{key}"] = value
        elif (key, value) == ("window", "model"):
            chosen["window_tokens"] = session.facts_of(session.current_model()).window_tokens
        elif key == "window":
            chosen["window_tokens"] = _number(key, value, whole=True)
        else:
            numbers[key] = _number(key, value)
    for key, number in numbers.items():
        _check(chosen.get("policy", session.settings.policy), key, number)
    before, kept = agent.chosen, _kept_numbers(agent, chosen.get("policy", session.settings.policy))
    agent.choose(**chosen)
    try:
        _refuse_provider(agent, agent.session().settings.context.provider)
    except UserError:
        agent.chosen = before
        raise
    agent.numbers = {**kept, **numbers}


def _check(policy: str, key: str, number: float) -> None:
    try:
        check_number(policy, key, number)
    except PolicyError as error:
        if key in numbers_of(policy):
            raise
        raise UsageProblem(f"{error}; besides: {', '.join(BESIDES)}.{nearest(key, BESIDES)}") from error


def _budget(agent: NotebookAgent) -> Budget:
    session = agent.session()
    return session.runner.budget(session.facts_of(session.current_model()))  # also of a recording, which opens none


def _refuse_provider(agent: NotebookAgent, mode: str) -> None:
    """Refuse to leave to the provider what it cannot do: here, not in the next turn."""
    session = agent.session()
    if line := missing_edits(session.model(session.current_model()), mode, _budget(agent)):
        raise UsageProblem(line)


def _number(key: str, value: str, *, whole: bool = False) -> Any:
    try:
        plain = value.replace("_", "").replace(",", "")
        if not whole and plain.endswith("%"):
            return round(float(plain.removesuffix("%")) / 100, 6)
        return int(plain) if whole else float(plain) + 0.0  # no -0
    except ValueError as error:
        kind = "whole number, such as 128000" if whole else "number"
        raise UsageProblem(f"%context set {key}={value}: {value!r} is no {kind}") from error


def _compact(agent: NotebookAgent, words: Words, ask: Ask | None) -> CompactionReport | Said:
    """Replace older turns by a hand-off note now: [--focus TEXT] [--dry-run]."""
    if "--help" in words:
        return Said(compact_parser().format_help())
    parsed = compact_parser().parse_args(list(words))
    focus = parsed.focus if isinstance(parsed.focus, str) else " ".join(parsed.focus)
    return _compacted(agent, focus=focus, dry_run=parsed.dry_run)


def compact_parser() -> OneLineParser:
    """Return the parser of `%context compact`."""
    parser = OneLineParser(prog="%context compact", add_help=False, allow_abbrev=False)
    parser.add_argument("--focus", default="", nargs="+", metavar="WORD", help="what the note should dwell on")
    parser.add_argument("--dry-run", action="store_true", help="write the note and show it; nothing is changed")
    parser.add_argument("--help", action="store_true", help="show this")
    return parser


OWN_LINES = ("Compacting the conversation", "The conversation was compacted")  # the report says it itself


def _compacted(
    agent: NotebookAgent, *, focus: str = "", edited: str | None = None, dry_run: bool = False
) -> CompactionReport:
    began, lines = monotonic(), list[str]()

    async def work(ports: TurnPorts) -> CompactionResult:
        ports = replace(ports, sink=lambda e: lines.append(e.text) if isinstance(e, Notice) else None)
        return await compact(agent.session(), ports, focus=focus, edited=edited, dry_run=dry_run)

    result = agent.beside(work)
    if result.reason == "stopped":
        raise TurnStopped("Stopped; nothing was changed.")
    if result.loss is None and result.reason != NOTHING_TO_COMPACT:
        raise TurnFailed(f"nothing was compacted: {result.reason}; the conversation is as it was")
    notices = tuple(line for line in lines if not line.startswith(OWN_LINES))
    return replace(compaction_report(result, dry_run=dry_run, duration_s=monotonic() - began), notices=notices)


def compaction_report(result: CompactionResult, *, dry_run: bool, duration_s: float = 0.0) -> CompactionReport:
    """Return what a compaction did, or would do, as people get it."""
    loss = result.loss
    return CompactionReport(
        applied=result.applied, reason=result.reason, before_tokens=result.before_tokens,
        after_tokens=result.after_tokens, handoff=result.handoff, policy=result.policy, dry_run=dry_run and bool(loss),
        verbatim=loss.verbatim if loss else (), reachable=loss.reachable if loss else (),
        lost=loss.lost if loss else (), duration_s=duration_s,
    )  # fmt: skip


@moves
def _undo(agent: NotebookAgent, words: Words, ask: Ask | None) -> Said:
    """Take the last compaction back; later turns stay."""
    if words:
        raise UsageProblem("%context undo takes no words; it takes the last compaction back")
    waits = undo(agent.session()).waits
    held = agent.session().occupancy()
    if waits:
        return Said(
            f"The compaction will be taken back, but not yet: the undo {WAITS}. Until then the context stays as it is "
            f"({held.used_tokens:,} tokens). `%agent resume` goes on with the turn; `%context` shows what waits."
        )
    return Said(
        f"The compaction is taken back: the context holds {held.used_tokens:,} tokens again. Nothing is compacted by "
        "itself until you compact, or until the window is nearly full."
    )


def _loss(agent: NotebookAgent, words: Words, ask: Ask | None) -> CompactionReport:
    """What the compaction in force, also the provider's own, left of what it replaced: the list of what is lost."""
    no_words(words, "%context loss")
    return compaction_report(loss_in_force(agent.session()), dry_run=False)


def _note(agent: NotebookAgent, words: Words, ask: Ask | None) -> Said:
    """Show the hand-off note in force; --edit offers it as a cell to change."""
    if rest := [w for w in words if w != "--edit"]:
        raise UsageProblem(f"%context note takes --edit only, not {rest[0]!r}")
    text = note_in_force(agent.session())
    if not words:
        return Said(text or "There is no hand-off note: nothing was compacted yet.")
    agent.shell.set_next_input(f"%%context note\n{text}", replace=False)
    if not text:
        return Said(
            "There is no hand-off note yet. The next cell is for one of your own: what you write there takes the place "
            "of the older turns when you run it."
        )
    return Said("The note is offered as the next cell; change it and run the cell to install it.")


def note_cell(agent: NotebookAgent, text: str) -> Any:
    """Install an edited note: it replaces the one in force, else the conversation is compacted with it.

    Raises:
        UsageProblem: the note is empty.
    """
    if not text.strip():
        raise UsageProblem("the note is empty; write what the agent has to know below the %%context note line")
    session = agent.session()
    if note_in_force(session):
        with agent.turnstile.command():
            replace_note(session, text.strip())
        if waiting_lines(session):
            return Said(f"The note will be replaced, but not yet: that {WAITS}. `%agent resume` goes on with the turn.")
        return Said("The note was replaced.")
    return _compacted(agent, edited=text.strip())


@moves
def _pin(agent: NotebookAgent, words: Words, ask: Ask | None) -> Said:
    """Keep a TURN or a TEXT whatever is compacted; without one, list what is pinned."""
    if not words and (pins := pins_of(agent.session())):
        return Said("\n".join(f"pinned: {pin}" for pin in pins))
    return Said(set_pin(agent.session(), " ".join(words), remove=False))


@moves
def _unpin(agent: NotebookAgent, words: Words, ask: Ask | None) -> Said:
    """Take a pin back."""
    return Said(set_pin(agent.session(), " ".join(words), remove=True))


def _compare(agent: NotebookAgent, words: Words, ask: Ask | None) -> CompareReport | Said:
    """Every policy (or NAME ...) on this very conversation: tokens, cost, cache, what is lost; [--live [--yes]]."""
    names = [w for w in words if not w.startswith("--")]
    if unknown := [w for w in words if w.startswith("--") and w not in ("--live", "--yes")]:
        raise UsageProblem(f"%context compare takes names of policies, --live and --yes, not {unknown[0]!r}")
    session = agent.session()
    if "--live" in words and "--yes" in words:
        return CompareReport(comparison=agent.beside(lambda ports: compare_live(agent.session(), ports, names)))
    began = _said_when_long(len(session.tree.path()))
    found = compare_session(session, names, began=began)
    return Said(live_cost(found, names)) if "--live" in words else CompareReport(comparison=found)


def _said_when_long(entries: int) -> Callable[[str, int, int], None]:
    """Return what tells how far a comparison is: on a long conversation each policy takes seconds."""

    def began(name: str, number: int, of: int) -> None:
        if entries >= LONG_ENTRIES:
            print(f"comparing {name} ({number} of {of}) …", flush=True)

    return began


def _rot(agent: NotebookAgent, words: Words, ask: Ask | None) -> RotReport:
    """What in the context is stale, conflicting, confusable or distracting."""
    no_words(words, "%context rot")
    return RotReport(findings=rot_of(agent.session()))


def _help(agent: NotebookAgent, words: Words, ask: Ask | None) -> Said:
    """This list."""
    return help_of("%context", CONTEXT_COMMANDS, width=8)


CONTEXT_COMMANDS: Mapping[str, Callable[[NotebookAgent, Words, Ask | None], Any]] = {
    "help": _help, "show": show, "cache": cache, "policy": _policy, "set": _set, "compact": _compact, "undo": _undo,
    "note": _note, "loss": _loss, "pin": _pin, "unpin": _unpin, "compare": _compare, "rot": _rot,
}  # fmt: skip
