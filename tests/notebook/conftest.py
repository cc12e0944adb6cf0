"""Of a test that fails: what its newest cells showed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.notebook.kernel_harness import LAST, SHOWN_CHARS

SOURCE_CHARS = 500


def pytest_runtest_setup(item: pytest.Item) -> None:
    LAST.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    """Add sources and outputs to the report."""
    report = yield
    if report.failed:
        for ran in LAST:
            report.sections.append(("cell", f"{ran.source[:SOURCE_CHARS]}\n--\n{ran.result.told()[-SHOWN_CHARS:]}"))
    return report
