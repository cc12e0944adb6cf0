"""Run All: agent cells queued in one go (SPEC R3), and again after a restart (DECISIONS 8)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.messages_api import FakeMessagesAPI
from tests.notebook.agent_kernel import AgentKernel, agent, running, sent, shown, texts, turn_ids

pytestmark = pytest.mark.kernel
PROMPTS = [f"question {n}" for n in range(10)]


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentKernel]:
    with running(tmp_path_factory.mktemp("kernel")) as started:
        yield started


@pytest.mark.parametrize("ids", [True, False])
def test_ten_agent_cells_are_ten_turns_on_one_path(kernel: AgentKernel, tmp_path: Path, ids: bool) -> None:
    notebook = tmp_path / "a.ipynb"
    notebook.write_text("{}")
    cells = [(agent(p), f"cell-{n}" if ids else None) for n, p in enumerate(PROMPTS)]
    env = {"JPY_SESSION_NAME": str(notebook)}
    with FakeMessagesAPI(lambda body: f"answer to {texts(body)[-1]}") as fake:
        kernel.begin(tmp_path, fake, **env)
        kernel.run(agent("import the client", "--new"), cell_id="warm" if ids else None)
        kernel.run("%agent reset")
        _assert_answered(kernel.run_all(cells))
        assert texts(sent(fake)[-1]) == PROMPTS
        assert len(fake.requests) == 11
        first = turn_ids(shown(kernel.run("%agent log")))
        assert len(first) == 10

        kernel.restart()
        assert "10 turns" in shown(kernel.begin(tmp_path, fake, **env))
        if not ids:  # the order of agent cells is counted from the kernel's start
            kernel.run(agent("import the client", "--new"))
            kernel.run(f"%agent revert {first[-1]}")
        before = len(fake.requests)
        _assert_answered(kernel.run_all(cells))
        assert len(fake.requests) == before + 10
        assert texts(sent(fake)[-1]) == PROMPTS
        log = turn_ids(shown(kernel.run("%agent log")))
        assert len(log) == 10
        assert not set(log) & set(first)
        assert set(first) < set(turn_ids(shown(kernel.run("%agent tree"))))


def _assert_answered(results: list[object]) -> None:
    for prompt, result in zip(PROMPTS, results, strict=True):
        assert result.status == "ok"  # type: ignore[attr-defined]
        assert f"answer to {prompt}" in shown(result)  # type: ignore[arg-type]
        assert shown(result).count("answer to") == 1  # type: ignore[arg-type]


def test_a_failed_turn_stops_run_all(kernel: AgentKernel, tmp_path: Path) -> None:
    with FakeMessagesAPI(["cut"]) as fake:
        kernel.begin(tmp_path, fake)
        cells = [(agent("one", "--max-steps 1 --tools hammer"), "a"), (agent("two"), "b"), ("print(3)", "c")]
        results = kernel.run_all(cells)
        assert [r.status for r in results] == ["error", "aborted", "aborted"]
        assert fake.requests == []
