"""Session, driver and client against the wire fake: whatever goes wrong, the journal goes on and the next request holds.

The fixtures check after every test that requests extend each other (MA-C1) and that none was refused.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nbagent.core.effects import StepBegan, StepEnded, TextDelta, ToolBegan, TurnDone, Waiting
from nbagent.core.entries import AssistantMessage, ToolResult, TurnEnd, UsageReported, UserMessage
from nbagent.core.errors import JournalUnwritable, MissingKey
from nbagent.runtime import closing
from nbagent.tools.registry import builtin_tools
from tests.fakes import replies
from tests.fakes.messages_api import FakeMessagesAPI, Fault, call, extends, redacted, reply, server_call, thinking
from tests.fakes.ways import both_ways  # noqa: F401
from tests.patience import FOREVER_S, HANG_S
from tests.runtime.talk import MODEL, Probe, Talk

BINDING = ("claude-sonnet-5-5", "claude-opus-5-5", "claude-haiku-5-5")
LONG = "0123456789" * 12


async def echo(input: Any) -> str:
    return f"got {json.dumps(input, sort_keys=True, ensure_ascii=False)}"


TOOLS = {"probe": Probe("probe", echo), "look": Probe("look", echo, concurrent=True)}


@pytest.fixture
def talk(tmp_path: Path, fake: FakeMessagesAPI) -> Any:
    with Talk(tmp_path, fake, tools=TOOLS) as made:
        yield made


def user_texts(fake: FakeMessagesAPI) -> list[str]:
    """Every text of the person's side in the last request."""
    return [
        b["text"]
        for m in fake.requests[-1].body["messages"]
        if m["role"] == "user"
        for b in m["content"]
        if b["type"] == "text" and not b["text"].startswith("<notebook-state>")
    ]


# ------------------------------------------------------------ failures before anything came


@pytest.mark.parametrize(
    "fault",
    [
        replies.rate_limited(3, attempts=2), replies.overloaded(attempts=2), replies.http_error(500, attempts=2),
        replies.http_error(502, body="<html>502</html>", attempts=2),
        replies.first_error_event(),
        replies.empty_stream(),
        replies.not_json(),
    ],
    ids=lambda fault: f"{fault.kind}-{fault.status}",
)  # fmt: skip
def test_a_retried_call_leaves_one_message_and_shows_each_wait(talk: Talk, fake: FakeMessagesAPI, fault: Fault) -> None:
    """openclaw.md 146; claude.md 77."""
    fake.enqueue(reply("whole", fault=fault), *([] if fault.attempts else ["whole"]))
    done = talk.send("only once")
    assert (done.output.outcome, done.output.text) == ("completed", "whole")
    assert user_texts(fake) == ["only once"]
    assert len(talk.bodies(UserMessage)) == len(talk.bodies(AssistantMessage)) == 1
    assert len(talk.seen(Waiting)) == len(talk.slept) == len(fake.requests) - 1 > 0


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (replies.rate_limited(86400), "86400 s"),
        (replies.http_error(401, "invalid x-api-key"), "ANTHROPIC_API_KEY"),
        (replies.http_error(402), "billing"),
        (replies.http_error(403), "HTTP 403"),
        (replies.http_error(404, "model: x"), "%agent model"),
        (replies.too_large(), "%context compact"),
        (replies.http_error(400, "prompt is too long: 208380 tokens > 200000 maximum"), "%context compact"),
    ],
    ids=lambda value: value if isinstance(value, str) else str(value.status),
)
def test_a_failed_call_ends_the_turn_with_one_line_and_can_be_resumed(
    talk: Talk, fake: FakeMessagesAPI, fault: Fault, words: str
) -> None:
    fake.enqueue(reply(fault=fault), "now it works")
    done = talk.send("do it")
    assert done.output.outcome == "error"
    assert words in done.output.message
    assert "\n" not in done.output.message
    assert talk.slept == []
    assert talk.bodies(AssistantMessage) == []
    assert talk.resume().output.text == "now it works"
    assert user_texts(fake) == ["do it"]


