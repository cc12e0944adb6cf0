"""Which session a notebook has, after renames, copies and moves (DECISIONS 9, 10)."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from nbagent.core.errors import UsageProblem
from nbagent.runtime.places import Place, cell_ids, find_place, known_sessions, remember
from tests.runtime.lab import write_notebook


def settle(base: Path, notebook: str | None, *cells: str, name: str | None = None, fresh: str = "abcdef123456") -> Place:
    """Find the session's place and put it on disk as an open session does."""
    place = find_place(base, base / notebook if notebook else None, name, fresh)
    place.folder.mkdir(parents=True, exist_ok=True)
    place.journal.touch()
    remember(place, cells)
    return place


def test_a_notebook_finds_its_session_again(tmp_path: Path) -> None:
    write_notebook(tmp_path / "My Notebook.ipynb", "a")
    first = settle(tmp_path, "My Notebook.ipynb", "a")
    assert (first.how, first.name) == ("new", "my-notebook-abcdef")
    again = find_place(tmp_path, tmp_path / "My Notebook.ipynb", None, "other")
    assert (again.how, again.name) == ("resumed", first.name)


@pytest.mark.parametrize(
    ("notebook", "name"),
    [
        ("销售分析（第一版）：缺失值.ipynb", "销售分析-第一版-缺失值"), ("Größe_2.ipynb", "größe-2"), ("報告 売上.ipynb", "報告-売上"),
        ("🎉.ipynb", "notebook"), ("文" * 60 + ".ipynb", "文" * 40), ("__a__.ipynb", "a"),
    ],
)  # fmt: skip
def test_a_session_is_called_after_its_notebook_in_any_script(tmp_path: Path, notebook: str, name: str) -> None:
    write_notebook(tmp_path / notebook, "a")
    place = settle(tmp_path, notebook, "a")
    assert place.name == f"{name}-abcdef"
    assert find_place(tmp_path, None, place.name, "x").how == "resumed"  # by its name


def test_a_notebook_that_is_gone_and_shares_cells_was_renamed(tmp_path: Path) -> None:
    write_notebook(tmp_path / "a.ipynb", "1", "2")
    first = settle(tmp_path, "a.ipynb", "1")
    os.rename(tmp_path / "a.ipynb", tmp_path / "b.ipynb")
    found = find_place(tmp_path, tmp_path / "b.ipynb", None, "x")
    assert (found.how, found.name, found.origin) == ("renamed", first.name, "a.ipynb")


def test_a_new_file_under_the_old_name_does_not_hide_a_rename(tmp_path: Path) -> None:
    write_notebook(tmp_path / "Untitled.ipynb", "1", "2")
    first = settle(tmp_path, "Untitled.ipynb", "1")
    os.rename(tmp_path / "Untitled.ipynb", tmp_path / "work.ipynb")
    write_notebook(tmp_path / "Untitled.ipynb", "9")
    assert find_place(tmp_path, tmp_path / "work.ipynb", None, "x").name == first.name


def test_a_copy_takes_the_conversation_of_its_nearest_kin(tmp_path: Path) -> None:
    write_notebook(tmp_path / "a.ipynb", "1")
    write_notebook(tmp_path / "b.ipynb", "1", "2", "3")
    settle(tmp_path, "a.ipynb", "1", name="far")
    near = settle(tmp_path, "b.ipynb", "1", "2", "3", name="near")
    near.journal.write_text("a line\n")
    (near.folder / "journal.lock").touch()
    (near.folder / "journal.owner").touch()
    (near.folder / "artifacts").mkdir()
    (near.folder / "artifacts" / "x.txt").write_text("kept")
    shutil.copy(tmp_path / "b.ipynb", tmp_path / "c.ipynb")
    copy = find_place(tmp_path, tmp_path / "c.ipynb", None, "fedcba")
    assert (copy.how, copy.name, copy.origin) == ("copied", "c-fedcba", "b.ipynb")
    assert copy.journal.read_text() == "a line\n"
    assert sorted(p.name for p in copy.folder.iterdir()) == ["artifacts", "journal.jsonl"]
    assert near.journal.read_text() == "a line\n"


