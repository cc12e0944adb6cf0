"""What may be typed on a `%%agent` or `%agent` line, and what it means."""

from __future__ import annotations

import argparse
import keyword
import math
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from numbers import Real
from typing import Any, NoReturn

from nbagent.core.errors import UsageProblem
from nbagent.notebook.words import MODES, RERUNS
from nbagent.runtime.ports import TurnOptions


class OneLineParser(argparse.ArgumentParser):
    """An argument parser whose faults are one readable line, and which never ends the kernel."""

    def error(self, message: str) -> NoReturn:
        """Raise the fault with what to do."""
        raise UsageProblem(f"{self.prog}: {message}. `{self.prog.split()[0]}?` shows the options")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """Never end the process."""
        raise UsageProblem((message or f"{self.prog}: nothing to do").strip())


def cell_parser() -> OneLineParser:
    """Return the parser of `%%agent`."""
    parser = OneLineParser(prog="%%agent", add_help=False, allow_abbrev=False, description=(
        "Run the cell's text as a turn of the agent. The text is sent byte for byte."))  # fmt: skip
    parser.add_argument("-m", "--model", metavar="NAME", type=_named, help="model for this turn")
    parser.add_argument("--policy", metavar="NAME", type=_named, help="context policy from this turn on")
    parser.add_argument("--mode", choices=MODES, help="permissions for this turn (plan only reads)")
    parser.add_argument("--tools", metavar="A,B", help="narrow the tools for this turn (masked, not removed)")
    parser.add_argument("--skill", metavar="NAME", type=_named,
                        help="use this skill (also one that is hidden from the model)")
    _add_limits(parser)
    parser.add_argument("--rerun", choices=RERUNS, help="what running this cell again does (default fork)")
    parser.add_argument("--new", action="store_true", help="start a new conversation; the old one stays")
    parser.add_argument("-o", "--out", metavar="NAME", type=_name,
                        help="bind the TurnResult to a variable, also when the turn ended early")
    parser.add_argument("-q", "--quiet", action="store_true", help="show the answer only")
    parser.add_argument("--dry-run", action="store_true", help="show what would be sent; costs nothing")
    return parser