@pytest.mark.parametrize(
    "fault",
    [
        *(replies.http_error(status, "no") for status in (400, 401, 402, 403, 404, 412, 413, 418, 422, 431, 499)),
        replies.http_error(500, "no", headers={"x-should-retry": "false"}), replies.http_error(204),
        replies.eof(), replies.reset(), replies.error_event(), replies.malformed_frame(),
    ],
    ids=lambda fault: f"{fault.kind} {fault.status}",
)  # fmt: skip
def test_a_call_that_brings_nothing_says_what_to_do(talk: Talk, fake: FakeMessagesAPI, fault: Fault) -> None:
    """claude.md A4, A13: whatever the status, and wherever the stream ends."""
    fake.enqueue(reply(thinking("hm"), fault=fault))
    said = talk.send("do it").output.message
    assert "kept" not in said
    assert any(f"`%{word}" in said for word in ("agent resume", "agent model", "agent fork", "context")) or "check " in said


def test_a_new_prompt_after_a_failed_call_is_a_valid_request(talk: Talk, fake: FakeMessagesAPI) -> None:
    fake.enqueue(reply(fault=replies.http_error(403)), "hello again")
    talk.send("first")
    assert talk.send("second").output.outcome == "completed"
    assert user_texts(fake) == ["first", "second"]


@pytest.mark.refused(reason="the conversation is larger than the fake's window")
@pytest.mark.prefix_moves(reason="what does not fit is compacted before it is told")
def test_the_services_own_overflow_is_told(make_fake: Callable[..., FakeMessagesAPI], tmp_path: Path) -> None:
    """claude.md 68: an overflow 400 has a kind of its own. The service takes less than it said it would."""
    fake = make_fake("hello")
    with Talk(tmp_path, fake, tools=TOOLS) as talk:
        assert talk.send("hi").output.text == "hello"
        fake.window_tokens = 500
        done = talk.send("x" * 4000)
    assert "larger than the model's window" in done.output.message
    assert "prompt is too long" in done.output.message


def test_a_connection_that_is_refused_is_told_and_the_turn_can_go_on(tmp_path: Path, make_fake: Callable[..., FakeMessagesAPI]) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]  # nobody listens there
        environ = {"ANTHROPIC_BASE_URL": f"http://127.0.0.1:{port}"}
        with Talk(tmp_path, None, tools=TOOLS, environ=environ, max_tries=2) as talk:
            done = talk.send("are you there")
            assert done.output.outcome == "error"
            assert "cannot be reached" in done.output.message
    fake = make_fake("here now", port=port)
    with Talk(tmp_path, fake, tools=TOOLS) as talk:
        assert talk.resume().output.text == "here now"


def test_a_wait_is_stopped_and_not_sat_out(tmp_path: Path, make_fake: Callable[..., FakeMessagesAPI]) -> None:
    """claude.md 77; DECISIONS 12."""
    fake = make_fake(reply(fault=replies.rate_limited(30)))

    async def without_end(seconds: float) -> None:
        await asyncio.Event().wait()

    with Talk(tmp_path, fake, tools=TOOLS, sleep=without_end) as talk:
        done = talk.send_and_stop(lambda event: isinstance(event, Waiting))
    assert done.output.outcome == "stopped"


