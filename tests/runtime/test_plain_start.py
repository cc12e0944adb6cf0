"""plain_start: true only where the full reading of settings and sessions would find nothing either."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from nbagent.runtime.plain_start import plain_start
from nbagent.store.settings import load_settings


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    return folder


def environ(tmp_path: Path, **more: str) -> Mapping[str, str]:
    return {"NBAGENT_HOME": str(tmp_path / "home"), "HOME": str(tmp_path), **more}


def test_a_plain_start_says_what_the_full_reading_says(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    start = plain_start(str(folder), environ(tmp_path))
    assert start is not None
    settings = load_settings(folder, environ(tmp_path))
    assert start[:3] == (settings.model, settings.policy, settings.window_tokens)
    assert (settings.session, settings.diagnostics) == (None, ())
    assert not start.has_key
    with_key = plain_start(str(folder), environ(tmp_path, ANTHROPIC_API_KEY="x"))
    assert with_key is not None
    assert with_key.has_key


@pytest.mark.parametrize(
    "variables",
    [
        {"NBAGENT_MODE": "auto"},
        {"NBAGENT_MODEL": " "},
        {"NBAGENT_OFFLINE": "1"},
        {"ANTHROPIC_BASE_URL": "http://127.0.0.1:1"},
    ],
)
def test_variables_that_the_line_does_not_speak_of_are_plain(
    folder: Path, tmp_path: Path, variables: dict[str, str]
) -> None:
    settings = load_settings(folder, environ(tmp_path, **variables))
    start = plain_start(str(folder), environ(tmp_path, **variables))
    assert start is not None
    assert start[:3] == (settings.model, settings.policy, settings.window_tokens)


@pytest.mark.parametrize(
    "variables",
    [
        {"NBAGENT_MODEL": "claude-haiku-4-5"},
        {"NBAGENT_SESSION": "s"},
        {"NBAGENT_MODE": "quick"},
        {"NBAGENT_MODELL": "x"},
        {"ANTHROPIC_BASE_URL": "nowhere"},
        {"NBAGENT_HOME": "relative/home"},
    ],
)
def test_variables_that_set_something_or_are_wrong_are_not(
    folder: Path, tmp_path: Path, variables: dict[str, str]
) -> None:
    assert plain_start(str(folder), environ(tmp_path, **variables)) is None


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("home/settings.toml", ""),
        ("nbagent.toml", ""),
        ("a/pyproject.toml", "[tool.nbagent]\nmode = 'plan'\n"),
        ("a/pyproject.toml", "not toml"),
        ("a/b/.nbagent/sessions/s/session.json", "{}"),
    ],
)
def test_files_that_the_full_reading_would_tell_of_are_not(folder: Path, tmp_path: Path, path: str, text: str) -> None:
    notebook = str(folder / "n.ipynb")
    assert plain_start(str(folder), environ(tmp_path), notebook) is not None
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).write_text(text)
    assert plain_start(str(folder), environ(tmp_path), notebook) is None
