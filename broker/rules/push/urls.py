"""The form of a target's URL. Where its host leads to is judged later, by `addresses`.

yarl parses the URL, as aiohttp does when it connects, so that both see the same host. A host of
digits and dots must be an IPv4 address in its usual form, since aiohttp connects to no other. Hosts
that a resolver takes for an address, such as `0x7f.1`, are legal here: that address is judged.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from yarl import URL

from delaylog.contract.calls.targets import UNAUTHENTICATED, URL_BYTES_MAX

HOST_CHARS_MAX: Final = 253
PORTS: Final = frozenset((80, 443))
"""Ports that a push may connect to, unless the configuration names others."""
SCHEMES: Final = ("https", "http")
_HOST: Final = re.compile(
    r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*\.?"
)


def check_url(text: str) -> str:
    """The URL in its stored form, its host in ASCII (IDNA). Raises ValueError."""
    if len(text.encode()) > URL_BYTES_MAX:
        raise ValueError(f"a URL has at most {URL_BYTES_MAX} bytes")
    if not text.isprintable() or " " in text or "\\" in text:
        # Parsers drop or reinterpret these, each in its own way.
        raise ValueError("a URL has no spaces, control characters or backslashes")
    scheme, found, rest = text.partition("://")
    if not found or scheme.lower() not in SCHEMES:
        raise ValueError("a URL begins with https:// or http://")
    if "#" in text:
        raise ValueError("a URL has no fragment: remove '#' and what follows it")
    try:
        url = URL(text)
        # The port is parsed on access.
        host, _ = url.raw_host or "", url.port
    except ValueError as error:
        raise ValueError(f"this is not a URL: {error}") from None
    authority = re.split(r"[/?]", rest, maxsplit=1)[0]
    if "@" in authority or "@" in url.raw_authority:
        raise ValueError(f"a URL has no user name and no password: {UNAUTHENTICATED}")
    if not _is_host(host, bracketed="[" in authority):
        raise ValueError(f"{host[:HOST_CHARS_MAX]!r} is not a host name or an IP address")
    return str(url)


def _is_host(host: str, *, bracketed: bool) -> bool:
    try:
        if bracketed:
            # A scope such as %eth0 names an interface of this machine.
            return "%" not in host and bool(IPv6Address(host))
        if re.fullmatch(r"[0-9.]+", host):
            return bool(IPv4Address(host))
    except ValueError:
        return False
    return len(host) <= HOST_CHARS_MAX and _HOST.fullmatch(host) is not None
