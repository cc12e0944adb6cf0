"""How long memory takes: search against the bare queries in it, one changed note among 10,000, two writers at once.

`python benchmarks/memory_speed.py [--pieces 10000,100000] [--files 10000] [--lines 10000]`. Text is drawn by Zipf's law from
invented words, with a fixed seed. Times are of CPU on one thread, medians, since the machine may be shared; the writers' is wall
time. Midnight passes in the midst of what the writers write.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from nbagent.memory.memory import Memory
from nbagent.memory.words import query_terms

QUERIES = 40
PIECES_A_FILE = 100
WORDS_A_PIECE = 30
VOCABULARY = 20_000


@dataclass(frozen=True)
class Options:
    """Settings of memory for a benchmark."""

    embedder: str = "static"
    preset: str = "nbagent"
    extra_dirs: tuple[str, ...] = ()


def vocabulary() -> list[str]:
    """Return invented words that WordPiece can take apart, commonest first."""
    chance = random.Random(1)
    syllables = [a + b for a in "bcdfghklmnprstvw" for b in ("a", "e", "i", "o", "u", "an", "er", "in", "or", "al")]
    words: dict[str, None] = {}
    while len(words) < VOCABULARY:
        words.setdefault("".join(chance.choices(syllables, k=chance.randint(2, 4))))
    return list(words)


class Writer:
    """Draws sentences."""

    def __init__(self) -> None:
        self.words = vocabulary()
        self._weights = [1 / (i + 3) for i in range(len(self.words))]
        self._chance = random.Random(2)

    def sentence(self, words: int = WORDS_A_PIECE) -> str:
        """Return some words."""
        return " ".join(self._chance.choices(self.words, self._weights, k=words))

    def question(self) -> str:
        """Return eight words: half of them common, half rare."""
        rare = self._chance.choices(self.words[200:5_000], k=4)
        return " ".join([*self._chance.choices(self.words[20:200], k=4), *rare])

    def fill(self, folder: Path, files: int, pieces: int) -> None:
        """Write notes."""
        inner = folder / ".nbagent" / "memory"
        inner.mkdir(parents=True)
        for i in range(files):
            lines = [f"# Note {i}", "", *(f"- {self.sentence()}" for _ in range(pieces))]
            (inner / f"note-{i:05}.md").write_text("\n".join(lines) + "\n")


def median_ms(work: Callable[[str], object], queries: list[str]) -> float:
    """Return the median CPU time of `work` over the queries, in ms: the machine may be shared."""
    times = []
    for query in queries:
        start = time.process_time()
        work(query)
        times.append((time.process_time() - start) * 1e3)
    return statistics.median(times)


def search(pieces: int) -> None:
    """Compare a search with the bare queries it consists of."""
    writer = Writer()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        writer.fill(folder, pieces // PIECES_A_FILE, PIECES_A_FILE)
        memory = Memory.open(folder, folder / "home", Options(), lambda: "2026-01-01")
        start = time.process_time()
        memory.search("anything", 10)
        build_s = time.process_time() - start
        library = memory._libraries["memory"]
        shelf, index, embedder = library.shelf(), library.index, library.embedder
        matrix = shelf._vectors[: shelf.size]
        queries = [writer.question() for _ in range(QUERIES)]

        def bare_words(query: str) -> None:
            terms = query_terms(query)
            for name in ("piece_words", "window_words", "section_words"):
                index.find(name, terms, 10)

        def bare_vectors(query: str) -> None:
            (matrix @ embedder.embed([query], "query")[0]).argmax()

        for query in queries:
            memory.search(query, 10)
        words, vectors = median_ms(bare_words, queries), median_ms(bare_vectors, queries)
        whole = median_ms(lambda q: memory.search(q, 10), queries)
        print(
            f"{pieces:>7,} pieces: search {whole:.1f} ms; bare words {words:.1f} + vectors {vectors:.1f} ms; "
            f"ratio {whole / (words + vectors):.2f} (goal 3); built in {build_s:.1f} s CPU"
        )
        memory.close()


def reindex(files: int) -> None:
    """Compare one changed note with the full build."""
    writer = Writer()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        writer.fill(folder, files, 10)
        memory = Memory.open(folder, folder / "home", Options(), lambda: "2026-01-01")
        start = time.process_time()
        memory.status()
        full = time.process_time() - start
        memory.search("anything", 5)
        spent = []
        for i in range(15):
            with (folder / ".nbagent" / "memory" / f"note-{i:05}.md").open("a") as file:
                file.write(f"- {writer.sentence()}\n")
            start = time.process_time()
            memory._libraries["memory"].refresh()
            spent.append(time.process_time() - start)
        one = statistics.median(spent)
        print(f"{files:,} notes: full build {full:.2f} s CPU; one changed {one * 1e3:.1f} ms, {one / full:.2%} (goal 1 %)")
        memory.close()


WRITE = """
import sys
from pathlib import Path
from nbagent.memory.memory import Memory
from nbagent.memory.provenance import Provenance
sys.path.insert(0, sys.argv[4])
from memory_speed import Options
lines = int(sys.argv[3])
i = 0
memory = Memory.open(
    Path(sys.argv[1]), Path(sys.argv[1]) / "home", Options(), lambda: f"2026-01-0{1 + (i >= lines // 2)}"
)
for i in range(lines):
    memory.add(f"writer {sys.argv[2]} line {i} of many", Provenance(turn=f"t{i}"))
"""


def writers(lines: int) -> None:
    """Let two processes append to one log."""
    with tempfile.TemporaryDirectory() as scratch:
        start = time.perf_counter()
        arguments = [[scratch, name, str(lines), str(Path(__file__).parent)] for name in "ab"]
        running = [subprocess.Popen([sys.executable, "-c", WRITE, *given]) for given in arguments]
        if any(process.wait() for process in running):
            raise SystemExit("a writer failed")
        seconds = time.perf_counter() - start
        logs = sorted((Path(scratch) / ".nbagent" / "memory").glob("2026-01-0[12].md"))
        found = [line for log in logs for line in log.read_text().splitlines()]
        wanted = {f"- writer {n} line {i} of many <!-- nbagent turn=t{i} -->" for n in "ab" for i in range(lines)}
        torn = sum(line not in wanted for line in found)
        print(f"2 processes x {lines:,} lines: {len(found):,} lines, {torn} torn, {len(wanted - set(found))} lost, in {len(logs)} days' logs, {seconds:.1f} s")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pieces", default="10000,100000")
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--lines", type=int, default=10_000)
    given = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"  # numpy is imported later: its threads that wait for each other would count as CPU time
    for pieces in filter(None, given.pieces.split(",")):
        search(int(pieces))
    if given.files:
        reindex(given.files)
    if given.lines:
        writers(given.lines)


if __name__ == "__main__":
    main()
