"""Finds skills by what a task is: names, descriptions and texts, ranked with the shared ranking (NB-S1)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from nbagent.core.ranking import Bm25, Words
from nbagent.skills.catalog import Catalog, Skill
from nbagent.skills.discovery import read_bytes

DESCRIPTION_WEIGHT: Final = 1.0  # of BM25 sums; measured with tests/skills/catalog
NAME_WEIGHT: Final = 0.3
BODY_WEIGHT: Final = 0.2
BODY_CHARS: Final = 6_000  # of a text that are ranked; the start says what it is about
FOUND: Final = 5
_CANDIDATES: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A skill that fits; `score` compares hits of one query only."""

    skill: Skill
    score: float


def body_text(skill: Skill) -> str:
    """Return the start of a skill's file, "" when it cannot be read now."""
    try:
        raw = read_bytes(skill.path, os.stat(skill.path))
    except (OSError, ValueError):
        return ""
    text = raw.decode(errors="replace")
    return text.split("\n---", 1)[-1][:BODY_CHARS]


class Selector:
    """The index of one catalog's visible skills, made at the first search."""

    def __init__(self, catalog: Catalog, *, body_of: Callable[[Skill], str] = body_text) -> None:
        self.catalog = catalog
        self._body_of = body_of
        self._fields: Mapping[str, Bm25] | None = None

    def find(self, query: str, limit: int = FOUND) -> tuple[Found, ...]:
        """Return at most `limit` skills that fit, best first; ties in prompt order."""
        scores: dict[int, float] = {}
        fields = self._indexed()
        weights = (("description", DESCRIPTION_WEIGHT), ("name", NAME_WEIGHT), ("body", BODY_WEIGHT))
        for name, weight in weights:
            for hit in fields[name].search(query, _CANDIDATES):
                scores[hit.index] = scores.get(hit.index, 0.0) + weight * hit.score
        best = sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))[:limit]
        return tuple(Found(skill=self.catalog.visible[i], score=score) for i, score in best)

    def _indexed(self) -> Mapping[str, Bm25]:
        if self._fields is None:
            words = Words()
            fields = {name: Bm25(words) for name in ("name", "description", "body")}
            for skill in self.catalog.visible:
                spoken = skill.name.replace("-", " ").replace("_", " ")
                fields["name"].add(spoken)
                fields["description"].add(f"{spoken}. {skill.summary}")
                fields["body"].add(self._body_of(skill))
            self._fields = fields
        return self._fields
