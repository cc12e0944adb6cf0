"""BoundedText, Recorder and tracebacks, without a kernel."""

from __future__ import annotations

import base64
import io
import sysconfig

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbagent.notebook.capture import BoundedText, CaptureLimits, Recorder, shadowed
from nbagent.notebook.tracebacks import clip, describe_error


@given(st.lists(st.text("ab", max_size=30), max_size=60), st.integers(1, 40))
def test_bounded_text_keeps_head_and_tail(pieces: list[str], limit: int) -> None:
    kept, whole = BoundedText(limit), "".join(pieces)
    for piece in pieces:
        kept.add(piece)
    text = kept.text()
    if len(whole) <= limit:
        assert (text, kept.dropped_chars) == (whole, 0)
    else:
        assert kept.dropped_chars == len(whole) - limit
        assert text.startswith(whole[: limit // 2])
        assert text.endswith(whole[-(limit - limit // 2) :])


def test_memory_stays_bounded_with_many_small_pieces() -> None:
    kept = BoundedText(1_000)
    for _ in range(100_000):
        kept.add("x")
    assert len(kept._recent) + len(kept._tail) < 10_000  # a private look: this is the bound that matters
    assert kept.dropped_chars == 99_000


def test_the_person_sees_the_first_part_and_one_line() -> None:
    recorder = Recorder(CaptureLimits(shown_stream=5))
    shown = [recorder.stream("stdout", text) for text in ("abc", "defg", "h", "i")]
    assert shown[0] == "abc"
    assert shown[1].startswith("de\n[more than 5")
    assert shown[2:] == ["", ""]
    assert recorder.stdout == "abcdefghi"


def test_exactly_the_limit_shows_no_notice_until_more_comes() -> None:
    recorder = Recorder(CaptureLimits(shown_stream=3))
    assert recorder.stream("stdout", "abc") == "abc"
    assert "more than" in recorder.stream("stdout", "d")


def test_spill_gets_everything() -> None:
    pieces: list[str] = []
    recorder = Recorder(CaptureLimits(kept_stream=10, shown_stream=1), pieces.append)
    for i in range(50):
        recorder.stream("stderr" if i % 2 else "stdout", f"{i},")
    assert "".join(pieces) == "".join(f"{i}," for i in range(50))
    assert recorder.dropped_chars > 0


def test_redrawn_lines_are_kept_as_they_were_left() -> None:
    recorder = Recorder(CaptureLimits())
    recorder.stream("stderr", "10%\r50%\r100%\nnext\r\n50%\r")
    assert recorder.stderr == "100%\nnext\n50%"


def test_displays_are_counted_updated_and_encoded() -> None:
    recorder = Recorder(CaptureLimits(kept_displays=2, shown_displays=3, kept_image=10, kept_text=20))
    assert recorder.display({"text/plain": "a"}, display_id="x")
    assert recorder.display({"image/png": b"png", "image/svg+xml": "s" * 99, "application/json": {"a": 1}})
    assert recorder.display({"text/plain": "b"}, display_id="x", update=True)
    assert not recorder.display({"text/plain": "c"})
    first, second = recorder.displays
    assert first.bundle == {"text/plain": "b"}
    assert dict(second.bundle) == {"image/png": base64.b64encode(b"png").decode(), "application/json": '{"a": 1}'}
    assert (second.dropped, recorder.displays_dropped) == (("image/svg+xml",), 1)


def test_an_image_result_is_a_display_too() -> None:
    recorder = Recorder(CaptureLimits(kept_text=10))
    shown = recorder.result({"text/plain": "x" * 50, "image/png": b"1"})
    assert len(recorder.displays) == 1
    assert recorder.result_text == shown["text/plain"]
    assert "characters left out" in shown["text/plain"]


def test_shadowed_attributes_are_restored_also_after_a_failure() -> None:
    stream = io.StringIO()
    with pytest.raises(ZeroDivisionError), shadowed(stream, write=lambda text: 1 / 0):
        stream.write("no")
    stream.write("yes")
    assert stream.getvalue() == "yes"
    assert vars(stream) == {}


def label(filename: str) -> str | None:
    return f"Cell In[{filename[1:-1]}]" if filename.startswith("<c") else None


def error_of(source: str) -> BaseException:
    try:
        exec(compile(source, "<c1>", "exec"), {})
    except BaseException as e:
        return e
    raise AssertionError("no error")


@pytest.mark.parametrize(
    ("source", "said"), [("def f(:\n pass", "invalid syntax"), ("'\0'", "source code string cannot contain null bytes")]
)
def test_a_syntax_error_is_said_once_and_names_no_file_of_the_kernel(source: str, said: str) -> None:
    try:
        compile(source, "/tmp/ipykernel_1/23.py", "exec")
    except (SyntaxError, ValueError) as error:
        found = describe_error(error.with_traceback(None), lambda name: "Cell In[1.1]")
    assert found.message == said
    assert found.traceback.endswith(f"{found.name}: {said}")
    assert "line None" not in found.traceback
    assert "23.py" not in found.message + found.traceback


def test_library_frames_are_folded() -> None:
    found = describe_error(error_of("import json\njson.loads('{')"), label)
    assert found.name == "JSONDecodeError"
    assert found.traceback.splitlines()[0] == "Cell In[c1], line 2"
    assert "frames in json" in found.traceback
    assert "test_capture" not in found.traceback


def test_library_frames_name_no_folder_of_this_machine() -> None:
    from_stdlib = describe_error(error_of("import json\njson.loads('{')"), label).traceback
    from_package = describe_error(error_of("import nbformat\nnbformat.reads('{', as_version=4)"), label).traceback
    assert "\njson/decoder.py, line " in from_stdlib
    assert "\nnbformat/" in from_package
    for text in (from_stdlib, from_package):
        assert sysconfig.get_path("stdlib") not in text
        assert "site-packages" not in text


def test_chains_notes_groups_and_syntax_errors() -> None:
    assert (
        "direct cause"
        in describe_error(error_of("try: 1/0\nexcept Exception as e: raise ValueError(2) from e"), label).traceback
    )
    assert "Note: n" in describe_error(error_of("e = ValueError(1); e.add_note('n'); raise e"), label).traceback
    assert "- KeyError: 1" in describe_error(error_of("raise ExceptionGroup('g', [KeyError(1)])"), label).traceback
    assert describe_error(error_of("x = (1,\ny +"), label).traceback.startswith("Cell In[c1], line 1")


def test_endless_recursion_and_long_messages_are_short() -> None:
    found = describe_error(error_of("def f(): f()\nf()"), label)
    assert "frames left out" in found.traceback
    assert len(describe_error(error_of("raise ValueError('x' * 100_000)"), label).traceback) < 8_200


def test_ansi_codes_are_removed() -> None:
    assert describe_error(error_of("raise ValueError('\\x1b[31mred\\x1b[0m')"), label).message == "red"


def test_clip_says_how_much_is_missing() -> None:
    assert clip("abcdef", 6) == "abcdef"
    assert "5 characters left out" in clip("a" * 9, 4)
