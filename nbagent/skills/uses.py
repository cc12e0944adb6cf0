"""Which skills were used: the log, and what of them is given again after a compaction. Pure, from entries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from nbagent.core.entries import Entry, SkillUse, ToolStarted, TurnEnd
from nbagent.core.tokens import estimate_tokens
from nbagent.skills.prompt import escaped, one_line_of

MAX_EACH_TOKENS: Final = 5_000  # Claude Code: of each skill
MAX_ALL_TOKENS: Final = 25_000  # Claude Code: of all
MIN_TOKENS: Final = 200  # less than that of a skill is no help
REFERENCE: Final = (
    "Skills used earlier in this conversation, for reference only. What they asked for was done then: do not do it "
    "again unless the person asks. Placeholders such as $ARGUMENTS stand for what was given then. Newest first."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRow:
    """One use of a skill, for `%skills log`: who chose it (`by`), for which request, and what came of it.

    `at` is UTC in seconds since the epoch; tokens are what its text cost, duration is in seconds.
    """

    name: str
    by: str
    why: str
    at: float
    tokens: int
    tools: tuple[str, ...]
    outcome: str
    duration_s: float


def skill_use(
    name: str, by: str, why: str, *, digest: str = "", tokens: int = 0, tools: Sequence[str] = (), outcome: str = "",
    duration_s: float = 0.0, agent: str = "", arguments: str = "", artifact: str = "", allowed: Sequence[str] = (),
    denied: Sequence[str] = (), journal: str = "",
) -> SkillUse:  # fmt: skip
    """Return the entry of one use. `agent` is the sub-agent that used it, "" for the conversation itself.

    `artifact` is where the body is stored as it was then, `digest` the file's hash. `allowed` and `denied` are the
    rules of tools that it brings for the turn. `journal` is where a sub-agent's conversation is kept.
    """
    given: dict[str, Any] = {
        "digest": digest, "tokens": tokens, "tools": list(tools), "outcome": outcome,
        "duration_s": round(duration_s, 3), "agent": agent, "arguments": arguments, "artifact": artifact,
        "allowed_tools": list(allowed), "disallowed_tools": list(denied), "journal": journal,
    }  # fmt: skip
    return SkillUse(name=name, by=by, why=why, details={k: v for k, v in given.items() if v})


def log_rows(entries: Iterable[Entry]) -> tuple[LogRow, ...]:
    """Return the uses among `entries`, in their order.

    What an entry does not say itself is read from what follows it in its turn: the tools that ran, how the turn
    ended, and when. A turn without an end is "running".
    """
    rows: list[LogRow] = []
    open_rows: list[int] = []
    for entry in entries:
        body = entry.body
        match body:
            case SkillUse():
                rows.append(_row(body, entry.at))
                if not body.details.get("outcome"):
                    open_rows.append(len(rows) - 1)
            case ToolStarted():
                for i in open_rows:
                    rows[i] = replace(rows[i], tools=tuple(dict.fromkeys((*rows[i].tools, body.name))))
            case TurnEnd():
                for i in open_rows:
                    rows[i] = replace(rows[i], outcome=body.outcome, duration_s=max(0.0, entry.at - rows[i].at))
                open_rows = []
    return tuple(rows)


def _row(use: SkillUse, at: float) -> LogRow:
    details = use.details
    return LogRow(
        name=use.name, by=use.by, why=one_line_of(use.why), at=at, tokens=_whole(details.get("tokens")),
        tools=tuple(map(str, details.get("tools") or ())), outcome=str(details.get("outcome") or "running"),
        duration_s=_seconds(details.get("duration_s")),
    )  # fmt: skip


def use_counts(entries: Iterable[Entry]) -> Mapping[str, int]:
    """Return how often each skill was used."""
    counts: dict[str, int] = {}
    for entry in entries:
        if isinstance(entry.body, SkillUse):
            counts[entry.body.name] = counts.get(entry.body.name, 0) + 1
    return counts


def skills_in_use(entries: Iterable[Entry]) -> tuple[SkillUse, ...]:
    """Return the latest use of each skill by this conversation itself, newest first; sub-agents' are theirs."""
    latest: dict[str, SkillUse] = {}
    for entry in entries:
        body = entry.body
        if isinstance(body, SkillUse) and not body.details.get("agent"):
            latest.pop(body.name, None)
            latest[body.name] = body
    return tuple(latest.values())[::-1]


def attach_after_compaction(
    uses: Iterable[SkillUse], body_of: Callable[[SkillUse], str | None], *,
    estimate: Callable[[str], int] = lambda text: estimate_tokens(text, "claude-4.7"),
    each_tokens: int = MAX_EACH_TOKENS, all_tokens: int = MAX_ALL_TOKENS,
) -> str:  # fmt: skip
    """Return the skills in use as reference text for after a compaction, "" when there are none.

    `uses` come newest first (`skills_in_use`); `body_of` returns a skill's text as it is in its
    file, without arguments put in, None when it cannot be had. Each is cut to its first
    `each_tokens`, all with what is around them stay within `all_tokens`. Nothing is run.
    """
    room = all_tokens - estimate(REFERENCE) - 20
    parts: list[str] = []
    for use in uses:
        body = body_of(use)
        if not body or room < MIN_TOKENS:
            continue
        part = _reference(use.name, body, min(each_tokens, room), estimate)
        room -= estimate(part) + 2
        parts.append(part)
    return "\n\n".join([REFERENCE, *parts]) if parts else ""


def _reference(name: str, body: str, limit_tokens: int, estimate: Callable[[str], int]) -> str:
    """Return one skill within `limit_tokens`, cut at a line's end where that is near."""

    def wrapped(text: str) -> str:
        cut = "\n[… the rest is left out; take the skill again if you need it]" if len(text) < len(body) else ""
        return f'<skill_reference name="{escaped(name)}">\n{text}{cut}\n</skill_reference>'

    if estimate(wrapped(body)) <= limit_tokens:
        return wrapped(body)
    low, high = 0, len(body) - 1
    while low < high:
        middle = (low + high + 1) // 2
        if estimate(wrapped(body[:middle])) <= limit_tokens:
            low = middle
        else:
            high = middle - 1
    head = body[:low]
    whole_lines = head.rpartition("\n")[0]
    return wrapped(whole_lines if len(whole_lines) > low * 0.8 else head)


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _seconds(value: object) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0
