"""`%context cache` in a real kernel, with a service that keeps a cache as the real one does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.messages_api import FakeMessagesAPI, Reply, call, reply
from tests.notebook.agent_kernel import AgentKernel, agent, error_line, running, sent, shown

pytestmark = pytest.mark.kernel

LONG = "Read this. " + "lorem ipsum dolor " * 200
SET_CLOCK = "import nbagent.runtime.clock as _clock; _clock.SystemClock.now = lambda self: {now!r}"
KEEP_CLOCK = "import nbagent.runtime.clock as _clock; _kept_now = _clock.SystemClock.now"
GIVE_BACK = "import nbagent.runtime.clock as _clock; _clock.SystemClock.now = _kept_now"


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentKernel]:
    with running(tmp_path_factory.mktemp("kernel")) as started:
        yield started


class Time:
    """One clock for the service and for the journal."""

    def __init__(self, kernel: AgentKernel) -> None:
        self.now, self._kernel = 1_000.0, kernel

    def pass_minutes(self, minutes: float) -> None:
        self.now += 60 * minutes
        done = self._kernel.run(SET_CLOCK.format(now=self.now))
        assert done.status == "ok", done.reply


@pytest.fixture
def time(kernel: AgentKernel) -> Iterator[Time]:
    kernel.run(KEEP_CLOCK)
    yield Time(kernel)
    kernel.run(GIVE_BACK)


def ask(kernel: AgentKernel, prompt: str, cell: str, options: str = "") -> None:
    done = kernel.run(agent(prompt, options), cell_id=cell)
    assert done.status == "ok", shown(done)


def bill(kernel: AgentKernel) -> dict[str, Any]:
    result = kernel.run("print(get_ipython().run_line_magic('context', 'cache').to_json())")
    assert result.status == "ok", result.reply
    return dict(json.loads(result.stream()))


def kinds(kernel: AgentKernel) -> list[str]:
    return [row["cause"]["kind"] if row["cause"] else "" for row in bill(kernel)["rows"]]


def worker(body: dict[str, Any]) -> Reply | str:
    """Runs code once a turn, then answers."""
    last = body["messages"][-1]["content"]
    if any(block["type"] == "tool_result" for block in last):
        return "解释好了。"
    return reply(call("python", {"code": "print('x' * 400)"}))


def test_before_the_first_turn_it_says_so_and_costs_nothing(kernel: AgentKernel, tmp_path: Path) -> None:
    with FakeMessagesAPI(["one"]) as fake:
        kernel.begin(tmp_path, fake)
        assert "No model call was measured" in shown(kernel.run("%context cache"))
        assert sent(fake) == []


def test_a_pause_and_another_model_are_seen_as_the_service_bills_them(
    kernel: AgentKernel, tmp_path: Path, time: Time
) -> None:
    with FakeMessagesAPI(worker, clock=lambda: time.now) as fake:
        kernel.begin(tmp_path, fake)
        time.pass_minutes(0)
        ask(kernel, LONG + "请解释", "c1")
        time.pass_minutes(4)
        ask(kernel, "again", "c2")
        time.pass_minutes(7)
        ask(kernel, "after a pause", "c3")
        time.pass_minutes(1)
        ask(kernel, "asked of another", "c4", "--model claude-opus-5-5")
        assert kinds(kernel) == ["first", "", "", "", "idle", "", "model", ""]
        told = bill(kernel)
        usages = [r.usage for r in fake.requests]
        for row, usage in zip(told["rows"], usages, strict=True):
            assert usage is not None
            assert (row["read_tokens"], row["prompt_tokens"]) == (usage.read_tokens, usage.total_tokens)
        text = shown(kernel.run("%context cache"))
        assert "The dearest turn is 4" in text
        assert "another model: claude-opus-5-5 after claude-sonnet-5-5" in text
        assert "7 minutes since it was last sent; the cache lives 5 minutes" in text
        spent = kernel.value("get_ipython().run_line_magic('context', '').cost_usd")
        assert told["cost"] == pytest.approx(spent)
        assert told["paid_usd"] == pytest.approx(spent)
        assert len(sent(fake)) == 8  # looking asked nobody


def test_a_compaction_its_note_and_its_undo_are_in_the_bill(kernel: AgentKernel, tmp_path: Path, time: Time) -> None:
    def script(body: dict[str, Any]) -> Reply | str:
        if "about to be replaced by a note" in str(body["messages"][-1]):
            return "<note>## Goal\nread it\n</note>"
        return "Read."

    with FakeMessagesAPI(script, clock=lambda: time.now) as fake:
        kernel.begin(tmp_path, fake, NBAGENT_MEMORY__FLUSH="off")
        kernel.run("%context set window=20000")
        time.pass_minutes(0)
        for i in range(5):
            ask(kernel, LONG, f"c{i}")
        assert "tokens" in shown(kernel.run("%context compact"))
        ask(kernel, "go on", "d1")
        time.pass_minutes(6)
        ask(kernel, "go on again", "d2")
        kernel.run("%context undo")
        ask(kernel, "and now", "d3")
        assert kinds(kernel)[5:] == ["", "compaction", "idle", "undo"]
        assert [row["purpose"] for row in bill(kernel)["rows"]][5] == "handoff"


def test_a_fork_and_a_new_conversation_are_told_apart(kernel: AgentKernel, tmp_path: Path, time: Time) -> None:
    with FakeMessagesAPI(lambda body: "Fine.", clock=lambda: time.now) as fake:
        kernel.begin(tmp_path, fake)
        time.pass_minutes(0)
        ask(kernel, LONG, "c1")
        for i in range(3):
            time.pass_minutes(4)
            ask(kernel, LONG, f"d{i}")
        time.pass_minutes(2)
        kernel.run("%agent fork 2")
        ask(kernel, "another way", "e")
        assert kinds(kernel) == ["first", "fork"]
        ask(kernel, "anew", "f", "--new")
        assert kinds(kernel) == ["new"]


def test_it_takes_no_other_word(kernel: AgentKernel, tmp_path: Path) -> None:
    kernel.begin(tmp_path)
    assert "%context cache takes --json only, not 'all'" in error_line(kernel.run("%context cache all"))
    assert kernel.complete("%context ca") == ["%context cache"]
    assert "%context cache" in shown(kernel.run("%context help"))
