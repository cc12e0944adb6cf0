"""The tools `skill` (Claude Code's way of using skills) and `find_skills` (for catalogs too long to list)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from nbagent.core.errors import ToolError
from nbagent.core.messages import JsonObject
from nbagent.tools.output import cut_line, visible
from nbagent.tools.skill_types import Skills
from nbagent.tools.tool import ToolContext, ToolOutput, ToolSpec

FIND_LIMIT: Final = 5
FIND_MOST: Final = 20
DESCRIPTION_CHARS: Final = 400

SKILL_SPEC: Final = ToolSpec(
    name="skill",
    description=(
        "Take a skill: its instructions come as the result, arguments put in; follow them. Use a name from the "
        "list of skills or from find_skills. At most one before the work begins. Some skills run by themselves and "
        "return only their answer."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "skill": {"type": "string", "description": "The skill's name"},
            "arguments": {"type": "string", "description": "What to give it, as one line; quote what holds blanks"},
        },
        "required": ["skill"],
    },
    access="read",
    formats_itself=True,
    replayed=False,
)
FIND_SPEC: Final = ToolSpec(
    name="find_skills",
    description=(
        "Find skills for a task among all there are, also those that are not listed. Say in a few words what is to be "
        "done and with what. Returns names, descriptions and how to take one, best first; none may fit."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "task": {"type": "string", "description": "What is to be done, in a few words"},
            "limit": {"type": "integer", "minimum": 1, "maximum": FIND_MOST, "description": "How many, usually 5"},
        },
        "required": ["task"],
    },
    access="read",
    concurrent=True,
)


@dataclass(frozen=True, slots=True)
class SkillTool:
    """Uses a skill."""

    spec: ToolSpec = SKILL_SPEC

    def summary(self, input: JsonObject) -> str:
        """Return name and arguments."""
        return f"{input.get('skill', '')} {input.get('arguments') or ''}".strip()

    def paths(self, input: JsonObject) -> tuple[str, ...]:
        """No path is named; rules match the skill's name: `skill(deploy *)`."""
        return ()

    async def run(self, input: JsonObject, context: ToolContext) -> ToolOutput:
        """Use the skill.

        Raises:
            ToolError: see `Skills.run`; or there is no name.
        """
        name = str(input["skill"]).strip()
        if not name:
            raise ToolError("skill: give the name of a skill")
        run = await _skills(context).run(name, str(input.get("arguments") or ""), call_id=context.call_id)
        meta = {"skill": run.name, "tokens": run.tokens, "forked": run.forked, "allowed_tools": list(run.allowed_tools)}
        if run.forked:
            return ToolOutput(text=run.text, shown=f"what skill {run.name} answered", meta=meta)
        key = f"skill:{run.name}:{hashlib.sha256(run.text.encode('utf-8', 'replace')).hexdigest()[:16]}"
        if key in context.seen:
            text = f"[skill {run.name} is as you took it above, with the same arguments; it is not repeated]"
            return ToolOutput(text=text, shown="unchanged", meta=meta)
        return ToolOutput(text=run.text, shown=f"skill {run.name}", meta={**meta, "key": key})


@dataclass(frozen=True, slots=True)
class FindSkillsTool:
    """Finds skills."""

    spec: ToolSpec = FIND_SPEC

    def summary(self, input: JsonObject) -> str:
        """Return the task."""
        return cut_line(visible(str(input.get("task", ""))), 80)

    def paths(self, input: JsonObject) -> tuple[str, ...]:
        """No path is named."""
        return ()

    async def run(self, input: JsonObject, context: ToolContext) -> ToolOutput:
        """Return what fits, best first.

        Raises:
            ToolError: the task is empty.
        """
        task = str(input["task"]).strip()
        if not task:
            raise ToolError("find_skills: say what is to be done, in a few words")
        hits = _skills(context).find(task, int(input.get("limit") or FIND_LIMIT))
        if not hits:
            return ToolOutput(text="[no skill fits; go on without one]", shown="nothing", meta={"found": []})
        lines = []
        for hit in hits:
            how = f"read(path={hit.location!r})" if hit.location else f"skill(skill={hit.name!r})"
            lines.append(f"- {hit.name}: {cut_line(visible(hit.description), DESCRIPTION_CHARS)}\n  take it with {how}")
        lines.append("Take one only if it clearly fits.")
        return ToolOutput(text="\n".join(lines), shown=f"{len(hits)} skills", meta={"found": [h.name for h in hits]})


def _skills(context: ToolContext) -> Skills:
    if context.skills is None:
        raise ToolError("there are no skills in this conversation; go on without one")
    return context.skills
