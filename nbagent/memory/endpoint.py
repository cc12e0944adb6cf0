"""EndpointEmbedder: a server that speaks OpenAI's /v1/embeddings (Ollama, vLLM, LM Studio, OpenAI itself)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit

from nbagent.core.errors import SettingsError
from nbagent.memory.embedders import EmbedderFault, Kind

if TYPE_CHECKING:
    from nbagent.memory.embedders import Floats

OPENAI_URL: Final = "https://api.openai.com/v1"
OLLAMA_URL: Final = "http://127.0.0.1:11434/v1"
BATCH: Final = 64  # texts a request; memory-and-models.md section 2
BATCH_CHARS: Final = 24_000  # about 8,000 tokens, OpenClaw's limit of a batch
MAX_TEXT_CHARS: Final = 24_000
ATTEMPTS: Final = 3  # OpenClaw 2026.5.28: three, 0.5 s at first, 8 s at most
FIRST_WAIT_S: Final = 0.5
LONGEST_WAIT_S: Final = 8.0
TIMEOUT_S: Final = {"query": 10.0, "passage": 30.0}  # one that does not answer in time is not asked again
RETRIED: Final = frozenset({408, 409, 429, 500, 502, 503, 504})
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
# What the makers of these models ask to be put before a text.
_PREFIXES: Final = (
    ("e5", "query: ", "passage: "),
    ("nomic-embed", "search_query: ", "search_document: "),
    ("mxbai-embed", "Represent this sentence for searching relevant passages: ", ""),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where the server is, which model, and what goes before a text. `key` never enters a message."""

    url: str
    model: str
    key: str = ""
    query_prefix: str = ""
    passage_prefix: str = ""
    dimensions: int | None = None

    def __repr__(self) -> str:
        return f"Endpoint(url={self.url!r}, model={self.model!r})"


def endpoint_of(name: str, environ: Mapping[str, str], *, base_url: str | None = None) -> Endpoint | None:
    """Return the end point that a name such as "ollama:nomic-embed-text" or "openai:MODEL@URL" means, else None.

    Raises:
        SettingsError: the address is none; or NBAGENT_OFFLINE is set and it is not this machine.
    """
    kind, colon, rest = name.partition(":")
    if not colon or kind not in ("openai", "ollama"):
        return None
    model, at, url = rest.partition("@")
    if at == "":
        url = OLLAMA_URL if kind == "ollama" else base_url or environ.get("OPENAI_BASE_URL") or OPENAI_URL
    parts = urlsplit(url)
    if not model or parts.scheme not in ("http", "https") or not parts.hostname:
        raise SettingsError(f"memory.embedder = {name!r}: write {kind}:MODEL or {kind}:MODEL@http://HOST:PORT/v1")
    if environ.get("NBAGENT_OFFLINE") and parts.hostname not in _LOOPBACK:
        raise SettingsError(f"memory.embedder = {name!r}: NBAGENT_OFFLINE is set, so {parts.hostname} is not asked")
    first = next(((q, p) for word, q, p in _PREFIXES if word in model.lower()), ("", ""))
    key = environ.get("OPENAI_API_KEY", "") if kind == "openai" else ""
    return Endpoint(url=url.rstrip("/"), model=model, key=key, query_prefix=first[0], passage_prefix=first[1])


class EndpointEmbedder:
    """Asks a server in batches and tries again what may pass. Vectors are cached by the index, not here."""

    fast = False

    def __init__(self, endpoint: Endpoint, *, wait: Callable[[float], object] | None = None) -> None:
        self._endpoint = endpoint
        self._wait = threading.Event().wait if wait is None else wait
        self._client: Any = None

    @property
    def id(self) -> str:
        """Return server and model; the width of its vectors is known by the first of them."""
        wanted = f"-{self._endpoint.dimensions}" if self._endpoint.dimensions else ""
        return f"{urlsplit(self._endpoint.url).netloc}/{self._endpoint.model}{wanted}"

    def covers(self, text: str) -> float:
        """Return 1: such models know many languages."""
        return 1.0

    def close(self) -> None:
        """Close what is open to the server."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def embed(self, texts: Sequence[str], kind: Kind) -> Floats:
        """Return the server's vectors.

        Raises:
            EmbedderFault: it cannot be reached, refuses, or answers with something else.
        """
        import numpy as np

        prefix = self._endpoint.query_prefix if kind == "query" else self._endpoint.passage_prefix
        rows: list[Any] = []
        for batch in _batches([f"{prefix}{t[:MAX_TEXT_CHARS]}" for t in texts]):
            rows.extend(self._ask(batch, kind))
        if len({len(r) for r in rows}) > 1:
            raise EmbedderFault(f"{self.id} gave vectors of different lengths")
        return cast("Floats", np.asarray(rows, dtype=np.float32))

    def _ask(self, batch: Sequence[str], kind: Kind) -> list[list[float]]:
        wait_s = FIRST_WAIT_S
        trouble = ""
        for attempt in range(ATTEMPTS):
            if attempt:
                self._wait(wait_s)
                wait_s = min(2 * wait_s, LONGEST_WAIT_S)
            try:
                response = self._post(batch, kind)
            except TimeoutError:
                trouble = f"did not answer within {TIMEOUT_S[kind]:.0f} s"
                break
            except OSError as error:
                trouble = f"cannot be reached ({type(error).__name__})"
                continue
            if response.status_code == 200:
                return _vectors(response, len(batch), self.id)
            trouble = f"answered {response.status_code}"
            if response.status_code not in RETRIED:
                break
            after = response.headers.get("retry-after", "")
            wait_s = min(float(after), LONGEST_WAIT_S) if after.replace(".", "", 1).isdigit() else wait_s
        raise EmbedderFault(f"{self.id} {trouble}")

    def _post(self, batch: Sequence[str], kind: Kind) -> Any:
        import httpx2

        if self._client is None:
            key = self._endpoint.key
            headers = {"authorization": f"Bearer {key}"} if key else {}
            self._client = httpx2.Client(headers=headers)
        body: dict[str, Any] = {"model": self._endpoint.model, "input": list(batch), "encoding_format": "float"}
        if self._endpoint.dimensions:
            body["dimensions"] = self._endpoint.dimensions
        try:
            return self._client.post(f"{self._endpoint.url}/embeddings", json=body, timeout=TIMEOUT_S[kind])
        except httpx2.ReadTimeout as error:
            raise TimeoutError from error
        except httpx2.HTTPError as error:
            raise ConnectionError(type(error).__name__) from error


def _batches(texts: Sequence[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for text in texts:
        if batch and (len(batch) == BATCH or size + len(text) > BATCH_CHARS):
            yield batch
            batch, size = [], 0
        batch.append(text)
        size += len(text)
    if batch:
        yield batch


def _vectors(response: Any, count: int, name: str) -> list[list[float]]:
    """Return the vectors of a reply in the order asked."""
    try:
        found = sorted(response.json()["data"], key=lambda item: item.get("index", 0))
        vectors = [[float(x) for x in item["embedding"]] for item in found]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise EmbedderFault(f"{name} answered with something that holds no vectors ({type(error).__name__})") from error
    if len(vectors) != count:
        raise EmbedderFault(f"{name} gave {len(vectors)} vectors for {count} texts")
    return vectors
