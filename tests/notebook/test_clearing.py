"""clear_output of agent-run code takes back what that code showed, and nothing else."""

from __future__ import annotations

from typing import Any

from nbagent.notebook.capture import CaptureLimits, Recorder
from nbagent.notebook.clearing import MOST_TEXT_CHARS, Stage


class Cell:
    """A cell's outputs by display id, as a front end keeps them."""

    def __init__(self) -> None:
        self.outputs: dict[str, str] = {}
        self.messages = 0

    def publish(self, bundle: Any, metadata: Any = None, *, transient: Any = None, update: bool = False) -> None:
        self.messages += 1
        name = transient["display_id"]
        assert (name in self.outputs) == update
        self.outputs[name] = bundle["text/plain"]

    @property
    def shown(self) -> list[str]:
        return [text for text in self.outputs.values() if text]


def stage() -> tuple[Stage, Cell]:
    cell = Cell()
    return Stage(cell.publish), cell


def show(on: Stage, text: str, display_id: str | None = None, *, update: bool = False, may_grow: bool = True) -> None:
    options: dict[str, Any] = {"transient": {"display_id": display_id}} if display_id else {}
    on.show({"text/plain": text}, {}, options={**options, **({"update": True} if update else {})}, may_grow=may_grow)


def test_a_loop_that_waits_leaves_one_display() -> None:
    run, cell = stage()
    for i in range(5):
        run.clear(wait=True)
        show(run, f"step {i}")
    run.close()
    assert cell.shown == ["step 4"]
    assert len(cell.outputs) == 1
    assert cell.messages == 5, "nothing is blanked in between"


def test_what_was_shown_stays_until_something_new_comes() -> None:
    run, cell = stage()
    show(run, "a")
    show(run, "b")
    run.clear(wait=True)
    run.close()
    assert cell.shown == ["a", "b"]
    show(run, "c")
    run.close()
    assert cell.shown == ["c"]


def test_without_waiting_it_is_gone_at_once() -> None:
    run, cell = stage()
    show(run, "a")
    run.clear(wait=False)
    assert cell.shown == []
    show(run, "b")
    show(run, "c")
    assert cell.shown == ["b", "c"]
    assert len(cell.outputs) == 2


def test_displays_and_prints_of_a_round_replace_those_of_the_last() -> None:
    run, cell = stage()
    for i in range(3):
        show(run, f"figure {i}")
        printed = run.write(f"loss {i}\n")
        assert printed == (i > 0), "what is printed before the first clear_output is a stream"
        run.clear(wait=True)
    assert cell.shown == ["figure 2", "loss 2"]
    show(run, "result")
    run.close()
    assert cell.shown == ["result"]


def test_a_line_is_drawn_when_it_is_whole_and_redrawn_as_it_was_left() -> None:
    run, cell = stage()
    run.clear(wait=True)
    for piece in ("1", " of ", "2\n"):
        assert run.write(piece)
    assert (cell.messages, cell.shown) == (1, ["1 of 2"])
    run.write("10 %\r")
    run.write("90 %\r")
    run.write("100 %")
    run.close()
    assert cell.shown == ["1 of 2\n100 %"]


def test_much_text_is_printed_as_always() -> None:
    run, cell = stage()
    run.clear(wait=True)
    assert run.write("x" * (MOST_TEXT_CHARS - 1) + "\n")
    assert not run.write("more\n")
    assert not run.write("and more\n")
    run.clear(wait=True)
    assert run.write("short\n")
    assert cell.shown == ["short"]


def test_an_update_finds_its_display_also_in_a_place_taken_over() -> None:
    run, cell = stage()
    show(run, "a", "one")
    run.clear(wait=True)
    show(run, "b", "two")
    show(run, "b2", "two", update=True)
    run.close()
    assert cell.outputs == {"one": "b2"}


def test_the_limit_on_displays_counts_places_and_not_rounds() -> None:
    run, cell = stage()
    show(run, "a")
    show(run, "b", may_grow=False)
    run.clear(wait=True)
    show(run, "c", may_grow=False)
    assert cell.shown == ["c"]


def test_a_terminal_keeps_everything() -> None:
    seen: list[str] = []
    run = Stage(lambda bundle, *a, **o: seen.append(bundle["text/plain"]), can_update=False)
    for i in range(2):
        run.clear(wait=True)
        show(run, f"{i}")
        assert not run.write("x\n")
    run.close()
    assert seen == ["0", "1"]


def test_the_model_reads_what_was_there_at_the_end() -> None:
    recorder = Recorder(CaptureLimits())
    for i in range(3):
        recorder.stream("stdout", f"step {i}\n")
        recorder.display({"text/plain": f"figure {i}"})
        recorder.clear(wait=True)
    assert (recorder.stdout, [d.bundle["text/plain"] for d in recorder.displays]) == ("step 2\n", ["figure 2"])
    recorder.stream("stdout", "done\n")
    assert (recorder.stdout, recorder.displays) == ("done\n", ())
    recorder.clear(wait=False)
    assert recorder.stdout == ""
