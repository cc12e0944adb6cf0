"""Stop in a turn, wherever it is, and questions below the cell. Cases: peers 5, 7; SPEC R3; DECISIONS 12, 20."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.messages_api import FakeMessagesAPI, Pace, call, rate_limited, reply
from tests.fakes.replies import stall_before_headers
from tests.notebook.agent_kernel import AgentKernel, agent, error_line, results, running, sent, shown, texts
from tests.notebook.kernel_harness import Result, native_code
from tests.patience import FOREVER_S, until

pytestmark = pytest.mark.kernel
LINE = "Stopped in step 1. What was done so far is kept; `%agent resume` goes on."


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentKernel]:
    with running(tmp_path_factory.mktemp("kernel")) as started:
        yield started


def python(code: str) -> dict[str, object]:
    return call("python", {"code": code})


def assert_stopped(result: Result) -> None:
    """Whatever ran would have gone on for an hour, and clean-up is waited for without end (`sitecustomize`)."""
    assert error_line(result) == LINE
    assert result.reply["ename"] == "TurnStopped"
    assert LINE in shown(result)


def entries(folder: Path) -> list[dict[str, object]]:
    """Return the bodies in the journal."""
    (journal,) = (folder / ".nbagent/sessions").glob("*/journal.jsonl")
    return [json.loads(line)["body"] for line in journal.read_text().splitlines()]


HELD_IMPORT = """
import sys
class Held:
    @staticmethod
    def find_spec(name, path=None, target=None):
        import os, time  # no names of the notebook
        if name == "anthropic":
            open("begun", "w").close()
            while not os.path.exists("released"): time.sleep(.01)