# ------------------------------------------------------------ failures in mid-stream


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (replies.error_event(after=3), "overloaded"),
        (replies.reset(after=3), "connection broke"),
        (replies.stall(FOREVER_S, after=3), "in time"),
        (replies.eof(after=3), "not whole"),
        (replies.malformed_frame(after=3), "cannot be read"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.kind,
)
@pytest.mark.parametrize("how", ["resume", "new prompt"])
def test_a_reply_that_breaks_off_is_kept_and_marked_and_the_conversation_goes_on(
    tmp_path: Path, fake: FakeMessagesAPI, fault: Fault, words: str, how: str
) -> None:
    """claude.md 76; openclaw.md 155."""
    fake.enqueue(reply(LONG, fault=fault, delta_size_chars=10), "and on")
    with Talk(tmp_path, fake, tools=TOOLS) as talk:
        talk.leap_over_stalls(fake)
        done = talk.send("tell me")
        assert done.output.outcome == "error"
        assert words in done.output.message
        assert "HTTP 200" not in done.output.message
        (kept,) = talk.bodies(AssistantMessage)
        assert kept.cut
        assert kept.blocks[0]["text"] == "".join(e.text for e in talk.seen(TextDelta)) == LONG[:30]
        after = talk.resume() if how == "resume" else talk.send("what else")
        assert (after.output.outcome, after.output.text) == ("completed", "and on")
    assert any("not whole" in text for text in user_texts(fake))


@pytest.mark.parametrize("fault", [replies.cut_tool_json(after=8), replies.eof(after=4), replies.reset(after=4)], ids=lambda f: f.kind)
def test_a_call_that_was_cut_is_not_run_and_the_next_request_is_valid(
    tmp_path: Path, fake: FakeMessagesAPI, fault: Fault
) -> None:
    """claude.md 74; openclaw.md 155."""
    fake.enqueue(reply("I try.", call("probe", {"path": "/a/b/c/d"}), fault=fault, delta_size_chars=4), "fine")
    with Talk(tmp_path, fake, tools=TOOLS) as talk:
        assert talk.send("do it").output.outcome in ("cut_off", "error")
        assert talk.seen(ToolBegan) == []
        assert talk.resume().output.text == "fine"


def test_a_whole_call_before_the_output_limit_is_answered_but_not_run(talk: Talk, fake: FakeMessagesAPI) -> None:
    """claude.md 74."""
    fake.enqueue(reply(call("probe", {"x": 1}), stop_reason="max_tokens"), "fine")
    assert talk.send("do it").output.outcome == "cut_off"
    assert [r.status for r in talk.bodies(ToolResult)] == ["not_run"]
    assert talk.resume().output.text == "fine"


def open_connections(talk: Talk) -> list[Any]:
    """Return the connections of the way that requests go. There is no public way to see them."""
    direct = talk.model._direct and talk.model._direct._session
    if direct is None:
        return list(talk.model._client._client._transport._pool.connections)
    return [*direct.connector._acquired, *(c for idle in direct.connector._conns.values() for c in idle)]


def test_a_stop_keeps_what_came_and_closes_the_connection(talk: Talk, fake: FakeMessagesAPI) -> None:
    fake.enqueue(reply(LONG, fault=replies.stall(FOREVER_S, after=3), delta_size_chars=10), "on we go")
    came: list[str] = []

    def the_third(event: Any) -> bool:
        if not isinstance(event, TextDelta):
            return False
        came.append(event.text)
        return len(came) == 3

    done = talk.send_and_stop(the_third)
    assert done.output.outcome == "stopped"
    (kept,) = talk.bodies(AssistantMessage)
    assert (kept.cut, kept.blocks[0]["text"]) == ("stopped", LONG[:30])
    assert open_connections(talk) == []
    assert talk.resume().output.text == "on we go"


def test_a_reply_that_was_being_written_when_the_process_died_is_found_again(tmp_path: Path, fake: FakeMessagesAPI) -> None:
    """DECISIONS 5: what was finished of it is kept; a cut call is not."""
    fake.enqueue(reply("First part.", "Second part.", call("probe", {"path": "/a/b/c"}), fault=replies.stall(FOREVER_S, after=3)), "so be it")
    journal = tmp_path / ".nbagent" / "sessions" / "x"
    partial = journal / "partial.json"
    with Talk(tmp_path, fake, tools=TOOLS) as talk:
        left: list[bytes] = []

        async def crash() -> None:
            task = asyncio.ensure_future(talk.sending("go"))
            while not partial.exists() or b"Second" not in partial.read_bytes():
                await asyncio.sleep(0.01)
            left.append(partial.read_bytes())
            left.append((journal / "journal.jsonl").read_bytes())
            task.cancel()
            await task

        talk.run(crash())
    partial.write_bytes(left[0])  # as it was when the process died
    (journal / "journal.jsonl").write_bytes(left[1])
    with Talk(tmp_path, fake, tools=TOOLS) as talk:
        (kept,) = talk.bodies(AssistantMessage)
        assert [b["text"] for b in kept.blocks] == ["First part.", "Second part."]
        assert kept.cut
        assert talk.resume().output.text == "so be it"
    assert not partial.exists()


