"""Files that a person reads: whole or not at all, and what to do when the disk is full."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from nbagent.core.errors import JournalUnwritable, UsageProblem
from nbagent.runtime.export import export
from nbagent.runtime.skill_desk import new_skill
from nbagent.store.files import write_whole

FREE = "No space left on device); free some space on that disk"


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def write_text(self: Path, *args: Any, **options: Any) -> int:
        self.touch()  # a name takes no block
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", write_text)


def test_an_export_onto_a_full_disk_leaves_the_old_one(tmp_path: Path, full_disk: None) -> None:
    (tmp_path / "talk.md").write_bytes(b"old")
    with pytest.raises(JournalUnwritable) as refused:
        export((), tmp_path / "talk.md", title="t")
    assert FREE in str(refused.value)
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("talk.md", b"old")]


def test_a_skill_that_a_full_disk_does_not_take_leaves_nothing(tmp_path: Path, full_disk: None) -> None:
    with pytest.raises(UsageProblem) as refused:
        new_skill(tmp_path / "skills", "mine", "Does it.", home=tmp_path / "home")
    assert FREE in str(refused.value)
    assert list(tmp_path.glob("skills/*")) == []


def test_a_file_is_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "real.md").write_text("old")
    (tmp_path / "link.md").symlink_to("real.md")
    write_whole(tmp_path / "link.md", "neu\n")
    assert (tmp_path / "link.md").is_symlink()
    assert (tmp_path / "real.md").read_bytes() == b"neu\n"
