"""The silent turn before a compaction, in sessions against the wire fake (OC-M7; cases 55-68, 136-142, 145)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nbagent.core.effects import Notice, StepBegan, TextDelta, ToolBegan
from nbagent.core.entries import AssistantMessage, Compaction, Report, ToolResult, UsageReported, UserMessage
from nbagent.core.messages import joined_text
from nbagent.runtime.compacting import compact
from tests.fakes.messages_api import FakeMessagesAPI, call, http_error, reply
from tests.runtime.talk import Talk

Make = Callable[..., FakeMessagesAPI]
ASKS_NOTE = "about to be replaced by a note"
ASKS_FLUSH = "is about to be compacted"
NOTE = "<note>## Goal\nread all files\n</note>"
pytestmark = pytest.mark.prefix_moves(reason="compactions are what is tested")


def asked(body: dict[str, Any]) -> str:
    content = body["messages"][-1]["content"]
    return content if isinstance(content, str) else "\n".join(str(b.get("text", "")) for b in content)


def whole(body: dict[str, Any]) -> str:
    return str(body["messages"])


class Script:
    """Reads a file a step, ends every third turn's step; `flush` are the replies of a flush, in order, then silence."""

    def __init__(self, *flush: Any, each: int = 4) -> None:
        self.flush, self.each = list(flush), each
        self.steps = self.notes = self.flushes = 0
        self.flush_requests: list[dict[str, Any]] = []

    def __call__(self, body: dict[str, Any]) -> Any:
        if ASKS_NOTE in asked(body):
            self.notes += 1
            return NOTE
        if ASKS_FLUSH in whole({"messages": body["messages"][-6:]}):
            self.flushes += ASKS_FLUSH in asked(body)
            self.flush_requests.append(body)
            return self.flush.pop(0) if self.flush else "NO_REPLY"
        self.steps += 1
        if self.steps % self.each == 0:
            return f"Part {self.steps} is done."
        return reply(call("read", {"path": f"a{self.steps % 30}.txt"}))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for i in range(30):
        (tmp_path / f"a{i}.txt").write_text(f"line {i} of value_{i} must never be lost\n" * 60)
    return tmp_path


def talk(folder: Path, fake: FakeMessagesAPI, *, window: int = 20_000, policy: str = "nbagent", **options: Any) -> Talk:
    given = {"policy": policy, "window_tokens": window, "memory.embedder": "none", **options}
    return Talk(folder, fake, model="claude-sonnet-4-6", options=given)


def serving(make_fake: Make, script: Callable[[dict[str, Any]], Any]) -> FakeMessagesAPI:
    fake = make_fake()
    fake._answer_of = script
    return fake


def until_compacted(held: Talk, most: int = 30) -> None:
    for i in range(most):
        held.send(f"part {i}")
        if held.bodies(Compaction):
            return
    raise AssertionError("nothing was compacted")


def logs(folder: Path) -> str:
    return "".join(p.read_text() for p in sorted((folder / ".nbagent/memory").glob("*.md")))


def reports(held: Talk) -> list[Report]:
    return [r for r in held.bodies(Report) if r.source == "flush"]


def storing(today: str) -> Any:
    return reply(call("write", {"path": f".nbagent/memory/{today}.md", "content": "- The cutoff is 0.7.\n- Medians, not means."}))


def day(held: Talk) -> str:
    return held.session.runner.writer.clock.today()[:10]


# ---------------------------------------------------------------- it stores, and is not seen


def test_what_the_model_stores_is_in_the_log_with_turn_and_cell(make_fake: Make, folder: Path) -> None:
    """NB-M2."""
    script = Script()
    with talk(folder, serving(make_fake, script)) as held:
        script.flush = [storing(day(held)), "NO_REPLY"]
        until_compacted(held)
        turn = held.session.tree.turns()[-1]
        mark = f"<!-- nbagent turn={turn.turn} cell={turn.body.cell_id} session=x -->"
        assert logs(folder) == f"- The cutoff is 0.7. {mark}\n- Medians, not means. {mark}\n"
        assert [(r.details["ok"], r.details["stored"]) for r in reports(held)] == [(True, 1)]
        assert held.session.runner.memory.open().search("cutoff")[0].provenance.turn == turn.turn


