"""How the line of a magic is split."""

from __future__ import annotations

import pytest

from nbagent.core.errors import UsageProblem
from nbagent.notebook.options import split_line, verbatim


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
