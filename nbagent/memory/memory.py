"""Memory: notes, their index and an embedder behind one door. It owns no clock: the day is asked for.

Every search first looks whether notes changed. What fails (embedder, index, a file) is said in the status, and
the search answers with what is left: keywords, the notes themselves, or the index as it was.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from nbagent.core.errors import Diagnostic, UserError
from nbagent.core.text import clean
from nbagent.memory.embedders import Embedder, find_embedder
from nbagent.memory.flush import FlushPlan, flush_plan
from nbagent.memory.hits import Excerpt, Hit, Hits, SessionSource, Status
from nbagent.memory.index_parts import Loaded
from nbagent.memory.library import Library
from nbagent.memory.notes import (
    MAX_NOTE_BYTES,
    PERSON_PREFIX,
    PROJECT_PREFIX,
    NoteFile,
    append,
    daily_path,
    find_notes,
    lines_of,
    locate,
    read_note,
    roots,
)  # fmt: skip
from nbagent.memory.provenance import Provenance, as_item, with_origin
from nbagent.memory.recall import Recipe, find_preset
from nbagent.memory.sessions import PREFIX as SESSION_PREFIX
from nbagent.memory.sessions import session_files, session_loader
from nbagent.memory.startup import StartupPart, cut_log, cut_note, startup_names
from nbagent.memory.withheld import names_password

GET_LINES: Final = 120  # OpenClaw's memory_get
GET_CHARS: Final = 12_000
MAX_FACT_CHARS: Final = 4_000
TAKEN_OUT: Final = "[secret:"  # what the journal leaves of a secret in a call: the fact held one
_PLACE: Final = re.compile(r"(.+\.md|sessions/.+):(\d{1,9})(?:-(\d{1,9}))?", re.IGNORECASE)
INDEX_NAME: Final = "index.sqlite"
SESSIONS_NAME: Final = "sessions.sqlite"


Finder: TypeAlias = Callable[[], tuple[list[NoteFile], list[Diagnostic]]]
Loader: TypeAlias = Callable[[NoteFile], Loaded]


class MemoryOptions(Protocol):
    """What the settings say of memory (store.settings.MemorySettings fits)."""

    @property
    def embedder(self) -> str: ...
    @property
    def preset(self) -> str: ...
    @property
    def extra_dirs(self) -> Sequence[str]: ...


class Memory:
    """The memory of the project in one folder and of the person. Made by `open`; safe from several threads."""

    def __init__(
        self, *, folder: Path, home: Path, recipe: Recipe, embedder: Embedder | None, extra_dirs: Sequence[str],
        clock_today: Callable[[], str], scrub: Callable[[str], str], session_source: SessionSource | None,
        diagnostics: Sequence[Diagnostic] = (),
    ) -> None:  # fmt: skip
        self.folder = folder / ".nbagent"
        self.recipe = recipe
        self._roots = roots(folder, home, extra_dirs)
        self._home = home
        self._clock_today = clock_today
        self._scrub = scrub
        self._embedder = embedder
        self._session_source = session_source
        self._lock = threading.RLock()
        self._diagnostics = tuple(diagnostics)
        self._libraries: dict[str, Library] = {}

    @classmethod
    def open(
        cls, folder: Path, home: Path, settings: MemoryOptions, clock_today: Callable[[], str], *,
        scrub: Callable[[str], str] = lambda text: text, session_source: SessionSource | None = None,
        environ: Mapping[str, str] | None = None, base_url: str | None = None, embedder: Embedder | None = None,
    ) -> Memory:  # fmt: skip
        """Return the memory of the notebook folder `folder` and the person's `home` (`~/.nbagent`).

        Reads nothing yet. `scrub` replaces secrets: a fact it would change is refused. `embedder` stands in for the
        one that the settings name; one that cannot be made leaves keyword search and a Diagnostic.

        Raises:
            SettingsError: there is no such preset.
        """
        recipe = find_preset(settings.preset)
        diagnostics = []
        if embedder is None:
            try:
                embedder = find_embedder(
                    settings.embedder, os.environ if environ is None else environ, base_url=base_url
                )
            except UserError as error:
                diagnostics.append(
                    Diagnostic(
                        path="memory.embedder", line=None, cause=str(error), remedy="until then search is by keywords"
                    )
                )
        return cls(
            folder=folder, home=home, recipe=recipe, embedder=embedder, extra_dirs=settings.extra_dirs,
            clock_today=clock_today, scrub=scrub, session_source=session_source, diagnostics=diagnostics,
        )  # fmt: skip

    def close(self) -> None:
        """Close the index files."""
        with self._lock:
            for library in self._libraries.values():
                library.close()
            self._libraries.clear()

    def search(self, query: str, k: int | None = None, sources: Sequence[str] = ("memory",)) -> Hits:
        """Return at most `k` hits, best first (None: as many as the preset says).

        `sources`: "memory" are notes, "sessions" what was said; where both are asked for they take turns, so that
        neither crowds out the other.

        Raises:
            UserError: a source that does not exist.
        """
        unknown = [s for s in sources if s not in ("memory", "sessions")]
        if unknown:
            raise UserError(f"source {unknown[0]!r} does not exist; choose among memory, sessions")
        count = self.recipe.max_results if k is None else max(1, k)
        if not query.strip() or not sources:
            return Hits()
        with self._lock:
            libraries = [self._library(s) for s in dict.fromkeys(sources)]
            lists = [library.search(query, count, self.today()) for library in libraries]
            behind = "; ".join(dict.fromkeys(library.behind for library in libraries if library.behind))
        merged = [hit for group in _in_turns(lists) for hit in group]
        return Hits(merged[:count] if len(lists) > 1 else merged, behind=behind)

    def get(self, path: str, from_line: int = 1, lines: int = GET_LINES) -> Excerpt:
        """Return lines of a note exactly as they stand, at most 12,000 characters; `next_line` says where to go on.

        `path` may be a place as hits show it, "PATH:2" or "PATH:2-4". A longer line is cut, with a word that it is.

        Raises:
            UserError: no such note, outside of the notes, not readable, or a line beyond its end.
        """
        if place := _PLACE.fullmatch(path):
            path, from_line = place[1], int(place[2]) if from_line == 1 else from_line
            lines = lines if place[3] is None else max(1, int(place[3]) - from_line + 1)
        all_lines = lines_of(self._said(path) if path.startswith(SESSION_PREFIX) else self._noted(path))
        first = max(1, from_line)
        if first > len(all_lines):
            raise UserError(
                f"note {path!r} has {len(all_lines)} lines, so there is no line {first}; give a smaller one"
            )
        kept: list[str] = []
        room = GET_CHARS
        for line in all_lines[first - 1 : first - 1 + max(1, lines)]:
            if kept and len(line) + 1 > room:
                break
            cut = f" [… {len(line):,} characters, cut here]" if len(line) > GET_CHARS else ""
            kept.append(line[:GET_CHARS] + cut)
            room -= len(line) + 1
        after = first + len(kept)
        return Excerpt(
            path=path, text="\n".join(kept), from_line=first, lines=len(kept), total_lines=len(all_lines),
            next_line=after if after <= len(all_lines) else None,
        )  # fmt: skip

    def _noted(self, path: str) -> str:
        try:
            where = self._located(path)
            if (size := where.stat().st_size) > MAX_NOTE_BYTES:
                raise UserError(f"note {path!r} has {size >> 20} MiB, more than {MAX_NOTE_BYTES >> 20} MiB; split it")
            found = read_note(where)
        except OSError as error:
            raise UserError(f"note {path!r} cannot be read ({error.strerror}); check it") from error
        if found.binary and found.fault:
            raise UserError(f"note {path!r} {found.fault.cause}; {found.fault.remedy}")
        return found.text

    def _located(self, path: str) -> Path:
        """Return the file of a note; names that had to be escaped to be shown are looked for among all notes."""
        try:
            return locate(path, self._roots)
        except UserError:
            if "\\" in path:
                for note in self._find_notes()[0]:
                    if note.name in (path, f"{PROJECT_PREFIX}{path}"):
                        return note.path
            raise

    def _said(self, path: str) -> str:
        found = next((f for f in session_files(self._session_source) if f.name == path), None)
        if found is None:
            raise UserError(f"there is no session {path!r}; give a path that a search in memory returned")
        return session_loader(self._session_source)(found).text

    def add(self, text: str, provenance: Provenance | None = None, *, person: bool = False) -> str:
        """Append a fact to today's log of the project (or the person's) with where it came from; return its name.

        Terminal control sequences and control characters are left out.

        Raises:
            UserError: nothing to store, too long, or a secret in it; JournalUnwritable: the disk refuses.
        """
        fact = clean(text).strip()
        if not fact.strip("-*+ \n"):
            raise UserError("there is nothing to remember in an empty text; give one fact")
        if len(fact) > MAX_FACT_CHARS:
            raise UserError(
                f"a fact of {len(fact):,} characters is too long; keep it below {MAX_FACT_CHARS:,}, or write a file"
            )
        self._refuse_secret(fact)
        item = as_item(fact, provenance)
        if provenance is not None and provenance.turn and self._stands_in_log(item, person=person):
            return self._log_name(person=person)  # a recorded turn is played again
        return self._append(item, person=person)

    def _stands_in_log(self, item: str, *, person: bool) -> bool:
        text = self._text(daily_path(self._home if person else self.folder, self.today()))
        return f"\n{item}\n" in f"\n{text}\n"

    def append_today(self, text: str, provenance: Provenance | None = None) -> str:
        """Append lines to today's log: the guarded `write` of a flush turn. Returns the note's name.

        They stay as they are, without control characters; each item gets where it came from.

        Raises:
            UserError: as `add`.
        """
        text = clean(text)
        self._refuse_secret(text)
        if not text.strip():
            raise UserError("there is nothing to remember in an empty text; give one fact a line")
        return self._append(text if provenance is None else with_origin(text, provenance), person=False)

    def _refuse_secret(self, text: str) -> None:
        if TAKEN_OUT in text or self._scrub(text) != text or names_password(text):
            raise UserError(
                "the text holds something that looks like a key or password, so it is not stored; leave that part out"
            )

    def _append(self, text: str, *, person: bool) -> str:
        append(daily_path(self._home if person else self.folder, self.today()), text)
        return self._log_name(person=person)

    def _log_name(self, *, person: bool = False) -> str:
        return f"{PERSON_PREFIX if person else PROJECT_PREFIX}memory/{self.today()}.md"

    def today(self) -> str:
        """Return the day, YYYY-MM-DD."""
        return self._clock_today()[:10]

    def today_text(self) -> str:
        """Return the project's log of today, "" when there is none."""
        return self._text(daily_path(self.folder, self.today()))

    def plan_flush(self, prompt: str | None = None) -> FlushPlan:
        """Return what a flush turn is told and may write."""
        return flush_plan(self.today(), prompt=prompt)

    def startup_parts(self) -> tuple[tuple[StartupPart, ...], tuple[Diagnostic, ...]]:
        """Return what is loaded at start, and what was cut: MEMORY.md of person and project, logs of two days."""
        places = ((PERSON_PREFIX, self._home), (PROJECT_PREFIX, self.folder))
        found = [(p, f, inner, log) for inner, log in startup_names(self.today()) for p, f in places]
        parts = []
        notes = []
        for prefix, folder, inner, log in found:
            text = self._text(folder / inner)
            if text.strip():
                part = (cut_log if log else cut_note)(text, prefix + inner)
                parts.append(part)
                if part.cut:
                    cause = f"only a part of its {part.total_lines:,} lines is loaded at start"
                    notes.append(
                        Diagnostic(
                            path=part.name, line=None, cause=cause, remedy="shorten it, or move parts to memory/*.md"
                        )
                    )
        return tuple(parts), tuple(notes)

    def _text(self, path: Path) -> str:
        try:
            return "" if path.is_symlink() or not path.is_file() else read_note(path).text
        except OSError:
            return ""

    def status(self) -> Status:
        """Return what there is and how it is searched, after bringing the index up to date."""
        with self._lock:
            notes = self._library("memory")
            notes.refresh()
            counts = notes.index.read.counts()
            said = self._libraries.get("sessions")
            return Status(
                files=counts["files"], pieces=counts["pieces"], vectors=notes.vector_count(),
                embedder=self._embedder.id if self._embedder else "none", mode=notes.mode(), preset=self.recipe.name,
                index_path=f"{PROJECT_PREFIX}{notes.index.path.name}" if notes.index.path else "in memory",
                session_pieces=said.index.read.counts()["pieces"] if said else 0,
                diagnostics=(*self._diagnostics, *notes.diagnostics()),
            )  # fmt: skip

    def reindex(self) -> Status:
        """Make the index anew from the notes; vectors of texts that did not change are kept."""
        with self._lock:
            for library in self._libraries.values() or [self._library("memory")]:
                library.rebuild()
            return self.status()

    def _library(self, source: str) -> Library:
        if source not in self._libraries:
            name = INDEX_NAME if source == "memory" else SESSIONS_NAME
            finder, loader = (self._find_notes, _load_note) if source == "memory" else self._session_doors()
            self._libraries[source] = Library(
                path=self.folder / name,
                source=source,
                recipe=self.recipe,
                embedder=self._embedder,
                find=finder,
                load=loader,
            )
        return self._libraries[source]

    def _find_notes(self) -> tuple[list[NoteFile], list[Diagnostic]]:
        return find_notes(self._roots)

    def _session_doors(
        self,
    ) -> tuple[Callable[[], tuple[list[NoteFile], list[Diagnostic]]], Callable[[NoteFile], Loaded]]:
        source = self._session_source
        return lambda: (session_files(source), []), session_loader(source)


def _load_note(file: NoteFile) -> Loaded:
    found = read_note(file.path)
    return Loaded(text=found.text, content=found.content, fault=found.fault)


def _in_turns(lists: Sequence[Sequence[Hit]]) -> list[list[Hit]]:
    """Return the hits of several lists: all firsts, all seconds and so on."""
    longest = max(map(len, lists), default=0)
    return [[hits[i] for hits in lists if i < len(hits)] for i in range(longest)]
