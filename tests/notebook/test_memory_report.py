"""What `%memory` shows: the same content as value, text, Markdown and HTML."""

from __future__ import annotations

from nbagent.core.errors import Diagnostic
from nbagent.memory.hits import Excerpt, Hit, Status
from nbagent.memory.provenance import Provenance
from nbagent.memory.recall import Why
from nbagent.notebook.reports.memory import MemoryAdded, MemoryExcerpt, MemoryHits, MemoryStatus, MemoryToday

HIT = Hit(
    path=".nbagent/MEMORY.md", start_line=3, end_line=4, score=4.25, snippet="the <b>TTL</b>\nis 30 s", date="2026-03-01",
    provenance=Provenance(turn="t7", cell="a1"), why=Why(keyword=3.0, vector=1.0, prior=0.5, decay=0.944, diversity=-0.1),
)  # fmt: skip


def test_hits_are_a_list_that_shows_itself() -> None:
    hits = MemoryHits("ttl", [HIT])
    assert (len(hits), hits[0], list(hits)) == (1, HIT, [HIT])
    text = repr(hits)
    assert "1. .nbagent/MEMORY.md:3-4 · 2026-03-01 · 4.25 · turn t7, cell a1" in text
    assert "keyword 3.00 + vector 1.00 + prior 0.50 - diversity 0.10, age ×0.94" in text


def test_html_escapes_what_notes_say() -> None:
    html = MemoryHits("ttl", [HIT])._repr_html_()  # type: ignore[attr-defined]
    assert "&lt;b&gt;TTL&lt;/b&gt;" in html
    assert "<b>" not in html


def test_no_hits_are_one_sentence_with_the_note_of_the_status() -> None:
    assert repr(MemoryHits("zzz", [], note="keywords only: there is no embedder")) == (
        "Nothing in memory matches 'zzz'.\nkeywords only: there is no embedder"
    )


def test_a_long_query_is_shown_shortened() -> None:
    shown = repr(MemoryHits("port " * 2_000, [], note="the index was not brought up to date\nMORE"))
    first, *notes = shown.split("\n")
    assert first == f"Nothing in memory matches {('port ' * 16)[:79] + '…'!r}."
    assert notes == ["the index was not brought up to date", "MORE"]


def test_an_older_line_that_contradicts_says_so() -> None:
    from dataclasses import replace

    assert "older than MEMORY.md:9" in repr(MemoryHits("x", [replace(HIT, contradicts="MEMORY.md:9")]))


def test_an_excerpt_says_which_lines_and_how_to_read_on() -> None:
    shown = repr(MemoryExcerpt(excerpt=Excerpt(path="MEMORY.md", text="a\nb", from_line=1, lines=2, total_lines=5, next_line=3)))
    assert shown == "a\nb\nMEMORY.md, lines 1-2 of 5; %memory get MEMORY.md --from 3 reads on"


def test_the_status_says_how_it_searches_and_what_is_wrong() -> None:
    status = Status(
        files=2, pieces=10, vectors=0, embedder="none", mode="keywords only: there is no embedder", preset="nbagent",
        index_path="/x/index.sqlite", session_pieces=3,
        diagnostics=(Diagnostic(path="a.md", line=2, cause="is not UTF-8", remedy="save it as UTF-8"),),
    )  # fmt: skip
    text = repr(MemoryStatus(status=status))
    assert "keywords only: there is no embedder" in text
    assert "a.md:2: is not UTF-8" in text
    assert "3 pieces" in text


def test_today_and_added_show_path_and_text() -> None:
    assert repr(MemoryToday(path="x.md", text="")) == "Nothing was noted today (x.md)."
    assert repr(MemoryToday(path="x.md", text="- a\n")) == "x.md\n- a"
    assert repr(MemoryAdded(path="x.md", text="a")) == "Remembered in x.md\na"
