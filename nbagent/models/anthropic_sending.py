"""Sending bodies: the SDK makes and sends the first request, which is the pattern of those that follow.

The SDK puts URL, credentials, version, betas and its own headers together; with a key or a token that does not change
they are the same at each call, and making them anew costs more than all else that a call does here. So what is sent
after the first is that request with another body, over connections of a lighter HTTP client. Whatever is not a plain
success there goes the SDK's way the next time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from nbagent.models.anthropic_failures import status_failure

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic
    from httpx2 import Request, Response

    from nbagent.models.connections import Connections, Headers, Reply

    Answer: TypeAlias = Response | Reply

# Of one request only, or what the other client says for itself: which encodings it reads.
_NOT_REPEATED = (b"content-length", b"transfer-encoding", b"cookie", b"accept-encoding")


MOST_QUOTED_BYTES = 100_000


class Sender:
    """Posts bodies to the Messages API. `direct` carries what follows the first request; None leaves all to the SDK.

    It is to be None where credentials may change, or the way to the service is not for it.
    """

    def __init__(self, client: AsyncAnthropic, direct: Connections | None) -> None:
        self._client = client
        self._direct = direct
        self._url = ""
        self._headers: Headers = ()
        self._betas: tuple[str, ...] = ()

    async def post(self, body: bytes | bytearray, betas: Sequence[str] = ()) -> Answer:
        """Send `body` with the names of `betas`; return the response of a success, to be read as a stream and closed.

        Raises:
            ModelFailed: the provider answered with an error.
            Exception: what the SDK or the transport raises.
        """
        if self._direct is None or not self._url or tuple(betas) != self._betas:
            return await self._first(body, tuple(betas))
        url, self._url = self._url, ""  # unless it is a success, the SDK makes the next one
        answer = await self._direct.post(url, self._headers, body)
        if answer.is_success:
            self._url = url
            return answer
        try:
            raw = await answer.aread()
        finally:
            await answer.aclose()
        if answer.is_redirect:
            return await self._first(body, tuple(betas))
        told = _told(raw)
        text = "" if told else raw[:MOST_QUOTED_BYTES].decode("utf-8", "replace")
        raise status_failure(answer.status_code, told, answer.headers, text)

    async def _first(self, body: bytes | bytearray, betas: tuple[str, ...]) -> Response:
        from anthropic import AsyncStream

        sent: dict[str, Any] = {"content": bytes(body)}
        if betas:
            sent["options"] = {"headers": {"anthropic-beta": ",".join(betas)}}
        stream = await self._client.post(
            "/v1/messages", cast_to=object, stream=True, stream_cls=AsyncStream[object], **sent
        )
        response: Response = stream.response
        if not response.history:
            self.learn(response.request, betas)
        return response

    def learn(self, request: Request, betas: tuple[str, ...] = ()) -> None:
        """Take `request` as the pattern of those that follow, where it can be repeated as it is."""
        if self._direct is None or request.url.userinfo or not all(v.isascii() for _, v in request.headers.raw):
            return
        self._url, self._betas = str(request.url), betas
        self._headers = [
            (name.decode("ascii"), value.decode("ascii"))
            for name, value in request.headers.raw
            if name.lower() not in _NOT_REPEATED
        ]


def _told(raw: bytes) -> Mapping[str, Any]:
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    return body if isinstance(body, Mapping) else {}
