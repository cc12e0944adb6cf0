"""Where skills are found, what is refused and why, and that a second look is cheap and sees everything."""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path

import pytest

from nbagent.core.errors import ToolError
from nbagent.skills import discovery
from nbagent.skills.opening import invoke
from nbagent.skills.roots import OPENCLAW_LIMITS, Limits
from tests.skills.builders import Place, causes, names, skill


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def test_managed_takes_the_place_of_bundled(place):
    """openclaw 1."""
    skill(place.bundled / "demo", "demo")
    skill(place.managed / "demo", "demo")
    found = place.load()
    assert names(found) == ["demo"]
    assert found[0].source == "managed"


def test_workspace_goes_before_project_before_personal(place):
    """openclaw 2."""
    for root, source in (
        (place.personal, "agents-personal"),
        (place.agents, "agents-project"),
        (place.workspace, "workspace"),
    ):
        skill(root / "demo", "demo")
        found = place.load()
        assert (names(found), found[0].source) == (["demo"], source)


def test_folders_of_claude_code_stand_just_below_those_of_agents(place):
    order = [
        (place.person / ".claude" / "skills", "claude-personal"), (place.personal, "agents-personal"),
        (place.project / ".claude" / "skills", "claude-project"), (place.agents, "agents-project"),
    ]  # fmt: skip
    for root, source in order:
        skill(root / "demo", "demo")
        assert place.load()[0].source == source


def test_skills_collide_by_name_not_by_folder(place):
    """openclaw 4."""
    skill(place.bundled / "one", "demo")
    path = skill(place.workspace / "two", "demo")
    found = place.load()
    assert [(s.path, s.source) for s in found] == [(str(path), "workspace")]


def test_a_replaced_skill_is_named_with_its_path(place):
    """claude 22."""
    loser = skill(place.personal / "deploy", "deploy")
    winner = skill(place.workspace / "deploy", "deploy")
    found = place.load()
    assert [(s.name, s.path) for s in found] == [("deploy", str(winner))]
    (note,) = found.diagnostics
    assert note.path == str(loser)
    assert str(winner) in note.cause


def test_a_root_with_its_own_skill_holds_only_that(place, tmp_path):
    """openclaw 5."""
    root = tmp_path / "single"
    skill(root, "single")
    skill(root / "sub", "sub")
    assert names(place.load(extra_dirs=(str(root),))) == ["single"]


def test_a_broken_skill_stops_the_descent(place):
    """openclaw 7."""
    (place.workspace / "broken").mkdir(parents=True)
    (place.workspace / "broken" / "SKILL.md").write_text("---\nname: x\n")
    skill(place.workspace / "broken" / "nested", "nested")
    found = place.load()
    assert len(found) == 0
    assert "never closed" in causes(found)


def test_a_repository_given_as_folder_is_searched_in_its_skills(place, tmp_path):
    """openclaw 8."""
    root = tmp_path / "repository"
    skill(root / "skills" / "group" / "deeper" / "a", "a")
    skill(root / "examples" / "b", "b")
    assert names(place.load(extra_dirs=(str(root),))) == ["a"]


def test_grouped_folders_are_followed_to_their_depth(place, tmp_path):
    skill(place.workspace / "1" / "2" / "3" / "4" / "5" / "six", "six")
    skill(place.workspace / "1" / "2" / "3" / "4" / "5" / "6" / "seven", "seven")
    skill(tmp_path / "extra" / "1" / "two", "two")
    skill(tmp_path / "extra" / "1" / "2" / "three", "three")
    assert names(place.load(extra_dirs=(str(tmp_path / "extra"),))) == ["six", "two"]


def test_hidden_folders_and_packages_are_never_scanned(place):
    """openclaw 10; claude 20."""
    for odd in (".hidden", ".git", "node_modules/x", "node_modules/x/skills/y", "a/.git/b"):
        skill(place.workspace / odd, "odd")
    skill(place.workspace / "demo", "demo")
    found = place.load()
    assert names(found) == ["demo"]
    assert found.diagnostics == ()


def test_a_broken_skill_leaves_its_siblings(place):
    """openclaw 14."""
    for name in ("a", "c"):
        skill(place.workspace / name, name)
    (place.workspace / "b").mkdir()
    (place.workspace / "b" / "SKILL.md").write_text("---\nname: b\ndescription: x\n")
    found = place.load()
    assert names(found) == ["a", "c"]
    assert str(place.workspace / "b" / "SKILL.md") in causes(found)