def test_after_midnight_the_log_it_went_to_is_named(make_fake: Make, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script()
    fake = make_fake()
    with talk(folder, fake) as held:

        def stored_next_day(body: dict[str, Any]) -> Any:
            if ASKS_FLUSH in asked(body):
                monkeypatch.setattr("nbagent.runtime.clock.day_text", lambda day: "2099-01-02 (Friday)")
            return script(body)

        fake._answer_of = stored_next_day
        script.flush = [storing(day(held)), "NO_REPLY"]
        until_compacted(held)
        (report,) = reports(held)
        assert (report.text, report.details["note"]) == ("1 stored in .nbagent/memory/2099-01-02.md", ".nbagent/memory/2099-01-02.md")
        assert [p.name for p in (folder / ".nbagent/memory").glob("*.md")] == ["2099-01-02.md"]
        (said,) = (e.text for e in held.events if isinstance(e, Notice) and "noted what must last" in e.text)
        assert "2099-01-02.md" in said


def test_neither_its_prompt_nor_its_answer_is_shown_or_kept(make_fake: Make, folder: Path) -> None:
    """OC case 140."""
    script = Script()
    with talk(folder, serving(make_fake, script)) as held:
        script.flush = [storing(day(held)), "NO_REPLY"]
        until_compacted(held)
        said = "".join(joined_text(b.blocks) for b in (*held.bodies(UserMessage), *held.bodies(AssistantMessage)))
        assert ASKS_FLUSH not in said
        assert "NO_REPLY" not in said
        assert not any("cutoff" in joined_text(r.content) for r in held.bodies(ToolResult))
        shown = [e for e in held.events if isinstance(e, TextDelta | ToolBegan | StepBegan | Notice)]
        assert not any("NO_REPLY" in str(e) or ASKS_FLUSH in str(e) or "cutoff" in str(e) for e in shown)


def test_what_it_cost_is_in_the_journal(make_fake: Make, folder: Path) -> None:
    script = Script()
    with talk(folder, serving(make_fake, script)) as held:
        script.flush = [storing(day(held)), "NO_REPLY"]
        until_compacted(held)
        paid = [u for u in held.bodies(UsageReported) if u.purpose == "flush"]
        assert len(paid) == 2
        assert all(u.cost_usd > 0 for u in paid)


def test_it_goes_on_with_the_conversation_so_the_cache_holds(make_fake: Make, folder: Path) -> None:
    script = Script()
    server = serving(make_fake, script)
    with talk(folder, server) as held:
        until_compacted(held)
        first = script.flush_requests[0]
        before = max((r for r in (x.body for x in server.requests) if ASKS_NOTE not in asked(r) and len(r["messages"]) < len(first["messages"])), key=lambda r: len(r["messages"]))
        assert (first["system"], first["tools"]) == (before["system"], before["tools"])


# ---------------------------------------------------------------- what it may do


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (call("write", {"path": "MEMORY.md", "content": "x"}), "writes are limited to .nbagent/memory/"),
        (call("write", {"path": ".nbagent/memory/other.md", "content": "x"}), "writes are limited to .nbagent/memory/"),
        (call("write", {"path": "a1.txt", "content": "x"}), "writes are limited to .nbagent/memory/"),
        (call("edit", {"path": "a1.txt", "old": "line", "new": "x"}), "may be used before a compaction"),
        (call("python", {"code": "x = 1"}), "may be used before a compaction"),
        (call("remember", {"text": "I am Ana.", "scope": "person"}), "leave scope out"),
        (call("write", {"path": "a1.txt"}), "is missing (a string: The whole new content)"),
        (call("read", {"path": "../../etc/passwd"}), "outside"),
    ],
)
def test_everything_else_is_refused_and_nothing_changes(make_fake: Make, folder: Path, made: Any, says: str) -> None:
    """OC cases 65, 137."""
    before = {p: p.read_bytes() for p in folder.glob("*.txt")}
    script = Script(reply(made), "NO_REPLY")
    with talk(folder, serving(make_fake, script)) as held:
        until_compacted(held)
        answer = str(script.flush_requests[1]["messages"][-1]["content"])
        assert says in answer
        assert "'is_error': True" in answer
        assert not (folder / ".nbagent/memory").exists()
        assert not (folder / ".nbagent/MEMORY.md").exists()
        assert {p: p.read_bytes() for p in folder.glob("*.txt")} == before


def test_it_may_read_and_remember(make_fake: Make, folder: Path) -> None:
    script = Script(
        reply(call("read", {"path": "a29.txt"}), call("remember", {"text": "value_29 is in a29.txt."})), "NO_REPLY"
    )
    with talk(folder, serving(make_fake, script)) as held:  # before that file was read anyway
        until_compacted(held)
        assert "value_29 must never be lost" in str(script.flush_requests[1]["messages"][-1]["content"])
        assert logs(folder).startswith("- value_29 is in a29.txt. <!-- nbagent turn=")


def test_the_log_keeps_every_line_it_had(make_fake: Make, folder: Path) -> None:
    """OC cases 64, 136."""
    script = Script()
    with talk(folder, serving(make_fake, script)) as held:
        path = folder / ".nbagent/memory" / f"{day(held)}.md"
        path.parent.mkdir(parents=True)
        old = "".join(f"- line {i}\n" for i in range(10)).removesuffix("\n")
        path.write_text(old)
        script.flush = [storing(day(held)), "NO_REPLY"]
        until_compacted(held)
        assert path.read_text().startswith(old + "\n- The cutoff is 0.7. <!--")


def test_a_secret_is_not_stored(make_fake: Make, folder: Path) -> None:
    key = "sk-ant-api03-" + "a1B2" * 12
    script = Script(reply(call("remember", {"text": f"key {key}"})), "NO_REPLY")
    with talk(folder, serving(make_fake, script)) as held:
        until_compacted(held)
        assert "looks like a key" in str(script.flush_requests[1]["messages"][-1]["content"])
        assert not (folder / ".nbagent/memory").exists()


