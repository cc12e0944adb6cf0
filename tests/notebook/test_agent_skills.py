"""`%skills`, `--skill` and skills in turns, in a real kernel (OC-S*, CC-S*, NB-S*)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.messages_api import FakeMessagesAPI, call, reply
from tests.notebook.agent_kernel import AgentKernel, agent, error_line, running, sent, shown, texts
from tests.skills.builders import skill

pytestmark = pytest.mark.kernel


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentKernel]:
    with running(tmp_path_factory.mktemp("kernel")) as started:
        yield started


def mine(kernel: AgentKernel, name: str, description: str = "Does it. Use when asked.", **given: str) -> Path:
    """Write a skill into the person's own folder."""
    return skill(Path(kernel.value("__import__('os').environ['NBAGENT_HOME']")) / "skills" / name, name, description, **given)


def system(request: object) -> str:
    return str(request["system"])  # type: ignore[index]


def test_the_catalog_is_a_value_a_text_and_html_with_reasons_and_faults(kernel: AgentKernel, tmp_path: Path) -> None:
    kernel.begin(tmp_path)
    mine(kernel, "counting", "Counts </available_skills> things. Use when asked.")
    mine(kernel, "for-mac", metadata='{"openclaw": {"os": ["darwin"]}}')
    skill(tmp_path / "skills" / "theirs", "theirs")
    broken = mine(kernel, "broken")
    broken.write_bytes(b"---\nname: broken\n")
    latin = mine(kernel, "latin")
    latin.write_bytes("---\nname: latin\ndescription: caf\xe9\n---\n".encode("latin-1"))
    (bundle,) = kernel.run("%skills").of("execute_result")
    text = bundle["content"]["data"]["text/plain"]
    assert "counting" in text
    assert "it is for darwin, this is linux" in text
    assert "not trusted yet" in text
    assert "never closed" in text
    assert "UTF-8" in text
    assert "&lt;/available_skills&gt;" in bundle["content"]["data"]["text/html"]
    assert "\x1b" not in text
    kernel.run("catalog = get_ipython().run_line_magic('skills', '')")
    assert kernel.value("[s.visible for s in catalog if s.name in ('counting', 'theirs')]") == [True, False]
    assert "&lt;/available_skills&gt;" in kernel.value("catalog.prompt")
    assert kernel.value("catalog.prompt.count('</available_skills>')") == 1
    assert kernel.value("len({d.path for d in catalog.diagnostics}) >= 2")


def test_why_says_what_hides_a_skill_and_how_well_it_fits_a_request(kernel: AgentKernel, tmp_path: Path) -> None:
    kernel.begin(tmp_path)
    mine(kernel, "quiet", disable_model_invocation="true")
    assert "(%skills run quiet)" in shown(kernel.run("%skills why quiet"))
    assert "did you mean" in error_line(kernel.run("%skills show quite"))
    assert "there is quiet" in shown(kernel.run("%skills why quite"))
    kernel.run("why = get_ipython().run_line_magic('skills', 'why look-at-data what is in this unknown table?')")
    assert kernel.value("why.rank") == 1
    assert "place 1" in shown(kernel.run("%skills why look-at-data what is in this unknown table?"))


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("%skills shwo x", "it has: help, show"),
        ("%skills show", "name a skill"),
        ("%skills why", "name a skill"),
        ("%skills disable nothing-like-it", "no skill is called 'nothing-like-it'"),
        ("%skills run", "name a skill"),
        ("%skills lint nothing-like-it", "no skill is called"),
        ("%skills new Bad_Name", "lower-case letters"),
        ("%skills new ../x", "lower-case letters"),
        ("%skills new", "the following arguments are required: name. "),
        ("%%agent --skill nothing-like-it\nhi", "there is no skill 'nothing-like-it'"),
    ],
)
def test_a_line_typed_wrongly_says_what_to_do(kernel: AgentKernel, tmp_path: Path, line: str, says: str) -> None:
    kernel.begin(tmp_path)
    assert says in error_line(kernel.run(line))


def test_every_sub_command_has_help_and_is_completed(kernel: AgentKernel, tmp_path: Path) -> None:
    kernel.begin(tmp_path)
    listed = [line.split()[1] for line in shown(kernel.run("%skills help")).splitlines()]
    assert {"show", "why", "enable", "disable", "run", "lint", "log", "reload", "prompt"} <= set(listed)
    assert kernel.complete("%skills re") == ["%skills reload"]
    assert kernel.complete("%skills show check-f") == ["%skills show check-for-leakage"]
    assert kernel.complete("%%agent --skill look") == ["%%agent --skill look-at-data"]
    assert kernel.complete("%skills new --p") == ["%skills new --person"]
    for line in ("%skills log", "%skills prompt", "%skills reload", "%skills lint", "%skills show look-at-data"):
        assert shown(kernel.run(line)).strip(), line


