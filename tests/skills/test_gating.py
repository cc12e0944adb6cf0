"""Which skills are offered, and the reason for the others."""

from __future__ import annotations

import json

import pytest

from nbagent.core.errors import ToolError
from nbagent.skills.gating import Host, Rules, gate
from nbagent.skills.opening import invoke
from tests.skills.builders import Place, names, parsed, skill


def verdict(
    metadata=None, *, source="workspace", programs=(), environ=None, system="linux", trusted=True, head="", **rules
):
    text = (
        "name: demo\ndescription: x" + (f"\nmetadata: {json.dumps({'openclaw': metadata})}" if metadata else "") + head
    )
    config = rules.pop("config", {})
    remote = {k: frozenset(rules.pop(k, ())) for k in ("remote_systems", "remote_programs")}
    host = Host(system=system, has_program=lambda p: p in programs, environ=environ or {}, config=config.get, **remote)
    return gate(parsed(text).manifest, source, rules=Rules(**rules), host=host, trusted=trusted)


def test_all_bins_and_any_of_any_bins():
    """openclaw 16."""
    assert "needs b on PATH" in verdict({"requires": {"bins": ["a", "b"]}}, programs="a").reason
    assert verdict({"requires": {"bins": ["a", "b"]}}, programs="ab").visible
    assert verdict({"requires": {"anyBins": ["a", "b"]}}, programs="b").visible
    assert "one of a, b" in verdict({"requires": {"anyBins": ["a", "b"]}}).reason


def test_always_goes_before_bins_and_after_the_system():
    """openclaw 17."""
    assert verdict({"always": True, "requires": {"bins": ["a"]}}).visible
    assert "darwin" in verdict({"always": True, "os": ["darwin"]}).reason


def test_a_key_in_the_settings_stands_for_the_primary_variable():
    """openclaw 19."""
    asked = {"requires": {"env": ["KEY"]}, "primaryEnv": "KEY"}
    assert verdict(asked, entries={"demo": {"apiKey": "x"}}).visible
    assert verdict(asked, entries={"demo": {"env": {"KEY": "x"}}}).visible
    assert verdict(asked, environ={"KEY": "x"}).visible
    assert "KEY" in verdict({"requires": {"env": ["KEY"]}}, entries={"demo": {"apiKey": "x"}}).reason


def test_the_list_of_bundled_ones_binds_only_them(tmp_path):
    """openclaw 20."""
    place = Place(tmp_path)
    for name in ("one", "two"):
        skill(place.bundled / name, name)
    skill(place.workspace / "three", "three")
    found = place.load(allow_bundled=("one",))
    assert names(found) == ["one", "three"]
    assert "allow_bundled" in found.named("two").reason
    assert names(place.load()) == ["one", "three", "two"]


def test_hidden_from_the_model_but_for_the_person(tmp_path):
    """openclaw 22."""
    place = Place(tmp_path)
    skill(place.workspace / "demo", "demo", disable_model_invocation="true")
    found = place.load()
    assert found.prompt == ""
    assert found.named("demo").usable
    assert not found.named("demo").visible


def test_the_order_of_the_gates():
    asked = {"os": ["darwin"], "requires": {"bins": ["a"], "anyBins": ["b"], "env": ["C"], "config": ["d.e"]}}
    off = {"demo": {"enabled": False}}
    given = {"source": "bundled", "allow_bundled": ("x",), "entries": off, "trusted": False, "agent_filter": ()}
    reasons = []
    for key, value in (
        ("trusted", True), ("entries", {}), ("allow_bundled", ()), ("system", "darwin"), ("programs", "a"),
        ("programs", "ab"), ("environ", {"C": "1"}), ("config", {"d.e": 1}), ("agent_filter", None),
    ):  # fmt: skip
        reasons.append(verdict(asked, head="\ndisable-model-invocation: true", **given).reason)
        given[key] = value
    last = verdict(asked, head="\ndisable-model-invocation: true", **given)
    words = (
        "trusted",
        "switched off",
        "allow_bundled",
        "darwin",
        "needs a ",
        "one of b",
        "variable C",
        "setting d.e",
        "this agent",
    )
    assert all(word in reason for word, reason in zip(words, reasons, strict=True)), reasons
    assert last.usable
    assert "disable-model-invocation" in last.reason


def test_a_connected_machine_lends_its_system_and_programs():
    asked = {"os": ["darwin"], "requires": {"bins": ["a"]}}
    assert verdict(asked, remote_systems=["darwin"], remote_programs=["a"]).visible


@pytest.mark.parametrize(("agent_filter", "shown"), [(None, ["a", "b"]), ([], []), (["b"], ["b"])])
def test_the_filter_of_an_agent_lets_pass_what_it_names(tmp_path, agent_filter, shown):
    place = Place(tmp_path)
    for name in ("a", "b"):
        skill(place.workspace / name, name)
    assert names(place.load(agent_filter=agent_filter)) == shown


def test_a_program_that_is_installed_later_is_seen(tmp_path):
    place = Place(tmp_path)
    tools = tmp_path / "bin"
    tools.mkdir()
    skill(place.workspace / "demo", "demo", metadata='{"openclaw": {"requires": {"bins": ["tool"]}}}')
    environ = {"PATH": str(tools)}
    first = place.load(environ=environ)
    assert names(first) == []
    (tools / "tool").write_text("#!/bin/sh\n")
    (tools / "tool").chmod(0o755)
    assert names(place.load(first, environ=environ)) == ["demo"]


def test_skills_of_a_project_wait_for_trust(tmp_path):
    """claude 23."""
    place = Place(tmp_path)
    mine = skill(place.managed / "deploy", "deploy")
    skill(place.workspace / "deploy", "deploy", allowed_tools="shell")
    skill(place.workspace / "other", "other", body="!`touch hit`\n")
    found = place.load(trusted=False)
    assert [(s.name, s.path) for s in found.visible] == [("deploy", str(mine))]
    assert "nbagent trust" in found.named("other").reason
    assert not found.named("other").usable
    for by_model in (True, False):
        with pytest.raises(ToolError, match="nbagent trust"):
            invoke(found, "other", by_model=by_model)
    assert names(place.load(trusted=False, trust=("other",))) == ["deploy", "other"]
    assert place.load().named("deploy").source == "workspace"


def test_without_a_description_the_model_is_not_told(tmp_path):
    """openclaw 13."""
    place = Place(tmp_path)
    skill(place.workspace / "bare", None, "", body="Just text.\n")
    skill(place.workspace / "demo", "demo")
    found = place.load()
    assert names(found) == ["demo"]
    assert found.named("bare").usable
    assert found.named("bare").reason