# ------------------------------------------------------------ odd replies


@pytest.mark.parametrize("reason", ["end_turn", "brand_new_reason"])
def test_an_unknown_block_goes_back_with_all_its_fields(talk: Talk, fake: FakeMessagesAPI, reason: str) -> None:
    """claude.md 79."""
    strange = {"type": "hologram", "angle": 3, "deep": {"b": [1, None], "a": "é"}}
    fake.enqueue(reply("See:", strange, stop_reason=reason, fault=replies.unknown_event()), "ok")
    assert talk.send("show").output.outcome == "completed"
    talk.send("again")
    back = fake.requests[-1].body["messages"][1]["content"]
    assert json.dumps(back[1]) == json.dumps(strange)


@pytest.mark.parametrize(
    ("sent", "received"),
    [
        ("[1, 2]", None),
        ('"text"', None),
        ('{"x": NaN}', '{"x": "NaN"}'),
        ('{"x": 1, "x": 2}', '{"x": 2}'),
        ('{"x": "\\ud83d"}', '{"x": "\ufffd"}'),
        ('{"x": "\\u0000\\u2028"}', None),
    ],
)
def test_a_strange_input_is_answered_and_the_next_request_is_valid(
    talk: Talk, fake: FakeMessagesAPI, sent: str, received: str | None
) -> None:
    """claude.md A4, H 10: arrays, NaN, duplicate keys, half characters."""
    fake.enqueue(reply(call("probe", sent)), "done")
    assert talk.send("do it").output.outcome == "completed"
    (result,) = talk.bodies(ToolResult)
    if sent.startswith("{"):
        assert result.status == "ok"
        assert received is None or result.content[0]["text"] == f"got {received}"
    else:
        assert result.status == "error"
        assert "must be a JSON object" in result.content[0]["text"]


def test_empty_deltas_are_nothing(talk: Talk, fake: FakeMessagesAPI) -> None:
    fake.enqueue(reply("", "said", ""), "ok")
    assert talk.send("go").output.text == "said"
    talk.send("more")
    assert [b["text"] for b in fake.requests[-1].body["messages"][1]["content"]] == ["said"]


def test_missing_usage_leaves_no_hole(talk: Talk, fake: FakeMessagesAPI) -> None:
    fake.enqueue(reply("said", fault=replies.no_usage()), "ok")
    assert talk.send("go").output.outcome == "completed"
    assert talk.bodies(UsageReported)[0].usage["input_tokens"] >= 0
    assert talk.send("more").output.outcome == "completed"


def test_a_refusal_says_why(talk: Talk, fake: FakeMessagesAPI) -> None:
    details = {"type": "refusal", "category": "cyber", "explanation": "no malware"}
    fake.enqueue(reply("I cannot", stop_reason="refusal", stop_details=details), "ok")
    done = talk.send("write a virus")
    assert done.output.outcome == "refusal"
    assert "no malware" in done.output.message
    assert talk.send("then a poem").output.outcome == "completed"


def test_a_paused_turn_is_sent_back_as_it_came(talk: Talk, fake: FakeMessagesAPI) -> None:
    fake.enqueue(reply("searching", server_call("web_search", {"q": "x"}, None), stop_reason="pause_turn"),
                 reply(server_call("web_search", {"q": "x"}, [{"type": "web_search_result"}])[1:], "found"))  # fmt: skip
    assert talk.send("search").output.outcome == "completed"
    assert len(fake.requests) == 2
    assert fake.requests[1].body["messages"][-1]["role"] == "assistant"


