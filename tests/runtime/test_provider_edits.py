"""The provider's own clearing and compaction, end to end against the wire fake (CX-C2; claude.md A6, A10)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nbagent.context.anchor_index import AnchorIndex
from nbagent.context.sight import Sight
from nbagent.core.entries import AssistantMessage, Compaction, Pruning, Restore, UsageReported, UserMessage
from nbagent.core.errors import UsageProblem
from nbagent.core.messages import is_provider_note
from nbagent.core.view import build_view
from nbagent.models.cassette import Cassette, recorded_turns
from nbagent.runtime.compacting import compact, loss_in_force, note_in_force, provider_lines, replace_note, undo
from nbagent.runtime.comparing import compare_session
from tests.fakes.messages_api import FakeMessagesAPI, call, reply, thinking
from tests.fakes.ways import both_ways  # noqa: F401
from tests.runtime.lab import Lab
from tests.runtime.talk import Talk

Make = Callable[..., FakeMessagesAPI]
CLEAR, COMPACT = "clear_tool_uses_20250919", "compact_20260112"
NOTE = "What was done: files a0 to a9 were read; value_3 matters."
FREE = "claude-sonnet-4-6"
FEW = "claude-haiku-4-5"


class Reader:
    """Reads a large file a step; every `each`-th reply ends the turn."""

    def __init__(self, each: int = 7) -> None:
        self.each, self.steps = each, 0

    def __call__(self, body: dict[str, Any]) -> Any:
        if "about to be replaced by a note" in str(body["messages"][-1]["content"][-1].get("text", "")):
            return "<note>## Goal\nour own note</note>"
        self.steps += 1
        if self.steps % self.each == 0:
            return reply(thinking("so"), f"Done with part {self.steps}.")
        return reply(thinking(f"t{self.steps}"), call("read", {"path": f"a{self.steps % 30}.txt"}))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for i in range(30):
        (tmp_path / f"a{i}.txt").write_text(f"line {i} of value_{i} at /data/x{i}.csv must never be lost\n" * 300)
    return tmp_path


def talk(folder: Path, fake: FakeMessagesAPI, provider: str, window: int = 120_000, **more: Any) -> Talk:
    options = {"policy": "nbagent", "window_tokens": window, "context.provider": provider, **more.pop("options", {})}
    return Talk(folder, fake, options=options, **more)


def fake_of(make_fake: Make, reader: Reader | None = None, **more: Any) -> FakeMessagesAPI:
    fake = make_fake(note=lambda body: NOTE, **more)
    fake._answer_of = reader or Reader()
    return fake


def edits(body: dict[str, Any]) -> list[str]:
    return [e["type"] for e in (body.get("context_management") or {}).get("edits", ())]


def notes(body: dict[str, Any]) -> list[dict[str, Any]]:
    return [b for m in body["messages"] for b in m["content"] if b["type"] == "compaction"]


def until_compacted(session: Talk) -> None:
    for _ in range(6):
        done = session.send("go on")
        assert done.output.outcome == "completed", done.output.message
        if build_view(session.path).unread:
            return
    raise AssertionError("the provider never compacted")


# ---------------------------------------------------------------- compaction


def test_the_providers_compaction_is_asked_for_kept_and_sent_back_as_it_came(make_fake: Make, folder: Path) -> None:
    """The fixture checks that each request extends the one before it, and that thinking was never refused."""
    fake = fake_of(make_fake)
    with talk(folder, fake, "compact") as session:
        until_compacted(session)
        session.send("and more")
        assert all(edits(r.body) == [COMPACT] for r in fake.requests)
        assert {r.headers["anthropic-beta"] for r in fake.requests} == {"compact-2026-01-12"}
        kept = [b for e in session.bodies(AssistantMessage) for b in e.blocks if is_provider_note(b)]
        assert [{k: v for k, v in b.items() if k != "cache_control"} for b in notes(fake.requests[-1].body)] == kept
        assert kept[0]["content"] == NOTE
        assert not session.bodies(Compaction)


def test_the_gauge_and_the_person_know_what_the_provider_compacted(make_fake: Make, folder: Path) -> None:
    fake = fake_of(make_fake)
    with talk(folder, fake, "compact") as session:
        before = 0
        while not build_view(session.path).unread:
            before = session.session.occupancy().used_tokens
            done = session.send("go on")
        assert any("The provider compacted the conversation" in line for line in done.notices)
        held = session.session.occupancy()
        assert held.used_tokens < before
        assert held.ledger.summary > 0
        assert "`%context undo` takes it back" in provider_lines(session.session)[0]
        assert note_in_force(session.session) == NOTE
        iterations = [u.usage["iterations"] for u in session.bodies(UsageReported) if "iterations" in u.usage]
        assert iterations[0][0]["type"] == "compaction"


def test_what_the_provider_compacted_counts_as_out_of_sight(make_fake: Make, folder: Path) -> None:
    fake = fake_of(make_fake)
    with talk(folder, fake, "compact") as session:
        until_compacted(session)
        index, view = AnchorIndex(session.path), build_view(session.path)
        sight = Sight(index, view)
        assert sight.holds(("ident", "value_3"), len(index))
        assert not sight.holds(("path", "/data/x1.csv"), len(index))
        assert index.occurrences(("path", "/data/x1.csv"), len(index))


@pytest.mark.prefix_moves(reason="a compaction by hand is part of it")
def test_the_loss_report_tells_what_the_providers_note_left_out(make_fake: Make, folder: Path) -> None:
    """The provider's compaction is judged as ours is: by what its block says against what it replaced."""
    fake = fake_of(make_fake)
    with talk(folder, fake, "compact", 200_000, options={"threshold": 0.25}) as session:
        with pytest.raises(UsageProblem, match="there is no compaction"):
            loss_in_force(session.session)
        until_compacted(session)
        entries = len(session.path)
        report = loss_in_force(session.session)
        assert report.loss is not None
        told = {a.text for a in report.loss.verbatim}
        gone = {a.text for a in (*report.loss.lost, *report.loss.reachable)}
        assert "value_3" in told
        assert "/data/x1.csv" in gone - told
        assert (report.handoff, report.applied) == (NOTE, True)
        assert report.before_tokens > 2 * report.after_tokens
        assert len(session.path) == entries, "nothing was written"
        assert "`%context loss`" in provider_lines(session.session)[0]
        assert session.run(compact(session.session, session.ports)).applied
        ours = loss_in_force(session.session)
        assert ours.policy == "nbagent"
        assert "our own note" in ours.handoff


