"""Every exception of nbagent, and Diagnostic for what nobody has to act on at once.

    NbAgentError
    ├── UserError            the person acts: one readable line, no traceback
    │   ├── UsageProblem       a magic or command was typed wrongly
    │   ├── SettingsError      a settings file, variable or key is invalid
    │   ├── MissingKey         no credentials for the model's provider
    │   ├── ModelFailed        the provider refused, failed or could not be reached
    │   ├── TurnFailed         a turn ended other than with a completed answer
    │   ├── JournalLocked      another kernel writes this session
    │   ├── JournalUnwritable  the disk is full or the folder cannot be written
    │   ├── JournalDamaged     the journal cannot be read as far as needed
    │   ├── CassetteMiss       replay was asked for something not recorded
    │   ├── NotInteractive     a question had to be asked and nobody can answer
    │   └── PolicyError        an unknown policy, or a number it does not have
    ├── ToolError            the model acts: becomes a tool result marked as an error
    │   └── ToolStopped        the person stopped what the tool did, and the turn goes on
    └── BrokenPath           the developer acts: a path of entries is not a path

A message of a UserError has three parts: what was wrong with the value quoted, where, what to do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

COMPACT_HELPS: Final = "`%context compact` makes room"  # what helps where a conversation is too large for the window


class NbAgentError(Exception):
    """Root of everything nbagent raises on purpose."""


class UserError(NbAgentError):
    """The person acts; IPython prints `str(self)` on one line instead of a traceback."""

    def _render_traceback_(self) -> list[str]:
        return [short_line(str(self))]


class UsageProblem(UserError):
    """A magic or command was typed in a way that cannot be understood."""


class SettingsError(UserError):
    """A settings file, environment variable or option holds something invalid."""


class MissingKey(UserError):
    """There are no credentials for the provider of the chosen model."""


class ModelFailed(UserError):
    """The provider refused, failed or could not be reached.

    `kind` is one of "rate_limit", "overloaded", "auth", "billing", "permission", "not_found",
    "invalid_request", "too_large", "overflow", "server", "connection", "timeout", "protocol".
    `retryable` says whether sending the same request again can help; `retry_after_s` is what
    the provider asked for, in seconds, None when it said nothing.
    """

    def __init__(
        self, message: str, *, kind: str = "server", retryable: bool = False, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.retryable = retryable
        self.retry_after_s = retry_after_s


class TurnFailed(UserError):
    """A turn ended other than with a completed answer; the journal holds what was done."""


class JournalLocked(UserError):
    """Another process holds the session's journal open for writing."""


class JournalUnwritable(UserError):
    """The journal or its folder cannot be written (permissions, full disk)."""


class JournalDamaged(UserError):
    """A journal cannot be read as far as it is needed."""


class CassetteMiss(UserError):
    """Replay was asked for a step that the cassette does not hold."""


class NotInteractive(UserError):
    """A question had to be asked, and no front end can answer."""


class PolicyError(UserError):
    """An unknown context policy, or a number that the policy does not have."""


class ToolError(NbAgentError):
    """The model acts: the text becomes a tool result marked as an error."""


class ToolStopped(ToolError):
    """The person stopped what the tool did, and the turn goes on: people are told "stopped", not "failed"."""


class BrokenPath(NbAgentError):
    """An entry's parent is not the entry before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """Something found that stops nothing: where, what, and what to do about it.

    `line` counts from 1; None when the fault is the whole file's.
    """

    path: str
    line: int | None
    cause: str
    remedy: str

    def __str__(self) -> str:
        where = self.path if self.line is None else f"{self.path}:{self.line}"
        return f"{where}: {self.cause}; {self.remedy}"


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun.

    >>> counted(1, "turn"), counted(2, "turn"), counted(0, "entry", "entries")
    ('1 turn', '2 turns', '0 entries')
    """
    return f"{number} {noun}" if number == 1 else f"{number} {plural or noun + 's'}"


LONGEST_WORD, LONGEST_LINE = 240, 2_000  # characters of a message that a person can read


def short_line(text: str) -> str:
    """Return `text` on one line that can be read: what is pasted into it is shortened in its middle.

    >>> short_line("no turn is called '" + "x" * 5_000 + "'; see `%agent tree`")
    "no turn is called 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx … xxxxxxxxxxxxxxxxxx'; see `%agent tree`"
    """
    words = (w if len(w) <= LONGEST_WORD else f"{w[:40]} … {w[-20:]}" for w in text.split())
    line = " ".join(words)
    return line if len(line) <= LONGEST_LINE else f"{line[:300]} … {line[-300:]}"


def told(error: BaseException, most_chars: int = 200) -> str:
    """Return what an exception says, on one line; also of a class of somebody else that cannot say it."""
    try:
        return one_line(str(error))[:most_chars]
    except Exception:  # noqa: BLE001  its own __str__ raised
        return "it does not say why"


def one_line(text: str) -> str:
    """Return `text` with line breaks folded to blanks, so that it prints as one line."""
    return " ".join(text.split())
