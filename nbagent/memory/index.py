"""MemoryIndex: the derived SQLite file (FTS5, WAL) over pieces of notes. The only importer of sqlite3.

It may be deleted at any time: it is made again from the notes, with the same answers (OC-M1). A file that is
broken or is somebody else's is set aside under another name. Text is kept once; the full-text tables hold words
only (contentless), over pieces, pieces with their neighbours, and sections. Vectors are kept by the hash of the
text and the embedder's id, so what did not change is not embedded twice.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from nbagent.core.errors import Diagnostic
from nbagent.memory.index_parts import (
    APPLICATION_ID,
    BUSY_TIMEOUT_MS,
    CACHED_SHARE,
    FAULT,
    LISTS,
    SCHEMA_VERSION,
    TABLES,
    WORDS,
    Change,
    IndexBusy,
    IndexQueries,
    Loaded,
    Rows,
    word_lists,
)  # fmt: skip
from nbagent.memory.notes import NoteFile, daily_date
from nbagent.memory.pieces import Chunking, Piece, sections, split


class MemoryIndex:
    """The index in the file `path`; None keeps it in memory only."""

    def __init__(self, path: Path | None, chunking: Chunking) -> None:
        self.chunking = chunking
        self.faults: list[Diagnostic] = []
        self.path = self._wanted = path
        self._connection = self._open()
        self.read = IndexQueries(_Reading(self._connection))
        self._known: dict[str, tuple[int, int, int, int]] | None = None

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def _open(self) -> sqlite3.Connection:
        if self.path is None:
            return self._made(":memory:")
        for _ in range(2):
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                return self._made(str(self.path))
            except sqlite3.OperationalError as error:
                if "malformed" not in str(error) and "no such" not in str(error):
                    remedy = "check disk, permissions and other programs, then %memory reindex"
                    self._note(f"cannot be used ({error}); an index in memory stands in", remedy)
                    break
                if not self._set_aside(str(error)):
                    break
            except sqlite3.DatabaseError as error:
                if not self._set_aside(str(error)):
                    break
            except OSError as error:
                self._note(f"cannot be made ({error.strerror})", "check disk and permissions")
                break
        self.path = None
        return self._made(":memory:")

    def _made(self, where: str) -> sqlite3.Connection:
        connection = sqlite3.connect(
            where, timeout=BUSY_TIMEOUT_MS / 1000, isolation_level=None, check_same_thread=False
        )
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        (owner,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        ours = "SELECT count(*) FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'"
        (tables,) = connection.execute(ours).fetchone()
        if tables and owner != APPLICATION_ID:
            raise sqlite3.DatabaseError("it is another program's")
        old = tables and (version != SCHEMA_VERSION or _chunking(connection) != self.chunking)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        if tables and not old:
            connection.execute("SELECT count(*) FROM piece_words WHERE piece_words MATCH 'a'").fetchone()
            connection.execute("SELECT id FROM pieces ORDER BY id DESC LIMIT 1").fetchone()
            return
        connection.execute("BEGIN IMMEDIATE")
        if old:
            self._drop(connection)
        if not connection.execute("SELECT count(*) FROM sqlite_master WHERE name='meta'").fetchone()[0]:
            for statement in TABLES.split(";"):
                connection.execute(statement)
            for name in LISTS:
                connection.execute(WORDS.format(name))
            connection.execute("INSERT INTO meta VALUES('chunking', ?)", (self.chunking,))
            connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
        connection.execute("COMMIT")

    def _drop(self, connection: sqlite3.Connection) -> None:
        found = connection.execute("SELECT name FROM sqlite_master WHERE type='table' AND name NOT LIKE 'sqlite_%'")
        for name in sorted((n for (n,) in found.fetchall()), key=lambda n: n not in LISTS):
            connection.execute(f'DROP TABLE IF EXISTS "{name}"')

    def _set_aside(self, reason: str) -> bool:
        """Give the file another name, with what belongs to it; return False where another program has it open."""
        assert self.path is not None
        other = next(
            p for n in range(1, 10_000) if not (p := self.path.with_name(f"{self.path.name}.broken-{n}")).exists()
        )
        if _in_use(self.path):
            cause = f"is no index of nbagent ({reason}) and another program has it open; an index in memory stands in"
            self._note(cause, "close that program, then %memory reindex")
            self.path = None
            return False
        try:
            os.replace(self.path, other)
            for end in ("-wal", "-shm"):
                with contextlib.suppress(FileNotFoundError):
                    os.replace(f"{self.path}{end}", f"{other}{end}")
            self._note(
                f"is no index of nbagent ({reason}); it was set aside as {other.name} and made anew", "delete it"
            )
        except OSError as error:
            self._note(f"is broken and cannot be renamed ({error.strerror})", "delete it")
        return True

    def _note(self, cause: str, remedy: str) -> None:
        self.faults.append(Diagnostic(path=str(self.path), line=None, cause=cause, remedy=remedy))

    def version(self) -> int:
        """Return a number that changes when another process changed the file. Raises as `sync`."""
        try:
            (version,) = self._connection.execute("PRAGMA data_version").fetchone()
        except sqlite3.Error as error:
            raise IndexBusy(f"the index cannot be read ({error})", broken=_is_broken(error)) from error
        return int(version)

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Keep the index as it is now for all that is read within, whatever other processes do. Raises as `sync`."""
        try:
            self._connection.execute("BEGIN")
            yield
        except sqlite3.Error as error:
            raise IndexBusy(f"the index cannot be read ({error})", broken=_is_broken(error)) from error
        finally:
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")

    def forget(self) -> None:
        """Look anew at the next sync which notes the index holds: another process changed it."""
        self._known = None

    def sync(self, files: Sequence[NoteFile], load: Callable[[NoteFile], Loaded]) -> Change:
        """Bring the index up to `files`: new and changed ones are read, others dropped. All or nothing.

        A note whose text is the same keeps its pieces. Raises sqlite3's errors as `IndexBusy`.
        """
        known = self._known = self._files() if self._known is None else self._known
        changed = [f for f in files if known.get(f.name, ())[1:] != (f.size_bytes, f.mtime_ns, f.changed_ns)]
        gone = known.keys() - {f.name for f in files} if len(known) > len(files) - len(changed) else frozenset()
        if not changed and not gone:
            return Change()
        self._known = None
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            change = self._apply(changed, sorted(gone), load)
            self._connection.execute("COMMIT")
            return change
        except sqlite3.Error as error:
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
            raise IndexBusy(f"the index was not brought up to date ({error})", broken=_is_broken(error)) from error

    def _files(self) -> dict[str, tuple[int, int, int, int]]:
        try:
            rows = self._connection.execute("SELECT name, id, size, mtime, changed FROM files").fetchall()
        except sqlite3.Error as error:
            raise IndexBusy(f"the index cannot be read ({error})", broken=_is_broken(error)) from error
        return {name: (i, size, mtime, changed) for name, i, size, mtime, changed in rows}

    def _apply(self, changed: Sequence[NoteFile], gone: Sequence[str], load: Callable[[NoteFile], Loaded]) -> Change:
        removed: list[int] = []
        added: list[int] = []
        faults: list[Diagnostic] = []
        for name in gone:
            row = self._connection.execute("SELECT id FROM files WHERE name=?", (name,)).fetchone()
            if row:
                removed += self._remove(row[0])
                self._connection.execute("DELETE FROM files WHERE id=?", row)
                self._keep_fault(name, None)
        for file in changed:
            loaded = _loaded(file, load)
            self._keep_fault(file.name, loaded.fault)
            if loaded.fault:
                faults.append(loaded.fault)
            digest = hashlib.sha256(loaded.content).hexdigest()
            old = self._connection.execute("SELECT id, digest FROM files WHERE name=?", (file.name,)).fetchone()
            if old and old[1] != digest:
                removed += self._remove(old[0])
            (file_id,) = self._connection.execute(
                "INSERT INTO files(name, size, mtime, changed, digest) VALUES(?,?,?,?,?) ON CONFLICT(name) DO "
                "UPDATE SET size=excluded.size, mtime=excluded.mtime, changed=excluded.changed, digest=excluded.digest "
                "RETURNING id",
                (file.name, file.size_bytes, file.mtime_ns, file.changed_ns, digest),
            ).fetchone()
            if not old or old[1] != digest:
                added += self._insert(file_id, file.name, split(loaded.text, self.chunking))
        return Change(removed=tuple(removed), added=tuple(added), files_read=len(changed), faults=tuple(faults))

    def _keep_fault(self, name: str, fault: Diagnostic | None) -> None:
        """Keep what is wrong with a note as long as the note is as it is; other kernels name it too."""
        self._connection.execute("DELETE FROM meta WHERE key=?", (FAULT + name,))
        if fault is not None:
            value = json.dumps([fault.path, fault.line, fault.cause, fault.remedy])
            self._connection.execute("INSERT INTO meta VALUES(?,?)", (FAULT + name, value))

    def _remove(self, file_id: int) -> list[int]:
        """Drop a note's pieces; a contentless table has to be told the words that go."""
        rows = self._connection.execute(
            "SELECT id, start_line, end_line, text, heading, label, date FROM pieces WHERE file=? ORDER BY id",
            (file_id,),
        ).fetchall()
        pieces = [Piece(start_line=r[1], end_line=r[2], text=r[3], heading=r[4], label=r[5], date=r[6]) for r in rows]
        if rows:
            (section,) = self._connection.execute("SELECT min(id) FROM sections WHERE file=?", (file_id,)).fetchone()
            for name, entries in word_lists(rows[0][0], section or 1, pieces, self.chunking).items():
                delete = f"INSERT INTO {name}({name}, rowid, words) VALUES('delete', ?, ?)"
                self._connection.executemany(delete, entries)
        self._connection.execute("DELETE FROM pieces WHERE file=?", (file_id,))
        self._connection.execute("DELETE FROM sections WHERE file=?", (file_id,))
        return [r[0] for r in rows]

    def _insert(self, file_id: int, name: str, pieces: Sequence[Piece]) -> list[int]:
        if not pieces:
            return []
        first, first_section = self._next("pieces"), self._next("sections")
        day = daily_date(name)
        self._connection.executemany(
            "INSERT INTO pieces VALUES(?,?,?,?,?,?,?,?,?,?)",
            [
                (i, file_id, p.start_line, p.end_line, p.text, p.heading, p.label, p.date or day, p.digest, p.origin)
                for i, p in enumerate(pieces, first)
            ],
        )
        if self.chunking == "pieces":
            self._connection.executemany(
                "INSERT INTO sections VALUES(?,?,?,?,?)",
                [
                    (i, file_id, first + s.first, first + s.last, s.heading)
                    for i, s in enumerate(sections(pieces), first_section)
                ],
            )
        for table, entries in word_lists(first, first_section, pieces, self.chunking).items():
            self._connection.executemany(f"INSERT INTO {table}(rowid, words) VALUES(?,?)", entries)
        return list(range(first, first + len(pieces)))

    def _next(self, table: str) -> int:
        """Return the id after the last that was ever given: an id is not used twice."""
        row = self._connection.execute("SELECT seq FROM sqlite_sequence WHERE name=?", (table,)).fetchone()
        return int(row[0]) + 1 if row else 1

    def find(self, name: str, terms: Sequence[str], limit: int, *, every: bool = False) -> list[tuple[int, float]]:
        """Return (id, BM25, higher is better) of rows of a list with any of `terms`, or `every` one of them."""
        if not terms:
            return []
        expression = (" AND " if every else " OR ").join(f'"{t.replace(chr(34), "")}"' for t in terms)
        try:
            return self._connection.execute(
                f"SELECT rowid, -rank FROM {name} WHERE {name} MATCH ? ORDER BY rank LIMIT ?", (expression, limit)
            ).fetchall()
        except sqlite3.Error as error:
            raise IndexBusy(f"keyword search failed ({error})", broken=_is_broken(error)) from error

    def store_vectors(self, embedder: str, vectors: Mapping[bytes, bytes]) -> None:
        """Keep vectors by the digest of their text; those of texts that are gone go when they are many."""
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany(
                "INSERT OR REPLACE INTO vectors VALUES(?,?,?)", [(d, embedder, v) for d, v in vectors.items()]
            )
            (kept,) = self._connection.execute("SELECT count(*) FROM vectors").fetchone()
            if kept > CACHED_SHARE * self.read.counts()["pieces"] + 10_000:
                self._connection.execute("DELETE FROM vectors WHERE digest NOT IN (SELECT digest FROM pieces)")
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
            raise IndexBusy(f"vectors were not kept ({error})", broken=_is_broken(error)) from error

    def rebuild(
        self, files: Sequence[NoteFile], load: Callable[[NoteFile], Loaded], *, without: str = ""
    ) -> Change:
        """Make all anew but the vectors, in one step, so that others see the old index or the new one.

        `without` names an embedder whose vectors go too. An index that could not be opened before is tried again.
        Raises as `sync`.
        """
        self._known = None
        if self.path is None and self._wanted is not None:
            self.path = self._wanted
            self.faults.clear()
            self.replace(aside=False)
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            for name in LISTS:
                self._connection.execute(f"INSERT INTO {name}({name}) VALUES('delete-all')")
            for name in ("pieces", "sections", "files"):
                self._connection.execute(f"DELETE FROM {name}")
            self._connection.execute("DELETE FROM meta WHERE substr(key, 1, ?) = ?", (len(FAULT), FAULT))
            self._connection.execute("DELETE FROM vectors WHERE embedder = ?", (without,))
            change = self._apply(files, (), load)
            self._connection.execute("COMMIT")
            return change
        except sqlite3.Error as error:
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
            raise IndexBusy(f"the index was not made anew ({error})", broken=_is_broken(error)) from error

    def replace(self, *, aside: bool = True) -> None:
        """Set a file that turned out broken aside, and begin a new one; with `aside` false open what is there."""
        self._connection.close()
        self._known = None
        if aside and self.path is not None:
            self._set_aside("it is damaged")
        self._connection = self._open()
        self.read = IndexQueries(_Reading(self._connection))


