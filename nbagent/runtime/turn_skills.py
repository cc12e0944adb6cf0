"""TurnSkills: the skills as one turn uses them: what the tools ask for, what is recorded, what it grants.

A use is an entry (NB-S2) written right after the result that brought the skill. What the skill then ran and how it
came out is read from the entries that follow it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nbagent.core.entries import Approval, Body, Entry, SkillUse, ToolResult, TurnStart, UserMessage
from nbagent.core.errors import JournalDamaged, ToolError, ToolStopped
from nbagent.core.messages import ToolCall, joined_text
from nbagent.runtime.rules import Rules
from nbagent.runtime.skilling import SessionSkills
from nbagent.store.artifacts import Artifacts
from nbagent.tools.skill_types import SkillHit, SkillRun

if TYPE_CHECKING:
    from nbagent.core.effects import Decision
    from nbagent.core.entries import UsageReported
    from nbagent.skills.catalog import Skill
    from nbagent.skills.opening import Invocation

WHY_CHARS: Final = 500
TOO_LONG: Final = (
    "skill {name!r}: its text takes about {size:,} tokens, and half of the window is {most:,}; read it in parts "
    "(`read` {path} with offset and limit), or move what is seldom needed into files beside it"
)
# Claude Code's names of what we have; `Bash(git:*)` is every command that begins with the word git.
_CLAUDE: Final[Mapping[str, tuple[str, ...]]] = {
    "bash": ("shell",), "read": ("read",), "write": ("write",), "edit": ("edit",), "multiedit": ("edit",),
    "glob": ("glob",), "grep": ("grep",), "ls": ("glob",), "notebookedit": ("notebook",), "skill": ("skill",),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Forked:
    """What a skill that ran in a context of its own brought: its answer, what it cost, what it ran, how it ended."""

    text: str
    outcome: str
    message: str
    tools: tuple[str, ...]
    duration_s: float
    usage: UsageReported | None
    journal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A skill taken: its text as the model reads it, what is to be written, and whether it ran by itself.

    `failed` says why a fork has no answer, "" for one that came to its end; `stopped` that the person ended it.
    """

    name: str
    text: str
    tokens: int
    forked: bool
    allowed_tools: tuple[str, ...]
    bodies: tuple[Body, ...]
    failed: str = ""
    stopped: bool = False


