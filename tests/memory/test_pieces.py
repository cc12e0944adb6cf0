"""Notes taken apart: pieces, sections, OpenClaw's chunks, words (OC case 49; NB-M1)."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbagent.memory.pieces import PIECE_TOKENS, Chunking, date_in, sections, split, weight
from nbagent.memory.words import MAX_QUERY_TERMS, cjk_share, index_text, query_terms

NOTE = """\
# Cache

Intro of
two lines.

- one <!-- nbagent turn=t1 cell=c1 -->
- two
  goes on
## Redis

```python
x = 1

y = 2
```
Anna: yes
# Log of 2026-02-03
* dated
"""


def test_a_piece_is_a_paragraph_an_item_or_a_code_block_with_its_lines_and_headings() -> None:
    found = [(p.start_line, p.end_line, p.heading, p.text.split("\n")[0], p.date, p.label) for p in split(NOTE, "pieces")]
    assert found == [
        (3, 4, "Cache", "Intro of", "", ""),
        (6, 6, "Cache", "- one", "", ""),
        (7, 8, "Cache", "- two", "", ""),
        (11, 16, "Cache > Redis", "```python", "", ""),
        (18, 18, "Log of 2026-02-03", "* dated", "2026-02-03", ""),
    ]


def test_comments_are_not_searched_but_kept_as_the_origin() -> None:
    piece = split(NOTE, "pieces")[1]
    assert (piece.text, piece.origin) == ("- one", "<!-- nbagent turn=t1 cell=c1 -->")


@pytest.mark.parametrize("text", ["- Anna: hello there", "Anna: hello", "**Anna:** hello", "* **Anna**: hello", "1. [9:41] Anna: hello"])
def test_who_speaks_is_the_label(text: str) -> None:
    assert split(text, "pieces")[0].label == "anna"


def test_a_long_paragraph_is_cut_at_sentences_and_lines() -> None:
    text = " ".join(f"Sentence number {i} says something short." for i in range(60))
    parts = split(text, "pieces")
    assert len(parts) > 2
    assert all(p.text.endswith(".") and weight(p.text) <= PIECE_TOKENS * 4 for p in parts)


@pytest.mark.parametrize("chunking", ["pieces", "openclaw"])
def test_cjk_gives_more_pieces_than_ascii_of_the_same_length(chunking: Chunking) -> None:
    # OC case 49
    assert len(split("缓" * 4000, chunking)) > len(split("a" * 4000, chunking))


@given(st.text(alphabet=st.sampled_from("ab 缓。.\n-#`"), max_size=3000))
def test_no_piece_is_too_large_and_lines_are_in_order(text: str) -> None:
    count = text.count("\n") + 1
    for chunking, limit in (("pieces", 801), ("openclaw", 1_600)):
        last = 0
        for piece in split(text, chunking):  # type: ignore[arg-type]
            assert weight(piece.text) <= limit
            assert last <= piece.start_line <= piece.end_line <= count
            last = piece.start_line


@given(st.text(alphabet=st.sampled_from("ab \n-#"), max_size=2000))
def test_every_piece_is_in_a_section_of_its_heading(text: str) -> None:
    pieces = split(text, "pieces")
    covered = set()
    for section in sections(pieces):
        inside = range(section.first, section.last + 1)
        assert {pieces[i].heading for i in inside} == {section.heading}
        covered |= set(inside)
    assert covered == set(range(len(pieces)))


def test_sections_hold_about_400_tokens_and_share_some() -> None:
    pieces = split("".join(f"- item {i} {'word ' * 20}\n" for i in range(60)), "pieces")
    found = sections(pieces)
    assert all(sum(weight(p.text) for p in pieces[s.first : s.last + 1]) <= 1_600 for s in found)
    assert all(b.first <= a.last for a, b in itertools.pairwise(found))


def test_openclaws_chunks_overlap_by_about_80_tokens() -> None:
    text = "\n".join(f"line {i:04} " + "x" * 30 for i in range(200))
    chunks = split(text, "openclaw")
    assert all(a.end_line >= b.start_line for a, b in itertools.pairwise(chunks))
    assert chunks[0].text.startswith("line 0000")


@pytest.mark.parametrize(
    ("text", "date"),
    [("x 2026-02-28 y", "2026-02-28"), ("on 31 February, 2026", ""), ("12 March 2024", "2024-03-12"), ("no date", "")],
)
def test_dates_are_real(text: str, date: str) -> None:
    assert date_in(text) == date


def test_a_long_query_keeps_its_longest_words() -> None:
    terms = query_terms(" ".join(f"w{'x' * (i % 30)}{i}" for i in range(3_000)))
    assert len(terms) == MAX_QUERY_TERMS


@given(st.text(max_size=300))
def test_words_can_always_be_stored_and_quoted(text: str) -> None:
    assert "\0" not in index_text(text)
    index_text(text).encode()
    assert all('"' not in t for t in query_terms(text))


def test_the_share_of_cjk_is_of_letters() -> None:
    assert cjk_share("缓存 ab!!") == 0.5
    assert cjk_share("...") == 0


@pytest.mark.parametrize("line", ["word " * 1_000, "缓存" * 1_000, "One sentence. " * 300, "x" * 801, "a" * 800 + " " + "b" * 800])
def test_a_long_line_loses_nothing_but_blanks(line: str) -> None:
    pieces = split(line, "pieces")
    assert "".join("".join(p.text for p in pieces).split()) == "".join(line.split())
    assert all(weight(p.text) <= 800 for p in pieces)


def test_a_heading_without_text_is_a_piece_and_one_with_text_is_none() -> None:
    found = [(p.start_line, p.text, p.heading) for p in split("# A\n## 决定采用灰度发布\n## B\n\ntext\n### C\n# D\n", "pieces")]
    assert found == [(2, "## 决定采用灰度发布", "A"), (5, "text", "A > B"), (6, "### C", "A > B"), (7, "# D", "")]
