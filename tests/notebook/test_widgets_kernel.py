"""The widgets in a real kernel: beside the report, alive by the protocol, absent where nobody can use them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.messages_api import FakeMessagesAPI
from tests.notebook.agent_kernel import AgentKernel, agent, running, shown
from tests.notebook.kernel_harness import Result
from tests.notebook.panel_client import PanelClient
from tests.notebook.test_panel_kernel import Running, endless, waits_for
from tests.patience import until

pytestmark = pytest.mark.kernel
VIEW = "application/vnd.jupyter.widget-view+json"


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentKernel]:
    with running(tmp_path_factory.mktemp("kernel")) as started:
        yield started


class WidgetClient(PanelClient):
    """A view of a widget: the protocol in custom messages of the widget's own comm."""

    def __init__(self, kernel: AgentKernel, model_id: str, **options: Any) -> None:
        super().__init__(kernel, **options)
        self.comm_id = model_id
        self.updates: list[dict[str, Any]] = []

    def post(self, data: Any) -> None:
        super().post({"method": "custom", "content": data})

    def _take(self, message: dict[str, Any]) -> None:
        content = message["content"]
        if message["msg_type"] == "comm_msg" and content["comm_id"] == self.comm_id:
            if content["data"].get("method") != "custom":
                return
            content = {**content, "data": content["data"]["content"]}
        elif message["msg_type"] == "comm_open":
            return
        elif message["msg_type"] == "update_display_data":
            self.updates.append(content)
        super()._take({**message, "content": content})

    def hello(self, **fields: Any) -> dict[str, Any]:
        self.post({"kind": "hello", "version": 1, "least": 1, "client": "widget", **fields})
        return self.wait(lambda m: m["kind"] == "snapshot")


def views(result: Result) -> list[dict[str, Any]]:
    """The bundles with a widget's view."""
    return [m["content"]["data"] for m in result.of("display_data") if VIEW in m["content"]["data"]]


def models(result: Result) -> dict[str, dict[str, Any]]:
    """The states of the widgets made in a cell, by id."""
    return {m["content"]["comm_id"]: m["content"]["data"]["state"] for m in result.of("comm_open")}


@pytest.mark.parametrize("kind", ["context", "memory", "skills"])
def test_the_bare_magic_shows_its_report_and_beside_it_the_controls(kernel: AgentKernel, tmp_path: Path, kind: str) -> None:
    kernel.begin(tmp_path)
    result = kernel.run(f"%{kind}")
    shown = [m["content"]["data"] for m in result.of("execute_result", "display_data")]
    (report,) = [bundle for bundle in shown if VIEW not in bundle]
    assert report["text/html"]
    (bundle,) = views(result)
    assert f"%{kind} " in bundle["text/plain"]
    state = models(result)[bundle[VIEW]["model_id"]]
    assert state["start"]["gauge"]["model"]
    assert "innerHTML" not in state["_esm"]


@pytest.mark.parametrize(
    "source", ["report = %context", "%context\n1", "%context policy", "%memory port", "get_ipython().run_line_magic('context', '')"]
)
def test_where_no_report_is_displayed_there_are_no_controls(kernel: AgentKernel, tmp_path: Path, source: str) -> None:
    kernel.begin(tmp_path)
    result = kernel.run(source)
    assert result.status == "ok"
    assert views(result) == []
    assert models(result) == {}


def test_where_nobody_can_answer_the_output_is_the_report_alone(kernel: AgentKernel, tmp_path: Path) -> None:
    kernel.begin(tmp_path)
    result = kernel.run("%context", allow_stdin=False)
    assert result.kinds() == ["execute_result"]
    assert "ipywidgets" not in kernel.run("import sys; print(*[m for m in sys.modules if m == 'nbagent.notebook.panel.widgets'])").stream()


def test_without_anywidget_the_output_is_the_report_alone(kernel: AgentKernel, tmp_path: Path) -> None:
    kernel.begin(tmp_path)
    kernel.run("import sys; kept = {n: sys.modules.pop(n) for n in list(sys.modules) if n.startswith('anywidget') or n == 'nbagent.notebook.panel.widgets'}\nsys.modules['anywidget'] = None")
    result = kernel.run("%context")
    kernel.run("del sys.modules['anywidget']; sys.modules.update(kept)")
    assert result.kinds() == ["execute_result"]