def test_links_out_of_a_project_are_refused_with_their_reason(place, tmp_path):
    """openclaw 25, 164."""
    outside = skill(tmp_path / "outside" / "a", "a")
    elsewhere = skill(place.project / "tools" / "c", "c")
    place.workspace.mkdir()
    (place.workspace / "a").symlink_to(outside.parent)
    (place.workspace / "b").mkdir()
    (place.workspace / "b" / "SKILL.md").symlink_to(outside)
    (place.workspace / "c").symlink_to(elsewhere.parent)
    found = place.load()
    assert len(found) == 0
    assert {d.path: d.cause.split(":")[0] for d in found.diagnostics} == {
        str(place.workspace / "a"): "symlink-escape",
        str(place.workspace / "b" / "SKILL.md"): "path-escape",
        str(place.workspace / "c"): "symlink-escape",
    }


def test_a_person_may_link_folders_but_not_a_file_out_of_them(place, tmp_path):
    """openclaw 25, 163."""
    source = skill(tmp_path / "src" / "linked", "linked")
    bad = skill(tmp_path / "src" / "bad", "bad")
    bad.unlink()
    bad.symlink_to(source)
    place.managed.mkdir()
    (place.managed / "linked").symlink_to(source.parent)
    (place.managed / "bad").symlink_to(bad.parent)
    found = place.load()
    assert names(found) == ["linked"]
    assert found[0].folder == str(source.parent)
    assert "path-escape" in causes(found)


def test_a_link_to_a_file_in_the_same_folder_is_fine(place):
    path = skill(place.workspace / "demo", "demo")
    path.rename(path.with_name("real.md"))
    path.symlink_to(path.with_name("real.md"))
    assert names(place.load()) == ["demo"]


def test_a_root_that_leads_out_of_the_project_is_refused(place, tmp_path):
    skill(tmp_path / "outside" / "a", "a")
    place.workspace.symlink_to(tmp_path / "outside")
    found = place.load()
    assert len(found) == 0
    assert "symlink-escape" in causes(found)


def test_loops_and_links_to_nowhere_are_named_and_end(place):
    skill(place.workspace / "demo", "demo")
    (place.workspace / "loop").symlink_to(place.workspace)
    (place.workspace / "self").symlink_to(place.workspace / "self")
    (place.workspace / "gone").symlink_to(place.workspace / "nothing")
    found = place.load()
    assert names(found) == ["demo"]
    assert "symlink-loop" in causes(found)
    assert causes(found).count("leads nowhere") == 2


def test_a_skill_linked_beside_itself_is_listed_once(place):
    skill(place.workspace / "demo")
    (place.workspace / "again").symlink_to(place.workspace / "demo")
    found = place.load()
    assert len(found) == 1
    assert "same folder" in causes(found)


def test_an_unreadable_folder_is_named_and_stops_nothing(place, monkeypatch):
    skill(place.workspace / "a", "a")
    closed = place.workspace / "group"
    skill(closed / "b", "b")
    listing = os.scandir

    def refusing(path):
        if str(path) == str(closed):
            raise PermissionError(13, "Permission denied")
        return listing(path)

    monkeypatch.setattr(discovery.os, "scandir", refusing)
    found = place.load()
    assert names(found) == ["a"]
    assert f"{closed}: the folder cannot be read (Permission denied)" in causes(found)


def test_256_000_bytes_load_and_one_more_does_not_nor_is_it_read(place):
    path = skill(place.workspace / "big", "big")
    size = path.stat().st_size
    with path.open("a") as file:
        file.write("x" * (256_000 - size))
    assert names(place.load()) == ["big"]
    with path.open("a") as file:
        file.write("x")
    found = place.load()
    assert len(found) == 0
    assert "256,001 bytes" in causes(found)


def test_a_file_of_300_mb_a_pipe_and_a_folder_are_not_opened(place):
    skill(place.workspace / "a", "a")
    huge = skill(place.workspace / "huge", "huge")
    with huge.open("ab") as file:
        file.truncate(300_000_000)
    for name in ("pipe", "folder"):
        (place.workspace / name).mkdir()
    os.mkfifo(place.workspace / "pipe" / "SKILL.md")
    (place.workspace / "folder" / "SKILL.md").mkdir()
    found = place.load()
    assert names(found) == ["a"]
    assert "300,000,000 bytes" in causes(found)
    assert causes(found).count("no ordinary file") == 2


@pytest.mark.parametrize("raw", [b"---\nname: b\ndescription: caf\xe9\n---\n", b"---\nname: b\0\n---\n"])
def test_latin_1_and_nul_are_named_and_stop_nothing(place, raw):
    skill(place.workspace / "a", "a")
    (place.workspace / "b").mkdir()
    (place.workspace / "b" / "SKILL.md").write_bytes(raw)
    found = place.load()
    assert names(found) == ["a"]
    assert f"{place.workspace / 'b' / 'SKILL.md'}:" in causes(found)


