"""The sub-commands of `%memory`: each takes the agent and the rest of the line, and returns what shows itself."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping
from typing import Any

from nbagent.core.errors import UsageProblem
from nbagent.notebook.app import NotebookAgent
from nbagent.notebook.options import HELP, OneLineParser, positive, split_line
from nbagent.notebook.reports.memory import MemoryAdded, MemoryExcerpt, MemoryHits, MemoryStatus, MemoryToday
from nbagent.notebook.reports.said import Said, help_of

_WORD = re.compile(r"\S+")
_SEARCH_ENDS = re.compile(r"(.*\S)\s+(--sessions|-k\s+\d+)", re.DOTALL)
_ADD_ENDS = re.compile(r"(.*\S)\s+(--person)", re.DOTALL)
SOURCES = {False: ("memory",), True: ("memory", "sessions")}
MORE = "What was said in earlier turns is searched by `%memory search --sessions`."


def memory_command(agent: NotebookAgent, line: str) -> Any:
    """Run `%memory LINE`; what begins with no sub-command is searched for."""
    word, _, rest = line.strip().partition(" ")
    if not word:
        return _status(agent, "")
    command = MEMORY_COMMANDS.get(HELP.get(word, word))
    return _search(agent, line.strip()) if command is None else command(agent, rest.strip())


def memory_help() -> str:
    """Return what `%memory?` shows."""
    parsers = (search_parser(), add_parser(), get_parser())
    return "\n".join([str(_help(None, "")), "", *(p.format_help() for p in parsers)])


def search_parser() -> OneLineParser:
    """Return the parser of `%memory search`. Options come first; the rest is the query, quotes and all."""
    parser = OneLineParser(prog="%memory search", add_help=False, allow_abbrev=False)
    parser.add_argument("--sessions", action="store_true", help="search what was said in all sessions too")
    parser.add_argument("-k", type=positive, metavar="N", help="at most so many hits (default: as the preset says)")
    parser.add_argument("query", nargs=argparse.REMAINDER, help="words or a question")
    return parser


def add_parser() -> OneLineParser:
    """Return the parser of `%memory add`. Options come first; the rest is the text, quotes and all."""
    parser = OneLineParser(prog="%memory add", add_help=False, allow_abbrev=False)
    parser.add_argument("--person", action="store_true", help="true of you in every project, not of this one")
    parser.add_argument("text", nargs=argparse.REMAINDER, help="one fact, to be understood alone")
    return parser


def get_parser() -> OneLineParser:
    """Return the parser of `%memory get`."""
    parser = OneLineParser(prog="%memory get", add_help=False, allow_abbrev=False)
    parser.add_argument("path", help="a note, as a hit names it")
    parser.add_argument("--from", dest="first", type=positive, default=1, metavar="N", help="first line, from 1")
    parser.add_argument("--lines", type=positive, default=120, metavar="N", help="how many lines (default 120)")
    return parser


def _search(agent: NotebookAgent, rest: str) -> MemoryHits:
    """Search the notes: [--sessions] [-k N] QUERY; also `%memory QUERY`."""
    rest, last = _ending(rest, _SEARCH_ENDS)
    parsed = search_parser().parse_args([*last, *rest.split()])
    query = _text(parsed.query, rest)
    if not query:
        raise UsageProblem("%memory search: say what to look for, in a few words or as a question")
    hits = agent.session().runner.memory.open().search(query, parsed.k, SOURCES[parsed.sessions])
    notes = (hits.behind, "" if parsed.sessions or hits else MORE)
    return MemoryHits(query, hits, note="\n".join(filter(None, notes)))


def _get(agent: NotebookAgent, rest: str) -> MemoryExcerpt:
    """Lines of a note as they stand: PATH [--from N] [--lines N]."""
    return _shown(agent, rest, "get")


def _show(agent: NotebookAgent, rest: str) -> MemoryExcerpt:
    """The same as get."""
    return _shown(agent, rest, "show")


def _shown(agent: NotebookAgent, rest: str, name: str) -> MemoryExcerpt:
    parsed, more = get_parser().parse_known_args(split_line(rest))
    if more:
        takes = f"%memory {name} takes one PATH, --from N and --lines N"
        raise UsageProblem(f"{takes}; to search for the words: %memory search {name} {rest}")
    memory = agent.session().runner.memory.open()
    return MemoryExcerpt(excerpt=memory.get(parsed.path, parsed.first, parsed.lines))


def _add(agent: NotebookAgent, rest: str) -> MemoryAdded:
    """Note a fact in today's log: [--person] TEXT."""
    rest, last = _ending(rest, _ADD_ENDS)
    parsed = add_parser().parse_args([*last, *rest.split()])
    text = _text(parsed.text, rest)
    memory = agent.session().runner.memory
    origin = memory.origin(cell=agent.tracker.claim().cell_id or "")
    return MemoryAdded(path=memory.open().add(text, origin, person=parsed.person), text=text)


def _status(agent: NotebookAgent, rest: str) -> MemoryStatus:
    """How many notes there are, how they are searched, and what is wrong; also `%memory` alone."""
    _nothing("status", rest)
    return MemoryStatus(status=agent.session().runner.memory.open().status())


def _reindex(agent: NotebookAgent, rest: str) -> MemoryStatus:
    """Make the index anew from the notes."""
    _nothing("reindex", rest)
    return MemoryStatus(status=agent.session().runner.memory.open().reindex())


def _today(agent: NotebookAgent, rest: str) -> MemoryToday:
    """Today's log of this project."""
    _nothing("today", rest)
    memory = agent.session().runner.memory.open()
    return MemoryToday(path=memory.plan_flush().note, text=memory.today_text())


def _help(agent: NotebookAgent | None, rest: str) -> Said:
    """This list."""
    return help_of("%memory", {name: fn for name, fn in MEMORY_COMMANDS.items() if name != "show"}, width=7)


def _nothing(name: str, rest: str) -> None:
    if rest:
        raise UsageProblem(f"%memory {name} takes no words; to search for them: %memory search {name} {rest}")


def _ending(rest: str, options: re.Pattern[str]) -> tuple[str, list[str]]:
    """Return the line without options at its end, and those; behind "--" everything is text."""
    last: list[str] = []
    while not rest.startswith("-- ") and (found := options.fullmatch(rest)):
        rest, last = found[1], [*found[2].split(), *last]
    return rest, last


def _text(words: list[str], line: str) -> str:
    """Return the last `words` of a line as they stand in it; quotes around the whole are no part of the text."""
    count = len(words) - (words[:1] == ["--"])
    text = line[list(_WORD.finditer(line))[-count].start() :].rstrip() if count else ""
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" and text.count(text[0]) == 2
    return text[1:-1] if quoted else text


MEMORY_COMMANDS: Mapping[str, Callable[[NotebookAgent, str], Any]] = {
    "help": _help, "search": _search, "get": _get, "show": _show, "add": _add, "today": _today, "status": _status,
    "reindex": _reindex,
}  # fmt: skip
