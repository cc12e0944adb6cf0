"""The matcher that IPython's completer asks on every Tab: it looks on only where the line is one of our magics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nbagent.notebook.registered import MAGICS

_BEGINNINGS = tuple(f"{mark}{magic.name} " for magic in MAGICS for mark in ("%", "%%"))


class AgentMatcher:
    """A matcher of IPython's completer (API version 2)."""

    matcher_api_version = 2
    matcher_identifier = "nbagent"

    def __init__(self, skills: Callable[[], Sequence[str]] = tuple) -> None:
        self._skills = skills
        self.__qualname__ = "AgentMatcher"  # the completer reads it of the matcher itself, as of a function

    def __call__(self, context: Any) -> dict[str, Any]:
        """Return completions for the line under the cursor; ours suppress others on our lines."""
        line = context.line_with_cursor[: context.cursor_position]
        if not line.startswith(_BEGINNINGS):
            return {"completions": [], "suppress": False}
        from IPython.core.completer import SimpleCompletion

        from nbagent.notebook.completion import words_for

        words = words_for(line, self._skills)
        if not words:
            return {"completions": [], "suppress": False}
        # The completer replaces the token, which leaves out dashes that we matched on.
        typed, token = line.split(" ")[-1], context.token
        skip = len(typed) - len(token) if typed.endswith(token) else 0
        found = [SimpleCompletion(text=w[skip:], type="option") for w in words]
        return {"completions": found, "suppress": True}