@dataclass(slots=True, kw_only=True)
class TurnSkills:
    """The skills of one turn, as the tools may use them.

    `decide(call)` asks whether a command of a skill may run, `run_command(command, environ)` runs it and returns
    what it printed. `fork(invocation, text)` runs a skill in a context of its own. `keep` stores a text and returns
    its digest, `estimate` counts tokens; a skill's text may have `most_tokens`. `path` is the conversation so far.
    `grant(rules)` puts the rules that a skill brings in force.
    """

    session: SessionSkills
    path: Callable[[], Sequence[Entry]]
    decide: Callable[[ToolCall], Awaitable[Decision]]
    run_command: Callable[[str, Mapping[str, str]], Awaitable[str]]
    fork: Callable[[Invocation, str], Awaitable[Forked]]
    keep: Callable[[str], str]
    estimate: Callable[[str], int]
    grant: Callable[[Rules], None]
    most_tokens: int
    _pending: dict[str, tuple[Body, ...]] = field(default_factory=dict)

    def find(self, query: str, limit: int) -> Sequence[SkillHit]:
        """Return the visible skills that fit a task best, best first."""
        return self.session.find(query, limit)

    def refusal(self, path: Path) -> str:
        """Return why the model may not read `path`, "" when it may."""
        return self.session.refusal(path)

    async def run(self, name: str, arguments: str, *, call_id: str) -> SkillRun:
        """Use a skill that the model chose.

        Raises:
            ToolError: unknown, hidden, gone, or its fork did not come to an end.
        """
        taken = await self.take(name, arguments, by_model=True, why=request_of(self.path()), call_id=call_id)
        self._pending[call_id] = taken.bodies
        if taken.failed:
            kind = ToolStopped if taken.stopped else ToolError
            raise kind(f"skill {taken.name!r} did not come to its end: {taken.failed}")
        return SkillRun(
            name=taken.name, text=taken.text, tokens=taken.tokens, forked=taken.forked,
            allowed_tools=taken.allowed_tools,
        )  # fmt: skip

    async def take(self, name: str, arguments: str, *, by_model: bool, why: str, call_id: str = "") -> Taken:
        """Open a skill, put its arguments in, run the commands that may run, and fork it where it says so."""
        from nbagent.skills.opening import invoke

        variables = {"CLAUDE_PROJECT_DIR": str(self.session.folder)}
        invocation = invoke(self.session.catalog, name, arguments, by_model=by_model, variables=variables)
        if (size := self.estimate(invocation.text())) > self.most_tokens:
            raise ToolError(TOO_LONG.format(name=name, size=size, most=self.most_tokens, path=invocation.skill.path))
        rules = rules_of(invocation.allowed_tools, invocation.disallowed_tools)
        if not invocation.fork:
            self.grant(rules)  # its own commands may need them already
        asked: list[Body] = []
        outputs = [o async for o in self._outputs(invocation, call_id, asked)]
        text = invocation.text(outputs if invocation.rendered.commands else None)
        forked = await self.fork(invocation, text) if invocation.fork else None
        answer = text if forked is None else forked.text
        tokens = self.estimate(answer)
        use = _use(
            invocation, by="model" if by_model else "person", why=why, tokens=tokens, rules=rules, forked=forked,
            artifact=self.keep(invocation.body),
        )  # fmt: skip
        usage = () if forked is None or forked.usage is None else (forked.usage,)
        return Taken(
            name=invocation.skill.name, text=answer, tokens=tokens, forked=forked is not None,
            allowed_tools=rules.allow, bodies=(*asked, *usage, use),
            failed=forked.message if forked is not None and forked.outcome != "completed" else "",
            stopped=forked is not None and forked.outcome == "stopped",
        )  # fmt: skip

    async def _outputs(self, invocation: Invocation, call_id: str, asked: list[Body]) -> Any:
        """Yield what the commands in a skill's text printed; a sentence for one that may not run."""
        from nbagent.skills.invoke import REFUSED

        for number, command in enumerate(invocation.rendered.commands, 1):
            call = ToolCall(id=f"{call_id}!{number}", name="shell", input={"command": command.text})
            decision = await self.decide(call)
            if decision.record:
                verdict = "allow" if decision.allowed else ("deny" if decision.by == "person" else "refused")
                asked.append(
                    Approval(call_id=call.id, tool="shell", decision=verdict, scope=decision.scope, by=decision.by)
                )
            if decision.allowed:
                yield await self.run_command(command.text, command.environ)
            else:
                yield REFUSED.format(command=command.text)

    # ------------------------------------------------------------ the record

    def after(self, call: ToolCall, result: ToolResult) -> Iterable[Body]:
        """Return what is to be written once `call` has its result: the use of a skill, with what it asked and cost."""
        pending = self._pending.pop(call.id, None)
        if pending is not None:
            return pending
        if result.status != "ok":
            return ()
        if result.name == "skill" and result.meta.get("skill"):  # played from a recording: it was not run
            return (self._recorded(result),)
        if result.name == "read" and _opens(call, result):
            skill = self.session.read_as(str(call.input["path"]))
            return () if skill is None else (self._read(skill, result),)
        return ()

    def _read(self, skill: Skill, result: ToolResult) -> SkillUse:
        from nbagent.skills.uses import skill_use

        text = joined_text(result.content)
        return skill_use(
            skill.name, "model", request_of(self.path()), digest=skill.file.digest, tokens=self.estimate(text),
            artifact=self.keep(body_of(skill)),
        )  # fmt: skip

    def _recorded(self, result: ToolResult) -> SkillUse:
        from nbagent.skills.uses import skill_use

        name, forked = str(result.meta["skill"]), bool(result.meta.get("forked"))
        tokens, why = int(result.meta.get("tokens") or 0), request_of(self.path())
        return skill_use(name, "model", why, tokens=tokens, agent=name if forked else "")


def _use(
    invocation: Invocation, *, by: str, why: str, tokens: int, rules: Rules, forked: Forked | None, artifact: str
) -> SkillUse:
    from nbagent.skills.uses import skill_use

    skill = invocation.skill
    inline: dict[str, Any] = {"allowed": rules.allow, "denied": rules.deny}
    own: dict[str, Any] = {}
    if forked is not None:
        own = {"tools": forked.tools, "outcome": forked.outcome, "duration_s": forked.duration_s, "agent": skill.name}
    return skill_use(
        skill.name, by, why, digest=skill.file.digest, tokens=tokens, arguments=invocation.arguments,
        artifact=artifact, journal=forked.journal if forked else "", **(own or inline),
    )  # fmt: skip


