"""What `%context compare` asks a session: every policy on its own conversation, without a model call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from nbagent.context.compare import Row, compare
from nbagent.core.errors import UsageProblem
from nbagent.core.view import build_view
from nbagent.runtime.compacting import measured_for
from nbagent.runtime.contexts import known_policies
from nbagent.runtime.session import Session

__all__ = ["Comparison", "Row", "compare_session"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The rows, and what they are about. `in_force` is the policy of the session."""

    model: str
    window_tokens: int
    turns: int
    in_force: str
    rows: tuple[Row, ...]


def compare_session(session: Session, names: Sequence[str] = ()) -> Comparison:
    """Compare the policies `names` (NAME or NAME@seed; all when empty) on the current path; the one in force too.

    Each has the numbers that the person set, as far as it has them. Nothing is written. The model and the policy
    of an imported conversation need not be known here.

    Raises:
        UsageProblem: there is no conversation yet.
        PolicyError: no such policy or preset.
    """
    runner, path = session.runner, session.tree.path()
    start = build_view(path).turn
    if start is None:
        raise UsageProblem("there is no conversation to compare policies on; run a %%agent cell first")
    in_force = session.settings.policy
    chosen = tuple(dict.fromkeys(names)) or tuple(dict.fromkeys([*known_policies(), in_force]))
    policies = {name: runner.policy_of(name) for name in chosen}
    named = measured_for(session, start)
    engine = runner.engine(named, replace(start, policy=in_force))
    rows = compare(path, policies, engine, prices=named.facts.prices)
    return Comparison(
        model=named.name, window_tokens=runner.budget(named.facts).window_tokens,
        turns=len(session.tree.turns_on_path()), in_force=in_force, rows=rows,
    )  # fmt: skip
