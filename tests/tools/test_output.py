from __future__ import annotations

import json
import math
import unicodedata
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nbagent.core.messages import canonical
from nbagent.tools.output import (
    SMALLEST_CAP_CHARS,
    cap_chars,
    cap_text,
    clean_text,
    cut_line,
    has_important_tail,
    json_safe,
    preview,
    visible,
    well_formed,
)

FAMILY = "👨‍👩‍👧‍👦"
WAVE = "👋🏽"
FLAG = "🇩🇪"
ACCENT = "e\u0301\u0323"
odd_parts = st.sampled_from([FAMILY, WAVE, FLAG, ACCENT, "\n", "\ud800", "\udc00", "\r", "\b", "\x1b", "\x1b[", "\x9b", "error", "a" * 60])
any_text = st.lists(odd_parts | st.characters(codec=None), max_size=200).map("".join)


def test_the_cap_follows_the_tiers_of_the_window():
    # cases/openclaw.md 86
    assert [cap_chars(n) for n in (10_000, 99_999, 100_000, 128_000, 200_000, 1_000_000)] == [12_000, 16_000, 32_000, 32_000, 64_000, 64_000]


def test_the_seed_preset_is_flat():
    # SPEC OC-C4
    assert [cap_chars(n, "openclaw@seed") for n in (10_000, 50_000, 200_000)] == [12_000, 16_000, 16_000]


def test_a_result_that_ends_in_an_error_keeps_head_and_tail():
    # cases/openclaw.md 85
    text = "first line\n" + "x" * 39_950 + "\nTraceback (most recent call last): error"
    capped = cap_text(text, cap_chars(50_000))
    assert len(capped.text) <= 16_000
    assert capped.text.startswith("first line\n")
    assert capped.text.endswith("Traceback (most recent call last): error")
    assert "characters left out" in capped.text


def test_a_result_without_an_important_tail_keeps_its_head_only():
    capped = cap_text("head\n" + "plain words here\n" * 3_000, 16_000)
    assert capped.text.rstrip().endswith("left out …]")
    assert capped.shown.startswith("characters 1-")
    assert " and " not in capped.shown


@pytest.mark.parametrize("tail", ['{"a": 1}', "[1, 2]", "итого: 5", "エラー: だめ", "总计 12", "Fehler in Zeile 3", "3 passed in 2 s", "Échec", "오류"])
def test_a_tail_is_important_in_several_languages(tail):
    assert has_important_tail("x " * 5_000 + tail)


def test_a_short_text_stays_as_it_is():
    assert cap_text("short", 16_000).text == "short"


def test_the_marker_says_how_to_read_the_rest():
    # SPEC CR-C2, MA-C3
    capped = cap_text("line\n" * 10_000, 4_000, artifact_path=".nbagent/artifacts/ab.txt")
    assert "read(path='.nbagent/artifacts/ab.txt', offset=1" in capped.text
    assert f"{capped.omitted_chars:,} characters left out" in capped.text


def test_no_result_becomes_empty_under_a_tiny_cap():
    # cases/openclaw.md 157
    for limit in (-5, 0, 1, 30):
        capped = cap_text("y" * 9_000, limit)
        assert "left out" in capped.text
        assert len(capped.text) <= SMALLEST_CAP_CHARS


def test_a_cut_prefers_the_end_of_a_line():
    capped = cap_text("0123456789\n" * 1_000, 1_000)
    head = capped.text.split("\n[…")[0]
    assert head.split("\n")[-1] in ("", "0123456789")


