"""The machine-made part of a note: what it lists, in which order, within which room."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbagent.context.archive import find_handles, parts_of
from nbagent.context.extract import machine_note, one_of_a_kind
from nbagent.context.extract_rank import STRETCH_TOKENS, stands_in
from nbagent.core.entries import Entry, Snapshot
from nbagent.core.tokens import estimate_tokens
from tests.core.builders import call, calls, end, path, prunes, reply, result, says, start, user

RULE = "Never write to /srv/raw/input.csv."


def count(text: str) -> int:
    return estimate_tokens(text, "claude-4.7")


def note(entries: Sequence[Entry], kept: int = 0, limit: int = 1_000) -> str:
    at = len(entries) - kept
    return machine_note(entries[:at], entries[at:], limit, count)


def section(text: str, title: str) -> list[str]:
    """Return the lines under a heading that begins with `title`."""
    for part in text.split("## "):
        head, _, body = part.partition("\n")
        if head.startswith(title):
            return body.strip().splitlines()
    return []


def runs(code: str, output: str, id: str, status: Any = "ok") -> tuple[Any, Any]:
    return reply(call("python", id, {"code": code}), stop="tool_use"), result(id, output, status=status)


def test_rules_stand_word_for_word_and_answered_requests_do_not() -> None:
    told = note(path(start(), user(f"{RULE} Please draw the chart."), says("drawn"), end()))
    assert section(told, "Rules") == [f"- {RULE}"]
    assert "draw the chart" not in told


def test_a_request_that_is_still_open_is_listed_as_one() -> None:
    assert section(note(path(start(), user("Please draw the chart."), calls(), result())), "Open") == [
        "- Please draw the chart."
    ]


def test_decisions_and_open_errors_are_listed() -> None:
    entries = path(
        start(),
        user("go"),
        *runs("fit()", "ValueError: shapes differ", "a", "error"),
        says("I decided to use ridge_fit."),
    )
    told = note(entries)
    assert section(told, "Decisions") == ["- I decided to use ridge_fit."]
    assert section(told, "Errors that nothing") == ["- ValueError: shapes differ"]


def test_an_error_that_is_over_is_told_with_what_came_before_the_success() -> None:
    entries = path(
        start(), user("go"), *runs("run_all()", "NameError: name 'df' is not defined", "a", "error"),
        *runs("df = load_table()", "loaded", "b"), *runs("run_all()", "fine", "c"),
    )  # fmt: skip
    told = note(entries)
    assert section(told, "Errors that are over") == [
        "- NameError: name 'df' is not defined (then: python df = load_table())"
    ]
    assert not section(told, "Errors that nothing")


def test_errors_that_differ_in_numbers_and_names_are_one_line() -> None:
    merged = one_of_a_kind([
        (1, "a.ts(3,9): error TS2304: Cannot find name 'foo'."),
        (1, "a.ts(8,2): error TS2304: Cannot find name 'bar'."),
        (4, "b.ts(1,1): error TS2304: Cannot find name 'foo'."),
    ])  # fmt: skip
    assert merged == [
        (1, "a.ts(8,2): error TS2304: Cannot find name 'bar'. (also 'foo', 3, 9)"),
        (4, "b.ts(1,1): error TS2304: Cannot find name 'foo'."),
    ]


def test_live_variables_come_from_the_last_snapshot() -> None:
    state = {"variables": {"sales_frame": ["DataFrame", "(100, 3)", "x1"], "k": ["int", "", "x2"]}}
    told = note(path(start(), user("go"), Snapshot(text="New variables", state=state), says("seen"), end()))
    assert section(told, "Variables") == ["- sales_frame (DataFrame (100, 3))", "- k (int)"]


def test_cells_that_were_looked_at_or_proposed_are_listed_oldest_first() -> None:
    look = reply(call("notebook", "n1", {"action": "source", "cells": ["3-5", "c7"]}), stop="tool_use")
    offer = reply(call("notebook", "n2", {"action": "propose", "source": "df.plot()\nshow()"}), stop="tool_use")
    entries = path(start(), user("go"), look, result("n1", name="notebook"), offer, result("n2", name="notebook"))
    assert section(note(entries), "Cells") == ["- source 3-5, c7", "- propose df.plot()"]


def test_paths_urls_and_names_have_their_sections() -> None:
    entries = path(
        start(),
        user("go"),
        says("Saved /srv/out/model_v2.pkl, see https://example.org/docs, then total_rows is 48,211"),
    )
    told = note(entries)
    assert "/srv/out/model_v2.pkl" in section(told, "Files")[0]
    assert section(told, "URLs") == ["- https://example.org/docs"]
    assert "total_rows" in section(told, "Identifiers")[0]
    assert "48,211" in section(told, "Identifiers")[0]


def test_what_the_kept_part_shows_is_left_out() -> None:
    entries = path(
        start(),
        user("go"),
        says("used ridge_fit and lasso_fit"),
        end(),
        start("t2"),
        user("again ridge_fit"),
        says("ok"),
    )
    told = note(entries, kept=3)
    assert "lasso_fit" in told
    assert "ridge_fit" not in told


def test_what_the_kept_part_shows_only_in_a_cleared_result_is_listed() -> None:
    entries = path(start(), user("go"), says("used ridge_fit"), *runs("look()", "ridge_fit is here", "a"), prunes("e5"))
    assert "ridge_fit" in note(entries, kept=3)


def test_what_somebody_wrote_goes_before_what_was_only_shown() -> None:
    listing = "\n".join(f"shown_name_{chr(97 + i)}" for i in range(26))
    entries = path(start(), user("go"), *runs("ls()", listing, "a"), says("we need written_name for this"), end())
    told = note(entries, limit=60)
    assert "written_name" in told
    assert told.count("shown_name") < 10


def test_of_a_listing_what_lies_beside_a_file_that_was_worked_on_goes_first() -> None:
    listing = "\n".join(f"/srv/app/{folder}/{chr(97 + i)}_part.py" for i in range(12) for folder in ("build", "core"))
    entries = path(
        start(), user("go"), *runs("ls()", listing, "a"),
        reply(call("read", "b", {"path": "/srv/app/core/main.py"}), stop="tool_use"), result("b", "pass"), says("ok"),
    )  # fmt: skip
    told = note(entries, limit=300)
    assert "/srv/app/core/main.py" in told
    assert told.count("/srv/app/core/") > 6
    assert told.count("/srv/app/build/") < 3


def test_pointers_lead_to_stretches_that_one_retrieval_brings_back() -> None:
    words = [f"{a}{b}_{c}value" for a in "pqrstuvw" for b in "abcdefgh" for c in "xyz"]
    steps = [s for i in range(8) for s in runs(f"probe_{i}()", " ".join(words[24 * i : 24 * i + 24]) * 2, f"c{i}")]
    entries = path(start(), user("go"), *steps, says("done"), end())
    told = note(entries, limit=400)
    positions = {e.id: i for i, e in enumerate(entries)}
    handles = find_handles(told, positions)
    assert handles
    for handle in handles:
        assert handle.label.strip("- :")
        text = "".join(
            str(b.get("text", ""))
            for e in entries[handle.first : handle.last + 1]
            for b in getattr(e.body, "content", ())
        )
        assert count(text) <= STRETCH_TOKENS


def test_parts_of_a_long_result_are_pointed_to_in_one_line_each_with_a_name_that_is_there() -> None:
    rows = [f"{a}{b}_{c}{d}value" for a in "pqrstuvw" for b in "abcdefgh" for c in "xyz" for d in "klm"]
    entries = path(
        start(), user("go"), *runs("probe_all()", "\n".join(r + " of the table" for r in rows), "c"), says("ok"), end()
    )
    told = note(entries, limit=900)
    (line,) = section(told, "Where the rest is")
    assert line.startswith("- python probe_all(): ")
    text = "\n".join(str(b["text"]) for b in entries[3].body.content)  # type: ignore[union-attr]
    named = re.findall(r"#(\d+) \((\w+)\)", line)
    assert len(named) > 1
    assert [int(n) for n, _ in named] == sorted(int(n) for n, _ in named)
    for number, name in named:
        assert name in parts_of(text)[int(number) - 1]


def test_a_number_within_a_longer_one_does_not_stand_there() -> None:
    assert not stands_in("port 48211", "4821")
    assert not stands_in("str_replace_editor", "str_replace")
    assert stands_in("a/b/c.py, x", "b/c.py")


def test_without_room_there_is_no_note() -> None:
    entries = path(start(), user(RULE), says("ok"), end())
    assert note(entries, limit=0) == ""
    assert machine_note([], [], 1_000, count) == ""


@pytest.mark.parametrize("limit", [40, 200, 1_000])
def test_the_note_is_never_larger_than_its_room(limit: int) -> None:
    steps = [
        s
        for i in range(40)
        for s in runs(f"make_{i}('/srv/data/part_{i}.csv')", f"Wrote {i}{i}77 rows to out_{i}", f"c{i}")
    ]
    told = note(path(start(), user(RULE), *steps), limit=limit)
    assert 0 < count(told) <= limit


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(["Never use 東京_data.", "error: no", "x_y /a/b.py", "`recall` e1", "", "## Rules", "1,234 rows"]), max_size=8),
    st.integers(0, 300), st.integers(0, 9),
)  # fmt: skip
def test_any_path_gives_a_note_within_its_room(texts: list[str], limit: int, kept: int) -> None:
    bodies = [b for i, t in enumerate(texts) for b in (user(t), *runs(t, t, f"c{i}", "error" if i % 2 else "ok"))]
    entries = path(start(), *bodies)
    assert count(note(entries, min(kept, len(entries)), limit)) <= limit


PROGRAM = """
from tests.context.test_extract import many_steps, note
print(note(many_steps(), limit=300))
"""


def many_steps() -> list[Entry]:
    steps = [
        s
        for i in range(30)
        for s in runs(f"open_{i}('/d/{i % 5}/f_{i}.py')", f"alpha_{i} beta{i}Gamma #{i}00", f"c{i}")
    ]
    return path(start(), user(RULE), *steps, says("I decided to keep alpha_3."), end())


def test_the_note_is_the_same_under_another_hash_seed() -> None:
    root = Path(__file__).parents[2]
    told = set()
    for seed in ("1", "4242"):
        environ = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(root)}
        done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, env=environ, cwd=root, check=True)
        told.add(done.stdout)
    assert len(told) == 1
