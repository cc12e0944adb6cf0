"""set_start: what the line of `%load_ext` says where settings are made, and when it leaves that to the full reading."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from nbagent.runtime.set_start import set_start
from nbagent.store.settings import load_settings
from tests.runtime.lab import Lab, write_notebook


def environ(tmp_path: Path, **more: str) -> Mapping[str, str]:
    return {"NBAGENT_HOME": str(tmp_path / "home"), "HOME": str(tmp_path), **more}


def start(folder: Path, variables: Mapping[str, str], **configured: Any) -> Any:
    return set_start(str(folder), variables, str(folder / "a.ipynb"), configured)


def test_it_says_what_the_full_reading_says_of_files_variables_and_configuration(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "settings.toml").write_text("window_tokens = 50000\n")
    variables = environ(tmp_path, NBAGENT_MODEL="claude-haiku-4-5")
    settings = load_settings(tmp_path, variables)
    found = start(tmp_path, variables)
    assert found[:3] == (settings.model, settings.policy, settings.window_tokens)
    assert found[:3] == ("claude-haiku-4-5", "nbagent", 50_000)
    assert (found.has_key, found.session, found.turns) == (False, "new", 0)
    assert start(tmp_path, variables, window_tokens=60_000).window_tokens == 60_000
    assert start(tmp_path, {**variables, "ANTHROPIC_API_KEY": "x"}).has_key
    assert start(tmp_path, {**variables, "NBAGENT_MODEL": "scripted:a.json"}).has_key


def test_skills_are_counted_by_the_settings(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / "home" / "skills" / name).mkdir(parents=True)
        (tmp_path / "home" / "skills" / name / "SKILL.md").write_text("x")
    (tmp_path / "home" / "settings.toml").write_text("mode = 'plan'\n")
    all_of_them = start(tmp_path, environ(tmp_path)).skills
    (tmp_path / "home" / "settings.toml").write_text("[skills.entries.one]\nenabled = false\n")
    assert start(tmp_path, environ(tmp_path)).skills == all_of_them - 1


@pytest.mark.parametrize(
    "text",
    [
        "policy = 'pi'", "threshold = 0.5", "session = 's'", "mode = 'quick'", "modell = 'x'", "not toml",
    ],
)  # fmt: skip
def test_what_has_to_be_looked_up_or_told_of_is_not_for_it(tmp_path: Path, text: str) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "settings.toml").write_text(f"{text}\n")
    assert start(tmp_path, environ(tmp_path)) is None


def test_what_a_project_may_not_widen_is_told_by_the_full_reading(tmp_path: Path) -> None:
    (tmp_path / "nbagent.toml").write_text("mode = 'auto'\n")
    assert start(tmp_path, environ(tmp_path)) is None
    (tmp_path / "nbagent.toml").write_text("mode = 'plan'\n")
    assert start(tmp_path, environ(tmp_path)) is not None


def test_rules_are_held_against_the_tools_where_a_conversation_is_kept(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "work")
    write_notebook(lab.folder / "a.ipynb", "c1")
    session = lab.open(["one"], notebook="a.ipynb", name=None)
    lab.send("c1", "hi")
    lab.close()
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "settings.toml").write_text("mode = 'plan'\n")
    found = start(lab.folder, environ(tmp_path))
    assert (found.session, found.turns) == (session.place.name, 1)
    (tmp_path / "home" / "settings.toml").write_text("[tools]\nallow = ['shell(git *)']\n")
    assert start(lab.folder, environ(tmp_path)) is None
    assert start(tmp_path, environ(tmp_path)) is not None
