"""Scripts in files: what is none is refused when it is read, with its place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nbagent.core.errors import UserError
from nbagent.models.scripted import ScriptedModel


@pytest.mark.parametrize(
    ("script", "says"),
    [
        (None, "it is null, not a list of replies"),
        ({}, "it is an object, not a list of replies"),
        (["plain"], 'reply 1 is "plain", not a list of blocks'),
        ([[{"type": "text", "text": "a"}], 2], "reply 2 is 2, not a list of blocks"),
        ([{}], "reply 1 is an object, not a list of blocks"),
        ([["plain"]], 'block 1 of reply 1 is "plain", not an object'),
        ([[{}]], "block 1 of reply 1 has the type None; the types are: text, tool_use"),
        ([[{"type": "image"}]], "block 1 of reply 1 has the type 'image'"),
        ([[{"type": "text"}]], "block 1 of reply 1 is a text block without 'text' of the right kind"),
        ([[{"type": "tool_use", "name": "python", "input": "x"}]], "is a tool_use block without 'input' of the right kind"),
    ],
)
def test_a_script_of_a_wrong_shape_is_refused_with_its_place(tmp_path: Path, script: object, says: str) -> None:
    path = tmp_path / "s.json"
    path.write_text(json.dumps(script))
    with pytest.raises(UserError) as caught:
        ScriptedModel.from_file(path)
    assert f"the script {str(path)!r}: " in str(caught.value)
    assert says in str(caught.value)


def test_a_script_of_the_right_shape_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text(json.dumps([[{"type": "tool_use", "name": "python", "input": {}}], [{"type": "text", "text": "a"}], []]))
    assert ScriptedModel.from_file(path).requests == []


def test_a_script_with_a_byte_order_mark_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text(json.dumps([[{"type": "text", "text": "a"}]]), encoding="utf-8-sig")
    assert ScriptedModel.from_file(path).requests == []
