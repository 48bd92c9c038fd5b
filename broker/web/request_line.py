"""The head of a request by the letter of RFC 9112: its limits, methods, versions and targets.

aiohttp parses heads, but calls whatever it cannot parse a bad request, and passes on methods,
versions and forms of targets that a broker must refuse or translate.
"""

from __future__ import annotations

import re
from typing import Any, Final

from aiohttp import HttpVersion, HttpVersion10, HttpVersion11, hdrs
from aiohttp.http_exceptions import BadHttpMessage, LineTooLong
from aiohttp.http_parser import RawRequestMessage
from multidict import CIMultiDict, CIMultiDictProxy

from delaylog.broker.calls.problems import Problem
from delaylog.contract.calls.table import ALL

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
