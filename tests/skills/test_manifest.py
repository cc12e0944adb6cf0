"""SKILL.md files as they are found in the wild (claude.md G); numbers are those of cases/openclaw.md and cases/claude.md."""

from __future__ import annotations

import json
import tracemalloc
import unicodedata

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from nbagent.skills import yaml_strings
from nbagent.skills.json5 import parse_json5
from nbagent.skills.manifest import parse_manifest
from nbagent.skills.yaml_strings import read_fields
from tests.skills.builders import described, parsed


def of(raw: bytes | str, folder: str = "demo"):
    return parse_manifest(raw if isinstance(raw, bytes) else raw.encode(), path="demo/SKILL.md", folder=folder)


GOOD = "---\nname: demo\ndescription: Does it.\n---\n\n# Demo\n\nBody.\n"


def test_a_byte_order_mark_changes_nothing():
    """claude 1."""
    found = of(b"\xef\xbb\xbf" + GOOD.encode())
    assert found.manifest == of(GOOD).manifest
    assert "\ufeff" not in found.body
    assert found.diagnostics == ()


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_line_ends_change_nothing(end):
    """claude 2."""
    assert of(GOOD.replace("\n", end)) == of(GOOD)
    assert of(GOOD.replace("\n", end, 3)) == of(GOOD)  # mixed


@pytest.mark.parametrize(
    "text", ["---\nname: demo\ndescription: x\n\nBody\n", "---\nname: demo\n...\nBody\n\n---\nmore\n", "---\nname: demo\ndescription: x\n...\nBody\n"]
)
def test_frontmatter_that_is_not_closed_skips_the_skill_and_says_so(text):
    """claude 4; openclaw 14."""
    found = of(text)
    assert found.manifest is None
    assert found.diagnostics[0].line == 1
    assert "closed" in found.diagnostics[0].cause


def test_dashes_inside_a_description_are_text():
    """claude 5."""
    found = described("a --- b")
    assert found.manifest.description == "a --- b"
    assert found.body == "Body."


def test_a_number_sign_is_kept_and_reported():
    """claude 7."""
    found = described("C # code helper")
    assert found.manifest.description == "C # code helper"
    assert "' #'" in found.diagnostics[0].cause


@pytest.mark.parametrize(
    "text", ["`x` does", "@x does", "[beta] x", '"foo" bar', "*bold* x", "%x", "> x", "!x: y", "- x"]
)
def test_a_leading_indicator_is_text_or_is_reported(text):
    """claude 8."""
    found = described(text)
    assert found.diagnostics
    assert found.manifest is None or found.manifest.description == text


def test_a_list_as_description_is_joined_and_reported():
    """claude 10."""
    found = parsed("name: demo\ndescription:\n  - reads\n  - writes")
    assert found.manifest.description == "reads, writes"
    assert "list" in found.diagnostics[0].cause


def test_an_argument_hint_in_brackets_is_text():
    """claude 11."""
    found = parsed("name: demo\ndescription: x\nargument-hint: [topic: foo | bar]")
    assert found.manifest.argument_hint == "[topic: foo | bar]"
    assert found.diagnostics == ()


def test_of_two_fields_with_one_name_the_last_counts_in_both_readers():
    """claude 13."""
    head = "name: one\nname: two\ndescription: x"
    plain, events = parsed(head, folder="two"), parsed(head + "\nother: >\n  folded", folder="two")
    assert plain.manifest.name == events.manifest.name == "two"
    assert all("twice" in p.diagnostics[0].cause and p.diagnostics[0].line == 3 for p in (plain, events))


def test_tags_and_alias_bombs_run_and_cost_nothing():
    """claude 14."""
    bomb = "metadata:\n  a0: &a0 [x, x]\n" + "".join(
        f"  a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 11)
    )
    tracemalloc.start()
    tagged = described("!!python/object/apply:os.getcwd []")
    bombed = parsed("name: demo\ndescription: x\n" + bomb)
    assert tracemalloc.get_traced_memory()[1] < 50e6
    tracemalloc.stop()
    assert tagged.manifest is None
    assert "tag" in tagged.diagnostics[0].cause
    assert bombed.manifest is None
    assert "aliases" in bombed.diagnostics[0].cause


def test_a_name_and_its_folder_may_differ_in_unicode_form():
    """claude 16."""
    nfd, nfc = unicodedata.normalize("NFD", "café"), unicodedata.normalize("NFC", "café")
    found = parsed(f"name: {nfd}\ndescription: x", folder=nfc)
    assert found.diagnostics == ()
    assert "differ" in parsed(f"name: {nfd}\ndescription: x", folder="cafe").diagnostics[0].cause