def test_the_edited_note_of_the_provider_is_refused_with_what_to_do(make_fake: Make, folder: Path) -> None:
    fake = fake_of(make_fake)
    with talk(folder, fake, "compact") as session:
        until_compacted(session)
        with pytest.raises(Exception, match="the provider's own and cannot be changed; `%context undo`"):
            replace_note(session.session, "mine")


@pytest.mark.prefix_moves(reason="the undoing is what is tested")
def test_an_undo_sends_everything_again_and_the_provider_waits_too(make_fake: Make, folder: Path) -> None:
    """DECISIONS 16: what came before is as it was, later turns stay less their thinking."""
    fake = fake_of(make_fake)
    with talk(folder, fake, "compact", 200_000, options={"threshold": 0.25}) as session:
        until_compacted(session)
        before = fake.requests[0].body["messages"]
        assert not undo(session.session).waits
        assert [e.cancels for e in session.bodies(Restore)]
        done = session.send("and now?")
        assert done.output.outcome == "completed"
        last = fake.requests[-1].body
        assert notes(last) == []
        assert edits(last) == []
        assert last["messages"][0]["content"][0]["text"] == before[0]["content"][0]["text"]
        assert not build_view(session.path).unread
        assert session.session.occupancy().used_tokens > 50_000


@pytest.mark.prefix_moves(reason="a compaction by hand is what is tested")
def test_our_own_compaction_takes_the_place_of_the_providers(make_fake: Make, folder: Path) -> None:
    fake = fake_of(make_fake)
    with talk(folder, fake, "compact") as session:
        until_compacted(session)
        result = session.run(compact(session.session, session.ports))
        assert result.applied, result.reason
        assert session.send("and now?").output.outcome == "completed"
        last = fake.requests[-1].body
        assert notes(last) == []
        assert "our own note" in str(last["messages"][0])
        asked = next(r.body for r in fake.requests if "about to be replaced" in str(r.body["messages"][-1]))
        assert edits(asked) == []
        assert notes(asked)
        undo(session.session)
        session.send("back")
        assert notes(fake.requests[-1].body)


def test_a_compaction_that_failed_at_the_provider_changes_nothing(make_fake: Make, folder: Path) -> None:
    fake = make_fake(note=lambda body: None)
    fake._answer_of = Reader(each=16)
    with talk(folder, fake, "compact", 160_000) as session:
        session.send("go on")
        assert notes(fake.requests[-1].body)
        view = build_view(session.path)
        assert (view.unread, view.compaction) == (frozenset(), None)


