"""The tool `recall`: search and read what was said and shown before, also what was compacted away or cleared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from nbagent.core.errors import ToolError
from nbagent.core.messages import JsonObject
from nbagent.tools.output import clean_text, cut_line
from nbagent.tools.tool import Found, Recall, ToolContext, ToolOutput, ToolSpec

MAX_FOUND: Final = 5  # and whole pieces of the archive: what the loss report calls one retrieval
SNIPPET_CHARS: Final = 2_200
NOTE_CHARS: Final = 300  # room for the line that says what continues

RECALL_SPEC: Final = ToolSpec(
    name="recall",
    description=(
        "Look up earlier parts of this conversation that were compacted away or cleared. With query: best snippets, "
        "each with its id. With id (and to, for a range): the whole text, as in a pointer `recall` ID or ID..ID; "
        "a long one continues with offset."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "Words to search for"},
            "id": {"type": "string", "description": "Entry to read"},
            "to": {"type": "string", "description": "Last entry of a range that begins at id"},
            "offset": {"type": "integer", "minimum": 0, "description": "Character to go on from (default 0)"},
        },
    },
    access="read",
    concurrent=True,
    formats_itself=True,
    replayed=False,
)


@dataclass(frozen=True, slots=True)
class RecallTool:
    """Searches or reads the conversation."""

    spec: ToolSpec = RECALL_SPEC

    def summary(self, input: JsonObject) -> str:
        """Return what is looked for."""
        if input.get("id"):
            return str(input["id"]) + (f"..{input['to']}" if input.get("to") else "")
        return str(input.get("query", ""))

    def paths(self, input: JsonObject) -> tuple[str, ...]:
        """Return nothing."""
        return ()

    async def run(self, input: JsonObject, context: ToolContext) -> ToolOutput:
        """Read the entry asked for, else search.

        Raises:
            ToolError: neither is asked for, or there is no such entry.
        """
        if context.recall is None:
            raise ToolError("there is no conversation to recall from here")
        query = str(input.get("query") or "").strip()
        first, last = _ids(input)
        if first:
            return _read(context.recall, first, last, int(input.get("offset") or 0), context.cap_chars)
        if not query:
            raise ToolError("recall: give query (words to search for), or id (an entry to read)")
        return _search(context.recall, query, context.cap_chars)


def _ids(input: JsonObject) -> tuple[str, str]:
    """Return the first and the last entry asked for; `id` may be written as the pointers are."""
    text = str(input.get("id") or "").replace("`", "").strip().removeprefix("recall").strip()
    first, _, last = text.partition("..")
    return first.strip(), str(input.get("to") or "").strip("` ") or last.strip() or first.strip()


def _read(recall: Recall, first: str, last: str, offset: int, cap_chars: int) -> ToolOutput:
    whole = clean_text(recall.read(first, last))
    if offset and offset >= len(whole):
        raise ToolError(f"recall: offset {offset:,} is past the end; there are {len(whole):,} characters")
    room = max(200, cap_chars - NOTE_CHARS)
    end = min(len(whole), offset + room)
    if end < len(whole) and (line_end := whole.rfind("\n", offset + room // 2, end)) > 0:
        end = line_end + 1
    text = whole[offset:end]
    shown = f"characters {offset:,}-{end:,} of {len(whole):,}"
    if offset or end < len(whole):
        to = f", to={last!r}" if last != first else ""
        more = f"; continue with recall(id={first!r}{to}, offset={end})" if end < len(whole) else ", to the end"
        text = f"{text.rstrip()}\n[{shown}{more}]"
    return ToolOutput(text=text or "[this entry has no text]", shown=shown)


def _search(recall: Recall, query: str, cap_chars: int) -> ToolOutput:
    found = recall.search(query, MAX_FOUND)
    if not found:
        return ToolOutput(text=f"[nothing in the conversation matches {cut_line(query, 100)!r}; try other words]")
    parts = _fitting([_snippet(f) for f in found], cap_chars - NOTE_CHARS)
    return ToolOutput(
        text="\n\n".join([*parts, "[recall(id=…) reads one of them in full]"]), shown=f"{len(parts)} snippets",
        meta={"found": list(dict.fromkeys(f.entry_id for f in found[: len(parts)]))},
    )  # fmt: skip


def _fitting(parts: Sequence[str], room_chars: int) -> list[str]:
    """Return the first parts that fit, at least one."""
    kept: list[str] = []
    for part in parts:
        if kept and sum(map(len, kept)) + len(part) > room_chars:
            break
        kept.append(part)
    return kept


def _snippet(found: Found) -> str:
    what = f"result of {found.tool}" if found.tool else found.who
    where = f"{found.entry_id} · turn {found.turn} · {what}" + (" · still in your context" if found.in_context else "")
    text = clean_text(found.text).strip()[:SNIPPET_CHARS]
    before = "… " if found.start else ""
    after = " …" if found.start + len(found.text) < found.full_chars else ""
    return f"[{where}]\n{before}{text}{after}"
