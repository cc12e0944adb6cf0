"""Record and replay: no key, no network, equal request bytes, the same ends (DECISIONS 21-24; R2; peers 15)."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nbagent.core.effects import Notice
from nbagent.core.entries import Steering, ToolResult
from nbagent.core.errors import CassetteMiss, JournalUnwritable
from nbagent.models.cassette import Cassette, load
from nbagent.models.scripted import calls, says
from nbagent.runtime.ports import TurnOptions
from nbagent.runtime.recording import Recorder
from tests.fakes.messages_api import FakeMessagesAPI, call, reply, text, thinking
from tests.runtime.lab import Lab, result_texts

ROOT = str(Path(__file__).resolve().parents[2])


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path / "work", mode="auto")


def python(code: str) -> Any:
    return calls("python", code=code)


def recorded(lab: Lab, name: str = "cassettes/a.json") -> Cassette:
    path = lab.folder / name
    Recorder(path=path).save(lab.session)
    return load(path)


def record(lab: Lab, replies: list[Any], *prompts: str, **options: Any) -> Cassette:
    """Run a conversation of these prompts, cell A, B, …, and return its cassette; `lab.first` keeps its requests."""
    lab.open(replies)
    for letter, prompt in zip("ABCDEF", prompts, strict=False):
        lab.send(prompt, letter, **options)
    made = recorded(lab)
    lab.first = lab.sent()  # type: ignore[attr-defined]
    lab.close()
    lab.kernel = type(lab.kernel)()
    return made


def same_requests(lab: Lab) -> bool:
    return lab.sent() == lab.first  # type: ignore[attr-defined]


# ---------------------------------------------------------------- the same again


def test_a_replay_sends_what_was_sent_and_runs_the_code(lab: Lab) -> None:
    made = record(lab, [[python("x = 6 * 7\nprint(x)")], says("It is 42."), [calls("glob", pattern="*")], says("Files.")], "one", "two")
    lab.replay(made)
    first, second = lab.send("one", "A"), lab.send("two", "B")
    assert (first.output.text, second.output.text) == ("It is 42.", "Files.")
    assert first.replayed
    assert lab.kernel.names["x"] == 42
    assert same_requests(lab)
    assert lab.session.tree.turns_on_path()[0].body.cell_id == "A"


def test_a_cell_run_again_in_replay_forks(lab: Lab) -> None:
    made = record(lab, [says("1"), says("2")], "one", "two")
    lab.replay(made)
    for prompt, cell in (("one", "A"), ("two", "B"), ("one", "A"), ("two", "B"), ("two", "B")):
        assert lab.send(prompt, cell).output.outcome == "completed"
    assert lab.prompts() == ["one", "two"]
    assert len(lab.session.tree.children(None)) == 2


def test_without_cell_ids_a_replay_plays_in_order(lab: Lab) -> None:
    """peers 15: twice in a row, as nbval runs it."""
    made = record(lab, [says("1"), says("2")], "one", "two")
    for _ in range(2):
        lab.replay(made)
        assert [lab.send(p, None).output.text for p in ("one", "two")] == ["1", "2"]
        lab.close()


def test_a_changed_result_is_noted_and_the_recorded_one_is_sent(lab: Lab) -> None:
    made = record(lab, [[python("n")], says("seven")], "one")
    lab.replay(made)
    lab.kernel.names["n"] = 8
    done = lab.send("one", "A")
    assert same_requests(lab)
    assert len(done.differences) == 1
    assert "python now says '8'" in done.differences[0]


def test_what_the_person_said_in_mid_turn_is_said_again(lab: Lab) -> None:
    lab.open([[python("x = 1")], says("done")])
    ports = lab.ports()
    ports.steering.append("hurry")
    asyncio.run(lab.session.send("one", lab.cell("one", "A"), TurnOptions(), ports))
    made = recorded(lab)
    assert [s.text for s in lab.bodies(Steering)] == ["hurry"]
    first = lab.sent()
    lab.close()
    lab.replay(made)
    lab.send("one", "A")
    assert lab.sent() == first


# ---------------------------------------------------------------- other ends


def ends(lab: Lab) -> list[tuple[str, str, int]]:
    return [(e.end.outcome, e.end.message, e.end.steps) for e in lab.session.tree.turns() if e.end]


@pytest.mark.parametrize("options", [{"max_steps": 2}, {"max_cost_usd": 0.000001}, {"max_tokens": 3}])
def test_a_limited_turn_ends_the_same(lab: Lab, options: dict[str, Any]) -> None:
    lab.open([[python("a = 1")], [python("b = 2")], [python("c = 3")], says("done"), says("next")])
    lab.send("one", "A", **options)
    lab.send("two", "B")
    made, then = recorded(lab), ends(lab)
    first = lab.sent()
    assert then[0][0] == "limit"
    lab.close()
    lab.replay(made)
    done = lab.send("one", "A")
    lab.send("two", "B")
    assert ends(lab) == then
    assert (done.output.outcome, done.output.message) == then[0][:2]
    assert lab.sent() == first


def test_a_resumed_turn_is_resumed_in_replay(lab: Lab) -> None:
    lab.open([[python("a = 1")], [python("b = 2")], says("done"), says("next")])
    lab.send("one", "A", max_steps=1)
    lab.resume()
    lab.send("two", "B")
    made, then = recorded(lab), ends(lab)
    first = lab.sent()
    lab.close()
    lab.replay(made)
    assert lab.send("one", "A").output.outcome == "limit"
    assert lab.resume().output.text == "done"
    with pytest.raises(CassetteMiss, match="does not go on with this turn"):
        lab.resume()
    lab.send("two", "B")
    assert ends(lab) == then
    assert lab.sent() == first
    lab.close()
    lab.replay(made)
    lab.send("one", "A")
    with pytest.raises(CassetteMiss):  # the resuming cell was left out
        lab.send("two", "B")


def test_a_turn_that_was_stopped_ends_the_same(lab: Lab) -> None:
    class Stopping(type(lab.kernel)):  # type: ignore[misc]
        async def run_code(self, code: str, *, label: str) -> Any:
            raise asyncio.CancelledError

    lab.open([[python("x = 1")], says("never")])
    lab.kernel = Stopping()
    assert lab.send("one", "A").output.outcome == "stopped"
    made, then = recorded(lab), ends(lab)
    lab.close()
    lab.kernel = Stopping.__base__()
    lab.replay(made)
    lab.send("one", "A")
    assert ends(lab) == then
    assert lab.kernel.ran == []  # what was stopped does not run again


def test_errors_refusals_and_cut_replies_end_the_same(tmp_path: Path) -> None:
    from tests.fakes.replies import http_error

    script = [reply("no", stop_reason="refusal"), reply("half", stop_reason="max_tokens"),
              reply(fault=http_error(400, "bad request")), reply(thinking("t"), "fine")]  # fmt: skip
    with FakeMessagesAPI(script) as fake:
        lab = Lab(tmp_path / "work", environ={"ANTHROPIC_BASE_URL": fake.base_url})
        lab.open(live=True)
        for letter in "ABCD":
            lab.send(f"prompt {letter}", letter)
        made, then = recorded(lab), ends(lab)
        first = lab.sent()
        lab.close()
    assert made.source == "fake"
    assert [e[0] for e in then] == ["refusal", "cut_off", "error", "completed"]
    lab.replay(made)
    for letter in "ABCD":
        lab.send(f"prompt {letter}", letter)
    assert ends(lab) == then
    replayed = lab.sent()
    assert replayed[:2] == first[:2]
    assert replayed[-1] == first[-1]


# ---------------------------------------------------------------- what may run


def test_code_runs_only_with_consent_and_the_recorded_result_is_used_either_way(lab: Lab) -> None:
    made = record(lab, [[python("x = 1\nprint('hi')")], says("done")], "one")
    asked: list[int] = []

    async def no() -> bool:
        asked.append(1)
        return False

    lab.consent = no
    lab.replay(made)
    done = lab.send("one", "A")
    assert lab.kernel.ran == []
    assert asked == [1]
    assert done.output.text == "done"
    assert same_requests(lab)


def test_code_that_was_not_allowed_is_told_once_and_not_asked_for_again(lab: Lab) -> None:
    made = record(lab, [[python("x = 1")], [python("y = 2")], says("done"), [python("z = 3")], says("more")], "one", "two")
    answers = [False, True]

    async def answer() -> bool:
        return answers.pop(0)

    lab.consent = answer
    lab.replay(made)
    done = lab.send("one", "A")
    line = "the recorded code was not allowed to run; its recorded results are shown"
    assert done.notices == (line,)
    assert [e.text for e in lab.events if isinstance(e, Notice)] == [line]
    assert (done.output.outcome, done.output.text, answers) == ("completed", "done", [True])
    assert lab.send("two", "B").notices == ()
    assert lab.kernel.ran == ["z = 3"]  # the next turn asks anew
    assert same_requests(lab)


def test_what_the_person_denied_does_not_run_in_replay(lab: Lab) -> None:
    made = record(lab, [[python("x = 1"), calls("write", path="made.txt", content="1")], says("done")], "one")
    (lab.folder / "made.txt").unlink(missing_ok=True)
    for options in ({"tools__deny": ["write", "python(x*)"]}, {"mode": "plan"}):
        lab.replay(made, **options)
        assert lab.send("one", "A").output.text == "done"
        assert lab.kernel.ran == []
        assert not (lab.folder / "made.txt").exists()
        assert same_requests(lab)


def test_refused_calls_are_refused_again_and_nothing_runs(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "work", mode="ask")
    made = record(lab, [[python("x = 1")], says("I may not.")], "one")
    lab.replay(made, mode="auto")
    lab.send("one", "A")
    assert lab.kernel.ran == []
    assert [r.status for r in lab.bodies(ToolResult)] == ["refused"]
    assert same_requests(lab)


def test_code_that_the_cassette_does_not_hold_is_not_run(lab: Lab) -> None:
    record(lab, [[python("x = 1")], says("done")], "one")
    path = lab.folder / "cassettes" / "a.json"
    raw = json.loads(path.read_text())
    events = raw["turns"][0]["stretches"][0]["events"]
    raw["turns"][0]["stretches"][0]["events"] = [e for e in events if e["kind"] != "tool_result"]
    path.write_text(json.dumps(raw))
    lab.replay(load(path))
    lab.send("one", "A")
    assert lab.kernel.ran == []
    assert "Not in the recording" in result_texts(lab.requests[-1])[0]


# ---------------------------------------------------------------- misses


def test_a_miss_changes_nothing(lab: Lab) -> None:
    made = record(lab, [says("1"), says("2")], "one", "two")
    lab.replay(made)
    lab.send("one", "A")
    size = len(lab.session.tree)
    for prompt, cell, message in (("two!", "B", "at character 4"), ("one, edited", "A", "restore the text")):
        with pytest.raises(CassetteMiss, match=message):
            lab.send(prompt, cell)
    assert len(lab.session.tree) == size
    assert lab.send("two", "B").output.text == "2"


def test_cells_out_of_order_are_named(lab: Lab) -> None:
    made = record(lab, [says("1"), [python("a = 1")], says("2"), says("3")], "one", "two", "three")
    lab.replay(made)
    lab.send("one", "A")
    with pytest.raises(CassetteMiss, match="not recorded"):
        lab.send("three", "C")
    lab.send("two", "B")
    lab.send("three", "C")


# ---------------------------------------------------------------- files


def test_a_recording_names_its_source(lab: Lab) -> None:
    lab.open([says("1"), says("2")])
    lab.send("one", "A")
    made = recorded(lab)
    assert made.source == "live"
    lab.restart([says("x")], model="scripted:none")
    lab.send("three", "C", model="scripted:none")
    assert recorded(lab).source == "scripted"


def test_a_recording_holds_all_branches_and_all_replay(lab: Lab) -> None:
    lab.open([says("1"), says("2"), [python("x = 3")], says("3"), says("4")])
    lab.send("one", "A")
    lab.send("two", "B")
    lab.send("two, edited", "B")
    lab.send("three", "C")
    made, first = recorded(lab), lab.sent()
    assert [t.prompt[0]["text"] for t in made.turns] == ["one", "two", "two, edited", "three"]
    lab.close()
    lab.replay(made)
    lab.send("one", "A")
    assert lab.send("two", "B").output.text == "2"
    lab.send("two, edited", "B")
    assert lab.send("three", "C").output.text == "4"
    assert lab.sent() == first


def test_of_two_answers_to_one_prompt_the_current_one_is_kept_and_what_followed_the_other_goes(lab: Lab) -> None:
    lab.open([[python("a = 1")], says("old"), says("after old"), [python("b = 2")], says("new")])
    lab.send("one", "A")
    old = lab.session.tree.turns()[-1].turn
    lab.send("two", "B")
    lab.send("one", "A")
    made = recorded(lab)
    assert [t.prompt[0]["text"] for t in made.turns] == ["one"]
    lab.session.revert(old)
    made = recorded(lab)
    assert [t.prompt[0]["text"] for t in made.turns] == ["one", "two"]
    assert made.turns[0].start.turn == old


def test_a_recording_holds_no_folder_of_this_machine_and_replays_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "ann"))
    (tmp_path / "ann" / "real").mkdir(parents=True)
    (tmp_path / "ann" / "link").symlink_to("real")
    lab = Lab(tmp_path / "ann" / "link", mode="auto")
    (lab.folder / "AGENTS.md").write_text(f"Data are in {lab.folder}/data, and {tmp_path}/ann/share.")
    code = f"import os\nprint(os.path.realpath('{lab.folder}') + '/x', '{tmp_path}/ann/real.old')\nprint('{{}}'.format('{lab.folder}'))"
    thought = {"type": "thinking", "thinking": f"look in {lab.folder}", "signature": f"AA/{lab.folder}/BB="}
    lab.open([[thought, python(code)], [calls("read", path=f"{lab.folder}/AGENTS.md")], says(f"In {lab.folder}."), says("2")])
    lab.send("one", "A")
    lab.send("two", "B")
    made = recorded(lab)
    lab.close()
    kept = (lab.folder / "cassettes" / "a.json").read_text()
    signature = json.dumps(thought["signature"])
    assert kept.count(signature) == 1
    assert "~/real.old" in kept  # another folder, beside the workspace
    rest = kept.replace(signature, "")
    assert str(tmp_path) not in rest
    assert "./data" in rest
    assert "~/share" in rest
    assert "In .." in rest
    totals = set()
    for name in ("b", "c", "c"):
        other = Lab(tmp_path / name, mode="auto")
        other.replay(made)
        other.send("one", "A")
        other.send("two", "B")
        totals.add(tuple(r.canonical_bytes() for r in other.requests))
        other.close()
    assert len(totals) == 1


def test_a_folder_in_a_result_is_no_difference(lab: Lab) -> None:
    made = record(lab, [[python(f"print('{lab.folder}/a')")], says("1"), [calls("glob", pattern="*")], says("2")], "one", "two")
    lab.replay(made)
    assert lab.send("one", "A").differences == ()
    assert lab.send("two", "B").differences == ()


def test_what_the_person_typed_is_found_again_whatever_folder_it_names(lab: Lab) -> None:
    made = record(lab, [says("1"), says("2")], f"look in {lab.folder}", "two")
    lab.replay(made)
    lab.send(f"look in {lab.folder}", "A")
    assert lab.send("two", "B").output.text == "2"


def test_a_recording_holds_no_secret_of_the_environment(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "work", environ={"MY_API_KEY": "hunter2-99-hunter"}, mode="auto")
    (lab.folder / "AGENTS.md").write_text("key hunter2-99-hunter")
    made = record(lab, [[python("print('hunter2-' + '99-hunter')")], says("hunter2-99-hunter it is")], "say hunter2-99-hunter")
    assert made.turns
    assert "hunter2" not in (lab.folder / "cassettes" / "a.json").read_text().replace("hunter2-' + '", "")


def test_a_recording_that_cannot_be_written_says_where(lab: Lab) -> None:
    lab.open([says("1")])
    lab.send("one", "A")
    (lab.folder / "file").write_text("")
    with pytest.raises(JournalUnwritable, match="choose another file"):
        Recorder(path=lab.folder / "file" / "a.json").save(lab.session)


PLAY = """
import hashlib, socket, sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
def refuse(*a, **k): raise AssertionError("a connection was opened")
socket.socket.connect = refuse
from tests.runtime.lab import Lab
from nbagent.models.cassette import load
lab = Lab(Path(sys.argv[1]))
lab.environ = {}
lab.replay(load(Path(sys.argv[2])))
total = hashlib.sha256()
for letter in "ABC":
    assert lab.send("prompt " + letter, letter).output.outcome == "completed"
