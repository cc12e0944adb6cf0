"""What a front end sends: hello, pong, and commands; read and checked once. Pure (docs/panel-protocol.md).

A field that is not known is passed over; one of a wrong type, or a command that is not known, is an error line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, TypeAlias

from nbagent.core.errors import UsageProblem
from nbagent.notebook.panel.protocol import MAX_PAGE_ROWS, PAGE_ROWS, Versions, cut

NOTE_CHARS: Final = 100_000
TEXT_CHARS: Final = 20_000
WORD_CHARS: Final = 400
_SETTABLE: Final = ("policy", "mode", "threshold", "window_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """A front end is there, or wants the whole state again.

    `notebook` is the path it knows the notebook by, `parts` what it wants of the state; None for all.
    """

    kind: ClassVar[Literal["hello"]] = "hello"
    versions: Versions
    client: str = ""
    notebook: str = ""
    parts: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bye:
    """A front end does not show anything any more."""

    kind: ClassVar[Literal["bye"]] = "bye"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pong:
    """The answer to a ping. `approvals`: it shows questions to the person, wherever they look."""

    kind: ClassVar[Literal["pong"]] = "pong"
    token: str
    approvals: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewCompaction:
    """Write the hand-off note and show what a compaction would do; nothing is changed.

    A note that was written for the conversation as it stands is shown again, unless another is wanted (`again`).
    """

    name: ClassVar[Literal["preview_compaction"]] = "preview_compaction"
    id: str
    focus: str = ""
    again: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Compact:
    """Compact with the note as it was edited; None asks the model for one. `base` is that of the preview, if any."""

    name: ClassVar[Literal["compact"]] = "compact"
    id: str
    note: str | None = None
    focus: str = ""
    base: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Undo:
    """Take the last compaction back."""

    name: ClassVar[Literal["undo"]] = "undo"
    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Search memory."""

    name: ClassVar[Literal["search"]] = "search"
    id: str
    query: str
    count: int = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """Read lines of a note, for a front end that cannot open files."""

    name: ClassVar[Literal["read"]] = "read"
    id: str
    path: str
    line: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Rows `start` to `start + count` of the catalog or the turn tree; a negative `start` counts from the end."""

    name: ClassVar[Literal["page"]] = "page"
    id: str
    of: Literal["catalog", "tree"]
    start: int = 0
    count: int = PAGE_ROWS
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """The turns of cells, by cell id: number, stale, cost."""

    name: ClassVar[Literal["cells"]] = "cells"
    id: str
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The whole text of the question that waits."""

    name: ClassVar[Literal["question"]] = "question"
    id: str
    approval: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetSkill:
    """Let the model use a skill, or not."""

    name: ClassVar[Literal["set_skill"]] = "set_skill"
    id: str
    skill: str
    on: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Stop the running turn, as the stop button does."""

    name: ClassVar[Literal["stop"]] = "stop"
    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Steer:
    """Tell the running turn something before its next step."""

    name: ClassVar[Literal["steer"]] = "steer"
    id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """Tell a sub-agent something."""

    name: ClassVar[Literal["send"]] = "send"
    id: str
    agent: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StopAgent:
    """Stop a sub-agent."""

    name: ClassVar[Literal["stop_agent"]] = "stop_agent"
    id: str
    agent: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Revert:
    """Go back to right after a turn."""

    name: ClassVar[Literal["revert"]] = "revert"
    id: str
    turn: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Set:
    """Set policy, mode, threshold (a share) or window_tokens, from the next turn on; None leaves one as it is."""

    name: ClassVar[Literal["set"]] = "set"
    id: str
    policy: str | None = None
    mode: str | None = None
    threshold: float | None = None
    window_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Answer the question that waits."""

    name: ClassVar[Literal["answer"]] = "answer"
    id: str
    approval: str
    answer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NotebookPath:
    """The notebook is now at this path of the server (it was renamed)."""

    name: ClassVar[Literal["notebook"]] = "notebook"
    id: str
    path: str


Command: TypeAlias = (
    PreviewCompaction | Compact | Undo | Search | Read | Page | Cells | Question | SetSkill | Stop | Steer | Send
    | StopAgent | Revert | Set | Answer | NotebookPath
)  # fmt: skip
FrontMessage: TypeAlias = Hello | Bye | Pong | Command


class BadMessage(UsageProblem):
    """A message of a front end cannot be understood. `id` is that of the command, empty when it has none."""

    def __init__(self, line: str, command_id: str = "") -> None:
        super().__init__(line)
        self.id = command_id


def read_message(data: object, *, package: str = "") -> FrontMessage:
    """Return what a front end sent, as a value.

    Raises:
        BadMessage: it is none of ours, or a field is missing, of a wrong type, or too large.
    """
    if not isinstance(data, Mapping):
        raise BadMessage(f"a message of the panel is an object with a kind, not {type(data).__name__}")
    kind = data.get("kind")
    if kind == "hello":
        fields = _Fields(data, "hello", "")
        versions = Versions(version=fields.whole("version"), least=fields.whole("least"))
        return Hello(
            versions=versions, client=fields.text("client", ""), notebook=fields.text("notebook", "", 2_000),
            parts=None if data.get("parts") is None else fields.texts("parts", 20),
        )  # fmt: skip
    if kind == "bye":
        return Bye()
    if kind == "pong":
        fields = _Fields(data, "pong", "")
        return Pong(token=fields.text("token"), approvals=fields.flag("approvals", False))
    if kind != "command":
        raise BadMessage(f"a message of the panel is hello, bye, pong or command, not {_shown(kind)}")
    command_id = data.get("id")
    if not isinstance(command_id, str) or not 0 < len(command_id) <= 80:
        raise BadMessage("a command of the panel needs an id: a text of 1 to 80 characters, not " + _shown(command_id))
    name = data.get("name")
    reader = _READERS.get(name) if isinstance(name, str) else None
    if reader is None:
        raise BadMessage(
            f"nbagent {package} in this kernel does not know the command {_shown(name)}; update it where the kernel "
            "runs: pip install -U jupyter-nbagent, then restart the kernel".replace("  ", " "),
            command_id,
        )
    return reader(_Fields(data, str(name), command_id))


