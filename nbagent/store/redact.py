"""Redacting: a text is replaced by a tombstone in a journal, its artifacts and what lies beside them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbagent.core.entries import Entry, chain_hash, seal_line, split_line
from nbagent.core.errors import JournalDamaged, UsageProblem
from nbagent.core.messages import canonical
from nbagent.store.artifacts import Artifacts
from nbagent.store.files import sync_folder, unwritable, write_atomic
from nbagent.store.journal_reading import check_regular, clean_line, entry_of
from nbagent.store.lock import WriterLock

TOMBSTONE = "[redacted]"
SHORTEST_TEXT = 3  # characters; shorter ones would hit half the file

# What holds the journal together, and the words of the wire format, stay as they are.
_FIXED_KEYS = frozenset({"kind", "type", "id", "call_id", "tool_use_id", "turn", "role", "status", "media_type"})
_OPAQUE_KEYS = {"thinking": ("signature",), "redacted_thinking": ("data",), "base64": ("data",)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Redaction:
    """What was changed: how many entries, artifacts, and other files beside the journal."""

    entries: int
    artifacts: int
    other_files: int


def redact(
    path: Path | str, text: str, *, only: Callable[[Entry], bool] | None = None, tombstone: str = TOMBSTONE
) -> Redaction:
    """Replace `text` by `tombstone` in every string of the journal at `path`, and chain the hashes anew.

    `only` chooses the entries (all without it); with it, artifacts and files beside the
    journal are left alone unless a chosen entry names them. Lines that hold nothing of it
    keep their bytes, but for the hash. Thinking in which it stood loses its signature, since
    the provider would refuse it. Artifacts get new names, which their entries follow. The
    journal must not be open; it is replaced in one step, and doing it again is harmless.

    Raises:
        UsageProblem: `text` is too short, or stands in the tombstone itself.
        JournalLocked: the journal is open.
        JournalUnwritable: a file cannot be written.
        JournalDamaged: there is no journal at `path`.
    """
    if len(text.strip()) < SHORTEST_TEXT:
        raise UsageProblem(f"the text to redact {text!r} is too short; give at least {SHORTEST_TEXT} characters")
    if text in tombstone:
        raise UsageProblem(f"the text to redact stands in its tombstone {tombstone!r}; choose another tombstone")
    where = Path(path)
    check_regular(where)
    if not where.exists():
        raise JournalDamaged(f"there is no journal at {where}; give the path of a journal.jsonl")
    lock = WriterLock(where)
    try:
        return _Redactor(where, text, tombstone, only).run()
    except OSError as error:
        raise unwritable(where, error) from error
    finally:
        lock.release()


class _Redactor:
    """One redaction under way. `_names` maps the digest of a changed artifact to its new one."""

    def __init__(self, path: Path, text: str, tombstone: str, only: Callable[[Entry], bool] | None) -> None:
        self._path = path
        self._text = text
        self._tombstone = tombstone
        self._only = only
        self._artifacts = Artifacts(path.parent / "artifacts")
        self._names: dict[str, str] = {}
        self._changed = 0

    def run(self) -> Redaction:
        lines = self._path.read_bytes().split(b"\n")
        old_files = self._rewrite_artifacts(lines)
        write_atomic(self._path, b"\n".join(self._rewrite(lines)), durable=True)
        sync_folder(self._path.parent)
        for old in old_files:
            with contextlib.suppress(FileNotFoundError):
                old.unlink()
        others = self._rewrite_others() if self._only is None else 0
        return Redaction(entries=self._changed, artifacts=len(old_files), other_files=others)

    def _rewrite_artifacts(self, lines: list[bytes]) -> list[Path]:
        """Write the changed artifacts under their new names; return the old files, still in place."""
        if not self._artifacts.folder.is_dir():
            return []
        named = None if self._only is None else b"\n".join(line for line in lines if self._chosen(line))
        old_files: list[Path] = []
        for path in sorted(self._artifacts.folder.iterdir()):
            if path.suffix not in (".txt", ".bin") or (named is not None and path.stem.encode() not in named):
                continue
            content = path.read_bytes()
            changed = self._bytes(content)
            if changed != content:
                put = self._artifacts.put_bytes if path.suffix == ".bin" else self._put_text
                name = put(changed)
                if name != path.stem:
                    self._names[path.stem] = name
                    old_files.append(path)
        return old_files

    def _put_text(self, content: bytes) -> str:
        return self._artifacts.put_text(content.decode("utf-8", "surrogatepass"))

    def _chosen(self, line: bytes) -> bool:
        if self._only is None:
            return True
        try:
            return self._only(entry_of(json.loads(clean_line(line))))
        except (ValueError, RecursionError):
            return False

    def _rewrite(self, lines: list[bytes]) -> list[bytes]:
        hashes: dict[str, str] = {}
        out: list[bytes] = []
        for line in lines:
            try:
                text = clean_line(line)
                raw = json.loads(text)
                entry = entry_of(raw)
            except (ValueError, RecursionError):
                out.append(self._bytes(line) if self._only is None else line)
                continue
            kept = self._line(text, raw, self._only is None or self._only(entry))
            parent_hash = hashes.get(entry.parent, "") if entry.parent is not None else ""
            line_hash = chain_hash(parent_hash, kept)
            hashes.setdefault(entry.id, line_hash)
            out.append(seal_line(kept, line_hash).encode())
        return out

    def _line(self, text: str, raw: dict[str, Any], chosen: bool) -> str:
        """Return the line's text without its hash; the bytes as they were when nothing is replaced."""
        envelope = {k: v for k, v in raw.items() if k != "hash"}
        body = self._value(envelope["body"], chosen)
        if body != envelope["body"]:
            self._changed += 1
            return canonical({**envelope, "body": body})
        try:
            return split_line(text)[0]
        except ValueError:
            return canonical(envelope) if "hash" in raw else text

    def _value(self, value: Any, chosen: bool) -> Any:
        if isinstance(value, str):
            if chosen:
                value = value.replace(self._text, self._tombstone)
            for old, new in self._names.items():
                value = value.replace(old, new)
            return value
        if isinstance(value, list):
            return [self._value(v, chosen) for v in value]
        if isinstance(value, dict):
            return self._object(value, chosen)
        return value

    def _object(self, value: dict[str, Any], chosen: bool) -> dict[str, Any]:
        fixed = _FIXED_KEYS if "kind" in value or "type" in value else frozenset()
        opaque = _OPAQUE_KEYS.get(str(value.get("type")), ())
        out = {
            self._key(k, chosen): v if k in opaque or (k in fixed and isinstance(v, str)) else self._value(v, chosen)
            for k, v in value.items()
        }
        if value.get("type") == "thinking" and out.get("thinking") != value.get("thinking"):
            out["signature"] = ""
        return out

    def _key(self, key: str, chosen: bool) -> str:
        return key.replace(self._text, self._tombstone) if chosen and len(key) > len(self._text) else key

    def _bytes(self, content: bytes) -> bytes:
        """Return `content` with the text replaced, as it is and as JSON writes it."""
        tombstone = self._tombstone.encode()
        for form in {self._text, json.dumps(self._text)[1:-1], canonical(self._text)[1:-1]}:
            content = content.replace(form.encode("utf-8", "surrogatepass"), tombstone)
        return content

    def _rewrite_others(self) -> int:
        changed = 0
        for path in (*self._path.parent.glob(f"{self._path.stem}.torn-*"), self._path.parent / "partial.json"):
            if path.is_file():
                content = path.read_bytes()
                if self._bytes(content) != content:
                    write_atomic(path, self._bytes(content))
                    changed += 1
        return changed
