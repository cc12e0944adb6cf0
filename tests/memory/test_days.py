"""Days that a query names: the log of that day is found, however the day is written."""

from __future__ import annotations

import pytest

from tests.memory.desk import Desk

LINES = (
    "Checked the {} loader with the team", "Wrote the report on revenue", "会议讨论了留存", "Fixed the join",
    "Asked the bank for prices, 10 of 11 came",
)  # fmt: skip


@pytest.fixture
def month(desk: Desk) -> Desk:
    for day in range(1, 29):
        for year_month in ("2026-01", "2026-02"):
            name = f"memory/{year_month}-{day:02}.md"
            desk.note(name, "".join(f"- {line.format(f'n{day}')} ({year_month[-1]}.{day})\n" for line in LINES))
    desk.note("memory/2026-03-01.md", "- Looked at the gauge\n")
    desk.note("MEMORY.md", "- What happened in the pilot is in pilot.md, of 2026\n- 11 tables, 10 columns\n")
    return desk


@pytest.mark.parametrize("embedder", ["none", "static"])
@pytest.mark.parametrize(
    ("query", "day"),
    [
        ("what happened on 2026-02-10", "2026-02-10"),
        ("2026-02-10", "2026-02-10"),
        ("notes of 24 February 2026", "2026-02-24"),
        ("notes of February 24, 2026", "2026-02-24"),
        ("2026-02-03 会议", "2026-02-03"),
        ("2026年2月3日的会议", "2026-02-03"),
        ("2月3日做了什么", "2026-02-03"),
        ("昨天做了什么", "2026-02-28"),
        ("前天做了什么", "2026-02-27"),
        ("what did we do yesterday?", "2026-02-28"),
        ("今天做了什么", "2026-03-01"),
        ("what did we do today", "2026-03-01"),
        ("昨日の会議", "2026-02-28"),
        ("어제 회의", "2026-02-28"),
    ],
)
def test_the_log_of_a_day_is_found_by_the_day(month: Desk, embedder: str, query: str, day: str) -> None:
    hits = month.open(embedder_name=embedder).search(query)
    assert hits[0].date == day
    assert "day" in hits[0].why.parts


def test_of_a_days_lines_the_one_with_the_word_comes_first(month: Desk) -> None:
    assert month.open().search("2026-02-03 会议")[0].snippet.startswith("- 会议讨论了留存")
    assert month.open().search("what about revenue on 2026-02-03?")[0].snippet.startswith("- Wrote the report")
