"""Scrubbing secrets (DECISIONS 6)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbagent.core.entries import Entry, UserMessage
from nbagent.store.secrets import _HINT, Scrubber, has_hint, scrub, secret_values
from tests.store.bodies import EVERY_KIND, chain, json_value

A36 = "a1B2c3D4e5F6" * 3
KEYS = {
    "anthropic-key": "sk-ant-api03-" + A36,
    "api-key": "sk-proj-" + A36,
    "aws-key": "AKIA" + "ABCDEFGH12345678",
    "github-token": "ghp_" + A36,
    "slack-token": "xoxb-1234567890-abcdef",
    "google-key": "AIza" + "a1B2_" * 7,
    "huggingface-token": "hf_" + A36,
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
    "private-key": "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc\n-----END RSA PRIVATE KEY-----",
}


@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_known_shape_are_replaced_wherever_they_stand(kind: str) -> None:
    for frame in ("{}", "key={} # x", "'{}',", 'x\n"{}"\n', "({})"):
        assert scrub(frame.format(KEYS[kind])) == frame.format(f"[secret:{kind}]")


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("password=hunter2hunter", "password=[secret:password]"),
        ('"password": "hunter2!x"', '"password": [secret:password]"'.replace(": [", ": [")),
        ("DB_PASSWORD=Zx81-Zx81-qq", "DB_PASSWORD=[secret:password]"),
        ("Authorization: Bearer abcdef0123456789abcdef", "Authorization: Bearer [secret:bearer]"),
        ("postgres://me:s3cret@db/x", "postgres://me:[secret:password]@db/x"),
        ("openrouter sk-or-v1-" + "0a1b2c3d" * 8, "openrouter [secret:api-key]"),
    ],
)
def test_values_after_a_label_are_replaced(text: str, clean: str) -> None:
    scrubbed = scrub(text)
    assert "[secret:" in scrubbed
    assert scrubbed.replace('"', "") == clean.replace('"', "")


@pytest.mark.parametrize(
    "text",
    [
        "token = tokens[12345678]", "password = getpass('x1')", "token = os.environ['HF_TOKEN1']", "max_tokens=160000000",
        "div.sk-toggleable__content-arrow1", "#sk-container-id-12 div.sk-estimator-doc-link", "token: transformer_layer1",
        "the secret: nobody knows", "api_key=None", "password: ********", "def f(token: str = 'x'): ...", "sk-learn",
        "https://example.org:8080/a@b", "see http://user@host/", "task-management-2024-AND-more-words", "xoxo", "hf_hub_download",
        "password='[secret:password]'", "bearer of bad news",
    ],
)  # fmt: skip
def test_ordinary_text_stays(text: str) -> None:
    assert scrub(text) is text


@given(text=st.text(), secrets=st.lists(st.text(min_size=8), max_size=2))
def test_text_without_hits_is_the_same_object(text: str, secrets: list[str]) -> None:
    if not any(s in text for s in secrets):
        assert scrub(text, secrets) is text


parts = st.lists(
    st.sampled_from(
        [
            *KEYS.values(),
            "password=",
            "token: ",
            "'",
            '"',
            "x1y2z3w4q",
            "[secret:env]",
            "[secret:",
            "://a:",
            "@",
            "-",
            "\n",
        ]
    )
    | st.text(max_size=3)
)


@given(
    parts=parts, secrets=st.lists(st.sampled_from(["x1y2z3w4q", "[secret:env]", "password=", "secret:p"]), max_size=3)
)
def test_scrubbing_twice_changes_nothing_more(parts: list[str], secrets: list[str]) -> None:
    once = scrub("".join(parts), secrets)
    assert scrub(once, secrets) == once


@given(value=json_value)
def test_a_value_without_hits_is_the_same_object(value: object) -> None:
    assert Scrubber(["x1y2z3w4q"]).value(value) is value


def test_entries_of_every_kind_without_hits_are_the_same_object() -> None:
    scrubber = Scrubber(["x1y2z3w4q"])
    for entry in chain(*EVERY_KIND):
        assert scrubber.entry(entry) is entry


def test_signatures_data_and_ids_stay_and_changed_thinking_loses_its_signature() -> None:
    key = KEYS["anthropic-key"]
    blocks = (
        {"type": "thinking", "thinking": "fine", "signature": key},
        {"type": "thinking", "thinking": key, "signature": "sig"},
        {"type": "redacted_thinking", "data": key},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": key}},
        {"type": "tool_use", "id": key, "name": "python", "input": {"code": f"x = '{key}'", "data": key}},
    )
    clean = Scrubber().entry(Entry("a", None, 1.0, UserMessage(blocks=blocks))).body.blocks  # type: ignore[union-attr]
    hit = "[secret:anthropic-key]"
    assert clean[0] is blocks[0]
    assert clean[1] == {"type": "thinking", "thinking": hit, "signature": ""}
    assert clean[2] is blocks[2]
    assert clean[3] is blocks[3]
    assert clean[4] == {"type": "tool_use", "id": key, "name": "python", "input": {"code": f"x = '{hit}'", "data": hit}}


def test_a_text_that_came_out_of_the_scrubber_is_not_gone_through_again(monkeypatch: pytest.MonkeyPatch) -> None:
    scrubber = Scrubber(["x1y2z3w4q"])
    clean = scrubber.text("a row of numbers\n" * 100 + "x1y2z3w4q")
    assert clean.endswith("[secret:env]")
    start = scrubber.beginning(clean, 1_000)
    assert (len(start), clean.startswith(start)) == (1_000, True)
    looked_at: list[str] = []
    monkeypatch.setattr("nbagent.store.secrets.scrub", lambda text, secrets: looked_at.append(text) or text)
    assert scrubber.value({"text": clean}) == {"text": clean}
    assert scrubber.text(start) is start
    assert scrubber.beginning(clean, 10_000) is clean
    assert looked_at == []
    equal = "".join(clean)[:-1] + "]"
    scrubber.text(equal)
    assert looked_at[-1] is equal  # equal is not enough


def test_the_beginning_of_a_text_from_elsewhere_is_scrubbed() -> None:
    text = f"{KEYS['anthropic-key']} and more " * 40
    assert KEYS["anthropic-key"] not in Scrubber().beginning(text, 500)


def test_secret_looking_variables_give_their_values_longest_first() -> None:
    environ = {
        "MY_API_KEY": "abc123abc123", "GHTOKEN": "tok-45678", "DB_PASSWORD": "short", "KEYBOARD": "qwertz1234",
        "SSL_KEY_FILE": "/etc/key1", "AWS_SECRET_ACCESS_KEY": "/not/a/path/1", "SECRET_MODE": "disabled",
    }  # fmt: skip
    assert secret_values(environ) == ("abc123abc123", "tok-45678")
    assert scrub("x abc123abc123", secret_values(environ)) == "x [secret:env]"


@pytest.mark.parametrize(
    "text",
    [
        "a" * 200_000,
        "a1-_" * 50_000,
        "token=" * 30_000,
        "-sk-" * 50_000,
        "://a:" * 40_000,
        "eyJ" * 60_000,
        "bearer " * 30_000,
    ],
)
def test_long_lines_of_one_kind_are_done_with(text: str) -> None:
    once = scrub(text)
    assert scrub(once) == once


@given(st.text("aAIiKkſıspwdSEkretTONbg_hfuox/: -3" + "yJ", max_size=40), st.sampled_from(["", *KEYS.values()]))
def test_the_quick_look_for_hints_agrees_with_the_pattern_it_stands_for(text: str, key: str) -> None:
    for whole in (text, key[: len(text)] + text, text + key, text.encode("ascii", "ignore").decode() + key.upper()):
        assert has_hint(whole) == (_HINT.search(whole) is not None)  # private: the public result is the same for both


@pytest.mark.parametrize("word", ["passphrase", "ACCESS-key", "api_Key", "apikey", "Bearer", "github_pat_", "ghr_"])
def test_each_hint_is_seen(word: str) -> None:
    assert has_hint(f"x{word}x")
    assert _HINT.search(f"x{word}x") is not None
