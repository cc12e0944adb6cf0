"""`%memory` and memory in turns, in a real kernel (OC-M4, OC-M5, NB-M1, NB-M2; OC cases 125, 128, 131, 134)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.messages_api import FakeMessagesAPI, call, reply
from tests.notebook.agent_kernel import AgentKernel, agent, error_line, running, sent, shown

pytestmark = pytest.mark.kernel


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentKernel]:
    with running(tmp_path_factory.mktemp("kernel")) as started:
        yield started


def note(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / ".nbagent" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_a_fact_is_added_found_read_and_shown_as_value_text_and_html(kernel: AgentKernel, tmp_path: Path) -> None:
    kernel.begin(tmp_path)
    added = kernel.run("%memory add We report medians, since prices aren't normal.", cell_id="cell-3")
    assert "Remembered in .nbagent/memory/" in shown(added)
    kernel.run("hits = get_ipython().run_line_magic('memory', 'what do we report?')")
    path = kernel.value("hits[0].path")
    assert re.fullmatch(r"\.nbagent/memory/\d{4}-\d\d-\d\d\.md", path)
    assert kernel.value("hits[0].snippet") == "- We report medians, since prices aren't normal."
    assert kernel.value("(hits[0].start_line, hits[0].end_line, hits[0].provenance.cell)") == (1, 1, "cell-3")
    assert kernel.value("sorted(hits[0].why.parts)[:1] != [] and hits[0].why.keyword > 0")
    (found,) = kernel.run("%memory search what do we report?").of("execute_result")
    bundle = found["content"]["data"]
    assert path in bundle["text/plain"]
    assert "medians" in bundle["text/html"]
    assert "keyword" in bundle["text/plain"]
    assert "medians" in shown(kernel.run(f"%memory get {path} --from 1 --lines 1"))
    assert "medians" in shown(kernel.run("%memory today"))
    assert "keywords and vectors" in shown(kernel.run("%memory"))
    assert shown(kernel.run("%memory reindex")) == shown(kernel.run("%memory status"))


def test_notes_in_chinese_are_found_by_a_word_of_two_characters(kernel: AgentKernel, tmp_path: Path) -> None:
    """OC case 128."""
    kernel.begin(tmp_path)
    kernel.run("%memory add 我们决定用中位数汇报房价。")
    kernel.run("%memory add 训练集的截止日期是三月。")
    kernel.run("hits = get_ipython().run_line_magic('memory', '房价')")
    assert "房价" in kernel.value("hits[0].snippet")
    kernel.run("hits = get_ipython().run_line_magic('memory', 'search 截止日期是什么时候？')")
    assert "三月" in kernel.value("hits[0].snippet")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("%memory search", "say what to look for"),
        ("%memory search -k 0 x", "'0' is not a whole number above 0"),
        ("%memory add", "nothing to remember"),
        ("%memory get nowhere.md", "there is no note 'nowhere.md'"),
        ("%memory get ../../etc/passwd", "is no note"),
        ("%memory get", "the following arguments are required: path"),
        ("%memory status of the order", "to search for them: %memory search status of the order"),
        ("%memory show me the target column", "to search for the words: %memory search show me the target column"),
        ("%memory get the churn definition", "to search for the words: %memory search get the churn definition"),
        ("%memory add the db password is hunter2", "looks like a key or password"),
        ("%memory add The key is sk-ant-api03-" + "a1B2" * 12, "looks like a key or password"),
    ],
)
def test_a_line_typed_wrongly_says_what_to_do(kernel: AgentKernel, tmp_path: Path, line: str, says: str) -> None:
    kernel.begin(tmp_path)
    assert says in error_line(kernel.run(line))
    assert not (tmp_path / ".nbagent/memory").exists()


def test_a_line_is_taken_as_it_was_typed(kernel: AgentKernel, tmp_path: Path) -> None:
    """Blanks of a fact stay, options may stand last, and the place that a hit shows can be read."""
    kernel.begin(tmp_path)
    kernel.run("%memory add The  column\tchurn   is the target.")
    kernel.run("%memory add I like tabs. --person")
    (path,) = (tmp_path / ".nbagent/memory").glob("*.md")
    assert path.read_text().startswith("- The  column\tchurn   is the target. <!--")
    assert "tabs" in next((tmp_path / "home/memory").glob("*.md")).read_text()
    kernel.run("hits = get_ipython().run_line_magic('memory', 'search churn tabs -k 1')")
    assert kernel.value("(len(hits), hits.query)") == (1, "churn tabs")
    kernel.run("hits = get_ipython().run_line_magic('memory', 'churn --sessions -k 1')")
    assert kernel.value("(len(hits), hits.query)") == (1, "churn")
    assert "is the target" in shown(kernel.run(f"%memory get .nbagent/memory/{path.name}:1"))


def test_another_working_folder_changes_neither_settings_nor_notes(kernel: AgentKernel, tmp_path: Path) -> None:
    project, other = tmp_path / "project", tmp_path / "other"
    for folder in (project, other):
        folder.mkdir()
    kernel.begin(project, NBAGENT_HOME=str(tmp_path / "home"))
    kernel.run("%memory add The column churn is the target.")
    kernel.run(f"import os; os.chdir({str(other)!r})")
    kernel.run("hits = get_ipython().run_line_magic('memory', 'churn')")
    assert kernel.value("len(hits)") == 1
    assert kernel.value("str(get_ipython()._nbagent_magics.agent_app.folder())") == str(project)
    assert list(other.iterdir()) == []


@pytest.mark.parametrize(
    "query",
    ['"', "*", "NEAR", "col:", "a AND", "it's (broken", "?!…", "-- x", "\\x00", "^ ~ `", "x" * 10_000],
    ids=lambda q: q[:12],
)
def test_any_query_gives_a_list(kernel: AgentKernel, tmp_path: Path, query: str) -> None:
    kernel.begin(tmp_path)
    note(tmp_path, "memory/a.md", "- The column churn is the target.\n")
    done = kernel.run(f"%memory search {query} churn")
    assert done.status == "ok", shown(done)
    kernel.run(f"hits = get_ipython().run_line_magic('memory', 'search churn ' + chr(0) + {query!r})")
    assert kernel.value("len(hits)") == 1


def test_what_cannot_be_searched_is_named_and_the_rest_answers(kernel: AgentKernel, tmp_path: Path) -> None:
    """The bad input of the issue: binary, not UTF-8, a link out, a name with a line break, a day that does not exist."""
    kernel.begin(tmp_path)
    outside = tmp_path / "outside.md"
    outside.write_text("- launch codes\n")
    note(tmp_path, "memory/binary.md", b"\0\1\2\0" * 500)
    note(tmp_path, "memory/latin.md", "- Caf\xe9 opens at nine.\n".encode("latin-1"))
    note(tmp_path, "memory/two\nlines.md", "- The churn column is the target.\n")
    note(tmp_path, "memory/2026-02-31.md", "- Written on no day.\n")
    (tmp_path / ".nbagent/memory/link.md").symlink_to(outside)
    with note(tmp_path, "memory/huge.md", "").open("wb") as file:
        file.truncate(100 << 20)
    status = shown(kernel.run("%memory status"))
    for name, cause in (("binary.md", "is binary"), ("latin.md", "not UTF-8"), ("link.md", "links to"), ("huge.md", "100 MiB")):
        assert name in status
        assert cause in status
    kernel.run("hits = get_ipython().run_line_magic('memory', 'churn column')")
    assert kernel.value("hits[0].path") == ".nbagent/memory/two\\nlines.md"
    assert kernel.value("[h.path for h in get_ipython().run_line_magic('memory', 'written on no day')][:1]") == [".nbagent/memory/2026-02-31.md"]
    assert kernel.value("len(get_ipython().run_line_magic('memory', 'launch codes'))") == 0


@pytest.mark.parametrize("embedder", ["nowhere", "openai:none@http://127.0.0.1:9"])
def test_an_embedder_that_fails_leaves_keyword_search(kernel: AgentKernel, tmp_path: Path, embedder: str) -> None:
    kernel.begin(tmp_path, NBAGENT_MEMORY__EMBEDDER=embedder)
    kernel.run("%memory add The cutoff is 0.7.")
    kernel.run("hits = get_ipython().run_line_magic('memory', 'cutoff')")
    assert "0.7" in kernel.value("hits[0].snippet")
    assert "keywords only" in shown(kernel.run("%memory status"))


def test_a_broken_index_is_made_anew(kernel: AgentKernel, tmp_path: Path) -> None:
    kernel.begin(tmp_path)
    note(tmp_path, "index.sqlite", b"no database at all" * 100)
    kernel.run("%memory add The cutoff is 0.7.")
    kernel.run("hits = get_ipython().run_line_magic('memory', 'cutoff')")
    assert kernel.value("len(hits)") == 1


def test_a_turn_remembers_and_a_turn_in_another_notebook_finds_it(kernel: AgentKernel, tmp_path: Path) -> None:
    """OC case 125: the tool and the command find the same."""
    fact = "The 2024 prices hold two currencies; divide rows of region EU by 1.08."
    script = [
        reply("I note it.", call("remember", {"text": fact})), "Noted.",
        reply(call("memory_search", {"query": "currencies of the prices"})), "Divide region EU by 1.08.",
    ]  # fmt: skip
    with FakeMessagesAPI(script) as fake:
        kernel.begin(tmp_path, fake, JPY_SESSION_NAME=str(tmp_path / "one.ipynb"))
        kernel.run(agent("note what you found on currencies"), cell_id="c-11")
        kernel.begin(tmp_path, fake, JPY_SESSION_NAME=str(tmp_path / "two.ipynb"))
        done = kernel.run(agent("what is odd about the prices?"), cell_id="c-21")
        assert "Divide region EU by 1.08." in shown(done)
        prefix = "\n".join(b["text"] for b in sent(fake)[2]["system"])
        assert fact in prefix  # of today, so it is loaded at the start too
        result = sent(fake)[3]["messages"][-1]["content"][0]["content"]
        assert fact in str(result)
        assert "cell c-11" in str(result)
        kernel.run("hits = get_ipython().run_line_magic('memory', 'currencies of the prices')")
        assert fact in kernel.value("hits[0].snippet")
        kernel.run("said = get_ipython().run_line_magic('memory', 'search --sessions Divide region')")
        assert kernel.value("sorted({h.source for h in said})") == ["memory", "sessions"]


def test_sub_commands_and_options_are_completed(kernel: AgentKernel, tmp_path: Path) -> None:
    kernel.begin(tmp_path)
    assert kernel.complete("%memory re") == ["%memory reindex"]
    assert "%memory search --sessions" in kernel.complete("%memory search --s")
    assert "--sessions" in shown(kernel.run("print(get_ipython().find_line_magic('memory').getdoc())"))
    listed = [line.split()[1] for line in shown(kernel.run("%memory help")).splitlines()]
    assert listed == ["help", "search", "get", "add", "today", "status", "reindex"]