def _shown(value: object) -> str:
    return cut(repr(value), 60)


class _Fields:
    """Takes checked fields out of a message."""

    def __init__(self, data: Mapping[Any, object], name: str, command_id: str) -> None:
        self._data, self._name, self.id = data, name, command_id

    def _wrong(self, key: str, what: str) -> BadMessage:
        value = self._data.get(key)
        return BadMessage(f"{self._name}: {key} must be {what}, not {_shown(value)}", self.id)

    def text(self, key: str, default: str | None = None, most_chars: int = WORD_CHARS) -> str:
        value = self._data.get(key, default)
        if not isinstance(value, str):
            raise self._wrong(key, "a text")
        if len(value) > most_chars:
            raise BadMessage(
                f"{self._name}: {key} has {len(value):,} characters, at most {most_chars:,} go; shorten it", self.id
            )
        return value

    def maybe(self, key: str, most_chars: int = WORD_CHARS) -> str | None:
        return None if self._data.get(key) is None else self.text(key, None, most_chars)

    def flag(self, key: str, default: bool | None = None) -> bool:
        value = self._data.get(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false")
        return value

    def whole(self, key: str, default: int | None = None) -> int:
        value = self._data.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or abs(value) > 10**9:
            raise self._wrong(key, "a whole number")
        return value

    def share(self, key: str) -> float | None:
        value = self._data.get(key)
        if value is None:
            return None
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 1:
            raise self._wrong(key, "a number from 0 to 1")
        return float(value)

    def texts(self, key: str, most: int) -> tuple[str, ...]:
        value = self._data.get(key)
        if not isinstance(value, list) or len(value) > most or not all(isinstance(v, str) for v in value):
            raise self._wrong(key, f"a list of at most {most} texts")
        return tuple(value)


def _page(f: _Fields) -> Page:
    of, count = f.text("of"), f.whole("count", PAGE_ROWS)
    if of not in ("catalog", "tree"):
        raise f._wrong("of", "catalog or tree")
    if not 1 <= count <= MAX_PAGE_ROWS:
        raise f._wrong("count", f"from 1 to {MAX_PAGE_ROWS}")
    which: Literal["catalog", "tree"] = "catalog" if of == "catalog" else "tree"
    return Page(id=f.id, of=which, start=f.whole("start", 0), count=count, text=f.text("text", ""))


def _set(f: _Fields) -> Set:
    window = None if f._data.get("window_tokens") is None else f.whole("window_tokens")
    found = Set(
        id=f.id, policy=f.maybe("policy"), mode=f.maybe("mode"), threshold=f.share("threshold"), window_tokens=window
    )
    if all(getattr(found, key) is None for key in _SETTABLE):
        raise BadMessage(f"set: give one of {', '.join(_SETTABLE)}", f.id)
    return found


def _search(f: _Fields) -> Search:
    count = f.whole("count", 8)
    if not 1 <= count <= 50:
        raise f._wrong("count", "from 1 to 50")
    return Search(id=f.id, query=f.text("query", None, 2_000), count=count)


_READERS: Final[Mapping[str, Callable[[_Fields], Command]]] = {
    "preview_compaction": lambda f: PreviewCompaction(
        id=f.id, focus=f.text("focus", "", 2_000), again=f.flag("again", False)
    ),
    "compact": lambda f: Compact(
        id=f.id, note=f.maybe("note", NOTE_CHARS), focus=f.text("focus", "", 2_000), base=f.text("base", "")
    ),
    "undo": lambda f: Undo(id=f.id),
    "search": _search,
    "read": lambda f: Read(id=f.id, path=f.text("path", None, 2_000), line=max(1, f.whole("line", 1))),
    "page": _page,
    "cells": lambda f: Cells(id=f.id, cells=f.texts("cells", MAX_PAGE_ROWS)),
    "question": lambda f: Question(id=f.id, approval=f.text("approval")),
    "set_skill": lambda f: SetSkill(id=f.id, skill=f.text("skill"), on=f.flag("on")),
    "stop": lambda f: Stop(id=f.id),
    "steer": lambda f: Steer(id=f.id, text=f.text("text", None, TEXT_CHARS)),
    "send": lambda f: Send(id=f.id, agent=f.text("agent"), text=f.text("text", None, TEXT_CHARS)),
    "stop_agent": lambda f: StopAgent(id=f.id, agent=f.text("agent")),
    "revert": lambda f: Revert(id=f.id, turn=f.text("turn")),
    "set": _set,
    "answer": lambda f: Answer(id=f.id, approval=f.text("approval"), answer=f.text("answer")),
    "notebook": lambda f: NotebookPath(id=f.id, path=f.text("path", None, 2_000)),
}
