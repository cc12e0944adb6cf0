"""What a compaction leaves of the anchors before it."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from nbagent.context.anchor_index import AnchorIndex
from nbagent.context.anchors import Anchor
from nbagent.context.archive import Archive, find_handles, parts_of, pointer
from nbagent.context.loss import LossReport, loss_report, score_loss
from nbagent.core.entries import Entry
from nbagent.core.view import build_view
from tests.core.builders import call, calls, compacts, end, path, prunes, reply, result, says, stamp, start, user

shows = result

FILLER = "nothing of note happened here while the weather stayed fine " * 40


def long_talk() -> list[Entry]:
    return path(
        start(), user("Never write to /srv/raw/input.csv please."), calls(), result(text=f"opened port_map 48211 {FILLER}"),
        says("done"), end(), start("t2"), user("now draw the chart"), says("drawn"), end("t2"),
    )  # fmt: skip


def compacted(entries: Sequence[Entry], note: str, first_kept: str | None = "e7") -> list[Entry]:
    return [*entries, Entry("move", entries[-1].id, 0.0, compacts(first_kept, note))]


def report_of(entries: list[Entry], note: str, future: Sequence[Entry] = ()) -> LossReport:
    after = build_view(compacted(entries, note))
    return loss_report(entries, build_view(entries), after, future=future)


def texts(anchors: Sequence[Anchor]) -> list[str]:
    return [a.text for a in anchors]


def test_what_the_note_says_is_verbatim_and_the_rest_is_lost() -> None:
    report = report_of(long_talk(), "The port_map is 48211.")
    assert {"port_map", "48211"} <= set(texts(report.verbatim))
    assert "/srv/raw/input.csv" in texts(report.lost)
    assert "Never write to /srv/raw/input.csv please." in texts(report.lost)
    assert report.standing_loss == 1.0


def test_words_that_stand_between_chinese_ones_are_there_word_for_word() -> None:
    talk = path(
        start(), user("读取/data/销售.csv，列user_id不能为空，上限1200元。"), calls(), result(text=f"handleAuth {FILLER}"),
        says("好"), end(), start("t2"), user("继续"), says("好"), end("t2"),
    )  # fmt: skip
    report = report_of(talk, "先读/data/销售.csv再查列user_id的值，用handleAuth函数，上限1200元不变")
    assert {"/data/销售.csv", "user_id", "handleAuth", "1200元"} <= set(texts(report.verbatim))
    assert {"/data/销售.csv", "user_id", "1200元"} <= set(texts(report_of(talk, "无").lost))


def test_a_rule_in_other_order_counts_when_its_words_are_in_one_line() -> None:
    report = report_of(long_talk(), "Rule: never write /srv/raw/input.csv")
    assert report.standing_loss == 0.0


def test_the_words_of_a_rule_scattered_over_a_note_are_not_the_rule() -> None:
    report = report_of(long_talk(), "we write\n\nsee srv\n\nraw\n\nthe input\n\ncsv\n\nnever mind")
    assert report.standing_loss == 1.0


def test_an_anchor_that_a_kept_entry_holds_is_not_listed() -> None:
    entries = stamp([start("t3"), user("port_map again"), says("yes"), end("t3")], long_talk())
    report = loss_report(entries, build_view(entries), build_view(compacted(entries, "note", "e11")))
    assert "port_map" not in texts([*report.verbatim, *report.reachable, *report.lost])


def test_a_number_inside_another_number_is_not_there() -> None:
    assert "48211" in texts(report_of(long_talk(), "1482119").lost)


def test_a_search_finds_by_the_words_of_the_later_turn_without_the_anchor() -> None:
    future = stamp([start("t3"), user("go"), says("which port was opened: port_map")], long_talk())[10:]
    scores = report_of(long_talk(), "note", future).scores
    assert scores.needed["ident"].reachable == 1  # "opened" leads there


def test_a_later_turn_without_other_words_finds_nothing() -> None:
    future = stamp([start("t3"), user("go"), says("port_map")], long_talk())[10:]
    assert report_of(long_talk(), "note", future).scores.needed["ident"].lost == 1


def many_results(count: int = 12, result: str = "db_secret_name for reporting") -> list[Entry]:
    bodies = [start(), user("look at everything")]
    for i in range(count):
        bodies += [calls(id=f"c{i}"), shows(f"c{i}", f"weather report {i} alike {FILLER[:1500]}")]
    bodies += [calls(id="z"), shows("z", result), says("ok"), end(), start("t2"), user("more")]
    return path(*bodies)  # type: ignore[arg-type]


def scored_with(note: str, later: str, entries: list[Entry] | None = None) -> tuple[int, int]:
    entries = entries or many_results()
    whole = stamp([says(later)], entries)
    first = next(e.id for e in entries if getattr(e.body, "turn", "") == "t2")
    view = build_view(compacted(entries, note, first))
    tally = score_loss(AnchorIndex(whole), view, cut=len(entries)).needed["ident"]
    return tally.reachable, tally.lost


def test_a_pointer_counts_when_its_label_shares_words_with_the_need() -> None:
    hidden = many_results()[27].id
    later = "alike weather: db_secret_name with quarterly ledger"
    assert scored_with("nothing", later) == (0, 1)
    assert scored_with(f"quarterly ledger connection: {pointer(hidden)}", later) == (1, 0)
    assert scored_with(f"something else: {pointer(hidden)}", later) == (0, 1)


def test_a_pointer_to_a_part_leads_to_what_that_part_holds() -> None:
    rows = "\n".join(f"row {i} of some other table" for i in range(200))
    entries = many_results(result=f"{rows}\ndb_secret_name for reporting\n{rows}")
    texts_of = parts_of(AnchorIndex(entries).said[27].text)
    holding = [i for i, part in enumerate(texts_of, 1) if "db_secret_name" in part]
    assert len(holding) == 1
    later = "alike weather: db_secret_name with quarterly ledger"
    for part in (0, *range(1, len(texts_of) + 1)):
        note = f"quarterly ledger connection: {pointer(entries[27].id, part=part)}"
        assert scored_with(note, later, entries) == ((1, 0) if part in holding else (0, 1))


def test_a_pointer_to_everything_is_no_retrieval() -> None:
    entries = many_results()
    note = f"quarterly ledger and all before: {pointer(entries[0].id, entries[-3].id)}"
    assert scored_with(note, "alike weather: db_secret_name with quarterly ledger") == (0, 1)


def test_the_null_policy_does_not_keep_rules() -> None:
    entries = many_results()
    entries[1] = Entry(entries[1].id, entries[1].parent, 0.0, user("You must keep the tables sorted by shipment."))
    note = f"The earlier conversation is in the archive: {pointer(entries[0].id, entries[-3].id)} brings it back."
    first = next(e.id for e in entries if getattr(e.body, "turn", "") == "t2")
    assert score_loss(AnchorIndex(entries), build_view(compacted(entries, note, first))).standing_loss == 1.0


def test_a_search_does_not_see_the_future() -> None:
    archive = Archive(path(start(), user("alpha"), says("beta gamma")))
    assert archive.search(["beta", "gamma"], before=2) == []
    assert [c.entry_id for c in archive.search(["gamma"])] == ["e3"]


def test_a_pruned_result_is_replaced_too() -> None:
    entries = long_talk()
    after = build_view(stamp([prunes("e4", text="[cleared: `recall` e4]")], entries))
    report = loss_report(entries, build_view(entries), after)
    assert "port_map" in texts([*report.reachable, *report.lost])
    assert "/srv/raw/input.csv" not in texts(report.lost)


def test_a_dry_run_gives_the_report_of_the_deed() -> None:
    entries = long_talk()
    after = build_view(compacted(entries, "port_map"))
    dry = loss_report(entries, build_view(entries), after)
    done = loss_report(compacted(entries, "port_map"), build_view(entries), after)
    assert dry == done


def test_without_loss_the_scores_are_zero() -> None:
    entries = long_talk()
    view = build_view(entries)
    report = loss_report(entries, view, view)
    assert (report.needed_loss, report.standing_loss, report.lost) == (0.0, 0.0, ())


def test_answered_requests_come_last_and_do_not_count_as_standing() -> None:
    entries = path(
        start(),
        user("I want a bar plot."),
        says("done"),
        end(),
        start("t2"),
        user("Never delete rows."),
        says("ok"),
        end("t2"),
    )
    view = build_view(stamp([compacts(None, "note")], entries))
    report = loss_report(entries, build_view(entries), view)
    assert [(a.text, a.standing) for a in report.lost] == [("Never delete rows.", True), ("I want a bar plot.", False)]
    assert report.scores.standing["constraint"].total == 3
    assert report.scores.sentences["constraint"].total == 6


def test_by_kind_counts_what_is_listed() -> None:
    report = report_of(long_talk(), "48211")
    assert report.by_kind["num"].verbatim == 1
    assert sum(t.total for t in report.by_kind.values()) == len(report.verbatim) + len(report.reachable) + len(
        report.lost
    )


def test_pointers_are_found_in_many_writings() -> None:
    positions = {"e1": 0, "e2": 1}
    text = 'a: `recall` e1\nb: recall("e2")\nc: recall e1..e2\nd: recall nobody\nto recall e2 is human'
    assert [(h.first, h.last) for h in find_handles(text, positions)] == [(0, 0), (1, 1), (0, 1), (1, 1)]
    several = f"read the log: {pointer('e1', part=2)} (port_map), {pointer('e2')}"
    assert [(h.first, h.part) for h in find_handles(several, positions)] == [(0, 2), (1, 0)]


@given(
    st.lists(st.sampled_from(["alpha_one /a/b/c.py", "must keep beta_two", "ValueError: x", "12345 rows"]), max_size=6),
    st.text(max_size=40),
)
def test_every_listed_anchor_is_in_one_place(said: list[str], note: str) -> None:
    bodies = [
        b
        for i, t in enumerate(said)
        for b in (start(f"t{i}"), user(t), reply(call(id=f"c{i}"), stop="tool_use"), result(f"c{i}", t), end(f"t{i}"))
    ]
    entries = path(start("t"), user("hello"), *bodies)
    report = loss_report(entries, build_view(entries), build_view(compacted(entries, note, None)))
    listed = texts([*report.verbatim, *report.reachable, *report.lost])
    assert len(
        set(zip(listed, (a.kind for a in [*report.verbatim, *report.reachable, *report.lost]), strict=True))
    ) == len(listed)
    assert 0 <= report.needed_loss <= 1
    assert 0 <= report.standing_loss <= 1


PROGRAM = """
from tests.context.test_loss import long_talk, many_results, report_of
print([report_of(e, "port_map of note 48211") for e in (long_talk(), many_results())])
"""


def test_the_report_does_not_depend_on_the_order_of_hashes() -> None:
    root = Path(__file__).parents[2]
    digests = set()
    for seed in ("1", "4242"):
        environ = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(root)}
        done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, env=environ, cwd=root, check=True)
        digests.add(hashlib.sha256(done.stdout).hexdigest())
    assert len(digests) == 1
