from __future__ import annotations

import asyncio
import os
import time

import pytest

from nbagent.core.errors import ToolError
from nbagent.tools.shell import STOP_GRACE_S, ShellTool, child_environment
from tests.patience import FOREVER_S, HANG_S, LeapLoop, until
from tests.tools.builders import Desk

SHELL = ShellTool()


@pytest.fixture
def desk(tmp_path):
    return Desk(tmp_path)


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as fh:
            return fh.read().split(")")[-1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def alive(pid):
    """Tell whether a process is still there after a moment: a signal takes effect a little after it is sent."""
    ends = time.monotonic() + HANG_S
    while is_running(pid) and time.monotonic() < ends:
        time.sleep(0.01)
    return is_running(pid)


def pid_in(path):
    return int(until(lambda: path.exists() and path.read_text().strip(), told=lambda: "the command did not start"))


def over_its_time(desk, command):
    """Run a command, whose minute is over when it has written its `pid`."""

    async def run():
        task = asyncio.ensure_future(desk.acall(SHELL, command=command, timeout_s=60))
        await asyncio.to_thread(pid_in, desk.root / "pid")
        asyncio.get_running_loop().leap(61)
        return await task

    with asyncio.Runner(loop_factory=LeapLoop) as runner:
        return runner.run(run())


def test_output_and_errors_come_in_order_with_the_exit_code(desk):
    output = desk.call(SHELL, command="echo one; echo two >&2; echo three; exit 3")
    assert output.text == "one\ntwo\nthree\n[exit code 3]"
    assert output.status == "error"


def test_a_silent_success_says_so(desk):
    output = desk.call(SHELL, command="true")
    assert output.text == "(no output)\n[exit code 0]"
    assert output.status == "ok"


def test_the_command_runs_in_the_working_folder_without_input(desk):
    (desk.root / "f.txt").write_text("")
    assert desk.call(SHELL, command="ls; cat").text.startswith("f.txt\n[exit code 0]")


def test_a_killed_command_names_the_signal(desk):
    assert "[killed by signal 9 (SIGKILL)]" in desk.call(SHELL, command="kill -9 $$").text


def test_long_output_is_capped_and_kept_whole(desk):
    # SPEC CR-C2
    desk.options["cap_chars"] = 4_000
    output = desk.call(SHELL, command="seq 1 50000; echo 'error: at the end'")
    assert len(output.text) <= 4_000
    assert output.text.startswith("1\n2\n")
    assert "error: at the end\n[exit code 0]" in output.text
    assert "read(path='.nbagent/artifacts/" in output.text
    assert desk.kept.texts[0] == "".join(f"{i}\n" for i in range(1, 50_001)) + "error: at the end\n"
    assert output.full_text == desk.kept.texts[0]


def test_a_command_that_prints_without_end_is_stopped(desk):
    tool = ShellTool(max_output_bytes=2_000_000)
    output = desk.call(tool, command="yes", timeout_s=60)
    assert "[stopped: it printed 2,000,000 bytes" in output.text
    assert output.status == "error"
    assert len(output.text) <= 64_000


def test_a_timeout_ends_the_whole_group(desk):
    output = over_its_time(desk, "echo start; (sleep 1000 & echo $! > pid; wait)")
    assert output.text.startswith("start\n[stopped after 60 s; raise timeout_s")
    assert not alive(pid_in(desk.root / "pid"))


def test_a_command_that_ignores_term_is_killed(desk, monkeypatch):
    monkeypatch.setattr("nbagent.tools.shell.TERM_GRACE_S", 0.2)
    output = over_its_time(desk, "trap '' TERM; echo $$ > pid; while :; do sleep 1; done")
    assert "stopped after 60 s" in output.text
    assert not alive(pid_in(desk.root / "pid"))


def test_stop_kills_the_group_sooner_than_a_timeout_does_and_is_passed_on(desk, monkeypatch):
    # DECISIONS 12: half a second
    assert STOP_GRACE_S < 0.5
    monkeypatch.setattr("nbagent.tools.shell.TERM_GRACE_S", FOREVER_S)

    async def stop() -> None:
        task = asyncio.ensure_future(desk.acall(SHELL, command="trap '' TERM; (trap '' TERM; echo $BASHPID > pid; sleep 1000) & wait"))
        await asyncio.to_thread(pid_in, desk.root / "pid")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(stop())
    assert not alive(pid_in(desk.root / "pid"))


def test_a_stop_before_the_start_was_told_leaves_no_process(desk, monkeypatch):
    # On a loaded machine the command may be well under way before asyncio says that it was started.
    start, told = asyncio.create_subprocess_exec, asyncio.Event()

    async def told_late(*args, **given):
        process = await start(*args, **given)
        await told.wait()
        return process

    async def stop() -> None:
        task = asyncio.ensure_future(desk.acall(SHELL, command="(echo $BASHPID > pid; sleep 1000) & wait"))
        await asyncio.to_thread(pid_in, desk.root / "pid")
        task.cancel()
        await asyncio.sleep(0)
        told.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    monkeypatch.setattr(asyncio, "create_subprocess_exec", told_late)
    asyncio.run(stop())
    assert not alive(pid_in(desk.root / "pid"))


def test_a_child_in_the_background_does_not_hold_the_result(desk):
    output = desk.call(SHELL, command="sleep 1000 & echo $! > pid; echo done")
    assert output.text == "done\n[exit code 0]"
    assert not alive(pid_in(desk.root / "pid"))


def test_colours_and_progress_bars_do_not_reach_the_model(desk):
    assert desk.call(SHELL, command=r"printf '10%%\r\033[32m100%%\033[0m\n'").text == "100%\n[exit code 0]"


def test_keys_are_not_in_the_commands_environment(desk, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-x")
    monkeypatch.setenv("PLAIN_WORD", "kept")
    output = desk.call(SHELL, command="echo [$ANTHROPIC_API_KEY] $PLAIN_WORD")
    assert output.text.startswith("[] kept\n")


def test_the_environment_loses_secrets_and_keeps_the_rest():
    given = {
        "HOME": "/h", "GITHUB_TOKEN": "t", "DB_PASSWORD": "p", "DATABASE_URL": "postgres://u:secret@h/d", "OTHER": "ghp_" + "a" * 30,
        "HTTPS_PROXY": "http://u:p@proxy", "SSH_AUTH_SOCK": "/s", "TOKENIZERS_PARALLELISM": "false",
    }  # fmt: skip
    kept = child_environment(given)
    assert {"HOME", "HTTPS_PROXY", "SSH_AUTH_SOCK", "TOKENIZERS_PARALLELISM"} <= set(kept)
    assert not {"GITHUB_TOKEN", "DB_PASSWORD", "DATABASE_URL", "OTHER"} & set(kept)


def test_what_cannot_start_is_an_error_for_the_model(desk):
    with pytest.raises(ToolError, match="empty"):
        desk.call(SHELL, command="  ")
    desk.options["cwd"] = desk.root / "gone"
    with pytest.raises(ToolError, match="does not exist any more"):
        desk.call(SHELL, command="true")


def test_no_descriptor_is_left_open(desk):
    desk.call(SHELL, command="true")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        desk.call(SHELL, command="true")
    assert len(os.listdir("/proc/self/fd")) <= before
