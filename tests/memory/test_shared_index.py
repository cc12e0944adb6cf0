"""Several kernels over one index: each search sees one state of it, and says when it could not be brought up to date."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from nbagent.memory import library as module
from nbagent.memory.embedders import Kind
from nbagent.memory.memory import Memory
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
