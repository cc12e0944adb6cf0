"""The view, case by case: repairs, thinking, moves and their undoing."""

from __future__ import annotations

from typing import Any

import pytest

from nbagent.core.entries import Body, Entry
from nbagent.core.errors import BrokenPath
from nbagent.core.messages import canonical
from nbagent.core.view import CUT_NOTE, NO_NOTE, NO_TEXT, PRUNED_RESULT, ViewFold, build_view, visible_results
from tests.core.builders import (
    call,
    calls,
    chunks,
    compacts,
    end,
    moved,
    note,
    path,
    plain,
    prunes,
    reply,
    restores,
    result,
    says,
    stamp,
    start,
    started,
    steer,
    thinks,
    user,
)  # fmt: skip
from tests.core.wire_rules import broken_rules

HI = (start(), user("hi"))
LOST = "error a: The tool 'python' has no recorded result: interrupted, outcome unknown. It was not run again."


def shown(*bodies: Body | Entry) -> list[tuple[str, list[str]]]:
    return plain(build_view(path(*bodies)))


def words(*bodies: Body | Entry) -> list[str]:
    return [w for _, ws in shown(*bodies) for w in ws]


def test_a_clean_history_is_sent_as_it_is() -> None:
    """openclaw 74: nothing added, nothing moved."""
    assert shown(*HI, calls(), started(), result(), says("done"), end()) == [
        ("user", ["hi"]), ("assistant", ["call a"]), ("user", ["result a: ok"]), ("assistant", ["done"]),
    ]  # fmt: skip


def test_an_empty_path_gives_an_empty_view() -> None:
    view = build_view([])
    assert (view.messages, view.turn, view.model, view.turn_ended) == ((), None, "", True)


def test_a_call_without_a_result_gets_one_right_after_the_reply() -> None:
    """openclaw 70; claude F5."""
    assert shown(*HI, calls(), start("t2"), user("again"))[1:] == [("assistant", ["call a"]), ("user", [LOST, "again"])]


def test_of_two_results_only_the_first_counts() -> None:
    """openclaw 71, also with a user message behind."""
    assert words(*HI, calls(), result(text="one"), result(text="two"), steer("x")) == [
        "hi",
        "call a",
        "result a: one",
        "x",
    ]
    assert words(*HI, calls(), result(text="one"), result(text="two")) == ["hi", "call a", "result a: one"]


def test_a_result_without_its_call_is_left_out() -> None:
    assert words(*HI, result("stranger"), says("ok"), result("late")) == ["hi", "ok"]


def test_results_come_before_any_text() -> None:
    assert shown(*HI, calls(), result(), note("df changed"), steer("also"))[-1] == (
        "user", ["result a: ok", "df changed", "also"],
    )  # fmt: skip


def test_an_interrupted_reply_with_thinking_is_unchanged_and_gets_two_results() -> None:
    """claude 62 (F35): repair adds results and never edits the reply."""
    body = reply(thinks(), call(id="a"), call(id="b"), stop="tool_use")
    view = build_view(path(*HI, body, start("t2"), user("go")))
    assert view.messages[1].blocks == body.blocks
    assert [b["tool_use_id"] for b in view.messages[2].blocks[:2]] == ["a", "b"]
    assert all(b["is_error"] for b in view.messages[2].blocks[:2])


def test_a_cut_reply_keeps_what_it_said_and_the_next_text_says_that_it_was_cut() -> None:
    """peers 7."""
    assert shown(*HI, says("half an", cut="stopped", stop=None), end(), start("t2"), user("go on"))[1:] == [
        ("assistant", ["half an"]), ("user", [CUT_NOTE.format(cut="stopped"), "go on"]),
    ]  # fmt: skip


def test_a_cut_reply_of_which_nothing_can_be_kept_is_left_out() -> None:
    unsigned = {"type": "thinking", "thinking": "hm", "signature": ""}
    assert shown(*HI, reply(unsigned, cut="stopped"), steer("go")) == [("user", ["hi", "go"])]


def test_a_cut_reply_ends_in_no_thinking_and_in_no_server_call_that_waits() -> None:
    waiting = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
    assert words(*HI, reply("so", waiting, thinks(), cut="stopped"))[1:] == ["so"]
    done = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
    assert words(*HI, reply("so", waiting, done, cut="stopped"))[1:] == [
        "so",
        "server_tool_use",
        "web_search_tool_result",
    ]


def test_an_unknown_block_is_sent_back_with_all_its_fields() -> None:
    """claude 79."""
    block = {"type": "later", "n": None, "list": [1, {"x": 2}]}
    view = build_view(path(*HI, reply("a", block), steer("x")))
    assert view.messages[1].to_wire()["content"][1] == block


