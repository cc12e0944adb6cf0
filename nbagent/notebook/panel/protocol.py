"""The panel's protocol: its state, what the kernel sends, which versions fit. Pure (docs/panel-protocol.md).

Everything on the wire is JSON with a `kind`. The kernel sends `welcome`, `snapshot`, `delta`, `reply`, `ping` and
`mismatch`; what a front end sends is in `panel_commands`. The fixtures in tests/fixtures/bundles hold examples of
all of it and are loaded by the tests of both sides. A change that an older side cannot pass over raises VERSION.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Final, Literal, TypeAlias

from nbagent.core.messages import JsonObject
from nbagent.notebook.panel.comms import LEAST_VERSION, VERSION

MAX_PAGE_ROWS: Final = 200
PAGE_ROWS: Final = 50
_NAME_BYTES: Final = 120
_LINE_BYTES: Final = 300
_QUESTION_BYTES: Final = 2_000  # in the state; `question` asks for the whole of it
_POLICIES: Final = 16  # names of policies that the state shows
_ROWS: Final = 8  # sub-agents and waiting commands that it shows

Status: TypeAlias = Literal["ok", "queued", "error"]
TurnStatus: TypeAlias = Literal["idle", "running", "stopping"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A command that would be refused now, and the line that says why."""

    name: str
    line: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPart:
    """Whose panel this is. `trouble` is one line when the conversation cannot be opened, else empty.

    `refused` are the commands that are refused as things stand, at most four: a front end does not offer them.
    """

    name: str = ""
    package: str = ""
    trouble: str = ""
    replay: bool = False
    refused: tuple[Refusal, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GaugePart:
    """How full the context is; the same figures as `%context`. Tokens; `categories` add up to `used_tokens`.

    `policies` are the names that can be chosen.
    `cost_usd` is that of the whole session, also of branches that were left, as `%agent` says it.
    """

    model: str = ""
    policy: str = ""
    policies: tuple[str, ...] = ()
    mode: str = ""
    window_tokens: int = 0
    threshold_tokens: int = 0
    used_tokens: int = 0
    level: int = 0
    categories: Mapping[str, int] = field(default_factory=dict)
    cache_hit_rate: float | None = None
    cost_usd: float = 0.0
    estimated: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnPart:
    """The turn that runs, else the last. `delivers`: what the front end sends is handled while the cell runs."""

    turn: str = ""
    number: int = 0
    status: TurnStatus = "idle"
    step: int = 0
    activity: str = ""
    outcome: str = ""
    delivers: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogPart:
    """The skills in short; a new `revision` says that pages are out of date."""

    revision: int = 0
    total: int = 0
    visible: int = 0
    prompt_tokens: int = 0
    problems: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TreePart:
    """The turns in short; a new `revision` says that pages are out of date. `leaf` is the turn one is at."""

    revision: int = 0
    total: int = 0
    current: int = 0
    stale: int = 0
    leaf: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRow:
    """One sub-agent: `status` is running, done, failed or stopped; `activity` what it does, or why it did not end well.

    `calls` counts its tool calls, `tokens` is the size of its own context.
    """

    agent: str
    name: str = ""
    status: str = "running"
    activity: str = ""
    calls: int = 0
    tokens: int = 0
    cost_usd: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentsPart:
    """The sub-agents, those that run first, at most eight of `total`."""

    total: int = 0
    rows: tuple[AgentRow, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPart:
    """The compaction in force; `entry` is empty when there is none. `lost` counts anchors, None when not known."""

    entry: str = ""
    reason: str = ""
    before_tokens: int = 0
    after_tokens: int = 0
    lost: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One answer to a question."""

    answer: str
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalPart:
    """The question that waits for an answer; `approval` is empty when none does. `more_chars` is left out of `text`.

    `answered` is the one that a front end answered last, `answer` the words of that button.
    """

    approval: str = ""
    tool: str = ""
    text: str = ""
    more_chars: int = 0
    choices: tuple[Choice, ...] = ()
    answered: str = ""
    answer: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A command that waits for the turn to end."""

    id: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePart:
    """Commands that wait, oldest first, at most eight of `total`."""

    total: int = 0
    rows: tuple[Waiting, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelState:
    """Everything that a panel shows without asking. The fields are the parts of a snapshot and of deltas."""

    session: SessionPart = SessionPart()
    gauge: GaugePart = GaugePart()
    turn: TurnPart = TurnPart()
    catalog: CatalogPart = CatalogPart()
    tree: TreePart = TreePart()
    agents: AgentsPart = AgentsPart()
    compaction: CompactionPart = CompactionPart()
    approval: ApprovalPart = ApprovalPart()
    queue: QueuePart = QueuePart()

    def to_wire(self) -> JsonObject:
        """Return the parts as JSON, with every text and list bounded, so that any field fits into a delta."""
        wire: JsonObject = json.loads(json.dumps(asdict(_bounded(self))))
        return wire


def _bounded(state: PanelState) -> PanelState:
    session, gauge, turn, approval = state.session, state.gauge, state.turn, state.approval
    text = cut(approval.text, _QUESTION_BYTES)
    left_out = 0 if text == approval.text else len(approval.text) - len(text) + 1
    return replace(
        state,
        session=replace(
            session, name=cut(session.name), package=cut(session.package), trouble=cut(session.trouble, _LINE_BYTES),
            refused=tuple(Refusal(name=cut(r.name, 30), line=cut(r.line, _LINE_BYTES)) for r in session.refused[:4]),
        ),
        gauge=replace(
            gauge, model=cut(gauge.model), policy=cut(gauge.policy), mode=cut(gauge.mode),
            policies=tuple(cut(name) for name in gauge.policies[:_POLICIES]),
        ),
        turn=replace(
            turn, turn=cut(turn.turn), activity=cut(turn.activity, _LINE_BYTES), outcome=cut(turn.outcome, _LINE_BYTES)
        ),
        tree=replace(state.tree, leaf=cut(state.tree.leaf)),
        agents=replace(state.agents, rows=tuple(_bounded_agent(r) for r in state.agents.rows[:_ROWS])),
        compaction=replace(
            state.compaction, entry=cut(state.compaction.entry), reason=cut(state.compaction.reason, _LINE_BYTES)
        ),
        approval=replace(
            approval, approval=cut(approval.approval), tool=cut(approval.tool), text=text,
            answered=cut(approval.answered), answer=cut(approval.answer, 60),
            more_chars=approval.more_chars + left_out,
            choices=tuple(Choice(answer=cut(c.answer, 20), label=cut(c.label, 60)) for c in approval.choices[:_ROWS]),
        ),
        queue=replace(
            state.queue, rows=tuple(Waiting(id=cut(w.id), name=cut(w.name, 30)) for w in state.queue.rows[:_ROWS])
        ),
    )  # fmt: skip


def _bounded_agent(row: AgentRow) -> AgentRow:
    return replace(
        row, agent=cut(row.agent, 60), name=cut(row.name, 60), status=cut(row.status, 20),
        activity=cut(row.activity, 120),
    )  # fmt: skip


def cut(text: str, most_bytes: int = _NAME_BYTES) -> str:
    """Return `text` as it may stand on the wire: at most so many bytes of JSON, the last an ellipsis when cut."""
    sound = text.encode("utf-8", "replace").decode("utf-8")  # a lone surrogate cannot be sent
    if len(sound) <= most_bytes and _text_bytes(sound) <= most_bytes:
        return sound
    left, kept = most_bytes - len("…".encode()), 0
    for char in sound[:most_bytes]:
        left -= _text_bytes(char)
        if left < 0:
            break
        kept += 1
    return sound[:kept] + "…"


def _text_bytes(text: str) -> int:
    return len(json.dumps(text, ensure_ascii=False).encode("utf-8")) - 2


# ---------------------------------------------------------------- versions


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """What one side speaks: from `least` to `version`."""

    version: int = VERSION
    least: int = LEAST_VERSION


def agreed(kernel: Versions, front: Versions) -> int | None:
    """Return the version that both speak: the newer side's newest that the other knows. None when there is none."""
    best = min(kernel.version, front.version)
    return best if best >= max(kernel.least, front.least) else None


def mismatch_line(kernel: Versions, front: Versions, *, package: str, client: str) -> str:
    """Return what the person is told when no version fits: what is too old, and what to do."""
    if front.version < kernel.least:
        return (
            f"the panel ({client}) speaks protocol {front.version}, nbagent {package} in this kernel needs "
            f"{kernel.least} or newer; update the panel where JupyterLab runs: pip install -U jupyter-nbagent, then "
            "reload the page"
        )
    return (
        f"nbagent {package} in this kernel speaks protocol {kernel.version}, the panel ({client}) needs {front.least} "
        "or newer; update it where the kernel runs: pip install -U jupyter-nbagent, then restart the kernel"
    )


# ---------------------------------------------------------------- what the kernel sends


def welcome(package: str, versions: Versions | None = None) -> JsonObject:
    """Return what the comm opens with."""
    own = versions or Versions()
    return {"kind": "welcome", "version": own.version, "least": own.least, "package": package}


def snapshot(parts: JsonObject, *, seq: int, version: int) -> JsonObject:
    """Return the whole state, as an answer to `hello`; the next delta is `seq` + 1."""
    return {"kind": "snapshot", "version": version, "seq": seq, "parts": parts}


def delta(changes: JsonObject, *, seq: int) -> JsonObject:
    """Return what changed since the delta before."""
    return {"kind": "delta", "seq": seq, "parts": changes}


def mismatch(line: str, versions: Versions | None = None) -> JsonObject:
    """Return that no version fits."""
    own = versions or Versions()
    return {"kind": "mismatch", "version": own.version, "least": own.least, "line": line}


def ping(token: str) -> JsonObject:
    """Return the question whether the front end's messages come through now."""
    return {"kind": "ping", "token": token}


def reply(command_id: str, status: Status, line: str = "", result: JsonObject | None = None) -> JsonObject:
    """Return the answer to a command. A queued one is answered again, with the same id, when it was done."""
    return {"kind": "reply", "id": command_id, "status": status, "line": cut(line, 1_000), "result": result}
