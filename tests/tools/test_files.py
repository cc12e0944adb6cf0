from __future__ import annotations

import base64
import json
import os
import re

import pytest

from nbagent.core.errors import ToolError
from nbagent.tools.files import ReadTool
from tests.tools.builders import Desk

READ = ReadTool()
PIXEL = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")


@pytest.fixture
def desk(tmp_path):
    return Desk(tmp_path)


def numbers(text):
    return [int(n) for n in re.findall(r"^(\d+)\t", text, re.MULTILINE)]


def test_a_small_file_is_shown_whole_with_line_numbers(desk):
    (desk.root / "a.py").write_text("x = 1\ny = 2\n")
    output = desk.call(READ, path="a.py")
    assert output.text == "1\tx = 1\n2\ty = 2\n[2 lines, the whole file]"
    assert output.meta["key"] == "read:a.py:1:"
    assert output.meta["partial"] is False


def test_2_000_lines_a_page_and_the_note_says_which_offset_continues(desk):
    # SPEC OC-C5; reference/claude.md F27, F31
    (desk.root / "n.txt").write_text("".join(f"{i}\n" for i in range(1, 5_211)))
    first = desk.call(READ, path="n.txt")
    assert first.text.endswith("[lines 1-2000 of 5210; continue with offset=2001]")
    assert first.shown == "lines 1-2000 of 5210"
    second = desk.call(READ, path="n.txt", offset=2_001)
    assert numbers(second.text)[0] == 2_001


@pytest.mark.parametrize("line", ["z" * 99, "数据分析" * 20, "👩‍🔬" * 30, "z" * 1_999])
def test_a_page_and_its_note_are_50_KB_at_most(desk, line):
    # SPEC OC-C5: 51,200 bytes, whatever the script
    (desk.root / "n.txt").write_text(f"{line}\n" * 700)
    for offset in (1, 100, 600):
        text = desk.call(READ, path="n.txt", offset=offset, limit=400).text
        assert len(text.encode()) <= 51_200
    assert "continue with offset=" in desk.call(READ, path="n.txt", limit=690).text


def test_a_file_with_a_line_that_is_cut_is_not_called_whole(desk):
    (desk.root / "n.txt").write_text("a\n" + "y" * 2_001 + "\n")
    assert desk.call(READ, path="n.txt").text.endswith("[2 lines, to the end; long lines only in part]")
    assert desk.call(READ, path="n.txt", column=500).text.endswith("[2 lines, to the end; long lines only in part]")


def test_following_the_hints_reads_every_line_once(desk):
    (desk.root / "n.txt").write_text("".join(f"{'w' * (i % 300)} {i}\n" for i in range(1, 1_800)))
    seen, offset = [], 1
    while True:
        text = desk.call(READ, path="n.txt", offset=offset).text
        seen += numbers(text)
        more = re.search(r"continue with offset=(\d+)", text)
        if not more:
            break
        offset = int(more[1])
    assert seen == list(range(1, 1_800))


def test_a_page_has_at_most_50_kb(desk):
    # SPEC OC-C5
    (desk.root / "wide.txt").write_text(("é" * 500 + "\n") * 240)
    text = desk.call(READ, path="wide.txt").text
    assert len(text.encode()) < 51_200 + 450
    assert "50 KB a result" in text


def test_a_page_stays_inside_the_cap_in_force_so_that_its_hint_is_true(desk):
    # DECISIONS 7
    (desk.root / "n.txt").write_text("some words in a line\n" * 1_000)
    desk.options["cap_chars"] = 4_000
    text = desk.call(READ, path="n.txt").text
    assert len(text) <= 4_000
    assert f"continue with offset={numbers(text)[-1] + 1}" in text


def test_results_over_25_000_tokens_are_reduced(desk):
    # SPEC CC-C2
    (desk.root / "n.txt").write_text("a b c d\n" * 3_000)
    desk.options["estimate"] = lambda text: len(text) * 2
    output = desk.call(READ, path="n.txt")
    assert len(output.text) * 2 <= 25_000 + 900
    assert "25,000 tokens" in output.text
    assert f"offset={numbers(output.text)[-1] + 1}" in output.text


def test_a_range_that_is_too_large_is_told_a_limit_that_fits(desk):
    # reference/claude.md F29
    (desk.root / "n.txt").write_text("y" * 99 + "\n")
    (desk.root / "n.txt").write_text(("y" * 99 + "\n") * 2_400)
    text = desk.call(READ, path="n.txt", offset=1, limit=1_500).text
    fits = re.search(r"smaller limit \(limit=(\d+) fits\)", text)
    assert fits
    assert int(fits[1]) == len(numbers(text))


def test_a_file_over_256_kb_without_a_range_teaches_paging(desk):
    # SPEC CC-C2; reference/claude.md F28
    (desk.root / "big.log").write_text("line\n" * 60_000)
    with pytest.raises(ToolError) as caught:
        desk.call(READ, path="big.log")
    for part in ("big.log", "300,000 bytes", "offset=1", "limit=200", "grep"):
        assert part in str(caught.value)
    assert "[lines 50000-50001 of 60000; continue with offset=50002]" in desk.call(READ, path="big.log", offset=50_000, limit=2).text


def test_a_sparse_file_of_5_gb_is_paged_without_loading_it(desk):
    path = desk.root / "huge.txt"
    path.write_bytes(b"first\nsecond\n" + b"x" * (1 << 20))
    os.truncate(path, 5 << 30)
    output = desk.call(READ, path="huge.txt", offset=1, limit=2)
    assert output.text == "1\tfirst\n2\tsecond\n[lines 1-2 of many more; continue with offset=3]"
    assert output.meta["total_lines"] is None