# ---------------------------------------------------------------- when


def test_it_runs_once_for_each_compaction(make_fake: Make, folder: Path) -> None:
    script = Script()
    with talk(folder, serving(make_fake, script)) as held:
        until_compacted(held)
        assert (script.flushes, script.notes) == (1, 1)
        for i in range(30):
            held.send(f"more {i}")
        assert len(held.bodies(Compaction)) > 1
        assert script.flushes == len(held.bodies(Compaction)) == script.notes


def test_a_compaction_that_fails_does_not_flush_again(make_fake: Make, folder: Path) -> None:
    """OC case 145: no loop of flushes."""
    script = Script()
    inner = script.__call__

    def answers(body: dict[str, Any]) -> Any:
        return "" if ASKS_NOTE in asked(body) else inner(body)

    with talk(folder, serving(make_fake, answers), policy="off") as held:
        for i in range(3):
            held.send(f"part {i}")
        for _ in range(3):
            assert not held.run(compact(held.session, held.ports)).applied
        assert len([r for r in held.bodies(Report) if r.source == "compaction"]) == 3
        assert script.flushes == 1


@pytest.mark.parametrize("window", [8_000, 12_000, 20_000, 60_000])
def test_it_fires_in_windows_of_any_size(make_fake: Make, folder: Path, window: int) -> None:
    """OC case 142."""
    script = Script(each=2)
    with talk(folder, serving(make_fake, script), window=window) as held:
        until_compacted(held, most=60)
        assert script.flushes == 1


@pytest.mark.parametrize(
    ("options", "why"),
    [({"memory.flush": "off"}, "off"), ({"mode": "plan"}, "reads only"), ({"tools.deny": ["write", "remember"]}, "denied"),
     ({"tools.ask": ["write", "remember"]}, "would have to ask")],
)
def test_it_does_not_run_where_the_log_may_not_be_written(make_fake: Make, folder: Path, options: dict[str, Any], why: str) -> None:
    """OC case 61."""
    script = Script()
    with talk(folder, serving(make_fake, script), **options) as held:
        until_compacted(held)
        assert script.flushes == 0, why


def test_a_large_record_is_flushed_without_a_compaction(make_fake: Make, folder: Path) -> None:
    """OC case 59."""
    script = Script(each=1)
    with talk(folder, serving(make_fake, script), window=100_000) as held:
        held.send("one")
        assert script.flushes == 0
        held.session.runner.writer.size_bytes = lambda: 2_097_152  # type: ignore[method-assign]
        held.send("two")
        held.send("three")
        assert script.flushes == 1
        assert held.bodies(Compaction) == []


def test_a_compaction_by_hand_flushes_and_a_dry_run_does_not(make_fake: Make, folder: Path) -> None:
    script = Script(each=2)
    with talk(folder, serving(make_fake, script)) as held:
        for i in range(3):
            held.send(f"part {i}")
        held.run(compact(held.session, held.ports, dry_run=True))
        assert script.flushes == 0
        held.run(compact(held.session, held.ports))
        assert script.flushes == 1
        assert len(reports(held)) == 1


# ---------------------------------------------------------------- when it fails


def test_a_flush_that_fails_is_told_and_tried_at_the_next_compaction(make_fake: Make, folder: Path) -> None:
    """OC case 67."""
    script = Script(reply(fault=http_error(400, "no " + "x" * 900)))
    with talk(folder, serving(make_fake, script)) as held:
        until_compacted(held)
        told = [e.text for e in held.events if isinstance(e, Notice) and "Notes were not stored" in e.text]
        assert len(told) == 1
        assert len(told[0]) <= 600
        assert held.session.tree.turns_on_path()[-1].end.outcome == "completed"
        assert [r.details["ok"] for r in reports(held)] == [False]


@pytest.mark.refused(reason="the stop cuts the request off while it is being sent")
def test_stopping_it_stops_the_compaction_too(make_fake: Make, folder: Path) -> None:
    script = Script()
    with talk(folder, serving(make_fake, script)) as held:
        for i in range(30):
            done = held.send_and_stop(lambda e: isinstance(e, Notice) and "Compacting" in e.text, f"part {i}")
            if done.output.outcome == "stopped":
                break
        assert done.output.outcome == "stopped"
        assert held.bodies(Compaction) == []
        assert script.notes == 0


def test_one_that_never_ends_is_ended(make_fake: Make, folder: Path) -> None:
    script = Script(*[reply(call("read", {"path": "a1.txt"}))] * 40)
    with talk(folder, serving(make_fake, script)) as held:
        until_compacted(held)
        assert len(script.flush_requests) <= 6
        assert held.bodies(Compaction)


def test_a_conversation_of_tool_results_is_compacted_once_and_not_at_its_next_turn(make_fake: Make, folder: Path) -> None:
    """OC case 143; heartbeats do not exist here."""
    script = Script()
    with talk(folder, serving(make_fake, script), policy="openclaw") as held:
        until_compacted(held)
        notes = script.notes
        held.send("go on")
        assert (len(held.bodies(Compaction)), script.notes - notes) == (1, 0)