def test_a_full_window_ends_the_turn_and_names_the_way_out(talk: Talk, fake: FakeMessagesAPI) -> None:
    fake.enqueue(reply("half", stop_reason="model_context_window_exceeded"), "ok")
    done = talk.send("go")
    assert done.output.outcome == "window_full"
    assert "%context compact" in done.output.message
    assert talk.send("more").output.outcome == "completed"


# ------------------------------------------------------------ thinking


@pytest.mark.parametrize("model", BINDING)
def test_thinking_goes_back_byte_for_byte_over_several_turns(tmp_path: Path, fake: FakeMessagesAPI, model: str) -> None:
    """claude.md 80, A6: the fake refuses a block whose prefix moved, and one that changed."""
    for turn in range(3):
        fake.enqueue(
            reply(thinking(f"plan {turn}"), redacted(), "I look.", call("probe", {"b": 1, "a": turn}), call("look", {"x": "é"})),
            reply(thinking(f"so {turn}"), "again", call("look", {})),
            reply(thinking("done"), f"answer {turn}"),
        )
    with Talk(tmp_path, fake, model=model, tools=TOOLS) as talk:
        for turn in range(3):
            assert talk.send(f"question {turn}").output.outcome == "completed"
    with Talk(tmp_path, fake, model=model, tools=TOOLS) as talk:  # also after a restart
        fake.enqueue("still here")
        talk.cells = 3
        assert talk.send("and now").output.outcome == "completed"
    first = [r.body["messages"][1] for r in fake.requests[1:]]
    assert len({json.dumps(_bare(m)) for m in first}) == 1
    assert not any(v is None for m in first for b in m["content"] for v in b.values())


def _bare(message: Any) -> Any:
    return {**message, "content": [{k: v for k, v in b.items() if k != "cache_control"} for b in message["content"]]}


def test_parallel_calls_are_answered_together_in_one_message(talk: Talk, fake: FakeMessagesAPI) -> None:
    fake.enqueue(reply(call("look", {"x": 1}), call("probe", {"x": 2}), call("look", {"x": 3}), call("nothing", {})), "ok")
    assert talk.send("go").output.outcome == "completed"
    results = fake.requests[-1].body["messages"][-1]["content"]
    assert [b["type"] for b in results] == ["tool_result"] * 4
    assert [b.get("is_error", False) for b in results] == [False, False, False, True]


# ------------------------------------------------------------ before anything is written


def test_without_a_key_nothing_is_asked_and_nothing_is_written(tmp_path: Path, fake: FakeMessagesAPI) -> None:
    with Talk(tmp_path, fake, environ={"ANTHROPIC_API_KEY": ""}) as talk:
        with pytest.raises(MissingKey, match="ANTHROPIC_API_KEY"):
            talk.send("hi")
        assert list(talk.session.tree) == []
    assert (tmp_path / ".nbagent" / "sessions" / "x" / "journal.jsonl").read_bytes() == b""
    assert fake.requests == []


def test_offline_asks_nothing_and_writes_nothing(tmp_path: Path) -> None:
    environ = {"NBAGENT_OFFLINE": "1", "ANTHROPIC_BASE_URL": "https://api.example.org"}
    with Talk(tmp_path, None, environ=environ) as talk:
        with pytest.raises(MissingKey, match="NBAGENT_OFFLINE"):
            talk.send("hi")
        assert list(talk.session.tree) == []


def test_the_provider_tells_the_window_once(make_fake: Callable[..., FakeMessagesAPI], tmp_path: Path) -> None:
    fake = make_fake("a", "b", window_tokens=50_000)
    with Talk(tmp_path, fake, tools=TOOLS) as talk:
        assert talk.session.model().facts.window_tokens == 1_000_000
        assert talk.send("one").window_tokens == 50_000
        assert talk.session.occupancy().budget.window_tokens == 50_000
        facts = talk.session.model().facts
        talk.send("two")
        assert talk.session.model().facts is facts


