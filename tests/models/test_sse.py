"""Event lines: however the bytes are cut and the lines are ended, the events are the same (claude.md A4, B3)."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbagent.models.sse import EventReader

EVENTS = [{"type": "ping"}, {"type": "content_block_delta", "text": "naïve 漢字 😀"}, {"type": "message_stop"}]


def wire(end: str = "\n") -> bytes:
    import json

    frames = [f"event: {e['type']}{end}data: {json.dumps(e, ensure_ascii=False)}{end}{end}" for e in EVENTS]
    return "".join(frames).encode()


def read(*chunks: bytes) -> list[dict[str, object]]:
    reader = EventReader()
    found = [e for chunk in chunks for e in reader.feed(chunk)]
    return found + list(reader.end())


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_chunks_of_any_size_and_lines_of_any_ending_give_the_same_events(end: str, size: int) -> None:
    whole = wire(end)
    assert read(*(whole[i : i + size] for i in range(0, len(whole), size))) == EVENTS


@given(st.lists(st.integers(0, 400), max_size=8), st.sampled_from(["\n", "\r\n", "\r"]))
def test_any_cut_gives_the_same_events(cuts: list[int], end: str) -> None:
    whole = wire(end)
    places = sorted({0, len(whole), *(min(c, len(whole)) for c in cuts)})
    assert read(*(whole[a:b] for a, b in itertools.pairwise(places))) == EVENTS


def test_an_event_without_an_event_line_counts() -> None:
    assert read(b'data: {"type":"ping"}\n\n') == [{"type": "ping"}]


def test_comments_ids_retries_and_a_byte_order_mark_are_no_events() -> None:
    assert read(b'\xef\xbb\xbfdata:{"type":"ping"}\n: hello\nid: 7\nretry: 100\n\n: bye\n\n') == [{"type": "ping"}]


def test_data_on_two_lines_is_one_event() -> None:
    assert read(b'data: {"type":\ndata: "ping"}\n\n') == [{"type": "ping"}]


def test_a_last_event_without_a_blank_line_counts_when_it_is_whole() -> None:
    assert read(b'data: {"type":"ping"}') == [{"type": "ping"}]
    assert read(b'data: {"type":"pi') == []


def test_a_frame_that_is_no_json_raises() -> None:
    with pytest.raises(ValueError):
        read(b'data: {"type":\n\ndata: {}\n\n')
