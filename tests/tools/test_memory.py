"""Tools memory_search, memory_get and remember over a real memory (OC-M4, OC-M5, NB-M2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from nbagent.core.errors import ToolError
from nbagent.memory.bound import BoundMemory
from nbagent.memory.hits import Hit
from nbagent.memory.provenance import Provenance
from nbagent.tools.memory import MemoryGetTool, MemorySearchTool, RememberTool, hits_text
from nbagent.tools.memory_types import MemoryPort
from nbagent.tools.tool import Tool, ToolContext, ToolOutput
from tests.memory.desk import Desk as Notes
from tests.tools.builders import Desk


@dataclass(frozen=True, slots=True, kw_only=True)
class WithMemory(ToolContext):
    memory: MemoryPort | None = None


class Bench:
    """A workspace whose tools have a memory."""

    def __init__(self, root: Path, **options: Any) -> None:
        self.notes = Notes(root)
        opened = self.notes.open(**options)
        self.memory = BoundMemory(lambda: opened, lambda: Provenance(turn="t7", cell="a1b2"))
        self.desk = Desk(root)
        self.limits: dict[str, int] = {}

    def call(self, tool: Tool, **input: Any) -> ToolOutput:
        import asyncio

        plain = self.desk.context()
        fields = {f: getattr(plain, f) for f in ToolContext.__dataclass_fields__}
        context = WithMemory(**(fields | {"memory": self.memory} | self.limits))
        return asyncio.run(tool.run(input, context))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_fact_is_stored_with_turn_and_cell_and_found_again(bench: Bench) -> None:
    assert bench.call(RememberTool(), text="The target is churn.").text == "Remembered in .nbagent/memory/2026-03-01.md."
    found = bench.call(MemorySearchTool(), query="what is the target?").text
    assert found == "1. .nbagent/memory/2026-03-01.md:1 · 2026-03-01 · turn t7, cell a1b2\n- The target is churn."


def test_a_persons_fact_goes_to_the_person(bench: Bench) -> None:
    assert "~/.nbagent/memory/" in bench.call(RememberTool(), text="Likes tabs.", scope="person").text


def test_remember_writes_so_the_permission_mode_decides_whether_it_asks() -> None:
    assert (RememberTool().spec.access, MemorySearchTool().spec.access, MemoryGetTool().spec.access) == ("write", "read", "read")


def test_a_secret_is_refused_with_a_sentence_the_model_can_act_on(tmp_path: Path) -> None:
    bench = Bench(tmp_path, scrub=lambda t: t.replace("hunter2", "[secret]"))
    with pytest.raises(ToolError, match="leave that part out"):
        bench.call(RememberTool(), text="the password is hunter2")


def test_get_reads_lines_and_says_where_to_go_on(bench: Bench) -> None:
    bench.notes.note("MEMORY.md", "a\nb\nc\nd\n")
    text = bench.call(MemoryGetTool(), path="MEMORY.md", **{"from": 2, "lines": 2}).text
    assert text == "b\nc\n[MEMORY.md, lines 2-3 of 4; from=4 reads on]"


def test_get_within_a_small_cap_says_which_lines_it_left_out(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.notes.note("MEMORY.md", "".join(f"line {i:03} {'x' * 90}\n" for i in range(1, 61)))
    bench.limits["cap_chars"] = 2_000
    text = bench.call(MemoryGetTool(), path="MEMORY.md").text
    assert len(text) <= 2_000
    kept = text.splitlines()[:-1]
    assert kept == [f"line {i:03} {'x' * 90}" for i in range(1, len(kept) + 1)]
    assert text.endswith(f"[MEMORY.md, lines 1-{len(kept)} of 60; from={len(kept) + 1} reads on]")


def test_a_wrong_path_is_an_error_the_model_reads(bench: Bench) -> None:
    with pytest.raises(ToolError, match="there is no note"):
        bench.call(MemoryGetTool(), path="../../etc/x.md")


def test_nothing_found_is_said(bench: Bench) -> None:
    assert bench.call(MemorySearchTool(), query="zeppelin").text.startswith("Nothing in memory matches")


def test_without_memory_the_tool_says_so(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="no memory in this session"):
        Desk(tmp_path).call(MemorySearchTool(), query="x")


def hit(number: int, **given: Any) -> Hit:
    return Hit(path="MEMORY.md", start_line=number, end_line=number, score=1.0, snippet="s" * 300, **given)


def test_hits_stay_within_the_cap_and_count_what_is_left() -> None:
    text = hits_text([hit(i) for i in range(1, 21)], 2_000)
    assert len(text) <= 2_000
    assert text.endswith("more hits; ask for fewer, or more precisely]")


def test_an_older_contradicting_line_says_so() -> None:
    assert "older than MEMORY.md:9, which says otherwise" in hits_text([hit(1, contradicts="MEMORY.md:9")], 2_000)


@pytest.mark.parametrize("tool", [MemorySearchTool(), MemoryGetTool(), RememberTool()])
def test_summaries_stay_on_one_line(tool: Tool) -> None:
    for input in ({}, {"query": "a\nb" * 200, "path": "x" * 900, "text": "y\n" * 900, "from": 3}):
        assert "\n" not in tool.summary(input)
        assert len(tool.summary(input)) <= 130
    assert tool.paths({}) == ()


def test_the_port_fits_what_is_bound(bench: Bench) -> None:
    port: MemoryPort = bench.memory
    found: Sequence[Hit] = port.search("x")
    assert found == []
