"""The tree: paths, forks, and the turns in it."""

from __future__ import annotations

import pytest

from nbagent.core.entries import Body, Entry
from nbagent.core.errors import BrokenPath
from nbagent.core.tree import SessionTree
from tests.core.builders import calls, end, moved, path, prunes, result, says, start, steer, user


def turn(name: str) -> list[Body]:
    return [start(name), user(f"do {name}"), says(f"did {name}"), end(name)]


def tree_of(*bodies: Body) -> SessionTree:
    return SessionTree(path(*bodies))


def grow(tree: SessionTree, parent: str | None, *bodies: Body) -> list[str]:
    """Add bodies below `parent`; return their ids."""
    ids = []
    for body in bodies:
        entry = Entry(f"n{len(tree) + 1}", parent, float(len(tree)), body)
        tree.add(entry)
        parent = entry.id
        ids.append(entry.id)
    return ids


def names(tree: SessionTree) -> list[str]:
    return [n.turn for n in tree.turns_on_path()]


def test_the_leaf_is_the_entry_written_last() -> None:
    tree = tree_of(*turn("A"))
    assert tree.leaf == "e4"
    assert [e.id for e in tree.path()] == ["e1", "e2", "e3", "e4"]
    assert [e.id for e in tree.path("e2")] == ["e1", "e2"]


def test_an_empty_tree_has_no_leaf_and_no_turns() -> None:
    tree = SessionTree()
    assert (tree.leaf, tree.path(), tree.turns(), tree.turn("1"), len(tree)) == (None, [], (), None, 0)


@pytest.mark.parametrize("name", ["1", "12", "2", "-2", "12a", "d", "df", "dea"])
def test_a_number_off_the_path_or_a_short_word_is_no_turn(name: str) -> None:
    """`%agent fork 1` with nothing on the path took the turn whose id begins with 1; `%context pin df` a turn df…"""
    tree = tree_of(*turn("12a4f6c8"), *turn("df34deaf"), *turn("dea9beef"))
    tree.add(Entry("m", None, 0.0, moved()))
    assert names(tree) == []
    assert tree.turn(name) is None
    for whole in ("12a4", "df34", "dea9", "12a4f6c8"):
        found = tree.turn(whole)
        assert found is not None
        assert found.turn.startswith(whole)


def test_an_entry_must_name_a_parent_that_is_there_and_an_id_that_is_free() -> None:
    tree = tree_of(*turn("A"))
    with pytest.raises(BrokenPath, match="not there"):
        tree.add(Entry("x", "nowhere", 0.0, says("?")))
    with pytest.raises(BrokenPath, match="twice"):
        tree.add(Entry("e1", None, 0.0, says("?")))
    assert tree.leaf == "e4"


def test_an_edited_cell_forks_and_the_old_turns_can_be_brought_back() -> None:
    """peers 9: A, B, C; B is edited: the path holds A and the new B; the old B and C stay in the tree."""
    tree = tree_of(*turn("A"), *turn("B"), *turn("C"))
    grow(tree, "e4", moved(), *turn("B2"))
    assert names(tree) == ["A", "B2"]
    assert [n.turn for n in tree.turns()] == ["A", "B", "C", "B2"]
    old = tree.turn("C")
    assert old is not None
    assert not old.current
    assert [e.id for e in tree.path(old.last)] == [f"e{i}" for i in range(1, 13)]
    grow(tree, old.last, moved("open"))
    assert names(tree) == ["A", "B", "C"]


def test_a_fork_shares_its_prefix() -> None:
    tree = tree_of(*turn("A"), *turn("B"))
    before = list(tree.path())
    grow(tree, "e4", moved(), *turn("C"))
    assert tree.path()[:4] == before[:4]
    assert tree.children("e4") == ("e5", "n9")


def test_a_revert_takes_turns_off_the_path() -> None:
    tree = tree_of(*turn("A"), *turn("B"))
    grow(tree, "e4", moved("revert"))
    assert names(tree) == ["A"]
    assert tree.turns()[0].last == "e4"


def test_a_new_conversation_is_a_second_root() -> None:
    tree = tree_of(*turn("A"))
    grow(tree, None, moved("new"), *turn("B"))
    assert names(tree) == ["B"]
    assert tree.children(None) == ("e1", "n5")


def test_a_moved_leaf_ends_the_turn_before_it() -> None:
    tree = tree_of(*turn("A"))
    grow(tree, "e2", moved("revert"), says("someone else's"))
    assert tree.turns()[0].last == "e4"


def test_what_a_resumed_turn_adds_after_its_end_is_still_its_own() -> None:
    tree = tree_of(
        start("A"), user("go"), calls(id="a"), result("a"), end("A", "limit"), steer("go on"), says("done"), end("A")
    )
    (node,) = tree.turns()
    assert node.last == "e8"
    assert node.end is not None
    assert node.end.outcome == "completed"


def test_the_end_of_a_resumed_turn_is_the_last_one_also_while_it_runs() -> None:
    tree = tree_of(*turn("A"), steer("more"), says("half"))
    node = tree.turns()[0]
    assert node.last == "e6"
    assert node.end is not None


def test_a_turn_that_runs_or_crashed_has_no_end() -> None:
    node = tree_of(start("A"), user("go"), calls(id="a")).turns()[0]
    assert (node.end, node.last) == (None, "e3")


def test_a_pruning_between_turns_belongs_to_the_turn_before() -> None:
    tree = tree_of(*turn("A"), prunes("e3"), *turn("B"))
    assert [n.last for n in tree.turns()] == ["e5", "e9"]


def test_turns_are_named_by_id_number_and_start_of_id() -> None:
    tree = tree_of(*turn("7fab01"), *turn("7fab22"), *turn("91c4"))

    def found(name: str) -> str | None:
        node = tree.turn(name)
        return node.turn if node else None

    assert [found(n) for n in ("1", "2", "3", "-1", "-3")] == ["7fab01", "7fab22", "91c4", "91c4", "7fab01"]
    assert [found(n) for n in ("7fab0", "7fab", "7fab22", "91c", "")] == ["7fab01", None, "7fab22", None, None]
    assert [found(n) for n in ("0", "4", "-4", "x", "1.0", " 1")] == [None] * 6


def test_a_long_number_beyond_the_path_is_read_as_the_start_of_an_id() -> None:
    tree = tree_of(*turn("9134ab"), *turn("22cd"))
    assert [n.turn if n else None for n in map(tree.turn, ("9134", "91", "22"))] == ["9134ab", None, None]


def test_numbers_count_turns_of_the_current_path_only() -> None:
    tree = tree_of(*turn("A"), *turn("B"))
    grow(tree, "e4", moved(), *turn("C"))
    node = tree.turn("2")
    assert node is not None
    assert node.turn == "C"


def test_ten_thousand_entries_are_built_at_once() -> None:
    tree = tree_of(*(b for i in range(2500) for b in turn(f"t{i}")))
    assert len(tree) == len(tree.path()) == 10_000
    assert len(tree.turns_on_path()) == 2500
