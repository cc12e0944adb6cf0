"""Properties of the view over random histories."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from nbagent.core.entries import AssistantMessage, Compaction, Entry, Pruning, TurnStart
from nbagent.core.messages import Message, is_signed_thinking, is_thinking, tool_calls
from nbagent.core.view import ViewFold, build_view
from tests.core.builders import chunks, restores, says, stamp, start, steer, user
from tests.core.histories import histories, sent_at
from tests.core.wire_rules import broken_rules


def sendable(entries: Sequence[Entry]) -> tuple[Message, ...]:
    """Return the conversation once the person has spoken, as a new turn would send it."""
    last = [e.body for e in entries if isinstance(e.body, TurnStart)][-1]
    return build_view(stamp([start("next", last.model, prefix=last.prefix), user("next")], entries)).messages


@given(histories())
def test_a_continued_fold_equals_a_fresh_one_at_every_prefix(entries: list[Entry]) -> None:
    fold = ViewFold()
    for i, entry in enumerate(entries, 1):
        fold.add(entry)
        assert fold.view() == build_view(entries[:i])


@given(histories(), st.integers(0, 60))
def test_entries_may_be_added_in_any_portions(entries: list[Entry], at: int) -> None:
    fold = ViewFold(entries[:at])
    fold.extend(entries[at:])
    assert fold.view() == build_view(entries)


@given(histories())
def test_any_history_can_be_sent_once_the_person_speaks(entries: list[Entry]) -> None:
    assert broken_rules(sendable(entries)) == []


@given(histories())
def test_the_view_keeps_the_rules_at_every_prefix(entries: list[Entry]) -> None:
    for i in range(len(entries) + 1):
        assert broken_rules(build_view(entries[:i]).messages, open_at_end=True) == []


@given(histories(tidy=True))
def test_a_tidy_history_can_be_sent_wherever_the_model_was_asked(entries: list[Entry]) -> None:
    for i, entry in enumerate(entries):
        if isinstance(entry.body, AssistantMessage):
            asked = build_view(stamp([steer("x")], entries[:i])).messages
            assert broken_rules(asked) == []


@given(histories())
def test_pieces_and_sources_tell_where_every_block_came_from(entries: list[Entry]) -> None:
    view = build_view(entries)
    assert [b for p in view.pieces for b in p.blocks] == [b for m in view.messages for b in m.blocks]
    assert [e for s in view.sources for e in s] == [p.entry_id for p in view.pieces]
    assert {p.entry_id for p in view.pieces} <= {e.id for e in entries}


def positions_of_thinking(entries: Sequence[Entry]) -> dict[str, int]:
    return {
        str(b.get("signature")): i
        for i, e in enumerate(entries)
        if isinstance(e.body, AssistantMessage)
        for b in e.body.blocks
        if b.get("type") == "thinking" and b.get("signature")
    }


def check_signatures(entries: Sequence[Entry], messages: Sequence[Message], final: TurnStart) -> None:
    """Play the server: each thinking block sent must stand behind the very bytes that it was signed over."""
    made_at = positions_of_thinking(entries)
    whole = list(messages)
    for i, message in enumerate(whole):
        for j, block in enumerate(message.blocks):
            if block.get("type") != "thinking":
                continue
            position = made_at[block["signature"]]
            starts = [e.body for e in entries[:position] if isinstance(e.body, TurnStart)]
            assert (starts[-1].model, starts[-1].prefix) == (final.model, final.prefix)
            own = entries[position].body
            assert isinstance(own, AssistantMessage)
            before = own.blocks[: own.blocks.index(block)]
            head = [*whole[:i], Message(message.role, message.blocks[:j])] if j else whole[:i]
            now = chunks(head)
            then = chunks(sent_at(entries, position))
            assert now[: len(then)] == then
            assert len(now) - len(then) <= len(before)


@given(histories(tidy=True))
def test_thinking_is_sent_only_behind_the_prefix_it_was_signed_over(entries: list[Entry]) -> None:
    final = [e.body for e in entries if isinstance(e.body, TurnStart)][-1]
    check_signatures(entries, build_view(entries).messages, final)


@given(histories())
def test_that_holds_for_untidy_histories_as_well(entries: list[Entry]) -> None:
    final = [e.body for e in entries if isinstance(e.body, TurnStart)][-1]
    check_signatures(entries, build_view(entries).messages, final)


@given(histories(tidy=True))
def test_an_open_tool_loop_sends_the_last_reply_with_all_its_thinking(entries: list[Entry]) -> None:
    """Unless the model changed, or the reply was hidden and comes back into a history that has moved since."""
    if any(e.kind == "restore" for e in entries) or sum(e.kind == "compaction" for e in entries) > 1:
        return
    for end in range(1, len(entries) + 1):
        seen = entries[:end]
        view = build_view(seen)
        if not view.messages or view.messages[-1].role != "user" or len(view.messages) < 2:
            continue
        last = view.messages[-2]
        if not any(b["type"] == "tool_result" for b in view.messages[-1].blocks):
            continue
        own = next(e for e in reversed(seen) if e.id in view.sources[-2])
        assert isinstance(own.body, AssistantMessage)
        at = seen.index(own)
        voices = [(e.body.model, e.body.prefix) for e in seen if isinstance(e.body, TurnStart)]
        then = [(e.body.model, e.body.prefix) for e in seen[:at] if isinstance(e.body, TurnStart)]
        if voices[-1] != then[-1]:
            continue
        signed = [b for b in own.body.blocks if is_signed_thinking(b)]
        assert [b for b in last.blocks if is_thinking(b)][-len(signed) :] == signed or not signed


@given(histories(moves=False))
def test_without_moves_no_signed_thinking_of_the_model_is_lost(entries: list[Entry]) -> None:
    voices = {(e.body.model, e.body.prefix) for e in entries if isinstance(e.body, TurnStart)}
    if len(voices) > 1:
        return
    shown = {str(b.get("signature")) for m in build_view(entries).messages for b in m.blocks if b["type"] == "thinking"}
    for signature, position in positions_of_thinking(entries).items():
        body = entries[position].body
        assert isinstance(body, AssistantMessage)
        spoken = [b for b in body.blocks if not is_thinking(b) and (b["type"] != "text" or b["text"].strip())]
        assert signature in shown or not spoken or (body.cut and not tool_calls(body.blocks))


@given(histories(tidy=True), histories(tidy=True), st.data())
def test_an_undone_move_leaves_what_came_before_it_as_it_was(
    entries: list[Entry], later: list[Entry], data: st.DataObject
) -> None:
    """The bytes before the move come back exactly; later turns stay, less thinking."""
    results = [e.id for e in entries if e.kind == "tool_result"]
    move = data.draw(
        st.sampled_from(
            [Compaction(first_kept=None, note="N"), Pruning(placeholders=dict.fromkeys(results[:1], "[x]"))]
        )
    )
    final = [e.body for e in entries if isinstance(e.body, TurnStart)][-1]
    closed = stamp([steer("go"), says("done")], entries)
    between = stamp([move], closed)
    undone = stamp(
        [start("u", final.model, prefix=final.prefix), user("more"), says("yes"), restores(between[-1].id)], between
    )
    without = chunks(build_view(closed).messages)
    assert chunks(build_view(undone).messages)[: len(without)] == without


@given(histories(tidy=True), st.data())
def test_a_request_extends_the_one_before_unless_a_move_or_another_voice_says_so(
    entries: list[Entry], data: st.DataObject
) -> None:
    before: list[bytes] = []
    voice: tuple[str, str] | None = None
    moves = 0
    for i, entry in enumerate(entries):
        if not isinstance(entry.body, AssistantMessage):
            continue
        starts = [e.body for e in entries[:i] if isinstance(e.body, TurnStart)]
        state = (starts[-1].model, starts[-1].prefix)
        view = build_view(entries[:i])
        in_force = sum(e.kind in ("pruning", "compaction", "restore") for e in entries[:i]) * 100 - len(view.deferred)
        now = chunks(sent_at(entries, i))
        if state == voice and in_force == moves:
            assert now[: len(before)] == before
        before, voice, moves = now, state, in_force
