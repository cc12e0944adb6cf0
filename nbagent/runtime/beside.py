"""Code of somebody else, called beside the turn: it may hang, and Stop leaves it behind."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class _Ended:
    """What a call came to."""

    value: Any = None
    error: BaseException | None = None


def _run(call: Callable[[], Any]) -> _Ended:
    try:
        return _Ended(value=call())
    except BaseException as error:  # noqa: BLE001  raised again where the call is waited for
        return _Ended(error=error)


async def beside(call: Callable[[], Any]) -> Any:
    """Return what `call` returns, called on a thread of its own; one that hangs goes on there when this is cancelled.

    Raises:
        Exception: as `call` raised it; RuntimeError for what is none, such as an exit.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_Ended] = loop.create_future()

    def tell(ended: _Ended) -> None:
        if not done.done():
            done.set_result(ended)

    def work() -> None:
        ended = _run(call)
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(tell, ended)

    threading.Thread(target=work, name="nbagent beside", daemon=True).start()
    return _value(await done)


def within(call: Callable[[], Any], limit_s: float) -> Any:
    """Return what `call` returns, called on a thread of its own that is waited for.

    Raises:
        TimeoutError: it did not come back in time; it goes on there.
        Exception: as `beside`.
    """
    found: list[_Ended] = []
    thread = threading.Thread(target=lambda: found.append(_run(call)), name="nbagent beside", daemon=True)
    thread.start()
    thread.join(limit_s)
    if not found:
        raise TimeoutError(f"it did not come back within {limit_s:g} s")
    return _value(found[0])


def _value(ended: _Ended) -> Any:
    if ended.error is None:
        return ended.value
    if isinstance(ended.error, Exception):
        raise ended.error
    raise RuntimeError(f"{type(ended.error).__name__} was raised") from ended.error
