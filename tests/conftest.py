"""Rules for the whole suite: no real model call, a home of its own for each test, repeatable properties."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.kernels import runtime_folder

os.environ.pop("ANTHROPIC_API_KEY", None)
os.environ["NBAGENT_OFFLINE"] = "1"  # model clients raise unless their base URL is loopback

os.environ["JUPYTER_RUNTIME_DIR"] = runtime_folder()

_SLOW = (HealthCheck.too_slow, HealthCheck.function_scoped_fixture)
settings.register_profile("ci", max_examples=100, deadline=None, derandomize=True, suppress_health_check=_SLOW)
settings.register_profile("fuzz", max_examples=5000, deadline=None, suppress_health_check=_SLOW)
settings.load_profile(os.environ.get("NBAGENT_HYPOTHESIS", "ci"))


@pytest.fixture(autouse=True)
def nbagent_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Point nbagent at an empty home, and take away what could reach a provider."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("NBAGENT_HOME", str(home))
    monkeypatch.setenv("NBAGENT_OFFLINE", "1")
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    return home