def _opens(call: ToolCall, result: ToolResult) -> bool:
    """Tell whether a `read` shows a file from its beginning: to read on is no new use, nor to read the same again."""
    given = call.input if isinstance(call.input, Mapping) else {}
    return "path" in given and given.get("offset") in (None, 1) and not result.meta.get("unchanged")


def body_of(skill: Skill) -> str:
    """Return the text of a skill's file below its frontmatter, "" when it cannot be read now."""
    from nbagent.skills.opening import read_body

    try:
        return read_body(skill)
    except ToolError:
        return ""


def request_of(path: Sequence[Entry]) -> str:
    """Return what the person asked in the turn that `path` is in, cut."""
    for entry in reversed(path):
        if isinstance(entry.body, UserMessage):
            text = next((str(b.get("text") or "") for b in entry.body.blocks if b.get("type") == "text"), "")
            return text[:WHY_CHARS]
        if isinstance(entry.body, TurnStart):
            break
    return ""


# ---------------------------------------------------------------- what a skill grants


def rules_of(allowed: Iterable[str], denied: Iterable[str]) -> Rules:
    """Return `allowed-tools` and `disallowed-tools` as rules of our tools; what is named otherwise stays as it is.

    >>> rules_of(["Bash(git:*)", "Read", "python"], ["Write"]).allow
    ('shell(git)', 'shell(git *)', 'read', 'python')
    """
    return Rules(allow=tuple(_ours(allowed)), deny=tuple(_ours(denied)))


def _ours(patterns: Iterable[str]) -> Iterator[str]:
    for pattern in patterns:
        name, bracket, inner = pattern.partition("(")
        inner = inner.removesuffix(")").strip()
        for tool in _CLAUDE.get(name.strip().lower(), (name.strip(),)):
            if not bracket or inner == "*":
                yield tool
            elif inner.endswith(":*"):
                yield f"{tool}({inner.removesuffix(':*')})"
                yield f"{tool}({inner.removesuffix(':*')} *)"
            else:
                yield f"{tool}({inner})"


def granted(bodies: Iterable[Body]) -> Rules:
    """Return the rules that the uses among `bodies` bring for the rest of their turn."""
    uses = [b.details for b in bodies if isinstance(b, SkillUse)]
    allow = [str(p) for d in uses for p in d.get("allowed_tools") or ()]
    deny = [str(p) for d in uses for p in d.get("disallowed_tools") or ()]
    return Rules(allow=tuple(allow), deny=tuple(deny))


def granted_in_turn(path: Sequence[Entry]) -> Rules:
    """Return the rules that skills brought for the turn that the path ends in."""
    bodies: list[Body] = []
    for entry in reversed(path):
        if isinstance(entry.body, TurnStart):
            break
        bodies.append(entry.body)
    return granted(reversed(bodies))


# ---------------------------------------------------------------- after a compaction


def reattached(
    replaced: Sequence[Entry], kept: Iterable[Entry], artifacts: Artifacts, window_tokens: int
) -> str:
    """Return the skills used in `replaced` as reference, as they were then; not those that `kept` still shows.

    5,000 tokens of each and 25,000 in all, but no more than a fortieth and an eighth of the window (DECISIONS 25).
    """
    if not any(isinstance(e.body, SkillUse) for e in replaced):
        return ""
    from nbagent.skills.uses import MAX_ALL_TOKENS, MAX_EACH_TOKENS, attach_after_compaction, skills_in_use

    shown = {e.body.name for e in kept if isinstance(e.body, SkillUse)}

    def body(use: SkillUse) -> str | None:
        try:
            return artifacts.get_text(str(use.details["artifact"]))
        except (KeyError, JournalDamaged):
            return None

    return attach_after_compaction(
        [u for u in skills_in_use(replaced) if u.name not in shown], body,
        each_tokens=min(MAX_EACH_TOKENS, window_tokens // 40), all_tokens=min(MAX_ALL_TOKENS, window_tokens // 8),
    )  # fmt: skip
