"""Which earlier turn a running cell is (DECISIONS 8, 9)."""

from __future__ import annotations

from dataclasses import replace

from nbagent.core.entries import Entry, TurnStart
from nbagent.core.tree import TurnNode
from nbagent.runtime.matching import CellKey, earlier_turn, fork_parent, stale_turns


def turn(name: str, order: int, source: str, *, cell: str | None = None, current: bool = True) -> TurnNode:
    body = TurnStart(turn=name, model="m", policy="p", cell_id=cell, source_hash=source, order=order)
    start = Entry(f"s-{name}", f"p-{name}", 0.0, body)
    return TurnNode(turn=name, start=start, body=body, end=None, last=start.id, current=current)


def key(order: int, source: str, cell: str | None = None) -> CellKey:
    return CellKey(cell_id=cell, source_hash=source, order=order)


def name_of(found: TurnNode | None) -> str | None:
    return found.turn if found else None


THREE = (turn("A", 1, "a"), turn("B", 2, "b"), turn("C", 3, "c"))


def test_the_cell_id_decides_where_there_is_one() -> None:
    turns = (turn("A", 1, "a", cell="x"), turn("A2", 2, "b", cell="x"), turn("B", 3, "a", cell="y"))
    assert name_of(earlier_turn(turns, key(9, "a", "x"), previous=None)) == "A2"
    assert earlier_turn(turns, key(1, "a", "z"), previous=None) is None
    assert earlier_turn(turns, key(1, "a"), previous=None) is None  # nameless cells are not those with names


def test_without_ids_the_same_source_nearest_in_order() -> None:
    turns = (turn("A", 1, "go"), turn("B", 2, "b"), turn("C", 3, "go"))
    assert name_of(earlier_turn(turns, key(1, "go"), previous=None)) == "A"
    assert name_of(earlier_turn(turns, key(3, "go"), previous=None)) == "C"
    assert name_of(earlier_turn(turns, key(7, "go"), previous=None)) == "C"


def test_what_is_typed_at_a_prompt_is_never_run_again() -> None:
    assert name_of(earlier_turn(THREE, key(1, "a"), previous=None)) == "A"
    assert earlier_turn(THREE, replace(key(1, "a"), typed=True), previous=None) is None
    assert earlier_turn(THREE, replace(key(1, "new"), typed=True), previous=None) is None


def test_an_imported_turn_is_of_no_cell() -> None:
    imported = (turn("A", 1, ""), turn("B", 2, ""))
    assert earlier_turn(imported[:1], key(1, "new"), previous=None) is None
    assert earlier_turn(imported, key(1, "new"), previous=None) is None
    assert earlier_turn(imported, key(2, "new"), previous=imported[0]) is None


def test_an_edited_cell_is_known_by_the_one_before_it() -> None:
    assert name_of(earlier_turn(THREE, key(2, "b2"), previous=THREE[0])) == "B"
    assert name_of(earlier_turn(THREE, key(1, "a2"), previous=None)) == "A"


def test_an_inserted_cell_leaves_the_later_ones_what_they_are() -> None:
    assert name_of(earlier_turn(THREE, key(3, "b"), previous=THREE[0])) == "B"
    assert name_of(earlier_turn(THREE, key(4, "c2"), previous=THREE[1])) == "C"
    assert earlier_turn(THREE, key(5, "new"), previous=THREE[2]) is None


def test_a_rerun_forks_only_on_the_current_path() -> None:
    assert fork_parent(THREE[1]) == (True, "p-B")
    assert fork_parent(turn("B", 2, "b", current=False)) == (False, None)
    assert fork_parent(None) == (False, None)


def test_stale_turns_are_those_left_behind_and_not_replaced() -> None:
    turns = (turn("A", 1, "a", cell="A"), turn("B", 2, "b", cell="B", current=False),
             turn("C", 3, "c", cell="C", current=False), turn("B2", 2, "b2", cell="B"))  # fmt: skip
    assert stale_turns(turns) == {"C"}
