"""R1: one conversation over a kernel restart, another day, edited files and narrowed tools (peers 11; DECISIONS 1, 2, 16, 17)."""

from __future__ import annotations

from pathlib import Path

from tests.fakes.messages_api import FakeMessagesAPI, call, extends, reply, text, thinking
from tests.fakes.ways import both_ways  # noqa: F401
from tests.runtime.lab import Lab


def test_the_second_day_extends_the_first_and_each_change_is_told_once(tmp_path: Path) -> None:
    script = [
        reply(thinking("read it"), text("I look."), call("python", {"code": "rows = 3\nrows"})),
        reply(thinking("three"), text("Three rows.")),
        reply(thinking("gone"), text("They are gone."), call("shell", {"command": "ls"})),
        reply(thinking("refused"), text("I may not.")),
        reply(thinking("go on"), text("Third.")),
    ]
    with FakeMessagesAPI(script) as fake:
        lab = Lab(tmp_path / "work", environ={"ANTHROPIC_BASE_URL": fake.base_url}, mode="auto")
        (lab.folder / "AGENTS.md").write_text("Use metric units.")
        (lab.folder / ".nbagent").mkdir()
        (lab.folder / ".nbagent" / "MEMORY.md").write_text("The person likes tables.")
        lab.open(live=True)
        lab.send("how many rows?", "c1")

        (lab.folder / "AGENTS.md").write_text("Use imperial units.")
        (lab.folder / ".nbagent" / "MEMORY.md").write_text("The person likes charts.")
        lab.clock.day = "2026-12-01 (Tuesday)"
        lab.restart(live=True)
        narrowed = ("python", "inspect", "read")
        lab.send("and now?", "c2", tools=narrowed)
        lab.send("third", "c3", tools=narrowed)
        told = lab.told()
        lab.close()

        assert [r.refusal for r in fake.requests] == [None] * 5
        assert not fake.problems
        for before, after in zip(fake.requests, fake.requests[1:], strict=False):
            assert extends(before.body, after.body) is None
            assert after.canonical.startswith(before.canonical)
        assert fake.requests[0].body["tools"] == fake.requests[4].body["tools"]  # masked, not removed
        assert "metric" in str(fake.requests[4].body["system"])  # the stored prefix stays
        kept = fake.requests[2].body["messages"][1]["content"][0]
        assert kept["type"] == "thinking"  # the signed thinking went back and was accepted
        assert kept["signature"]

    assert len(told) == 2, "the third turn has nothing new to hear"
    second = told[1]
    for once in ("variables from before are gone", "2026-12-01 (Tuesday)", "imperial", "charts", "shell, write"):
        assert second.count(once) == 1, once
        assert sum(t.count(once) for t in told) == 1
    last = str(fake.requests[3].body["messages"][-1])
    assert "not available in this turn" in last
