"""Compaction, its report and its undoing in a real kernel."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.messages_api import FakeMessagesAPI, Pace, Reply, call, http_error, reply, thinking
from tests.notebook.agent_kernel import AgentKernel, agent, error_line, running, sent, shown, texts
from tests.patience import until

pytestmark = pytest.mark.kernel

NOTE = "<draft>let me see</draft><note>## Goal\nadd up the sales\n## Constraints\n(none)\n</note>"


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentKernel]:
    with running(tmp_path_factory.mktemp("kernel")) as started:
        yield started


def asks_for_note(body: dict[str, Any]) -> bool:
    return "about to be replaced by a note" in texts(body)[-1]


def worker(note: Callable[[], Reply | str] = lambda: NOTE) -> Callable[[dict[str, Any]], Reply | str]:
    """A model that prints much, then answers; asked for a note it gives `note()`."""
    count = 0

    def script(body: dict[str, Any]) -> Reply | str:
        nonlocal count
        if asks_for_note(body):
            return note()
        count += 1
        if count % 2:
            return reply(thinking("hm"), call("python", {"code": f"print('row {count}', list(range(700)))"}))
        return f"Part {count // 2} is done."

    return script


def conversation(
    kernel: AgentKernel, folder: Path, fake: FakeMessagesAPI, turns: int = 3, flush: str = "off"
) -> None:
    kernel.begin(folder, fake, NBAGENT_MEMORY__FLUSH=flush)
    kernel.run("%context set window=20000 threshold=0.95")
    for i in range(turns):
        done = kernel.run(agent(f"part {i}: you must never drop column sales_{i}"), cell_id=f"c{i}")
        assert done.status == "ok", shown(done)


def test_reports_that_were_shown_are_not_in_the_next_request(kernel: AgentKernel, tmp_path: Path) -> None:
    """claude 65."""
    with FakeMessagesAPI(["one", "two"]) as fake:
        kernel.begin(tmp_path, fake)
        kernel.run(agent("first"), cell_id="c1")
        for i in range(5):
            report = shown(kernel.run("%context", cell_id=f"r{i}"))
        assert "tokens" in report
        kernel.run(agent("second"), cell_id="c2")
        before, after = sent(fake)
        assert report.splitlines()[0] not in str(after)
        assert "%context" not in str(after["messages"])
        said = [t for t in texts(after) if not t.startswith("<notebook-state>")]
        assert said == ["first", "second"]
        assert after["system"] == before["system"]
        assert after["messages"][1]["content"][0]["text"] == "one"


def used(kernel: AgentKernel) -> int:
    kernel.run("report = get_ipython().run_line_magic('context', '')")
    return int(kernel.value("report.used_tokens"))


def test_compacting_shows_sizes_note_and_losses_and_the_gauge_follows_at_once(
    kernel: AgentKernel, tmp_path: Path
) -> None:
    # cases/peers.md 17, cases/claude.md 64: one number, from after the compaction, labelled as estimated
    with FakeMessagesAPI(worker()) as fake:
        conversation(kernel, tmp_path, fake)
        before = used(kernel)
        report = shown(kernel.run("done = get_ipython().run_line_magic('context', 'compact')\ndone"))
        after = used(kernel)
        assert f"{before:,} → {after:,} tokens" in report
        assert 0 < after < before
        assert "add up the sales" in report
        assert kernel.value("report.estimated") is True
        assert kernel.value("(done.applied, done.policy, done.before_tokens, done.after_tokens)") == (
            True, "nbagent", before, after,
        )  # fmt: skip
        assert kernel.value("[a.text for a in done.lost if a.kind == 'constraint']") == []


def test_what_a_compaction_by_hand_stored_in_memory_is_said(kernel: AgentKernel, tmp_path: Path) -> None:
    work = worker()

    def script(body: dict[str, Any]) -> Reply | str:
        if "is about to be compacted" in texts(body)[-1]:
            if body["messages"][-1]["content"][-1]["type"] == "tool_result":
                return "NO_REPLY"
            return reply(call("remember", {"text": "The tax rate is 19 %."}))
        return work(body)

    with FakeMessagesAPI(script) as fake:
        conversation(kernel, tmp_path, fake, flush="on")
        report = shown(kernel.run("%context compact"))
        assert "the agent noted what must last in" in report
        assert "Compacting the conversation" not in report
        assert "19 %" in next((tmp_path / ".nbagent/memory").glob("*.md")).read_text()


def test_a_dry_run_changes_nothing_but_the_bill(kernel: AgentKernel, tmp_path: Path) -> None:
    with FakeMessagesAPI(worker()) as fake:
        conversation(kernel, tmp_path, fake)
        journal = next(tmp_path.glob(".nbagent/sessions/*/journal.jsonl"))
        before, size = journal.read_bytes(), used(kernel)
        assert "would be compacted" in shown(kernel.run("%context compact --dry-run"))
        after = journal.read_bytes()
        assert after.startswith(before)
        added = [json.loads(line)["body"] for line in after[len(before) :].splitlines()]
        assert [(b["kind"], b["purpose"]) for b in added] == [("usage", "handoff")]
        assert used(kernel) == size


def test_after_undo_the_request_is_what_it_was_plus_what_came_since(kernel: AgentKernel, tmp_path: Path) -> None:
    with FakeMessagesAPI(worker()) as fake:
        conversation(kernel, tmp_path, fake)
        full = sent(fake)[-1]
        kernel.run("%context compact --focus the sales")
        assert "keep above all: the sales" in texts(sent(fake)[-1])[-1]
        kernel.run(agent("between"), cell_id="between")
        assert texts(sent(fake)[-1])[0].startswith("<context-note>")
        assert "is taken back" in shown(kernel.run("%context undo"))
        kernel.run(agent("after"), cell_id="after")
        now = sent(fake)[-1]
        assert texts(now)[:2] == texts(full)[:2]
        assert [t for t in ("between", "after") if t in texts(now)] == ["between", "after"]


@pytest.mark.parametrize(
    ("note", "why"),
    [
        (lambda: reply(call("python", {"code": "1"})), "calls a tool"),
        (lambda: "<note>  </note>", "empty"),
        (lambda: reply(fault=http_error(500, "down", headers={"x-should-retry": "false"})), "failed"),
        (lambda: "<note>" + "\n".join(["this very same line comes again and again, forty letters"] * 9) + "</note>", "repeats"),
    ],
)
def test_a_note_that_cannot_be_used_changes_nothing(
    kernel: AgentKernel, tmp_path: Path, note: Callable[[], Reply | str], why: str
) -> None:
    # cases/peers.md 19, cases/claude.md 49, cases/agents.md 62
    with FakeMessagesAPI(worker(note)) as fake:
        conversation(kernel, tmp_path, fake)
        size = used(kernel)
        line = error_line(kernel.run("%context compact"))
        assert line.startswith("nothing was compacted: ")
        assert why in line
        assert used(kernel) == size


def test_a_compaction_that_is_stopped_is_a_stopped_cell(kernel: AgentKernel, tmp_path: Path) -> None:
    with FakeMessagesAPI(worker(lambda: reply(NOTE * 20, pace=Pace(5)))) as fake:
        conversation(kernel, tmp_path, fake)
        size, before = used(kernel), len(fake.requests)
        cell = kernel.send("%context compact")
        until(lambda: len(fake.requests) > before)
        kernel.stop()
        stopped = kernel.finish(cell)
        assert error_line(stopped) == "Stopped; nothing was changed."
        assert used(kernel) == size


def test_nothing_is_done_by_itself_after_a_compaction(kernel: AgentKernel, tmp_path: Path) -> None:
    # cases/peers.md 21: no call of its own until the person's next cell; instructions stay in force
    (tmp_path / "AGENTS.md").write_text("Always answer with the currency.")
    with FakeMessagesAPI(worker()) as fake:
        conversation(kernel, tmp_path, fake)
        kernel.run("%context compact")
        count = len(fake.requests)
        kernel.run("1 + 1")
        assert len(fake.requests) == count
        kernel.run(agent("thanks"), cell_id="thanks")
        body = sent(fake)[count]
        assert texts(body)[-1] == "thanks"  # cases/claude.md 43
        assert sum("Always answer with the currency." in str(b) for b in body["system"]) == 1


def test_the_note_can_be_edited_and_pins_stay(kernel: AgentKernel, tmp_path: Path) -> None:
    with FakeMessagesAPI(worker()) as fake:
        conversation(kernel, tmp_path, fake)
        assert "is pinned" in shown(kernel.run("%context pin the tax rate is 19 %"))
        kernel.run("%context compact")
        offered = kernel.run("%context note --edit").reply["payload"]
        assert [p["text"] for p in offered if p["source"] == "set_next_input"] == [
            "%%context note\n## Goal\nadd up the sales\n## Constraints\n(none)"
        ]
        kernel.run("%%context note\n## Goal\nadd up the sales of 2026")
        assert "of 2026" in shown(kernel.run("%context note"))
        kernel.run(agent("go"), cell_id="go")
        note = texts(sent(fake)[-1])[0]
        assert "of 2026" in note
        assert "the tax rate is 19 %" in note


def test_a_number_that_a_policy_lacks_names_those_it_has(kernel: AgentKernel, tmp_path: Path) -> None:
    kernel.begin(tmp_path)
    assert "threshold" in error_line(kernel.run("%context set treshold=0.5"))
    assert "policy=pi" in shown(kernel.run("%context set policy=pi keep_tokens=9000"))
    assert "keep_tokens=9000" in shown(kernel.run("%context policy pi"))


def test_numbers_are_shown_as_they_count_and_belong_to_the_policy_they_were_set_for(
    kernel: AgentKernel, tmp_path: Path
) -> None:
    kernel.begin(tmp_path)
    kernel.run("%context set window=20000")
    small = shown(kernel.run("%context policy pi"))
    assert "threshold=0 reserve_tokens=1638 keep_tokens=2000 · acts by itself above 18,362 tokens" in small
    given = shown(kernel.run("%context set reserve_tokens=4000 keep_tokens=1500"))
    assert "reserve_tokens=4000 keep_tokens=1500 · acts by itself above 16,000 tokens" in given
    assert "threshold=0.6 " in shown(kernel.run("%context set threshold=0.6"))
    assert "threshold=0.6 reserve_tokens=2000" in shown(kernel.run("%context policy openclaw"))
    seed = shown(kernel.run("%context set policy=gemini-cli@seed"))
    assert "threshold=0.7 keep=0.3 budget_tokens=5000 stub_tokens=1000 protect_tokens=5000 mask_least_tokens=3000" in seed
    assert "threshold=0.5 " in shown(kernel.run("%context policy gemini-cli"))
    assert "keep_tokens=1234567 " in shown(kernel.run("%context set policy=manus keep_tokens=1234567"))


def test_an_undo_in_the_middle_of_a_bound_tool_loop_says_that_it_waits(kernel: AgentKernel, tmp_path: Path) -> None:
    # DECISIONS 16: not inside an open tool loop; the report, %context and %context show say so
    with FakeMessagesAPI(worker()) as fake:
        conversation(kernel, tmp_path, fake)
        full = used(kernel)
        kernel.run("%context compact")
        kernel.run(agent("one more", "--max-steps 1"), cell_id="more")
        said = shown(kernel.run("%context undo"))
        assert "not yet: the undo waits until the agent has answered without calling a tool" in said
        assert f"({used(kernel):,} tokens)" in said
        pending = "pending: undo of the last compaction: waits until the agent has answered"
        assert pending in shown(kernel.run("%context"))
        assert pending in shown(kernel.run("%context show"))
        assert "is being taken back already" in error_line(kernel.run("%context undo"))
        done = kernel.run("%agent resume")
        assert done.status == "ok", shown(done)
        assert "pending" not in shown(kernel.run("%context"))
        assert used(kernel) > full


def test_the_parts_of_the_next_request_add_up_to_what_the_gauge_shows(kernel: AgentKernel, tmp_path: Path) -> None:
    with FakeMessagesAPI(worker()) as fake:
        conversation(kernel, tmp_path, fake)
        size = used(kernel)
        kernel.run("parts = get_ipython().run_line_magic('context', 'show')")
        assert abs(kernel.value("sum(s.tokens for s in parts.segments)") - size) <= 0.02 * size  # the state of the notebook is told with the next turn


def test_a_value_that_is_not_possible_changes_nothing(kernel: AgentKernel, tmp_path: Path) -> None:
    kernel.begin(tmp_path)
    before = shown(kernel.run("%context set"))
    for line in (
        "policy ''", "policy @seed", "policy nosuch", "set window=10", "set window=3000.7", "set window=x",
        "set threshold=-1", "set threshold=2", "set keep=-1", "set protect_results=1.5", "set threshold=nan",
        "set window=50000 foo=2", "set threshold=0.5 policy=nosuch", "set policy=", "set =5",
    ):  # fmt: skip
        assert error_line(kernel.run(f"%context {line}")), line
        assert shown(kernel.run("%context set")) == before, line
    assert "threshold=0.5 " in shown(kernel.run("%context set threshold=0.5"))
    assert "acts by itself above 100,000 tokens" in shown(kernel.run("%context set"))
    assert "acts by itself when it pays" in shown(kernel.run("%context set threshold=0"))


@pytest.mark.parametrize(
    ("typed", "pinned"),
    [
        ("issue #42 must stay", "issue #42 must stay"),
        ("C:\\data\\raw.csv", "C:\\data\\raw.csv"),
        ("'quoted text' and more", "'quoted text' and more"),
        ("'only quotes around it'", "only quotes around it"),
        ("multi   spaces", "multi   spaces"),
        ("it's an apostrophe", "it's an apostrophe"),
        ("税率は 19 % です", "税率は 19 % です"),
    ],
)
def test_a_pin_is_the_text_that_was_typed(kernel: AgentKernel, tmp_path: Path, typed: str, pinned: str) -> None:
    with FakeMessagesAPI(worker()) as fake:
        conversation(kernel, tmp_path, fake)
        kernel.run(f"%context pin {typed}")
        kernel.run("%context compact")
        kernel.run(agent("go"), cell_id="go")
        assert pinned in texts(sent(fake)[-1])[0]
        assert error_line(kernel.run("%context unpin something else"))
        kernel.run(f"%context unpin {typed}")
        assert error_line(kernel.run(f"%context unpin {typed}"))


def test_without_a_note_a_cell_for_one_of_your_own_is_offered(kernel: AgentKernel, tmp_path: Path) -> None:
    with FakeMessagesAPI(worker()) as fake:
        conversation(kernel, tmp_path, fake)
        result = kernel.run("%context note --edit")
        assert "There is no hand-off note yet. The next cell is for one of your own" in shown(result)
        (offered,) = result.reply["payload"]
        assert offered["text"].startswith("%%context note")
        requests = len(fake.requests)
        assert "was compacted" in shown(kernel.run(offered["text"] + "Go on with the sales."))
        assert len(fake.requests) == requests
