"""Puts arguments into a skill's text and finds the commands in it; pure, runs nothing.

One pass: a value that is put in is never looked at again, neither for placeholders nor for commands.
Placeholders inside a command are not put into its text: the command gets them as environment
variables, so that a value cannot become code.
Source: Claude Code's skills page (2026-08-22).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

REFUSED: Final = "[not run: no permission for the command `{command}`]"
_FENCED: Final = r"(?P<fence>^```!\w*[ \t]*\n(?P<fenced>.*?)\n```[ \t]*$)"
_QUOTED_COMMAND: Final = r"""(?P<quoted>(?<!\S)!`(?P<command>(?:[^`'"\n]|'[^'\n]*'|"[^"\n]*")+)`)"""
_PLAIN_COMMAND: Final = r"(?P<bare>(?<!\S)!`(?P<words>[^`\n]+)`)"
_VARIABLE: Final = r"\$\{(?P<variable>CLAUDE_[A-Z_]+|[A-Z_]+)\}"
_ARGUMENTS: Final = r"\$ARGUMENTS(?:\[(?P<index>\d{1,3})\]|(?!\w))"
_NUMBER: Final = r"\$(?P<number>\d{1,3})(?!\d)"
_ESCAPED: Final = r"\\(?P<escaped>\$(?=\d|ARGUMENTS|\{))"


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command line in a skill's text; `environ` are the values it names, to be set when it runs."""

    text: str
    environ: Mapping[str, str]


Part: TypeAlias = str | Command


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """A skill's text with its arguments put in; commands are still to be run."""

    parts: tuple[Part, ...]

    @property
    def commands(self) -> tuple[Command, ...]:
        """The commands in their order; each needs permission."""
        return tuple(p for p in self.parts if isinstance(p, Command))

    def text(self, outputs: Sequence[str] | None = None) -> str:
        """Return the whole text with the commands' outputs, which are not looked at again.

        Without `outputs` a sentence stands for each command: it was not permitted.
        """
        given = iter(outputs or ())
        return "".join(
            p
            if isinstance(p, str)
            else (REFUSED.format(command=p.text) if outputs is None else next(given).rstrip("\n"))
            for p in self.parts
        )


def render(
    body: str, arguments: str = "", *, names: Sequence[str] = (), variables: Mapping[str, str] | None = None
) -> Rendered:
    """Return the text of a skill run with `arguments`.

    `$ARGUMENTS` is all of them, `$ARGUMENTS[N]` and `$N` one (from 0, split as a shell does),
    `$name` that of a declared name. A number that was not given stays as it is, a name that was
    not given becomes nothing. `\\$1` is `$1`. `${CLAUDE_SKILL_DIR}` and the like come from
    `variables`; unknown ones stay. Where no placeholder takes the arguments they are added at the end.
    """
    given = _Given(arguments, names, variables or {})
    parts: list[Part] = []
    at = 0
    for found in _pattern(names).finditer(body):
        parts.append(body[at : found.start()])
        parts.append(given.part(found))
        at = found.end()
    parts.append(body[at:])
    if arguments.strip() and not given.used:
        parts.append(f"\n\nARGUMENTS: {arguments.strip()}")
    return Rendered(parts=_joined(parts))


def split_arguments(arguments: str) -> tuple[str, ...]:
    """Return the arguments as a shell would divide them; by blanks when a quote is left open."""
    try:
        return tuple(shlex.split(arguments))
    except ValueError:
        return tuple(arguments.split())


def _pattern(names: Sequence[str]) -> re.Pattern[str]:
    """Return the expression for all that is replaced; declared names literally, longest first."""
    declared = "|".join(
        re.escape(n) + (r"(?!\w)" if re.match(r"\w", n[-1]) else "") for n in sorted(filter(None, names), key=len)[::-1]
    )
    kinds = [_FENCED, _QUOTED_COMMAND, _PLAIN_COMMAND, _ESCAPED, _VARIABLE, _ARGUMENTS, _NUMBER]
    return re.compile("|".join([*kinds, *([rf"\$(?P<name>{declared})"] if declared else [])]), re.MULTILINE | re.DOTALL)


class _Given:
    """What there is to put in."""

    def __init__(self, arguments: str, names: Sequence[str], variables: Mapping[str, str]) -> None:
        self.arguments = arguments
        self.values = split_arguments(arguments)
        self.names = tuple(names)
        self.variables = variables
        self.used = False

    def part(self, found: re.Match[str]) -> Part:
        groups = found.groupdict()
        for kind in ("fenced", "command", "words"):
            if groups[kind] is not None:
                return self.command(groups[kind])
        if groups["escaped"]:
            return "$"
        value = self.value(groups)
        return found.group() if value is None else value

    def value(self, groups: Mapping[str, str | None]) -> str | None:
        """Return what a placeholder stands for, None when it stays as it is."""
        if groups["variable"] is not None:
            return self.variables.get(groups["variable"])
        self.used = True
        if groups.get("name") is not None:
            return self.at(self.names.index(str(groups["name"]))) or ""
        number = groups["index"] if groups["index"] is not None else groups["number"]
        return self.arguments if number is None else self.at(int(number))

    def at(self, index: int) -> str | None:
        return self.values[index] if index < len(self.values) else None

    def command(self, text: str) -> Command:
        """Return a command whose placeholders are names of variables."""
        environ = {k: v for k, v in self.variables.items() if f"${{{k}}}" in text}
        pieces = []
        at = 0
        for found in _pattern(self.names).finditer(text):
            groups = found.groupdict()
            pieces.append(text[at : found.start()])
            at = found.end()
            value = None if groups["variable"] or groups["escaped"] else self.value_in_command(groups)
            if value is None:
                pieces.append(found.group())
                continue
            name = f"SKILL_VALUE_{len(environ)}"
            environ[name] = value
            pieces.append(f"${{{name}}}")
        return Command(text="".join([*pieces, text[at:]]), environ=environ)

    def value_in_command(self, groups: Mapping[str, str | None]) -> str | None:
        inner = ("fenced", "command", "words")
        return None if any(groups[k] is not None for k in inner) else self.value(groups)


def _joined(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Return the parts with neighbouring texts put together."""
    found: list[Part] = []
    for part in parts:
        if isinstance(part, str) and found and isinstance(found[-1], str):
            found[-1] += part
        elif part:
            found.append(part)
    return tuple(found)
