"""Approvals: may this call run? Rules, then the mode, then the person."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nbagent.core.effects import Decision
from nbagent.core.entries import Approval, Entry, TurnStart
from nbagent.core.errors import ToolError
from nbagent.core.messages import JsonObject, ToolCall, canonical
from nbagent.runtime.rules import Named, Rules, Ruling, named_code, named_command, named_path, named_skill
from nbagent.tools.danger import danger_in_command, danger_in_python, danger_in_writing
from nbagent.tools.output import undisguised
from nbagent.tools.registry import validate_input
from nbagent.tools.tool import Tool

Ask = Callable[[str], Awaitable[str | None]]

MAX_QUESTIONS = 3
SHOWN_LINES, SHOWN_CHARS = 300, 20_000  # of what is asked about: as a rule all of it, since all of it runs
_YES = {"y": "once", "yes": "once", "t": "turn", "turn": "turn", "a": "notebook", "always": "notebook"}
_NO = {"", "n", "no", "d", "deny"}


@dataclass(slots=True, kw_only=True)
class Approvals:
    """Decides on calls of one turn. `ask` is None where nobody can answer; `root` is where paths start.

    `granted_turn` and `granted_notebook` are names of tools that the person let run without asking again.
    `grants` are what skills in use bring for this turn: they allow where no rule of the person speaks, and deny.
    With `withheld` a recording is played: a call that may not run is noted there (id -> why) and
    passes, since its recorded result stands; those noted beforehand pass without a question.
    """

    tools: dict[str, Tool]
    mode: str
    root: Path
    rules: Rules = field(default_factory=Rules)
    ask: Ask | None = None
    grants: Rules = field(default_factory=Rules)
    granted_turn: set[str] = field(default_factory=set)
    granted_notebook: set[str] = field(default_factory=set)
    withheld: dict[str, str] | None = None

    async def decide(self, call: ToolCall, *, masked: bool) -> Decision:
        """Return whether `call` may run; asks the person when rules and mode say so."""
        if self.withheld is None:
            return await self._judge(call, masked=masked)
        if call.id in self.withheld:
            return Decision(allowed=True)
        decision = await self._judge(call, masked=masked)
        if decision.allowed or decision.stopped:
            return decision
        self.withheld[call.id] = decision.reason
        return Decision(allowed=True, by=decision.by)

    async def _judge(self, call: ToolCall, *, masked: bool) -> Decision:
        tool = self.tools.get(call.name)
        if tool is None:
            return Decision(allowed=True)  # the toolbox answers that there is no such tool
        if masked:
            reason = f"The tool {call.name!r} is not available in this turn. Use another one."
            return Decision(allowed=False, reason=reason)
        try:
            arguments = validate_input(tool.spec, call.input)
        except ToolError:
            return Decision(allowed=True)  # nothing will run: the toolbox answers what is wrong with it
        named = _named(tool, arguments, self.root)
        ruling = self.rules.ruling(call.name, named)
        if ruling is not None and ruling.word == "deny":
            return Decision(allowed=False, reason=f"A rule of the person denies {call.name!r} for this. Do not retry.")
        if self.mode == "plan" and tool.spec.access != "read":
            return Decision(
                allowed=False,
                reason=f"{call.name!r} is not available in plan mode, which only reads. Say what you would do instead.",
            )
        granted = self.grants.ruling(call.name, named)
        if granted is not None and granted.word == "deny":
            reason = f"A skill in use does without {call.name!r} (its disallowed-tools). Go another way."
            return Decision(allowed=False, reason=reason)
        return await self._by_rule_or_mode(tool, call, arguments, ruling or granted)

    async def _by_rule_or_mode(
        self, tool: Tool, call: ToolCall, arguments: JsonObject, ruling: Ruling | None
    ) -> Decision:
        always_ask = ruling is not None and ruling.word == "ask" and ruling.names_text
        if call.name in self.granted_turn | self.granted_notebook and not always_ask:
            return Decision(allowed=True, by="person")
        if ruling is not None and ruling.word == "allow":
            return Decision(allowed=True)
        if ruling is None and tool.spec.access == "read":
            return Decision(allowed=True)
        danger = _danger(tool, arguments, self.root) if self.mode == "auto" else ()
        if ruling is None and self.mode == "auto" and not danger:
            return Decision(allowed=True, by="mode")
        if self.ask is None:
            line = refused_line(call.name, danger, mode=self.mode, rule=ruling.pattern if ruling else "")
            return Decision(allowed=False, reason=line, by="nobody", record=True)
        return await self._ask(self.ask, call, question(call.name, arguments, danger, once=always_ask), once=always_ask)

    async def _ask(self, ask: Ask, call: ToolCall, text: str, *, once: bool) -> Decision:
        answer = await ask(text)
        for left in range(MAX_QUESTIONS - 1, -1, -1):
            if answer is None:
                line = refused_line(call.name, mode=self.mode)
                return Decision(allowed=False, reason=line, by="nobody", record=True)
            word = answer.strip().lower()
            if word in _YES:
                return self._grant(call, "once" if once else _YES[word])
            if word in _NO or not left:
                break
            answer = await ask(f"{answer.strip()[:20]!r} is not an answer: {'y or n' if once else 'y, t, a or n'}? ")
        reason = f"The person said no to this {call.name!r} call. Ask what they want, or go another way."
        return Decision(allowed=False, reason=reason, by="person", record=True)

    def _grant(self, call: ToolCall, scope: str) -> Decision:
        if scope == "turn":
            self.granted_turn.add(call.name)
        if scope == "notebook":
            self.granted_notebook.add(call.name)
        return Decision(allowed=True, scope=scope, by="person", record=True)


def refused_line(name: str, danger: Sequence[str] = (), *, mode: str = "ask", rule: str = "") -> str:
    """Return what the model is told when nobody can answer; its last line is what would allow the call.

    `rule` is the pattern of `tools.ask` that wants the question: no allow rule comes before it.
    """
    why = f" ({'; '.join(danger)})" if danger else ""
    how = f'NBAGENT_TOOLS__ALLOW={name}, or tools.allow = ["{name}"] in nbagent.toml'
    how += ", or %%agent --mode auto" if mode == "ask" else ""
    how = f"take {rule!r} out of tools.ask, and set NBAGENT_TOOLS__ALLOW={name}" if rule else how
    return f"Refused: {name!r} needs the person's approval{why}, and nobody can answer here.\nTo allow it: {how}"


def granted_in(entries: Iterable[Entry]) -> set[str]:
    """Return the tools that the person allowed for the whole notebook, on whatever branch."""
    return {
        e.body.tool
        for e in entries
        if isinstance(e.body, Approval) and e.body.decision == "allow" and e.body.scope == "notebook"
    }


def granted_this_turn(path: Sequence[Entry]) -> set[str]:
    """Return the tools that the person allowed for the turn that the path ends in."""
    names: set[str] = set()
    for entry in reversed(path):
        body = entry.body
        if isinstance(body, TurnStart):
            break
        if isinstance(body, Approval) and body.decision == "allow" and body.scope == "turn":
            names.add(body.tool)
    return names


def _named(tool: Tool, arguments: JsonObject, root: Path) -> tuple[Named, ...]:
    named = [named_path(p, root) for p in tool.paths(arguments)]
    if tool.spec.name == "skill":
        named.append(named_skill(str(arguments.get("skill", "")), str(arguments.get("arguments") or "")))
    if "command" in arguments:
        named.append(named_command(str(arguments["command"])))
    if "code" in arguments:
        named.append(named_code(str(arguments["code"])))
    return tuple(named)


def _danger(tool: Tool, arguments: JsonObject, root: Path) -> tuple[str, ...]:
    match tool.spec.name:
        case "python":
            return danger_in_python(str(arguments.get("code", "")))
        case "shell":
            return danger_in_command(str(arguments.get("command", "")))
        case "write" | "edit":
            forms = (form for path in tool.paths(arguments) for form in named_path(path, root).parts)
            return danger_in_writing(forms, str(arguments.get("content") or arguments.get("new") or ""))
    return ()


def question(name: str, arguments: JsonObject, danger: Sequence[str], *, once: bool) -> str:
    """Return what the person is asked; `once`: a rule wants it asked each time, so there is no wider yes."""
    body = str(arguments.get("code") or arguments.get("command") or canonical(arguments))
    lines = undisguised(body.strip()).split("\n")
    more = f"\n… ({len(lines) - SHOWN_LINES} more lines)" if len(lines) > SHOWN_LINES else ""
    text = "\n".join(lines[:SHOWN_LINES]) + more
    shown = text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}\n… ({len(text) - SHOWN_CHARS} more characters)"
    why = f"\nIt {'; it '.join(danger)}." if danger else ""
    choices = "[y]es, [n]o" if once else "[y]es, for this [t]urn, [a]lways in this notebook, [n]o"
    return f"The agent wants to use {name}:\n{shown}{why}\nAllow? {choices}: "
