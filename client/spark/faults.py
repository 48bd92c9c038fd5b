"""Faults of a connection that no repeat removes: certificates, and the wrong scheme of an address.

`remedy_of` says what to change. Everything else may be a broker that restarts, so it is repeated.
"""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from http.client import BadStatusLine
from typing import Final
from urllib.parse import urlsplit

PROBE_S: Final = 2.0
OTHER_NAME: Final = frozenset({62, 64})
"""OpenSSL's codes for a certificate of another host name or address."""
NOT_IN_ITS_TIME: Final = frozenset({9, 10})
"""Of a certificate that is not valid yet, or has expired."""
PLAIN: Final = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST")
REFUSED: Final = ("CERTIFICATE", "UNKNOWN_CA", "HANDSHAKE_FAILURE")
"""Words of alerts by which a broker refuses the client's certificate, or asks for one."""


def cause_of(error: BaseException) -> BaseException:
    """The innermost cause; the wrappers of requests only repeat it."""
    while error.__cause__ is not None or error.__context__ is not None:
        error = error.__cause__ or error.__context__ or error
    return error


def remedy_of(cause: BaseException, url: str) -> str | None:
    """What to change, if a call to this address can never succeed; None if it may."""
    if isinstance(cause, ssl.SSLCertVerificationError):
        if cause.verify_code in OTHER_NAME:
            return "option endpoint must have a name that the broker's certificate has"
        if cause.verify_code in NOT_IN_ITS_TIME:
            return "renew the broker's certificate, or set this machine's clock"
        return (
            "option caFile (or DELAYLOG_CA_FILE), on driver and executors, must name the authority "
            "that signed the broker's certificate"
        )
    if isinstance(cause, ssl.SSLError):
        reason = cause.reason or ""
        if reason.endswith(PLAIN):
            return "the broker does not speak TLS at this port: write http://, or its TLS port"
        if "ALERT" in reason and any(word in reason for word in REFUSED):
            return "the broker wants another client certificate: options clientCert and clientKey"
        return None
    broken = isinstance(cause, (ConnectionResetError, BadStatusLine))
    if broken and url.startswith("http:") and _speaks_tls(url):
        return "the broker speaks TLS at this port: write https://"
    return None


def _speaks_tls(url: str) -> bool:
    """Whether a TLS handshake succeeds; nothing is sent."""
    parts = urlsplit(url)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    place = (parts.hostname or "", parts.port or 80)
    with (
        suppress(OSError),
        socket.create_connection(place, timeout=PROBE_S) as plain,
        context.wrap_socket(plain, server_hostname=parts.hostname),
    ):
        return True
    return False
