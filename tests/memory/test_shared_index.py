"""Several kernels over one index: each search sees one state of it, and says when it could not be brought up to date."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from nbagent.memory.embedders import Kind
from tests.memory.desk import Desk, WordsEmbedder, snippets


class Interrupted(WordsEmbedder):
    """Lets something else happen while it embeds texts of one kind."""

    def __init__(self, kind: Kind, meanwhile: Callable[[], None]) -> None:
        super().__init__("base", "line")
        self.kind = kind
        self.meanwhile = meanwhile

    def embed(self, texts: Sequence[str], kind: Kind) -> Any:
        if kind == self.kind:
            self.meanwhile()
        return super().embed(texts, kind)


@pytest.mark.parametrize("preset", ["nbagent", "openclaw"])
@pytest.mark.parametrize("kind", ["query", "passage"])
def test_a_search_finds_while_another_kernel_takes_up_changes(desk: Desk, kind: Kind, preset: str) -> None:
    lines = ["- base line"]
    desk.note("memory/log.md", "- base line\n")
    other = desk.open(WordsEmbedder("base", "line"), preset=preset)

    def meanwhile() -> None:
        lines.append(f"- other {len(lines)}")
        desk.note("memory/log.md", "\n".join(lines) + "\n")
        assert "base line" in other.search("base line")[0].snippet

    memory = desk.open(Interrupted(kind, meanwhile), preset=preset)
    for i in range(3):
        desk.note("memory/log.md", "\n".join([*lines, f"- mine {i}"]) + "\n")
        assert "base line" in memory.search("base line")[0].snippet
    assert len(lines) > 3
    assert any("other 1" in s for s in snippets(memory, "other 1"))
