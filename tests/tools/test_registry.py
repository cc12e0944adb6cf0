from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbagent.core.errors import ToolError
from nbagent.core.messages import canonical
from nbagent.tools.registry import builtin_tools, validate_input

TOOLS = {tool.spec.name: tool for tool in builtin_tools()}


def check(name, **input):
    return validate_input(TOOLS[name].spec, input)


def fault(name, value):
    with pytest.raises(ToolError) as caught:
        validate_input(TOOLS[name].spec, value)
    return str(caught.value)


def test_the_tools_come_in_a_fixed_order():
    assert list(TOOLS) == ["python", "inspect", "notebook", "read", "write", "edit", "glob", "grep", "shell",
                           "recall", "memory_search", "memory_get", "remember", "find_skills", "skill"]  # fmt: skip


def test_the_tool_list_is_the_same_bytes_every_time():
    assert [canonical(t.spec.to_wire()) for t in builtin_tools()] == [canonical(t.spec.to_wire()) for t in builtin_tools()]


def test_what_may_run_without_asking_only_reads():
    # DECISIONS 20
    access = {name: tool.spec.access for name, tool in TOOLS.items()}
    looks = {"inspect", "notebook", "read", "glob", "grep", "recall", "memory_search", "memory_get", "find_skills", "skill"}
    assert {n for n, a in access.items() if a == "read"} == looks
    assert {n for n, a in access.items() if a == "write"} == {"write", "edit", "remember"}


@pytest.mark.parametrize("name", list(TOOLS))
def test_every_schema_is_closed_described_and_short(name):
    spec = TOOLS[name].spec
    assert len(spec.description) < 500
    assert set(spec.input_schema.get("required", ())) <= set(spec.input_schema["properties"])
    json.dumps(spec.to_wire())


@pytest.mark.parametrize("name", list(TOOLS))
def test_summary_and_paths_take_unchecked_input(name):
    for value in ({}, {"path": 5, "names": ["a"], "cells": [1], "code": "x", "command": "ls"}):
        assert isinstance(TOOLS[name].summary(value), str)
        assert isinstance(TOOLS[name].paths(value), tuple)


def test_harmless_slips_are_mended():
    assert check("read", path="a", offset="5", limit=10.0) == {"path": "a", "offset": 5, "limit": 10}
    assert check("edit", path="a", old="x", new="y", replace_all="true")["replace_all"] is True
    assert check("inspect", names="df") == {"names": ["df"]}
    assert check("inspect", names='["a", "b"]') == {"names": ["a", "b"]}
    assert check("notebook", action="source", cells=[3, "4"]) == {"action": "source", "cells": ["3", "4"]}
    assert check("read", path="a", limit=None) == {"path": "a"}


def test_an_unknown_argument_names_the_nearest():
    assert "unknown argument 'file_path', did you mean 'path'; 'path' is missing" in fault("read", {"file_path": "a"})
    assert "did you mean 'limit'" in fault("read", {"path": "a", "limt": 3})
    assert "there is only" in fault("read", {"path": "a", "zzzz": 3})


def test_everything_that_is_wrong_is_said_at_once():
    message = fault("edit", {"path": 1.5, "olde": "x"})
    for part in ("'path' must be a string, not 1.5", "did you mean 'old'", "'old' is missing", "'new' is missing", '"replace_all"?: boolean'):
        assert part in message


@pytest.mark.parametrize("value", [None, [], "text", 5, [{"path": "a"}]])
def test_arguments_that_are_no_object_are_refused(value):
    # reference/claude.md A5: tool input may be any JSON
    assert "must be a JSON object" in fault("read", value)


def test_limits_and_choices_are_checked():
    assert "at most 600" in fault("shell", {"command": "x", "timeout_s": 900})
    assert "at least 1" in fault("read", {"path": "x", "offset": 0})
    assert "did you mean 'outline'" in fault("notebook", {"action": "outlines"})
    assert "'names[1]' must be a string" in fault("inspect", {"names": ["a", {}]})


def test_true_is_not_a_number():
    assert "whole number" in fault("read", {"path": "a", "offset": True})


_any = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda c: st.lists(c, max_size=3) | st.dictionaries(st.text(max_size=8), c, max_size=3), max_leaves=8)
_keys = st.sampled_from(sorted({k for t in builtin_tools() for k in t.spec.input_schema["properties"]})) | st.text(max_size=8)


@given(st.sampled_from(list(TOOLS)), st.dictionaries(_keys, _any, max_size=4) | _any)
def test_any_input_is_valid_or_a_tool_error_that_can_be_sent(name, value):
    values, message = {}, "-"
    try:
        values = validate_input(TOOLS[name].spec, value)
    except ToolError as error:
        message = str(error)
    assert set(values) <= set(TOOLS[name].spec.input_schema["properties"])
    assert 0 < len(message.encode()) < 3_000
