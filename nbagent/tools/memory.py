"""Tools `memory_search`, `memory_get` and `remember` (OC-M4, OC-M5, NB-M2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from nbagent.core.errors import ToolError, UserError
from nbagent.core.messages import JsonObject
from nbagent.tools.memory_types import MemoryPort
from nbagent.tools.output import cut_line
from nbagent.tools.tool import ToolContext, ToolOutput, ToolSpec

if TYPE_CHECKING:
    from nbagent.memory.hits import Hit

MAX_RESULTS: Final = 20
MAX_LINES: Final = 400

SEARCH_SPEC: Final = ToolSpec(
    name="memory_search",
    description=(
        "Search the notes kept about this project and person: earlier work, decisions, dates, people, preferences, "
        "open tasks. Ask it before answering about any of these, in a few words or as a question. Gives snippets with "
        "path and lines; memory_get reads more of one. `sources` may add what was said in earlier sessions."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "What to look for"},
            "max_results": {"type": "integer", "minimum": 1, "maximum": MAX_RESULTS},
            "sources": {
                "type": "array",
                "items": {"type": "string", "enum": ["memory", "sessions"]},
                "description": "memory (notes, the default), sessions (words of past turns)",
            },
        },
        "required": ["query"],
    },
    access="read",
    concurrent=True,
    formats_itself=True,
)
GET_SPEC: Final = ToolSpec(
    name="memory_get",
    description="Read lines of a note as they stand, by the path that memory_search gave.",
    input_schema={
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "As memory_search gave it"},
            "from": {"type": "integer", "minimum": 1, "description": "First line, from 1"},
            "lines": {"type": "integer", "minimum": 1, "maximum": MAX_LINES},
        },
        "required": ["path"],
    },
    access="read",
    concurrent=True,
    formats_itself=True,
)
REMEMBER_SPEC: Final = ToolSpec(
    name="remember",
    description=(
        "Append one fact to today's log, to be found in later sessions: a decision with its reason, a preference, "
        "what data means, what is left to do. It must be understood alone. No secrets, and nothing that the notebook "
        "shows anyway."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "text": {"type": "string", "description": "The fact, in a sentence or two"},
            "scope": {
                "type": "string",
                "enum": ["project", "person"],
                "description": "person: true of the person in every project",
            },
        },
        "required": ["text"],
    },
    access="write",
)


def memory_of(context: ToolContext) -> MemoryPort:
    """Return the memory that the context carries.

    Raises:
        ToolError: it carries none.
    """
    if context.memory is None:
        raise ToolError("there is no memory in this session; go on without it")
    return context.memory


@dataclass(frozen=True, slots=True)
class MemorySearchTool:
    """Searches notes, and sessions when asked to."""

    spec: ToolSpec = SEARCH_SPEC

    def summary(self, input: JsonObject) -> str:
        """Return the query."""
        return cut_line(" ".join(str(input.get("query", "")).split()), 80)

    def paths(self, input: JsonObject) -> tuple[str, ...]:
        """Return nothing: memory guards its own folders."""
        return ()

    async def run(self, input: JsonObject, context: ToolContext) -> ToolOutput:
        """Search.

        Raises:
            ToolError: no memory, or an unknown source.
        """
        memory = memory_of(context)
        count = input.get("max_results")
        sources = tuple(map(str, input.get("sources") or ("memory",)))
        try:
            hits = memory.search(str(input["query"]), None if count is None else int(str(count)), sources)
        except UserError as error:
            raise ToolError(str(error)) from error
        return ToolOutput(text=hits_text(hits, context.cap_chars), shown=f"{len(hits)} hits")


@dataclass(frozen=True, slots=True)
class MemoryGetTool:
    """Reads lines of a note."""

    spec: ToolSpec = GET_SPEC

    def summary(self, input: JsonObject) -> str:
        """Return path and first line."""
        first = input.get("from")
        return cut_line(f"{input.get('path', '')}{f':{first}' if first else ''}", 100)

    def paths(self, input: JsonObject) -> tuple[str, ...]:
        """Return nothing: memory guards its own folders."""
        return ()

    async def run(self, input: JsonObject, context: ToolContext) -> ToolOutput:
        """Read.

        Raises:
            ToolError: no such note, outside of the notes, or no such line.
        """
        memory = memory_of(context)
        try:
            part = memory.get(str(input["path"]), int(str(input.get("from") or 1)), int(str(input.get("lines") or 120)))
        except UserError as error:
            raise ToolError(str(error)) from error
        text, count, after = part.text, part.lines, part.next_line
        room = max(1, context.cap_chars - 160)
        if len(text) > room:
            whole = text[: room + 1].rpartition("\n")[0]
            count = whole.count("\n") + 1
            after = part.from_line + count if count < part.lines else part.next_line
            text = whole or f"{text[:room]} [… the line is cut here]"
        last = part.from_line + count - 1
        shown = f"lines {part.from_line}-{last} of {part.total_lines}"
        more = f"; from={after} reads on" if after else ""
        return ToolOutput(text=f"{text}\n[{part.path}, {shown}{more}]", shown=shown)


@dataclass(frozen=True, slots=True)
class RememberTool:
    """Appends a fact to today's log."""

    spec: ToolSpec = REMEMBER_SPEC

    def summary(self, input: JsonObject) -> str:
        """Return the fact, shortened."""
        return cut_line(" ".join(str(input.get("text", "")).split()), 100)

    def paths(self, input: JsonObject) -> tuple[str, ...]:
        """Return nothing: it writes to today's log only."""
        return ()

    async def run(self, input: JsonObject, context: ToolContext) -> ToolOutput:
        """Store.

        Raises:
            ToolError: nothing to store, a secret in it, or the disk refuses.
        """
        memory = memory_of(context)
        try:
            path = memory.remember(str(input["text"]), person=input.get("scope") == "person")
        except UserError as error:
            raise ToolError(str(error)) from error
        return ToolOutput(text=f"Remembered in {path}.", shown=path)


def hits_text(hits: Sequence[Hit], limit_chars: int) -> str:
    """Return hits for a model: place, date and origin on one line, then the snippet. Within `limit_chars`.

    What an index that is behind means for them (`Hits.behind`) stands first, or behind the word that there are none.
    """
    behind = str(getattr(hits, "behind", ""))
    if not hits:
        nothing = "Nothing in memory matches. Try other words, or sources=['memory', 'sessions']."
        return f"{nothing}\n[{behind}]" if behind else nothing
    parts: list[str] = [f"[{behind}]"] if behind else []
    room = limit_chars - 100 - sum(map(len, parts))
    for number, hit in enumerate(hits, 1):
        lines = f"{hit.start_line}" if hit.start_line == hit.end_line else f"{hit.start_line}-{hit.end_line}"
        facts = [hit.date, hit.heading, _origin(hit)]
        head = f"{number}. {hit.path}:{lines}" + "".join(f" · {f}" for f in facts if f)
        old = f"\n   ({hit.otherwise})" if hit.contradicts else ""
        part = f"{head}{old}\n{hit.snippet}"
        if number > 1 and len(part) > room:
            parts.append(f"[{len(hits) - number + 1} more hits; ask for fewer, or more precisely]")
            break
        parts.append(part[:limit_chars])
        room -= len(part) + 2
    return "\n\n".join(parts)


def _origin(hit: Hit) -> str:
    origin = hit.provenance
    if origin is None:
        return ""
    turn = f"turn {origin.turn}" if origin.turn else ""
    cell = f"cell {origin.cell}" if origin.cell else ""
    return ", ".join(filter(None, (turn, cell)))
