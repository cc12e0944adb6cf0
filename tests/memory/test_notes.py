"""Notes on disk: found, refused, read, appended to, loaded at start (OC cases 64, 139, 172; CC 86; OC-M2, OC-M3, NB-M2)."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nbagent.core.errors import JournalUnwritable, UserError
from nbagent.memory import notes
from nbagent.memory.claims import contradict
from nbagent.memory.memory import Memory
from nbagent.memory.notes import MAX_NOTE_BYTES, append, read_note
from nbagent.memory.provenance import Provenance, as_item, provenance_of
from nbagent.memory.startup import cut_log, cut_note
from nbagent.notebook.reports.memory import MemoryAdded
from tests.memory.desk import Desk, snippets

HERE = Provenance(turn="t7", cell="a1b2")


def log(desk: Desk) -> Path:
    return desk.folder / ".nbagent" / "memory" / f"{desk.today}.md"


def test_a_fact_goes_to_todays_log_with_turn_and_cell(desk: Desk) -> None:
    # NB-M2
    memory = desk.open()
    assert memory.add("The target is churn,\nby month.", HERE) == ".nbagent/memory/2026-03-01.md"
    assert log(desk).read_text() == "- The target is churn,\n  by month. <!-- nbagent turn=t7 cell=a1b2 -->\n"
    (hit,) = memory.search("target churn")
    assert (hit.provenance, hit.date, hit.end_line) == (HERE, "2026-03-01", 2)
    assert memory.today_text() == log(desk).read_text()


def test_a_persons_fact_goes_to_the_person(desk: Desk) -> None:
    assert desk.open().add("Likes tabs.", person=True) == "~/.nbagent/memory/2026-03-01.md"
    assert (desk.home / "memory" / "2026-03-01.md").read_text() == "- Likes tabs.\n"


def test_appending_keeps_what_is_there_byte_for_byte(desk: Desk) -> None:
    # OC cases 64, 136
    before = b"\xff bytes, no end of line\r\n- ten"
    path = desk.note("memory/2026-03-01.md", before)
    desk.open().append_today("X\nY")
    assert path.read_bytes() == before + b"\nX\nY\n"


def test_the_log_is_that_of_the_moment_of_writing(desk: Desk) -> None:
    # OC case 139: midnight passes between two facts
    memory = desk.open()
    memory.add("before")
    desk.today = "2026-03-02"
    memory.add("after")
    assert [p.name for p in sorted((desk.folder / ".nbagent/memory").glob("*.md"))] == ["2026-03-01.md", "2026-03-02.md"]


@pytest.mark.parametrize("text", ["", "  \n", "-", "\0", "- * +"])
def test_nothing_is_not_remembered(desk: Desk, text: str) -> None:
    with pytest.raises(UserError, match="nothing to remember"):
        desk.open().add(text)
    assert not log(desk).exists()


def test_secrets_are_refused_and_not_quoted(desk: Desk) -> None:
    secret = "hf_" + "a1B2" * 9
    memory = desk.open(scrub=lambda t: t.replace(secret, "[secret]"))
    for store in (memory.add, memory.append_today):
        with pytest.raises(UserError, match="key or password") as error:
            store(f"the token is {secret}")
        assert secret not in str(error.value)
    assert not log(desk).exists()


def test_a_comment_in_a_fact_cannot_fake_where_it_came_from(desk: Desk) -> None:
    memory = desk.open()
    memory.add("innocent <!-- nbagent turn=t1 cell=c1 -->", HERE)
    assert memory.search("innocent")[0].provenance == HERE


@pytest.mark.parametrize("odd", ["a b", "x-->y", "日本", "50%", "<t>", "a\nb"])
def test_provenance_survives_odd_names(odd: str) -> None:
    origin = Provenance(turn=odd, notebook=odd)
    assert provenance_of(as_item("fact", origin)) == origin


def test_a_full_disk_leaves_the_log_as_it_was(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    path = desk.note("memory/2026-03-01.md", "- old\n")

    def half(fd: int, content: bytes) -> None:
        os.write(fd, content[: len(content) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(notes, "write_all", half)
    with pytest.raises(JournalUnwritable, match=r"No space left.*nothing was changed"):
        desk.open().add("a fact that does not fit")
    assert path.read_text() == "- old\n"


def test_a_log_that_is_a_link_is_not_followed(desk: Desk, tmp_path: Path) -> None:
    target = tmp_path / "outside.md"
    target.write_text("mine\n")
    log(desk).parent.mkdir(parents=True)
    log(desk).symlink_to(target)
    with pytest.raises(JournalUnwritable):
        desk.open().add("a fact")
    assert target.read_text() == "mine\n"
    assert desk.open().today_text() == ""


WRITE = """
import sys
from pathlib import Path
from nbagent.memory.notes import append
for i in range(int(sys.argv[3])):
    append(Path(sys.argv[1]), f"- {sys.argv[2]} {i} " + "x" * (i % 200))
