"""The checks of the service on headers and on parameters other than `messages`.

Message texts are the documented ones where they are public; the rest is worded in kind.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tests.fakes.catalog import EFFORT_LEVELS, MODELS, ModelFacts
from tests.fakes.conversation import check_messages
from tests.fakes.errors import Refused
from tests.fakes.prefix import THINKING_TYPES, prompt_blocks

JSON = dict[str, Any]
VERSIONS = ("2023-06-01", "2026-10-21")
STRICT_VERSION = "2026-10-21"  # the first that refuses sampling parameters
MAX_BREAKPOINTS = 4
MIN_THINKING_BUDGET_TOKENS = 1024
BINDING_BETA = "thinking-binding-controls-2026-08-01"
TOOL_NAME = re.compile(r"^[a-zA-Z0-9_-]{1,64}$")
SAMPLING = ("temperature", "top_p", "top_k")
PARAMETERS = frozenset(
    [
        "cache_control",
        "container",
        "diagnostics",
        "inference_geo",
        "max_tokens",
        "messages",
        "metadata",
        "model",
        "output_config",
        "service_tier",
        "speed",
        "stop_sequences",
        "stream",
        "system",
        "thinking",
        "tool_choice",
        "tools",
        "user_profile_id",
        "workspace_id",
    ]
)
COUNTED = frozenset(
    [
        "cache_control",
        "messages",
        "model",
        "output_config",
        "speed",
        "system",
        "thinking",
        "tool_choice",
        "tools",
        "user_profile_id",
        "workspace_id",
    ]
)
BETA_PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "context_management": ("context-management-2025-06-27", "compact-2026-01-12"),
    "compaction": ("compact-2026-09-04",),
    "thread": ("message-threads-2026-08-12",),
    "mcp_servers": ("mcp-client-2025-04-04", "mcp-client-2025-11-20"),
}


def betas(headers: Mapping[str, str]) -> frozenset[str]:
    """Return the values of the `anthropic-beta` header; header names are lower case."""
    return frozenset(value.strip() for value in headers.get("anthropic-beta", "").split(",") if value.strip())


def check_headers(headers: Mapping[str, str], api_key: str | None) -> None:
    """Check credentials, then the API version; `api_key` None accepts any key."""
    bearer = headers.get("authorization", "")
    given = headers.get("x-api-key") or (bearer[7:].strip() if bearer.lower().startswith("bearer ") else "")
    if not given:
        raise Refused("x-api-key header is required", 401)
    if api_key is not None and given != api_key:
        raise Refused("invalid x-api-key", 401)
    version = headers.get("anthropic-version")
    if not version:
        raise Refused("anthropic-version: header is required")
    if version not in VERSIONS:
        raise Refused(f'anthropic-version: "{version}" is not a valid version')


def check_request(body: JSON, headers: Mapping[str, str], *, counting: bool = False) -> ModelFacts:
    """Check a parsed body and return the facts of its model.

    `counting`: the body goes to count_tokens, which takes fewer parameters. Thinking
    signatures and the prompt's length are checked elsewhere: they need the server's state.

    Raises:
        Refused: with the first violated rule.
    """
    version, beta_names = headers.get("anthropic-version", ""), betas(headers)
    facts = _model(body)
    _check_parameters(body, version, beta_names, counting=counting)
    if not counting:
        _check_max_tokens(body, facts)
    _check_tools(body)
    _check_system(body)
    _check_thinking(body, facts, beta_names)
    _check_tool_choice(body, facts)
    _check_output_config(body, facts, beta_names)
    check_messages(body.get("messages"), facts, strict=version >= STRICT_VERSION)
    _check_breakpoints(body)
    return facts


def _model(body: JSON) -> ModelFacts:
    model = body.get("model")
    if model is None:
        raise Refused("model: Field required")
    if not isinstance(model, str):
        raise Refused("model: Input should be a valid string")
    if model not in MODELS:
        raise Refused(f"model: {model}", 404)
    return MODELS[model]


def _check_parameters(body: JSON, version: str, beta_names: frozenset[str], *, counting: bool) -> None:
    if "messages" not in body:
        raise Refused("messages: Field required")
    known = COUNTED if counting else PARAMETERS
    for name in body:
        needed = BETA_PARAMETERS.get(name, ())
        sampling = name in SAMPLING and version < STRICT_VERSION and not counting
        if name not in known and not sampling and not beta_names.intersection(needed):
            raise Refused(f"{name}: Extra inputs are not permitted")
    if not isinstance(body.get("stream", False), bool):
        raise Refused("stream: Input should be a valid boolean")


def _check_max_tokens(body: JSON, facts: ModelFacts) -> None:
    if "max_tokens" not in body:
        raise Refused("max_tokens: Field required")
    value = body["max_tokens"]
    if not isinstance(value, int) or isinstance(value, bool):
        raise Refused("max_tokens: Input should be a valid integer")
    if value < 0:
        raise Refused("max_tokens: Input should be greater than or equal to 0")
    if value > facts.max_output_tokens:
        cap = facts.max_output_tokens
        raise Refused(
            f"max_tokens: {value} > {cap}, which is the maximum allowed number of output tokens for {facts.id}"
        )


def _check_tools(body: JSON) -> None:
    tools = body.get("tools", [])
    if not isinstance(tools, list):
        raise Refused("tools: Input should be a valid list")
    names: set[str] = set()
    for i, tool in enumerate(tools):
        if not isinstance(tool, dict):
            raise Refused(f"tools.{i}: Input should be a valid dictionary")
        if tool.get("type", "custom") in ("custom", None):
            _check_custom_tool(tool, f"tools.{i}.custom")
        name = str(tool.get("name"))
        if name in names:
            raise Refused("tools: Tool names must be unique.")
        names.add(name)


def _check_custom_tool(tool: JSON, path: str) -> None:
    if "name" not in tool:
        raise Refused(f"{path}.name: Field required")
    if not isinstance(tool["name"], str) or not TOOL_NAME.fullmatch(tool["name"]):
        raise Refused(f"{path}.name: String should match pattern '{TOOL_NAME.pattern}'")
    if "input_schema" not in tool:
        raise Refused(f"{path}.input_schema: Field required")
    schema = tool["input_schema"]
    if not isinstance(schema, dict):
        raise Refused(f"{path}.input_schema: Input should be a valid dictionary")
    if "type" not in schema:
        raise Refused(f"{path}.input_schema.type: Field required")
    if schema["type"] != "object":
        raise Refused(f"{path}.input_schema.type: Input should be 'object'")
    if not isinstance(tool.get("description", ""), str):
        raise Refused(f"{path}.description: Input should be a valid string")


def _check_system(body: JSON) -> None:
    system = body.get("system", "")
    if isinstance(system, str):
        return
    if not isinstance(system, list):
        raise Refused("system: Input should be a valid string or list")
    for i, block in enumerate(system):
        if not isinstance(block, dict) or block.get("type") != "text" or not isinstance(block.get("text"), str):
            raise Refused(f"system.{i}: Input should be a text block")
        if not block["text"]:
            raise Refused("system: text content blocks must be non-empty")


def _check_thinking(body: JSON, facts: ModelFacts, beta_names: frozenset[str]) -> None:
    thinking = body.get("thinking")
    if thinking is None:
        return
    kind = thinking.get("type") if isinstance(thinking, dict) else None
    if kind not in ("adaptive", "enabled", "disabled"):
        raise Refused("thinking.type: Input should be 'adaptive', 'enabled' or 'disabled'")
    if kind not in facts.thinking:
        raise Refused(f'"thinking.type.{kind}" is not supported for this model.')
    if "block_binding" in thinking and BINDING_BETA not in beta_names:
        raise Refused(f"thinking.{kind}.block_binding: Extra inputs are not permitted")
    if not isinstance(thinking.get("block_binding") or {}, dict):
        raise Refused(f"thinking.{kind}.block_binding: Input should be a valid dictionary")
    if (thinking.get("display") or "omitted") not in ("omitted", "summarized"):
        raise Refused(f"thinking.{kind}.display: Input should be 'summarized' or 'omitted'")
    if kind == "enabled":
        _check_budget(thinking, body)
    if kind == "disabled" and facts.id == "claude-opus-5" and _effort(body) in ("xhigh", "max"):
        raise Refused("thinking.type 'disabled' requires an effort of 'high' or below on this model")


def _check_budget(thinking: JSON, body: JSON) -> None:
    budget = thinking.get("budget_tokens")
    if not isinstance(budget, int):
        raise Refused("thinking.enabled.budget_tokens: Field required")
    if budget < MIN_THINKING_BUDGET_TOKENS:
        raise Refused("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
    if budget >= body.get("max_tokens", budget + 1):
        raise Refused("`max_tokens` must be greater than `thinking.budget_tokens`.")


def _effort(body: JSON) -> object:
    config = body.get("output_config")
    return config.get("effort") if isinstance(config, dict) else None


def _check_output_config(body: JSON, facts: ModelFacts, beta_names: frozenset[str]) -> None:
    config = body.get("output_config")
    if config is None:
        return
    if not isinstance(config, dict):
        raise Refused("output_config: Input should be a valid dictionary")
    if "task_budget" in config and "task-budgets-2026-03-13" not in beta_names:
        raise Refused("output_config.task_budget: Extra inputs are not permitted")
    effort = config.get("effort")
    if effort is not None and effort not in EFFORT_LEVELS:
        raise Refused("output_config.effort: Input should be 'low', 'medium', 'high', 'xhigh' or 'max'")
    if effort is not None and not facts.takes_effort:
        raise Refused("output_config.effort: This model does not support the effort parameter.")


def _check_tool_choice(body: JSON, facts: ModelFacts) -> None:
    choice = body.get("tool_choice")
    if choice is None:
        return
    kind = choice.get("type") if isinstance(choice, dict) else None
    if kind not in ("auto", "any", "tool", "none"):
        raise Refused("tool_choice.type: Input should be 'auto', 'any', 'tool' or 'none'")
    if not body.get("tools"):
        raise Refused("tool_choice may only be specified while providing tools.")
    if kind not in ("any", "tool"):
        return
    if not facts.takes_forced_tool:
        raise Refused(f"tool_choice.type: forced tool use ('{kind}') is not supported on this model.")
    if (body.get("thinking") or {}).get("type") == "enabled":
        raise Refused("Thinking may not be enabled when tool_choice forces tool use.")
    if kind == "tool" and choice.get("name") not in {tool.get("name") for tool in body["tools"]}:
        raise Refused(f"Tool '{choice.get('name')}' not found in provided tools")


def _check_breakpoints(body: JSON) -> None:
    markers = list(_markers(body))
    last = prompt_blocks(body)[-1]
    automatic = body.get("cache_control")
    if automatic is not None:
        _check_marker(automatic, "cache_control")
        if last.ttl is None:
            markers.append(automatic)
        elif last.ttl != automatic.get("ttl", "5m"):
            raise Refused(f"cache_control: the last block, {last.path}, has a breakpoint with another ttl")
    if len(markers) > MAX_BREAKPOINTS:
        raise Refused(f"A maximum of 4 blocks with cache_control may be provided. Found {len(markers)}.")
    ttls = [marker.get("ttl", "5m") for marker in markers]
    if "1h" in ttls and "5m" in ttls[: len(ttls) - 1 - ttls[::-1].index("1h")]:
        raise Refused("a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block")


def _markers(body: JSON) -> Iterator[JSON]:
    for block in prompt_blocks(body):
        inner = block.block.get("content")
        for part in [block.block, *(inner if isinstance(inner, list) else [])]:
            if isinstance(part, dict) and part.get("cache_control") is not None:
                _check_marker(part["cache_control"], f"{block.path}.cache_control")
                if part.get("type") in THINKING_TYPES:
                    raise Refused(f"{block.path}: cache_control cannot be set for thinking blocks")
                if part.get("type") == "text" and not part.get("text"):
                    raise Refused(f"{block.path}: cache_control cannot be set for empty text blocks")
                yield part["cache_control"]


def _check_marker(marker: object, path: str) -> None:
    if not isinstance(marker, dict) or marker.get("type") != "ephemeral":
        raise Refused(f"{path}.type: Input should be 'ephemeral'")
    if marker.get("ttl", "5m") not in ("5m", "1h"):
        raise Refused(f"{path}.ttl: Input should be '5m' or '1h'")
