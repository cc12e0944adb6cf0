"""Turns that call no model: from a cassette, or the recorded answer of the same cell again."""

from __future__ import annotations

from dataclasses import replace

from nbagent.core.tree import TurnNode
from nbagent.models.cassette import Cassette, Player, last_key, prompt_text, recorded_turns
from nbagent.models.catalog import lookup
from nbagent.models.registry import NamedModel
from nbagent.runtime.matching import CellKey
from nbagent.runtime.ports import FinishedTurn, TurnOptions, TurnPorts
from nbagent.runtime.turns import TurnRunner


async def replay_turn(
    runner: TurnRunner, cassette: Cassette, prompt: str, cell: CellKey, target: str | None, ports: TurnPorts
) -> FinishedTurn:
    """Play the turn that was recorded for `prompt` after the entry `target`.

    The recorded code runs, since later cells need its variables; the request gets the recorded results.

    Raises:
        CassetteMiss: the cassette does not hold it; nothing has changed.
    """
    tree = runner.writer.tree
    recorded = cassette.find(last_key(tree.path(target) if target is not None else []), prompt)
    runner.writer.move_leaf(target, "fork")
    prefix = cassette.prefixes.get(recorded.start.prefix) or runner.new_prefix()
    start = replace(
        recorded.start, cell_id=cell.cell_id, source_hash=cell.source_hash, order=cell.order,
        prefix=runner.store_prefix(prefix),
    )  # fmt: skip
    player = Player(recorded)
    named = NamedModel(name=start.model, model=player, facts=lookup(start.model), source="recorded")
    return await runner.run(
        named, ports, start=start, prompt=recorded.prompt, snapshot=recorded.snapshot,
        limits=runner.limits(TurnOptions()), player=player,
    )  # fmt: skip


async def reuse_turn(
    runner: TurnRunner, named: NamedModel, prompt: str, cell: CellKey, earlier: TurnNode, target: str | None,
    options: TurnOptions, ports: TurnPorts,
) -> FinishedTurn | None:  # fmt: skip
    """Show the recorded answer of the turn `earlier` again and run its code again; it costs nothing.

    Returns None when prompt, model or policy differ, or it did not complete: then the turn has to be run.
    """
    found = [r for r in recorded_turns(runner.writer.tree.path(earlier.last)) if r.start.turn == earlier.turn]
    if not found or earlier.end is None or earlier.end.outcome != "completed":
        return None
    recorded = found[-1]
    if (prompt_text(recorded.prompt), recorded.start.model) != (prompt, named.name):
        return None
    if recorded.start.policy != runner.policy(options):
        return None
    runner.writer.move_leaf(target, "reuse")
    start = replace(
        recorded.start, turn=runner.writer.clock.new_id()[:8], cell_id=cell.cell_id, source_hash=cell.source_hash,
        order=cell.order, mode=options.mode or runner.settings.mode,
    )  # fmt: skip
    player = Player(recorded)
    return await runner.run(
        replace(named, model=player), ports, start=start, prompt=recorded.prompt, snapshot=recorded.snapshot,
        limits=runner.limits(options), player=player, free=True,
    )  # fmt: skip
