"""Using a skill: arguments, commands, what lies beside it, who may."""

from __future__ import annotations

import builtins
import io
import os
import subprocess

import pytest

from nbagent.core.errors import ToolError
from nbagent.skills.invoke import render
from nbagent.skills.opening import invoke
from tests.skills.builders import Place, skill


def text(body: str, arguments: str = "", **given) -> str:
    return render(body, arguments, **given).text()


def test_arguments_without_a_place_are_added_once():
    """claude 31."""
    assert text("Do it.", "123") == "Do it.\n\nARGUMENTS: 123"
    assert text("Do $ARGUMENTS.", "123") == "Do 123."
    assert text("Do it.") == "Do it."


def test_values_are_not_expanded_again():
    """claude 32."""
    assert text("A=$0 B=$1", "'$1' x") == "A=$1 B=x"
    assert (
        text("$ARGUMENTS", "$0 ${CLAUDE_SKILL_DIR} !`id`", variables={"CLAUDE_SKILL_DIR": "/x"})
        == "$0 ${CLAUDE_SKILL_DIR} !`id`"
    )


def test_a_declared_name_is_taken_literally():
    """claude 34."""
    assert text("go $a.b( now $axb(", "x", names=["a.b("]) == "go x now $axb("
    assert text("$from to $to, $toes", "1 2", names=["from", "to"]) == "1 to 2, $toes"


def test_what_was_not_given():
    assert text("$0 $1 $ARGUMENTS[1]|$second|", "a", names=["first", "second"]) == "a $1 $ARGUMENTS[1]||"
    assert text(r"costs \$1 and \$ARGUMENTS", "x").startswith("costs $1 and $ARGUMENTS")
    assert text("$0 'open", "it's here") == "it's 'open"


def test_commands_stand_at_a_line_start_or_after_a_blank_and_run_once():
    """claude 35."""
    found = render("KEY=!`id`\n!`echo '!`whoami'`'`\n and !`date` too")
    assert [c.text for c in found.commands] == ["echo '!`whoami'", "date"]
    assert found.text(["!`whoami`", "now\n"]) == "KEY=!`id`\n!`whoami`'`\n and now too"
    assert "no permission" in found.text()
    nested = render("KEY=!`id`\n!`echo '!`whoami`'`")
    assert [c.text for c in nested.commands] == ["echo '!`whoami`'"]
    assert nested.text(["!`whoami`\n"]) == "KEY=!`id`\n!`whoami`"
    assert render("!`echo it's`").commands[0].text == "echo it's"
    assert render("```!\nls\npwd\n```\nx").commands[0].text == "ls\npwd"


@pytest.mark.parametrize("evil", ["x; touch hit", "$(touch hit)", "`touch hit`", '"; touch hit; "', "'; touch hit; '"])
def test_a_value_cannot_become_code_in_a_command(evil, tmp_path):
    (command,) = render('!`printf "%s" "$0" $ARGUMENTS`', f"'{evil}'" if "'" not in evil else f'"{evil}"').commands
    done = subprocess.run(
        ["sh", "-c", command.text],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], **command.environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not (tmp_path / "hit").exists()
    assert done.stdout.startswith(evil)


def _noting(original, opened):
    return lambda path, *more, **given: opened.append(str(path)) or original(path, *more, **given)


def test_resources_are_named_not_read_and_the_list_says_that_it_is_cut(tmp_path, monkeypatch):
    """claude 37."""
    place = Place(tmp_path)
    folder = skill(place.workspace / "demo", "demo").parent
    for i in range(500):
        (folder / f"f{i:03d}.txt").write_text("SECRET")
    (folder / "assets").mkdir()
    (folder / "assets" / "big.bin").write_bytes(b"0" * 3_000_000)
    catalog, opened = place.load(), []
    for module in (os, io, builtins):
        monkeypatch.setattr(module, "open", _noting(module.open, opened))
    found = invoke(catalog, "demo")
    monkeypatch.undo()
    assert opened == [str(folder / "SKILL.md")]
    assert len(found.resources.paths) == 40
    assert found.resources.more == 461
    assert "461 more, not listed" in found.text()
    assert "SECRET" not in found.text()


def test_a_fork_does_not_run_itself_again(tmp_path):
    """claude 38."""
    place = Place(tmp_path)
    skill(place.workspace / "demo", "demo", context="fork", body="Use the skill demo.")
    found = invoke(place.load(), "demo")
    assert found.fork
    with pytest.raises(ToolError, match="running already"):
        invoke(place.load(), "demo", running=("demo",))


def test_the_model_gets_only_what_it_may_choose_and_the_person_more(tmp_path):
    place = Place(tmp_path)
    skill(place.workspace / "quiet", "quiet", disable_model_invocation="true")
    skill(place.workspace / "off", "off")
    found = place.load(entries={"off": {"enabled": False}})
    with pytest.raises(ToolError, match="disable-model-invocation"):
        invoke(found, "quiet")
    assert invoke(found, "quiet", by_model=False).body == "Do it well."
    with pytest.raises(ToolError, match="switched off"):
        invoke(found, "off", by_model=False)
    with pytest.raises(ToolError, match="there is no skill 'nope'"):
        invoke(found, "nope")


def test_tools_are_allowed_for_trusted_skills_only(tmp_path):
    place = Place(tmp_path)
    skill(place.workspace / "demo", "demo", allowed_tools="shell read")
    assert invoke(place.load(), "demo").allowed_tools == ("shell", "read")
    assert invoke(place.load(trusted=False, trust=("demo",)), "demo").allowed_tools == ("shell", "read")


def test_the_folder_and_further_variables_are_put_in(tmp_path):
    place = Place(tmp_path)
    path = skill(place.workspace / "demo", "demo", body="Run ${CLAUDE_SKILL_DIR}/x for ${CLAUDE_SESSION_ID}, ${HOME}.")
    found = invoke(place.load(), "DEMO", variables={"CLAUDE_SESSION_ID": "s1"})
    assert found.rendered.text() == f"Run {path.parent}/x for s1, ${{HOME}}."


def test_a_file_that_changed_since_the_list_says_so_and_a_broken_one_is_an_error(tmp_path):
    place = Place(tmp_path)
    path = skill(place.workspace / "demo", "demo")
    found = place.load()
    assert not invoke(found, "demo").changed
    skill(path.parent, "demo", body="Other.\n")
    assert invoke(found, "demo").changed
    path.write_text("---\nname: demo\n")
    with pytest.raises(ToolError, match="never closed"):
        invoke(found, "demo")
