"""The two ways of a request to the Messages API: over the SDK's client, and over the lighter one; each test both ways.

Put `from tests.fakes.ways import both_ways` into a test module.
"""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from nbagent.models.anthropic_sending import Sender


@pytest.fixture(params=["over the SDK's client", "over the lighter client"], autouse=True)
def both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every request of the test go one way, also the first one and those after a failure."""
    if "SDK" in request.param:
        monkeypatch.setattr(Sender, "learn", lambda *_: None)
    else:
        monkeypatch.setattr(Sender, "_first", _taught)


_first = Sender._first


async def _taught(self: Sender, body: bytes, betas: tuple[str, ...]) -> Any:
    """Learn the pattern from a request that the SDK makes and nobody sends; then post."""
    if self._direct is None:
        return await _first(self, body, betas)
    made: list[httpx2.Request] = []

    async def keep(request: httpx2.Request) -> httpx2.Response:
        made.append(request)
        return httpx2.Response(200, content=b"")

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(keep)) as http:
        await _first(Sender(self._client.with_options(http_client=http), None), body, betas)
    self.learn(made[-1], betas)
    assert self._url, "the request could not be repeated"
    return await self.post(body, betas)
