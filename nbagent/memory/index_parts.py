"""Tables, rows and word lists of the index, and the questions it answers by reading only."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from nbagent.core.errors import Diagnostic
from nbagent.memory.pieces import Chunking, Piece, sections
from nbagent.memory.words import index_text

APPLICATION_ID: Final = 0x6E62616D  # "nbam"
SCHEMA_VERSION: Final = 3  # raise it whenever tables, pieces or words change: the file is then made anew
BUSY_TIMEOUT_MS: Final = 1_000  # OpenClaw waits 5 s; here a search then reads the notes
CACHED_SHARE: Final = 3  # vectors kept for each piece there is, before those without a piece are dropped
FAULT: Final = "fault:"  # of `meta`, before the name of a note

TABLES: Final = """
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE files(id INTEGER PRIMARY KEY, name TEXT UNIQUE NOT NULL, size INTEGER NOT NULL, mtime INTEGER NOT NULL,
  changed INTEGER NOT NULL, digest TEXT NOT NULL);
CREATE TABLE pieces(id INTEGER PRIMARY KEY AUTOINCREMENT, file INTEGER NOT NULL, start_line INTEGER NOT NULL,
  end_line INTEGER NOT NULL, text TEXT NOT NULL, heading TEXT NOT NULL, label TEXT NOT NULL, date TEXT NOT NULL,
  digest BLOB NOT NULL, origin TEXT NOT NULL);
CREATE INDEX pieces_file ON pieces(file);
CREATE INDEX pieces_digest ON pieces(digest);
CREATE TABLE sections(id INTEGER PRIMARY KEY AUTOINCREMENT, file INTEGER NOT NULL, first INTEGER NOT NULL,
  last INTEGER NOT NULL, heading TEXT NOT NULL);
CREATE INDEX sections_file ON sections(file);
CREATE INDEX sections_first ON sections(first);
CREATE TABLE vectors(digest BLOB, embedder TEXT, vector BLOB NOT NULL, PRIMARY KEY(embedder, digest)) WITHOUT ROWID;
"""
TOKENIZER: Final = "porter unicode61 remove_diacritics 2 tokenchars '_'"
WORDS: Final = f"CREATE VIRTUAL TABLE {{}} USING fts5(words, content='', tokenize=\"{TOKENIZER}\")"
LISTS: Final = ("piece_words", "window_words", "section_words")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A piece as the index holds it; `file` is its note's name, `origin` the comment behind it."""

    id: int
    file: str
    start_line: int
    end_line: int
    text: str
    heading: str
    label: str
    date: str
    digest: bytes
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a sync did: pieces that went and came, notes read, and what was wrong with some."""

    removed: tuple[int, ...] = ()
    added: tuple[int, ...] = ()
    files_read: int = 0
    faults: tuple[Diagnostic, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A note's text as read for the index."""

    text: str
    content: bytes
    fault: Diagnostic | None = None


class IndexBusy(Exception):
    """The index is locked or its disk is full: what it held still answers. `broken`: it has to be made anew."""

    def __init__(self, message: str, *, broken: bool = False) -> None:
        super().__init__(message)
        self.broken = broken


class Rows(list[Any]):
    """The rows that a statement gave."""

    def fetchone(self) -> Any:
        """Return the first, None when there is none."""
        return self[0] if self else None


class Connection(Protocol):
    """What is needed of an open database."""

    def execute(self, sql: str, parameters: Any = ..., /) -> Rows:
        """Run a statement that reads. Raises `IndexBusy`."""
        ...


