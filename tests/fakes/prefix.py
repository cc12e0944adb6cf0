"""The prompt as a stream of blocks: canonical bytes, the extension test, thinking signatures."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tests.fakes.errors import Refused

JSON = dict[str, Any]
Part = Literal["tools", "system", "messages"]
THINKING_TYPES = ("thinking", "redacted_thinking")
BOUND_ELSEWHERE = (
    "Invalid `signature` in `thinking` block. The block is bound to a different conversation: "
    "the system prompt, the tools or the messages before it have changed since it was created."
)
NOT_A_SIGNATURE = "Invalid `signature` in `thinking` block"
LATEST_MODIFIED = (
    "`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. "
    "These blocks must remain as they were in the original response."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptBlock:
    """One block of the prompt, in the order tools, system, messages.

    `line`: canonical JSON bytes, without cache_control. `ttl`: of the block's own
    breakpoint, None without one. `path`: "messages.1.content.0", as in error messages.
    """

    part: Part
    role: str
    path: str
    block: JSON
    line: bytes
    ttl: str | None


def as_blocks(content: object) -> list[JSON]:
    """Return content as blocks: a string is one text block, an empty one and other non-lists are none."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    if not isinstance(content, list):
        return []
    return [block for block in content if isinstance(block, dict)]


def prompt_blocks(body: Mapping[str, Any]) -> list[PromptBlock]:
    """Return the blocks of a request; what is malformed is left out, never an error."""
    return list(_walk(body))


def _walk(body: Mapping[str, Any]) -> Iterator[PromptBlock]:
    for i, tool in enumerate(as_blocks(body.get("tools") or [])):
        yield _prompt_block("tools", "", f"tools.{i}", tool)
    for i, block in enumerate(as_blocks(body.get("system") or [])):
        yield _prompt_block("system", "", f"system.{i}", block)
    messages = body.get("messages")
    for i, message in enumerate(messages if isinstance(messages, list) else []):
        if isinstance(message, dict):
            for j, block in enumerate(as_blocks(message.get("content"))):
                yield _prompt_block("messages", str(message.get("role")), f"messages.{i}.content.{j}", block)


def _prompt_block(part: Part, role: str, path: str, block: JSON) -> PromptBlock:
    marker = block.get("cache_control")
    ttl = str(marker.get("ttl", "5m")) if isinstance(marker, dict) else None
    return PromptBlock(part=part, role=role, path=path, block=block, line=canonical_line(part, role, block), ttl=ttl)