def test_a_reply_has_the_same_bytes_in_every_later_request() -> None:
    """claude 80: no null fields added, key order kept."""
    body = reply(
        thinks(), "so", {"type": "tool_use", "id": "a", "input": {"z": 1, "a": 2}, "name": "python"}, stop="tool_use"
    )
    first = path(*HI, body, result())
    second = stamp([says("done"), end(), start("t2"), user("more")], first)
    assert build_view(first).messages[1].to_bytes() == build_view(second).messages[1].to_bytes()
    assert canonical(body.blocks[2]).encode() in build_view(second).messages[1].to_bytes()


def test_blank_text_is_never_sent() -> None:
    assert shown(*HI, reply("", " \n", "so"), note("  "), steer("x"))[1:] == [("assistant", ["so"]), ("user", ["x"])]


def test_a_prompt_without_text_gets_a_word() -> None:
    assert shown(start(), user(), says("?"), start("t2"), user(" ")) == [
        ("user", [NO_TEXT]), ("assistant", ["?"]), ("user", [NO_TEXT]),
    ]  # fmt: skip
    assert shown(start(), says("who?"))[0] == ("user", [NO_TEXT])


def test_a_reply_of_thinking_alone_is_left_out() -> None:
    assert shown(*HI, reply(thinks()), steer("go on")) == [("user", ["hi", "go on"])]


def test_a_call_whose_input_is_no_object_is_sent_back_with_an_empty_one() -> None:
    view = build_view(path(*HI, reply(call(input=[1, 2]), stop="tool_use")))
    assert view.open_calls[0].call.input == [1, 2]
    assert view.messages[1].blocks[0]["input"] == {}


def test_an_entry_whose_parent_is_not_the_one_before_is_refused() -> None:
    fold = ViewFold(path(*HI))
    with pytest.raises(BrokenPath):
        fold.add(Entry("x", "e1", 0.0, says("?")))
    assert plain(fold.view()) == [("user", ["hi"])]


def test_a_resumed_turn_has_not_ended() -> None:
    entries = path(*HI, says("half", cut="stopped"), end())
    assert build_view(entries).turn_ended
    for body in (steer("go"), calls(), user("x")):
        assert not build_view(stamp([body], entries)).turn_ended
    for body in (moved(), prunes(), compacts(None)):
        assert build_view(stamp([body], entries)).turn_ended


def test_open_calls_tell_what_started_and_what_may_run() -> None:
    view = build_view(
        path(*HI, reply(call(id="a"), call(id="b"), call(id="c"), stop="tool_use"), started("a"), result("c"))
    )
    assert [(c.call.id, c.started, c.runnable) for c in view.open_calls] == [("a", True, True), ("b", False, True)]
    cut = build_view(path(*HI, calls(cut="stopped")))
    assert not cut.open_calls[0].runnable


# ------------------------------------------------------------ thinking

ASK = (start(), user("hi"), reply(thinks("plan"), "so"), end())


def test_thinking_goes_back_to_the_model_that_made_it_only() -> None:
    assert "thinking" in words(*ASK, start("t2"), user("x"))
    assert "thinking" not in words(*ASK, start("t2", "claude-opus-5-5"), user("x"))
    assert "thinking" in words(*ASK, start("t2", "claude-opus-5-5"), user("x"), says("y"), start("t3"), user("z"))


def test_thinking_stays_behind_the_stored_prefix_it_was_made_with() -> None:
    assert "thinking" not in words(*ASK, start("t2", prefix="another"), user("x"))


def test_a_move_strips_the_thinking_signed_before_it_behind_its_reach() -> None:
    """claude 61: a summary leaves no thinking in the kept turns."""
    base = (start(), user("hi"), calls(), result(), reply(thinks(), "so"), end())
    assert "thinking" in words(*base, prunes(), steer("x"))
    assert "thinking" not in words(*base, prunes("e4"), steer("x"))
    assert "thinking" in words(*base[:4], prunes("e4"), *base[4:], steer("x"))
    assert "thinking" not in words(*base, compacts("e5"), steer("x"))


def test_a_pruning_of_later_results_leaves_earlier_thinking() -> None:
    assert "thinking" in words(
        *ASK, start("t2"), user("x"), calls(), result(), says("y"), end("t2"), prunes("e8"), steer("z")
    )


LOOP = (start(), user("hi"), calls(id="a"), result("a"), reply(thinks(), call(id="b"), stop="tool_use"), result("b"))


@pytest.mark.parametrize("move", [prunes("e4"), compacts("e5"), compacts("e3")])
def test_a_move_waits_while_an_open_tool_loop_needs_its_thinking(move: Body) -> None:
    """Decision 16: never inside an open tool loop; claude A6."""
    before, within = build_view(path(*LOOP)), build_view(path(*LOOP, move))
    assert within.bound == "e5"
    assert within.deferred == ("e7",)
    assert within.messages == before.messages


