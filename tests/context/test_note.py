"""The text that stands in for a part of the conversation."""

from __future__ import annotations

from nbagent.context.note import NoteParts, compose_note, shown_again, users_messages
from nbagent.context.policy import NoteStyle
from nbagent.core.entries import ToolResult
from nbagent.core.messages import text_block
from tests.contracts.situations import METER, words
from tests.core.builders import path, says, start, steer, user


def read(file: str, text: str) -> ToolResult:
    return ToolResult(call_id="c", name="read", content=(text_block(text),), meta={"path": file})


def test_the_newest_message_is_whole_the_older_is_cut_and_the_rest_counted() -> None:
    """agents 28."""
    turns = path(start(), user(words(5_000)), user("B" + words(10_000)), user("A" + words(15_000)))
    text = users_messages(turns, 20_000, METER.text)
    assert "A" + words(15_000).strip() in text
    assert " […] " in text
    assert METER.text(text) <= 20_100


def test_what_has_to_stay_whole_is_whole_whatever_the_limit() -> None:
    turns = path(start(), user("old"), user(words(3_000)), steer("now"))
    text = users_messages(turns, 0, METER.text, whole={"e3", "e4"})
    assert words(3_000).strip() in text
    assert text.startswith("(1 earlier messages")
    assert text.endswith("- now")


def test_every_text_of_a_message_is_the_persons_but_not_what_was_attached() -> None:
    text = users_messages(path(start(), user("  ", "look", "<attached file='x'>1</attached>", "and do")), 100, METER.text)
    assert text == "- look\nand do"


def test_nothing_said_is_nothing() -> None:
    assert users_messages(path(start(), says("x")), 100, METER.text) == ""


def test_recent_files_are_shown_again_each_once_the_newest_state() -> None:
    """CC-C4; claude 58."""
    turns = path(start(), read("a.txt", "old a"), read("b.txt", words(900)), read("a.txt", "new a"), read("c.txt", "kept"))
    text = shown_again(turns[:4], turns[4:], NoteStyle(reattach=5, reattach_tokens=100), METER.text)
    assert "file a.txt:\nnew a" in text
    assert "old a" not in text
    assert "[… the rest: `recall` e3 …]" in text
    assert "c.txt" not in text


def test_the_most_binding_stands_last() -> None:
    note = compose_note(NoteParts(handoff="H", users="U", machine="M", attached=" "))
    assert note.index("<handoff>") < note.index("<must-not-get-lost>") < note.index("<messages-of-the-person>")
    assert "shown-again" not in note
    assert "It is a record, not a request" in note
