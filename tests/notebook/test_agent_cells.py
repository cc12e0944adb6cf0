"""Turns in cells of a real kernel: what is sent, what is shown, and who may begin one. Cases: peers 1, 3, 9, 11, 13, 23, 25."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.messages_api import FakeMessagesAPI, call, reply
from tests.fakes.replies import Reply
from tests.notebook.agent_kernel import (
    AgentKernel,
    agent,
    error_line,
    results,
    running,
    sent,
    shown,
    states,
    texts,
    turn_ids,
)

pytestmark = pytest.mark.kernel
ALLOW = {"NBAGENT_TOOLS__ALLOW": "python"}


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentKernel]:
    with running(tmp_path_factory.mktemp("kernel")) as started:
        yield started


def runs(code: str, words: str = "Look.") -> Reply:
    """A reply that runs `code`."""
    return reply(words, call("python", {"code": code}))


def test_the_body_is_sent_byte_for_byte(kernel: AgentKernel, tmp_path: Path) -> None:
    """Case peers 1."""
    bodies = [
        '{"a": 1}',
        "{}",
        "{",
        "{undefined.attr}",
        "$HOME",
        "how many?",
        "trailing  \t \n\n",
        ">>> x\n... y",
        "é😀",
    ]
    with FakeMessagesAPI(["ok"], repeat=True) as fake:
        kernel.begin(tmp_path, fake)
        for body in bodies:
            result = kernel.run(agent(body))
            assert result.status == "ok", shown(result)
        assert texts(sent(fake)[-1]) == bodies


@pytest.mark.parametrize(
    ("cell", "says"),
    [
        ("%%agent", "cell body is empty"),
        ("%%agent\n", "cell body is empty"),
        ("%%agent\n   \n", "no text"),
        ("%%agent\n\n\n", "no text"),
        ("%%agent --modle x\nhi", "did you mean --mode"),
        ("%%agent --mode fast\nhi", "'ask', 'auto', 'plan'"),
        ("%%agent --max-steps none\nhi", "'none' is not a whole number above 0"),
        ("%%agent --max-cost much\nhi", "'much' is not an amount"),
        ("%%agent tell me\nhi", "write the request below it"),
        ("%%agent 你好", "takes options only on its first line, not '你好'; write the request below it"),
        ("%%agent --mode plan", "no text"),
        ("%%agent —mode plan\nhi", "its dashes are no hyphens; type --mode"),
        ("%%agent --help\nhi", "no option '--help'; `%%agent?` shows the options"),
        ("%%agent 'x\nhi", "close the quote"),
        ("%%agent -o a-b\nhi", "not a variable name"),
        ("%%agent --tools hammer\nhi", "unknown tool 'hammer'"),
        ("%%agent --policy x\nhi", "unknown policy 'x'"),
        ("%%agent --skill x\nhi", "there is no skill 'x'"),
        ("%%agent -m nosuch-model\nhi", "'nosuch-model'"),
    ],
)
def test_a_cell_typed_wrongly_is_one_line_and_no_turn(
    kernel: AgentKernel, tmp_path: Path, cell: str, says: str
) -> None:
    """Case peers 3."""
    with FakeMessagesAPI() as fake:
        kernel.begin(tmp_path, fake)
        result = kernel.run(cell)
        assert result.status == "error"
        assert says in shown(result)
        assert len(shown(result).strip().splitlines()) == 1
        assert "Traceback" not in str(result.reply)
        assert shown(kernel.run("%agent log")) == "no turns yet"
        assert fake.requests == []


def test_a_comment_on_the_line_is_not_sent(kernel: AgentKernel, tmp_path: Path) -> None:
    """Case peers 3."""
    with FakeMessagesAPI(["ok"]) as fake:
        kernel.begin(tmp_path, fake)
        assert kernel.run("%%agent -q # a note\nhi").status == "ok"
        assert texts(sent(fake)[0]) == ["hi"]


def test_an_edited_cell_forks_and_what_followed_is_stale(kernel: AgentKernel, tmp_path: Path) -> None:
    """Case peers 9."""
    with FakeMessagesAPI(["ok"], repeat=True) as fake:
        kernel.begin(tmp_path, fake)
        for cell_id in "abc":
            kernel.run(agent(f"old {cell_id}"), cell_id=cell_id)
        kernel.run(agent("new b"), cell_id="b")
        assert texts(sent(fake)[-1]) == ["old a", "new b"]
        tree = shown(kernel.run("%agent tree")).splitlines()
        stale = [line for line in tree if "stale" in line]
        assert [("old c" in line) for line in stale] == [True]
        (old_b,) = [turn_ids(line)[0] for line in tree if "old b" in line]
        kernel.run(f"%agent revert {turn_ids(stale[0])[0]}")
        kernel.run(agent("next"), cell_id="d")
        assert texts(sent(fake)[-1]) == ["old a", "old b", "old c", "next"]
        kernel.run(f"%agent revert {old_b}")
        assert "old b" in shown(kernel.run("%agent log"))


def test_what_followed_a_turn_that_a_fork_replaced_is_stale(kernel: AgentKernel, tmp_path: Path) -> None:
    with FakeMessagesAPI(["ok"], repeat=True) as fake:
        kernel.begin(tmp_path, fake)
        for cell_id in "abc":
            kernel.run(agent(f"old {cell_id}"), cell_id=cell_id)
        (old_b,) = [turn_ids(line)[0] for line in shown(kernel.run("%agent tree")).splitlines() if "old b" in line]
        kernel.run(f"%agent fork {old_b}")
        assert "stale" not in shown(kernel.run("%agent tree"))
        kernel.run(agent("other b"), cell_id="d")
        stale = [line for line in shown(kernel.run("%agent tree")).splitlines() if "stale" in line]
        assert [("old c" in line) for line in stale] == [True]


def test_a_conversation_put_aside_is_not_stale(kernel: AgentKernel, tmp_path: Path) -> None:
    with FakeMessagesAPI(["ok"], repeat=True) as fake:
        kernel.begin(tmp_path, fake)
        kernel.run(agent("first"), cell_id="a")
        kernel.run(agent("second", "--new"), cell_id="b")
        assert texts(sent(fake)[-1]) == ["second"]
        assert "stale" not in shown(kernel.run("%agent tree"))


def test_prints_figures_and_an_exception_of_the_agents_code(kernel: AgentKernel, tmp_path: Path) -> None:
    """Case peers 23."""
    code = "import matplotlib.pyplot as plt\nprint('before')\nplt.plot([1, 2])\n1/0"
    with FakeMessagesAPI([runs(code), "It fails."]) as fake:
        kernel.begin(tmp_path, fake)
        kernel.run("%matplotlib inline")
        result, after = kernel.run_all([(agent("plot"), "a"), ("print('goes on')", "b")])
        assert result.status == "ok"
        assert result.of("error") == []
        assert result.stream() == "before\n"
        assert any("image/png" in m["content"]["data"] for m in result.of("display_data"))
        (told,) = results(sent(fake)[-1]).values()
        assert "ZeroDivisionError" in told
        assert "before" in told
        assert after.stream() == "goes on\n"


def test_a_saved_notebook_reads_well_without_a_kernel(kernel: AgentKernel, tmp_path: Path) -> None:
    """Case peers 25."""
    import nbformat
    from nbconvert import HTMLExporter, MarkdownExporter

    with FakeMessagesAPI([runs("print('rows: 3')"), "There are **three** rows."]) as fake:
        kernel.begin(tmp_path, fake)
        cells = []
        for source in (agent("How many rows?"), "%context", "%agent tree", "%agent tools"):
            result = kernel.run(source)
            final: dict[str, nbformat.NotebookNode] = {}
            for n, m in enumerate(result.of("stream", "display_data", "update_display_data", "execute_result")):
                key = (m["content"].get("transient") or {}).get("display_id") or str(n)
                if m["msg_type"] == "update_display_data":
                    final[key]["data"] = m["content"]["data"]
                else:
                    final[key] = nbformat.v4.output_from_msg(m)
            cells.append(nbformat.v4.new_code_cell(source, outputs=list(final.values())))
        notebook = nbformat.v4.new_notebook(cells=cells)
        nbformat.validate(notebook)
        html, _ = HTMLExporter().from_notebook_node(notebook)
        markdown, _ = MarkdownExporter().from_notebook_node(notebook)
        for text in (html, markdown):
            assert "three" in text
            assert "rows: 3" in text
            assert "Error displaying widget" not in text
            assert "model not found" not in text
        assert "compaction when it pays, usually at" in markdown
        assert all("text/plain" in o["data"] for c in cells for o in c.outputs if "data" in o)


# ---------------------------------------------------------------------- other ways to begin a turn
def test_a_result_is_bound_and_nothing_is_returned(kernel: AgentKernel, tmp_path: Path) -> None:
    with FakeMessagesAPI([runs("x = 41 + 1"), "It is 42."]) as fake:
        kernel.begin(tmp_path, fake)
        result = kernel.run(agent("add", "-q -o r"))
        assert result.of("execute_result") == []
        assert shown(result).split() == ["Look.", "It", "is", "42."]  # neither the call nor the status line
        assert kernel.value("(x, r.text, r.steps, len(r.tool_calls), r.stop_reason)") == (
            42,
            "It is 42.",
            2,
            1,
            "end_turn",
        )
        assert kernel.value("(__import__('nbagent').last_turn().turn_id == r.turn_id, len(r.events) > 4)") == (
            True,
            True,
        )
        assert len(sent(fake)) == 2


def test_ask_in_a_loop_runs_one_turn_each_and_forks_when_run_again(kernel: AgentKernel, tmp_path: Path) -> None:
    cell = "import nbagent\nanswers = [nbagent.ask(f'question {i}', show=False).text for i in range(3)]\nprint(answers)"
    with FakeMessagesAPI([str(i) for i in range(6)]) as fake:
        kernel.begin(tmp_path, fake)
        assert kernel.run(cell, cell_id="loop").stream() == "['0', '1', '2']\n"
        assert kernel.run(cell, cell_id="loop").stream() == "['3', '4', '5']\n"
        assert texts(sent(fake)[-1]) == ["question 0", "question 1", "question 2"]


@pytest.mark.parametrize("first", ["%%time", "%%capture captured"])
def test_a_turn_under_another_cell_magic(kernel: AgentKernel, tmp_path: Path, first: str) -> None:
    with FakeMessagesAPI([runs("y = 7"), "Done."]) as fake:
        kernel.begin(tmp_path, fake)
        result = kernel.run(f"{first}\n%%agent\nset {{y}}")
        assert result.status == "ok"
        assert ("Done." in shown(result)) is (first == "%%time")
        assert kernel.value("y") == 7
        assert [t.strip() for t in texts(sent(fake)[-1])] == ["set {y}"]  # IPython adds a line end there


def test_a_failed_turn_is_one_line_in_every_form(kernel: AgentKernel, tmp_path: Path) -> None:
    with FakeMessagesAPI([runs("z = 1")] * 4) as fake:
        kernel.begin(tmp_path, fake)
        forms = (
            agent("go", "--max-steps 1"),
            "get_ipython().run_cell_magic('agent', '--max-steps 1', 'go')",
            "import nbagent; nbagent.ask('go', max_steps=1)",
        )
        lines = {error_line(kernel.run(form)) for form in forms}
        timed = kernel.run("%%time\n" + agent("go", "--max-steps 1"))  # IPython 8's %%time shows an error and succeeds
        lines |= {line for m in timed.of("error") for line in m["content"]["traceback"]}
        assert lines == {
            "stopped at the limit of 1 step (--max-steps); `%agent resume` goes on"
        }
        assert len(sent(fake)) == 4


def test_code_of_the_agent_cannot_begin_a_turn(kernel: AgentKernel, tmp_path: Path) -> None:
    tries = ["%%agent\nme too", "import nbagent; nbagent.ask('me too')", "%agent resume"]
    with FakeMessagesAPI([*map(runs, tries), "I see."]) as fake:
        kernel.begin(tmp_path, fake, **ALLOW)
        result = kernel.run(agent("go"))
        assert result.status == "ok", shown(result)
        told = results(sent(fake)[-1])
        assert len(told) == 3
        assert all("cannot start a turn of its own" in text for text in told.values())


def test_two_turns_at_once_are_refused_readably(kernel: AgentKernel, tmp_path: Path) -> None:
    other = (
        "import threading, nbagent\nRUNS = threading.Event(); SAID = []\n"
        "def other():\n    RUNS.wait(60)\n"
        "    try: nbagent.ask('b')\n    except Exception as e: SAID.append(str(e))\n"
        "t = threading.Thread(target=other); t.start()"
    )
    with FakeMessagesAPI([runs("RUNS.set(); t.join(60)"), "done", "fine"]) as fake:
        kernel.begin(tmp_path, fake, **ALLOW)
        kernel.run(other)
        assert kernel.run(agent("a")).status == "ok"
        assert kernel.value("SAID") == ["a turn is running already in this kernel; wait for it or stop it"]
        assert kernel.run("import nbagent; print(nbagent.ask('c', show=False).text)").stream() == "fine\n"
        assert texts(sent(fake)[-1]) == ["a", "c"]


def test_what_is_said_while_a_turn_runs_reaches_the_model_in_it(kernel: AgentKernel, tmp_path: Path) -> None:
    code = "get_ipython()._nbagent_magics.agent_app.steering.append('be brief')"
    with FakeMessagesAPI([runs(code), "Brief."]) as fake:
        kernel.begin(tmp_path, fake, **ALLOW)
        assert kernel.run(agent("go")).status == "ok"
        assert texts(sent(fake)[-1]) == ["go", "be brief"]


def test_cells_of_the_person_are_told_once_a_turn_begins(kernel: AgentKernel, tmp_path: Path) -> None:
    with FakeMessagesAPI(["ok"], repeat=True) as fake:
        kernel.begin(tmp_path, fake)
        kernel.run("secret_free = 1")
        assert kernel.run(agent("too soon", "--tools hammer")).status == "error"
        dry = kernel.run("%%agent --dry-run\nWhat?")
        assert "secret_free = 1" in shown(dry)
        kernel.run(agent("now"))
        kernel.run(agent("again"))
        told = states(sent(fake)[-1])
        assert len(told) == 1
        assert told[0].count("secret_free = 1") == 1
        assert "%%agent" not in told[0]


# ---------------------------------------------------------------------- restart and rename
def test_a_conversation_goes_on_after_a_restart(kernel: AgentKernel, tmp_path: Path) -> None:
    """Case peers 11."""
    notebook = tmp_path / "a.ipynb"
    notebook.write_text("{}")
    env = {"JPY_SESSION_NAME": str(notebook)}
    with FakeMessagesAPI(["ok"], repeat=True) as fake:
        kernel.begin(tmp_path, fake, **env)
        kernel.run("total = 10")
        for n in range(5):
            kernel.run(agent(f"turn {n}"), cell_id=f"c{n}")
        kernel.restart()
        welcome = shown(kernel.begin(tmp_path, fake, **env))
        assert "5 turns" in welcome
        before = len(fake.requests)
        assert kernel.run(agent("turn 5"), cell_id="c5").status == "ok"
        assert kernel.run(agent("turn 6"), cell_id="c6").status == "ok"
        assert len(fake.requests) == before + 2
        assert texts(sent(fake)[-1]) == [f"turn {n}" for n in range(7)]
        gone = [s for s in states(sent(fake)[-1]) if "restarted" in s]
        assert len(gone) == 1
        first, last = sent(fake)[4], sent(fake)[-1]
        assert _unmarked(last["messages"][: len(first["messages"])]) == _unmarked(first["messages"])
        assert last["system"] == first["system"]


def _unmarked(messages: list[dict[str, object]]) -> str:
    return json.dumps(messages).replace(', "cache_control": {"type": "ephemeral"}', "")


def test_a_conversation_follows_a_renamed_notebook(kernel: AgentKernel, tmp_path: Path) -> None:
    """Case peers 13."""
    old, new = tmp_path / "a.ipynb", tmp_path / "b.ipynb"
    content = json.dumps({"cells": [{"id": f"cell-{n}"} for n in range(3)]})
    old.write_text(content)
    with FakeMessagesAPI(["ok"], repeat=True) as fake:
        kernel.begin(tmp_path, fake, JPY_SESSION_NAME=str(old))
        kernel.run(agent("before"), cell_id="cell-0")
        old.rename(new)  # the kernel is not told
        kernel.run(agent("after"), cell_id="cell-1")
        kernel.restart()
        welcome = shown(kernel.begin(tmp_path, fake, JPY_SESSION_NAME=str(new)))
        assert "2 turns" in welcome
        assert "renamed from a.ipynb" in welcome
        kernel.run(agent("later"), cell_id="cell-2")
        assert texts(sent(fake)[-1]) == ["before", "after", "later"]
        copy = tmp_path / "c.ipynb"
        copy.write_text(content)
        welcome = shown(kernel.begin(tmp_path, fake, JPY_SESSION_NAME=str(copy)))
        assert "copied from b.ipynb" in welcome
        assert len(list((tmp_path / ".nbagent/sessions").iterdir())) == 2
        kernel.run(agent("in the copy"), cell_id="cell-9")
        assert texts(sent(fake)[-1]) == ["before", "after", "later", "in the copy"]
