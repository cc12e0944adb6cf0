"""A service behind TLS: its certificate is verified, and what the person trusts is trusted, whichever client sends."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nbagent.core.errors import ModelFailed
from nbagent.core.messages import Message, Prefix, Request, Response, text_block
from nbagent.models.anthropic import AnthropicModel
from nbagent.models.model import Watch
from nbagent.models.reply import ReplyBuilder
from tests.fakes.ways import both_ways  # noqa: F401
from tests.models.test_kept_blocks import END, HEAD, LAST_CHUNK, START, block, chunk
from tests.patience import HANG_S

OPENSSL = shutil.which("openssl")
pytestmark = pytest.mark.skipif(OPENSSL is None, reason="certificates are made with openssl, which is not there")

ANSWER = HEAD + chunk(START, *block(0, "hello"), *END) + LAST_CHUNK
REQUEST = Request(
    model="claude-sonnet-5-5", max_tokens=100, prefix=Prefix(system=(), tools=()),
    messages=(Message("user", (text_block("hi"),)),),
)  # fmt: skip


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return what makes a certificate that signs itself, for one name; the key is in the same file."""

    def make(name: str) -> Path:
        folder = tmp_path_factory.mktemp("tls")
        key, made, both = (folder / n for n in ("key.pem", "cert.pem", "both.pem"))
        kind = "IP" if name[0].isdigit() else "DNS"
        subprocess.run(
            [
                str(OPENSSL), "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                "-subj", "/CN=a test", "-addext", f"subjectAltName={kind}:{name}", "-keyout", str(key), "-out", str(made),
            ],
            check=True, capture_output=True,
        )  # fmt: skip
        both.write_bytes(key.read_bytes() + made.read_bytes())
        return both

    return make


def asked(
    certificate: Path, host: str = "127.0.0.1", path: str = "", times: int = 2
) -> tuple[list[Response], list[bytes], list[float]]:
    """Ask a server with `certificate`, `times` times. Returns the replies, the first lines of the requests, the waits."""
    lines: list[bytes] = []
    waits: list[float] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                lines.append(head.split(b"\r\n")[0])
                size = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
                await reader.readexactly(int(size.partition(b":")[2]))
                writer.write(ANSWER)
                await writer.drain()
        except (asyncio.IncompleteReadError, OSError):
            writer.close()

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    async def go() -> list[Response]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
        url = f"https://{host}:{server.sockets[0].getsockname()[1]}{path}"
        model = AnthropicModel(environ={"ANTHROPIC_API_KEY": "k", "HOME": "/nowhere"}, base_url=url, sleep=sleep)
        try:
            async with asyncio.timeout(HANG_S):
                return [await model.call(REQUEST, Watch(reply=ReplyBuilder(REQUEST.model))) for _ in range(times)]
        finally:
            await model.close()
            server.close()

    return asyncio.run(go()), lines, waits


def texts(responses: list[Response]) -> list[Any]:
    return [b["text"] for r in responses for b in r.blocks]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_certificate_in_ssl_cert_file_is_trusted(
    certificate: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    made = certificate(host)
    monkeypatch.setenv("SSL_CERT_FILE", str(made))
    responses, lines, _ = asked(made, host, "/gateway/anthropic")
    assert [r.error for r in responses] == [None, None]
    assert texts(responses) == ["hello", "hello"]
    assert lines == [b"POST /gateway/anthropic/v1/messages HTTP/1.1"] * 2


@pytest.mark.parametrize("trusted", [False, True])
def test_a_certificate_that_is_not_trusted_or_of_another_name_is_one_line_and_not_tried_again(
    certificate: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, trusted: bool
) -> None:
    made = certificate("other.example" if trusted else "127.0.0.1")
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(made))
    (response,), lines, waits = asked(made, times=1)
    assert lines == []
    assert isinstance(response.error, ModelFailed)
    assert response.error.kind == "connection"
    line = str(response.error)
    assert line.startswith("the certificate of the service is not trusted (")
    assert "SSL_CERT_FILE" in line
    assert "\n" not in line
    assert waits == []


def test_certificates_that_cannot_be_read_are_one_line_that_names_the_variable(
    certificate: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    missing = tmp_path / "none.pem"
    monkeypatch.setenv("SSL_CERT_FILE", str(missing))
    (response,), lines, waits = asked(certificate("127.0.0.1"), times=1)
    assert (lines, waits) == ([], [])
    wanted = f"the certificates of SSL_CERT_FILE ({str(missing)!r}) cannot be read (No such file or directory)"
    assert str(response.error) == f"{wanted}; correct the variable, or unset it"
