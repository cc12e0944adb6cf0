"""Several kernels over one index: each search sees one state of it, and says when it could not be brought up to date."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from nbagent.memory import library as module
from nbagent.memory.embedders import Kind
from nbagent.memory.index_parts import Loaded
from nbagent.memory.memory import Memory, _load_note
from nbagent.memory.notes import NoteFile
from nbagent.tools.memory import hits_text
from tests.memory.desk import Desk, WordsEmbedder, snippets


class Interrupted(WordsEmbedder):
    """Lets something else happen while it embeds texts of one kind."""

    def __init__(self, kind: Kind, meanwhile: Callable[[], None]) -> None:
        super().__init__("base", "line")
        self.kind = kind
        self.meanwhile = meanwhile

    def embed(self, texts: Sequence[str], kind: Kind) -> Any:
        if kind == self.kind:
            self.meanwhile()
        return super().embed(texts, kind)


@pytest.mark.parametrize("preset", ["nbagent", "openclaw"])
@pytest.mark.parametrize("kind", ["query", "passage"])
def test_a_search_finds_while_another_kernel_takes_up_changes(desk: Desk, kind: Kind, preset: str) -> None:
    lines = ["- base line"]
    desk.note("memory/log.md", "- base line\n")
    other = desk.open(WordsEmbedder("base", "line"), preset=preset)

    def meanwhile() -> None:
        lines.append(f"- other {len(lines)}")
        desk.note("memory/log.md", "\n".join(lines) + "\n")
        assert "base line" in other.search("base line")[0].snippet

    memory = desk.open(Interrupted(kind, meanwhile), preset=preset)
    for i in range(3):
        desk.note("memory/log.md", "\n".join([*lines, f"- mine {i}"]) + "\n")
        assert "base line" in memory.search("base line")[0].snippet
    assert len(lines) > 3
    assert any("other 1" in s for s in snippets(memory, "other 1"))


@pytest.fixture
def locked(desk: Desk) -> Iterator[Memory]:
    """A memory whose index another program has locked since a note was changed."""
    desk.note("MEMORY.md", "- alpha\n")
    memory = desk.open()
    assert memory.search("alpha").behind == ""
    with contextlib.closing(sqlite3.connect(desk.folder / ".nbagent" / "index.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        desk.note("memory/new.md", "- beta\n")
        yield memory
        other.execute("ROLLBACK")
        assert snippets(memory, "beta") == ["- beta"]
        assert memory.search("beta").behind == ""


LOCKED = "the index was not brought up to date (database is locked)"


def test_while_the_index_is_locked_the_notes_are_read_without_it(locked: Memory, desk: Desk) -> None:
    hits = locked.search("beta")
    assert [h.snippet for h in hits] == ["- beta"]
    assert hits.behind == f"{LOCKED}; the files were read without it"
    assert hits_text(hits, 2_000).startswith(f"[{hits.behind}]\n\n1. .nbagent/memory/new.md:1")
    desk.note("MEMORY.md", "- gamma\n")
    assert snippets(locked, "gamma") == ["- gamma"]
    assert snippets(locked, "alpha") == []


def test_notes_too_many_to_read_without_the_index_are_said_to_be_missing(
    locked: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "DIRECT_BYTES", 10)
    hits = locked.search("beta")
    assert [h.snippet for h in locked.search("alpha")] == ["- alpha"]
    assert list(hits) == []
    assert hits.behind == f"{LOCKED}, so what was written since may be missing; try again"
    assert hits_text(hits, 2_000).endswith(f"\n[{hits.behind}]")


def test_nothing_found_in_two_sources_names_the_lock_once(locked: Memory) -> None:
    hits = locked.search("zeppelin", sources=("memory", "sessions"))
    assert (list(hits), hits.behind.count("locked")) == ([], 1)


REINDEX = """
import sys
from pathlib import Path
from tests.memory.desk import Desk
memory = Desk(Path(sys.argv[1])).open()
for _ in range(40):
    memory.reindex()
"""


@pytest.mark.parametrize("preset", ["nbagent", "openclaw"])
def test_a_search_beside_a_reindex_of_another_kernel_finds_or_says_why_not(
    desk: Desk, tmp_path: Path, preset: str
) -> None:
    for i in range(40):
        desk.note(f"memory/n{i}.md", f"- the port of {i}\n- the host of {i}\n")
    memory = desk.open(WordsEmbedder("port", "host"), preset=preset)
    memory.search("port")
    code = REINDEX.replace(".open()", f".open(preset={preset!r})")
    other = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)])
    searched = 0
    while other.poll() is None or not searched:
        hits = memory.search("port")
        assert hits or hits.behind
        assert memory.status().pieces > 0
        desk.note("memory/n1.md", f"- the port of {searched}\n")
        searched += 1
    assert other.returncode == 0


def test_a_reindex_is_one_step_for_others(desk: Desk) -> None:
    desk.note("MEMORY.md", "- alpha\n")
    memory, other = desk.open(), desk.open()
    memory.search("alpha")
    seen: list[list[str]] = []

    def load(file: NoteFile) -> Loaded:
        seen.append(snippets(other, "alpha"))
        return _load_note(file)

    memory._libraries["memory"]._load = load
    memory.reindex()
    assert seen == [["- alpha"]]


def test_an_error_of_the_index_is_no_error_of_search_or_status(desk: Desk) -> None:
    desk.note("MEMORY.md", "- alpha\n")
    memory = desk.open(WordsEmbedder("alpha"))
    memory.search("alpha")
    with contextlib.closing(sqlite3.connect(desk.folder / ".nbagent" / "index.sqlite")) as other:
        other.execute("DROP TABLE pieces")
        other.commit()
    hits = memory.search("alpha")
    assert [h.snippet for h in hits] == ["- alpha"]
    assert memory.status().files == 1


WAL_OWNER = """
import sqlite3, sys
other = sqlite3.connect(sys.argv[1])
other.execute("PRAGMA journal_mode=WAL")
other.execute("CREATE TABLE mine(x)")
other.execute("INSERT INTO mine VALUES(1)")
other.commit()
print("ready", flush=True)
sys.stdin.readline()
other.execute("INSERT INTO mine VALUES(2)")
other.commit()
other.close()
"""


def test_another_programs_open_database_keeps_its_rows(desk: Desk) -> None:
    desk.note("MEMORY.md", "- the port is 8080\n")
    index = desk.folder / ".nbagent" / "index.sqlite"
    owner = subprocess.Popen(
        [sys.executable, "-c", WAL_OWNER, str(index)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    assert owner.stdout.readline() == "ready\n"
    memory = desk.open()
    assert snippets(memory, "port") == ["- the port is 8080"]
    assert "another program has it open" in str(memory.status().diagnostics[0])
    owner.communicate("\n")
    assert owner.returncode == 0
    status = memory.reindex()
    assert status.index_path == ".nbagent/index.sqlite"
    with contextlib.closing(sqlite3.connect(index.with_name("index.sqlite.broken-1"))) as kept:
        assert kept.execute("SELECT x FROM mine").fetchall() == [(1,), (2,)]


def test_a_note_replaced_with_the_same_size_and_time_is_read_again(desk: Desk) -> None:
    path = desk.note("memory/a.md", "- alpha\n")
    memory = desk.open()
    assert snippets(memory, "alpha") == ["- alpha"]
    before = path.stat()
    path.write_text("- gamma\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert snippets(memory, "gamma") == ["- gamma"]
    assert snippets(memory, "alpha") == []