def test_long_lines_are_cut_at_2_000_characters_and_can_be_read_on(desk):
    # SPEC CC-C2
    (desk.root / "one.json").write_text("".join(f"{i:>9}," for i in range(500)))
    text = desk.call(READ, path="one.json").text
    assert "[… line cut: 5,000 bytes; column=2001 continues]" in text
    rest = desk.call(READ, path="one.json", column=4_001).text
    assert rest.startswith("1\t[from column 4001] " + f"{400:>9},")
    assert "line cut" not in rest


def test_empty_and_past_the_end_are_different_notices(desk):
    (desk.root / "empty").write_text("")
    (desk.root / "two").write_text("1\n2")
    assert desk.call(READ, path="empty").text == "[empty is empty: 0 lines]"
    assert desk.call(READ, path="two", offset=9).text == "[offset 9 is past the end: two has 2 lines]"
    assert desk.call(READ, path="two", offset=2).text == "2\t2\n[lines 2-2 of 2, to the end]"


def test_an_unchanged_range_is_answered_by_a_stub_and_a_changed_one_in_full(desk):
    # cases/claude.md 73
    path = desk.root / "a.txt"
    path.write_text("one\ntwo\n")
    first = desk.call(READ, path="a.txt")
    second = desk.call(READ, path="a.txt")
    path.write_text("one\nTWO\n")
    third = desk.call(READ, path="a.txt")
    assert "two" in first.text
    assert second.text.startswith("[unchanged")
    assert "one" not in second.text
    assert "TWO" in third.text


def test_no_stub_stands_for_a_text_that_left_the_context(desk):
    # cases/claude.md 73
    (desk.root / "a.txt").write_text("one\n")
    desk.call(READ, path="a.txt")
    stub = desk.call(READ, path="a.txt")
    assert "key" not in stub.meta
    desk.seen.clear()
    assert "one" in desk.call(READ, path="a.txt").text


def test_another_range_of_the_same_file_is_shown(desk):
    (desk.root / "a.txt").write_text("one\ntwo\n")
    desk.call(READ, path="a.txt")
    assert "two" in desk.call(READ, path="a.txt", offset=2).text


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_byte_order_marks_are_understood_and_dropped(desk, encoding):
    (desk.root / "m.txt").write_bytes("häé\r\nzwei\r\n".encode(encoding))
    assert desk.call(READ, path="m.txt").text.startswith("1\thäé\n2\tzwei\n[2 lines")


def test_latin_1_is_a_fallback_that_is_said(desk):
    (desk.root / "l.txt").write_bytes("café\n".encode("latin-1"))
    text = desk.call(READ, path="l.txt").text
    assert text.startswith("1\tcafé\n")
    assert "Latin-1" in text


@pytest.mark.parametrize(("head", "kind"), [(b"PK\x03\x04", "ZIP"), (b"\x00\x01\x02", "binary"), (b"SQLite format 3\x00", "SQLite"), (b"%PDF-1.7", "PDF")])
def test_binary_files_are_refused_with_a_guess(desk, head, kind):
    (desk.root / "b.bin").write_bytes(head + bytes(range(256)))
    with pytest.raises(ToolError, match=kind):
        desk.call(READ, path="b.bin")


def test_an_image_is_shown_to_a_model_that_sees(desk):
    (desk.root / "p.dat").write_bytes(PIXEL)
    output = desk.call(READ, path="p.dat")
    assert output.images[0]["source"]["media_type"] == "image/png"
    assert "1x1 pixels" in output.text


def test_an_image_is_refused_for_a_model_that_does_not_see_or_when_large(desk):
    (desk.root / "p.png").write_bytes(PIXEL + b"\0" * 3_500_001)
    with pytest.raises(ToolError, match="over the"):
        desk.call(READ, path="p.png")
    desk.options["sees_images"] = False
    with pytest.raises(ToolError, match="does not see"):
        desk.call(READ, path="p.png")


def test_an_image_with_too_many_pixels_is_refused(desk):
    (desk.root / "p.png").write_bytes(PIXEL[:16] + (9_000).to_bytes(4, "big") + PIXEL[20:])
    with pytest.raises(ToolError, match="9000x1"):
        desk.call(READ, path="p.png")


def test_a_notebook_is_an_outline_and_with_a_range_its_source(desk):
    cells = [
        {"cell_type": "code", "id": f"c{i}", "source": f"a = {i}\nprint(a)", "execution_count": i, "outputs": [{"output_type": "stream", "name": "stdout", "text": "out\n"}]}
        for i in range(1, 6)
    ]
    (desk.root / "n.ipynb").write_text(json.dumps({"nbformat": 4, "cells": cells}))
    text = desk.call(READ, path="n.ipynb").text
    assert "[1] · code · id=c1 · run 1 · 2 lines · outputs: stdout 4 characters: a = 1" in text
    assert "print(a)" not in text
    ranged = desk.call(READ, path="n.ipynb", offset=2, limit=1).text
    assert "a = 2\nprint(a)\n[output 1]\nout" in ranged
    assert "continue with offset=3" in ranged


def test_controls_in_a_file_are_made_visible(desk):
    (desk.root / "c.txt").write_bytes(b"a\x1b[31mred\x07\n")
    assert "␛[31mred␇" in desk.call(READ, path="c.txt").text


def test_a_fifo_is_refused_and_never_waited_for(desk):
    os.mkfifo(desk.root / "pipe")
    with pytest.raises(ToolError, match="pipe"):
        desk.call(READ, path="pipe")
