"""Builders for tests of memory: a notebook's folder with notes, and embedders that do as they are told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nbagent.memory.embedders import Embedder, Kind
from nbagent.memory.memory import Memory

TODAY = "2026-03-01"


@dataclass(frozen=True)
class Options:
    """Settings of memory."""

    embedder: str = "static"
    preset: str = "nbagent"
    extra_dirs: tuple[str, ...] = ()


class Desk:
    """A notebook's folder. Notes are named as in `.nbagent/`; `today` may be changed."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "project"
        self.home = root / "person"
        self.folder.mkdir(exist_ok=True)
        self.home.mkdir(exist_ok=True)
        self.today = TODAY

    def note(self, name: str, text: str | bytes) -> Path:
        path = self.folder / ".nbagent" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def person(self, name: str, text: str) -> Path:
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def open(self, embedder: Embedder | None = None, **options: Any) -> Memory:
        given = {k: options.pop(k) for k in ("embedder_name", "preset", "extra_dirs") if k in options}
        named = {"embedder": given.pop("embedder_name", "none" if embedder is None else "static"), **given}
        return Memory.open(
            self.folder, self.home, Options(**named), lambda: self.today, embedder=embedder, environ={}, **options
        )


class WordsEmbedder:
    """One direction for each of a few words: likeness is what the test says it is. Counts its calls."""

    fast = True

    def __init__(self, *groups: str, id: str = "words-1") -> None:
        self.id = id
        self.groups = [set(g.split()) for g in groups]
        self.calls: list[tuple[str, ...]] = []

    def embed(self, texts: Sequence[str], kind: Kind) -> Any:
        self.calls.append(tuple(texts))
        rows = [[float(sum(w.strip(".,?").lower() in g for w in t.split())) for g in self.groups] for t in texts]
        return np.asarray(rows, np.float32)


class BadEmbedder:
    """Gives whatever `answer` says, or raises it."""

    fast = True

    def __init__(self, answer: Any, id: str = "bad-1") -> None:
        self.id = id
        self.answer = answer
        self.calls = 0

    def embed(self, texts: Sequence[str], kind: Kind) -> Any:
        self.calls += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer(len(texts))


def snippets(memory: Memory, query: str, k: int = 10) -> list[str]:
    return [hit.snippet for hit in memory.search(query, k)]