@pytest.mark.parametrize(
    ("name", "description", "reported"),
    [
        ("a" * 64, "x", False),
        ("a" * 65, "x", True),
        ("a", "d" * 1024, False),
        ("a", "d" * 1025, True),
        ("a", "𝄞" * 1024, False),
        ("a", "𝄞" * 1025, True),
    ],
)
def test_what_is_too_long_is_reported_and_loads(name, description, reported):
    """claude 17."""
    found = parsed(f"name: {name}\ndescription: {description}", folder=name)
    assert found.manifest.name == name
    assert found.manifest.description == description
    assert bool(found.diagnostics) == reported


def test_neither_description_nor_text_is_nothing():
    """claude 19."""
    found = parsed("name: demo", body="\n")
    assert found.manifest is None
    assert "neither" in found.diagnostics[0].cause


def test_an_unquoted_colon_keeps_the_whole_text():
    """openclaw 11."""
    assert described("Use when: foo").manifest.description == "Use when: foo"
    assert described("a: b: [c").manifest.description == "a: b: [c"


def test_the_folder_gives_the_name_and_the_text_a_description_for_the_person():
    """openclaw 13."""
    assert parsed("description: x").manifest.name == "demo"
    found = parsed("name: demo", body="# Head\n\nReads things.\n")
    assert found.manifest.derived
    assert found.manifest.description == "Reads things."
    assert found.diagnostics


