"""`nbagent map`: one prompt over files, lines and rows; what is answered is kept, what failed is asked again."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from nbagent.cli import main
from nbagent.runtime.places import known_sessions
from nbagent.store.journal_reading import read_journal
from tests.fakes.messages_api import FakeMessagesAPI, Pace
from tests.fakes.replies import call, http_error, reply
from tests.patience import HANG_S

JSON = dict[str, Any]


def said(body: JSON) -> str:
    """Return all that the person said in a request, blocks apart."""
    content = body["messages"][-1]["content"]
    return "\n".join(b["text"] for b in content if b["type"] == "text")


def echo(body: JSON) -> Any:
    return reply(f"<{said(body).splitlines()[-1]}>")


def fails(status: int, error_type: str) -> Any:
    return reply("", fault=http_error(status, "no", error_type=error_type))


@pytest.fixture
def service() -> Iterator[Callable[..., FakeMessagesAPI]]:
    """Start a service on demand; the folder's settings and the environment lead to it."""
    running = []

    def start(*given: Any, **options: Any) -> FakeMessagesAPI:
        fake = FakeMessagesAPI(*given, **options)
        running.append(fake.__enter__())
        return fake

    yield start
    for fake in running:
        fake.__exit__(None, None, None)


@pytest.fixture
def ask(
    service: Callable[..., FakeMessagesAPI], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., FakeMessagesAPI]:
    """Run `nbagent map` in an own folder against a service that answers as `script` says."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")

    def run(*words: str, script: Any = echo, code: int = 0) -> FakeMessagesAPI:
        fake = service(script)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", fake.base_url)
        assert main(["map", *words]) == code
        assert fake.problems == []
        return fake

    return run


def rows(path: Path) -> list[JSON]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_each_line_is_asked_of_the_prompt(ask: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cities.txt").write_text("Bergen\n\n  Sevilla \n北京\n", "utf-8")
    fake = ask("Which country?", "cities.txt", "--each", "line", "--out", "out.jsonl")
    found = rows(tmp_path / "out.jsonl")
    assert [(r["number"], r["input"], r["text"]) for r in found] == [
        (1, "Bergen", "<Bergen>"), (2, "  Sevilla ", "<  Sevilla >"), (3, "北京", "<北京>"),
    ]  # fmt: skip
    assert {r["outcome"] for r in found} == {"completed"}
    assert all(r["cost_usd"] > 0 and r["steps"] == 1 and r["model"] == "claude-sonnet-5-5" for r in found)
    assert all("Which country?\n\n" in said(r.body) for r in fake.requests)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("3 answered, $")
    assert captured.err.endswith("; answers in out.jsonl\n")


def test_inputs_know_nothing_of_each_other_and_share_the_prefix(ask: Any, tmp_path: Path) -> None:
    (tmp_path / "n.txt").write_text("\n".join(map(str, range(9))))
    fake = ask("Double it.", "n.txt", "--each", "line", "--jobs", "3")
    assert len(fake.requests) == 9
    assert {len(r.body["messages"]) for r in fake.requests} == {1}
    assert len({json.dumps([r.body["system"], r.body["tools"]]) for r in fake.requests}) == 1
    names = {t["name"] for t in fake.requests[0].body["tools"]}
    assert "read" in names
    assert not names & {"python", "inspect", "notebook"}  # there is no kernel


def test_the_first_is_asked_alone_and_the_others_side_by_side(ask: Any, tmp_path: Path) -> None:
    """The provider has the prefix in its cache when the others come."""
    (tmp_path / "n.txt").write_text("\n".join(map(str, range(4))))
    together = threading.Barrier(3, timeout=HANG_S)
    seen: list[str] = []

    def answer(body: JSON) -> Any:
        seen.append(said(body).splitlines()[-1])
        if len(seen) > 1:
            together.wait()  # passed by none unless three are asked at once
        return reply("ok")

    ask("Go.", "n.txt", "--each", "line", "--jobs", "3", "--out", "o.jsonl", script=answer)
    assert seen[0] == "0"
    assert [r["text"] for r in rows(tmp_path / "o.jsonl")] == ["ok"] * 4


def test_a_file_goes_along_as_an_attachment(ask: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a b.md").write_text("Ship on Friday.")
    (tmp_path / "报告.txt").write_text("第一季度", "utf-8")
    fake = ask("What is {input} about? {}", "notes/a b.md", "报告.txt")
    first, second = (said(r.body) for r in fake.requests)
    assert '<attached file="notes/a b.md">\nShip on Friday.\n</attached>' in first
    assert "What is notes/a b.md about? {}" in first
    assert '<attached file="报告.txt">\n第一季度\n</attached>' in second
    out = capsys.readouterr().out
    assert out.startswith("== notes/a b.md\n<")
    assert "== 报告.txt\n" in out


def test_rows_of_a_table_fill_the_columns(ask: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.csv").write_text('title,body\n"A, b","two\nlines"\nC,d\n')
    (tmp_path / "t.jsonl").write_text('{"title": "E", "body": {"n": 1}}\n\n')
    fake = ask("{title}: {body} as {{json}} {\"a\": 1}", "t.csv", "t.jsonl", "--each", "row", "--json")
    assert [said(r.body).split("</notebook-state>\n")[-1] for r in fake.requests] == [
        'A, b: two\nlines as {json} {"a": 1}', 'C: d as {json} {"a": 1}', 'E: {"n": 1} as {json} {"a": 1}',
    ]  # fmt: skip
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [p["input"]["title"] for p in printed] == ["A, b", "C", "E"]


def test_a_row_without_a_place_comes_below_the_prompt(ask: Any, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("city\n北京\n", "utf-8")
    fake = ask("Which country?", "t.csv", "--each", "row")
    assert said(fake.requests[0].body).endswith('Which country?\n\n{"city": "北京"}')


def test_lines_come_from_standard_input(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("é\nü\n".encode())))
    fake = ask("Which letter?", "-", "--each", "line")
    assert sorted(said(r.body)[-1] for r in fake.requests) == ["é", "ü"]


def test_the_same_command_goes_on_and_asks_what_failed_again(
    ask: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "n.txt").write_text("a\nb\nc\n")
    command = ("Say it.", "n.txt", "--each", "line", "--out", "o.jsonl", "--jobs", "1")
    ask(*command, script=["one", fails(400, "invalid_request_error"), "three"], code=1)
    first = rows(tmp_path / "o.jsonl")
    assert [(r["input"], r["outcome"]) for r in first] == [("a", "completed"), ("b", "error"), ("c", "completed")]
    assert "no" in first[1]["message"]
    (tmp_path / "n.txt").write_text("z\na\nb\nc\na\n")  # others may come, also the same again
    fake = ask(*command)
    assert [said(r.body)[-1] for r in fake.requests] == ["z", "b", "a"]
    assert [(r["number"], r["input"], r["text"]) for r in rows(tmp_path / "o.jsonl")] == [
        (1, "z", "<z>"), (2, "a", "one"), (3, "b", "<b>"), (4, "c", "three"), (5, "a", "<a>"),
    ]  # fmt: skip
    before = (tmp_path / "o.jsonl").read_bytes()
    capsys.readouterr()
    assert ask(*command).requests == []
    assert capsys.readouterr().err == "o.jsonl has an answer to each of them already (5)\n"
    assert (tmp_path / "o.jsonl").read_bytes() == before


def test_a_file_that_changed_is_asked_again(ask: Any, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("1")
    (tmp_path / "b.md").write_text("1")
    command = ("Read.", "a.md", "b.md", "--out", "o.jsonl")
    ask(*command)
    (tmp_path / "b.md").write_text("2")
    fake = ask(*command)
    assert len(fake.requests) == 1
    assert "\n2\n" in said(fake.requests[0].body)


@pytest.mark.parametrize("cut", range(1, 30, 7))
def test_a_last_line_that_a_kill_cut_is_asked_again(ask: Any, tmp_path: Path, cut: int) -> None:
    (tmp_path / "n.txt").write_text("a\nb\n")
    command = ("Say it.", "n.txt", "--each", "line", "--out", "o.jsonl", "--jobs", "1")
    ask(*command)
    whole = (tmp_path / "o.jsonl").read_bytes()
    (tmp_path / "o.jsonl").write_bytes(whole[:-cut])
    assert [said(r.body)[-1] for r in ask(*command).requests] == ["b"]
    assert [r["input"] for r in rows(tmp_path / "o.jsonl")] == ["a", "b"]


def test_three_failures_in_a_row_end_it(ask: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "n.txt").write_text("\n".join("abcdef"))
    command = ("Say it.", "n.txt", "--each", "line", "--out", "o.jsonl", "--jobs", "1")
    fake = ask(*command, script=["ok", *[fails(401, "authentication_error")] * 5], code=1)
    assert len(fake.requests) == 4
    err = capsys.readouterr().err
    assert err.startswith("1 answered, 3 failed, 2 not begun, $")
    assert "3 failed in a row" in err
    assert "the same command goes on" in err


def test_a_cost_ceiling_holds_for_all_together(ask: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "n.txt").write_text("\n".join("abcdef"))
    costs = rows_cost(ask, tmp_path)
    ceiling = f"{1.05 * costs:.8f}"
    command = ("Say it.", "n.txt", "--each", "line", "--out", "o.jsonl", "--jobs", "1", "--max-cost", ceiling)
    fake = ask(*command, code=1)
    assert 1 < len(fake.requests) < 6
    assert "(--max-cost)" in capsys.readouterr().err


def rows_cost(ask: Any, tmp_path: Path) -> float:
    """Return what one such answer costs."""
    (tmp_path / "one.txt").write_text("a\n")
    ask("Say it.", "one.txt", "--each", "line", "--out", "one.jsonl")
    return float(rows(tmp_path / "one.jsonl")[0]["cost_usd"])


def test_what_needs_permission_is_refused_and_told(ask: Any, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("1")
    writes = reply(call("write", {"path": "b.md", "content": "x"}))
    fake = ask("Copy it.", "a.md", script=[writes, "I could not."])
    assert not (tmp_path / "b.md").exists()
    (result,) = [b for b in fake.requests[-1].body["messages"][-1]["content"] if b["type"] == "tool_result"]
    assert "Refused: 'write' needs" in json.dumps(result)


def test_each_conversation_is_kept(ask: Any, tmp_path: Path) -> None:
    (tmp_path / "n.txt").write_text("a\nb\nc\n")
    ask("Say it.", "n.txt", "--each", "line", "--out", "o.jsonl", "--jobs", "8")
    known = {s.name: s for s in known_sessions(tmp_path)}
    for row in rows(tmp_path / "o.jsonl"):
        entries = read_journal(known[row["session"]].folder / "journal.jsonl").entries
        assert any(getattr(e.body, "turn", "") == row["turn"] for e in entries)
    assert len(known) == 2


def test_a_dry_run_asks_nothing(ask: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "n.txt").write_text("a\n" + "long " * 40 + "\n")
    fake = ask("Say {input}.", "n.txt", "--each", "line", "--dry-run", "--out", "o.jsonl")
    out = capsys.readouterr().out
    assert out.startswith("2 inputs; the first is asked:\n\nSay a.\n\n2. long long")
    assert fake.requests == []
    assert not (tmp_path / "o.jsonl").exists()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("", "a.md"), "the prompt is empty; write what is asked of each input"),
        (("x", "none.md"), "'none.md' cannot be read (No such file or directory); check the path"),
        (("x", "."), "'.' is a folder; name its files, such as ./*.md"),
        (("x", "/etc/passwd"), "'/etc/passwd' is outside of this folder; run the command in a folder above it"),
        (("x", "-"), "standard input is not a file; --each line reads its lines, --each row its rows"),
        (("x", "bin.pdf"), "'bin.pdf' is neither text nor an image; make text of it first"),
        (("x", "blank.txt", "--each", "line"), "there is no line in blank.txt; name something that holds one"),
        (("x", "latin.txt", "--each", "line"), "latin.txt is not UTF-8 text; save it as UTF-8, or name another"),
        (("x", "a.md", "--each", "row"), "line 1 of a.md is no JSON object; rows are read from .csv and .tsv, and"),
        (("x", "bad.csv", "--each", "row"), "line 3 of bad.csv has not as many cells as the first line"),
        (("{titel}", "t.csv", "--each", "row"), "t.csv has no column 'titel'; did you mean 'title'?"),
        (("{when}", "t.csv", "--each", "row"), "t.csv has no column 'when'; it has title, body."),
        (("x", "a.md", "--jobs", "0"), "--jobs: '0' is not a whole number above 0"),
        (("x", "a.md", "--max-cost", "-1"), "--max-cost: '-1' is not an amount above 0"),
        (("x", "a.md", "--tools", "hammer"), "unknown tool 'hammer' in --tools"),
        (("x", "a.md", "--skill", "none"), "no skill"),
        (("x", "a.md", "--policy", "none"), "unknown policy 'none'"),
        (("x", "a.md", "--out", "t.csv"), "line 1 of 't.csv' is no answer of nbagent map; name another file with --out"),
        (("x", "a.md", "--out", "no/o.jsonl"), "cannot write no/o.jsonl"),
        (("x", "a.md", "--out", "torn.txt"), "line 1 of 'torn.txt' is no answer of nbagent map"),
    ],
)
def test_bad_input_is_one_line(
    ask: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], line: str
) -> None:
    (tmp_path / "a.md").write_text("1")
    (tmp_path / "t.csv").write_text("title,body\na,b\n")
    (tmp_path / "bad.csv").write_text("title,body\na,b\nc\n")
    (tmp_path / "blank.txt").write_text("\n \n")
    (tmp_path / "bin.pdf").write_bytes(b"%PDF\0\1")
    (tmp_path / "latin.txt").write_bytes("é".encode("latin-1"))
    (tmp_path / "torn.txt").write_text("my own notes")
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir() if p.is_file()}
    fake = ask(*words, code=2)
    captured = capsys.readouterr()
    assert captured.err.startswith("nbagent: ")
    assert line in captured.err
    assert captured.err.count("\n") == 1
    assert fake.requests == []
    assert {n: (tmp_path / n).read_bytes() for n in before} == before


def test_answers_to_another_prompt_are_not_mixed(
    ask: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.md").write_text("1")
    ask("One.", "a.md", "--out", "o.jsonl")
    before = (tmp_path / "o.jsonl").read_bytes()
    capsys.readouterr()
    for words in (("Two.", "a.md"), ("One.", "a.md", "--mode", "plan"), ("One.", "a.md", "-m", "claude-haiku-4-5")):
        assert ask(*words, "--out", "o.jsonl", code=2).requests == []
        assert "holds answers to another prompt or other options" in capsys.readouterr().err
    assert (tmp_path / "o.jsonl").read_bytes() == before


def test_two_at_once_do_not_write_one_file(ask: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.md").write_text("1")
    ask("One.", "a.md", "--out", "o.jsonl")
    (lock,) = (tmp_path / ".nbagent").glob("map-*.lock")
    with FileLock(str(lock)):
        assert ask("One.", "a.md", "--out", "o.jsonl", code=2).requests == []
    assert "another 'nbagent map' writes to 'o.jsonl'" in capsys.readouterr().err


def test_without_a_key_nothing_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NBAGENT_OFFLINE")
    (tmp_path / "n.txt").write_text("a\nb\n")
    assert main(["map", "x", "n.txt", "--each", "line"]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("ANTHROPIC_API_KEY") == 1
    assert captured.err.count("\n") == 1


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signal")
@pytest.mark.parametrize(("slow", "jobs"), [("a", 1), ("b", 1), ("b", 3)])
def test_a_stop_keeps_what_was_answered(service: Any, tmp_path: Path, slow: str, jobs: int) -> None:
    """Ctrl-C ends it in good order: the answers are there, and the same command goes on."""
    (tmp_path / "n.txt").write_text("a\nb\nc\nd\ne\n")
    begun = threading.Event()

    def answer(body: JSON) -> Any:
        if said(body)[-1] >= slow:
            begun.set()
            return reply("word " * 400, pace=Pace(5))
        return reply("ok")

    fake = service(answer)
    environ = os.environ | {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": fake.base_url}
    words = ("map", "Say it.", "n.txt", "--each", "line", "--out", "o.jsonl", "--jobs", str(jobs))
    running = subprocess.Popen(
        [sys.executable, "-m", "nbagent", *words], cwd=tmp_path, env=environ, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored where the suite runs in the background
    )  # fmt: skip
    assert begun.wait(HANG_S)
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=HANG_S)
    assert running.returncode == 130
    *_, summary, last = err.splitlines()
    assert last == "nbagent: stopped"
    assert summary.startswith("0 answered" if slow == "a" else "1 answered")
    assert summary.endswith("stopped; answers in o.jsonl, the same command goes on")
    found = {r["input"]: r["outcome"] for r in rows(tmp_path / "o.jsonl")}
    assert set(found.values()) <= {"completed", "stopped"}
    assert found.get("a") == ("stopped" if slow == "a" else "completed")
    assert "e" not in found
