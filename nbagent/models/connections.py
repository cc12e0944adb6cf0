"""Connections: posts bodies to one service over aiohttp and gives replies as they stream; for one event loop.

What is sent is given whole: URL, headers, body. Nothing is read from the environment, no redirect is followed, no
cookie is kept. A request that met a connection which had rested, and died, goes out once more on another.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import socket
import ssl
import weakref
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from yarl import URL

Headers: TypeAlias = Sequence[tuple[str, str]]

IDLE_S = 30.0  # an idle connection is kept so long: a tool's run, as a rule
RESTED_S = 1.0  # one that rested for less did not die of it: what broke it may have been the request
EXIT_S = 1.0  # how long the end of the process waits for connections to be closed
FIELD_BYTES = 1 << 16  # a line of the answer's head; the library's own limit is lower than that of others
# The Anthropic SDK's own: a reply that thinks for minutes keeps its connection behind a router that forgets.
_KEEP_ALIVE = (("SO_KEEPALIVE", 1), ("TCP_KEEPINTVL", 60), ("TCP_KEEPCNT", 5), ("TCP_KEEPIDLE", 60))


class Connections:
    """Connections of one event loop, opened as they are needed; `close` closes them.

    `secure` says what is trusted where there is TLS; None trusts what Python does.
    """

    def __init__(self, *, connect_s: float, read_s: float, secure: ssl.SSLContext | None = None) -> None:
        self._connect_s, self._read_s = connect_s, read_s
        self._secure = secure
        self._session: aiohttp.ClientSession | None = None
        self._opened = 0
        self._rests_since = 0.0
        self._open_replies: weakref.WeakSet[Reply] = weakref.WeakSet()
        self._at_exit: Callable[[], None] | None = None

    async def post(self, url: str, headers: Headers, body: bytes | bytearray) -> Reply:
        """Send `body` and return the reply when its head has come, whatever its status; to be read and closed.

        Raises:
            TimeoutError, aiohttp.ClientError: no head came.
        """
        # Neither the library nor the system bounds how long a body may take to be taken.
        async with asyncio.timeout(self._connect_s + 2 * self._read_s):
            opened, rested_s = self._opened, asyncio.get_running_loop().time() - self._rests_since
            try:
                return await self._post(url, headers, body)
            except aiohttp.ClientConnectionError as error:
                if self._opened != opened or rested_s < RESTED_S or isinstance(error, TimeoutError):
                    raise
            return await self._post(url, headers, body)

    async def _post(self, url: str, headers: Headers, body: bytes | bytearray) -> Reply:
        answer = await self._opened_session(url).post(
            URL(url, encoded=True), headers=headers, data=_Body(body), allow_redirects=False
        )
        reply = Reply(answer, self._rests)
        self._open_replies.add(reply)
        return reply

    def _rests(self) -> None:
        self._rests_since = asyncio.get_running_loop().time()

    def _opened_session(self, url: str) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(
                ssl=self._secure or True, keepalive_timeout=IDLE_S, socket_factory=self._open_socket, limit=0
            )
            self._session = aiohttp.ClientSession(
                connector=connector, cookie_jar=aiohttp.DummyCookieJar(), max_field_size=FIELD_BYTES,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._connect_s, sock_read=self._read_s),
            )  # fmt: skip
            self._at_exit = partial(_end, weakref.ref(self), asyncio.get_running_loop())
            atexit.register(self._at_exit)
        return self._session

    def _open_socket(self, address: tuple[Any, ...]) -> socket.socket:
        self._opened += 1
        family, kind, protocol, *_ = address
        opened = socket.socket(family, kind, protocol)
        for name, value in _KEEP_ALIVE:
            option = getattr(socket, name, None)
            if option is not None:
                opened.setsockopt(socket.SOL_SOCKET if name.startswith("SO_") else socket.IPPROTO_TCP, option, value)
        return opened

    async def close(self) -> None:
        """Close all connections; the next request opens new ones."""
        session, self._session = self._session, None
        if session is not None:
            if self._at_exit is not None:
                atexit.unregister(self._at_exit)
            await session.close()
            await asyncio.sleep(0)  # a socket is closed in the loop's next round

    def let_go(self) -> bool:
        """Keep silent about a reply that the end of the process cuts off; tell whether there is one."""
        cut = any(not reply.closed for reply in self._open_replies)
        if cut and self._session is not None:
            self._session.detach()
        return cut


def _end(opened: weakref.ref[Connections], loop: asyncio.AbstractEventLoop) -> None:
    """Close what nobody closed, when the process ends: else the library says so among the cell's output."""
    connections = opened()
    if connections is None or connections.let_go():
        return
    with contextlib.suppress(Exception):
        if loop.is_running():
            asyncio.run_coroutine_threadsafe(connections.close(), loop).result(EXIT_S)
        elif loop.is_closed():
            asyncio.run(connections.close())
        else:
            loop.run_until_complete(connections.close())


class Reply:
    """A reply whose head has come. One that is closed before its end takes its connection with it."""

    def __init__(self, answer: aiohttp.ClientResponse, on_close: Callable[[], None]) -> None:
        self._answer, self._on_close = answer, on_close
        self.closed = False
        self.status_code = answer.status
        self.headers: Mapping[str, str] = answer.headers

    @property
    def is_success(self) -> bool:
        """Whether the status is one of success."""
        return 200 <= self.status_code < 300

    @property
    def is_redirect(self) -> bool:
        """Whether the service says that it is elsewhere."""
        return 300 <= self.status_code < 400

    @property
    def at_end(self) -> bool:
        """Whether the whole body has come and was read."""
        return self._answer.content.at_eof()

    async def aread(self) -> bytes:
        """Return the whole body."""
        return await self._answer.read()

    def aiter_bytes(self) -> AsyncIterator[bytes]:
        """Return the body as it arrives, decompressed."""
        return self._answer.content.iter_any()

    async def aclose(self) -> None:
        """Let go of the connection."""
        self.closed = True
        self._on_close()
        whole = self._answer.content.at_eof()
        self._answer.close()
        if not whole:
            await asyncio.sleep(0)


class _Body(aiohttp.Payload):
    """Bytes as they are. The library's own payload warns of more than 1 MB, which a long conversation has."""

    _value: bytes | bytearray

    def __init__(self, content: bytes | bytearray) -> None:
        super().__init__(content, content_type="application/json")
        self._size = len(content)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return self._value.decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        writer.send_headers()  # by themselves: else they and the body are joined, which copies it
        await writer.write(self._value)
