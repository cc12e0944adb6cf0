"""Library: one source of pieces kept searchable: index file, shelf in memory, embedder, ranking, hits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nbagent.core.errors import Diagnostic
from nbagent.memory.closeness import Closeness, read_closely
from nbagent.memory.embedders import Embedder, EmbedderFault, checked
from nbagent.memory.forms import with_forms
from nbagent.memory.hits import Hit, snippet
from nbagent.memory.index import MemoryIndex
from nbagent.memory.index_parts import IndexBusy, Loaded, Row
from nbagent.memory.notes import NoteFile
from nbagent.memory.openclaw import search_openclaw
from nbagent.memory.order import PARTNERS, distinct, diverse, with_contradictions
from nbagent.memory.provenance import provenance_of
from nbagent.memory.recall import LIKE_SCORE, Question, Ranked, Recipe, Why, rank
from nbagent.memory.words import query_terms

if TYPE_CHECKING:
    from nbagent.memory.shelf import Shelf

LIST_LIMIT: Final = 400  # rows of each list by words; twice the pool, since lists overlap little at their ends
EMBED_AT_ONCE: Final = 64  # texts that a slow embedder gets before a search, one request; the rest comes with the next
EMBED_FAST: Final = 4_096
SECTION_LIMIT: Final = 100
KNOWN_SHARE: Final = 0.5  # of a query's words that the embedder knows, for its likeness alone to make a hit
AROUND: Final = 2  # pieces before and after one that are read with it
MAX_PAUSE: Final = 64  # searches
DIRECT_BYTES: Final = 4 << 20  # 4 MiB; so many bytes of notes are read without the index while that is locked


class Library:
    """One searchable source. `find` lists what there is, `load` reads one of it."""

    def __init__(
        self, *, path: Path | None, source: str, recipe: Recipe, embedder: Embedder | None,
        find: Callable[[], tuple[list[NoteFile], list[Diagnostic]]], load: Callable[[NoteFile], Loaded],
    ) -> None:  # fmt: skip
        self.index = MemoryIndex(path, recipe.chunking)
        self.recipe = recipe
        self.source = source
        self.embedder = embedder
        self._find = find
        self._load = load
        self._shelf: Shelf | None = None
        self._ranges: dict[int, tuple[int, int]] | None = None
        self._version = -1
        self._found: tuple[Diagnostic, ...] = ()
        self._trouble: dict[str, Diagnostic] = {}
        self._pause = self._failures = 0
        self.behind = ""  # what the last search could not bring up to date, and why
        self._stand_in: Library | None = None
        self._other_width = False  # the embedder's vectors are not as wide as those it gave before
        self._unembedded: int | None = 1  # from this piece on some may have no vector; None: all have one

    def close(self) -> None:
        """Close the index file."""
        self.index.close()
        self._drop_stand_in()

    def _drop_stand_in(self) -> None:
        if self._stand_in is not None:
            self._stand_in.close()
            self._stand_in = None

    def refresh(self) -> None:
        """Bring index and shelf up to the notes; what cannot be done is kept as a Diagnostic."""
        files, refused = self._find()
        self._found = tuple(refused)
        try:
            self._follow()
            change = self.index.sync(files, self._load)
            self._trouble.pop("index", None)
            if change.removed or change.added:
                self._update(change.removed, change.added)
        except IndexBusy as error:
            if error.broken and self.index.path is not None:
                return self._replace()
            self._note("index", str(error), "until then a search reads the notes without it; try again")
            return None
        self._embed()
        return None

    def _follow(self) -> None:
        """Drop what is kept of the index when another process changed it."""
        version = self.index.version()
        if version != self._version:
            self._shelf = self._ranges = None
            self._unembedded = 1
            self.index.forget()
        self._version = version

    def rebuild(self) -> None:
        """Make the index anew."""
        files, refused = self._find()
        self._found = tuple(refused)
        try:
            self.index.rebuild(files, self._load, without=self._space() if self._other_width else "")
            self._trouble.pop("index", None)
            self._other_width = False
        except IndexBusy as error:
            self._note("index", str(error), "close other notebooks and try again")
            if error.broken and self.index.path is not None:
                self._replace()
        self._shelf = self._ranges = None
        self._unembedded = 1
        self._pause = 0
        self.refresh()
        while self._embed():
            pass

    def _update(self, removed: Sequence[int], added: Sequence[int]) -> None:
        if added:
            self._unembedded = min(self._unembedded or added[0], added[0])
            if self._ranges is not None:
                self._ranges |= self.index.read.section_ranges(added[0])
        shelf = self._shelf
        if shelf is None:
            return
        shelf.remove(removed)
        if added:
            shelf.add(self.index.read.facts(self._space(), added))
        if shelf.worn():
            self._shelf = None

    def _space(self) -> str:
        return self.embedder.id if self.embedder else ""

    def _embed(self) -> bool:
        """Give pieces their vectors: all at once by a fast embedder, some before each search by a slow one.

        Return whether it went well and there are more.
        """
        embedder = self.embedder
        if embedder is None or self._unembedded is None:
            return False
        if self._pause:
            self._pause -= 1
            return False
        fast = getattr(embedder, "fast", False)
        batch = EMBED_FAST if fast else EMBED_AT_ONCE
        try:
            while missing := self.index.read.missing(embedder.id, batch, first=self._unembedded):
                vectors = _packed(self._fitting(checked(embedder, [t for _, t in missing], "passage")))
                self.index.store_vectors(embedder.id, dict(zip([d for d, _ in missing], vectors, strict=True)))
                self._vectors_came(missing, vectors)
                if not fast:
                    break
            self._unembedded = None if len(missing) < batch else self._unembedded
            self._trouble.pop("embedder", None)
            self._trouble.pop("vectors", None)
            self._failures = 0
            return self._unembedded is not None
        except EmbedderFault as error:
            self._failed(error)
        except IndexBusy as error:
            self._note("vectors", str(error), "they are made again later")
        return False

    def _fitting(self, vectors: Any) -> Any:
        """Return vectors as they are when they are as wide as those the index has of this embedder.

        Raises:
            EmbedderFault: they are not.
        """
        had = self.index.read.width(self._space())
        if had and vectors.shape[1] != had:
            self._other_width = True
            raise EmbedderFault(
                f"{self._space()} gave vectors of {vectors.shape[1]} numbers, earlier of {had}; "
                "after %memory reindex only the new ones count"
            )
        return vectors

    def _vectors_came(self, missing: Sequence[tuple[bytes, str]], vectors: Sequence[bytes]) -> None:
        if self._shelf is not None:
            by_digest = dict(zip([d for d, _ in missing], vectors, strict=True))
            self._shelf.set_vectors(self.index.read.vectors_of(by_digest))

    def _failed(self, error: EmbedderFault) -> None:
        """Keep what went wrong, and leave the embedder alone for a while, longer each time."""
        self._failures += 1
        self._pause = min(MAX_PAUSE, 2**self._failures)
        self._note("embedder", str(error), f"search is by keywords; it is asked again after {self._pause} searches")

    def _note(self, what: str, cause: str, remedy: str) -> None:
        self._trouble[what] = Diagnostic(path=what, line=None, cause=cause, remedy=remedy)

    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Return everything that is wrong now."""
        return (*self.index.faults, *self._found, *self.index.read.faults(), *self._trouble.values())

    def vector_count(self) -> int:
        """Return how many pieces have a vector."""
        return self.index.read.vector_count(self.embedder.id) if self.embedder else 0

    def mode(self) -> str:
        """Return in words how it is searched."""
        if self.embedder is None:
            return "keywords only: there is no embedder"
        if "embedder" in self._trouble:
            return "keywords only: the embedder fails"
        have, want = self.vector_count(), self.index.read.counts()["pieces"]
        return "keywords and vectors" if have == want else f"keywords and vectors of {have:,} of {want:,} pieces"

    def search(self, query: str, count: int, today: str) -> list[Hit]:
        """Return at most `count` hits, and one more where it contradicts one of them.

        While the index cannot be brought up to date the notes are read without it; `behind` says so.
        """
        self.refresh()
        self.behind = ""
        if "index" in self._trouble:
            return self._without_index(query, count, today)
        self._drop_stand_in()
        return self._search(query, count, today)

    def _without_index(self, query: str, count: int, today: str) -> list[Hit]:
        """Search the notes themselves; where they are too many, the index as it was."""
        cause = self._trouble["index"].cause
        files, _ = self._find()
        if sum(f.size_bytes for f in files) > DIRECT_BYTES:
            self.behind = f"{cause}, so what was written since may be missing; try again"
            return self._search(query, count, today)
        if self._stand_in is None:
            fast = self.embedder if getattr(self.embedder, "fast", False) else None
            self._stand_in = Library(
                path=None, source=self.source, recipe=self.recipe, embedder=fast, find=self._find, load=self._load
            )
        self.behind = f"{cause}; the files were read without it"
        return self._stand_in.search(query, count, today)

    def _search(self, query: str, count: int, today: str) -> list[Hit]:
        terms = with_forms(query_terms(query))
        try:
            ranked, rows = self._found_rows(query, terms, count, today)
        except IndexBusy as error:
            if not error.broken:
                self._note("index", str(error), "try again")
                self.behind = f"{error}, so what is there was not found; try again"
                return []
            self._replace()
            ranked, rows = self._found_rows(query, terms, count, today)
        if self.recipe.scoring == "nbagent":
            ranked = diverse(distinct(ranked, rows), rows, count, relevance=self.recipe.mmr)
            return self._hits(with_contradictions(ranked, rows, count), rows, terms)
        return self._hits([(r, "") for r in ranked[:count]], rows, terms, from_start=True)

    def _found_rows(
        self, query: str, terms: Sequence[str], count: int, today: str
    ) -> tuple[list[Ranked], dict[int, Row]]:
        """Return what is ranked with its rows, all of one state of the index: another process may be changing it."""
        with self.index.reading():
            self._follow()
            ranked = self._ranked(query, terms, count, today)
            rows = self.index.read.rows([r.id for r in ranked])
        return [r for r in ranked if r.id in rows], rows

    def _ranked(self, query: str, terms: Sequence[str], count: int, today: str) -> list[Ranked]:
        if self.recipe.scoring == "openclaw":
            return search_openclaw(self, query, count, today)
        return self._by_recipe(query, terms, count, today)

    def _replace(self) -> None:
        """Make a broken index anew; the notes hold everything."""
        self.index.replace()
        self._shelf = self._ranges = None
        self._version = -1
        self.refresh()

    def shelf(self) -> Shelf:
        """Return the arrays over all pieces, made on first use."""
        from nbagent.memory.shelf import Shelf

        if self._shelf is None:
            self._shelf = Shelf(self.index.read.facts(self._space()))
        return self._shelf

    def query_vector(self, query: str) -> Any:
        """Return the query's vector, None where there is no embedder or it fails or pauses."""
        if self.embedder is None or self._pause:
            return None
        try:
            vector = self._fitting(checked(self.embedder, [query[:2_000]], "query"))[0]
        except EmbedderFault as error:
            self._failed(error)
            return None
        return vector if vector.any() else None

    def _by_recipe(self, query: str, terms: Sequence[str], count: int, today: str) -> list[Ranked]:
        from nbagent.memory.shelf import Signals

        shelf = self.shelf()
        vector = self.query_vector(query)
        cosines = shelf.cosines(vector) if vector is not None else (None, None)
        if self._ranges is None:
            self._ranges = self.index.read.section_ranges()
        found = self._listed("piece_words", terms, shelf)
        covers, knows = (getattr(self.embedder, name, None) for name in ("covers", "knows"))
        signals = Signals(
            piece=shelf.spread(found),
            window=shelf.spread(self._listed("window_words", terms, shelf)),
            section=shelf.spread_ranges(self.index.find("section_words", terms, SECTION_LIMIT), self._ranges),
            piece_vector=cosines[0], window_vector=cosines[1], covers=covers(query) if covers else 1.0, today=today,
            alone=knows is None or knows(query_terms(query)) >= KNOWN_SHARE,
        )  # fmt: skip
        ranked = rank(
            self.recipe, Question.of(query, today), shelf, signals, max(PARTNERS, 2 * count),
            lambda slots: self._read_closely(query, shelf, slots, words_alike=vector is not None),
        )  # fmt: skip
        if found or not terms:
            return ranked
        return ranked + self._parts_of_words(query, {r.id for r in ranked})

    def _listed(self, name: str, terms: Sequence[str], shelf: Shelf) -> list[tuple[int, float]]:
        """Return the best of a list by words; more of them where most are copies of one another."""
        limit = LIST_LIMIT
        while True:
            found = self.index.find(name, terms, limit)
            if len(found) < limit or 2 * shelf.distinct([i for i, _ in found]) >= LIST_LIMIT:
                return found
            limit *= 8

    def _read_closely(self, query: str, shelf: Shelf, slots: Sequence[int], *, words_alike: bool) -> Closeness:
        around = shelf.around(slots, AROUND)
        wanted = sorted({s for near in around for s in near})
        found = self.index.read.texts([int(shelf.ids[s]) for s in wanted])
        texts = {s: found.get(int(shelf.ids[s]), "") for s in wanted}
        likeness = getattr(self.embedder, "likeness", None) if words_alike else None
        return read_closely(query[:2_000], shelf.label_words(), slots, around, texts, likeness)

    def _parts_of_words(self, query: str, have: set[int]) -> list[Ranked]:
        """Return pieces that hold the query as a part of a word, behind all others."""
        text = query.strip()
        if not 3 <= len(text) <= 100:
            return []
        ids = [i for i in self.index.read.containing(text, 50) if i not in have]
        return [
            Ranked(id=i, score=LIKE_SCORE, why=Why(keyword=LIKE_SCORE, parts={"part of a word": LIKE_SCORE}))
            for i in ids
        ]

    def _hits(
        self,
        ranked: Sequence[tuple[Ranked, str]],
        rows: Mapping[int, Row],
        terms: Sequence[str],
        *,
        from_start: bool = False,
    ) -> list[Hit]:
        hits = []
        for found, contradicts in ranked:
            row = rows[found.id]
            hits.append(
                Hit(
                    path=row.file, start_line=row.start_line, end_line=row.end_line, score=found.score,
                    snippet=row.text[:700] if from_start else snippet(row.text, terms),
                    date=row.date, heading=row.heading, source=self.source, provenance=provenance_of(row.origin),
                    contradicts=contradicts, older=bool(row.date), why=found.why,
                )
            )  # fmt: skip
        return hits


def _packed(vectors: Any) -> list[bytes]:
    """Return rows as float16."""
    return [row.tobytes() for row in vectors.astype("float16")]
