"""A small HTTP/1.1 server on loopback that can break its answers on purpose."""

from __future__ import annotations

import select
import socket
import socketserver
import struct
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

from tests.fakes.stream import Action, Cut, Gate, Pause


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One HTTP answer.

    `actions` are sent with chunked encoding, `body` with a length; `body` wins. `begun` is
    called right before the status line goes out, after `wait_s`.
    """

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    actions: Iterable[Action] = ()
    wait_s: float = 0.0
    begun: Callable[[], None] | None = None


Application = Callable[[str, str, Mapping[str, str], bytes], Answer]


LOOK_S = 0.02  # how often one that waits looks whether the server stops or the client has gone
NO_BODY = (204, 304)  # what followed such a head would be taken for the next answer


class LoopbackServer(socketserver.ThreadingTCPServer):
    """Serves an application on 127.0.0.1; `stop` ends open connections and pauses at once.

    A pause ends as well when the client goes. `on_stall` is called again and again during a pause that is a fault, on
    the thread of its connection, with a function that says whether the client is still there.
    """

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, application: Application, port: int) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.application = application
        self.stopping = threading.Event()
        self.on_stall: Callable[[Callable[[], bool]], None] = lambda client_is_there: None
        self.connections: set[socket.socket] = set()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        """The base URL, without a trailing slash."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def start(self) -> None:
        """Accept connections on a thread."""
        self._thread.start()

    def stop(self) -> None:
        """Close the listening socket and all connections."""
        self.stopping.set()
        self.shutdown()
        self._thread.join()
        self.server_close()
        for connection in list(self.connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:
        """Let errors of a handler thread show, except those of a connection that went away."""
        if not self.stopping.is_set():
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    server: LoopbackServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        self.server.connections.add(self.connection)

    def finish(self) -> None:
        self.server.connections.discard(self.connection)
        with suppress(OSError):
            super().finish()

    def handle(self) -> None:
        with suppress(ConnectionError):
            super().handle()

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet."""

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def _serve(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        answer = self.server.application(self.command, self.path, headers, raw)
        self._pause(answer.wait_s, stalls=True)
        if answer.begun is not None:
            answer.begun()
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if answer.status in NO_BODY:
            self.end_headers()
            return
        if answer.body is not None:
            self.send_header("content-length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)
            return
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        self._send(answer.actions)

    def _send(self, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case Pause():
                    self._pause(action.seconds, stalls=action.stalls)
                case Gate():
                    while not action.opens(LOOK_S):
                        self._check_open()
                case Cut(how="reset"):
                    self._reset()
                case Cut():
                    break
                case _ if action:
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(action), action))
        self.wfile.write(b"0\r\n\r\n")

    def _pause(self, seconds: float, *, stalls: bool) -> None:
        ends = time.monotonic() + seconds
        while (left := ends - time.monotonic()) > 0:
            self._check_open()
            if stalls:
                self.server.on_stall(self._client_is_there)
            self.server.stopping.wait(min(left, LOOK_S))

    def _check_open(self) -> None:
        if self.server.stopping.is_set():
            raise ConnectionAbortedError("the server stops")
        if not self._client_is_there():
            raise ConnectionAbortedError("the client has gone")

    def _client_is_there(self) -> bool:
        try:
            readable, _, _ = select.select([self.connection], [], [], 0)
            return not readable or self.connection.recv(1, socket.MSG_PEEK) != b""
        except (OSError, ValueError):
            return False

    def _reset(self) -> None:
        """Close without linger, which sends RST in place of FIN."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.rfile.close()
        self.wfile.close()
        self.connection.close()
        raise ConnectionResetError("reset on purpose")
