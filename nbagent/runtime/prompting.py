"""What a turn is asked: the prompt, what `@name` attaches, and the skill that the person chose for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nbagent.core.entries import Body, TurnStart
from nbagent.core.errors import ToolError, TurnFailed, UsageProblem
from nbagent.core.messages import text_block
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
        UsageProblem: there is no skill of that name, or it cannot be used; or the prompt alone fills the window.
        TurnFailed: the skill ran in a context of its own and did not come to an end.
    """
    kernel, sees_images = ports.kernel, named.facts.sees_images
    tell = runner.notices.append if not preview else lambda line: None
    if not preview:
        _check_size(runner, prompt, named)
    blocks = await attach(prompt, kernel=kernel, root=runner.folder, sees_images=sees_images, tell=tell)
    if options.skill is None:
        return Asked(blocks=blocks)
    try:
        text, brought = await _skill(runner, prompt, options, named, ports, start, preview=preview)
    except ToolError as error:
        raise UsageProblem(str(error)) from None
    return Asked(blocks=(*blocks, text_block(text)), brought=brought)


def _check_size(runner: TurnRunner, prompt: str, named: NamedModel) -> None:
    """Refuse a prompt that no compaction makes room for, before it stands in the conversation."""
    window = runner.budget(named.facts).window_tokens
    if 4 * len(prompt) > window and (size := runner.gauge.meter(named.facts.family).text(prompt)) > window:
        raise UsageProblem(
            f"the text of this cell takes about {size:,} tokens and the window holds {window:,}, so nothing was sent; "
            "keep it in a file and name that with @FILE, so that the agent reads it in parts"
        )


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