SHAPES = {
    "no frontmatter": ("# Title\n\nText.\n", True),
    "four dashes": ("----\nname: x\n----\n", True),
    "comment first": ("<!-- x -->\n---\nname: demo\ndescription: x\n---\nb", True),
    "fence first": ("```yaml\nname: demo\n```\nb", True),
    "blank line first": ("\n---\nname: demo\ndescription: x\n---\nb", True),
    "blanks after the delimiter": ("---  \nname: demo\ndescription: x\n--- \nb", True),
    "empty file": ("", False),
    "empty frontmatter": ("---\n---\nText.", True),
    "comment only": ("---\n# x\n---\nText.", True),
    "list": ("---\n- a\n---\nb", False),
    "text": ("---\njust a text\n---\nb", False),
    "JSON": ('---\n{"name": "demo", "description": "x"}\n---\nb', True),
    "TOML": ("+++\nname = 'x'\n+++\nText.", True),
    "block scalar": ("---\nname: demo\ndescription: |\n  a\n  b\n---\nb", True),
    "folded": ("---\nname: demo\ndescription: >-\n  a\n  b\n---\nb", True),
    "several lines": ("---\nname: demo\ndescription: a\n  b\n---\nb", True),
    "several lines not indented": ("---\nname: demo\ndescription: a\nb c\n---\nb", True),
    "tab after colon": ("---\nname:\tdemo\ndescription:\tx\n---\nb", True),
    "tab indentation": ("---\nname: demo\ndescription: x\nmetadata:\n\ta: b\n---\nb", True),
    "upper-case keys": ("---\nName: demo\nDescription: x\n---\nb", True),
    "upper-case name": ("---\nname: Demo Tool\ndescription: x\n---\nb", True),
    "double hyphen": ("---\nname: a--b\ndescription: x\n---\nb", True),
    "underscore": ("---\nname: a_b\ndescription: x\n---\nb", True),
    "colon in the name": ("---\nname: a:b\ndescription: x\n---\nb", True),
    "XML in description": ("---\nname: demo\ndescription: <b>x</b>\n---\nb", True),
    "number": ("---\nname: 3000\ndescription: 1.0\nversion: 1.10\n---\nb", True),
    "null": ("---\nname: null\ndescription: x\n---\nb", True),
    "date": ("---\nname: demo\ndescription: 2026-01-01\n---\nb", True),
    "U+0080": ("---\nname: demo\ndescription: a\x80b\n---\nb", True),
    "U+2028": ("---\nname: demo\ndescription: a\u2028b\n---\nb", True),
    "NUL": ("---\nname: demo\ndescription: a\0b\n---\nb", False),
    "control": ("---\nname: demo\ndescription: a\x07b\n---\nb", True),
    "mapping as description": ("---\nname: demo\ndescription:\n  a: b\n---\nb", True),
    "deep": ("---\nname: demo\ndescription: x\nm: " + "[" * 500 + "]" * 500 + "\n---\nb", False),
    "unclosed bracket": ("---\nname: demo\ndescription: x\nm: [a\nn: {b\n---\nb", True),
    "second document": ("---\nname: demo\n--- \nb", True),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_loads_or_is_named(shape):
    text, loads = SHAPES[shape]
    found = of(text)
    assert (found.manifest is not None) == loads
    assert loads or found.diagnostics
    assert all(d.path == "demo/SKILL.md" and d.cause and d.remedy for d in found.diagnostics)


@pytest.mark.parametrize(
    ("raw", "line"), [(b"---\nname: caf\xe9\n---\n", 2), ("---\n".encode("utf-16"), None), (b"a\nb\0", 2)]
)
def test_bytes_that_are_no_text_are_named_with_their_line(raw, line):
    found = of(raw)
    assert found.manifest is None
    assert found.diagnostics[0].line == line


def test_scalars_stay_text():
    values = read_fields("a: yes\nb: 0x10\nc: 2026-01-01\nd: null\ne: 1.10\nf: ~\ng: [1, true]").values
    assert values == {
        "a": "yes",
        "b": "0x10",
        "c": "2026-01-01",
        "d": "null",
        "e": "1.10",
        "f": "~",
        "g": ["1", "true"],
    }


def test_a_name_that_holds_a_path_is_not_used():
    for name in ("../../etc/passwd", "a/b", "..", "a\\b"):
        found = parsed(f"name: '{name}'\ndescription: x")
        assert found.manifest.name == "demo"
        assert "path" in found.diagnostics[0].cause


@pytest.mark.parametrize(
    "metadata",
    [
        '{"openclaw": {"os": ["darwin"], "requires": {"bins": ["a", "b"]}}}',
        "{openclaw: {os: 'darwin', requires: {bins: 'a, b',}}, // why\n}",
        "\"{'clawdbot': {os: ['darwin'], requires: {bins: ['a', 'b']}}}\"",
        "\n  moltbot:\n    os: darwin\n    requires:\n      bins: [a, b]",
    ],
)
def test_openclaw_metadata_is_json5_or_a_mapping_under_its_three_names(metadata):
    found = parsed(f"name: demo\ndescription: x\nmetadata: {metadata}")
    assert found.manifest.requires.bins == ("a", "b")
    assert found.manifest.requires.systems == ("darwin",)
    assert found.diagnostics == ()


def test_metadata_that_cannot_be_read_counts_as_absent():
    found = parsed("name: demo\ndescription: x\nmetadata: '{broken'")
    assert found.manifest.requires.bins == ()
    assert "metadata" in found.diagnostics[0].cause


def test_allowed_tools_come_as_text_with_blanks_or_commas_or_as_lists():
    for value in (
        "Read Bash(git add *)",
        "Read, Bash(git add *)",
        "[Read, Bash(git add *)]",
        "\n  - Read\n  - Bash(git add *)",
    ):
        assert parsed(f"name: demo\ndescription: x\nallowed-tools: {value}").manifest.allowed_tools == (
            "Read",
            "Bash(git add *)",
        )


def test_flags_take_the_words_that_people_write():
    for word, hidden in {
        "true": True,
        "yes": True,
        "on": True,
        "1": True,
        "no": False,
        "off": False,
        "maybe": False,
    }.items():
        found = parsed(f"name: demo\ndescription: x\ndisable-model-invocation: {word}")
        assert found.manifest.model_invocable != hidden
        assert bool(found.diagnostics) == (word == "maybe")


@given(st.binary(max_size=300))
def test_no_bytes_raise(raw):
    found = of(raw)
    assert found.manifest is not None or found.diagnostics


@given(st.text(alphabet=st.sampled_from(list("ab:#-'\"[]{}|>&*!%@`,\n\t \\?~0.é")), max_size=80))
def test_no_frontmatter_raises_and_nothing_is_lost_in_silence(head):
    found = of(f"---\nname: demo\ndescription: x\n{head}\n---\nBody")
    assert found.manifest is not None or found.diagnostics


_WORD = st.text(alphabet=st.sampled_from(list("abz09-_.,/()#:é '\"")), min_size=1, max_size=20)


@given(st.lists(st.tuples(st.sampled_from(["name", "description", "license", "x-y"]), _WORD), min_size=1, max_size=4))
def test_the_quick_reader_agrees_with_yaml(pairs):
    block = "\n".join(f"{k}: {v}" for k, v in pairs)
    quick = yaml_strings._read_plain(block)  # private: it must never differ from the parser it spares
    if quick is not None:
        assert quick.values == yaml.load(block, Loader=yaml.BaseLoader)


_TEXT = st.text(st.characters(categories=("L", "N", "P", "S", "Zs")), max_size=5)


@given(st.recursive(_TEXT, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3)))
def test_json5_reads_all_json_of_texts(value):
    assert parse_json5(json.dumps({"a": value}, ensure_ascii=False)) == {"a": value}
