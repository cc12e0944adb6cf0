"""Four kinds of rot: what is found, what is told, what is masked."""

from __future__ import annotations

from typing import Any

import pytest

from nbagent.context.rot import RotFinding, detect, known_files, moves_for, reminders, told_after
from nbagent.core.entries import Body, Entry, Snapshot, ToolResult
from nbagent.core.messages import text_block
from nbagent.core.view import build_view
from tests.core.builders import call, end, path, prunes, reply, says, stamp, start, user

TABLE = "\n".join(f"station {i} measured {i * 7} metres of water at noon" for i in range(40))
MODEL_TEXT = "x" * 9_000


def shows(name: str, text: str, id: str, status: Any = "ok", **meta: Any) -> list[Body]:
    """A call of the tool `name` with its result."""
    made = reply(call(name, id, {"path": meta.get("path", "")}), stop="tool_use")
    return [made, ToolResult(call_id=id, name=name, content=(text_block(text),), status=status, meta=meta)]


def reads(name: str, version: str, text: str = "", *, id: str, lines: tuple[int, int] = (1, 9), whole: bool = True) -> list[Body]:
    return shows("read", text or f"1\t{version}\n[9 lines, the whole file]", id, path=name, key=f"read:{name}", size=9,
                 file_sha256=version, mtime_ns=1, lines=list(lines), partial=not whole)  # fmt: skip


def inspects(id: str, text: str = "", **identities: str) -> list[Body]:
    body = text or ", ".join(f"{n}: DataFrame" for n in identities)
    return shows("inspect", body, id, key=f"inspect:{','.join(identities)}", variables=identities)


def turns(*groups: list[Body]) -> list[Entry]:
    bodies: list[Body] = []
    for number, group in enumerate(groups):
        bodies += [start(f"t{number}"), user("go on"), *group, says("Done."), end(f"t{number}")]
    return path(*bodies)


def find(entries: list[Entry], **options: Any) -> list[RotFinding]:
    return list(detect(build_view(entries), entries, **options))


def kinds(entries: list[Entry], **options: Any) -> list[tuple[str, str]]:
    return [(f.kind, f.where) for f in find(entries, **options)]


def test_a_clean_context_has_no_findings() -> None:
    assert find(turns(reads("a.csv", "v1", id="a"), inspects("b", df="1"))) == []
    assert find([]) == []


# ---------------------------------------------------------------- poisoning


def test_a_file_that_changed_on_disk_poisons_and_is_told_once() -> None:
    entries = turns(reads("a.csv", "v1", id="a"))
    found = find(entries, changed_on_disk={"a.csv": "77"})
    assert [(f.kind, f.where) for f in found] == [("poisoning", "a.csv")]
    text = reminders(found)
    assert text == "a.csv: it changed on disk since it was read (e4); read it again before you rely on it."
    told = told_after(found, [])
    assert reminders(found, told) == ""
    assert reminders(find(entries, changed_on_disk={"a.csv": "78"}), told) == text
    assert "gone from the disk" in str(find(entries, changed_on_disk={"a.csv": "gone"})[0])


def test_a_file_that_left_the_context_does_not_poison_it() -> None:
    entries = stamp([prunes("e4")], before=turns(reads("a.csv", "v1", id="a")))
    assert find(entries, changed_on_disk={"a.csv": "77"}) == []
    assert known_files(build_view(entries), entries) == ()


def test_a_read_whose_newer_version_left_the_context_is_poison() -> None:
    entries = turns(reads("a.csv", "v1", id="a"), reads("a.csv", "v2", id="b"))
    newer = next(e.id for e in entries if isinstance(e.body, ToolResult) and e.body.call_id == "b")
    found = find(stamp([prunes(newer)], before=entries))
    assert [(f.kind, f.where) for f in found] == [("poisoning", "a.csv")]
    assert not found[0].remind
    assert not found[0].placeholder


def test_the_models_own_edit_does_not_poison_what_it_read() -> None:
    edit = shows("edit", "replaced", "b", path="a.py", size=9, file_sha256="v2", lines=[0, 0], partial=True)
    assert find(turns(reads("a.py", "v1", id="a"), edit)) == []


def test_a_file_that_changed_back_is_no_finding() -> None:
    entries = turns(reads("a", "v1", id="a"), shows("write", "ok", "b", path="a", size=9, file_sha256="v2"),
                    shows("write", "ok", "c", path="a", size=9, file_sha256="v1"))  # fmt: skip
    assert [f for f in find(entries) if f.kind in ("poisoning", "clash")] == []


def test_a_variable_bound_anew_poisons_what_was_seen_of_it() -> None:
    snapshot = Snapshot(text="Changed variables: df.", state={"variables": {"df": ["DataFrame", "(3, 2)", "2"]}})
    entries = turns(inspects("a", df="1"))
    entries = stamp([start("t2"), snapshot, user("and?")], before=entries)
    assert kinds(entries) == [("poisoning", "df")]
    assert reminders(find(entries)) == ""  # the tail has said so


# ---------------------------------------------------------------- clash


def test_an_old_and_a_new_version_clash_and_the_old_one_is_masked_with_a_pointer() -> None:
    entries = turns(reads("a.csv", "v1", id="a"), reads("a.csv", "v2", id="b"))
    found = find(entries)
    assert [(f.kind, f.where) for f in found] == [("clash", "a.csv")]
    move = moves_for(found)
    assert move is not None
    assert list(move.placeholders) == ["e4"]
    assert "older version of a.csv (lines 1-9)" in move.placeholders["e4"]
    assert found[0].entry_ids[1] in move.placeholders["e4"]
    assert "`recall` e4" in move.placeholders["e4"]


