"""Who a client is by its TLS certificate."""

from __future__ import annotations

import asyncio
import ssl
from functools import lru_cache
from typing import Final, NamedTuple

from delaylog.broker.host.tls.server_tls import ServerContext
from delaylog.storage.layout import NEVER_MS

_KINDS: Final = (("URI", "uri"), ("DNS", "dns"), ("email", "email"))
"""Kinds of alternative names as `ssl` names them, and the prefixes of identities."""


class ClientCertificate(NamedTuple):
    """What a verified client certificate proves."""

    identities: tuple[str, ...] = ()
    """Its names: `uri:…`, `dns:…`, `email:…`, then `cn:…`."""
    expires_ms: int = NEVER_MS


_NONE: Final = ClientCertificate()


def client_certificate(transport: asyncio.BaseTransport) -> ClientCertificate:
    """The verified certificate of a client.

    It has no identities without a certificate, without TLS, and if the certificate's CA is not
    trusted any more.
    """
    certificate = transport.get_extra_info("peercert")
    if not certificate:
        return _NONE
    context = transport.get_extra_info("ssl_object").context
    if isinstance(context, ServerContext) and not context.owner.trusts(transport):
        return _NONE
    names = certificate.get("subjectAltName", ())
    subject = [pair for part in certificate.get("subject", ()) for pair in part]
    identities = (
        *(f"{to}:{name}" for kind, to in _KINDS for given, name in names if given == kind),
        *(f"cn:{value}" for key, value in subject if key == "commonName"),
    )
    return ClientCertificate(identities, _time_ms(certificate["notAfter"]))


@lru_cache(maxsize=1_024)
def _time_ms(text: str) -> int:
    """A time as `ssl` writes it. Cached, because it is asked for each call of a connection."""
    return ssl.cert_time_to_seconds(text) * 1_000
