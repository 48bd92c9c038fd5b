"""The head of a request by the letter of RFC 9112, and what is refused before routing.

aiohttp parses heads, but calls whatever it cannot parse a bad request, and passes on methods,
versions and forms of targets that a broker must refuse or translate. Body encodings, ambiguous
framing and foreign web pages are refused too. A browser sends requests for any page that it shows,
also to brokers on loopback, which have no other protection. It names the page in `Origin` and
`Sec-Fetch-Site`; other programs send neither. If a page makes its host name resolve to the broker's
address (DNS rebinding), `Host` reveals that. A numeric address in `Host` is safe, since it is not
resolved.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from aiohttp import HttpVersion, HttpVersion10, HttpVersion11, hdrs
from aiohttp.http_exceptions import BadHttpMessage, LineTooLong
from aiohttp.http_parser import RawRequestMessage
from multidict import CIMultiDict, CIMultiDictProxy, istr

from delaylog.broker.calls.answers import Problem
from delaylog.broker.rules.addresses import is_numeric
from delaylog.contract.calls.table import ALL

# ----------------------------------------------------------------------------- the request line

TARGET_BYTES_MAX: Final = 8_192
"""Largest target of a request. The longest path of the API has some 3,000 bytes."""
FIELD_BYTES_MAX: Final = 16_384
"""Largest name or value of a header field, with room for cookies and tokens of 8 KiB. It must
differ from that of targets: aiohttp's error names the limit only.
"""
FIELDS_MAX: Final = 128
"""Most header fields of a request."""
LIMITS: Final[dict[str, Any]] = {
    "max_line_size": TARGET_BYTES_MAX,
    "max_field_size": FIELD_BYTES_MAX,
    "max_headers": FIELDS_MAX,
}
"""The same as keywords of aiohttp's parsers."""
LINE_BYTES_MAX: Final = TARGET_BYTES_MAX + 100
"""Bytes from which a request line that aiohttp cannot parse is recognised."""
METHODS: Final = frozenset({"HEAD", "OPTIONS", *(call.method for call in ALL)})
"""Methods that some path offers, or that are answered by the methods it offers."""
_VERSIONS: Final = (HttpVersion11, HttpVersion10)
_LINE: Final = re.compile(rb"[\r\n]*([!#$%&'*+.^_`|~0-9A-Za-z-]+) [^ ]+ HTTP/([0-9])\.([0-9])\r\n")
_ABSOLUTE: Final = re.compile(r"https?://([^/?#@]+)((?:[/?][^#]*)?)", re.IGNORECASE)


def check_line(method: str, version: HttpVersion) -> None:
    """Raise a Problem for a method or a version that no path offers."""
    if version not in _VERSIONS:
        said = f"HTTP/{version.major}.{version.minor}"
        raise Problem("version", f"{said} is not spoken here: send HTTP/1.1")
    if method not in METHODS:
        known = ", ".join(sorted(METHODS))
        raise Problem("not_implemented", f"no path offers the method {method[:40]}; known: {known}")


def origin_form(message: RawRequestMessage) -> RawRequestMessage:
    """The request with a path for its target, if it has a URL; the host of the URL takes the place
    of `Host`, as RFC 9112 3.2.2 says. Other targets, and a URL with a user, stay as they are.
    """
    found = _ABSOLUTE.fullmatch(message.path)
    if found is None:
        return message
    host, target = found.groups()
    headers = CIMultiDict(message.headers)
    headers[hdrs.HOST] = host
    path = target if target.startswith("/") else f"/{target}"
    return message._replace(
        path=path, url=message.url.relative(), headers=CIMultiDictProxy(headers)
    )


def refusal_of(error: BaseException | None, opening: bytes) -> Problem:
    """What is wrong with a request that aiohttp cannot parse and that begins so."""
    if isinstance(error, LineTooLong):
        if error.args[1] == TARGET_BYTES_MAX:
            most = f"a request's target has at most {TARGET_BYTES_MAX} bytes"
            return Problem("target_too_long", most)
        most = f"the name or value of a header field has at most {FIELD_BYTES_MAX} bytes"
        return Problem("head_too_large", most)
    # Its subclasses, and messages of several lines, quote the request.
    said = error.message if type(error) is BadHttpMessage and "\n" not in error.message else ""
    if said.startswith("Too many headers"):
        return Problem("head_too_large", f"a request has at most {FIELDS_MAX} header fields")
    line = _LINE.match(opening)
    if line is not None:
        try:
            check_line(line[1].decode(), HttpVersion(int(line[2]), int(line[3])))
        except Problem as problem:
            return problem
    return Problem("bad_request", f"this is not HTTP: {said}" if said else "this is not HTTP")


# ------------------------------------------------------------------------ checks before routing

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
