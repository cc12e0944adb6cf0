"""The codec of entries: text and back, and what a later version wrote."""

from __future__ import annotations

import json
from dataclasses import MISSING, FrozenInstanceError, fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbagent.core.entries import (
    AssistantMessage,
    Body,
    Entry,
    Pin,
    ToolResult,
    TurnStart,
    Unknown,
    body_from_dict,
    body_to_dict,
    chain_hash,
    decode_line,
    entry_from_dict,
    entry_to_text,
    seal_line,
    split_line,
)  # fmt: skip
from nbagent.core.messages import Message, canonical, text_block, tool_result_block
from tests.core.builders import path, says, user

KINDS: tuple[type[Any], ...] = tuple(c for c in Body.__args__ if c is not Unknown)  # type: ignore[attr-defined]

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
scalars = (
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts | st.floats(allow_nan=False, allow_infinity=False)
)
values = st.recursive(scalars, lambda v: st.lists(v, max_size=3) | st.dictionaries(texts, v, max_size=3), max_leaves=6)
objects = st.dictionaries(texts, values, max_size=3)
BY_ANNOTATION: dict[str, st.SearchStrategy[Any]] = {
    "str": texts, "str | None": st.none() | texts, "int": st.integers(0, 2**53), "bool": st.booleans(),
    "float": st.floats(allow_nan=False, allow_infinity=False), "JsonObject": objects,
    "JsonObject | None": st.none() | objects, "Mapping[str, str]": st.dictionaries(texts, texts, max_size=3),
    "TurnOutcome": st.sampled_from(["completed", "stopped", "a later word"]),
    "ResultStatus": st.sampled_from(["ok", "error", "interrupted"]),
    "tuple[str, ...]": st.lists(texts, max_size=3).map(tuple), "tuple[Block, ...]": st.lists(objects, max_size=3).map(tuple),
}  # fmt: skip


def bodies_of(kind: type[Any]) -> st.SearchStrategy[Any]:
    required = {
        f.name: BY_ANNOTATION[f.type] for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING
    }
    optional = {f.name: BY_ANNOTATION[f.type] for f in fields(kind) if f.name not in required}
    return st.fixed_dictionaries(required, optional=optional).map(lambda d: kind(**d))


any_body = st.one_of([bodies_of(k) for k in KINDS])


def text_of(body: Body) -> str:
    return entry_to_text(Entry("e1", None, 1.5, body), 1)


def back(text: str) -> Body:
    return entry_from_dict(decode_line(text)).body


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.kind)
def test_every_kind_survives_text_and_back(kind: type[Any]) -> None:
    @given(bodies_of(kind))
    def check(body: Body) -> None:
        text = text_of(body)
        assert back(text) == body
        assert text_of(back(text)) == text

    check()


@given(any_body)
def test_a_sealed_line_splits_into_its_text_and_hash(body: Body) -> None:
    text = text_of(body)
    line = seal_line(text, chain_hash("", text))
    assert split_line(line) == (text, chain_hash("", text))
    assert json.loads(line)["hash"] == chain_hash("", text)


def test_fields_that_hold_their_default_are_left_out() -> None:
    assert body_to_dict(Pin()) == {"kind": "pin"}
    assert body_to_dict(Pin(text="x")) == {"kind": "pin", "text": "x"}


def test_a_field_that_is_none_by_meaning_is_written() -> None:
    assert body_to_dict(AssistantMessage(blocks=(), stop_reason=None, model="m", step=1))["stop_reason"] is None


@pytest.mark.parametrize(
    "raw",
    [
        {"kind": "dream", "z": 1, "a": [1.0, None]},
        {"kind": "steering", "text": "x", "mood": "new field"},
        {"kind": "steering"},
        {"kind": "steering", "text": 5},
        {"kind": "user_message", "blocks": "a text where blocks belong"},
        {"kind": "user_message", "blocks": ["no block"]},
        {"kind": "pruning", "placeholders": ["a"]},
        {"kind": "compaction", "first_kept": 4, "note": "n"},
        {"kind": ["list"]},
        {"text": "no kind"},
    ],
)
def test_what_this_version_does_not_know_is_kept_byte_for_byte(raw: dict[str, Any]) -> None:
    text = canonical({"v": 1, "seq": 1, "id": "e1", "parent": None, "at": 1.5, "body": raw})
    body = back(text)
    assert isinstance(body, Unknown)
    assert text_of(body) == text


@given(objects)
def test_any_object_decodes_to_a_body_that_writes_it_again(raw: dict[str, Any]) -> None:
    assert canonical(body_to_dict(body_from_dict(raw))) == canonical(raw)