def canonical_line(part: Part, role: str, block: Mapping[str, Any]) -> bytes:
    """Return the canonical bytes of one block.

    Equal prompts have equal bytes: keys of the block are sorted, cache_control is removed,
    a string content is a text block. The order of keys inside tool inputs and schemas is
    kept, and so are nulls: both reach the model's prompt.
    """
    text = json.dumps([part, role, _canonical_block(block)], ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")


def _canonical_block(block: Mapping[str, Any]) -> JSON:
    found = {key: block[key] for key in sorted(block) if key != "cache_control"}
    if found.get("type") == "tool_result":
        found["content"] = [_canonical_block(inner) for inner in as_blocks(found.get("content"))]
        if found.get("is_error") is False:
            del found["is_error"]
    return found


def canonical_bytes(body: Mapping[str, Any]) -> bytes:
    """Return the whole prompt as canonical lines; same-role neighbours are merged by construction."""
    return b"\n".join(block.line for block in prompt_blocks(body))


def extends(previous: bytes | Mapping[str, Any], following: bytes | Mapping[str, Any]) -> str | None:
    """Name the first place where `following` does not extend `previous`; None when it does.

    Takes request bodies or canonical bytes. Equal prompts extend each other.
    """
    before, after = _lines(previous), _lines(following)
    for i, line in enumerate(before):
        if i >= len(after):
            return f"block {i} is gone: {_shown(line, 0)}"
        if line != after[i]:
            at = next((k for k, (a, b) in enumerate(zip(line, after[i], strict=False)) if a != b), 0)
            return f"block {i} differs at byte {at}: {_shown(line, at)} became {_shown(after[i], at)}"
    return None


def _lines(prompt: bytes | Mapping[str, Any]) -> list[bytes]:
    canonical = prompt if isinstance(prompt, bytes) else canonical_bytes(prompt)
    return canonical.split(b"\n") if canonical else []


def _shown(line: bytes, at: int) -> str:
    part, role, _ = json.loads(line.decode("utf-8", "surrogatepass"))
    return f"{role or part} …{line[max(0, at - 30) : at + 60].decode('utf-8', 'replace')}…"


class PrefixHash:
    """A running hash over canonical lines."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def feed(self, line: bytes) -> None:
        """Add one line."""
        self._hash.update(line + b"\n")

    def digest(self) -> str:
        """Return the hash of what was fed so far."""
        return self._hash.hexdigest()[:32]


def bound_prefix(blocks: Sequence[PromptBlock]) -> PrefixHash:
    """Return the hash a thinking block after `blocks` is bound to; deferred tools do not count."""
    prefix = PrefixHash()
    for block in blocks:
        if not _is_deferred(block):
            prefix.feed(block.line)
    return prefix


def _is_deferred(block: PromptBlock) -> bool:
    return block.part == "tools" and block.block.get("defer_loading") is True


def sign(model: str, prefix: str, text: str) -> str:
    """Return the signature of a thinking text after a prefix; opaque, deterministic."""
    bound = f"{model}|{prefix}|{_digest(text)}"
    return base64.b64encode(f"{bound}|{_digest(bound)}".encode()).decode()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def mismatch(block: JSON, model: str, prefix: str) -> str | None:
    """Return why a thinking block does not fit: "signature", "model_…", "prefix_…" or None."""
    text = block.get("thinking", "") if block["type"] == "thinking" else ""
    signature = block.get("signature") if block["type"] == "thinking" else block.get("data")
    try:
        parts = base64.b64decode(str(signature), validate=True).decode().split("|")
    except ValueError:
        return "signature"
    if len(parts) != 4 or _digest("|".join(parts[:3])) != parts[3] or parts[2] != _digest(str(text)):
        return "signature"
    if parts[0] != model:
        return "model_binding_mismatch"
    return None if parts[1] == prefix else "prefix_binding_mismatch"


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundPrompt:
    """A prompt after the thinking check: the blocks the model sees and what was removed."""

    blocks: tuple[PromptBlock, ...]
    transformations: tuple[JSON, ...]


def check_thinking(blocks: Sequence[PromptBlock], model: str, *, binds: bool, drops: bool) -> BoundPrompt:
    """Verify every thinking block against the conversation before it.

    `binds`: the model checks model and prefix, not the signature alone. `drops`: a block
    that fails that check is removed and reported instead of refused; later blocks are then
    verified against the conversation without it. A foreign model is refused as well, which
    is stricter than the service (it may drop such blocks silently).

    Raises:
        Refused: a block does not fit.
    """
    kept: list[PromptBlock] = []
    removed: list[JSON] = []
    prefix = PrefixHash()
    for block in blocks:
        if block.part == "messages" and block.block.get("type") in THINKING_TYPES:
            reason = mismatch(block.block, model, prefix.digest())
            if reason == "signature" or (reason and binds and not drops):
                raise Refused(f"{block.path}: {NOT_A_SIGNATURE if reason == 'signature' else BOUND_ELSEWHERE}")
            if reason and binds:
                removed.append({"type": "thinking_dropped", "path": block.path, "reason": reason})
                continue
        kept.append(block)
        if not _is_deferred(block):
            prefix.feed(block.line)
    return BoundPrompt(blocks=tuple(kept), transformations=tuple(removed))


def issued_key(model: str, call_id: str) -> str:
    """Return the key under which the thinking of a tool call's reply is remembered."""
    return f"{model}/{call_id}"


def check_open_loop(blocks: Sequence[PromptBlock], model: str, issued: Mapping[str, Sequence[Sequence[bytes]]]) -> None:
    """Refuse thinking that was changed or dropped from the tool loop still open.

    `issued`: per `issued_key`, the canonical lines of the thinking in each reply that made
    such a call. The loop is open when the prompt ends in tool results; their assistant
    message must hold the lines of one of these replies in order.
    """
    messages = [block for block in blocks if block.part == "messages" and block.role != "system"]
    end = _run_start(messages, len(messages), "user")
    latest = messages[_run_start(messages, end, "assistant") : end]
    if not any(block.block.get("type") == "tool_result" for block in messages[end:]):
        return
    present = [block.line for block in latest if block.block.get("type") in THINKING_TYPES]
    for block in latest:
        if block.block.get("type") != "tool_use":
            continue
        replies = issued.get(issued_key(model, str(block.block.get("id"))), [()])
        if not any(_in_order(lines, present) for lines in replies):
            raise Refused(f"{latest[0].path}: {LATEST_MODIFIED}")


def _run_start(messages: Sequence[PromptBlock], end: int, role: str) -> int:
    while end and messages[end - 1].role == role:
        end -= 1
    return end


def _in_order(lines: Sequence[bytes], present: Sequence[bytes]) -> bool:
    remaining = iter(present)
    return all(line in remaining for line in lines)
