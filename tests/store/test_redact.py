"""Redacting (DECISIONS 6)."""

from __future__ import annotations

from pathlib import Path

import pytest

from nbagent.core.entries import AssistantMessage, ToolResult, UserMessage
from nbagent.core.errors import JournalDamaged, JournalLocked, UsageProblem
from nbagent.store.artifacts import Artifacts
from nbagent.store.journal import Journal
from nbagent.store.journal_reading import read_journal
from nbagent.store.redact import redact
from nbagent.store.verify import verify
from tests.store.bodies import EVERY_KIND, chain, said

SECRET = 'häm"mer\\42'


def write(path: Path, *bodies) -> Path:
    with Journal.open(path) as journal:
        for entry in chain(*bodies):
            journal.append(entry)
    return path


def test_the_text_is_gone_everywhere_and_the_chain_holds(tmp_path: Path) -> None:
    store = Artifacts(tmp_path / "artifacts")
    digest = store.put_text(f"full {SECRET} text")
    path = write(
        tmp_path / "journal.jsonl",
        UserMessage(blocks=({"type": "text", "text": f"it is {SECRET}"},)),
        AssistantMessage(
            blocks=(
                {"type": "thinking", "thinking": f"so {SECRET}", "signature": "sig"},
                {"type": "thinking", "thinking": "other", "signature": "sig"},
            ),
            stop_reason=None, model="m", step=1,
        ),
        ToolResult(
            call_id="a", name="python", artifact=digest,
            content=({"type": "text", "text": f"see artifacts/{digest}.txt"},),
        ),
    )  # fmt: skip
    path.with_name("journal.torn-1").write_text(f'{{"torn": "{SECRET}')
    done = redact(path, SECRET)
    assert (done.entries, done.artifacts, done.other_files) == (3, 1, 1)
    for file in tmp_path.rglob("*"):
        if file.is_file():
            assert b"mer" not in file.read_bytes(), file
    thinking = read_journal(path).entries[1].body.blocks
    assert [b["signature"] for b in thinking] == ["", "sig"], "changed thinking would be refused by the provider"
    result = read_journal(path).entries[2].body
    assert store.get_text(result.artifact) == "full [redacted] text"
    assert result.artifact in result.content[0]["text"]
    assert verify(path) == []
    assert redact(path, SECRET).entries == 0


def test_what_is_not_touched_keeps_its_bytes_also_what_a_later_version_wrote(tmp_path: Path) -> None:
    path = write(tmp_path / "journal.jsonl", *EVERY_KIND[1:])
    odd = b'{"v":2,"seq":99,"id":"z","parent":null,"at":1e3,"mood":{"b":1.50,"a":"\\u00e9"},"body":{"kind":"dream","x":1E2}}\n'
    path.write_bytes(path.read_bytes() + odd)
    before = path.read_bytes()
    redact(path, "größe")
    after = path.read_bytes().splitlines()
    assert [line[:-74] for line in after[1:-1]] == [line[:-74] for line in before.splitlines()[1:-1]]
    assert after[-1].startswith(odd.rstrip()[:-1] + b',"hash":"')


def test_only_chosen_entries_are_changed(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal.open(path) as journal:
        for entry in said("banana", "banana"):
            journal.append(entry)
    assert redact(path, "banana", only=lambda e: e.id == "e2", tombstone="fruit").entries == 1
    assert [e.body.blocks[0]["text"] for e in read_journal(path).entries] == ["banana", "fruit"]
    assert verify(path) == []


def test_refusals_say_what_to_do(tmp_path: Path) -> None:
    path = write(tmp_path / "journal.jsonl", *EVERY_KIND)
    with pytest.raises(UsageProblem, match="too short"):
        redact(path, " a ")
    with pytest.raises(UsageProblem, match="tombstone"):
        redact(path, "redacted")
    with pytest.raises(JournalDamaged, match="no journal"):
        redact(tmp_path / "no.jsonl", "word")
    with Journal.open(path), pytest.raises(JournalLocked):
        redact(path, "word")


def test_artifacts_are_kept_once_private_and_checked(tmp_path: Path) -> None:
    store = Artifacts(tmp_path / ".nbagent" / "artifacts", tmp_path)
    digest = store.put_text("größe\r\n\ud800")
    assert store.put_text("größe\r\n\ud800") == digest
    assert store.get_text(digest) == "größe\r\n\ud800"
    assert store.shown_path(digest) == f".nbagent/artifacts/{digest}.txt"
    image = store.put_bytes(b"\x89PNG\xff")
    assert store.get_bytes(image) == b"\x89PNG\xff"
    with pytest.raises(JournalDamaged, match="is not text"):
        store.get_text(image)
    assert store.path(digest).stat().st_mode & 0o777 == 0o600
    assert len(list(store.folder.iterdir())) == 2
    store.path(digest).write_text("tampered")
    with pytest.raises(JournalDamaged, match=f"expected {digest}"):
        store.get_text(digest)
    assert store.put_text("größe\r\n\ud800") == digest, "a damaged file is written anew"
    assert store.get_text(digest) == "größe\r\n\ud800"
    store.path(digest).unlink()
    with pytest.raises(JournalDamaged, match=f"artifact {digest} is missing"):
        store.get_text(digest)
    with pytest.raises(JournalDamaged, match="not the hash"):
        store.get_text("../../etc/passwd")
