"""The command line: what it prints, its exit codes, and that every error is one line."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from nbagent import __version__, cli_demo
from nbagent.cli import main
from nbagent.cli_demo import copy_tutorials, sealed
from nbagent.core.entries import (
    AssistantMessage,
    Entry,
    Snapshot,
    ToolResult,
    TurnEnd,
    TurnStart,
    UsageReported,
    UserMessage,
)
from nbagent.core.errors import UsageProblem
from nbagent.core.messages import text_block
from nbagent.runtime.export import closed_fence, export, export_text, exported_turns
from nbagent.store.journal import Journal
from nbagent.store.settings import load_settings
from nbagent.store.trust import is_trusted
from tests import kernels

DATA = "import pandas as pd\n\ntemperatures = pd.DataFrame({'Bergen': [2, 4, 11], 'Seville': [11, 16, 25]})"
ASK = "%%agent --mode auto\nWhich city is the coldest on average?"
REPLIES = [
    [{"type": "tool_use", "name": "python", "input": {"code": "mean = temperatures.mean()\nmean.round(1)"}}],
    [{"type": "text", "text": "**Bergen** is the coldest, with 5.7 degrees."}],
]
SECRET = "the-blue-heron-at-dawn"
CALL = {"type": "tool_use", "id": "c1", "name": "python", "input": {"code": "print('```')\n<b>1</b>"}}
BODIES = (
    TurnStart(turn="t1", model="claude-sonnet-5-5", policy="nbagent"),
    UserMessage(blocks=(text_block("Count <them> all"), text_block("attached: df"))),
    Snapshot(text="df is new"),
    AssistantMessage(blocks=(text_block("I look."), CALL), stop_reason="tool_use", model="m", step=1),
    ToolResult(call_id="c1", name="python", content=(text_block(f"```\n{SECRET}"),), status="error"),
    UsageReported(step=1, model="m", usage={}, cost_usd=0.25),
    AssistantMessage(blocks=(text_block("**Three**\n\n```python\nx = 1"),), stop_reason="end_turn", model="m", step=2),
    TurnEnd(turn="t1", outcome="completed", steps=2),
)


def path_of(*bodies: object) -> list[Entry]:
    return [Entry(f"e{i}", f"e{i - 1}" if i else None, 0.0, b) for i, b in enumerate(bodies)]  # type: ignore[arg-type]


@pytest.fixture
def session(tmp_path: Path) -> Path:
    """The folder of a session with one turn, in a notebook's folder."""
    folder = tmp_path / ".nbagent" / "sessions" / "first"
    with Journal.open(folder / "journal.jsonl") as journal:
        for entry in path_of(*BODIES):
            journal.append(entry)
    return folder


