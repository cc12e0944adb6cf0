"""What a streaming turn draws: frozen parts, live tail, order, traffic."""

from __future__ import annotations

import json
import threading

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nbagent.core.effects import (
    StepBegan,
    StepEnded,
    TextDelta,
    ThinkingDelta,
    ToolBegan,
    ToolEnded,
    TurnBegan,
    TurnDone,
    Waiting,
)
from nbagent.core.messages import text_block
from nbagent.notebook.live import LiveDisplay
from nbagent.notebook.markdown import closed, finished_chars, markdown_html, settled
from nbagent.notebook.picture import TextItem
from nbagent.notebook.stream import StreamLayout

LINES = [
    "para one", "more *text*", "", "", "", "# head", "- item", "- item two", "  nested", "    indented", "1. first", "2) other",
    "> quote", "```", "```py", "~~~", "| a | b |", "|---|---|", "| 1 | 2 |", "---", "===", "$$", "x = 1", "+ y", "#", "*", "-",
    "[ref]: http://example.org", '"title"', "see [ref]", "<b>raw</b>", "`code", "中文段落", "\\[", "\\]", "****", "1.", "  ", "\t- tab",
]  # fmt: skip
documents = st.lists(st.sampled_from(LINES), max_size=40).map("\n".join)


class Screen:
    """What a front end would hold: displays in order, each with its newest bundle; and the bytes that came."""

    def __init__(self) -> None:
        self.displays: list[dict[str, str]] = []
        self.order: list[tuple[str, int]] = []
        self.bytes = 0

    def publish(self, bundle: dict[str, str]) -> int:
        self.displays.append(bundle)
        return self._count("publish", len(self.displays) - 1, bundle)

    def update(self, handle: int, bundle: dict[str, str]) -> None:
        self.displays[handle] = bundle
        self._count("update", handle, bundle)

    def _count(self, what: str, handle: int, bundle: dict[str, str]) -> int:
        self.order.append((what, handle))
        self.bytes += len(json.dumps(bundle, ensure_ascii=False).encode())
        return handle

    def plain(self) -> str:
        return "\n\n".join(d.get("text/plain", "<live>") for d in self.displays)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def began(replayed: bool = False) -> list:
    return [
        TurnBegan(turn="t1", number=1, model="m", window_tokens=200_000, replayed=replayed),
        StepBegan(step=1, context_tokens=1_000, cost_usd=0.0),
    ]


def delta(text: str, index: int = 0) -> TextDelta:
    return TextDelta(index=index, text=text)


def step_ended(text: str, step: int = 1) -> StepEnded:
    blocks = (text_block(text),) if text else ()
    return StepEnded(step=step, blocks=blocks, cut=None, context_tokens=1_200, cost_usd=0.01)


def done(outcome: str = "completed", message: str = "") -> TurnDone:
    return TurnDone(
        outcome=outcome, message=message, steps=1, context_tokens=1_200, window_tokens=200_000, cost_usd=0.0123, duration_s=3.21
    )


def tool_began(name: str = "python", call_id: str = "c1") -> ToolBegan:
    return ToolBegan(call_id=call_id, name=name, summary="df.head()", input={"code": "df.head()"})


def tool_ended(name: str = "python", call_id: str = "c1", status: str = "ok") -> ToolEnded:
    return ToolEnded(call_id=call_id, name=name, summary="df.head()", status=status, text="   a\n0  1", duration_s=0.5)


def chunks(text: str, sizes: list[int]) -> list[str]:
    out, i, k = [], 0, 0
    while i < len(text):
        size = sizes[k % len(sizes)]
        out.append(text[i : i + size])
        i, k = i + size, k + 1
    return out


def live(screen: Screen, clock: Clock, **options) -> LiveDisplay:
    return LiveDisplay(screen.publish, screen.update, clock, **options)


# ---------------------------------------------------------------- cuts


@settings(max_examples=300, deadline=None)
@given(documents)
def test_parts_cut_at_finished_blocks_render_as_the_whole_does(text: str):
    references: dict = {}
    cut = finished_chars(text, references)
    assert 0 <= cut <= len(text)
    whole_references: dict = {}
    finished_chars(text + "\n\nend\n", whole_references)
    parts = [markdown_html(p, references=whole_references, highlight=False) for p in (text[:cut], text[cut:])]
    assert "".join(parts) == markdown_html(text, references=whole_references, highlight=False)


