"""Sending bodies over the SDK's client: it makes the first request, which is the pattern of those that follow.

The SDK puts URL, credentials, version, betas and its own headers together; with a key or a token that does not change
they are the same at each call, and making them anew costs more than all else that a call does here. So what is sent
after the first is that request with another body, over the same HTTP client.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nbagent.models.anthropic_failures import status_failure

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic
    from httpx2 import AsyncClient, Response

_OF_ONE_REQUEST = (b"content-length", b"transfer-encoding", b"cookie")


class Sender:
    """Posts bodies to the Messages API. `http` is the client's own, when its credentials never change; else None."""

    def __init__(self, client: AsyncAnthropic, http: AsyncClient | None) -> None:
        self._client = client
        self._http = http
        self._pattern: Any = None
        self._betas: tuple[str, ...] = ()
        self._headers: list[tuple[bytes, bytes]] = []

    async def post(self, body: bytes, betas: Sequence[str] = ()) -> Response:
        """Send `body` with the names of `betas`; return the response of a success, to be read as a stream and closed.

        Raises:
            ModelFailed: the provider answered with an error.
            Exception: what the SDK or the transport raises.
        """
        if self._http is None or self._pattern is None or tuple(betas) != self._betas:
            return await self._first(body, tuple(betas))
        import httpx2

        pattern = self._pattern
        request = httpx2.Request(
            "POST", pattern.url, headers=self._headers, content=body, extensions=dict(pattern.extensions)
        )
        response = await self._http.send(request, stream=True, follow_redirects=True)
        if response.is_success:
            return response
        try:
            raw = await response.aread()
        finally:
            await response.aclose()
        self._pattern = None  # the SDK makes the next one: what it would do otherwise, it does
        raise status_failure(response.status_code, _told(raw), response.headers)

    async def _first(self, body: bytes, betas: tuple[str, ...]) -> Response:
        from anthropic import AsyncStream

        sent: dict[str, Any] = {"content": body}
        if betas:
            sent["options"] = {"headers": {"anthropic-beta": ",".join(betas)}}
        stream = await self._client.post(
            "/v1/messages", cast_to=object, stream=True, stream_cls=AsyncStream[object], **sent
        )
        response: Response = stream.response
        if self._http is not None and not response.history:
            self._pattern, self._betas = response.request, betas
            raw = response.request.headers.raw
            self._headers = [(name, value) for name, value in raw if name.lower() not in _OF_ONE_REQUEST]
        return response


def _told(raw: bytes) -> Mapping[str, Any]:
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    return body if isinstance(body, Mapping) else {}
