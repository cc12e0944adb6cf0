from __future__ import annotations

import asyncio
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbagent.core.errors import ToolError
from nbagent.tools.search import GlobTool, GrepTool
from nbagent.tools.walk import Walk, compile_glob
from tests.patience import LeapLoop
from tests.tools.builders import Desk

GLOB, GREP = GlobTool(), GrepTool()


@pytest.fixture
def desk(tmp_path):
    root = tmp_path / "work"
    for name in ("b.py", "a.py", "src/x.py", "src/deep/y.pyi", "data/t.csv", ".git/c.py", "node_modules/m.py", "src/__pycache__/z.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"# {name}\nneedle here\nend\n")
    return Desk(root)


def listed(output):
    return [line for line in output.text.split("\n") if not line.startswith("[")]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*.py", ["a.py", "b.py"]),
        ("**/*.py", ["a.py", "b.py", "src/x.py"]),
        ("src/**", ["src/deep/y.pyi", "src/x.py"]),
        ("**/*.{py,pyi}", ["a.py", "b.py", "src/deep/y.pyi", "src/x.py"]),
        ("[!a].py", ["b.py"]),
        ("src/**/y.*", ["src/deep/y.pyi"]),
    ],
)
def test_glob_lists_sorted_and_skips_what_nobody_wants(desk, pattern, found):
    assert sorted(listed(desk.call(GLOB, pattern=pattern))) == found


def test_glob_starts_in_a_folder_and_shows_paths_from_the_workspace(desk):
    assert listed(desk.call(GLOB, pattern="*.py", path="src")) == ["src/x.py"]


def test_glob_shows_200_files_and_counts_the_rest(desk):
    for i in range(230):
        (desk.root / f"f{i:03}.dat").write_text("")
    output = desk.call(GLOB, pattern="*.dat")
    assert len(listed(output)) == 200
    assert "[30 more files match" in output.text


def test_glob_does_not_follow_links_out_of_the_workspace(desk):
    (desk.root.parent / "secret.py").write_text("")
    (desk.root / "out.py").symlink_to(desk.root.parent / "secret.py")
    (desk.root / "up").symlink_to(desk.root.parent)
    (desk.root / "in.py").symlink_to(desk.root / "a.py")
    assert listed(desk.call(GLOB, pattern="**/*.py")) == ["a.py", "b.py", "in.py", "src/x.py"]


@pytest.mark.parametrize("pattern", ["/etc/*", "../*", "a/../../b", "~/*"])
def test_glob_patterns_that_lead_outside_are_refused(desk, pattern):
    with pytest.raises(ToolError, match="relative"):
        desk.call(GLOB, pattern=pattern)


def test_glob_without_a_match_says_what_to_try(desk):
    assert "**/*.pyi searches all folders" in desk.call(GLOB, pattern="*.pyi").text


def test_a_glob_pattern_never_takes_exponential_time():
    matches = compile_glob("*a" * 100 + "b")
    assert not matches("a" * 250)
    assert not compile_glob("/".join(["**", "x"] * 40).lstrip("/"))("/".join(["y"] * 60))


@given(st.text(max_size=30), st.text(max_size=30))
def test_any_glob_pattern_compiles_or_is_refused(pattern, path):
    try:
        compile_glob(pattern)(path)
    except ToolError:
        pass


def test_a_walk_ends_at_its_deadline(desk):
    ticks = iter(range(100))
    walk = Walk(desk.root, desk.root, limit_s=3, clock=lambda: float(next(ticks)))
    assert len(list(walk.files())) < 3
    assert not walk.complete


def test_grep_shows_path_line_and_text(desk):
    output = desk.call(GREP, pattern="need.e", glob="*.py")
    assert listed(output) == ["a.py:2: needle here", "b.py:2: needle here", "src/x.py:2: needle here"]
    assert output.text.endswith("[3 matching lines]")