@pytest.mark.parametrize("closing", [says("done"), calls(id="c")])
def test_a_move_that_waited_takes_effect_with_the_next_reply_that_is_not_bound(closing: Body) -> None:
    view = build_view(path(*LOOP, prunes("e4"), closing, steer("x")))
    assert (view.deferred, view.pruned) == ((), frozenset({"e4"}))
    assert "thinking" not in [w for _, ws in plain(view) for w in ws]


def test_a_move_goes_on_waiting_while_replies_are_bound() -> None:
    view = build_view(path(*LOOP, prunes("e4"), reply(thinks("2", "s2"), call(id="c"), stop="tool_use"), result("c")))
    assert view.deferred == ("e7",)
    assert [w for _, ws in plain(view) for w in ws].count("thinking") == 2


def test_a_compaction_that_hides_the_bound_reply_does_not_wait() -> None:
    view = build_view(path(*LOOP, prunes("e4"), compacts(None)))
    assert plain(view) == [("user", ["NOTE"])]
    assert (view.bound, view.deferred, view.compaction) == (None, (), "e8")


def test_a_move_does_not_wait_for_a_reply_that_has_to_go_as_text() -> None:
    """What a later note hid and gave back was signed over a note that is gone: it is bound no more."""
    loop = (reply(thinks("2", "s2"), call(id="c"), stop="tool_use"), result("c"))
    gone = (*LOOP, compacts(None), *loop, restores("e7"), compacts(None), restores("e11"))
    view = build_view(path(*gone, compacts("e8", "LATER")))
    assert (view.bound, view.deferred, view.compaction) == (None, (), "e13")
    assert plain(view)[0][1][0] == "LATER"
    assert "thinking" not in [w for _, ws in plain(view) for w in ws]


def test_a_reply_that_goes_as_text_ends_the_loop_before_it_also_without_words() -> None:
    """Else the reply before it would be the latest again, and a provider takes that with its thinking only."""
    loop = (reply(thinks("2", "s2"), call(id="c"), call(id="d"), stop="tool_use"), result("c"), result("d"))
    gone = (*LOOP, compacts(None), *loop, restores("e7"), compacts(None), restores("e12"))
    view = build_view(path(*gone, prunes("e4"), user("x")))
    assert plain(view)[-2] == ("assistant", ["[called python, python]"])
    assert plain(view)[-3] == ("user", ["result b: ok"])


def test_a_pruning_of_the_open_batch_does_not_wait() -> None:
    view = build_view(path(*LOOP, prunes("e6")))
    assert view.deferred == ()
    assert plain(view)[-1] == ("user", ["result b: [cleared]"])


def test_a_move_may_be_taken_back_while_it_waits() -> None:
    bodies = (*LOOP, prunes("e4"), restores("e7"), says("done"), steer("x"))
    view = build_view(path(*bodies))
    assert (view.deferred, view.pruned) == ((), frozenset())
    assert "thinking" in [w for _, ws in plain(view) for w in ws]


def test_an_undoing_that_waited_strips_the_thinking_of_the_reply_that_let_it_through() -> None:
    entries = path(
        start(), user("hi"), compacts(None), *LOOP[1:], restores("e3"), reply(thinks("2", "s2"), "so"), steer("x")
    )
    view = build_view(entries)
    assert (view.deferred, view.compaction) == ((), None)
    assert "thinking" not in [w for _, ws in plain(view) for w in ws]


def test_a_loop_without_thinking_is_moved_at_once() -> None:
    view = build_view(path(*HI, calls(id="a"), result("a"), calls(id="b"), result("b"), prunes("e4")))
    assert (view.bound, view.deferred) == (None, ())
    assert plain(view)[2] == ("user", ["result a: [cleared]"])


# ------------------------------------------------------------ moves


def test_a_pruned_result_keeps_its_pair_and_shows_a_placeholder() -> None:
    base = (*HI, calls(), result(text="long"), says("ok"), end())
    assert words(*base, prunes("e4")) == ["hi", "call a", "result a: [cleared]", "ok"]
    assert words(*base, prunes("e4", text=""))[2] == f"result a: {PRUNED_RESULT}"
    assert words(*base, prunes("e4", text="  "))[2] == "result a: (no output)"


def test_a_compaction_shows_its_note_and_what_it_kept() -> None:
    base = (*ASK, start("t2"), user("more"), says("yes"), end("t2"))
    assert shown(*base, compacts("e5")) == [("user", ["NOTE", "more"]), ("assistant", ["yes"])]
    assert shown(*base, compacts(None)) == [("user", ["NOTE"])]
    assert shown(*base, compacts(None, text=" ")) == [("user", [NO_NOTE])]


def test_a_compaction_never_hides_what_comes_after_it() -> None:
    entries = path(*ASK, compacts("not on this path"), start("t2"), user("more"))
    assert plain(build_view(entries)) == [("user", ["NOTE", "more"])]
    entries = path(*ASK, compacts("e7"), start("t2"), user("more"), says("y"))
    assert plain(build_view(entries))[0] == ("user", ["NOTE", "more"])


