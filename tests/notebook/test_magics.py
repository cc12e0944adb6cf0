"""Loading, unloading, configuration, help and completion in a real kernel; what `%load_ext` costs."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nbagent.notebook.commands.context import CONTEXT_COMMANDS
from nbagent.notebook.completion import words_for
from tests.fakes.messages_api import FakeMessagesAPI
from tests.notebook.agent_kernel import AgentKernel, agent, error_line, running, sent, shown, states
from tests.notebook.kernel_harness import ROOT

pytestmark = pytest.mark.kernel

SNAPSHOT = """
import signal as _signal, sys as _sys, threading as _threading
def _snapshot(s=get_ipython()):
    return dict(
        line=sorted(s.magics_manager.magics["line"]), cell=sorted(s.magics_manager.magics["cell"]),
        registry=sorted(s.magics_manager.registry), lazy=sorted(s.magics_manager.lazy_magics),
        configurables=[type(c).__name__ for c in s.configurables],
        events={k: len(v) for k, v in s.events.callbacks.items()},
        cleanup=[getattr(t, "__name__", type(t).__name__) for t in s.input_transformers_cleanup],
        post=len(s.input_transformers_post), lines=len(s.input_transformer_manager.line_transforms),
        matchers=len(s.Completer.custom_matchers), threads=sorted(t.name for t in _threading.enumerate() if "nbagent" in t.name),
        streams=(id(_sys.stdout), id(_sys.stderr), id(_sys.displayhook)), signal=str(_signal.getsignal(_signal.SIGINT)),
        names=sorted(n for n in s.user_ns if not n.startswith("_")), hidden=sorted(n for n in s.user_ns_hidden if not n.startswith("_i")),
        targets=sorted(s.kernel.comm_manager.targets), attributes=sorted(a for a in vars(s) if "nbagent" in a),
        hooks=sorted(vars(s.hooks)), showtraceback="showtraceback" in vars(s), exc=str(s.custom_exceptions),
    )
