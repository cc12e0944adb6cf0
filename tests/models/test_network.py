"""The way to the service by a proxy, and an address that is none: each failure is one line that says what to do."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from nbagent.core.errors import UsageProblem
from nbagent.models.anthropic import AnthropicModel
from nbagent.models.network import check_address, proxy_of
from tests.models.test_anthropic import Caller, dead_port, failed

NAMES = [n for scheme in ("http", "https", "all", "no") for n in (f"{scheme}_proxy", f"{scheme}_proxy".upper())]
PAGE = b"<!DOCTYPE html><html><head><title>Access &amp; rules</title></head><body><h1>No</h1></body></html>"


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


class _Refuses(socketserver.StreamRequestHandler):
    """Answers every request, also one for a tunnel, with the server's status and a page."""

    def handle(self) -> None:
        size = 0
        self.server.seen.append(self.rfile.readline().split()[0].decode())  # type: ignore[attr-defined]
        while (line := self.rfile.readline()) not in (b"\r\n", b""):
            if line.lower().startswith(b"content-length"):
                size = int(line.split(b":")[1])
        self.rfile.read(size)
        status: bytes = self.server.status  # type: ignore[attr-defined]
        head = b"HTTP/1.1 %s\r\nContent-Type: text/html\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
        self.wfile.write(head % (status, len(PAGE)) + PAGE)


@contextmanager
def proxy(status: str) -> Iterator[tuple[str, list[str]]]:
    """A proxy that lets nothing through; yields its host and port, and the methods that it saw."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Refuses) as server:
        server.daemon_threads = True
        server.status, server.seen = status.encode(), []  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}", server.seen  # type: ignore[attr-defined]
        server.shutdown()


@pytest.mark.parametrize(
    ("status", "words", "tries"),
    [
        ("407 Proxy Authentication Required", "asks for a name and a password", 1),
        ("403 Forbidden", "lets nothing through to api.example.test (403 Forbidden)", 1),
        ("502 Bad Gateway", "cannot reach api.example.test (502 Bad Gateway)", 5),
    ],
)
def test_a_proxy_that_refuses_the_tunnel_is_named_without_its_password(
    monkeypatch: pytest.MonkeyPatch, status: str, words: str, tries: int
) -> None:
    with proxy(status) as (where, seen):
        monkeypatch.setenv("HTTPS_PROXY", f"http://me:hidden@{where}")
        failure = failed(Caller("https://api.example.test")())
    assert words in str(failure)
    assert f"the proxy of HTTPS_PROXY (http://{where})" in str(failure)
    assert "hidden" not in str(failure)
    assert failure.kind == "connection"
    assert seen == ["CONNECT"] * tries


@pytest.mark.parametrize("by_proxy", [True, False])
@pytest.mark.parametrize(
    ("status", "words", "tries"),
    [
        ("407 Proxy Authentication Required", "http://NAME:PASSWORD@HOST:PORT", 1),
        ("502 Bad Gateway", "HTTP 502; the answer is a web page, 'Access & rules', so a proxy or gateway on the way", 5),
        ("403 Forbidden", "HTTP 403; the answer is a web page, 'Access & rules', so a proxy or gateway on the way", 1),
    ],
)
def test_a_page_in_place_of_an_answer_is_told_by_its_title(
    monkeypatch: pytest.MonkeyPatch, status: str, words: str, tries: int, by_proxy: bool
) -> None:
    with proxy(status) as (where, seen):
        if by_proxy:
            monkeypatch.setenv("HTTP_PROXY", f"http://{where}")
        failure = failed(Caller("http://gateway.example.test" if by_proxy else f"http://{where}")())
    assert words in str(failure)
    assert "<" not in str(failure)
    assert seen == ["POST"] * tries


def test_a_proxy_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    address = f"127.0.0.1:{dead_port()}"
    monkeypatch.setenv("https_proxy", f"http://{address}")
    failure = failed(Caller("https://api.example.test")())
    assert f"check the network, base_url and the proxy of https_proxy (http://{address})" in str(failure)
    assert failure.retryable


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("socks5://me:hidden@127.0.0.1:9", "%pip install socksio"),
        ("ftp://me:hidden@127.0.0.1:9", "the proxy in ALL_PROXY cannot be used"),
        ("http://127.0.0.1:none", "the proxy in ALL_PROXY cannot be used"),
    ],
)
def test_a_proxy_that_cannot_be_used_is_one_line(monkeypatch: pytest.MonkeyPatch, address: str, words: str) -> None:
    monkeypatch.setenv("ALL_PROXY", address)
    failure = failed(Caller("https://api.example.test")())
    assert words in str(failure)
    assert "hidden" not in str(failure)
    assert (failure.kind, failure.retryable) == ("connection", False)


def test_a_host_that_goes_straight_has_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "inside.example.test")
    assert proxy_of("https://inside.example.test/v1") is None
    assert proxy_of("https://127.0.0.1/v1") is None
    assert proxy_of("http://api.example.test") is None
    assert str(proxy_of("https://api.example.test")) == "the proxy of HTTPS_PROXY (http://127.0.0.1:9)"


@pytest.mark.parametrize("url", ["api.example.test", "https://", "ftp://x", "https://x:none", "http://[::1", "x:hidden@y"])
def test_an_address_that_is_none_is_refused_before_a_request(url: str) -> None:
    with pytest.raises(UsageProblem, match="is no address of a service; correct the setting base_url") as refused:
        AnthropicModel(environ={"ANTHROPIC_API_KEY": "k"}, base_url=url).check_ready()
    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize("url", ["https://api.example.test", "http://127.0.0.1:8080/v1", "https://[::1]:443"])
def test_an_address_is_taken(url: str) -> None:
    check_address(url)
