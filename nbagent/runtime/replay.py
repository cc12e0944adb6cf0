"""Turns that call no model: from a cassette, or the recorded answer of the same cell again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from nbagent.core.entries import Body, Compaction, Entry, SkillUse, TurnEnd
from nbagent.core.errors import CassetteMiss
from nbagent.core.tree import TurnNode
from nbagent.core.turn import Limits
from nbagent.core.view import build_view
from nbagent.models.cassette import (
    Cassette,
    RecordedTurn,
    Stretch,
    is_move,
    last_key,
    located,
    prefix_made,
    prompt_text,
    recorded_turns,
)
from nbagent.models.catalog import lookup
from nbagent.models.player import Player
from nbagent.models.registry import NamedModel
from nbagent.runtime.clock import CountingClock, day_text_of
from nbagent.runtime.matching import CellKey
from nbagent.runtime.neutral import Neutral
from nbagent.runtime.playback import Playback
from nbagent.runtime.ports import Asked, FinishedTurn, TurnOptions, TurnPorts
from nbagent.runtime.rules import Rules
from nbagent.runtime.turns import TurnRunner

RUNS_AGAIN = frozenset({"python"})  # DECISIONS 23: what a reused turn does again


def recorded_clock(cassette: Cassette) -> CountingClock:
    """Return the clock of a replay: it starts when the recording did, and its day is the one the model was told."""
    if not cassette.turns:
        return CountingClock()
    first = cassette.turns[0]
    told = (s.snapshot.state.get("today") for s in first.stretches if s.snapshot is not None)
    return CountingClock(first.at, day=str(next(filter(None, told), "") or day_text_of(first.at)))


async def replay_turn(
    runner: TurnRunner, cassette: Cassette, prompt: str, cell: CellKey, target: str | None, ports: TurnPorts
) -> FinishedTurn:
    """Play the turn that was recorded for `prompt` after the entry `target`.

    The recorded code runs, since later cells need its variables; the request gets the recorded results.

    Raises:
        CassetteMiss: the cassette does not hold it; nothing has changed.
    """
    tree = runner.writer.tree
    found = cassette.find(last_key(tree.path(target) if target is not None else []), prompt)
    recorded = _with_prefixes(runner, cassette, found)
    runner.close_broken()
    runner.writer.move_leaf(target, "fork")
    _write_moves(runner, recorded.stretches[0])
    prefix = cassette.prefixes.get(recorded.start.prefix) or runner.new_prefix()
    start = replace(
        recorded.start, cell_id=cell.cell_id, source_hash=cell.source_hash, order=cell.order,
        prefix=runner.store_prefix(prefix),
    )  # fmt: skip
    return await runner.run(
        _from_cassette(recorded), ports, start=start, asked=as_asked(recorded),
        snapshot=recorded.stretches[0].snapshot, limits=_limits(recorded),
        playback=_playback(runner, _player(runner, recorded)),
    )  # fmt: skip


async def replay_resume(runner: TurnRunner, cassette: Cassette, ports: TurnPorts) -> FinishedTurn:
    """Go on with the last turn of the path as the recording did.

    Raises:
        CassetteMiss: it did not; nothing has changed.
    """
    done = recorded_turns(runner.writer.tree.path())
    recorded = next((t for t in cassette.turns if done and t.key == done[-1].key), None)
    if recorded is None or len(done[-1].stretches) >= len(recorded.stretches):
        raise CassetteMiss("not recorded: the recording does not go on with this turn; run the next cell")
    stretch = len(done[-1].stretches)
    recorded = _with_prefixes(runner, cassette, recorded)
    _write_moves(runner, recorded.stretches[stretch])
    return await runner.run(
        _from_cassette(recorded), ports, start=None, snapshot=recorded.stretches[stretch].snapshot,
        limits=_limits(recorded), playback=_playback(runner, _player(runner, recorded, stretch)),
    )  # fmt: skip


def _with_prefixes(runner: TurnRunner, cassette: Cassette, recorded: RecordedTurn) -> RecordedTurn:
    """Return the turn with the prefixes that its compactions made, which are stored here."""

    def stored(body: Body) -> Body:
        prefix = cassette.prefixes.get(prefix_made(body))
        if prefix is None or not isinstance(body, Compaction):
            return body
        return replace(body, details={**body.details, "prefix": runner.store_prefix(prefix)})

    stretches = tuple(
        replace(s, before=tuple(map(stored, s.before)), bodies=tuple(map(stored, s.bodies))) for s in recorded.stretches
    )
    return replace(recorded, stretches=stretches)


def _write_moves(runner: TurnRunner, stretch: Stretch) -> None:
    """Do to the context what was done to it before this stretch, unless the path holds it already.

    What the person did here by hand besides is no part of the recording and counts for nothing.
    """
    writer = runner.writer
    path = writer.tree.path()
    ends = [i for i, e in enumerate(path) if isinstance(e.body, TurnEnd)]
    done = 0
    for i in range(ends[-1] + 1, len(path)) if ends and stretch.before else ():
        if done < len(stretch.before) and path[i].body == located(stretch.before[done], path[:i]):
            done += 1
    for body in stretch.before[done:]:
        writer.write(located(body, writer.tree.path()))


def as_asked(recorded: RecordedTurn) -> Asked:
    """Return what the turn was asked, with the skills that the person chose: the others follow from the calls."""
    bodies = recorded.stretches[0].bodies
    chosen = tuple(b for b in bodies if isinstance(b, SkillUse) and b.by == "person")
    return Asked(blocks=recorded.prompt, brought=chosen)


def _player(runner: TurnRunner, recorded: RecordedTurn, stretch: int = 0) -> Player:
    return Player(recorded, stretch, neutral=Neutral(runner.folder, Path.home()).text)


def _from_cassette(recorded: RecordedTurn) -> NamedModel:
    model = recorded.start.model
    return NamedModel(name=model, model=Player(recorded), facts=lookup(model), source="recorded")


def _playback(runner: TurnRunner, player: Player) -> Playback:
    """Return how a cassette is played: all of it runs, but what the person denied, or everything in plan mode."""
    rules = Rules(allow=("*",), deny=runner.rules().deny)
    return Playback(player=player, rules=rules, mode="plan" if runner.settings.mode == "plan" else "auto")


def _limits(recorded: RecordedTurn) -> Limits:
    """Return the limits that shape the requests; where others ended the turn, the recording ends it too."""
    ceiling = recorded.start.limits.get("max_tokens")
    return Limits(max_steps=None, max_tokens=ceiling if isinstance(ceiling, int) else None)


async def reuse_turn(
    runner: TurnRunner, named: NamedModel, prompt: str, cell: CellKey, target: str | None, options: TurnOptions,
    ports: TurnPorts,
) -> FinishedTurn | None:  # fmt: skip
    """Show the recorded answer to `prompt` after the entry `target` again and run its code again; it costs nothing.

    The code runs under the mode and rules of the session; what may not run keeps its recorded result.
    Returns None when no completed turn has this prompt, model and policy after the same conversation.
    """
    tree = runner.writer.tree
    path = tree.path(target) if target is not None else []
    recorded = _reusable(runner, prompt, named.name, runner.policy(options), path)
    if recorded is None:
        return None
    mode = runner.mode(options)
    runner.close_broken()
    runner.writer.move_leaf(target, "reuse")
    start = replace(
        recorded.start, turn=runner.writer.clock.new_id()[:8], cell_id=cell.cell_id, source_hash=cell.source_hash,
        order=cell.order, mode=mode,
    )  # fmt: skip
    playback = Playback(
        player=Player(recorded, runs=RUNS_AGAIN), rules=runner.rules(), mode=mode, asks_consent=False, free=True
    )
    return await runner.run(
        named, ports, start=start, asked=as_asked(recorded),
        snapshot=recorded.stretches[0].snapshot, limits=_limits(recorded), playback=playback,
    )  # fmt: skip


def _reusable(runner: TurnRunner, prompt: str, model: str, policy: str, path: Sequence[Entry]) -> RecordedTurn | None:
    """Return the newest completed turn of any branch with this prompt after the very same conversation.

    The conversation has to be the same to the byte: thinking in the recorded replies is signed over it.
    """
    tree = runner.writer.tree
    before = build_view(path)
    for node in reversed(tree.turns()):
        if not _answers(node, model, policy):
            continue
        whole = tree.path(node.last)
        begins = next(i for i, e in enumerate(whole) if e.id == node.start.id)
        recorded = recorded_turns(whole[begins:])
        if not recorded or len(recorded[0].stretches) != 1 or prompt_text(recorded[0].prompt) != prompt:
            continue
        if any(map(is_move, recorded[0].stretches[0].bodies)):
            continue  # they name entries of that branch
        same_head = before.turn is None or before.turn.prefix == node.body.prefix
        if same_head and build_view(whole[:begins]).messages == before.messages:
            return recorded[0]
    return None


def _answers(node: TurnNode, model: str, policy: str) -> bool:
    completed = node.end is not None and node.end.outcome == "completed"
    return completed and (node.body.model, node.body.policy) == (model, policy)
