"""Record the tutorials: cassettes from scripted replies, then the notebooks as they replay.

    python tools/record_tutorials.py [--check] [NAME ...]

For each notebook in `notebooks/` that has a script in `notebooks/scripts/`, it is run twice in a
temporary folder, without a key: once with the scripted replies, which gives the cassette, and once
from the cassette, which gives the outputs. Code really runs both times. The same sources give the
same files: clock and ids are counted, identities of objects are renumbered, and no folder of this
machine is written down. `--check` writes nothing and says what would change.

A script is a list of replies, each a list of blocks; `text` and `code` may be lists of lines.
The notebook's own cells are the source of its text.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

NOTEBOOKS = Path(__file__).resolve().parents[1] / "notebooks"
RECORDED_AT = 1_772_010_000.0  # a fixed moment, so that recording again changes nothing
RECORDED_DAY = "2026-02-25 (Wednesday)"
BEFORE = {"05_memory_second_notebook": "05_memory"}  # what has to be run in the same folder first
LATER = {"05_memory_second_notebook": (1_772_614_800.0, "2026-03-04 (Wednesday)")}  # recorded on another day
OTHERS = {"07_the_cache_bill": ("claude-opus-5-5",)}  # models that the same script stands in for
CACHED = frozenset({"07_the_cache_bill"})  # whose usage has the cache figures of a simulation
CELL_TIMEOUT_S = 60
ABOUT = "{name}.ipynb. The replies were written by hand (scripts/{name}.json) from the numbers that the code gives."
SIMULATED = (
    " The cache figures are a simulation by Anthropic's published rules: entries live 5 minutes, belong to one model, "
    "have at least 1,024 tokens and are looked for 20 blocks back; a token is a quarter of the bytes."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Record the tutorials; return 1 when `--check` finds a difference."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*", help="notebooks without .ipynb; all by default")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a file would change")
    options = parser.parse_args(arguments)
    names = options.names or sorted(p.stem for p in (NOTEBOOKS / "scripts").glob("*.json"))
    changed = [path for name in names for path in record(name, write=not options.check)]
    for path in changed:
        print(("would change: " if options.check else "written: ") + path.relative_to(NOTEBOOKS.parent).as_posix())
    return 1 if options.check and changed else 0


def record(name: str, *, write: bool) -> list[Path]:
    """Return the files that changed: the cassette and the notebook `name`."""
    source = (NOTEBOOKS / f"{name}.ipynb").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory(prefix="nbagent-record-") as folder:
        cassette = _recorded(name, source, Path(folder))
    with tempfile.TemporaryDirectory(prefix="nbagent-replay-") as folder:
        notebook = _replayed(name, source, cassette, Path(folder))
    texts = {NOTEBOOKS / "cassettes" / f"{name}.json": cassette, NOTEBOOKS / f"{name}.ipynb": notebook}
    changed = [p for p, t in texts.items() if not p.exists() or p.read_text(encoding="utf-8") != t]
    for path in changed if write else ():
        path.parent.mkdir(exist_ok=True)
        path.write_text(texts[path], encoding="utf-8")
    return changed


def _recorded(name: str, source: str, folder: Path) -> str:
    script = json.loads((NOTEBOOKS / "scripts" / f"{name}.json").read_text(encoding="utf-8"))
    (folder / f"{name}.json").write_text(json.dumps(_joined(script), ensure_ascii=False), encoding="utf-8")
    shutil.copytree(NOTEBOOKS / "data", folder / "data")
    _run_before(name, folder)
    first = f"__import__('record_tutorials').record_instead_of_replay({name!r})"
    _execute(source, folder, first=first)
    raw = json.loads(_timeless((folder / "recorded.json").read_text(encoding="utf-8")))
    text = json.dumps(_renumbered(raw), ensure_ascii=False, indent=1) + "\n"
    _refuse_folders(text, folder, f"the recording of {name}")
    return text


def _replayed(name: str, source: str, cassette: str, folder: Path) -> str:
    shutil.copytree(NOTEBOOKS / "data", folder / "data")
    _run_before(name, folder)
    (folder / "cassettes").mkdir(exist_ok=True)
    (folder / "cassettes" / f"{name}.json").write_text(cassette, encoding="utf-8")
    notebook = _execute(source, folder)
    text = json.dumps(_tidy(notebook), ensure_ascii=False, indent=1, sort_keys=True) + "\n"
    _refuse_folders(text, folder, f"{name}.ipynb")
    return text


def _run_before(name: str, folder: Path) -> None:
    """Replay the notebook that `name` builds upon, as it is committed."""
    other = BEFORE.get(name)
    if other is not None:
        (folder / "cassettes").mkdir()
        shutil.copyfile(NOTEBOOKS / "cassettes" / f"{other}.json", folder / "cassettes" / f"{other}.json")
        _execute((NOTEBOOKS / f"{other}.ipynb").read_text(encoding="utf-8"), folder)


def _execute(source: str, folder: Path, *, first: str | None = None) -> Any:
    """Return the notebook `source` as it runs in `folder`, beside the data; `first` is a cell to run before others."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.reads(source, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    if first is not None:
        notebook.cells.insert(0, nbformat.v4.new_code_cell(first))
    gone = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "JPY_SESSION_NAME", "PYTHONHASHSEED")
    environ = {k: v for k, v in os.environ.items() if k not in gone and not k.startswith("NBAGENT_")}
    with tempfile.TemporaryDirectory(prefix="nbagent-home-") as home:
        environ |= {"HOME": home, "NBAGENT_HOME": f"{home}/.nbagent", "NBAGENT_OFFLINE": "1", "TZ": "UTC"}
        environ["NBAGENT_MEMORY__FLUSH"] = "off"  # the scripts hold the replies of the turns alone
        environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), environ.get("PYTHONPATH", "")])
        client = NotebookClient(
            notebook, timeout=CELL_TIMEOUT_S, kernel_name="python3", record_timing=False,
            resources={"metadata": {"path": str(folder)}},
        )  # fmt: skip
        client.execute(env=environ)
    return notebook


