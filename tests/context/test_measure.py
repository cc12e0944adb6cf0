"""Meter: what each piece of a request is estimated at, and in which row of the ledger."""

from __future__ import annotations

import base64
import struct

import pytest

from nbagent.context.measure import UNKNOWN_IMAGE_TOKENS, Meter
from nbagent.core.budget import Ledger, image_tokens
from nbagent.core.entries import Body
from nbagent.core.messages import Block, Prefix, image_block, text_block
from nbagent.core.tokens import estimate_tokens, frame_tokens
from nbagent.core.view import Piece, View, build_view
from tests.core.builders import call, compacts, note, prunes, reply, result, says, stamp, start, thinks, user

FAMILY = "claude-4.7"


def view(*bodies: Body) -> View:
    return build_view(stamp([start(), *bodies]))


def rows(*blocks: Block, category: str = "messages") -> dict[str, int]:
    return dict(Meter(FAMILY).piece(Piece(entry_id="e", role="user", blocks=blocks, category=category)))


def png(width: int, height: int) -> Block:
    head = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, height) + b"\0" * 20
    return image_block("image/png", base64.b64encode(head).decode())


def test_text_counts_as_what_it_is() -> None:
    assert rows(text_block("hello world")) == {"messages": estimate_tokens("hello world", FAMILY)}


def test_thinking_and_its_redaction_have_a_row_of_their_own() -> None:
    assert set(rows(thinks("long " * 50), text_block("x"))) == {"thinking", "messages"}
    assert rows({"type": "redacted_thinking", "data": "x" * 400})["thinking"] >= 100


def test_results_have_a_row_and_images_in_them_another() -> None:
    block = {"type": "tool_result", "tool_use_id": "a", "content": [text_block("out"), png(300, 200)]}
    found = rows(block, category="tool results")
    assert found["images"] == image_tokens(300, 200)
    assert found["tool results"] > estimate_tokens("out", FAMILY)


def test_a_result_of_plain_text_counts_its_text() -> None:
    block = {"type": "tool_result", "tool_use_id": "a", "content": "word " * 100}
    assert rows(block)["tool results"] >= estimate_tokens("word " * 100, FAMILY)


def test_a_chinese_result_of_ten_thousand_characters_is_weighted_once() -> None:
    """openclaw 161."""
    text = ("数据分析的第一步是了解数据的结构有多少行多少列每一列是什么类型有没有缺失的值" * 300)[:10_000]
    for content in (text, [text_block(text)]):
        found = rows({"type": "tool_result", "tool_use_id": "a", "content": content}, category="tool results")
        assert 9_000 <= sum(found.values()) <= 12_000


@pytest.mark.parametrize(
    "image",
    [
        image_block("image/jpeg", "AAAA"), image_block("image/png", "no base64 é"), image_block("image/png", ""),
        {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}, {"type": "image"},
    ],
)  # fmt: skip
def test_an_image_of_unknown_size_counts_as_a_large_one(image: Block) -> None:
    assert rows(image) == {"images": UNKNOWN_IMAGE_TOKENS}


def test_an_unknown_block_counts_by_its_json() -> None:
    assert rows({"type": "hologram", "deep": ["x"] * 50})["messages"] > 20


def test_the_rows_of_a_view_are_those_of_a_ledger() -> None:
    prefix = Prefix(
        system=(text_block("You are."), text_block("Rules."), text_block("Notes.")),
        tools=({"name": "python", "description": "Run code.", "input_schema": {"type": "object"}},),
        categories=("system", "instructions", "memory"),
    )
    seen = view(note("<notebook-state>x</notebook-state>"), user("hi"), reply(thinks(), call(), stop="tool_use"), result(), says("so"))
    found = Meter(FAMILY).view(seen, prefix)
    known = set(Ledger().as_mapping())
    assert set(found) <= known
    expected = {"system", "instructions", "memory", "tools", "notebook", "messages", "thinking", "tool results", "other"}
    assert {name for name, tokens in found.items() if tokens} == expected
    assert found["other"] >= frame_tokens(FAMILY)


def test_a_prefix_without_categories_is_system() -> None:
    found = Meter(FAMILY).prefix(Prefix(system=(text_block("a"), text_block("b")), tools=()))
    assert set(found) == {"system"}


def test_a_note_of_a_compaction_is_summary() -> None:
    seen = view(user("old " * 100), says("answer"), compacts(None, "the note"))
    found = Meter(FAMILY).view(seen, Prefix(system=(), tools=()))
    assert found["summary"] == estimate_tokens("the note", FAMILY)


def test_a_piece_that_was_pruned_is_measured_anew() -> None:
    """The memory of a meter is by entry, and notices that the entry's piece changed."""
    meter = Meter(FAMILY)
    empty = Prefix(system=(), tools=())
    bodies = [user("hi"), reply(call(), stop="tool_use"), result(text="row " * 500), says("so")]
    before = meter.view(view(*bodies), empty)["tool results"]
    after = meter.view(view(*bodies, prunes("e4")), empty)["tool results"]
    assert after < before / 5
    assert meter.view(view(*bodies), empty)["tool results"] == before


def test_a_view_folded_anew_is_not_estimated_anew() -> None:
    """Each turn folds its path again; a text of a megabyte must not be counted every time."""
    counted: list[int] = []

    class Counting(Meter):
        def text(self, text: str) -> int:
            counted.append(len(text))
            return super().text(text)

    meter = Counting(FAMILY)
    bodies = [user("word " * 20_000), says("so")]
    for _ in range(5):
        meter.view(view(*bodies), Prefix(system=(), tools=()))
    assert counted == [100_000, 2]
