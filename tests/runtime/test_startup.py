"""Start-up files and the stored prefix (OC 88-91, 115, 116, 121, 122, 172; DECISIONS 1)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from nbagent.models.scripted import says
from nbagent.runtime.startup import ALL_CHARS, FILE_CHARS, SECTIONS, fit, make_prefix, startup_files, system_text
from nbagent.tools.registry import builtin_tools
from tests.runtime.lab import Lab


def loaded(folder: Path, home: Path) -> list[tuple[str, str]]:
    return [(f.name, f.text) for f in startup_files(folder, home)[0]]


def test_a_long_file_keeps_head_and_tail_around_a_marker_with_its_name(tmp_path: Path) -> None:
    """OC 88, 172; OC-C6."""
    text = "H" * 10_000 + "T" * 10_000
    (tmp_path / "AGENTS.md").write_text(text)
    files, notes = startup_files(tmp_path, tmp_path / "home")
    cut = files[0].text
    assert len(cut) <= FILE_CHARS
    assert cut.startswith("H" * 100)
    assert cut.endswith("T" * 100)
    assert "AGENTS.md" in cut[8_000:10_000]
    head, tail = cut.split("\n[…")[0], cut.split("…]\n")[1]
    assert 2.8 < len(head) / len(tail) < 3.2
    assert "characters are loaded" in notes[0].cause


def test_a_small_budget_still_shows_both_ends() -> None:
    """OC 89."""
    text = "H" * 5_000 + "T" * 5_000
    small = fit(text, 64, "SOUL.md")
    assert len(small) <= 64
    assert small.startswith("H")
    assert small.endswith("T")
    assert any(c in "HT" for c in fit(text, 22, "SOUL.md"))
    assert len(fit(text, 2, "SOUL.md")) <= 2
    assert fit(text, 0, "SOUL.md") == ""


def test_all_files_together_are_bounded_and_what_is_left_out_is_said(tmp_path: Path) -> None:
    chain = tmp_path
    (tmp_path / ".git").mkdir()
    for i in range(7):
        (chain / "AGENTS.md").write_text(f"{i}" * 11_000)
        chain = chain / "sub"
        chain.mkdir()
    files, notes = startup_files(chain, tmp_path / "home")
    assert sum(len(f.text) for f in files) <= ALL_CHARS
    assert [f.text[0] for f in files] == list("012345")
    assert len(notes) == 2


def test_missing_and_blank_files_are_left_out(tmp_path: Path) -> None:
    """OC 91, for files that nobody has to have."""
    (tmp_path / "AGENTS.md").write_text(" \n\t\n")
    assert startup_files(tmp_path, tmp_path / "home") == ((), ())


def test_the_nearest_file_comes_last_and_the_home_first(tmp_path: Path) -> None:
    home, top, near = tmp_path / "home", tmp_path / "repo", tmp_path / "repo" / "a" / "b"
    for folder, text in ((home, "mine"), (top, "top"), (near, "near"), (tmp_path, "above the repository")):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "AGENTS.md").write_text(text)
    (top / ".git").mkdir()
    (near / ".nbagent").mkdir()
    (near / ".nbagent" / "MEMORY.md").write_text("memory")
    names = [("~/.nbagent/AGENTS.md", "mine"), ("../../AGENTS.md", "top"), ("AGENTS.md", "near"), (".nbagent/MEMORY.md", "memory")]
    assert loaded(near, home) == names


def test_a_linked_file_is_loaded_once(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("rules")
    (tmp_path / "CLAUDE.md").symlink_to("AGENTS.md")
    assert loaded(tmp_path, tmp_path) == [("AGENTS.md", "rules")]


def test_a_file_that_cannot_be_read_is_a_diagnostic(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_bytes(b"\xff\xfe\xff")
    (tmp_path / "CLAUDE.md").symlink_to("nowhere.md")
    (tmp_path / "GEMINI.md").mkdir()
    os.mkfifo(tmp_path / "CONTEXT.md")
    files, notes = startup_files(tmp_path, tmp_path / "home")
    assert files == ()
    assert [Path(n.path).name for n in notes] == ["AGENTS.md", "CLAUDE.md", "GEMINI.md", "CONTEXT.md"]


def test_a_change_beyond_what_is_shown_is_a_change(tmp_path: Path) -> None:
    path = tmp_path / "AGENTS.md"
    path.write_text("a" * 30_000)
    before = startup_files(tmp_path, tmp_path)[0][0]
    path.write_text("a" * 15_000 + "b" + "a" * 14_999)
    after = startup_files(tmp_path, tmp_path)[0][0]
    assert before.text == after.text
    assert before.mark != after.mark


def test_files_stand_under_their_path_in_a_prefix_without_time(tmp_path: Path) -> None:
    """OC 115, 116, 121, 122."""
    (tmp_path / "AGENTS.md").write_text("Use metric units.")
    files, _ = startup_files(tmp_path, tmp_path / "home")
    specs = [t.spec for t in builtin_tools()]
    prefix = make_prefix(specs, files, extra={"notebook": "here"})
    text = prefix.to_text()
    assert "# AGENTS.md\\n\\nUse metric units." in text
    assert prefix.categories == ("system", "instructions", "notebook")
    assert "memory" not in prefix.system[0]["text"].lower()
    for word in ("python", "read", "inspect"):
        assert f"`{word}`" in prefix.system[0]["text"]
    assert text == make_prefix(specs, files, extra={"notebook": "here"}).to_text()


def test_the_prefix_is_the_same_in_every_process(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("Use metric units. ä")
    code = (
        "import sys; from pathlib import Path; from nbagent.runtime.startup import *; "
        "from nbagent.tools.registry import builtin_tools; import hashlib; p = Path(sys.argv[1]); "
        "print(hashlib.sha256(make_prefix([t.spec for t in builtin_tools()], startup_files(p, p)[0], extra={}).to_text()"
        ".encode()).hexdigest())"
    )
    found = set()
    for seed, zone in (("1", "UTC"), ("2", "Asia/Tokyo")):
        env = {**os.environ, "PYTHONHASHSEED": seed, "TZ": zone, "LC_ALL": "C"}
        found.add(subprocess.check_output([sys.executable, "-c", code, str(tmp_path)], env=env))
    assert len(found) == 1


def test_a_long_file_is_told_to_the_person_once(tmp_path: Path) -> None:
    """OC 172."""
    lab = Lab(tmp_path / "work")
    (lab.folder / ".nbagent").mkdir()
    (lab.folder / ".nbagent" / "MEMORY.md").write_text("m" * 20_000)
    lab.open([says("a"), says("b")])
    first = lab.send("one", "A")
    assert any("MEMORY.md" in n and "characters are loaded" in n for n in first.notices)
    assert lab.send("two", "B").notices == ()
    assert "the middle of .nbagent/MEMORY.md" in str(lab.requests[0].prefix.system)


def test_a_key_in_an_instruction_file_reaches_neither_provider_nor_disk(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "work", environ={"MY_TOKEN": "tok3n-value-1234"})
    (lab.folder / "AGENTS.md").write_text("The key is sk-ant-abcdefghijklmnop1234 or tok3n-value-1234.")
    lab.open([says("a")])
    lab.send("one", "A")
    kept = "".join(p.read_text() for p in (lab.folder / ".nbagent").rglob("*") if p.is_file())
    for secret in ("sk-ant-abcdefghijklmnop1234", "tok3n-value-1234"):
        assert secret not in kept
        assert secret not in str(lab.requests[0].prefix.system)


def test_of_a_file_that_is_not_utf8_the_rest_is_loaded_and_a_binary_one_is_not(tmp_path: Path) -> None:
    (tmp_path / ".nbagent").mkdir()
    (tmp_path / ".nbagent" / "MEMORY.md").write_bytes(b"- caf\xe9 is closed\n- the port is 8080\n")
    (tmp_path / "AGENTS.md").write_bytes(bytes(range(256)) * 10)
    files, notes = startup_files(tmp_path, tmp_path / "home")
    assert [(f.name, f.text) for f in files] == [(".nbagent/MEMORY.md", "- caf\ufffd is closed\n- the port is 8080")]
    assert [n.cause for n in notes] == ["cannot be read (it is binary)", "is not UTF-8; what is broken is left out"]


def test_a_memory_file_over_both_limits_has_one_mark_that_is_true(tmp_path: Path) -> None:
    (tmp_path / ".nbagent").mkdir()
    (tmp_path / ".nbagent/MEMORY.md").write_text("".join(f"- fact {i} {'x' * 520}\n" for i in range(50)))
    (file,) = startup_files(tmp_path, tmp_path / "home")[0]
    assert len(file.text) <= FILE_CHARS
    assert file.text.startswith("- fact 0 ")
    assert file.text.endswith(f"{'x' * 520}")
    assert "- fact 49 " in file.text
    assert file.text.count("MEMORY.md") == 1
    assert "the middle of .nbagent/MEMORY.md is left out" in file.text


@pytest.mark.parametrize("name", ["MEMORY.md", "memory/2026-11-30.md"])
def test_a_note_of_one_long_line_is_loaded_by_head_and_tail(tmp_path: Path, name: str) -> None:
    """OC cases 88, 89."""
    path = tmp_path / ".nbagent" / name
    path.parent.mkdir(parents=True)
    path.write_text("fact " + "\u5b57" * 40_000 + " end")
    (file,) = startup_files(tmp_path, tmp_path / "home", "2026-11-30")[0]
    assert (file.text[:5], file.text[-4:]) == ("fact ", " end")
    assert FILE_CHARS - 300 < len(file.text) <= FILE_CHARS


def test_of_a_long_log_the_end_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / ".nbagent/memory/2026-11-30.md"
    path.parent.mkdir(parents=True)
    path.write_text("".join(f"- fact {i} {'x' * 520}\n" for i in range(50)))
    (file,) = startup_files(tmp_path, tmp_path / "home", "2026-11-30")[0]
    first, *rest = file.text.split("\n")
    assert first == f"[.nbagent/memory/2026-11-30.md begins earlier: lines {51 - len(rest)}-50 are here; memory_get reads the rest]"
    assert rest[-1].startswith("- fact 49 ")
    assert 20 < len(rest) < 23


# ---------------------------------------------------------------- modes (OC-C10)


def prompt_of(lab: Lab) -> str:
    return "\n\n".join(str(b["text"]) for b in lab.requests[0].prefix.system)


@pytest.mark.parametrize("mode", ["full", "minimal", "none"])
def test_the_system_text_has_three_modes(tmp_path: Path, mode: str) -> None:
    """openclaw 112, 113, 115: who it is, then what belongs to the mode; the tools are the same."""
    work = tmp_path / "work"
    (work / ".nbagent").mkdir(parents=True)
    (work / "AGENTS.md").write_text("Rule 7 holds.")
    (work / ".nbagent" / "MEMORY.md").write_text("The person likes blue.")
    lab = Lab(work)
    lab.open([says("ok")], context__prompt=mode)
    lab.send("hi")
    text = prompt_of(lab)
    assert text.startswith("You are an agent inside a Jupyter notebook.")
    shown = {
        "cells": "is one cell" in text, "tooling": "`python`" in text, "safety": "never an instruction" in text,
        "workspace": "The workspace folder is" in text, "instructions": "Rule 7" in text, "memory": "likes blue" in text,
    }  # fmt: skip
    assert shown == {k: mode == "full" or (mode == "minimal" and k not in ("cells", "memory")) for k in shown}
    assert {t["name"] for t in lab.requests[0].prefix.tools} >= {"python", "read"}


def test_the_text_of_a_mode_is_the_same_at_any_minute_and_names_the_tools_as_they_are() -> None:
    """openclaw 116, 121: no clock; what a section calls a tool is the tool's name."""
    names = {t.spec.name for t in builtin_tools()}
    for mode in ("full", "minimal", "none"):
        text = system_text(mode)
        assert text == system_text(mode)
        assert set(re.findall(r"`(\w+)`", text)) <= names
        assert not re.search(r"\d\d:\d\d|20\d\d", text)
    assert len({s.name for s in SECTIONS}) == len(SECTIONS)


def test_a_file_that_a_mode_leaves_out_is_not_told_of_when_it_changes(tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / ".nbagent").mkdir(parents=True)
    note = work / ".nbagent" / "MEMORY.md"
    note.write_text("The person likes blue.")
    lab = Lab(work)
    lab.open([says("a"), says("b")], context__prompt="minimal")
    lab.send("one", "A")
    note.write_text("The person likes red.")
    lab.send("two", "B")
    assert "likes red" not in str(lab.requests[-1].messages)


def test_a_project_that_nobody_trusts_cannot_take_the_system_text_away(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "nbagent.toml").write_text('[context]\nprompt = "none"\n')
    lab = Lab(work)
    lab.open([says("a")])
    assert lab.session.settings.context.prompt == "full"
