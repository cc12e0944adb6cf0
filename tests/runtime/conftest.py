"""The wire fake, and the rules that every conversation with it keeps; stopped tools have time to clean up."""

import pytest

from tests.fakes.invariants import fake, make_fake, pytest_configure
from tests.patience import HANG_S

__all__ = ["fake", "make_fake", "pytest_configure", "unhurried"]


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for the clean-up of a stopped tool as long as a slow machine takes; a person waits for seconds only."""
    monkeypatch.setattr("nbagent.runtime.driver.CLEAN_UP_S", HANG_S)
