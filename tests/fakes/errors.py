"""The error answers of the service."""

from __future__ import annotations

import json

ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class Refused(Exception):
    """A request the service answers with an error status; the client is at fault."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.message = message
        self.status = status


def error_body(status: int, message: str, *, error_type: str | None = None, request_id: str = "") -> bytes:
    """Return the JSON body of an error answer; the type follows from `status` unless given."""
    kind = error_type or ERROR_TYPES.get(status, "api_error")
    body: dict[str, object] = {"type": "error", "error": {"type": kind, "message": message}}
    if request_id:
        body["request_id"] = request_id
    return json.dumps(body).encode()
