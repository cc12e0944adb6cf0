"""What is remembered between notes and lookups gives what reading all anew gives."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nbagent.context.anchor_index import AnchorIndex, Reader
from nbagent.context.compare import _Bill, shared_bytes
from nbagent.context.extract import MachineNotes, machine_note
from nbagent.context.extract_rank import Standing, stands_in
from nbagent.context.sight import Sight, _stands_in
from nbagent.context.simulate import Call
from nbagent.core.budget import Prices
from nbagent.core.cuts import cut_points
from nbagent.core.entries import Entry, TurnStart
from nbagent.core.messages import Message, text_block
from nbagent.core.tokens import estimate_tokens
from nbagent.core.view import build_view
from tests.core.builders import call, compacts, end, path, reply, result, says, stamp, start, user

PIECES = ["alpha_one", "beta", "東京", "é", "_", ".", " ", "-", "12", "/a/b.py", "alpha"]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)


def count(text: str) -> int:
    return estimate_tokens(text, "claude-4.7")


def talk(turns: int) -> list[Entry]:
    bodies = []
    for t in range(turns):
        rows = "\n".join(f"gauge_{t}_{i} at /srv/part_{t}/{i}.csv" for i in range(40 * (1 + t % 3)))
        bodies += [start(f"t{t}"), user(f"Always use metre_{t}, please."), reply(call("read", f"c{t}", {"path": f"p{t}"}), stop="tool_use")]
        bodies += [result(f"c{t}", rows, name="read"), says(f"I decided to use gauge_{t}_1."), end(f"t{t}")]
    return path(*bodies)


def test_notes_of_a_growing_path_are_those_of_a_fresh_look_also_after_a_fork() -> None:
    notes, entries = MachineNotes(count), talk(9)
    fork = stamp([start("f"), user("other_way instead"), says("fine"), end("f")], entries[:24])
    grown = stamp([compacts("e25", "short"), start("n"), user("go on"), says("yes"), end("n")], entries)
    for whole, cut in ((entries[:30], 24), (entries, 42), (grown, 54), (fork, 24), (entries, 48)):
        assert notes(whole[:cut], whole[cut:], 400) == machine_note(whole[:cut], whole[cut:], 400, count)


def test_an_entry_with_the_id_of_another_is_read_itself() -> None:
    notes, entries = MachineNotes(count), talk(3)
    other = [*entries[:-2], Entry(entries[-2].id, entries[-2].parent, 0.0, says("the new_name is decided")), entries[-1]]
    first = notes(entries, [], 300)
    assert "new_name" in notes(other, [], 300)
    assert notes(entries, [], 300) == first


def test_indexes_that_share_a_reader_are_like_others() -> None:
    reader, entries = Reader(), talk(4)
    for whole in (entries, entries[:12], entries[6:]):
        one, other = AnchorIndex(whole, reader=reader), AnchorIndex(whole)
        assert (one.anchors, one.said, one.ids) == (other.anchors, other.said, other.ids)
        assert [one.parts(i) for i in range(len(whole))] == [other.parts(i) for i in range(len(whole))]


@given(st.lists(TEXTS, max_size=4), st.sampled_from([p for p in PIECES if p.strip()]))
def test_a_word_stands_where_it_is_found_by_reading_all(lines: list[str], wanted: str) -> None:
    standing = Standing()
    for line in lines:
        standing.add(line)
    assert standing.has(wanted) == stands_in("".join(f"{line}\n" for line in lines), wanted)


@given(st.lists(TEXTS, min_size=1, max_size=4), st.sampled_from(["alpha_one", "beta", "alpha", "12", "é", "東京"]))
def test_sight_holds_a_name_where_it_is_found_by_reading_all(lines: list[str], wanted: str) -> None:
    entries = path(start(), *(user(f"say {line}") for line in lines[:-1]), says("ok"), end(), start("t2"), user(lines[-1] or "x"))
    sight = Sight(AnchorIndex(entries), build_view(entries[:-1]))
    for position in (None, len(entries) - 1):
        if position is not None:
            sight.add(position)
        assert sight.holds(("ident", wanted), 0) == _stands_in(sight.text, wanted, whole_word=True)


def test_cut_points_from_a_turns_start_on_are_the_last_ones_of_all() -> None:
    entries = talk(6)
    for begins in (i for i, e in enumerate(entries) if isinstance(e.body, TurnStart)):
        assert cut_points(entries, begins) == tuple(p for p in cut_points(entries) if p.index >= begins)


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=8))
def test_a_bill_reads_from_the_cache_what_two_requests_share(steps: list[tuple[int, int]]) -> None:
    bill, read = _Bill(10), 0.0
    last: tuple[Message, ...] = ()
    for step, (kept, new) in enumerate(steps):
        fresh = [Message("user" if i % 2 else "assistant", (text_block(f"step {step} {'x' * i}"),)) for i in range(new)]
        now = (*last[:kept], *fresh)
        if step:
            total = sum(len(m.to_bytes()) for m in now)
            read += 10 + 90 * (shared_bytes(last, now) / total if total else 0.0)
        bill.add(Call(purpose="turn", at=0.0, messages=now, tokens=100, output_tokens=1))
        last = now
    assert bill.read == read
    assert bill.cost(Prices(input_usd=1.0, output_usd=1.0)) >= 0
