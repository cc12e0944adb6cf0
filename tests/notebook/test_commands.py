"""The sub-commands of `%agent` and `%context` in a real kernel."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes import messages_api, validation
from tests.fakes.catalog import MODELS
from tests.fakes.messages_api import FakeMessagesAPI, call, reply
from tests.fakes.replies import Reply
from tests.notebook.agent_kernel import AgentKernel, agent, error_line, running, sent, shown, states, texts, turn_ids

pytestmark = pytest.mark.kernel


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentKernel]:
    with running(tmp_path_factory.mktemp("kernel")) as started:
        yield started


def runs(code: str) -> Reply:
    """A reply that runs `code`."""
    return reply("Look.", call("python", {"code": code}))


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("%agent revert 7", "no turn is called '7'"),
        ("%agent fork", "%agent fork TURN: give exactly one"),
        ("%agent mode fast", "unknown mode 'fast'; the modes are: ask, auto, plan"),
        ("%agent observe all", "unknown level 'all'; the levels are: off, outline, full"),
        ("%agent open mine", "no session is called 'mine'"),
        ("%agent resume now", "takes --max-steps, --max-tokens and --max-cost, not 'now'"),
        ("%agent resume", "there is no turn to go on with"),
        ("%agent resume --max-steps 0", "'0' is not a whole number above 0. `%agent?` shows the options"),
        ("%agent record stop", "nothing is being recorded"),
        ("%agent record sub/", "'sub/' names no file"),
        ("%agent record ''", "'' names no file"),
        ("%agent record --nope", "'--nope' names no file"),
        ("%agent Tree", "Did you mean 'tree'?"),
        ("%agent fork " + "x" * 5_000, "xx … xx"),
        ("%agent reset now", "%agent reset takes no words, and there is 'now'"),
        ("%agent tree x", "%agent tree takes no words"),
        ("%agent log x", "%agent log takes no words"),
        ("%context rot x", "%context rot takes no words"),
        ("%context compact --fast", "`%context?` shows the options"),
        ("import nbagent; nbagent.ask(5)", "the prompt must be a text (str), not int"),
        ("%%agent -o class\nhi", "'class' is not a variable name"),
        ("%agent export x.doc", "cannot export to '.doc'"),
        ("%agent export x", "cannot export to a file without an ending; end the name in"),
        ("%agent export no/x.md", "cannot be written"),
        ("%agent replay no.json", "there is no such file"),
        ("%agent replay stop", "no recording is being played"),
        ("%agent 'x", "close the quote"),
        ("%context sho", "it has: help, show"),
        ("%context show all", "takes --json only"),
        ("%context set size=3", "has no number 'size'"),
        ("%context set widow=3000", "besides: policy, window, provider, prompt. Did you mean 'window'?"),
        ("%context set window_tokens=3000", "Did you mean 'window'?"),
        ("%context set window=many", "'many' is no whole number"),
        ("%context set window=50%", "'50%' is no whole number, such as 128000"),
        ("%context set threshold=half%", "'half%' is no number"),
        ("%context policy x", "unknown policy 'x'"),
        ("%context policy gemini", "did you mean 'gemini-cli'?"),
        ("%context policy pi@first", "has no preset 'first'"),
        ("%context set threshold=-1", "from 0 up to 1"),
        ("%context compact", "there is no conversation yet"),
        ("%context undo", "there is no compaction to take back"),
        ("%context loss", "there is no compaction to report on"),
        ("%context undo all", "takes no words"),
        ("%context unpin", "%context unpin: name the TURN or TEXT"),
        ("%%agent -m ''\nhi", "the name is empty"),
        ("%%agent --policy ' '\nhi", "the name is empty"),
        ("%context note now", "takes --edit only"),
        ("%context pin", "say what no policy may drop"),
        ("%context unpin x", "there is no conversation"),
        ("%context compare --fast", "takes names of policies, --live and --yes"),
        ("%context compare --live", "there is no conversation to compare policies on"),
        ("%context set provider=some", "one of off, clear, compact, both"),
        ("%context set prompt=some", "one of full, minimal, none"),
    ],
)
def test_a_line_typed_wrongly_says_what_to_do(kernel: AgentKernel, tmp_path: Path, line: str, says: str) -> None:
    kernel.begin(tmp_path)
    assert says in error_line(kernel.run(line))


@pytest.mark.parametrize("magic", ["agent", "context", "memory", "skills"])
def test_help_is_shown_however_it_is_asked_for(kernel: AgentKernel, tmp_path: Path, magic: str) -> None:
    kernel.begin(tmp_path)
    listed = shown(kernel.run(f"%{magic} help"))
    assert f"%{magic} help" in listed
    assert [shown(kernel.run(f"%{magic} {word}")) for word in ("-h", "--help")] == [listed] * 2


def test_a_recording_replaces_no_other_file_and_no_recording_while_it_is_empty(
    kernel: AgentKernel, tmp_path: Path
) -> None:
    (tmp_path / "sales.csv").write_text("a,b\n1,2\n")
    with FakeMessagesAPI(["ok"], repeat=True) as fake:
        kernel.begin(tmp_path, fake)
        assert "is no recording; name another file" in error_line(kernel.run("%agent record sales.csv"))
        assert (tmp_path / "sales.csv").read_text() == "a,b\n1,2\n"
        kernel.run(agent("one"), cell_id="c1")
        assert "(1 turn so far)" in shown(kernel.run("%agent record r.json"))
        kept = (tmp_path / "r.json").read_bytes()
        other = tmp_path / "other"
        other.mkdir()
        kernel.begin(other, fake)
        assert "(0 turns so far)" in shown(kernel.run("%agent record ../r.json"))
        assert (tmp_path / "r.json").read_bytes() == kept
        kernel.run(agent("two"), cell_id="c2")
        assert b"two" in (tmp_path / "r.json").read_bytes()


def test_every_command_has_a_line_of_help_and_shows_itself(kernel: AgentKernel, tmp_path: Path) -> None:
    with FakeMessagesAPI([runs("x = 1"), "Done."]) as fake:
        kernel.begin(tmp_path, fake)
        kernel.run(agent("go"))
        listed = [line.split()[1] for line in shown(kernel.run("%agent help")).splitlines()]
        lines = [
            f"%agent {name}" for name in listed if name not in ("fork", "revert", "export", "replay", "open", "resume")
        ]
        for line in ["%agent", "%context", "%context show", "%context show --json", "%context policy", *lines]:
            result = kernel.run(line)
            assert result.status == "ok", line
            # `%context` has a display of its own, which follows the controls beside it (DECISIONS 34); else the value
            (value,) = result.of("execute_result") or result.of("display_data")[-1:]
            assert value["content"]["data"]["text/plain"].strip()
            assert "\x1b" not in value["content"]["data"]["text/plain"]
        assert len(sent(fake)) == 2


def test_going_back_with_a_note_carries_what_was_learnt(kernel: AgentKernel, tmp_path: Path) -> None:
    """agents 64: `--note` may stand before the turn or behind it; without one nothing is asked."""
    note = "<note>## Goal\nthe cache is not it</note>"
    with FakeMessagesAPI(["one", "two", "three", note, "four", note]) as fake:
        kernel.begin(tmp_path, fake)
        for n in range(3):
            kernel.run(agent(f"turn {n}"), cell_id=f"c{n}")
        line = shown(kernel.run("%agent revert c0 --note"))
        assert line.startswith("The conversation is at the end of turn ")
        assert line.endswith("A note on the 2 turns that it leaves went along:\n## Goal\nthe cache is not it")
        kernel.run(agent("and now"), cell_id="c3")
        assert "the cache is not it" in str(sent(fake)[-1])
        assert "turn 1" not in texts(sent(fake)[-1])
        assert "A note on the 1 turn that it leaves" in shown(kernel.run("%agent fork --note c3"))


def test_fork_revert_and_reset_move_without_losing_a_turn(kernel: AgentKernel, tmp_path: Path) -> None:
    with FakeMessagesAPI(["ok"], repeat=True) as fake:
        kernel.begin(tmp_path, fake)
        for n in range(3):
            kernel.run(agent(f"turn {n}"), cell_id=f"c{n}")
        first, second, third = turn_ids(shown(kernel.run("%agent log")))
        kernel.run(f"%agent fork {third[:4]}")
        kernel.run(agent("another"), cell_id="c3")
        assert texts(sent(fake)[-1]) == ["turn 0", "turn 1", "another"]
        kernel.run("%agent revert c0")
        kernel.run(agent("third way"), cell_id="c4")
        assert texts(sent(fake)[-1]) == ["turn 0", "third way"]
        kernel.run("%agent reset")
        assert shown(kernel.run("%agent log")) == "no turns yet"
        kernel.run(agent("new"), cell_id="c5")
        assert texts(sent(fake)[-1]) == ["new"]
        assert {first, second, third} < set(turn_ids(shown(kernel.run("%agent tree"))))


def test_model_mode_and_observation_hold_for_the_turns_to_come(kernel: AgentKernel, tmp_path: Path) -> None:
    with FakeMessagesAPI(["ok"], repeat=True) as fake:
        kernel.begin(tmp_path, fake)
        assert shown(kernel.run("%agent model claude-haiku-4-5")).startswith("claude-haiku-4-5: window")
        assert shown(kernel.run("%agent mode plan")) == "mode plan"
        assert shown(kernel.run("%agent observe full")) == "observe full"
        kernel.run("number = 12")
        kernel.run(agent("go"))
        assert sent(fake)[-1]["model"] == "claude-haiku-4-5"
        assert "number = 12" in str(states(sent(fake)[-1]))
        kernel.run(agent("go", "-m claude-sonnet-5-5"))
        assert sent(fake)[-1]["model"] == "claude-sonnet-5-5"
        tools = shown(kernel.run("%agent tools"))
        assert "mode plan" in tools
        assert [line.split()[1] for line in tools.splitlines() if line.startswith("python ")] == ["deny"]


def test_a_model_newer_than_the_table_is_chosen_with_the_limits_that_the_provider_tells(
    kernel: AgentKernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = replace(MODELS["claude-sonnet-5-5"], id="claude-next-9", window_tokens=2_000_000)
    for module in (messages_api, validation):
        monkeypatch.setattr(module, "MODELS", {**MODELS, newer.id: newer})
    with FakeMessagesAPI(["ok"], repeat=True) as fake:
        kernel.begin(tmp_path, fake)
        assert shown(kernel.run("%agent model claude-next-9")) == "claude-next-9: window 2,000,000 tokens"
        kernel.run(agent("go"))
        assert sent(fake)[-1]["model"] == "claude-next-9"


def test_the_agents_code_rebuilds_the_variables_after_a_restart(kernel: AgentKernel, tmp_path: Path) -> None:
    notebook = tmp_path / "a.ipynb"
    notebook.write_text("{}")
    replies = [
        runs("a = 20"),
        reply("", call("python", {"code": "1/0"})),
        runs("b = a + 1"),
        "Done.",
        runs("c = b * 2"),
        "Ok.",
    ]
    with FakeMessagesAPI(replies) as fake:
        kernel.begin(tmp_path, fake, JPY_SESSION_NAME=str(notebook))
        kernel.run(agent("one"), cell_id="one")
        kernel.run(agent("two"), cell_id="two")
        kernel.restart()
        kernel.begin(tmp_path, fake, JPY_SESSION_NAME=str(notebook))
        result = kernel.run("%agent code")
        (payload,) = [p for p in result.reply["payload"] if p["source"] == "set_next_input"]
        assert payload["text"] == shown(result)
        assert "1/0" not in payload["text"]
        kernel.run(payload["text"])
        assert kernel.value("(a, b, c)") == (20, 21, 42)
        assert shown(kernel.run("%agent code two")) == "c = b * 2"
        assert len(sent(fake)) == 6


@pytest.mark.parametrize("ending", ["md", "html", "json"])
def test_a_conversation_is_written_to_a_file(kernel: AgentKernel, tmp_path: Path, ending: str) -> None:
    with FakeMessagesAPI([runs("print('in the export')"), "The **answer**."]) as fake:
        kernel.begin(tmp_path, fake)
        kernel.run(agent("Which question?"))
        assert shown(kernel.run(f"%agent export talk.{ending}")) == f"Written: talk.{ending}"
        text = (tmp_path / f"talk.{ending}").read_text()
        for part in ("Which question?", "in the export", "answer"):
            assert part in text
        if ending == "json":
            json.loads(text)


def test_a_recording_is_played_without_a_key_and_put_away(kernel: AgentKernel, tmp_path: Path) -> None:
    with FakeMessagesAPI([runs("played = 5"), "Five.", "Six."]) as fake:
        kernel.begin(tmp_path, fake)
        kernel.run(agent("first"), cell_id="a")
        assert "1 turn so far" in shown(kernel.run("%agent record"))
        kernel.run(agent("second"), cell_id="b")
        assert shown(kernel.run("%agent record stop")) == "Recording ended."
        name = shown(kernel.run("%agent sessions")).splitlines()[-1].split()[1]
        kernel.run("del played")

        assert "2 turns" in shown(kernel.run("%agent replay cassettes/session.json"))
        played = kernel.run(agent("first"), cell_id="a", answers=["y"])
        assert "Five." in shown(played)
        assert kernel.value("played") == 5
        assert "Six." in shown(kernel.run(agent("second"), cell_id="b"))
        assert "not recorded" in error_line(kernel.run(agent("third"), cell_id="c"))
        assert "journal  none" in shown(kernel.run("%agent"))
        kernel.run("%agent replay stop")
        assert "turns    2" in shown(kernel.run(f"%agent open {name}"))
        assert len(sent(fake)) == 3


def test_code_of_a_recording_does_not_run_without_consent(kernel: AgentKernel, tmp_path: Path) -> None:
    with FakeMessagesAPI([runs("played = 5"), "Five."]) as fake:
        kernel.begin(tmp_path, fake)
        kernel.run(agent("first"), cell_id="a")
        kernel.run("%agent record talk.json")
        kernel.run("%agent replay talk.json")
        kernel.run("del played")
        assert "Five." in shown(kernel.run(agent("first"), cell_id="a", answers=["n"]))
        assert kernel.value("'played' in globals()") is False


def test_reuse_shows_the_recorded_answer_and_append_adds_a_turn(kernel: AgentKernel, tmp_path: Path) -> None:
    with FakeMessagesAPI([runs("r = 1"), "One.", "Two."]) as fake:
        kernel.begin(tmp_path, fake)
        kernel.run(agent("go"), cell_id="a")
        kernel.run("del r")
        assert "One." in shown(kernel.run(agent("go", "--rerun reuse"), cell_id="a"))
        assert kernel.value("r") == 1
        assert len(fake.requests) == 2
        assert "Two." in shown(kernel.run(agent("go", "--rerun append"), cell_id="a"))
        assert texts(sent(fake)[-1]) == ["go", "go"]


def test_another_session_is_opened_by_name(kernel: AgentKernel, tmp_path: Path) -> None:
    with FakeMessagesAPI(["ok"], repeat=True) as fake:
        kernel.begin(tmp_path, fake, NBAGENT_SESSION="first")
        kernel.run(agent("in the first"))
        kernel.begin(tmp_path, fake, NBAGENT_SESSION="second")
        kernel.run(agent("in the second"))
        listed = shown(kernel.run("%agent sessions"))
        assert "first" in listed
        assert "●  second" in listed
        assert "session  first" in shown(kernel.run("%agent open first"))
        kernel.run(agent("again"))
        assert texts(sent(fake)[-1]) == ["in the first", "again"]


def test_the_gauge_is_an_estimate_until_the_provider_reports(kernel: AgentKernel, tmp_path: Path) -> None:
    """Case peers 17; after a compaction: test_agent_context."""
    with FakeMessagesAPI(["ok"], repeat=True) as fake:
        kernel.begin(tmp_path, fake)
        sizes = []
        for n in range(3):
            kernel.run("report = get_ipython().run_line_magic('context', '')")
            size, sums, estimated = kernel.value(
                "(report.used_tokens, sum(report.categories.values()), report.estimated)"
            )
            assert size == sums > 0
            assert estimated or n
            sizes.append(size)
            kernel.run(agent(f"turn {n}"))
        assert sizes[1] < sizes[2]
        assert sizes[2] - sizes[1] < sizes[1] / 10  # the size of the last request, not a sum of all
        whole = shown(kernel.run("%context set policy=claude-code window=model"))  # claude 52: 1M less 20,000 and 13,000
        assert whole.startswith("window=1,000,000 provider=off policy=claude-code ")
        assert "acts by itself above 967,000 tokens" in whole
        kernel.run("%context set policy=nbagent")
        effective = shown(kernel.run("%context set window=50_000 threshold=0.5"))
        assert effective.startswith("window=50,000 provider=off policy=nbagent ")
        assert "threshold=0.5 " in effective
        assert " prompt=none policy=nbagent" in shown(kernel.run("%context set prompt=none"))
        assert "compaction at 25,000 tokens" in shown(kernel.run("%context"))
        assert "of 50,000 tokens" in shown(kernel.run("%context"))
        assert "threshold=0.7 " in shown(kernel.run("%context set threshold=70%"))


def test_the_options_of_a_compaction_are_where_its_error_says(kernel: AgentKernel, tmp_path: Path) -> None:
    kernel.begin(tmp_path)
    assert "--dry-run" in shown(kernel.run("%context compact --help"))
    (page,) = [p for p in kernel.run("%context?").reply["payload"] if p["source"] == "page"]
    assert "--focus" in page["data"]["text/plain"]


def test_a_turn_that_ended_early_binds_what_there_is_and_goes_on_with_other_limits(
    kernel: AgentKernel, tmp_path: Path
) -> None:
    with FakeMessagesAPI([runs("x = 1"), runs("x = 2"), "Done."]) as fake:
        kernel.begin(tmp_path, fake)
        error_line(kernel.run(agent("go", "--max-steps 1 -o r")))
        assert kernel.value("(r.steps, len(r.tool_calls), x)") == (1, 1, 1)
        assert "limit of 1 step (" in error_line(kernel.run("%agent resume --max-steps 1"))
        assert "Done." in shown(kernel.run("%agent resume --max-steps 5"))
        assert len(sent(fake)) == 3
        when = shown(kernel.run("%agent sessions"))
        assert re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d", when)


def test_set_alone_says_what_each_number_of_every_policy_is(kernel: AgentKernel, tmp_path: Path) -> None:
    kernel.begin(tmp_path)
    for policy in ("nbagent", "openclaw", "claude-code", "codex", "gemini-cli", "opencode", "pi", "manus", "createrole"):
        kernel.run(f"%context policy {policy}")
        head, *numbers = shown(kernel.run("%context set")).splitlines()
        assert f"policy={policy} · acts by itself" in head
        assert numbers
        assert all(len(line.split(maxsplit=1)) == 2 for line in numbers), numbers
    kernel.run("%context policy off")
    assert shown(kernel.run("%context set")).endswith("policy=off · no numbers")


def test_a_policy_named_on_a_cell_holds_from_that_turn_on(kernel: AgentKernel, tmp_path: Path) -> None:
    with FakeMessagesAPI(["ok"], repeat=True) as fake:
        kernel.begin(tmp_path, fake)
        assert error_line(kernel.run(agent("one", "--policy nothing"), cell_id="c1"))
        assert "policy nbagent" in shown(kernel.run("%context"))
        kernel.run(agent("one", "--policy pi"), cell_id="c1")
        assert "policy pi" in shown(kernel.run("%context"))
        kernel.run(agent("two"), cell_id="c2")
        assert "policy pi" in shown(kernel.run("%context"))


def test_pin_alone_lists_what_is_pinned(kernel: AgentKernel, tmp_path: Path) -> None:
    with FakeMessagesAPI(["ok"], repeat=True) as fake:
        kernel.begin(tmp_path, fake)
        kernel.run(agent("look at 销售.csv first"), cell_id="c1")
        assert "say what no policy may drop" in error_line(kernel.run("%context pin"))
        kernel.run("%context pin -1")
        kernel.run("%context pin 不得删除 sales_1 列")
        turn, text = shown(kernel.run("%context pin")).splitlines()
        assert turn.startswith("pinned: turn ")
        assert turn.endswith(": look at 销售.csv first")
        assert text == "pinned: 不得删除 sales_1 列"
        kernel.run("%context unpin -1")
        assert shown(kernel.run("%context pin")).splitlines() == [text]


def test_a_limit_that_was_taken_back_stands_in_no_other_policys_way(kernel: AgentKernel, tmp_path: Path) -> None:
    with FakeMessagesAPI(["ok"], repeat=True) as fake:
        kernel.begin(tmp_path, fake)
        kernel.run(agent("one"), cell_id="c1")
        assert "threshold=0.5" in shown(kernel.run("%context set threshold = 0.5"))
        assert "threshold=0 " in shown(kernel.run("%context set threshold=-0"))
        assert "codex" in shown(kernel.run("%context compare"))
        for policy, own in (("codex", "0.9"), ("gemini-cli", "0.5"), ("manus", "0.64"), ("createrole", "0.9"), ("pi", "0")):
            assert f"threshold={own} " in shown(kernel.run(f"%context policy {policy}")), policy
        assert "no share" in error_line(kernel.run("%context set policy=codex threshold=0"))
        kernel.run("%context set policy=nbagent keep=1")  # which gemini-cli cannot have
        assert "gemini-cli" in shown(kernel.run("%context compare"))
        assert "it has none; besides: policy" in error_line(kernel.run("%context set policy=off keep=1"))
        assert "Did you mean 'show'?" in error_line(kernel.run("%context Show"))
        assert "1 turn, 1 model call, window" in shown(kernel.run("%context compare pi"))