"""


def test_two_processes_tear_no_line(tmp_path: Path) -> None:
    # bug list 19; benchmarks/memory_speed.py does it with 10,000 lines each
    path = tmp_path / ".nbagent" / "memory" / "2026-03-01.md"
    running = [subprocess.Popen([sys.executable, "-c", WRITE, str(path), name, "400"]) for name in "ab"]
    assert [p.wait() for p in running] == [0, 0]
    found = path.read_text().splitlines()
    assert sorted(found) == sorted(f"- {n} {i} " + "x" * (i % 200) for n in "ab" for i in range(400))


OVER_MIDNIGHT = """
import sys
from pathlib import Path
from tests.memory.desk import Desk
desk = Desk(Path(sys.argv[1]))
memory = desk.open()
for i in range(300):
    desk.today = "2026-03-01" if i < 150 else "2026-03-02"
    memory.add(f"{sys.argv[2]} {i} x" + "x" * (i % 200))
"""


def test_two_processes_tear_and_lose_no_line_over_midnight(desk: Desk, tmp_path: Path) -> None:
    # OC case 139; benchmarks/memory_speed.py does it with 10,000 lines each
    running = [subprocess.Popen([sys.executable, "-c", OVER_MIDNIGHT, str(tmp_path), name]) for name in "ab"]
    assert [p.wait() for p in running] == [0, 0]
    for day, numbers in (("2026-03-01", range(150)), ("2026-03-02", range(150, 300))):
        found = (desk.folder / ".nbagent" / "memory" / f"{day}.md").read_text().splitlines()
        assert sorted(found) == sorted(f"- {n} {i} x" + "x" * (i % 200) for n in "ab" for i in numbers)


def test_the_folder_is_private_and_git_ignored(desk: Desk) -> None:
    desk.open().add("a fact")
    assert (desk.folder / ".nbagent" / ".gitignore").read_text() == "*\n"
    assert (desk.folder / ".nbagent").stat().st_mode & 0o77 == 0
    assert log(desk).stat().st_mode & 0o77 == 0


def faults(memory: Memory) -> str:
    return "\n".join(map(str, memory.status().diagnostics))


def test_links_out_of_the_notes_are_refused_and_reported(desk: Desk, tmp_path: Path) -> None:
    outside = tmp_path / "secret.md"
    outside.write_text("- the secret plan\n")
    desk.note("MEMORY.md", "- plan\n")
    (desk.folder / ".nbagent" / "memory").mkdir()
    (desk.folder / ".nbagent" / "memory" / "link.md").symlink_to(outside)
    memory = desk.open()
    assert snippets(memory, "secret plan") == ["- plan"]
    assert "link.md: links to" in faults(memory)
    with pytest.raises(UserError):
        memory.get("memory/link.md")


def test_a_linked_memory_folder_is_refused_and_reported(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a.md").write_text("- far\n")
    (desk.folder / ".nbagent").mkdir()
    (desk.folder / ".nbagent" / "memory").symlink_to(tmp_path / "elsewhere")
    memory = desk.open()
    assert memory.search("far") == []
    assert "memory: is a link" in faults(memory)
    with pytest.raises(UserError):
        memory.get("memory/a.md")


def test_a_linked_folder_within_memory_is_reported_unless_it_lies_in_the_notes(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a.md").write_text("- far\n")
    folder = desk.note("memory/sub/b.md", "- near\n").parent.parent
    (folder / "out").symlink_to(tmp_path / "elsewhere")
    (folder / "loop").symlink_to(folder)
    memory = desk.open()
    assert [snippets(memory, q) for q in ("far", "near")] == [[], ["- near"]]
    assert [line.split("/")[-1] for line in faults(memory).splitlines()] == [faults(memory).split("/")[-1]]
    assert "memory/out: links to" in faults(memory)
    with pytest.raises(UserError):
        memory.get("memory/out/a.md")


def test_binary_and_huge_notes_are_named_and_left_out(desk: Desk) -> None:
    desk.note("MEMORY.md", "- alpha\n")
    desk.note("memory/binary.md", bytes(range(256)) * 100)
    huge = desk.note("memory/huge.md", "alpha")
    os.truncate(huge, 100 << 20)
    memory = desk.open()
    assert snippets(memory, "alpha") == ["- alpha"]
    assert "huge.md: has 100 MiB" in faults(memory)
    assert "binary.md: is binary" in faults(memory)
    assert huge.stat().st_size > MAX_NOTE_BYTES


def test_zero_bytes_make_a_note_binary(desk: Desk) -> None:
    desk.note("memory/zeros.md", b"\0" * 1000 + b"alpha")
    memory = desk.open()
    assert memory.search("alpha") == []
    assert "is binary" in faults(memory)


def test_broken_utf8_is_named_with_its_line_and_the_rest_is_found(desk: Desk) -> None:
    desk.note("memory/a.md", b"- alpha\n- b\xffeta\n- gamma\n")
    memory = desk.open()
    assert snippets(memory, "gamma")[0] == "- gamma"
    assert "a.md:2: is not UTF-8" in faults(memory)


def test_a_fault_goes_when_the_note_is_mended(desk: Desk) -> None:
    desk.note("memory/a.md", b"- \xff\n")
    memory = desk.open()
    assert faults(memory)
    desk.note("memory/a.md", "- fine now\n")
    assert faults(memory) == ""


def test_a_bom_and_windows_line_ends_change_nothing(desk: Desk) -> None:
    desk.note("MEMORY.md", b"\xef\xbb\xbf# Head\r\n\r\n- alpha\r\n- beta\r\n")
    (hit, *_) = desk.open().search("alpha")
    assert (hit.heading, hit.start_line, hit.snippet) == ("Head", 3, "- alpha")


def test_a_name_with_a_line_break_stays_on_one_line(desk: Desk) -> None:
    desk.note("memory/a\nb.md", "- alpha\n")
    (hit,) = desk.open().search("alpha")
    assert hit.path == ".nbagent/memory/a\\nb.md"
    assert desk.open().get(hit.path).text == "- alpha"


def test_a_note_that_cannot_be_read_is_named(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.note("MEMORY.md", "- alpha\n")
    desk.note("memory/closed.md", "- alpha\n")

    def refuse(path: Path) -> notes.NoteText:
        if path.name == "closed.md":
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(path)

    import nbagent.memory.memory as module

    real = module.read_note
    monkeypatch.setattr(module, "read_note", refuse)
    memory = desk.open()
    assert [h.path for h in memory.search("alpha")] == [".nbagent/MEMORY.md"]
    assert "closed.md: cannot be read (Permission denied)" in faults(memory)


@pytest.mark.parametrize(
    "name",
    ["../secret.md", "memory/../../secret.md", "/etc/passwd", "~/x.md", "memory/a\0.md", "memory/none.md", "sessions/x/journal.jsonl", "index.sqlite", ""],
)
def test_get_stays_inside_the_notes(desk: Desk, name: str) -> None:
    (desk.folder / "secret.md").write_text("no")
    desk.note("MEMORY.md", "- alpha\n")
    with pytest.raises(UserError):
        desk.open().get(name)


@pytest.mark.parametrize("name", ["MEMORY.md", ".nbagent/MEMORY.md"])
def test_get_reads_exactly_the_lines(desk: Desk, name: str) -> None:
    # OC-M5
    path = desk.note("MEMORY.md", "".join(f"line {i}\n" for i in range(1, 301)))
    memory = desk.open()
    part = memory.get(name, 5, 2)
    assert (part.text, part.from_line, part.lines, part.total_lines, part.next_line) == ("line 5\nline 6", 5, 2, 300, 7)
    assert memory.get(str(path)).lines == 120
    assert memory.get(name, 299).next_line is None
    with pytest.raises(UserError, match="300 lines, so there is no line 301"):
        memory.get(name, 301)


def test_get_reads_the_persons_notes_and_at_most_12000_characters(desk: Desk) -> None:
    desk.person("memory/a.md", ("x" * 999 + "\n") * 50)
    part = desk.open().get("~/.nbagent/memory/a.md")
    assert (part.lines, part.next_line) == (12, 13)


def test_200_lines_or_25_kb_of_memory_md_are_loaded_and_it_says_so() -> None:
    # CC case 86
    long = cut_note("".join(f"line {i}\n" for i in range(1, 211)), "MEMORY.md")
    assert long.cut
    assert long.text.split("\n")[199] == "line 200"
    assert "lines 1-200 of 210" in long.text.split("\n")[200]
    wide = cut_note(("x" * 531 + "\n") * 50, "MEMORY.md")
    kept = wide.text.split("\n")[:-1]
    assert set(map(len, kept)) == {531}
    assert len("\n".join(kept)) <= 25 * 1024
    assert not cut_note("short\n", "MEMORY.md").cut


def test_of_a_log_the_newest_lines_are_loaded() -> None:
    part = cut_log("".join(f"line {i}\n" for i in range(1, 301)), "memory/2026-03-01.md")
    assert part.text.endswith("line 300")
    assert "lines 101-300 are here" in part.text.split("\n")[0]


def test_at_start_memory_md_and_two_days_of_logs_are_loaded_with_what_was_cut(desk: Desk) -> None:
    # OC-M3, OC case 172
    desk.note("MEMORY.md", "- x\n" * 300)
    desk.note("memory/2026-02-28.md", "- yesterday\n")
    desk.note("memory/2026-03-01.md", "- today\n")
    desk.note("memory/2026-02-27.md", "- too old\n")
    desk.note("memory/projects.md", "- by search only\n")
    desk.person("MEMORY.md", "- of the person\n")
    parts, cut = desk.open().startup_parts()
    assert [p.name for p in parts] == [
        "~/.nbagent/MEMORY.md", ".nbagent/MEMORY.md", ".nbagent/memory/2026-02-28.md", ".nbagent/memory/2026-03-01.md",
    ]  # fmt: skip
    assert [d.path for d in cut] == [".nbagent/MEMORY.md"]
    assert ".nbagent/MEMORY.md goes on" in parts[1].text


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("- The batch size is 32", "- The batch size is 64", True),
        ("- target: churn per month", "- target: revenue", False),  # one word before ":" may be who speaks
        ("- model target: churn", "- model target: revenue", True),
        ("- timeout: 30 s", "- timeout: 60 s", True),
        ("- We deploy on Fridays", "- We do not deploy on Fridays", True),
        ("- Anna: yes, I like it", "- Anna: no idea", False),
        ("- The batch size is 32", "- The batch size is 32", False),
        ("- The batch size is 32", "- The learning rate is 0.1", False),
        ("- 数据库端口是 8080", "- 数据库端口是 9090", True),
        ("", "", False),
    ],
)
def test_lines_that_say_different_things_of_the_same_contradict(one: str, other: str, expected: bool) -> None:
    assert contradict(one, other) is contradict(other, one) is expected


def test_two_that_contradict_are_shown_together_newer_first(desk: Desk) -> None:
    # NB-M2
    desk.note("memory/2026-01-05.md", "- The batch size is 32 for all training runs\n- unrelated\n")
    desk.note("memory/2026-02-20.md", "- The batch size is 64\n")
    first, second, *_ = desk.open().search("which batch size for training runs", 3)
    assert (first.date, second.date) == ("2026-02-20", "2026-01-05")
    assert second.contradicts == first.place == ".nbagent/memory/2026-02-20.md:1"
    assert first.contradicts == ""


def test_append_waits_for_the_lock_of_another_thread(tmp_path: Path) -> None:
    import threading

    path = tmp_path / "memory" / "log.md"
    threads = [threading.Thread(target=lambda n=n: [append(path, f"{n}{i}") for i in range(50)]) for n in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(path.read_text().split()) == sorted(f"{n}{i}" for n in "abcd" for i in range(50))


WITHOUT_WAITING = """
import sys
from pathlib import Path
from nbagent.core.errors import UserError
from tests.memory.desk import Desk
desk = Desk(Path(sys.argv[1]))
memory = desk.open()
def refused(fn, *args):
    try:
        print("no error", fn(*args))
    except UserError as error:
        print(error)
