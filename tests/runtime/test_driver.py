"""The driver: tools at the same time and one after another, Stop, steering, failing displays; and the gauge's numbers."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nbagent.core.budget import Usage
from nbagent.core.effects import StepBegan, StepEnded, TextDelta, ToolBegan, ToolEnded, TurnDone
from nbagent.core.entries import Steering, ToolResult, ToolStarted, UsageReported
from nbagent.tools.registry import builtin_tools
from nbagent.tools.tool import ToolOutput
from tests.fakes.messages_api import FakeMessagesAPI, call, reply, thinking
from tests.patience import FOREVER_S, HANG_S
from tests.runtime.talk import Probe, Talk


class Traffic:
    """Tools that tell how many of them run at once; the first do not end before `together` of them have begun."""

    def __init__(self, together: int = 1) -> None:
        self.now = 0
        self.most = 0
        self.order: list[str] = []
        self._together, self._met = together, asyncio.Event()

    async def pass_through(self, input: Any) -> str:
        self.now += 1
        self.most = max(self.most, self.now)
        self.order.append(f"+{input.get('x')}")
        if self.now == self._together:
            self._met.set()
        await asyncio.wait_for(self._met.wait(), HANG_S)
        for _ in range(10):
            await asyncio.sleep(0)  # who may run meanwhile begins now
        self.order.append(f"-{input.get('x')}")
        self.now -= 1
        return f"result {input.get('x')}"

    def tools(self) -> dict[str, Probe]:
        return {
            "look": Probe("look", self.pass_through, concurrent=True), "act": Probe("act", self.pass_through),
        }  # fmt: skip


def results(talk: Talk) -> dict[str, tuple[str, str]]:
    return {r.call_id: (r.status, str(r.content[0]["text"])) for r in talk.bodies(ToolResult)}


# ------------------------------------------------------------ batches


def test_concurrent_tools_run_at_the_same_time(tmp_path: Path, fake: FakeMessagesAPI) -> None:
    traffic = Traffic(together=4)
    fake.enqueue(reply(*[call("look", {"x": i}) for i in range(4)]), "ok")
    with Talk(tmp_path, fake, tools=traffic.tools()) as talk:
        assert talk.send().output.outcome == "completed"
        assert traffic.most == 4
        assert len(results(talk)) == 4


def test_other_tools_run_one_after_another_in_order(tmp_path: Path, fake: FakeMessagesAPI) -> None:
    traffic = Traffic()
    fake.enqueue(reply(*[call("act", {"x": i}) for i in range(3)]), "ok")
    with Talk(tmp_path, fake, tools=traffic.tools()) as talk:
        talk.send()
        assert traffic.order == ["+0", "-0", "+1", "-1", "+2", "-2"]


def test_a_sequential_call_waits_for_the_concurrent_ones_before_it(tmp_path: Path, fake: FakeMessagesAPI) -> None:
    traffic = Traffic(together=2)
    names = ("look", "look", "act", "look")
    fake.enqueue(reply(*[call(n, {"x": i}) for i, n in enumerate(names)]), "ok")
    with Talk(tmp_path, fake, tools=traffic.tools()) as talk:
        talk.send()
        assert traffic.most == 2
        assert traffic.order[4:] == ["+2", "-2", "+3", "-3"]
        sent = [b["tool_use_id"] for b in fake.requests[-1].body["messages"][-1]["content"]]
    assert len(sent) == 4


def test_the_end_of_a_step_tells_what_it_cost(tmp_path: Path, fake: FakeMessagesAPI) -> None:
    """A question or a long tool may come right after it, and the gauge stands until then."""
    fake.enqueue(reply(call("look", {})), "ok")
    with Talk(tmp_path, fake, tools=Traffic().tools()) as talk:
        done = talk.send()
        told = [e.cost_usd for e in talk.seen(StepEnded)]
        assert len(told) == 2
        costs = [u.cost_usd for u in talk.bodies(UsageReported)]
        assert told == pytest.approx([costs[0], sum(costs)])
        assert 0 < told[0] < told[1] == pytest.approx(done.output.cost_usd)


def test_each_tool_is_in_the_journal_before_it_runs(tmp_path: Path, fake: FakeMessagesAPI) -> None:
    """DECISIONS 4."""
    seen: list[int] = []
    fake.enqueue(reply(call("look", {})), "ok")

    async def count(input: Any) -> str:
        seen.append(len(talk.bodies(ToolStarted)))
        return "ok"

    with Talk(tmp_path, fake, tools={"look": Probe("look", count)}) as talk:
        talk.send()
    assert seen == [1]


# ------------------------------------------------------------ stop


async def forever(input: Any) -> str:
    await asyncio.sleep(FOREVER_S)
    return "never"


@pytest.mark.parametrize("concurrent", [True, False])
def test_a_stop_while_two_run_answers_all_and_the_next_request_is_valid(
    tmp_path: Path, fake: FakeMessagesAPI, concurrent: bool
) -> None:
    """peers.md 5: each call has one result; what never began says so."""
    fake.enqueue(reply(call("wait", {"x": 1}), call("wait", {"x": 2})), "on")
    tools = {"wait": Probe("wait", forever, concurrent=concurrent)}
    with Talk(tmp_path, fake, tools=tools) as talk:
        begun = itertools.count(1)
        wanted = 2 if concurrent else 1
        done = talk.send_and_stop(lambda e: isinstance(e, ToolBegan) and next(begun) == wanted)
        assert done.output.outcome == "stopped"
        statuses = [status for status, _ in results(talk).values()]
        assert statuses == (["interrupted"] * 2 if concurrent else ["interrupted", "not_run"])
        assert talk.resume().output.text == "on"
        assert len(talk.bodies(ToolResult)) == 2


def test_a_tool_that_answers_when_it_is_stopped_is_heard(tmp_path: Path, fake: FakeMessagesAPI) -> None:
    async def polite(input: Any) -> str:
        try:
            await asyncio.sleep(FOREVER_S)
        except asyncio.CancelledError:
            return "half of it"
        return "never"

    fake.enqueue(reply(call("wait", {})), "on")
    with Talk(tmp_path, fake, tools={"wait": Probe("wait", polite)}) as talk:
        assert talk.send_and_stop(lambda e: isinstance(e, ToolBegan)).output.outcome == "stopped"
        assert list(results(talk).values()) == [("ok", "half of it")]
        assert talk.send("go on").output.text == "on"


def test_a_tool_that_will_not_stop_is_left_behind_and_cannot_write(
    tmp_path: Path, fake: FakeMessagesAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nbagent.runtime.driver.CLEAN_UP_S", 0.05)
    release, ended = threading.Event(), asyncio.Event()

    async def stubborn(input: Any) -> str:
        while not release.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue
        ended.set()
        return "too late"

    fake.enqueue(reply(call("wait", {})), "on", "and on")
    with Talk(tmp_path, fake, tools={"wait": Probe("wait", stubborn)}) as talk:
        assert talk.send_and_stop(lambda e: isinstance(e, ToolBegan)).output.outcome == "stopped"
        release.set()
        talk.run(asyncio.wait_for(ended.wait(), HANG_S))
        assert talk.send("go on").output.text == "on"
        assert [status for status, _ in results(talk).values()] == ["interrupted"]


def test_a_second_stop_does_not_cut_the_bookkeeping(tmp_path: Path, fake: FakeMessagesAPI) -> None:
    began, cleans = asyncio.Event(), asyncio.Event()

    async def slow_to_end(input: Any) -> str:
        try:
            began.set()
            await asyncio.sleep(FOREVER_S)
        finally:
            cleans.set()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.sleep(FOREVER_S)
        return "never"

    fake.enqueue(reply(call("wait", {})), "on")
    with Talk(tmp_path, fake, tools={"wait": Probe("wait", slow_to_end)}) as talk:

        async def twice() -> Any:
            task = asyncio.ensure_future(talk.sending())
            await began.wait()
            task.cancel()
            await cleans.wait()
            task.cancel()
            return await task

        assert talk.run(twice()).output.outcome == "stopped"
        assert [status for status, _ in results(talk).values()] == ["interrupted"]


# ------------------------------------------------------------ faults of tools and displays


class Rude(BaseException):
    """What a library may raise that is no Exception."""


@pytest.mark.parametrize("fault", [ValueError("bad"), KeyboardInterrupt(), SystemExit(3), Rude("rude")], ids=lambda f: type(f).__name__)
@pytest.mark.parametrize("thread", [True, False], ids=["thread", "loop"])
def test_a_tool_that_raises_becomes_a_result(
    tmp_path: Path, fake: FakeMessagesAPI, fault: BaseException, thread: bool
) -> None:
    async def broken(input: Any) -> str:
        def fail() -> None:
            raise fault

        await asyncio.to_thread(fail) if thread else fail()
        return "never"

    fake.enqueue(reply(call("look", {}), call("fine", {})), "ok")
    tools = {"look": Probe("look", broken, concurrent=True), "fine": Probe("fine", Traffic().pass_through, concurrent=True)}
    with Talk(tmp_path, fake, tools=tools) as talk:
        assert talk.send().output.outcome == "completed"
        by_name = {r.name: r for r in talk.bodies(ToolResult)}
        assert (by_name["look"].status, by_name["fine"].status) == ("error", "ok")
        assert type(fault).__name__ in by_name["look"].content[0]["text"]
        assert any(type(fault).__name__ in e.text for e in talk.events if e.kind == "notice")


def test_a_context_that_cannot_be_made_is_the_tools_fault_alone(tmp_path: Path, fake: FakeMessagesAPI) -> None:
    """Whatever stands between the call and the tool: the turn goes on."""

    class Images(Probe):
        async def run(self, input: Any, context: Any) -> ToolOutput:
            return ToolOutput(text=None)  # type: ignore[arg-type]

    fake.enqueue(reply(call("look", {})), "ok")
    with Talk(tmp_path, fake, tools={"look": Images("look", forever)}) as talk:
        assert talk.send().output.outcome == "completed"
        assert [status for status, _ in results(talk).values()] == ["error"]


def test_a_display_that_fails_does_not_end_a_turn(
    tmp_path: Path, fake: FakeMessagesAPI, caplog: pytest.LogCaptureFixture
) -> None:
    fake.enqueue(reply(thinking("hm"), "text", call("look", {})), "ok")
    with Talk(tmp_path, fake, tools=Traffic().tools()) as talk:

        def broken(event: Any) -> None:
            if isinstance(event, StepBegan | StepEnded | TextDelta | ToolBegan | ToolEnded):
                raise RuntimeError("no front end")

        talk.ports.sink = broken
        assert talk.send().output.text == "ok"
    assert len([r for r in caplog.records if "display" in r.message]) == 1


def test_a_client_that_raises_ends_the_turn_with_a_line(tmp_path: Path, fake: FakeMessagesAPI) -> None:
    async def call_(request: Any, watch: Any) -> Any:
        raise RuntimeError("inside out")

    with Talk(tmp_path, fake, tools={}) as talk:
        talk.model.call = call_  # type: ignore[method-assign]
        done = talk.send()
        assert (done.output.outcome, "RuntimeError: inside out" in done.output.message) == ("error", True)


# ------------------------------------------------------------ steering


def test_steering_goes_after_the_results(tmp_path: Path, fake: FakeMessagesAPI) -> None:
    """openclaw.md: what the person sends in mid-turn reaches the model with the next request."""

    async def steer(input: Any) -> str:
        talk.ports.steering.append("use metres")
        return "looked"

    fake.enqueue(reply(call("look", {}), call("look", {})), "ok")
    with Talk(tmp_path, fake, tools={"look": Probe("look", steer)}) as talk:
        assert talk.send().output.outcome == "completed"
        assert [s.text for s in talk.bodies(Steering)] == ["use metres", "use metres"]
    last = fake.requests[-1].body["messages"][-1]["content"]
    assert [b["type"] for b in last] == ["tool_result", "tool_result", "text", "text"]


# ------------------------------------------------------------ the gauge


def rows(i: int) -> str:
    return "\n".join(f"row {k}: {k * i % 97}, {k * 31 % 7}.{i}" for k in range(40))


KINDS: tuple[Callable[[int], str], ...] = (
    rows,
    lambda i: f"The quick brown fox jumps over the lazy dog, number {i}. " * 25,
    lambda i: "def f(x):\n    return x ** 2\n" * 40,
    lambda i: '{"a": [1, 2, 3], "b": {"c": null}},' * 30,
    lambda i: f"ok {i}",
)


@pytest.mark.parametrize(("kinds", "share"), [((rows,), 0.01), (KINDS, 0.02)], ids=["one kind", "mixed"])
def test_the_predicted_size_is_close_to_the_measured_one(
    make_fake: Callable[..., FakeMessagesAPI], tmp_path: Path, kinds: tuple[Callable[[int], str], ...], share: float
) -> None:
    """30 calls; the fake counts a token for four bytes, which the estimate has to find out.

    What is measured is exact, so the error is that of the newest result alone: of mixed kinds of text it is larger.
    """

    async def result(input: Any) -> str:
        return kinds[input["x"] % len(kinds)](input["x"])

    fake = make_fake()
    fake.enqueue(*[reply(thinking("hm " * (i % 9)), f"Step {i}.", call("look", {"x": i})) for i in range(29)], "ok", "ok")
    tools = {t.spec.name: t for t in builtin_tools()} | {"look": Probe("look", result)}
    with Talk(tmp_path, fake, tools=tools) as talk:
        talk.send("Look at everything, then choose. " * 1000)
        shown = [e.context_tokens for e in talk.seen(StepBegan)]
        real = [r.usage.total_tokens for r in fake.requests if r.usage]
        wrong = {i: (s, r) for i, (s, r) in enumerate(zip(shown, real, strict=True)) if i and abs(s - r) > share * r}
        assert wrong == {}
        assert [e.context_tokens for e in talk.seen(StepEnded)] == real
        assert talk.seen(TurnDone)[-1].context_tokens == real[-1]
        after = talk.session.occupancy().used_tokens
        assert abs(after - real[-1]) < 0.01 * real[-1]
    with Talk(tmp_path, fake, tools=tools) as talk:  # opened again: the journal knows what was measured
        again = talk.session.occupancy()
        assert abs(again.used_tokens - after) < 0.01 * after
        assert sum(again.ledger.as_mapping().values()) == again.used_tokens


@pytest.mark.parametrize("factor", [10, 0.1])
def test_one_absurd_report_changes_no_number(
    make_fake: Callable[..., FakeMessagesAPI], tmp_path: Path, factor: float
) -> None:
    """claude.md 68: a proxy that reports ten times or a tenth of the truth, once."""
    fake = make_fake()
    big = "The quick brown fox jumps over the lazy dog. " * 700
    fake.enqueue(*[f"answer {i}" for i in range(3)])
    tools = {t.spec.name: t for t in builtin_tools()}
    with Talk(tmp_path, fake, tools=tools) as talk:
        for i in range(3):
            talk.send(f"{i} {big}")
        size = fake.requests[-1].usage.total_tokens  # type: ignore[union-attr]
        lie = {"input_tokens": int(size * factor), "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}
        fake.enqueue(reply("answer 3", usage=lie), "answer 4")
        talk.send("3")
        assert talk.bodies(UsageReported)[-1].usage["input_tokens"] == lie["input_tokens"]
        assert abs(talk.seen(StepEnded)[-1].context_tokens - size) < 0.02 * size
        assert abs(talk.seen(TurnDone)[-1].context_tokens - size) < 0.02 * size
        assert abs(talk.session.occupancy().used_tokens - size) < 0.02 * size
        talk.send("4")
        assert abs(talk.seen(StepBegan)[-1].context_tokens - size) < 0.02 * size


def test_ten_calls_of_one_turn_are_not_added_up(make_fake: Callable[..., FakeMessagesAPI], tmp_path: Path) -> None:
    """openclaw.md 158."""
    fake = make_fake()
    same = {"input_tokens": 2_000, "cache_read_input_tokens": 60_000, "cache_creation_input_tokens": 0, "output_tokens": 1,
            "cache_creation": None}  # fmt: skip
    fake.enqueue(*[reply(call("look", {"x": i}), usage=same) for i in range(9)], reply("ok", usage=same))
    prompt = "The quick brown fox jumps over the lazy dog. " * 6000
    with Talk(tmp_path, fake, tools=Traffic().tools()) as talk:
        done = talk.send(prompt)
        assert len(fake.requests) == 10
        assert done.context_tokens == talk.seen(TurnDone)[-1].context_tokens == 62_000
        assert talk.seen(StepEnded)[-1].context_tokens == 62_000
        assert abs(talk.session.occupancy().used_tokens - 62_000) < 100


def test_iterations_are_billed_together_and_the_last_is_the_size(
    make_fake: Callable[..., FakeMessagesAPI], tmp_path: Path
) -> None:
    """claude.md 67."""
    iterations = [
        {"type": "compaction", "input_tokens": 180_000, "output_tokens": 3_500},
        {"type": "message", "input_tokens": 23_000, "output_tokens": 1_000},
    ]
    usage = {"input_tokens": 23_000, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0,
             "output_tokens": 1_000, "iterations": iterations}  # fmt: skip
    read = Usage.from_wire(usage)
    assert (read.total_after, read.billed_input_tokens, read.output_tokens) == (24_000, 203_000, 4_500)
    fake = make_fake(reply("ok", usage=usage))
    with Talk(tmp_path, fake, tools={}) as talk:
        done = talk.send("The quick brown fox jumps over the lazy dog. " * 2200)
        assert done.context_tokens == 23_000
        assert talk.session.occupancy().used_tokens == 24_000
        assert done.output.cost_usd == pytest.approx((203_000 * 2 + 4_500 * 10) / 1e6)


@pytest.mark.prefix_moves(reason="the conversation goes back to an earlier turn")
def test_after_a_revert_the_size_is_that_of_the_place_one_is_at(fake: FakeMessagesAPI, tmp_path: Path) -> None:
    fake.enqueue("one", "two", "three")
    with Talk(tmp_path, fake, tools=Traffic().tools()) as talk:
        talk.send("short")
        small = talk.session.occupancy().used_tokens
        talk.send("long " * 5000)
        assert talk.session.occupancy().used_tokens > 5 * small
        talk.session.revert("1")
        assert talk.session.occupancy().used_tokens == small
        talk.send("short again")
        size = fake.requests[-1].usage.total_tokens  # type: ignore[union-attr]
        assert abs(talk.seen(StepBegan)[-1].context_tokens - size) < 40


def test_looking_between_call_and_report_changes_nothing(
    make_fake: Callable[..., FakeMessagesAPI], tmp_path: Path
) -> None:
    """A panel may ask for the occupancy while a reply streams."""
    sizes: list[list[int]] = []
    for peeks in (False, True):
        fake = make_fake(*[reply("Step.", call("look", {"x": i})) for i in range(5)], "ok")
        with Talk(tmp_path / str(int(peeks)), fake, tools=Traffic().tools()) as talk:
            shown = talk.ports.sink

            def sink(event: Any, talk: Talk = talk, peeks: bool = peeks, shown: Any = shown) -> None:
                shown(event)
                if peeks and isinstance(event, TextDelta | StepBegan | StepEnded):
                    talk.session.occupancy()

            talk.ports.sink = sink
            talk.send("look")
            sizes.append([e.context_tokens for e in talk.seen(StepBegan)])
    assert sizes[0] == sizes[1]
