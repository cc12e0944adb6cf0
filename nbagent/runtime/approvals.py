"""Approvals: may this call run? Rules, then the mode, then the person."""

from __future__ import annotations

import fnmatch
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field

from nbagent.core.effects import Decision
from nbagent.core.entries import Approval, Entry, TurnStart
from nbagent.core.messages import ToolCall, canonical
from nbagent.tools.danger import danger_in_command, danger_in_python
from nbagent.tools.tool import Tool

Ask = Callable[[str], Awaitable[str | None]]

_YES = {"y": "once", "yes": "once", "t": "turn", "turn": "turn", "n": "notebook", "notebook": "notebook"}
_NO = {"d", "deny", "no"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Patterns of calls: `tool` or `tool(text)`, where text may hold `*` and is matched with a path or command."""

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()

    def verdict(self, name: str, texts: Sequence[str]) -> str | None:
        """Return "deny", "ask" or "allow" by the first list that matches, in this order; None when none does."""
        for word, patterns in (("deny", self.deny), ("ask", self.ask), ("allow", self.allow)):
            if any(_matches(p, name, texts) for p in patterns):
                return word
        return None


def _matches(pattern: str, name: str, texts: Sequence[str]) -> bool:
    head, _, rest = pattern.partition("(")
    if not fnmatch.fnmatchcase(name, head.strip()):
        return False
    if not rest:
        return True
    inner = rest.removesuffix(")")
    return any(fnmatch.fnmatchcase(text, inner) for text in texts)


@dataclass(slots=True, kw_only=True)
class Approvals:
    """Decides on calls of one turn. `ask` is None where nobody can answer.

    `granted_turn` and `granted_notebook` are names of tools that the person let run without asking again.
    """

    tools: dict[str, Tool]
    mode: str
    rules: Rules = field(default_factory=Rules)
    ask: Ask | None = None
    grants: frozenset[str] = frozenset()
    granted_turn: set[str] = field(default_factory=set)
    granted_notebook: set[str] = field(default_factory=set)
    before_asking: Callable[[], None] = lambda: None

    async def decide(self, call: ToolCall, *, masked: bool) -> Decision:
        """Return whether `call` may run; asks the person when rules and mode say so."""
        tool = self.tools.get(call.name)
        if tool is None:
            return Decision(allowed=True)  # the toolbox answers that there is no such tool
        if masked:
            return Decision(
                allowed=False, reason=f"The tool {call.name!r} is not available in this turn. Use another one."
            )
        verdict = self.rules.verdict(call.name, _texts(tool, call))
        if verdict == "deny":
            return Decision(allowed=False, reason=f"A rule of the person denies {call.name!r} for this. Do not retry.")
        if self.mode == "plan" and tool.spec.access != "read":
            return Decision(
                allowed=False,
                reason=f"{call.name!r} is not available in plan mode, which only reads. Say what you would do instead.",
            )
        if call.name in self.granted_turn | self.granted_notebook:
            return Decision(allowed=True, by="person")
        if verdict == "allow" or call.name in self.grants:
            return Decision(allowed=True)
        if verdict is None and tool.spec.access == "read":
            return Decision(allowed=True)
        danger = _danger(call) if self.mode == "auto" else ()
        if verdict is None and self.mode == "auto" and not danger:
            return Decision(allowed=True, by="mode")
        return await self._ask(tool, call, danger)

    async def _ask(self, tool: Tool, call: ToolCall, danger: Sequence[str]) -> Decision:
        self.before_asking()
        question = _question(tool, call, danger)
        answer = None if self.ask is None else await self.ask(question)
        tries = 0
        while answer is not None:
            word = answer.strip().lower()
            if word in _YES:
                return self._grant(call, _YES[word])
            if word in _NO or not word or tries == 2:
                reason = f"The person said no to this {call.name!r} call. Ask what they want, or go another way."
                return Decision(allowed=False, reason=reason, by="person", record=True)
            tries += 1
            assert self.ask is not None
            answer = await self.ask(f"{answer.strip()[:20]!r} is not an answer: y, t, n or d? ")
        return Decision(allowed=False, reason=refused_line(call.name, danger), by="nobody", record=True)

    def _grant(self, call: ToolCall, scope: str) -> Decision:
        if scope == "turn":
            self.granted_turn.add(call.name)
        if scope == "notebook":
            self.granted_notebook.add(call.name)
        return Decision(allowed=True, scope=scope, by="person", record=True)


def refused_line(name: str, danger: Sequence[str] = ()) -> str:
    """Return what the model is told when nobody can answer; its last line is what would allow the call."""
    why = f" ({'; '.join(danger)})" if danger else ""
    return (
        f"Refused: {name!r} needs the person's approval{why}, and nobody can answer here.\n"
        f'To allow it: NBAGENT_TOOLS__ALLOW={name}, or tools.allow = ["{name}"] in nbagent.toml, or %%agent --mode auto'
    )


def granted_in(path: Iterable[Entry]) -> set[str]:
    """Return the tools that the person allowed for the whole notebook on this path."""
    return {
        e.body.tool
        for e in path
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


def _texts(tool: Tool, call: ToolCall) -> tuple[str, ...]:
    if not isinstance(call.input, dict):
        return ()
    own = [str(call.input[k]) for k in ("command", "code") if k in call.input]
    return (*tool.paths(call.input), *own)


def _danger(call: ToolCall) -> tuple[str, ...]:
    if not isinstance(call.input, dict):
        return ()
    if call.name == "python":
        return danger_in_python(str(call.input.get("code", "")))
    if call.name == "shell":
        return danger_in_command(str(call.input.get("command", "")))
    return ()


def _question(tool: Tool, call: ToolCall, danger: Sequence[str]) -> str:
    shown = call.input if isinstance(call.input, dict) else {}
    body = str(shown.get("code") or shown.get("command") or canonical(shown))
    lines = body.strip().split("\n")
    text = "\n".join(lines[:30]) + (f"\n… ({len(lines) - 30} more lines)" if len(lines) > 30 else "")
    why = f"\nIt {'; it '.join(danger)}." if danger else ""
    choices = "Allow? [y]es, this [t]urn, this [n]otebook, [d]eny: "
    return f"The agent wants to use {call.name}:\n{text[:4000]}{why}\n{choices}"
