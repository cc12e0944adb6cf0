"""The tutorials: they replay without key and network, the same every time, and their exercises really check."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from nbagent.models.cassette import Cassette, from_text
from tests import kernels

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = ROOT / "notebooks"
NAMES = sorted(p.stem for p in NOTEBOOKS.glob("*.ipynb"))
PASSES = ({"TZ": "Asia/Kathmandu", "PYTHONHASHSEED": "1"}, {"TZ": "America/St_Johns", "PYTHONHASHSEED": "2"})
PASS_TIMEOUT_S = 1_500  # of what hangs; a quiet machine needs a tenth

# Put before the notebook's cells: notes every request. Names with an underscore are not told to the model.
WATCH = """
def _watch():
    import hashlib
    from nbagent.runtime.turns import TurnRunner
    made, seen = TurnRunner.request, []
    def request(self, *arguments, **options):
        value = made(self, *arguments, **options)
        seen.append(hashlib.sha256(value.canonical_bytes()).hexdigest())
        return value
    TurnRunner.request = request
    return seen
_requests = _watch()
"""

TELL = """
import json as _json, sys as _sys
from pathlib import Path as _Path
assert "anthropic" not in _sys.modules
_Path("requests-{name}.json").write_text(_json.dumps(_requests))
"""

# In the kernel and in pytest: connecting anywhere but to this machine is an error.
NO_NETWORK = """
import socket
_connect = socket.socket.connect
def _refused(self, address):
    if self.family in (socket.AF_INET, socket.AF_INET6) and address[0] not in ("127.0.0.1", "::1", "localhost"):
        raise OSError(f"a tutorial tried to reach {address}")
    return _connect(self, address)
socket.socket.connect = _refused
"""


def code_cells(name: str) -> dict[str, Any]:
    notebook = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text(encoding="utf-8"))
    return {c["id"]: c for c in notebook["cells"] if c["cell_type"] == "code"}


def cassette(name: str) -> Cassette:
    return from_text((NOTEBOOKS / "cassettes" / f"{name}.json").read_text(encoding="utf-8"), name)


def sealed(folder: Path, **variables: str) -> dict[str, str]:
    """Return an environment without a key, a network, or anything of this pytest."""
    (folder / "sealed").mkdir()
    (folder / "sealed" / "sitecustomize.py").write_text(NO_NETWORK, encoding="utf-8")
    gone = ("ANTHROPIC_", "PYTEST_", "NBAGENT_", "JPY_")
    environ = {k: v for k, v in os.environ.items() if not k.startswith(gone)}
    kept = [str(folder / "sealed"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **environ, "NBAGENT_OFFLINE": "1", "HOME": str(folder), "NBAGENT_HOME": str(folder / "home"), "PYTHONPATH": os.pathsep.join(kept),
        **variables,
    }  # fmt: skip


def copied(folder: Path) -> Path:
    """Return a copy of the notebooks' folder, each notebook with the two watching cells."""
    place = folder / "notebooks"
    shutil.copytree(NOTEBOOKS, place, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".nbagent", ".ipynb_checkpoints"))
    for path in place.glob("*.ipynb"):
        notebook = nbformat.read(path, as_version=4)
        notebook.cells.insert(0, nbformat.v4.new_code_cell(WATCH))
        notebook.cells.append(nbformat.v4.new_code_cell(TELL.replace("{name}", path.stem)))
        nbformat.write(notebook, path)
    return place


def client_of(notebook: Any, folder: Path) -> NotebookClient:
    """Return what runs a copied notebook to its end, whatever its cells raise."""
    options = {"timeout": 500, "startup_timeout": 500, "kernel_name": "python3", "allow_errors": True}
    return NotebookClient(notebook, resources={"metadata": {"path": str(folder / "notebooks")}}, config=kernels.config(), **options)


@pytest.fixture(scope="module")
def strict_passes(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, str, int]]:
    """Return folder, report and exit status of two strict nbval runs over all notebooks, at the same time."""
    command = [sys.executable, "-m", "pytest", "-q", "--nbval", "--nbval-current-env", "--nbval-cell-timeout", "500"]
    command += ["-p", kernels.__name__, "-p", "no:cacheprovider", "--rootdir", ".", "-c", os.devnull]
    runs = []
    for number, variables in enumerate(PASSES):
        folder = tmp_path_factory.mktemp(f"pass{'-longer' * number}")
        place = copied(folder)
        files = [f"{name}.ipynb" for name in NAMES]
        env = sealed(folder, **variables)
        env["PYTHONPATH"] += os.pathsep + str(ROOT)
        runs.append((place, subprocess.Popen(
            [*command, *files], cwd=place, env=env, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )))  # fmt: skip
    finished = []
    for place, process in runs:
        report, _ = process.communicate(timeout=PASS_TIMEOUT_S)
        finished.append((place, report, process.returncode))
    return finished


