"""How the line of a magic is split."""

from __future__ import annotations

from typing import Any

import pytest

from nbagent.core.errors import UsageProblem
from nbagent.notebook.options import asked_options, split_line, verbatim
from nbagent.runtime.ports import TurnOptions


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", []),
        ("  a  b ", ["a", "b"]),
        ("-o out --mode ask  # a comment", ["-o", "out", "--mode", "ask"]),
        ("fork 3#x", ["fork", "3#x"]),
        ("export out\\x.md", ["export", "out\\x.md"]),
        ("record 'my file.json'", ["record", "my file.json"]),
        ('--focus="two words" x', ["--focus=two words", "x"]),
        ("compact --focus it's fine", ["compact", "--focus", "it's", "fine"]),
        ("model ''", ["model", ""]),
        ("--tools 'read, write'  # 'odd", ["--tools", "read, write"]),
        ("search 大阪 の データ", ["search", "大阪", "の", "データ"]),
        ("a 'b'c", None),
        ("'x", None),
        ('--focus="x y', None),
    ],
)
def test_split_line(line: str, words: list[str] | None) -> None:
    if words is None:
        with pytest.raises(UsageProblem, match="close the quote"):
            split_line(line)
    else:
        assert split_line(line) == words


@pytest.mark.parametrize(
    ("rest", "text"),
    [("  a # b 'c ", "a # b 'c"), ('"a b"', "a b"), ("'a' or 'b'", "'a' or 'b'"), ("'", "'"), ("", None), ("''", None)],
)
def test_verbatim(rest: str, text: str | None) -> None:
    assert verbatim(rest) == ([] if text is None else [text])


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("max_steps", 0, "max_steps must be a whole number above 0, not 0"),
        ("max_steps", "3", "max_steps must be a whole number above 0, not '3'"),
        ("max_steps", 1.5, "max_steps must be"),
        ("max_steps", True, "max_steps must be"),
        ("max_tokens", -5, "max_tokens must be"),
        ("max_tokens", float("nan"), "max_tokens must be"),
        ("max_tokens", float("inf"), "max_tokens must be"),
        ("max_cost", -1, "max_cost must be an amount above 0, not -1"),
        ("max_cost", float("nan"), "max_cost must be"),
        ("mode", "nosuch", "mode must be one of ask, auto, plan, not 'nosuch'"),
        ("mode", ["ask"], "mode must be one of"),
        ("rerun", "again", "rerun must be one of fork, reuse, append, not 'again'"),
        ("model", 3, "model must be a name, not 3"),
        ("model", "", "model must be a name, not ''"),
        ("policy", b"pi", "policy must be a name"),
        ("skill", " ", "skill must be a name"),
        ("tools", 3, "tools must be a list of names, not 3"),
        ("tools", [3], "tools must be a list of names"),
        ("new", "yes", "new must be True or False"),
        ("nosuch", 1, "has no option 'nosuch'; it has: model, policy"),
    ],
)
def test_an_option_from_python_that_cannot_be_is_told_before_the_turn(name: str, value: Any, says: str) -> None:
    with pytest.raises(UsageProblem) as raised:
        asked_options({name: value})
    assert says in str(raised.value)


def test_options_from_python_are_those_of_the_cell() -> None:
    given = {"model": "m", "tools": ["read", "grep"], "max_steps": 3, "max_cost": 0.5, "mode": None, "new": True}
    taken = TurnOptions(model="m", tools=("read", "grep"), max_steps=3, max_cost_usd=0.5, new=True)
    assert asked_options(given) == taken
    assert asked_options({"tools": "read, grep"}) == TurnOptions(tools=("read", "grep"))
    assert asked_options({"tools": {"read"}}) == TurnOptions(tools=("read",))
    assert asked_options({}) == TurnOptions()
