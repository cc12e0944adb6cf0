"""Skills in a session: the stored list, what is told at the tail, reading, the tool, forks, and the record (OC-S*, CC-S*, NB-S*)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nbagent.core.effects import SubAgentMoved, ToolBegan, ToolEnded, TurnBegan
from nbagent.core.entries import Compaction, SkillUse, ToolResult, UsageReported
from nbagent.core.errors import TurnFailed, UsageProblem
from nbagent.core.messages import joined_text
from nbagent.models.scripted import calls, says
from nbagent.runtime.agents import ended_agents
from nbagent.skills.uses import log_rows
from tests.fakes.messages_api import call, reply
from tests.runtime.lab import Lab, extended_by, result_texts
from tests.runtime.talk import Talk
from tests.skills.builders import skill


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path / "work", environ={"HOME": str(tmp_path / "person"), "PATH": os.environ["PATH"]})


def managed(lab: Lab, name: str, description: str = "Does it. Use when asked.", **given: str) -> Path:
    return skill(lab.home / "skills" / name, name, description, **given)


def listed(lab: Lab, number: int = -1) -> str:
    """The list of skills in the prefix of a request."""
    prefix = lab.requests[number].prefix
    return "".join(str(b["text"]) for b, c in zip(prefix.system, prefix.categories, strict=True) if c == "skills")


def tools(lab: Lab) -> list[str]:
    return [str(t["name"]) for t in lab.requests[-1].prefix.tools]


def uses(lab: Lab) -> list[SkillUse]:
    return lab.bodies(SkillUse)


# ---------------------------------------------------------------- the list


def test_the_prefix_lists_the_skills_and_counts_them_as_their_own_category(lab: Lab) -> None:
    """OC-S7."""
    managed(lab, "deploy", "Deploys a model. Use when asked to deploy.")
    lab.open([says("ok")])
    lab.send("hi")
    assert "<name>deploy</name>" in listed(lab)
    assert "<location>" in listed(lab)
    ledger = lab.session.occupancy().ledger.as_mapping()
    assert 0 < ledger["skills"] < 1_500


@pytest.mark.parametrize(
    ("mode", "offered", "located"), [("nbagent", ["find_skills"], True), ("read", [], True), ("tool", ["skill"], False)]
)
def test_the_mode_decides_which_tool_there_is(lab: Lab, mode: str, offered: list[str], located: bool) -> None:
    """CC-S1."""
    lab.open([says("ok")], skills__mode=mode)
    lab.send("hi")
    assert [t for t in tools(lab) if t in ("skill", "find_skills")] == offered
    assert ("<location>" in listed(lab)) == located


@pytest.mark.parametrize("mode", ["nbagent", "tool", "read"])
def test_without_any_skill_there_is_neither_a_list_nor_a_tool_for_skills(lab: Lab, mode: str) -> None:
    """claude 28: one that comes later is told with its file."""
    lab.open([says("ok"), says("ok")], skills__mode=mode, skills__allow_bundled=["none-of-them"])
    lab.send("hi", "A")
    assert not listed(lab)
    assert "available_skills" not in lab.requests[-1].prefix.to_text()
    assert not {"skill", "find_skills"} & set(tools(lab))
    path = managed(lab, "alpha")
    lab.send("hi", "B")
    assert "- new: alpha" in lab.told()[-1]
    assert str(path) in lab.told()[-1]
    assert "find_skills" not in lab.told()[-1]


def test_a_skill_of_a_project_nobody_trusts_is_not_told(lab: Lab) -> None:
    skill(lab.folder / "skills" / "evil", "evil")
    skill(lab.folder / ".claude" / "skills" / "worse", "worse")
    lab.open([says("ok")])
    lab.send("hi")
    assert "evil" not in listed(lab)
    assert "worse" not in listed(lab)
    assert "not trusted" in lab.session.runner.skills.catalog.named("evil").reason


def test_with_many_skills_the_list_stays_as_long_as_with_ten(lab: Lab) -> None:
    """NB-S1."""
    for i in range(10):
        managed(lab, f"skill-{i}")
    lab.open([says("ok"), says("ok")])
    lab.send("hi")
    few = len(listed(lab))
    for i in range(10, 300):
        managed(lab, f"skill-{i}")
    lab.send("hi", new=True)
    assert len(listed(lab)) <= few * 1.1
    assert "find_skills" in listed(lab)


# ---------------------------------------------------------------- changes


def test_new_changed_and_gone_skills_are_told_at_the_tail_and_the_prefix_stays(lab: Lab) -> None:
    """DECISIONS 1."""
    file = managed(lab, "alpha", "Does alpha.")
    managed(lab, "beta", "Does beta.", body="Old text.\n")
    lab.open([says("1"), says("2"), says("3"), says("4"), says("5")])
    lab.send("a", "A")
    managed(lab, "gamma", "Does gamma.")
    lab.send("b", "B")
    assert "- new: gamma" in lab.told()[-1]
    managed(lab, "beta", "Does beta.", body="New text, longer.\n")
    lab.send("c", "C")
    assert "- its text changed: beta" in lab.told()[-1]
    file.unlink()
    lab.send("d", "D")
    assert "- gone: alpha" in lab.told()[-1]
    lab.send("e", "E")
    assert len(lab.told()) == 4, "nothing is told twice"
    assert len({r.prefix.to_text() for r in lab.requests}) == 1
    assert all(extended_by(a, b) for a, b in zip(lab.requests, lab.requests[1:], strict=False))


def test_of_thirty_skills_the_one_that_changed_is_told_and_what_was_sent_stays(lab: Lab) -> None:
    """claude 29."""
    for i in range(30):
        managed(lab, f"skill-{i:02d}", f"Does thing {i}.")
    lab.open([says("1"), says("2")], skills__mode="read")
    lab.send("a", "A")
    assert listed(lab).count("<name>skill-") == 30
    managed(lab, "skill-07", "Does more.")
    lab.send("b", "B")
    told = lab.told()[-1]
    assert "- changed: skill-07" in told
    assert "Does more." in told
    assert told.count("skill-") == told.count("skill-07")
    first, second = lab.requests
    assert extended_by(first, second)


def test_changes_are_told_across_a_restart(lab: Lab) -> None:
    """openclaw 166."""
    managed(lab, "alpha")
    lab.open([says("1")])
    lab.send("a", "A")
    managed(lab, "beta")
    lab.restart([says("2"), says("3")])
    lab.send("b", "B")
    assert "- new: beta" in lab.told()[-1]
    lab.restart([says("3")])
    lab.send("c", "C")
    assert "beta" not in lab.told()[-1]


def test_a_new_conversation_takes_the_fresh_list(lab: Lab) -> None:
    lab.open([says("1"), says("2")])
    lab.send("a", "A")
    managed(lab, "beta")
    lab.send("b", "B", new=True)
    assert "<name>beta</name>" in listed(lab)
    assert "beta" not in lab.told()[-1]


def test_a_skill_switched_off_in_mid_session_is_told_and_refused_at_reading(lab: Lab) -> None:
    """DECISIONS 1."""
    path = managed(lab, "alpha")
    lab.open([says("1"), calls("read", path=str(path)), says("2")])
    lab.send("a", "A")
    lab.session.reconfigure(lab.settings(skills__entries={"alpha": {"enabled": False}}))
    lab.send("b", "B")
    assert "- gone: alpha. Do not use it. (it is switched off" in lab.told()[-1]
    assert "cannot be used: it is switched off" in result_texts(lab.requests[-1])[0]
    assert uses(lab) == []


def test_after_a_compaction_the_list_is_fresh_and_an_undo_tells_what_changed_again(lab: Lab) -> None:
    from nbagent.runtime.compacting import compact, undo

    lab.open([says("x " * 9_000), says("y " * 9_000), says("3"), says("4"), says("5")])
    lab.send("a", "A")
    lab.send("b", "B")
    managed(lab, "beta")
    done = lab.run(compact(lab.session, lab.ports(), edited="We said x and y."))
    assert done.applied
    lab.send("c", "C")
    assert "<name>beta</name>" in listed(lab)
    assert not any("beta" in t for t in lab.told()[-1:])
    undo(lab.session)
    lab.send("d", "D")
    assert "<name>beta</name>" not in listed(lab)
    assert "- new: beta" in lab.told()[-1]


# ---------------------------------------------------------------- way one


def test_the_body_comes_by_read_and_the_use_is_recorded(lab: Lab) -> None:
    """OC-S9, NB-S2."""
    path = managed(lab, "alpha", body="Count the rows first.\n")
    lab.open([calls("read", path=str(path)), calls("python", code="1+1"), says("done")], mode="auto")
    lab.send("count my rows", "A")
    assert "Count the rows first." in result_texts(lab.requests[1])[0]
    (use,) = uses(lab)
    assert (use.name, use.by, use.why) == ("alpha", "model", "count my rows")
    (row,) = log_rows(lab.session.tree)
    assert (row.tools, row.outcome) == (("python",), "completed")
    assert row.tokens > 5
    assert row.duration_s >= 0


def test_reading_on_or_another_file_is_no_use(lab: Lab) -> None:
    path = managed(lab, "alpha", body="line\n" * 50)
    (path.parent / "more.md").write_text("details")
    (lab.folder / "SKILL.md").write_text("---\nname: not-one\n---\n")
    paths = [{"path": str(path), "offset": 20}, {"path": str(path.parent / "more.md")}, {"path": "SKILL.md"}]
    lab.open([*(calls("read", **p) for p in paths), says("done")])
    lab.send("a", "A")
    assert {r.status for r in lab.bodies(ToolResult)} == {"ok"}
    assert uses(lab) == []


def test_skills_outside_the_workspace_can_be_read_and_nothing_else_there(lab: Lab) -> None:
    """OC-S10."""
    managed(lab, "alpha")
    (lab.home / "secret.txt").write_text("secret")
    bundled = next(s for s in lab.open([]).runner.skills.catalog if s.name == "look-at-data")
    lab.script([calls("read", path=bundled.path), calls("read", path=str(lab.home / "secret.txt")), says("done")])
    lab.send("a", "A")
    ok, refused = lab.bodies(ToolResult)
    assert ok.status == "ok"
    assert "outside the workspace" in joined_text(refused.content)
    assert [u.name for u in uses(lab)] == ["look-at-data"]


def test_an_untrusted_skill_of_the_workspace_is_an_ordinary_file_and_no_use(lab: Lab) -> None:
    skill(lab.folder / "skills" / "mine", "mine", body="Draft.\n")
    lab.open([calls("read", path="skills/mine/SKILL.md"), says("done")])
    lab.send("improve it", "A")
    assert "Draft." in result_texts(lab.requests[-1])[0]
    assert uses(lab) == []


def test_a_skill_that_goes_between_listing_and_reading_is_named(lab: Lab) -> None:
    """Bad input of the issue."""
    path = managed(lab, "alpha")
    lab.open([calls("read", path=str(path)), says("done")])
    lab.send("a", "A")
    assert uses(lab)
    path.unlink()
    lab.script([calls("read", path=str(path), offset=1, limit=5), says("gone then")])
    lab.send("b", "B")
    assert "does not exist" in result_texts(lab.requests[-1])[-1]
    assert "- gone: alpha" in lab.told()[-1]


def test_find_skills_finds_what_is_not_listed(lab: Lab) -> None:
    """NB-S1."""
    for i in range(60):
        managed(lab, f"filler-{i}", f"Does thing number {i}. Use when thing {i} is wanted.")
    managed(lab, "zebra-count", "Counts zebras in aerial pictures. Use when animals are to be counted.")
    lab.open([calls("find_skills", task="count animals in pictures"), says("ok")])
    lab.send("a", "A")
    assert "zebra-count" not in listed(lab)
    text = result_texts(lab.requests[-1])[0]
    assert text.startswith("- zebra-count:")
    assert "take it with read(path=" in text


# ---------------------------------------------------------------- way two


def test_the_tool_gives_the_text_with_arguments_and_records_the_use(lab: Lab) -> None:
    """CC-S1."""
    managed(lab, "greet", body="Greet $0 in $1. Folder ${CLAUDE_SKILL_DIR}.\n")
    lab.open([calls("skill", skill="greet", arguments="Ann French"), says("ok")], skills__mode="tool")
    lab.send("a", "A")
    text = result_texts(lab.requests[-1])[0]
    assert "Greet Ann in French." in text
    assert str(lab.home / "skills" / "greet") in text
    (use,) = uses(lab)
    assert (use.name, use.details["arguments"]) == ("greet", "Ann French")


def test_the_same_skill_again_is_a_short_note_and_other_arguments_are_not(lab: Lab) -> None:
    managed(lab, "greet", body="Greet $0.\n" + "More. " * 50)
    asked = [calls("skill", skill="greet", arguments=a) for a in ("Ann", "Ann", "Bob")]
    lab.open([*asked, says("ok")], skills__mode="tool")
    lab.send("a", "A")
    first, second, third = result_texts(lab.requests[-1])
    assert "Greet Ann." in first
    assert "not repeated" in second
    assert "Greet Bob." in third


@pytest.mark.parametrize("name", ["nothing", "../greet", "GREET/../x", "hidden"])
def test_what_there_is_not_is_refused_in_one_line(lab: Lab, name: str) -> None:
    managed(lab, "greet")
    managed(lab, "hidden", disable_model_invocation="true")
    lab.open([calls("skill", skill=name), says("ok")], skills__mode="tool")
    lab.send("a", "A")
    (result,) = lab.bodies(ToolResult)
    assert result.status == "error"
    assert "\n" not in joined_text(result.content)
    assert uses(lab) == []


def test_a_skill_with_a_name_in_another_case_is_found(lab: Lab) -> None:
    managed(lab, "greet")
    lab.open([calls("skill", skill="Greet"), says("ok")], skills__mode="tool")
    lab.send("a", "A")
    assert [u.name for u in uses(lab)] == ["greet"]


def test_allowed_tools_hold_for_the_turn_that_uses_the_skill_and_no_longer(lab: Lab) -> None:
    managed(lab, "greet", allowed_tools="python Bash(echo:*)")
    work = [calls("skill", skill="greet"), calls("python", code="x = 1"), calls("shell", command="echo hi"),
            calls("shell", command="echo hi; id"), calls("write", path="a.txt", content="a"), says("ok")]  # fmt: skip
    lab.open([*work, calls("python", code="x = 2"), says("ok")], skills__mode="tool")
    lab.send("a", "A")
    assert [r.status for r in lab.bodies(ToolResult)] == ["ok", "ok", "ok", "refused", "refused"]
    lab.send("b", "B")
    assert lab.bodies(ToolResult)[-1].status == "refused"


def test_allowed_tools_never_pass_a_rule_of_the_person_or_plan_mode(lab: Lab) -> None:
    managed(lab, "greet", allowed_tools="python shell")
    work = [calls("skill", skill="greet"), calls("python", code="x = 1"), calls("shell", command="rm a"), says("ok")]
    lab.open([*work, *work], skills__mode="tool", tools__deny=["shell(rm *)"])
    lab.send("a", "A")
    assert [r.status for r in lab.bodies(ToolResult)] == ["ok", "ok", "refused"]
    lab.send("b", "B", mode="plan")
    assert [r.status for r in lab.bodies(ToolResult)][3:] == ["ok", "refused", "refused"]


def test_disallowed_tools_are_refused_for_the_turn(lab: Lab) -> None:
    managed(lab, "greet", disallowed_tools="python")
    lab.open([calls("skill", skill="greet"), calls("python", code="1"), says("ok")], skills__mode="tool", mode="auto")
    lab.send("a", "A")
    assert "does without 'python'" in result_texts(lab.requests[-1])[-1]


def test_a_command_in_the_text_runs_only_with_permission(lab: Lab) -> None:
    managed(lab, "where", body="Here: !`echo found $0`\n")
    ask = calls("skill", skill="where", arguments="'$(touch evil)'")
    lab.open([ask, says("no"), ask, says("yes")], skills__mode="tool")
    lab.send("a", "A")
    assert "no permission for the command" in result_texts(lab.requests[-1])[-1]
    lab.answers = ["y"]
    lab.send("b", "B")
    assert "Here: found $(touch evil)" in result_texts(lab.requests[-1])[-1]
    assert "echo found" in lab.asked[-1]
    assert not (lab.folder / "evil").exists()


def test_a_command_runs_once_and_what_it_prints_is_not_looked_at(lab: Lab) -> None:
    """claude 35."""
    managed(lab, "nested", body="KEY=!`id`\n!`echo ran >> log.txt; echo '!`whoami`'`\n")
    lab.open([calls("skill", skill="nested"), says("ok")], skills__mode="tool")
    lab.answers = ["y"]
    lab.send("a", "A")
    assert "KEY=!`id`\n!`whoami`\n" in result_texts(lab.requests[-1])[-1]
    assert len(lab.asked) == 1
    assert (lab.folder / "log.txt").read_text() == "ran\n"


def test_a_rule_may_speak_of_a_skill_by_name(lab: Lab) -> None:
    """claude.md C4: `Skill(name)`, `Skill(name *)`."""
    managed(lab, "deploy")
    managed(lab, "greet")
    lab.open(
        [calls("skill", skill="deploy", arguments="now"), calls("skill", skill="greet"), says("ok")],
        skills__mode="tool", tools__deny=["skill(deploy *)"],
    )  # fmt: skip
    lab.send("a", "A")
    assert [r.status for r in lab.bodies(ToolResult)] == ["refused", "ok"]


# ---------------------------------------------------------------- a context of its own


def test_a_fork_runs_apart_and_only_its_answer_comes_back(lab: Lab) -> None:
    """CC-S2."""
    managed(lab, "check", body="Check $ARGUMENTS.\n", context="fork")
    replies = [calls("skill", skill="check", arguments="the sum"), calls("python", code="n = 2 + 2\nprint('inner', n)"),
               says("The sum is 4."), says("It says 4.")]  # fmt: skip
    lab.open(replies, skills__mode="tool", mode="auto")
    lab.send("go", "A")
    outer, inner, _, last = lab.requests
    assert result_texts(last) == ["The sum is 4."]
    assert "inner 4" not in last.canonical_bytes().decode()
    assert lab.kernel.names["n"] == 4
    assert "Check the sum." in str(inner.messages)
    assert inner.prefix.to_text() != outer.prefix.to_text()
    assert "is one cell" in str(outer.prefix.system)  # OC-C9, openclaw 113: a sub-agent's text is the minimal one
    assert "is one cell" not in str(inner.prefix.system)
    assert "skill" not in {str(t["name"]) for t in inner.prefix.tools}
    (row,) = log_rows(lab.session.tree)
    assert (row.tools, row.outcome, row.by) == (("python",), "completed", "model")
    (use,) = uses(lab)
    journal = lab.session.place.folder / use.details["journal"] / "journal.jsonl"
    assert "inner 4" in journal.read_text()


def test_a_fork_that_calls_itself_gets_an_error_and_runs_once(lab: Lab) -> None:
    """claude 38."""
    managed(lab, "check", body="Use the skill check.\n", context="fork")
    again = calls("skill", skill="check")
    lab.open([again, again, says("4"), says("done")], skills__mode="tool")
    done = lab.send("go", "A")
    assert done.output.text == "done"
    inner = lab.requests[2]
    (refused,) = [b for m in inner.messages for b in m.blocks if b.get("type") == "tool_result"]
    assert refused["is_error"] is True
    assert "There is no tool 'skill'" in result_texts(inner)[0]
    assert [(u.name, u.details["outcome"]) for u in uses(lab)] == [("check", "completed")]
    assert len(lab.requests) == 4


def test_what_a_fork_costs_is_one_report_of_the_turn_that_asked(lab: Lab) -> None:
    managed(lab, "check", context="fork")
    lab.open([calls("skill", skill="check"), says("4"), says("done")], skills__mode="tool")
    lab.send("go", "A")
    (report,) = [r for r in lab.bodies(UsageReported) if r.purpose == "skill"]
    assert report.usage["output_tokens"] > 0
    assert len(lab.bodies(UsageReported)) == 3


def test_a_fork_that_does_not_end_is_an_error_for_the_model_and_the_turn_goes_on(lab: Lab) -> None:
    managed(lab, "check", context="fork")
    work = [calls("python", code="1"), calls("python", code="2")]
    lab.open([calls("skill", skill="check"), *work, says("never mind")], skills__mode="tool", mode="auto")
    done = lab.send("go", "A", max_steps=2)
    (result,) = lab.bodies(ToolResult)
    assert result.status == "error"
    assert "did not come to its end: stopped at the limit of 2 steps (--max-steps)" in joined_text(result.content)
    assert done.output.text == "never mind"
    assert [u.details["outcome"] for u in uses(lab)] == ["limit"]


def test_the_person_uses_a_skill_hidden_from_the_model(lab: Lab) -> None:
    """OC-S6; openclaw 22."""
    managed(lab, "quiet", disable_model_invocation="true", body="Whisper $0.\n")
    managed(lab, "plain", body="Count.\n")
    lab.open([says("ok"), says("ok")])
    lab.send("hello", "A", skill="quiet")
    assert "quiet" not in listed(lab)
    assert "<name>plain</name>" in listed(lab)
    assert lab.prompts()[0] == "hello"
    assert "Whisper hello." in lab.prompts()[1]
    lab.send("my rows", "B", skill="plain")
    assert "ARGUMENTS" not in lab.prompts()[-1], "it stands in the prompt already"
    assert [(u.name, u.by) for u in uses(lab)] == [("quiet", "person"), ("plain", "person")]
    with pytest.raises(UsageProblem, match="there is no skill 'none'"):
        lab.send("x", "C", skill="none")


def test_a_skill_of_the_person_that_forks_answers_before_the_turn(lab: Lab) -> None:
    managed(lab, "check", body="Check $ARGUMENTS.\n", context="fork")
    lab.open([says("All is well."), says("It is.")])
    lab.send("the data", "A", skill="check")
    assert "All is well." in lab.prompts()[-1]
    assert [u.details["outcome"] for u in uses(lab)] == ["completed"]
    shown = [e for e in lab.events if isinstance(e, ToolBegan | ToolEnded | SubAgentMoved | TurnBegan)]
    assert [type(e) for e in shown] == [ToolBegan, *[SubAgentMoved] * (len(shown) - 3), ToolEnded, TurnBegan]
    began, ended = shown[0], shown[-2]
    assert isinstance(began, ToolBegan)
    assert isinstance(ended, ToolEnded)
    assert (began.name, began.summary, began.call_id) == ("skill", "check", ended.call_id)
    assert (ended.status, ended.text) == ("ok", "All is well.")


def test_a_skill_of_the_person_that_fails_apart_is_paid_and_shown(lab: Lab) -> None:
    managed(lab, "check", context="fork")
    lab.open([says("")], mode="auto")
    lab.send("first", "A")
    before = [e.body for e in lab.session.tree if isinstance(e.body, UsageReported)]
    lab.restart([[calls("python", code="1")] for _ in range(3)], mode="auto")
    with pytest.raises(TurnFailed, match="'check' did not come to its end"):
        lab.send("go", "B", skill="check", max_steps=2)
    paid = [e.body for e in lab.session.tree if isinstance(e.body, UsageReported)][len(before) :]
    assert [p.purpose for p in paid] == ["skill"]
    assert paid[0].cost_usd > 0
    ended = [e for e in lab.events if isinstance(e, ToolEnded) and e.name == "skill"]
    assert [e.status for e in ended] == ["error"]


def test_what_a_fork_cost_is_told_with_its_last_call(lab: Lab) -> None:
    managed(lab, "check", context="fork")
    lab.open([calls("skill", skill="check"), calls("python", code="n = 4"), says("4"), says("Yes.")],
             skills__mode="tool", mode="auto")  # fmt: skip
    lab.send("go", "A")
    (row,) = ended_agents(lab.session.tree)
    assert moves_of(lab)[-1].cost_usd == pytest.approx(row.cost_usd)


# ---------------------------------------------------------------- sub-agents, as people see and reach them


def moves_of(lab: Lab) -> list[SubAgentMoved]:
    return [e for e in lab.events if isinstance(e, SubAgentMoved)]


def when(lab: Lab, holds: Callable[[SubAgentMoved], bool], act: Callable[[str], object]) -> None:
    """Do `act` once, with the id of the sub-agent, as soon as what is told of it holds."""
    done: list[str] = []

    class Acting(list[Any]):
        def append(self, event: Any) -> None:
            super().append(event)
            if isinstance(event, SubAgentMoved) and not done and holds(event):
                done.append(event.agent)
                act(event.agent)

    lab.events = Acting()


def test_what_a_fork_does_is_told_to_the_turn_that_asked(lab: Lab) -> None:
    managed(lab, "check", context="fork")
    replies = [calls("skill", skill="check"), calls("python", code="n = 4"), says("4"), says("It says 4.")]
    lab.open(replies, skills__mode="tool", mode="auto")
    lab.send("go", "A")
    told = moves_of(lab)
    assert {(m.name, m.agent) for m in told} == {("check", told[0].agent)}
    assert [m.activity.split(" ")[0] for m in told if m.status == "running"][:3] == ["getting", "step", "step"]
    assert any(m.activity.startswith("python") and m.tool_calls == 1 for m in told)
    last = told[-1]
    assert (last.status, last.activity, last.tool_calls) == ("done", "", 1)
    assert last.context_tokens > 0
    (row,) = ended_agents(lab.session.tree)
    assert (row.agent, row.name, row.outcome, row.tools) == (last.agent, "check", "completed", ("python",))
    assert row.tokens > 0
    assert (lab.session.place.folder / row.journal / "journal.jsonl").is_file()


def test_a_word_to_a_fork_reaches_it_before_its_next_step_and_not_the_turn(lab: Lab) -> None:
    managed(lab, "check", context="fork")
    replies = [calls("skill", skill="check"), calls("python", code="1"), says("4"), says("It says 4.")]
    lab.open(replies, skills__mode="tool", mode="auto")
    agents = lab.session.runner.agents
    when(lab, lambda m: m.tool_calls == 1, lambda agent: agents.send(agent, "Only the even ones."))
    lab.send("go", "A")
    outer, inner, told, last = lab.requests
    assert "Only the even ones." in str(told.messages)
    assert not any("Only the even ones." in str(r.messages) for r in (outer, inner, last))


def test_a_fork_that_the_person_stops_is_an_error_that_says_so_and_the_turn_goes_on(lab: Lab) -> None:
    managed(lab, "check", context="fork")
    replies = [calls("skill", skill="check"), calls("python", code="1"), says("I go on without.")]
    lab.open(replies, skills__mode="tool", mode="auto")
    when(lab, lambda m: m.tool_calls == 1, lab.session.runner.agents.stop)
    done = lab.send("go", "A")
    (result,) = lab.bodies(ToolResult)
    assert result.status == "error"
    assert "skill 'check' did not come to its end: the person stopped it; go on without it" in joined_text(result.content)
    assert (done.output.outcome, done.output.text) == ("completed", "I go on without.")
    assert moves_of(lab)[-1].status == "stopped"
    assert [u.details["outcome"] for u in uses(lab)] == ["stopped"]


def test_a_fork_stopped_before_its_first_step_does_not_stop_the_turn(lab: Lab) -> None:
    managed(lab, "check", context="fork")
    lab.open([calls("skill", skill="check"), says("I go on without.")], skills__mode="tool")
    agents = lab.session.runner.agents
    entered = agents.running

    @contextmanager
    def running(agent: Any) -> Iterator[Any]:
        with entered(agent):
            agent.stopped = True
            agent.task.cancel()
            yield agent

    agents.running = running  # type: ignore[method-assign]
    assert lab.send("go", "A").output.text == "I go on without."
    assert moves_of(lab)[-1].status == "stopped"


def test_who_is_no_sub_agent_or_has_ended_hears_nothing_and_it_is_said(lab: Lab) -> None:
    managed(lab, "check", context="fork")
    lab.open([calls("skill", skill="check"), says("4"), says("done")], skills__mode="tool")
    agents = lab.session.runner.agents
    with pytest.raises(UsageProblem, match="no sub-agent is called 'sa9'; none runs"):
        agents.send("sa9", "hi")
    when(lab, lambda m: m.activity == "step 1", lambda agent: lab.asked.append(agents.send("check", "hi")))
    lab.send("go", "A")
    assert lab.asked == ["check hears it before its next step."]
    with pytest.raises(UsageProblem, match="the sub-agent check has ended; it hears nothing any more"):
        agents.stop(moves_of(lab)[0].agent)
    with pytest.raises(UsageProblem, match="the message is empty"):
        agents.send("check", " ")


# ---------------------------------------------------------------- later


def test_after_a_compaction_a_skill_in_use_comes_back_as_reference(lab: Lab) -> None:
    """claude 43."""
    from nbagent.runtime.compacting import compact

    path = managed(lab, "alpha", body="Always say $ARGUMENTS in grams. " + "Rule. " * 3_000)
    lab.open([calls("read", path=str(path)), says("x " * 9_000), says("y " * 9_000), says("ok")])
    lab.send("a", "A")
    lab.send("b", "B")
    done = lab.run(compact(lab.session, lab.ports(), edited="We said x and y."))
    assert done.applied
    assert '<skill_reference name="alpha">\nAlways say $ARGUMENTS in grams.' in done.note
    assert "for reference only" in done.note
    assert len(done.note) < 30_000
    assert len(uses(lab)) == 1, "nothing is used again"


def test_by_hand_and_automatically_the_same_text_comes_back(make_fake: Any, tmp_path: Path) -> None:
    """claude 41."""
    from nbagent.runtime.compacting import compact

    def references(name: str, *, by_hand: bool) -> tuple[str, str]:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "a.txt").write_text("a line of data\n" * 500)
        path = skill(folder / "home" / "skills" / "alpha", "alpha", body="Count the rows first.\n" * 12)

        def answer(body: dict[str, Any]) -> Any:
            last = str(body["messages"][-1])
            if "about to be replaced by a note" in last:
                return "<note>## Goal\ncount\n</note>"
            if "tool_result" in last:
                return "Done. " * 300
            return reply(call("read", {"path": str(path)})) if len(body["messages"]) < 2 else "Said. " * 900

        fake = make_fake()
        fake._answer_of = answer
        options = {"policy": "nbagent", "window_tokens": 20_000, "memory.flush": "off"}
        with Talk(folder, fake, model="claude-sonnet-4-6", options=options) as held:
            held.send("count")
            for i in range(3 if by_hand else 30):
                held.send(f"part {i}")
                if held.bodies(Compaction):
                    break
            if by_hand:
                assert not held.bodies(Compaction)
                assert held.run(compact(held.session, held.ports)).applied
            (move,) = held.bodies(Compaction)
        _, mark, rest = move.note.partition("Skills used earlier")
        return move.reason, (mark + rest).partition("</skill_reference>")[0]

    (why, hand), (other_why, automatic) = references("hand", by_hand=True), references("auto", by_hand=False)
    assert why != other_why
    assert "Count the rows first." in hand
    assert hand == automatic


@pytest.mark.prefix_moves(reason="a compaction is what is tested")
def test_after_a_compaction_the_request_ends_with_what_the_person_says_now(lab: Lab) -> None:
    """claude 43, 44: what ran in a fork alone does not come back."""
    from nbagent.runtime.compacting import compact

    managed(lab, "deploy", body="Deploy $ARGUMENTS now.\n")
    managed(lab, "inner", body="Look.\n", context="fork")
    work = [calls("skill", skill="deploy", arguments="to production"), calls("skill", skill="inner"), says("seen")]
    lab.open([*work, says("x " * 9_000), says("y " * 9_000), says("ok")], skills__mode="tool")
    lab.send("a", "A")
    lab.send("b", "B")
    done = lab.run(compact(lab.session, lab.ports(), edited="We said x and y."))
    assert [u.name for u in uses(lab)] == ["deploy", "inner"]
    lab.send("thanks", "C")
    assert lab.requests[-1].messages[-1].blocks[-1]["text"] == "thanks"
    shown = "".join(str(b.get("text", "")) for m in lab.requests[-1].messages for b in m.blocks)
    assert done.note in shown
    assert '<skill_reference name="deploy">\nDeploy $ARGUMENTS now.' in shown
    assert "Skills used earlier in this conversation, for reference only" in shown
    assert "ARGUMENTS:" not in shown
    assert "to production" not in done.note.partition("Skills used earlier")[2]
    assert 'name="inner"' not in shown


def test_a_recording_plays_with_its_uses_and_runs_no_skill_again(lab: Lab, tmp_path: Path) -> None:
    from nbagent.models.cassette import Cassette, from_text, recorded_turns, to_text

    managed(lab, "where", body="Here: !`touch ran`\n", allowed_tools="Bash(touch:*)")
    lab.open([calls("skill", skill="where"), says("ok"), says("done")], skills__mode="tool")
    lab.send("a", "A")
    lab.send("b", "B", skill="where")
    assert (lab.folder / "ran").exists()
    (lab.folder / "ran").unlink()
    turns = recorded_turns(lab.session.tree.path())
    prefixes = {t.start.prefix: lab.session.runner.prefix_of(t.start.prefix) for t in turns}
    cassette = from_text(to_text(Cassette(turns=turns, prefixes=prefixes)), "test")
    recorded = lab.sent()
    lab.close()
    lab.replay(cassette)
    lab.send("a", "A")
    lab.send("b", "B")
    assert lab.sent() == recorded
    assert [(u.name, u.by) for u in uses(lab)] == [("where", "model"), ("where", "person")]
    assert not (lab.folder / "ran").exists()


def test_a_recording_names_no_folder_of_this_machine_for_bundled_skills(lab: Lab) -> None:
    from nbagent.runtime.neutral import PACKAGE

    lab.open([says("ok")])
    lab.send("a", "A")
    assert str(PACKAGE) in lab.requests[0].canonical_bytes().decode()
    assert str(PACKAGE) not in lab.sent()[0].decode()
    assert "nbagent/skills/bundled/look-at-data/SKILL.md" in lab.sent()[0].decode()
