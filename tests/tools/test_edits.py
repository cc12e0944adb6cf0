from __future__ import annotations

import os
import stat

import pytest

from nbagent.core.errors import ToolError
from nbagent.tools.edits import EditTool, WriteTool, short_diff
from nbagent.tools.files import ReadTool
from tests.tools.builders import Desk, FakeNotebook

READ, WRITE, EDIT = ReadTool(), WriteTool(), EditTool()


@pytest.fixture
def desk(tmp_path):
    return Desk(tmp_path)


def file(desk, content, name="a.txt"):
    path = desk.root / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_a_new_file_is_written_with_its_folders(desk):
    output = desk.call(WRITE, path="new/deep/a.txt", content="häl\n")
    assert (desk.root / "new/deep/a.txt").read_text() == "häl\n"
    assert output.text == "created new/deep/a.txt: 5 bytes, 1 lines"


def test_a_new_file_has_the_usual_mode(desk):
    before = os.umask(0o022)
    try:
        desk.call(WRITE, path="a.txt", content="x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((desk.root / "a.txt").stat().st_mode) == 0o644


def test_an_unread_file_is_not_overwritten(desk):
    file(desk, "old")
    with pytest.raises(ToolError, match="was not read"):
        desk.call(WRITE, path="a.txt", content="new")
    assert (desk.root / "a.txt").read_text() == "old"


def test_overwriting_keeps_mode_and_previous_content(desk):
    path = file(desk, "old\n")
    path.chmod(0o755)
    desk.call(READ, path="a.txt")
    output = desk.call(WRITE, path="a.txt", content="new\n")
    assert path.read_text() == "new\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o755
    assert desk.kept.texts == ["old\n"]
    assert ".nbagent/artifacts/" in output.text
    assert output.meta["before_sha256"] != output.meta["after_sha256"]


def test_a_file_changed_since_it_was_read_is_not_overwritten(desk):
    path = file(desk, "old")
    status = path.stat()
    desk.call(READ, path="a.txt")
    path.write_text("oLd")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(ToolError, match="changed on disk"):
        desk.call(WRITE, path="a.txt", content="new")
    with pytest.raises(ToolError, match="changed on disk"):
        desk.call(EDIT, path="a.txt", old="oLd", new="new")


def test_a_file_that_was_only_touched_counts_as_unchanged(desk):
    path = file(desk, "old")
    desk.call(READ, path="a.txt")
    os.utime(path)
    desk.call(WRITE, path="a.txt", content="new")


def test_overwriting_needs_every_line_to_have_been_read(desk):
    file(desk, "1\n2\n3\n4\n")
    desk.call(READ, path="a.txt", limit=2)
    with pytest.raises(ToolError, match="only a part"):
        desk.call(WRITE, path="a.txt", content="x")
    desk.call(READ, path="a.txt", offset=3)
    desk.call(WRITE, path="a.txt", content="x")


def test_an_edit_of_a_part_does_not_count_as_reading_the_whole(desk):
    file(desk, "1\n2\n3\n4\n")
    desk.call(READ, path="a.txt", limit=2)
    desk.call(EDIT, path="a.txt", old="2\n", new="zwei\n")
    with pytest.raises(ToolError, match="only a part"):
        desk.call(WRITE, path="a.txt", content="x")


def test_what_was_written_or_edited_may_be_edited_again(desk):
    desk.call(WRITE, path="a.txt", content="a b\n")
    desk.call(EDIT, path="a.txt", old="a", new="x")
    desk.call(EDIT, path="a.txt", old="b", new="y")
    assert (desk.root / "a.txt").read_text() == "x y\n"


def test_a_read_after_an_edit_is_shown_in_full(desk):
    # cases/claude.md 73
    file(desk, "a\n")
    desk.call(READ, path="a.txt")
    desk.call(EDIT, path="a.txt", old="a", new="b")
    assert "1\tb" in desk.call(READ, path="a.txt").text


def test_the_open_notebook_is_neither_written_nor_edited(desk):
    # DECISIONS 13
    path = file(desk, "{}", "n.ipynb")
    (desk.root / "other.ipynb").hardlink_to(path)
    desk.options["notebook"] = FakeNotebook(path)
    for name in ("n.ipynb", "other.ipynb"):
        with pytest.raises(ToolError, match="propose"):
            desk.call(WRITE, path=name, content="x")
        with pytest.raises(ToolError, match="propose"):
            desk.call(EDIT, path=name, old="{", new="[")


def test_any_existing_notebook_may_be_the_open_one_when_its_path_is_unknown(desk):
    file(desk, "{}", "n.ipynb")
    desk.options["notebook"] = FakeNotebook(None)
    with pytest.raises(ToolError, match="may be the open notebook"):
        desk.call(WRITE, path="n.ipynb", content="x")
    desk.call(WRITE, path="fresh.ipynb", content="{}")


def test_writing_the_same_content_does_nothing(desk):
    file(desk, "same")
    assert "nothing was written" in desk.call(WRITE, path="a.txt", content="same").text


def test_a_failed_write_leaves_the_file_and_no_rubbish(desk, monkeypatch):
    path = file(desk, "old")
    desk.call(READ, path="a.txt")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(ToolError, match="No space left"):
        desk.call(WRITE, path="a.txt", content="new")
    assert path.read_text() == "old"
    assert [p.name for p in desk.root.iterdir()] == ["a.txt"]


def test_an_edit_shows_a_short_diff_with_true_line_numbers(desk):
    file(desk, "".join(f"line {i}\n" for i in range(1, 101)))
    desk.call(READ, path="a.txt")
    text = desk.call(EDIT, path="a.txt", old="line 50\n", new="fifty\n").text
    assert "@@ -48,5 +48,5 @@" in text
    assert "-line 50\n+fifty" in text


def test_an_edit_that_occurs_several_times_names_the_lines(desk):
    file(desk, "x\ny\nx\n")
    desk.call(READ, path="a.txt")
    with pytest.raises(ToolError, match=r"2 times in 'a\.txt', at lines 1, 3"):
        desk.call(EDIT, path="a.txt", old="x", new="z")
    output = desk.call(EDIT, path="a.txt", old="x", new="z", replace_all=True)
    assert (desk.root / "a.txt").read_text() == "z\ny\nz\n"
    assert output.meta["replacements"] == 2


@pytest.mark.parametrize(
    ("old", "told"),
    [
        ("def compute(x, z):", "nearest lines: 2: 'def compute"),
        ("  return   x", "line 3 differs only in spaces"),
        ("2\tdef compute", "line number"),
        ("utterly different words", "no line is like"),
    ],
)
def test_an_edit_that_is_not_found_teaches(desk, old, told):
    file(desk, "import os\ndef compute(x, y):\n    return x\n")
    desk.call(READ, path="a.txt")
    with pytest.raises(ToolError) as caught:
        desk.call(EDIT, path="a.txt", old=old, new="q")
    assert told in str(caught.value)


def test_an_edit_keeps_line_ends_and_byte_order_mark(desk):
    path = file(desk, b"\xef\xbb\xbfone\r\ntwo\r\nthree\r\n")
    desk.call(READ, path="a.txt")
    desk.call(EDIT, path="a.txt", old="one\ntwo", new="1\n2\n2b")
    assert path.read_bytes() == b"\xef\xbb\xbf1\r\n2\r\n2b\r\nthree\r\n"


def test_an_edit_keeps_the_encoding(desk):
    path = file(desk, "größe\n".encode("utf-16"))
    desk.call(READ, path="a.txt")
    desk.call(EDIT, path="a.txt", old="größe", new="länge")
    assert path.read_bytes().decode("utf-16") == "länge\n"
    latin = file(desk, "größe\n".encode("latin-1"), "l.txt")
    desk.call(READ, path="l.txt")
    with pytest.raises(ToolError, match="latin-1"):
        desk.call(EDIT, path="l.txt", old="größe", new="漢")
    desk.call(EDIT, path="l.txt", old="größe", new="Öl")
    assert latin.read_bytes() == "Öl\n".encode("latin-1")


def test_empty_and_equal_texts_are_refused(desk):
    file(desk, "x\n")
    desk.call(READ, path="a.txt")
    with pytest.raises(ToolError, match="empty"):
        desk.call(EDIT, path="a.txt", old="", new="q")
    with pytest.raises(ToolError, match="same"):
        desk.call(EDIT, path="a.txt", old="x", new="x")


def test_a_missing_file_cannot_be_edited(desk):
    with pytest.raises(ToolError, match="does not exist"):
        desk.call(EDIT, path="nope.txt", old="a", new="b")


def test_a_diff_of_many_places_stays_short():
    before = "".join(f"{i}\n" for i in range(9_000))
    assert len(short_diff(before, before.replace("1", "x"))) < 200
    assert len(short_diff("a\n" * 500, "b\n" * 500).split("\n")) <= 61