"""


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentKernel]:
    with running(tmp_path_factory.mktemp("kernel")) as started:
        yield started


def test_unloading_leaves_ipython_as_it_was(kernel: AgentKernel, tmp_path: Path) -> None:
    with FakeMessagesAPI(["ok"], repeat=True) as fake:
        kernel.begin(tmp_path, fake, load=False)
        kernel.run("%load_ext autoreload\n%unload_ext autoreload")  # IPython registers these magics at the first use
        kernel.run(SNAPSHOT)
        before = kernel.value("_snapshot()")
        for _ in range(2):
            assert "nbagent" in kernel.run("%load_ext nbagent").stream()
            assert kernel.run(agent("hi")).status == "ok"
            assert kernel.value("_snapshot()")["threads"] == ["nbagent-engine"]
            assert shown(kernel.run("%unload_ext nbagent")) == ""
            assert kernel.value("_snapshot()") == before
        assert "not found" in shown(kernel.run("%agent"))
        assert "not found" in shown(kernel.run(agent("hi")))
        assert len(sent(fake)) == 2


def test_loading_twice_and_reloading_keep_the_conversation(kernel: AgentKernel, tmp_path: Path) -> None:
    notebook = tmp_path / "a.ipynb"
    notebook.write_text("{}")
    with FakeMessagesAPI(["ok"], repeat=True) as fake:
        first = kernel.begin(tmp_path, fake, JPY_SESSION_NAME=str(notebook)).stream()
        assert first.startswith(
            "nbagent 0.1.0: claude-sonnet-5-5 · policy nbagent · window 200,000 tokens · session new · 0 turns"
        )
        assert len(first.strip().splitlines()) == 1
        assert not (tmp_path / ".nbagent").exists()
        kernel.run(agent("one"), cell_id="a")
        assert "already loaded" in kernel.run("%load_ext nbagent").stream()
        assert " · 1 turn on this branch · " in kernel.run("%reload_ext nbagent").stream()
        kernel.run(agent("two"), cell_id="b")
        assert len(sent(fake)[-1]["messages"]) == 3


def test_cells_between_loading_and_the_first_use_reach_the_model(kernel: AgentKernel, tmp_path: Path) -> None:
    with FakeMessagesAPI(["ok"], repeat=True) as fake:
        kernel.begin(tmp_path, fake)
        kernel.run("early_value = 41")
        assert kernel.value("get_ipython()._nbagent_magics._agent") is None
        kernel.run(agent("hi"))
        state = str(states(sent(fake)[-1]))
        assert "early_value" in state
        assert "early_value = 41" in state


def test_unloading_before_any_use_leaves_ipython_as_it_was(kernel: AgentKernel, tmp_path: Path) -> None:
    kernel.begin(tmp_path, load=False)
    kernel.run(SNAPSHOT)
    before = kernel.value("_snapshot()")
    kernel.run("%load_ext nbagent")
    kernel.run("%unload_ext nbagent")
    assert kernel.value("_snapshot()") == before


def test_without_a_key_the_line_says_what_works(kernel: AgentKernel, tmp_path: Path) -> None:
    line = shown(kernel.begin(tmp_path, NBAGENT_OFFLINE=""))
    assert "No key is set (ANTHROPIC_API_KEY)" in line
    result = kernel.run(agent("hi"))
    assert error_line(result).startswith("no key for Anthropic")
    assert kernel.run("%agent").status == kernel.run("%context").status == "ok"
    assert kernel.run("%%agent --dry-run\nhi").status == "ok"


def test_a_damaged_journal_is_counted_in_the_line(kernel: AgentKernel, tmp_path: Path) -> None:
    notebook = tmp_path / "a.ipynb"
    notebook.write_text("{}")
    with FakeMessagesAPI(["ok"], repeat=True) as fake:
        kernel.begin(tmp_path, fake, JPY_SESSION_NAME=str(notebook))
        kernel.run(agent("one"), cell_id="a")
        kernel.run("%unload_ext nbagent")
        (journal,) = (tmp_path / ".nbagent/sessions").glob("*/journal.jsonl")
        with journal.open("ab") as fh:
            fh.write(b'{"v":1,"seq":99,"id":"to')
        line = kernel.run("%load_ext nbagent").stream()
        assert "1 turn on this branch · " in line
        assert "1 problem, see %agent" in line
        assert "torn" in shown(kernel.run("%agent"))


# ---------------------------------------------------------------------- configuration and help
def test_config_lists_sets_and_refuses(kernel: AgentKernel, tmp_path: Path) -> None:
    with FakeMessagesAPI(["ok"], repeat=True) as fake:
        kernel.begin(tmp_path, fake)
        listed = kernel.run("%config AgentMagics").stream()
        for name in ("model", "policy", "mode", "rerun", "observation", "window_tokens", "threshold"):
            assert f"AgentMagics.{name}=" in listed
        for setting, says in (('mode="quick"', "quick"), ("threshold=3", "3"), ("window_tokens=-1", "-1")):
            text = shown(kernel.run(f"%config AgentMagics.{setting}")).strip()
            assert says in text
            assert len(text.splitlines()) == 1
        assert "was left out" in shown(kernel.run("%reload_ext nbagent"))  # IPython keeps the wrong value
        kernel.run('%config AgentMagics.mode="plan"')
        kernel.run("%config AgentMagics.window_tokens=50_000")
        kernel.run('%config AgentMagics.model="claude-haiku-4-5"')
        kernel.run('%config AgentMagics.observation="off"')
        kernel.run("hidden_value = 1")
        kernel.run(agent("hi"))
        assert sent(fake)[-1]["model"] == "claude-haiku-4-5"
        assert "hidden_value" not in str(states(sent(fake)[-1]))
        report = shown(kernel.run("%context"))
        assert "of 50,000 tokens" in report
        assert "plan" in shown(kernel.run("%agent"))


def test_help_shows_the_options(kernel: AgentKernel, tmp_path: Path) -> None:
    kernel.begin(tmp_path)
    for asked in ("%%agent?", "%agent?", "%context?"):
        (page,) = kernel.run(asked).reply["payload"]
        text = page["data"]["text/plain"]
        assert ("--max-steps" in text) is ("agent" in asked)
        assert "_positive" not in text
    assert "resume" in shown(kernel.run("%agent help"))
    assert "agent" in shown(kernel.run("%lsmagic"))


def test_text_after_the_line_magic_teaches_the_cell_magic(kernel: AgentKernel, tmp_path: Path) -> None:
    kernel.begin(tmp_path)
    for typed in ("%agent plot the sales", "%agent what is the mean of x?"):
        assert "write it as a cell of its own: `%%agent`" in error_line(kernel.run(typed))


# ---------------------------------------------------------------------- completion
@pytest.mark.parametrize("jedi", [True, False])
def test_completion_offers_options_values_and_commands(kernel: AgentKernel, tmp_path: Path, jedi: bool) -> None:
    kernel.begin(tmp_path)
    kernel.run(f"%config IPCompleter.use_jedi = {jedi}")
    assert {"%%agent --mode", "%%agent --model", "%%agent --dry-run"} <= set(kernel.complete("%%agent --"))
    assert kernel.complete("%%agent --mo") == ["%%agent --mode", "%%agent --model"]
    assert kernel.complete("%%agent -q --max-s") == ["%%agent -q --max-steps"]
    assert kernel.complete("%%agent --mode ") == [f"%%agent --mode {m}" for m in ("ask", "auto", "plan")]
    assert kernel.complete("%%agent --mode a") == ["%%agent --mode ask", "%%agent --mode auto"]
    assert {"%agent resume", "%agent tree", "%agent log"} <= set(kernel.complete("%agent "))
    assert kernel.complete("%agent re") == [f"%agent {c}" for c in ("record", "replay", "reset", "resume", "revert")]
    assert kernel.complete("%context ") == [f"%context {c}" for c in sorted(CONTEXT_COMMANDS)]
    assert kernel.complete("%context set th") == ["%context set threshold="]
    assert kernel.complete("%context set threshold=0.6 provider=c") == [
        f"%context set threshold=0.6 provider={mode}" for mode in ("clear", "compact")
    ]
    named = ("openclaw", "openclaw@seed", "opencode", "opencode@seed")
    assert sorted(kernel.complete("%context set policy=open")) == [f"%context set policy={p}" for p in named]
    assert {"%context policy pi", "%context policy codex@seed"} <= set(kernel.complete("%context policy "))
    assert kernel.complete("%context policy codex@") == ["%context policy codex@seed"]
    assert kernel.complete("%context compare nbagent ma") == ["%context compare nbagent manus"]
    assert kernel.complete("%context compact --d") == ["%context compact --dry-run"]
    assert kernel.complete("%context compare --") == ["%context compare --live", "%context compare --yes"]
    assert kernel.complete("%context note --") == ["%context note --edit"]
    assert kernel.complete("%%agent --policy ma") == ["%%agent --policy manus"]
    assert kernel.complete("%agent mode ") == [f"%agent mode {m}" for m in ("ask", "auto", "plan")]
    assert "import os" in kernel.complete("import o") or "import os" in [c.strip() for c in kernel.complete("import o")]


@pytest.mark.parametrize(
    ("line", "words"), [("%%agent ", []), ("%agent x y", None), ("df.he", None), ("%%agent", None), ("%agentx ", None)]
)
def test_other_lines_are_left_alone(line: str, words: list[str] | None) -> None:
    assert words_for(line) == words


# ---------------------------------------------------------------------- cost and start-up
HEAVY = (
    "anthropic",
    "httpx2",
    "httpx",
    "aiohttp",
    "sqlite3",
    "numpy",
    "ipywidgets",
    "anywidget",
    "pandas",
    "matplotlib",
    "tiktoken",
)


def test_loading_imports_nothing_heavy(tmp_path: Path) -> None:
    script = f"""
import sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
before = set(sys.modules)
shell.run_line_magic("load_ext", "nbagent")
shell.run_line_magic("agent", "help"); shell.run_cell_magic("agent", "--dry-run", "hi")
print(sorted(set({HEAVY!r}) & (set(sys.modules) - before)))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, env=_env(tmp_path)
    )
    assert ast.literal_eval(done.stdout.strip().splitlines()[-1]) == [], done.stderr


def test_a_profile_can_load_and_configure_the_extension(tmp_path: Path) -> None:
    profile = tmp_path / "ipython" / "profile_default"
    profile.mkdir(parents=True)
    lines = "c.InteractiveShellApp.extensions = ['nbagent']\nc.AgentMagics.mode = 'plan'\n"
    (profile / "ipython_config.py").write_text(lines)
    command = [sys.executable, "-m", "IPython", "--no-banner", "--simple-prompt", "-c", "%agent"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=_env(tmp_path))
    assert "policy nbagent" in done.stdout
    assert "plan" in done.stdout


def _env(folder: Path) -> dict[str, str]:
    import os

    return {**os.environ, "IPYTHONDIR": str(folder / "ipython"), "PYTHONPATH": str(ROOT), "NBAGENT_HOME": str(folder)}


def test_json_of_the_request_is_what_is_sent(kernel: AgentKernel, tmp_path: Path) -> None:
    with FakeMessagesAPI(["ok"], repeat=True) as fake:
        kernel.begin(tmp_path, fake)
        kernel.run("x = 1")
        kernel.run("%%agent --dry-run\nhow?")
        kernel.run("dry = get_ipython().run_cell_magic('agent', '--dry-run', 'how?').request")
        kernel.run(agent("how?"))
        kernel.run("import json; print(json.dumps(dry))")
        dry = json.loads(kernel.run("import json; print(json.dumps(dry))").stream())
        body = sent(fake)[-1]
        assert dry["tools"] == body["tools"]
        assert dry["system"] == body["system"]
        assert dry["messages"][-1]["content"][-1] == body["messages"][-1]["content"][-1]
