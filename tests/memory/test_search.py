"""Searching notes: languages, sources, models that change, indexes that break (OC cases 43-53, 124-134; NB-M1, OC-M1)."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from nbagent.core.errors import SettingsError, UserError
from nbagent.memory.hits import SessionText
from nbagent.memory.memory import Memory
from tests.memory.desk import BadEmbedder, Desk, WordsEmbedder, snippets


def test_a_note_is_found_with_its_path_and_lines(desk: Desk) -> None:
    desk.note("MEMORY.md", "# Cache\n\n- The TTL is 30 s.\n- Redis holds it.\n\nLong\nparagraph on paging.\n")
    (first, *_) = desk.open().search("what does paging say")
    assert (first.path, first.start_line, first.end_line) == (".nbagent/MEMORY.md", 6, 7)
    assert first.heading == "Cache"
    assert first.snippet == "Long\nparagraph on paging."


def test_the_persons_notes_and_further_folders_are_searched_too(desk: Desk, tmp_path: Path) -> None:
    desk.person("MEMORY.md", "- likes tabs\n")
    desk.person("memory/2026-02-27.md", "- asked for metric units\n")
    (tmp_path / "wiki").mkdir()
    (tmp_path / "wiki" / "glossary.md").write_text("- churn means lost customers\n")
    memory = desk.open(extra_dirs=(str(tmp_path / "wiki"),))
    assert [h.path for h in memory.search("tabs")] == ["~/.nbagent/MEMORY.md"]
    assert memory.search("metric units")[0].date == "2026-02-27"
    assert memory.search("churn")[0].path.endswith("wiki/glossary.md")


# OC cases 43, 44, 128; bug 20730
@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("我们决定用缓存来加速登录流程。", "缓存"),
        ("我们决定用缓存来加速登录流程。", "登录"),
        ("会議の資料は東京に送った。", "東京"),
        ("データベースを移行する。", "移行"),
        ("회의에서 데이터 저장소를 바꾸기로 했다.", "저장"),
        ("회의에서 데이터 저장소를 바꾸기로 했다.", "회의"),
        ("混合 text 里的 handleAuth 函数", "函数"),
        ("Le café de la gare ferme à midi.", "cafe"),
        ("Ｆｕｌｌ width ABC", "full"),
        ("see df_train.v2 for the split", "df_train.v2"),
        ("the bug is in handleAuth", "auth"),
        ("the bug is in handleAuth", "handleAuth"),
        ("set retry_count to 5", "retry_count"),
    ],
)
def test_keywords_are_found_in_every_language_and_in_identifiers(desk: Desk, text: str, query: str) -> None:
    desk.note("memory/a.md", f"- {text}\n- 完全无关的一行，关于天气。\n- another line about nothing\n")
    assert text in snippets(desk.open(), query)[0]


def test_of_two_chinese_words_the_line_with_both_comes_first(desk: Desk) -> None:
    # OC case 44
    desk.note("memory/a.md", "- 数据管道每天运行\n- 数据管道的备份每周运行\n- 备份已经完成\n")
    assert snippets(desk.open(), "数据管道 备份")[0] == "数据管道的备份每周运行".join(["- ", ""])


def test_with_openclaws_and_only_the_row_that_holds_both_chinese_words_is_found(desk: Desk) -> None:
    # OC case 44
    for i, text in enumerate(["数据管道每天运行", "数据管道的备份每周运行", "备份已经完成"]):
        desk.note(f"memory/{i}.md", f"{text}\n")
    assert snippets(desk.open(preset="openclaw"), "数据管道 备份") == ["数据管道的备份每周运行\n"]


def test_a_chinese_query_over_an_empty_index_gives_nothing(desk: Desk) -> None:
    # OC case 131
    assert desk.open().search("缓存") == []


@pytest.mark.parametrize("query", [" ", "\n\t", ""])
def test_a_blank_query_asks_nobody(desk: Desk, query: str) -> None:
    # OC case 134
    desk.note("MEMORY.md", "- something\n")
    embedder = WordsEmbedder("something")
    assert desk.open(embedder).search(query) == []
    assert embedder.calls == []


def test_blank_notes_and_pieces_are_not_embedded(desk: Desk) -> None:
    # OC case 50
    desk.note("memory/blank.md", "  \n\n\t\n")
    desk.note("memory/one.md", "\n\n- fact\n\n   \n")
    embedder = WordsEmbedder("fact")
    desk.open(embedder).status()
    assert embedder.calls == [("- fact",)]


def test_what_did_not_change_is_not_embedded_again(desk: Desk) -> None:
    path = desk.note("memory/a.md", "- one fact\n- two fact\n")
    embedder = WordsEmbedder("fact")
    memory = desk.open(embedder)
    memory.status()
    path.write_text("- one fact\n- two fact\n- three fact\n")
    memory.status()
    memory.reindex()
    assert embedder.calls == [("- one fact", "- two fact"), ("- three fact",)]


def test_another_model_hides_no_keyword_hit(desk: Desk) -> None:
    # OC case 127
    desk.note("MEMORY.md", "- the port is 8080\n")
    first = desk.open(WordsEmbedder("port"))
    assert first.search("port")
    first.close()
    broken = desk.open(BadEmbedder(ConnectionError("down"), id="other-2"))
    assert snippets(broken, "port") == ["- the port is 8080"]
    assert broken.status().mode == "keywords only: the embedder fails"


def test_another_model_embeds_anew_and_its_vectors_count(desk: Desk) -> None:
    desk.note("MEMORY.md", "- an automobile\n- a tree\n")
    desk.open(WordsEmbedder("tree")).status()
    memory = desk.open(WordsEmbedder("car automobile", "tree", id="words-2"))
    assert snippets(memory, "car")[0] == "- an automobile"
    assert memory.status().vectors == 2


def test_a_reindex_whose_embedder_fails_still_answers(desk: Desk) -> None:
    # OC case 52
    desk.note("MEMORY.md", "- alpha beta\n")
    memory = desk.open(BadEmbedder(OSError("unreachable")))
    memory.reindex()
    assert snippets(memory, "beta") == ["- alpha beta"]


def test_the_first_search_over_an_empty_index_finds_and_later_ones_see_changes(desk: Desk) -> None:
    # OC case 53: nothing waits for a slow embedder, an empty index is filled at once
    path = desk.note("memory/a.md", "- alpha\n")
    memory = desk.open()
    assert snippets(memory, "alpha") == ["- alpha"]
    path.write_text("- gamma\n")
    assert snippets(memory, "gamma") == ["- gamma"]
    assert memory.search("alpha") == []
    path.unlink()
    assert memory.search("gamma") == []


def test_a_reindex_ends_when_a_slow_embedder_fails(desk: Desk) -> None:
    # OC case 52
    desk.note("memory/a.md", "".join(f"- fact {i}\n" for i in range(600)))
    embedder = BadEmbedder(ConnectionError("down"))
    embedder.fast = False
    memory = desk.open(embedder)
    assert memory.reindex().mode == "keywords only: the embedder fails"
    assert embedder.calls == 1
    assert snippets(memory, "fact 599")[0] == "- fact 599"


def test_a_slow_embedder_gets_a_part_before_each_search(desk: Desk) -> None:
    desk.note("memory/a.md", "".join(f"- fact {i}\n" for i in range(600)))
    embedder = WordsEmbedder("fact")
    embedder.fast = False
    memory = desk.open(embedder)
    assert len(memory.search("fact 599")) == 6
    assert [len(texts) for texts in embedder.calls] == [64, 1]  # one batch of notes, and the query
    status = memory.status()
    assert (status.vectors, status.mode) == (128, "keywords and vectors of 128 of 600 pieces")
    assert memory.reindex().vectors == 600  # whoever asks for it waits


def test_an_embedder_that_fails_is_left_alone_for_a_while(desk: Desk) -> None:
    desk.note("MEMORY.md", "- alpha\n")
    embedder = BadEmbedder(TimeoutError("slow"))
    memory = desk.open(embedder)
    for _ in range(10):
        memory.search("alpha")
    assert embedder.calls < 5


@pytest.mark.parametrize(
    "answer",
    [
        lambda n: [[1.0, 2.0]] * (n + 1),
        lambda n: [[1.0, 2.0]] * (n - 1),
        lambda n: [],
        lambda n: None,
        lambda n: [[float("nan")] * 4] * n,
        lambda n: [[float("inf")] * 4] * n,
        lambda n: [1.0] * n,
        lambda n: [["a"]] * n,
        lambda n: [[1.0], [1.0, 2.0]],
    ],
)
def test_an_embedder_that_gives_no_vectors_is_named_and_keywords_answer(desk: Desk, answer: object) -> None:
    desk.note("MEMORY.md", "- alpha beta\n- gamma\n")
    memory = desk.open(BadEmbedder(answer))
    assert snippets(memory, "alpha")[0] == "- alpha beta"
    assert "bad-1" in str(memory.status().diagnostics[-1])


def test_an_embedder_whose_width_changes_is_named_and_a_reindex_takes_the_new_one(desk: Desk) -> None:
    desk.note("MEMORY.md", "- alpha\n")
    widths = iter((4, *[7] * 20))
    memory = desk.open(BadEmbedder(lambda n: [[1.0] * next(widths)] * n))
    assert snippets(memory, "alpha") == ["- alpha"]
    status = memory.status()
    assert "bad-1 gave vectors of 7 numbers, earlier of 4; after %memory reindex" in str(status.diagnostics[-1])
    assert status.mode == "keywords only: the embedder fails"
    desk.note("memory/new.md", "- alpha two\n")
    assert len(memory.search("alpha")) == 2
    status = memory.reindex()
    assert (status.mode, status.vectors, status.diagnostics) == ("keywords and vectors", 2, ())
    assert len(memory.search("alpha")) == 2


def test_an_index_locked_when_it_was_opened_is_tried_again_by_a_reindex(desk: Desk) -> None:
    desk.note("MEMORY.md", "- alpha\n")
    first = desk.open()
    first.search("alpha")
    first.close()
    lock = sqlite3.connect(desk.folder / ".nbagent" / "index.sqlite", isolation_level=None)
    lock.execute("PRAGMA locking_mode=EXCLUSIVE")
    lock.execute("BEGIN EXCLUSIVE")
    memory = desk.open()
    assert snippets(memory, "alpha") == ["- alpha"]
    assert memory.status().index_path == "in memory"
    assert "locked" in str(memory.status().diagnostics[0])
    assert "%memory reindex" in str(memory.status().diagnostics[0])
    lock.execute("ROLLBACK")
    lock.close()
    status = memory.reindex()
    assert (status.index_path, status.pieces, status.diagnostics) == (".nbagent/index.sqlite", 1, ())


def test_an_index_whose_disk_is_full_still_answers_with_what_is_new(desk: Desk) -> None:
    desk.note("MEMORY.md", "- alpha\n")
    memory = desk.open(WordsEmbedder("alpha"))
    memory.search("alpha")
    memory._libraries["memory"].index._connection.execute("PRAGMA max_page_count=1")
    desk.note("memory/new.md", "".join(f"- word{i} beta\n" for i in range(500)))
    hits = memory.search("word499")
    assert hits[0].snippet == "- word499 beta"
    assert hits.behind == "the index was not brought up to date (database or disk is full); the files were read without it"


def test_tool_and_command_share_one_path_and_find_the_same(desk: Desk) -> None:
    # OC case 125
    desk.note("MEMORY.md", "- the port is 8080\n")
    embedder = WordsEmbedder("port")
    assert desk.open(embedder).search("port", 6) == desk.open(embedder).search("port", 6) != []


def test_a_part_of_a_word_is_found_behind_whole_words(desk: Desk) -> None:
    # OC case 133
    desk.note("MEMORY.md", "- the xylophonist\n- nothing\n")
    (hit,) = desk.open().search("ylophon")
    assert hit.snippet == "- the xylophonist"
    assert hit.score < 1
    whole = desk.open().search("xylophonist")[0]
    assert hit.score < whole.score


class Journal:
    """Stands in for the journals."""

    def __init__(self, *texts: SessionText) -> None:
        self._texts = texts

    def sessions(self) -> list[tuple[str, int, int]]:
        return [(name, 1, 1) for name in sorted({t.session for t in self._texts})]

    def texts(self, session: str) -> list[SessionText]:
        return [t for t in self._texts if t.session == session]


def said(text: str, turn: str = "t1", session: str = "s1") -> SessionText:
    return SessionText(session=session, turn=turn, role="user", text=text, date="2026-02-20", cell="c9")


def test_many_session_pieces_do_not_crowd_out_a_note(desk: Desk) -> None:
    # OC case 124
    desk.note("MEMORY.md", "- the deadline is Friday\n")
    journal = Journal(*(said(f"the deadline, the deadline! Friday {i}", f"t{i}") for i in range(500)))
    memory = desk.open(session_source=journal)
    hits = memory.search("deadline Friday", 6, ("memory", "sessions"))
    assert hits[0].path == ".nbagent/MEMORY.md"
    assert {h.source for h in hits} == {"memory", "sessions"}


def test_sessions_are_off_unless_asked_for_and_name_turn_and_cell(desk: Desk) -> None:
    # OC case 130: a part of Japanese text said in a past session is found
    memory = desk.open(session_source=Journal(said("来週の会議は東京で行います")))
    assert memory.search("会議") == []
    (hit,) = memory.search("会議", sources=("sessions",))
    assert hit.provenance is not None
    assert (hit.path, hit.provenance.turn, hit.provenance.cell) == ("sessions/s1", "t1", "c9")


def test_an_unknown_source_is_named(desk: Desk) -> None:
    with pytest.raises(UserError, match="'wiki' does not exist"):
        desk.open().search("x", sources=("wiki",))


def test_without_an_embedder_the_status_says_so(desk: Desk) -> None:
    # OC-M6
    desk.note("MEMORY.md", "- alpha\n")
    status = desk.open().status()
    assert status.mode == "keywords only: there is no embedder"
    assert (status.files, status.pieces, status.embedder) == (1, 1, "none")


def test_an_embedder_nobody_knows_leaves_keyword_search(desk: Desk) -> None:
    desk.note("MEMORY.md", "- alpha\n")
    memory = desk.open(embedder_name="wordvec9000")
    assert snippets(memory, "alpha") == ["- alpha"]
    assert "'wordvec9000'" in str(memory.status().diagnostics[0])


def test_an_unknown_preset_is_an_error_that_lists_the_known(desk: Desk) -> None:
    with pytest.raises(SettingsError, match="nbagent, recipe, openclaw, openclaw@seed"):
        desk.open(preset="best")


def answers(memory: Memory) -> list[object]:
    return [memory.search(q, 10) for q in ("alpha", "what about the port?", "gamma 8080", "缓存")]


def fill(desk: Desk) -> None:
    for i in range(20):
        desk.note(f"memory/n{i}.md", f"# Part {i}\n\n- alpha {i} port\n- the port is {8000 + i}\n\n缓存 {i}\n")


def test_the_index_can_be_deleted_and_answers_are_the_same(desk: Desk) -> None:
    # OC-M1
    fill(desk)
    embedder = WordsEmbedder("port", "alpha")
    memory = desk.open(embedder)
    before = answers(memory)
    memory.close()
    index = desk.folder / ".nbagent" / "index.sqlite"
    for path in index.parent.glob("index.sqlite*"):
        path.unlink()
    fresh = desk.open(embedder)
    assert answers(fresh) == before
    fresh.reindex()
    assert answers(fresh) == before


def test_after_edits_answers_are_those_of_a_fresh_index(desk: Desk) -> None:
    fill(desk)
    memory = desk.open(WordsEmbedder("port", "alpha"))
    answers(memory)
    desk.note("memory/n3.md", "# Part 3\n\n- alpha moved\n")
    desk.note("memory/n21.md", "- gamma is new\n")
    (desk.folder / ".nbagent" / "memory" / "n7.md").unlink()
    by_edits = [[(h.path, h.start_line, round(h.score, 3)) for h in memory.search(q, 10)] for q in ("alpha", "gamma")]
    memory.reindex()
    again = [[(h.path, h.start_line, round(h.score, 3)) for h in memory.search(q, 10)] for q in ("alpha", "gamma")]
    assert sorted(by_edits[0]) == sorted(again[0])
    assert by_edits[1] == again[1]


@pytest.mark.parametrize("content", [b"not a database at all" * 200, b"", b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_broken_index_file_is_set_aside_and_made_anew(desk: Desk, content: bytes) -> None:
    desk.note("MEMORY.md", "- alpha\n")
    index = desk.note("index.sqlite", content)
    memory = desk.open()
    assert snippets(memory, "alpha") == ["- alpha"]
    if content:
        assert index.with_name("index.sqlite.broken-1").read_bytes() == content
        assert "set aside as index.sqlite.broken-1" in str(memory.status().diagnostics[0])


def test_another_programs_database_is_set_aside_whole(desk: Desk) -> None:
    desk.note("MEMORY.md", "- alpha\n")
    index = desk.folder / ".nbagent" / "index.sqlite"
    with sqlite3.connect(index) as other:
        other.execute("CREATE TABLE precious(x)")
        other.execute("INSERT INTO precious VALUES(1)")
    other.close()
    assert snippets(desk.open(), "alpha") == ["- alpha"]
    kept = sqlite3.connect(index.with_name("index.sqlite.broken-1"))
    assert kept.execute("SELECT x FROM precious").fetchall() == [(1,)]
    kept.close()


def test_an_index_that_breaks_in_use_is_made_anew(desk: Desk) -> None:
    fill(desk)
    memory = desk.open()
    memory.search("alpha")
    memory.close()
    index = desk.folder / ".nbagent" / "index.sqlite"
    content = bytearray(index.read_bytes())
    for at in range(4096, len(content), 4096):
        content[at : at + 200] = b"\xaa" * 200
    index.write_bytes(content)
    assert desk.open().search("alpha", 5)[0].snippet.startswith("- alpha")


def test_a_locked_index_still_answers(desk: Desk) -> None:
    desk.note("MEMORY.md", "- alpha\n")
    memory = desk.open()
    memory.search("alpha")
    lock = sqlite3.connect(desk.folder / ".nbagent" / "index.sqlite", isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    desk.note("MEMORY.md", "- alpha\n- beta\n")
    assert sorted(snippets(memory, "alpha beta")) == ["- alpha", "- beta"]
    assert "locked" in str(memory.status().diagnostics[-1])
    lock.execute("ROLLBACK")
    lock.close()
    assert snippets(memory, "beta")[0] == "- beta"


def test_a_folder_that_cannot_be_written_gives_an_index_in_memory(desk: Desk) -> None:
    desk.note("MEMORY.md", "- alpha\n")
    desk.note("index.sqlite/file", "a folder stands where the index would be")
    memory = desk.open()
    assert snippets(memory, "alpha") == ["- alpha"]
    assert memory.status().index_path == "in memory"


def test_two_kernels_see_each_others_changes(desk: Desk) -> None:
    fill(desk)
    one, two = desk.open(WordsEmbedder("port")), desk.open(WordsEmbedder("port"))
    assert one.search("port", 3) == two.search("port", 3)
    desk.note("memory/new.md", "- zeppelin port\n")
    assert [h.path for h in one.search("zeppelin", 1)] == [".nbagent/memory/new.md"]
    assert [h.path for h in two.search("zeppelin", 1)] == [".nbagent/memory/new.md"]


@pytest.mark.parametrize(
    "query",
    ["?!… ---", '"', "*", "NEAR(a b)", "text:alpha", "alpha OR", "-alpha", "(", "^alpha", "alpha\0beta", "'; DROP TABLE pieces", "a" * 10_000, "alpha " * 2_000, "\ud800", "%_\\"],
)
def test_no_query_is_an_error(desk: Desk, query: str) -> None:
    desk.note("MEMORY.md", "- alpha beta\n")
    memory = desk.open(WordsEmbedder("alpha"))
    memory.search(query)
    assert snippets(memory, "alpha")[0] == "- alpha beta"
    if "alpha" in query and len(query) < 20:
        assert memory.search(query)


def test_a_query_of_stop_words_only_is_searched_as_it_is(desk: Desk) -> None:
    desk.note("MEMORY.md", "- to be or not to be\n- unrelated\n")
    assert snippets(desk.open(), "to be or not to be")[0] == "- to be or not to be"


def test_the_static_table_finds_what_shares_no_word(desk: Desk) -> None:
    desk.note("memory/a.md", "- The dog chased a cat across the garden.\n- Quarterly revenue rose by nine percent.\n")
    memory = desk.open(embedder_name="static")
    assert snippets(memory, "puppy and kitten outdoors")[0].startswith("- The dog")
    assert snippets(memory, "company earnings growth")[0].startswith("- Quarterly")
    assert memory.status().mode == "keywords and vectors"


def test_numpy_is_not_imported_before_the_first_search() -> None:
    import subprocess
    import sys

    code = "import sys, nbagent.memory.memory; sys.exit(any(m in sys.modules for m in ('numpy', 'httpx2', 'filelock')))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
