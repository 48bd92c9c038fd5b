"""Checks of single keys of a cluster file: text, names, addresses and URLs.

Each function raises ClusterError that names the key, the bad value and what the key may be. `where`
is the path of the table that the key is in, such as `members.1.`, or empty for the top level.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from delaylog.broker.rules.addresses import Address, host_port, is_ipv6, is_numeric
from delaylog.replication.errors import ClusterError

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HOST: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")


def refuse_unknown(table: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    """Refuse a table with a key that is not among the known ones."""
    for key in table:
        if key not in known:
            names = ", ".join(sorted(known))
            raise ClusterError(f"{where}{key} is not a key of a cluster file; there are {names}")


def text_field(table: Mapping[str, Any], key: str, where: str, hint: str) -> str:
    """A required, non-empty text; `hint` says what it may be."""
    if key not in table:
        raise ClusterError(f"{where}{key} is missing; {hint}")
    value = table[key]
    if not isinstance(value, str) or not value:
        raise ClusterError(f"{where}{key} must be text in quotes, not {value!r}; {hint}")
    return value


def name_field(table: Mapping[str, Any], key: str, where: str) -> str:
    """A required name."""
    hint = "up to 64 letters, digits, '.', '_' and '-', a letter or digit first"
    value = text_field(table, key, where, hint)
    if not _NAME.fullmatch(value):
        raise ClusterError(f"{where}{key} must be {hint}, not {value!r}")
    return value


def parse_address(text: str, name: str) -> Address:
    """The host, in lower case, and the port of HOST:PORT; `name` = the full name of the key."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        good = is_ipv6(host)
    else:
        good = _HOST.fullmatch(host) is not None and not _is_bad_ipv4(host)
    if not colon or not good or not re.fullmatch(r"[0-9]{1,5}", port):
        raise ClusterError(f"{name} must be HOST:PORT, not {text!r}")
    if not 0 < int(port) <= 65_535:
        raise ClusterError(f"{name}: a port is 1 to 65535, not {port}")
    return host.lower(), int(port)


def _is_bad_ipv4(host: str) -> bool:
    """Whether a host looks like an IPv4 address and is none, such as 10.0.0.256."""
    return host.rpartition(".")[2].isdecimal() and not is_numeric(host)


def parse_url(text: str, name: str) -> str:
    """A URL of scheme, host and port; http:// is added to an address without a scheme."""
    scheme, found, rest = text.partition("://")
    if not found:
        scheme, rest = "http", text
    if scheme not in ("http", "https"):
        raise ClusterError(f"{name} must begin with http:// or https://, or neither: {text!r}")
    return f"{scheme}://{host_port(parse_address(rest.removesuffix('/'), name))}"
