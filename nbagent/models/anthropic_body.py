"""The body of a Messages API request: stored message bytes joined, with the cache marks spliced in."""

from __future__ import annotations

from typing import Any

from nbagent.core.messages import Message, Prefix, Request, canonical

_EPHEMERAL: dict[str, str] = {"type": "ephemeral"}
_MARK = b',"cache_control":' + canonical(_EPHEMERAL).encode()
_MARKED_AT_THE_END = ("text", "tool_result", "tool_use", "image")


class BodyMaker:
    """Makes the bodies of a conversation's requests; what a request repeats of the last one is not gone through again.

    Each message's bytes are made once (`Message.to_bytes`). The last body is made into the next one: what stands
    before the first cache mark stays, what follows is put in the place of what followed. So a body costs what is new,
    in Python and in memory; the same request gives the same bytes, whatever came before it.
    """

    def __init__(self) -> None:
        self._messages: tuple[Message, ...] = ()  # those that stay, and end at `_end`
        self._body = bytearray()
        self._opening = b""
        self._end = 0
        self._lent = False
        self._head: tuple[Prefix, bytes] | None = None

    def body(self, request: Request) -> bytearray:
        """The body of `request`, streaming, as UTF-8 JSON: lent until it is given back, and not to be changed."""
        messages, marked = request.messages, set(request.breakpoints)
        settled = min(marked, default=len(messages))
        opening: dict[str, Any] = {"model": request.model, "max_tokens": request.max_tokens, "stream": True}
        opening.update(request.options)
        head = b"".join((canonical(opening)[:-1].encode(), self._prefix(request.prefix), b',"messages":['))
        self._settle(head, messages[:settled])
        body, comma = self._body, b"," if settled else b""
        for i, message in enumerate(messages[settled:], settled):
            body += comma
            body += _marked(message) if i in marked else message.to_bytes()
            comma = b","
        body += b"]}"
        self._lent = True
        return body

    def give_back(self, body: bytearray) -> None:
        """Say that nobody needs `body` any more. One that is still out when the next is made stays as it is."""
        if body is self._body:
            self._lent = False

    def _settle(self, opening: bytes, messages: tuple[Message, ...]) -> None:
        """Have the body end behind `messages`, the ones that stay."""
        known = len(self._messages)
        same = messages[:known] == self._messages  # the same objects, as a rule: a comparison of pointers
        if self._lent or not same or not self._opening:
            known, self._body, self._opening = 0, bytearray(opening), opening
        else:
            try:
                del self._body[self._end :]
                self._body[: len(self._opening)] = opening
            except BufferError:  # a transport that was closed still looks at it
                self._body = bytearray(opening) + self._body[len(self._opening) : self._end]
            self._opening = opening
        for index, message in enumerate(messages[known:], known):
            if index:
                self._body += b","
            self._body += message.to_bytes()
        self._messages, self._end = messages, len(self._body)

    def _prefix(self, prefix: Prefix) -> bytes:
        if self._head is None or self._head[0] is not prefix:
            self._head = (prefix, _prefix_bytes(prefix))
        return self._head[1]


def request_bytes(request: Request) -> bytes:
    """Return the body of one request by itself."""
    return bytes(BodyMaker().body(request))


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