def test_the_report_is_a_value_and_follows_what_the_panel_does(kernel: AgentKernel, tmp_path: Path) -> None:
    with FakeMessagesAPI(["one"]) as fake:
        kernel.begin(tmp_path, fake)
        kernel.run(agent("hi"))
        result = kernel.run("%context")
        (report,) = [m["content"] for m in result.of("display_data") if VIEW not in m["content"]["data"]]
        assert kernel.value("(isinstance(_, __import__('nbagent.notebook.reports.context', fromlist=['x']).ContextReport), _.level)") == (True, 0)
        panel = WidgetClient(kernel, views(result)[0][VIEW]["model_id"])
        try:
            panel.hello()
            assert panel.ask("set", policy="pi")["status"] == "ok"
            panel.until(lambda p: panel.updates)
        finally:
            panel.close()
        assert panel.updates[0]["transient"] == report["transient"]
        assert "policy pi" in panel.updates[0]["data"]["text/plain"]


def test_running_the_cell_again_takes_the_controls_before_away(kernel: AgentKernel, tmp_path: Path) -> None:
    kernel.begin(tmp_path)
    first = views(kernel.run("%context"))[0][VIEW]["model_id"]
    again = kernel.run("%context")
    assert first in [m["content"]["comm_id"] for m in again.of("comm_close")]
    alive = kernel.value("len([w for w in __import__('ipywidgets').widgets.widget._instances.values() if type(w).__name__ == 'PanelWidget'])")
    assert alive == 1
    gone = kernel.run("%unload_ext nbagent")
    assert views(again)[0][VIEW]["model_id"] in [m["content"]["comm_id"] for m in gone.of("comm_close")]


def test_the_gauge_follows_a_turn_and_its_commands_work_beside_the_cell(kernel: AgentKernel, tmp_path: Path) -> None:
    with FakeMessagesAPI([endless()]) as fake:
        kernel.begin(tmp_path, fake)
        made = views(kernel.run("%context"))[0][VIEW]["model_id"]
        view = WidgetClient(kernel, made, subshell=True)
        try:
            assert set(view.hello(parts=["gauge", "turn", "compaction"])["parts"]) == {"gauge", "turn", "compaction"}
            cell = Running(kernel, agent("one"))
            view.until(lambda p: p["turn"]["delivers"] and p["gauge"]["used_tokens"] > 0)
            assert view.ask("undo")["status"] == "queued"
            assert cell.runs
            assert view.ask("stop")["status"] == "ok"
            assert cell.result().status == "error"
            assert view.reply("p1", number=2)["status"] == "error"
        finally:
            view.close()


def test_a_message_to_a_widget_keeps_the_figure_of_the_running_cell(kernel: AgentKernel, tmp_path: Path) -> None:
    """Of a comm that is not freed, the message would draw the half-made figure to nowhere."""
    kernel.begin(tmp_path, MPLBACKEND="module://matplotlib_inline.backend_inline")
    kernel.run("%matplotlib inline\nimport matplotlib.pyplot as plt, time")
    made = views(kernel.run("%context"))[0][VIEW]["model_id"]
    view = WidgetClient(kernel, made, subshell=True)
    try:
        view.hello()
        drawn = f"plt.plot([1, 2])\nopen('drawn', 'w').close()\n{waits_for('asked')}\nplt.title('x')\nprint(len(plt.gca().lines))"
        cell = Running(kernel, drawn)
        until((tmp_path / "drawn").exists)
        assert view.ask("page", of="tree")["status"] == "ok"
        assert cell.runs
        (tmp_path / "asked").touch()
        result = cell.result()
        assert result.stream() == "1\n"
        assert any("image/png" in m["content"]["data"] for m in result.of("display_data"))
    finally:
        view.close()


def test_loading_the_extension_imports_no_widgets(kernel: AgentKernel, tmp_path: Path) -> None:
    kernel.restart()
    kernel.begin(tmp_path)
    loaded = kernel.value("[m for m in __import__('sys').modules if m.partition('.')[0] in ('anywidget', 'ipywidgets')]")
    assert loaded == []
    assert "tokens" in shown(kernel.run("%context"))
