"""Going on with a conversation that another agent led, and with another model than that of the last turn."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nbagent.core.entries import Compaction
from nbagent.core.errors import UsageProblem
from nbagent.core.messages import Request, joined_text
from nbagent.models.scripted import says
from nbagent.runtime.compacting import compact, loss_in_force, pins_of, replace_note, set_pin
from nbagent.runtime.comparing import compare_session
from nbagent.runtime.importing import import_transcript
from nbagent.runtime.matching import CellKey
from nbagent.runtime.ports import TurnOptions
from nbagent.runtime.preview import preview_turn
from tests.runtime.lab import MODEL, Lab

OTHER = "claude-opus-5-5"
NOTE = "<note>## Goal\ncount\n## Constraints\n(none)\n</note>"
RULES = "Refunds are never given after 30 days."
BOUGHT = "bought 40 days ago " * 2_000


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path / "work", memory__flush="off")
    yield lab
    lab.close()


def import_chat(lab: Lab) -> None:
    called = {"id": "a", "type": "function", "function": {"name": "lookup", "arguments": "{}"}}
    chat = [
        {"role": "system", "content": RULES},
        {"role": "user", "content": "may I have my money back?"},
        {"role": "assistant", "content": "I look.", "tool_calls": [called]},
        {"role": "tool", "tool_call_id": "a", "content": BOUGHT},
        {"role": "assistant", "content": "No."},
    ]
    imported(lab, json.dumps(chat))


def import_session(lab: Lab, measured: int) -> None:
    """A recording whose last request measured `measured` tokens, as it would after a compaction of the other agent."""
    usage = {"input": measured, "output": 2, "cacheRead": 0, "cacheWrite": 0, "cost": {"total": 0.5}}
    reply = {"role": "assistant", "model": "opus", "stopReason": "stop", "content": [{"type": "text", "text": "No."}]}
    rows = [
        {"type": "session", "id": "s", "modelId": "opus"},
        {"type": "message", "message": {"role": "user", "content": [{"type": "text", "text": BOUGHT}]}},
        {"type": "message", "message": {**reply, "usage": usage}},
    ]
    imported(lab, "\n".join(map(json.dumps, rows)))


def imported(lab: Lab, text: str) -> None:
    file = lab.folder / "talk.json"
    file.write_text(text, encoding="utf-8")
    import_transcript(file, lab.folder)


def previewed(lab: Lab) -> Request:
    cell = CellKey(cell_id="n", source_hash="n", order=99)
    found: Request = lab.run(preview_turn(lab.session, "next", cell, TurnOptions(), lab.ports()))
    return found


def test_who_goes_on_with_a_recording_has_our_tools_and_knows_what_the_other_was_told(lab: Lab) -> None:
    import_chat(lab)
    lab.open([says("Still no."), says("no")], name="talk")
    shown = previewed(lab)
    lab.send("really?")
    (request,) = lab.requests
    assert {"python", "recall"} <= {str(t["name"]) for t in request.prefix.tools}
    told = joined_text(request.prefix.system)
    assert RULES in told
    assert "You are an agent inside a Jupyter notebook" in told
    assert shown.prefix == request.prefix
    lab.send("and now?", "c2")
    assert lab.requests[-1].prefix == request.prefix


def test_a_compaction_of_a_recording_keeps_its_system_text(lab: Lab) -> None:
    import_chat(lab)
    lab.open([says(NOTE), says("ok")], name="talk")
    shown, sizes = previewed(lab).prefix, lab.session.occupancy().used_tokens
    done = lab.run(compact(lab.session, lab.ports()))
    assert done.applied
    assert done.before_tokens == sizes
    assert lab.requests[-1].prefix == shown  # the provider refuses calls in a request that lists no tools
    assert compare_session(lab.session, ["off"]).rows[0].last_tokens > 3_000
    lab.send("go on")
    assert RULES in joined_text(lab.requests[-1].prefix.system)
    assert lab.requests[-1].prefix.tools


@pytest.mark.parametrize("share", [0.6, 1.6])
def test_what_another_agents_request_measured_tells_nothing_of_ours(lab: Lab, share: float) -> None:
    import_session(lab, 1)
    alone = lab.open(name="talk").occupancy().used_tokens
    lab.close()
    other = Lab(lab.folder.parent / "other")
    import_session(other, int(alone * share))
    assert other.open(name="talk").occupancy().used_tokens == alone
    other.close()


def test_the_model_of_one_turn_is_not_that_of_the_next(lab: Lab) -> None:
    lab.open([says("a"), says(NOTE)])
    lab.script([says("by the other")], OTHER)
    lab.send("one", "c1", model=OTHER)
    assert lab.session.current_model() == MODEL
    assert previewed(lab).model == MODEL
    lab.send("two", "c2")
    assert [r.model for r in lab.requests] == [OTHER, MODEL]


def test_a_recording_of_an_unknown_model_is_compacted_by_the_model_that_goes_on(lab: Lab) -> None:
    import_chat(lab)
    lab.open([says(NOTE)], name="talk")
    assert lab.run(compact(lab.session, lab.ports())).applied


def test_the_loss_report_tells_the_sizes_that_the_compaction_told(lab: Lab) -> None:
    lab.open([says(BOUGHT), says("short"), says(NOTE), says("later"), says("later")])
    lab.send("one " + BOUGHT, "c1")
    lab.send("two", "c2")
    done: Any = lab.run(compact(lab.session, lab.ports()))
    assert done.applied
    lab.send("three", "c3")
    told = loss_in_force(lab.session)
    assert (told.before_tokens, told.after_tokens) == (done.before_tokens, done.after_tokens)
    replace_note(lab.session, "a much longer note " * 400)
    (edited,) = lab.bodies(Compaction)[1:]
    assert edited.after_tokens > done.after_tokens + 500
    assert loss_in_force(lab.session).after_tokens == edited.after_tokens


def test_only_what_is_there_can_be_pinned(lab: Lab) -> None:
    """A number that is no turn's, and a turn of another branch, were pinned as texts that kept nothing."""
    lab.open([says("a"), says("b"), says("other b")])
    lab.send("one", "c1")
    lab.send("two", "c2")
    for number in ("-3", "7", "+2"):
        with pytest.raises(UsageProblem, match="no turn is called"):
            set_pin(lab.session, number, remove=False)
    left = lab.session.tree.turns_on_path()[-1].turn
    lab.send("two", "c2")  # forks
    with pytest.raises(UsageProblem, match=f"`%agent revert {left}`"):
        set_pin(lab.session, left, remove=False)
    assert pins_of(lab.session) == ()
    set_pin(lab.session, "-1", remove=False)
    set_pin(lab.session, "the rate is 19 %\n" + "x" * 3_000, remove=False)
    assert [p[:14] for p in pins_of(lab.session)] == ["turn " + lab.session.tree.turns_on_path()[-1].turn + ":", "the rate is 19"]
    with pytest.raises(UsageProblem) as refused:
        set_pin(lab.session, "else", remove=True)
    assert len(str(refused.value)) < 200