@pytest.mark.parametrize("cluster", [FAMILY, WAVE, FLAG, ACCENT, "क्ष", "한", "1️⃣"])
@pytest.mark.parametrize("shift", range(8))
def test_no_cut_falls_inside_a_character_with_its_marks(cluster, shift):
    # cases/claude.md 71
    text = "a" * shift + cluster * 400 + " error"
    capped = cap_text(text, 300)
    head, tail = capped.text.split("\n[… ")[0], capped.text.split("…]\n")[1]
    assert head == "a" * shift + cluster * ((len(head) - shift) // len(cluster))
    assert tail == cluster * ((len(tail) - 6) // len(cluster)) + " error"
    assert capped.omitted_chars == len(text) - len(head) - len(tail) > 0


@given(any_text, st.integers(-10, 500), st.sampled_from(["", "some/long/path/to/an/artifact.txt"]))
@example("é" * 500 + "error", 100, "")
def test_a_capped_text_fits_encodes_and_counts_right(text, limit, path):
    # cases/claude.md 71
    capped = cap_text(text, limit, artifact_path=path)
    capped.text.encode()
    whole = well_formed(text)
    assert len(capped.text) <= max(limit, SMALLEST_CAP_CHARS)
    if capped.omitted_chars == 0:
        assert capped.text == whole
    else:
        assert f"[… {capped.omitted_chars:,} characters left out" in capped.text
        at = capped.text.index(f"\n[… {capped.omitted_chars:,} characters left out")
        tail = capped.text[capped.text.index("…]\n", at) + 3 :]
        assert whole.startswith(capped.text[:at])
        assert whole.endswith(tail)
        assert at + len(tail) + capped.omitted_chars == len(whole)


def test_a_text_over_50_000_characters_becomes_a_preview():
    # cases/claude.md 70; reference/claude.md F30
    text = "a line of text\n" * 3_334
    assert len(text) > 50_000
    shown = preview(text[:50_001], "results/out.txt")
    assert "only a preview" in shown.text
    assert "50,001 characters" in shown.text
    assert "results/out.txt" in shown.text
    assert len(shown.text) < 2_700
    assert preview(text[:50_000], "p").text == text[:50_000]


def test_a_preview_counts_bytes_in_any_script():
    shown = preview("漢" * 60_000, "p")
    assert len(shown.text.encode()) < 2_700
    assert shown.omitted_chars + shown.text.count("漢") == 60_000


def test_escapes_and_progress_bars_are_folded():
    assert clean_text("\x1b[1;31mred\x1b[0m\n 10%|#  |\r 90%|## |\r100%|###|\ndone\r\n") == "red\n100%|###|\ndone\n"


def test_links_and_titles_of_terminals_are_dropped():
    assert clean_text("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\ \x1b]0;title\x07end\x07") == "link end"


def test_backspaces_take_back_what_was_printed():
    assert clean_text("abc\b\b\bxyz\nk\b\b\bl") == "xyz\nl"


def test_nul_and_other_controls_are_made_visible():
    assert clean_text("a\x00b\x01\tc\x7f\x85") == "a␀b␁\tc␡\ufffd"


def test_bytes_of_any_kind_are_decoded():
    assert clean_text(b"ok \xff\xfe caf\xc3\xa9") == "ok \ufffd\ufffd café"


def test_an_unended_escape_does_not_swallow_the_rest():
    assert "kept" in clean_text("\x1b]0;never ended\nkept")


@given(st.text(alphabet="ab \n\t\r\b\a\x00\x1b[]0;m\\\x7f~", max_size=40))
def test_ascii_is_cleaned_as_other_text_is(text: str) -> None:
    """A text with a letter beyond ASCII goes the long way."""
    assert clean_text(f"{text}\n.\né") == f"{clean_text(f'{text}{chr(10)}.')}\né"


def test_ordinary_text_is_the_same_object() -> None:
    text = "".join(map(chr, range(0x20, 0x7F))) + "\n\t"
    assert clean_text(text) is text


@given(any_text)
def test_cleaning_is_final_and_encodes(text):
    clean = clean_text(text)
    clean.encode()
    assert clean_text(clean) == clean
    assert not any(unicodedata.category(c) == "Cc" and c not in "\n\t" for c in clean)


def test_surrogate_pairs_are_joined_and_lone_ones_replaced():
    assert well_formed("\ud83d\ude00 \ud83d x") == "😀 \ufffd x"
    assert visible("\udc80") == "\ufffd"


def test_a_long_line_is_cut_with_a_count():
    assert cut_line("z" * 3_000, 2_000) == "z" * 2_000 + " [… 1000 characters]"


def test_json_safe_names_what_json_lacks():
    value = {"n": math.nan, "i": [math.inf, -math.inf], "b": b"\x00", "s": "\ud800", 3: {2, 1}, "o": object, "t": (1,)}
    safe = json_safe(value)
    assert safe["n"] == "NaN"
    assert safe["i"] == ["Infinity", "-Infinity"]
    assert safe["b"] == "b'\\x00'"
    assert safe["s"] == "\ufffd"
    assert safe["3"] == [1, 2]
    canonical(safe).encode()


def test_json_safe_ends_in_cycles_and_depths():
    loop: list[Any] = [1]
    loop += [loop, loop]
    deep: Any = []
    for _ in range(5_000):
        deep = [deep]
    assert json_safe(loop) == [1, "…", "…"]
    json.dumps(json_safe(deep))


def test_json_safe_takes_integers_that_python_refuses_to_print():
    json.dumps(json_safe({"big": 10**5_000}))


_leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)) | st.binary()


@given(st.recursive(_leaves, lambda c: st.lists(c) | st.dictionaries(st.text(st.characters(codec=None)) | st.integers(), c), max_leaves=20))
def test_what_json_safe_returns_can_be_sent(value):
    assert json.loads(canonical(json_safe(value)).encode()) is not False or value is False