def test_a_new_skill_is_written_trusted_linted_and_told_at_the_next_turn(kernel: AgentKernel, tmp_path: Path) -> None:
    with FakeMessagesAPI(["ok"], repeat=True) as fake:
        kernel.begin(tmp_path, fake)
        kernel.run(agent("one"), cell_id="c1")
        said = shown(kernel.run("%skills new tidy-columns Renames the columns: snake case. Use when names are messy."))
        assert "Written: skills/tidy-columns/SKILL.md" in said
        assert "is there already" in error_line(kernel.run("%skills new tidy-columns"))
        kernel.run(agent("two"), cell_id="c2")
        first, second = sent(fake)
        assert first["system"] == second["system"]
        assert "- new: tidy-columns (skills/tidy-columns/SKILL.md): Renames the columns: snake case." in str(second["messages"])
        assert "visible to the model" in shown(kernel.run("%skills why tidy-columns"))


def test_a_skill_is_switched_off_and_on_and_the_model_hears_of_both(kernel: AgentKernel, tmp_path: Path) -> None:
    with FakeMessagesAPI(["ok"], repeat=True) as fake:
        kernel.begin(tmp_path, fake)
        kernel.run(agent("one"), cell_id="c1")
        assert "is off" in shown(kernel.run("%skills disable figure-for-print"))
        kernel.run(agent("two"), cell_id="c2")
        assert "- gone: figure-for-print. Do not use it." in str(sent(fake)[-1]["messages"])
        assert "switched off" in shown(kernel.run("%skills why figure-for-print"))
        assert "is on" in shown(kernel.run("%skills enable figure-for-print"))
        kernel.run(agent("three"), cell_id="c3")
        assert "- new: figure-for-print" in str(sent(fake)[-1]["messages"])


def test_the_hint_of_a_skills_arguments_is_shown_as_text(kernel: AgentKernel, tmp_path: Path) -> None:
    """claude 11: also in the list of them all."""
    kernel.begin(tmp_path)
    mine(kernel, "hinted", argument_hint="[topic: foo | bar]")
    assert "hinted" in shown(kernel.run("%skills"))
    assert "[topic: foo | bar]" in shown(kernel.run("%skills show hinted"))


def test_a_skill_is_used_by_the_person_and_the_log_says_so(kernel: AgentKernel, tmp_path: Path) -> None:
    with FakeMessagesAPI(["Done."], repeat=True) as fake:
        kernel.begin(tmp_path, fake)
        mine(kernel, "greet", body="Greet $0 in $1.\n", disable_model_invocation="true")
        assert "Done." in shown(kernel.run("%skills run greet Ann French", cell_id="c1"))
        assert texts(sent(fake)[-1])[0] == "Use the skill greet: Ann French"
        assert "Greet Ann in French." in str(sent(fake)[-1]["messages"])
        kernel.run(agent("be kind", "--skill greet"), cell_id="c2")
        log = shown(kernel.run("%skills log"))
        assert log.count("person") == 2
        assert "completed" in log


def test_a_forked_skill_brings_back_its_answer_only(kernel: AgentKernel, tmp_path: Path) -> None:
    """CC-S2."""
    inner = [reply("Look.", call("python", {"code": "secret = 6 * 7\nprint('step by step', secret)"})), "It is 42."]
    with FakeMessagesAPI([*inner, "The check says 42."]) as fake:
        kernel.begin(tmp_path, fake, mode="auto")
        mine(kernel, "check", body="Work out $ARGUMENTS.\n", context="fork")
        assert "The check says 42." in shown(kernel.run("%skills run check the answer", cell_id="c1"))
        last = str(sent(fake)[-1]["messages"])
        assert "It is 42." in last
        assert "step by step" not in last
        assert kernel.value("secret") == 42
        row = shown(kernel.run("%skills log"))
        assert "python" in row
        assert "completed" in row


def test_the_line_of_load_ext_counts_the_skills(kernel: AgentKernel, tmp_path: Path) -> None:
    kernel.begin(tmp_path)
    before = kernel.run("%reload_ext nbagent").stream()
    mine(kernel, "one-more")
    after = kernel.run("%reload_ext nbagent").stream()
    count = [int(text.split(" skill")[0].rsplit(" ", 1)[1]) for text in (before, after)]
    assert count[1] == count[0] + 1


def test_loading_imports_nothing_of_skills(kernel: AgentKernel, tmp_path: Path) -> None:
    code = (
        "import subprocess, sys\n"
        "source = 'from IPython.core.interactiveshell import InteractiveShell as S; s = S.instance(); "
        "s.run_line_magic(\"load_ext\", \"nbagent\"); import sys; "
        "print(sorted(m for m in sys.modules if m == \"yaml\" or m.startswith(\"nbagent.skills\")))'\n"
        "print(subprocess.run([sys.executable, '-c', source], capture_output=True, text=True).stdout.splitlines()[-1])"
    )
    kernel.begin(tmp_path)
    assert kernel.run(code).stream().strip() == "[]"
