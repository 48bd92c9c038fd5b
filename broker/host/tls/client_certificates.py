"""Who a client is by its TLS certificate."""

from __future__ import annotations

import asyncio
from typing import Final

from delaylog.broker.host.tls.server_tls import ServerContext

_KINDS: Final = (("URI", "uri"), ("DNS", "dns"), ("email", "email"))
"""Kinds of alternative names as `ssl` names them, and the prefixes of identities."""


def client_identities(transport: asyncio.BaseTransport) -> list[str]:
    """The names in the verified certificate of a client: `uri:…`, `dns:…`, `email:…`, then `cn:…`.

    Empty without a certificate, without TLS, and if the certificate's CA is not trusted any more.
    """
    certificate = transport.get_extra_info("peercert")
    if not certificate:
        return []
    context = transport.get_extra_info("ssl_object").context
    if isinstance(context, ServerContext) and not context.owner.trusts(transport):
        return []
    names = certificate.get("subjectAltName", ())
    subject = [pair for part in certificate.get("subject", ()) for pair in part]
    return [
        *(f"{to}:{name}" for kind, to in _KINDS for given, name in names if given == kind),
        *(f"cn:{value}" for key, value in subject if key == "commonName"),
    ]
