"""Import formats: the text of another tool's recording becomes bodies of entries. Pure; `sessions` writes them.

Known: pi session JSONL, Claude Code JSONL, OpenHands event histories (JSONL with `history`), SWE-agent
trajectories (`.traj`), and conversations of OpenAI chat messages (tau-bench and the like, JSON or JSONL).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from nbagent.core.errors import UsageProblem
from nbagent.runtime.importing import events, messages
from nbagent.runtime.importing.recorder import Imported


def parse_recording(text: str, name: str = "the file") -> tuple[Imported, ...]:
    """Return the conversations of a recording; the format is told by its content.

    Raises:
        UsageProblem: it is in none of the known formats, or broken.
    """
    rows = _documents(text, name)
    first = rows[0] if rows else None
    try:
        if isinstance(first, Mapping) and first.get("type") == "session" and len(rows) > 1:
            return (messages.pi(rows),)
        if isinstance(first, Mapping) and "history" in first:
            return events.from_histories(rows)
        if any(isinstance(r, Mapping) and r.get("type") in ("user", "assistant") and "message" in r for r in rows):
            return (messages.claude_code(rows),)
        found = events.conversations(rows)
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        raise UsageProblem(
            f"{name} looks like a known recording but is broken ({type(error).__name__}: {error}); export it again"
        ) from error
    if not found:
        raise UsageProblem(
            f"{name} is in no known format; nbagent import reads pi and Claude Code sessions (JSONL), OpenHands "
            "histories, SWE-agent .traj files, and lists of OpenAI chat messages"
        )
    return found


def _documents(text: str, name: str) -> list[Any]:
    """Return the JSON values of the text: the lines of JSONL, the items of a list, or the one object."""
    stripped = text.lstrip("\ufeff \t\r\n")
    try:
        whole = json.loads(stripped)
        return whole if isinstance(whole, list) else [whole]
    except ValueError:
        pass
    rows = []
    for number, line in enumerate(stripped.splitlines(), 1):
        if line.strip():
            try:
                rows.append(json.loads(line))
            except ValueError as error:
                raise UsageProblem(
                    f"{name}:{number} is no JSON ({error}); nbagent import reads JSON and JSONL"
                ) from error
    return rows
