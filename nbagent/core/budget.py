"""What a request may hold, what was measured, and who holds it; every figure in tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

# --- measured -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What the provider measured for one call, or the sum of several.

    `input_tokens` is only what was neither read from nor written to the cache. The 1-hour writes
    are part of `cache_creation_tokens`, the thinking is part of `output_tokens`. The two `last_`
    fields are set where the billed totals are not the size of the context: for a sum, and for a
    reply of several iterations.
    """

    input_tokens: int = 0
    cache_creation_tokens: int = 0
    cache_creation_1h_tokens: int = 0
    cache_read_tokens: int = 0
    output_tokens: int = 0
    thinking_tokens: int = 0
    last_context_tokens: int | None = None
    last_output_tokens: int | None = None

    @property
    def billed_input_tokens(self) -> int:
        """All input that is paid for, at whatever price."""
        return self.input_tokens + self.cache_creation_tokens + self.cache_read_tokens

    @property
    def context_tokens(self) -> int:
        """The size of the (last) request."""
        return self.billed_input_tokens if self.last_context_tokens is None else self.last_context_tokens

    @property
    def total_after(self) -> int:
        """The size of the conversation after the (last) reply."""
        return self.context_tokens + (
            self.output_tokens if self.last_output_tokens is None else self.last_output_tokens
        )

    @classmethod
    def from_wire(cls, usage: Mapping[str, Any] | None) -> Usage:
        """Read the Messages API's `usage`; what is null, absent or no count is 0.

        With `iterations`, the billed tokens are the sum over all of them and the context is the
        last one of type `message`: the top-level fields leave compaction out, and sum up server
        tool loops.
        """
        usage = usage or {}
        iterations = usage.get("iterations")
        parts = (
            [part for part in iterations if isinstance(part, Mapping)] if isinstance(iterations, list | tuple) else []
        )
        if not parts:
            return _read_counts(usage)
        counted = [_read_counts(part) for part in parts]
        messages = [one for one, part in zip(counted, parts, strict=True) if part.get("type", "message") == "message"]
        billed = sum(counted, cls())
        last = messages[-1] if messages else _read_counts(usage)
        return replace(
            billed,
            thinking_tokens=max(billed.thinking_tokens, _read_counts(usage).thinking_tokens),
            last_context_tokens=last.context_tokens,
            last_output_tokens=last.output_tokens,
        )

    def __add__(self, later: Usage) -> Usage:
        """Return the bill of both; the context is that of the later one which has any."""
        if later == Usage():
            return self
        if self == Usage():
            return later
        return Usage(
            input_tokens=self.input_tokens + later.input_tokens,
            cache_creation_tokens=self.cache_creation_tokens + later.cache_creation_tokens,
            cache_creation_1h_tokens=self.cache_creation_1h_tokens + later.cache_creation_1h_tokens,
            cache_read_tokens=self.cache_read_tokens + later.cache_read_tokens,
            output_tokens=self.output_tokens + later.output_tokens,
            thinking_tokens=self.thinking_tokens + later.thinking_tokens,
            last_context_tokens=later.context_tokens,
            last_output_tokens=later.total_after - later.context_tokens,
        )