sys.meta_path.insert(0, Held)
"""


def test_stop_while_the_client_is_being_imported(kernel: AgentKernel, tmp_path: Path) -> None:
    """First in this file: later the client is imported already."""
    with FakeMessagesAPI(["hello"]) as fake:
        kernel.begin(tmp_path, fake)
        assert "anthropic" not in kernel.run("import sys; print([m for m in sys.modules if m == 'anthropic'])").stream()
        kernel.run(HELD_IMPORT)
        cell = kernel.send(agent("hi"))
        until((tmp_path / "begun").exists)
        kernel.stop()
        assert error_line(kernel.finish(cell)) == "Stopped before the turn began; nothing was sent."
        assert fake.requests == []
        (tmp_path / "released").touch()
        assert "hello" in shown(kernel.run(agent("hi again")))
        assert len(sent(fake)) == 1
        kernel.run("sys.meta_path.remove(Held)")


def test_stop_while_our_own_modules_are_being_imported_is_one_line(kernel: AgentKernel, tmp_path: Path) -> None:
    kernel.begin(tmp_path)
    kernel.run("import nbagent.notebook.registered as made, os, time; real = made._imported")
    held = "(print('GO', flush=True), [time.sleep(.01) for _ in iter(lambda: os.path.exists('released'), True)])"
    kernel.run(f"made._imported = lambda target: {held}")
    for cell in ("%agent help", agent("hi"), "%agent resume"):
        result = kernel.run(cell, stop_at="GO\n")
        assert error_line(result) == "Stopped before the turn began; nothing was sent."
    (tmp_path / "released").touch()
    kernel.run("made._imported = real")
    assert "resume" in shown(kernel.run("%agent help"))


def test_stop_with_parallel_calls_answers_each_of_them(kernel: AgentKernel, tmp_path: Path) -> None:
    """Case peers 5."""
    (tmp_path / "a.txt").write_text("one line")
    calls = call("read", {"path": "a.txt"}), python(f"print('GO', flush=True)\nimport time; time.sleep({FOREVER_S})"), python("1")
    with FakeMessagesAPI([reply("Three.", *calls), "fine"]) as fake:
        kernel.begin(tmp_path, fake)
        result = kernel.run(agent("go"), stop_at="GO\n")
        assert_stopped(result)
        assert "interrupted" in shown(result)
        stored = [b.get("status", "ok") for b in entries(tmp_path) if b["kind"] == "tool_result"]
        assert stored == ["ok", "interrupted", "not_run"]
        assert kernel.run(agent("again")).status == "ok"
        read, ran, never = results(sent(fake)[-1]).values()
        assert "one line" in read
        assert "Interrupted by the person" in ran
        assert "GO" in ran
        assert "Not run" in never


def test_stop_in_half_an_answer_keeps_and_marks_it(kernel: AgentKernel, tmp_path: Path) -> None:
    """Case peers 7."""
    with FakeMessagesAPI([reply("word " * 400, pace=Pace(20)), "the rest"]) as fake:
        kernel.begin(tmp_path, fake)
        first = kernel.send(agent("go"), cell_id="a")
        queued = [kernel.send(agent(f"queued {n}"), cell_id=f"q{n}") for n in range(2)]
        result = kernel.finish(first, at=[("word word", kernel.stop)])
        assert_stopped(result)
        assert shown(result).startswith("word word")
        assert {kernel.reply_to(q)["status"] for q in queued} == {"aborted"}
        assert len(fake.requests) == 1
        (half,) = [b for b in entries(tmp_path) if b["kind"] == "assistant_message"]
        assert half["cut"] == "stopped"
        assert str(half["blocks"][0]["text"]).startswith("word word")  # type: ignore[index]
        assert "stopped" in shown(kernel.run("%agent log"))
        assert kernel.run("%agent resume").status == "ok"
        assert texts(sent(fake)[-1], "assistant")[0].startswith("word word")


@pytest.mark.parametrize(
    ("answer", "marker"),
    [
        (reply("x", fault=rate_limited(55)), "rate limit"),
        (reply("x", fault=stall_before_headers(FOREVER_S)), "step 1"),
        (reply("word " * 60, pace=Pace(5)), "word"),
    ],
    ids=["waiting on a 429", "no answer yet", "a stalled stream"],
)
def test_stop_while_waiting_for_the_provider(kernel: AgentKernel, tmp_path: Path, answer: object, marker: str) -> None:
    with FakeMessagesAPI([answer, "later"]) as fake:  # type: ignore[list-item]
        kernel.begin(tmp_path, fake)

        def stop() -> None:
            until(lambda: fake.requests)
            kernel.stop()

        assert_stopped(kernel.run(agent("go"), at=[(marker, stop)]))
        assert len(fake.requests) == 1
        assert kernel.run(agent("again")).status == "ok"


def test_stop_inside_a_long_native_call_waits_for_it_and_says_so(kernel: AgentKernel, tmp_path: Path) -> None:
    code = native_code("os.path.exists('released')")
    with FakeMessagesAPI([reply("Long.", python(code)), "fine"]) as fake:
        kernel.begin(tmp_path, fake, NBAGENT_TOOLS__ALLOW="python")
        told = ("waiting for native code", (tmp_path / "released").touch)
        result = kernel.run(agent("go"), stop_at="GO\n", at=[told])
        assert_stopped(result)
        assert "NATIVE ENDED" not in result.stream()
        assert kernel.run(agent("again")).status == "ok"
        (answer,) = results(sent(fake)[-1]).values()
        assert "Interrupted" in answer


def test_stop_pressed_twice_leaves_a_valid_conversation(kernel: AgentKernel, tmp_path: Path) -> None:
    code = (
        f"import time\ntry:\n    print('GO', flush=True); time.sleep({FOREVER_S})\n"
        f"finally:\n    print('AGAIN', flush=True); time.sleep({FOREVER_S})"
    )
    with FakeMessagesAPI([reply("Go.", python(code)), "fine"]) as fake:
        kernel.begin(tmp_path, fake)
        assert_stopped(kernel.run(agent("go"), stop_at=["GO\n", "AGAIN\n"]))
        assert kernel.run(agent("again")).status == "ok"
        assert len(sent(fake)) == 2


def test_awaiting_code_of_a_resumed_turn_runs(kernel: AgentKernel, tmp_path: Path) -> None:
    code = "import asyncio\nawait asyncio.sleep(0)\nprint('awaited')"
    with FakeMessagesAPI([reply("A", python("a = 1")), reply("B", python(code)), "end"]) as fake:
        kernel.begin(tmp_path, fake)
        assert "--max-steps" in error_line(kernel.run(agent("go", "--max-steps 1")))
        result = kernel.run("%agent resume")
        assert result.status == "ok"
        assert result.stream() == "awaited\n"
        assert result.of("execute_result") == []
        assert "nothing to go on with" in error_line(kernel.run("%agent resume"))


# ---------------------------------------------------------------------- questions
@pytest.mark.parametrize(
    ("answers", "bound", "scope"),
    [
        (["y"], True, "once"),
        (["t"], True, "turn"),
        (["a"], True, "notebook"),
        (["n"], False, None),
        (["perhaps", "y"], True, "once"),
        (["b", "c", "e"], False, None),
    ],
)
def test_the_person_is_asked_below_the_cell(
    kernel: AgentKernel, tmp_path: Path, answers: list[str], bound: bool, scope: str | None
) -> None:
    with FakeMessagesAPI([reply("A", python("asked = 1")), reply("B", python("asked = 2")), "end"]) as fake:
        kernel.begin(tmp_path, fake, NBAGENT_MODE="ask")
        asked_again = scope not in ("turn", "notebook")
        result = kernel.run(agent("go"), answers=[*answers, *(["d"] if asked_again else [])])
        assert result.status == "ok"
        assert kernel.value("globals().get('asked')") == ((1 if asked_again else 2) if bound else None)
        told = list(results(sent(fake)[-1]).values())
        assert ("said no" in told[0]) is not bound
        fake.enqueue(reply("C", python("asked = 3")), "end")
        kernel.run(agent("more"), answers=["d"])
        assert kernel.value("globals().get('asked') == 3") is (scope == "notebook")


def test_stop_in_a_question(kernel: AgentKernel, tmp_path: Path) -> None:
    with FakeMessagesAPI([reply("A", python("asked = 1")), "fine"]) as fake:
        kernel.begin(tmp_path, fake, NBAGENT_MODE="ask")
        assert_stopped(kernel.run(agent("go"), answers=[None]))
        assert kernel.run(agent("again")).status == "ok"
        assert ["Not run" in t for t in results(sent(fake)[-1]).values()] == [True]


def test_where_nobody_can_answer_the_call_is_refused_with_what_would_allow_it(
    kernel: AgentKernel, tmp_path: Path
) -> None:
    with FakeMessagesAPI([reply("A", python("asked = 1")), "I could not."]) as fake:
        kernel.begin(tmp_path, fake, NBAGENT_MODE="ask")
        result = kernel.run(agent("go"), allow_stdin=False)
        assert result.status == "ok"
        assert shown(result).count("NBAGENT_TOOLS__ALLOW=python") == 1
        (told,) = results(sent(fake)[-1]).values()
        assert "NBAGENT_TOOLS__ALLOW=python" in told
        fake.enqueue(reply("A", python("asked = 1")), "Done.")
        kernel.run("import os; os.environ['NBAGENT_TOOLS__ALLOW'] = 'python'")
        kernel.run(agent("go on"), allow_stdin=False)
        assert kernel.value("asked") == 1
        kernel.run("del os.environ['NBAGENT_TOOLS__ALLOW']")
