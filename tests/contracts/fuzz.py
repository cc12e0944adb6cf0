"""Plays random stories under every policy, and goes on where it was stopped: what `make fuzz` runs for hours.

    python -m tests.contracts.fuzz [--stories 10000] [--jobs 2] [--policies nbagent,codex@seed] [--state FILE]

Story number N of a policy is the same on every machine. The state file says how many stories of each policy were
played; it belongs to the code it was made with, and other code begins anew. A story that fails is named, with the
line that plays it again; the others go on.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import sys
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
STATE = ROOT / "build" / "fuzz.json"
BATCH = 25  # stories of one policy in a row, then the next one's
LONGEST = 300  # bytes of a tape


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Stories `first` to `last` (not included) of a policy."""

    policy: str
    first: int
    last: int


def play(policy: str, number: int) -> None:
    """Play one story; raises what is wrong with it."""
    from tests.contracts.story import Story, Tape

    chance = random.Random(f"{policy} {number}")
    Story(policy, Tape(chance.randbytes(chance.randint(0, LONGEST)))).play()


def play_batch(batch: Batch) -> list[tuple[int, str]]:
    """Return number and traceback of the stories that failed."""
    failed = []
    for number in range(batch.first, batch.last):
        try:
            play(batch.policy, number)
        except Exception:  # reported, and the others go on
            failed.append((number, traceback.format_exc(limit=-6)))
    return failed


def batches(played: dict[str, int], stories: int) -> Iterator[Batch]:
    """Yield what is left, the policies in turn."""
    at = dict(played)
    while any(n < stories for n in at.values()):
        for policy, first in list(at.items()):
            if first < stories:
                at[policy] = min(stories, first + BATCH)
                yield Batch(policy=policy, first=first, last=at[policy])


def code_digest() -> str:
    """Return what tells the code under test from other code."""
    digest = hashlib.sha256()
    for folder in ("nbagent/core", "nbagent/context", "nbagent/models", "tests/contracts", "tests/core", "tests/fakes"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            digest.update(f"{file.relative_to(ROOT)}\n".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def load(state: Path, code: str, policies: Sequence[str]) -> tuple[dict[str, int], list[str]]:
    """Return how many stories of each policy were played, and the stories that failed, with this code."""
    known = _known(state, code)
    return {p: int(known.get("played", {}).get(p, 0)) for p in policies}, list(known.get("failed", []))


def _known(state: Path, code: str) -> dict[str, Any]:
    known = json.loads(state.read_text(encoding="utf-8")) if state.exists() else {}
    return dict(known) if known.get("code") == code else {}


def save(state: Path, code: str, played: dict[str, int], failed: list[str]) -> None:
    """Write the state, whole or not at all."""
    others = _known(state, code).get("played", {})
    state.parent.mkdir(parents=True, exist_ok=True)
    draft = state.with_suffix(".new")
    text = json.dumps({"code": code, "played": {**others, **played}, "failed": failed}, indent=1)
    draft.write_text(text + "\n", encoding="utf-8")
    os.replace(draft, state)


def main(arguments: Sequence[str] | None = None) -> int:
    """Play what is left; return 1 when a story failed."""
    from tests.contracts.test_policies import NAMES

    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--stories", type=int, default=10_000, help="for each policy")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--policies", default=",".join(NAMES))
    parser.add_argument("--state", type=Path, default=STATE)
    parser.add_argument("--story", type=int, help="play this one of the policy named, and nothing else")
    parsed = parser.parse_args(arguments)
    policies = parsed.policies.split(",")
    if parsed.story is not None:
        play(policies[0], parsed.story)
        return 0
    code = code_digest()
    played, failed = load(parsed.state, code, policies)
    os.environ.setdefault("NBAGENT_OFFLINE", "1")
    with ProcessPoolExecutor(parsed.jobs) as pool:
        left = list(batches(played, parsed.stories))
        for batch, wrong in zip(left, pool.map(play_batch, left), strict=True):
            for number, why in wrong:
                name = f"{batch.policy} {number}"
                failed += [name] if name not in failed else []
                again = f"python -m tests.contracts.fuzz --policies {batch.policy} --story {number}"
                print(f"FAILED {name}; again: {again}\n{why}", flush=True)
            played[batch.policy] = batch.last
            save(parsed.state, code, played, failed)
    least, most = min(played.values()), max(played.values())
    print(f"{len(played)} policies, {least:,} to {most:,} stories each, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
