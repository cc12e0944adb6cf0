"""kept_at_a_glance: what it tells is what opening the session would tell; else it tells nothing."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nbagent.runtime.kept_glance import NONE_KEPT, Kept, kept_at_a_glance
from nbagent.runtime.places import known_sessions
from nbagent.store.lock import WriterLock
from tests.runtime.lab import Lab, write_notebook


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """A folder whose notebook has a conversation of two turns, closed."""
    lab = Lab(tmp_path / "work")
    write_notebook(lab.folder / "a.ipynb", "c1", "c2")
    lab.open(["one", "two"], notebook="a.ipynb", name=None)
    lab.send("c1", "hi")
    lab.send("c2", "and?")
    lab.close()
    yield lab
    lab.close()


def glance(lab: Lab, notebook: str | None = "a.ipynb") -> Kept | None:
    return kept_at_a_glance(str(lab.folder), str(lab.folder / notebook) if notebook else None)


def own(lab: Lab) -> Path:
    (known,) = known_sessions(lab.folder)
    return known.folder


def test_it_tells_what_opening_the_session_tells(lab: Lab) -> None:
    told = glance(lab)
    session = lab.open([], notebook="a.ipynb", name=None)
    assert told == (session.place.name, session.opened.turns) == (own(lab).name, 2)


def test_it_tells_the_same_from_another_place_of_the_folder(lab: Lab) -> None:
    elsewhere = lab.folder.with_name("elsewhere")
    shutil.copytree(lab.folder, elsewhere)
    assert kept_at_a_glance(str(elsewhere), str(elsewhere / "a.ipynb")) == glance(lab) != NONE_KEPT


def test_turns_that_were_left_by_a_revert_do_not_count_once_the_session_was_opened_again(lab: Lab) -> None:
    session = lab.open([], notebook="a.ipynb", name=None)
    session.revert("1")
    session.close()
    assert glance(lab) is None
    lab.open([], notebook="a.ipynb", name=None)
    lab.close()
    assert glance(lab) == (own(lab).name, 1)


def test_without_sessions_or_without_a_notebook_it_tells_of_a_new_one(lab: Lab, tmp_path: Path) -> None:
    assert kept_at_a_glance(str(tmp_path), str(tmp_path / "b.ipynb")) == NONE_KEPT
    assert glance(lab, None) == NONE_KEPT


def grow(folder: Path) -> None:
    with (folder / "journal.jsonl").open("a") as journal:
        journal.write("{}\n")


def forget_turns(folder: Path) -> None:
    record = json.loads((folder / "session.json").read_text())
    del record["turns"]
    (folder / "session.json").write_text(json.dumps(record))


DOUBTS: dict[str, Callable[[Path], object]] = {
    "the journal grew": grow,
    "the journal is gone": lambda folder: (folder / "journal.jsonl").unlink(),
    "a reply waits to be recovered": lambda folder: (folder / "partial.json").write_text("{}"),
    "written by an older version": forget_turns,
    "session.json is no JSON": lambda folder: (folder / "session.json").write_text("{"),
    "session.json is no object": lambda folder: (folder / "session.json").write_text("[]"),
    "session.json is gone": lambda folder: (folder / "session.json").unlink(),
    "session.json has odd values": lambda folder: (folder / "session.json").write_text('{"notebook": 3}'),
    "of another notebook": lambda folder: (folder / "session.json").write_text('{"notebook": "b.ipynb"}'),
}


@pytest.mark.parametrize("doubt", DOUBTS)
def test_where_something_is_doubtful_the_session_is_opened(lab: Lab, doubt: str) -> None:
    DOUBTS[doubt](own(lab))
    assert glance(lab) is None


def test_a_session_that_somebody_holds_is_opened_to_say_so(lab: Lab) -> None:
    lock = WriterLock(own(lab) / "journal.jsonl")
    assert glance(lab) is None
    lock.release()
    assert glance(lab) == (own(lab).name, 2)


def test_a_journal_that_cannot_be_written_is_opened_to_say_so(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    journal, access = own(lab) / "journal.jsonl", os.access
    journal.chmod(0o400)

    def of_a_plain_user(path: str | Path, mode: int) -> bool:  # the superuser may write it all the same
        return access(path, mode) and not (Path(path) == journal and mode == os.W_OK)

    monkeypatch.setattr(os, "access", of_a_plain_user)
    assert glance(lab) is None


def test_a_turn_that_was_broken_off_is_told_by_opening(lab: Lab) -> None:
    lab.open([], notebook="a.ipynb", name=None)
    lab.close()
    folder = own(lab)
    lines = (folder / "journal.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "journal.jsonl").write_bytes(b"".join(lines[:-1]))  # less the end of the last turn
    lab.open([], notebook="a.ipynb", name=None)
    lab.close()
    assert glance(lab) is None
