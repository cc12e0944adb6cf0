"""What every policy keeps, whatever the conversation and whoever writes the notes.

Each request of every story is accepted by a service that checks roles, pairs and the prefix of thinking; what the
person asked for in the open turn is there word for word; a request extends the one before except at a recorded
move; a compaction that fails changes nothing; an undo brings the bytes back.
"""

from __future__ import annotations

import os
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbagent.context.policies import BUILT_IN
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