def _tidy(notebook: Any) -> Any:
    """Return the notebook as JSON with what a reader needs: no version of this machine, sources as lines."""
    import nbformat

    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python", "file_extension": ".py", "mimetype": "text/x-python"},
    }
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    number = 0
    for cell in notebook.cells:
        if cell.cell_type == "code":
            number += 1
            cell.execution_count = number
            for output in cell.outputs:
                if "execution_count" in output:
                    output.execution_count = number
    nbformat.validate(notebook)
    return json.loads(nbformat.writes(notebook))


def _joined(value: Any) -> Any:
    """Return a script in which `text` and `code` are one string, also where lines were given."""
    if isinstance(value, list):
        return [_joined(v) for v in value]
    if not isinstance(value, dict):
        return value
    lines = {k: "\n".join(v) for k, v in value.items() if k in ("text", "code") and isinstance(v, list)}
    return {k: lines[k] if k in lines else _joined(v) for k, v in value.items()}


def _timeless(text: str) -> str:
    """Return a cassette's text in which times of files (nanoseconds since the epoch) are counted in order."""
    times: dict[str, str] = {}
    return re.sub(r"\b1\d{18}\b", lambda m: times.setdefault(m[0], str(10**18 + len(times) + 1)), text)


def _renumbered(raw: Any) -> Any:
    """Return a cassette whose identities of objects (addresses) are counted in order of appearance."""
    names: dict[str, str] = {}

    def fresh(identity: str) -> str:
        return names.setdefault(identity, f"v{len(names) + 1}")

    def walk(value: Any) -> None:
        if isinstance(value, list):
            for item in value:
                walk(item)
        elif isinstance(value, dict):
            for key, item in value.items():
                if key == "variables" and isinstance(item, dict):
                    for name, seen in item.items():
                        item[name] = [*seen[:2], fresh(seen[2])] if isinstance(seen, list) else fresh(seen)
                else:
                    walk(item)

    walk(raw["turns"])
    return raw


def _refuse_folders(text: str, folder: Path, what: str) -> None:
    for place in (str(folder), str(Path.home()), str(NOTEBOOKS.parent)):
        if len(place) > 1 and place in text:
            at = text.index(place)
            raise SystemExit(f"{what} names a folder of this machine: …{text[max(0, at - 60) : at + 60]!r}…")