# ------------------------------------------------------------ the bill


def test_fifty_calls_cost_a_seventh_of_their_price_and_no_turn_breaks_the_cache(
    make_fake: Callable[..., FakeMessagesAPI], tmp_path: Path
) -> None:
    """MA-C1, claude.md A7: each request reads all that the one before wrote."""
    clock = [0.0]

    async def rows(input: Any) -> str:
        clock[0] += 20
        return "\n".join(f"row {input['x']}.{i}: " + "value " * 8 for i in range(25))

    fake = make_fake(clock=lambda: clock[0])
    tools = {t.spec.name: t for t in builtin_tools()} | {"probe": Probe("probe", rows)}
    for turn in range(2):
        calls = [reply(thinking(f"step {i}"), "Next.", call("probe", {"x": 100 * turn + i})) for i in range(49)]
        fake.enqueue(*calls, f"answer {turn}")
    with Talk(tmp_path, fake, tools=tools) as talk:
        talk.send("first task", max_steps=60)
        assert len(fake.requests) == 50
        bill = fake.bill()
        assert bill.with_caching <= 0.145 * bill.without_caching
        talk.send("second task", max_steps=60)
    usages = [r.usage for r in fake.requests]
    breaks = [i for i, (a, b) in enumerate(itertools.pairwise(usages)) if a and b and b.read_tokens < a.total_tokens]
    assert breaks == []


def test_many_parallel_calls_do_not_break_the_cache(make_fake: Callable[..., FakeMessagesAPI], tmp_path: Path) -> None:
    """claude.md A7: a read looks back 20 blocks, and one step may bring more."""
    fake = make_fake(min_cache_tokens=1)
    fake.enqueue(*[reply(*[call("look", {"x": i}) for i in range(30)]) for _ in range(3)], "ok")
    with Talk(tmp_path, fake, tools=TOOLS) as talk:
        talk.send("look at it all")
    usages = [r.usage for r in fake.requests]
    for before, after in itertools.pairwise(usages):
        assert before is not None
        assert after is not None
        assert after.read_tokens == before.total_tokens


# ------------------------------------------------------------ a full disk


class Disk:
    """Makes every write of the journal and its neighbours fail while `full`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import errno

        from nbagent.store import files, journal

        self.full = False
        real = files.write_all

        def write_all(fd: int, content: bytes) -> None:
            if self.full:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            real(fd, content)

        monkeypatch.setattr(files, "write_all", write_all)
        monkeypatch.setattr(journal, "write_all", write_all)


def test_a_reply_outlives_a_partial_that_cannot_be_written(
    talk: Talk, fake: FakeMessagesAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk was full for a moment only: nothing of the reply is lost."""
    disk = Disk(monkeypatch)
    fake.enqueue(reply("one", "two", "three", fault=replies.stall(0.05, after=2)))
    shown = talk.ports.sink

    def sink(event: Any) -> None:
        shown(event)
        disk.full = isinstance(event, StepBegan | TextDelta)
    talk.ports.sink = sink
    done = talk.send("count")
    assert (done.output.outcome, done.output.text) == ("completed", "one\n\ntwo\n\nthree")
    assert next(e.text for e in talk.events if e.kind == "notice").startswith("the running reply cannot be kept yet")


