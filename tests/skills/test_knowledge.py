"""The tools `skill` and `find_skills`, and what `%skills` shows."""

from __future__ import annotations

import asyncio

import pytest

from nbagent.core.errors import ToolError
from nbagent.notebook.reports.skills import (
    LintReport,
    SkillLogReport,
    SkillPromptReport,
    SkillReport,
    SkillsReport,
    WhyReport,
)
from nbagent.skills.lint import lint
from nbagent.skills.uses import LogRow
from nbagent.tools.knowledge import FindSkillsTool, SkillTool
from nbagent.tools.registry import validate_input
from nbagent.tools.skill_types import SkillHit, SkillRun
from nbagent.tools.tool import ToolContext
from tests.skills.builders import Place, skill


class Fake:
    def __init__(self, hits=(), run=None):
        self.hits, self.answer, self.asked = hits, run, []

    def find(self, query, limit):
        self.asked.append((query, limit))
        return self.hits[:limit]

    async def run(self, name, arguments, *, call_id):
        self.asked.append((name, arguments, call_id))
        if self.answer is None:
            raise ToolError("there is no skill")
        return self.answer


def call(tool, skills, tmp_path, seen=(), **given):
    context = ToolContext(
        call_id="c1", root=tmp_path, cwd=tmp_path, cap_chars=9_000, window_tokens=100_000, keep=lambda t: None,
        skills=skills, seen={key: {} for key in seen},
    )  # fmt: skip
    return asyncio.run(tool.run(validate_input(tool.spec, given), context))


def test_a_skill_comes_as_the_result(tmp_path):
    skills = Fake(run=SkillRun(name="demo", text="Do it.", tokens=3, allowed_tools=("shell",)))
    out = call(SkillTool(), skills, tmp_path, skill=" demo ", arguments="a b")
    assert (out.text, out.meta["allowed_tools"]) == ("Do it.", ["shell"])
    assert skills.asked == [("demo", "a b", "c1")]
    assert SkillTool().summary({"skill": "demo", "arguments": None}) == "demo"


def test_the_same_skill_again_is_a_note(tmp_path):
    skills = Fake(run=SkillRun(name="demo", text="Do it.", tokens=3))
    first = call(SkillTool(), skills, tmp_path, skill="demo")
    out = call(SkillTool(), skills, tmp_path, seen=[first.meta["key"]], skill="demo")
    assert "not repeated" in out.text
    assert "Do it." not in out.text


def test_errors_reach_the_model(tmp_path):
    with pytest.raises(ToolError, match="no skill"):
        call(SkillTool(), Fake(), tmp_path, skill="x")
    with pytest.raises(ToolError, match="name of a skill"):
        call(SkillTool(), Fake(), tmp_path, skill=" ")
    with pytest.raises(ToolError, match="few words"):
        call(FindSkillsTool(), Fake(), tmp_path, task=" ")
    with pytest.raises(ToolError, match="no skills in this conversation"):
        call(FindSkillsTool(), None, tmp_path, task="x")


def test_what_is_found_says_how_to_take_it(tmp_path):
    hits = (
        SkillHit(name="a", description="A\x07.", location="skills/a/SKILL.md"),
        SkillHit(name="b", description="B.", location=""),
    )
    out = call(FindSkillsTool(), Fake(hits), tmp_path, task="do a")
    assert "read(path='skills/a/SKILL.md')" in out.text
    assert "skill(skill='b')" in out.text
    assert "\x07" not in out.text
    assert out.meta["found"] == ["a", "b"]
    assert "no skill fits" in call(FindSkillsTool(), Fake(), tmp_path, task="do a").text


@pytest.fixture
def catalog(tmp_path):
    place = Place(tmp_path)
    skill(place.workspace / "demo", "demo", "Does <it>. Use when asked.")
    skill(place.workspace / "mac", "mac", metadata='{"openclaw": {"os": ["darwin"]}}')
    (place.workspace / "bad").mkdir()
    (place.workspace / "bad" / "SKILL.md").write_text("---\nname: bad\n")
    return place.load(system="linux")


def test_the_catalog_is_a_sequence_with_reasons_faults_and_prompt(catalog):
    text = catalog.prompt_text
    report = SkillsReport(
        skills=tuple(catalog),
        diagnostics=catalog.diagnostics,
        prompt=catalog.prompt,
        prompt_tokens=catalog.prompt_tokens,
        tier=text.tier,
    )
    assert [s.name for s in report] == ["demo", "mac"]
    assert len(report[0:1]) == 1
    shown = repr(report)
    assert "1 of 2 skills visible" in shown
    assert "it is for darwin, this is linux" in shown
    assert "never closed" in shown
    assert "Does &lt;it&gt;" in report._repr_html_()
    assert set(report._repr_mimebundle_()) == {"text/plain", "text/markdown", "text/html"}
    assert "no skills" in repr(SkillsReport(skills=()))


def test_the_other_reports(catalog):
    demo, mac = catalog
    assert "demo is visible" in repr(WhyReport(name="demo", skill=demo))
    assert "mac is hidden from the model: it is for darwin" in repr(WhyReport(name="mac", skill=mac))
    assert "no skill is called 'x'; there is demo" in repr(WhyReport(name="x", skill=None, near=("demo",)))
    assert "Do it well." in repr(SkillReport(skill=demo, text="Do it well."))
    assert "never closed" in repr(LintReport(diagnostics=lint(catalog), checked=2))
    assert "<available_skills>" in repr(SkillPromptReport(text=catalog.prompt, tokens=9, tier="full"))
    row = LogRow(
        name="demo", by="model", why="please", at=0.0, tokens=5, tools=("read",), outcome="completed", duration_s=0.25
    )
    assert "model" in repr(SkillLogReport(uses=(row,)))
    assert repr(SkillLogReport(uses=())) == "no skill was used yet"