for r in lab.requests:
    total.update(r.canonical_bytes() + f"{r.max_tokens} {r.breakpoints} {dict(r.options)} {r.model}".encode())
assert "anthropic" not in sys.modules, "the SDK was imported"
assert lab.kernel.names["x"] == 3
lab.close()
left = sorted(p.name for p in Path(sys.argv[1]).iterdir())
print(len(lab.requests), total.hexdigest(), left)
"""


def test_replays_in_two_places_send_equal_bytes_without_key_network_or_sdk(tmp_path: Path) -> None:
    """R2."""
    script = [
        reply(thinking("look"), text("I look."), call("python", {"code": "x = 3\nprint({3, 1, 2})"})), reply(thinking("b"), text("Three.")),
        reply(thinking("c"), call("read", {"path": "a.txt"}), call("glob", {"pattern": "*"})), reply("Files."),
        reply("Third."),
    ]  # fmt: skip
    with FakeMessagesAPI(script) as fake:
        lab = Lab(tmp_path / "work", environ={"ANTHROPIC_BASE_URL": fake.base_url}, mode="auto")
        (lab.folder / "a.txt").write_text("text\n")
        (lab.folder / "AGENTS.md").write_text("Be brief.")
        lab.open(live=True)
        for letter in "ABC":
            lab.send(f"prompt {letter}", letter)
        recorded(lab)
        first = lab.sent()
        lab.close()
        assert not fake.problems
    found = set()
    for place, seed, zone in (("one", "1", "UTC"), ("two", "77", "Pacific/Auckland")):
        env = {k: v for k, v in os.environ.items() if "API_KEY" not in k} | {"PYTHONHASHSEED": seed, "TZ": zone}
        arguments = [str(tmp_path / place), str(lab.folder / "cassettes" / "a.json"), ROOT]
        found.add(subprocess.check_output([sys.executable, "-W", "error", "-c", PLAY, *arguments], env=env, text=True))
    assert len(found) == 1, found
    count, _, left = found.pop().split(" ", 2)
    assert int(count) == len(first)
    assert left.strip() == "[]"  # nothing is kept beside the notebook


def test_a_replay_in_process_equals_the_live_requests(tmp_path: Path) -> None:
    script = [reply(thinking("look"), text("I look."), call("python", {"code": "x = 3"})), reply(thinking("b"), text("Three.")), reply("More.")]
    with FakeMessagesAPI(script) as fake:
        lab = Lab(tmp_path / "work", environ={"ANTHROPIC_BASE_URL": fake.base_url}, mode="auto")
        lab.open(live=True)
        lab.send("one", "A")
        lab.send("two", "B")
        made = recorded(lab)
        first = lab.sent()
        lab.close()
    lab.replay(made)
    lab.send("one", "A")
    lab.send("two", "B")
    assert lab.sent() == first
