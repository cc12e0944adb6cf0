"""The tool `recall`: what was compacted away or cleared is found and read again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from nbagent.context.archive import Archive, parts_of
from nbagent.core.entries import Entry, ToolResult
from nbagent.core.errors import ToolError
from nbagent.core.messages import joined_text, text_block
from nbagent.core.ranking import Words
from nbagent.runtime.recalling import ConversationRecall
from nbagent.store.artifacts import Artifacts
from nbagent.tools.recall import RECALL_SPEC, SNIPPET_CHARS, RecallTool
from nbagent.tools.registry import builtin_tools, validate_input
from tests.core.builders import call, calls, compacts, end, path, prunes, reply, result, says, stamp, start, user
from tests.tools.builders import Desk

FILLER = "\n".join(f"line {i} of something else entirely" for i in range(120))


def conversation() -> list[Entry]:
    return path(
        start(), user("Load the harbour data"), calls("read", id="a"),
        result("a", f"{FILLER}\nthe harbour gauge is HG-2231 in metres\n{FILLER}", name="read"), says("It is loaded."),
        end(), start("t2"), user("Now something about weather"), says("Rain."), end("t2"), compacts("e7"),
    )  # fmt: skip


def desk(tmp_path: Path, entries: Sequence[Entry], **options: object) -> Desk:
    recall = ConversationRecall(path=lambda: entries, artifacts=Artifacts(tmp_path / "artifacts"))
    return Desk(tmp_path, recall=recall, **options)


def test_recall_is_in_the_list_of_tools_and_needs_no_approval() -> None:
    assert RECALL_SPEC in [t.spec for t in builtin_tools()]
    assert RECALL_SPEC.access == "read"
    assert RECALL_SPEC.concurrent
    assert RECALL_SPEC.formats_itself


def test_a_search_shows_where_the_words_are_in_a_short_snippet(tmp_path: Path) -> None:
    output = desk(tmp_path, conversation()).call(RecallTool(), query="which harbour gauge was it, in metres?")
    first = output.text.split("\n\n")[0]
    assert first.startswith("[e4 · turn 1 · result of read]")
    assert "HG-2231" in first
    assert len(first) < SNIPPET_CHARS + 60
    assert first.endswith("…")


def test_what_left_the_context_comes_before_what_is_still_in_it(tmp_path: Path) -> None:
    entries = path(
        start(), calls("read", id="a"), result("a", "the tide table of Emden", name="read"), says("the tide table"),
        end(), start("t2"), user("tide tide tide table of Emden"), prunes("e3"),
    )  # fmt: skip
    found = desk(tmp_path, entries).call(RecallTool(), query="tide table Emden").meta["found"]
    assert found[0] == "e3"
    assert "e7" in found


def test_an_entry_is_read_by_its_pointer_however_it_is_written(tmp_path: Path) -> None:
    at = desk(tmp_path, conversation())
    for id in ("e2", "`recall` e2", "recall e2"):
        assert at.call(RecallTool(), id=id).text == "Load the harbour data"


def test_a_part_of_a_long_entry_is_read_by_its_pointer(tmp_path: Path) -> None:
    at = desk(tmp_path, conversation())
    parts = parts_of(joined_text(conversation()[3].body.content))
    assert len(parts) == 3
    for number, part in enumerate(parts, 1):
        head, _, text = at.call(RecallTool(), id=f"`recall` e4#{number}").text.partition("\n")
        assert text == part
        assert f"part {number} of 3" in head
        assert ("e4#2" in head) == (number == 1)
    with pytest.raises(ToolError, match="e4 has 3 parts, no '4'"):
        at.call(RecallTool(), id="e4#4")
    with pytest.raises(ToolError, match="no 'x'"):
        at.call(RecallTool(), id="e4#x")


def test_a_range_is_read_with_a_heading_for_each_entry(tmp_path: Path) -> None:
    at = desk(tmp_path, conversation())
    text = at.call(RecallTool(), id="e7..e9").text
    assert text == "[e8 · the person]\nNow something about weather\n\n[e9 · your reply]\nRain."
    assert at.call(RecallTool(), id="e9", to="e7").text == text


def test_a_long_entry_continues_where_its_hint_says(tmp_path: Path) -> None:
    at = desk(tmp_path, conversation(), cap_chars=2_000)
    whole, offset = "", 0
    for _ in range(20):
        text = at.call(RecallTool(), id="e4", offset=offset).text
        assert len(text) <= 2_000
        body, _, hint = text.rpartition("\n[")
        whole += body + "\n"
        if "offset=" not in hint:
            break
        offset = int(hint.split("offset=")[1].split(")")[0])
    assert whole.strip() == desk(tmp_path, conversation()).call(RecallTool(), id="e4").text.strip()


def test_a_result_whose_whole_text_is_an_artifact_is_found_and_read_in_full(tmp_path: Path) -> None:
    artifacts = Artifacts(tmp_path / "artifacts")
    full = f"{FILLER}\nthe zebra crossing\n{FILLER}"
    cut = ToolResult(call_id="a", name="python", content=(text_block("line 0 … cut"),), artifact=artifacts.put_text(full))
    at = desk(tmp_path, path(start(), user("hi"), calls("python", id="a"), cut))
    assert "zebra" in at.call(RecallTool(), query="zebra crossing").text
    assert at.call(RecallTool(), id="e4").text == full


def test_a_missing_artifact_leaves_what_was_shown(tmp_path: Path) -> None:
    cut = ToolResult(call_id="a", name="python", content=(text_block("shown"),), artifact="0" * 16)
    assert desk(tmp_path, path(start(), calls(id="a"), cut)).call(RecallTool(), id="e3").text == "shown"


def test_an_unknown_entry_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="no entry 'nope'; search for it with query"):
        desk(tmp_path, conversation()).call(RecallTool(), id="nope")


def test_neither_query_nor_id_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="query"):
        desk(tmp_path, conversation()).call(RecallTool())


def test_an_offset_past_the_end_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="past the end"):
        desk(tmp_path, conversation()).call(RecallTool(), id="e2", offset=99)


def test_nothing_found_is_said(tmp_path: Path) -> None:
    at = desk(tmp_path, conversation())
    assert "nothing in the conversation" in at.call(RecallTool(), query="zeppelin").text
    assert "nothing in the conversation" in at.call(RecallTool(), query="the of and").text


def test_what_recall_was_asked_and_brought_is_not_found_again(tmp_path: Path) -> None:
    entries = stamp(
        [start("t3"), reply(call("recall", "r", {"query": "harbour gauge"}), stop="tool_use"),
         result("r", "harbour gauge harbour gauge", name="recall")],
        before=conversation(),
    )  # fmt: skip
    assert set(desk(tmp_path, entries).call(RecallTool(), query="harbour gauge").meta["found"]) == {"e2", "e4"}


def test_the_index_grows_with_the_path_and_is_made_anew_after_a_fork(tmp_path: Path) -> None:
    entries = conversation()
    at = desk(tmp_path, entries)
    assert "nothing" in at.call(RecallTool(), query="walrus").text
    entries.extend(stamp([start("t3"), user("a walrus")], before=entries)[len(entries) :])
    assert "walrus" in at.call(RecallTool(), query="walrus").text
    del entries[2:]
    assert "nothing" in at.call(RecallTool(), query="walrus").text


def test_chinese_words_are_found(tmp_path: Path) -> None:
    entries = path(start(), user("港口的水位计编号是七"), says("好"), end(), start("t2"), user("天气"), compacts("e5"))
    assert desk(tmp_path, entries).call(RecallTool(), query="水位计").meta["found"] == ["e2"]


def test_a_query_that_is_a_number_is_taken_as_text() -> None:
    assert validate_input(RECALL_SPEC, {"query": 2231})["query"] == "2231"


def test_one_search_shows_all_that_the_loss_report_calls_one_retrieval(tmp_path: Path) -> None:
    """Its best five pieces of 2 KB whole, also several of one long entry."""
    long = "\n".join(f"the gauge of harbour {i} is HG-{i:04d}, measured at the quay" for i in range(400))
    entries = path(start(), user("read"), calls("read", id="a"), result("a", long, name="read"), says("done"), end(), start("t2"), user("x"), prunes("e4"))
    pieces = Archive(entries).search(Words().terms("gauge harbour quay measured"))
    assert len([p for p in pieces if p.entry_id == "e4"]) > 1
    output = desk(tmp_path, entries).call(RecallTool(), query="gauge harbour quay measured")
    assert all(p.text.strip() in output.text for p in pieces)