@pytest.mark.kernel
@pytest.mark.timeout(PASS_TIMEOUT_S + 60)  # the two runs are part of it
def test_every_notebook_passes_strict_nbval_in_two_folders_zones_and_hash_seeds(
    strict_passes: list[tuple[Path, str, int]],
) -> None:
    for _, report, status in strict_passes:
        assert status == 0, report[-6000:]
        assert "passed" in report
        assert "skipped" not in report


@pytest.mark.kernel
@pytest.mark.parametrize("name", NAMES)
def test_both_runs_send_the_same_bytes_and_import_no_client(
    name: str, strict_passes: list[tuple[Path, str, int]]
) -> None:
    first, second = (json.loads((p / f"requests-{name}.json").read_text()) for p, _, _ in strict_passes)
    recording = (NOTEBOOKS / "cassettes" / f"{name}.json").read_text(encoding="utf-8")
    sent = recording.count('"kind": "assistant_message"')  # what is only looked at afterwards is not sent
    assert len(first) >= sent
    assert first[:sent] == second[:sent]


@pytest.mark.kernel
def test_a_replay_leaves_nothing_beside_the_notebook(strict_passes: list[tuple[Path, str, int]]) -> None:
    for place, _, _ in strict_passes:
        kept = place / ".nbagent" / "sessions"
        assert [p.name for p in kept.glob("*")] == ["rust-port"]  # imported by tutorials 3 and 7, which say so


