"""Checks before routing: refuses body encodings, ambiguous framing, and foreign web pages.

A browser sends requests for any page that it shows, also to brokers on loopback, which have no
other protection. It names the page in `Origin` and `Sec-Fetch-Site`; other programs send neither.
If a page makes its host name resolve to the broker's address (DNS rebinding), `Host` reveals that.
A numeric address in `Host` is safe, since it is not resolved.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from multidict import CIMultiDictProxy, istr

from delaylog.broker.calls.problems import Problem
from delaylog.broker.rules.addresses import is_numeric

_LOOPBACK: Final = frozenset(
    {"localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback"}
)
_HOST, _ORIGIN, _SITE, _ENCODING, _FRAMING = map(
    istr, ("Host", "Origin", "Sec-Fetch-Site", "Content-Encoding", "Transfer-Encoding")
)
"""Looked up for every request: the case of an `istr` is folded only once."""
_HOSTS_KEPT: Final = 256
"""Number of accepted `Host` headers to cache; a limit, since any numeric address is accepted."""
REFUSALS: Final = (400, 403, 415, 421)
"""The statuses of `RequestChecks.check`; any call may be answered with them."""


class RequestChecks:
    """The checks of every request's head."""

    def __init__(self, hosts: Iterable[str] = (), origins: Iterable[str] = ()) -> None:
        """`hosts` = names of this broker, `origins` = origins of pages that may call it."""
        self._names = _LOOPBACK.union(host.lower().rstrip(".") for host in hosts)
        self._origins = frozenset(origin.lower().rstrip("/") for origin in origins)
        self._good: set[str] = set()

    def check(self, headers: CIMultiDictProxy[str]) -> None:
        """Raise a Problem if a request with these headers must be refused."""
        host = headers.get(_HOST)
        if host is not None and host not in self._good:
            self._check_host(host)
        origin = headers.get(_ORIGIN)
        if origin is not None or _SITE in headers:
            self._check_page(host, origin, headers.get(_SITE))
        encoding = headers.get(_ENCODING)
        if encoding is not None and encoding.strip().lower() not in ("", "identity"):
            raise Problem(
                "unsupported",
                f"Content-Encoding {encoding[:64]!a} is not read: send the body as it is",
            )
        if _FRAMING in headers:
            _check_framing(headers.getall(_FRAMING))

    def _check_host(self, host: str) -> None:
        name = host_name(host)
        if name not in self._names and not is_numeric(name):
            raise Problem(
                "misdirected",
                f"Host {host[:256]!a} is not this broker's: call it by its address, or start it "
                "with --http-host NAME",
            )
        if len(self._good) >= _HOSTS_KEPT:
            self._good.clear()
        self._good.add(host)

    def _check_page(self, host: str | None, origin: str | None, site: str | None) -> None:
        if origin is not None:
            origin = origin.lower()
            if origin in self._origins:
                return
            if host is None or origin not in (f"http://{host.lower()}", f"https://{host.lower()}"):
                raise Problem(
                    "forbidden",
                    f"a web page of {origin[:256]!a} may not call this broker: start it with "
                    "--http-allowed-origin ORIGIN to allow it",
                )
        elif site is not None and site.strip().lower() == "cross-site":
            raise Problem("forbidden", "a web page of another site may not call this broker")


def host_name(host: str) -> str:
    """The name or address of a `Host` header, without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower().rstrip(".")


def _check_framing(encodings: list[str]) -> None:
    # Refuse ambiguous values: a proxy in front might disagree on whether the body is chunked.
    if len(encodings) != 1 or encodings[0].strip().lower() != "chunked":
        raise Problem("bad_request", "Transfer-Encoding is chunked, and nothing else")