def fails(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 2) -> str:
    """Run a command that must fail, and return its only line."""
    assert main([str(a) for a in arguments]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("nbagent: ")
    assert captured.err.count("\n") == 1
    return captured.err


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"nbagent {__version__}\n"


def test_it_runs_as_a_module_and_teaches_without_a_command() -> None:
    done = subprocess.run([sys.executable, "-m", "nbagent"], capture_output=True, text=True, check=True, timeout=550)
    assert "demo" in done.stdout
    assert done.stderr == ""


def test_help_imports_nothing_heavy() -> None:
    code = "import sys; from nbagent.cli import command_parser; command_parser().format_help(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=550)
    assert {"anthropic", "IPython", "numpy", "asyncio"}.isdisjoint(done.stdout.split())


@pytest.mark.parametrize("arguments", [["fly"], ["verify"], ["export", "only-one"], ["doctor", "--yaml"], ["demo", "x"]])
def test_what_cannot_be_understood_is_one_line(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert "--help" in fails(capsys, *arguments)


@pytest.mark.parametrize("command", ["verify", "export", "redact"])
def test_a_path_that_is_no_journal_is_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, session: Path, command: str
) -> None:
    more = [] if command == "verify" else [tmp_path / "out.md"]
    text = tmp_path / "notes.txt"
    text.write_text(f"{tmp_path / 'out.md'} is only a text\n")
    assert "does not exist" in fails(capsys, command, tmp_path / "nowhere", *more)
    assert "is not a journal" in fails(capsys, command, text, *more)
    assert str(session) in fails(capsys, command, tmp_path, *more)
    (tmp_path / "empty").mkdir()
    assert "no journal in the folder" in fails(capsys, command, tmp_path / "empty", *more)
    assert text.read_text() == f"{tmp_path / 'out.md'} is only a text\n"


@pytest.mark.parametrize("of", ["folder", "file"])
def test_verify_passes_a_sound_journal_and_names_a_changed_line(
    capsys: pytest.CaptureFixture[str], session: Path, of: str
) -> None:
    journal = session / "journal.jsonl"
    where = session if of == "folder" else journal
    assert main(["verify", str(where)]) == 0
    assert "8 entries, no faults" in capsys.readouterr().out
    journal.write_bytes(journal.read_bytes().replace(b"df is new", b"df is old"))
    assert main(["verify", str(where)]) == 1
    assert "journal.jsonl:3: entry 'e2' does not match its hash" in capsys.readouterr().out


def test_redact_removes_a_text_and_says_what_it_did_not_look_at(
    capsys: pytest.CaptureFixture[str], session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{SECRET}\n"))
    assert main(["redact", str(session), "-"]) == 0
    out = capsys.readouterr().out
    assert "redacted in 1 entry," in out
    assert "cassettes" in out
    assert SECRET not in (session / "journal.jsonl").read_text()
    assert main(["verify", str(session)]) == 0
    assert "too short" in fails_after(capsys, "redact", session, "x")


def fails_after(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    capsys.readouterr()
    return fails(capsys, *arguments)


def test_redact_refuses_a_journal_in_use(capsys: pytest.CaptureFixture[str], session: Path) -> None:
    with Journal.open(session / "journal.jsonl"):
        assert "open" in fails(capsys, "redact", session, SECRET)


@pytest.mark.parametrize("ending", ["md", "html", "json"])
def test_export_writes_the_conversation(
    capsys: pytest.CaptureFixture[str], session: Path, tmp_path: Path, ending: str
) -> None:
    target = tmp_path / f"talk.{ending}"
    assert main(["export", str(session), str(target)]) == 0
    text = target.read_text(encoding="utf-8")
    assert "Three" in text
    assert SECRET in text
    assert "(1 turn)" in capsys.readouterr().out


def test_export_of_a_turn_writes_the_branch_it_is_on(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with Journal.open(tmp_path / "s" / "journal.jsonl") as journal:
        for number in (1, 2):
            start = TurnStart(turn=f"turn000{number}", model="m", policy="nbagent")
            journal.append(Entry(f"s{number}", None, 0.0, start))
            journal.append(Entry(f"u{number}", f"s{number}", 0.0, UserMessage(blocks=(text_block(f"request {number}"),))))
    target = tmp_path / "talk.md"
    assert main(["export", str(tmp_path / "s"), str(target), "--turn", "turn0001"]) == 0
    assert "request 1" in target.read_text(encoding="utf-8")
    assert "request 2" not in target.read_text(encoding="utf-8")
    assert "(1 turn; 1 more in the session" in capsys.readouterr().out
    assert "the newest there: turn0001, turn0002" in fails(capsys, "export", tmp_path / "s", target, "--turn", "nope")


def test_export_that_cannot_be_written_is_one_line(
    capsys: pytest.CaptureFixture[str], session: Path, tmp_path: Path
) -> None:
    assert "'.pdf'" in fails(capsys, "export", session, tmp_path / "talk.pdf")
    assert "cannot be written" in fails(capsys, "export", session, tmp_path / "no" / "talk.md")
    (tmp_path / "folder.md").mkdir()
    assert "is a folder" in fails(capsys, "export", session, tmp_path / "folder.md")


def test_markdown_folds_calls_and_leaves_no_fence_open() -> None:
    text = export_text(path_of(*BODIES), ".md", title="a_b")
    assert "# a\\_b" in text
    assert "> Count <them> all" in text
    assert "<details><summary><code>python</code>: error</summary>" in text
    assert "````python\nprint('```')" in text
    assert "````text\n```\n" in text
    assert text.rstrip().endswith("```\n\n*completed · 2 steps · 1 tool call · $0.2500*")


def test_html_takes_nothing_as_markup() -> None:
    text = export_text(path_of(*BODIES), ".html", title="<i>x</i>")
    assert "<b>" not in text
    assert "<them>" not in text
    assert "<i>" not in text
    assert "<strong>Three</strong>" in text
    assert "<script" not in text


def test_json_holds_each_call_with_its_result() -> None:
    out = json.loads(export_text(path_of(*BODIES), ".json", title="t"))
    (turn,) = out["turns"]
    call = next(i for i in turn["items"] if i["kind"] == "call")
    assert (call["name"], call["status"], call["result"]) == ("python", "error", f"```\n{SECRET}")
    assert (turn["outcome"], turn["cost_usd"], turn["attached"]) == ("completed", 0.25, ["attached: df"])


def test_an_export_tells_a_turn_that_did_not_end_and_a_call_without_result() -> None:
    (turn,) = exported_turns(path_of(*BODIES[:4]))
    assert turn.outcome == "not ended"
    assert [i.status for i in turn.items if i.kind == "call"] == ["no result"]
    assert "No turns." in export_text([], ".md", title="t")


def test_an_image_is_shown_in_html_and_only_when_it_is_one(tmp_path: Path) -> None:
    good = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
    bad = {"type": "image", "source": {"type": "base64", "media_type": 'image/png" onerror="x', "data": "aGk="}}
    prompt = UserMessage(blocks=(text_block("see"), good, bad))
    export(path_of(BODIES[0], prompt), tmp_path / "x.HTML", title="t")
    text = (tmp_path / "x.HTML").read_text()
    assert text.count("<img") == 1
    assert "onerror" not in text


@pytest.mark.parametrize(
    ("text", "end"), [("a", "a"), ("```\nb", "\n```"), ("~~~~x\n```\nb", "\n~~~~"), ("```\nb\n```", "b\n```")]
)
def test_a_fence_left_open_is_closed(text: str, end: str) -> None:
    assert closed_fence(text).endswith(end)
    assert closed_fence(closed_fence(text)) == closed_fence(text)


def test_sessions_lists_what_is_kept(capsys: pytest.CaptureFixture[str], session: Path, tmp_path: Path) -> None:
    assert main(["sessions", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "first  1 turn  $0.2500  claude-sonnet-5-5\n"
    assert main(["sessions", str(session)]) == 0
    assert "No sessions" in capsys.readouterr().out
    assert "is not a folder" in fails(capsys, "sessions", tmp_path / "nowhere")


RUST_PORT = Path(__file__).parents[1] / "notebooks" / "data" / "rust-port.jsonl"


def test_sweep_lays_cost_and_loss_of_policies_at_thresholds_side_by_side(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    asked = ["sweep", str(RUST_PORT), "--window", "12,000", "--policies", "nbagent,off", "--thresholds", "own,0.6,60,90%"]
    assert main([*asked, "--csv", str(tmp_path / "sweep.csv"), "--json"]) == 0
    out = capsys.readouterr().out
    rows = json.loads(out)
    assert [(r["policy"], r["threshold"]) for r in rows] == [
        ("nbagent", None), ("nbagent", 0.6), ("nbagent", 0.9), ("off", None),
    ]  # fmt: skip
    own, early, late, off = rows
    assert (off["compactions"], off["lost"]) == (0, 0)
    assert off["over_window"] > 0
    assert early["compactions"] >= late["compactions"] >= 1
    assert early["peak_tokens"] < late["peak_tokens"] < 12_000 < off["peak_tokens"]
    assert own["verbatim"] + own["reachable"] + own["lost"] == off["verbatim"]
    written = list(csv.DictReader((tmp_path / "sweep.csv").read_text(encoding="utf-8").splitlines()))
    assert [int(r["tokens_sent"]) for r in written] == [r["tokens_sent"] for r in rows]
    assert main([*asked, "--json"]) == 0
    assert capsys.readouterr().out == out  # the same figures again


def test_sweep_adds_up_the_conversations_of_a_folder(capsys: pytest.CaptureFixture[str], session: Path) -> None:
    home = session.parents[2]
    assert main(["import", str(RUST_PORT), "--folder", str(home)]) == 0
    capsys.readouterr()
    assert main(["sweep", str(home), "--policies", "pi", "--thresholds", "own", "--json", "--window", "12000"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {r["session"] for r in rows} == {"first", "rust-port"}
    assert main(["sweep", str(home), "--policies", "pi", "--thresholds", "own", "--window", "12000"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("2 conversations: first, rust-port")
    (line,) = [x for x in out.splitlines() if x.startswith("pi ")]
    assert f"{sum(r['tokens_sent'] for r in rows):,}" in line
    assert main(["sweep", str(session), "--thresholds", "own"]) == 0
    assert "No policy had anything to do" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere.jsonl"], "'nowhere.jsonl' does not exist"),
        ([str(RUST_PORT), "--policies", "pie"], "unknown policy 'pie'; did you mean 'pi'?"),
        ([str(RUST_PORT), "--policies", " , "], "--policies names none"),
        ([str(RUST_PORT), "--thresholds", "30,high"], "percents of the window, such as own,30,60,90, not 'high'"),
        ([str(RUST_PORT), "--thresholds", "130"], "not '130'"),
        ([str(RUST_PORT), "--thresholds", "nan"], "not 'nan'"),
        ([str(RUST_PORT), "--window", "500"], "a number of tokens from 1,000, not '500'"),
        ([str(RUST_PORT), "--csv", "no/such/folder/x.csv"], "cannot be written"),
        ([], "the following arguments are required: SESSION"),
    ],
)
def test_a_sweep_that_cannot_be_made_is_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert said in fails(capsys, "sweep", *arguments)


def test_sweep_says_that_a_folder_holds_no_conversation(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "no conversation is kept in" in fails(capsys, "sweep", tmp_path)


def test_trust_lets_a_project_take_effect_and_untrust_takes_it_back(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "nbagent.toml").write_text('mode = "auto"\n')
    assert load_settings(tmp_path, os.environ).mode == "ask"
    assert main(["trust", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert f"Trusted: {tmp_path}" in out
    assert "mode = 'auto'" in out
    assert load_settings(tmp_path, os.environ).mode == "auto"
    assert main(["untrust", str(tmp_path)]) == 0
    assert load_settings(tmp_path, os.environ).mode == "ask"


# ---------------------------------------------------------------- doctor


def doctor(capsys: pytest.CaptureFixture[str], code: int = 0) -> dict[str, object]:
    assert main(["doctor", "--json"]) == code
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    assert found["ok"] is (code == 0)
    return found


def test_doctor_names_keys_and_never_their_values(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-0123456789abcdefghij")
    monkeypatch.setenv("NBAGENT_BASE_URL", "http://me:hunter2secret9@localhost:1/")
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "0123456789" not in out
    assert "hunter2secret9" not in out
    assert "No problems." in out
    found = doctor(capsys)
    assert found["keys"]["ANTHROPIC_API_KEY"] == "set"  # type: ignore[index]
    assert found["settings"]["mode"] == '"ask" (default)'  # type: ignore[index]


def test_doctor_gives_each_problem_a_remedy(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    journal = session / "journal.jsonl"
    journal.write_bytes(journal.read_bytes().replace(b"df is new", b"df is old"))
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NBAGENT_HOME", str(tmp_path / "file" / "home"))
    found = doctor(capsys, code=1)
    problems = found["problems"]
    assert isinstance(problems, list)
    assert all(p["cause"] and p["remedy"] for p in problems)
    assert any("does not match its hash" in p["cause"] for p in problems)
    assert any("cannot be written" in p["cause"] for p in problems)
    assert found["sessions"] == {"first": "1 turn, no notebook"}


def test_doctor_reports_settings_that_cannot_be_read(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nbagent.toml").write_text("modle = 'ask'\n")
    (problem,) = doctor(capsys, code=1)["problems"]  # type: ignore[misc]
    assert "unknown setting 'modle'" in problem["cause"]
    assert "did you mean 'model'" in problem["remedy"]


def test_doctor_changes_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted((p, p.stat().st_mtime_ns) for p in tmp_path.rglob("*") if p.is_file())
    doctor(capsys)
    assert sorted((p, p.stat().st_mtime_ns) for p in tmp_path.rglob("*") if p.is_file()) == before


# ---------------------------------------------------------------- demo


def notebook_of(*sources: str) -> Any:
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])


@pytest.fixture
def shipped(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of tutorials as it is shipped; its recording is empty."""
    folder = tmp_path_factory.mktemp("shipped")
    for name in ("cassettes", ".nbagent", "scripts"):
        (folder / name).mkdir()
        (folder / name / "tiny.json").write_text("{}")
    nbformat.write(
        notebook_of("%load_ext nbagent", "%agent replay cassettes/tiny.json", DATA, ASK), folder / "01_tiny.ipynb"
    )
    monkeypatch.setattr(cli_demo, "tutorials", lambda: folder)
    return folder


@pytest.fixture
def recorded(shipped: Path) -> Path:
    """The same with a recording, made from a script."""
    (shipped / "cassettes" / "tiny.json").unlink()
    (shipped / "scripts" / "tiny.json").write_text(json.dumps(REPLIES))
    cells = "%load_ext nbagent", "%agent model scripted:scripts/tiny.json", "%agent record cassettes/tiny.json"
    making = NotebookClient(notebook_of(*cells, DATA, ASK), resources={"metadata": {"path": str(shipped)}}, timeout=550, config=kernels.config())
    making.execute()
    return shipped


def test_a_copy_never_overwrites_what_was_changed(tmp_path: Path, shipped: Path) -> None:
    target = tmp_path / "demo"
    first = copy_tutorials(shipped, target)
    assert first.fresh
    assert [n.name for n in first.notebooks] == ["01_tiny.ipynb"]
    assert sorted(p.name for p in target.iterdir()) == ["01_tiny.ipynb", "cassettes", "scripts"]
    assert (target / "cassettes" / "tiny.json").read_text() == "{}"
    (target / "01_tiny.ipynb").write_text("mine")
    (target / "cassettes" / "tiny.json").unlink()
    second = copy_tutorials(shipped, target)
    assert second.kept == (target / "01_tiny.ipynb",)
    assert not second.fresh
    assert (target / "01_tiny.ipynb").read_text() == "mine"
    assert (target / "cassettes" / "tiny.json").exists()


def test_a_folder_that_is_a_file_is_one_line(tmp_path: Path, shipped: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageProblem, match="is a file"):
        copy_tutorials(shipped, tmp_path / "file")


@pytest.mark.kernel
@pytest.mark.usefixtures("recorded")
def test_demo_check_prints_the_answers_of_the_recording(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, nbagent_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-not-a-key-at-all-000000")
    (tmp_path / "nbagent.toml").write_text("")
    target = tmp_path / "demo"
    assert main(["demo", "--check", "--folder", str(target)]) == 0
    out = capsys.readouterr().out
    assert "> Which city is the coldest on average" in out
    assert "**Bergen** is the coldest, with 5.7" in out
    assert "1 answers, replayed without a model" in out
    assert is_trusted(target, nbagent_home)
    assert not is_trusted(tmp_path, nbagent_home)
    assert load_settings(target, os.environ).trusted


@pytest.mark.kernel
def test_demo_check_fails_with_one_line_when_a_cell_does(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, nbagent_home: Path, recorded: Path
) -> None:
    target = tmp_path / "demo"
    target.mkdir()
    changed = (recorded / "01_tiny.ipynb").read_text().replace("coldest", "warmest")
    (target / "01_tiny.ipynb").write_text(changed)
    assert main(["demo", "--check", "--folder", str(target)]) == 1
    captured = capsys.readouterr()
    assert "Kept as it is" in captured.out
    assert captured.err.startswith("nbagent: 01_tiny.ipynb failed: CassetteMiss: not recorded")
    assert captured.err.count("\n") == 1
    assert not is_trusted(target, nbagent_home)


@pytest.mark.usefixtures("shipped")
def test_demo_opens_jupyterlab_on_the_first_tutorial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[list[str], Path]] = []

    def run(command: list[str], *, cwd: Path, check: bool) -> subprocess.CompletedProcess[str]:
        ran.append((command, cwd))
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(cli_demo.subprocess, "run", run)
    monkeypatch.setattr(cli_demo, "find_spec", lambda name: object())
    assert main(["demo", "--no-browser", "--folder", str(tmp_path / "demo")]) == 0
    ((command, cwd),) = ran
    assert command[1:5] == ["-m", "jupyterlab", "--LabApp.default_url=/lab/tree/01_tiny.ipynb", "--no-browser"]
    assert cwd == tmp_path / "demo"


def test_demo_says_how_to_install_jupyterlab(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli_demo, "find_spec", lambda name: None)
    assert "jupyter-nbagent[lab]" in fails(capsys, "demo", "--folder", tmp_path / "demo")
    assert not (tmp_path / "demo").exists()


def test_a_sealed_environment_has_no_keys() -> None:
    environ = sealed({"ANTHROPIC_API_KEY": "x", "PATH": "p"})
    assert environ == {"PATH": "p", "NBAGENT_OFFLINE": "1", "PYDEVD_DISABLE_FILE_VALIDATION": "1"}


def test_redact_removes_the_index_of_what_was_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from nbagent.models.scripted import says
    from tests.runtime.lab import Lab

    lab = Lab(tmp_path / "work", memory__embedder="none")
    lab.open([says("noted")])
    lab.send("the launch word is Wharncliffe")
    memory = lab.session.runner.memory.open()
    assert memory.search("Wharncliffe", sources=("sessions",))
    lab.close()
    index = lab.folder / ".nbagent" / "sessions.sqlite"
    assert index.exists()
    assert main(["redact", str(lab.folder / ".nbagent/sessions/x"), "Wharncliffe"]) == 0
    left = [p for p in lab.folder.rglob("*") if p.is_file() and b"wharncliffe" in p.read_bytes().lower()]
    assert (index.exists(), left) == (False, [])
    assert "notes" in capsys.readouterr().out
