"""Messages and scripted errors as HTTP answers."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from tests.fakes.errors import error_body
from tests.fakes.replies import Fault, Reply
from tests.fakes.server import Answer
from tests.fakes.stream import Action, Cut, Pause, actions

JSON = dict[str, Any]


def json_answer(value: object) -> Answer:
    """Answer 200 with a JSON body."""
    body = json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return Answer(headers={"content-type": "application/json"}, body=body)


def error_answer(fault: Fault) -> Answer:
    """Answer with a scripted error status."""
    headers = {"content-type": "application/json", **fault.headers}
    if fault.body is not None:
        return Answer(status=fault.status, headers=headers, body=fault.body.encode())
    body = error_body(fault.status, fault.message, error_type=fault.error_type)
    return Answer(status=fault.status, headers=headers, body=body)


def message_answer(message: JSON, chosen: Reply, *, streaming: bool) -> Answer:
    """Answer with a finished message, as events or as one JSON body, spoiled by the reply's fault."""
    fault = chosen.fault
    if fault is not None and fault.kind == "not_json":
        return Answer(headers={"content-type": "text/plain"}, body=(fault.body or "").encode())
    if streaming:
        return Answer(headers={"content-type": "text/event-stream; charset=utf-8"}, actions=actions(message, chosen))
    whole = json_answer(message)
    if fault is not None and fault.kind in ("stall", "reset", "eof", "empty_stream"):
        return Answer(headers=whole.headers, actions=_broken_body(whole.body or b"", fault))
    return whole


def _broken_body(body: bytes, fault: Fault) -> Iterable[Action]:
    """Break a non-streaming answer in its middle; other faults of a stream do not apply to it."""
    if fault.kind == "empty_stream":
        return
    yield body[: len(body) // 2]
    match fault.kind:
        case "stall":
            yield Pause(seconds=fault.seconds, stalls=True)
            yield body[len(body) // 2 :]
        case "reset":
            yield Cut(how="reset")