@settings(max_examples=600, deadline=None)
@given(documents, documents, st.sampled_from([None, 1, 20]))
@example("- a\n\n  ```\n\nx", "\n\n```\nb", 1)
@example("> ~~~\n\nb\n\nc", "d\n\n~~~", 1)
@example("1. a\n\n    ```\n    x\n\nb\n\nc", "\n```", 1)
@example("$$\n\nb\n", "\n$$", 1)
def test_what_arrives_later_changes_no_finished_block(text: str, later: str, enough: int | None):
    cut = finished_chars(text, enough=enough)
    references: dict = {}
    finished_chars(text + later + "\n\nend\n", references)
    whole = markdown_html(text + later, references=references, highlight=False)
    first = markdown_html(text[:cut], references=references, highlight=False)
    assert first + markdown_html(text[cut:] + later, references=references, highlight=False) == whole


@settings(max_examples=150, deadline=None)
@given(documents, st.lists(st.integers(1, 30), min_size=1, max_size=5), st.booleans())
def test_the_parts_laid_out_add_up_to_the_text(text: str, sizes: list[int], append_only: bool):
    layout = StreamLayout(append_only=append_only)
    layout._freeze_chars = layout._try_chars = min(layout._freeze_chars, 20)  # so that small documents are cut
    now = 0.0
    for event in [*began(), *map(delta, chunks(text, sizes)), step_ended(text), done()]:
        layout.add(event)
        now += 0.11
        layout.take(now)
    parts = [p for slot in layout.parts for p in slot if isinstance(p.item, TextItem)]
    assert "".join(p.text for p in parts) == (text if text.strip() else "".join(p.text for p in parts))
    references = parts[0].item.references if parts else {}
    rendered = "".join(markdown_html(p.text, references=references, highlight=False) for p in parts)
    assert rendered == markdown_html("".join(p.text for p in parts), references=references, highlight=False)


def test_a_fence_is_never_split():
    text = "intro\n\n```py\n" + "x = 1\n\n" * 2_000 + "```\n\nafter\n"
    screen, clock = Screen(), Clock()
    show = live(screen, clock)
    for event in [*began(), *map(delta, chunks(text, [50])), step_ended(text), done()]:
        clock.now += 0.05
        show(event)
    show.close()
    for display in screen.displays:
        assert display["text/markdown"].count("```") % 2 == 0
    assert sum(d["text/plain"].count("x = 1") for d in screen.displays) == 2_000


def test_an_open_fence_or_emphasis_is_closed_for_display():
    assert settled("```py\nx = 1") == "```py\nx = 1\n```"
    assert settled("a **strong wor") == "a **strong wor**"
    assert settled("a `co") == "a `co`"
    assert settled("all `done` and **well**") == "all `done` and **well**"
    assert closed("~~~\nx\n~~~\n") == "~~~\nx\n~~~\n"
    assert closed("- item\n\n  ```\n  x") == "- item\n\n  ```\n  x"


@settings(max_examples=200, deadline=None)
@given(documents)
def test_what_follows_a_closed_text_is_never_code(text: str):
    html = markdown_html(closed(text) + "\n\nAFTERWARDS", highlight=False)
    assert "AFTERWARDS</p>" in html


# ---------------------------------------------------------------- traffic


