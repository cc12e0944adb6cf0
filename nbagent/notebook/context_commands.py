"""The sub-commands of `%context`: each takes the agent and its words, and returns a value that shows itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from nbagent.core.errors import UsageProblem
from nbagent.core.messages import Request, canonical
from nbagent.notebook.app import Ask, NotebookAgent
from nbagent.notebook.commands import Said, Words, only_word
from nbagent.notebook.options import split_line
from nbagent.notebook.report import ContextReport, RequestReport, RequestSegment
from nbagent.runtime.doors import request_as_sent
from nbagent.runtime.ports import TurnOptions


def context_command(agent: NotebookAgent, line: str, *, ask: Ask | None = None) -> Any:
    """Run `%context LINE`; `ask` is the turn that a dry run shows."""
    words = split_line(line)
    if not words:
        return context_report(agent)
    command = CONTEXT_COMMANDS.get(words[0])
    if command is None:
        raise UsageProblem(f"%context has no sub-command {words[0]!r}; it has: {', '.join(CONTEXT_COMMANDS)}")
    return command(agent, words[1:], ask)


def context_report(agent: NotebookAgent) -> ContextReport:
    """Return what the next request would hold."""
    session = agent.session()
    held = session.occupancy()
    turns = session.tree.turns_on_path()
    return ContextReport(
        model=session.model_name or (turns[-1].body.model if turns else session.settings.model),
        policy=session.settings.policy, window_tokens=held.budget.window_tokens,
        threshold_tokens=held.budget.threshold_tokens, used_tokens=held.used_tokens,
        level=held.budget.level(held.used_tokens), categories=held.ledger.as_mapping(),
        cache_hit_rate=held.cache_hit_rate, cost_usd=held.cost_usd, estimated=held.estimated,
    )  # fmt: skip


def _show(agent: NotebookAgent, words: Words, ask: Ask | None) -> RequestReport:
    if rest := [w for w in words if w != "--json"]:
        raise UsageProblem(f"%context show takes --json only, not {rest[0]!r}")
    request = agent.preview(ask or Ask(prompt="", options=TurnOptions()))
    session = agent.session()
    return RequestReport(
        model=request.model, segments=tuple(_segments(agent, request)), as_json="--json" in words,
        window_tokens=session.occupancy().budget.window_tokens, request=request_as_sent(request),
    )  # fmt: skip


def _segments(agent: NotebookAgent, request: Request) -> list[RequestSegment]:
    meter = agent.session().runner.gauge.meter(agent.session().model().facts.family)
    prefix = request.prefix
    tools = "\n".join(str(t["name"]) for t in prefix.tools)
    out = [RequestSegment(name="tools", tokens=sum(meter.tool(t) for t in prefix.tools), first_lines=tools)]
    for i, block in enumerate(prefix.system):
        name = prefix.categories[i] if i < len(prefix.categories) else "system"
        last = i == len(prefix.system) - 1
        text = str(block.get("text", ""))
        out.append(RequestSegment(name=name, tokens=meter.text(text), first_lines=_head(text), breakpoint=last))
    for i, message in enumerate(request.messages):
        text = "\n".join(_block_head(b) for b in message.blocks)
        tokens = meter.text(canonical(list(message.blocks)))
        mark = i in request.breakpoints
        out.append(RequestSegment(name=message.role, tokens=tokens, first_lines=_head(text), breakpoint=mark))
    return out


def _block_head(block: Mapping[str, Any]) -> str:
    kind = block.get("type")
    if kind == "text":
        return str(block.get("text", ""))
    if kind == "tool_use":
        return f"{block.get('name')}({canonical(block.get('input'))})"
    if kind == "tool_result":
        inner = block.get("content")
        parts = [inner] if isinstance(inner, str) else [_block_head(b) for b in inner or ()]
        return "result: " + "\n".join(parts)
    return f"[{kind}]"


def _head(text: str, most_lines: int = 6, most_chars: int = 600) -> str:
    lines = text[:most_chars].split("\n")[:most_lines]
    return "\n".join(lines) + (" …" if len(text) > most_chars or text.count("\n") >= most_lines else "")


def _policy(agent: NotebookAgent, words: Words, ask: Ask | None) -> Said:
    if words:
        name = only_word(words, "%context policy NAME")
        agent.session().runner.policy(TurnOptions(policy=name))
        agent.chosen["policy"] = name
    return Said(f"policy {agent.session().settings.policy}")


def _set(agent: NotebookAgent, words: Words, ask: Ask | None) -> Said:
    keys = {"window": "window_tokens", "threshold": "threshold"}
    for word in words:
        key, _, value = word.partition("=")
        if key not in keys or not value:
            raise UsageProblem(f"%context set takes KEY=VALUE with KEY one of {', '.join(keys)}, not {word!r}")
        agent.chosen[keys[key]] = _number(key, value)
    session = agent.session()
    budget = session.runner.budget(session.model().facts)
    threshold = f"threshold={budget.threshold_share:g} ({budget.threshold_tokens:,} tokens)"
    return Said(f"window={budget.window_tokens:,} {threshold}")


def _number(key: str, value: str) -> float:
    try:
        return float(value) if key == "threshold" else int(value.replace("_", "").replace(",", ""))
    except ValueError as error:
        raise UsageProblem(f"%context set {key}={value}: {value!r} is not a number") from error


CONTEXT_COMMANDS: Mapping[str, Callable[[NotebookAgent, Words, Ask | None], Any]] = {
    "show": _show, "policy": _policy, "set": _set,
}  # fmt: skip
