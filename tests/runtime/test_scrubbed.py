"""What a turn shows holds no secret: events of every kind, streamed text, questions, failures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nbagent.core.effects import (
    Notice,
    StepBegan,
    StepEnded,
    TextDelta,
    ThinkingDelta,
    ToolBegan,
    ToolEnded,
    TurnBegan,
    TurnDone,
    Waiting,
)
from nbagent.core.errors import UsageProblem
from nbagent.models.scripted import calls, says
from nbagent.runtime.scrubbed import ScrubbedSink, ScrubbedText, hide_secrets
from nbagent.store.secrets import Scrubber
from tests.runtime.lab import Lab

KEY = "sk-ant-api03-" + "aB3" * 12
PASSWORD = "tulip4horse9"
FIGURES = {"steps": 1, "context_tokens": 1, "window_tokens": 1, "cost_usd": 0.0, "duration_s": 0.0}


def through(*events: Any) -> list[Any]:
    seen: list[Any] = []
    sink = ScrubbedSink(seen.append, Scrubber([PASSWORD]))
    for event in events:
        sink(event)
    return seen


@pytest.mark.parametrize(
    "event",
    [
        ToolBegan(call_id="a", name="python", summary=f"print({KEY!r})", input={"code": f"print({KEY!r})"}),
        ToolEnded(call_id="a", name="python", summary="", status="ok", text=f"it is {PASSWORD}", duration_s=0.1),
        StepEnded(step=1, blocks=(says(f"It is {KEY}"),), cut=f"{KEY}", context_tokens=1, cost_usd=0.0),
        Notice(text=f"refused {KEY}"),
        Waiting(reason=f"Illegal header value b'Bearer {KEY}'", seconds=1.0, attempt=1),
        TurnDone(outcome="error", message=f"the key {KEY} was refused", **FIGURES),
    ],
)
def test_no_event_brings_a_secret_to_a_display(event: Any) -> None:
    (seen,) = through(event)
    assert KEY not in repr(seen)
    assert PASSWORD not in repr(seen)
    assert "[secret:" in repr(seen)


def test_an_event_without_a_secret_is_passed_on_as_it_is() -> None:
    events = [TurnBegan(turn="t", number=1, model="m", window_tokens=1), Notice(text="hi"), TextDelta(index=0, text="a ")]
    assert all(a is b for a, b in zip(through(*events), events, strict=True))


@pytest.mark.parametrize("size", [1, 2, 3, 7, 40])
@pytest.mark.parametrize("kind", [TextDelta, ThinkingDelta])
def test_a_secret_is_not_streamed_however_it_is_cut(size: int, kind: type[Any]) -> None:
    text = f"The key is {KEY} and the password\n{PASSWORD} of all."
    deltas = [kind(index=0, text=text[i : i + size]) for i in range(0, len(text), size)]
    end = StepEnded(step=1, blocks=(), cut=None, context_tokens=1, cost_usd=0.0)
    shown = "".join(e.text for e in through(*deltas, end) if isinstance(e, kind))
    assert KEY[:12] not in shown
    assert PASSWORD[:6] not in shown
    assert "[secret:anthropic-key] and the password\n" in shown
    assert shown.endswith(" of all.")


def test_a_word_that_only_looks_like_the_beginning_of_a_secret_comes_whole_and_once() -> None:
    end = StepEnded(step=1, blocks=(says("See https://x.org"),), cut=None, context_tokens=1, cost_usd=0.0)
    seen = through(TextDelta(index=0, text="See https://"), TextDelta(index=0, text="x.org"), end)
    assert "".join(e.text for e in seen if isinstance(e, TextDelta)) == "See https://x.org"
    assert seen[-1] is end


def test_what_was_held_of_a_broken_reply_is_not_shown_with_the_next_one() -> None:
    begin = StepBegan(step=1, context_tokens=1, cost_usd=0.0)
    wait = Waiting(reason="overloaded", seconds=1.0, attempt=1)
    seen = through(begin, TextDelta(index=0, text="token"), wait, TextDelta(index=0, text="Fine."))
    assert [e.text for e in seen if isinstance(e, TextDelta)] == ["Fine."]


def test_a_turn_shows_and_asks_without_the_secret_that_its_code_holds_and_prints(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "work", environ={"SHOP_PASSWORD": PASSWORD})
    lab.answers = ["y", "y"]
    code = f"pad = {'x' * 95!r}; print({PASSWORD[:5]!r} + {PASSWORD[5:]!r}, {KEY[:9]!r} + {KEY[9:]!r})"
    lab.open([[says(f"Use {KEY} now."), calls("python", code=code), calls("python", code=f"# {KEY}")], says(f"It was {PASSWORD}.")])
    done = lab.send("go")
    shown = repr(lab.events) + repr(lab.asked) + done.output.text
    assert lab.kernel.ran[0] == code
    assert len(lab.asked) == 2
    assert {ToolBegan, ToolEnded, TextDelta, StepEnded} <= {type(e) for e in lab.events}
    assert KEY[:16] not in shown
    assert PASSWORD[:6] not in shown
    assert "[secret:env]" in done.output.text


def test_code_that_holds_a_secret_runs_as_it_was_written_and_is_kept_without_it(tmp_path: Path) -> None:
    """peers 106: what is kept is scrubbed, what runs is not broken by it."""
    lab = Lab(tmp_path / "work", mode="auto")
    codes = ["login = {'password': 'hunter2hunter2'}\nlogin", f"key = '{KEY}'; len(key)", "url = 'db://me:pa55word@host/x'\nurl"]
    lab.open([[calls("python", code=c) for c in codes], says("ok")])
    lab.answers = ["y"] * 3
    lab.send("go")
    assert lab.kernel.ran == codes
    assert lab.kernel.names["key"] == KEY
    kept = lab.session.place.journal.read_text()
    assert not any(secret in kept for secret in (KEY[:16], "hunter2hunter2", "pa55word"))
    assert "login = {'password': '[secret:password]'}" in kept
    assert KEY[:16] not in repr(lab.events) + repr(lab.asked)


@pytest.mark.parametrize(
    ("pieces", "shown"),
    [
        (["password: ", "hunter2hunter2", "\n", "next"], ["password: [secret:password]\n", "next"]),
        ([KEY[:9], KEY[9:], "\n"], ["[secret:anthropic-key]\n"]),
        (["50 tokens", "\r60 tokens", "\rdone\n"], ["50 tokens\r", "60 tokens\rdone\n"]),
        (["no newline at the end"], ["no newline at the end"]),
        (["token=", "a1b2c3d4e5f6"], ["token=[secret:password]"]),
    ],
)
def test_a_line_that_may_become_a_secret_waits_for_its_end(pieces: list[str], shown: list[str]) -> None:
    text = ScrubbedText(Scrubber(), ends="\n\r")
    assert [t for t in (*map(text.take, pieces), text.end()) if t] == shown


def test_an_error_that_is_raised_holds_no_secret() -> None:
    error = UsageProblem(f"the line {KEY!r} cannot be read; the password is {PASSWORD}")
    hide_secrets(error, {"DB_PASSWORD": PASSWORD})
    assert str(error) == "the line '[secret:anthropic-key]' cannot be read; the password is [secret:env]"
    plain = ValueError(KEY)
    hide_secrets(plain, {})
    assert str(plain) == KEY


@pytest.mark.parametrize("tool", ["python", "shell"])
def test_a_full_text_kept_beside_the_journal_holds_no_secret(tmp_path: Path, tool: str) -> None:
    lab = Lab(tmp_path / "work", environ={"DB_PASSWORD": PASSWORD})
    text = f"{KEY}\n" * 4 + f"the password is {PASSWORD}\n" + "line\n" * 40_000
    (tmp_path / "work" / "keys.txt").write_text(text)
    given = {"python": {"code": "print(TEXT)"}, "shell": {"command": "cat keys.txt"}}[tool]
    lab.kernel.names["TEXT"] = text
    lab.open([calls(tool, **given), says("done")])
    lab.answers = ["y"]
    lab.send("print the file")
    kept = [p.read_text() for p in lab.session.runner.artifacts.folder.iterdir()]
    (full,) = [text for text in kept if text.count("line\n") >= 39_999]
    assert full.startswith("[secret:anthropic-key]\n" * 4 + "the password is [secret:env]\n")
