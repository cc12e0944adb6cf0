"""What a turn's tail and its steps tell of the context itself, through a whole session."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from nbagent.context.pins import pinned_texts, unpinned
from nbagent.context.policy import Prune
from nbagent.core.entries import Entry, Pin, Pruning, Snapshot, ToolResult
from nbagent.core.messages import joined_text
from nbagent.core.view import build_view
from nbagent.models.cassette import Cassette, from_text, recorded_turns, to_text
from nbagent.models.scripted import calls, says
from nbagent.runtime.compacting import compact, set_pin
from nbagent.runtime.comparing import compare_session
from nbagent.runtime.turn_notes import find_rot
from tests.core.builders import end, path, reply, result, start, user
from tests.core.builders import says as answer
from tests.runtime.lab import Lab


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path / "work", mode="auto")
    yield made
    made.close()


def signals(lab: Lab) -> list[Snapshot]:
    found = [e.body for e in lab.session.tree.path() if isinstance(e.body, Snapshot)]
    return [s for s in found if {"level", "variation", "loop"} & set(s.topics)]


def recorded(lab: Lab) -> Cassette:
    turns = recorded_turns(lab.session.tree.path())
    prefixes = {t.start.prefix: lab.session.runner.prefix_of(t.start.prefix) for t in turns}
    return from_text(to_text(Cassette(turns=turns, prefixes=prefixes)), "test")


def fill(name: str, lab: Lab, kilobytes: int) -> None:
    line = f"{name} measured the level of the water at noon and found it as high as ever\n"
    (lab.folder / name).write_text(line * (kilobytes * 1000 // len(line)))


def test_a_crossed_step_is_told_after_the_results_and_extends_the_request(lab: Lab) -> None:
    for name in "abc":
        fill(f"{name}.txt", lab, 9)
    lab.open([*(calls("read", path=f"{n}.txt") for n in "abc"), says("ok")], window_tokens=30_000, policy="off")
    lab.send("look", "A")
    told = signals(lab)
    assert [s.state["level"] for s in told] == sorted({s.state["level"] for s in told})
    assert told[0].text.startswith("<reminder>\nContext: about 30 % used (")
    sent = [r.canonical_bytes() for r in lab.requests]
    assert all(b.startswith(a) for a, b in pairwise(sent))
    assert [b["type"] for b in lab.requests[-1].messages[-1].blocks] == ["tool_result", "text"]


def test_a_turn_with_signals_is_replayed_to_the_byte(lab: Lab) -> None:
    for name in "abc":
        fill(f"{name}.txt", lab, 12)
    replies = [*(calls("read", path=f"{n}.txt") for n in "abc"), *(calls("glob", pattern=f"{i}*") for i in range(8))]
    lab.open([*replies, says("ok"), says("b")], window_tokens=30_000, policy="off")
    lab.send("look", "A")
    lab.send("and?", "B")
    assert {t for s in signals(lab) for t in s.topics} >= {"level", "variation"}
    first = [r.canonical_bytes() for r in lab.requests]
    made = recorded(lab)
    lab.close()
    lab.replay(made)
    lab.send("look", "A")
    lab.send("and?", "B")
    assert [r.canonical_bytes() for r in lab.requests] == first


def test_a_file_changed_on_disk_is_told_at_the_next_turn_once(lab: Lab) -> None:
    fill("a.txt", lab, 1)
    lab.open([calls("read", path="a.txt"), says("read"), says("b"), says("c")])
    lab.send("look", "A")
    (lab.folder / "a.txt").write_text("other\n")
    lab.send("and now?", "B")
    lab.send("and?", "C")
    texts = [str(m.to_wire()) for m in lab.requests[-1].messages]
    assert sum(t.count("a.txt: it changed on disk since it was read") for t in texts) == 1
    found = find_rot(build_view(lab.session.tree.path()), lab.session.tree.path(), lab.folder)
    assert [(f.kind, f.where) for f in found] == [("poisoning", "a.txt")]


def test_a_touched_file_that_holds_the_same_is_not_told(lab: Lab) -> None:
    fill("a.txt", lab, 1)
    lab.open([calls("read", path="a.txt"), says("read"), says("b")])
    lab.send("look", "A")
    os.utime(lab.folder / "a.txt", (1, 1))
    lab.send("and now?", "B")
    assert "changed on disk" not in str([m.to_wire() for m in lab.requests[-1].messages])


def test_a_pinned_text_is_told_once(lab: Lab) -> None:
    lab.open([says("a"), says("b"), says("c")])
    lab.send("one", "A")
    set_pin(lab.session, "always use metres", remove=False)
    lab.send("two", "B")
    lab.send("three", "C")
    assert str([m.to_wire() for m in lab.requests[-1].messages]).count("always use metres") == 1


def test_what_was_compacted_away_is_recalled_and_pins_stand_in_the_note(lab: Lab) -> None:
    fill("a.txt", lab, 12)
    (lab.folder / "b.txt").write_text("the gauge is HG-2231\n")
    lab.open([calls("read", path="b.txt"), says("noted"), calls("read", path="a.txt"), says("long"),
              calls("recall", query="gauge"), says("HG-2231")], window_tokens=24_000)  # fmt: skip
    lab.send("look at b", "A")
    set_pin(lab.session, "1", remove=False)
    lab.send("look at a", "B")
    done = lab.run(compact(lab.session, lab.ports(), edited="We looked at two files."))
    assert done.applied
    assert "<pinned-by-the-person>\n- The person: look at b\n" in done.note
    assert "Result of read: 1\tthe gauge is HG-2231" in done.note
    lab.send("which gauge?", "C")
    result = next(r for r in lab.bodies(ToolResult) if r.name == "recall")
    assert "· turn 1 · result of read]" in joined_text(result.content)
    assert "HG-2231" in joined_text(result.content)


def test_old_results_that_distract_are_masked_when_the_cache_is_cold_and_not_before(lab: Lab) -> None:
    fill("a.txt", lab, 12)
    lab.open([calls("read", path="a.txt"), *(says(w) for w in "abcdef")])
    lab.clock.at = 1_000.0
    lab.send("look", "A")
    for cell in "BCD":
        lab.send("something else", cell)
    assert not lab.bodies(Pruning)
    lab.clock.at = 2_000.0
    lab.send("something else", "E")
    (move,) = lab.bodies(Pruning)
    assert "not used for 4 turns; `recall`" in next(iter(move.placeholders.values()))


def test_a_session_is_compared_under_every_policy(lab: Lab) -> None:
    fill("a.txt", lab, 5)
    lab.open([calls("read", path="a.txt"), says("ok"), says("b")])
    lab.send("look", "A")
    lab.send("and?", "B")
    count = len(lab.session.tree)
    found = compare_session(lab.session)
    assert {r.policy for r in found.rows} >= {"nbagent", "claude-code", "pi", "off"}
    assert {r.calls for r in found.rows} == {3}
    assert found.turns == 2
    assert [r.policy for r in compare_session(lab.session, ["pi", "openclaw@seed"]).rows] == ["pi", "openclaw@seed"]
    assert len(lab.session.tree) == count


# ---------------------------------------------------------------- pins


def pinned(entries: list[Entry], *pins: Pin, limit: int = 1_000) -> str:
    return pinned_texts(entries, pins, limit, lambda text: len(text) // 3)


def test_a_pinned_turn_is_listed_with_what_was_said_and_shown() -> None:
    entries = path(start("t1"), user("what is it?"), reply({"type": "tool_use", "id": "a", "name": "read", "input": {}},
                   stop="tool_use"), result("a", "forty two", name="read"), answer("42"), end("t1"))  # fmt: skip
    assert pinned(entries, Pin(target="t1")) == (
        "- The person: what is it?\nResult of read: forty two\nYou: 42"
    )  # fmt: skip
    assert pinned(entries, Pin(target="e4"), Pin(text="use metres")) == "- Result of read: forty two\n- use metres"
    assert pinned(entries, Pin(target="gone")) == ""


def test_beyond_the_limit_older_pins_are_shortened_and_say_so() -> None:
    entries = path(start("t1"), user("long " * 400), end("t1"))
    text = pinned(entries, Pin(target="t1"), Pin(text="new " * 100), limit=200)
    assert "new " * 99 in text
    assert "[shortened; the whole: `recall` e1..e3]" in text
    assert len(text) // 3 < 200 + 45


def test_a_pinned_result_is_not_pruned() -> None:
    entries = path(start("t1"), result("a"), start("t2"), result("b"))
    entries.append(Entry("p", "e4", 0.0, Pin(target="t1")))
    move = unpinned(Prune(placeholders={"e2": "x", "e4": "y"}, reason="r"), entries, build_view(entries))
    assert dict(move.placeholders) == {"e4": "y"}
