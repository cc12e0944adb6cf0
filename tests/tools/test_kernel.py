from __future__ import annotations

import asyncio

import pytest

from nbagent.core.errors import ToolError
from nbagent.tools.kernel import InspectTool, PythonTool
from nbagent.tools.kernel_types import CodeCancelled, CodeError, CodeOutcome, Display, VariableSummary
from tests.tools.builders import Desk, FakeKernel

PYTHON, INSPECT = PythonTool(), InspectTool()
FRAME = VariableSummary(name="df", type_name="pandas.DataFrame", shape="(1797, 64)", identity="1", text="columns: a, b")


def desk_with(tmp_path, outcome=None, variables=(), **options):
    return Desk(tmp_path, kernel=FakeKernel(outcome, variables), **options)


def ran(tmp_path, outcome, code="x", **options):
    return desk_with(tmp_path, outcome, **options).call(PYTHON, code=code)


def test_output_value_and_errors_come_in_order(tmp_path):
    outcome = CodeOutcome(stdout="out\n", stderr="warn\n", result_text="42")
    assert ran(tmp_path, outcome).text == "out\n[stderr]\nwarn\n42"


def test_code_that_shows_nothing_says_so(tmp_path):
    assert ran(tmp_path, CodeOutcome()).text == "(no output)"


def test_an_error_is_an_error_result_with_its_traceback(tmp_path):
    error = CodeError(name="ZeroDivisionError", message="division by zero", traceback="\x1b[31mCell In[5.2], line 1\x1b[0m\n1/0")
    output = ran(tmp_path, CodeOutcome(stdout="before\n", error=error))
    assert output.status == "error"
    assert output.text == "before\nCell In[5.2], line 1\n1/0\nZeroDivisionError: division by zero"
    assert output.meta["error"] == "ZeroDivisionError"


def test_a_long_traceback_keeps_its_head_and_its_message(tmp_path):
    trace = "Cell In[1], line 1\n" + "frame\n" * 5_000 + "ValueError: at the end"
    text = ran(tmp_path, CodeOutcome(error=CodeError(name="ValueError", message="at the end", traceback=trace))).text
    assert len(text) <= 6_000
    assert text.startswith("Cell In[1]")
    assert text.endswith("ValueError: at the end")


def test_html_is_never_shown_when_there_is_text(tmp_path):
    display = Display(bundle={"text/html": "<table><tr><td>1</td></tr></table>", "text/plain": "   a\n0  1"})
    text = ran(tmp_path, CodeOutcome(displays=(display,))).text
    assert text == "   a\n0  1"


def test_html_alone_is_shown_as_its_words(tmp_path):
    display = Display(bundle={"text/html": "<style>p{}</style><p>R&amp;D <b>up</b></p><script>x()</script>"})
    assert ran(tmp_path, CodeOutcome(displays=(display,))).text == "R&D up"


def test_at_most_four_figures_are_shown_and_the_rest_counted(tmp_path):
    # DECISIONS 14
    figure = Display(bundle={"image/png": "aGFs\nbG8=", "text/plain": "<Figure size 640x480>"})
    output = ran(tmp_path, CodeOutcome(displays=(figure,) * 6))
    assert len(output.images) == 4
    assert output.images[0]["source"]["data"] == "aGFsbG8="
    assert "4 figures are shown, 2 more are not" in output.text
    assert "<Figure" not in output.text


def test_a_model_that_sees_nothing_is_told_of_the_figure(tmp_path):
    output = ran(tmp_path, CodeOutcome(displays=(Display(bundle={"image/png": "aGFs"}),)), sees_images=False)
    assert output.images == ()
    assert "does not see images" in output.text


def test_a_display_that_cannot_be_shown_is_named(tmp_path):
    display = Display(bundle={"application/vnd.plotly.v1+json": "{}" * 50}, dropped=("text/html",))
    assert ran(tmp_path, CodeOutcome(displays=(display,))).text == "[display: application/vnd.plotly.v1+json (100 characters), text/html (too large), not shown]"


