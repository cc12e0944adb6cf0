"""What running code in the person's kernel brings back: CodeOutcome, CodeError, Display, VariableSummary."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Display:
    """One thing shown: MIME type to text. Images are base64 text, JSON types are JSON text.

    `dropped` names the MIME types that were too large to keep.
    """

    bundle: Mapping[str, str]
    dropped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeError:
    """How code failed.

    `traceback` is plain text: frames of the person's and the agent's cells with their source lines
    ("Cell In[5.2], line 3"), library frames folded. `name` is the exception's class, `message` its text.
    """

    name: str
    message: str
    traceback: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeOutcome:
    """What one run of code did.

    `stdout` and `stderr` hold head and tail when there was much; `dropped_chars` counts what is missing
    from both. `result_text` is the text/plain of the last expression, None when there was none.
    `displays_dropped` counts displays beyond the number kept. `stopped` says that Stop, or whoever
    waited for the run, ended it.
    """

    stdout: str = ""
    stderr: str = ""
    displays: tuple[Display, ...] = ()
    result_text: str | None = None
    error: CodeError | None = None
    duration_s: float = 0.0
    dropped_chars: int = 0
    displays_dropped: int = 0
    stopped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class VariableSummary:
    """One variable of the person's namespace.

    `shape` is short: "(1797, 64)", "len 3", or "". `identity` is equal in two listings when the name
    is, as far as can be seen cheaply, still bound to the same unchanged object. `text` describes the value,
    "" in listings and for secret-looking names. `exists` is False for a name that is not bound.
    """

    name: str
    type_name: str
    shape: str = ""
    identity: str = ""
    text: str = ""
    exists: bool = True


class CodeCancelled(asyncio.CancelledError):
    """A run was ended from outside (Stop, a timeout); `outcome` holds what it did until then.

    It is a CancelledError: catch it where the run is awaited, keep the outcome, and raise it again.
    """

    def __init__(self, outcome: CodeOutcome) -> None:
        super().__init__("the run was stopped")
        self.outcome = outcome