@pytest.mark.parametrize("seconds", [5, 50, 250, 1_000])
@pytest.mark.parametrize("kind", ["prose", "one fence", "one list", "one line", "chinese"])
def test_a_long_answer_costs_at_most_five_megabytes(kind: str, seconds: int):
    text = {
        "prose": ("Some *text* with `code` that goes on. " * 8 + "\n\n") * 330,
        "one fence": "```\n" + "value = compute(1)\n" * 5_300,
        "one list": "- an item of a list\n" * 5_000,
        "one line": "word " * 20_000,
        "chinese": ("数据分析需要注意缺失值。" * 8 + "\n\n") * 340,
    }[kind][:100_000]
    screen, clock = Screen(), Clock()
    show = live(screen, clock)
    pieces = chunks(text, [len(text) // 5_000 or 1])
    for event in [*began(), *map(delta, pieces), step_ended(text), done()]:
        clock.now += seconds / len(pieces)
        show(event)
    show.close()
    assert screen.bytes <= 5_000_000
    shown = "".join(d["text/plain"] for d in screen.displays)
    assert "".join(shown.split()).startswith("".join(text.split()))


def test_updates_come_ten_times_a_second_at_most():
    screen, clock = Screen(), Clock()
    show = live(screen, clock)
    for event in began():
        show(event)
    before = len(screen.order)
    for _ in range(1_000):
        clock.now += 0.001
        show(delta("word "))
    assert len(screen.order) - before <= 11


def test_a_larger_live_part_is_drawn_less_often():
    layout = StreamLayout()
    for event in [*began(), delta("word " * 10_000)]:
        layout.add(event)
    layout.take(0.0)
    layout.add(delta("more"))
    assert layout.due_s(0.0) == pytest.approx(0.4, rel=0.1)


def test_text_that_waits_is_drawn_by_the_timer():
    screen, clock, timers = Screen(), Clock(), []
    show = live(screen, clock, later=lambda s, f: timers.append((s, f)))
    for event in [*began(), delta("a"), delta("b")]:
        show(event)
    assert len(timers) == 1
    assert 0 < timers[0][0] <= 0.1
    clock.now = 0.2
    timers[0][1]()
    assert "ab" in screen.displays[0]["text/markdown"]


# ---------------------------------------------------------------- order


def test_a_short_answer_is_one_display_with_all_three_forms():
    screen = Screen()
    show = live(screen, Clock())
    for event in [*began(), delta("Hello **you**"), step_ended("Hello **you**"), done()]:
        show(event)
    show.close()
    assert len(screen.displays) == 1
    assert set(screen.displays[0]) == {"text/html", "text/markdown", "text/plain"}
    assert "<strong>you</strong>" in screen.displays[0]["text/html"]


def test_a_tool_line_changes_in_place_and_later_text_gets_a_new_display():
    screen = Screen()
    show = live(screen, Clock())
    for event in [*began(), delta("Look:"), step_ended("Look:"), tool_began()]:
        show(event)
    assert "running" in screen.displays[0]["text/plain"]
    show(tool_ended())
    assert len(screen.displays) == 1
    assert "[python df.head()] ok" in screen.displays[0]["text/plain"]
    for event in [StepBegan(step=2, context_tokens=1_300, cost_usd=0.01), delta("Done."), step_ended("Done.", 2), done()]:
        show(event)
    show.close()
    assert [d["text/plain"].splitlines()[0] for d in screen.displays] == ["Look:", "Done."]
    assert "step" not in screen.displays[0]["text/plain"]


def test_two_tools_one_after_the_other_have_their_prints_between_them():
    screen = Screen()
    show = live(screen, Clock())
    events = [*began(), tool_began(), tool_ended(), tool_began(call_id="c2"), tool_ended(call_id="c2")]
    for event in events:
        show(event)
    assert len(screen.displays) == 2


def test_tools_known_to_print_nothing_share_a_display():
    screen = Screen()
    show = live(screen, Clock(), silent_tools={"read"})
    for event in [*began(), tool_began("read"), tool_ended("read"), tool_began("read", "c2"), tool_ended("read", call_id="c2"), done()]:
        show(event)
    show.close()
    assert len(screen.displays) == 1


def test_waiting_is_a_line_that_goes_away():
    screen = Screen()
    show = live(screen, Clock())
    for event in [*began(), Waiting(reason="overloaded", seconds=4, attempt=2)]:
        show(event)
    assert "waiting 4 s: overloaded, attempt 2" in screen.displays[0]["text/markdown"]
    for event in [delta("Hi"), step_ended("Hi"), done()]:
        show(event)
    show.close()
    assert "waiting" not in json.dumps(screen.displays)


def test_a_reply_tried_again_replaces_what_had_come():
    screen, clock = Screen(), Clock()
    show = live(screen, clock)
    for event in [*began(), delta("First try\n\n" * 400), Waiting(reason="connection", seconds=1, attempt=2)]:
        clock.now += 1
        show(event)
    for event in [delta("Second try"), step_ended("Second try"), done()]:
        clock.now += 1
        show(event)
    show.close()
    assert "First" not in screen.plain()
    assert screen.plain().count("Second try") == 1


def test_what_is_kept_of_a_reply_counts_not_what_was_streamed():
    screen, clock = Screen(), Clock()
    show = live(screen, clock)
    for event in [*began(), delta("A paragraph.\n\n" * 500), step_ended("Short."), done()]:
        clock.now += 1
        show(event)
    show.close()
    assert screen.plain().strip().startswith("Short.")
    assert "A paragraph" not in json.dumps(screen.displays)


def test_thinking_is_one_line_while_it_comes_and_folded_afterwards():
    screen, clock = Screen(), Clock()
    show = live(screen, clock)
    for event in [*began(), ThinkingDelta(index=0, text="First idea.\nSecond *idea*")]:
        clock.now += 1
        show(event)
    assert "thinking: Second" in screen.displays[0]["text/markdown"]
    assert "First idea" not in screen.displays[0]["text/markdown"]
    kept = StepEnded(
        step=1, cut=None, context_tokens=9, cost_usd=0,
        blocks=({"type": "thinking", "thinking": "First idea.\nSecond *idea*", "signature": "s"}, text_block("Answer")),
    )  # fmt: skip
    for event in [delta("Answer", 1), kept, done()]:
        clock.now += 1
        show(event)
    show.close()
    assert len(screen.displays) == 1
    assert "<details" in screen.displays[0]["text/html"]


def test_definitions_that_come_late_reach_the_frozen_parts():
    text = "See [the guide].\n\n" + "Filler paragraph with words.\n\n" * 100 + "[the guide]: https://example.org/g\n\nEnd.\n"
    screen, clock = Screen(), Clock()
    show = live(screen, clock)
    for event in [*began(), *map(delta, chunks(text, [100])), step_ended(text), done()]:
        clock.now += 0.2
        show(event)
    show.close()
    assert "[the guide]: <https://example.org/g>" in screen.displays[0]["text/markdown"]


# ---------------------------------------------------------------- ends


def test_stop_ends_at_once_and_keeps_what_had_come():
    screen = Screen()
    show = live(screen, Clock())
    for event in [*began(), delta("Half an ans"), tool_began()]:
        show(event)
    show.stop("Stopped in step 1. What was done so far is kept.")
    count = len(screen.order)
    show(delta("more"))
    show(done())
    show.close()
    assert len(screen.order) == count
    plain = screen.plain()
    assert "Half an ans" in plain
    assert "[python df.head()] interrupted" in plain
    assert "Stopped in step 1." in plain


def test_an_interrupt_while_drawing_loses_nothing():
    screen = Screen()
    calls = iter([True])

    def publish(bundle):
        if next(calls, False):
            raise KeyboardInterrupt
        return screen.publish(bundle)

    show = LiveDisplay(publish, screen.update, Clock())
    show(began()[0])
    with pytest.raises(KeyboardInterrupt):
        show(began()[1])
    show(delta("Hello"))
    show.stop("Stopped.")
    assert "Hello" in screen.plain()


def test_close_without_an_end_says_so():
    screen = Screen()
    show = live(screen, Clock())
    for event in [*began(), delta("Half")]:
        show(event)
    show.close()
    show.close()
    assert "the turn ended early" in screen.plain()


def test_nothing_is_streamed_where_nobody_watches():
    screen = Screen()
    show = live(screen, Clock(), interactive=False)
    for event in [*began(), delta("Hello"), step_ended("Hello"), tool_began(), tool_ended()]:
        show(event)
    assert screen.order == []
    show(done())
    show.close()
    assert screen.order == [("publish", 0)]
    assert set(screen.displays[0]) == {"text/html", "text/markdown", "text/plain"}


def test_a_terminal_gets_each_part_once():
    screen, clock = Screen(), Clock()
    show = LiveDisplay(screen.publish, None, clock)
    text = "One paragraph.\n\nAnother one.\n\nA third.\n"
    for event in [*began(), *map(delta, chunks(text, [7])), step_ended(text), tool_began(), tool_ended(), done()]:
        clock.now += 0.2
        show(event)
    show.close()
    assert all(what == "publish" for what, _ in screen.order)
    assert len(screen.displays) >= 3
    plain = screen.plain()
    assert plain.index("Another one.") < plain.index("A third.") < plain.index("[python df.head()] ok") < plain.index("step 1")
    assert [plain.count(s) for s in ("One paragraph", "Another", "A third", "df.head()")] == [1, 1, 1, 1]


def test_a_quiet_turn_shows_the_answer_only():
    screen = Screen()
    show = live(screen, Clock(), quiet=True)
    for event in [*began(), tool_began(), tool_ended(), StepBegan(step=2, context_tokens=9, cost_usd=0)]:
        show(event)
    assert screen.displays == []
    for event in [delta("Only this"), step_ended("Only this", 2), done()]:
        show(event)
    show.close()
    assert screen.plain() == "Only this"


def test_events_from_a_thread_are_drawn_by_the_main_thread_only():
    screen, jobs, threads = Screen(), [], set()

    def publish(bundle):
        threads.add(threading.get_ident())
        return screen.publish(bundle)

    show = LiveDisplay(publish, screen.update, Clock(), post=jobs.append)
    worker = threading.Thread(target=lambda: [show(e) for e in [*began(), delta("Hi"), step_ended("Hi"), done()]])
    worker.start()
    worker.join()
    assert screen.order == []
    assert len(jobs) == 1
    jobs[0]()
    show.close()
    assert threads == {threading.get_ident()}
    assert screen.plain().startswith("Hi")


def test_ipython_publishes_and_updates_by_one_handle(monkeypatch):
    import IPython.display

    from nbagent.notebook.live import notebook_callables

    shown: list[dict] = []

    class Handle:
        def update(self, bundle, raw):
            assert raw
            shown.append(bundle)

    def display(bundle, raw, display_id):
        assert (raw, display_id) == (True, True)
        shown.append(bundle)
        return Handle()

    monkeypatch.setattr(IPython.display, "display", display)
    show = LiveDisplay(*notebook_callables(), Clock())
    for event in [*began(), delta("Hello"), step_ended("Hello"), done()]:
        show(event)
    show.close()
    assert "Hello" in shown[-1]["text/html"]


def test_a_long_unbroken_end_is_left_to_the_renderer_of_the_front_end():
    screen = Screen()
    show = live(screen, Clock())
    text = "- an item of a long list\n" * 2_000
    for event in [*began(), delta(text), step_ended(text), done()]:
        show(event)
    show.close()
    assert [set(d) for d in screen.displays] == [{"text/markdown", "text/plain"}, {"text/html", "text/markdown", "text/plain"}]


EVENTS = st.sampled_from([
    *began(), delta("x\n\n"), delta("y" * 3_000 + "\n\nz\n"), delta("q", 3), ThinkingDelta(index=0, text="t"), step_ended("x\n\n"), step_ended(""),
    step_ended("other", 2), tool_began(), tool_ended(), tool_ended(status="refused"), tool_began(call_id="c2"), Waiting(reason="r", seconds=1, attempt=1),
    StepBegan(step=2, context_tokens=5, cost_usd=0.0), done(), done("error", "broke"),
])  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.lists(EVENTS, max_size=30), st.booleans(), st.booleans())
def test_no_order_of_events_breaks_the_display_or_leaves_it_unfinished(events, quiet: bool, terminal: bool):
    screen, clock = Screen(), Clock()
    show = LiveDisplay(screen.publish, None if terminal else screen.update, clock, quiet=quiet)
    for event in events:
        clock.now += 0.07
        show(event)
    show.close()
    assert all("text/plain" in d for d in screen.displays)
    answer = show.picture.answer()
    if not terminal:
        assert "".join(answer.split()) == "".join(
            "".join(p.text for slot in show._layout.parts for p in slot if isinstance(p.item, TextItem) and not p.item.thinking).split()
        )