@pytest.mark.parametrize(("old", "new"), [(".", "sub"), ("sub", "."), (".", "a/b/c")])
def test_a_notebook_moved_to_another_folder_takes_its_conversation_along(tmp_path: Path, old: str, new: str) -> None:
    for folder in (old, new):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    write_notebook(tmp_path / old / "a.ipynb", "1", "2")
    first = settle(tmp_path / old, "a.ipynb", "1", "2")
    first.journal.write_text("a line\n")
    stays = settle(tmp_path / old, "stays.ipynb", "2")
    write_notebook(tmp_path / old / "stays.ipynb", "2")
    os.rename(tmp_path / old / "a.ipynb", tmp_path / new / "b.ipynb")
    found = find_place(tmp_path / new, tmp_path / new / "b.ipynb", None, "fedcba")
    assert (found.how, found.origin, found.journal.read_text()) == ("moved", "a.ipynb", "a line\n")
    assert found.folder == tmp_path / new / ".nbagent" / "sessions" / "b-fedcba"
    assert first.journal.read_text() == "a line\n"  # nothing is lost where it was
    assert stays.folder.is_dir()
    remember(found, {"1", "2"})
    assert find_place(tmp_path / new, tmp_path / new / "b.ipynb", None, "x").how == "resumed"


def test_a_notebook_of_another_folder_with_no_cell_in_common_is_not_taken_for_it(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    write_notebook(tmp_path / "a.ipynb", "1")
    settle(tmp_path, "a.ipynb", "1").journal.write_text("a line\n")
    for cells in ((), ("2",)):
        write_notebook(tmp_path / "sub" / "b.ipynb", *cells)
        assert find_place(tmp_path / "sub", tmp_path / "sub" / "b.ipynb", None, "x").how == "new"
    write_notebook(tmp_path / "sub" / "b.ipynb", "1")  # a.ipynb is still there: another person's copy of a handout
    assert find_place(tmp_path / "sub", tmp_path / "sub" / "b.ipynb", None, "x").how == "new"


def test_other_notebooks_have_sessions_of_their_own(tmp_path: Path) -> None:
    write_notebook(tmp_path / "a.ipynb", "1")
    settle(tmp_path, "a.ipynb", "1")
    write_notebook(tmp_path / "b.ipynb", "2")
    assert find_place(tmp_path, tmp_path / "b.ipynb", None, "x").how == "new"


def test_a_moved_or_copied_folder_takes_its_sessions_along(tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.mkdir()
    write_notebook(old / "a.ipynb")  # no cells that could tell
    first = settle(old, "a.ipynb")
    shutil.copytree(old, tmp_path / "copy")
    os.rename(old, tmp_path / "new")
    for place in ("new", "copy"):
        found = find_place(tmp_path / place, tmp_path / place / "a.ipynb", None, "x")
        assert (found.how, found.name) == ("resumed", first.name)
        assert found.folder.is_relative_to(tmp_path / place)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"cells": 3}', "\x00"])
def test_a_damaged_session_file_counts_by_its_name_alone(tmp_path: Path, content: str) -> None:
    place = settle(tmp_path, None, name="x")
    (place.folder / "session.json").write_text(content)
    (known,) = known_sessions(tmp_path)
    assert known.name == "x"
    assert find_place(tmp_path, None, "x", "y").how == "resumed"


@pytest.mark.parametrize("content", ["", "{", "[]", '{"cells": [1, {"id": 3}]}'])
def test_a_notebook_that_cannot_be_read_gets_a_new_session(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.ipynb").write_text(content)
    assert find_place(tmp_path, tmp_path / "a.ipynb", None, "x").how == "new"


@pytest.mark.parametrize("name", ["", "..", "a/b", "a b", ".hidden", "x" * 101, "a\n"])
def test_a_name_that_is_no_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageProblem, match="cannot name a session"):
        find_place(tmp_path, None, name, "x")


@pytest.mark.parametrize("name", ["a", "_x", "über.1-2", "x" * 100])
def test_names_that_the_settings_take_are_taken(tmp_path: Path, name: str) -> None:
    assert find_place(tmp_path, None, name, "x").name == name


def test_remember_writes_only_what_changed_and_the_path_inside_its_folder(tmp_path: Path) -> None:
    write_notebook(tmp_path / "a.ipynb", "1")
    place = settle(tmp_path, "a.ipynb", "2", "1")
    path = place.folder / "session.json"
    raw = json.loads(path.read_text())
    assert (raw["notebook"], raw["cells"]) == ("a.ipynb", ["1", "2"])
    before = path.stat().st_ino
    remember(place, ("1", "2"))
    assert path.stat().st_ino == before


def test_the_cells_of_a_notebook_with_a_byte_order_mark_are_known(tmp_path: Path) -> None:
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": [{"id": "one"}]}), encoding="utf-8-sig")
    assert cell_ids(tmp_path / "a.ipynb") == {"one"}
