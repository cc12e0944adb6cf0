"""Rules: patterns of tool calls that the person allows, wants to be asked about, or denies. Pure but for links.

A pattern is `tool` or `tool(text)`; `*` stands for any characters, slashes too. Text is matched
with the paths, the command or the code of a call. What denies is generous and what allows is
strict: a deny or ask rule meets any part of a command and any spelling of a path, an allow rule
only a command without shell operators and the place that a path really leads to.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from nbagent.core.errors import Diagnostic
from nbagent.tools.danger import danger_in_python

_OPERATORS = re.compile(r"[;&|\n\r`<>]|\$\(|\$\{")
_BREAKS = re.compile(r"[;&|\n\r`(){}<>]")
_QUOTED = re.compile(r"\"((?:[^\"\\]|\\.)*)\"|'([^']*)'")
_ASSIGNMENT = re.compile(r"\w+=\S*\s+")
_WRAPPER = re.compile(
    r"(?:\S*/)?(?:sudo|env|xargs|time|nohup|nice|exec|command|builtin|then|do|else|if|while|!|stdbuf|timeout)\b"
    r"\s+(?:(?:-\S+|\d\S*)\s+)*"
)
_MAX_DEPTH = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """One thing that a call names: a path, a command, code.

    `parts` are the forms in which a deny or ask rule may meet it, `whole` those that an allow rule
    has to fit. `plain` tells whether a pattern with `*` may allow it; else only the exact text does.
    """

    parts: tuple[str, ...]
    whole: tuple[str, ...]
    plain: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """What the rules say of a call: deny, ask or allow, by which pattern."""

    word: str
    pattern: str

    @property
    def names_text(self) -> bool:
        """Tell whether the pattern speaks of a text, not of every call of the tool."""
        return _split(self.pattern)[1] not in (None, "*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The patterns of the person. The first list with a match decides: deny, then ask, then allow."""

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()

    def ruling(self, tool: str, named: Sequence[Named] = ()) -> Ruling | None:
        """Return what the rules say of a call of `tool`; None when no pattern fits."""
        for word, patterns in (("deny", self.deny), ("ask", self.ask)):
            for pattern in patterns:
                if _meets(pattern, tool, named):
                    return Ruling(word=word, pattern=pattern)
        for pattern in self.allow:
            if _covers(pattern, tool, named):
                return Ruling(word="allow", pattern=pattern)
        return None

    def hides(self, path: str, root: Path) -> bool:
        """Tell whether a rule denies `read` this very file, or asks first: then no search may show what is in it.

        A rule that names no text speaks of the tool alone.
        """
        patterns = [p for p in (*self.deny, *self.ask) if _split(p)[1] not in (None, "*")]
        return any(_meets(p, "read", (named_path(path, root),)) for p in patterns)

    def faults(self, tools: Collection[str]) -> tuple[Diagnostic, ...]:
        """Return what is wrong with the patterns: a name that is no tool's would be a rule without effect."""
        named = [(k, p, _split(p)[0]) for k in ("allow", "ask", "deny") for p in getattr(self, k)]
        return tuple(
            Diagnostic(
                path=f"tools.{key}", line=None, cause=f"{pattern!r} fits no tool, so it has no effect",
                remedy=f"the tools are: {', '.join(tools)}",
            )
            for key, pattern, head in named
            if not any(_fits(head, tool) for tool in tools)
        )  # fmt: skip

    def verdict(self, tool: str, named: Sequence[Named] = ()) -> str | None:
        """Return "deny", "ask" or "allow"; None when no pattern fits."""
        ruling = self.ruling(tool, named)
        return ruling.word if ruling else None


def _split(pattern: str) -> tuple[str, str | None]:
    """Return (tool, text) of a pattern; text is None when it names none."""
    head, opened, rest = pattern.partition("(")
    text = rest.strip().removesuffix(")") if opened else None
    if text is not None and text.startswith("~"):
        text = os.path.expanduser(text)
    return head.strip(), text


def _fits(pattern: str, text: str) -> bool:
    if "*" not in pattern:
        return pattern == text
    return re.fullmatch(".*".join(re.escape(p) for p in pattern.split("*")), text, re.DOTALL) is not None


def _meets(pattern: str, tool: str, named: Sequence[Named]) -> bool:
    head, text = _split(pattern)
    if not _fits(head, tool):
        return False
    return text in (None, "*") or any(_fits(str(text), part) for n in named for part in n.parts)


def _covers(pattern: str, tool: str, named: Sequence[Named]) -> bool:
    head, text = _split(pattern)
    if not _fits(head, tool):
        return False
    if text is None or text == "*":
        return True
    return bool(named) and all(
        any(_fits(text, form) for form in n.whole) if n.plain or "*" not in text else False for n in named
    )


# ---------------------------------------------------------------- what a call names


def named_path(path: str, root: Path) -> Named:
    """Return a path in its spellings; relative ones start at `root`, links are resolved for what allows."""
    expanded = os.path.expanduser(path)
    absolute = os.path.normpath(os.path.join(root, expanded))
    real, real_root = real_path(absolute), os.path.realpath(root)
    whole = _with_relative(real, real_root)
    spelled = dict.fromkeys((path, expanded, *_with_relative(absolute, str(root)), *whole))
    return Named(parts=tuple(dict.fromkeys([*spelled, *(f"{s}/" for s in spelled)])), whole=whole)


def real_path(path: str) -> str:
    """Return where a path leads; one that no system takes (a NUL in it) leads to itself, and its tool refuses it."""
    try:
        return os.path.realpath(path)
    except ValueError:
        return path


def _with_relative(path: str, root: str) -> tuple[str, ...]:
    inside = path == root or path.startswith(root.rstrip("/") + "/")
    return (path, os.path.relpath(path, root)) if inside else (path,)


def named_command(command: str) -> Named:
    """Return a shell command and the commands in it, without what stands before them (`sudo`, `X=1`, a path)."""
    text = command.replace("\\\n", " ").strip()
    parts = dict.fromkeys((command, text, *_commands(text, 0)))
    return Named(parts=tuple(parts), whole=(text,), plain=not _OPERATORS.search(text))


def _commands(text: str, depth: int) -> Iterator[str]:
    for piece in _BREAKS.split(text):
        rest = " ".join(piece.split())
        while rest:
            yield rest
            first, _, arguments = rest.partition(" ")
            bare = first.strip("\\\"'").rsplit("/", 1)[-1].strip("\\\"'")
            if bare != first:
                yield f"{bare} {arguments}".strip()
            shorter = re.sub(_ASSIGNMENT, "", rest, count=1) if _ASSIGNMENT.match(rest) else ""
            wrapper = _WRAPPER.match(rest)
            rest = shorter or (rest[wrapper.end() :] if wrapper else "")
    if depth < _MAX_DEPTH:
        for quoted in _QUOTED.finditer(text):
            yield from _commands(quoted.group(1) or quoted.group(2) or "", depth + 1)


def named_skill(name: str, arguments: str) -> Named:
    """Return a skill by its name, alone and with its arguments: `skill(deploy)`, `skill(deploy *)`."""
    texts = tuple(dict.fromkeys((name.strip(), f"{name.strip()} {arguments}".strip())))
    return Named(parts=texts, whole=texts)


def named_code(code: str) -> Named:
    """Return Python code; a pattern with `*` allows one plain line that the danger scan lets pass."""
    text = code.strip()
    plain = "\n" not in text and ";" not in text and not danger_in_python(text)
    return Named(parts=tuple(dict.fromkeys((code, text, *(line.strip() for line in text.splitlines())))),
                 whole=(text,), plain=plain)  # fmt: skip
