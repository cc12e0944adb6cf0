"""A session over cells that are run again, kernels that restart, and turns that broke (DECISIONS 4, 8, 9, 23; peers 5, 7, 9, 11, 13)."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nbagent.core.entries import (
    Approval,
    AssistantMessage,
    LeafMoved,
    Steering,
    ToolResult,
    ToolStarted,
    TurnEnd,
    TurnStart,
    UsageReported,
)
from nbagent.core.errors import JournalLocked, UsageProblem
from nbagent.core.messages import NO_IMAGE
from nbagent.models.scripted import calls, says
from nbagent.runtime.matching import stale_turns
from nbagent.runtime.ports import TurnOptions
from nbagent.runtime.preview import preview_turn
from tests.contracts.story import PNG
from tests.fakes.messages_api import FakeMessagesAPI, call, reply, text, thinking
from tests.patience import until
from tests.runtime.lab import MODEL, Lab, extended_by, result_texts, write_notebook


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path / "work")


def cells(lab: Lab, *names: str) -> None:
    for name in names:
        lab.send(f"prompt {name}", name)


# ---------------------------------------------------------------- running cells again


def test_editing_a_cell_in_the_middle_forks_there_and_loses_nothing(lab: Lab) -> None:
    """peers 9."""
    lab.open([says("a"), says("b"), says("c"), says("b2")])
    cells(lab, "A", "B", "C")
    lab.send("prompt B, edited", "B")
    assert lab.prompts() == ["prompt A", "prompt B, edited"]
    turns = {t.body.cell_id: t for t in lab.session.tree.turns() if not t.current}
    assert stale_turns(lab.session.tree.turns()) == {turns["C"].turn}
    lab.session.revert(turns["C"].turn)
    assert [t.body.cell_id for t in lab.session.tree.turns_on_path()] == ["A", "B", "C"]
    lab.script([says("d")])
    lab.send("prompt D", "D")
    assert lab.prompts() == ["prompt A", "prompt B", "prompt C", "prompt D"]


def test_a_turn_is_complete_also_where_the_file_beside_the_journal_cannot_be_written(lab: Lab) -> None:
    lab.open([says("a"), says("b"), says("c")])
    lab.send("prompt A", "A")
    kept = lab.session.place.folder / "session.json"
    kept.unlink()
    kept.mkdir()
    done = lab.send("prompt B", "B")
    assert done.output.outcome == "completed"
    (line,) = done.notices
    assert line.startswith(f"cannot write {kept}: ")
    assert "a folder has that name: rename or remove it" in line
    assert list(lab.session.place.folder.glob("session.json*")) == [kept]
    kept.rmdir()
    assert lab.send("prompt C", "C").notices == ()
    assert '"C"' in kept.read_text()


def test_run_all_after_a_restart_forks_once_at_the_first_cell(lab: Lab) -> None:
    lab.open([says("a"), says("b"), says("c")])
    cells(lab, "A", "B", "C")
    lab.restart([says("a"), says("b"), says("c")])
    cells(lab, "A", "B", "C")
    moves = [e for e in lab.session.tree if isinstance(e.body, LeafMoved)]
    assert [(m.body.why, m.parent) for m in moves] == [("fork", None)]
    assert lab.prompts() == ["prompt A", "prompt B", "prompt C"]
    assert len(lab.session.tree.turns()) == 6


def test_append_always_adds_a_turn(lab: Lab) -> None:
    lab.open([says("one"), says("two")])
    cells(lab, "A")
    lab.send("prompt A", "A", rerun="append")
    assert lab.prompts() == ["prompt A", "prompt A"]


def test_new_starts_a_conversation_and_keeps_the_old_one(lab: Lab) -> None:
    lab.open([says("one"), says("two")])
    cells(lab, "A")
    lab.send("prompt B", "B", new=True)
    assert lab.prompts() == ["prompt B"]
    assert len(lab.session.tree.children(None)) == 2
    lab.session.revert("A")
    assert len(lab.session.tree.turns_on_path()) == 1


def test_a_preview_shows_what_send_sends_and_writes_nothing(lab: Lab) -> None:
    lab.open([says("one"), says("two")])
    cells(lab, "A")
    size = len(lab.session.tree)
    from nbagent.runtime.ports import TurnOptions

    shown = lab.run(preview_turn(lab.session, "prompt B", lab.cell("prompt B", "B"), TurnOptions(), lab.ports()))
    assert len(lab.session.tree) == size
    lab.send("prompt B", "B")
    assert shown.canonical_bytes() == lab.requests[-1].canonical_bytes()
    again = lab.run(preview_turn(lab.session, "again", lab.cell("again", "B"), TurnOptions(rerun="append"), lab.ports()))
    assert len([m for m in again.messages if m.role == "user"]) == 3


# ---------------------------------------------------------------- reuse


def python(code: str) -> dict[str, Any]:
    return dict(calls("python", code=code))


def test_reuse_shows_every_recorded_answer_without_a_call_and_runs_the_code(tmp_path: Path) -> None:
    """DECISIONS 23; peers 11: no earlier turn is billed again."""
    lab = Lab(tmp_path / "work", mode="auto", rerun="reuse")
    lab.open([[python("x = 20 + 1")], says("x is 21"), [python("y = 2 * x\nprint(y)")], says("y is 42")])
    cells(lab, "A", "B")
    first = list(lab.requests)
    cost = sum(u.cost_usd for u in lab.bodies(UsageReported))
    lab.restart([])
    a, b = lab.send("prompt A", "A"), lab.send("prompt B", "B")
    assert (a.output.text, b.output.text) == ("x is 21", "y is 42")
    assert a.replayed
    assert not b.differences
    assert lab.kernel.names["y"] == 42
    assert [r.canonical_bytes() for r in lab.requests] == [r.canonical_bytes() for r in first]
    spent = sum(e.body.cost_usd for e in lab.session.tree if isinstance(e.body, UsageReported))
    assert spent == pytest.approx(cost)
    assert cost > 0


def test_reuse_asks_for_the_code_as_the_mode_says(lab: Lab) -> None:
    lab.answers = ["y"]
    lab.open([[python("x = 1")], says("done")], mode="ask")
    cells(lab, "A")
    lab.restart([], mode="ask")
    lab.answers, lab.asked = ["d"], []
    done = lab.send("prompt A", "A", rerun="reuse")
    assert len(lab.asked) == 1
    assert lab.kernel.ran == []
    assert done.output.text == "done"  # a refused call still shows the recorded answer
    assert "said no" in done.differences[0]
    assert lab.bodies(ToolResult)[-1].status == "ok"  # what the recorded thinking is signed over


def test_reuse_in_plan_mode_and_headless_runs_nothing(lab: Lab) -> None:
    lab.open([[python("x = 1")], says("done")], mode="auto")
    cells(lab, "A")
    for mode in ("plan", "ask"):
        lab.restart([], mode=mode)
        assert lab.send("prompt A", "A", rerun="reuse").output.text == "done"
        assert lab.kernel.ran == []
    lab.restart([], mode="auto", tools__deny=["python"])
    assert lab.send("prompt A", "A", rerun="reuse").output.text == "done"
    assert lab.kernel.ran == []


def test_reuse_does_not_run_shell_or_writes_again(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "work", mode="auto")
    lab.open([[calls("shell", command="echo x >> log.txt"), calls("write", path="a.txt", content="1")], says("ok")],
             tools__allow=["shell", "write"])  # fmt: skip
    cells(lab, "A")
    (lab.folder / "a.txt").write_text("mine")
    lab.restart([], tools__allow=["shell", "write"])
    done = lab.send("prompt A", "A", rerun="reuse")
    assert (lab.folder / "log.txt").read_text() == "x\n"
    assert (lab.folder / "a.txt").read_text() == "mine"
    assert done.output.outcome == "completed"
    assert not done.differences


@pytest.mark.parametrize("change", ["prompt", "parent", "model"])
def test_reuse_runs_the_turn_when_prompt_parent_or_model_differ(lab: Lab, change: str) -> None:
    lab.open([says("a"), says("b"), says("other a"), says("fresh b")])
    cells(lab, "A", "B")
    if change == "parent":
        lab.send("prompt A", "A")  # a live answer that differs
        done = lab.send("prompt B", "B", rerun="reuse")
        assert done.output.text == "fresh b"
    elif change == "prompt":
        assert lab.send("prompt B2", "B", rerun="reuse").output.text == "other a"
    else:
        lab.script([says("by opus")], "claude-opus-5-5")
        assert lab.send("prompt B", "B", rerun="reuse", model="claude-opus-5-5").output.text == "by opus"


def test_a_live_turn_after_a_reused_one_is_accepted_by_a_provider_that_binds_thinking(tmp_path: Path) -> None:
    script = [reply(thinking("t"), text("a"), call("python", {"code": "print(1)"})), reply(thinking("u"), text("one")),
              reply(thinking("v"), text("two"))]  # fmt: skip
    with FakeMessagesAPI(script) as fake:
        lab = Lab(tmp_path / "work", environ={"ANTHROPIC_BASE_URL": fake.base_url}, mode="auto")
        lab.open(live=True)
        lab.send("prompt A", "A")
        lab.restart(live=True)
        lab.kernel.names["print"] = lambda *a: None  # the code now prints something else
        assert lab.send("prompt A", "A", rerun="reuse").differences
        lab.send("prompt B", "B")
        lab.close()
        assert [r.refusal for r in fake.requests] == [None] * 3
        assert fake.requests[2].canonical.startswith(fake.requests[1].canonical)


# ---------------------------------------------------------------- restarts


def test_the_sixth_turn_after_a_restart_begins_with_the_five(lab: Lab) -> None:
    """peers 11."""
    lab.open([says(f"answer {i}") for i in range(5)])
    for i in range(5):
        lab.send(f"question {i}", f"c{i}")
    fifth = lab.requests[-1]
    lab.restart([says("sixth"), says("seventh")])
    assert lab.session.opened.turns == 5
    lab.send("question 5", "c5")
    assert extended_by(fifth, lab.requests[-1])
    assert lab.prompts() == [f"question {i}" for i in range(6)]
    lab.send("question 6", "c6")
    assert sum("variables from before are gone" in t for t in lab.told()) == 1


def test_a_rename_while_the_kernel_runs_keeps_one_conversation(lab: Lab) -> None:
    """peers 13."""
    write_notebook(lab.folder / "a.ipynb", "A", "B", "C")
    lab.open([says("a"), says("b")], notebook="a.ipynb")
    cells(lab, "A")
    os.rename(lab.folder / "a.ipynb", lab.folder / "b.ipynb")
    cells(lab, "B")
    lab.restart([says("c")], notebook="b.ipynb")
    assert (lab.session.opened.how, lab.session.opened.origin) == ("renamed", "a.ipynb")
    cells(lab, "C")
    assert lab.prompts() == ["prompt A", "prompt B", "prompt C"]


def test_a_copy_has_the_conversation_so_far_and_then_its_own(lab: Lab) -> None:
    write_notebook(lab.folder / "a.ipynb", "A", "B")
    first = lab.open([says("a"), says("mine")], notebook="a.ipynb")
    cells(lab, "A")
    write_notebook(lab.folder / "copy.ipynb", "A", "B")
    copy = Lab(lab.folder)
    copy.open([says("theirs")], notebook="copy.ipynb")
    assert copy.session.opened.how == "copied"
    copy.send("in the copy", "B")
    assert copy.prompts() == ["prompt A", "in the copy"]
    lab.session = first
    lab.send("in the first", "B")
    assert lab.prompts() == ["prompt A", "in the first"]
    copy.restart([], notebook="copy.ipynb")
    assert copy.session.opened.how == "resumed"


def test_a_session_that_another_writes_is_refused(lab: Lab) -> None:
    lab.open([])
    with pytest.raises(JournalLocked):
        lab.open([])


# ---------------------------------------------------------------- without cell ids


def test_two_cells_with_the_same_text_in_one_run_are_two_turns(lab: Lab) -> None:
    lab.open([says("1"), says("2")])
    lab.send("go on", None)
    lab.send("go on", None)
    assert lab.prompts() == ["go on", "go on"]
    lab.restart([says("1"), says("2")])
    lab.send("go on", None)
    lab.send("go on", None)
    assert lab.prompts() == ["go on", "go on"]
    assert len(lab.session.tree.children(None)) == 2


def test_without_cell_ids_a_second_run_forks_at_the_first_cell(lab: Lab) -> None:
    lab.open([says("1"), says("2"), says("3")])
    for prompt in ("a", "b", "c"):
        lab.send(prompt, None)
    lab.restart([says("1"), says("2"), says("3")])
    for prompt in ("a", "inserted", "c"):
        lab.send(prompt, None)
    assert lab.prompts() == ["a", "inserted", "c"]


@pytest.mark.parametrize(("interactive", "rerun", "told"), [(True, None, 1), (False, None, 0), (True, "append", 0)])
def test_without_cell_ids_a_person_is_told_of_a_cell_known_by_its_place_alone(
    lab: Lab, interactive: bool, rerun: str | None, told: int
) -> None:
    """A console may begin anew with a session that it names: its first cell looks like an edit of the first turn."""
    lab.open([says("1"), says("2"), says("3")])
    first = lab.send("a", None)
    lab.restart([says("1"), says("2")])
    ports = replace(lab.ports(), interactive=interactive)
    lines: list[str] = []
    for prompt in ("other", "new"):
        options = TurnOptions(rerun=rerun)
        done = lab.run(lab.session.send(prompt, lab.cell(prompt, None), options, ports))
        lines += [n for n in done.notices if n.startswith("This front end names no cells")]
    assert len(lines) == told
    assert all(f"turn {first.output.turn}, edited" in line and "`--rerun append`" in line for line in lines)
    assert lab.prompts() == [*(["a"] if rerun else []), "other", "new"]


def test_without_cell_ids_reuse_finds_the_cells_around_an_edited_one(lab: Lab) -> None:
    lab.open([says("1"), says("2"), says("3")])
    for prompt in ("a", "b", "c"):
        lab.send(prompt, None)
    lab.restart([says("new 2"), says("new 3")])
    texts = [lab.send(p, None, rerun="reuse").output.text for p in ("a", "b, edited", "c")]
    assert texts == ["1", "new 2", "new 3"]  # the third stands after another conversation, so it is asked anew


# ---------------------------------------------------------------- resume


def test_resume_after_a_limit_goes_on_with_the_same_turn(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "work", mode="auto")
    lab.open([[python("a = 1")], [python("b = 2")], says("done")])
    first = lab.send("go", "A", max_steps=1)
    assert first.output.outcome == "limit"
    assert "%agent resume" in first.output.message
    done = lab.resume()
    assert (done.output.outcome, done.output.text, done.output.turn) == ("completed", "done", first.output.turn)
    assert lab.kernel.names.keys() >= {"a", "b"}
    assert len(lab.session.tree.turns()) == 1


def test_resume_is_refused_when_there_is_nothing_to_go_on_with(lab: Lab) -> None:
    lab.open([says("a")])
    with pytest.raises(UsageProblem, match="no turn"):
        lab.resume()
    cells(lab, "A")
    with pytest.raises(UsageProblem, match="complete"):
        lab.resume()


def test_resume_after_max_tokens_and_after_an_error(tmp_path: Path) -> None:
    from tests.fakes.replies import eof

    script = [reply("half", stop_reason="max_tokens"), reply(" and half"), reply("cut", fault=eof(after=1)), reply("whole")]
    with FakeMessagesAPI(script) as fake:
        lab = Lab(tmp_path / "work", environ={"ANTHROPIC_BASE_URL": fake.base_url})
        lab.open(live=True)
        assert lab.send("one", "A").output.outcome == "cut_off"
        assert lab.resume().output.outcome == "completed"
        second = lab.send("two", "B")
        if second.output.outcome != "completed":  # else the client tried again by itself
            assert second.output.outcome == "error"
            assert lab.resume().output.outcome == "completed"
        lab.close()
        assert not [r.refusal for r in fake.requests if r.refusal]


def test_resume_after_a_stop_while_asking_asks_again(lab: Lab) -> None:
    import asyncio

    lab.open([[python("x = 1")], says("done")])

    async def never(text: str) -> str:
        raise asyncio.CancelledError

    lab.answers = []
    ports = lab.ports()
    ports.ask = never
    from nbagent.runtime.ports import TurnOptions

    done = lab.run(lab.session.send("go", lab.cell("go", "A"), TurnOptions(), ports))
    assert done.output.outcome == "stopped"
    assert lab.bodies(ToolResult)[-1].status == "not_run"
    lab.answers = ["y"]
    resumed = lab.resume()
    assert resumed.output.outcome == "completed"
    assert lab.kernel.ran == []  # it was answered as not run; the model may ask again


# ---------------------------------------------------------------- kill -9


SESSION = """
import asyncio, os, sys
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.runtime.lab import Lab
from nbagent.models.scripted import calls, says
lab = Lab(Path({folder!r}), mode="ask", tools__allow=["shell"])
lab.open([[calls("shell", command={command!r})], says("done")])
{before}
lab.send("append a line", "A")
"""


def kill_within(lab: Lab, command: str, before: str = "") -> None:
    """Run a turn in a process of its own that kills itself at the place that command or `before` choose."""
    root = str(Path(__file__).resolve().parents[2])
    code = SESSION.format(root=root, folder=str(lab.folder), command=command, before=textwrap.dedent(before))
    env = {**os.environ, "NBAGENT_OFFLINE": "1"}
    process = subprocess.Popen([sys.executable, "-c", code], env=env, stderr=subprocess.PIPE)
    until(lambda: process.poll() is not None or (lab.folder / "ready").exists())
    process.kill()
    _, errors = process.communicate()
    assert process.returncode == -signal.SIGKILL, errors.decode()[-2000:]


def test_a_kill_in_the_middle_of_a_tool_never_runs_it_twice(tmp_path: Path) -> None:
    """R4, DECISIONS 4: the line is in the file, its result is not in the journal."""
    lab = Lab(tmp_path / "work", mode="auto", tools__allow=["shell"])
    kill_within(lab, "echo line >> log.txt; touch ready; sleep 300")
    assert (lab.folder / "log.txt").read_text() == "line\n"
    lab.open([says("I look first.")])
    lab.kernel_id = "kernel-2"
    done = lab.resume()
    assert (lab.folder / "log.txt").read_text() == "line\n"
    assert done.output.outcome == "completed"
    (result,) = lab.bodies(ToolResult)
    assert result.status == "interrupted"
    assert "outcome unknown" in result_texts(lab.requests[-1])[0]
    assert [m.role for m in lab.requests[-1].messages] == ["user", "assistant", "user"]
    assert len(lab.bodies(ToolStarted)) == 1


def test_a_kill_in_the_middle_of_a_tool_is_answered_before_another_turn(tmp_path: Path) -> None:
    """OC 76: the synthetic result comes before the next user message, and once."""
    lab = Lab(tmp_path / "work", mode="auto", tools__allow=["shell"])
    kill_within(lab, "echo line >> log.txt; touch ready; sleep 300")
    lab.open([says("fine")])
    lab.send("another question", "B")
    kinds = [type(b).__name__ for b in (e.body for e in lab.session.tree.path())]
    assert kinds.index("ToolResult") < kinds.index("TurnEnd") < kinds.index("TurnStart", 1)
    assert (lab.folder / "log.txt").read_text() == "line\n"
    assert len(result_texts(lab.requests[-1])) == 1


def test_a_kill_before_the_tool_started_runs_it_once_on_resume(tmp_path: Path) -> None:
    """R4: the call stands in the journal, ToolStarted does not."""
    lab = Lab(tmp_path / "work", mode="auto", tools__allow=["shell"])
    before = """
    from nbagent.core.entries import ToolStarted
    from nbagent.runtime.writer import SessionWriter
    write = SessionWriter.write
    def dying(self, body):
        if isinstance(body, ToolStarted):
            os.kill(os.getpid(), 9)
        return write(self, body)
    SessionWriter.write = dying
    """
    kill_within(lab, "echo line >> log.txt", before)
    assert not (lab.folder / "log.txt").exists()
    lab.options["tools__allow"] = []
    lab.answers = ["y"]
    lab.open([says("done")], mode="ask")
    done = lab.resume()
    assert len(lab.asked) == 1
    assert (lab.folder / "log.txt").read_text() == "line\n"
    assert done.output.outcome == "completed"
    assert len(lab.bodies(ToolStarted)) == 1
    assert [a.decision for a in lab.bodies(Approval)] == ["allow"]


def test_a_reply_that_was_streaming_at_the_kill_is_kept_and_marked(tmp_path: Path) -> None:
    """peers 7, DECISIONS 5."""
    lab = Lab(tmp_path / "work")
    lab.open([])
    session = lab.session
    lab.script([says("first")])
    lab.send("one", "A")
    from nbagent.core.entries import TurnStart, UserMessage
    from nbagent.core.messages import text_block

    begun = lab.bodies(TurnStart)[0]
    from dataclasses import replace

    session.runner.writer.write(replace(begun, turn="t2"))
    session.runner.writer.write(UserMessage(blocks=(text_block("two"),)))
    session.runner.writer.save_partial((text_block("half an ans"),), "m", 1)
    lab.restart([says("second half")])
    assert lab.bodies(AssistantMessage)[-1].cut
    lab.resume()
    assert "half an ans" in str(lab.requests[-1].messages)
    assert "not whole" in str(lab.requests[-1].messages[-1])
    assert [s.text for s in lab.bodies(Steering)] == ["Go on from where you stopped."]


def test_a_broken_turn_is_closed_before_a_fork_and_stays_whole(lab: Lab) -> None:
    lab.open([says("a")])
    cells(lab, "A")
    from dataclasses import replace

    from nbagent.core.entries import TurnStart

    lab.session.runner.writer.write(replace(lab.bodies(TurnStart)[0], turn="broken", cell_id="B"))
    lab.restart([says("a2")])
    cells(lab, "A")
    broken = lab.session.turn("broken")
    assert broken.end is not None
    assert broken.end.outcome == "stopped"
    assert lab.prompts() == ["prompt A"]


# ---------------------------------------------------------------- names of sessions


def test_the_environment_names_a_session(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "work", environ={"NBAGENT_SESSION": "mine"})
    lab.open([says("a")], name=None)
    cells(lab, "A")
    lab.restart([says("b")], name=None)
    assert lab.session.place.name == "mine"
    assert lab.session.opened.turns == 1


def test_without_notebook_and_name_each_session_is_fresh(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "work")
    first = lab.open([says("a")], name=None).place.name
    cells(lab, "A")
    lab.restart([], name=None)
    assert lab.session.place.name != first
    assert lab.session.opened.turns == 0


def test_looking_up_what_the_model_saw_folds_the_path_only_when_a_tool_asks(lab: Lab, monkeypatch: Any) -> None:
    from nbagent.runtime import seen

    folds = []
    build = seen.build_view
    monkeypatch.setattr(seen, "build_view", lambda path: folds.append(1) or build(path))
    (lab.folder / "a.txt").write_text("text\n")
    lab.open([[calls("glob", pattern="*")], [calls("read", path="a.txt")], says("done")])
    cells(lab, "A")
    assert len(folds) <= 1
    results = lab.bodies(ToolResult)
    assert [r.status for r in results] == ["ok", "ok"]
    assert json.dumps(results[0].meta) is not None


def test_every_turn_ends_in_one_end(lab: Lab) -> None:
    lab.open([says("a"), says("b")])
    cells(lab, "A", "B")
    assert [e.outcome for e in lab.bodies(TurnEnd)] == ["completed", "completed"]


def test_a_rule_that_fits_no_tool_is_told_when_the_session_is_opened(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "work")
    lab.open([], tools__deny=["shel", "mcp_*", "read(secrets/*)", "*"], tools__allow=["skill(deploy)"])
    told = [d for d in lab.session.opened.diagnostics if d.path.startswith("tools.")]
    assert [(d.path, d.cause.split(" fits")[0]) for d in told] == [("tools.deny", "'shel'"), ("tools.deny", "'mcp_*'")]
    assert "shell" in told[0].remedy


@pytest.mark.parametrize("junk", [b"", b"\xff\xfe{{{", b"[]", b'{"cells": 7}'])
def test_a_damaged_list_of_cells_costs_that_list_only(tmp_path: Path, junk: bytes) -> None:
    """peers 49: the conversation opens and goes on, and the list is written anew."""
    lab = Lab(tmp_path / "work")
    lab.open([says("one")])
    lab.send("first", "c1")
    known = lab.session.place.folder / "session.json"
    whole = known.read_bytes()
    known.write_bytes(junk)
    lab.restart([says("two")])
    lab.send("second", "c2")
    assert lab.prompts() == ["first", "second"]
    assert json.loads(known.read_bytes())["cells"] == ["c1", "c2"]
    assert json.loads(whole)["cells"] == ["c1"]


def test_a_session_that_cannot_be_opened_is_let_go_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """peers 49: the next try in the same kernel is not refused."""
    lab = Lab(tmp_path / "work")
    lab.open([says("one")])
    lab.send("first", "c1")
    lab.close()
    with monkeypatch.context() as patched:
        patched.setattr("nbagent.runtime.session.remember", lambda *args, **given: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            lab.open()
    lab.open([says("two")])
    lab.send("second", "c2")
    assert lab.prompts() == ["first", "second"]


@pytest.mark.parametrize("how", ["gone", "changed", "not text"])
def test_a_lost_beginning_is_made_anew_and_told_once(tmp_path: Path, how: str) -> None:
    """peers 49: a record that is lost costs the provider's cache, never the conversation."""
    lab = Lab(tmp_path / "work")
    (lab.folder / "AGENTS.md").write_text("Rule one: tabs.\n")
    lab.open([says("one")])
    lab.send("first", "c1")
    kept = lab.session.runner.artifacts.path(lab.bodies(TurnStart)[0].prefix)
    lab.close()
    (lab.folder / "AGENTS.md").write_text("Rule two: spaces.\n")
    if how == "gone":
        kept.unlink()
    else:
        kept.write_bytes(b"\xff\xfe" if how == "not text" else b"{}")
    lab.restart([says("two"), says("three")])
    assert lab.session.occupancy().used_tokens > 0
    done = lab.send("second", "c2")
    lab.send("third", "c3")
    assert lab.prompts() == ["first", "second", "third"]
    assert "Rule two" in str(lab.requests[-1].prefix.system)
    assert sum("was made anew" in line for line in done.notices) == 1
    assert lab.bodies(TurnStart)[0].prefix != lab.bodies(TurnStart)[-1].prefix  # thinking made behind the other stays out
    lab.restart([says("four")])
    lab.send("fourth", "c4")
    assert lab.prompts()[-1] == "fourth"


def test_a_model_that_sees_no_images_is_sent_a_word_for_each(tmp_path: Path) -> None:
    """agents.md 3.4: else it refuses the whole conversation; what is kept, and what others see, stays as it is."""
    lab = Lab(tmp_path / "work")
    lab.open([says("a picture"), says("still one")])
    lab.script([says("I cannot see it")], "local-model")
    (tmp_path / "work" / "a.png").write_bytes(base64.b64decode(PNG))
    lab.send("what is @a.png?", "A")
    seen = lab.requests[-1]
    assert '"type":"image"' in seen.canonical_bytes().decode()
    lab.send("and now?", "B", model="local-model")
    assert '"type":"image"' not in lab.requests[-1].canonical_bytes().decode()
    assert NO_IMAGE in lab.requests[-1].canonical_bytes().decode()
    lab.send("and again?", "C", model=MODEL)
    assert extended_by(seen, lab.requests[-1])
