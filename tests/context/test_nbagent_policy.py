"""The default policy: when it compacts, what it keeps, and what is left of a session afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from nbagent.context.anchor_index import AnchorIndex
from nbagent.context.extract import machine_note
from nbagent.context.loss import score_loss, summed
from nbagent.context.measure import Meter
from nbagent.context.policies.nbagent import DEFAULT, KIND
from nbagent.context.policy import Compact, Moment, Plan, Prune, Situation
from nbagent.core.budget import Budget
from nbagent.core.entries import Compaction, Entry
from nbagent.core.view import ViewFold
from tests.core.builders import call, end, path, reply, result, says, start, user

METER = Meter("claude-4.7")
WINDOW = 20_000


def situation(entries: Sequence[Entry], window: int = WINDOW, reason: Any = "before_call") -> Situation:
    view = ViewFold(entries).view()
    tokens = METER.sizes(view.pieces)
    return Situation(
        path=entries, view=view, tokens=tokens, used_tokens=sum(tokens), fixed_tokens=0,
        budget=Budget(window_tokens=window), moment=Moment(reason=reason, mid_turn=not view.turn_ended),
    )  # fmt: skip


def plan(entries: Sequence[Entry], reason: Any = "before_call", **numbers: float) -> Plan:
    return KIND.make({**DEFAULT, **numbers}).plan(situation(entries, reason=reason))


def step(i: int, text: str) -> tuple[Any, Any]:
    code = f"table_{i} = load_part('/srv/sales/part_{i:02d}.csv')"
    return reply(call("python", f"c{i}", {"code": code}), stop="tool_use"), result(f"c{i}", text)


def session(turns: int, words: int = 220) -> list[Entry]:
    """Return turns of two steps; each later turn writes names of the turn before from memory."""
    filler = "the rows look like those of the month before and nothing else is to be said "
    bodies: list[Any] = []
    for t in range(turns):
        rule = "Never round amounts. " if t == 0 else ""
        bodies += [start(f"t{t}"), user(f"{rule}Please add part {t} to the total.")]
        bodies += [
            b for i in (2 * t, 2 * t + 1) for b in step(i, f"total_rows_{i} 48{i:03d} " + filler * (words // 15))
        ]
        decided = f" I decided to keep total_rows_{2 * t}." if t % 4 == 0 else ""
        bodies += [says(f"table_{max(0, 2 * t - 2)} and table_{2 * t} agree.{decided}"), end(f"t{t}")]
    return path(*bodies)


def test_while_it_does_not_pay_nothing_is_proposed() -> None:
    assert plan(session(4)) == ()


def test_a_threshold_that_was_set_is_when_it_compacts_whether_it_pays_or_not() -> None:
    entries = session(16)
    share = situation(entries).share
    assert plan(entries) != (), "it pays"
    assert plan(entries, threshold=1.05 * share) == ()
    early = session(5)
    assert plan(early) == (), "it does not pay"
    assert plan(early, threshold=situation(early).share / 1.5) != ()


def test_what_came_in_one_piece_is_compacted_at_the_latest_share_only() -> None:
    """Nothing was carried yet; but the window is nearly full."""
    files = [b for i in range(4) for b in step(i, "row " * 2_800)]
    entries = path(start(), user("read"), *files, *step(5, "fine"), *step(6, "fine"))
    share = situation(entries).share
    assert plan(entries, latest=1.2 * share) == ()
    assert any(isinstance(m, Compact) for m in plan(entries, latest=share / 1.5))


def test_when_it_usually_pays_depends_on_the_window() -> None:
    policy = KIND.make(DEFAULT)
    assert 0.2 < policy.usual_share(200_000) < 0.3
    assert policy.usual_share(20_000) > 0.6
    assert KIND.make({**DEFAULT, "threshold": 0.4}).usual_share(20_000) == 0.4


def test_when_it_pays_the_newest_part_is_kept_whole_and_the_note_has_its_room() -> None:
    entries = session(16)
    (move,) = plan(entries)
    assert isinstance(move, Compact)
    at = next(i for i, e in enumerate(entries) if e.id == move.first_kept)
    assert 0 < len(entries) - at < len(entries) / 3
    assert move.style.appendix_tokens <= 0.05 * WINDOW


def test_a_compaction_that_frees_less_than_half_of_what_is_over_is_not_made() -> None:
    entries = path(start(), user("go " * 4_000), *step(1, "seen"), *step(2, "seen too"))
    assert situation(entries).share > 0.23
    assert plan(entries, threshold=0.23) == ()


def test_an_open_request_that_the_note_would_repeat_frees_nothing() -> None:
    many = [b for i in range(9) for b in step(i, "fine")]
    entries = path(start(), user("a long request " * 1_500), *many)
    assert plan(entries) == plan(entries, threshold=0.23) == ()


def test_the_newest_step_is_kept_whatever_its_size() -> None:
    entries = session(14)
    large = path(*[e.body for e in entries], start("last"), user("Please look."), *step(99, "row " * 3_000))
    (move,) = plan(large, threshold=0.23)
    assert isinstance(move, Compact)
    assert move.first_kept is not None
    kept = [e.id for e in large[next(i for i, e in enumerate(large) if e.id == move.first_kept) :]]
    assert large[-1].id in kept


def test_by_hand_it_compacts_whatever_the_threshold() -> None:
    assert any(isinstance(m, Compact) for m in plan(session(6), "manual"))


def test_results_are_cleared_first_only_where_that_is_asked_for() -> None:
    entries = session(16)
    assert not any(isinstance(m, Prune) for m in plan(entries))
    (move,) = plan(entries, prune_above=0.2, threshold=0.5)
    assert isinstance(move, Prune)


def test_what_was_needed_and_what_binds_survives_many_compactions() -> None:
    """The goals of the default policy: needed loss at most 5 %, standing loss at most 2 %."""
    recorded = session(60)
    index = AnchorIndex(recorded)
    fold = ViewFold()
    policy = KIND.make(DEFAULT)
    made = 0
    needed = standing = summed({})
    for position, entry in enumerate(recorded):
        now = situation(list(fold.path)) if fold.path else None
        for move in policy.plan(now) if now is not None else ():
            assert isinstance(move, Compact)
            made += 1
            body = compacted(list(fold.path), move)
            fold.extend([Entry(f"m{made}", fold.path[-1].id, 0.0, body)])
            scores = score_loss(index, fold.view(), cut=position)
            needed, standing = needed + summed(scores.needed), standing + summed(scores.standing)
        fold.extend([replace(entry, parent=fold.path[-1].id if fold.path else None)])
    assert made >= 4
    assert needed.loss <= 0.05
    assert standing.loss <= 0.02


def compacted(entries: list[Entry], move: Compact) -> Compaction:
    at = next((i for i, e in enumerate(entries) if e.id == move.first_kept), len(entries))
    note = machine_note(entries[:at], entries[at:], min(move.style.appendix_tokens, WINDOW // 20), METER.text)
    return Compaction(first_kept=move.first_kept, note=note)


def test_a_long_result_is_waited_for_longer_but_never_until_the_window_is_full() -> None:
    """A file that was read whole is written from for some steps."""
    old = [b for i in range(6) for b in step(i, "old row " * 200)]
    used = [b for i in range(20, 25) for b in step(i, "ok")]
    entries = path(start(), user("read"), *old, *step(7, "row of the file " * 1_600), *used)
    share = situation(entries).share
    assert plan(entries, threshold=share / 1.1) == ()
    assert plan(entries, threshold=share / 1.1, latest=share) != ()
    short = path(start(), user("read"), *old, *step(7, "row of the file " * 1_100), *step(8, "so " * 1_000), *used)
    assert plan(short, threshold=situation(short).share / 1.1) != ()


def test_what_the_last_steps_brought_is_waited_for_a_little() -> None:
    """It is likely written next; replaced, it would have to be fetched again."""
    old = [b for i in range(11) for b in step(i, "old row " * 200)]
    fresh = [b for i in range(11, 14) for b in step(i, "new row " * 300)]
    entries = path(start(), user("read"), *old, *fresh)
    share = situation(entries).share
    assert plan(entries, threshold=share / 1.1) == ()
    assert plan(entries, threshold=share / 1.5) != ()
    used = [b for i in range(14, 17) for b in step(i, "ok")]
    later = path(start(), user("read"), *old, *fresh, *used)
    assert plan(later, threshold=situation(later).share / 1.1) != ()
