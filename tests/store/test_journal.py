"""The journal: round trips, crashes at any byte, damage, locks and full disks (SPEC "crash", DECISIONS 3-6)."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbagent.core.entries import Entry, LeafMoved, Unknown, body_to_dict
from nbagent.core.errors import BrokenPath, JournalDamaged, JournalLocked, JournalUnwritable
from nbagent.core.tree import SessionTree
from nbagent.core.view import build_view
from nbagent.store import files
from nbagent.store.journal import Journal
from nbagent.store.journal_reading import read_journal
from nbagent.store.verify import verify
from tests.store.bodies import EVERY_KIND, chain, every_body, said

GOLDEN = Path(__file__).parents[1] / "fixtures" / "journals" / "v1.jsonl"


def write(path: Path, entries: list[Entry]) -> bytes:
    with Journal.open(path) as journal:
        for entry in entries:
            journal.append(entry)
    return path.read_bytes()


def same_as_json(entry: Entry) -> str:
    return json.dumps([entry.id, entry.parent, entry.at, entry.kind, body_to_dict(entry.body)])


def dump(entries: list[Entry] | tuple[Entry, ...]) -> list[str]:
    return [same_as_json(e) for e in entries]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "proj" / ".nbagent" / "sessions" / "s1" / "journal.jsonl"


def test_every_kind_of_entry_comes_back_as_written(path: Path) -> None:
    entries = chain(*EVERY_KIND)
    write(path, entries)
    with Journal.open(path) as journal:
        assert dump(journal.entries) == dump(entries)
        assert journal.diagnostics == []


@given(bodies=st.lists(every_body, min_size=1, max_size=4))
def test_any_bodies_survive_the_round_trip(bodies: list, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("j") / "journal.jsonl"
    entries = chain(*bodies)
    write(path, entries)
    with Journal.open(path) as journal:
        assert dump(journal.entries) == dump(entries)
        assert journal.diagnostics == []


def test_lone_surrogates_and_line_separators_leave_a_utf8_file_of_one_line_an_entry(path: Path) -> None:
    raw = write(path, said("a\ud83d|b\u2028c\x85d\0e"))
    assert raw.decode("utf-8").count("\n") == 1
    with Journal.open(path) as journal:
        assert journal.entries[0].body.blocks[0]["text"] == "a\ufffd|b\u2028c\x85d\0e"  # type: ignore[union-attr]
    assert verify(path) == []


def test_files_and_folders_are_private_and_ignored_by_git(path: Path) -> None:
    write(path, said("hi"))
    home = path.parents[2]
    assert (home / ".gitignore").read_text() == "*\n"
    for folder in (home, home / "sessions", path.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for file in (path, home / ".gitignore", path.with_name("journal.lock")):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(home.parent.stat().st_mode) != 0o700


def test_a_crash_at_any_byte_keeps_all_whole_lines_and_the_journal_goes_on(tmp_path: Path) -> None:
    whole = write(tmp_path / "whole" / "journal.jsonl", said("größe", "b" * 10, "c"))
    ends = [i for i, byte in enumerate(whole) if byte == ord("\n")]  # a line is whole without its line break
    for length in range(len(whole) + 1):
        path = tmp_path / str(length) / "journal.jsonl"
        path.parent.mkdir()
        path.write_bytes(whole[:length])
        kept = sum(length >= end for end in ends)
        with Journal.open(path) as journal:
            assert [e.id for e in journal.entries] == [f"e{i}" for i in range(1, kept + 1)]
            torn = whole[ends[kept - 1] + 1 if kept else 0 : length]
            assert len(journal.diagnostics) == (1 if torn else 0)
            journal.append(Entry("next", f"e{kept}" if kept else None, 1.0, LeafMoved(why="resume")))
        assert verify(path) == []
        assert [e.id for e in read_journal(path).entries][-1] == "next"
        if torn:
            assert path.with_name("journal.torn-1").read_bytes() == torn


def test_torn_bytes_of_two_crashes_are_both_kept(path: Path) -> None:
    for tail in (b'{"v":1,"se', b"\0\0\0\0"):
        write(path, [])
        with path.open("ab") as file:
            file.write(tail)
    with Journal.open(path) as journal:
        assert "torn" in journal.diagnostics[0].cause
    assert path.with_name("journal.torn-1").read_bytes() == b'{"v":1,"se'
    assert path.with_name("journal.torn-2").read_bytes() == b"\0\0\0\0"


@pytest.mark.parametrize("damage", [b"{broken", b"\xff\xfe\xff", b"[1]", b"\0" * 40, b'{"v":1}', b"[" * 100_000])
def test_a_damaged_line_in_the_middle_is_named_and_the_rest_is_read(path: Path, damage: bytes) -> None:
    lines = write(path, said("a", "b", "c", "d")).split(b"\n")
    lines[1] = damage
    path.write_bytes(b"\n".join(lines))
    with Journal.open(path) as journal:
        assert [(e.id, e.parent) for e in journal.entries] == [("e1", None), ("e3", "e1"), ("e4", "e3")]
        assert {2, 3} <= {d.line for d in journal.diagnostics}
        assert build_view(SessionTree(journal.entries).path()).messages
        journal.append(Entry("e5", "e4", 1.0, LeafMoved(why="on")))
    assert path.read_bytes().startswith(b"\n".join(lines)), "nothing on disk is changed"
    assert [e.id for e in read_journal(path).entries] == ["e1", "e3", "e4", "e5"]


def test_oddities_that_lose_nothing_are_looked_through(path: Path) -> None:
    lines = write(path, said("a", "b", "c")).split(b"\n")
    path.write_bytes(b"\xef\xbb\xbf" + lines[0] + b"\r\n\n\0\0\0" + lines[1] + b"\r\n" + lines[2] + b"\n\n")
    with Journal.open(path) as journal:
        assert [e.id for e in journal.entries] == ["e1", "e2", "e3"]
        causes = " | ".join(d.cause for d in journal.diagnostics)
        journal.append(Entry("e4", "e3", 1.0, LeafMoved(why="on")))
    for word in ("BOM", "CRLF", "blank"):
        assert word in causes
    assert [e.id for e in read_journal(path).entries] == ["e1", "e2", "e3", "e4"]


def test_gaps_and_ids_that_occur_twice_are_reported(path: Path) -> None:
    lines = write(path, said("a", "b", "c")).splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[2] + lines[0])
    with Journal.open(path) as journal:
        assert [(e.id, e.parent) for e in journal.entries] == [("e1", None), ("e3", "e1")]
        causes = " | ".join(d.cause for d in journal.diagnostics)
    assert "expected 2" in causes
    assert "'e1' occurs twice" in causes
    assert "'e2' of entry 'e3' is lost" in causes


def test_a_newer_format_is_said_and_its_entries_are_kept(path: Path) -> None:
    line = b'{"v":2,"seq":1,"id":"a","parent":null,"at":1,"mood":"x","body":{"kind":"dream","q":1}}\n'
    path.parent.mkdir(parents=True)
    path.write_bytes(line)
    with Journal.open(path) as journal:
        assert journal.entries[0].body == Unknown(raw={"kind": "dream", "q": 1})
        assert "format 2" in journal.diagnostics[0].cause
    assert path.read_bytes() == line


@given(raw=st.binary(max_size=200))
def test_any_bytes_open_and_go_on(raw: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("j") / "journal.jsonl"
    path.write_bytes(raw)
    with Journal.open(path) as journal:
        journal.append(Entry("x", None, 1.0, LeafMoved(why="new")))
    assert [e.id for e in read_journal(path).entries] == ["x"]


def test_a_folder_in_place_of_the_file_is_one_readable_line(path: Path) -> None:
    path.mkdir(parents=True)
    for opening in (Journal.open, read_journal):
        with pytest.raises(JournalDamaged, match="is a folder"):
            opening(path)
    with pytest.raises(JournalDamaged, match="cannot read"):
        read_journal(path.with_name("absent.jsonl"))


def test_the_golden_file_of_format_1_is_read_for_good() -> None:
    reading = read_journal(GOLDEN)
    assert dump(reading.entries[:-1]) == dump(chain(*EVERY_KIND))
    assert reading.entries[-1].parent == "e2"
    assert reading.diagnostics == ()
    assert [d.cause.split(" in ")[0] for d in verify(GOLDEN)] == ["artifact 0000000000000000 is missing"]


def test_a_second_opener_is_told_who_writes(path: Path) -> None:
    with Journal.open(path):
        with pytest.raises(JournalLocked, match="already open in this kernel"):
            Journal.open(path)
        code = f"from nbagent.store.journal import Journal; Journal.open({str(path)!r})"
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path.cwd(), check=False)
        assert f"is being written by process {os.getpid()} on " in ran.stderr
        assert "NBAGENT_SESSION" in ran.stderr
    Journal.open(path).close()


def test_the_lock_falls_with_its_process(path: Path) -> None:
    code = f"import os; from nbagent.store.journal import Journal; j = Journal.open({str(path)!r}); os._exit(9)"
    subprocess.run([sys.executable, "-c", code], cwd=Path.cwd(), check=False)
    Journal.open(path).close()


def test_append_refuses_what_is_no_path(path: Path) -> None:
    with Journal.open(path) as journal:
        journal.append(said("a")[0])
        with pytest.raises(BrokenPath, match="twice"):
            journal.append(said("a")[0])
        with pytest.raises(BrokenPath, match="'zz'"):
            journal.append(Entry("x", "zz", 1.0, LeafMoved(why="?")))
    with pytest.raises(JournalUnwritable, match="is closed"):
        journal.append(said("a")[0])


def test_a_full_disk_leaves_a_valid_file_and_the_same_append_works_later(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = said("a", "b" * 50)
    with Journal.open(path) as journal:
        journal.append(first)
        before = path.read_bytes()
        real = os.write

        def half(fd: int, content: bytes) -> int:
            if len(content) < 100:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(fd, content[: len(content) - 50])

        monkeypatch.setattr(files.os, "write", half)
        with pytest.raises(JournalUnwritable, match="No space left") as caught:
            journal.append(second)
        assert "\n" not in str(caught.value)
        assert path.read_bytes() == before
        assert [e.id for e in journal.entries] == ["e1"]
        monkeypatch.setattr(files.os, "write", real)
        journal.append(second)
    assert [e.id for e in read_journal(path).entries] == ["e1", "e2"]
    assert verify(path) == []


def test_an_interrupt_in_the_middle_of_a_write_leaves_file_and_memory_as_before(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = said("a", "b")
    with Journal.open(path) as journal:
        journal.append(first)
        real = os.write

        def interrupted(fd: int, content: bytes) -> int:
            real(fd, content)
            raise KeyboardInterrupt

        monkeypatch.setattr(files.os, "write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            journal.append(second)
        monkeypatch.setattr(files.os, "write", real)
        journal.append(second)
        journal.sync()
    assert [e.id for e in read_journal(path).entries] == ["e1", "e2"]
    assert verify(path) == []


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limit on the size of files")
def test_a_real_limit_on_the_size_of_files_cuts_nothing_in_half(path: Path) -> None:
    code = textwrap.dedent(
        f"""
        import resource
        from nbagent.store.journal import Journal
        from tests.store.bodies import said
        journal = Journal.open({str(path)!r})
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        for entry in said(*["x" * 100] * 20):
            try:
                journal.append(entry)
            except Exception as error:
                print(type(error).__name__, len(journal.entries), "size of files" in str(error))
                break
        """
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path.cwd(), check=True)
    name, count, said_why = ran.stdout.split()
    assert (name, said_why) == ("JournalUnwritable", "True")
    assert len(read_journal(path).entries) == int(count) > 1
    assert path.read_bytes().endswith(b"\n")
    assert verify(path) == []


def test_a_journal_that_was_removed_or_changed_while_open_is_not_written_into_the_void(path: Path) -> None:
    first, second = said("a", "b")
    with Journal.open(path) as journal:
        journal.append(first)
        with path.open("ab") as other:
            other.write(b"x\n")
        with pytest.raises(JournalUnwritable, match="changed by another program"):
            journal.append(second)
        path.unlink()
        with pytest.raises(JournalUnwritable):
            journal.append(second)


def test_verify_names_the_changed_line_once(path: Path) -> None:
    raw = write(path, said("alpha", "beta", "gamma"))
    path.write_bytes(raw.replace(b"beta", b"BETA"))
    assert [(d.line, "does not match its hash" in d.cause) for d in verify(path)] == [(2, True)]


def test_a_partial_is_removed_whoever_left_it_and_nothing_is_asked_of_the_disk_without_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Journal.open(path) as journal:
        journal.save_partial({"x": 1})
    with Journal.open(path) as journal:
        journal.clear_partial()
        assert not (path.parent / "partial.json").exists()
        asked: list[Path] = []
        monkeypatch.setattr(Path, "unlink", lambda self, **_: asked.append(self))
        journal.clear_partial()
        assert asked == []
        journal.save_partial({"x": 2})
        journal.clear_partial()
        assert [p.name for p in asked] == ["partial.json"]


def test_a_partial_is_found_again_only_where_it_belongs(path: Path) -> None:
    first, second = said("a", "b")
    with Journal.open(path) as journal:
        assert journal.load_partial() is None
        journal.append(first)
        journal.save_partial([{"type": "text", "text": "half\ud800"}])
    with Journal.open(path) as journal:
        assert journal.load_partial() == [{"type": "text", "text": "half\ufffd"}]
        journal.append(second)
        assert journal.load_partial() is None, "its reply was written after all"
        journal.clear_partial()
        journal.clear_partial()
        path.with_name("partial.json").write_bytes(b'{"v":1,"aft')
        assert journal.load_partial() is None
        assert "partial reply cannot be read" in journal.diagnostics[0].cause
