"""CellSite, CellTracker and the hash of a source, without a kernel."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from nbagent.notebook.cells import RanCell, source_hash, where
from nbagent.notebook.tracker import CellTracker, is_interactive, raw_source


class Events:
    def __init__(self) -> None:
        self.callbacks: dict[str, list[Callable[..., Any]]] = {"pre_run_cell": [], "post_run_cell": []}

    def register(self, event: str, callback: Callable[..., Any]) -> None:
        self.callbacks[event].append(callback)

    def unregister(self, event: str, callback: Callable[..., Any]) -> None:
        self.callbacks[event].remove(callback)

    def fire(self, event: str, value: Any) -> None:
        for callback in list(self.callbacks[event]):
            callback(value)


def a_shell(*, parent: dict[str, Any] | None = None, **user_ns: Any) -> Any:
    shell = SimpleNamespace(events=Events(), user_ns=user_ns)
    if parent is not None:
        shell.kernel = SimpleNamespace(get_parent=lambda _channel: parent)
    return shell


def info(source: str, cell_id: str | None = None) -> Any:
    return SimpleNamespace(raw_cell=source, cell_id=cell_id)


def run(
    shell: Any, source: str, *, cell_id: str | None = None, ok: bool = True, inside: Callable[[], Any] = lambda: None
) -> None:
    cell = info(source, cell_id)
    shell.events.fire("pre_run_cell", cell)
    inside()
    shell.events.fire("post_run_cell", SimpleNamespace(info=cell, success=ok))


@pytest.fixture
def shell() -> Any:
    return a_shell()


@pytest.fixture
def tracker(shell: Any) -> CellTracker:
    tracker = CellTracker(shell)
    tracker.register()
    return tracker


def test_the_request_says_which_cell_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JPY_SESSION_NAME", "/n/a.ipynb")
    parent = {"metadata": {"cellId": "c7", "deletedCells": ["c1"]}, "content": {"allow_stdin": True, "code": "1"}}
    site = where(a_shell(parent=parent))
    assert (site.cell_id, site.notebook_path, site.deleted_cells, site.interactive) == (
        "c7",
        "/n/a.ipynb",
        ("c1",),
        True,
    )
    assert raw_source(a_shell(parent=parent)) == "1"


def test_the_path_that_vs_code_leaves_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JPY_SESSION_NAME", "/n/a.ipynb")
    assert where(a_shell(__vsc_ipynb_file__="/v/b.ipynb")).notebook_path == "/v/b.ipynb"


def test_front_ends_without_ids_or_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    site = where(a_shell(parent={"metadata": {}, "content": {"allow_stdin": False}}))
    assert (site.cell_id, site.notebook_path, site.interactive) == (None, None, False)


def test_a_terminal_is_interactive_and_a_kernel_that_says_nothing_is_not() -> None:
    assert is_interactive(a_shell())
    assert not is_interactive(a_shell(parent={}))


def test_line_ends_do_not_change_the_hash() -> None:
    assert source_hash("a\r\nb\n\n") == source_hash("a\nb") != source_hash("a\n b")
    assert len(source_hash("\ud800")) == 16


def test_cells_of_the_person_are_taken_once(shell: Any, tracker: CellTracker) -> None:
    run(shell, "a = 1", cell_id="c1")
    run(shell, "1/0", ok=False)
    expected = (
        RanCell(source="a = 1", cell_id="c1", succeeded=True),
        RanCell(source="1/0", cell_id=None, succeeded=False),
    )
    assert tracker.take() == expected
    assert tracker.take() == ()


def test_nested_code_and_turns_are_not_recorded(shell: Any, tracker: CellTracker) -> None:
    run(shell, "%%agent\nhi", inside=lambda: run(shell, "b = 2"))
    run(shell, "%%time\n%%agent\nhi", inside=tracker.claim)
    assert tracker.take() == ()


def test_a_blank_cell_does_not_disturb_the_depth(shell: Any, tracker: CellTracker) -> None:
    def blank_inside() -> None:
        shell.events.fire("post_run_cell", SimpleNamespace(info=info(""), success=True))
        assert tracker.depth() == 1

    run(shell, "a", inside=blank_inside)
    assert (tracker.depth(), len(tracker.take())) == (0, 1)


def test_a_cell_without_a_result_counts_as_failed(shell: Any, tracker: CellTracker) -> None:
    shell.events.fire("pre_run_cell", info("a"))
    shell.events.fire("post_run_cell", None)
    assert [c.succeeded for c in tracker.take()] == [False]


def test_turns_are_counted_and_one_cell_keeps_its_order(shell: Any, tracker: CellTracker) -> None:
    orders: list[int] = []
    for _ in range(2):
        run(shell, "%%agent", inside=lambda: orders.extend((tracker.claim().order, tracker.claim().order)))
    assert orders == [1, 1, 2, 2]


@pytest.mark.parametrize(("parent", "history", "typed"), [(None, True, True), (None, False, False), ({}, True, False)])
def test_a_cell_is_typed_where_there_is_no_kernel_and_a_history(
    parent: dict[str, Any] | None, history: bool, typed: bool
) -> None:
    """A script's cells are not in the history; those of a kernel may be run again."""
    shell = a_shell(parent=parent)
    tracker = CellTracker(shell)
    tracker.register()
    cell = SimpleNamespace(raw_cell="%%agent", cell_id=None, store_history=history)
    shell.events.fire("pre_run_cell", cell)
    assert tracker.claim().typed is typed
    shell.events.fire("post_run_cell", SimpleNamespace(info=cell, success=True))


def test_a_cell_whose_end_was_never_told_is_forgotten() -> None:
    parent: dict[str, Any] = {"header": {"msg_id": "1"}}
    shell = a_shell(parent=parent)
    tracker = CellTracker(shell)
    tracker.register()
    shell.events.fire("pre_run_cell", info("lost"))
    assert tracker.depth() == 1
    parent["header"] = {"msg_id": "2"}
    assert tracker.depth() == 0
    run(shell, "next")
    assert [c.source for c in tracker.take()] == ["next"]


def test_unregister_leaves_no_callback(shell: Any, tracker: CellTracker) -> None:
    tracker.unregister()
    tracker.unregister()
    assert shell.events.callbacks == {"pre_run_cell": [], "post_run_cell": []}
