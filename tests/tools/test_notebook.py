from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbagent.core.errors import ToolError
from nbagent.tools.files import ReadTool
from nbagent.tools.ipynb import cell_text, outline_line, parse_notebook
from nbagent.tools.notebook import NotebookTool
from nbagent.tools.tool import SeenCell
from tests.tools.builders import Desk, FakeNotebook

NOTEBOOK = NotebookTool()
CORPUS = os.environ.get("NBAGENT_NOTEBOOK_CORPUS")


def code(source, identity="", outputs=(), count=None) -> dict[str, Any]:
    return {"cell_type": "code", "id": identity, "source": source, "outputs": list(outputs), "execution_count": count}


def text_output(text) -> dict[str, Any]:
    return {"output_type": "stream", "name": "stdout", "text": [text]}


def figure() -> dict[str, Any]:
    return {"output_type": "display_data", "data": {"image/png": "A" * 40_000, "text/plain": ["<Figure>"]}}


def open_notebook(tmp_path, cells, ran=()) -> Desk:
    path = tmp_path / "n.ipynb"
    path.write_text(json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": list(cells)}))
    return Desk(tmp_path, notebook=FakeNotebook(path, ran))


def run(order, identity, source, ok=True) -> SeenCell:
    return SeenCell(order=order, cell_id=identity, source=source, ok=ok)


def test_the_outline_shows_one_line_a_cell(tmp_path):
    cells = [{"cell_type": "markdown", "id": "m", "source": ["# Title\n", "more"]}, code("x = 1\nx", "c", [figure(), text_output("hi\n")], 4)]
    text = open_notebook(tmp_path, cells).call(NOTEBOOK, action="outline").text
    assert text.split("\n") == [
        "[1] · markdown · id=m · 2 lines: # Title",
        "[2] · code · id=c · run 4 · 2 lines · outputs: image/png 29 KB, stdout 3 characters: x = 1",
        "[2 cells in the file, 0 more ran unsaved]",
    ]


def test_sources_come_by_number_range_and_id(tmp_path):
    desk = open_notebook(tmp_path, [code(f"v = {i}", f"id{i}") for i in range(1, 6)])
    text = desk.call(NOTEBOOK, action="source", cells=["1", "3-4", "id5"]).text
    assert [i for i in range(1, 6) if f"v = {i}" in text] == [1, 3, 4, 5]


def test_outputs_come_on_demand_with_images_named_and_length_bounded(tmp_path):
    desk = open_notebook(tmp_path, [code("x", "c", [figure(), text_output("y" * 50_000)])])
    text = desk.call(NOTEBOOK, action="outputs", cells=["c"]).text
    assert "[image/png, 29 KB, not shown]" in text
    assert "AAAA" not in text
    assert len(text) < 9_000


def test_an_error_output_is_its_traceback_without_colours(tmp_path):
    error = {"output_type": "error", "ename": "E", "evalue": "v", "traceback": ["\x1b[31mline 1\x1b[0m", "E: v"]}
    assert "line 1\nE: v" in open_notebook(tmp_path, [code("x", "c", [error])]).call(NOTEBOOK, action="outputs", cells=["1"]).text


def test_an_unknown_cell_is_an_error_that_lists_near_ones(tmp_path):
    desk = open_notebook(tmp_path, [code("x", "load-data")])
    with pytest.raises(ToolError, match="did you mean load-data"):
        desk.call(NOTEBOOK, action="source", cells=["load-dat"])
    with pytest.raises(ToolError, match="cells 1-1"):
        desk.call(NOTEBOOK, action="source", cells=["9"])
    with pytest.raises(ToolError, match="name the cells"):
        desk.call(NOTEBOOK, action="outputs")


def test_cells_that_ran_are_laid_over_the_file(tmp_path):
    # DECISIONS 13
    ran = [run(1, "a", "x = 1"), run(2, "b", "y = 3"), run(3, "new", "z = 4", ok=False)]
    text = open_notebook(tmp_path, [code("x = 1", "a"), code("y = 2", "b")], ran).call(NOTEBOOK, action="outline").text
    assert "[1] · code · id=a · ran #1 in this kernel · 1 line: x = 1" in text
    assert "ran #2 in this kernel, with unsaved source" in text
    assert "[run:3] · code · id=new · ran #3, failed, unsaved: not in the file" in text
    assert "[2 cells in the file, 1 more ran unsaved]" in text


def test_the_source_that_ran_is_shown_before_the_saved_one(tmp_path):
    desk = open_notebook(tmp_path, [code("y = 2", "b")], [run(1, "b", "y = 3")])
    text = desk.call(NOTEBOOK, action="source", cells=["b"]).text
    assert text.index("y = 3") < text.index("[the file still has:]\ny = 2")


def test_unsaved_cells_are_named_by_their_run(tmp_path):
    desk = open_notebook(tmp_path, [], [run(7, None, "q = 1")])
    assert "q = 1" in desk.call(NOTEBOOK, action="source", cells=["run:7"]).text


def test_an_empty_file_still_lists_what_ran(tmp_path):
    path = tmp_path / "n.ipynb"
    path.write_bytes(b"")
    desk = Desk(tmp_path, notebook=FakeNotebook(path, [run(1, "a", "x = 1")]))
    assert "[run:1]" in desk.call(NOTEBOOK, action="outline").text
    with pytest.raises(ToolError, match="empty"):
        Desk(tmp_path, notebook=FakeNotebook(path)).call(NOTEBOOK, action="outline")


def test_an_unknown_path_still_lists_what_ran(tmp_path):
    desk = Desk(tmp_path, notebook=FakeNotebook(None, [run(1, "a", "x = 1")]))
    assert "not known; only cells that ran" in desk.call(NOTEBOOK, action="outline").text


def test_a_proposal_goes_to_the_notebook(tmp_path):
    # DECISIONS 13
    desk = open_notebook(tmp_path, [])
    assert desk.call(NOTEBOOK, action="propose", source="df.plot()").text == "The cell is offered below."
    assert desk.options["notebook"].proposed == ["df.plot()"]
    with pytest.raises(ToolError, match="source is empty"):
        desk.call(NOTEBOOK, action="propose")


def test_without_a_notebook_the_model_is_told(tmp_path):
    with pytest.raises(ToolError, match="no notebook"):
        Desk(tmp_path).call(NOTEBOOK, action="outline")


def test_formats_2_and_3_are_read():
    old = {
        "nbformat": 3,
        "worksheets": [{"cells": [
            {"cell_type": "heading", "level": 2, "source": "Part"},
            {"cell_type": "code", "input": ["a = 1", "b = 2"], "prompt_number": 3, "outputs": [{"output_type": "pyout", "png": "A" * 2_048, "text": "x"}]},
        ]}],
    }  # fmt: skip
    cells = parse_notebook(json.dumps(old).encode()).cells
    assert cells[0].source == "## Part"
    assert cells[1].source == "a = 1\nb = 2"
    assert cells[1].count == 3
    assert "image/png 1 KB" in outline_line(cells[1])


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (b"", "empty"),
        (b"\0\0\0", "empty"),
        (b"{", "not valid JSON"),
        (b"[1]", "not an object"),
        (b"{}", "no list of cells"),
        (b'{"cells": [\n<<<<<<< HEAD\n', "merge conflict"),
        (b"[" * 100_000, "not valid JSON"),
    ],
)
def test_a_file_that_is_no_notebook_is_a_readable_error(raw, told):
    with pytest.raises(ToolError, match=told):
        parse_notebook(raw)


