"""Tool, ToolSpec and what a tool is given: the protocols between the agent and the world."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from nbagent.core.entries import ResultStatus
from nbagent.core.messages import Block, JsonObject, text_block

if TYPE_CHECKING:
    from nbagent.tools.kernel_types import CodeOutcome, VariableSummary
    from nbagent.tools.memory_types import MemoryPort
    from nbagent.tools.skill_types import Skills

Access: TypeAlias = Literal["read", "run", "write"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """What the model is told of a tool, and how it is treated.

    `access`: "read" changes nothing and is allowed by default; "write" changes files; "run" runs code.
    `concurrent`: calls of one batch may run at the same time.
    `formats_itself`: the tool keeps inside the cap, so the generic cap leaves its text alone.
    `replayed`: in replay it runs again; one that names entries does not, since their ids are others there.
    """

    name: str
    description: str
    input_schema: JsonObject
    access: Access
    concurrent: bool = False
    formats_itself: bool = False
    replayed: bool = True

    def to_wire(self) -> dict[str, Any]:
        """Return the tool as the Messages API takes it."""
        return {"name": self.name, "description": self.description, "input_schema": dict(self.input_schema)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOutput:
    """What a call brought.

    `text` is for the model, before the generic cap; `images` are image blocks to show it.
    `full_text` is what is kept as an artifact when it holds more than `text`; None means `text` is all.
    `shown` says which part `text` is ("lines 1-200 of 950"). `meta` goes into the entry, as JSON.
    """

    text: str
    images: tuple[Block, ...] = ()
    status: ResultStatus = "ok"
    full_text: str | None = None
    shown: str = ""
    meta: JsonObject = field(default_factory=dict)

    def blocks(self) -> tuple[Block, ...]:
        """Return text and images as blocks."""
        head = (text_block(self.text),) if self.text else ()
        return (*head, *self.images)


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A stored full text: `digest` is its SHA-256, `path` where the model can read it again, relative to the root."""

    digest: str
    path: str
    size_bytes: int


class Kernel(Protocol):
    """The person's kernel."""

    async def run_code(self, code: str, *, label: str) -> CodeOutcome:
        """Run `code` in the person's namespace; what it shows appears in the cell."""
        ...

    async def inspect(self, names: Sequence[str], *, detail: str = "summary") -> tuple[VariableSummary, ...]:
        """Describe the variables `names`."""
        ...

    async def variables(self) -> tuple[VariableSummary, ...]:
        """List the person's variables."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenCell:
    """A cell that ran in this kernel: `order` counts from 1; `ok` says that it did not fail."""

    order: int
    cell_id: str | None
    source: str
    ok: bool


class Notebook(Protocol):
    """The open notebook."""

    def path(self) -> Path | None:
        """Where the file is, as far as is known."""
        ...

    def cells_run(self) -> Sequence[SeenCell]:
        """The cells that ran in this kernel, oldest first."""
        ...

    def propose(self, source: str) -> str:
        """Offer `source` as a new cell below the running one; returns a sentence on what the person sees."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A piece of the conversation that a search found: a snippet of an entry's text.

    `start` is where the snippet begins in the whole text of `full_chars` characters. `tool` is empty for what
    nobody called a tool for; `in_context` says that the model still sees the entry.
    """

    entry_id: str
    turn: int
    who: str
    tool: str
    text: str
    start: int
    full_chars: int
    in_context: bool = False


class Recall(Protocol):
    """The whole conversation up to here, also what was compacted away or cleared."""

    def search(self, query: str, limit: int) -> Sequence[Found]:
        """Return the best pieces for the words of `query`; what the model no longer sees comes first."""
        ...

    def read(self, first: str, last: str) -> str:
        """Return the text of the entry `first`, or of all from it to `last`; results in full.

        Raises:
            ToolError: the conversation has no such entry.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """What a running tool may use.

    `root` is the workspace: paths stay inside it, links resolved; `extra_roots` may be read too.
    `cap_chars` is the most characters of a result that reach the model. `seen` maps the keys
    of `read` results that are still in the model's context to their `meta`. `keep` stores a full
    text and says where; what a call printed goes through `scrub` first, so that no key is kept.
    `hides` tells of a file whether a rule of the person keeps its content from searches.
    `label` names inner code in tracebacks ("5.2"). `cwd` is where relative paths start.
    """

    call_id: str
    root: Path
    cwd: Path
    cap_chars: int
    window_tokens: int
    keep: Callable[[str], Artifact]
    scrub: Callable[[str], str] = lambda text: text
    hides: Callable[[str], bool] = lambda path: False
    kernel: Kernel | None = None
    notebook: Notebook | None = None
    recall: Recall | None = None
    memory: MemoryPort | None = None
    skills: Skills | None = None
    extra_roots: tuple[Path, ...] = ()
    seen: Mapping[str, JsonObject] = field(default_factory=dict)
    sees_images: bool = True
    label: str = ""
    estimate: Callable[[str], int] = lambda text: len(text) // 3


class Tool(Protocol):
    """One tool. `input` is an object that fits `spec.input_schema` (validated before)."""

    @property
    def spec(self) -> ToolSpec:
        """What the model is told."""
        ...

    def summary(self, input: JsonObject) -> str:
        """Return the arguments in a few words, for one line of display."""
        ...

    def paths(self, input: JsonObject) -> tuple[str, ...]:
        """Return the paths that the call names, for rules and the root guard."""
        ...

    async def run(self, input: JsonObject, context: ToolContext) -> ToolOutput:
        """Run the call.

        Raises:
            ToolError: what the model has to know and can act on.
        """
        ...
