"""How well the size of the next request is predicted, replayed on recorded sessions.

    python benchmarks/context_size.py FOLDER

Reads every `*.jsonl` below FOLDER that holds the API's usage per call: pi sessions and Claude Code
transcripts. For each call it predicts the request from what was known before it, then shows it the
measured usage. The files do not hold system prompt and tools: they are taken to be what the first
measurement is above its estimate, and the first call is left out of the figures.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from nbagent.core.budget import ContextSize, Usage
from nbagent.core.tokens import TokenFamily, estimate_tokens, family_of


@dataclass(kw_only=True)
class Call:
    """One model call: texts appended since the last one, the reply's texts, and what was measured."""

    model: str
    appended: list[str]
    reply: list[str]
    usage: Usage
    rewritten: list[str] | None = None  # the whole conversation, after a compaction


@dataclass(kw_only=True)
class Errors:
    anchored: list[float] = field(default_factory=list)
    from_scratch: list[float] = field(default_factory=list)
    bytes_by_four: list[float] = field(default_factory=list)


def texts_of(content: Any) -> list[str]:
    """Return what of a message's content is sent as text, tool calls and results included."""
    if isinstance(content, str):
        return [content]
    out: list[str] = []
    for block in content if isinstance(content, list) else []:
        match block:
            case {"type": "text", "text": str(text)} | {"type": "thinking", "thinking": str(text)}:
                out.append(text)
            case {"type": "toolCall", "name": name, "arguments": arguments} | {
                "type": "tool_use",
                "name": name,
                "input": arguments,
            }:
                out.append(f"{name} {json.dumps(arguments, ensure_ascii=False)}")
            case {"type": "tool_result", "content": inner}:
                out.extend(texts_of(inner))
    return out


def pi_calls(records: list[dict[str, Any]]) -> Iterator[Call]:
    history: list[tuple[int, list[str]]] = []  # (index of the record, its texts)
    appended: list[str] = []
    rewritten = False
    for index, record in enumerate(records):
        if record["type"] == "compaction":
            first = record["firstKeptEntryIndex"]
            history = [(index, [record["summary"]]), *(kept for kept in history if kept[0] >= first)]
            rewritten = True
        if record["type"] != "message":
            continue
        message = record["message"]
        texts = texts_of(message.get("content")) or [
            text for text in (message.get("command"), message.get("output")) if text
        ]
        if message["role"] != "assistant":
            history.append((index, texts))
            appended += texts
            continue
        raw = message.get("usage") or {}
        usage = Usage(
            input_tokens=raw.get("input", 0),
            cache_creation_tokens=raw.get("cacheWrite", 0),
            cache_read_tokens=raw.get("cacheRead", 0),
            output_tokens=raw.get("output", 0),
        )
        if usage.context_tokens and message.get("stopReason") not in ("error", "aborted"):
            whole = [text for _, some in history for text in some]
            yield Call(
                model=message["model"],
                appended=appended,
                reply=texts,
                usage=usage,
                rewritten=whole if rewritten else None,
            )
            rewritten, appended = False, []
        history.append((index, texts))


def claude_code_calls(records: list[dict[str, Any]]) -> Iterator[Call]:
    """One reply is written as several records with the same message id; the last has its usage."""
    appended: list[str] = []
    current: Call | None = None
    current_id = None
    for record in records:
        message = record.get("message")
        if not isinstance(message, Mapping) or record.get("isSidechain"):
            continue
        if message.get("role") == "assistant":
            if message.get("id") != current_id:
                if current:
                    yield current
                current_id = message.get("id")
                current = Call(model=str(message.get("model")), appended=appended, reply=[], usage=Usage())
                appended = []
            assert current is not None
            current.reply += texts_of(message.get("content"))
            current.usage = Usage.from_wire(message.get("usage"))
        elif message.get("role") == "user":
            appended += texts_of(message.get("content"))
    if current:
        yield current


def has_cut_outputs(calls: list[Call]) -> bool:
    """Tell whether the file has the output tokens of a stream's start in place of its end."""
    estimated = sum(estimate_tokens(text, family_of(call.model)) for call in calls for text in call.reply)
    return sum(call.usage.output_tokens for call in calls) < estimated / 2


def replay(calls: list[Call]) -> Errors:
    errors, size, estimate, four, unseen, replied = Errors(), ContextSize(), 0, 0, 0, 0
    cut = has_cut_outputs(calls)
    for number, call in enumerate(calls):
        family = family_of(call.model)

        def total(texts: list[str], family: TokenFamily = family) -> int:
            return sum(estimate_tokens(text, family) for text in texts)

        def quarter(texts: list[str]) -> int:
            return sum(len(text.encode()) for text in texts) // 4

        if call.rewritten is None:
            appended = total(call.appended)
            estimate, four = estimate + appended, four + quarter(call.appended)
            predicted = size.predict(replied + appended)
        else:
            estimate, four = unseen + total(call.rewritten), unseen + quarter(call.rewritten)
            predicted = size.predict_request(estimate)
        true = call.usage.context_tokens
        if not number:
            unseen = max(0, true - estimate)
            estimate, four = estimate + unseen, four + unseen
        else:
            errors.anchored.append(predicted / true - 1)
            errors.from_scratch.append(estimate / true - 1)
            errors.bytes_by_four.append(four / true - 1)
        size = size.observe(replace(call.usage, output_tokens=0) if cut else call.usage, estimate)
        replied = total(call.reply) if cut else 0
        estimate, four = estimate + total(call.reply), four + quarter(call.reply)
    return errors


def row(name: str, errors: list[float]) -> str:
    ordered = sorted(map(abs, errors))
    middle, tail = ordered[len(ordered) // 2], ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]
    return f"  {name:24} median {middle:7.2%}  p95 {tail:7.2%}  worst {ordered[-1]:7.2%}"


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    failed = False
    for path in sorted(Path(sys.argv[1]).rglob("*.json*")) + sorted(Path(sys.argv[1]).rglob("*.traj")):
        records = (
            [json.loads(line) for line in path.read_text("utf-8").splitlines() if line]
            if path.suffix == ".jsonl"
            else []
        )
        pi = bool(records) and records[0].get("type") == "session"
        calls = list((pi_calls if pi else claude_code_calls)(records))
        calls = [call for call in calls if call.usage.context_tokens]
        if len(calls) < 3:
            print(f"{path.name}: no usage per call, skipped")
            continue
        errors, cut = replay(calls), has_cut_outputs(calls)
        print(
            f"{path.name}: {len(calls)} calls, {calls[0].model}"
            + ("; no true output tokens, replies estimated" if cut else "")
        )
        print(
            row("anchored", errors.anchored),
            row("estimate, all of it", errors.from_scratch),
            row("bytes / 4, all of it", errors.bytes_by_four),
            sep="\n",
        )
        worst = sorted(enumerate(errors.anchored, 1), key=lambda pair: -abs(pair[1]))[:5]
        print(
            "  worst calls:",
            ", ".join(
                f"{number} ({error:+.1%}{', rewritten' if calls[number].rewritten else ''})" for number, error in worst
            ),
        )
        failed |= not cut and sorted(map(abs, errors.anchored))[int(len(errors.anchored) * 0.95)] > 0.01
    sys.exit("p95 above 1 %" if failed else 0)


if __name__ == "__main__":
    main()