def _count(value: object) -> int:
    if type(value) is int:
        return max(0, value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return 0
    return max(0, int(value))


def _mapping(value: object) -> Mapping[str, Any]:
    return value if type(value) is dict or isinstance(value, Mapping) else {}


def _read_counts(usage: Mapping[str, Any]) -> Usage:
    by_lifetime = _mapping(usage.get("cache_creation"))
    long_lived = _count(by_lifetime.get("ephemeral_1h_input_tokens"))
    short_lived = _count(by_lifetime.get("ephemeral_5m_input_tokens"))
    return Usage(
        input_tokens=_count(usage.get("input_tokens")),
        cache_creation_tokens=max(_count(usage.get("cache_creation_input_tokens")), long_lived + short_lived),
        cache_creation_1h_tokens=long_lived,
        cache_read_tokens=_count(usage.get("cache_read_input_tokens")),
        output_tokens=_count(usage.get("output_tokens")),
        thinking_tokens=_count(_mapping(usage.get("output_tokens_details")).get("thinking_tokens")),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """US dollars for a million tokens; the cache factors are relative to the input price.

    Factors: Anthropic's prompt caching page, 2026-11.
    """

    input_usd: float
    output_usd: float
    cache_read_factor: float = 0.1
    cache_write_factor: float = 1.25  # entries of 5 minutes
    cache_write_1h_factor: float = 2.0


def cost_usd(usage: Usage, prices: Prices) -> float:
    """Return what a call (or a sum of calls of one model) costs in US dollars."""
    short_lived = max(0, usage.cache_creation_tokens - usage.cache_creation_1h_tokens)
    input_units = (
        usage.input_tokens
        + usage.cache_read_tokens * prices.cache_read_factor
        + short_lived * prices.cache_write_factor
        + usage.cache_creation_1h_tokens * prices.cache_write_1h_factor
    )
    return (input_units * prices.input_usd + usage.output_tokens * prices.output_usd) / 1_000_000


# --- allowed --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The limits of one request.

    The reply and the reserve are held back from the window; both shrink with it (a quarter and a
    tenth at most), so that a lesson with a small window works.
    """

    window_tokens: int
    max_output_tokens: int = 16_000
    reserve_tokens: int = 4_000  # for the error of the estimate and the tail
    threshold_share: float = 0.6  # of the window; where automatic compaction starts

    @property
    def input_limit_tokens(self) -> int:
        """The most that a request may hold and still have room for the reply."""
        reply = min(self.max_output_tokens, self.window_tokens // 4)
        return max(0, self.window_tokens - reply - min(self.reserve_tokens, self.window_tokens // 10))

    @property
    def threshold_tokens(self) -> int:
        """The size from which compaction is due; never above the input limit."""
        return max(0, min(int(self.window_tokens * self.threshold_share), self.input_limit_tokens))

    def free_tokens(self, used_tokens: int) -> int:
        """What is left below the input limit."""
        return max(0, self.input_limit_tokens - used_tokens)

    def level(self, used_tokens: int) -> int:
        """Return how full the window is, in tenths, 0 to 10."""
        if self.window_tokens <= 0:
            return 10
        return min(10, max(0, used_tokens) * 10 // self.window_tokens)


# --- predicted ------------------------------------------------------------------------------------

_ABSURD_FACTOR: Final = 4.0  # a figure this far from what was predicted is set aside once
_ABSURD_TOKENS: Final = 2_000  # and never where it matters as little as this
_CONSISTENT_FACTOR: Final = 1.5
_LEAST_SAMPLE_TOKENS: Final = 200  # below it, frames of messages outweigh their text


def _within(ratio: float, factor: float) -> bool:
    return 1 / factor <= ratio <= factor


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """How many measured tokens one estimated token of a model is.

    A moving average with α = max(0.3, 1/n), kept in [0.25, 4]. One figure that is absurd beside the
    average is set aside; a second one like it is believed and starts the average anew.
    """

    factor: float = 1.0
    samples: int = 0
    set_aside: float = 0.0  # the ratio that was not believed; 0 if none

    def observe(self, measured_tokens: int, estimated_tokens: int) -> Calibration:
        """Return the calibration after one more pair of figures."""
        if measured_tokens <= 0 or estimated_tokens <= 0:
            return self
        ratio = measured_tokens / estimated_tokens
        if not _within(ratio / self.factor, _ABSURD_FACTOR):
            if not self.set_aside or not _within(ratio / self.set_aside, _CONSISTENT_FACTOR):
                return replace(self, set_aside=ratio)
            return Calibration(factor=_bounded(ratio), samples=1)
        samples = self.samples + 1
        weight = max(0.3, 1 / samples)
        return Calibration(factor=_bounded(self.factor + weight * (ratio - self.factor)), samples=samples)

    def apply(self, estimated_tokens: int) -> int:
        """Return the estimate in measured tokens."""
        return round(self.factor * estimated_tokens)

    def to_numbers(self) -> dict[str, float]:
        """Return what a state file keeps."""
        return {"factor": self.factor, "samples": self.samples, "set_aside": self.set_aside}

    @classmethod
    def from_numbers(cls, numbers: Mapping[str, Any]) -> Calibration:
        """Read what `to_numbers` gave; a damaged value counts as never calibrated."""
        factor, samples = numbers.get("factor"), numbers.get("samples")
        if not isinstance(factor, int | float) or isinstance(factor, bool) or not math.isfinite(factor) or factor <= 0:
            return cls()
        aside = numbers.get("set_aside")
        kept = float(aside) if isinstance(aside, int | float) and math.isfinite(aside) and aside > 0 else 0.0
        return cls(factor=_bounded(float(factor)), samples=_count(samples), set_aside=kept)


def _bounded(factor: float) -> float:
    return min(4.0, max(0.25, factor))


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextSize:
    """The size of the next request, anchored at the last measured one.

    Feed it each reply in order. What was measured is exact; only what was appended since is an
    estimate, calibrated by how much earlier appended text turned out to be.
    """

    calibration: Calibration = Calibration()
    measured_tokens: int = 0  # of the last request that is believed; 0 before any
    estimated_tokens: int = 0  # of the same request
    after_tokens: int = 0  # with the reply to it
    set_aside: float = 0.0  # measured / predicted of a figure that was not believed

    def observe(self, measured: Usage, request_estimate_tokens: int) -> ContextSize:
        """Return the state after a reply; the estimate is of the whole request it answered.

        A figure below a quarter of the estimate is never believed, however often it comes: no text takes so few
        tokens, but a gateway may leave out what the cache held (CR-C1: the larger is believed).
        """
        size = measured.context_tokens
        predicted = self.predict_request(request_estimate_tokens)
        if size <= 0:
            return self._anchored(predicted, request_estimate_tokens, measured, aside=self.set_aside)
        ratio = size / max(1, predicted)
        if size * _ABSURD_FACTOR < request_estimate_tokens - _ABSURD_TOKENS:
            return self._anchored(predicted, request_estimate_tokens, measured, aside=self.set_aside)
        far = not _within(ratio, _ABSURD_FACTOR) and abs(size - predicted) > _ABSURD_TOKENS
        if far and not (self.set_aside and _within(ratio / self.set_aside, _CONSISTENT_FACTOR)):
            return self._anchored(predicted, request_estimate_tokens, measured, aside=ratio)
        learned = Calibration(factor=_bounded(size / max(1, request_estimate_tokens)), samples=1) if far else None
        calibration = learned or self._calibrated(size, request_estimate_tokens)
        return self._anchored(size, request_estimate_tokens, measured, aside=0.0, calibration=calibration)

    def predict(self, appended_estimate_tokens: int) -> int:
        """Return the size of a request that extends the last one by text of this estimate.

        Before any reply the estimate must be of everything.
        """
        return self.after_tokens + self.calibration.apply(appended_estimate_tokens)

    def predict_request(self, request_estimate_tokens: int) -> int:
        """Return the size of a request by its whole estimate, also after its prefix was rewritten."""
        if not self.measured_tokens or not self.estimated_tokens:
            return self.calibration.apply(request_estimate_tokens)
        growth = request_estimate_tokens - self.estimated_tokens
        if growth >= 0:
            return self.measured_tokens + self.calibration.apply(growth)
        return round(self.measured_tokens * request_estimate_tokens / self.estimated_tokens)

    def _anchored(
        self, size: int, estimate: int, measured: Usage, *, aside: float, calibration: Calibration | None = None
    ) -> ContextSize:
        reply = measured.total_after - measured.context_tokens
        return ContextSize(
            calibration=calibration or self.calibration, measured_tokens=size, estimated_tokens=estimate,
            after_tokens=size + reply, set_aside=aside,
        )  # fmt: skip

    def _calibrated(self, size: int, estimate: int) -> Calibration:
        if not self.measured_tokens:
            return self.calibration.observe(size, estimate)
        growth = estimate - self.estimated_tokens
        if growth < _LEAST_SAMPLE_TOKENS:
            return self.calibration
        return self.calibration.observe(size - self.measured_tokens, growth)


def believed_tokens(estimated_tokens: int, measured_tokens: int) -> int:
    """Return the size to decide safety by: the larger of the estimate and the last measurement.

    Source: the four-step ladder of CR-C1. Not for display, and not after the context was cut.
    """
    return max(estimated_tokens, measured_tokens)


# --- held -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Who holds how many tokens of a request; the order of the fields is the order shown."""

    system: int = 0
    tools: int = 0
    skills: int = 0
    memory: int = 0
    instructions: int = 0
    summary: int = 0
    messages: int = 0
    thinking: int = 0
    images: int = 0
    tool_results: int = 0
    notebook: int = 0
    other: int = 0

    @property
    def total_tokens(self) -> int:
        return sum(self.as_mapping().values())

    def as_mapping(self) -> dict[str, int]:
        """Return the categories by the names shown to people, in order."""
        return {field.name.replace("_", " "): getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_mapping(cls, tokens: Mapping[str, int]) -> Ledger:
        """Take categories by shown or field name; an unknown one counts as `other`."""
        held = dict.fromkeys((field.name for field in fields(cls)), 0)
        for name, count in tokens.items():
            key = name.replace(" ", "_")
            held[key if key in held else "other"] += max(0, count)
        return cls(**held)

    def __add__(self, more: Ledger) -> Ledger:
        return Ledger(**{field.name: getattr(self, field.name) + getattr(more, field.name) for field in fields(self)})

    def scaled_to(self, total_tokens: int) -> Ledger:
        """Return the same shares adding up to exactly this total.

        Largest remainder, in whole numbers; of equal remainders the earlier category gets the
        token. Without any estimate all of it is `other`.
        """
        wanted, held = max(0, total_tokens), self.total_tokens
        if held == 0:
            return Ledger(other=wanted)
        names = [field.name for field in fields(self)]
        shares = scaled_parts([getattr(self, name) for name in names], wanted)
        return Ledger(**dict(zip(names, shares, strict=True)))


def scaled_parts(parts: Sequence[int], total: int) -> list[int]:
    """Return the same shares adding up to exactly `total`, by largest remainder; of equal ones the earlier gets it.

    >>> scaled_parts([1, 1, 2], 10), scaled_parts([0, 0], 5)
    ([3, 2, 5], [0, 0])
    """
    held = sum(parts)
    if held == 0:
        return list(parts)
    shares = [divmod(part * total, held) for part in parts]
    missing = total - sum(whole for whole, _ in shares)
    first = set(sorted(range(len(parts)), key=lambda i: -shares[i][1])[:missing])
    return [whole + (i in first) for i, (whole, _) in enumerate(shares)]


CATEGORIES: Final = tuple(Ledger().as_mapping())


def image_tokens(width_px: int, height_px: int, *, most_tokens: int = 1_600) -> int:
    """Return the estimated tokens of an image: a token for 750 pixels, after scaling down.

    Source: Anthropic's Vision page: width * height / 750; an image above 1,568 pixels on its long
    edge or about 1,600 tokens is scaled down first. From Opus 4.7 on images up to 3.75 megapixels
    are kept, about 4,784 tokens: give `most_tokens` (the model table has it).
    """
    if width_px <= 0 or height_px <= 0:
        return 0
    return max(1, min(most_tokens, math.ceil(width_px * height_px / 750)))