def test_a_long_value_of_a_variable_is_described_instead(tmp_path):
    # SPEC NB-5
    desk = desk_with(tmp_path, CodeOutcome(result_text="0  1\n" * 2_000), [FRAME])
    output = desk.call(PYTHON, code="df = load()\ndf")
    assert output.text.startswith("df: pandas.DataFrame (1797, 64)\ncolumns: a, b\n[the value prints as 10,000 characters")
    assert "0  1\n0  1" in str(output.full_text)


def test_a_long_value_of_an_expression_is_a_sample(tmp_path):
    output = ran(tmp_path, CodeOutcome(result_text="v" * 9_000), code="f(x)")
    assert len(output.text) < 1_700
    assert "9,000 characters, shortened; assign it to a name" in output.text


def test_what_the_kernel_left_out_is_said(tmp_path):
    text = ran(tmp_path, CodeOutcome(stdout="a", dropped_chars=1_234, displays_dropped=2)).text
    assert "1,234 characters of output were left out" in text
    assert "2 more displays" in text


def test_a_stopped_run_is_interrupted(tmp_path):
    output = ran(tmp_path, CodeOutcome(stdout="half", stopped=True))
    assert output.status == "interrupted"
    assert "stopped before it ended" in output.text


def test_stop_is_passed_on(tmp_path):
    class Stopped(FakeKernel):
        async def run_code(self, code: str, *, label: str) -> CodeOutcome:
            raise CodeCancelled(CodeOutcome(stopped=True))

    with pytest.raises(asyncio.CancelledError):
        Desk(tmp_path, kernel=Stopped()).call(PYTHON, code="x")


def test_without_a_kernel_the_model_is_told(tmp_path):
    with pytest.raises(ToolError, match="no notebook kernel"):
        Desk(tmp_path).call(PYTHON, code="1")
    with pytest.raises(ToolError, match="empty"):
        desk_with(tmp_path).call(PYTHON, code=" \n")


def test_inspect_without_names_lists_types_and_shapes_only(tmp_path):
    desk = desk_with(tmp_path, None, [FRAME, VariableSummary(name="n", type_name="int", text="5")])
    assert desk.call(INSPECT).text == "df: pandas.DataFrame (1797, 64)\nn: int"


def test_inspect_describes_what_was_asked_and_no_more(tmp_path):
    desk = desk_with(tmp_path, None, [FRAME, VariableSummary(name="n", type_name="int", text="5")])
    assert desk.call(INSPECT, names=["n"]).text == "n: int\n5"


def test_inspect_of_an_unknown_name_suggests_a_near_one(tmp_path):
    desk = desk_with(tmp_path, None, [FRAME])
    with pytest.raises(ToolError, match="'dff' is not defined in the kernel; did you mean df"):
        desk.call(INSPECT, names=["dff"])
    assert "['nope' is" not in desk.call(INSPECT, names=["df"]).text
    assert "'nope' is not defined" in desk.call(INSPECT, names=["df", "nope"]).text


def test_a_variable_that_was_rebound_since_is_flagged(tmp_path):
    # SPEC NB-5
    desk = desk_with(tmp_path, None, [FRAME])
    assert "changed since" not in desk.call(INSPECT, names=["df"]).text
    assert "changed since" not in desk.call(INSPECT, names=["df"]).text
    desk.options["kernel"] = FakeKernel(None, [VariableSummary(name="df", type_name="pandas.DataFrame", identity="2")])
    assert "changed since you looked" in desk.call(INSPECT, names=["df"]).text


def test_a_long_list_of_variables_is_counted(tmp_path):
    desk = desk_with(tmp_path, None, [VariableSummary(name=f"v{i}", type_name="int") for i in range(250)])
    assert desk.call(INSPECT).text.endswith("[50 more variables; name those you need]")


@pytest.mark.parametrize(
    ("code", "summary"),
    [("x = 1", "x = 1"), ("\nx = 1\n\ny = 2\n", "x = 1 (+1 line)"), ("a\nb\nc", "a (+2 lines)"), (" \n", "")],
)
def test_a_summary_is_the_first_line_and_counts_the_others(code, summary):
    assert PYTHON.summary({"code": code}) == summary
