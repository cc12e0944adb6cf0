"""The documents agree with the product: links, commands, options and settings they name are there."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from nbagent.cli import command_parser
from nbagent.notebook.commands.agent import AGENT_COMMANDS
from nbagent.notebook.commands.context import CONTEXT_COMMANDS
from nbagent.notebook.options import cell_parser
from nbagent.store.settings_keys import KEYS

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
README = (ROOT / "README.md").read_text(encoding="utf-8")
FENCE = re.compile(r"^```([a-z]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def prose(page: Path) -> str:
    """The text of a page without its fenced blocks."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def links() -> Iterator[tuple[Path, str]]:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
            if not re.match(r"[a-z]+:", target):
                yield page, target


def shell_lines() -> Iterator[tuple[Path, str]]:
    for page in PAGES:
        for language, body in FENCE.findall(page.read_text(encoding="utf-8")):
            if language == "sh":
                yield from ((page, line.strip()) for line in body.splitlines() if line.strip())


def cells(text: str, start: str) -> Iterator[list[str]]:
    """The rows of all tables whose first cell begins with `start` after a backtick."""
    for line in text.splitlines():
        if line.startswith(f"| `{start}"):
            yield [c.strip() for c in re.split(r"(?<!\\)\|", line.strip("| "))]


def commands() -> dict[str, argparse.ArgumentParser]:
    (sub,) = [a for a in command_parser()._actions if isinstance(a, argparse._SubParsersAction)]
    return dict(sub.choices)


def make_targets() -> set[str]:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z][a-z-]*):", text, re.MULTILINE))


def test_relative_links_lead_to_files() -> None:
    broken = [f"{p.name}: {t}" for p, t in links() if not (p.parent / t.partition("#")[0]).exists()]
    assert broken == []


def test_shell_blocks_name_commands_that_exist() -> None:
    known = commands()
    wrong = []
    for page, line in shell_lines():
        words = line.split()
        found = (words[0] == "make" and words[1] in make_targets()) or (words[0] == "nbagent" and words[1] in known)
        if not found and words[0] not in ("pip", "python"):
            wrong.append(f"{page.name}: {line}")
    assert wrong == []


def test_make_targets_and_commands_in_prose_exist() -> None:
    known, targets = set(commands()), make_targets()
    wrong = []
    for page in PAGES:
        text = prose(page)
        wrong += [f"{page.name}: make {t}" for t in re.findall(r"`make ([a-z-]+)", text) if t not in targets]
        wrong += [f"{page.name}: nbagent {c}" for c in re.findall(r"`nbagent ([a-z]+)", text) if c not in known]
    assert wrong == []


def test_the_readme_lists_every_command_of_the_terminal() -> None:
    listed = {name for row in cells(README, "nbagent ") for name in re.findall(r"`nbagent ([a-z]+)", row[0])}
    assert listed == set(commands())


def test_the_readme_lists_every_option_of_a_cell() -> None:
    listed = {o for row in cells(README, "-") for o in re.findall(r"(?<![\w-])--?[a-z][a-z-]*", row[0])}
    assert listed == {o for action in cell_parser()._actions for o in action.option_strings}


@pytest.mark.parametrize("option", ["--mode", "--rerun"])
def test_the_readme_lists_the_choices_of_an_option(option: str) -> None:
    (row,) = cells(README, option)
    (action,) = [a for a in cell_parser()._actions if option in a.option_strings]
    assert re.findall(r"[a-z]+", row[0].split(" ", 1)[1]) == list(action.choices or ())


@pytest.mark.parametrize(("magic", "names"), [("%agent", AGENT_COMMANDS), ("%context", CONTEXT_COMMANDS)])
def test_the_readme_lists_every_sub_command(magic: str, names: dict[str, object]) -> None:
    listed = {n for row in cells(README, magic) for n in re.findall(rf"`{magic} ([a-z]+)", row[0])}
    assert listed == set(names)


def test_every_setting_is_documented_with_its_default_and_variable() -> None:
    text = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    rows = {r[0].strip("`"): r for r in cells(text, "")}
    assert set(rows) & set(KEYS) == set(KEYS)
    for name, key in KEYS.items():
        default = "none" if key.default is None else json.dumps(key.default)
        variable = "NBAGENT_" + name.upper().replace(".", "__")
        assert rows[name][1:4] == [f"`{default}`", f"`{variable}`", key.expected]


def test_pages_in_docs_are_listed_in_their_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    missing = [p.name for p in (ROOT / "docs").glob("*.md") if p.name != "README.md" and f"({p.name})" not in index]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_a_page_has_no_marks_of_unfinished_work(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert re.findall(r"\b(TODO|FIXME|TBD|XXX)\b|coming soon|lorem ipsum", text) == []
    assert text.startswith("# ")
    assert text.count("\n```") % 2 == 0
