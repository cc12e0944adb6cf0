"""How much of the evidence memory finds: `python benchmarks/memory_quality.py FILE`, a file of LoCoMo's schema.

Each conversation becomes a folder of notes (a file a session, a list item a turn) and is searched through
`Memory.search`, like any notes. Rows: `bm25` (keywords of the piece alone), `vectors` (the static table alone), `openclaw`
(its scoring over the same pieces and vectors), `recipe` (hand-rounded weights), `nbagent` (the default, learned weights).
Categories 1 to 4, turns as units, each question
counts once; recall is the share of its evidence turns found. LoCoMo is CC BY-NC: it is read where it lies.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nbagent.memory.memory import Memory
from nbagent.memory.recall import PRESETS, Recipe

NOTHING = {"piece": 0.0, "window": 0.0, "section": 0.0, "piece_vector": 0.0, "window_vector": 0.0, "length": 0.0,
           "author": 0.0, "when": 0.0, "date": 0.0}  # fmt: skip
ROWS: dict[str, Recipe] = {
    "bm25": replace(PRESETS["recipe"], **(NOTHING | {"piece": 1.0})),
    "vectors": replace(PRESETS["recipe"], **(NOTHING | {"piece_vector": 1.0})),
    "openclaw": replace(PRESETS["openclaw"], chunking="pieces"),
    "recipe": PRESETS["recipe"],
    "nbagent": PRESETS["nbagent"],
}
CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop"}
MEASURES = ("recall@5", "recall@10", "nDCG@10", "MRR", "recall@1ktok")
DEPTH = 60
TOKENS = 1_000


@dataclass(frozen=True)
class Options:
    """Settings of memory for a benchmark."""

    embedder: str = "static"
    preset: str = "nbagent"
    extra_dirs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Conversation:
    """Notes and questions: (file name, text), turn of each line, (question, category, evidence)."""

    name: str
    notes: list[tuple[str, str]]
    turns: dict[tuple[str, int], str]
    lengths: dict[str, int]
    questions: list[tuple[str, int, set[str]]]


def conversations(path: Path) -> Iterator[Conversation]:
    """Read a file of LoCoMo's schema."""
    for item in json.loads(path.read_text(encoding="utf-8")):
        talk = item["conversation"]
        notes, turns, lengths = [], {}, {}
        for number in sorted(int(k[8:]) for k in talk if re.fullmatch(r"session_\d+", k)):
            name = f"session-{number:03}.md"
            lines = [f"# Session {number}, {talk.get(f'session_{number}_date_time', '')}", ""]
            for turn in talk[f"session_{number}"]:
                caption = turn.get("blip_caption")
                text = " ".join(f"{turn['speaker']}: {turn['text']}{f' [shares {caption}]' if caption else ''}".split())
                lines.append(f"- {text}")
                turns[name, len(lines)] = turn["dia_id"]
                lengths[turn["dia_id"]] = len(text)
            notes.append((name, "\n".join(lines) + "\n"))
        known = set(turns.values())
        questions = []
        for qa in item["qa"]:
            evidence = evidence_ids(qa.get("evidence", [])) & known
            if qa["category"] in CATEGORIES and evidence:
                questions.append((qa["question"], qa["category"], evidence))
        yield Conversation(str(item.get("sample_id", "")), notes, turns, lengths, questions)


def evidence_ids(given: Any) -> set[str]:
    """Return the turns that a list of evidence names, malformed ones put right ("D8:6; D9:17", "D:11:26", "D30:05")."""
    found = set()
    for text in [given] if isinstance(given, str) else given:
        found |= {f"D{int(a)}:{int(b)}" for a, b in re.findall(r"D:?(\d+):(\d+)", str(text))}
    return found


def measure(order: Sequence[str], evidence: set[str], lengths: dict[str, int]) -> dict[str, float]:
    """Return the measures of one question."""
    gains = [t in evidence for t in order]
    ideal = sum(1 / math.log2(i + 2) for i in range(min(10, len(evidence))))
    within, size = set(), 0
    for turn in order:
        size += lengths[turn] / 4
        if size > TOKENS:
            break
        within.add(turn)
    return {
        "recall@5": len(evidence & set(order[:5])) / len(evidence),
        "recall@10": len(evidence & set(order[:10])) / len(evidence),
        "nDCG@10": sum(g / math.log2(i + 2) for i, g in enumerate(gains[:10])) / ideal,
        "MRR": next((1 / (i + 1) for i, g in enumerate(gains) if g), 0.0),
        "recall@1ktok": len(evidence & within) / len(evidence),
    }


def searched(memory: Memory, talk: Conversation, question: str) -> list[str]:
    """Return the turns found, best first, each once."""
    order: dict[str, None] = {}
    for hit in memory.search(question, DEPTH):
        name = hit.path.rsplit("/", 1)[-1]
        for line in range(hit.start_line, hit.end_line + 1):
            turn = talk.turns.get((name, line))
            if turn:
                order.setdefault(turn)
    return list(order)


def evaluate(talks: Sequence[Conversation], recipe: Recipe, embedder: str) -> list[tuple[int, dict[str, float]]]:
    """Return (category, measures) of every question."""
    results = []
    for talk in talks:
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) / ".nbagent" / "memory"
            folder.mkdir(parents=True)
            for name, text in talk.notes:
                (folder / name).write_text(text, encoding="utf-8")
            memory = Memory.open(Path(scratch), Path(scratch) / "home", Options(embedder=embedder), lambda: "2026-01-01")
            memory.recipe = recipe
            for question, category, evidence in talk.questions:
                results.append((category, measure(searched(memory, talk, question), evidence, talk.lengths)))
            memory.close()
    return results


def mean(results: Sequence[dict[str, float]], name: str) -> float:
    """Return the mean of a measure."""
    return statistics.fmean(r[name] for r in results) if results else 0.0


def print_table(rows: dict[str, list[tuple[int, dict[str, float]]]], write: Callable[[str], None] = print) -> None:
    """Print one line a row, and for the last the categories."""
    write(f"{'':10}" + "".join(f"{m:>14}" for m in MEASURES))
    for name, results in rows.items():
        write(f"{name:10}" + "".join(f"{mean([m for _, m in results], x):>14.3f}" for x in MEASURES))
    last = rows[list(rows)[-1]]
    for category, label in CATEGORIES.items():
        part = [m for c, m in last if c == category]
        write(f"  {label} ({len(part)})" + "".join(f"  {x} {mean(part, x):.3f}" for x in MEASURES[:3]))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--rows", default=",".join(ROWS), help="which rows, by comma")
    parser.add_argument("--embedder", default="static")
    given = parser.parse_args()
    talks = list(conversations(given.file))
    print(f"{len(talks)} conversations, {sum(len(t.questions) for t in talks)} questions, embedder {given.embedder}")
    print_table({name: evaluate(talks, ROWS[name], given.embedder) for name in given.rows.split(",")})


if __name__ == "__main__":
    main()
