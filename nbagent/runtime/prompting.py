"""What a turn is asked: the prompt, what `@name` attaches, and the skill that the person chose for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nbagent.context.oversize import asked_in, too_large_line
from nbagent.core.entries import Body, TurnStart
from nbagent.core.errors import ToolError, TurnFailed, UsageProblem
from nbagent.core.messages import Block, text_block
from nbagent.models.registry import NamedModel
from nbagent.runtime.attach import attach
from nbagent.runtime.ports import Asked, TurnOptions, TurnPorts
from nbagent.runtime.turn_tools import turn_skills

if TYPE_CHECKING:
    from nbagent.runtime.turns import TurnRunner

RESULT = '<skill_result name="{name}">\n{text}\n</skill_result>'


async def asked(
    runner: TurnRunner, prompt: str, options: TurnOptions, named: NamedModel, ports: TurnPorts, start: TurnStart, *,
    preview: bool = False,
) -> Asked:  # fmt: skip
    """Return what the turn that `start` begins is asked. A `preview` runs nothing and writes nothing.

    Raises:
        UsageProblem: there is no skill of that name, or it cannot be used; or what is asked is alone too large for
            the window.
        TurnFailed: the skill ran in a context of its own and did not come to an end.
    """
    kernel, sees_images = ports.kernel, named.facts.sees_images
    tell = runner.notices.append if not preview else lambda line: None
    blocks = await attach(prompt, kernel=kernel, root=runner.folder, sees_images=sees_images, tell=tell)
    _check_size(runner, named, start, blocks)
    if options.skill is None:
        return Asked(blocks=blocks)
    try:
        text, brought = await _skill(runner, prompt, options, named, ports, start, preview=preview)
    except ToolError as error:
        raise UsageProblem(str(error)) from None
    given = (*blocks, text_block(text))
    _check_size(runner, named, start, given)
    return Asked(blocks=given, brought=brought)


def _check_size(runner: TurnRunner, named: NamedModel, start: TurnStart, blocks: Sequence[Block]) -> None:
    """Refuse what no compaction could make room for, before anything of it is written."""
    facts = named.facts
    meter, gauge = runner.gauge.meter(facts.family), runner.gauge
    fixed = gauge.calibrated(facts, sum(meter.prefix(runner.prefix_of(start.prefix)).values()))
    line = too_large_line(
        asked_in(blocks, lambda block: gauge.calibrated(facts, meter.block(block))), fixed_tokens=fixed,
        window_tokens=runner.budget(facts).window_tokens, model_window=facts.window_tokens,
    )  # fmt: skip
    if line:
        raise UsageProblem(f"nothing was sent: {line}")


async def _skill(
    runner: TurnRunner, prompt: str, options: TurnOptions, named: NamedModel, ports: TurnPorts, start: TurnStart, *,
    preview: bool,
) -> tuple[str, tuple[Body, ...]]:  # fmt: skip
    name = str(options.skill)
    arguments = _arguments(runner, name, prompt if options.skill_arguments is None else options.skill_arguments)
    if preview:
        from nbagent.skills.opening import invoke

        invocation = invoke(runner.skills.catalog, name, arguments, by_model=False)
        return invocation.text(), ()
    skills = turn_skills(runner, named, ports, start, runner.approvals(ports, start))
    taken = await skills.take(name, arguments, by_model=False, why=prompt[:500])
    if taken.failed:
        raise TurnFailed(f"skill {taken.name!r} did not come to its end: {taken.failed}")
    return RESULT.format(name=taken.name, text=taken.text) if taken.forked else taken.text, taken.bodies


def _arguments(runner: TurnRunner, name: str, text: str) -> str:
    """Return `text` where the skill has a place for arguments; else nothing, since it stands in the prompt anyway."""
    from nbagent.skills.opening import invoke

    invocation = invoke(runner.skills.catalog, name, text, by_model=False)
    added = f"\n\nARGUMENTS: {text.strip()}"
    fits = invocation.fork or not invocation.rendered.text().endswith(added)
    return text if fits else ""
