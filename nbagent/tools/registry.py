"""The built-in tools in their fixed order, and the check of a call's arguments against a tool's schema."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from typing import Any

from nbagent.core.errors import ToolError
from nbagent.core.messages import JsonObject
from nbagent.tools.edits import EditTool, WriteTool
from nbagent.tools.files import ReadTool
from nbagent.tools.kernel import InspectTool, PythonTool
from nbagent.tools.knowledge import FindSkillsTool, SkillTool
from nbagent.tools.memory import MemoryGetTool, MemorySearchTool, RememberTool
from nbagent.tools.notebook import NotebookTool
from nbagent.tools.output import cut_line, visible
from nbagent.tools.recall import RecallTool
from nbagent.tools.search import GlobTool, GrepTool
from nbagent.tools.shell import ShellTool
from nbagent.tools.tool import Tool, ToolSpec

_SYNONYMS = {
    "file_path": "path", "filename": "path", "file": "path", "old_string": "old", "old_str": "old", "old_text": "old",
    "new_string": "new", "new_str": "new", "new_text": "new", "cmd": "command", "timeout": "timeout_s",
    "regex": "pattern", "query": "pattern", "text": "content", "script": "code", "max_results": "limit",
    "variables": "names", "name": "names", "cell": "cells", "case_insensitive": "ignore_case",
}  # fmt: skip
_NAMES = {
    "string": "a string", "integer": "a whole number", "number": "a number", "boolean": "true or false",
    "array": "a list", "object": "an object",
}  # fmt: skip


def builtin_tools() -> tuple[Tool, ...]:
    """Return the built-in tools, always in this order: their list is part of the cached prefix."""
    return (
        PythonTool(), InspectTool(), NotebookTool(),
        ReadTool(), WriteTool(), EditTool(), GlobTool(), GrepTool(), ShellTool(), RecallTool(),
        MemorySearchTool(), MemoryGetTool(), RememberTool(), FindSkillsTool(), SkillTool(),
    )  # fmt: skip


def validate_input(spec: ToolSpec, input: Any) -> JsonObject:
    """Return the arguments of a call, checked against the tool's schema.

    Harmless slips are mended: "5" for 5, "true" for true, a string for a list of one, null for absent.
    Knows of JSON Schema: type, properties, required, enum, minimum, maximum, items, additionalProperties.

    Raises:
        ToolError: with all that is wrong in one message.
    """
    if not isinstance(input, Mapping):
        got = "nothing" if input is None else f"{_NAMES.get(_json_type(input), 'something else')} ({_quoted(input)})"
        raise ToolError(f"{spec.name}: the arguments must be a JSON object, not {got}; send {_usage(spec)}")
    schema = spec.input_schema
    properties: Mapping[str, Any] = schema.get("properties", {})
    required = tuple(schema.get("required", ()))
    faults: list[str] = []
    values: dict[str, Any] = {}
    for key, value in input.items():
        if key not in properties:
            if schema.get("additionalProperties"):
                values[key] = value
            else:
                faults.append(_unknown(str(key), properties))
        elif value is not None or _takes_null(properties[key]):
            values[key] = _checked(str(key), value, properties[key], faults)
    faults += [f"{key!r} is missing ({_described(properties.get(key, {}))})" for key in required if key not in values]
    if faults:
        raise ToolError(f"{spec.name}: {'; '.join(faults[:8])}. Send {_usage(spec)}")
    return values


def _checked(key: str, value: Any, schema: Mapping[str, Any], faults: list[str]) -> Any:
    """Return `value` as the schema wants it, or note what is wrong with it."""
    wanted = schema.get("type")
    kinds = tuple(wanted) if isinstance(wanted, list | tuple) else (wanted,) if wanted else ()
    if kinds and _json_type(value) not in kinds and not ("number" in kinds and _json_type(value) == "integer"):
        mended = next((m for m in (_mended(value, k) for k in kinds) if m is not None), None)
        if mended is None:
            faults.append(f"{key!r} must be {' or '.join(_NAMES.get(k, k) for k in kinds)}, not {_quoted(value)}")
            return value
        value = mended
    if "enum" in schema and value not in schema["enum"]:
        near = difflib.get_close_matches(str(value), [str(v) for v in schema["enum"]], n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        faults.append(f"{key!r} must be one of {', '.join(map(repr, schema['enum']))}, not {_quoted(value)}{hint}")
    if isinstance(value, int | float) and not isinstance(value, bool):
        if "minimum" in schema and value < schema["minimum"]:
            faults.append(f"{key!r} must be at least {schema['minimum']}, not {_quoted(value)}")
        if "maximum" in schema and value > schema["maximum"]:
            faults.append(f"{key!r} must be at most {schema['maximum']}, not {_quoted(value)}")
    if isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        return [_checked(f"{key}[{i}]", v, schema["items"], faults) for i, v in enumerate(value)]
    return value


def _mended(value: Any, wanted: str) -> Any:
    """Return `value` as the type that was meant, None when that is not plain."""
    if wanted == "string" and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if wanted == "integer" and isinstance(value, float) and value.is_integer():
        return int(value)
    if wanted in ("integer", "number") and isinstance(value, str) and len(value) < 20:
        try:
            return int(value) if wanted == "integer" else float(value)
        except ValueError:
            return None
    if wanted == "boolean" and isinstance(value, str):
        return {"true": True, "false": False}.get(value.strip().lower())
    if wanted == "array" and isinstance(value, str | int) and not isinstance(value, bool):
        return _list_from_text(value) if isinstance(value, str) else [value]
    return None


def _list_from_text(text: str) -> list[Any]:
    """Return the list that a model wrote as a string; any other string as a list of one."""
    if text.lstrip().startswith("["):
        try:
            parsed = json.loads(text)
        except (ValueError, RecursionError):
            parsed = None
        if isinstance(parsed, list):
            return parsed
    return [text]


def _json_type(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    kinds = ((str, "string"), (int, "integer"), (float, "number"), (list | tuple, "array"), (Mapping, "object"))
    return next((name for kind, name in kinds if isinstance(value, kind)), "unknown")


def _takes_null(schema: Mapping[str, Any]) -> bool:
    wanted = schema.get("type")
    return wanted == "null" or (isinstance(wanted, list | tuple) and "null" in wanted)


def _unknown(key: str, properties: Mapping[str, Any]) -> str:
    synonym = _SYNONYMS.get(key.lower())
    near = [synonym] if synonym in properties else difflib.get_close_matches(key, list(properties), n=1, cutoff=0.5)
    hint = f", did you mean {near[0]!r}" if near else f", there is only {', '.join(properties) or 'nothing'}"
    return f"unknown argument {visible(cut_line(key, 60))!r}{hint}"


def _described(schema: Mapping[str, Any]) -> str:
    kind = _NAMES.get(str(schema.get("type")), "a value")
    return f"{kind}: {schema['description']}" if "description" in schema else kind


def _usage(spec: ToolSpec) -> str:
    """Return the arguments as an example of their shape: {"path": string, "limit"?: integer}."""
    required = tuple(spec.input_schema.get("required", ()))
    properties: Mapping[str, Any] = spec.input_schema.get("properties", {})
    shapes = (f'"{k}"{"" if k in required else "?"}: {v.get("type", "any")}' for k, v in properties.items())
    return "{" + ", ".join(shapes) + "}"


def _quoted(value: Any) -> str:
    return cut_line(visible(repr(value)), 80)
