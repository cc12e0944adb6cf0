"""Text that is safe to show and to store: without what drives a terminal or cannot be encoded. PURE."""

from __future__ import annotations

import re
from typing import Final

CONTROLS: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_TERMINAL: Final = re.compile(r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b\[[0-?]*[ -/]*[@-~]|\x1b.?", re.DOTALL)
_SURROGATES: Final = re.compile(r"[\ud800-\udfff]")


def clean(text: str) -> str:
    """Return `text` without terminal control sequences and control characters, lone surrogates as U+FFFD."""
    return _SURROGATES.sub("\ufffd", CONTROLS.sub("", _TERMINAL.sub("", text)))