def _add_limits(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--max-steps", type=positive, metavar="N", help="stop after N model calls")
    parser.add_argument("--max-tokens", type=positive, metavar="N", help="stop after N output tokens")
    parser.add_argument("--max-cost", type=amount, metavar="USD", help="stop when the turn has cost this much")


def resume_parser() -> OneLineParser:
    """Return the parser of `%agent resume`; what is not given stays as the turn began with it."""
    parser = OneLineParser(prog="%agent resume", add_help=False, allow_abbrev=False)
    _add_limits(parser)
    return parser


def resume_options(words: Sequence[str]) -> TurnOptions:
    """Return the limits that `%agent resume` is given.

    Raises:
        UsageProblem: something else, or a wrong value.
    """
    known, rest = resume_parser().parse_known_args(list(words))
    if rest:
        raise UsageProblem(
            f"%agent resume takes --max-steps, --max-tokens and --max-cost, not {rest[0]!r}; it goes on with the last "
            "turn, whose limits hold unless you give others"
        )
    return TurnOptions(max_steps=known.max_steps, max_tokens=known.max_tokens, max_cost_usd=known.max_cost)


_QUOTED = r"(?:\"[^\"]*\"|'[^']*')"
_WORD = re.compile(rf"\s*(?:(?P<name>[^\s\"'=]+=)?(?P<quoted>{_QUOTED})(?=\s|$)|(?P<plain>\S+))")


def split_line(line: str) -> list[str]:
    """Split a magic's line at blanks; a quoted word may hold some, a word that begins with `#` is a comment.

    A backslash is itself (as in paths of Windows), and so is a quote inside a word (it's).

    Raises:
        UsageProblem: a quote is not closed.
    """
    words: list[str] = []
    for found in _WORD.finditer(line.rstrip()):
        if found["quoted"] is not None:
            words.append((found["name"] or "") + found["quoted"][1:-1])
        elif found["plain"].startswith("#"):
            break
        elif found["plain"].partition("=")[2][:1] in ("'", '"') or found["plain"][0] in "'\"":
            raise UsageProblem(f"the line {line.strip()!r} cannot be read: close the quote of {found['plain']!r}")
        else:
            words.append(found["plain"])
    return words


def verbatim(rest: str) -> list[str]:
    """Return what follows a sub-command that takes a text as one word: as it is, without quotes around the whole."""
    text = rest.strip()
    quote = text[:1]
    if len(text) > 1 and quote in ("'", '"') and text.endswith(quote) and quote not in text[1:-1]:
        text = text[1:-1]
    return [text] if text else []


def parse_cell_line(line: str) -> argparse.Namespace:
    """Return the options of a `%%agent` line.

    Raises:
        UsageProblem: an unknown option or a wrong value.
    """
    words = split_line(line)
    parser = cell_parser()
    known, rest = parser.parse_known_args(words)
    if rest:
        raise UsageProblem(_stray(rest[0], parser))
    return known


_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\uff0d"  # what editors and input methods make of hyphens


def _stray(word: str, parser: argparse.ArgumentParser) -> str:
    options = [o for a in parser._actions for o in a.option_strings]
    if (meant := f"--{word.lstrip(_DASHES + '-')}") != word and word[0] in _DASHES + "-" and meant in options:
        return f"%%agent has no option {word!r}: its dashes are no hyphens; type {meant}"
    if word in HELP:
        return f"%%agent has no option {word!r}; `%%agent?` shows the options"
    if word.startswith("-"):
        import difflib

        near = difflib.get_close_matches(word, options, n=1, cutoff=0.6)
        hint = f"did you mean {near[0]}?" if near else "`%%agent?` shows them"
        return f"%%agent has no option {word!r}; {hint}"
    return f"%%agent takes options only on its first line, not {word!r}; write the request below it"


HELP = {"-h": "help", "--help": "help"}  # what is typed for the list of sub-commands


def nearest(word: str, words: Iterable[str]) -> str:
    """Return a sentence that names the one of `words` that was meant, with a blank before it; empty for none."""
    import difflib

    near = difflib.get_close_matches(word.casefold(), list(words), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def no_words(words: Sequence[str], name: str) -> None:
    """Refuse what stands behind a sub-command that takes nothing."""
    if words:
        raise UsageProblem(f"{name} takes no words, and there is {words[0]!r}; leave it out")


def turn_options(parsed: argparse.Namespace) -> TurnOptions:
    """Return the options of a turn."""
    tools = None if parsed.tools is None else _listed(parsed.tools)
    return TurnOptions(
        model=parsed.model, policy=parsed.policy, mode=parsed.mode, tools=tools, skill=parsed.skill,
        max_steps=parsed.max_steps, max_tokens=parsed.max_tokens, max_cost_usd=parsed.max_cost, rerun=parsed.rerun,
        new=parsed.new,
    )  # fmt: skip


def asked_options(given: Mapping[str, Any]) -> TurnOptions:
    """Return the options of a turn that `nbagent.ask` is given by name; None is as if it were not given.

    Raises:
        UsageProblem: an unknown option, or a value that it cannot have.
    """
    known = [n.replace("max_cost_usd", "max_cost") for n in TurnOptions.__dataclass_fields__]
    taken: dict[str, Any] = {}
    for name, value in given.items():
        if name not in known:
            raise UsageProblem(f"nbagent.ask has no option {name!r}; it has: {', '.join(known)}, quiet, show")
        if value is None:
            continue
        if fault := _fault(name, value):
            raise UsageProblem(f"nbagent.ask: {name} must be {fault}, not {value!r}")
        taken[name] = _listed(value) if name == "tools" else value
    if "max_cost" in taken:
        taken["max_cost_usd"] = taken.pop("max_cost")
    return TurnOptions(**taken)


def _fault(name: str, value: Any) -> str:
    """Return what `value` would have to be; empty when it is that."""
    number = value is not True and isinstance(value, Real) and 0 < float(value) < math.inf
    match name:
        case "max_steps" | "max_tokens":
            return "" if number and value == int(value) else "a whole number above 0"
        case "max_cost":
            return "" if number else "an amount above 0"
        case "mode" | "rerun":
            words = MODES if name == "mode" else RERUNS
            return "" if value in words else f"one of {', '.join(words)}"
        case "tools":
            names = value.split(",") if isinstance(value, str) else value
            right = isinstance(names, Sequence | Set) and all(isinstance(n, str) for n in names)
            return "" if right else "a list of names"
        case "new":
            return "" if isinstance(value, bool) else "True or False"
        case "skill_arguments":
            return "" if isinstance(value, str) else "a text"
        case _:
            return "" if isinstance(value, str) and value.strip() else "a name"


def _listed(names: Any) -> tuple[str, ...]:
    found = names.split(",") if isinstance(names, str) else names
    return tuple(n.strip() for n in found if n.strip())


def option_words(parser: argparse.ArgumentParser) -> Sequence[tuple[str, str]]:
    """Return (option, help) of a parser, long forms first, for completion."""
    found = [(o, a.help or "") for a in parser._actions for o in a.option_strings]
    return sorted(found, key=lambda pair: (not pair[0].startswith("--"), pair[0]))


def positive(text: str) -> int:
    """Return a whole number above 0, for argparse."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def amount(text: str) -> float:
    """Return a number above 0, for argparse."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not an amount above 0")
    return value


def _named(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("the name is empty")
    return text.strip()


def _name(text: str) -> str:
    if not text.isidentifier() or keyword.iskeyword(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a variable name")
    return text
