"""TLS on one side only: tells it apart from garbage, so that both sides learn what is wrong."""

from __future__ import annotations

import ssl
from typing import Final

_OPENING: Final = b"\x16\x03"
"""The first bytes of a TLS handshake."""
ALERT: Final = b"\x15\x03\x03\x00\x02\x02\x46"
"""A fatal alert (protocol_version) as a TLS record, for a client whose handshake a plain port got.
Event loops drop the alert of OpenSSL.
"""
_PLAIN: Final = (
    *("WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "RECORD_LAYER"),
    *("HTTP_REQUEST", "HTTPS_PROXY_REQUEST"),
)
"""OpenSSL's reasons for a handshake whose first bytes are not TLS."""


def opens_with_tls(data: bytes | bytearray) -> bool:
    """Whether the first bytes of a client of a plain port begin a TLS handshake."""
    return data.startswith(_OPENING)


def is_plain(error: BaseException) -> bool:
    """Whether a handshake failed because the client of a TLS port does not speak TLS."""
    if not isinstance(error, ssl.SSLError):
        return False
    said = error.reason or str(error)
    return any(reason in said for reason in _PLAIN)
