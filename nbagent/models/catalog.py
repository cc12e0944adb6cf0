"""What is known of each model: limits, prices and habits, as of `TABLE_DATE`.

Ids come from the types of anthropic 2.10, windows and prices from Anthropic's model and pricing
pages, or third-party pages where those say nothing. What could not be found takes the cautious
value and is named in the comment.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, replace
from typing import Final, Literal

from nbagent.core.budget import Prices
from nbagent.core.tokens import TokenFamily, family_of

TABLE_DATE: Final = "2026-11-29"
DEFAULT_MODEL: Final = "claude-sonnet-5-5"

ThinkingStyle = Literal["adaptive", "enabled", "always", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """The facts of one model.

    `thinking`: "always" cannot be turned off and takes no `enabled`, "adaptive" takes
    `{"type": "adaptive"}`, "enabled" takes a token budget. `binds_thinking`: a signed thinking block is valid after
    the exact conversation before it only. `prices` is None where none is known: then cost is not
    known, which is not zero. `edits` is what the provider itself does to a context when it is asked: "clear" old
    results, "compact" (claude.md A10). `known` is False for facts that are guesses.
    """

    model: str
    window_tokens: int
    max_output_tokens: int
    prices: Prices | None
    thinking: ThinkingStyle
    family: TokenFamily
    binds_thinking: bool = False
    min_cache_tokens: int = 4_096
    accepts_effort: bool = False
    sees_images: bool = True
    image_limit_tokens: int = 1_600
    edits: frozenset[str] = frozenset()
    known: bool = True


def _claude(
    model: str, *, usd: tuple[float, float] | None, thinking: ThinkingStyle, min_cache: int, binds: bool = False
) -> ModelFacts:
    prices = Prices(input_usd=usd[0], output_usd=usd[1]) if usd else None
    return ModelFacts(
        model=model,
        window_tokens=1_000_000,
        max_output_tokens=128_000,
        prices=prices,
        thinking=thinking,
        family=family_of(model),
        binds_thinking=binds,
        min_cache_tokens=min_cache,
        accepts_effort=True,
        image_limit_tokens=4_784 if family_of(model) == "claude-4.7" else 1_600,
        edits=frozenset({"clear", "compact"}),
    )


def _small_claude(model: str, *, usd: tuple[float, float], min_cache: int, effort: bool = False) -> ModelFacts:
    facts = _claude(model, usd=usd, thinking="enabled", min_cache=min_cache)
    # Compaction is not said of the 4.5 models; the models endpoint may know better.
    edits = frozenset({"clear"})
    return replace(facts, window_tokens=200_000, max_output_tokens=64_000, accepts_effort=effort, edits=edits)


_5_5_MIN_CACHE: Final = 4_096  # not documented for 5.5 and later; the largest known

MODELS: Final[tuple[ModelFacts, ...]] = (
    _claude("claude-opus-5-5", usd=(4, 20), thinking="always", min_cache=_5_5_MIN_CACHE, binds=True),
    _claude("claude-sonnet-5-5", usd=(2, 10), thinking="adaptive", min_cache=_5_5_MIN_CACHE, binds=True),
    # Haiku 5.5: "from" these prices.
    _claude("claude-haiku-5-5", usd=(0.1, 0.5), thinking="adaptive", min_cache=_5_5_MIN_CACHE, binds=True),
    # Fable and Mythos 5.2: no price or window found; Mythos 5.1 and 5: no price found.
    _claude("claude-fable-5-2", usd=None, thinking="always", min_cache=_5_5_MIN_CACHE, binds=True),
    _claude("claude-mythos-5-2", usd=None, thinking="always", min_cache=_5_5_MIN_CACHE, binds=True),
    _claude("claude-fable-5-1", usd=(10, 50), thinking="always", min_cache=_5_5_MIN_CACHE, binds=True),
    _claude("claude-mythos-5-1", usd=None, thinking="always", min_cache=_5_5_MIN_CACHE, binds=True),
    _claude("claude-fable-5", usd=(10, 50), thinking="always", min_cache=512),
    _claude("claude-mythos-5", usd=None, thinking="always", min_cache=512),
    _claude("claude-mythos-preview", usd=None, thinking="adaptive", min_cache=2_048),
    _claude("claude-opus-5", usd=(5, 25), thinking="adaptive", min_cache=512),
    _claude("claude-sonnet-5", usd=(2, 10), thinking="adaptive", min_cache=1_024),
    _claude("claude-opus-4-8", usd=(5, 25), thinking="adaptive", min_cache=1_024),
    _claude("claude-opus-4-7", usd=(5, 25), thinking="adaptive", min_cache=2_048),
    _claude("claude-opus-4-6", usd=(5, 25), thinking="adaptive", min_cache=4_096),
    _claude("claude-sonnet-4-6", usd=(3, 15), thinking="adaptive", min_cache=1_024),
    _small_claude("claude-opus-4-5", usd=(5, 25), min_cache=4_096, effort=True),
    _small_claude("claude-sonnet-4-5", usd=(3, 15), min_cache=1_024),
    _small_claude("claude-haiku-4-5", usd=(1, 5), min_cache=4_096),
)

# Before and after the id: Bedrock's region and vendor, a dated or numbered release, Vertex's `@`.
_PREFIX: Final = re.compile(r"^(?:[\w-]+\.)?(?:anthropic[./])?(?=claude-)")
PLATFORM_PREFIXES: Final = ("bedrock:", "vertex:")


def without_platform(model_id: str) -> str:
    """Return the id as the platform itself has it.

    >>> without_platform("bedrock:us.anthropic.claude-opus-5-5-v1:0")
    'us.anthropic.claude-opus-5-5-v1:0'
    """
    return next((model_id.removeprefix(p) for p in PLATFORM_PREFIXES if model_id.startswith(p)), model_id)


def platform_of(model_id: str) -> str:
    """Return the platform that an id names, such as "bedrock:"; empty for the provider itself."""
    return next((p for p in PLATFORM_PREFIXES if model_id.startswith(p)), "")


def lookup(model_id: str) -> ModelFacts:
    """Return the facts of a model by the longest id in the table that it starts with.

    A prefix ends where a part of the name does: `claude-opus-5` is no prefix of `claude-opus-50`,
    nor of `claude-opus-5-9`, a later model. An unknown model gets cautious facts with `known`
    False and no price.
    """
    name = _PREFIX.sub("", without_platform(model_id.strip().lower()))
    fitting = [facts for facts in MODELS if _is_release_of(name, facts.model)]
    if fitting:
        return max(fitting, key=lambda facts: len(facts.model))
    claude = "claude" in name
    return ModelFacts(
        model=model_id,
        window_tokens=200_000 if claude else 32_000,
        max_output_tokens=16_000 if claude else 4_096,
        prices=None,
        thinking="none",
        family=family_of(name),
        binds_thinking=claude,  # cautious: thinking is stripped when its prefix moves
        sees_images=claude,
        known=False,
    )


def _is_release_of(name: str, model: str) -> bool:
    rest = name.removeprefix(model)
    return name.startswith(model) and re.match(r"-\d{1,2}(?!\d)|\w|\.\d", rest) is None


def nearest_models(model_id: str, *, count: int = 3) -> tuple[str, ...]:
    """Return known ids that look like this one, nearest first, for an error message."""
    names = [facts.model for facts in MODELS]
    name = _PREFIX.sub("", without_platform(model_id.strip().lower()))
    return tuple(difflib.get_close_matches(name, names, n=count, cutoff=0.5))