def test_odd_cells_are_read_as_far_as_possible():
    raw = {"nbformat": "x", "cells": [None, {}, {"cell_type": "code", "source": 5, "outputs": {"a": 1}, "id": 7}, {"cell_type": "code", "source": None, "outputs": [1, {"data": [1]}, {"output_type": "error", "traceback": "t"}]}]}
    notebook = parse_notebook(json.dumps(raw).encode())
    assert len(notebook.cells) == 3
    assert any("1 entries" in n for n in notebook.notes)
    for cell in notebook.cells:
        cell_text(cell, output_chars=500).encode()


def test_encodings_and_marks_are_tolerated():
    text = json.dumps({"nbformat": 4, "cells": [code("ü = 1")]}, ensure_ascii=False)
    for raw in (text.encode("utf-8-sig"), text.encode("utf-16"), text.encode("latin-1")):
        assert parse_notebook(raw).cells[0].source == "ü = 1"
    assert parse_notebook(b'{"nbformat": 4, "cells": [{"cell_type": "code", "source": "\\ud800"}]}').cells[0].source == "\ufffd"


def test_doubled_ids_are_noted():
    assert any("twice" in n for n in parse_notebook(json.dumps({"nbformat": 4, "cells": [code("a", "x"), code("b", "x")]}).encode()).notes)


_json = st.recursive(st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5), lambda c: st.lists(c, max_size=3) | st.dictionaries(st.sampled_from(["source", "outputs", "data", "text", "cell_type", "output_type", "id", "traceback", "text/plain", "image/png"]), c, max_size=4), max_leaves=12)


@given(st.lists(_json | st.builds(lambda o: {"cell_type": "code", "outputs": [o]}, _json), max_size=4), _json)
def test_any_json_in_the_cell_list_is_read_without_an_exception(cells, metadata):
    notebook = parse_notebook(json.dumps({"cells": cells, "metadata": metadata, "nbformat": 4}).encode())
    for cell in notebook.cells:
        outline_line(cell).encode()
        cell_text(cell, output_chars=200).encode()


@given(st.binary(max_size=60))
def test_any_bytes_are_a_notebook_or_a_tool_error(raw):
    try:
        parse_notebook(raw)
    except ToolError:
        pass


@pytest.mark.skipif(not CORPUS, reason="NBAGENT_NOTEBOOK_CORPUS does not name a folder of notebooks")
def test_every_notebook_of_a_corpus_can_be_looked_at(tmp_path):
    found = sorted(Path(str(CORPUS)).rglob("*.ipynb"))
    assert found
    for path in found:
        desk = Desk(path.parent, notebook=FakeNotebook(path))
        try:
            outline = desk.call(NOTEBOOK, action="outline").text
        except ToolError:
            continue
        cells = parse_notebook(path.read_bytes()).cells
        assert len(outline) < 200 + 300 * max(1, len(cells))
        if cells:
            numbers = [str(c.index) for c in cells]
            assert desk.call(NOTEBOOK, action="source", cells=numbers).text.encode()
            assert desk.call(NOTEBOOK, action="outputs", cells=numbers).text.encode()
            assert len(desk.call(ReadTool(), path=path.name).text) <= 64_000
