"""The cassette's file: what it holds, what it refuses, and what a miss says (DECISIONS 6, 22, 24; NB-6)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nbagent.core.entries import (
    AssistantMessage,
    Entry,
    Snapshot,
    Steering,
    ToolResult,
    TurnEnd,
    TurnStart,
    UsageReported,
    UserMessage,
)
from nbagent.core.errors import CassetteMiss
from nbagent.core.messages import Prefix, text_block
from nbagent.models.cassette import (
    VERSION,
    Cassette,
    from_text,
    last_key,
    load,
    recorded_turns,
    save,
    to_text,
    turn_key,
)
from nbagent.models.player import Player
from nbagent.store.secrets import Scrubber


def path_of(*bodies: Any) -> list[Entry]:
    return [Entry(f"e{i}", f"e{i - 1}" if i else None, float(i), b) for i, b in enumerate(bodies)]


def turn(name: str, prompt: str, *bodies: Any, outcome: Any = "completed") -> list[Any]:
    start = TurnStart(turn=name, model="m", policy="nbagent", prefix="p" * 16)
    return [start, UserMessage(blocks=(text_block(prompt),)), *bodies, TurnEnd(turn=name, outcome=outcome)]


def says(text: str, step: int = 1) -> AssistantMessage:
    return AssistantMessage(blocks=(text_block(text),), stop_reason="end_turn", model="m", step=step)


def asks(call_id: str, code: str) -> AssistantMessage:
    block = {"type": "tool_use", "id": call_id, "name": "python", "input": {"code": code}}
    return AssistantMessage(blocks=(block,), stop_reason="tool_use", model="m", step=1)


def brings(call_id: str, text: str) -> ToolResult:
    return ToolResult(call_id=call_id, name="python", content=(text_block(text),))


PREFIX = Prefix(system=(text_block("S"),), tools=({"name": "python"},), categories=("system",))


def cassette(*groups: list[Any]) -> Cassette:
    path = path_of(*(b for g in groups for b in g))
    return Cassette(turns=recorded_turns(path), prefixes={"p" * 16: PREFIX}, source="scripted", about="a test")


TWO = cassette(turn("t1", "load the table", asks("c1", "x"), brings("c1", "ok"), says("done")), turn("t2", "plot it", says("ok")))


def test_a_cassette_comes_back_from_its_file_as_it_was(tmp_path: Path) -> None:
    save(tmp_path / "deep" / "a.json", to_text(TWO))
    back = load(tmp_path / "deep" / "a.json")
    assert back == TWO
    assert to_text(back) == to_text(TWO)
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["a.json"]


def test_a_cassette_that_an_editor_saved_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(to_text(TWO), encoding="utf-8-sig", newline="\r\n")
    assert load(tmp_path / "a.json") == TWO


def test_turns_are_found_by_prompt_and_past() -> None:
    first = TWO.find("", "load the table")
    assert first.start.turn == "t1"
    assert TWO.find(first.after, "plot it").start.turn == "t2"
    assert TWO.find("", "  load the table\r\n").start.turn == "t1"


def test_the_past_is_the_calls_too() -> None:
    other = cassette(turn("t1", "load the table", asks("c1", "other code"), brings("c1", "ok"), says("done")))
    assert other.turns[0].after != TWO.turns[0].after
    assert other.turns[0].key == TWO.turns[0].key


@pytest.mark.parametrize(
    ("parent", "prompt", "says"),
    [
        ("", "load the tables", "at character 15 this cell says ' the tables' and the recording ' the table'"),
        ("", "Load the table", "at character 1 this cell says 'Load the table' and the recording 'load the table'"),
        ("", "load the", "at character 9 this cell says 'load the' and the recording 'load the table'"),
        ("", "plot it", "at character 1"),
        ("nowhere", "plot it", "not recorded in this order: the prompt is turn 2"),
        ("nowhere", "something new", "no turn after this point (2 in all)"),
    ],
)  # fmt: skip
def test_a_miss_names_the_first_difference(parent: str, prompt: str, says: str) -> None:
    with pytest.raises(CassetteMiss) as miss:
        TWO.find(parent, prompt)
    line = str(miss.value)
    assert says in line
    assert "\n" not in line


def test_an_edited_exercise_says_what_to_do() -> None:
    """DECISIONS 24."""
    with pytest.raises(CassetteMiss, match="set a key or a local model, or restore the text"):
        TWO.find("", "load YOUR table")


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "3", "null", '"x"', '{"format": "other"}', '{"format": "nbagent-cassette"}',
     '{"format": "nbagent-cassette", "version": "1", "turns": [], "prefixes": {}}',
     '{"format": "nbagent-cassette", "version": 1, "turns": [{}], "prefixes": {}}',
     '{"format": "nbagent-cassette", "version": 1, "turns": 3, "prefixes": {}}',
     '{"format": "nbagent-cassette", "version": 1, "turns": [], "prefixes": []}',
     '{"format": "nbagent-cassette", "version": 1, "turns": [], "prefixes": {"a": 1}}'],
)  # fmt: skip
def test_what_is_no_cassette_is_said_in_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(CassetteMiss, match=r"a\.json' is not a recording of nbagent"):
        load(tmp_path / "a.json")


def test_each_damaged_field_is_refused_or_harmless() -> None:
    whole = json.loads(to_text(TWO))
    for name in whole["turns"][0]:
        for value in (None, 3, "x", [], {}, [3]):
            damaged = json.loads(json.dumps(whole))
            damaged["turns"][0][name] = value
            try:
                from_text(json.dumps(damaged), "x").find("", "other")
            except CassetteMiss:
                continue


def test_a_newer_version_is_refused_by_its_number() -> None:
    newer = json.loads(to_text(TWO)) | {"version": VERSION + 1}
    with pytest.raises(CassetteMiss, match=f"version {VERSION + 1}"):
        from_text(json.dumps(newer), "a.json")


def test_bodies_of_a_later_version_are_kept() -> None:
    raw = json.loads(to_text(TWO))
    raw["turns"][0]["stretches"][0]["events"].append({"kind": "telepathy", "x": 1})
    assert '"telepathy"' in to_text(from_text(json.dumps(raw), "x"))


def test_missing_unreadable_and_binary_files(tmp_path: Path) -> None:
    with pytest.raises(CassetteMiss, match="no such file"):
        load(tmp_path / "none.json")
    with pytest.raises(CassetteMiss, match="cannot be read"):
        load(tmp_path)
    (tmp_path / "b.json").write_bytes(b"\xff\xfe")
    with pytest.raises(CassetteMiss, match="not UTF-8"):
        load(tmp_path / "b.json")


def test_secrets_are_scrubbed_in_prompts_results_and_prefixes() -> None:
    key = "sk-ant-abcdefghijklmnop1234"
    made = cassette(turn("t", f"use {key}", asks("c", f"k = '{key}'"), brings("c", "hunter2-99-hunter"), says(key)))
    text = to_text(made, Scrubber(["hunter2-99-hunter"]).value)
    assert key not in text
    assert "hunter2" not in text
    assert "[secret:anthropic-key]" in text


def test_only_ended_turns_are_recorded_and_the_next_finds_them() -> None:
    path = path_of(*turn("t1", "one", says("1")), TurnStart(turn="t2", model="m", policy="p"), UserMessage(blocks=(text_block("two"),)))
    assert [t.start.turn for t in recorded_turns(path)] == ["t1"]
    assert last_key(path) == recorded_turns(path)[0].after
    assert last_key([]) == ""
    assert turn_key("", "a") != turn_key("b", "a")


def test_a_resumed_turn_is_one_turn_of_two_stretches() -> None:
    resumed = [Snapshot(text="later"), Steering(text="Go on."), says("whole", 2), TurnEnd(turn="t", outcome="completed")]
    made = cassette([*turn("t", "go", says("half"), outcome="limit"), *resumed])
    (only,) = made.turns
    assert [s.end.outcome for s in only.stretches] == ["limit", "completed"]
    assert only.stretches[1].snapshot == Snapshot(text="later")
    assert from_text(to_text(made), "x") == made


def test_a_player_gives_what_was_recorded_in_order() -> None:
    body = [asks("c1", "x"), UsageReported(step=1, model="m", usage={"input_tokens": 3}, cost_usd=0.1), brings("c1", "ok"),
            Steering(text="hurry", by="person"), Steering(text="loop", by="loop"), says("done", 2)]  # fmt: skip
    player = Player(cassette(turn("t", "go", *body)).turns[0])
    import asyncio

    from nbagent.core.messages import Request, ToolCall
    from nbagent.models.model import Watch
    from nbagent.models.reply import ReplyBuilder

    request = Request(model="m", max_tokens=1, prefix=PREFIX, messages=())
    first = asyncio.run(player.call(request, Watch(reply=ReplyBuilder("m"))))
    assert first.stop_reason == "tool_use"
    assert first.usage == {"input_tokens": 3}
    assert player.recorded(ToolCall(id="c1", name="python", input={})) == brings("c1", "ok")
    assert player.recorded(ToolCall(id="c2", name="python", input={})) is None
    assert player.steering() == ("hurry",)
    shown: list[str] = []
    watch = Watch(reply=ReplyBuilder("m"), on_text=lambda i, t: shown.append(t))
    assert asyncio.run(player.call(request, watch)).stop_reason == "end_turn"
    assert shown == ["done"]
    over = asyncio.run(player.call(request, Watch(reply=ReplyBuilder("m"))))
    assert isinstance(over.error, CassetteMiss)


def test_a_difference_names_the_first_line_and_ignores_addresses() -> None:
    from nbagent.core.messages import ToolCall

    player = Player(TWO.turns[0])
    call = ToolCall(id="c1", name="python", input={})
    player.differs(call, brings("c1", "<obj at 0x7f00aabbcc>"), brings("c1", "<obj at 0x7f11ddeeff>"))
    assert player.differences == []
    player.differs(call, brings("c1", "a\nb"), brings("c1", "a\nc"))
    assert player.differences == ["turn t1: python now says 'c', recorded 'b'"]


@pytest.mark.parametrize("text", ['{"a": 1}', "[1]", "null", "5"])
def test_json_that_is_no_recording_is_refused_in_plain_words(text: str) -> None:
    with pytest.raises(CassetteMiss, match="it is JSON, but without \"format\": \"nbagent-cassette\""):
        from_text(text, "a.json")


def test_text_that_is_no_json_is_refused_in_plain_words() -> None:
    with pytest.raises(CassetteMiss, match=r"\(it is no JSON: line 1: .*\); record one"):
        from_text("{", "a.json")


def test_a_recording_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    with pytest.raises(OSError, match="it is a folder"):
        save(tmp_path / "sub", "{}")
    with pytest.raises(UnicodeEncodeError):
        save(tmp_path / "a.json", "\ud800")
    assert [p.name for p in tmp_path.iterdir()] == ["sub"]
