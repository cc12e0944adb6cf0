"""The sub-commands of `%context` that only look: what the next request holds, and what the calls so far cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from nbagent.core.budget import scaled_parts
from nbagent.core.errors import UsageProblem
from nbagent.core.messages import Request, canonical
from nbagent.notebook.app import Ask, NotebookAgent
from nbagent.notebook.commands.agent import Words
from nbagent.notebook.reports.cache import CacheReport
from nbagent.notebook.reports.context import ContextReport, RequestReport, RequestSegment
from nbagent.runtime.caching import session_bill
from nbagent.runtime.compacting import provider_lines, rot_of, waiting_lines
from nbagent.runtime.contexts import acts_when_it_pays
from nbagent.runtime.doors import request_as_sent
from nbagent.runtime.ports import TurnOptions


def context_report(agent: NotebookAgent) -> ContextReport:
    """Return what the next request would hold."""
    session = agent.session()
    held = session.occupancy()
    by_cost = acts_when_it_pays(session.runner.policy_of(session.settings.policy))
    return ContextReport(
        model=session.current_model(), policy=session.settings.policy, window_tokens=held.budget.window_tokens,
        threshold_tokens=round(held.budget.threshold_share * held.budget.window_tokens), used_tokens=held.used_tokens,
        level=held.budget.level(held.used_tokens), categories=held.ledger.as_mapping(),
        cache_hit_rate=held.cache_hit_rate, cost_usd=held.cost_usd, estimated=held.estimated,
        rot=tuple(rot_of(session)), pending=waiting_lines(session), provider=provider_lines(session),
        when="when it pays, usually " if by_cost else "",
    )  # fmt: skip


def show(agent: NotebookAgent, words: Words, ask: Ask | None) -> RequestReport:
    """The exact request that the next turn would send: [--json]."""
    if rest := [w for w in words if w != "--json"]:
        raise UsageProblem(f"%context show takes --json only, not {rest[0]!r}")
    request = agent.preview(ask or Ask(prompt="", options=TurnOptions()))
    session = agent.session()
    return RequestReport(
        model=request.model, segments=tuple(_segments(agent, request)), as_json="--json" in words,
        window_tokens=session.occupancy().budget.window_tokens, request=request_as_sent(request),
        pending=waiting_lines(session),
    )  # fmt: skip


def _segments(agent: NotebookAgent, request: Request) -> list[RequestSegment]:
    """Return the parts of a request; their sizes add up to what the gauge predicts for it, as `%context` shows."""
    gauge = agent.session().runner.gauge
    meter, total = gauge.meter(agent.session().facts_of(request.model).family), gauge.looked_tokens
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
    sizes = scaled_parts([s.tokens for s in out], total)
    return [replace(s, tokens=size) for s, size in zip(out, sizes, strict=True)]


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


def cache(agent: NotebookAgent, words: Words, ask: Ask | None) -> CacheReport:
    """What each call cost, what the provider's cache saved, and what broke it: [--json]."""
    if rest := [w for w in words if w != "--json"]:
        raise UsageProblem(f"%context cache takes --json only, not {rest[0]!r}")
    session = agent.session()
    return CacheReport(bill=session_bill(session), replayed=session.cassette is not None, as_json="--json" in words)
