"""What goes wrong around a turn: each is one line that says what, where and what to do, and nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.messages_api import FakeMessagesAPI, call, http_error, reply
from tests.notebook.agent_kernel import AgentKernel, agent, error_line, results, running, sent, shown, states, texts
from tests.patience import until

pytestmark = pytest.mark.kernel


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentKernel]:
    with running(tmp_path_factory.mktemp("kernel")) as started:
        yield started


def python(code: str) -> dict[str, object]:
    return call("python", {"code": code})


def test_a_folder_that_cannot_be_written(kernel: AgentKernel, tmp_path: Path) -> None:
    (tmp_path / ".nbagent").write_text("a file in place of the folder")
    with FakeMessagesAPI(["ok"]) as fake:
        kernel.begin(tmp_path, fake)
        kernel.run("kept = 1")
        assert "cannot write" in error_line(kernel.run(agent("hi")))
        assert "cannot write" in error_line(kernel.run("%agent"))
        assert fake.requests == []
        (tmp_path / ".nbagent").unlink()
        assert kernel.run(agent("hi")).status == "ok"
        assert "kept = 1" in states(sent(fake)[0])[0]


def test_a_full_disk_fails_the_cell_and_the_next_one_works(kernel: AgentKernel, tmp_path: Path) -> None:
    fill = (
        "import os, errno\nreal_write = os.write\ndef full(fd, text):\n"
        "    raise OSError(errno.ENOSPC, 'No space left on device')\n"
    )
    with FakeMessagesAPI([reply("Fill.", python(f"{fill}os.write = full")), "late", "next"]) as fake:
        kernel.begin(tmp_path, fake, NBAGENT_TOOLS__ALLOW="python")
        line = error_line(kernel.run(agent("hi")))  # the disk is full in mid-turn
        assert "No space left on device" in line
        assert "free some space" in line
        assert "No space left" in error_line(kernel.run(agent("again")))  # and before a turn
        assert kernel.run("%agent log").status == "ok"
        assert "its end could not be written; `%agent resume` goes on" in shown(kernel.run("%agent"))
        kernel.run("os.write = real_write")
        assert kernel.run(agent("third")).status == "ok"
        assert texts(sent(fake)[-1]) == ["hi", "third"]


def test_a_session_that_another_kernel_writes(kernel: AgentKernel, tmp_path: Path) -> None:
    notebook = tmp_path / "a.ipynb"
    notebook.write_text("{}")
    env = {"JPY_SESSION_NAME": str(notebook)}
    with FakeMessagesAPI(["ok"], repeat=True) as fake, running(tmp_path) as other:
        kernel.begin(tmp_path, fake, **env)
        kernel.run(agent("mine"), cell_id="a")
        welcome = shown(other.begin(tmp_path, fake, **env))
        assert "cannot be opened now" in welcome
        assert " turn" not in welcome.splitlines()[0]
        for cell in (agent("theirs"), "%agent", "%context"):
            line = error_line(other.run(cell))
            assert f"is being written by process {kernel.value('__import__(chr(111) + chr(115)).getpid()')}" in line
            assert "shut down the kernel of that notebook, or set NBAGENT_SESSION" in line
        other.run("%env NBAGENT_SESSION=theirs")
        assert other.run(agent("theirs")).status == "ok"
        assert texts(sent(fake)[-1]) == ["theirs"]
        assert kernel.run(agent("mine too"), cell_id="b").status == "ok"
        assert texts(sent(fake)[-1]) == ["mine", "mine too"]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ('modell = "x"\n', "nbagent.toml:1: unknown setting 'modell'; did you mean 'model'"),
        ('mode = "quick"\n', "nbagent.toml:1: mode = 'quick' is not possible; give one of ask, auto, plan"),
        ("mode = [\n", "not valid TOML"),
    ],
)
def test_settings_that_cannot_be_read(kernel: AgentKernel, tmp_path: Path, settings: str, says: str) -> None:
    with FakeMessagesAPI(["ok"]) as fake:
        (tmp_path / "nbagent.toml").write_text(settings)
        assert says in shown(kernel.begin(tmp_path, fake))
        for cell in (agent("hi"), "%agent", "%context", "%agent tools"):
            assert says in error_line(kernel.run(cell))
        (tmp_path / "nbagent.toml").unlink()
        assert kernel.run(agent("hi")).status == "ok"
        assert len(sent(fake)) == 1


def test_a_provider_that_refuses_says_why_and_the_turn_can_go_on(kernel: AgentKernel, tmp_path: Path) -> None:
    broken = reply("x", fault=http_error(401, "invalid x-api-key", error_type="authentication_error"))
    with FakeMessagesAPI([broken, "fine"]) as fake:
        kernel.begin(tmp_path, fake)
        assert "invalid x-api-key" in error_line(kernel.run(agent("hi")))
        assert "invalid x-api-key" in shown(kernel.run("%agent"))
        assert "fine" in shown(kernel.run("%agent resume"))
        assert texts(sent(fake)[-1]) == ["hi"]


MOVES = (
    "%agent reset", "%agent fork 1", "%agent revert 1", "%agent open x", "%agent replay x.json", "%agent resume",
    "%context pin foo", "%context unpin foo", "%context undo", "%context compact",
    "%unload_ext nbagent", "%reload_ext nbagent", "nbagent.ask('go')",
)  # fmt: skip


def test_what_changes_the_conversation_is_refused_while_a_turn_runs_and_the_turn_goes_on(
    kernel: AgentKernel, tmp_path: Path
) -> None:
    reads = ("%agent tree", "%context", "%agent log", "%agent export x.md")
    code = ["import nbagent", "told, read = {}, []"]
    for line in MOVES:
        code.append(f"try:\n    {line}\nexcept Exception as error:\n    told[{line!r}] = str(error)")
    code += [f"read.append(str(get_ipython().run_line_magic(*{tuple(r[1:].partition(' ')[::2])!r})))" for r in reads]
    with FakeMessagesAPI(["first", reply("Try.", python("\n".join(code))), "fine", "and on"]) as fake:
        kernel.begin(tmp_path, fake, NBAGENT_TOOLS__ALLOW="python")
        kernel.run(agent("one"), cell_id="a")
        assert "fine" in shown(kernel.run(agent("two"), cell_id="b"))
        told = kernel.value("told")
        lines = ("a turn is running already in this kernel", "code that an agent runs cannot start a turn of its own")
        assert [m for m in MOVES if not told.get(m, "").startswith(lines)] == []
        assert kernel.value("(len(read), all(read))") == (len(reads), True)
        assert kernel.run(agent("three"), cell_id="c").status == "ok"
        assert texts(sent(fake)[-1]) == ["one", "two", "three"]


def test_an_edited_note_is_not_installed_while_a_turn_runs(kernel: AgentKernel, tmp_path: Path) -> None:
    code = (
        "from nbagent.notebook.commands import context as context_commands\nfrom nbagent.notebook.extension import current\n"
        "context_commands.note_in_force = lambda session: 'a note'\n"
        "try:\n    context_commands.note_cell(current().agent_app, 'x')\nexcept Exception as error:\n    told = str(error)"
    )
    with FakeMessagesAPI([reply("Try.", python(code)), "fine"]) as fake:
        kernel.begin(tmp_path, fake, NBAGENT_TOOLS__ALLOW="python")
        assert kernel.run(agent("go")).status == "ok"
        kernel.run("import importlib; importlib.reload(context_commands)")
        assert "a turn is running already in this kernel" in kernel.value("told")


def test_code_that_clears_the_output_takes_nothing_of_the_turn_away(kernel: AgentKernel, tmp_path: Path) -> None:
    code = "from IPython.display import clear_output\nprint('one')\nclear_output(wait=True)\nclear_output()\nprint('two')"
    with FakeMessagesAPI([reply("Look.", python(code)), "fine"]) as fake:
        kernel.begin(tmp_path, fake)
        result = kernel.run(agent("go"))
        assert result.of("clear_output") == []
        below = shown(result)
        assert [word for word in ("Look.", "one", "two", "fine") if word not in below] == []
        assert "two" in str(sent(fake)[-1]["messages"][-1])
        assert "one" not in str(sent(fake)[-1]["messages"][-1])
        assert len(kernel.run("from IPython.display import clear_output; clear_output()").of("clear_output")) == 1


def test_a_progress_loop_of_the_agent_leaves_one_display(kernel: AgentKernel, tmp_path: Path) -> None:
    code = (
        "from IPython.display import HTML, clear_output, display\n"
        "for i in range(5):\n    clear_output(wait=True)\n    display(HTML(f'<b>round {i}</b>'))\n    print('loss', i)"
    )
    with FakeMessagesAPI([reply("Look.", python(code)), "fine"]) as fake:
        kernel.begin(tmp_path, fake)
        result = kernel.run(agent("go"))
        shows = [m["content"] for m in result.of("display_data")]
        rounds = [m for m in shows if "round" in m["data"].get("text/html", "")]
        printed = [m for m in shows if m["data"].get("text/plain", "").startswith("loss")]
        assert (len(rounds), len(printed), result.of("stream")) == (1, 1, [])
        last = {
            m["content"]["transient"]["display_id"]: m["content"]["data"] for m in result.of("update_display_data")
        }
        assert last[rounds[0]["transient"]["display_id"]]["text/html"] == "<b>round 4</b>"
        assert last[printed[0]["transient"]["display_id"]]["text/plain"] == "loss 4"
        told = str(sent(fake)[-1]["messages"][-1])
        assert "loss 4" in told
        assert "loss 3" not in told


def test_a_killed_kernel_loses_nothing(kernel: AgentKernel, tmp_path: Path) -> None:
    notebook = tmp_path / "a.ipynb"
    notebook.write_text("{}")
    env = {"JPY_SESSION_NAME": str(notebook)}
    second = reply("Second.", python("open('began', 'w').close()\nimport time; time.sleep(3_600)"), python("after = 2"))
    with FakeMessagesAPI([reply("First.", python("before = 1")), second, "resumed", "next"]) as fake:
        kernel.begin(tmp_path, fake, **env)
        kernel.run("import os, time")
        kernel.send(agent("go"), cell_id="a")
        until((tmp_path / "began").exists)
        kernel.kill()
        kernel.restart()
        assert "1 turn" in shown(kernel.begin(tmp_path, fake, **env))
        assert "broken off" in shown(kernel.run("%agent log"))
        assert "its kernel ended before it did; `%agent resume` goes on" in shown(kernel.run("%agent"))
        assert kernel.run("%agent resume").status == "ok"
        told = list(results(sent(fake)[-1]).values())
        assert "It was not run again" in told[1]
        assert kernel.value("(globals().get('before'), after)") == (None, 2)
        assert sum("restarted" in s for s in states(sent(fake)[-1])) == 1
        assert kernel.run(agent("next"), cell_id="b").status == "ok"
        assert texts(sent(fake)[-1])[0] == "go"


def test_a_killed_kernel_does_not_keep_the_next_cell_from_running(kernel: AgentKernel, tmp_path: Path) -> None:
    notebook = tmp_path / "a.ipynb"
    notebook.write_text("{}")
    env = {"JPY_SESSION_NAME": str(notebook)}
    with FakeMessagesAPI([reply("Begin.", python("import os; os.kill(os.getpid(), 9)")), "next"]) as fake:
        kernel.begin(tmp_path, fake, NBAGENT_TOOLS__ALLOW="python", **env)
        kernel.send(agent("go"), cell_id="a")
        until(lambda: not kernel.alive())
        kernel.restart()
        kernel.begin(tmp_path, fake, **env)
        assert kernel.run(agent("other"), cell_id="b").status == "ok"
        assert texts(sent(fake)[-1]) == ["go", "other"]
        log = shown(kernel.run("%agent log"))
        assert "stopped" in log
        assert "completed" in log
