"""The minimum version of TLS and the ciphers, chosen by one setting, `tls-policy`."""

from __future__ import annotations

import ssl
from typing import Final

INTERMEDIATE: Final = "intermediate"
MODERN: Final = "modern"
POLICIES: Final = {
    INTERMEDIATE: ssl.TLSVersion.TLSv1_2,
    MODERN: ssl.TLSVersion.TLSv1_3,
}
"""The minimum version of each policy."""
_CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Ciphers of TLS 1.2: forward secrecy and authenticated encryption. Those of TLS 1.3 all have both.
"""


def apply_policy(context: ssl.SSLContext, policy: str) -> None:
    """Set the minimum version and the ciphers of a context."""
    context.minimum_version = POLICIES[policy]
    context.set_ciphers(_CIPHERS)
    # OpenSSL 1.1 lets a client of TLS 1.2 repeat the costly handshake as often as it likes.
    context.options |= ssl.OP_NO_RENEGOTIATION
