"""What is shown of equal and of contradicting lines: the newest first, nothing hidden by copies (NB-M2)."""

from __future__ import annotations

import pytest

from nbagent.memory.claims import contradict
from tests.memory.desk import Desk, snippets


def logs(desk: Desk, lines: dict[str, str]) -> None:
    for day, line in lines.items():
        desk.note(f"memory/{day}.md", f"- {line}\n")


def found(desk: Desk, query: str, k: int = 6) -> list[tuple[str, str, str]]:
    return [(h.date, h.snippet, h.contradicts.partition("memory/")[2]) for h in desk.open().search(query, k)]


def test_a_value_that_came_back_is_the_newest(desk: Desk) -> None:
    logs(desk, {"2026-02-01": "The cutoff is 0.7", "2026-02-10": "The cutoff is 0.8", "2026-02-20": "The cutoff is 0.7"})
    assert found(desk, "cutoff") == [
        ("2026-02-20", "- The cutoff is 0.7", ""),
        ("2026-02-10", "- The cutoff is 0.8", "2026-02-20.md:1"),
    ]


def test_a_line_noted_on_many_days_is_shown_with_the_newest_day(desk: Desk) -> None:
    logs(desk, {f"2026-01-{day:02}": "Standup with the churn team" for day in range(1, 32)})
    assert [day for day, *_ in found(desk, "standup")] == ["2026-01-31"]


@pytest.mark.parametrize("values", [8, 40])
@pytest.mark.parametrize("k", [1, 6])
def test_of_many_values_the_newest_comes_first_and_the_next_behind_it(desk: Desk, k: int, values: int) -> None:
    days = [f"2026-{1 + i // 28:02}-{1 + i % 28:02}" for i in range(values)]
    logs(desk, {day: f"The cutoff is 0.{i + 1:02}" for i, day in enumerate(days)})
    hits = found(desk, "cutoff", k)
    assert [day for day, *_ in hits[:2]] == days[:-3:-1]
    assert hits[0][2] == ""
    assert all(newer == f"{days[-1]}.md:1" for *_, newer in hits[1:])
    assert len(hits) == max(2, k)


def test_who_says_the_same_as_the_newest_is_not_said_to_contradict_it(desk: Desk) -> None:
    logs(desk, {"2026-02-01": "The port is 80", "2026-02-02": "The port is 90", "2026-02-03": "The port now is 90"})
    shown = {line: newer for _, line, newer in found(desk, "port")}
    assert shown["- The port is 90"] == ""
    assert shown["- The port is 80"] != ""


@pytest.mark.parametrize("copies", [30, 500])
@pytest.mark.parametrize(
    ("line", "other", "query"),
    [
        ("Standup with the churn team", "From December on the standup is at 11:00 in room 4", "standup"),
        ("和流失组开站会", "从十二月起站会改到十一点，在四号会议室", "站会"),
    ],
)
def test_copies_hide_no_other_line(desk: Desk, copies: int, line: str, other: str, query: str) -> None:
    for i in range(copies):
        desk.note(f"memory/days/{i:03}.md", f"- {line}\n")
    desk.note("memory/rooms.md", f"- {other}\n")
    assert sorted(snippets(desk.open(), query)) == sorted([f"- {line}", f"- {other}"])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("阈值是100", "阈值是10"),
        ("端口是8080", "端口是8800"),
        ("端口：8080", "端口：9090"),
        ("The owner is Anna", "The owner is Ben"),
        ("The database is PostgreSQL", "The database is MySQL"),
        ("Owner: Anna", "Owner: Ben"),
        ("负责人是张三", "负责人是李四"),
        ("负责人：张三", "负责人：李四"),
        ("周五发版", "周四发版"),
        ("担当者は田中", "担当者は鈴木"),
        ("The target is churn", "The target is revenue"),
        ("We meet at 10:00", "We meet at 11:00"),
        ("We deploy on Fridays", "We deploy on Thursdays"),
        ("The standup is in room 4", "The standup is in room 5"),
    ],
)
def test_plain_contradictions_are_seen(one: str, other: str) -> None:
    assert contradict(one, other)
    assert contradict(other, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("exp-07 raised AUC to 0.861", "exp-08 raised AUC to 0.850"),
        ("AUC is 0.84 on fold 1", "AUC is 0.85 on fold 2"),
        ("AUC is 0.84 with seed 1", "AUC is 0.85 with seed 2"),
        ("Anna: Ben", "Anna: Carl"),
        ("小王：好的", "小王：谢谢"),
        ("Anna is tired", "Anna is happy"),
        ("周五开会", "周四写报告"),
        ("The owner is Anna", "The owner is Anna"),
        ("端口是8080", "端口是8080，已确认"),
        ("Monday: wrote the report", "Tuesday: wrote the report"),
    ],
)
def test_lines_on_different_things_do_not_contradict(one: str, other: str) -> None:
    assert not contradict(one, other)
    assert not contradict(other, one)


def test_an_undated_note_is_not_called_older(desk: Desk) -> None:
    from nbagent.tools.memory import hits_text

    desk.note("MEMORY.md", "- The port is 9090\n")
    desk.note("memory/2026-02-28.md", "- The port is 8080\n")
    hits = desk.open().search("port")
    text = hits_text(hits, 2_000)
    assert len(hits) == 2
    assert "older" not in text
    assert "says otherwise" in text