def test_what_the_new_version_does_not_show_is_not_masked() -> None:
    entries = turns(
        reads("a.csv", "v1", id="a", lines=(1, 90), whole=False), reads("a.csv", "v2", id="b", lines=(50, 60), whole=False)
    )  # fmt: skip
    found = find(entries)
    assert [f.kind for f in found] == ["poisoning"]
    assert moves_for(found) is None


def test_a_file_written_anew_masks_what_was_read_of_it() -> None:
    write = shows("write", "written", "b", path="a.py", size=5, file_sha256="v2", lines=[1, 3], partial=False)
    assert kinds(turns(reads("a.py", "v1", id="a"), write)) == [("clash", "a.py")]


def test_two_looks_at_a_variable_clash() -> None:
    entries = turns(inspects("a", df="1"), inspects("b", df="2"))
    found = find(entries)
    assert [(f.kind, f.where) for f in found] == [("clash", "df")]
    assert "before it was bound anew" in found[0].placeholder


def test_a_look_at_several_variables_is_masked_only_when_all_were_seen_again() -> None:
    first = inspects("a", df="1", x="1")
    assert [f.placeholder for f in find(turns(first, inspects("b", df="2")))] == []
    found = find(turns(first, inspects("b", df="2"), inspects("c", x="1")))
    assert [f.kind for f in found] == ["clash"]


def test_the_same_identity_twice_is_no_clash() -> None:
    assert find(turns(inspects("a", df="1"), inspects("b", df="1"))) == []


# ---------------------------------------------------------------- confusion


def test_two_nearly_alike_files_are_told_apart_in_a_line() -> None:
    other = TABLE.replace("station 20 measured 140 metres", "station 20 measured 999 metres")
    found = find(turns(reads("north.csv", "v1", TABLE, id="a"), reads("south.csv", "w1", other, id="b")))
    assert [(f.kind, f.where) for f in found] == [("confusion", "north.csv and south.csv")]
    assert "only south.csv has 'station 20 measured 999 metres of water at noon'" in found[0].what
    assert "% alike" in reminders(found)
    assert reminders(found, told_after(found, [])) == ""
    assert moves_for(found) is None


def test_two_variables_of_one_shape_are_confusable() -> None:
    a, b = inspects("a", f"df: {TABLE}", df="1"), inspects("b", f"df2: {TABLE}", df2="2")
    found = find(turns(a, b))
    assert [(f.kind, f.where) for f in found] == [("confusion", "df and df2")]
    assert "the same: no line differs" in found[0].what


def test_line_numbers_and_closing_notes_do_not_make_a_difference() -> None:
    numbered = "\n".join(f"{i}\t{line}" for i, line in enumerate(TABLE.split("\n"), 1)) + "\n[40 lines, the whole file]"
    assert kinds(turns(reads("a", "v", TABLE, id="a"), reads("b", "w", numbered, id="b"))) == [("confusion", "a and b")]


def test_short_or_different_texts_are_not_confusable() -> None:
    assert find(turns(reads("a", "v", "one line", id="a"), reads("b", "w", "one line", id="b"))) == []
    words = " ".join(f"word{i}" for i in range(200))
    assert find(turns(reads("a", "v", TABLE, id="a"), reads("b", "w", words, id="b"))) == []


# ---------------------------------------------------------------- distraction


def test_a_large_old_result_that_nothing_used_distracts_and_is_masked() -> None:
    entries = turns(shows("python", MODEL_TEXT, "a"), [], [], [])
    found = find(entries)
    assert [f.kind for f in found] == ["distraction"]
    move = moves_for(found)
    assert move is not None
    assert "not used for 3 turns; `recall` e4 brings it back" in move.placeholders["e4"]


def test_what_is_new_small_or_used_does_not_distract() -> None:
    assert find(turns(shows("python", MODEL_TEXT, "a"), [], [])) == []
    assert find(turns(shows("python", "short", "a"), [], [], [])) == []
    used = shows("python", f"the gauge is HG-2231\n{MODEL_TEXT}", "a")
    assert find(turns(used, [], [], [says("HG-2231 is the gauge")])) == []


def test_a_read_whose_path_is_still_spoken_of_is_used() -> None:
    assert find(turns(reads("data/a.csv", "v", MODEL_TEXT, id="a"), [], [], [says("see data/a.csv")])) == []


def test_errors_are_never_masked() -> None:
    assert find(turns(shows("python", MODEL_TEXT, "a", status="error"), [], [], [])) == []


# ---------------------------------------------------------------- all


def test_poisoning_comes_first_and_what_clashes_does_not_also_distract() -> None:
    entries = turns(reads("a", "v1", MODEL_TEXT, id="a"), reads("a", "v2", MODEL_TEXT, id="b"), reads("p", "v", id="c"), [], [])
    found = find(entries, changed_on_disk={"p": "1"})
    assert [f.kind for f in found] == ["poisoning", "clash", "distraction"]
    assert len({f.entry_ids[0] for f in found if f.placeholder}) == 2


def test_a_finding_reads_as_a_line() -> None:
    line = str(find(turns(reads("a.csv", "v1", id="a")), changed_on_disk={"a.csv": "7"})[0])
    assert line == "poisoning: a.csv: it changed on disk since it was read (e4); read it again before you rely on it"


@pytest.mark.parametrize("meta", [{}, {"path": 5}, {"path": "a", "size": "x", "lines": "?"}, {"variables": ["df"]},
                                  {"variables": {"df": None}, "key": 7}])  # fmt: skip
def test_results_with_odd_meta_do_no_harm(meta: dict[str, Any]) -> None:
    entries = turns(shows("read", "a", "a", **meta), shows("inspect", "b", "b", **meta))
    find(entries)
    known_files(build_view(entries), entries)
