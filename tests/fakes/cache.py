"""Prompt caching as the service bills it: breakpoints, look-back, minimum length, lifetime."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.fakes.prefix import THINKING_TYPES, PrefixHash, PromptBlock

LOOK_BACK_BLOCKS = 20  # per breakpoint, its own block included
MIN_CACHE_TOKENS = 1024  # the middle of the documented range; models differ from 512 to 4,096
TTL_S = {"5m": 300.0, "1h": 3600.0}
READ_PRICE = 0.1  # in units of the input price
WRITE_PRICE = {"5m": 1.25, "1h": 2.0}
MESSAGE_SETTINGS = ("thinking", "output_config", "tool_choice")  # a change of these misses from the first message on


def estimate_tokens(line: bytes) -> int:
    """Return the tokens of one canonical block: a quarter of its bytes, rounded up."""
    return (len(line) + 3) // 4


@dataclass(frozen=True, slots=True, kw_only=True)
class InputUsage:
    """Input tokens of one request, split the way the service bills them."""

    uncached_tokens: int
    read_tokens: int
    written_5m_tokens: int
    written_1h_tokens: int

    @property
    def total_tokens(self) -> int:
        """The size of the prompt."""
        return self.uncached_tokens + self.read_tokens + self.written_5m_tokens + self.written_1h_tokens

    @property
    def cost(self) -> float:
        """The price in units of one uncached input token."""
        written = self.written_5m_tokens * WRITE_PRICE["5m"] + self.written_1h_tokens * WRITE_PRICE["1h"]
        return self.uncached_tokens + self.read_tokens * READ_PRICE + written

    def as_json(self) -> dict[str, Any]:
        """Return the input part of a `usage` object."""
        return {
            "input_tokens": self.uncached_tokens,
            "cache_creation_input_tokens": self.written_5m_tokens + self.written_1h_tokens,
            "cache_read_input_tokens": self.read_tokens,
            "cache_creation": {
                "ephemeral_5m_input_tokens": self.written_5m_tokens,
                "ephemeral_1h_input_tokens": self.written_1h_tokens,
            },
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """The input price of all answered requests, in units of one uncached input token."""

    with_caching: float
    without_caching: float
    requests: int


def bill(usages: Iterable[InputUsage]) -> Bill:
    """Add up what requests cost, and what they would have cost without a cache."""
    counted = list(usages)
    return Bill(
        with_caching=sum(usage.cost for usage in counted),
        without_caching=float(sum(usage.total_tokens for usage in counted)),
        requests=len(counted),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Position:
    """The end of one block: the prefix up to it, its tokens, and a breakpoint's ttl."""

    key: str
    tokens: int
    ttl: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CachePlan:
    """The effect of one request: its usage, and the entries that live from its start on."""

    usage: InputUsage
    entries: tuple[tuple[str, float], ...]  # prefix key, time of expiry


class PromptCache:
    """Cached prefixes and their times of expiry.

    `clock` returns seconds. A plan changes nothing; `commit` it when the response begins,
    for entries do not exist before.
    """

    def __init__(
        self,
        *,
        count: Callable[[bytes], int] = estimate_tokens,
        clock: Callable[[], float],
        min_tokens: int = MIN_CACHE_TOKENS,
    ) -> None:
        self._count = count
        self._clock = clock
        self._min_tokens = min_tokens
        self._expiry: dict[str, float] = {}

    def tokens(self, blocks: Sequence[PromptBlock]) -> int:
        """Return the size of a prompt."""
        return sum(self._count(block.line) for block in blocks)

    def plan(self, body: Mapping[str, Any], blocks: Sequence[PromptBlock]) -> CachePlan:
        """Return what `body`, whose prompt is `blocks`, reads and writes."""
        now = self._clock()
        positions = self._positions(body, blocks)
        points = [
            i
            for i, position in enumerate(positions)
            if position.ttl is not None and position.tokens >= self._min_tokens
        ]
        hit = max((self._lookup(positions, point, now) for point in points), default=-1)
        read = positions[hit].tokens if hit >= 0 else 0
        written = {"5m": 0, "1h": 0}
        done = read
        entries: list[tuple[str, float]] = []
        for point in points:
            position = positions[point]
            ttl = position.ttl or "5m"
            written[ttl] += max(0, position.tokens - done)
            done = max(done, position.tokens)
            entries.append((position.key, now + TTL_S[ttl]))
        if hit >= 0:
            lifetime = TTL_S[next(positions[p].ttl or "5m" for p in points if p >= hit)]
            entries.append((positions[hit].key, now + lifetime))
        total = positions[-1].tokens if positions else 0
        usage = InputUsage(
            uncached_tokens=total - done,
            read_tokens=read,
            written_5m_tokens=written["5m"],
            written_1h_tokens=written["1h"],
        )
        return CachePlan(usage=usage, entries=tuple(entries))

    def commit(self, plan: CachePlan) -> None:
        """Make the entries of a plan readable; an entry never lives shorter than before."""
        for key, expiry in plan.entries:
            self._expiry[key] = max(expiry, self._expiry.get(key, 0.0))

    def _lookup(self, positions: Sequence[_Position], point: int, now: float) -> int:
        for i in range(point, max(-1, point - LOOK_BACK_BLOCKS), -1):
            if self._expiry.get(positions[i].key, -1.0) > now and positions[i].tokens >= self._min_tokens:
                return i
        return -1

    def _positions(self, body: Mapping[str, Any], blocks: Sequence[PromptBlock]) -> list[_Position]:
        prefix = PrefixHash()
        prefix.feed(str(body.get("model")).encode())
        automatic = _automatic_point(body, blocks)
        positions: list[_Position] = []
        tokens = 0
        in_messages = False
        for i, block in enumerate(blocks):
            if block.part == "messages" and not in_messages:
                in_messages = True
                prefix.feed(json.dumps([body.get(name) for name in MESSAGE_SETTINGS], sort_keys=True).encode())
            prefix.feed(block.line)
            tokens += self._count(block.line)
            ttl = block.ttl or (str(body["cache_control"].get("ttl", "5m")) if i == automatic else None)
            positions.append(_Position(key=prefix.digest(), tokens=tokens, ttl=ttl))
        return positions


def _automatic_point(body: Mapping[str, Any], blocks: Sequence[PromptBlock]) -> int | None:
    """Return the last cacheable block when the request asks for automatic caching."""
    if not isinstance(body.get("cache_control"), dict):
        return None
    for i in range(len(blocks) - 1, -1, -1):
        block = blocks[i].block
        if block.get("type") not in THINKING_TYPES and block.get("text") != "":
            return i
    return None
