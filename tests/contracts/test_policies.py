"""What every policy keeps, whatever the conversation and whoever writes the notes.

Each request of every story is accepted by a service that checks roles, pairs and the prefix of thinking; what the
person asked for in the open turn is there word for word; a request extends the one before except at a recorded
move; a compaction that fails changes nothing; an undo brings the bytes back.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbagent.context.policies import BUILT_IN
from tests.contracts.fuzz import batches, load, play, save
from tests.contracts.story import Story, Tape

NAMES = [n for kind in BUILT_IN.values() for n in ([kind.name, f"{kind.name}@seed"] if kind.seed else [kind.name])]
FUZZ = os.environ.get("NBAGENT_HYPOTHESIS") == "fuzz"
STORIES = 10_000 if FUZZ else 300


@pytest.mark.timeout(7_200 if FUZZ else 300)
@pytest.mark.parametrize("policy", NAMES)
@settings(max_examples=STORIES)
@given(tape=st.integers(0, 2**32), length=st.integers(0, 300))
def test_a_story_keeps_the_contract(policy: str, tape: int, length: int) -> None:
    Story(policy, Tape(random.Random(tape).randbytes(length))).play()


def test_fuzzing_goes_on_where_it_was_stopped_and_begins_anew_with_other_code(tmp_path: Path) -> None:
    state = tmp_path / "fuzz.json"
    save(state, "code1", {"pi": 30, "manus": 25}, ["pi 7"])
    assert load(state, "code1", ["pi", "codex"]) == ({"pi": 30, "codex": 0}, ["pi 7"])
    assert load(state, "code2", ["pi"]) == ({"pi": 0}, [])
    left = list(batches({"pi": 30, "codex": 0}, 60))
    assert [(b.policy, b.first, b.last) for b in left] == [
        ("pi", 30, 55), ("codex", 0, 25), ("pi", 55, 60), ("codex", 25, 50), ("codex", 50, 60),
    ]  # fmt: skip


def test_a_story_of_the_fuzzing_is_the_same_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytes] = []
    monkeypatch.setattr(Story, "play", lambda story: seen.append(bytes(story.tape.pick(256) for _ in range(9))))
    for number in (3, 4, 3):
        play("pi", number)
    assert seen[0] == seen[2] != seen[1]