def test_a_full_disk_ends_the_turn_with_one_line_and_the_session_goes_on_when_there_is_space(
    tmp_path: Path, fake: FakeMessagesAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    fake.enqueue(reply(thinking("hm"), "part one", "part two"), "and on")
    with Talk(tmp_path, fake, tools=TOOLS) as talk:
        shown = talk.ports.sink

        def sink(event: Any) -> None:
            shown(event)
            disk.full = isinstance(event, StepEnded)
        talk.ports.sink = sink
        with pytest.raises(JournalUnwritable) as caught:
            talk.send("tell me")
        assert "\n" not in str(caught.value)
        assert talk.bodies(AssistantMessage) == []
        disk.full = False
        talk.ports.sink = shown
        assert talk.send("go on").output.text == "and on"
        kept = talk.bodies(AssistantMessage)[0]
        assert [b["text"] for b in kept.blocks if b["type"] == "text"] == ["part one", "part two"]
    with Talk(tmp_path, fake, tools=TOOLS) as talk:
        assert talk.session.opened.diagnostics == ()
        assert [e.outcome for e in talk.bodies(TurnEnd)] == ["stopped", "completed"]


def test_a_disk_that_fills_while_tools_run_leaves_no_tool_running(
    tmp_path: Path, fake: FakeMessagesAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    ended: list[str] = []

    async def slow(input: Any) -> str:
        try:
            await asyncio.sleep(FOREVER_S)
        finally:
            ended.append("slow")
        return "never"

    async def filling(input: Any) -> str:
        disk.full = True
        return "the disk is full now"

    tools = {"slow": Probe("slow", slow, concurrent=True), "fill": Probe("fill", filling, concurrent=True)}
    fake.enqueue(reply(call("slow", {}), call("fill", {})), "and on")
    with Talk(tmp_path, fake, tools=tools) as talk:
        with pytest.raises(JournalUnwritable):
            talk.send("go")
        assert ended == ["slow"]
        disk.full = False
        assert talk.send("go on").output.text == "and on"
        assert [r.status for r in talk.bodies(ToolResult)] == ["interrupted", "interrupted"]


# ------------------------------------------------------------ the rules themselves


def test_extends_notices_a_moved_prefix() -> None:
    """The check above would see a fault: one byte before the end is enough."""
    a = {"messages": [{"role": "user", "content": "a"}]}
    b = {"messages": [{"role": "user", "content": "b"}, {"role": "assistant", "content": "c"}]}
    assert extends(a, a) is None
    assert extends(a, b) is not None


@pytest.mark.prefix_moves(reason="a fork goes back to an earlier place")
def test_a_fork_shares_its_prefix(talk: Talk, fake: FakeMessagesAPI) -> None:
    fake.enqueue("one", "two", "three")
    talk.send("first")
    talk.send("second")
    talk.session.fork("-1")
    talk.send("another")
    assert extends(fake.requests[0].body, fake.requests[2].body) is None
    assert extends(fake.requests[1].body, fake.requests[2].body) is not None
    assert talk.seen(TurnDone)[-1].outcome == "completed"


def test_two_models_in_one_notebook_are_two_conversations_on_the_wire(tmp_path: Path, fake: FakeMessagesAPI) -> None:
    """claude.md A6: the thinking of another model is left out; the fake refuses it."""
    fake.enqueue(reply(thinking("a"), "one"), reply(thinking("b"), "two"), reply(thinking("c"), "three"))
    with Talk(tmp_path, fake, tools=TOOLS) as talk:
        assert [talk.send(p, model=m).output.outcome for p, m in (("x", MODEL), ("y", "claude-opus-5-5"), ("z", "claude-opus-5-5"))] == ["completed"] * 3


def test_closing_a_session_closes_the_connections_of_its_models(
    talk: Talk, fake: FakeMessagesAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine's loop runs on a thread of its own, as in a kernel."""
    monkeypatch.setattr(closing, "CLOSE_S", HANG_S)  # a person waits a moment only
    fake.enqueue("one", "two")
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        for _ in range(2):
            asyncio.run_coroutine_threadsafe(talk.sending(), loop).result(HANG_S)
        opened = [talk.model._client, talk.model._direct]
        talk.session.close()
        assert [talk.model._client, talk.model._direct] == [None, None]
        assert opened[0].is_closed()
        assert opened[1]._session is None  # no public way to see it
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(HANG_S)
        loop.close()