@pytest.fixture(scope="module")
def wrong_run(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """Return the outputs by cell id of the first tutorial, with a wrong answer and a changed prompt in it."""
    folder = tmp_path_factory.mktemp("wrong")
    notebook = nbformat.read(copied(folder) / "01_first_turn.ipynb", as_version=4)
    cells = {c.id: c for c in notebook.cells}
    cells["prediction"].source = "prediction = {1, 2}"
    changed = nbformat.v4.new_code_cell(cells["turn-3-plot"].source.replace("proline", "ash"), id="changed")
    again = nbformat.v4.new_code_cell(cells["turn-3-plot"].source, id="again")
    at = notebook.cells.index(cells["turn-3-plot"])
    notebook.cells[at : at + 1] = [changed, again]
    client = client_of(notebook, folder)
    client.execute(env=sealed(folder))
    return {c.id: c.get("outputs", []) for c in notebook.cells}


def error_line(outputs: list[Any]) -> str:
    (error,) = [o for o in outputs if o.output_type == "error"]
    return "\n".join(error.traceback)


@pytest.mark.kernel
def test_a_changed_prompt_says_where_it_differs_and_what_to_do(wrong_run: dict[str, list[Any]]) -> None:
    line = error_line(wrong_run["changed"])
    assert "\n" not in line
    assert "this cell says 'noids and ash, one" in line
    assert "the recording 'noids and proline" in line
    assert line.endswith("set a key or a local model, or restore the text")


@pytest.mark.kernel
def test_after_a_miss_the_recorded_turns_go_on(wrong_run: dict[str, list[Any]]) -> None:
    assert [o.output_type for o in wrong_run["again"]] == ["display_data", "display_data"]
    assert [o for o in wrong_run["revert"] if o.output_type == "error"] == []


@pytest.mark.kernel
def test_the_exercise_refuses_a_wrong_answer_without_giving_the_right_one(wrong_run: dict[str, list[Any]]) -> None:
    line = error_line(wrong_run["check"])
    assert "{1, 2} is not it" in line
    assert "{4, 5}" not in line


def answered(folder: Path, name: str, answer: str, source: str, *, notes: Path | None = None) -> dict[str, list[Any]]:
    """Return the outputs by cell id of the tutorial `name` up to its check, with an answer put into the cell `answer`.

    `notes` is where a fact that tutorial 5 wrote, and a lesson, lie before.
    """
    if notes is not None:
        notes.mkdir(parents=True)
        line = "- Wine data: we report the median of proline. <!-- nbagent turn=t000002 -->\n"
        (notes / "2026-02-25.md").write_text(line, encoding="utf-8")
        (notes / "lesson-wine.md").write_text("- about wine\n", encoding="utf-8")
    return all_answered(folder, name, answer, (source,))


def all_answered(folder: Path, name: str, answer: str, sources: Sequence[str]) -> dict[str, list[Any]]:
    """Return the outputs by cell id of the tutorial up to its check: "check" for the first answer, "check-1" for the next."""
    notebook = nbformat.read(copied(folder) / f"{name}.ipynb", as_version=4)
    ids = [c.id for c in notebook.cells]
    notebook.cells[ids.index(answer)].source = sources[0]
    check = notebook.cells[ids.index("check")]
    notebook.cells = notebook.cells[: ids.index("check") + 1]
    for number, source in enumerate(sources[1:], 1):
        notebook.cells.append(nbformat.v4.new_code_cell(source, id=f"answer-{number}"))
        notebook.cells.append(nbformat.v4.new_code_cell(check.source, id=f"check-{number}"))
    client = client_of(notebook, folder)
    client.execute(env=sealed(folder))
    return {c.id: c.get("outputs", []) for c in notebook.cells}


Told = Callable[[str, str, Sequence[str], str], str]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """Give the line that a tutorial's check has for one of several wrong answers; it is run once for all of them."""
    lines: dict[str, dict[str, str]] = {}

    def line(name: str, answer: str, sources: Sequence[str], source: str) -> str:
        if name not in lines:
            outputs = all_answered(tmp_path_factory.mktemp("answers"), name, answer, sources)
            checks = [outputs[f"check-{n}" if n else "check"] for n in range(len(sources))]
            lines[name] = {s: error_line(o) for s, o in zip(sources, checks, strict=True)}
        return lines[name][source]

    return line


WRONG_02 = [
    ("{1, 7}", "the beginning is cached"),
    ("{7}", "a call and its result go together"),
    ("{6, 7, 16}", "the answer of turn 3 is gone"),
    ("{8}", "that is more than half"),
]


@pytest.mark.kernel
@pytest.mark.parametrize(("leave_out", "why"), WRONG_02)
def test_an_answer_of_tutorial_2_that_breaks_a_rule_is_told_which(leave_out: str, why: str, told: Told) -> None:
    sources = [f"leave_out = {leave_out}" for leave_out, _ in WRONG_02]
    assert why in told("02_where_tokens_go", "choice", sources, f"leave_out = {leave_out}")


WRONG_04 = [
    ("Finds rows and columns that are in there twice. Use when some rows or columns are in there twice.", "the near miss finds"),
    ("Looks at fields. Use when asked.", "the right request finds"),
    ("Columns holding the same thing twice.", "has no words that trigger it"),
]


@pytest.mark.kernel
@pytest.mark.parametrize(("description", "why"), WRONG_04)
def test_a_description_of_tutorial_4_that_is_no_better_is_told_why(description: str, why: str, told: Told) -> None:
    sources = [f"description = {description!r}" for description, _ in WRONG_04]
    assert why in told("04_skills", "answer", sources, f"description = {description!r}")


WRONG_08 = [
    ("0.8", "no room for a long result"),
    ("0.3", "only 57 anchors stand there word for word"),
    ("0.5", "another one that does is cheaper"),
    ("60", "is no threshold of the table; take one of 0.2"),
    ("0.6; largest_request = 1", "the two numbers are not those of its row"),
]


@pytest.mark.kernel
@pytest.mark.parametrize(("threshold", "why"), WRONG_08)
def test_a_threshold_in_tutorial_8_that_is_not_the_one_is_told_why(threshold: str, why: str, told: Told) -> None:
    sources = [f"largest_request = word_for_word = 0; threshold = {threshold}" for threshold, _ in WRONG_08]
    assert why in told("08_which_threshold", "choice", sources, f"largest_request = word_for_word = 0; threshold = {threshold}")


WRONG_07 = [
    ('{"B", "D", "F"}', "not B: the list of tools stays as it is"),
    ('{"D", "E", "F"}', "not E: the first model's cache was still there"),
    ('{"D"}', "there is another one"),
]


@pytest.mark.kernel
@pytest.mark.parametrize(("broke", "why"), WRONG_07)
def test_a_change_in_tutorial_7_that_broke_nothing_is_told_why(broke: str, why: str, told: Told) -> None:
    sources = [f"broke = {broke}" for broke, _ in WRONG_07]
    assert why in told("07_the_cache_bill", "choice", sources, f"broke = {broke}")


def test_the_recording_of_tutorial_7_says_that_its_cache_figures_are_a_simulation() -> None:
    recorded = cassette("07_the_cache_bill")
    assert "The cache figures are a simulation by Anthropic's published rules" in recorded.about
    assert {t.start.model for t in recorded.turns} == {
        "scripted:07_the_cache_bill.json", "scripted:claude-opus-5-5",
    }  # fmt: skip


@pytest.mark.kernel
def test_a_pin_of_tutorial_3_that_is_no_rule_is_refused(tmp_path: Path) -> None:
    outputs = answered(tmp_path, "03_compaction_without_regret", "answer", 'rule = "iris are flowers"')
    assert "is no rule of yours" in error_line(outputs["check"])


# ---------------------------------------------------------------- the files as they are committed


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_valid_and_says_how_to_run_it_first(name: str) -> None:
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    assert notebook.metadata.kernelspec.name == "python3"
    opening = "".join(c.source for c in notebook.cells[:2])
    assert "Without a key" in opening
    assert "ANTHROPIC_API_KEY" in opening
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", c.id) for c in notebook.cells)
    assert all("execution" not in c.metadata for c in notebook.cells)
    assert all(c.outputs or c.execution_count for c in notebook.cells if c.cell_type == "code")


@pytest.mark.parametrize("name", NAMES)
def test_markdown_cells_are_short(name: str) -> None:
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    assert [c.id for c in notebook.cells if c.cell_type == "markdown" and len(c.source) > 500] == []


@pytest.mark.parametrize("name", NAMES)
def test_outputs_and_recording_name_no_folder_address_or_time(name: str) -> None:
    outputs = json.dumps([c["outputs"] for c in code_cells(name).values()])
    outputs = re.sub(r'"image/png": "[^"]*"', "", outputs)
    recording = (NOTEBOOKS / "cassettes" / f"{name}.json").read_text(encoding="utf-8")
    for text in (outputs, recording):
        assert re.findall(r"(?:/home/|/root/|/tmp/|/Users/|[A-Z]:\\\\|site-packages)\S*", text) == []
        assert re.findall(r"0x[0-9a-f]{6,}|\b\d\d:\d\d:\d\d\b", text) == []


@pytest.mark.parametrize("name", NAMES)
def test_a_recording_says_that_it_was_scripted_and_holds_every_turn(name: str) -> None:
    recorded = cassette(name)
    assert recorded.source == "scripted"
    assert f"scripts/{name}.json" in recorded.about
    sources = ["".join(c["source"]) for c in code_cells(name).values()]
    prompts = [s.partition("\n")[2] for s in sources if s.startswith("%%agent")]
    used = [s.removeprefix("%skills run ").split(" ", 1) for s in sources if s.startswith("%skills run ")]
    prompts += [f"Use the skill {skill}: {arguments}" for skill, arguments in used]
    assert [t.prompt[0]["text"].strip() for t in recorded.turns] == prompts


@pytest.mark.kernel
def test_a_note_that_has_a_word_of_the_question_does_not_pass_the_exercise_on_memory(tmp_path: Path) -> None:
    outputs = answered(tmp_path, "05_memory", "choice", 'note = "- The taxi was 40 euros."')
    assert "a word of the question stands in the note" in str(outputs["check"])


@pytest.mark.kernel
def test_the_second_notebook_on_memory_run_alone_says_what_comes_first(tmp_path: Path) -> None:
    outputs = answered(tmp_path, "05_memory_second_notebook", "choice", "loaded = set()")
    assert "run notebook 5 (05_memory.ipynb) first, in this folder" in error_line(outputs["left"])


@pytest.mark.kernel
@pytest.mark.parametrize(
    ("loaded", "why"),
    [
        ('{"2026-02-25.md"}', "today is 2026-03-04: which of the logs is of today or yesterday?"),
        ('{"lesson-wine.md"}', "a note by topic is never loaded, only found"),
    ],
)
def test_a_wrong_answer_in_the_second_notebook_on_memory_is_told_why(loaded: str, why: str, tmp_path: Path) -> None:
    notes = tmp_path / "notebooks" / ".nbagent" / "memory"
    outputs = answered(tmp_path, "05_memory_second_notebook", "choice", f"loaded = {loaded}", notes=notes)
    assert why in error_line(outputs["check"])


def test_the_second_notebook_on_memory_finds_what_the_first_one_wrote() -> None:
    written = json.dumps(code_cells("05_memory")["today"]["outputs"])
    found = code_cells("05_memory_second_notebook")["origin"]["outputs"][0]["text"]
    line, origin = found[0].strip().removeprefix("- "), found[1]
    assert line in written
    assert f"turn={origin.split()[3]}" in written
    assert line in (NOTEBOOKS / "cassettes" / "05_memory_second_notebook.json").read_text(encoding="utf-8")
