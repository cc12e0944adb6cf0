"""Who may run what: rules, modes, the person's answers and their scopes (DECISIONS 17, 20, 21; R5)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from nbagent.core.effects import Decision
from nbagent.core.entries import Approval, ToolResult, ToolStarted
from nbagent.core.messages import ToolCall
from nbagent.models.scripted import calls, says
from nbagent.runtime.approvals import Approvals
from nbagent.runtime.rules import Rules, named_command, named_path
from nbagent.tools.registry import builtin_tools
from tests.runtime.lab import Lab, result_texts

TOOLS = {t.spec.name: t for t in builtin_tools()}


def decide(
    name: str, root: Path = Path("/w"), *, mode: str = "ask", answers: list[str] | None = None, asked: list[str] | None = None,
    masked: bool = False, granted: set[str] | None = None, rules: Rules | None = None, **arguments: Any,
) -> Decision:  # fmt: skip
    async def ask(text: str) -> str | None:
        if asked is not None:
            asked.append(text)
        assert answers is not None
        return answers.pop(0)

    approvals = Approvals(
        tools=TOOLS, mode=mode, root=root, rules=rules or Rules(), ask=ask if answers is not None else None,
        granted_turn=granted or set(),
    )  # fmt: skip
    return asyncio.run(approvals.decide(ToolCall(id="1", name=name, input=arguments), masked=masked))


def shell(command: str, **rules: Any) -> str | None:
    made = Rules(**{k: tuple(v) for k, v in rules.items()})
    return made.verdict("shell", (named_command(command),))


# ---------------------------------------------------------------- rules


def test_deny_comes_before_ask_and_ask_before_allow() -> None:
    assert shell("ls", allow=["*"], ask=["shell"], deny=["shell(ls)"]) == "deny"
    assert shell("ls", allow=["*"], ask=["shell"]) == "ask"
    assert shell("ls", allow=["shell"]) == "allow"
    assert shell("ls", allow=["read"]) is None


@pytest.mark.parametrize(
    "command",
    [
        "git status", "git status --short", "git status -- 'a b'",
    ],
)  # fmt: skip
def test_an_allow_pattern_covers_a_plain_command(command: str) -> None:
    assert shell(command, allow=["shell(git status*)"]) == "allow"


@pytest.mark.parametrize(
    "command",
    [
        "git status; rm -rf x", "git status && rm -rf x", "git status || rm x", "git status | sh", "git status & rm x",
        "git status\nrm -rf x", "git status\r\nrm x", "git status $(rm x)", "git status `rm x`", "git status > ~/.bashrc",
        "git status < x", "git status <(rm x)", "git status ${x:=y}", "git status;rm x", "git status 2>&1",
        " rm x; git status",
    ],
)  # fmt: skip
def test_an_allow_pattern_does_not_cover_what_is_joined_to_the_command(command: str) -> None:
    assert shell(command, allow=["shell(git status*)"]) is None


def test_an_allow_pattern_without_stars_covers_exactly_its_text() -> None:
    assert shell("make | tee log", allow=["shell(make | tee log)"]) == "allow"
    assert shell("make | tee log2", allow=["shell(make | tee log)"]) is None
    assert shell("a; b", allow=["shell(*)"]) == "allow"  # all commands, said outright


@pytest.mark.parametrize(
    "command",
    [
        "rm -rf x", "git status; rm -rf x", "ls&&rm -rf x", "ls | xargs rm -rf", "echo $(rm -rf x)", "echo `rm -rf x`",
        "ls\nrm -rf x", "sudo rm -rf x", "sudo -n rm -rf x", "/bin/rm -rf x", "\\rm -rf x", "FOO=1 rm -rf x",
        "env A=b rm -rf x", "sh -c 'rm -rf x'", 'bash -c "ls; rm -rf x"', "if true; then rm -rf x; fi", "(rm -rf x)",
        "{ rm -rf x; }", "rm   -rf x", "rm \\\n -rf x", "'rm' -rf x", "time rm -rf x", "nohup rm -rf x &",
        "find . | xargs -n 1 rm -rf", "timeout 5 rm -rf x", "sh -c \"sh -c 'rm -rf x'\"",
    ],
)  # fmt: skip
def test_a_deny_pattern_meets_any_part_of_a_command(command: str) -> None:
    assert shell(command, allow=["shell"], deny=["shell(rm *)"]) == "deny"


@pytest.mark.parametrize("command", ["ls rm", "git rm-like", "echo warm", "rmdir x", "perform x"])
def test_a_deny_pattern_leaves_other_commands_alone(command: str) -> None:
    assert shell(command, deny=["shell(rm *)"]) is None


@pytest.mark.parametrize("tool", ["read", "write", "edit", "glob", "grep"])
def test_a_path_that_no_system_takes_is_left_to_the_tool_to_refuse(tool: str, tmp_path: Path) -> None:
    rules = Rules(deny=(f"{tool}(secrets/*)",), allow=("*",))
    given = {"path": "a\0b", "content": "x", "old": "x", "new": "y", "pattern": "*"}
    known = TOOLS[tool].spec.input_schema["properties"]
    arguments = {k: v for k, v in given.items() if k in known}
    assert decide(tool, tmp_path, rules=rules, **arguments).allowed


@pytest.mark.parametrize(
    ("path", "content", "asks"),
    [
        ("a.md", "x", False), (".git/config", "x", True), ("link/hooks/pre-commit", "x", True), ("nbagent.toml", "x", True),
        ("sub/../NBAGENT.toml", "x", True), ("pyproject.toml", "[project]", False), ("pyproject.toml", "[tool.nbagent]", True),
        (".gitignore", "x", False),
    ],
)  # fmt: skip
def test_auto_asks_before_it_changes_what_governs_it(path: str, content: str, asks: bool, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(".git")
    assert decide("write", tmp_path, mode="auto", path=path, content=content).allowed != asks
    assert decide("edit", tmp_path, mode="auto", path=path, old="a", new=content).allowed != asks


def test_a_rule_on_reading_a_path_hides_the_file_from_searches(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("secrets")
    for rules in (Rules(deny=("read(secrets/*)",)), Rules(ask=("re*(secrets/*)",))):
        hidden = [p for p in ("secrets/x", "link/x", "a.txt", "secrets.txt") if rules.hides(str(tmp_path / p), tmp_path)]
        assert hidden == ["secrets/x", "link/x"]
    for rules in (Rules(deny=("read",)), Rules(deny=("read(*)", "write(secrets/*)"), allow=("read(secrets/*)",))):
        assert not rules.hides(str(tmp_path / "secrets/x"), tmp_path)


def test_path_rules_look_at_where_a_path_leads(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to("/etc")

    def verdict(path: str, **rules: tuple[str, ...]) -> str | None:
        return Rules(**rules).verdict("read", (named_path(path, tmp_path),))

    etc = {"deny": ("read(/etc/*)",)}
    for path in ("/etc/passwd", "/etc/../etc/passwd", "link/passwd", "../" * 12 + "etc/passwd", "/etc"):
        assert verdict(path, **etc) == "deny", path
    data = {"allow": ("read(data/*)",)}
    assert verdict("data/a.csv", **data) == "allow"
    assert verdict("./data/x/../a.csv", **data) == "allow"
    assert verdict(str(tmp_path / "data" / "a.csv"), **data) == "allow"
    for path in ("data/../secret", "data/../../x", "/data/a.csv", "other/data/a.csv"):
        assert verdict(path, **data) is None, path
    assert verdict("a/.env", deny=("read(*.env)",)) == "deny"
    assert verdict(str(Path.home() / "x" / "y"), deny=("read(~/x/*)",)) == "deny"


def test_brackets_and_question_marks_are_plain_text_in_patterns() -> None:
    assert shell("ls [a]", allow=["shell(ls [a])"]) == "allow"
    assert shell("ls a", allow=["shell(ls [a])"]) is None
    assert Rules(allow=("mcp_*",)).verdict("mcp_find") == "allow"


def test_a_pattern_for_code_allows_one_harmless_line() -> None:
    rules = Rules(allow=("python(print(*)",))
    assert decide("python", mode="ask", rules=rules, code="print(df)").allowed
    assert not decide("python", mode="ask", rules=rules, code="print(1)\nopen('x', 'w')").allowed
    assert not decide("python", mode="ask", rules=rules, code="print(__import__('os').system('x'))").allowed


# ---------------------------------------------------------------- modes


def test_ask_mode_reads_freely_and_asks_for_the_rest() -> None:
    for name, arguments in (("read", {"path": "a"}), ("glob", {"pattern": "*"}), ("inspect", {})):
        assert decide(name, **arguments).allowed
    asked: list[str] = []
    assert decide("shell", command="ls", answers=["y"], asked=asked).allowed
    assert "ls" in asked[0]
    assert not decide("shell", command="ls", answers=["n"]).allowed


def test_auto_mode_asks_only_for_what_the_scan_finds() -> None:
    assert decide("python", mode="auto", code="x = 1").allowed
    asked: list[str] = []
    assert not decide("python", mode="auto", code="import os; os.remove('a')", answers=["n"], asked=asked).allowed
    assert "deletes files" in asked[0]
    assert decide("python", mode="auto", code="import os; os.remove('a')", rules=Rules(allow=("python",))).allowed


def test_plan_mode_runs_nothing_whatever_was_allowed() -> None:
    for name, arguments in (("python", {"code": "1"}), ("shell", {"command": "ls"}), ("write", {"path": "a", "content": ""})):
        refused = decide(name, mode="plan", rules=Rules(allow=("*",)), granted={name}, answers=["y"], **arguments)
        assert not refused.allowed
        assert "plan mode" in refused.reason
    assert decide("read", mode="plan", path="a").allowed


def test_masked_tools_are_refused_without_a_question() -> None:
    refused = decide("python", mode="auto", masked=True, rules=Rules(allow=("*",)), code="1")
    assert not refused.allowed
    assert "not available in this turn" in refused.reason


def test_an_invalid_call_is_not_asked_for() -> None:
    assert decide("shell", answers=[], cmd="rm -rf /").allowed  # the toolbox answers what is wrong; nothing runs


# ---------------------------------------------------------------- answers


def test_unknown_answers_are_asked_again_and_then_count_as_no() -> None:
    asked: list[str] = []
    assert decide("shell", command="ls", answers=["maybe", "Y "], asked=asked).allowed
    assert "'maybe' is not an answer" in asked[1]
    asked.clear()
    refused = decide("shell", command="ls", answers=["hm", "eh", "what"], asked=asked)
    assert not refused.allowed
    assert len(asked) == 3


@pytest.mark.parametrize("answer", ["n", "N", "no", "d", "deny", ""])
def test_no_is_no(answer: str) -> None:
    """Typed without reading on, `n` must not allow anything (it once meant "this notebook")."""
    asked: list[str] = []
    refused = decide("shell", command="ls", answers=[answer], asked=asked)
    assert (refused.allowed, refused.by) == (False, "person")
    assert asked[0].endswith("\nAllow? [y]es, for this [t]urn, [a]lways in this notebook, [n]o: ")


@pytest.mark.parametrize(
    ("answer", "scope"),
    [("y", "once"), ("yes", "once"), ("t", "turn"), ("turn", "turn"), ("a", "notebook"), ("always", "notebook")],
)
def test_each_yes_has_its_scope(answer: str, scope: str) -> None:
    granted = decide("shell", command="ls", answers=[answer])
    assert (granted.allowed, granted.scope) == (True, scope)


def test_an_ask_rule_with_a_text_is_asked_each_time() -> None:
    rules, asked = Rules(ask=("shell(git push*)",)), []  # type: ignore[var-annotated]
    push = {"command": "git status; git push", "rules": rules, "granted": {"shell"}, "asked": asked}
    granted = decide("shell", answers=["a"], **push)
    assert granted.allowed
    assert granted.scope == "once"
    assert asked[0].endswith("\nAllow? [y]es, [n]o: ")
    assert decide("shell", answers=[], **{**push, "command": "git status"}).allowed


def test_the_question_shows_all_that_runs() -> None:
    asked: list[str] = []
    decide("shell", command="rm x\recho harmless\x1b[2K", answers=["n"], asked=asked)
    assert "rm x" in asked[0]
    assert "\x1b" not in asked[0]
    decide("python", code="\n".join(f"line{i}" for i in range(200)), answers=["n"], asked=asked)
    assert "\nline199\nAllow?" in asked[1]
    decide("python", code="\n".join(f"line{i}" for i in range(1000)), answers=["n"], asked=asked)
    assert "\nline299\n… (700 more lines)\nAllow?" in asked[2]


def test_the_question_shows_code_in_the_order_in_which_it_runs() -> None:
    """Changes of the writing direction would show a comment where a condition stands."""
    asked: list[str] = []
    decide("python", code='if user != "none\u202e\u2066# only for admin\u2069 \u2066":\n  x = "你好 مرحبا 👨‍👩‍👧"', answers=["n"], asked=asked)
    decide("write", path="a\u202etxt.exe", content="\U000e0041b\u200b", answers=["n"], asked=asked)
    assert 'if user != "none\\u202e\\u2066# only for admin\\u2069 \\u2066":' in asked[0]
    assert 'x = "你好 مرحبا 👨‍👩‍👧"' in asked[0]
    assert "a\\u202etxt.exe" in asked[1]
    assert "\\U000e0041b\\u200b" in asked[1]


def test_once_turn_and_notebook_last_as_long_as_they_say_also_over_a_restart(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "work")

    def step(name: str = "python", **arguments: Any) -> Any:
        return calls(name, **(arguments or {"code": "1"}))

    lab.answers = ["y", "t", "a"]
    lab.open([[step()], [step()], [step()], says("a"), [step()], [step("shell", command="ls")], says("b")])
    lab.send("first", "A")
    assert len(lab.asked) == 2  # once; then this turn, so the third is not asked for
    lab.send("second", "B")
    assert len(lab.asked) == 3 + 1
    assert [a.scope for a in lab.bodies(Approval)] == ["once", "turn", "notebook", "once"]
    lab.restart([[step()], says("c")])
    lab.asked.clear()
    lab.send("third", "C")
    assert lab.asked == []
    lab.restart([[step()], says("d")])
    lab.send("first, again", "A")  # another branch of the same notebook
    assert lab.asked == []


def test_an_allowance_for_the_turn_holds_when_it_is_resumed_after_a_restart(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "work")
    lab.answers = ["t"]
    lab.open([[calls("python", code="1")], says("unused")])
    lab.send("go", "A", max_steps=1)
    lab.restart([[calls("python", code="2")], says("done")])
    lab.resume()
    assert len(lab.asked) == 1
    assert lab.kernel.ran == ["2"]


# ---------------------------------------------------------------- headless


def test_headless_ask_mode_refuses_each_call_with_the_line_that_would_allow_it(tmp_path: Path) -> None:
    """R5."""
    lab = Lab(tmp_path / "work")
    lab.open([
        [calls("python", code="open('made', 'w')"), calls("shell", command="touch made"), calls("glob", pattern="*")],
        [calls("write", path="made", content="x")],
        says("I could not."),
    ])  # fmt: skip
    done = lab.send("go", "A")
    assert done.output.outcome == "completed"
    assert not (lab.folder / "made").exists()
    assert lab.kernel.ran == []
    results = lab.bodies(ToolResult)
    refused = [r for r in results if r.status == "refused"]
    assert [r.name for r in refused] == ["python", "shell", "write"]
    for result in refused:
        last = str(result.content[0]["text"]).rsplit("\n", 1)[-1]
        assert last.startswith(f"To allow it: NBAGENT_TOOLS__ALLOW={result.name}")
        assert str(result.content[0]["text"]) in result_texts(lab.requests[-1])
    assert [r.status for r in results if r.name == "glob"] == ["ok"]
    assert [s.name for s in lab.bodies(ToolStarted)] == ["glob"]
    assert {a.decision for a in lab.bodies(Approval)} == {"refused"}


def test_the_line_that_would_allow_a_call_does(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "work", environ={"NBAGENT_TOOLS__ALLOW": "python"})
    lab.open([[calls("python", code="x = 1")], says("ok")])
    lab.send("go", "A")
    assert lab.kernel.ran == ["x = 1"]


def test_headless_refusal_by_an_ask_rule_names_the_rule() -> None:
    refused = decide("read", path="a", rules=Rules(ask=("read",), allow=("read",)))
    assert refused.reason.splitlines()[-1].startswith("To allow it: take 'read' out of tools.ask")
    auto = decide("python", mode="auto", code="import subprocess")
    assert "--mode auto" not in auto.reason
    assert "another process" in auto.reason


def test_masking_by_tools_and_by_plan_is_told_and_held(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "work", mode="auto")
    lab.open([[calls("python", code="x = 1")], says("ok"), says("then")])
    lab.send("go", "A", mode="plan")
    assert lab.kernel.ran == []
    assert "not available" in lab.told()[0]
    lab.send("more", "B")
    assert "may be used again" in lab.told()[1]