def test_of_two_compactions_the_later_counts_until_it_is_undone() -> None:
    base = path(*ASK, compacts(None, "ONE"), start("t2"), user("x"), says("y"), end("t2"), compacts(None, "TWO"))
    assert plain(build_view(base)) == [("user", ["TWO"])]
    assert plain(build_view(stamp([restores(base[-1].id)], base)))[0] == ("user", ["ONE", "x"])


def test_undo_brings_back_the_exact_bytes_and_keeps_later_turns_less_their_thinking() -> None:
    """Decision 16."""
    before = path(*ASK)
    after = stamp(
        [compacts(None), start("t2"), user("x"), reply(thinks("new", "s2"), "y"), end("t2"), restores("e5")], before
    )
    was = chunks(build_view(before).messages)
    now = chunks(build_view(after).messages)
    assert now[: len(was)] == was
    assert plain(build_view(after))[-1] == ("assistant", ["y"])


def test_a_restore_of_something_else_changes_nothing() -> None:
    assert words(*ASK, restores("e3"), restores("nowhere")) == words(*ASK)


def test_pins_live_until_they_are_taken_back_and_survive_a_compaction() -> None:
    from nbagent.core.entries import Pin

    base = path(*HI, Pin(text="a"), Pin(target="e2"), Pin(text="a", remove=True), says("x"), compacts(None))
    assert build_view(base).pins == (Pin(target="e2"),)


def test_steps_count_the_replies_of_the_turn_also_those_compacted_away() -> None:
    base = path(*HI, calls(), result(), compacts(None), says("x"))
    assert build_view(base).steps == 2


def test_visible_results_are_those_still_seen_in_full() -> None:
    from dataclasses import replace

    entries = path(
        *HI, calls(id="a"), replace(result("a"), meta={"p": 1}), calls(id="b"), replace(result("b"), meta={"p": 2})
    )
    assert visible_results(build_view(entries), entries) == {"e4": {"p": 1}, "e6": {"p": 2}}
    pruned = stamp([prunes("e4")], entries)
    assert visible_results(build_view(pruned), pruned) == {"e6": {"p": 2}}
    gone = stamp([compacts("e5")], entries)
    assert visible_results(build_view(gone), gone) == {"e6": {"p": 2}}


def test_half_a_call_that_was_cut_leaves_a_valid_request() -> None:
    """openclaw 155, 79; claude 74."""
    for blocks in ([call()], ["so", call()], [thinks(), call(id="a"), call(id="b")]):
        entries = path(
            *HI, reply(*blocks, stop="max_tokens", cut="it reached the output limit"), start("t2"), user("x")
        )
        assert broken_rules(build_view(entries).messages) == []


@pytest.mark.parametrize("blocks", [(call(),), ("so", call()), (thinks(), call(id="a"), call(id="b"))])
def test_a_reply_that_was_broken_off_keeps_its_whole_calls_and_each_is_answered(blocks: tuple[Any, ...]) -> None:
    """openclaw 73, 79, otherwise than there (0007), as claude 62 asks: a signed reply without one of its calls is refused,
    and the model sees what it had asked for and that it was not run."""
    body = reply(*blocks, stop=None, cut="stopped")
    answers = [result(str(b["id"]), "Not run", status="not_run") for b in body.blocks if b["type"] == "tool_use"]
    for recorded in (answers, []):  # as the loop writes them, and as an import may lack them
        view = build_view(path(*HI, body, *recorded, end(outcome="stopped"), start("t2"), user("go on")))
        assert view.messages[1].blocks == body.blocks
        assert [b["tool_use_id"] for b in view.messages[2].blocks if b["type"] == "tool_result"] == [a.call_id for a in answers]
        assert all(b["is_error"] for b in view.messages[2].blocks if b["type"] == "tool_result")
        assert broken_rules(view.messages) == []


def test_an_undo_brings_replies_back_as_they_were_though_a_loop_behind_the_note_went_on_with_another_model() -> None:
    before = path(
        start(model="a"), user("go"), reply(thinks("first"), call(id="a"), stop="tool_use"), result("a"),
        reply(thinks("second"), call(id="b"), stop="tool_use"), result("b"),
    )  # fmt: skip
    after = stamp(
        [
            compacts(None), start("t2", model="b"), user("more"), reply(thinks("third"), call(id="c"), stop="tool_use"),
            result("c"), start("t3", model="a"), user("and more"), says("done"), restores("e7"),
        ],
        before,
    )  # fmt: skip
    was, now = chunks(build_view(before).messages), chunks(build_view(after).messages)
    assert any(b"first" in c for c in was)
    assert now[: len(was)] == was
