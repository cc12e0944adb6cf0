"""The body of a Messages API request: stored message bytes joined, with the cache marks spliced in."""

from __future__ import annotations

from typing import Any

from nbagent.core.messages import Message, Prefix, Request, canonical

_EPHEMERAL: dict[str, str] = {"type": "ephemeral"}
_MARK = b',"cache_control":' + canonical(_EPHEMERAL).encode()
_MARKED_AT_THE_END = ("text", "tool_result", "tool_use", "image")


class BodyMaker:
    """Makes the bodies of a conversation's requests; what a request repeats of the last one is not gone through again.

    Each message's bytes are made once (`Message.to_bytes`). Those before the first cache mark stay joined for the
    next request, so that its cost in Python is that of what is new; the same request gives the same bytes, whatever
    came before it.
    """

    def __init__(self) -> None:
        self._joined_messages: tuple[Message, ...] = ()
        self._joined = bytearray()
        self._head: tuple[Prefix, bytes] | None = None

    def body(self, request: Request) -> bytes:
        """Return the body of `request`, streaming, as UTF-8 JSON."""
        messages, marked = request.messages, set(request.breakpoints)
        settled = min(marked, default=len(messages))
        self._join(messages[:settled])
        rest = [_marked(m) if i in marked else m.to_bytes() for i, m in enumerate(messages[settled:], settled)]
        opening: dict[str, Any] = {"model": request.model, "max_tokens": request.max_tokens, "stream": True}
        opening.update(request.options)
        return b"".join(
            (
                canonical(opening)[:-1].encode(), self._prefix(request.prefix), b',"messages":[', self._joined,
                b"," if self._joined and rest else b"", b",".join(rest), b"]}",
            )
        )  # fmt: skip

    def _join(self, messages: tuple[Message, ...]) -> None:
        known = len(self._joined_messages)
        if messages[:known] != self._joined_messages:  # the same objects, as a rule: a comparison of pointers
            known, self._joined = 0, bytearray()
        for message in messages[known:]:
            if self._joined:
                self._joined += b","
            self._joined += message.to_bytes()
        self._joined_messages = messages

    def _prefix(self, prefix: Prefix) -> bytes:
        if self._head is None or self._head[0] is not prefix:
            self._head = (prefix, _prefix_bytes(prefix))
        return self._head[1]


def request_bytes(request: Request) -> bytes:
    """Return the body of one request by itself."""
    return BodyMaker().body(request)


def _prefix_bytes(prefix: Prefix) -> bytes:
    """Return system and tools as they follow the opening fields; the last block of the prefix carries a mark."""
    system, tools = [dict(b) for b in prefix.system], list(prefix.tools)
    if system:
        system[-1]["cache_control"] = _EPHEMERAL
    elif tools:
        tools[-1] = {**tools[-1], "cache_control": _EPHEMERAL}
    text = f',"system":{canonical(system)}' if system else ""
    return (text + (f',"tools":{canonical(tools)}' if tools else "")).encode()


def _marked(message: Message) -> bytes:
    """Return the bytes of a message whose last block, thinking aside, carries a cache mark."""
    last = message.blocks[-1] if message.blocks else {}
    if last.get("type") in _MARKED_AT_THE_END and "cache_control" not in last:
        return message.to_bytes().removesuffix(b"}]}") + _MARK + b"}]}"  # what is made below, without encoding again
    blocks = [dict(b) for b in message.blocks]
    for block in reversed(blocks):
        if block.get("type") not in ("thinking", "redacted_thinking"):
            block["cache_control"] = _EPHEMERAL
            break
    return canonical({"role": message.role, "content": blocks}).encode()
