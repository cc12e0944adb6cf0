"""Completion on magic lines: sub-commands, their options, and names where only some can stand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nbagent.notebook.commands.agent import AGENT_COMMANDS
from nbagent.notebook.commands.context import BESIDES, CONTEXT_COMMANDS, compact_parser
from nbagent.notebook.commands.memory import MEMORY_COMMANDS, add_parser, get_parser, search_parser
from nbagent.notebook.commands.skills import SKILLS_COMMANDS, new_parser
from nbagent.notebook.options import cell_parser, option_words
from nbagent.notebook.words import MODES, OBSERVED, RERUNS
from nbagent.runtime.contexts import known_policies, policy_names

_VALUES = {"--mode": MODES, "--rerun": RERUNS}
_NAMED = frozenset({"show", "why", "lint", "run", "enable", "disable", "trust"})
_MEMORY = {"search": search_parser, "add": add_parser, "get": get_parser, "show": get_parser}


def words_for(line: str, skills: Callable[[], Sequence[str]] = tuple) -> Sequence[str] | None:
    """Return what may stand at the end of `line`; None when the line is none of ours.

    `skills` gives the names of skills.

    >>> words_for("%%agent --mo")
    ['--mode', '--model']
    """
    words = line.split(" ")
    if words[:2] in (["%agent", "mode"], ["%agent", "observe"]) and len(words) == 3:
        return [v for v in (MODES if words[1] == "mode" else OBSERVED) if v.startswith(words[2])]
    if words[0] == "%%agent" and len(words) > 1:
        last, before = words[-1], words[-2]
        if before == "--skill":
            return sorted(n for n in skills() if n.startswith(last))
        if before == "--policy":
            return [n for n in policy_names() if n.startswith(last)]
        if before in _VALUES:
            return [v for v in _VALUES[before] if v.startswith(last)]
        return sorted(o for o, _ in option_words(cell_parser()) if o.startswith(last) and last)
    if words[0] == "%context" and len(words) > 2:
        return _of_context(words[1], words[2:])
    if words[0] == "%memory" and len(words) > 2 and words[1] in _MEMORY and words[-1].startswith("-"):
        return sorted(o for o, _ in option_words(_MEMORY[words[1]]()) if o.startswith(words[-1]))
    if words[0] == "%skills" and len(words) == 3 and words[1] in _NAMED:
        return sorted(n for n in skills() if n.startswith(words[2]))
    if words[:2] == ["%skills", "new"] and len(words) > 2 and words[-1].startswith("-"):
        return sorted(o for o, _ in option_words(new_parser()) if o.startswith(words[-1]))
    of_magic = (("%agent", AGENT_COMMANDS), ("%context", CONTEXT_COMMANDS), ("%memory", MEMORY_COMMANDS),
                ("%skills", SKILLS_COMMANDS))  # fmt: skip
    for magic, commands in of_magic:
        if words[0] == magic and len(words) == 2:
            return sorted(c for c in commands if c.startswith(words[1]))
    return None


_CONTEXT_OPTIONS = {"show": ("--json",), "cache": ("--json",), "note": ("--edit",), "compare": ("--live", "--yes")}


def _of_context(command: str, words: Sequence[str]) -> Sequence[str]:
    """Return what may stand at the end of `words`, which follow `%context COMMAND`."""
    last = words[-1]
    if last.startswith("-"):
        compacting = command == "compact"
        options = [o for o, _ in option_words(compact_parser())] if compacting else _CONTEXT_OPTIONS.get(command, ())
        return sorted(o for o in options if o.startswith(last))
    if command == "compare" or (command == "policy" and len(words) == 1):
        return [n for n in policy_names() if n.startswith(last)]
    if command != "set":
        return ()
    key, given, value = last.partition("=")
    if given:
        values = policy_names() if key == "policy" else BESIDES.get(key, ())
        return [f"{key}={v}" for v in values if v.startswith(value)]
    numbers = dict.fromkeys(n for kind in known_policies().values() for n in kind.default)
    return [f"{k}=" for k in (*BESIDES, *numbers) if k.startswith(last)]
