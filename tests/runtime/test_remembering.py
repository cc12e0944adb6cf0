"""Memory in a session: its tools, its place in the prefix, sessions as a source (OC-M1 to OC-M5, NB-M2)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nbagent.core.entries import Compaction, ToolResult
from nbagent.core.errors import SettingsError
from nbagent.models.scripted import calls, says
from tests.runtime.lab import Lab, result_texts

DAY = "2026-11-30"


def note(lab: Lab, name: str, text: str, *, home: bool = False) -> Path:
    path = (lab.home if home else lab.folder / ".nbagent") / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path / "work", memory__embedder="none")


def prefix_text(lab: Lab, category: str) -> str:
    prefix = lab.requests[-1].prefix
    return "\n".join(str(b["text"]) for c, b in zip(prefix.categories, prefix.system, strict=True) if c == category)


# ---------------------------------------------------------------- the tools


def test_a_turn_searches_reads_and_answers(lab: Lab) -> None:
    """OC-M4, OC-M5; OC case 125: tool and command search the same."""
    note(lab, "memory/data.md", "# Data\n\n- The target column is churn.\n- Region codes follow ISO 3166.\n")
    found = ".nbagent/memory/data.md"
    lab.open([[calls("memory_search", query="which column is the target?")], [calls("memory_get", path=found)], says("churn")])
    done = lab.send("What do we predict?")
    search, read = result_texts(lab.requests[-1])
    assert search.startswith(f"1. {found}:3")
    assert "The target column is churn." in search
    assert "Region codes follow ISO 3166." in read
    assert lab.session.runner.memory.open().search("which column is the target?")[0].place == f"{found}:3"
    assert done.output.outcome == "completed"


def test_what_is_remembered_names_turn_cell_and_session(lab: Lab) -> None:
    """NB-M2."""
    lab.open([[calls("remember", text="We report medians, since prices are skewed.")], says("noted")], mode="auto")
    done = lab.send("Remember it", cell="cell-7")
    log = (lab.folder / ".nbagent/memory" / f"{DAY}.md").read_text()
    assert log == f"- We report medians, since prices are skewed. <!-- nbagent turn={done.output.turn} cell=cell-7 session=x -->\n"
    hit = lab.session.runner.memory.open().search("medians")[0]
    assert hit.provenance is not None
    assert (hit.provenance.turn, hit.provenance.cell) == (done.output.turn, "cell-7")


@pytest.mark.parametrize(
    ("mode", "answers", "status", "asked"),
    [("ask", ["y"], "ok", 1), ("ask", ["n"], "refused", 1), ("ask", None, "refused", 0), ("auto", None, "ok", 0), ("plan", ["y"], "refused", 0)],
)
def test_remember_asks_by_permission_mode(
    lab: Lab, mode: str, answers: list[str | None] | None, status: str, asked: int
) -> None:
    lab.open([[calls("remember", text="Use metric units.")], says("ok")], mode=mode)
    lab.answers = answers
    lab.send("Remember units")
    assert [r.status for r in lab.bodies(ToolResult)] == [status]
    assert len(lab.asked) == asked
    assert (lab.folder / ".nbagent/memory" / f"{DAY}.md").exists() == (status == "ok")


def test_a_secret_is_refused_and_nowhere_on_disk(lab: Lab) -> None:
    key = "sk-ant-api03-" + "a1B2" * 12
    lab.open([[calls("remember", text=f"The key is {key}")], says("ok")], mode="auto")
    lab.send("Remember the key")
    assert "looks like a key" in result_texts(lab.requests[-1])[0]
    stored = [p for p in lab.folder.rglob("*") if p.is_file() and key.encode() in p.read_bytes()]
    assert stored == []


def test_a_rule_takes_a_memory_tool_out_of_the_list(lab: Lab) -> None:
    lab.open([says("ok")], tools__deny=["remember"])
    lab.send("hi")
    names = [t["name"] for t in lab.requests[-1].prefix.tools]
    assert "memory_search" in names
    assert "remember" not in names


def test_contradicting_facts_come_together_newer_first(lab: Lab) -> None:
    """NB-M2."""
    note(lab, "memory/2026-11-01.md", "- The port is 8080\n")
    note(lab, "memory/2026-11-20.md", "- The port is 9090\n")
    lab.open([[calls("memory_search", query="which port is it")], says("9090")])
    lab.send("Which port?")
    text = result_texts(lab.requests[-1])[0]
    assert text.index("9090") < text.index("8080")
    assert "(older than .nbagent/memory/2026-11-20.md:1, which says otherwise)" in text


def test_a_wrong_preset_is_refused_before_a_session_begins(lab: Lab) -> None:
    with pytest.raises(SettingsError, match=r"memory\.preset = 'nope'"):
        lab.open([says("ok")], memory__preset="nope")


# ---------------------------------------------------------------- sessions as a source


def test_other_sessions_are_found_when_asked_for_only(lab: Lab) -> None:
    lab.open([says("The bridge was built in 1911.")], name="first")
    first = lab.send("When was the Wharncliffe bridge built?", cell="c9")
    lab.restart([[calls("memory_search", query="Wharncliffe bridge")],
                 [calls("memory_search", query="Wharncliffe bridge", sources=["memory", "sessions"])], says("1911")], name="second")
    lab.send("And who built it?")
    notes, both = result_texts(lab.requests[-1])
    assert notes.startswith("Nothing in memory matches")
    assert "sessions/first:" in both
    assert f"turn {first.output.turn}, cell c9" in both


def test_what_was_compacted_away_is_found(lab: Lab) -> None:
    lab.open([says("It is in the bay of Kotor."), says("Fine.")])
    lab.send("Where is Perast?", cell="a")
    runner = lab.session.runner
    runner.writer.write(Compaction(first_kept=None, note="(nothing of it)", reason="test", details={}))
    hits = runner.memory.open().search("Perast bay", sources=("sessions",))
    assert [h.path for h in hits][:1] == ["sessions/x"]
    assert "Kotor" in "".join(h.snippet for h in hits)


def test_words_of_a_session_can_be_read_like_a_note(lab: Lab) -> None:
    lab.open([says("It is 42.")])
    lab.send("What is the answer?")
    part = lab.session.runner.memory.open().get("sessions/x")
    assert "Person: What is the answer?" in part.text
    assert "Agent: It is 42." in part.text


# ---------------------------------------------------------------- the prefix and the tail


def test_notes_of_two_days_stand_in_the_prefix(lab: Lab) -> None:
    """OC-M3; OC case 172."""
    note(lab, "MEMORY.md", "Always metric.")
    note(lab, "MEMORY.md", "I am Ana.", home=True)
    for day in ("2026-11-28", "2026-11-29", DAY):
        note(lab, f"memory/{day}.md", f"- noted on {day}\n")
    lab.open([says("ok")])
    lab.send("hi")
    text = prefix_text(lab, "memory")
    order = ["# ~/.nbagent/MEMORY.md", "# .nbagent/MEMORY.md", "# .nbagent/memory/2026-11-29.md", f"# .nbagent/memory/{DAY}.md"]
    assert [text.find(o) for o in order] == sorted(text.find(o) for o in order)
    assert all(o in text for o in order)
    assert "2026-11-28" not in text
    assert lab.session.occupancy().ledger.as_mapping()["memory"] > 0


def test_a_long_memory_file_is_cut_with_a_marker_and_a_warning(lab: Lab) -> None:
    """OC case 172, claude 86."""
    note(lab, "MEMORY.md", "".join(f"- fact {i}\n" for i in range(1, 211)))
    lab.open([says("ok")])
    done = lab.send("hi")
    text = prefix_text(lab, "memory")
    assert "- fact 200\n" in text
    assert "- fact 201\n" not in text
    assert ".nbagent/MEMORY.md goes on: lines 1-200 of 210 are here" in text
    assert [n for n in done.notices if "MEMORY.md" in n and "loaded at start" in n]


def test_an_edited_memory_file_is_told_at_the_tail_and_what_the_agent_noted_is_not(lab: Lab) -> None:
    path = note(lab, "MEMORY.md", "Always metric.")
    lab.open([says("one"), [calls("remember", text="The cutoff is 0.7.")], says("two"), says("three")], mode="auto")
    lab.send("first", cell="a")
    head = lab.requests[-1].prefix.to_text()
    lab.send("second", cell="b")
    path.write_text("Always imperial.")
    lab.send("third", cell="c")
    assert lab.requests[-1].prefix.to_text() == head
    told = lab.told()[-1]
    assert "The file .nbagent/MEMORY.md changed" in told
    assert "Always imperial." in told
    assert not any("cutoff" in t for t in lab.told())


def test_the_next_conversation_begins_with_what_was_noted(lab: Lab) -> None:
    lab.open([[calls("remember", text="The cutoff is 0.7.")], says("ok"), says("0.7")], mode="auto")
    lab.send("note it", cell="a")
    lab.send("what is the cutoff?", cell="b", new=True)
    assert "- The cutoff is 0.7." in prefix_text(lab, "memory")


def test_a_linked_memory_file_is_not_followed(lab: Lab, tmp_path: Path) -> None:
    outside = tmp_path / "outside.md"
    outside.write_text("secret plans")
    (lab.folder / ".nbagent").mkdir()
    (lab.folder / ".nbagent/MEMORY.md").symlink_to(outside)
    lab.open([says("ok")])
    done = lab.send("hi")
    assert "secret plans" not in lab.requests[-1].prefix.to_text()
    assert any("it is a link" in n for n in done.notices)


# ---------------------------------------------------------------- lightness


def test_a_turn_without_memory_opens_no_index(tmp_path: Path) -> None:
    script = (
        "import sys; sys.path.insert(0, '.')\n"
        "from pathlib import Path\n"
        "from tests.runtime.lab import Lab\n"
        "from nbagent.models.scripted import says\n"
        f"lab = Lab(Path({str(tmp_path / 'w')!r}))\n"
        "lab.open([says('ok')]); lab.send('hi')\n"
        "print(sorted({'sqlite3', 'numpy', 'nbagent.memory.memory'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=550)
    assert done.stdout.strip() == "[]"
    assert not (tmp_path / "w/.nbagent/index.sqlite").exists()


def test_a_fact_of_the_very_same_turn_is_stored_once(lab: Lab) -> None:
    """So a recording may be played again."""
    memory = lab.open([]).runner.memory
    for _ in range(2):
        memory.bound(turn="t1", cell="c").remember("The cutoff is 0.7.")
    memory.bound(turn="t2", cell="c").remember("The cutoff is 0.7.")
    log = (lab.folder / ".nbagent/memory" / f"{DAY}.md").read_text()
    assert log.count("The cutoff is 0.7.") == 2