class IndexQueries:
    """Questions about pieces that read only."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def containing(self, text: str, limit: int) -> list[int]:
        """Return pieces that hold `text` as it is, in any place of a word; reads them all."""
        pattern = "%" + text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
        rows = self._connection.execute(
            "SELECT id FROM pieces WHERE text LIKE ? ESCAPE '\\' ORDER BY id LIMIT ?", (pattern, limit)
        )
        return [i for (i,) in rows]

    def rows(self, ids: Iterable[int]) -> dict[int, Row]:
        """Return the pieces of these ids."""
        found: dict[int, Row] = {}
        wanted = list(ids)
        for i in range(0, len(wanted), 500):
            part = wanted[i : i + 500]
            marks = ",".join("?" * len(part))
            for r in self._connection.execute(
                "SELECT p.id, f.name, p.start_line, p.end_line, p.text, p.heading, p.label, p.date, p.digest, p.origin "
                f"FROM pieces p JOIN files f ON f.id = p.file WHERE p.id IN ({marks})", part,
            ):  # fmt: skip
                found[r[0]] = Row(
                    id=r[0],
                    file=r[1],
                    start_line=r[2],
                    end_line=r[3],
                    text=r[4],
                    heading=r[5],
                    label=r[6],
                    date=r[7],
                    digest=r[8],
                    origin=r[9],
                )
        return found

    def texts(self, ids: Sequence[int]) -> dict[int, str]:
        """Return the texts of these pieces."""
        found: dict[int, str] = {}
        for i in range(0, len(ids), 500):
            part = ids[i : i + 500]
            marks = ",".join("?" * len(part))
            found |= dict(self._connection.execute(f"SELECT id, text FROM pieces WHERE id IN ({marks})", part))
        return found

    def facts(
        self, embedder: str, ids: Sequence[int] | None = None
    ) -> Iterator[tuple[int, int, str, str, str, str, bytes | None]]:
        """Yield (id, note, heading, text, label, date, vector or None) of the pieces in the order of ids."""
        where = f"WHERE p.id BETWEEN {min(ids)} AND {max(ids)}" if ids else ""
        yield from self._connection.execute(
            "SELECT p.id, p.file, p.heading, p.text, p.label, p.date, v.vector FROM pieces p LEFT JOIN vectors v "
            f"ON v.embedder=? AND v.digest=p.digest {where} ORDER BY p.id", (embedder,),
        )  # fmt: skip

    def section_ranges(self, first: int = 0) -> dict[int, tuple[int, int]]:
        """Return the first and last piece of each section that begins at piece `first` or later."""
        found = self._connection.execute("SELECT id, first, last FROM sections WHERE first >= ?", (first,))
        return {i: (a, b) for i, a, b in found}

    def missing(self, embedder: str, limit: int, *, first: int = 0) -> list[tuple[bytes, str]]:
        """Return (digest, text) of distinct pieces from id `first` on without a vector of this embedder."""
        found = self._connection.execute(
            "SELECT p.digest, min(p.text) FROM pieces p LEFT JOIN vectors v ON v.embedder=? AND v.digest=p.digest "
            "WHERE p.id >= ? AND v.digest IS NULL GROUP BY p.digest ORDER BY min(p.id) LIMIT ?",
            (embedder, first, limit),
        )  # fmt: skip
        return list(found)

    def counts(self) -> dict[str, int]:
        """Return how many notes and pieces there are."""
        return {n: self._connection.execute(f"SELECT count(*) FROM {n}").fetchone()[0] for n in ("files", "pieces")}

    def faults(self) -> tuple[Diagnostic, ...]:
        """Return what is wrong with the notes as they were read."""
        kept = "SELECT value FROM meta WHERE substr(key, 1, ?)=? ORDER BY key"
        rows = self._connection.execute(kept, (len(FAULT), FAULT))
        return tuple(
            Diagnostic(path=path, line=line, cause=cause, remedy=remedy)
            for path, line, cause, remedy in (json.loads(value) for (value,) in rows)
        )

    def vectors_of(self, vectors: Mapping[bytes, bytes]) -> dict[int, bytes]:
        """Return the pieces of these texts, each with its vector."""
        found: dict[int, bytes] = {}
        wanted = list(vectors)
        for i in range(0, len(wanted), 500):
            part = wanted[i : i + 500]
            marks = ",".join("?" * len(part))
            for piece, digest in self._connection.execute(
                f"SELECT id, digest FROM pieces WHERE digest IN ({marks})", part
            ):
                found[piece] = vectors[digest]
        return found

    def file_day(self, name: str) -> str:
        """Return the day a note was last changed, YYYY-MM-DD in UTC, "" when it is not there."""
        row = self._connection.execute(
            "SELECT date(mtime / 1000000000, 'unixepoch') FROM files WHERE name=?", (name,)
        ).fetchone()
        return str(row[0]) if row else ""

    def width(self, embedder: str) -> int:
        """Return how many numbers a vector of this embedder has, 0 when there is none."""
        row = self._connection.execute("SELECT length(vector) FROM vectors WHERE embedder=? LIMIT 1", (embedder,))
        found = row.fetchone()
        return int(found[0]) // 2 if found else 0

    def vector_count(self, embedder: str) -> int:
        """Return how many pieces have a vector of this embedder."""
        row = self._connection.execute(
            "SELECT count(*) FROM pieces p JOIN vectors v ON v.embedder=? AND v.digest=p.digest", (embedder,)
        ).fetchone()
        return int(row[0])


def word_lists(
    first: int, first_section: int, pieces: Sequence[Piece], chunking: Chunking
) -> dict[str, list[tuple[int, str]]]:
    """Return for each list (row id, words): pieces, pieces with neighbours below the same heading, sections."""
    words = [index_text(p.text) for p in pieces]
    lists = {"piece_words": [(first + i, w) for i, w in enumerate(words)]}
    if chunking == "openclaw":
        return lists
    windows = []
    for i, piece in enumerate(pieces):
        near = [words[j] for j in (i - 1, i, i + 1) if 0 <= j < len(pieces) and pieces[j].heading == piece.heading]
        windows.append((first + i, " ".join(near)))
    lists["window_words"] = windows
    lists["section_words"] = [
        (first_section + i, " ".join([index_text(s.heading), *words[s.first : s.last + 1]]))
        for i, s in enumerate(sections(pieces))
    ]
    return lists