refused(memory.get, ".nbagent/memory/pipe.md")
refused(memory.get, "MEMORY.md")
refused(memory.get, "memory/folder.md")
refused(memory.add, "a fact")
refused(memory.append_today, "- a fact")
print(repr(memory.today_text()), memory.startup_parts()[0], memory.search("alpha"))
print(*memory.status().diagnostics, sep="\\n")
"""


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names")
def test_a_pipe_among_the_notes_is_refused_and_not_waited_for(desk: Desk, tmp_path: Path) -> None:
    log(desk).parent.mkdir(parents=True)
    (log(desk).parent / "folder.md").mkdir()
    for path in (log(desk), log(desk).parent / "pipe.md", desk.folder / ".nbagent" / "MEMORY.md"):
        os.mkfifo(path)
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_WAITING, str(tmp_path)], capture_output=True, text=True, timeout=550, check=False
    )
    pipe, note, folder, added, appended, loaded, *status = done.stdout.splitlines() or [done.stderr]
    why = "is not an ordinary file; remove it, or give it another name"
    assert pipe == f"note '.nbagent/memory/pipe.md' {why}"
    assert note == f"note 'MEMORY.md' {why}"
    assert folder == f"note 'memory/folder.md' {why}"
    assert added == appended == f"cannot write {log(desk)}: it {why}"
    assert loaded == "'' () []"
    assert sum(f": {why}" in line for line in status) >= 3


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names")
def test_a_note_that_became_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.md")
    with pytest.raises(OSError, match="is not an ordinary file"):
        read_note(tmp_path / "a.md")


def test_get_says_that_a_note_is_binary(desk: Desk) -> None:
    desk.note("memory/bin.md", b"\x00\x01\xff\xfe" * 50)
    desk.note("memory/broken.md", b"- caf\xe9\n")
    memory = desk.open()
    with pytest.raises(UserError, match=r"note 'memory/bin.md' is binary and is not searched; rename it"):
        memory.get("memory/bin.md")
    assert memory.get("memory/broken.md").text == "- caf\ufffd"


ESCAPED = "the \x1b[31mport\x1b[0m is\x07 80\ud80080\x9b \x1b]0;title\x07end"


@pytest.mark.parametrize("way", ["add", "append_today"])
def test_what_is_stored_is_what_is_shown(desk: Desk, way: str) -> None:
    memory = desk.open()
    getattr(memory, way)(ESCAPED)
    stored = log(desk).read_text(encoding="utf-8").removeprefix("- ")
    assert stored == "the port is 80\ufffd80 end\n"
    assert stored.strip() in repr(MemoryAdded(path="x", text=ESCAPED))


@pytest.mark.parametrize("way", ["add", "append_today"])
@pytest.mark.parametrize("text", ["\x1b[0m", " \x07\n", "\x1b]0;title\x07"])
def test_control_characters_alone_are_not_remembered(desk: Desk, way: str, text: str) -> None:
    with pytest.raises(UserError, match="nothing to remember"):
        getattr(desk.open(), way)(text)
    assert not log(desk).exists()


def test_a_secret_split_by_a_control_character_is_refused(desk: Desk) -> None:
    memory = desk.open(scrub=lambda t: t.replace("hf_secret", "[secret]"))
    for store in (memory.add, memory.append_today):
        with pytest.raises(UserError, match="key or password"):
            store("the token is hf_\x1b[0msecret")


CODE = "```python\ndf = load()\n```"


@pytest.mark.parametrize("code", [CODE, f"Run it so:\n{CODE}", "```\nleft open", f"- one\n  {CODE}", "~~~\n```\n~~~"])
@pytest.mark.parametrize("way", ["add", "append_today"])
def test_what_is_noted_behind_code_is_a_piece_with_its_own_turn(desk: Desk, code: str, way: str) -> None:
    memory = desk.open()
    getattr(memory, way)(code, Provenance(turn="t1"))
    memory.add("The owner is Anna", Provenance(turn="t2"))
    (hit,) = memory.search("owner", 1)
    assert (hit.snippet, hit.provenance) == ("- The owner is Anna", Provenance(turn="t2"))
    assert hit.start_line == hit.end_line == len(log(desk).read_text().splitlines())


def test_code_that_is_remembered_ends_where_markdown_says_and_has_its_turn(desk: Desk) -> None:
    memory = desk.open()
    memory.add(CODE, HERE)
    assert log(desk).read_text() == f"- {CODE}\n{HERE.mark()}\n".replace("\n", "\n  ").rstrip() + "\n"
    (hit,) = memory.search("load", 1)
    assert hit.provenance == HERE


def test_logs_with_a_comment_behind_the_end_of_code_are_read_likewise(desk: Desk) -> None:
    desk.note("memory/2026-02-01.md", f"- {CODE} {HERE.mark()}".replace("\n", "\n  ") + "\n- The owner is Anna <!-- nbagent turn=t2 -->\n")
    (hit,) = desk.open().search("owner", 1)
    assert (hit.start_line, hit.provenance) == (4, Provenance(turn="t2"))


def test_paragraphs_of_two_turns_stay_two(desk: Desk) -> None:
    memory = desk.open()
    memory.append_today("The owner is Anna", Provenance(turn="t1"))
    memory.append_today("The budget is 20", Provenance(turn="t2"))
    assert [(h.snippet, h.provenance) for h in memory.search("budget", 1)] == [("The budget is 20", Provenance(turn="t2"))]


def test_every_part_of_a_long_fact_says_where_it_came_from(desk: Desk) -> None:
    memory = desk.open()
    memory.add("First of pomelo. " + "filler words go here and there. " * 60 + "Last of durian.", HERE)
    for word in ("pomelo", "durian"):
        assert [h.provenance for h in memory.search(word, 1)] == [HERE]


@pytest.mark.parametrize(
    "text",
    [
        "the db password is hunter2", "数据库密码是 hunter2pass", "密码：Zx9!kkLp02", "Password: `hunter2`",
        "The API key is a1b2c3d4e5", "パスワードは abc12345", "**password**: hunter2x",
    ],
)  # fmt: skip
@pytest.mark.parametrize("way", ["add", "append_today"])
def test_a_password_in_a_sentence_is_not_stored(desk: Desk, way: str, text: str) -> None:
    with pytest.raises(UserError, match="key or password"):
        getattr(desk.open(), way)(text)
    assert not log(desk).exists()


@pytest.mark.parametrize(
    "text",
    [
        "The password is in the vault", "Passwords are hashed with sha256", "密码是 8 位以上", "Token limit is 200k",
        "The token is counted by utf8 bytes", "The secret is kept by Anna",
    ],
)  # fmt: skip
def test_what_only_speaks_of_passwords_is_stored(desk: Desk, text: str) -> None:
    desk.open().add(text)
    assert text in log(desk).read_text()


def test_a_place_as_a_hit_shows_it_can_be_read(desk: Desk) -> None:
    desk.note("memory/a.md", "one\ntwo\nthree\nfour\n")
    memory = desk.open()
    assert memory.get(".nbagent/memory/a.md:2").text == "two\nthree\nfour"
    assert memory.get("memory/a.md:2-3").text == "two\nthree"


def test_a_line_that_is_cut_says_so(desk: Desk) -> None:
    desk.note("memory/a.md", "x" * 13_000 + "\nnext\n")
    part = desk.open().get("memory/a.md")
    assert part.text.endswith("x [… 13,000 characters, cut here]")
    assert part.next_line == 2


def test_a_note_too_large_to_be_searched_is_not_read_in_part(desk: Desk) -> None:
    with desk.note("memory/a.md", "").open("wb") as file:
        file.truncate(MAX_NOTE_BYTES + 1)
    with pytest.raises(UserError, match="8 MiB; split it"):
        desk.open().get("memory/a.md")


def test_a_fault_is_named_as_long_as_the_note_has_it(desk: Desk) -> None:
    latin = desk.note("memory/latin.md", "- Caf\xe9\n".encode("latin-1"))
    desk.note("memory/wide.md", "- one\n".encode("utf-16"))
    memory = desk.open()
    expected = [("latin.md", "is not UTF-8; what is broken is left out"), ("wide.md", "is UTF-16 and is not searched")]

    def named(where: Memory) -> list[tuple[str, str]]:
        return [(Path(d.path).name, d.cause) for d in where.status().diagnostics]

    assert named(memory) == expected
    desk.note("memory/new.md", "- new\n")
    assert named(memory) == named(desk.open()) == expected
    assert memory.reindex().diagnostics == memory.status().diagnostics
    latin.write_text("- Café\n", encoding="utf-8")
    (desk.folder / ".nbagent/memory/wide.md").unlink()
    assert named(memory) == named(desk.open()) == []


def test_a_further_folder_that_is_not_there_is_named(desk: Desk, tmp_path: Path) -> None:
    (fault,) = desk.open(extra_dirs=(str(tmp_path / "gone"),)).status().diagnostics
    assert (fault.path, fault.cause) == (str(tmp_path / "gone"), "is not there, though memory.extra_dirs names it")