def test_grep_shows_lines_around_a_match(desk):
    output = desk.call(GREP, pattern="NEEDLE", path="a.py", ignore_case=True, context_lines=1)
    assert listed(output) == ["a.py-1- # a.py", "a.py:2: needle here", "a.py-3- end"]


def test_grep_counts_what_it_leaves_out(desk):
    (desk.root / "many.txt").write_text("needle\n" * 500)
    output = desk.call(GREP, pattern="needle", path="many.txt", limit=10)
    assert len(listed(output)) == 10
    assert "[490 more matching lines were left out" in output.text


def test_grep_stays_inside_the_cap(desk):
    (desk.root / "many.txt").write_text("needle in a long line of text\n" * 1_000)
    desk.options["cap_chars"] = 2_000
    output = desk.call(GREP, pattern="needle", limit=1_000, path="many.txt")
    assert len(output.text) <= 2_000
    left = 1_000 - len(listed(output))
    assert f"[{left} more matching lines" in output.text


def test_grep_shows_nothing_of_files_that_a_rule_keeps_from_it(desk):
    desk.options["hides"] = lambda path: path.endswith("a.py")
    output = desk.call(GREP, pattern="needle", glob="*.py")
    assert [line.partition(":")[0] for line in listed(output)] == ["b.py", "src/x.py"]
    assert "[1 file left out" in output.text
    alone = desk.call(GREP, pattern="needle", path="a.py")
    assert listed(alone) == []
    assert "[1 file left out" in alone.text


def test_grep_explains_an_invalid_pattern_and_gives_the_literal_one(desk):
    with pytest.raises(ToolError) as caught:
        desk.call(GREP, pattern="foo(")
    assert "not a valid regular expression" in str(caught.value)
    assert r"foo\\(" in str(caught.value)


def test_grep_ends_a_pattern_that_would_run_for_years(desk, monkeypatch):
    (desk.root / "evil.txt").write_text("fine aaa\n" + "a" * 60 + "!\n")
    read = asyncio.StreamReader.read

    async def read_and_leap(self, n=-1):
        found = await read(self, n)
        asyncio.get_running_loop().leap(61)  # what is fine has come: the time is over
        return found

    monkeypatch.setattr(asyncio.StreamReader, "read", read_and_leap)
    with asyncio.Runner(loop_factory=LeapLoop) as runner:
        output = runner.run(desk.acall(GrepTool(limit_s=60), pattern=r"(a+)+$", path="evil.txt"))
    assert "evil.txt:1: fine aaa" in output.text
    assert "took too long" in output.text


def test_grep_shows_500_characters_around_a_match_in_a_long_line(desk):
    (desk.root / "long.json").write_text("x" * 100_000 + "needle" + "y" * 100_000)
    line = listed(desk.call(GREP, pattern="needle", path="long.json"))[0]
    assert "needle" in line
    assert len(line) < 560


def test_grep_skips_binary_files_and_says_so(desk):
    (desk.root / "b.bin").write_bytes(b"\0\1needle\n")
    output = desk.call(GREP, pattern="needle", path="b.bin")
    assert "1 binary or unreadable" in output.text


def test_grep_reads_utf_16(desk):
    (desk.root / "w.txt").write_bytes("größe needle\n".encode("utf-16"))
    assert "w.txt:1: größe needle" in desk.call(GREP, pattern="größe", path="w.txt").text


def test_grep_without_a_match_hints_at_plain_text_and_lines(desk):
    text = desk.call(GREP, pattern=r"a.b\nc").text
    assert "no line matches" in text
    assert "line by line" in text
    assert "as plain text" in text


def test_grep_does_not_wait_for_a_fifo(desk):
    os.mkfifo(desk.root / "pipe.txt")
    assert "no line matches" in desk.call(GREP, pattern="absent").text


def test_grep_of_a_missing_or_outside_path_is_refused(desk):
    with pytest.raises(ToolError, match="does not exist"):
        desk.call(GREP, pattern="x", path="nope")
    with pytest.raises(ToolError, match="outside"):
        desk.call(GREP, pattern="x", path="/etc")
