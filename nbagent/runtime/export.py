"""Export: a conversation as a document that reads well without nbagent: Markdown, HTML or JSON.

Only what stands on the path given is told, in its order; the journal keeps the rest.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nbagent.core.entries import (
    AssistantMessage,
    Compaction,
    Entry,
    Report,
    Snapshot,
    Steering,
    ToolResult,
    TurnEnd,
    TurnStart,
    UsageReported,
    UserMessage,
)
from nbagent.core.errors import JournalUnwritable, UsageProblem, counted
from nbagent.core.messages import Block, is_tool_call, joined_text
from nbagent.store.files import remedy_for, write_whole

FORMAT, VERSION = "nbagent-export", 1
KINDS = (".md", ".html", ".json")


@dataclass(slots=True, kw_only=True)
class Item:
    """One thing of a turn. `kind`: text, thinking, call, note, steering; the other fields as the kind needs them."""

    kind: str
    text: str = ""
    title: str = ""
    call_id: str = ""
    input: Any = None
    status: str = ""
    images: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class ExportedTurn:
    """One turn: what was asked, what happened, how it ended. `images` are data URLs."""

    turn: str
    model: str
    policy: str
    mode: str
    prompt: str = ""
    attached: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    items: list[Item] = field(default_factory=list)
    outcome: str = "not ended"
    message: str = ""
    steps: int = 0
    cost_usd: float = 0.0


def export(path: Sequence[Entry], target: Path, *, title: str) -> None:
    """Write the conversation on `path` to the file `target`; its ending (.md, .html, .json) chooses the form.

    Raises:
        UsageProblem: another ending, or a folder.
        JournalUnwritable: the file cannot be written.
    """
    text = export_text(path, target.suffix.lower(), title=title)
    if target.is_dir():
        raise UsageProblem(f"{str(target)!r} is a folder; name a file in it, such as conversation{target.suffix}")
    try:
        write_whole(target, text)
    except OSError as error:
        remedy = remedy_for(error, "check the folder and its permissions")
        raise JournalUnwritable(f"{str(target)!r} cannot be written ({error.strerror}); {remedy}") from error


def export_text(path: Sequence[Entry], kind: str, *, title: str) -> str:
    """Return the conversation on `path` as text of a `kind` in KINDS; the same for the same path.

    Raises:
        UsageProblem: another kind.
    """
    turns = exported_turns(path)
    if kind == ".md":
        return to_markdown(turns, title)
    if kind == ".html":
        from nbagent.runtime.export_html import to_html

        return to_html(turns, title)
    if kind == ".json":
        return to_json(turns, title)
    named = repr(kind) if kind else "a file without an ending"
    raise UsageProblem(f"cannot export to {named}; end the name in {', '.join(KINDS)}")


def exported_turns(path: Iterable[Entry]) -> tuple[ExportedTurn, ...]:
    """Return the turns on `path`; what stands before the first turn is told with it."""
    turns: list[ExportedTurn] = []
    before: list[Item] = []
    for entry in path:
        body = entry.body
        if isinstance(body, TurnStart):
            turn = ExportedTurn(turn=body.turn, model=body.model, policy=body.policy, mode=body.mode, items=before)
            turns.append(turn)
            before = []
        elif turns:
            _tell(turns[-1], body)
        else:
            before.extend(_notes(body))
    return tuple(turns)


def _tell(turn: ExportedTurn, body: object) -> None:
    match body:
        case UserMessage(blocks=blocks):
            texts = [str(b.get("text") or "") for b in blocks if b.get("type") == "text"]
            turn.prompt, turn.attached, turn.images = "".join(texts[:1]), tuple(texts[1:]), images_of(blocks)
        case AssistantMessage(blocks=blocks, cut=cut):
            turn.items.extend(_replied(blocks))
            turn.steps += 1
            if cut:
                turn.items.append(Item(kind="note", title="cut", text=f"The reply is not whole: {cut}."))
        case ToolResult():
            _answer(turn, body)
        case UsageReported(cost_usd=cost):
            turn.cost_usd += cost
        case TurnEnd(outcome=outcome, message=message):
            turn.outcome, turn.message = outcome, message
        case _:
            turn.items.extend(_notes(body))


def _replied(blocks: Iterable[Block]) -> Iterator[Item]:
    for block in blocks:
        if is_tool_call(block):
            yield Item(
                kind="call", title=str(block["name"]), call_id=str(block["id"]), input=block.get("input"),
                status="no result",
            )  # fmt: skip
        elif block.get("type") == "text" and str(block.get("text") or "").strip():
            yield Item(kind="text", text=str(block["text"]))
        elif block.get("type") == "thinking" and str(block.get("thinking") or "").strip():
            yield Item(kind="thinking", title="thinking", text=str(block["thinking"]))


def _answer(turn: ExportedTurn, result: ToolResult) -> None:
    """Put a result into the call it answers: the last of that id, since ids may come again."""
    for item in reversed(turn.items):
        if item.kind == "call" and item.call_id == result.call_id:
            item.text, item.images = joined_text(result.content), images_of(result.content)
            item.status = "stopped" if result.meta.get("stopped") is True else result.status
            return


def _notes(body: object) -> Iterator[Item]:
    match body:
        case Snapshot(text=text):
            yield Item(kind="note", title="told to the model", text=text)
        case Steering(text=text, by="person"):
            yield Item(kind="steering", text=text)
        case Steering(text=text):
            yield Item(kind="note", title="told to the model", text=text)
        case Compaction(note=text):
            yield Item(kind="note", title="compaction: what stands before is replaced by this note", text=text)
        case Report(source=source, text=text):
            yield Item(kind="note", title=f"report of {source}", text=text)


def images_of(blocks: Iterable[Block]) -> tuple[str, ...]:
    """Return the images among `blocks` as data URLs."""
    found = []
    for block in blocks:
        source = block.get("source")
        if block.get("type") != "image" or not isinstance(source, Mapping):
            continue
        kind, body = str(source.get("media_type") or ""), str(source.get("data") or "")
        if re.fullmatch(r"image/[a-z0-9.+-]+", kind) and re.fullmatch(r"[A-Za-z0-9+/=\s]+", body):
            found.append(f"data:{kind};base64,{body}")
    return tuple(found)


def outcome_line(turn: ExportedTurn) -> str:
    """Return how a turn ended, on one line."""
    calls = sum(item.kind == "call" for item in turn.items)
    parts = [turn.outcome.replace("_", " "), counted(turn.steps, "step"), counted(calls, "tool call")]
    if turn.cost_usd:
        parts.append(f"${turn.cost_usd:.4f}")
    return " · ".join(parts) + (f" · {' '.join(turn.message.split())}" if turn.message else "")


def call_text(item: Item) -> tuple[str, str]:
    """Return the input of a call as (language, text): code alone when it has nothing else."""
    if isinstance(item.input, Mapping):
        code = item.input.get("code", item.input.get("command"))
        if isinstance(code, str) and len(item.input) == 1:
            return ("python" if "code" in item.input else "sh"), code
    return "json", json.dumps(item.input, ensure_ascii=False, indent=1, default=str)


def to_json(turns: Sequence[ExportedTurn], title: str) -> str:
    """Return the turns as JSON."""
    out = [
        {
            "turn": t.turn, "model": t.model, "policy": t.policy, "mode": t.mode, "prompt": t.prompt,
            "attached": list(t.attached), "images": list(t.images), "items": [_item_fields(i) for i in t.items],
            "outcome": t.outcome, "message": t.message, "steps": t.steps, "cost_usd": t.cost_usd,
        }
        for t in turns
    ]  # fmt: skip
    document = {"format": FORMAT, "version": VERSION, "title": title, "turns": out}
    return json.dumps(document, ensure_ascii=False, indent=1, default=str).encode("utf-8", "replace").decode() + "\n"


def _item_fields(item: Item) -> dict[str, Any]:
    if item.kind == "call":
        return {
            "kind": "call", "name": item.title, "input": item.input, "status": item.status, "result": item.text,
            "images": list(item.images),
        }  # fmt: skip
    return {"kind": item.kind, "text": item.text, **({"title": item.title} if item.title else {})}


def to_markdown(turns: Sequence[ExportedTurn], title: str) -> str:
    """Return the turns as Markdown that GitHub shows well: calls and notes folded, nothing of them left open."""
    parts = [f"# {_plain(title)}"]
    if not turns:
        parts.append("*No turns.*")
    for number, turn in enumerate(turns, 1):
        parts.append(f"## Turn {number}")
        parts.append(f"*`{turn.turn}`, {_plain(turn.model)}, policy {_plain(turn.policy)}, mode {_plain(turn.mode)}*")
        parts.append(_quoted(turn.prompt))
        parts.extend(_folded("attached", fenced(text, "text")) for text in turn.attached)
        parts.extend(["*[an image was attached]*"] * len(turn.images))
        parts.extend(_markdown_item(item) for item in turn.items)
        parts.append(f"*{_plain(outcome_line(turn))}*")
    return ("\n\n".join(parts) + "\n").encode("utf-8", "replace").decode()


def _markdown_item(item: Item) -> str:
    if item.kind == "text":
        return closed_fence(item.text.strip("\n"))
    if item.kind == "steering":
        return _quoted(item.text)
    if item.kind == "call":
        language, text = call_text(item)
        images = ["*[an image]*"] * len(item.images)
        inner = "\n\n".join([fenced(text, language), *([fenced(item.text, "text")] if item.text else []), *images])
        return _folded(f"<code>{_escaped(item.title)}</code>: {_escaped(item.status.replace('_', ' '))}", inner)
    return _folded(_escaped(item.title), fenced(item.text, "text"))


def _folded(summary: str, inner: str) -> str:
    return f"<details><summary>{summary}</summary>\n\n{inner}\n\n</details>"


def fenced(text: str, language: str) -> str:
    """Return `text` in a fence longer than any run of backticks in it."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def closed_fence(text: str) -> str:
    """Return Markdown with a code fence that is still open at its end closed, so that it ends there.

    >>> closed_fence("a\\n```py\\nb").endswith("b\\n```")
    True
    """
    open_fence = ""
    for line in text.split("\n"):
        found = re.match(r" {0,3}(`{3,}|~{3,})(.*)$", line)
        if found and not open_fence and not (found[1][0] == "`" and "`" in found[2]):
            open_fence = found[1]
        elif found and open_fence and found[1].startswith(open_fence) and not found[2].strip():
            open_fence = ""
    return f"{text}\n{open_fence}" if open_fence else text


def _quoted(text: str) -> str:
    lines = closed_fence(text.strip("\n")).split("\n")
    return "\n".join(f"> {line}".rstrip() for line in lines)


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\n", " ")


def _plain(text: str) -> str:
    """Return a name or line so that Markdown shows it as it is."""
    return re.sub(r"([\\`*_\[\]<>#])", r"\\\1", " ".join(text.split()))
