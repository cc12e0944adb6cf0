"""The line that `%load_ext` prints: the same for the same settings and session, whatever the time or machine."""

from __future__ import annotations

import os
from typing import Any

from nbagent import __version__
from nbagent.notebook.registered import AgentMagics
from nbagent.notebook.tracker import is_interactive, notebook_file
from nbagent.runtime.plain_start import plain_start

NO_KEY = (
    "\nNo key is set (ANTHROPIC_API_KEY): recordings play without one (`%agent replay FILE`), and %agent, "
    "%context and `%%agent --dry-run` work."
)


def welcome(magics: AgentMagics) -> str:
    """Return the line for the shell of `magics`; where nothing is set, as a rule nothing is imported for it."""
    shell = magics.shell
    notebook = notebook_file(shell)
    folder = os.path.dirname(notebook) if notebook else os.getcwd()
    configured = magics.configured()
    start = None if configured else plain_start(folder, os.environ, notebook)
    if start is None:
        from nbagent.runtime.set_start import set_start

        start = set_start(folder, os.environ, notebook, configured)
    if start is None:
        from nbagent.notebook.commands.agent import welcome as read_all

        return read_all(magics.agent_app)
    facts = (start.model, start.policy, start.window_tokens)
    line = facts_line(*facts, session=start.session, turns=start.turns, skills=start.skills)
    return line + key_line(shell, has_key=start.has_key)


def facts_line(model: str, policy: str, window_tokens: int, *, session: str, turns: int | None, skills: int) -> str:
    """Return the line itself; `turns` is None where they cannot be counted."""
    parts = [
        f"nbagent {__version__}: {model}", f"policy {policy}", f"window {window_tokens:,} tokens",
        f"session {session}",
        *([] if turns is None else [counted(turns, "turn") + (" on this branch" if turns else "")]),
        counted(skills, "skill"),
    ]  # fmt: skip
    return " · ".join(parts)


def key_line(shell: Any, *, has_key: bool) -> str:
    """Return what is said where a person could set a key and has not."""
    return NO_KEY if is_interactive(shell) and not has_key else ""


def counted(number: int, noun: str) -> str:
    """Return "1 turn", "2 turns"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
