"""The panel's comm in a real kernel: opened, answered beside a running cell and after it, closed, dead."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nbagent.notebook.panel.deltas import MAX_DELTA_BYTES, size_bytes
from tests.fakes.messages_api import FakeMessagesAPI, Pace, Reply, call, reply
from tests.fakes.replies import stall_before_headers
from tests.notebook.agent_kernel import AgentKernel, agent, error_line, running, sent, shown, texts
from tests.notebook.kernel_harness import Result
from tests.notebook.panel_client import PanelClient
from tests.patience import FOREVER_S, HANG_S, until

pytestmark = pytest.mark.kernel


def endless() -> Reply:
    """An answer that begins, and comes to no end before it is stopped."""
    return reply("word " * 120, pace=Pace(10))


def waits_for(name: str) -> str:
    """Code of the agent that goes on when there is a file `name`."""
    return f"import os, time\nwhile not os.path.exists({name!r}): time.sleep(.01)"


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentKernel]:
    with running(tmp_path_factory.mktemp("kernel")) as started:
        yield started


@contextmanager
def panel_of(kernel: AgentKernel, **options: Any) -> Iterator[PanelClient]:
    """A front end with a panel."""
    panel = PanelClient(kernel, **options)
    try:
        yield panel
    finally:
        panel.close()


class Running:
    """A cell that runs while the test goes on."""

    def __init__(self, kernel: AgentKernel, code: str, **options: Any) -> None:
        self._found: list[Result] = []
        message_id = kernel.send(code, cell_id=options.pop("cell_id", None))
        self._thread = threading.Thread(target=lambda: self._found.append(kernel.finish(message_id, **options)))
        self._thread.start()

    @property
    def runs(self) -> bool:
        return self._thread.is_alive()

    def result(self) -> Result:
        self._thread.join(HANG_S + 30)
        assert self._found, "the cell did not end, see the thread's error"
        return self._found[0]


class Later(list[str]):
    """Answers of a person who waits until `may_come` is set."""

    def __init__(self, answers: list[str]) -> None:
        super().__init__(answers)
        self.may_come = threading.Event()

    def pop(self, index: Any = -1) -> str:
        assert self.may_come.wait(HANG_S)
        return super().pop(index)


def test_the_kernel_opens_the_comm_and_answers_hello_with_the_state(kernel: AgentKernel, tmp_path: Path) -> None:
    with panel_of(kernel) as panel, FakeMessagesAPI(["hello"]) as fake:
        kernel.begin(tmp_path, fake)
        answer = panel.hello()
        assert answer["kind"] == "snapshot"
        assert answer["parts"]["session"]["package"]
        panel.until(lambda p: p["gauge"]["model"])
        assert fake.requests == []


def test_a_front_end_that_cannot_answer_gets_no_comm(kernel: AgentKernel, tmp_path: Path) -> None:
    with panel_of(kernel) as panel:
        kernel.begin(tmp_path, load=False)
        loaded = kernel.run("%load_ext nbagent", allow_stdin=False)
        assert loaded.of("comm_open") == []
        panel.read_all()
        assert panel.messages == []
        later = kernel.run("1")  # a person's front end comes to this kernel
        assert later.status == "ok"
        assert panel.hello()["kind"] == "snapshot"


def test_loading_prints_what_it_printed_without_a_panel(kernel: AgentKernel, tmp_path: Path) -> None:
    loaded = kernel.begin(tmp_path)
    assert sorted(m["msg_type"] for m in loaded.messages) == ["comm_open", "stream"]


def test_an_older_panel_gets_one_line_and_cells_go_on(kernel: AgentKernel, tmp_path: Path) -> None:
    with panel_of(kernel) as panel, FakeMessagesAPI(["hello"]) as fake:
        kernel.begin(tmp_path, fake)
        answer = panel.hello(version=0, least=0)
        assert answer["kind"] == "mismatch"
        assert "update the panel where JupyterLab runs" in answer["line"]
        assert "hello" in shown(kernel.run(agent("hi")))
        assert panel.of("delta") == []


def test_the_gauge_moves_while_text_streams_and_within_the_limits(kernel: AgentKernel, tmp_path: Path) -> None:
    pace = Pace(100)
    with panel_of(kernel, subshell=True) as panel, FakeMessagesAPI([reply("word " * 2_000, pace=pace)]) as fake:
        kernel.begin(tmp_path, fake, NBAGENT_WINDOW_TOKENS="20000")
        panel.hello()
        cell = Running(kernel, agent("hi"))
        panel.until(lambda p: p["turn"]["status"] == "running")
        panel.until(lambda p: p["turn"]["delivers"])
        figures = [0]
        for _ in range(4):
            figures.append(panel.until(lambda p: p["gauge"]["used_tokens"] > figures[-1])["gauge"]["used_tokens"])
            pace.more(75)
        assert cell.runs
        pace.finish()
        assert cell.result().status == "ok"
        panel.until(lambda p: p["turn"]["status"] == "idle" and p["tree"]["total"] == 1)
        for message in panel.of("delta"):
            assert size_bytes(message) <= MAX_DELTA_BYTES
        assert [m["seq"] for m in panel.of("delta")] == list(range(1, len(panel.of("delta")) + 1))
        gauge = panel.parts["gauge"]
        assert sum(gauge["categories"].values()) == gauge["used_tokens"]
        assert panel.parts["turn"]["outcome"] == "completed"


def test_stop_steer_and_pages_work_beside_a_running_cell_by_subshell(kernel: AgentKernel, tmp_path: Path) -> None:
    with panel_of(kernel, subshell=True) as panel, FakeMessagesAPI([endless()]) as fake:
        kernel.begin(tmp_path, fake)
        panel.hello()
        cell = Running(kernel, agent("one"))
        panel.until(lambda p: p["turn"]["delivers"])
        page = panel.ask("page", of="tree")
        assert [r["outcome"] for r in page["result"]["rows"]] == ["running"]
        assert panel.ask("steer", text="be brief")["line"] == "The agent hears it before its next step."
        assert panel.ask("undo")["status"] == "queued"
        assert panel.parts["queue"]["total"] == 1 or panel.until(lambda p: p["queue"]["total"] == 1)
        assert cell.runs
        assert panel.ask("stop") == {"kind": "reply", "id": "p4", "status": "ok", "line": "Stopping.", "result": None}
        assert error_line(cell.result()).startswith("Stopped")
        done = panel.reply("p3", number=2)
        assert done["status"] == "error"
        assert "no compaction to take back" in done["line"]
        panel.until(lambda p: p["queue"]["total"] == 0 and p["turn"]["outcome"] == "stopped")
        assert panel.ask("stop")["line"] == "no turn runs; there is nothing to stop"


def test_words_that_a_turn_did_not_hear_are_told_and_dropped_at_its_end(kernel: AgentKernel, tmp_path: Path) -> None:
    with panel_of(kernel, subshell=True) as panel, FakeMessagesAPI([endless(), "two"]) as fake:
        kernel.begin(tmp_path, fake)
        panel.hello()
        cell = Running(kernel, agent("one"))
        panel.until(lambda p: p["turn"]["activity"] == "writing" and p["turn"]["delivers"])
        told = panel.command("steer", text="be  brief")
        assert panel.reply(told)["status"] == "queued"
        panel.ask("stop")
        cell.result()
        after = panel.reply(told, number=2)
        assert (after["status"], after["line"]) == ("error", "Not heard, the turn had ended: be brief")
        assert kernel.run(agent("two")).status == "ok"
        assert len(fake.requests) == 2
        assert "be  brief" not in str(sent(fake)[-1])


def test_words_that_a_turn_heard_are_answered_again(kernel: AgentKernel, tmp_path: Path) -> None:
    held = reply("x", call("python", {"code": waits_for("told")}))
    with panel_of(kernel, subshell=True) as panel, FakeMessagesAPI([held, "two"]) as fake:
        kernel.begin(tmp_path, fake)
        panel.hello()
        cell = Running(kernel, agent("one"))
        panel.until(lambda p: p["turn"]["activity"].startswith("running python") and p["turn"]["delivers"])
        told = panel.command("steer", text="be brief")
        assert panel.reply(told)["status"] == "queued"
        (tmp_path / "told").touch()
        assert panel.reply(told, number=2)["line"] == "The agent heard it."
        assert cell.result().status == "ok"
        assert "be brief" in str(sent(fake)[-1])


def test_a_cell_that_computes_is_stopped_too(kernel: AgentKernel, tmp_path: Path) -> None:
    code = "print('GO', flush=True)\nwhile True: pass"
    with panel_of(kernel, subshell=True) as panel, FakeMessagesAPI([reply("x", call("python", {"code": code}))]) as fake:
        kernel.begin(tmp_path, fake)
        panel.hello()
        cell = Running(kernel, agent("one"))
        panel.until(lambda p: p["turn"]["activity"].startswith("running python"))
        assert panel.ask("stop")["status"] == "ok"
        assert error_line(cell.result()).startswith("Stopped")


def test_without_subshells_commands_wait_and_are_done_after_the_cell(kernel: AgentKernel, tmp_path: Path) -> None:
    held = reply("x", call("python", {"code": waits_for("asked")}))
    with panel_of(kernel) as panel, FakeMessagesAPI([held, "done"]) as fake:
        kernel.begin(tmp_path, fake)
        panel.hello()
        cell = Running(kernel, f"%%time\n{agent('one')}")  # not awaited: the main thread is taken for the whole turn
        panel.until(lambda p: p["turn"]["activity"].startswith("running python"))
        page = panel.command("page", of="tree")
        for _ in range(10):
            panel.read()
        assert panel.of("reply") == []
        assert panel.parts["turn"]["delivers"] is False
        assert cell.runs
        (tmp_path / "asked").touch()
        assert cell.result().status == "ok"
        assert panel.reply(page)["result"]["rows"][0]["outcome"] == "completed"


def test_a_compaction_is_shown_edited_applied_and_taken_back(kernel: AgentKernel, tmp_path: Path) -> None:
    note = "## Goal\nCount words.\n## Constraints\n- none\n## Decisions\n- none\n## Open\n- none\n## Next\n- go on"
    turns = [reply("word " * 800) for _ in range(3)]
    with panel_of(kernel, subshell=True) as panel, FakeMessagesAPI([*turns, note, "after"]) as fake:
        kernel.begin(tmp_path, fake, NBAGENT_WINDOW_TOKENS="20000")
        for i in range(3):
            assert kernel.run(agent(f"tell me {i} " + "context " * 300)).status == "ok"
        panel.hello()
        before = panel.until(lambda p: p["gauge"]["used_tokens"] > 0)["gauge"]["used_tokens"]
        shown_first = panel.ask("preview_compaction", focus="the words")
        assert shown_first["status"] == "ok", shown_first
        found = shown_first["result"]
        assert (found["applied"], found["after_tokens"] < found["before_tokens"]) == (False, True)
        assert panel.parts["compaction"]["entry"] == ""
        edited = found["note"] + "\n- keep the WORDS list"
        applied = panel.ask("compact", note=edited, base=found["base"])
        assert applied["status"] == "ok", applied
        assert applied["result"]["applied"] is True
        assert "keep the WORDS list" in applied["result"]["note"]
        now = panel.until(lambda p: p["compaction"]["entry"] != "" and p["gauge"]["used_tokens"] < before)
        after = now["gauge"]["used_tokens"]
        rows = panel.ask("page", of="tree")["result"]["rows"]
        assert rows[0]["compacted"]  # a note stands in its place
        assert "compacted" in shown(kernel.run("%agent tree")).splitlines()[0]
        requests = len(fake.requests)
        assert panel.ask("undo")["status"] == "ok"
        panel.until(lambda p: p["compaction"]["entry"] == "" and p["gauge"]["used_tokens"] > after)
        assert not any(r["compacted"] for r in panel.ask("page", of="tree")["result"]["rows"])
        assert len(fake.requests) == requests
        assert "keep the WORDS list" not in str(sent(fake)[-1])
        assert "after" in shown(kernel.run(agent("and now")))


def test_a_preview_is_not_applied_to_a_conversation_that_moved(kernel: AgentKernel, tmp_path: Path) -> None:
    note = "## Goal\nCount words.\n## Constraints\n- none\n## Decisions\n- none\n## Open\n- none\n## Next\n- go on"
    turns = [reply("word " * 800) for _ in range(3)]
    with panel_of(kernel, subshell=True) as panel, FakeMessagesAPI([*turns, note, "more"]) as fake:
        kernel.begin(tmp_path, fake, NBAGENT_WINDOW_TOKENS="20000")
        for i in range(3):
            assert kernel.run(agent(f"tell me {i} " + "context " * 300)).status == "ok"
        panel.hello()
        found = panel.ask("preview_compaction")["result"]
        kernel.run(agent("one more"))
        refused = panel.ask("compact", note=found["note"], base=found["base"])
        assert refused["status"] == "error"
        assert refused["line"].startswith("The conversation has moved since this note was written, so nothing was")
        assert panel.parts["compaction"]["entry"] == ""
        assert len(fake.requests) == 5


def test_a_note_that_was_written_comes_again_until_another_is_wanted_or_the_conversation_moves(
    kernel: AgentKernel, tmp_path: Path
) -> None:
    turns = [reply("word " * 800) for _ in range(3)]
    notes = [f"## Goal\nCount words, version {i}." for i in range(4)]
    with panel_of(kernel, subshell=True) as panel, FakeMessagesAPI([*turns, *notes[:2], "more", *notes[2:]]) as fake:
        kernel.begin(tmp_path, fake, NBAGENT_WINDOW_TOKENS="20000")
        for i in range(3):
            assert kernel.run(agent(f"tell me {i} " + "context " * 300)).status == "ok"
        panel.hello()
        first = panel.ask("preview_compaction")["result"]
        requests = len(fake.requests)
        assert panel.ask("preview_compaction")["result"] == first  # as after a page that was loaded again
        assert len(fake.requests) == requests
        again = panel.ask("preview_compaction", again=True)["result"]
        assert (first["note"], again["note"]) == (notes[0], notes[1])
        kernel.run(agent("one more"))
        assert panel.ask("preview_compaction")["result"]["note"] == notes[2]
        applied = panel.ask("compact", note="## Goal\nAs I say.")
        assert applied["status"] == "ok", applied


def test_a_compaction_is_stopped_and_changes_nothing(kernel: AgentKernel, tmp_path: Path) -> None:
    turns = [reply("word " * 800) for _ in range(3)]
    with panel_of(kernel, subshell=True) as panel, FakeMessagesAPI([*turns, reply("never", fault=stall_before_headers(FOREVER_S)), "after"]) as fake:
        kernel.begin(tmp_path, fake, NBAGENT_WINDOW_TOKENS="20000")
        for i in range(3):
            kernel.run(agent(f"tell me {i} " + "context " * 300))
        panel.hello()
        compaction = panel.command("compact", note=None)
        until(lambda: len(fake.requests) == 4)
        waiting = panel.ask("undo")
        assert (waiting["status"], waiting["line"][:33]) == ("queued", "The conversation is being compact")
        assert panel.ask("stop")["line"] == "Stopping the compaction."
        assert panel.reply(compaction)["status"] == "error"
        assert "no compaction to take back" in panel.reply(waiting["id"], number=2)["line"]
        assert panel.parts["compaction"]["entry"] == ""
        assert "after" in shown(kernel.run(agent("and now")))


def test_revert_and_set_act_between_turns_and_the_tree_says_so(kernel: AgentKernel, tmp_path: Path) -> None:
    with panel_of(kernel, subshell=True) as panel, FakeMessagesAPI(["one", "two", "three"]) as fake:
        kernel.begin(tmp_path, fake)
        kernel.run(agent("a"), cell_id="c1")
        kernel.run(agent("b"), cell_id="c2")
        panel.hello()
        rows = panel.ask("page", of="tree")["result"]["rows"]
        assert [(r["prompt"].strip(), r["leaf"]) for r in rows] == [("a", False), ("b", True)]
        before = panel.until(lambda p: p["gauge"]["cost_usd"] > 0)["gauge"]["cost_usd"]
        back = panel.ask("revert", turn=rows[0]["turn"])["line"]
        assert back == f"The conversation is at the end of turn 1 · {rows[0]['turn']} again; nothing was removed."
        panel.until(lambda p: p["tree"]["leaf"] == rows[0]["turn"])
        cells = panel.ask("cells", cells=["c1", "c2", "c9"])["result"]["rows"]
        assert [(r["cell"], r["current"]) for r in cells] == [("c1", True), ("c2", False)]
        assert panel.ask("set", policy="pi", mode="plan")["line"] == "From the next turn on: policy pi, permissions plan."
        panel.until(lambda p: (p["gauge"]["policy"], p["gauge"]["mode"]) == ("pi", "plan"))
        assert panel.parts["gauge"]["cost_usd"] == pytest.approx(before)  # of the session, as %agent says it
        assert panel.ask("set", mode="wild")["status"] == "error"
        assert kernel.run(agent("c"), cell_id="c3").status == "ok"
        assert [t.strip() for t in texts(sent(fake)[-1])] == ["a", "c"]


def test_what_a_cell_changes_reaches_the_panel(kernel: AgentKernel, tmp_path: Path) -> None:
    with panel_of(kernel) as panel, FakeMessagesAPI(["one"]) as fake:
        kernel.begin(tmp_path, fake)
        kernel.run(agent("a"))
        panel.hello()
        kernel.run("%context set window=50000")
        panel.until(lambda p: p["gauge"]["window_tokens"] == 50_000)


def test_a_question_is_answered_by_a_button_and_not_asked_below_the_cell(kernel: AgentKernel, tmp_path: Path) -> None:
    script = [reply("x", call("python", {"code": "print(6 * 7)"})), "done"]
    with panel_of(kernel, subshell=True, approvals=True) as panel, FakeMessagesAPI(script) as fake:
        kernel.begin(tmp_path, fake, NBAGENT_MODE="ask")
        panel.hello()
        cell = Running(kernel, agent("go"))
        question = panel.until(lambda p: p["approval"]["approval"])["approval"]
        panel.until(lambda p: p["turn"]["activity"] == "waiting for your answer")
        assert question["tool"] == "python"
        assert "print(6 * 7)" in question["text"]
        assert [c["answer"] for c in question["choices"]] == ["y", "t", "a", "n"]
        assert panel.ask("question", approval=question["approval"])["result"]["text"].endswith("[n]o: ")
        assert panel.ask("answer", approval=question["approval"], answer="q")["status"] == "error"
        assert panel.ask("answer", approval=question["approval"], answer="y")["status"] == "ok"
        result = cell.result()
        assert result.status == "ok"
        assert "42" in shown(result)
        assert "Allow?" not in shown(result)
        panel.until(lambda p: p["approval"]["approval"] == "")
        late = panel.ask("answer", approval=question["approval"], answer="n")
        assert late["line"] == "that question was answered already: Yes"


def test_a_panel_that_comes_in_mid_turn_gets_the_questions_asked_from_then_on(kernel: AgentKernel, tmp_path: Path) -> None:
    code = call("python", {"code": "print(6 * 7)"})
    pace = Pace(10)
    script = [reply("word " * 60, call("read", {"path": "none.txt"}), pace=pace), reply("x", code), "done"]
    with panel_of(kernel, subshell=True, approvals=True) as panel, FakeMessagesAPI(script) as fake:
        kernel.begin(tmp_path, fake, NBAGENT_MODE="ask")
        cell = Running(kernel, agent("go"))
        until(lambda: fake.requests)
        assert panel.hello()["parts"]["turn"]["status"] == "running"
        pace.finish()
        question = panel.until(lambda p: p["approval"]["approval"])["approval"]
        panel.ask("answer", approval=question["approval"], answer="y")
        result = cell.result()
        assert "42" in shown(result)
        assert "Allow?" not in shown(result), "never both"


@pytest.mark.parametrize("options", [{"approvals": False}, {"approvals": True, "pongs": False}])
def test_a_panel_that_shows_no_questions_leaves_them_below_the_cell(
    kernel: AgentKernel, tmp_path: Path, options: dict[str, bool]
) -> None:
    script = [reply("x", call("python", {"code": "print(6 * 7)"})), "done"]
    with panel_of(kernel, subshell=True, **options) as panel, FakeMessagesAPI(script) as fake:
        kernel.begin(tmp_path, fake, NBAGENT_MODE="ask")
        panel.hello()
        limit = "import nbagent.notebook.panel.bridge as _bridge; _patient, _bridge.PONG_S = _bridge.PONG_S, .1"
        kernel.run(limit)  # nobody answers here
        answers = Later(["y"])
        cell = Running(kernel, agent("go"), answers=answers)
        while cell.runs:
            panel.read()
            assert panel.parts["approval"]["approval"] == ""
            if panel.parts["turn"]["activity"] == "waiting for your answer below the cell":
                answers.may_come.set()
        assert "42" in shown(cell.result())
        kernel.run("_bridge.PONG_S = _patient")


def test_stop_takes_an_open_question_away(kernel: AgentKernel, tmp_path: Path) -> None:
    script = [reply("x", call("python", {"code": "print(6 * 7)"})), "done"]
    with panel_of(kernel, subshell=True, approvals=True) as panel, FakeMessagesAPI(script) as fake:
        kernel.begin(tmp_path, fake, NBAGENT_MODE="ask")
        panel.hello()
        cell = Running(kernel, agent("go"))
        panel.until(lambda p: p["approval"]["approval"])
        panel.ask("stop")
        assert error_line(cell.result()).startswith("Stopped")
        panel.until(lambda p: p["approval"]["approval"] == "" and p["turn"]["status"] == "idle")


def test_a_comm_that_one_front_end_closed_is_there_for_the_others(kernel: AgentKernel, tmp_path: Path) -> None:
    with panel_of(kernel) as panel, FakeMessagesAPI(["one", "two"]) as fake:
        kernel.begin(tmp_path, fake)
        panel.hello()
        close = panel.client.session.msg("comm_close", {"comm_id": panel.comm_id, "data": {}})
        panel.client.shell_channel.send(close)
        result = kernel.run(agent("hi"))
        assert "one" in shown(result)
        assert result.of("comm_open") == []
        panel.read_all()
        assert [m["kind"] for m in panel.messages].count("welcome") == 2  # the others say hello again
        assert panel.hello()["kind"] == "snapshot"
        assert "two" in shown(kernel.run(agent("again")))
        panel.until(lambda p: p["tree"]["total"] == 2)


def test_unloading_closes_the_comm_and_ends_the_thread(kernel: AgentKernel, tmp_path: Path) -> None:
    with panel_of(kernel) as panel:
        kernel.begin(tmp_path)
        panel.hello()
        names = "sorted(t.name for t in __import__('threading').enumerate() if t.name.startswith('nbagent'))"
        assert kernel.value(names) == ["nbagent-panel"]
        kernel.run("%unload_ext nbagent")
        panel.read_all()
        assert panel.closed
        assert kernel.value(names) == []


def test_two_windows_share_the_comm_and_each_knows_its_replies(kernel: AgentKernel, tmp_path: Path) -> None:
    with panel_of(kernel) as one, panel_of(kernel) as two, FakeMessagesAPI(["hello"]) as fake:
        kernel.begin(tmp_path, fake)
        one.hello()
        two.hello()
        kernel.run(agent("hi"))
        for panel in (one, two):
            panel.until(lambda p: p["tree"]["total"] == 1 and p["turn"]["status"] == "idle")
        one.post({"kind": "command", "id": "one-1", "name": "page", "of": "tree"})
        assert one.reply("one-1")["result"]["total"] == 1
        assert two.reply("one-1")["id"] == "one-1"  # seen, and passed over by its id
        assert one.parts == two.parts


def test_a_message_that_is_none_of_ours_is_answered_with_a_line_or_passed_over(kernel: AgentKernel, tmp_path: Path) -> None:
    with panel_of(kernel) as panel:
        kernel.begin(tmp_path)
        panel.hello()
        for data in (7, None, {"kind": "nothing"}, {"kind": "command"}):
            panel.post(data)
        assert "does not know the command" in panel.ask("fly")["line"]
        assert panel.ask("search", query="x")["result"]["note"] == "Nothing in memory matches 'x'."


def test_memory_is_searched_and_read_beside_a_running_cell(kernel: AgentKernel, tmp_path: Path) -> None:
    (tmp_path / ".nbagent/memory").mkdir(parents=True)
    (tmp_path / ".nbagent/memory/ports.md").write_text("# Ports\n\nThe database listens on port 5433.\n")
    with panel_of(kernel, subshell=True) as panel, FakeMessagesAPI([endless()]) as fake:
        kernel.begin(tmp_path, fake)
        panel.hello()
        cell = Running(kernel, agent("one"))
        panel.until(lambda p: p["turn"]["delivers"])
        found = panel.ask("search", query="which port does the database use")["result"]["rows"]
        assert found[0]["relative"] == ".nbagent/memory/ports.md"
        assert "5433" in found[0]["snippet"]
        lines = panel.ask("read", path=found[0]["path"], line=3)["result"]
        assert (lines["text"].startswith("The database"), lines["start_line"]) == (True, 3)
        assert panel.ask("read", path="../../etc/passwd")["status"] == "error"
        assert cell.runs
        assert panel.ask("search", query=" ")["result"]["rows"] == []
        panel.ask("stop")
        cell.result()


def test_a_skill_is_found_switched_off_and_told_to_the_model(kernel: AgentKernel, tmp_path: Path) -> None:
    for name in ("plots", "tables"):
        folder = tmp_path / "home/skills" / name
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text(f"---\nname: {name}\ndescription: Draws {name}.\n---\nDo it.\n")
    with panel_of(kernel, subshell=True) as panel, FakeMessagesAPI(["one", "two"]) as fake:
        kernel.begin(tmp_path, fake)
        panel.hello()
        assert kernel.run(agent("hi")).status == "ok"
        catalog = panel.until(lambda p: p["catalog"]["total"] >= 2 and p["tree"]["total"] == 1)["catalog"]
        assert f"{catalog['prompt_tokens']:,} tokens in every request" in shown(kernel.run("%skills"))
        page = panel.ask("page", of="catalog", text="draws PLOTS")["result"]
        assert [(r["name"], r["on"], r["visible"]) for r in page["rows"]] == [("plots", True, True)]
        assert page["revision"] == catalog["revision"]
        off = panel.ask("set_skill", skill="plots", on=False)
        assert off["status"] == "ok"
        now = panel.until(lambda p: p["catalog"]["visible"] == catalog["visible"] - 1)["catalog"]
        assert now["revision"] > catalog["revision"]
        rows = panel.ask("page", of="catalog")["result"]["rows"]
        found = {r["name"]: (r["on"], r["visible"], bool(r["reason"])) for r in rows}
        assert (found["tables"], found["plots"]) == ((True, True, False), (False, False, True))
        assert rows[-1]["name"] == "plots"
        kernel.run(agent("again"))
        assert "plots" in str(sent(fake)[-1]["messages"])
        assert panel.ask("set_skill", skill="nobody", on=True)["status"] == "error"


def forking(folder: Path) -> dict[str, str]:
    """A skill that works in a context of its own; returns the settings that offer it as a tool."""
    skill = folder / "home/skills/look-at-logs"
    skill.mkdir(parents=True)
    head = "---\nname: look-at-logs\ndescription: Looks at logs.\ncontext: fork\n---\n"
    (skill / "SKILL.md").write_text(f"{head}Look at the logs.\n")
    return {"NBAGENT_SKILLS__MODE": "tool"}


def test_a_sub_agent_is_seen_told_something_and_stopped_beside_the_cell(kernel: AgentKernel, tmp_path: Path) -> None:
    script = [
        reply("x", call("skill", {"skill": "look-at-logs"})),
        reply("y", call("python", {"code": waits_for("told")})),
        reply("z", call("python", {"code": "while True: pass"})),
        "I go on without it.",
    ]  # fmt: skip
    with panel_of(kernel, subshell=True) as panel, FakeMessagesAPI(script) as fake:
        kernel.begin(tmp_path, fake, **forking(tmp_path))
        panel.hello()
        cell = Running(kernel, agent("one"))
        panel.until(lambda p: p["agents"]["rows"] and p["agents"]["rows"][0]["calls"] == 1 and p["turn"]["delivers"])
        row = panel.parts["agents"]["rows"][0]
        assert (row["name"], row["status"], row["activity"].split()[0]) == ("look-at-logs", "running", "python")
        assert row["tokens"] > 0
        assert panel.ask("send", agent=row["agent"], text="Only errors.")["line"].startswith("look-at-logs hears it")
        assert panel.ask("send", agent="sa9", text="hi")["status"] == "error"
        (tmp_path / "told").touch()
        panel.until(lambda p: p["agents"]["rows"][0]["calls"] == 2)
        assert "Only errors." in texts(sent(fake)[2])[-1]
        late = panel.command("send", agent="look-at-logs", text="And warnings.")
        assert panel.reply(late)["status"] == "queued"
        assert panel.ask("stop_agent", agent=row["agent"])["status"] == "ok"
        result = cell.result()
        assert panel.reply(late, number=2)["line"] == "Not heard, look-at-logs had ended: And warnings."
        assert "Not heard, look-at-logs had ended: And warnings." in shown(result)
        assert result.status == "ok"
        assert "I go on without it." in shown(result)
        assert "[skill look-at-logs] stopped" in shown(result)  # the word of the panel and of %agent agents
        assert "failed" not in shown(result)
        assert "the person stopped it" in str(sent(fake)[3]["messages"])
        panel.until(lambda p: p["agents"]["rows"][0]["status"] == "stopped" and p["turn"]["outcome"] == "completed")
        assert panel.ask("stop_agent", agent=row["agent"])["line"].startswith("the sub-agent look-at-logs has ended")
        listed = kernel.run("%agent agents")
        assert "look-at-logs" in shown(listed)
        assert "stopped" in shown(listed)


def test_a_page_before_any_turn_is_empty(kernel: AgentKernel, tmp_path: Path) -> None:
    with panel_of(kernel) as panel:
        kernel.begin(tmp_path)
        panel.hello()
        result = panel.ask("page", of="tree")["result"]
        assert (result["rows"], result["total"]) == ([], 0)
        assert panel.ask("undo")["line"].startswith("there is no conversation yet")


def test_a_page_loaded_in_mid_turn_shows_the_turn(kernel: AgentKernel, tmp_path: Path) -> None:
    with panel_of(kernel, subshell=True) as panel, FakeMessagesAPI([endless()]) as fake:
        kernel.begin(tmp_path, fake)
        cell = Running(kernel, agent("one"))
        until(lambda: fake.requests)
        parts = panel.hello()["parts"]
        assert parts["turn"]["status"] == "running"
        assert panel.until(lambda p: p["gauge"]["used_tokens"] > 0)
        panel.ask("stop")
        assert cell.result().status == "error"


def test_a_kernel_that_dies_leaves_a_conversation_that_opens_again(tmp_path: Path) -> None:
    with running(tmp_path / "kernel") as kernel, FakeMessagesAPI([endless(), "after"]) as fake:
        with panel_of(kernel, subshell=True) as panel:
            (tmp_path / "work").mkdir()
            kernel.begin(tmp_path / "work", fake, NBAGENT_SESSION="s")
            panel.hello()
            kernel.send(agent("one"))
            panel.until(lambda p: p["turn"]["activity"] == "writing")  # the fake has given its first reply away
            kernel.kill()
        kernel.restart()
        with panel_of(kernel, subshell=True) as panel:
            kernel.begin(tmp_path / "work", fake, NBAGENT_SESSION="s")
            panel.hello()
            rows = panel.ask("page", of="tree")["result"]["rows"]
            assert [r["outcome"] for r in rows] == ["broken off"]
            assert panel.parts["turn"]["status"] == "idle"
            assert "after" in shown(kernel.run(agent("two")))


def test_the_gauge_is_whole_before_the_first_turn_and_nothing_is_written_for_it(
    kernel: AgentKernel, tmp_path: Path
) -> None:
    (tmp_path / "AGENTS.md").write_text("Answer in metres.\n" * 20, encoding="utf-8")
    before = sorted(p.relative_to(tmp_path) for p in tmp_path.rglob("*"))
    with panel_of(kernel) as panel, FakeMessagesAPI(["hello"]) as fake:
        kernel.begin(tmp_path, fake, NBAGENT_WINDOW_TOKENS="50000", NBAGENT_THRESHOLD="0.5")
        panel.hello()
        gauge = panel.until(lambda p: p["gauge"]["used_tokens"] > 0)["gauge"]
        assert {"system", "tools", "instructions"} <= {k for k, v in gauge["categories"].items() if v > 0}
        assert (gauge["window_tokens"], gauge["threshold_tokens"]) == (50_000, 25_000)
        assert "nbagent" in gauge["policies"]
        assert gauge["mode"] == "auto"
        catalog = panel.until(lambda p: p["catalog"]["total"] > 0)["catalog"]
        page = panel.ask("page", of="catalog")["result"]
        assert (page["total"], page["revision"]) == (catalog["total"], catalog["revision"])
        assert all(row["on"] for row in page["rows"])
        after = sorted(p.relative_to(tmp_path) for p in tmp_path.rglob("*"))
        assert after == before
        assert fake.requests == []
        kernel.run("%context set threshold=0.7")  # a cell's change shows too
        panel.until(lambda p: p["gauge"]["threshold_tokens"] == 35_000)
        report = kernel.value("dict(get_ipython().run_line_magic('context', '').categories)")
        assert {k: v for k, v in report.items() if v} == {k: v for k, v in gauge["categories"].items() if v}


def test_the_gauge_is_whole_in_the_first_turn_also_where_nothing_was_counted_before_it(
    kernel: AgentKernel, tmp_path: Path
) -> None:
    with panel_of(kernel, subshell=True) as panel, FakeMessagesAPI([endless()]) as fake:
        kernel.begin(tmp_path, fake)
        cell = Running(kernel, agent("one"))
        until(lambda: fake.requests)
        panel.hello()  # the page comes when the turn runs
        gauge = panel.until(lambda p: p["gauge"]["categories"].get("tools", 0) > 0)["gauge"]
        assert cell.runs
        assert gauge["threshold_tokens"] > 0
        assert gauge["categories"]["system"] > 0
        assert sum(gauge["categories"].values()) == gauge["used_tokens"]
        panel.ask("stop")
        assert cell.result().status == "error"


def refusals(parts: dict[str, Any]) -> dict[str, str]:
    return {r["name"]: r["line"] for r in parts["session"]["refused"]}


def test_what_would_be_refused_is_told_before_it_is_pressed(kernel: AgentKernel, tmp_path: Path) -> None:
    with panel_of(kernel, subshell=True) as panel, FakeMessagesAPI(["hello", "again"]) as fake:
        kernel.begin(tmp_path, fake, NBAGENT_SESSION="s")
        panel.hello()
        panel.until(lambda p: refusals(p).get("preview_compaction", "").startswith("There is no conversation yet"))
        assert panel.ask("preview_compaction")["line"].startswith("there is no conversation yet")
        kernel.run("%agent record cassettes/talk.json")
        kernel.run(agent("one"))
        panel.until(lambda p: p["tree"]["total"] == 1 and not refusals(p))
        kernel.run("%agent record stop")
        kernel.run("%agent replay cassettes/talk.json")
        panel.until(lambda p: p["session"]["replay"] and "preview_compaction" in refusals(p))
        kernel.run(agent("one"))
        told = panel.until(lambda p: "recording plays" in refusals(p).get("preview_compaction", ""))
        line = panel.ask("preview_compaction")["line"]
        assert refusals(told)["preview_compaction"].casefold().removesuffix(".") == line.casefold().removesuffix(".")
        kernel.run("%agent replay stop")
        kernel.run("%agent")
        panel.until(lambda p: not p["session"]["replay"] and not refusals(p))
        kernel.run("%agent reset")  # the next turn begins a new conversation
        panel.until(lambda p: "no conversation yet" in refusals(p).get("preview_compaction", ""))


def test_the_load_line_says_which_turns_it_counts(kernel: AgentKernel, tmp_path: Path) -> None:
    with panel_of(kernel) as panel, FakeMessagesAPI(["a", "b", "c"]) as fake:
        kernel.begin(tmp_path, fake, NBAGENT_SESSION="s")
        panel.hello()
        kernel.run(agent("one"), cell_id="c1")
        kernel.run(agent("two"), cell_id="c2")
        kernel.run(agent("one"), cell_id="c1")
        tree = panel.until(lambda p: p["tree"]["total"] == 3)["tree"]
        assert (tree["current"], tree["stale"]) == (1, 1)
        assert " · 1 turn on this branch · " in kernel.run("%reload_ext nbagent").stream()
        assert "1 on this branch, 1 stale on others" in shown(kernel.run("%agent"))
