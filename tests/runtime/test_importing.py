"""Recordings of other agents become sessions: each format on a small sample, and real ones where they are."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from nbagent.core.entries import Body, Report
from nbagent.core.errors import UsageProblem, UserError
from nbagent.core.messages import Prefix
from nbagent.core.view import build_view
from nbagent.runtime.importing import import_transcript, imported_entries
from nbagent.runtime.importing.formats import parse_recording
from nbagent.runtime.importing.recorder import COMPACTION, Imported, entry_id
from nbagent.runtime.importing.sessions import read_recording
from nbagent.store.artifacts import Artifacts
from nbagent.store.journal_reading import read_journal
from nbagent.store.verify import verify
from tests.core.builders import plain
from tests.core.wire_rules import broken_rules


def jsonl(*rows: Any) -> str:
    return "\n".join(json.dumps(r) for r in rows) + "\n"


def said(role: str, text: str, **more: Any) -> dict[str, Any]:
    return {"type": "message", "message": {"role": role, "content": [{"type": "text", "text": text}], **more}}


PI = jsonl(
    {"type": "session", "id": "s", "modelId": "opus"},
    said("user", "read a.txt"),
    {"type": "message", "timestamp": "2025-12-08T22:41:05Z", "message": {
        "role": "assistant", "model": "opus", "stopReason": "toolUse",
        "content": [{"type": "thinking", "thinking": "hm", "thinkingSignature": "sig"},
                    {"type": "toolCall", "id": "c|1", "name": "read", "arguments": {"path": "a.txt"}}],
        "usage": {"input": 10, "output": 2, "cacheRead": 3, "cacheWrite": 4, "cost": {"total": 0.5}}}},
    {"type": "message", "message": {"role": "toolResult", "toolCallId": "c|1", "toolName": "read", "isError": True,
                                    "content": [{"type": "text", "text": "no such file"}]}},
    said("assistant", "it is missing", stopReason="stop", model="opus"),
    {"type": "message", "message": {"role": "bashExecution", "command": "ls", "output": "b.txt"}},
    said("user", "then b.txt"),
    {"type": "compaction", "summary": "We looked for a.txt.", "firstKeptEntryIndex": 6, "tokensBefore": 99},
    said("assistant", "never mind", stopReason="aborted", model="opus"),
)  # fmt: skip


def part(kind: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"type": kind, "message": {"role": kind, "content": content, **more.pop("message", {})}, **more}


CLAUDE = jsonl(
    {"type": "queue-operation", "operation": "dequeue"},
    part("user", "port it"),
    part("user", "a side question", isSidechain=True),
    part("assistant", [{"type": "text", "text": "I look."}], message={"id": "m1", "model": "opus"}),
    part("assistant", [{"type": "tool_use", "id": "a", "name": "Read", "input": {"file_path": "x.py"}}], message={"id": "m1"}),
    part("user", [{"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "x = 1"}]}]),
    part("assistant", [{"type": "tool_use", "id": "b", "name": "Bash", "input": {"command": "ls"}}], message={"id": "m1"}),
    part("user", [{"type": "tool_result", "tool_use_id": "b", "content": "gone", "is_error": True}]),
    part("user", "This session is being continued ...", isCompactSummary=True),
    part("assistant", [{"type": "text", "text": "Ported."}], message={"id": "m2", "usage": {"input_tokens": 5}}),
)  # fmt: skip


def event(number: int, source: str, **more: Any) -> dict[str, Any]:
    return {"id": number, "source": source, "timestamp": "2025-04-30T16:32:54.7", **more}


def response(id: str, text: str, *calls: tuple[str, str, str]) -> dict[str, Any]:
    made = [{"id": c, "function": {"name": n, "arguments": a}} for c, n, a in calls]
    return {
        "id": id,
        "model": "llama",
        "choices": [{"message": {"content": text, "tool_calls": made}}],
        "usage": {"prompt_tokens": 7},
    }


OPEN_HANDS = jsonl({"instance_id": "repo-1", "history": [
    event(0, "agent", action="system", args={"content": "You are an agent."}),
    event(1, "user", action="message", args={"content": "fix it"}),
    event(2, "agent", action="run", args={"command": "ls"}, tool_call_metadata={
        "tool_call_id": "t1", "model_response": response("r1", "I list.", ("t1", "execute_bash", '{"command": "ls"}'))}),
    event(3, "agent", observation="run", cause=2, content="a.c"),
    event(4, "agent", action="run", args={"command": "make"}, tool_call_metadata={
        "tool_call_id": "t1", "model_response": response("r2", "", ("t1", "execute_bash", '{"command": "make"}'))}),
    event(5, "agent", observation="error", cause=4, content="make: not found"),
    event(6, "agent", action="finish", args={"final_thought": "done"}),
]})  # fmt: skip

SWE_TEXT = json.dumps({"trajectory": [], "history": [
    {"role": "system", "content": "SETTING"},
    {"role": "user", "content": "a demonstration", "is_demo": True},
    {"role": "user", "content": "find the flag"},
    {"role": "assistant", "content": "I look.\n```\nls\n```", "thought": "I look.", "action": "ls"},
    {"role": "user", "content": "flag.txt"},
    {"role": "assistant", "content": "found", "thought": "found", "action": ""},
]})  # fmt: skip

SWE_CALLS = json.dumps({"history": [
    {"role": "user", "content": "fix the issue"},
    {"role": "assistant", "content": "look", "action": "ls", "tool_calls": [{"id": "c1", "function": {"name": "bash", "arguments": '{"command":"ls"}'}}]},
    {"role": "tool", "content": "setup.py", "tool_call_ids": ["c1"]},
]})  # fmt: skip

CHAT = [
    {"role": "system", "content": "policy"},
    {"role": "user", "content": "book a flight"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "function": {"name": "find", "arguments": "{not json"}}],
    },
    {"role": "tool", "tool_call_id": "c1", "name": "find", "content": '{"HAT083": 1}'},
    {"role": "assistant", "content": "HAT083?"},
    {"role": "user", "content": "yes"},
    {"role": "assistant", "content": "booked"},
]
SAMPLES = {
    "pi": PI, "claude": CLAUDE, "openhands": OPEN_HANDS, "swe-agent": SWE_TEXT, "swe-agent-calls": SWE_CALLS,
    "chats": json.dumps([{"task_id": 1, "traj": CHAT}, {"messages": CHAT}]), "chat": json.dumps(CHAT),
    "chat-lines": jsonl({"messages": CHAT}),
}  # fmt: skip


def one(text: str) -> Imported:
    (found,) = parse_recording(text)
    return found


def seen(imported: Imported) -> list[tuple[str, list[str]]]:
    return plain(build_view(imported_entries(imported)))


def bodies(imported: Imported, kind: str) -> Sequence[Any]:
    found: list[Body] = [s.body for s in imported.bodies if s.body.kind == kind]
    return found


def test_a_pi_session_keeps_calls_usage_and_who_ran_what() -> None:
    found = one(PI)
    assert seen(found)[:4] == [
        ("user", ["read a.txt"]),
        ("assistant", ["thinking", "call c_1"]),
        ("user", ["error c_1: no such file"]),
        ("assistant", ["it is missing"]),
    ]
    usage = bodies(found, "usage")[0]
    assert usage.usage == {
        "input_tokens": 10,
        "output_tokens": 2,
        "cache_read_input_tokens": 3,
        "cache_creation_input_tokens": 4,
    }
    assert usage.cost_usd == 0.5
    assert [e.outcome for e in bodies(found, "turn_end")] == ["completed", "stopped"]
    assert "b.txt" in bodies(found, "snapshot")[0].text


def test_a_recorded_summary_is_a_report_and_not_our_move() -> None:
    found = one(PI)
    (report,) = bodies(found, "report")
    assert (report.source, report.text, report.details["before_tokens"]) == (COMPACTION, "We looked for a.txt.", 99)
    kept = next(i for i, s in enumerate(found.bodies) if s.body.kind == "turn_start" and i)
    assert report.details["first_kept"] == entry_id(kept)
    assert not bodies(found, "compaction")


def test_a_claude_code_reply_spread_over_rows_is_one() -> None:
    found = one(CLAUDE)
    assert seen(found) == [
        ("user", ["port it"]),
        ("assistant", ["I look.", "call a", "call b"]),
        ("user", ["result a: x = 1", "error b: gone"]),
        ("assistant", ["Ported."]),
    ]
    assert bodies(found, "report")[0].source == COMPACTION
    assert {b.model for b in bodies(found, "turn_start")} == {"opus"}  # said by the reply, after the request


LATE = [
    {"role": "user", "content": "look"},
    {"role": "assistant", "content": None, "tool_calls": [
        {"id": "a", "function": {"name": "find", "arguments": "{}"}}, {"id": "b", "function": {"name": "find", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "a", "content": "found"},
    {"role": "user", "content": "hurry"},
    {"role": "tool", "tool_call_id": "b", "content": "found late"},
    {"role": "tool", "tool_call_id": "b", "content": "found twice"},
    {"role": "tool", "tool_call_id": "nobody's", "content": "an orphan"},
    {"role": "assistant", "content": "both found"},
]  # fmt: skip


def test_a_result_after_a_later_request_is_put_behind_its_call() -> None:
    """openclaw 70, 71: it is no lost result, and only the first counts."""
    assert seen(one(json.dumps(LATE))) == [
        ("user", ["look"]), ("assistant", ["call a", "call b"]), ("user", ["result a: found", "result b: found late", "hurry"]),
        ("assistant", ["both found"]),
    ]  # fmt: skip


def test_a_late_result_leaves_a_recorded_summary_with_what_it_kept() -> None:
    asks = {"type": "message", "message": {"role": "assistant", "model": "opus", "stopReason": "toolUse", "content": [
        {"type": "toolCall", "id": "c", "name": "read", "arguments": {}}]}}  # fmt: skip
    late = {"type": "message", "message": {"role": "toolResult", "toolCallId": "c", "content": [{"type": "text", "text": "late"}]}}
    rows = [{"type": "session", "id": "s"}, said("user", "one"), asks, said("user", "two"), late, said("assistant", "so", stopReason="stop"),
            {"type": "compaction", "summary": "S", "firstKeptEntryIndex": 3}, said("user", "three")]  # fmt: skip
    entries = imported_entries(one(jsonl(*rows)))
    (report,) = [e.body for e in entries if isinstance(e.body, Report)]
    kept = next(e for e in entries if e.id == report.details["first_kept"])
    assert (kept.kind, kept.body.order) == ("turn_start", 2)  # type: ignore[union-attr]
    assert any("result c: late" in w for _, ws in plain(build_view(entries)) for w in ws)


def test_open_hands_calls_get_ids_of_their_own() -> None:
    found = one(OPEN_HANDS)
    assert found.system == "You are an agent."
    assert seen(found) == [
        ("user", ["fix it"]),
        ("assistant", ["I list.", "call event_2"]),
        ("user", ["result event_2: a.c"]),
        ("assistant", ["call event_4"]),
        ("user", ["error event_4: make: not found"]),
        ("assistant", ["done"]),
    ]


def test_an_action_in_text_becomes_a_call() -> None:
    assert seen(one(SWE_TEXT)) == [
        ("user", ["find the flag"]),
        ("assistant", ["I look.", "call call_1"]),
        ("user", ["result call_1: flag.txt"]),
        ("assistant", ["found"]),
    ]


def test_tool_calls_of_swe_agent_are_taken_as_they_are() -> None:
    assert seen(one(SWE_CALLS))[1:] == [("assistant", ["look", "call c1"]), ("user", ["result c1: setup.py"])]


def test_a_list_of_chats_gives_a_session_each() -> None:
    first, second = parse_recording(SAMPLES["chats"])
    assert (first.name, second.name, first.system) == ("001", "002", "policy")
    assert bodies(first, "assistant_message")[0].blocks[0]["input"] == {"value": "{not json"}
    assert [e.outcome for e in bodies(first, "turn_end")] == ["completed", "completed"]


@pytest.mark.parametrize("name", SAMPLES)
def test_every_format_gives_a_sound_journal(name: str, tmp_path: Path) -> None:
    file = tmp_path / f"{name}.jsonl"
    file.write_text(SAMPLES[name], encoding="utf-8")
    for made in import_transcript(file, tmp_path / "out"):
        assert verify(made.place.journal) == []
        entries = read_journal(made.place.journal).entries
        assert (made.place.how, made.entries, made.place.origin) == ("imported", len(entries), file.name)
        assert broken_rules(build_view(entries).messages, open_at_end=True) == []


def test_the_same_file_gives_the_same_bytes(tmp_path: Path) -> None:
    file = tmp_path / "talk.jsonl"
    file.write_text(PI, encoding="utf-8")
    first, second = (import_transcript(file, tmp_path / out)[0].place.journal.read_bytes() for out in ("a", "b"))
    assert first == second


def test_the_system_text_is_kept_as_the_stored_prefix(tmp_path: Path) -> None:
    file = tmp_path / "chat.json"
    file.write_text(SAMPLES["chat"], encoding="utf-8")
    (made,) = import_transcript(file, tmp_path)
    start = read_journal(made.place.journal).entries[0].body
    assert Prefix.from_text(Artifacts(made.place.artifacts).get_text(start.prefix)).system == (
        {"type": "text", "text": "policy"},
    )  # type: ignore[union-attr]


def test_secrets_are_scrubbed(tmp_path: Path) -> None:
    key = "sk-ant-" + "api03-" + "A1b2C3d4" * 6
    file = tmp_path / "chat.json"
    file.write_text(json.dumps([{"role": "user", "content": f"my key is {key}"}]), encoding="utf-8")
    (made,) = import_transcript(file, tmp_path)
    assert key not in made.place.journal.read_text(encoding="utf-8")


def test_importing_twice_into_one_folder_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "chat.json"
    file.write_text(SAMPLES["chat"], encoding="utf-8")
    import_transcript(file, tmp_path)
    with pytest.raises(UsageProblem, match="is there already"):
        import_transcript(file, tmp_path)


@pytest.mark.parametrize(
    "text",
    ["", "hello", "{}", "[]", "[1, 2]", '{"a": 1}\n{"b": 2}', '{"type":"session"}\n{"type":"message","message":5}',
     '{"history": [{"role": "assistant", "tool_calls": [{}]}]}', '[{"traj": [{"role": "assistant", "tool_calls": 3}]}]'],
)  # fmt: skip
def test_what_is_no_recording_is_one_line_for_the_person(text: str, tmp_path: Path) -> None:
    file = tmp_path / "odd.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=r"odd\.json"):
        import_transcript(file, tmp_path)
    assert not (tmp_path / ".nbagent").exists()


def test_a_missing_and_a_binary_file_are_one_line_too(tmp_path: Path) -> None:
    (tmp_path / "image.png").write_bytes(b"\x89PNG\xff\xfe")
    for name in ("none.json", "image.png"):
        with pytest.raises(UserError, match=name):
            import_transcript(tmp_path / name, tmp_path)


REAL = os.environ.get("NBAGENT_TRANSCRIPTS", "")
FILES = sorted(p for p in Path(REAL).rglob("*") if p.suffix in (".json", ".jsonl", ".traj")) if REAL else []


@pytest.mark.skipif(not FILES, reason="NBAGENT_TRANSCRIPTS names no folder of recordings")
@pytest.mark.parametrize("file", FILES, ids=lambda p: p.name)
def test_a_real_recording_converts_whole(file: Path, tmp_path: Path) -> None:
    for made in import_transcript(file, tmp_path):
        entries = read_journal(made.place.journal).entries
        assert len(entries) == made.entries
        view = build_view(entries)
        assert broken_rules(view.messages, open_at_end=True) == []
        assert made.turns >= 1
        assert made.calls >= 1


def test_a_recording_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"role": "user"}', encoding="utf-8-sig")
    assert read_recording(tmp_path / "a.jsonl") == '{"role": "user"}'