@pytest.mark.parametrize("kind", KINDS)
def test_a_body_that_was_read_is_as_one_that_was_made(kind: type[Any]) -> None:
    """The reader sets fields by itself: defaults hold, no two bodies share one, and none can be changed."""
    raw = body_to_dict(kind(**{f.name: SAMPLES[str(f.type)] for f in fields(kind) if _is_required(f)}))
    body, other = body_from_dict(raw), body_from_dict(raw)
    assert body == kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in raw.items() if k != "kind"})
    for spec in fields(kind):
        if spec.default_factory is not MISSING:
            assert getattr(body, spec.name) is not getattr(other, spec.name)
    with pytest.raises(FrozenInstanceError):
        setattr(body, fields(kind)[0].name, None)


SAMPLES: dict[str, Any] = {
    "str": "x", "str | None": None, "int": 1, "float": 0.5, "TurnOutcome": "completed", "JsonObject": {"a": 1},
    "Mapping[str, str]": {"a": "b"}, "tuple[Block, ...]": (text_block("x"),),
}  # fmt: skip


def _is_required(spec: Any) -> bool:
    return spec.default is MISSING and spec.default_factory is MISSING


def test_an_unknown_entry_tells_the_word_that_was_read() -> None:
    assert Entry("e1", None, 0.0, body_from_dict({"kind": "dream"})).kind == "dream"


def test_a_status_of_a_later_version_is_kept() -> None:
    raw = {"kind": "tool_result", "call_id": "a", "name": "x", "content": [], "status": "postponed"}
    body = body_from_dict(raw)
    assert isinstance(body, ToolResult)
    assert canonical(body_to_dict(body)) == canonical(raw)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_nan_and_infinity_are_refused_when_writing(value: float) -> None:
    with pytest.raises(ValueError):
        text_of(TurnStart(turn="t", model="m", policy="p", options={"x": value}))


@pytest.mark.parametrize("line", ['{"at":NaN}', '{"at":Infinity}', "[1]", "3", "", "{", '"text"'])
def test_a_line_that_is_no_json_object_is_refused(line: str) -> None:
    with pytest.raises(ValueError):
        decode_line(line)


@pytest.mark.parametrize("line", ["", "{}", '{"a":1}', '{"a":1,"hash":"short"}'])
def test_a_line_without_a_hash_is_refused(line: str) -> None:
    with pytest.raises(ValueError):
        split_line(line)


@pytest.mark.parametrize(
    "change", [{"id": 5}, {"parent": 5}, {"at": "noon"}, {"body": []}, {"body": "x"}, {"body": None}]
)
def test_a_broken_envelope_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises((KeyError, TypeError)):
        entry_from_dict({"id": "e1", "parent": None, "at": 1.0, "body": {"kind": "pin"}} | change)


def test_a_changed_parent_changes_the_hash_of_what_follows() -> None:
    assert chain_hash("a", "line") != chain_hash("b", "line")


@given(st.text(max_size=20))
def test_lone_surrogates_become_replacement_marks_and_everything_is_utf8(text: str) -> None:
    written = text_of(user(text))
    written.encode()
    assert text_of(back(written)) == written
    assert any(0xD800 <= ord(c) <= 0xDFFF for c in text) or back(written) == user(text)


def test_halves_of_an_emoji_that_meet_are_the_emoji_again() -> None:
    assert canonical("\ud83d\ude00 \ud83d") == '"😀 \ufffd"'


def test_a_message_reads_the_same_as_bytes_and_on_the_wire_also_with_a_lone_surrogate() -> None:
    message = Message("user", (text_block("cut \ud83d"),))
    assert canonical(message.to_wire()).encode() == message.to_bytes()
    assert message.to_wire()["content"][0]["text"] == "cut \ufffd"


def test_equal_paths_have_equal_bytes_before_and_after_a_reload() -> None:
    entries = path(user("héllo 世界 \ud83d"), says("ok"))
    again = [entry_from_dict(decode_line(entry_to_text(e, i))) for i, e in enumerate(entries, 1)]
    assert [entry_to_text(e, i) for i, e in enumerate(again, 1)] == [
        entry_to_text(e, i) for i, e in enumerate(entries, 1)
    ]


@pytest.mark.parametrize("content", ["", " \n", (), (text_block(""),), (text_block(" \t"),)])
def test_an_empty_result_says_so(content: Any) -> None:
    assert tool_result_block("a", content, is_error=False)["content"] == "(no output)"
