"""The way to a service: on this machine, by a proxy, or straight; what is trusted on it; addresses that are none."""

from __future__ import annotations

import ipaddress
import os
import ssl
from dataclasses import dataclass
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from nbagent.core.errors import ModelFailed, UsageProblem, one_line


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """A proxy that requests go by: the variable that names it, and its address without name and password."""

    variable: str
    address: str

    def __str__(self) -> str:
        return f"the proxy of {self.variable} ({self.address})"


def is_loopback(url: str | None) -> bool:
    """Tell whether `url` names this machine."""
    try:
        host = urlsplit(url or "").hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name, such as 127.example.org
        return False


def check_address(url: str) -> None:
    """Refuse an address that no request can be sent to.

    Raises:
        UsageProblem: no scheme of the web, no host, or a port that is none.
    """
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise UsageProblem(
            f"{_without_credentials(url)!r} is no address of a service; correct the setting base_url, or "
            "ANTHROPIC_BASE_URL: it begins with https:// (or http://), then the host"
        )


def proxies_are_set() -> bool:
    """Tell whether the environment, or the system, names a proxy; which requests it is for is the SDK's affair."""
    return any(name != "no" for name in getproxies())


def proxy_of(url: str) -> Proxy | None:
    """Return the proxy by which a request to `url` goes, None where it goes straight."""
    parts = urlsplit(url)
    if is_loopback(url) or proxy_bypass(parts.hostname or ""):
        return None
    known = getproxies()
    scheme = next((s for s in (parts.scheme, "all") if known.get(s)), None)
    return None if scheme is None else Proxy(variable=_variable(scheme), address=_without_credentials(known[scheme]))


def _variable(scheme: str) -> str:
    names = (f"{scheme}_proxy", f"{scheme}_proxy".upper())
    return next((n for n in names if os.environ.get(n)), "the system's settings")


def _without_credentials(address: str) -> str:
    head, slashes, rest = address.rpartition("://")
    return f"{head}{slashes}{rest.rpartition('@')[2]}"


def proxy_unusable(error: Exception) -> ModelFailed:
    """Return what it means that no client can be made with the proxies that are set."""
    known = {s: a for s, a in getproxies().items() if s in ("http", "https", "all") and a}
    socks = next((s for s, a in known.items() if a.startswith("socks")), None)
    if isinstance(error, ImportError) and socks is not None:
        proxy = Proxy(variable=_variable(socks), address=_without_credentials(known[socks]))
        remedy = "which needs the package socksio: `%pip install socksio`; or set an HTTP proxy"
        return ModelFailed(f"{proxy} is a SOCKS proxy, {remedy}", kind="connection")
    named = " or ".join(_variable(s) for s in sorted(known))
    return ModelFailed(f"the proxy in {named} cannot be used: {one_line(str(error))[:200]}", kind="connection")


def proxy_failure(url: str, said: str) -> ModelFailed | None:
    """Return why the proxy of `url` did not let a request through; None where there is no proxy.

    `said` is the proxy's own status line, such as "407 Proxy Authentication Required", or why it was not reached.
    """
    proxy, host = proxy_of(url), urlsplit(url).hostname
    if proxy is None:
        return None
    status = said[:3] if said[:3].isdigit() else ""
    if status == "407":
        line = f"{proxy} asks for a name and a password; {TO_SIGN_IN} (HTTP 407)"
    elif status.startswith("4"):
        line = f"{proxy} lets nothing through to {host} ({said}); ask who runs it, or put the host into NO_PROXY"
    elif status:
        line = f"{proxy} cannot reach {host} ({said})"
    else:
        line = f"the provider cannot be reached ({said}); check the network, base_url and {proxy}"
    return ModelFailed(line, kind="connection", retryable=not status.startswith("4"))


TO_SIGN_IN = "write them into the variable, as http://NAME:PASSWORD@HOST:PORT, before the kernel starts"


def trusted_certificates() -> ssl.SSLContext:
    """Return what the SDK's own client trusts: the system's certificates, or those of SSL_CERT_FILE or SSL_CERT_DIR.

    Raises:
        ModelFailed: such a variable names what cannot be read.
    """
    import httpx2

    try:
        context = httpx2.create_ssl_context()
    except OSError as error:
        name = next((n for n in ("SSL_CERT_FILE", "SSL_CERT_DIR") if os.environ.get(n)), "the system's store")
        where = f"{name} ({os.environ[name]!r})" if name in os.environ else name
        why = error.strerror or type(error).__name__
        line = f"the certificates of {where} cannot be read ({why}); correct the variable, or unset it"
        raise ModelFailed(line, kind="connection") from error
    context.set_alpn_protocols(["http/1.1"])
    return context
