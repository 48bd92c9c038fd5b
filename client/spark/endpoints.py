"""Addresses of brokers: their forms, and the variable that gives them.

Clients and `delaylog` commands share these rules. An endpoint is one address, or the addresses of
one cluster separated by commas. Several endpoints, separated by spaces, are shards.

Made from client/wire/endpoints.py by `make twins`: change that one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from pyspark_delaylog.credentials import check_no_user

URL: Final = "DELAYLOG_URL"
DEFAULT_PORT: Final = 8711
DEFAULT_URL: Final = f"http://127.0.0.1:{DEFAULT_PORT}"
_SCHEMES: Final = {"http": "http", "https": "https", "delaylog": "http", "delaylogs": "https"}
_OWN: Final = ("delaylog", "delaylogs")
"""The schemes whose port is 8711 if the address has none."""
_FORM: Final = f"an address of a broker is such as {DEFAULT_URL} or delaylogs://HOST:{DEFAULT_PORT}"


def endpoints_from(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The endpoints in DELAYLOG_URL; empty if the variable is absent or empty.

    ValueError, which names the variable, for text that is not a list of addresses.
    """
    endpoints = re.sub(r"\s*,\s*", ",", environ.get(URL, "")).split()
    try:
        return tuple(",".join(map(checked_url, each.split(","))) for each in endpoints)
    except ValueError as error:
        raise type(error)(f"{URL}: {error}") from None


def default_endpoints(environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """The endpoints of a client that was given none: those in DELAYLOG_URL, else this machine's."""
    return endpoints_from(environ) or (DEFAULT_URL,)


def checked_url(url: str) -> str:
    """The address with http or https and without a trailing slash. ValueError for other text.

    `delaylog` means http and `delaylogs` https, both with port 8711 if none is given. An address
    may have a path, for a broker behind a proxy.
    """
    check_no_user(url)
    alone = without_query(url)
    if alone != url:
        raise ValueError(
            f"the address of a broker has no query and no fragment; {alone!r} is followed by one, "
            "which is not shown here: give the address alone, and a token as token or in a token "
            "file"
        )
    if "://" not in url:
        raise ValueError(f"the address {url!r} has no scheme; {_FORM}")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ValueError(f"the address {url!r} has no valid host and port; {_FORM}") from None
    if parts.scheme not in _SCHEMES:
        raise ValueError(f"the address {url!r} has the scheme {parts.scheme!r}; {_FORM}")
    if not parts.hostname or port == 0:
        raise ValueError(f"the address {url!r} has no valid host and port; {_FORM}")
    if parts.path.rstrip("/").endswith("/v1"):
        raise ValueError(f"the address of a broker ends before /v1: {url!r}; {_FORM}")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise ValueError(f"the address of a broker is printable ASCII without spaces: {url!r}")
    if parts.scheme not in _OWN:
        return url.rstrip("/")
    host = parts.netloc if port is not None else f"{parts.netloc.rstrip(':')}:{DEFAULT_PORT}"
    return f"{_SCHEMES[parts.scheme]}://{host}{parts.path}".rstrip("/")


def without_query(url: str) -> str:
    """The address up to its query or fragment, which may hold a token and is shown nowhere."""
    return re.split("[?#]", url, maxsplit=1)[0]