class _Reading:
    """A connection that is read only through this; what fails is raised as `IndexBusy`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def execute(self, sql: str, parameters: Sequence[object] = (), /) -> Rows:
        """Return all rows."""
        try:
            return Rows(self._connection.execute(sql, parameters).fetchall())
        except sqlite3.Error as error:
            raise IndexBusy(f"the index cannot be read ({error})", broken=_is_broken(error)) from error


def _in_use(path: Path) -> bool:
    """Tell whether another connection has a database open, as far as its locks say; what is none is not in use."""
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as connection:
            connection.execute("PRAGMA locking_mode=EXCLUSIVE")
            connection.execute("BEGIN EXCLUSIVE")
            connection.execute("ROLLBACK")
    except sqlite3.Error as error:
        return "locked" in str(error)
    return False


def _loaded(file: NoteFile, load: Callable[[NoteFile], Loaded]) -> Loaded:
    try:
        return load(file)
    except OSError as error:
        cause = f"cannot be read ({error.strerror})"
        fault = Diagnostic(path=str(file.path), line=None, cause=cause, remedy="check its permissions")
        return Loaded(text="", content=b"", fault=fault)


def _is_broken(error: sqlite3.Error) -> bool:
    return "malformed" in str(error) or "no such" in str(error) or (
        isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError)
    )


def _chunking(connection: sqlite3.Connection) -> str:
    row = connection.execute("SELECT value FROM meta WHERE key='chunking'").fetchone()
    return str(row[0]) if row else ""
