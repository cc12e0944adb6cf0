"""What a failure of the Anthropic SDK, its transport or its service means for the person: one ModelFailed a case."""

from __future__ import annotations

import html
import math
import re
import ssl
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from nbagent.core.errors import COMPACT_HELPS, ModelFailed, one_line
from nbagent.models.network import TO_SIGN_IN, proxy_failure
from nbagent.models.reply import error_event

_TRANSPORT = ("httpx2", "httpcore2", "httpcore", "aiohttp", "ssl", "anyio")

UNSENDABLE = (
    "nothing was sent: a header of the request holds a character that cannot stand there; check the key, and the "
    "variables whose names begin with ANTHROPIC_"
)

TO_TRUST = "name the file of the authority that signed it in the variable SSL_CERT_FILE before the kernel starts"
TO_GO_BACK = "`%context show` shows it, `%agent fork -1` goes back to before it"
_BY_STATUS: dict[int, tuple[str, bool, str]] = {
    400: ("invalid_request", False, f"the provider refused the request; {TO_GO_BACK}"),
    401: ("auth", False, "the key was refused; check ANTHROPIC_API_KEY"),
    402: ("billing", False, "the account cannot pay; check the billing page"),
    403: ("permission", False, "the key may not do this; check its permissions, or `%agent model NAME`"),
    407: ("connection", False, f"a proxy on the way asks for a name and a password; {TO_SIGN_IN}"),
    404: ("not_found", False, "not found; check the model's name with `%agent model NAME` and base_url"),
    408: ("timeout", True, "the provider did not answer in time"),
    409: ("server", True, "the provider reports a conflict"),
    413: ("too_large", False, f"the request is larger than the provider takes; {COMPACT_HELPS}"),
    429: ("rate_limit", True, "the provider's rate limit is reached"),
    529: ("overloaded", True, "the provider is overloaded"),
}


def failure_of(error: Exception) -> ModelFailed:
    """Return what an exception of the SDK or its transport means; branches on code and type, not on wording."""
    import anthropic

    if isinstance(error, anthropic.APIStatusError):
        body = error.body if isinstance(error.body, Mapping) else {}
        if error.status_code < 400:  # an error event in mid-stream, under the status of the answer (claude.md A4)
            inner = body.get("error")
            return error_event(inner if isinstance(inner, Mapping) else {"message": str(error)})
        text = error.body if isinstance(error.body, str) else ""
        return status_failure(error.status_code, body, error.response.headers, text)
    name = type(error).__name__
    if isinstance(error, anthropic.APITimeoutError) or "Timeout" in name:
        return ModelFailed("the provider did not answer in time", kind="timeout", retryable=True)
    if (refused := _certificate_fault(error)) is not None:
        cause = one_line(refused.verify_message)[:120]
        line = f"the certificate of the service is not trusted ({cause}); check base_url, or {TO_TRUST}"
        return ModelFailed(line, kind="connection")
    if _is_header_fault(error):
        return ModelFailed(UNSENDABLE, kind="auth")
    if isinstance(error, anthropic.APIConnectionError) or _is_unreachable(error):
        cause = one_line(str(error.__cause__ or error))[:200]
        if (url := _address(error)) and (blamed := proxy_failure(url, cause)) is not None:
            return blamed
        line = f"the provider cannot be reached ({cause}); check the network and base_url"
        return ModelFailed(line, kind="connection", retryable=True)
    if isinstance(error, OSError) or type(error).__module__.split(".")[0] in _TRANSPORT:
        return ModelFailed(f"the connection broke ({name})", kind="connection", retryable=True)
    return ModelFailed(f"the call failed: {name}: {one_line(str(error))[:200]}", kind="protocol")


def _address(error: Exception) -> str:
    """Return where the request was to go, "" where the error does not tell."""
    return str(getattr(getattr(error, "request", None), "url", ""))


def _is_unreachable(error: Exception) -> bool:
    """Tell whether the lighter client could not connect; named so that its package need not be imported here."""
    return any(kind.__name__ == "ClientConnectorError" for kind in type(error).__mro__)


def _certificate_fault(error: BaseException) -> ssl.SSLCertVerificationError | None:
    """Return what was wrong with a certificate, when that is why there is no connection; waiting does not cure it."""
    found: BaseException | None = error
    while found is not None:
        inner = getattr(found, "certificate_error", None)  # of the lighter client, whose own error is of that kind too
        if inner is None and isinstance(found, ssl.SSLCertVerificationError):
            return found
        found = inner or found.__cause__ or found.__context__
    return None


def _is_header_fault(error: BaseException) -> bool:
    """Tell whether a header could not be written; the text of such an error holds the header, a key say."""
    chain: BaseException | None = error
    while chain is not None:
        if type(chain).__name__ == "LocalProtocolError" or isinstance(chain, UnicodeEncodeError):
            return True
        chain = chain.__cause__
    return False


def status_failure(
    status: int, body: Mapping[str, Any], headers: Mapping[str, str], text: str = ""
) -> ModelFailed:
    """Return what an answer with an HTTP status of an error means; `body` is its JSON, `text` what is none."""
    kind, retryable, line = _BY_STATUS.get(status, ("server", status >= 500, "the provider failed"))
    said = _said(body)
    wait_s = retry_after(headers)
    should = headers.get("x-should-retry")
    if should in ("true", "false"):
        retryable = should == "true"
    if status == 400 and "prompt is too long" in said:  # the one case without a code (claude.md A13)
        kind, line = "overflow", f"the conversation is larger than the model's window; {COMPACT_HELPS}"
    elif status == 429 and wait_s is None and "spend" in said:
        retryable = False
    detail = f": {one_line(said)[:300]}" if said else _quoted("" if status == 407 else text)
    return ModelFailed(f"{line} (HTTP {status}{detail})", kind=kind, retryable=retryable, retry_after_s=wait_s)


def _said(body: Mapping[str, Any]) -> str:
    """Return what the JSON of an error says: at the place of the Messages API, or where gateways put it."""
    for name in ("error", "message", "detail", "errors"):
        told: object = body.get(name)
        if isinstance(told, list) and told:
            told = told[0]
        if isinstance(told, Mapping):
            told = told.get("message") or told.get("msg") or ""
        if isinstance(told, str) and told.strip():
            return told
    return ""


def _quoted(text: str) -> str:
    """Return what an answer says that is none of the Messages API; a web page by its title, or its first words."""
    if not text.strip():
        return ""
    if not re.search(r"<(!doctype|html|head|body)\b", text[:1000], re.IGNORECASE):
        return f": {one_line(text)[:200]}"
    title = re.search(r"<title[^>]*>(.*?)</title>", text, re.IGNORECASE | re.DOTALL)
    shown = title[1] if title else re.sub(r"<(script|style)\b.*?</\1>|<[^>]*>", " ", text[:20_000], flags=re.DOTALL)
    words = one_line(html.unescape(shown))[:120]
    return f"; the answer is a web page, {words!r}, so a proxy or gateway on the way may have given it"


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return how many seconds the provider asks to wait; None when it says nothing that can be read.

    A date counts from the answer's own `Date`, so that this machine's clock does not matter.
    """
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) * scale
        except ValueError:
            continue
        if not math.isnan(seconds):
            return max(0.0, seconds)
    try:
        until, now = (parsedate_to_datetime(headers.get(name, "")) for name in ("retry-after", "date"))
        return max(0.0, (until - now).total_seconds())
    except (ValueError, TypeError):
        return None
