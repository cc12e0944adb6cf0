"""A bare HTTP client for the fake: no retries, no checks, no help."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

HEADERS = {"authorization": "Bearer k", "anthropic-version": "2026-10-21", "content-type": "application/json"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """What came back; header names are lower case."""

    status: int
    headers: Mapping[str, str]
    raw: bytes

    def json(self) -> Any:
        """Return the parsed body."""
        return json.loads(self.raw)

    @property
    def error(self) -> str:
        """The message of an error body."""
        return str(self.json()["error"]["message"])


def send(
    base_url: str,
    body: object = None,
    *,
    path: str = "/v1/messages",
    headers: Mapping[str, str] | None = None,
    method: str = "POST",
) -> Response:
    """Send one request; a body of bytes goes out as it is, `headers` replace the usual ones."""
    where = urlsplit(base_url)
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=60)
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    try:
        connection.request(
            method, path, raw if method == "POST" else None, dict(HEADERS if headers is None else headers)
        )
        answer = connection.getresponse()
        return Response(status=answer.status, headers={k.lower(): v for k, v in answer.getheaders()}, raw=answer.read())
    finally:
        connection.close()