def test_descriptions_that_begin_oddly_and_a_byte_order_mark_stop_no_scan(place):
    """claude 1, 8."""
    odd = {"tick": "`x` does", "at": "@x does", "beta": "[beta] x", "quote": '"foo" bar'}
    for name, description in odd.items():
        skill(place.workspace / name, name, description)
    path = skill(place.workspace / "marked", "marked", "Does it.")
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    found = place.load()
    assert found.named("marked").description == "Does it."
    assert "\ufeff" not in invoke(found, "marked").text()
    for name, description in odd.items():
        listed = found.named(name)
        assert listed is None or listed.description == description
        assert str(place.workspace / name / "SKILL.md") in causes(found)


def test_names_that_differ_in_case_or_unicode_form_are_one(place):
    skill(place.bundled / "x", "Résumé")
    skill(place.workspace / "y", unicodedata.normalize("NFD", "résumé"))
    skill(place.workspace / "z", "RÉSUMÉ")
    found = place.load()
    assert [s.path for s in found] == [str(place.workspace / "y" / "SKILL.md")]
    assert causes(found).count("is taken from") == 2


def test_a_file_spelled_otherwise_loads_and_is_reported(place):
    path = skill(place.workspace / "demo", "demo")
    path.rename(path.with_name("skill.md"))
    found = place.load()
    assert names(found) == ["demo"]
    assert "rename it to SKILL.md" in causes(found)


def test_what_a_limit_cuts_is_counted(place):
    for i in range(205):
        skill(place.workspace / f"s{i:03d}", f"s{i:03d}")
    found = place.load(limits=OPENCLAW_LIMITS)
    assert len(found) == 200
    assert "over 200 skills" in causes(found)
    assert len(place.load(limits=Limits(max_candidates=100))) == 100
    assert len(place.load()) == 205


def test_a_new_a_changed_and_a_removed_skill_are_seen_at_the_next_turn(place):
    """openclaw 166."""
    path = skill(place.workspace / "a", "a")
    first = place.load()
    skill(place.workspace / "b", "b")
    second = place.load(first)
    assert names(second) == ["a", "b"]
    path.write_text(path.read_text().replace("Does it.", "Does at."))  # the same size, in the same tick perhaps
    third = place.load(second)
    assert third.named("a").description.startswith("Does at.")
    path.unlink()
    assert names(place.load(third)) == ["b"]


def test_an_unchanged_second_scan_reads_nothing_and_gives_the_same_catalog(place, monkeypatch):
    for i in range(50):
        path = skill(place.workspace / f"s{i}", f"s{i}")
        os.utime(path, (1, 1))
    first = place.load(now_ns=2**62)
    monkeypatch.setattr(discovery, "read_bytes", lambda *_: pytest.fail("a file was read"))
    monkeypatch.setattr(discovery.os, "scandir", lambda *_: pytest.fail("a folder was listed"))
    assert place.load(first) is first


def test_only_what_changed_is_read_again(place, monkeypatch):
    paths = [skill(place.workspace / f"s{i}", f"s{i}") for i in range(20)]
    first = place.load(now_ns=2**62)
    skill(paths[3].parent, "s3", "Other. Use when asked.")
    read = []
    original = discovery.read_bytes
    monkeypatch.setattr(discovery, "read_bytes", lambda path, status: read.append(path) or original(path, status))
    second = place.load(first, now_ns=2**62)
    assert read == [str(paths[3])]
    assert second.digest != first.digest


def test_a_skill_that_disappears_between_listing_and_reading_is_an_error_for_the_model(place):
    path = skill(place.workspace / "a", "a")
    skill(place.workspace / "b", "b")
    found = place.load()
    path.unlink()
    with pytest.raises(ToolError, match="'a' is gone"):
        invoke(found, "a")
    assert invoke(found, "b").body


def test_a_skill_that_becomes_a_link_out_is_not_read(place, tmp_path):
    path = skill(place.workspace / "a", "a")
    found = place.load()
    path.unlink()
    path.symlink_to(skill(tmp_path / "secret", "a"))
    with pytest.raises(ToolError, match="out of its folder"):
        invoke(found, "a")


def test_two_scans_of_the_same_folders_have_one_digest(place, tmp_path):
    skill(place.workspace / "a", "a")
    one, two = place.load(), place.load()
    assert one is not two
    assert one.digest == two.digest
    assert Path(one[0].path).exists()
