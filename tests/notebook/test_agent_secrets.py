"""What agent-run code prints, shows and raises is kept in the notebook's file: no secret in it, and nothing else changed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.messages_api import FakeMessagesAPI, call, reply
from tests.notebook.agent_kernel import AgentKernel, agent, results, running, sent, shown

pytestmark = pytest.mark.kernel

KEY = "sk-ant-api03-" + "A1b2C3d4" * 6
TOKEN = "zq8-secret-value-77123"
MAKE_KEY = f"key = {KEY[:20]!r} + {KEY[20:]!r}; import os; token = os.environ['MY_TOKEN']"
CODES = (
    "print('key', key, token, sep=': ')\nprint(token[:6], token[6:], sep='')",
    "import sys; sys.stderr.write('password: '); sys.stderr.write('hunter2' * 2); sys.stderr.write('\\n')",
    "from IPython.display import HTML, JSON, display\ndisplay(HTML(f'<b>{key}</b>')); display(JSON({'k': [token]}))",
    "{'a': key}",
    "raise ValueError(f'{key} is no good')",
    "!echo $MY_TOKEN",
    "print('half a line', end='')\ndisplay(HTML('<i>a display</i>'))\nprint(' at https://example.org/?a=1', end='')",
)


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentKernel]:
    with running(tmp_path_factory.mktemp("kernel")) as started:
        yield started


def test_no_secret_of_agent_run_code_is_in_outputs_journal_recording_or_export(
    kernel: AgentKernel, tmp_path: Path
) -> None:
    """peers 106, 107: outputs, their metadata, tracebacks, journal, artifacts, recording, exports, requests."""
    with FakeMessagesAPI([*(reply(call("python", {"code": c})) for c in CODES), f"It was {KEY}."]) as fake:
        kernel.begin(tmp_path, fake, MY_TOKEN=TOKEN, NBAGENT_TOOLS__ALLOW="python")
        kernel.run(MAKE_KEY)
        kernel.run("%agent record cassettes/a.json")
        turn = kernel.run(agent("show the key"))
        exported = [kernel.run(f"%agent export out.{kind}") for kind in ("md", "html", "json")]
        assert turn.status == "ok"
        assert [r.status for r in exported] == ["ok"] * 3
        said = json.dumps([m["content"] for m in turn.messages], default=str) + "".join(r.raw.decode() for r in fake.requests)
        files = {p.name: p.read_text(errors="replace") for p in tmp_path.rglob("*") if p.is_file()}
        assert {"a.json", "out.md", "out.html", "out.json", "journal.jsonl"} <= set(files)
        for where, text in {"outputs and requests": said, **files}.items():
            assert not any(secret in text for secret in (KEY[:30], TOKEN, "hunter2hunter2")), where
        assert len(results(sent(fake)[-1])) == len(CODES)


def test_what_holds_no_secret_is_shown_as_it_was_printed_and_in_its_order(kernel: AgentKernel, tmp_path: Path) -> None:
    with FakeMessagesAPI([reply(call("python", {"code": c})) for c in CODES[-1:]] + ["ok"]) as fake:
        kernel.begin(tmp_path, fake, NBAGENT_TOOLS__ALLOW="python")
        kernel.run("from IPython.display import HTML, display")
        turn = kernel.run(agent("show"))
        said = [m["content"].get("text") or m["content"].get("data", {}).get("text/html", "") for m in turn.messages]
        text = "".join(said)
        assert text.index("half a line") < text.index("a display") < text.index(" at https://example.org/?a=1")
        assert "half a line" in shown(turn)
