from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from nbagent.core.errors import ToolError
from nbagent.tools.paths import file_status, open_file, resolve, resolve_for_writing, shown_path


@pytest.fixture
def root(tmp_path):
    (tmp_path / "work" / "sub").mkdir(parents=True)
    (tmp_path / "work" / "a.txt").write_text("a")
    (tmp_path / "outside.txt").write_text("secret")
    return tmp_path / "work"


def test_relative_paths_start_at_the_working_folder(root):
    assert resolve("b.txt", root, cwd=root / "sub") == root / "sub" / "b.txt"
    assert shown_path(root / "sub" / "b.txt", root) == "sub/b.txt"


@pytest.mark.parametrize("path", ["../outside.txt", "/etc/passwd", "sub/../../outside.txt", "~/x", "~root/x"])
def test_paths_that_lead_outside_are_refused(root, path):
    if path == "~root/x" and os.path.expanduser(path) == path:
        pytest.skip("there is no user root")
    with pytest.raises(ToolError, match="outside the workspace"):
        resolve(path, root, cwd=root)


def test_links_are_resolved_before_the_check(root):
    (root / "link").symlink_to(root.parent / "outside.txt")
    (root / "folder").symlink_to(root.parent)
    for path in ("link", "folder/outside.txt", "folder/new.txt"):
        with pytest.raises(ToolError, match="outside the workspace"):
            resolve(path, root, cwd=root)


def test_a_dangling_link_to_the_outside_is_refused(root):
    (root / "later").symlink_to(root.parent / "not_yet.txt")
    with pytest.raises(ToolError, match="outside"):
        resolve_for_writing("later", root, cwd=root)


def test_a_link_that_leads_to_itself_is_refused(root):
    (root / "loop").symlink_to(root / "loop")
    with pytest.raises(ToolError, match="itself"):
        resolve("loop", root, cwd=root)


def test_a_workspace_that_is_itself_a_link_works(root, tmp_path):
    (tmp_path / "alias").symlink_to(root)
    assert resolve("a.txt", tmp_path / "alias", cwd=tmp_path / "alias") == root / "a.txt"


def test_extra_roots_may_be_read_but_not_written(root, tmp_path):
    other = tmp_path / "skills"
    other.mkdir()
    assert resolve(str(other / "s.md"), root, cwd=root, extra_roots=(other,)) == other / "s.md"
    with pytest.raises(ToolError, match="outside"):
        resolve_for_writing(str(other / "s.md"), root, cwd=root)


def test_a_folder_whose_name_only_begins_like_the_root_is_outside(root):
    (root.parent / "work2").mkdir()
    with pytest.raises(ToolError, match="outside"):
        resolve("../work2/x", root, cwd=root)


@pytest.mark.parametrize("path", ["", "a\0b", "a\nb", "x" * 300, "/".join(["d" * 100] * 50), "\ud800"])
def test_names_that_cannot_be_paths_are_refused(root, path):
    with pytest.raises(ToolError):
        resolve(path, root, cwd=root)


def test_pipes_sockets_folders_and_devices_are_named_not_opened(root):
    os.mkfifo(root / "pipe")
    with pytest.raises(ToolError, match="pipe"):
        open_file(root / "pipe", "pipe")
    with pytest.raises(ToolError, match="folder"):
        file_status(root / "sub", "sub")
    with pytest.raises(ToolError, match="device"):
        file_status(Path("/dev/null"), "/dev/null")
    with socket.socket(socket.AF_UNIX) as server:
        before = Path.cwd()
        os.chdir(root)
        try:
            server.bind("sock")
        finally:
            os.chdir(before)
        with pytest.raises(ToolError, match="socket"):
            file_status(root / "sock", "sock")


def test_a_missing_file_suggests_near_names(root):
    with pytest.raises(ToolError, match=r"did you mean 'a\.txt'"):
        file_status(root / "a.text", "a.text")


def test_the_record_of_the_session_is_not_written(root):
    with pytest.raises(ToolError, match="record"):
        resolve_for_writing(".nbagent/sessions/s/journal.jsonl", root, cwd=root)
    assert resolve_for_writing(".nbagent/MEMORY.md", root, cwd=root) == root / ".nbagent" / "MEMORY.md"


def test_the_log_of_a_day_is_only_appended_to(root):
    for path in (".nbagent/memory/2026-11-30.md", "./x/../.nbagent/memory/2026-11-30.MD"):
        with pytest.raises(ToolError, match="only appended to; use remember"):
            resolve_for_writing(path, root, cwd=root)
    for path in (".nbagent/memory/topic.md", "memory/2026-11-30.md"):
        assert resolve_for_writing(path, root, cwd=root) == root / path