# ---------------------------------------------------------------- in the kernel


def record_instead_of_replay(name: str) -> None:
    """Make `%agent replay` of this kernel record the script `name` under a counted clock."""
    from nbagent.notebook.commands import agent as commands
    from nbagent.runtime.clock import CountingClock
    from nbagent.runtime.recording import Recorder
    from nbagent.runtime.session import Session

    def recording(agent: Any, words: Sequence[str]) -> Any:
        settings = agent.settings()
        at, day = LATER.get(name, (RECORDED_AT, RECORDED_DAY))
        clock = CountingClock(at, prefix="t", day=day)
        session = Session.open(
            folder=agent.folder(), notebook=None, settings=settings, home=Path(settings.home), name="tutorial",
            clock=clock,
        )  # fmt: skip
        _name_no_folders(session.runner)
        session.model_name = f"scripted:{name}.json"
        _keep_notes_apart(session.model().model)
        if name in CACHED:
            _simulate_cache(session.model().model, clock)
        for other in OTHERS.get(name, ()):
            session._models[other] = replace(session.model(), name=f"scripted:{other}")
        agent.switch(session)
        agent.kernel_id = "tutorial"
        agent.chosen["mode"] = "auto"
        about = ABOUT.format(name=name) + (SIMULATED if name in CACHED else "")
        agent.recorder = Recorder(path=agent.folder() / "recorded.json", about=about)
        return None

    commands.AGENT_COMMANDS["replay"] = recording  # type: ignore[index]


def _keep_notes_apart(model: Any) -> None:
    """Let a reply with a <note> answer the next request for a hand-off note, wherever a policy asks for one."""
    notes = [reply for reply in model._replies if "<note>" in json.dumps(reply)]
    model._replies = [reply for reply in model._replies if reply not in notes]
    said = model.call

    async def call(request: Any, watch: Any) -> Any:
        if notes and "about to be replaced by a note" in json.dumps(request.messages[-1].blocks[-1].get("text", "")):
            model._replies.insert(0, notes.pop(0) if len(notes) > 1 else notes[0])
        return await said(request, watch)

    model.call = call


def _simulate_cache(model: Any, clock: Any) -> None:
    """Let each reply report what a provider's cache would have done, instead of an input that nobody cached."""
    sys.path.insert(0, str(NOTEBOOKS.parent))
    from nbagent.models.anthropic_body import request_bytes
    from tests.fakes.cache import PromptCache
    from tests.fakes.prefix import prompt_blocks

    cache = PromptCache(clock=clock.monotonic)
    said = model.call

    async def call(request: Any, watch: Any) -> Any:
        body = json.loads(request_bytes(request))
        plan = cache.plan(body, prompt_blocks(body))
        cache.commit(plan)
        reply = await said(request, watch)
        return replace(reply, usage={**reply.usage, **plan.usage.as_json()})

    model.call = call


def _name_no_folders(runner: Any) -> None:
    """Let what is recorded name the workspace `.`, and a library by its own path.

    This is done before a request is made and not afterwards: the counted tokens depend on it.
    """
    from nbagent.core.entries import Entry, body_from_dict, body_to_dict
    from nbagent.core.messages import Prefix
    from nbagent.runtime.neutral import PACKAGE

    libraries = sysconfig.get_path("purelib")
    made, scrubbed = type(runner).new_prefix, runner.writer._scrub

    def neutral(text: str) -> str:
        text = text.replace(str(PACKAGE), PACKAGE.name).replace(libraries + os.sep, "")
        return text.replace(str(runner.folder), ".")

    def scrub(entry: Any) -> Any:
        entry = scrubbed(entry)
        before = json.dumps(body_to_dict(entry.body))
        after = neutral(before)
        return entry if before == after else Entry(entry.id, entry.parent, entry.at, body_from_dict(json.loads(after)))

    type(runner).new_prefix = lambda self, path=(): Prefix.from_text(neutral(made(self, path).to_text()))
    runner.writer._scrub = scrub


if __name__ == "__main__":
    sys.exit(main())