def test_a_session_opened_again_sends_the_same_request(make_fake: Make, folder: Path) -> None:
    fake = fake_of(make_fake)
    with talk(folder, fake, "compact") as session:
        until_compacted(session)
        view = build_view(session.path)
    with talk(folder, fake, "compact") as again:
        now = build_view(again.path)
        assert (now.messages, now.unread, now.compaction) == (view.messages, view.unread, view.compaction)
        assert again.send("and now?").output.outcome == "completed"


@pytest.mark.prefix_moves(reason="another model is asked")
def test_a_model_that_cannot_read_it_gets_the_whole_conversation_again(make_fake: Make, folder: Path) -> None:
    fake = fake_of(make_fake)
    with talk(folder, fake, "compact") as session:
        until_compacted(session)
        done = session.send("and you?", model=FEW)
        assert done.output.outcome == "completed", done.output.message
        assert any("claude-haiku-4-5 cannot read the provider's compaction" in line for line in done.notices)
        assert notes(fake.requests[-1].body) == []


@pytest.mark.prefix_moves(reason="the undoing is what is tested")
def test_a_recording_plays_the_providers_compaction_and_its_undoing(make_fake: Make, folder: Path) -> None:
    fake = fake_of(make_fake)
    with talk(folder, fake, "compact", 200_000, options={"threshold": 0.25}) as session:
        until_compacted(session)
        undo(session.session)
        session.send("and now?")
        prompts = [b.blocks[0]["text"] for b in session.bodies(UserMessage)]
        turns = recorded_turns(session.path)
        prefixes = {d: session.session.runner.prefix_of(d) for t in turns for d in t.prefixes}
    lab = Lab(folder)
    lab.replay(Cassette(turns=turns, prefixes=prefixes))
    for i, prompt in enumerate(prompts):
        lab.send(prompt, f"c{i}")
    assert not build_view(lab.session.tree.path()).unread
    assert [b.cancels in {e.id for e in lab.session.tree.path()} for b in lab.bodies(Restore)] == [True]
    lab.close()


# ---------------------------------------------------------------- clearing


def test_the_provider_clears_old_results_and_the_ledger_follows(make_fake: Make, folder: Path) -> None:
    fake = fake_of(make_fake, Reader(each=24))
    with talk(folder, fake, "clear", 100_000, model=FREE, options={"threshold": 0.45, "policy": "manus"}) as session:
        done = session.send("go on")
        assert done.output.outcome == "completed", done.output.message
        assert {r.headers["anthropic-beta"] for r in fake.requests} == {"context-management-2025-06-27"}
        view = build_view(session.path)
        assert view.cleared
        assert not session.bodies(Pruning)
        told = [u.usage["applied_edits"] for u in session.bodies(UsageReported) if "applied_edits" in u.usage]
        assert told[-1][0]["cleared_tool_uses"] == len(view.cleared)
        assert any("oldest results out of the request" in line for line in done.notices)
        assert "were left out of the last request" in provider_lines(session.session)[0]
        measured = fake.requests[-1].usage.total_tokens
        assert abs(session.session.occupancy().used_tokens - measured) <= 0.2 * measured


def test_a_comparison_leaves_out_what_the_provider_did(make_fake: Make, folder: Path) -> None:
    fake = fake_of(make_fake)
    with talk(folder, fake, "compact") as session:
        until_compacted(session)
        row = compare_session(session.session, ["off"]).rows[0]
        assert row.peak_tokens > 50_000
        assert (row.compactions, row.lost) == (0, 0)


# ---------------------------------------------------------------- where it cannot be had


@pytest.mark.parametrize(
    ("model", "window", "why"),
    [
        (FEW, 150_000, "cannot compact a conversation: claude-haiku-4-5 does not offer it"),
        ("claude-sonnet-5-5", 40_000, "it begins at 50,000 tokens and the window holds 40,000"),
    ],
)
def test_where_the_provider_cannot_one_line_says_so_and_the_policy_does_it(
    make_fake: Make, folder: Path, model: str, window: int, why: str
) -> None:
    fake = fake_of(make_fake)
    with talk(folder, fake, "compact", window, model=model) as session:
        done = session.send("go on")
        assert any(why in line and "\n" not in line for line in done.notices)
        assert all(edits(r.body) == [] and "anthropic-beta" not in r.headers for r in fake.requests)
        assert not any(why in line for line in session.send("again").notices)
