"""The transformer of `%%agent` cells, through IPython's own transformer chain."""

from __future__ import annotations

import ast
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from IPython.core.inputtransformer2 import TransformerManager

from nbagent.notebook.transform import AgentCellTransform, agent_body, install, remove, split_awaitable


def transformed(cell: str, *, depth: int = 0, enabled: bool = True, knows_source: bool = True) -> str:
    manager = TransformerManager()
    raw = (lambda: cell) if knows_source else (lambda: None)
    install(
        SimpleNamespace(input_transformers_cleanup=manager.cleanup_transforms),
        AgentCellTransform(depth=lambda: depth, raw_source=raw, enabled=lambda: enabled),
    )
    text: str = manager.transform_cell(cell)
    return text


def arguments(code: str) -> list[Any]:
    """The arguments of the awaited call that `code` is."""
    (statement,) = ast.parse(code, mode="exec").body
    assert isinstance(statement, ast.Expr)
    assert isinstance(statement.value, ast.Await)
    call = statement.value.value
    assert isinstance(call, ast.Call)
    return [ast.literal_eval(a) for a in call.args]


@pytest.mark.parametrize(
    "body",
    [
        "how many rows?",
        "{x} {{y}} $HOME",
        "a  ",
        "a\n",
        "a\n\n\n",
        "\n",
        ">>> 1\n... 2",
        "In [1]: x",
        "  indented\n!ls",
        "%%agent",
    ],
)
def test_the_body_is_kept_byte_for_byte(body: str) -> None:
    assert arguments(transformed(f"%%agent -q x\n{body}")) == ["agent", "--awaitable -q x", body]


def test_a_cell_of_one_line_with_words_on_it_reaches_the_magic_which_says_where_they_go() -> None:
    """IPython itself refuses an empty body, and sends the person to `%agent`."""
    for cell in ("%%agent tell me", "%%agent tell me\n"):
        assert arguments(transformed(cell)) == ["agent", "--awaitable tell me", "\n"]
    assert arguments(transformed("%%agent")) == ["agent", "--awaitable", ""]


@given(st.text(st.characters(blacklist_categories=()), max_size=40))
def test_any_body_is_kept(body: str) -> None:
    assert arguments(transformed(f"%%agent\n{body}"))[2] == body
    assert agent_body(f"%%agent\n{body}") == body


def test_without_the_source_one_final_newline_is_taken_for_ipythons() -> None:
    assert arguments(transformed("%%agent\na", knows_source=False))[2] == "a"
    assert arguments(transformed("%%agent\na\n\n", knows_source=False))[2] == "a\n"


def test_blank_lines_before_the_magic_are_allowed() -> None:
    assert arguments(transformed("\n  \n%%agent\nhi"))[2] == "hi"


@pytest.mark.parametrize("cell", ["%%agents\nx", "%%agent?", "x = 1\n%%agent\n", "%%time\n%%agent\nx", "# %%agent\n"])
def test_other_cells_are_left_alone(cell: str) -> None:
    assert "--awaitable" not in transformed(cell)


def test_nested_cells_and_a_shell_without_autoawait_are_left_alone() -> None:
    assert "--awaitable" not in transformed("%%agent\nhi", depth=1)
    assert "--awaitable" not in transformed("%%agent\nhi", enabled=False)


def test_the_transformer_can_be_removed() -> None:
    shell = SimpleNamespace(input_transformers_cleanup=[1])
    transform = AgentCellTransform(depth=lambda: 0)
    install(shell, transform)
    remove(shell, transform)
    remove(shell, transform)
    assert shell.input_transformers_cleanup == [1]


def test_a_cell_being_typed_is_not_complete_until_a_blank_line() -> None:
    manager = TransformerManager()
    manager.cleanup_transforms.insert(0, AgentCellTransform(depth=lambda: 0))
    assert manager.check_complete("%%agent\nhi")[0] == "incomplete"


@pytest.mark.parametrize(
    ("line", "expected"),
    [("--awaitable -q x", (True, "-q x")), ("--awaitable", (True, "")), ("-q x", (False, "-q x")), ("", (False, ""))],
)
def test_the_mark_of_the_transformer_is_split_off(line: str, expected: tuple[bool, str]) -> None:
    assert split_awaitable(line) == expected
