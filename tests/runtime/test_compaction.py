"""Policies end to end: sessions against the wire fake, which binds thinking to its prefix and counts its window.

Numbers in the docstrings are cases: agents.md, openclaw.md, claude.md and peers.md of the shared cases.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nbagent.context.policies import BUILT_IN
from nbagent.core.effects import Notice
from nbagent.core.entries import AssistantMessage, Compaction, Pruning, Report, UsageReported, UserMessage
from nbagent.core.errors import ModelFailed, UsageProblem
from nbagent.core.view import ViewFold, build_view
from nbagent.runtime.compacting import compact, undo, waiting_lines
from nbagent.runtime.comparing import compare_live, compare_session
from tests.fakes.messages_api import FakeMessagesAPI, call, http_error, reply, thinking
from tests.fakes.replies import stall_before_headers
from tests.fakes.ways import both_ways  # noqa: F401
from tests.patience import FOREVER_S
from tests.runtime.talk import Probe, Talk

NAMES = [n for kind in BUILT_IN.values() for n in ([kind.name, f"{kind.name}@seed"] if kind.seed else [kind.name])]
BINDING, FREE = "claude-sonnet-5-5", "claude-sonnet-4-6"
ASKS = "about to be replaced by a note"
NOTE = "<draft>hm</draft><note>## Goal\nread all files\n## Constraints\nnever lose value_3\n</note>"
OVERFLOW = http_error(400, "prompt is too long: 21000 tokens > 20000 maximum")
Make = Callable[..., FakeMessagesAPI]

pytestmark = pytest.mark.prefix_moves(reason="compactions and prunings are what is tested")


def asks_for_note(body: dict[str, Any]) -> bool:
    return any(ASKS in str(b.get("text", "")) for b in body["messages"][-1]["content"])


class Script:
    """Reads a file a step; every `each`-th reply ends the turn. `note` answers the requests for a note."""

    def __init__(self, *, each: int = 6, note: Any = NOTE, faults: dict[int, Any] | None = None, thinks: bool = True) -> None:
        self.each, self.note, self.faults, self.thinks = each, note, faults or {}, thinks
        self.steps = self.notes = 0

    def __call__(self, body: dict[str, Any]) -> Any:
        if asks_for_note(body):
            self.notes += 1
            return self.note() if callable(self.note) else self.note
        self.steps += 1
        if self.steps in self.faults:
            return reply(fault=self.faults[self.steps])
        if self.steps % self.each == 0:
            return reply(*([thinking("ok")] if self.thinks else []), f"Done with part {self.steps}.")
        return reply(*([thinking(f"t{self.steps}")] if self.thinks else []), call("read", {"path": f"a{self.steps % 30}.txt"}))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for i in range(30):
        (tmp_path / f"a{i}.txt").write_text(f"line {i} of value_{i} at /data/x{i}.csv must never be lost\n" * 60)
    return tmp_path


def talk(folder: Path, fake: FakeMessagesAPI, policy: str, window: int = 20_000, model: str = BINDING, **more: Any) -> Talk:
    return Talk(folder, fake, model=model, options={"policy": policy, "window_tokens": window, "memory.flush": "off"}, **more)


def texts(body: dict[str, Any]) -> str:
    return "\n".join(str(b.get("text", "")) for m in body["messages"] if m["role"] == "user" for b in m["content"])


def turn_requests(fake: FakeMessagesAPI) -> list[dict[str, Any]]:
    return [r.body for r in fake.requests if not asks_for_note(r.body) and "Here is the note" not in texts(r.body)]


def wire(talk: Talk) -> bytes:
    """The messages of the next request."""
    return b"\n".join(m.to_bytes() for m in build_view(talk.path).messages)


# ---------------------------------------------------------------- every policy


@pytest.mark.parametrize("window", [20_000, 30_000])
@pytest.mark.parametrize("policy", NAMES)
def test_a_long_session_is_never_refused(make_fake: Make, folder: Path, policy: str, window: int) -> None:
    """agents 32; claude 46, 61; openclaw 151, 157: the fixture checks that the service refused nothing."""
    script = Script()
    fake = make_fake()
    fake._answer_of = script
    with talk(folder, fake, policy, window) as session:
        for k in range(5):
            prompt = f"Part {k}: please read files; you must never delete anything."
            done = session.send(prompt)
            assert done.output.outcome == "completed" or policy == "off"
            assert policy == "off" or prompt in texts(turn_requests(fake)[-1])
        moves = len(session.bodies(Compaction)) + len(session.bodies(Pruning))
        assert moves or policy == "off"
        assert done.output.outcome == "completed" or window == 20_000
        session.run(compact(session.session, session.ports))
        if session.bodies(Compaction) and policy != "off":
            undo(session.session)
        assert session.send("one more").output.outcome in ("completed", "window_full")


def paid(done: Any) -> list[UsageReported]:
    return [e.body for e in done.entries if isinstance(e.body, UsageReported)]


def test_the_cost_of_a_note_is_the_turns_and_counts_toward_its_ceiling(make_fake: Make, tmp_path: Path) -> None:
    def begun(name: str) -> Talk:
        fake = make_fake()
        fake._answer_of = Script(each=6)
        (tmp_path / name).mkdir()
        for i in range(30):
            (tmp_path / name / f"a{i}.txt").write_text(f"value_{i} at /data/x{i}.csv\n" * 150)
        return talk(tmp_path / name, fake, "codex")

    with begun("one") as session:
        turns = 0
        purposes: list[str] = []
        while "handoff" not in purposes:
            turns += 1
            assert turns < 9
            done = session.send("Read files.")
            purposes = [u.purpose for u in paid(done)]
        assert done.output.cost_usd == pytest.approx(sum(u.cost_usd for u in paid(done)))
        before_note = sum(u.cost_usd for u in paid(done)[: purposes.index("handoff")])
    with begun("two") as session:
        for _ in range(turns - 1):
            session.send("Read files.")
        done = session.send("Read files.", max_cost_usd=before_note + 1e-6)
        assert (done.output.outcome, "--max-cost" in done.output.message) == ("limit", True)
        assert [u.purpose for u in paid(done)][-1] == "handoff"


# ---------------------------------------------------------------- the provider says that it does not fit


@pytest.mark.parametrize("policy", ["nbagent", "claude-code", "codex", "pi", "manus", "createrole"])
def test_an_overflow_is_compacted_and_sent_again_with_the_message_once(make_fake: Make, folder: Path, policy: str) -> None:
    """openclaw 97, 146; agents 50."""
    script = Script(each=4, faults={6: OVERFLOW})
    fake = make_fake()
    fake._answer_of = script
    with talk(folder, fake, policy, 40_000) as session:
        session.send("the first part")
        done = session.send("the second part")
        assert done.output.outcome == "completed"
        assert len(session.bodies(UserMessage)) == 2
        assert texts(turn_requests(fake)[-1]).count("the second part") == 1
        assert session.bodies(Compaction) or session.bodies(Pruning)


def test_an_overflow_that_stays_ends_in_one_clear_line(make_fake: Make, folder: Path) -> None:
    """openclaw 145, 97: tried again at most twice, and only while it gets smaller."""
    script = Script(each=4, faults=dict.fromkeys(range(5, 50), OVERFLOW))
    fake = make_fake()
    fake._answer_of = script
    with talk(folder, fake, "nbagent", 40_000) as session:
        session.send("the first part")
        done = session.send("the second part")
        assert done.output.outcome == "error"
        assert "larger than the model's window" in done.output.message
        assert "\n" not in done.output.message
        assert script.steps - 4 <= 3
        assert [b.blocks[0]["text"] for b in session.bodies(UserMessage)] == ["the first part", "the second part"]


def test_off_leaves_an_overflow_to_the_person(make_fake: Make, folder: Path) -> None:
    fake = make_fake()
    fake._answer_of = Script(each=4, faults={6: OVERFLOW})
    with talk(folder, fake, "off", 40_000) as session:
        session.send("the first part")
        assert session.send("the second part").output.outcome == "error"
        assert not session.bodies(Pruning)


# ---------------------------------------------------------------- failures


def failing() -> Any:
    return reply("<note></note>")


def test_three_failures_are_told_once_and_a_compaction_by_hand_still_runs(make_fake: Make, folder: Path) -> None:
    """claude 50; peers 19; openclaw 148."""
    script = Script(each=4, note=failing)
    fake = make_fake()
    fake._answer_of = script
    with talk(folder, fake, "pi") as session:
        for k in range(9):
            session.send(f"Part {k}")
        reports = session.bodies(Report)
        assert len(reports) == 3
        lines = [e.text for e in session.seen(Notice) if "not tried again for a while" in e.text]
        assert len(lines) == 1
        assert not session.bodies(Compaction)
        assert sum("Compaction changed nothing: the note is empty" in e.text for e in session.seen(Notice)) == 3
        script.note = NOTE
        assert session.run(compact(session.session, session.ports)).applied


@pytest.mark.prefix_moves(reason="a compaction is what is tested")
def test_what_was_measured_before_a_compaction_triggers_no_other(make_fake: Make, folder: Path) -> None:
    """agents 55: the only usage there is tells of a conversation that is gone."""
    fake = make_fake()
    fake._answer_of = Script(each=6)
    with talk(folder, fake, "pi", window=30_000) as session:
        session.send("Part 0")
        measured = session.session.occupancy().used_tokens
        assert session.run(compact(session.session, session.ports)).applied
        left = session.session.occupancy().used_tokens
        assert left < 0.7 * measured
        session.session.reconfigure(replace(session.session.settings, threshold=0.9 * measured / 30_000))
        fake._answer_of = Script(each=1)
        session.send("Part 1")
        assert len(session.bodies(Compaction)) == 1


def test_a_compaction_without_the_models_note_says_so(make_fake: Make, folder: Path) -> None:
    fake = make_fake()
    fake._answer_of = Script(each=4, note=lambda: "<note>  </note>")
    with talk(folder, fake, "nbagent", window=12_000) as session:
        for k in range(8):
            session.send(f"Part {k}")
        assert session.bodies(Compaction)
        lines = [e.text for e in session.seen(Notice) if "was compacted" in e.text]
        assert all("without the model's note (the note is empty" in line for line in lines)


def test_a_connection_that_breaks_costs_one_attempt(make_fake: Make, folder: Path) -> None:
    """agents 31, 62: the client tries again, the engine does not."""
    script = Script(each=2, note=lambda: reply(fault=http_error(403, "no")))
    fake = make_fake()
    fake._answer_of = script
    with talk(folder, fake, "pi") as session:
        session.send("Part 0")
        before = wire(session)
        result = session.run(compact(session.session, session.ports))
        assert not result.applied
        assert "HTTP 403" in result.reason
        assert (script.notes, wire(session)) == (1, before)


def test_results_that_a_request_for_a_note_left_out_are_named(make_fake: Make, folder: Path) -> None:
    """peers 82, agents 70: nbagent leaves results out, and says how many; every message is shown."""
    faults = iter([OVERFLOW, OVERFLOW])
    script = Script(each=6)
    fake = make_fake()
    fake._answer_of = script
    with talk(folder, fake, "nbagent", 60_000, FREE) as session:
        for k in range(2):
            session.send(f"Part {k}")
        script.note = lambda: reply(fault=fault) if (fault := next(faults, None)) else NOTE
        assert session.run(compact(session.session, session.ports)).applied
        asked = [t for r in fake.requests if "<transcript>" in (t := texts(r.body))][-1]
        count = asked.count("(result: [left out])")
        assert count == 2
        assert "earlier messages left out" not in asked
        assert f"did not see {count} results of what was replaced" in wire(session).decode()
        assert sum(f"{count} results did not fit" in e.text for e in session.seen(Notice)) == 1


@pytest.mark.parametrize("policy", ["pi", "codex", "createrole"])
def test_what_a_shortened_request_for_a_note_left_out_is_named(make_fake: Make, folder: Path, policy: str) -> None:
    """peers 82: every message is verbatim, summarised, or said to be gone; the earlier note is shown again."""
    faults = iter([OVERFLOW, OVERFLOW])
    script = Script(each=3)
    fake = make_fake()
    fake._answer_of = script
    with talk(folder, fake, policy, 60_000, FREE) as session:
        for k in range(3):
            session.send(f"Part {k}")
        first = session.run(compact(session.session, session.ports))
        assert first.applied
        assert "did not see" not in first.note
        for k in range(3, 6):
            session.send(f"Part {k}")
        script.note = lambda: reply(fault=fault) if (fault := next(faults, None)) else NOTE
        result = session.run(compact(session.session, session.ports))
        asked = [t for r in fake.requests if "earlier messages left out" in (t := texts(r.body))][-1]
        left_out = re.search(r"\[(\d+) earlier messages left out\]", asked)
        assert result.applied
        assert asked.index("<context-note>") < asked.index("earlier messages left out")
        assert left_out is not None
        assert f"did not see the oldest {left_out[1]} messages" in wire(session).decode()
        assert sum(f"The oldest {left_out[1]} messages did not fit" in e.text for e in session.seen(Notice)) == 1


@pytest.mark.parametrize("kind", ["refusal", "tool", "cut off", "larger"])
def test_a_bad_note_changes_nothing(make_fake: Make, folder: Path, kind: str) -> None:
    """agents 13, 38, 49, 62; peers 19."""
    bad = {
        "refusal": reply(stop_reason="refusal"),
        "tool": reply("<note>## Goal\nx</note>", call("read", {"path": "a1.txt"})),
        "cut off": reply("<note>## Goal\nx", stop_reason="max_tokens"),
        "larger": reply("<note>" + "".join(f"## Part {i}\nvalue_{i} is {i * i}\n" for i in range(3_000)) + "</note>"),
    }[kind]
    script = Script(each=4, note=lambda: bad)
    fake = make_fake()
    fake._answer_of = script
    with talk(folder, fake, "codex") as session:
        session.send("Part 0")
        before, requests = wire(session), len(fake.requests)
        result = session.run(compact(session.session, session.ports))
        assert not result.applied
        assert result.reason
        assert wire(session) == before
        assert len(fake.requests) - requests <= 3
        assert not session.bodies(Compaction)


@pytest.mark.refused(reason="the stop cuts the request off while it is being sent")
def test_a_stop_during_the_note_changes_nothing(make_fake: Make, folder: Path) -> None:
    """peers 19: the turn ends stopped."""
    fake = make_fake()
    fake._answer_of = Script(each=3)
    with talk(folder, fake, "pi") as session:
        while not session.seen(Notice):
            before = wire(session)
            done = session.send_and_stop(lambda e: isinstance(e, Notice) and e.text.startswith("Compacting"), "go on")
        assert done.output.outcome == "stopped"
        assert not session.bodies(Compaction)
        assert not session.bodies(Report)
        assert wire(session).startswith(before[:-2])
        assert session.resume().output.outcome == "completed"


def test_a_note_that_never_comes_ends_with_the_history_as_it_was(make_fake: Make, folder: Path) -> None:
    """openclaw 152."""
    fake = make_fake()
    fake._answer_of = Script(each=4, note=lambda: reply("late", fault=stall_before_headers(FOREVER_S)))
    with talk(folder, fake, "codex", max_tries=1) as session:
        session.leap_over_stalls(fake)
        session.send("Part 0")
        before = wire(session)
        assert not session.run(compact(session.session, session.ports)).applied
        assert wire(session) == before


# ---------------------------------------------------------------- in the middle of a turn


@pytest.mark.parametrize("model", [BINDING, FREE])
@pytest.mark.parametrize("policy", ["nbagent", "codex", "claude-code", "pi", "createrole"])
def test_a_compaction_inside_an_open_turn_keeps_the_request(make_fake: Make, folder: Path, policy: str, model: str) -> None:
    """agents 29 and CX-C3: whether thinking is bound to its prefix or not."""
    prompt = "Read thirty files, one by one.\nNever delete row 7, 也不要删除任何文件."
    fake = make_fake()
    fake._answer_of = Script(each=30)
    with talk(folder, fake, policy, 20_000, model) as session:
        done = session.send(prompt)
        assert done.output.outcome == "completed"
        assert session.bodies(Compaction)
        assert all(prompt in texts(body) for body in turn_requests(fake))


def test_a_compaction_at_the_start_of_a_turn_keeps_its_message_out_of_the_note(make_fake: Make, folder: Path) -> None:
    """agents 25."""
    fake = make_fake()
    script = Script(each=4)
    fake._answer_of = script
    with talk(folder, fake, "codex", 12_000) as session:
        k = 0
        while not session.bodies(Compaction):
            k += 1
            session.send(f"This is part {k}, and nothing else.")
        asked = [r.body for r in fake.requests if asks_for_note(r.body)][-1]
        starts = [e for e in session.path if e.kind == "turn_start"]
        at = next(i for i, e in enumerate(session.path) if isinstance(e.body, Compaction))
        if session.path[at - 1].body.__class__.__name__ != "AssistantMessage" and starts:
            assert texts(turn_requests(fake)[-1]).count(f"This is part {k}, and nothing else.") == 1
        assert asked["messages"][-1]["role"] == "user"


# ---------------------------------------------------------------- sizes that nothing can help


def test_a_prefix_larger_than_the_window_is_told_in_one_line(make_fake: Make, folder: Path) -> None:
    (folder / "AGENTS.md").write_text("".join(f"Rule {i}: keep value_{i}.\n" for i in range(900)))
    fake = make_fake()
    with talk(folder, fake, "nbagent", 8_000) as session:
        done = session.send("hi")
        assert done.output.outcome == "window_full"
        assert "shorten AGENTS.md" in done.output.message
        assert "\n" not in done.output.message
        assert not fake.requests


def test_a_limit_of_turns_leaves_out_the_older_ones_whole_and_an_undo_brings_them_back(make_fake: Make, folder: Path) -> None:
    """openclaw 77, 154: the fourth user message with its replies comes first, every result has its call."""
    fake = make_fake()
    fake._answer_of = Script(each=3)
    with talk(folder, fake, "openclaw", 200_000) as session:
        session.session.runner.numbers["limit_turns"] = 2
        for number in range(1, 6):
            assert session.send(f"Ask {number}").output.outcome == "completed"
        sent = turn_requests(fake)[-1]["messages"]
        assert len(fake.requests) == 15  # no call for a note
        asked = [b["text"] for m in sent if m["role"] == "user" for b in m["content"] if "text" in b]
        assert [t for t in asked if t.startswith("Ask")] == ["Ask 4", "Ask 5"]
        assert asked[0].count("the oldest part was left out without a note") == 1
        called = {b["id"] for m in sent for b in m["content"] if b["type"] == "tool_use"}
        assert called == {b["tool_use_id"] for m in sent for b in m["content"] if b["type"] == "tool_result"}
        assert len(called) == 4
        moves = [e.body for e in session.session.tree.path() if isinstance(e.body, Compaction)]
        assert [m.reason for m in moves] == ["the last 2 turns are sent"] * 3
        undo(session.session)
        session.send("Ask 6")
        asked = [b["text"] for m in turn_requests(fake)[-1]["messages"] if m["role"] == "user" for b in m["content"] if "text" in b]
        assert [t for t in asked if t.startswith("Ask")] == ["Ask 3", "Ask 4", "Ask 5", "Ask 6"]  # as the person wanted


def test_a_note_stands_on_when_a_limit_of_turns_leaves_out_what_it_stood_before(make_fake: Make, folder: Path) -> None:
    fake = make_fake()
    fake._answer_of = Script(each=3)
    with talk(folder, fake, "openclaw", 200_000) as session:
        for number in range(1, 4):
            session.send(f"Ask {number}")
        assert session.run(compact(session.session, session.ports)).applied
        session.session.runner.numbers["limit_turns"] = 1
        session.send("Ask 4")
        session.send("Ask 5")
        shown = texts(turn_requests(fake)[-1])
        assert shown.count("never lose value_3") == 1
        assert shown.count("the oldest part was left out without a note") == 1
        assert "Ask 4" not in shown


@pytest.mark.parametrize("policy", [n for n in NAMES if n != "off"])
def test_one_result_larger_than_the_window_goes_in_part(make_fake: Make, folder: Path, policy: str) -> None:
    """openclaw 85, 98: what was cut off can be recalled."""

    async def huge(input: Any) -> str:
        return "".join(f"row {i}: {i * i}\n" for i in range(60_000))

    fake = make_fake(reply(thinking("so"), call("huge", {})), "Done.")
    with talk(folder, fake, policy, 20_000, tools={"huge": Probe("huge", huge)}) as session:
        assert session.send("look").output.outcome == "completed"


# ---------------------------------------------------------------- afterwards


def test_a_compaction_by_hand_is_followed_by_nothing_and_the_gauge_is_right_at_once(make_fake: Make, folder: Path) -> None:
    """peers 17, 21; claude 64; DECISIONS 28."""
    fake = make_fake()
    fake._answer_of = Script(each=4)
    with talk(folder, fake, "pi") as session:
        session.send("Part 0")
        before = session.session.occupancy().used_tokens
        result = session.run(compact(session.session, session.ports))
        requests = len(fake.requests)
        after = session.session.occupancy()
        assert result.applied
        assert 0 < after.used_tokens < before
        assert after.estimated
        assert abs(after.used_tokens - result.after_tokens) <= 5
        assert len(fake.requests) == requests
        assert session.path[-1].kind == "compaction"


@pytest.mark.parametrize("policy", NAMES)
def test_a_compaction_by_hand_gains_something_far_below_any_limit(make_fake: Make, folder: Path, policy: str) -> None:
    """What a policy would keep whole in its window of 200,000 may be the whole of a conversation of 10,000."""
    fake = make_fake()
    fake._answer_of = Script(each=3)
    with talk(folder, fake, policy, window=200_000) as session:
        for i in range(4):
            session.send(f"question {i}")
        before = wire(session)
        result = session.run(compact(session.session, session.ports))
        assert result.applied, result.reason
        assert result.after_tokens < 0.8 * result.before_tokens
        undo(session.session)
        assert wire(session) == before


@pytest.mark.parametrize("note", [NOTE, "<note>  </note>"])
def test_a_dry_run_changes_nothing_but_the_bill(make_fake: Make, folder: Path, note: str) -> None:
    """The note was paid for, whether it can be used or not: session and day count it."""
    fake = make_fake()
    fake._answer_of = Script(each=4, note=note)
    with talk(folder, fake, "pi", 30_000) as session:
        session.send("Part 0")
        before, sent, held = wire(session), len(fake.requests), session.session.occupancy()
        size, cost = len(session.path), sum(e.body.cost_usd for e in session.path if isinstance(e.body, UsageReported))
        result = session.run(compact(session.session, session.ports, dry_run=True))
        assert not result.applied
        added = [e.body for e in session.path[size:]]
        assert len(fake.requests) > sent
        assert [b.purpose for b in added if isinstance(b, UsageReported)] == ["handoff"] * (len(fake.requests) - sent)
        assert all(isinstance(b, UsageReported) for b in added)
        now = session.session.occupancy()
        assert (wire(session), now.used_tokens) == (before, held.used_tokens)
        assert now.cost_usd > cost > 0
        ledger = session.session.runner.day
        assert ledger is not None
        lines = ledger.path.read_text().splitlines()
        assert sum(json.loads(line)["usd"] for line in lines) == pytest.approx(now.cost_usd)


@pytest.mark.parametrize("policy", ["codex", "createrole"])
def test_a_note_alone_is_not_compacted_again(make_fake: Make, folder: Path, policy: str) -> None:
    """Nothing came since: no model is asked."""
    fake = make_fake()
    script = Script(each=3)
    fake._answer_of = script
    with talk(folder, fake, policy, window=30_000) as session:
        session.send("Part 0")
        assert session.run(compact(session.session, session.ports)).applied
        before, notes = wire(session), script.notes
        again = session.run(compact(session.session, session.ports))
        assert (again.applied, again.reason) == (False, "there is nothing to compact but the note of the last compaction")
        assert (wire(session), script.notes) == (before, notes)
        session.send("Part 1")
        assert session.run(compact(session.session, session.ports)).applied


def test_an_undo_brings_the_conversation_back_and_keeps_later_turns(make_fake: Make, folder: Path) -> None:
    """NB-2; agents 37; DECISIONS 16: automatic compaction then waits."""
    fake = make_fake()
    fake._answer_of = Script(each=6)
    with talk(folder, fake, "pi", 30_000) as session:
        session.send("Part 0")
        before = wire(session)
        assert session.run(compact(session.session, session.ports)).applied
        session.send("Part 1")
        undo(session.session)
        assert wire(session).startswith(before)
        assert "Part 1" in wire(session).decode()
        assert session.send("Part 2").output.outcome == "completed"


def test_a_fork_behind_a_compaction_brings_the_turns_before_it_back_in_full(make_fake: Make, folder: Path) -> None:
    """agents 37, 52: the compaction and all after it are off the path, also when opened again; going back restores them."""
    fake = make_fake()
    fake._answer_of = Script(each=4)
    with talk(folder, fake, "pi", 30_000) as session:
        for part in ("Part 1", "Part 2"):
            session.send(part)
        before = wire(session)
        session.send("Part 3")
        session.run(compact(session.session, session.ports))
        later = session.send("Part 4").output.turn
        after = wire(session)
        session.session.fork("3")
        assert wire(session) == before
        assert not session.bodies(Compaction)
    with talk(folder, fake, "pi", 30_000) as again:
        assert wire(again) == before
        assert again.send("Part 3, otherwise").output.outcome == "completed"
        assert all(w not in texts(turn_requests(fake)[-1]) for w in ("Part 4", "Part 3\n"))
        again.session.revert(later)
        assert wire(again) == after


def test_a_fork_behind_a_compaction_keeps_what_it_kept(make_fake: Make, folder: Path) -> None:
    """agents 47, 52: on both branches the note, the kept part and what follows stand in this order."""
    fake = make_fake()
    fake._answer_of = Script(each=4)
    with talk(folder, fake, "pi", 60_000) as session:
        for part in range(6):
            session.send(f"Part {part}")
        assert session.run(compact(session.session, session.ports)).applied
        (made,) = session.bodies(Compaction)
        assert made.first_kept is not None
        held = wire(session)
        session.send("one way")
        session.session.fork("-1")
        assert wire(session) == held
        session.send("another way")
        sent = texts(turn_requests(fake)[-1])
        assert sent.index("<context-note>") < sent.index("another way")
        assert "one way" not in sent
        assert wire(session).startswith(held)
        assert session.bodies(Compaction) == [made]


def test_a_session_opened_again_sends_the_same_request(make_fake: Make, folder: Path) -> None:
    """agents 74: two compactions, one pruning and one undo."""
    fake = make_fake()
    fake._answer_of = Script(each=4)
    with talk(folder, fake, "manus") as session:
        while len(session.bodies(Compaction)) < 2 or not session.bodies(Pruning):
            session.send("go on")
            if len(session.bodies(Compaction)) < 2:
                session.run(compact(session.session, session.ports))
        undo(session.session)
        before, used = wire(session), session.session.occupancy().used_tokens
        view = ViewFold(session.path).view()
    with talk(folder, fake, "manus") as again:
        assert wire(again) == before
        assert ViewFold(again.path).view().compaction == view.compaction
        assert abs(again.session.occupancy().used_tokens - used) <= 0.05 * used
        assert again.send("and now").output.outcome == "completed"


@pytest.mark.parametrize("when", ["by hand", "by itself"])
def test_instructions_changed_on_disk_are_in_the_next_request_once(make_fake: Make, folder: Path, when: str) -> None:
    """claude 55; agents 73; peers 21."""
    (folder / "AGENTS.md").write_text("Rule one: use tabs.\n")
    fake = make_fake()
    fake._answer_of = Script(each=4)
    with talk(folder, fake, "codex") as session:
        session.send("Part 0")
        (folder / "AGENTS.md").write_text("Rule two: use spaces, always.\n")
        if when == "by hand":
            assert session.run(compact(session.session, session.ports)).applied
            session.send("Part 1")
        else:
            while not session.bodies(Compaction):
                session.send("go on")
            session.send("go on")
        body = turn_requests(fake)[-1]
        sent = str(body["system"]) + texts(body)
        assert sent.count("Rule two: use spaces, always.") == 1
        if when == "by itself":
            return
        undo(session.session)
        session.send("and now?")
        body = turn_requests(fake)[-1]
        assert "Rule two" in str(body["system"]) + texts(body)


def test_the_plan_mode_is_told_again_after_a_compaction(make_fake: Make, folder: Path) -> None:
    """claude 56: it is in force, and the model knows."""
    fake = make_fake()
    fake._answer_of = Script(each=4)
    with talk(folder, fake, "codex") as session:
        session.send("Part 0", mode="plan")
        session.run(compact(session.session, session.ports))
        session.send("Part 1", mode="plan")
        body = turn_requests(fake)[-1]
        assert "these tools are not available" in texts(body)
        assert "Today is" in texts(body)


def test_a_small_conversation_is_not_compacted_by_itself(make_fake: Make, folder: Path) -> None:
    """openclaw 149."""
    fake = make_fake("Hello.")
    with Talk(folder, fake, options={"policy": "pi", "window_tokens": 20_000, "threshold": 0.01}) as session:
        session.send("hi")
        assert not session.bodies(Compaction)
        assert len(session.bodies(AssistantMessage)) == 1


def test_after_a_change_of_model_the_note_is_asked_for_in_words_it_can_read(make_fake: Make, folder: Path) -> None:
    """agents 26: thinking of another model is not sent to it."""
    fake = make_fake()
    fake._answer_of = Script(each=3)
    with talk(folder, fake, "codex") as session:
        session.send("Part 0")
        other = "claude-opus-5-5"
        session.session._models[other] = session.session._models[BINDING].__class__(
            name=other, model=session.model, facts=session.session._models[BINDING].facts, source="live"
        )
        session.session.model_name = other
        assert session.run(compact(session.session, session.ports)).applied
        assert "<transcript>" in texts(fake.requests[-1].body)


def smaller(session: Talk, window: int) -> None:
    """Go on with a model that holds `window` tokens."""
    held = session.session._models[BINDING]
    facts = replace(held.facts, model="claude-opus-5-5", window_tokens=window)
    session.session._models[facts.model] = replace(held, name=facts.model, facts=facts, ask_facts=None)
    session.session.model_name = facts.model


def test_after_a_change_to_a_smaller_window_the_model_before_writes_the_note(make_fake: Make, folder: Path) -> None:
    """agents 26: it goes on in its own conversation, with its thinking; the new request is kept out of it."""
    fake = make_fake()
    fake._answer_of = Script(each=25)
    with talk(folder, fake, "codex", 60_000) as session:
        session.send("Part 0")
        assert not session.bodies(Compaction)
        before = len(fake.requests)
        smaller(session, 20_000)
        assert session.send("Part 1").output.outcome == "completed"
        asked, first = fake.requests[before].body, fake.requests[before + 1].body
        assert asks_for_note(asked)
        assert (asked["model"], first["model"]) == (BINDING, "claude-opus-5-5")
        assert "<transcript>" not in texts(asked)
        assert any(b["type"] == "thinking" for m in asked["messages"] for b in m["content"])
        assert ("Part 1" in texts(asked), "Part 1" in texts(first)) == (False, True)
        paid = next(b for b in session.bodies(UsageReported) if b.purpose == "handoff")
        assert paid.model == BINDING
        assert paid.cost_usd > 0
        assert any("whose window still holds" in e.text for e in session.seen(Notice))


@pytest.mark.parametrize("window", [60_000, 200_000])
def test_a_change_to_a_window_that_is_no_smaller_compacts_nothing(make_fake: Make, folder: Path, window: int) -> None:
    """agents 26: switching up."""
    fake = make_fake()
    fake._answer_of = Script(each=25)
    with talk(folder, fake, "codex", 60_000) as session:
        session.send("Part 0")
        smaller(session, window)
        assert session.send("Part 1").output.outcome == "completed"
        assert not any(asks_for_note(r.body) for r in fake.requests)


def test_a_model_before_that_is_gone_leaves_the_note_to_the_new_one(make_fake: Make, folder: Path) -> None:
    fake = make_fake()
    script = Script(each=25)

    def answer(body: dict[str, Any]) -> Any:
        gone = body["model"] == BINDING and asks_for_note(body)
        return reply(fault=http_error(404, "model: retired")) if gone else script(body)

    fake._answer_of = answer
    with talk(folder, fake, "codex", 60_000) as session:
        session.send("Part 0")
        smaller(session, 20_000)
        assert session.send("Part 1").output.outcome == "completed"
        asked = [r.body for r in fake.requests if asks_for_note(r.body)]
        assert [b["model"] for b in asked][:2] == [BINDING, "claude-opus-5-5"]
        assert "<transcript>" in texts(asked[1])
        assert session.bodies(Compaction)
        assert any("claude-opus-5-5 is asked" in e.text for e in session.seen(Notice))


def test_an_undo_inside_an_open_bound_tool_loop_waits_and_says_so(make_fake: Make, folder: Path) -> None:
    """DECISIONS 16: never inside an open tool loop; what waits is told, and taken back only once."""
    fake = make_fake()
    fake._answer_of = Script(each=6)
    with talk(folder, fake, "pi", 60_000) as session:
        session.send("Part 0")
        before = wire(session)
        assert session.run(compact(session.session, session.ports)).applied
        assert session.send("Part 1", max_steps=2).output.outcome == "limit"
        within = wire(session)
        done = undo(session.session)
        assert done.waits
        assert wire(session) == within
        assert waiting_lines(session.session) == (
            "undo of the last compaction: waits until the agent has answered without calling a tool, since the "
            "thinking of the open tool loop is bound to what stands before it; `%agent resume` goes on",
        )
        with pytest.raises(UsageProblem, match="is being taken back already; that waits until"):
            undo(session.session)
        assert session.resume().output.outcome == "completed"
        assert waiting_lines(session.session) == ()
        assert wire(session).startswith(before)


def test_an_undo_between_turns_waits_for_nothing(make_fake: Make, folder: Path) -> None:
    fake = make_fake()
    fake._answer_of = Script(each=6)
    with talk(folder, fake, "pi", 60_000) as session:
        session.send("Part 0")
        assert session.run(compact(session.session, session.ports)).applied
        session.send("Part 1")
        assert not undo(session.session).waits
        assert waiting_lines(session.session) == ()


def test_an_undo_that_would_wait_is_refused_when_what_it_gives_back_does_not_fit(make_fake: Make, folder: Path) -> None:
    fake = make_fake()
    fake._answer_of = Script(each=6)
    with talk(folder, fake, "pi", 60_000) as session:
        session.send("Part 0")
        assert session.run(compact(session.session, session.ports)).applied
        session.send("Part 1", max_steps=2)
    with talk(folder, fake, "pi", 6_000) as small, pytest.raises(UsageProblem, match="the window holds 6,000"):
        undo(small.session)


# ---------------------------------------------------------------- compared with the model's own notes


def test_a_live_comparison_asks_the_model_for_the_notes_and_writes_down_what_it_cost(make_fake: Make, folder: Path) -> None:
    fake = make_fake()
    fake._answer_of = Script(each=6)
    with talk(folder, fake, "off", 30_000) as session:
        for k in range(3):
            session.send(f"Part {k}: you must never lose value_{k}")
        stood_in = compare_session(session.session, ["nbagent", "off"])
        assert [r.notes for r in stood_in.rows][1] == 0
        assert stood_in.notes_usd is not None
        assert stood_in.notes_usd > 0
        before, size = len(fake.requests), len(session.path)
        found = session.run(compare_live(session.session, session.ports, ["nbagent", "off"]))
        asked = fake.requests[before:]
        assert found.live
        assert len(asked) == sum(r.notes for r in found.rows) > 0
        assert all(asks_for_note(r.body) or ASKS in texts(r.body) for r in asked)
        paid = [e.body for e in session.path[size:]]
        assert [b.purpose for b in paid if isinstance(b, UsageReported)] == ["compare"] * len(asked)
        assert all(isinstance(b, UsageReported) for b in paid)
        assert session.send("and on").output.outcome == "completed"


def test_a_live_comparison_that_fails_says_so_in_one_line(make_fake: Make, folder: Path) -> None:
    fake = make_fake()
    fake._answer_of = Script(each=6, note=lambda: reply(fault=http_error(500, "down", headers={"x-should-retry": "false"})))
    with talk(folder, fake, "off", 30_000) as session:
        for k in range(3):
            session.send(f"Part {k}")
        with pytest.raises(ModelFailed, match="the comparison ended, a call for a note failed"):
            session.run(compare_live(session.session, session.ports, ["nbagent"]))
