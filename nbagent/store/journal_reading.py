"""Reading a journal's lines: total, with a Diagnostic for whatever is not as written.

Nothing here writes or locks. What cannot be read stays in the file and is reported, and the
entries after it are still read:
* a last line that does not decode is torn (the opener cuts it and keeps the bytes beside);
* any other line that does not decode, or is no entry, is left out;
* an entry whose parent was not read is attached to the entry read before it, in memory only;
* of two entries with one id the first stands;
* a BOM, CRLF and runs of NUL around a line are looked through;
* lines of a newer format are read as far as they can be.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from json import JSONDecoder
from pathlib import Path
from typing import Any

from nbagent.core.entries import FORMAT_VERSION, Entry, body_from_dict
from nbagent.core.errors import Diagnostic, JournalDamaged

_loads = JSONDecoder().decode
_raw_decode = JSONDecoder().raw_decode  # without a look at what stands around
_UNREADABLE = (ValueError, RecursionError)
_VERIFY = "'nbagent verify' lists every such line"


@dataclass(slots=True)
class Scan:
    """What a reading brought.

    `hashes` maps entry id -> stored hash ("" where a line has none). `next_seq` is the number
    of the next line. `good_bytes` is the length up to which the file stands; bytes after it are
    a torn line. `open_end` tells that the last line is whole but lacks its line break.
    """

    entries: list[Entry] = field(default_factory=list)
    hashes: dict[str, str] = field(default_factory=dict)
    diagnostics: list[Diagnostic] = field(default_factory=list)
    next_seq: int = 1
    good_bytes: int = 0
    total_bytes: int = 0
    open_end: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalReading:
    """A journal as read; `raw_lines` are its lines as text without line breaks, damaged ones included."""

    entries: tuple[Entry, ...]
    diagnostics: tuple[Diagnostic, ...]
    raw_lines: tuple[str, ...]


def clean_line(line: bytes) -> str:
    """Return the text of a line without BOM, NULs and blanks around it.

    Raises:
        ValueError: it is not UTF-8.
    """
    return line.removeprefix(b"\xef\xbb\xbf").strip(b"\0 \t\r\n").decode()


def scan(lines: Iterable[bytes], name: str) -> Scan:
    """Read `lines` (bytes, each with its line break) of the journal that diagnostics call `name`. Never raises."""
    return _Scanner(name).run(lines)


def entry_of(raw: Any) -> Entry:
    """Return the entry of a decoded line.

    Raises:
        ValueError: the line is no entry.
    """
    try:
        entry_id, parent, at, body = raw["id"], raw["parent"], raw["at"], raw["body"]
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"it has no {error}") from error
    if type(entry_id) is not str or not (parent is None or type(parent) is str):
        raise ValueError("its id or parent is not a text")
    if type(at) not in (float, int) or type(body) is not dict:
        raise ValueError("its time is not a number or its body not an object")
    return Entry(entry_id, parent, at, body_from_dict(body))


class _Scanner:
    """The state of one reading. `_pending` is a line that is torn if nothing follows it, else damaged."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._found = Scan()
        self._pending: tuple[int, int, str] | None = None
        self._told: set[str] = set()

    def run(self, lines: Iterable[bytes]) -> Scan:
        found = self._found
        entries, hashes = found.entries, found.hashes
        number, line = 0, b"\n"
        for number, line in enumerate(lines, 1):
            try:
                text = line.decode()
                raw, end = _raw_decode(text) if text.startswith("{") else ({}, 0)
                plain = text[end:] == "\n"
                if not plain:  # blanks around it, or more than one value, or no line break
                    raw = _loads(text)
                entry = entry_of(raw)
            except _UNREADABLE as error:
                self._read_oddity(number, line, error)
            else:
                if (
                    raw.get("seq") != found.next_seq
                    or raw.get("v") != FORMAT_VERSION
                    or entry.id in hashes
                    or (entry.parent is not None and entry.parent not in hashes)
                    or self._pending is not None
                    or not plain
                ):
                    self._accept(number, line, raw, entry)
                else:
                    entries.append(entry)
                    hashes[entry.id] = raw.get("hash") or ""
                    found.next_seq += 1
            found.total_bytes += len(line)
        found.good_bytes = found.total_bytes
        found.open_end = not line.endswith(b"\n")
        if self._pending is not None:
            self._cut(*self._pending)
        return found

    def _say(self, line: int | None, cause: str, remedy: str) -> None:
        self._found.diagnostics.append(Diagnostic(path=self._name, line=line, cause=cause, remedy=remedy))

    def _say_once(self, line: int, cause: str, remedy: str) -> None:
        if cause not in self._told:
            self._told.add(cause)
            self._say(line, cause, remedy)

    def _read_oddity(self, number: int, line: bytes, error: Exception) -> None:
        """Read a line that is no plain entry: blank, dressed in NULs or a BOM, no entry, or damaged."""
        start = self._found.total_bytes
        try:
            text = clean_line(line)
            if not text:
                self._blank(number, line)
                return
            raw = _loads(text)
        except _UNREADABLE as cause:
            self._settle_pending()
            self._pending = (number, start, _reason(cause))
            return
        try:
            entry = entry_of(raw)
        except ValueError:
            self._settle_pending()
            if line.endswith(b"\n"):
                self._damaged(number, f"the line is no entry ({_reason(error)})")
            else:
                self._pending = (number, start, "it is no entry")
            return
        self._say(number, "stray bytes around the line (NUL or BOM)", "nothing to do: the entry was read")
        self._accept(number, line, raw, entry)

    def _blank(self, number: int, line: bytes) -> None:
        if not line.endswith(b"\n"):
            self._settle_pending()
            self._pending = (number, self._found.total_bytes, "NULs or blanks only")
            return
        self._say_once(number, "a blank line", "nothing to do: no entry is lost by it")

    def _settle_pending(self) -> None:
        """A line that could have been torn has lines after it: damaged."""
        if self._pending is not None:
            number, _, reason = self._pending
            self._pending = None
            self._damaged(number, f"the line cannot be read ({reason})")

    def _damaged(self, number: int, cause: str) -> None:
        self._found.next_seq += 1
        self._say(number, cause, "it stays in the file and is left out; restore the file from a backup to get it back")

    def _cut(self, number: int, start: int, reason: str) -> None:
        self._found.good_bytes, self._found.open_end = start, False
        self._say(
            number, f"the last line is torn ({reason})", "it was cut off; its bytes are kept beside, in journal.torn-N"
        )

    def _accept(self, number: int, line: bytes, raw: dict[str, Any], entry: Entry) -> None:
        """Take an entry whose envelope is not as expected, and say what is off."""
        self._settle_pending()
        found = self._found
        if line.endswith(b"\r\n"):
            self._say_once(
                number, "line breaks are CRLF", "nothing to do; keep editors and git from converting .nbagent"
            )
        self._check_version(number, raw.get("v"))
        self._check_seq(number, raw.get("seq"))
        if entry.id in found.hashes:
            self._say(number, f"the entry id {entry.id!r} occurs twice", f"the first stands; {_VERIFY}")
            return
        if entry.parent is not None and entry.parent not in found.hashes:
            before = found.entries[-1].id if found.entries else None
            self._say(
                number, f"the parent {entry.parent!r} of entry {entry.id!r} is lost",
                f"it is read as following {before!r}; the file is left as it is",
            )  # fmt: skip
            entry.parent = before
        found.entries.append(entry)
        stored = raw.get("hash")
        found.hashes[entry.id] = stored if isinstance(stored, str) else ""

    def _check_version(self, number: int, version: object) -> None:
        if version == FORMAT_VERSION:
            return
        if isinstance(version, int) and version > FORMAT_VERSION:
            self._say_once(
                number, f"written in format {version}, this nbagent knows {FORMAT_VERSION}",
                "what it does not know is kept and not shown; update with pip install -U jupyter-nbagent",
            )  # fmt: skip
        else:
            self._say_once(number, f"the format number is {version!r}", f"read as format {FORMAT_VERSION}; {_VERIFY}")

    def _check_seq(self, number: int, seq: object) -> None:
        found = self._found
        if seq != found.next_seq:
            self._say(
                number, f"the line's number is {seq!r}, expected {found.next_seq}",
                "lines were removed, moved or added by hand; the rest is read",
            )  # fmt: skip
        found.next_seq = (seq if isinstance(seq, int) and seq > 0 else found.next_seq) + 1


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8 at byte {error.start}"
    if isinstance(error, RecursionError):
        return "nested too deep"
    return str(error)


def read_journal(path: Path | str) -> JournalReading:
    """Read a journal without lock and without changing anything, for verify and export.

    Raises:
        JournalDamaged: there is no file, it is none, or it cannot be opened.
    """
    where = Path(path)
    check_regular(where)
    try:
        with where.open("rb") as lines:
            raw = lines.readlines()
    except OSError as error:
        raise JournalDamaged(f"cannot read {where}: {error.strerror}; check the path and its permissions") from error
    found = scan(raw, str(where))
    return JournalReading(
        entries=tuple(found.entries), diagnostics=tuple(found.diagnostics),
        raw_lines=tuple(line.rstrip(b"\r\n").decode("utf-8", "replace") for line in raw),
    )  # fmt: skip


def check_regular(path: Path) -> None:
    """Pass if `path` is a file or absent.

    Raises:
        JournalDamaged: it is a folder or a device.
    """
    if path.is_dir():
        raise JournalDamaged(f"{path} is a folder, not a journal; rename it, or give the journal.jsonl inside it")
    if path.exists() and not path.is_file():
        raise JournalDamaged(f"{path} is not a regular file; rename it, or choose another session")
